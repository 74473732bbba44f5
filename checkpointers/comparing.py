"""Two runs side by side: where they part, step by step, and what each took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest

from checkpointers.diffing import Diff, compare, same
from checkpointers.plain import visible
from checkpointers.step import Step


@dataclass(frozen=True)
class Pair:
    """Two steps that stand side by side; one is None where its run was over, or had not begun on its own."""

    a: Step | None
    b: Step | None

    @cached_property
    def same(self) -> bool:
        """Whether both have the same state; looked at when it is asked for."""
        if self.a is None or self.b is None:
            return False
        return self.a == self.b or same(dict(self.a.values), dict(self.b.values))

    @property
    def diff(self) -> Diff:
        """What differs; a step that is not there has no state."""
        return diff_of(self.a, self.b)


@dataclass(frozen=True)
class Comparison:
    """Two runs; `shared` is how many first steps of the one are the other's past too, and not looked at."""

    pairs: tuple[Pair, ...]
    shared: int = 0

    def __iter__(self) -> Iterator[Pair]:
        """Go through the pairs."""
        return iter(self.pairs)

    def __len__(self) -> int:
        """Count the pairs."""
        return len(self.pairs)

    @cached_property
    def parted(self) -> Pair | None:
        """The first pair whose states differ; None if none do."""
        return next((pair for pair in self.pairs if not pair.same), None)

    @property
    def totals(self) -> tuple[Mapping[str, float], Mapping[str, float]]:
        """What each run took: steps, seconds, failures, and how often each node ran."""
        return _totals([pair.a for pair in self]), _totals([pair.b for pair in self])

    def __str__(self) -> str:
        """Say where they part, and what each took."""
        pair = self.parted
        where = f"they part at {pair.a or 'the end'} | {pair.b or 'the end'}" if pair else "they are the same"
        each = [", ".join(f"{name} {value:g}" for name, value in one.items()) for one in self.totals]
        return visible(f"{where}\n  a: {each[0]}\n  b: {each[1]}")


def compare_runs(a: Step, b: Step) -> Comparison:
    """Put the ways that led to two steps side by side, from where one was forked from the other, or the first."""
    old, new = a.ancestry, b.ancestry
    common = sum(1 for one, other in zip(old, new, strict=False) if one == other)
    skipped = _forked(old, new[0]), _forked(new, old[0])
    if skipped[0]:
        return Comparison(tuple(Pair(*pair) for pair in zip_longest(old[skipped[0] - 1 :], new)), skipped[0] - 1)
    if skipped[1]:
        return Comparison(tuple(Pair(*pair) for pair in zip_longest(old, new[skipped[1] - 1 :])), skipped[1] - 1)
    return Comparison(tuple(Pair(*pair) for pair in zip_longest(old[common:], new[common:])), common)


def diff_of(old: Step | None, new: Step | None) -> Diff:
    """Give what differs between two steps."""
    before, after = (dict(step.values) if step is not None else {} for step in (old, new))
    return Diff(str(old or "nothing"), str(new or "nothing"), tuple(compare(before, after)), before, after)


def _forked(chain: list[Step], root: Step) -> int:
    """Count the steps up to the one that another thread was forked from; none if it was not."""
    origin = root.metadata.get("forked_from")
    return next((count for count, step in enumerate(chain, 1) if origin and str(step) == origin), 0)


def _totals(steps: list[Step | None]) -> dict[str, float]:
    there = [step for step in steps if step is not None]
    if not there:
        return {"steps": 0, "seconds": 0.0, "failed": 0}
    nodes = Counter(node for step in there for node in step.nodes)
    seconds = (there[-1].at - there[0].at).total_seconds()
    return {"steps": len(there), "seconds": seconds, "failed": sum(step.failed for step in there), **nodes}
