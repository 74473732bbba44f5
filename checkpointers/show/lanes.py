"""Which lane each step is drawn in: the way to the newest step is the first, every branch has one of its own; pure."""

from __future__ import annotations

from collections.abc import Mapping


def lanes_of(parents: Mapping[int, int | None]) -> dict[int, int]:
    """Give each step, in their order, its lane; a lane whose branch has ended is used again."""
    main = _way(parents)
    lanes: dict[int, int] = {}
    taken: dict[int, int] = {}  # by lane: the last step of the branch that has it
    last = _lasts(parents, main)
    for step, parent in parents.items():
        if step in main:
            lanes[step] = 0
        elif parent is not None and last.get(parent) == step:
            lanes[step] = lanes[parent]
        else:
            begins = step if parent is None else parent
            free = (lane for lane in range(1, len(taken) + 2) if taken.get(lane, -1) < begins)
            lanes[step] = next(free)
            taken[lanes[step]] = _end(step, last)
    return lanes


def _way(parents: Mapping[int, int | None]) -> set[int]:
    """Give the steps on the way to the newest."""
    way: set[int] = set()
    step: int | None = next(reversed(parents), None)
    while step is not None and step not in way:
        way.add(step)
        step = parents.get(step)
    return way


def _lasts(parents: Mapping[int, int | None], main: set[int]) -> dict[int, int]:
    """Give, for each step of a side branch, the one that goes on in its lane."""
    following: dict[int, int] = {}
    for step, parent in parents.items():
        if parent is not None and parent not in main:
            following.setdefault(parent, step)
    return following


def _end(step: int, following: Mapping[int, int]) -> int:
    while step in following:
        step = following[step]
    return step
