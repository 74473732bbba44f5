"""Who descends from whom, and what a checkpoint needs of its ancestors; pure.

A DeltaChannel stores no value at most steps: it is rebuilt from the nearest stored value before it (its seed) and
the writes since. When ancestors are deleted, what their descendants need of them is kept as a `Base`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from checkpointers.codec import Ref
from checkpointers.records import Base, Record, TaskWrites, in_order
from checkpointers.statements import Statements

Ancestor = tuple[Record, list[TaskWrites]]
DENSE: Final = 256
SPARSE: Final = 4
NEAR: Final = 16


class MissingAncestorError(LookupError):
    """A checkpoint was made from one that is not stored, and not because it was removed in order."""


class _Walk:
    """Gathers, from the target upwards, what each channel was told."""

    def __init__(self, channels: Iterable[str]) -> None:
        self.found: dict[str, Base] = {channel: Base(None, []) for channel in channels}
        self.open = set(self.found)

    def start(self, target: Record) -> None:
        """Take what the target keeps of deleted ancestors."""
        self._close(target, self.open)

    def visit(self, record: Record, tasks: Sequence[TaskWrites], channels: Iterable[str] | None = None) -> None:
        """Take the writes stored on an ancestor, then its value if it has one; for these channels, or all."""
        looking = self.open & set(self.open if channels is None else channels)
        for task, write in reversed(in_order(tasks)):
            if write.channel in looking:
                self.found[write.channel].writes.append((task, write.ref))
        for channel in [name for name in looking if name in record.refs]:
            self.found[channel].seed = record.refs[channel]
            self.open.discard(channel)
        self._close(record, looking & self.open)

    def _close(self, record: Record, channels: Iterable[str]) -> None:
        for channel in [name for name in channels if name in record.bases]:
            base = record.bases[channel]
            self.found[channel].writes += reversed(base.writes)
            self.found[channel].seed = base.seed
            self.open.discard(channel)

    def result(self) -> dict[str, Base]:
        """Give the gathered writes, oldest first."""
        return {channel: Base(base.seed, base.writes[::-1]) for channel, base in self.found.items()}


@dataclass(slots=True)
class _Goal:
    """The ancestor that a channel has to look at next: at a step, or else the parent with an id, below a step."""

    step: int | None
    parent: str | None
    below: int
    start: int
    stored: bool

    @classmethod
    def after(cls, record: Record, channel: str, late: Collection[int]) -> _Goal:
        """Follow the trail, unless it leads past a step that was written late: then the parent, one by one."""
        step, start = record.trail.get(channel), record.step - 1
        if step is not None and any(step < one < record.step for one in late):
            step = None
        return cls(step, record.parent, start if step is None else step, start, bool(record.chain))

    def hit(self, page: Mapping[int, Ancestor], ids: Mapping[str, int]) -> Ancestor | None:
        step = self.step if self.step is not None else ids.get(self.parent or "")
        return page.get(step) if step is not None else None


def delta_history(
    target: Record,
    channels: Sequence[str],
    page: Callable[[int, int], Statements[tuple[Sequence[Ancestor], int]]],
    late: Collection[int] = (),
) -> Statements[dict[str, Base]]:
    """Follow each channel to its start, over only those ancestors that may have something for it.

    `page` gives checkpoints of the namespace at and below a step, with their writes, and down to which step they are
    all that there are, 0 for all; so many at a time are read of those that are not known.
    """
    walk = _Walk(channels)
    walk.start(target)
    goals = {channel: _Goal.after(target, channel, late) for channel in walk.open if target.parent}
    read: dict[int, Ancestor] = {}
    ids: dict[str, int] = {}
    at = target.step
    while goals:
        hits: dict[int, list[str]] = {}
        for channel, goal in goals.items():
            if (ancestor := goal.hit(read, ids)) is not None:
                hits.setdefault(ancestor[0].step, []).append(channel)
        for step, names in hits.items():
            record, tasks = read[step]
            walk.visit(record, tasks, names)
            at = min(at, step)
            for name in names:
                del goals[name]
                if name in walk.open and record.parent:
                    goals[name] = _Goal.after(record, name, late)
        if not hits:
            top = max(goal.below for goal in goals.values())
            limit = DENSE if at - top <= NEAR else SPARSE
            found, lowest = yield from page(top, limit)
            read |= {record.step: (record, tasks) for record, tasks in found}
            ids |= {record.id: record.step for record, _ in found}
            goals = _missed(goals, read, ids, lowest=lowest)
    return walk.result()


def _missed(
    goals: Mapping[str, _Goal], read: Mapping[int, Ancestor], ids: Mapping[str, int], *, lowest: int
) -> dict[str, _Goal]:
    """Turn to the parent where a trail's end was deleted, look deeper for a parent, or give up at the root."""
    left = {}
    for channel, goal in goals.items():
        if goal.hit(read, ids) is not None or goal.below < lowest:
            left[channel] = goal
        elif goal.step is not None:
            left[channel] = replace(goal, step=None, below=goal.start)
        elif lowest:
            left[channel] = replace(goal, below=lowest - 1)
        elif goal.stored:
            raise MissingAncestorError(channel)
    return left


def is_past(step: int, record: Record) -> bool:
    """Tell whether a trail of a checkpoint leads past a step."""
    return any(end < step < record.step for end in record.trail.values())


def delta_channels(of: Iterable[Ancestor]) -> set[str]:
    """Name the channels that have no value at some checkpoint, but what they were told."""
    return {name for record, _ in of for name in _valueless(record)}


def _valueless(record: Record) -> list[str]:
    return [name for name in record.versions if name not in record.refs and not is_trigger(name)]


def bases_of(
    target: Record, parents: Mapping[str, Ancestor], *, told: Iterable[str] = (), strict: bool = True
) -> dict[str, Base]:
    """Give what a checkpoint needs of its ancestors when they are going to be deleted; `strict`: all of them.

    What channels were `told` for the first time on a step that goes, is for those that are made from it only later.
    """
    channels = [*_valueless(target), *(name for name in told if name not in target.versions)]
    walk, last = _Walk(channels), target
    walk.start(target)
    for record, tasks in lineage(target, parents):
        if not walk.open:
            break
        walk.visit(record, tasks)
        last = record
    if walk.open and strict and last.chain and last.parent not in parents:
        raise MissingAncestorError(target.step)
    return {name: base for name, base in walk.result().items() if base.seed is not None or base.writes}


def lineage(target: Record, parents: Mapping[str, Ancestor]) -> Iterator[Ancestor]:
    """Give the ancestors of a checkpoint, nearest first, as far as they are stored."""
    seen = {target.id}
    parent = target.parent
    while parent is not None and parent in parents and parent not in seen:
        seen.add(parent)
        yield parents[parent]
        parent = parents[parent][0].parent


def relinked(
    target: Record,
    parents: Mapping[str, Ancestor],
    kept: Container[int],
    *,
    told: Iterable[str] = (),
    strict: bool = True,
) -> Record:
    """Give a checkpoint whose parent goes: below its nearest kept ancestor, with what it needs of those between."""
    above = next((record for record, _ in lineage(target, parents) if record.step in kept), None)
    return replace(
        target,
        parent=above.id if above else None,
        chain=above.mark if above else b"",
        bases=bases_of(target, parents, told=told, strict=strict),
        trail={},
        relinked=True,
    )


def by_namespace(
    records: Iterable[Record], writes_on: Callable[[Record], list[TaskWrites]]
) -> dict[str, dict[str, Ancestor]]:
    """Give checkpoints with their writes, by namespace and id."""
    found: dict[str, dict[str, Ancestor]] = {}
    for record in records:
        found.setdefault(record.ns, {})[record.id] = (record, writes_on(record))
    return found


def refs_of(record: Record) -> Iterator[tuple[str, Ref]]:
    """Give every reference that a checkpoint holds, with its channel."""
    yield from record.refs.items()
    for channel, base in record.bases.items():
        if base.seed is not None:
            yield channel, base.seed
        yield from ((channel, ref) for _, ref in base.writes)


def is_trigger(name: str) -> bool:
    """Tell LangGraph's own channels, which start nodes and hold nothing that outlives a step."""
    return name.startswith("branch:to:") or name in ("__start__", "__pregel_tasks")
