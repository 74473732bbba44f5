"""The steps of one thread or several as a log, forks as lanes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from checkpointers.lanes import Lane, drawn, lanes
from checkpointers.plain import visible

if TYPE_CHECKING:  # rows alone can be laid out too, and LangGraph is not loaded for them
    from checkpointers.step import Step


@dataclass(frozen=True, slots=True)
class Line:
    """One step in a log: its lane, the lanes that pass by, those that begin here, and where its own branched off.

    `branched_from` is an address; its thread need not be in the log. `followed` says that another step was made of it.
    """

    step: Step
    lane: int
    passing: tuple[int, ...]
    branches: tuple[int, ...]
    branched_from: str | None
    followed: bool = False

    @property
    def standing(self) -> str:
        """How the thread stood here; that there was more to do is not worth a word where it was done since."""
        return "" if self.followed and self.step.status == "pending" else self.step.status

    def __str__(self) -> str:
        """Draw the lanes, and say what can be said without loading the state."""
        step, origin = self.step, f"  from {self.branched_from}" if self.branched_from else ""
        lane = drawn(Lane(self.lane, self.passing, self.branches))
        who = ", ".join(step.nodes) or step.source
        told = f"{lane}  {step}  {step.at:%Y-%m-%d %H:%M:%S}  {who}"
        return visible(f"{told}  {self.standing}{origin}" if self.standing else f"{told}{origin}")


def log(threads: Sequence[Iterable[Step]], *, failed: bool = False) -> list[Line]:
    """Lay out the steps of threads, oldest first; a thread that was forked from another begins in a lane beside it."""
    steps = _merged([list(thread) for thread in threads])
    origins = [_origin(step) for step in steps]
    roots = {str(step) for step in steps if step.parent is None}
    places = lanes([(str(step), origin) for step, origin in zip(steps, origins, strict=True)], apart=roots)
    names, followed = [str(step) for step in steps], set(origins)
    lines = [
        Line(step, at.lane, at.passing, at.branches, _from(at, origin, names), str(step) in followed)
        for step, at, origin in zip(steps, places, origins, strict=True)
    ]
    return [line for line in lines if line.step.failed] if failed else lines


def _from(at: Lane, origin: str | None, names: Sequence[str]) -> str | None:
    """Say where a lane branched off, also if that is not among the steps."""
    if at.origin is not None:
        return names[at.origin]
    return origin if origin not in names else None


def _origin(step: Step) -> str | None:
    """Give the address of the step that one was made from, here or in another thread."""
    if step.parent is not None:
        return step.address_of(step.parent)
    origin = step.metadata.get("forked_from")
    return origin if isinstance(origin, str) else None


def _merged(threads: list[list[Step]]) -> list[Step]:
    """Put threads into one order: each in its own, a fork behind what it was forked from, else by the clock."""
    waiting = {str(step) for thread in threads for step in thread}
    heads, merged = [0] * len(threads), []
    while any(head < len(thread) for head, thread in zip(heads, threads, strict=True)):
        left = [n for n, thread in enumerate(threads) if heads[n] < len(thread)]
        ready = [n for n in left if heads[n] or _origin(threads[n][0]) not in waiting] or left
        chosen = min(ready, key=lambda n: threads[n][heads[n]].at)
        step = threads[chosen][heads[chosen]]
        heads[chosen] += 1
        waiting.discard(str(step))
        merged.append(step)
    return merged
