"""Searching values for a text: what a value says, leaf by leaf, and the lines that match; pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from checkpointers.errors import HistoryError
from checkpointers.paths import fields_of, id_of, is_list, joined
from checkpointers.plain import text_of, visible

Where = Literal["state", "writes", "metadata"]
EVERYWHERE: Final[tuple[Where, ...]] = ("state", "writes", "metadata")
AROUND: Final = 80


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value stands: its channel, its path, and what it keeps of that when items before it come and go."""

    channel: str
    path: str
    key: str

    @classmethod
    def of(cls, channel: str) -> Place:
        """Give the place of a channel."""
        return cls(channel, joined("", channel), joined("", channel))

    def into(self, part: str) -> Place:
        """Give the place of a named part."""
        return Place(self.channel, joined(self.path, part), joined(self.key, part))

    def item(self, own: str | None, index: int, *, alone: bool = True) -> Place:
        """Give the place of a list's item: one that has an id keeps it, of others only what they say is known."""
        name = own if own is not None and alone else index
        key = f"{self.key}[]" if own is None else joined(self.key, own)
        return Place(self.channel, joined(self.path, name), key)


@dataclass(frozen=True, slots=True)
class Match:
    """One line that matches: in which step it first stood at this path, in the state, in writes or in metadata."""

    step: int
    where: Where
    path: str
    line: str

    def __str__(self) -> str:
        """Say it in a line."""
        return f"@{self.step}  {self.where}  {visible(self.path)}: {visible(self.line)}"


@dataclass(frozen=True, slots=True)
class Found(Sequence[Match]):
    """The matches in the order of their steps, and how many more there were.

    `since` is the first step that was read, if there are older ones: what is told there may be older.
    """

    matches: tuple[Match, ...]
    left_out: int = 0
    since: int | None = None

    def __len__(self) -> int:
        """Count the matches that are here."""
        return len(self.matches)

    def __getitem__(self, index: Any) -> Any:
        """Give a match."""
        return self.matches[index]

    def __str__(self) -> str:
        """Give a line for each match, and say what was left out or not read."""
        more = [f"… and {self.left_out} more"] if self.left_out else []
        if self.since is not None and (self.matches or self.left_out):
            more.append(f"… steps before @{self.since} were not read: what is here may be older")
        return "\n".join([*map(str, self.matches), *more])


def leaves(value: Any, place: Place) -> Iterator[tuple[Place, str]]:
    """Give every text in a value, with its place; keys are not among them."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(item, place.into(str(key)))
    elif is_list(value):
        for item, where in items(value, place):
            yield from leaves(item, where)
    elif (fields := fields_of(value)) is not None and not isinstance(value, str | int | float | BaseException):
        yield from leaves(fields, place)
    elif value is not None:
        yield place, value if type(value) is str else text_of(value)


def items(values: Sequence[Any], place: Place) -> Iterator[tuple[Any, Place]]:
    """Give the items of a list with their places."""
    ids = [id_of(item) for item in values]
    return zip(values, places(ids, place, Counter(ids)), strict=True)


def places(
    ids: Sequence[str | None], place: Place, counts: Mapping[str | None, int], start: int = 0
) -> Iterator[Place]:
    """Give the places of a list's items by their ids; one that the list has more than once is no name."""
    return (place.item(own, index, alone=counts[own] == 1) for index, own in enumerate(ids, start))


@dataclass(slots=True)
class Search:
    """A search that is going on: what it has met is not reported again."""

    pattern: re.Pattern[str]
    limit: int
    where: Sequence[Where]
    since: int | None = None
    met: dict[tuple[Where, str, str], tuple[str, list[Match]]] = field(default_factory=dict)

    def look(self, step: int, where: Where, values: Iterable[tuple[Place, Any]]) -> None:
        """Look through values of a step, each with its place."""
        if where not in self.where:
            return
        for place, value in values:
            for at, text in leaves(value, place):
                if self.pattern.search(text) and (where, at.key, text) not in self.met:
                    lines = _lines(self.pattern, text)
                    found = [Match(step, where, at.path, line) for line in lines]
                    self.met[where, at.key, text] = (at.channel, found)

    def found(self) -> Found:
        """Give what was found; a write that became a part of the state is told as that."""
        kept = {(channel, text) for (where, _, text), (channel, _) in self.met.items() if where == "state"}
        told = [
            match
            for (where, _, text), (channel, matches) in self.met.items()
            if where != "writes" or (channel, text) not in kept
            for match in matches
        ]
        told.sort(key=lambda match: match.step)
        return Found(tuple(told[: self.limit]), max(0, len(told) - self.limit), self.since)


def pattern_of(wanted: object) -> re.Pattern[str]:
    """Take a text as it is, or a pattern; nothing else."""
    if isinstance(wanted, str):
        return re.compile(re.escape(wanted))
    if not isinstance(wanted, re.Pattern) or not isinstance(wanted.pattern, str):
        raise HistoryError(f"what is looked for is a text or a pattern of text, not {wanted!r}")
    return wanted


def places_of(where: Where | Sequence[Where] | None) -> Sequence[Where]:
    """Take one place to look at, or several."""
    if not where:
        raise HistoryError(f"say where to look: {', '.join(EVERYWHERE)}")
    wanted: Sequence[Where] = [where] if isinstance(where, str) else tuple(where)
    for one in wanted:
        if one not in EVERYWHERE:
            raise HistoryError(f"{one!r} is nowhere to look; there are {', '.join(EVERYWHERE)}")
    return wanted


def _lines(pattern: re.Pattern[str], text: str) -> Iterator[str]:
    """Give the lines in which a match begins, of long ones what is around the first; each line is gone through once."""
    match = pattern.search(text)
    while match is not None:
        start = text.rfind("\n", 0, match.start()) + 1
        end = text.find("\n", match.start())
        yield _around(text[start : end if end >= 0 else len(text)], match.start() - start, match.end() - start)
        match = pattern.search(text, max(end + 1, match.end())) if end >= 0 else None


def _around(line: str, first: int, last: int) -> str:
    start, end = max(0, first - AROUND), min(len(line), max(min(last, first + AROUND), first) + AROUND)
    return f"{'…' * (start > 0)}{line[start:end]}{'…' * (end < len(line))}"
