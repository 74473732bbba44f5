"""What of an agent's state the model is shown: chosen under a budget, each with its reason, the rest counted."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from graph_agent.slicing.cutting import NO_MARK, Counting, LeftOut, Size, cut, cut_mark, shares, utf8_bytes
from graph_agent.slicing.ranking import Index, Ranking

TOO_LARGE: Final = "larger than all the room there was"
NO_ROOM: Final = "no room left after better matches"
NO_MATCH: Final = "no room left, and no match"

_WORTH_CUTTING: Final = 10  # an artifact is shown in part if the part is so many times as long as the mark


class Tier(IntEnum):
    """How an item comes into a slice."""

    ALWAYS = 0
    STEP = 1
    RELEVANT = 2


@dataclass(frozen=True, slots=True)
class Item:
    """A piece of the state that may be shown.

    A larger `position` is newer. Items of the same `source` support those next to them in this order, and so do those
    that name no source. Words of the query may match the source as well: a date or the name of a file belongs there.
    """

    id: str
    text: str
    kind: str
    tier: Tier = Tier.RELEVANT
    source: str = ""
    position: int = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """An item that is shown: its text, cut with a visible mark if need be, and why."""

    item: Item
    text: str
    reason: str
    score: float = 0.0


@dataclass(frozen=True, slots=True)
class Selection:
    """A slice: what is shown, in reading order, and what is not."""

    chosen: tuple[Choice, ...]
    left_out: LeftOut
    size: int
    budget: int


def select(
    items: Sequence[Item],
    query: str,
    budget: int,
    *,
    size: Size = utf8_bytes,
    index: Index | None = None,
    similarity: Mapping[str, float] | None = None,
) -> Selection:
    """Choose what to show: first what is always shown, then the step's artifacts, then what has to do with the query.

    `size` measures texts in the unit of `budget`. `index` only saves time: kept between calls it changes no result.
    `similarity` gives, by id, how near an item is to the query in meaning, as a model of embeddings sees it.
    """
    if len({item.id for item in items}) != len(items):
        raise ValueError("two items have the same id; an id must name one item")
    tiers: dict[Tier, list[Item]] = {tier: [] for tier in Tier}
    for item in items:
        tiers[item.tier].append(item)
    filling = _Filling(budget, size)
    filling.always(sorted(tiers[Tier.ALWAYS], key=_newest))
    filling.step(sorted(tiers[Tier.STEP], key=_newest), tiers[Tier.RELEVANT])
    index = Index() if index is None else index
    index.update(tiers[Tier.RELEVANT])
    filling.relevant(tiers[Tier.RELEVANT], index.rank(query, similarity))
    return filling.done()


class _Filling:
    """A budget that is being filled."""

    def __init__(self, budget: int, size: Size) -> None:
        self.budget = budget
        self.room = budget
        self.size = size
        self.chosen: list[Choice] = []
        self.left = Counting()

    def always(self, items: list[Item]) -> None:
        """Show all of these, cut where they must be; the goal comes first and gets half the room if it needs it."""
        goals = [item for item in items if item.kind == "goal"]
        others = [item for item in items if item.kind != "goal"]
        needed = sum(self.size(item.text) for item in others)
        self._share(goals, max(self.room // 2, self.room - needed), "always: {}")
        self._share(others, self.room, "always: {}")

    def step(self, items: list[Item], relevant: list[Item]) -> None:
        """Show the newest of the step's artifacts, cut where they must be.

        They may take three quarters of the room, or all that the relevant items after them do not need.
        """
        sizes = [self.size(item.text) for item in items]
        room = self.room * 3 // 4
        if sum(sizes) > room:
            room = max(room, self.room - sum(self.size(item.text) for item in relevant))
        counts = range(1, len(items) + 1)
        shown = max(1, bisect_right(counts, 0, key=lambda count: _crumbs(sizes[:count], room, self.size)))
        for item in items[shown:]:
            self.left.add(item.id, self.size(item.text), NO_ROOM)
        self._share(items[:shown], room, "{} of the current step")

    def relevant(self, items: list[Item], ranking: Ranking) -> None:
        """Show the best matches that fit, and with the room they leave, the newest of the others."""
        scores, whole = ranking.scores, self.room
        best = sorted(items, key=_newest)
        best.sort(key=lambda item: scores.get(item.id, 0.0), reverse=True)
        for rank, item in enumerate(best, 1):
            needed = self.size(item.text)
            if needed <= self.room:
                why = ranking.reason(item.id)
                reason = f"{why} (rank {rank})" if why else "recent"
                self._take(Choice(item, item.text, reason, scores.get(item.id, 0.0)), needed)
            elif needed > whole:
                self.left.add(item.id, needed, TOO_LARGE)
            else:
                self.left.add(item.id, needed, NO_ROOM if item.id in scores else NO_MATCH)

    def done(self) -> Selection:
        """Put the choices into reading order and count the rest, of which the next best stays first."""
        chosen = tuple(sorted(self.chosen, key=lambda choice: _reading(choice.item)))
        return Selection(chosen, self.left.done(), self.budget - self.room, self.budget)

    def _share(self, items: list[Item], room: int, why: str) -> None:
        for item, share in zip(items, shares([self.size(item.text) for item in items], room), strict=True):
            text = cut(item.text, share, size=self.size)
            if text is None:
                self.left.add(item.id, self.size(item.text), NO_MARK)
            else:
                reason = why.format(item.kind) + ("" if text is item.text else ", cut to fit")
                self._take(Choice(item, text, reason), self.size(text))

    def _take(self, choice: Choice, needed: int) -> None:
        self.chosen.append(choice)
        self.room -= needed


def _crumbs(sizes: Sequence[int], room: int, size: Size) -> bool:
    """Tell whether so many would each get too little to be worth showing."""
    pairs = zip(shares(sizes, room), sizes, strict=True)
    return any(share < wish and share < _WORTH_CUTTING * size(cut_mark(wish)) for share, wish in pairs)


def _newest(item: Item) -> tuple[int, str]:
    return (-item.position, item.id)


def _reading(item: Item) -> tuple[int, int, str]:
    return (item.tier, item.position, item.id)
