"""act: the current step is done by calling tools, or by saying its result. It chooses; it interprets nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from typing_extensions import TypedDict

from graph_agent.errors import ToolError
from graph_agent.kit import Kit, Where
from graph_agent.nodes.deciding import about, decided, question
from graph_agent.nodes.road import Node, failed_call, stopped
from graph_agent.patch import Patch, canonical, hashed, unkeepable
from graph_agent.state import Call, current_step
from graph_agent.tools import InvalidArgumentsError

ASK_USER: Final = "ask_user"
REPLAN: Final = "replan"
DONE: Final = "the step is done"
_OWN: Final = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]},
        },
    }
    for name, argument, description in (
        (ASK_USER, "question", "Ask the user something that nobody else can tell, and wait for the answer."),
        (REPLAN, "reason", "Say that the plan no longer fits what is known; it will be made anew."),
    )
]


class ActView(TypedDict, total=False):
    """What acting sees: the situation, and its own working notes."""

    goal: str
    constraints: list[str]
    plan: list[dict[str, Any]]
    facts: list[dict[str, Any]]
    questions: list[dict[str, Any]]
    artifacts: list[dict[str, Any]]
    risk_flags: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    notes: list[dict[str, Any]]
    calls: list[dict[str, Any]]
    decisions: list[dict[str, Any]]
    usage: dict[str, Any]
    budget: dict[str, Any]
    halt: dict[str, Any]
    turn: int


async def act(view: ActView, kit: Kit, where: Where) -> Patch:
    """Ask what to do next on the current step."""
    asked = await question("act", view, kit, where)
    reply = await kit.model.reply(asked.messages, tools=[*kit.tools.schemas(), *_OWN], about=about("act", view, where))
    step = current_step(view.get("plan", ()))
    name = step["id"] if step else ""
    known = {call["id"] for call in view.get("calls", ())}
    calls, troubles = [], Patch()
    for index, one in enumerate(reply.calls):
        call = _call(one, index, view=view, where=where, known=known)
        try:
            calls.append(_fit(call, one["args"], kit, where))
        except ToolError as error:
            calls.append({**call, "status": "failed", "result": f"error: {error}"})
            stands = {**view, "phase": "executing"}
            trouble = failed_call(error, call, attempt=0, node="act", state=stands, kit=kit, where=where)
            troubles = troubles.add("failures", trouble)
    chose = ", ".join(f"{call['tool']}({canonical(call['args'])})" for call in calls) or DONE
    record = decided(
        "act", view=view, kit=kit, where=where, asked=asked, chose=chose, why=reply.text, tokens=reply.tokens,
        repairs=reply.repairs,
    )  # fmt: skip
    if not calls:
        note = {"id": f"n-{hashed(where.checkpoint, 'said')}", "role": "assistant", "content": reply.text, "step": name}
        done = Patch().step_done(step, reply.text) if step else Patch()
        return (done.add("notes", note) | record).set("phase", "reflecting")
    return _calling(calls, view=view, kit=kit, name=name, text=reply.text, record=record | troubles)


def _calling(calls: list[Call], *, view: ActView, kit: Kit, name: str, text: str, record: Patch) -> Patch:
    verdict = kit.budget_of(view).exhausted(view.get("usage", {}), tool_calls=len(calls))
    if verdict.yes:
        return record | stopped("act", verdict.why)
    said = [{"id": call["id"], "name": call["tool"], "args": call["args"]} for call in calls]
    note = {"id": f"n-{calls[0]['id']}", "role": "assistant", "content": text, "tool_calls": said, "step": name}
    patch = record.add("calls", *calls).add("notes", note).count("tool_calls", len(calls))
    for call in calls:
        if call["tool"] == ASK_USER and call["status"] == "waiting":
            open_ = {"id": f"q-{call['id']}", "text": call["args"]["question"], "status": "open"}
            patch = patch.add("questions", open_)
    waits = any(call["status"] == "waiting" for call in calls)
    return patch.set("phase", "waiting" if waits else "executing")


def _call(one: Mapping[str, Any], index: int, *, view: ActView, where: Where, known: set[str]) -> Call:
    """Make the record of a call, under an id of its own."""
    key = one["id"] or "call"
    if key in known or not one["id"]:
        key = f"{key}-{hashed(where.checkpoint, str(index))}"
    known.add(key)
    step = current_step(view.get("plan", ()))
    args = {"sent": canonical(one["args"])[:500]} if unkeepable(one["args"]) else dict(one["args"])
    call: Call = {
        "id": key, "tool": one["name"], "args": args, "step": step["id"] if step else "",
        "hash": hashed(one["name"], canonical(args), length=16), "attempts": 0, "seen": False,
    }  # fmt: skip
    if view.get("turn", 1) > 1:
        call["turn"] = view["turn"]
    return call


def _fit(call: Call, sent: Mapping[str, Any], kit: Kit, where: Where) -> Call:
    """Check a call; give it its risk, and a review if a person must see it first. Raises `ToolError`."""
    if problem := unkeepable(sent):
        raise InvalidArgumentsError(f"{call['tool']}: {problem[0]}: {problem[1]}")
    if call["tool"] in (ASK_USER, REPLAN):
        return _own(call)
    tool = kit.tools.get(call["tool"])
    args = tool.checked(call["args"])
    verdict = kit.review.decide(tool=tool.name, risk=tool.risk)
    fit: Call = {
        **call, "args": args, "hash": hashed(tool.name, canonical(args), length=16), "risk": tool.risk,
        "why": verdict.why, "status": "waiting" if verdict.yes else "approved",
    }  # fmt: skip
    return {**fit, "review": _review(fit, kit, where)} if verdict.yes else fit


def _own(call: Call) -> Call:
    """Take a call to the agent itself: a question to the user waits, a wish to plan anew is granted."""
    wanted = "question" if call["tool"] == ASK_USER else "reason"
    text = call["args"].get(wanted)
    if not isinstance(text, str) or not text.strip():
        raise InvalidArgumentsError(f"{call['tool']} needs {wanted!r}")
    if call["tool"] == REPLAN:
        return {**call, "status": "done", "result": "the plan will be made anew"}
    asked = {"id": f"r-{hashed(call['id'], call['hash'])}", "reason": "a question to the user"}
    return {**call, "risk": "read_only", "status": "waiting", "review": asked}


def _review(call: Call, kit: Kit, where: Where) -> dict[str, Any]:
    """Give the review of a call its name and its end."""
    review: dict[str, Any] = {
        "id": f"r-{hashed(where.thread, call['id'], call['hash'])}",
        "reason": call["why"],
        "asked_at": kit.now(),
    }
    if kit.review.expires_after is not None:
        review["expires_at"] = kit.clock() + kit.review.expires_after
    return review


ACT = Node("act", act, ActView, works_in="executing", decides=True)
