"""tool: one call, and its effect once; a failure is a result. An attempt that may be repeated is recorded first."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from langgraph.errors import GraphBubbleUp
from langgraph.types import Send

from checkpointers import UnstorableValueError
from checkpointers.effects import plain
from graph_agent.artifacts import Kept, beside, kept
from graph_agent.errors import PatchError, ToolError
from graph_agent.kit import Kit, Where
from graph_agent.ledger import Claim, Means, key_of
from graph_agent.nodes.doubt import asked, effect_of, settled
from graph_agent.nodes.review import CallTask
from graph_agent.nodes.road import Goto, Node, failed_call
from graph_agent.patch import Patch, clean
from graph_agent.policies import Again
from graph_agent.running import MayStillRunError, PassedDeadlineError
from graph_agent.tools import NotDone, Outcome, Tool, outcome_of

PROTECTED: Final = (
    "schema_version", "goal", "turn", "constraints", "budget", "usage", "phase", "halt", "decisions", "calls",
    "prompts",
)  # fmt: skip
STILL_READS: Final = "it was begun before with these arguments, and still runs; it can be begun again when it has ended"
COUNTED: Final = ("steps", "wall_time", "llm_tokens", "llm_calls", "tool_calls")


async def tool(task: CallTask, kit: Kit, where: Where) -> tuple[Patch, Goto]:
    """Make the call, unless its effect was made before; on trouble, decide whether it is worth another attempt."""
    call = task["call"]
    await kit.wait_until(call.get("retry_at"))
    kit.fence(where.thread)  # here: what another run took over is not done by both
    one = kit.tools.find(call["tool"])
    if one is None or not one.has_effect:
        return await _read(task, kit, where)
    await kit.settled(where)
    key = key_of(where.thread, call, one)
    async with kit.effects.alone(key):
        claim = await kit.effects.claim(where.thread, key, effect_of(call, where), Means.of(one, call))
        return await _by_rule(claim, one, task, kit, where)


async def _read(task: CallTask, kit: Kit, where: Where) -> tuple[Patch, Goto]:
    """Make a call that has no effect, unless the same one could not be stopped and still runs."""
    call = task["call"]
    if kit.effects.running(_slot(call, where)):
        return await _failed(ToolError(STILL_READS), task, call.get("attempts", 0), kit, where, claim=None)
    return await _attempt(task, kit, where)


async def _by_rule(claim: Claim, one: Tool, task: CallTask, kit: Kit, where: Where) -> tuple[Patch, Goto]:
    """Do what the table says."""
    if claim.rule == "probe":
        return await _probed(claim, one, task, kit, where)
    if claim.rule == "late":
        return await _late(claim, task, kit, where)
    if claim.rule in ("run", "again"):
        return await _attempt(task, kit, where, claim)
    if claim.rule == "ask":
        return asked(claim, task, kit, where)
    return await settled(claim, task, kit)


async def _late(claim: Claim, task: CallTask, kit: Kit, where: Where) -> tuple[Patch, Goto]:
    """Take what a call came to that was not waited for."""
    try:
        result = kit.effects.ended(claim)
    except Exception as error:  # noqa: BLE001  as if it had been waited for
        return await _failed(error, task, task["call"].get("attempts", 1), kit, where, claim=claim)
    return await _made(outcome_of(result), task, kit, where, claim=claim)


async def _probed(claim: Claim, one: Tool, task: CallTask, kit: Kit, where: Where) -> tuple[Patch, Goto]:
    """Ask the tool's probe; one that cannot tell leaves it to a person."""
    call = task["call"]
    try:
        found = await kit.tools.probe(
            one.name, claim.key, call["args"], deadline=kit.within_run(kit.deadline.tool, task)
        )
    except Exception as error:  # noqa: BLE001  a person is asked instead, and the record has it
        record = _record(error, task, claim.attempt, kit, where)
        patch, goto = asked(
            claim, task, kit, where, why=f"its probe failed: {type(error).__name__}: {clean(str(error))[:300]}"
        )
        return patch.add("failures", record), goto
    if isinstance(found, NotDone):
        begun = await kit.effects.begin_again(claim, effect_of(call, where), "its probe found that it was not done")
        return await _attempt(task, kit, where, begun)
    return await _made(found, task, kit, where, claim=claim, why="its probe found that it was done")


async def _attempt(task: CallTask, kit: Kit, where: Where, claim: Claim | None = None) -> tuple[Patch, Goto]:
    """Run the tool, and record what came of it."""
    call, key = task["call"], claim.key if claim else ""
    attempt, started = call.get("attempts", 0) + 1, kit.clock()
    try:
        outcome = await kit.tools.call(
            call["tool"], call["args"], deadline=kit.within_run(kit.deadline.tool, task), key=key
        )
    except GraphBubbleUp:
        if claim is not None:  # it asks a person itself, and is begun from its first line when it has the answer
            await kit.effects.record(claim, "asking", {})
        raise
    except asyncio.CancelledError as stopped:
        kit.effects.still_running(key or _slot(call, where), stopped.__cause__)
        raise
    except Exception as error:  # noqa: BLE001  a result that the model reads, and a record
        return await _failed(error, task, attempt, kit, where, claim=claim)
    seconds = round(kit.clock() - started, 6)
    return await _made(outcome, task, kit, where, claim=claim, attempt=attempt, seconds=seconds)


async def _made(
    outcome: Outcome,
    task: CallTask,
    kit: Kit,
    where: Where,
    *,
    claim: Claim | None,
    attempt: int | None = None,
    seconds: float = 0.0,
    why: str = "",
) -> tuple[Patch, Goto]:
    """Record the result, in the ledger first; what the tool itself wrote waits for `observe`, and is checked now."""
    call, name = task["call"], f"a-{task['call']['id']}"
    short = _kept(outcome.text, name, kit)
    changed: dict[str, Any] = {"id": call["id"], "status": "done", "result": short.text, "retry_at": 0.0}
    patch, bodies = Patch(), short.bodies
    if outcome.patch is not None:
        try:
            _check(f"tool {call['tool']}", outcome.patch, kit)
            own, more = beside(outcome.patch, limit=kit.inline) if kit.effects.ledger else (outcome.patch, [])
            written = {"changes": dict(own.changes), "counts": dict(own.counts)}
            changed["patch"] = plain(written) if claim is not None else written
            bodies = [*bodies, *more]
        except (PatchError, UnstorableValueError) as error:
            patch = patch.add("failures", _record(error, task, attempt or 1, kit, where))
            said = f"error: {type(error).__name__}: {clean(str(error))[:2_000]}"
            changed |= {
                "status": "failed",
                "result": f"{short.text}\n(the call was made; what it wrote could not be taken: {said})",
            }
    changed |= {"body": short.body} if short.body else {}
    why = why or (claim.why if claim else "")
    changed |= {"rule": why} if why else {}
    if claim is not None:
        await kit.effects.record(claim, "done", {**_told(changed), "seconds": seconds}, bodies=bodies)
    else:
        await kit.effects.keep(where.thread, bodies)
    changed |= {"seconds": seconds, **({"attempts": attempt} if attempt is not None else {})}
    return patch.add("calls", changed).count("wall_time", seconds), "observe"


def _told(changed: dict[str, Any]) -> dict[str, Any]:
    """Give what a repeated call is told."""
    return {name: changed[name] for name in ("status", "result", "body", "patch") if name in changed}


def _kept(text: str, name: str, kit: Kit) -> Kept:
    return kept(text, name, limit=kit.inline) if kit.effects.ledger is not None else Kept(text)


def _check(writer: str, patch: Patch, kit: Kit) -> None:
    """Refuse what the state does not take, and what is not a tool's to say: the user's words, the agent's own books."""
    kit.checker.check(writer, patch.changes)
    kit.checker.check(writer, {"usage": {name: {"tool": amount} for name, amount in patch.counts.items()}})
    for key in patch.changes:
        if key in PROTECTED:
            raise PatchError(node=writer, key=key, path="", reason="a tool may not write it")
    if any("beside" in artifact for artifact in patch.changes.get("artifacts", ())):
        raise PatchError(
            node=writer, key="artifacts", path="", reason="what stands beside the state is not a tool's to say"
        )
    for name, amount in patch.counts.items():
        if name in COUNTED or amount < 0:
            raise PatchError(node=writer, key="usage", path=f"[{name!r}]", reason="a tool may not change this counter")


async def _failed(
    error: Exception, task: CallTask, attempt: int, kit: Kit, where: Where, *, claim: Claim | None
) -> tuple[Patch, Goto]:
    """Write down what failed and what is next: another attempt, the rules for what is in doubt, or a result."""
    call = task["call"]
    doubtful = claim is not None and isinstance(error, MayStillRunError | PassedDeadlineError)
    again = _again(error, call, attempt, kit)
    record = _record(error, task, attempt, kit, where)
    record["retry_at"] = kit.clock() + again.delay if again.yes else None
    patch = Patch().add("failures", record)
    kit.effects.still_running(claim.key if claim else _slot(call, where), error)
    if claim is not None and not doubtful:
        await kit.effects.record(claim, "failed", {"error": record["error"]})
    changed = {"id": call["id"], "attempts": attempt}
    if claim is not None and isinstance(error, PassedDeadlineError) and _takes_key(call, kit) and not again.yes:
        why = f"{_said(error)}; attempt {attempt} under its key, and nobody knows what came of it"
        asking, goto = asked(claim, {**task, "call": {**call, **changed}}, kit, where, why=why)
        return patch | asking.add("calls", changed), goto
    if again.yes or doubtful:  # what is in doubt is met again, by its rule
        changed |= {"status": "retrying", "retry_at": record["retry_at"] or 0.0}
        return patch.add("calls", changed), Send("tool", {**task, "call": {**call, **changed}})
    return patch.add("calls", {**changed, "status": "failed", "result": f"error: {_said(error)}"}), "observe"


def _slot(call: dict[str, Any], where: Where) -> str:
    """Name a call that only reads, to know it while it runs."""
    return f"{where.thread}:{call['hash']}"


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {clean(str(error))[:2_000]}"


def _takes_key(call: dict[str, Any], kit: Kit) -> bool:
    one = kit.tools.find(call["tool"])
    return one is not None and one.takes_key


def _record(error: Exception, task: CallTask, attempt: int, kit: Kit, where: Where) -> dict[str, Any]:
    return failed_call(error, task["call"], attempt=attempt, node="tool", state=task, kit=kit, where=where)


def _again(error: Exception, call: dict[str, Any], attempt: int, kit: Kit) -> Again:
    """Decide about another attempt: what may have had an effect is not repeated unless its author says how."""
    if isinstance(error, MayStillRunError):
        return Again(yes=False, delay=0.0, why="it may still be running")
    one = kit.tools.find(call["tool"])
    if one is None:
        return Again(yes=False, delay=0.0, why="there is no such tool")
    if one.has_effect and not one.takes_key and isinstance(error, PassedDeadlineError):
        return Again(yes=False, delay=0.0, why="nobody knows what came of it")
    harmless = not one.has_effect or one.takes_key or (isinstance(error, ToolError) and error.retryable)
    if one.retry is None and not harmless:
        return Again(yes=False, delay=0.0, why=f"{call.get('risk')} is not repeated unasked")
    return (one.retry or kit.retry).decide(error, attempt=attempt, chance=kit.chance())


TOOL = Node("tool", tool, CallTask, timed=False)
