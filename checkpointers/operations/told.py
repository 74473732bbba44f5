"""What DeltaChannels were told: the writes on the way to a checkpoint, and the values they start from.

Who shows a history asks this of one checkpoint after the other, and each has the ancestors of the one before, but for
that one. So the ancestors that were read are kept while their thread stands as it did, with the elements of the last
answer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from checkpointers.codec import Ref
from checkpointers.errors import IncompleteRecordError
from checkpointers.keys import key_of
from checkpointers.lineage import Ancestor, MissingAncestorError, delta_history
from checkpointers.operations.common import (
    NS,
    SELECT_CHECKPOINT,
    Place,
    Tools,
    find_checkpoint,
    find_thread,
    records_of,
    see_asked,
    told_by,
)
from checkpointers.operations.read import ENTRY, keep, pending_on, recalled, weight_of, writes_on
from checkpointers.operations.shelves import Shelf, decoded, fill
from checkpointers.records import Base
from checkpointers.standing import Thread
from checkpointers.statements import Statement, Statements

Told = tuple[list[tuple[str, str, Any]], tuple[Any] | None]
WAY: Final = "way"
_TOP: Final = attrgetter("top")


@dataclass(frozen=True, slots=True)
class Stretch:
    """All checkpoints of a namespace from one step down to another, newest first, each with the writes on it.

    `lowest` is 0 where nothing is stored below them.
    """

    top: int
    lowest: int
    found: tuple[Ancestor, ...] = ()
    weight: int = 0

    def covers(self, step: int) -> bool:
        """Tell whether it has what is stored at a step, or goes on there."""
        return self.lowest - 1 <= step <= self.top

    def has(self, other: Stretch) -> bool:
        """Tell whether it has all that another has."""
        return self.lowest <= other.lowest and other.top <= self.top

    def below(self, step: int) -> tuple[Ancestor, ...]:
        """Give those at a step and below it."""
        return self.found[bisect_left(self.found, -step, key=lambda one: -one[0].step) :]


def history_of(tools: Tools, place: Place, channels: Sequence[str]) -> Statements[dict[str, Told]]:
    """Give what each DeltaChannel was told on the way to a checkpoint: its writes, and the value they start from."""
    asked = ("told", place, *channels)
    known = yield from recalled(tools, place, asked, lambda kept: _told(kept[0], tools.codec.unbundle(kept[1])))
    if known is not None:
        return known[1]
    thread, row = yield from find_checkpoint(tools, place)
    if thread is None or row is None:
        return {name: ([], None) for name in channels}
    (target,) = yield from records_of(tools, thread, [row])
    stretches, shelf = _way(tools, thread, target.ns)
    try:
        way = ancestors(tools, thread, target.ns, stretches)
        bases = yield from delta_history(target, channels, way, thread.standing.late)
    except MissingAncestorError as error:
        raise IncompleteRecordError(thread=thread.name, step=target.step, channel=str(error)) from error
    wanted = dict(enumerate(_refs_of(bases)))
    yield from fill(tools, thread, shelf, wanted.values())
    values, bundle = decoded(tools, thread, target.step, wanted, shelf)
    if bundle is not None:
        keep(tools, thread, asked, (bases, bundle), len(bundle.payload) + ENTRY * len(wanted))
        shelf = shelf.only(tools, wanted.values())
        size = shelf.weight + sum(stretch.weight for stretch in stretches)
        keep(tools, thread, (WAY, target.ns), (stretches, shelf), size)
    return _told(bases, values)


def based(tools: Tools, place: Place) -> Statements[dict[str, list[str]]]:
    """Name the channels of which checkpoints of a namespace keep what ancestors told that were removed, by id."""
    thread = yield from find_thread(tools, place.thread)
    if thread is None:
        return {}
    rows = yield Statement(f"{SELECT_CHECKPOINT} WHERE thread = ? AND ns = ?", (thread.key, key_of(place.ns)))
    return {record.id: [*record.bases] for record in (yield from records_of(tools, thread, rows)) if record.bases}


def _way(tools: Tools, thread: Thread, ns: str) -> tuple[list[Stretch], Shelf]:
    """Give what was read of the way to another checkpoint, if the thread stands as it did; it may be added to."""
    kept = tools.recent.of(thread.key, (WAY, ns))
    if kept is None or kept[0] != told_by(thread.row):
        return [], Shelf()
    stretches, shelf = kept[1][1]
    return [*stretches], shelf.copy()


def _refs_of(bases: Mapping[str, Base]) -> Iterator[tuple[str, Ref]]:
    """Give every reference of some DeltaChannels, in the order in which their values are told."""
    for channel, base in bases.items():
        if base.seed is not None:
            yield channel, base.seed
        for _, ref in base.writes:
            yield channel, ref


def _told(bases: Mapping[str, Base], values: Mapping[int, Any]) -> dict[str, Told]:
    each = iter(values.values())
    found: dict[str, Told] = {}
    for channel, base in bases.items():
        seed = (next(each),) if base.seed is not None else None
        found[channel] = ([(task, channel, next(each)) for task, _ in base.writes], seed)
    return found


def ancestors(
    tools: Tools, thread: Thread, ns: str, stretches: list[Stretch]
) -> Callable[[int, int], Statements[tuple[Sequence[Ancestor], int]]]:
    """Make the function that gives checkpoints of a namespace, from a step downwards, and keeps what it reads."""

    def page(top: int, limit: int) -> Statements[tuple[Sequence[Ancestor], int]]:
        stretch = next((one for one in stretches if one.covers(top)), None) or Stretch(top, top + 1)
        if stretch.lowest > top:
            under = max((one for one in stretches if one.top < stretch.lowest), key=_TOP, default=None)
            grown = yield from _further(tools, thread, key_of(ns), stretch, under, limit)
            stretches[:] = [one for one in stretches if not grown.has(one)] + [grown]
            stretch = grown
        return stretch.below(top), stretch.lowest

    return page


def _further(
    tools: Tools, thread: Thread, ns: bytes, stretch: Stretch, under: Stretch | None, limit: int
) -> Statements[Stretch]:
    """Read the next so many checkpoints below a stretch, with their writes; down to another, they are one with it."""
    rows = yield Statement(
        f"{SELECT_CHECKPOINT} WHERE thread = ? AND ns = ? AND step < ? AND step > ? ORDER BY step DESC LIMIT {limit:d}",
        (thread.key, ns, stretch.lowest, under.top if under else 0),
    )
    for row in rows:
        see_asked(thread, row[NS], ns)
    records = yield from records_of(tools, thread, rows)
    tasks = (yield from pending_on(tools, thread, rows, (yield writes_on(thread, rows)))) if rows else []
    more = tuple(zip(records, tasks, strict=True))
    size = sum(weight_of(record, sum(len(task.writes) for task in own)) for record, own in more)
    rest = Stretch(0, records[-1].step) if len(rows) == limit else under or Stretch(0, 0)
    return Stretch(stretch.top, rest.lowest, stretch.found + more + rest.found, stretch.weight + size + rest.weight)
