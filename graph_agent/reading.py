"""What a thread of the agent took and did, read from its state: figures, calls, reviews, contexts; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from graph_agent.context import items_of
from graph_agent.slicing import Message, utf8_bytes
from graph_agent.state import OUTSTANDING, total

Record = Mapping[str, Any]
Prices = Mapping[str, tuple[float, float]]
MILLION: Final = 1_000_000
UNREAD: Final = {"plan": ("artifact",)}  # planning does not read how tools were called


@dataclass(slots=True)
class Figures:
    """What something took: tokens in and out, questions to a model, calls of tools, seconds, tries, failures, money."""

    tokens_in: int = 0
    tokens_out: int = 0
    llm_calls: int = 0
    tool_calls: int = 0
    seconds: float = 0.0
    retries: int = 0
    failures: int = 0
    cost: float = 0.0

    def __add__(self, other: Figures) -> Figures:
        """Add what something else took."""
        return Figures(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


@dataclass(frozen=True, slots=True)
class Stats:
    """What a thread took, in all, by step of the plan, by node and by tool; "" is what belongs to no plan step.

    Seconds of work are counted by node; those of plan steps and tools are of the tools' calls. `tokens` and `llm_calls`
    are of the budget's counters, which also have what failed questions cost. `unpriced` names the models that were
    asked and have no price: what they took is not in any `cost`.
    """

    total: Figures
    tokens: int
    llm_calls: int
    by_step: Mapping[str, Figures]
    by_node: Mapping[str, Figures]
    by_tool: Mapping[str, Figures]
    unpriced: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Cost:
    """What a thread cost: tokens that count for its budget, money, and models that were asked and have no price."""

    tokens: int
    money: float
    unpriced: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class CallRead:
    """A call of a tool: the record as it is now, and at which steps of the thread it was asked for and settled."""

    record: Record = field(repr=False)
    asked: int
    settled: int | None

    @property
    def id(self) -> str:
        """Its id."""
        return str(self.record["id"])

    def __str__(self) -> str:
        """Say it in a line."""
        settled = f" → @{self.settled}" if self.settled else ""
        return f"@{self.asked}{settled}  {self.record['tool']}  {self.record.get('status', '')}"


@dataclass(frozen=True, slots=True)
class ReviewRead:
    """A question to a person about a call: at which step, what was answered, by whom; "" while it waits."""

    id: str
    call: str
    tool: str
    asked: int
    settled: int | None
    reason: str
    answer: str
    by: str
    at: str


@dataclass(frozen=True, slots=True)
class Piece:
    """One item of the state that might be shown: why it was, or "" for one that was left out."""

    kind: str
    id: str
    text: str
    reason: str = ""

    @property
    def bytes(self) -> int:
        """How long it is."""
        return utf8_bytes(self.text)


@dataclass(frozen=True, slots=True)
class Context:
    """What a model was shown for a decision: the messages, each item with its reason, and what was left out.

    `why` counts what was left out by reason, the conversation included; `exact` says that the messages are proved.
    """

    decision: str
    messages: Sequence[Message] = field(repr=False)
    items: Sequence[Piece]
    left_out: Sequence[Piece]
    why: Mapping[str, int]
    left_out_bytes: int
    budget: int
    exact: bool

    def __str__(self) -> str:
        """Give the messages as text."""
        return as_text(self.messages)


def as_text(messages: Sequence[Message]) -> str:
    """Write messages one below the other, each under its role."""
    return "\n\n".join(f"--- {message['role']}\n{message['content']}" for message in messages)


def stats_of(state: Record, prices: Prices) -> Stats:
    """Give what a thread took, from its newest state; `prices` are for a million tokens in and out, by model."""
    asked = [one for one in state.get("decisions", ()) if "saw" in one]
    unpriced = sorted({str(one.get("model", "")) for one in asked} - prices.keys())
    taken = [*(_decision(one, prices) for one in state.get("decisions", ())), *map(_call, state.get("calls", ())),
             *map(_failure, state.get("failures", ()))]  # fmt: skip
    usage = state.get("usage", {})
    nodes = _sums(taken, lambda one: one.get("node", "tool"))
    for node, seconds in usage.get("wall_time", {}).items():
        nodes[node] = nodes.get(node, Figures())
        nodes[node].seconds = seconds
    whole = sum((figures for _, figures in taken), Figures())
    whole.seconds = total(usage, "wall_time")
    tools = _sums([pair for pair in taken if pair[0].get("tool")], lambda one: one["tool"])
    steps = _sums(taken, lambda one: one.get("step", ""))
    return Stats(whole, int(total(usage, "llm_tokens")), int(total(usage, "llm_calls")), steps, nodes, tools, unpriced)


COSTS: Final = ("decisions", "usage")


def cost_of(state: Record, prices: Prices) -> Cost | None:
    """Give what a thread cost, from the keys of its state that `COSTS` names; None if it has none of them."""
    known = {name: state[name] for name in COSTS if name in state}
    if not known:
        return None
    stats = stats_of(known, prices)
    return Cost(stats.tokens, stats.total.cost, stats.unpriced)


def _decision(one: Record, prices: Prices) -> tuple[Record, Figures]:
    tokens = one.get("tokens", {})
    given, got = tokens.get("input", 0), tokens.get("output", 0)
    price_in, price_out = prices.get(str(one.get("model", "")), (0.0, 0.0))
    return one, Figures(given, got, int("saw" in one), cost=(given * price_in + got * price_out) / MILLION)


def _call(one: Record) -> tuple[Record, Figures]:
    return one, Figures(tool_calls=int(one.get("attempts", 0) > 0), seconds=one.get("seconds", 0.0))


def _failure(one: Record) -> tuple[Record, Figures]:
    return one, Figures(retries=int(one.get("retry_at") is not None), failures=1)


def _sums(taken: Iterable[tuple[Record, Figures]], name: Callable[[Record], str]) -> dict[str, Figures]:
    sums: dict[str, Figures] = {}
    for record, figures in taken:
        sums[name(record)] = sums.get(name(record), Figures()) + figures
    return sums


def calls_of(seen: Sequence[tuple[int, Sequence[Record]]]) -> list[CallRead]:
    """Give the calls, in the order in which they were asked for, of the calls as they were at each step."""
    asked: dict[str, int] = {}
    settled: dict[str, int] = {}
    latest: dict[str, Record] = {}
    for number, calls in seen:
        for call in calls:
            asked.setdefault(call["id"], number)
            latest[call["id"]] = call
            if call.get("status") not in OUTSTANDING:
                settled.setdefault(call["id"], number)
    return [CallRead(call, asked[name], settled.get(name)) for name, call in latest.items()]


def reviews_of(seen: Sequence[tuple[int, Sequence[Record]]]) -> list[ReviewRead]:
    """Give the questions to a person about calls; a call may be asked about more than once."""
    found: dict[str, ReviewRead] = {}
    for number, calls in seen:
        for call in calls:
            about = call.get("review")
            if about and about.get("id"):
                found[about["id"]] = _review(call, about, number, found.get(about["id"]))
    return list(found.values())


def _review(call: Record, about: Record, number: int, known: ReviewRead | None) -> ReviewRead:
    answer = str(about.get("answer", "") or (call.get("status") if call.get("status") not in OUTSTANDING else ""))
    asked = known.asked if known else number
    settled = known.settled if known and known.settled else (number if answer else None)
    return ReviewRead(
        about["id"], call["id"], call["tool"], asked, settled, about.get("reason", ""), answer,
        about.get("by", ""), about.get("at", ""),
    )  # fmt: skip


def left_out(view: Record, shown: Sequence[tuple[str, str, str]], node: str) -> tuple[list[Piece], list[Piece]]:
    """Give the items of a view that were shown, with their reasons, and those that were not."""
    known = {(item.kind, item.id): item.text for item in items_of(view)}
    inside = [Piece(kind, name, known.get((kind, name), ""), reason) for kind, name, reason in shown]
    unread = {place for place in known if place[0] in UNREAD.get(node, ())}
    chosen = {(kind, name) for kind, name, _ in shown}
    return inside, [Piece(*place, text) for place, text in known.items() if place not in chosen | unread]
