"""tool: one call, once; a failure is a result. An attempt that may be repeated is recorded before anybody waits."""

from __future__ import annotations

from typing import Any, Final

from langgraph.errors import GraphBubbleUp
from langgraph.types import Send

from graph_agent.errors import PatchError, ToolError
from graph_agent.kit import Kit, Where
from graph_agent.nodes.review import CallTask
from graph_agent.nodes.road import Goto, Node, failure
from graph_agent.patch import Patch, clean
from graph_agent.policies import Again
from graph_agent.tools import MayStillRunError, Outcome

PROTECTED: Final = (
    "schema_version", "goal", "constraints", "budget", "usage", "phase", "halt", "decisions", "calls", "prompts",
)  # fmt: skip
COUNTED: Final = ("steps", "wall_time", "llm_tokens", "llm_calls", "tool_calls")


async def tool(task: CallTask, kit: Kit, where: Where) -> tuple[Patch, Goto]:
    """Run the call; on trouble, decide whether it is worth another attempt."""
    call = task["call"]
    await kit.wait_until(call.get("retry_at"))
    kit.fence(where.thread)  # here: what another run took over is not done by both
    attempt, started = call.get("attempts", 0) + 1, kit.clock()
    outcome = None
    try:
        outcome = await kit.tools.call(call["tool"], call["args"], deadline=kit.within_run(kit.deadline.tool, task))
        patch = _done(call, outcome, kit)
    except GraphBubbleUp:
        raise
    except Exception as error:  # noqa: BLE001  a result that the model reads, and a record
        return _failed(error, task, attempt, kit, where, ran=outcome)
    changed = {"id": call["id"], "attempts": attempt, "seconds": round(kit.clock() - started, 6)}
    return patch.add("calls", changed).count("wall_time", changed["seconds"]), "observe"


def _done(call: dict[str, Any], outcome: Outcome, kit: Kit) -> Patch:
    """Record the result; what the tool itself wrote waits for `observe`, and is checked now: a bad one is an error."""
    changed: dict[str, Any] = {"id": call["id"], "status": "done", "result": outcome.text, "retry_at": 0.0}
    if outcome.patch is not None:
        _check(f"tool {call['tool']}", outcome.patch, kit)
        changed["patch"] = {"changes": dict(outcome.patch.changes), "counts": dict(outcome.patch.counts)}
    return Patch().add("calls", changed)


def _check(writer: str, patch: Patch, kit: Kit) -> None:
    """Refuse what the state does not take, and what is not a tool's to say: the user's words, the agent's own books."""
    kit.checker.check(writer, patch.changes)
    kit.checker.check(writer, {"usage": {name: {"tool": amount} for name, amount in patch.counts.items()}})
    for key in patch.changes:
        if key in PROTECTED:
            raise PatchError(node=writer, key=key, path="", reason="a tool may not write it")
    for name, amount in patch.counts.items():
        if name in COUNTED or amount < 0:
            raise PatchError(node=writer, key="usage", path=f"[{name!r}]", reason="a tool may not change this counter")


def _failed(
    error: Exception, task: CallTask, attempt: int, kit: Kit, where: Where, *, ran: Outcome | None
) -> tuple[Patch, Goto]:
    call = task["call"]
    again = _again(error, call, attempt, kit)
    record = failure(error, node="tool", state=task, kit=kit, where=where)
    record |= {"tool": call["tool"], "input": call["args"], "attempt": attempt, "step": call.get("step", "")}
    record["id"] = f"{record['id']}-{call['id']}"
    record["retry_at"] = kit.clock() + again.delay if again.yes else None
    patch = Patch().add("failures", record)
    if again.yes:
        changed = {"id": call["id"], "status": "retrying", "attempts": attempt, "retry_at": record["retry_at"]}
        return patch.add("calls", changed), Send("tool", {**task, "call": {**call, **changed}})
    said = f"error: {type(error).__name__}: {clean(str(error))[:2_000]}"
    if ran is not None:
        said = f"{ran.text}\n(the call was made; what it wrote could not be taken: {said})"
    return patch.add("calls", {"id": call["id"], "status": "failed", "attempts": attempt, "result": said}), "observe"


def _again(error: Exception, call: dict[str, Any], attempt: int, kit: Kit) -> Again:
    """Decide about another attempt: what may have had an effect is not repeated unless its author says how."""
    if isinstance(error, MayStillRunError):
        return Again(yes=False, delay=0.0, why="it may still be running")
    try:
        own = kit.tools.get(call["tool"]).retry
    except ToolError:
        return Again(yes=False, delay=0.0, why="there is no such tool")
    harmless = call.get("risk") == "read_only" or (isinstance(error, ToolError) and error.retryable)
    if own is None and not harmless:
        return Again(yes=False, delay=0.0, why=f"{call.get('risk')} is not repeated unasked")
    return (own or kit.retry).decide(error, attempt=attempt, chance=kit.chance())


TOOL = Node("tool", tool, CallTask, timed=False)
