"""Undoing: what a thread did to the world after a step is taken back, newest first, each effect once.

Taking an effect back is an effect itself: reviewed by the same policy, claimed and recorded in the same ledger. So an
undo that was cut off, or that waits for a person, is simply called again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal

from checkpointers import Entry, History
from checkpointers.show import Shows
from checkpointers.show.text import brief
from graph_agent.answers import TAKES
from graph_agent.driving import Driver
from graph_agent.errors import InvalidAnswerError, UnknownReviewError
from graph_agent.ledger import KIND, Claim, Means
from graph_agent.nodes.review import OF_DOUBT
from graph_agent.patch import Patch, canonical, clean, hashed
from graph_agent.run import Review
from graph_agent.running import MayStillRunError, PassedDeadlineError
from graph_agent.tools import KEY, Tool, outcome_of

if TYPE_CHECKING:
    from checkpointers.show.cards import Card

State = Literal["planned", "undone", "waiting", "failed", "rejected", "impossible", "in doubt"]
Answers = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, repr=False)
class Undoing:
    """One effect that is to be taken back: which, after which step, how that stands, and why."""

    key: str
    tool: str
    args: Mapping[str, Any]
    step: int
    state: State
    why: str = ""
    review: Review | None = None

    def __repr__(self) -> str:
        """Say what, and how it stands."""
        why = f": {self.why}" if self.why else ""
        return brief(f"<{self.state}: {self.tool}({canonical(self.args)}) after @{self.step}{why}>")


@dataclass(frozen=True, slots=True, repr=False)
class Undo(Shows):
    """The effects of a thread after a step, newest first, and what became of each."""

    thread: str
    to: str
    effects: tuple[Undoing, ...]

    @property
    def reviews(self) -> tuple[Review, ...]:
        """Give what a person is asked; all may be answered at once, and what is newer is taken back first."""
        return tuple(one.review for one in self.effects if one.review is not None)

    @property
    def left(self) -> tuple[Undoing, ...]:
        """Give the effects that stand: those it did not come to, and those that cannot be taken back."""
        return tuple(one for one in self.effects if one.state != "undone")

    @property
    def status(self) -> Literal["done", "waiting", "failed", "planned"]:
        """Say whether all that can be taken back was."""
        states = {one.state for one in self.effects}
        return next((state for state in ("failed", "waiting", "planned") if state in states), "done")

    def __repr__(self) -> str:
        """List the effects."""
        lines = "".join(f"\n  {one!r}" for one in self.effects) or " nothing was done"
        return brief(f"<Undo {self.thread} to {self.to}: {self.status}>{lines}")

    def _card(self) -> Card:
        from graph_agent.show.runs import undo_card  # noqa: PLC0415  loaded by who looks

        return undo_card(self)


class Undoer:
    """Takes back effects of one thread, in its turn, with what a person answered so far."""

    def __init__(self, driver: Driver, thread: str, answers: Answers, *, by: str) -> None:
        """Work through the books of a thread."""
        self._driver, self._kit, self._thread, self._answers, self._by = driver, driver.kit, thread, answers, by
        self._books = driver.kit.effects.books

    async def undo(self, to: str, *, dry_run: bool) -> tuple[Undoing, ...]:
        """Take back one after the other, until one waits or fails; or only say what would be done."""
        told: list[Undoing] = []
        stopped, listed = dry_run, await self._listed(to)
        self._check(entry for _, entry in listed)
        for number, entry in listed:
            one = await self._planned(number, entry)
            if one.state == "planned" and not stopped:
                one = await self._taken_back(one, entry)
                stopped = one.state in ("waiting", "failed")
            told.append(one)
        return tuple(told)

    async def _listed(self, to: str) -> list[tuple[int, Entry]]:
        """Give the effects after a step, newest first, each with the number of the step it was decided in."""
        history = await asyncio.to_thread(lambda: History(self._driver.graph.checkpointer, self._thread))
        first, numbers = _number(history, to), {step.id: step.number for step in history}
        entries = await self._books.aentries(self._thread)
        placed = [(numbers.get(one.record.get("checkpoint", ""), one.step), one) for one in reversed(entries)]
        return [(number, one) for number, one in placed if number >= first and _is_own(one)]

    def _check(self, entries: Iterable[Entry]) -> None:
        """Refuse an answer to what is not asked, and one that its review does not take."""
        known = {_review_id(self._thread, entry) for entry in entries}
        for answer, said in self._answers.items():
            name, doubt, attempt = answer.partition(".")
            if name not in known or (doubt and not attempt.isdecimal()):
                raise UnknownReviewError(f"undoing in thread {self._thread!r} asks no review {answer!r}", review=answer)
            if said["type"] not in (OF_DOUBT if doubt else ("approve", "reject")):
                takes = TAKES[KIND] if doubt else "to take an effect back takes approve=id or reject=id"
                raise InvalidAnswerError(f"review {answer}: {takes}", review=answer)

    async def _planned(self, number: int, entry: Entry) -> Undoing:
        """Say how an effect stands before anything is done."""
        one = Undoing(entry.key, entry.record["tool"], entry.record["args"], number, "planned")
        tool = self._kit.tools.find(one.tool)
        if entry.status == "undone":
            return replace(one, state="undone", why=f"at {entry.record['at']}")
        if entry.status != "done":
            left = "it was left be" if entry.status == "abandoned" else "resume the thread to settle it"
            return replace(one, state="in doubt", why=f"nobody knows whether it was done; {left}")
        if tool is None or tool.compensate is None:
            return replace(one, state="impossible", why=f"{one.tool} has no compensation")
        begun = await self._books.aget(self._thread, undo_key(entry))
        if begun is not None and (known := self._known(one, begun, self._answer(entry).get("type", ""))):
            return known
        verdict = self._kit.review.decide(tool=_name_of(tool), risk=_risk_of(tool))
        waits = verdict.yes and not self._answer(entry)
        return replace(one, why=verdict.why, review=self._review(entry, tool, verdict.why)) if waits else one

    def _known(self, one: Undoing, begun: Entry, answer: str) -> Undoing | None:
        """Say how the taking back of an effect stands that was decided on before; None if it is to be decided anew."""
        by = begun.record["by"]
        if begun.status == "rejected":
            return None if answer == "approve" else replace(one, state="rejected", why=f"{by} said so")
        if begun.status == "abandoned":
            return replace(one, state="in doubt", why=f"{by} said to leave it be")
        if begun.status in ("claimed", "done") and answer == "reject":
            return replace(
                one, state="in doubt", why="it may have been taken back already; that is to be settled first"
            )
        return None if answer == "reject" else one  # it was let through before

    async def _taken_back(self, one: Undoing, entry: Entry) -> Undoing:
        """Take one effect back, unless a person is to be asked or said no."""
        if one.review is not None:
            return replace(one, state="waiting")
        tool, record = self._kit.tools.get(one.tool), {"of": entry.key, "tool": one.tool, "by": self._by}
        if self._answer(entry).get("type") == "reject":
            await self._reject(entry, record)
            return replace(one, state="rejected", why=f"{self._by} said so")
        means = Means(takes_key=_takes_key(tool), review=self._answer(entry, KIND))
        claim = await self._kit.effects.claim(self._thread, undo_key(entry), record, means)
        if claim.rule == "ask":
            return self._asked(one, entry, claim, claim.why)
        if claim.rule == "abandoned":
            await self._kit.effects.record(claim, "abandoned", {"by": self._by})
            return replace(one, state="in doubt", why=claim.why)
        if claim.rule != "recorded":
            try:
                result = await self._compensated(claim, tool, entry)
            except asyncio.CancelledError as stopped:
                self._kit.effects.still_running(claim.key, stopped.__cause__)
                raise
            except Exception as error:  # noqa: BLE001  on record, told to the caller, and tried again by the next undo
                return await self._failed(one, entry, claim, error)
            claim = await self._kit.effects.record(claim, "done", {"result": result[:2_000]})
        await self._kit.effects.record(Claim(entry, "run"), "undone", {"by": self._by, "done_at": entry.record["at"]})
        return replace(one, state="undone", why=claim.why or str(claim.entry.record["result"]))

    async def _reject(self, entry: Entry, record: Mapping[str, Any]) -> None:
        """Put on record that an effect is to stay."""
        first = {**record, "attempt": 0, "at": self._kit.effects.now()}
        begun, fresh = await self._books.aclaim(self._thread, undo_key(entry), first, status="rejected")
        if not fresh:
            await self._kit.effects.record(Claim(begun, "run"), "rejected", {"by": self._by})

    async def _compensated(self, claim: Claim, tool: Tool, entry: Entry) -> str:
        """Call the compensation, unless it is known what came of it."""
        if claim.rule == "settled":
            return "(done)"
        if claim.rule == "late":
            return outcome_of(self._kit.effects.ended(claim)).text
        args, result = entry.record["args"], await self._result(entry)
        outcome = await self._kit.tools.compensate(
            tool.name, args, result=result, key=claim.entry.key, deadline=self._kit.deadline.tool
        )
        return outcome.text

    async def _failed(self, one: Undoing, entry: Entry, claim: Claim, error: Exception) -> Undoing:
        """Write down what failed; what passed its deadline is in doubt."""
        said = f"{type(error).__name__}: {clean(str(error))[:2_000]}"
        if isinstance(error, MayStillRunError | PassedDeadlineError):
            self._kit.effects.still_running(claim.key, error)
            return self._asked(one, entry, claim, said)
        await self._kit.effects.record(claim, "failed", {"error": said})
        return replace(one, state="failed", why=said)

    def _asked(self, one: Undoing, entry: Entry, claim: Claim, why: str) -> Undoing:
        """Leave it to a person what came of a compensation."""
        review = self._review(entry, self._kit.tools.get(one.tool), why, claim=claim)
        return replace(one, state="waiting", why=why, review=review)

    async def _result(self, entry: Entry) -> str:
        """Give what the effect had returned, whole."""
        body = entry.record.get("body")
        if body is None:
            return str(entry.record.get("result", ""))
        return (await self._books.abody(self._thread, body["hash"])).decode()

    def _answer(self, entry: Entry, kind: str = "") -> Mapping[str, Any]:
        """Give what a person said of this, now: whether to take it back, or what became of the last attempt to."""
        for answer, said in self._answers.items():
            name, _, attempt = answer.partition(".")
            if name == _review_id(self._thread, entry) and bool(attempt) == bool(kind):
                return {**said, "kind": kind, "attempt": int(attempt or 0), "answer": said["type"], "by": self._by}
        return {}

    def _review(self, entry: Entry, tool: Tool, why: str, *, claim: Claim | None = None) -> Review:
        """Ask a person about taking an effect back; with a claim, what became of it."""
        name = f"{_name_of(tool)}({canonical(entry.record['args'])})"
        return Review(
            id=_review_id(self._thread, entry) + (f".{claim.attempt}" if claim else ""),
            thread=self._thread, kind=KIND if claim else "tool_approval", tool=_name_of(tool),
            args=entry.record["args"], hash=hashed(entry.key), risk=_risk_of(tool), reason=why,
            step=entry.record.get("step", ""), description=name, expires_at=None, interrupt="",
        )  # fmt: skip


def _number(history: History, to: str) -> int:
    """Give the number of a step; it need not be there any more, and 0 is before the first."""
    thread, _, number = to.rpartition("@")
    if thread == history.thread and number.isdecimal() and int(number) <= history[-1].number:
        return int(number)
    return history.at(to).number


def undo_key(entry: Entry) -> str:
    """Name the effect of taking an effect back: made again, it can be taken back again."""
    return f"{entry.key}:undo:{entry.record['attempt']}"


def _review_id(thread: str, entry: Entry) -> str:
    return f"r-{hashed(thread, undo_key(entry))}"


def _is_own(entry: Entry) -> bool:
    """Tell whether an entry is an effect that this thread made, or may have made."""
    return "of" not in entry.record and "from" not in entry.record and entry.status not in ("failed", "asking")


def _name_of(tool: Tool) -> str:
    return tool.compensate.name if isinstance(tool.compensate, Tool) else f"undo {tool.name}"


def _risk_of(tool: Tool) -> str:
    return tool.compensate.risk if isinstance(tool.compensate, Tool) else tool.risk


def _takes_key(tool: Tool) -> bool:
    function = tool.compensate.function if isinstance(tool.compensate, Tool) else tool.compensate
    return function is not None and KEY in signature(function).parameters


def told(effects: Iterable[Undoing], state: Mapping[str, Any]) -> dict[str, Any]:
    """Give what the thread's state is to know of effects that were taken back, and does not know yet."""
    known = {fact["id"] for fact in state.get("facts", ())}
    patch = Patch()
    for one in effects:
        fact = {"id": f"f-{hashed('undone', one.key)}", "text": f"{one.tool}({canonical(one.args)}) was taken back",
                "source": "undo", "trust": "agent", "step": ""}  # fmt: skip
        if one.state == "undone" and fact["id"] not in known:
            patch = patch.add("facts", fact)
    return dict(patch.changes)
