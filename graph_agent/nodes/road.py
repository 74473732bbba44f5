"""What every node passes through: budget and deadline before it, checks, counters and phases after, failures beside.

A node gets only the keys of its view and writes only what the checker lets through. What it raises becomes a record in
the state, with the decision whether to try again, before anybody waits for anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_type_hints

from langgraph.config import get_config
from langgraph.errors import GraphBubbleUp, is_invalid_resume
from langgraph.runtime import Runtime
from langgraph.types import Command, Send

from checkpointers import CheckpointerError
from graph_agent.errors import BudgetSpentError, PatchError, PhaseError, SetupError
from graph_agent.kit import Kit, Where
from graph_agent.models import is_overflow
from graph_agent.patch import Patch, clean, hashed
from graph_agent.phases import illegal
from graph_agent.policies import Again, Verdict, kinds_of
from graph_agent.prompts import names_in
from graph_agent.state import Counters, Failure, current_step, tally, totals

View = Mapping[str, Any]
Goto = str | Send | list[Send]
Result = Patch | tuple[Patch, Goto] | Mapping[str, Any]
Body = Callable[[Any, Kit, Where], Awaitable[Result]]
SMALLEST: Final = 1 / 8  # of the state: what is too long even then, is too long
DURABILITY: Final = "__pregel_durability"
PRESSURE_FLAG: Final = "budget_pressure"
STANDING: Final = ("schema_version", "phase", "usage", "budget", "halt", "plan")


@dataclass(frozen=True, slots=True)
class Node:
    """A node: what it is called, what it does, what it reads, and in which phase it works.

    One that decides is counted as a step, and not begun once the budget or the deadline is spent.
    """

    name: str
    body: Body
    view: type[Any]
    works_in: str | None = None
    decides: bool = False
    timed: bool = True

    def reads(self, kit: Kit) -> tuple[str, ...]:
        """Give the keys of its view, and those that its prompt names."""
        return tuple(dict.fromkeys((*get_type_hints(self.view), *sorted(names_in(kit.prompts.get(self.name, ""))))))


def travel(node: Node, kit: Kit) -> Callable[[dict[str, Any], Runtime[Any]], Awaitable[Any]]:
    """Make the function that LangGraph runs; a short one, for LangGraph reads its bytecode in search of subgraphs."""
    keys = node.reads(kit)

    async def run(state: dict[str, Any], runtime: Runtime[Any]) -> Any:
        return await _travelled(node, keys, kit, state, runtime)

    run.__name__ = node.name
    return run


async def _travelled(node: Node, keys: Sequence[str], kit: Kit, state: dict[str, Any], runtime: Runtime[Any]) -> Any:
    where = Where.of(runtime.execution_info, get_config()["configurable"].get(DURABILITY, "async"))
    if node.decides and (spent := _spent(state, kit)):
        return dict(stopped(node.name, spent).changes)
    started = kit.clock()
    view = {key: state[key] for key in keys if key in state}
    try:
        async with asyncio.timeout(kit.within_run(kit.deadline.node, state) if node.timed else None):
            result = await _begun(node, view, kit, where)
        patch, goto = result if isinstance(result, tuple) else (result, None)
        patch = patch if isinstance(patch, Patch) else Patch(patch)
        changes = _settled(patch, node, state, kit, kit.clock() - started)
        return changes if goto is None else Command(update=changes, goto=goto)
    except (GraphBubbleUp, PatchError, SetupError, CheckpointerError):
        raise  # what could not be stored is no failure of the node: the thread stays where it is
    except Exception as error:
        if is_invalid_resume(error):
            raise  # the answer was not one that the question takes: it is not saved, and may be given anew
        # Recorded with all its facts; `recover` decides what becomes of it.
        return _failed(error, node, state, kit, where, kit.clock() - started)


async def _begun(node: Node, view: View, kit: Kit, where: Where) -> Result:
    try:
        return await node.body(view, kit, where)
    except BudgetSpentError as spent:
        return stopped(node.name, str(spent))


def stopped(node: str, why: str) -> Patch:
    """Give the patch that stops a run at a limit; resumed, it goes on at this node."""
    return Patch().set("phase", "stopped").set("halt", {"kind": "stopped", "node": node, "reason": why})


def _spent(state: View, kit: Kit) -> str:
    """Say which limit is reached, if one is."""
    if kit.within_run(None, state) == 0:
        return "the deadline of the run has passed"
    verdict = kit.budget_of(state).exhausted(state.get("usage", {}))
    return verdict.why if verdict.yes else ""


def _settled(patch: Patch, node: Node, state: View, kit: Kit, seconds: float) -> dict[str, Any]:
    """Turn a patch into what is written: counters in their places, the phase on its way, everything checked."""
    if node.decides:
        patch = patch.count("steps")
    if node.works_in:
        patch = patch.count("wall_time", round(seconds, 6))
    usage = state.get("usage", {})
    changes = dict(patch.changes)
    if patch.counts:
        changes["usage"] = _counted(usage, patch.counts, node.name)
        pressure = kit.budget_of(state).pressure(tally(usage, changes["usage"]))
        if node.decides:
            changes = _warned(changes, state, pressure)
    if (state.get("halt") or {}).get("kind") in ("retry", "resumed") and node.works_in and "halt" not in changes:
        changes["halt"] = None
    kit.checker.check(node.name, changes)
    _check_phase(node, state, changes)
    return changes


def _warned(changes: dict[str, Any], state: View, pressure: Verdict) -> dict[str, Any]:
    """Raise the flag that tells of a limit near by; lower it once there is enough again."""
    if pressure.yes:
        return dict(Patch(changes).flag(f"budget: {pressure.why}", name=PRESSURE_FLAG).changes)
    raised = any(flag["id"] == PRESSURE_FLAG and flag.get("raised") for flag in state.get("risk_flags", ()))
    return dict(Patch(changes).lower(PRESSURE_FLAG).changes) if raised else changes


def _check_phase(node: Node, state: View, changes: dict[str, Any]) -> None:
    before: str = state.get("phase") or "idle"
    works_in = node.works_in or before
    after = changes.get("phase", works_in)
    wrong = illegal(before, works_in, after)
    if wrong:
        reason = f"the phase cannot go from {wrong[0]} to {wrong[1]}"
        raise PhaseError(node=node.name, key="phase", path="", reason=reason)
    if after != before:
        changes["phase"] = after


def _counted(usage: Counters, counts: Mapping[str, float], writer: str) -> Counters:
    """Give the new value of each counter in the place of this writer: written twice, it counts once."""
    return {name: {writer: usage.get(name, {}).get(writer, 0) + amount} for name, amount in counts.items()}


def _failed(error: Exception, node: Node, state: View, kit: Kit, where: Where, seconds: float) -> dict[str, Any]:
    """Write down what failed, and the decision about another attempt, before anybody waits."""
    halt = state.get("halt") or {}
    halt = halt if halt.get("kind") == "retry" and halt.get("node") == node.name else {}
    attempt, shrink = halt.get("attempt", 0) + 1, halt.get("shrink", 1.0)
    if is_overflow(error):
        attempt, shrink = attempt - 1, shrink / 2
        again = Again(shrink >= SMALLEST, 0.0, "it was too long; shown less")
    else:
        again = kit.retry.decide(error, attempt=attempt, chance=kit.chance())
    record = failure(error, node=node.name, state=state, kit=kit, where=where)
    record["attempt"] = attempt
    record["retry_at"] = kit.clock() + again.delay if again.yes else None
    reason = f"{record['error']['type']}: {record['error']['message']} ({again.why})"
    stuck = {"kind": "failure", "node": node.name, "failure": record["id"], "attempt": attempt, "reason": reason}
    if shrink < 1:
        stuck["shrink"] = shrink
    tokens = getattr(error, "facts", {}).get("tokens") or {}
    counts = {"wall_time": round(seconds, 6)} if node.works_in else {}
    if tokens:
        counts |= {"llm_tokens": tokens["input"] + tokens["output"], "llm_calls": 1}
    changes = {"failures": [record], "halt": stuck, "usage": _counted(state.get("usage", {}), counts, node.name)}
    kit.checker.check(node.name, changes)
    return changes


def failed_call(
    error: Exception, call: Mapping[str, Any], *, attempt: int, node: str, state: View, kit: Kit, where: Where
) -> dict[str, Any]:
    """Make the record of what went wrong with a call; attempt 0 was never begun."""
    record: dict[str, Any] = dict(failure(error, node=node, state=state, kit=kit, where=where))
    record |= {"tool": call["tool"], "input": call["args"], "attempt": attempt, "step": call.get("step", "")}
    return {**record, "id": f"{record['id']}-{call['id']}", "retry_at": None}


def failure(error: BaseException, *, node: str, state: View, kit: Kit, where: Where) -> Failure:
    """Make the record of something that went wrong, with a snapshot of where the thread stood."""
    step = current_step(state.get("plan", ()))
    facts = {k: clean(str(v)) for k, v in getattr(error, "facts", {}).items() if k != "repairs"}
    return {
        "id": f"x-{hashed(where.checkpoint, node, str(kit.clock()))}",
        "at": kit.now(),
        "node": node,
        "step": step["id"] if step else "",
        "error": {
            **facts,
            "type": type(error).__name__,
            "kinds": kinds_of(error),
            "message": clean(str(error))[:2_000],
        },
        "snapshot": {
            "checkpoint": where.checkpoint,
            "phase": state.get("phase", "idle"),
            "plan": [dict(step) for step in state.get("plan", ()) if step.get("status") == "open"],
            "usage": totals(state.get("usage", {})),
        },
    }
