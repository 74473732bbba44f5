"""The state of a thread: plain data, records with ids, reducers that may be repeated.

Everything here can be written to JSON and read after the code has moved. Every list is upserted by id and every
counter keeps a place for each of its writers, so a patch that is applied twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Required

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from graph_agent.phases import Phase

SCHEMA_VERSION: Final = 1
Trust = Literal["user", "agent", "tool", "untrusted"]
strict = with_config(ConfigDict(extra="forbid"))
Counters = dict[str, dict[str, float]]


@strict
class PlanStep(TypedDict, total=False):
    """One step of a plan; a plan that replaces it drops it, unless it is done or taken over."""

    id: Required[str]
    plan: str
    title: str
    detail: str
    status: Literal["open", "done", "dropped"]
    result: str


@strict
class Fact(TypedDict, total=False):
    """Something learned: from whom, how far it can be trusted, during which plan step."""

    id: Required[str]
    text: str
    source: str
    trust: Trust
    step: str
    contradicts: str
    settled: bool


@strict
class Question(TypedDict, total=False):
    """A question to the user, and its answer."""

    id: Required[str]
    text: str
    status: Literal["open", "answered", "superseded"]
    answer: str
    by: str
    at: str


@strict
class Artifact(TypedDict, total=False):
    """What a tool returned, verbatim; a large one stands `beside` the state, by its hash."""

    id: Required[str]
    type: str
    summary: str
    text: str
    bytes: int
    hash: str
    beside: bool
    source: str
    trust: Trust
    step: str


@strict
class RiskFlag(TypedDict, total=False):
    """Something that deserves caution for as long as it is raised."""

    id: Required[str]
    text: str
    source: str
    step: str
    raised: bool


@strict
class Message(TypedDict, total=False):
    """What the user and the agent said to each other."""

    id: Required[str]
    role: Literal["user", "assistant"]
    content: str
    at: str


@strict
class Note(TypedDict, total=False):
    """The agent's working notes: what it called and what it was told, for itself."""

    id: Required[str]
    role: Literal["assistant", "tool", "user"]
    content: str
    tool_calls: list[dict[str, Any]]
    tool_call_id: str
    step: str


@strict
class Saw(TypedDict, total=False):
    """What a model was shown, as references into the state it was asked from; enough to show it again."""

    prompt: str
    items: list[list[Any]]
    window: list[list[Any]]
    summary: str
    left_out: dict[str, int]
    left_out_bytes: int
    budget: int
    digest: str
    checkpoint: str


@strict
class Decision(TypedDict, total=False):
    """What was chosen, why, by which model, from which slice, at what cost."""

    id: Required[str]
    node: str
    chose: str
    why: str
    model: str
    saw: Saw
    tokens: dict[str, int]
    repairs: list[dict[str, str]]
    step: str
    at: str


@strict
class Call(TypedDict, total=False):
    """A tool call: what the model asked for, who allowed it, how it went."""

    id: Required[str]
    tool: str
    args: dict[str, Any]
    hash: str
    risk: str
    why: str
    step: str
    status: Literal[
        "waiting", "approved", "retrying", "done", "failed", "rejected", "answered", "expired", "superseded"
    ]
    review: dict[str, Any]
    attempts: int
    retry_at: float
    result: str
    body: dict[str, Any]
    rule: str
    turn: int
    by: str
    patch: dict[str, Any]
    seen: bool
    seconds: float


@strict
class Failure(TypedDict, total=False):
    """Something that went wrong, with all that is needed to understand it later."""

    id: Required[str]
    at: str
    node: str
    step: str
    tool: str
    input: Any
    error: dict[str, Any]
    attempt: int
    retry_at: float | None
    snapshot: dict[str, Any]


@strict
class Halt(TypedDict, total=False):
    """Why the run does not simply go on, and at which node it would."""

    kind: Required[Literal["failure", "retry", "stopped", "failed", "resumed"]]
    node: str
    reason: str
    failure: str
    attempt: int
    shrink: float


def upsert(old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Add records, or change the fields of those that are there; repeating it changes nothing."""
    merged = {record["id"]: record for record in old}
    for record in new:
        merged[record["id"]] = {**merged.get(record["id"], {}), **record}
    return list(merged.values())


def replan(old: Sequence[PlanStep], new: Sequence[PlanStep]) -> list[Any]:
    """Change steps, or adopt a plan: open steps of another plan are dropped, done ones stay done."""
    adopted = {step["plan"] for step in new if "plan" in step}
    named = {step["id"] for step in new}
    if not adopted:
        return upsert(old, new)
    done = {step["id"]: step for step in old if step.get("status") == "done"}
    left = [
        {**step, "status": "dropped"} if step.get("status") == "open" else step
        for step in old
        if step["id"] not in named
    ]
    return upsert(left, [done.get(step["id"], step) for step in new])


def latest(old: Any, new: Any) -> Any:
    """Take the new value: of parallel writes the last in the order of their tasks, instead of a poisoned thread."""
    del old
    return new


def tally(old: Counters, new: Counters) -> Counters:
    """Join counters; each writer has a place of its own and only ever counts up."""
    counters = {name: dict(places) for name, places in old.items()}
    for name, places in new.items():
        mine = counters.setdefault(name, {})
        for writer, value in places.items():
            mine[writer] = max(value, mine.get(writer, value))
    return counters


def merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Add the entries of a dict, or change them."""
    return {**old, **new}


class AgentState(TypedDict, total=False):
    """All that the agent knows, decided, did and was told."""

    schema_version: Annotated[int, latest]
    goal: Annotated[str, latest]
    turn: Annotated[int, latest]
    constraints: Annotated[list[str], latest]
    budget: Annotated[dict[str, Any], merge]
    usage: Annotated[Counters, tally]
    phase: Annotated[Phase, latest]
    halt: Annotated[Halt | None, latest]
    plan: Annotated[list[PlanStep], replan]
    facts: Annotated[list[Fact], upsert]
    questions: Annotated[list[Question], upsert]
    artifacts: Annotated[list[Artifact], upsert]
    risk_flags: Annotated[list[RiskFlag], upsert]
    messages: Annotated[list[Message], upsert]
    decisions: Annotated[list[Decision], upsert]
    calls: Annotated[list[Call], upsert]
    failures: Annotated[list[Failure], upsert]
    notes: Annotated[list[Note], upsert]
    prompts: Annotated[dict[str, str], merge]
    answer: Annotated[str, latest]


def total(usage: Counters, name: str) -> float:
    """Give a counter's value."""
    return sum(usage.get(name, {}).values())


def totals(usage: Counters) -> dict[str, float]:
    """Give the value of every counter."""
    return {name: total(usage, name) for name in usage}


def current_step(plan: Sequence[Any]) -> PlanStep | None:
    """Give the first step that is open."""
    return next((step for step in plan if step.get("status") == "open"), None)


OUTSTANDING: Final = ("waiting", "approved", "retrying")


def outstanding(calls: Sequence[Any]) -> list[Call]:
    """Give the calls that have no outcome yet."""
    return [call for call in calls if call.get("status") in OUTSTANDING]
