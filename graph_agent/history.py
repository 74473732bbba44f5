"""The agent's reading of a timeline: what it was shown, what it decided, what it wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from checkpointers import History, Ledger, Saver, timeline
from checkpointers.paths import ABSENT
from checkpointers.show import Shows
from checkpointers.step import Step
from graph_agent.artifacts import beginning, wanted, with_texts
from graph_agent.context import again, digest_of
from graph_agent.policies import Budget
from graph_agent.reading import (
    COSTS,
    CallRead,
    Context,
    Cost,
    Prices,
    ReviewRead,
    Stats,
    as_text,
    calls_of,
    cost_of,
    left_out,
    reviews_of,
    stats_of,
)
from graph_agent.slicing import Message

if TYPE_CHECKING:
    from checkpointers.show.cards import Card

LISTS: Final = (
    "plan", "facts", "questions", "artifacts", "risk_flags", "messages", "decisions", "calls", "failures", "notes",
)  # fmt: skip


@dataclass(frozen=True, slots=True, repr=False)
class Shown(Shows):
    """What a model was shown for one decision; `exact` says that it is proved to be just that."""

    messages: list[Message] = field(repr=False)
    items: list[tuple[str, str, str]]
    left_out: Mapping[str, int]
    left_out_bytes: int
    budget: int
    exact: bool
    view: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)

    def __repr__(self) -> str:
        """Say how much it is."""
        left, proof = sum(self.left_out.values()), "exact" if self.exact else "not exact"
        return f"<Shown {len(self.messages)} messages, {len(self.items)} items, {left} left out, {proof}>"

    def _card(self) -> Card:
        from graph_agent.show.timelines import shown_card  # noqa: PLC0415  loaded by who looks

        return shown_card(self)

    def __str__(self) -> str:
        """Give the messages as text."""
        return as_text(self.messages)


class Moment(Step):
    """One step of an agent's thread."""

    __slots__ = ()
    _timeline: Steps

    @property
    def values(self) -> Mapping[str, Any]:
        """The state as stored; a list that nobody has written to yet is empty."""
        return {**{key: [] for key in LISTS}, **super().values}

    @property
    def patch(self) -> dict[str, Any]:
        """What was written: of lists, only the records that are new or changed; a list that begins empty is no news."""
        before = self.before
        news = {key: _news(before.get(key), value) for key, value in self.wrote.items()}
        return {key: value for key, value in news.items() if value != [] or before.get(key)}

    @property
    def decisions(self) -> list[dict[str, Any]]:
        """The decisions that were made in this step."""
        return list(_news(self.before.get("decisions"), self.values.get("decisions", [])))

    @property
    def saw(self) -> Shown | None:
        """What the model was shown in this step: the exact messages, and why each item; None if it was not asked."""
        record = next((one["saw"] for one in self.decisions if one.get("saw")), None)
        if record is None:
            return None
        source = self._timeline.find(record["checkpoint"])
        # A state that was not saved, or was dropped since, is told as its neighbour has it; `exact` is then false.
        view = self._timeline.whole(self._timeline.values_of(source) if source else self.values)
        messages = again(view, record, self.values.get("prompts", {}).get(record["prompt"], ""))
        items = [(kind, key, reason) for kind, key, reason, _ in record["items"]]
        exact = digest_of(messages) == record["digest"]
        return Shown(
            messages,
            items,
            record["left_out"],
            record["left_out_bytes"],
            record["budget"],
            exact,
            view if source else None,
        )

    @property
    def failed(self) -> bool:
        """Whether something failed here: a task, or what the agent keeps a record of and goes on from."""
        if super().failed:
            return True
        if not self.rewrote("failures"):
            return False
        before, after = self.change_of("failures")
        return bool(_news(None if before is ABSENT else before, [] if after is ABSENT else after))

    def _card(self) -> Card:
        from graph_agent.show.timelines import moment_card  # noqa: PLC0415  loaded by who looks

        return moment_card(self)


class Steps(timeline.Timeline):
    """The stored steps of an agent's thread, and the bodies that stand beside them."""

    ledger: Ledger | None = None

    def whole(self, view: Mapping[str, Any]) -> Mapping[str, Any]:
        """Give the artifacts that a model was shown the text that is kept beside the state."""
        if self.ledger is None:
            return view
        room = Budget.of(view.get("budget") or {}).max_artifact_bytes_in_context
        bodies = {one["id"]: self.ledger.body(self.thread, one["hash"], 0, room) for one in wanted(view, room)}
        sizes = {one["id"]: one["bytes"] for one in wanted(view, room)}
        return with_texts(view, {name: beginning(data, sizes[name]) for name, data in bodies.items()})


class Timeline(History):
    """The steps of an agent's thread; each knows what the model was shown and what was written."""

    step_type: ClassVar[type[Step]] = Moment
    timeline_type = Steps
    _timeline: Steps

    def __init__(
        self, saver: Any, thread: str, *, ns: str = "", ledger: Ledger | None = None, newest: int | None = None
    ) -> None:
        """List the steps; `ledger` is where large results are kept, that of a saver of ours by default."""
        super().__init__(saver, thread, ns=ns, newest=newest)
        self._timeline.ledger = saver.ledger if ledger is None and isinstance(saver, Saver) else ledger

    def __iter__(self) -> Iterator[Moment]:
        """Go through the steps, oldest first."""
        return cast("Iterator[Moment]", super().__iter__())

    def __getitem__(self, number: int) -> Moment:
        """Give a step by its number, or from the newest back."""
        return cast("Moment", super().__getitem__(number))

    def stats(self, prices: Prices | None = None) -> Stats:
        """Give what the thread took: tokens, questions, seconds, tries, failures; by plan step, node and tool.

        With `prices`, the money for a million tokens in and out of each model, as `{"gpt-5-mini": (0.25, 2.0)}`, what
        they cost.
        """
        return stats_of(self[-1].values, prices or {})

    def calls(self) -> list[CallRead]:
        """Give the calls of tools on the way to the newest step, and at which steps each was asked and settled."""
        return calls_of(self._calls())

    def reviews(self) -> list[ReviewRead]:
        """Give what a person was asked about calls, what was answered, by whom and when."""
        return reviews_of(self._calls())

    def context(self, step: int | Moment) -> Context | None:
        """Give what the model was shown in a step, why each item, and what was left out; None if it was not asked.

        Of a state that was dropped since, or is another thread's, only the counts of what was left out are known.
        """
        moment = step if isinstance(step, Moment) else self[step]
        saw = moment.saw
        if saw is None:
            return None
        decision = next(one for one in moment.decisions if one.get("saw"))
        items, missing = left_out(moment.values if saw.view is None else saw.view, saw.items, decision["node"])
        missing = missing if saw.view is not None else []
        return Context(
            decision["id"], saw.messages, items, missing, saw.left_out, saw.left_out_bytes, saw.budget, saw.exact
        )

    def _calls(self) -> list[tuple[int, list[Mapping[str, Any]]]]:
        chain = [step for step in self[-1].ancestry if step.rewrote("calls")]
        seen = [(step.number, step.change_of("calls")[1]) for step in chain]
        return [(number, calls) for number, calls in seen if calls is not ABSENT]

    def plot(self, newest: int = 200) -> Any:
        """Plot the tokens and the new bytes of the newest steps; a matplotlib figure, if that is installed."""
        from graph_agent.show.plotting import plot  # noqa: PLC0415  loaded by who plots

        return plot(self, newest)

    def _card(self) -> Card:
        from graph_agent.show.timelines import timeline_card  # noqa: PLC0415  loaded by who looks

        return timeline_card(self)


def _news(before: Any, after: Any) -> Any:
    if not isinstance(after, list) or not all(isinstance(one, Mapping) and "id" in one for one in after):
        return after
    known = {one["id"]: one for one in before or ()}
    return [one for one in after if known.get(one["id"]) != one]


def cost(saver: Saver, thread: str, prices: Prices | None = None) -> Cost | None:
    """Say what a thread cost, None if it has no records of that; nothing else of its state is loaded."""
    place: Any = {"configurable": {"thread_id": thread}}
    found = {name: saver.get_channel(place, name, ABSENT) for name in COSTS}
    return cost_of({name: value for name, value in found.items() if value is not ABSENT}, prices or {})
