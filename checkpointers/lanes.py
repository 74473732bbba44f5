"""Steps laid out in lanes, for forks: who stands where, which lanes pass by, where a lane branches off; pure."""

from __future__ import annotations

from collections.abc import Container, Hashable, Sequence
from dataclasses import dataclass
from typing import Final

_FREE: Final = -1


@dataclass(frozen=True, slots=True)
class Lane:
    """Where a step stands among the others, oldest first.

    `passing` are the lanes that go on beside it; `branches` those that begin at it; `origin` is the row of the step
    from which its own lane branched off, if it is the first of a lane that did.
    """

    lane: int
    passing: tuple[int, ...] = ()
    branches: tuple[int, ...] = ()
    origin: int | None = None


def lanes(steps: Sequence[tuple[Hashable, Hashable | None]], *, apart: Container[Hashable] = ()) -> list[Lane]:
    """Lay out steps, each its name and its parent's, parents before children; an unknown parent is none.

    The child that leads to the newest step goes on in its parent's lane; those that stand `apart` begin their own.
    """
    rows = {name: row for row, (name, _) in enumerate(steps)}
    parents = [rows.get(parent) if parent is not None else None for _, parent in steps]
    known = [p if p is not None and p < row else None for row, p in enumerate(parents)]
    chains, origins = _chains(known, {row for name, row in rows.items() if name in apart})
    spans = [(origins[chain[0]], chain[0], chain[-1]) for chain in chains]
    numbers = _placed(spans)
    own = {row: number for chain, number in zip(chains, numbers, strict=True) for row in chain}
    return [
        Lane(
            own[row],
            tuple(sorted(n for n, (origin, first, last) in zip(numbers, spans, strict=True)
                         if _from(origin, first) < row < last and n != own[row])),
            tuple(sorted(n for n, (origin, _, _) in zip(numbers, spans, strict=True) if origin == row)),
            origins.get(row),
        )
        for row in range(len(steps))
    ]  # fmt: skip


def _chains(parents: Sequence[int | None], apart: Container[int]) -> tuple[list[list[int]], dict[int, int | None]]:
    """Give the runs of steps that go on in one lane, and where each run branched off."""
    heirs = _heirs(parents, apart)
    at: dict[int, list[int]] = {}
    origins: dict[int, int | None] = {}
    for row, parent in enumerate(parents):
        goes_on = parent is not None and heirs.get(parent) == row
        at[row] = at[parent] if parent is not None and goes_on else []
        at[row].append(row)
        if not goes_on:
            origins[row] = parent
    return [at[row] for row in origins], origins


def _heirs(parents: Sequence[int | None], apart: Container[int]) -> dict[int, int]:
    """Name, of those made from each step, the one that leads to the newest."""
    newest = list(range(len(parents)))
    heirs: dict[int, int] = {}
    for row in reversed(range(len(parents))):
        parent = parents[row]
        if parent is not None and row not in apart and newest[row] > newest[parent]:
            newest[parent], heirs[parent] = newest[row], row
    return heirs


def _from(origin: int | None, first: int) -> int:
    return first - 1 if origin is None else origin


def _placed(spans: Sequence[tuple[int | None, int, int]]) -> list[int]:
    """Give each run the first lane that is free from where it branches off to where it ends."""
    numbers = [_FREE] * len(spans)
    ends: list[int] = []
    for place in sorted(range(len(spans)), key=lambda n: (_from(spans[n][0], spans[n][1]), spans[n][1])):
        origin, first, last = spans[place]
        start = _from(origin, first)
        number = next((n for n, end in enumerate(ends) if end <= start), len(ends))
        ends[number : number + 1] = [last]
        numbers[place] = number
    return numbers


def drawn(lane: Lane, mark: str = "●") -> str:
    """Draw the lanes of a step as text."""
    signs = {lane.lane: mark, **dict.fromkeys(lane.passing, "│"), **dict.fromkeys(lane.branches, "╮")}
    return " ".join(signs.get(n, " ") for n in range(max(signs) + 1))
