"""review: a person decides about one call. The only place that interrupts, and it does nothing before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NotRequired

from langgraph.types import Send, interrupt
from pydantic import AfterValidator, Discriminator
from typing_extensions import TypedDict

from graph_agent.errors import ToolError
from graph_agent.kit import Kit, Where
from graph_agent.ledger import KIND
from graph_agent.nodes.act import ASK_USER
from graph_agent.nodes.road import Goto, Node
from graph_agent.patch import Patch, canonical, clean, hashed, unkeepable
from graph_agent.toolbox import Toolbox


class CallTask(TypedDict, total=False):
    """What a task about one call is given: the call, and where the agent stands."""

    call: dict[str, Any]
    phase: str
    usage: dict[str, Any]
    budget: dict[str, Any]
    halt: dict[str, Any]
    plan: list[dict[str, Any]]


class _Signed(TypedDict):
    by: NotRequired[str]
    at: NotRequired[str]


class Approve(_Signed):
    """Let the call happen."""

    type: Literal["approve"]


class Reject(_Signed):
    """Do not let it happen; the model is told why."""

    type: Literal["reject"]
    message: NotRequired[str]


class Respond(_Signed):
    """Answer in place of the tool."""

    type: Literal["respond"]
    message: str


class EditedAction(TypedDict):
    """The call as it should be."""

    name: str
    args: dict[str, Any]


class Edit(_Signed):
    """Let it happen with other arguments."""

    type: Literal["edit"]
    edited_action: EditedAction


class Done(_Signed):
    """It was done, with this result."""

    type: Literal["done"]
    message: NotRequired[str]


class NotDone(_Signed):
    """It was not done; it is begun again."""

    type: Literal["not_done"]


class Abandon(_Signed):
    """Nobody knows, and it is not tried again."""

    type: Literal["abandon"]


class Expire(_Signed):
    """Nobody will answer any more: the time is up."""

    type: Literal["expire"]


Answer = Annotated[Approve | Reject | Respond | Edit | Expire, Discriminator("type")]
DoubtAnswer = Annotated[Done | NotDone | Abandon | Expire, Discriminator("type")]
QuestionAnswer = Annotated[Respond | Reject | Expire, Discriminator("type")]
ANSWERS: Final = {"tool_approval": Answer, "question": QuestionAnswer, KIND: DoubtAnswer}
OF_DOUBT: Final = ("done", "not_done", "abandon")
STATUS: Final = {"reject": "rejected", "respond": "answered", "expire": "expired"}
UNKNOWN: Final = "Nobody answered in time, and nobody knows whether this call was made."
TOLD: Final = {
    "reject": "The user rejected this call. It was not run. Do not repeat it unless asked to.",
    "expire": "Nobody answered in time. The call was not run.",
}


async def review(task: CallTask, kit: Kit, where: Where) -> tuple[Patch, Goto]:
    """Ask, and write down who answered what."""
    asks = payload(task["call"], where.thread)
    return settle(task, interrupt(asks, response_schema=schema_of(asks["type"], asks["name"], kit.tools)), kit)


def schema_of(kind: str, tool: str, tools: Toolbox) -> Any:
    """Give the type of the answers that a call takes; one that is not saves nothing and may be given anew."""

    def fits(answer: dict[str, Any]) -> dict[str, Any]:
        return _fitting(tool, tools, answer)

    return Annotated[ANSWERS[kind], AfterValidator(fits)]


def _fitting(tool: str, tools: Toolbox, answer: dict[str, Any]) -> dict[str, Any]:
    """Refuse what could not be stored, and edited arguments that the tool does not take."""
    if problem := unkeepable(answer):
        raise ValueError(f"{problem[0]}: {problem[1]}")
    if answer["type"] != "edit":
        return answer
    edited = answer["edited_action"]
    if edited["name"] not in ("", tool):
        raise ValueError(f"an edit changes the arguments of {tool!r}, not the tool")
    try:
        return {**answer, "edited_action": {"name": tool, "args": tools.get(tool).checked(edited["args"])}}
    except ToolError as error:
        raise ValueError(str(error)) from error


def payload(call: Mapping[str, Any], thread: str) -> dict[str, Any]:
    """Give what a person is shown: LangChain's per-call form, with what it lacks."""
    asks = call["tool"] == ASK_USER
    about = {"thread": thread, "step": call.get("step", ""), "risk": call.get("risk", ""), "hash": call["hash"]}
    return {
        "type": call["review"].get("kind") or ("question" if asks else "tool_approval"),
        "tool_call_id": call["id"],
        "name": call["tool"],
        "args": call["args"],
        "description": call["args"]["question"] if asks else f"{call['tool']}({canonical(call['args'])})",
        "review": {**about, **call["review"]},
    }


def settle(task: CallTask, answer: Mapping[str, Any], kit: Kit) -> tuple[Patch, Goto]:
    """Turn an answer into what happens next."""
    call, kind = task["call"], answer["type"]
    settled = {**call["review"], "answer": kind, "by": answer.get("by", "user"), "at": answer.get("at") or kit.now()}
    if kind in OF_DOUBT:  # `tool` does what follows from it
        changed = {"id": call["id"], "status": "approved", "review": settled | _said_of_it(answer)}
        return Patch().add("calls", changed), Send("tool", {**task, "call": {**call, **changed}})
    if kind in ("approve", "edit"):
        changed = {"id": call["id"], "status": "approved", "review": settled}
        if kind == "edit":
            args = answer["edited_action"]["args"]
            settled["before"] = call["args"]
            changed |= {"args": args, "hash": hashed(call["tool"], canonical(args), length=16)}
        return Patch().add("calls", changed), Send("tool", {**task, "call": {**call, **changed}})
    told = UNKNOWN if settled.get("kind") == KIND else said(answer)
    changed = {"id": call["id"], "status": STATUS[kind], "review": settled, "result": told, "by": settled["by"]}
    patch = Patch().add("calls", changed)
    if call["tool"] == ASK_USER:
        patch = patch.add("questions", _answered(call, kind, told, settled))
    return patch, "observe"


def _said_of_it(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {"message": answer["message"]} if answer.get("message") else {}


def said(answer: Mapping[str, Any]) -> str:
    """Give what the model reads in place of a result."""
    return clean(str(answer.get("message") or TOLD.get(answer["type"], "")))


def _answered(call: Mapping[str, Any], kind: str, told: str, settled: Mapping[str, Any]) -> dict[str, Any]:
    status = "answered" if kind == "respond" else "superseded"
    return {"id": f"q-{call['id']}", "status": status, "answer": told, "by": settled["by"], "at": settled["at"]}


REVIEW = Node("review", review, CallTask, timed=False)
