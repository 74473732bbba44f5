"""What each step of a thread brought: from our savers each stored element once, from others what was rewritten."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Protocol

from checkpointers.codec import DICT, LIST, SNAPSHOT, Ref, numbers
from checkpointers.gathering import Gathered
from checkpointers.paths import id_of
from checkpointers.searching import Place, places
from checkpointers.step import Step
from checkpointers.timeline import Timeline, Told, internal

Brought = Iterator[tuple[Place, Any]]


class News(Protocol):
    """What a step brought."""

    def state(self, step: Step) -> Brought:
        """Give what is in the state for the first time, or has been written again."""

    def writes(self, step: Step) -> Brought:
        """Give what tasks that ran from here wrote."""


def news_of(timeline: Timeline) -> News:
    """Choose by the saver."""
    return Loaded() if timeline.rows is None else Elements(timeline.rows)


class Loaded:
    """Whole states, of any saver; a channel that was not rewritten brings nothing."""

    def state(self, step: Step) -> Brought:
        """Give the channels that were rewritten."""
        rewritten = (pair for pair in step.values.items() if step.rewrote(pair[0]))
        return (part for name, value in rewritten for part in parts(name, value))

    def writes(self, step: Step) -> Brought:
        """Give them whole."""
        return ((Place.of(channel), value) for _, channel, value in step.pending if not internal(channel))


def parts(channel: str, value: Any) -> Brought:
    """Give a value with its place; what a DeltaChannel was told is the same when it has become its seed."""
    root = Place.of(channel)
    if not isinstance(value, Told):
        yield root, value
        return
    yield replace(root, path=f"{root.path}.seed"), value.seed
    for index, write in enumerate(value.writes):
        yield replace(root, path=f"{root.path}.writes[{index}]"), write


@dataclass(slots=True)
class Elements:
    """The stored rows of a thread of ours, each element looked at when it first appears."""

    rows: Gathered
    ids: dict[tuple[str, int], list[str | None]] = field(default_factory=dict)
    met: dict[str, set[Any]] = field(default_factory=dict)

    def state(self, step: Step) -> Brought:
        """Give the elements that no step before had."""
        if step.id not in self.rows.stored:
            yield from Loaded().state(step)  # it was dropped since: that is said
            return
        record = self.rows.stored[step.id].record
        for channel, ref in record.refs.items():
            if not internal(channel) and self._new(channel, [repr(ref)]):
                yield from self._channel(channel, ref, record.step)
        if step.is_told:
            told = (pair for pair in step.values.items() if isinstance(pair[1], Told))
            yield from (part for name, value in told for part in parts(name, value))

    def writes(self, step: Step) -> Brought:
        """Give them whole, from what was read already."""
        if step.id in self.rows.stored:
            written = self.rows.writes(step.id)
            yield from ((Place.of(channel), value) for channel, value in written if not internal(channel))

    def _channel(self, channel: str, ref: Ref, step: int) -> Brought:
        whole = self.rows.resolved(channel, ref)
        kind = whole[0] & ~SNAPSHOT if isinstance(whole, list) else None
        if kind == LIST:
            yield from self._items(channel, list(numbers(whole[1:])), step)
        elif kind == DICT:
            for number in self._new(channel, numbers(whole[1:])):
                yield Place.of(channel), self.rows.value(channel, [DICT, number, 1], step)
        else:
            yield Place.of(channel), self.rows.value(channel, ref, step)

    def _items(self, channel: str, elements: list[int], step: int) -> Brought:
        """Give the new items of a list; where they stand follows from the ids of all."""
        fresh = {number: self.rows.value(channel, [LIST, number, 1], step) for number in self._new(channel, elements)}
        if not fresh:
            return
        for number, items in fresh.items():
            self.ids[channel, number] = [id_of(item) for item in items]
        own = [self.ids[channel, number] for number in elements]
        counts = Counter(chain.from_iterable(own))
        index = 0
        for number, ids in zip(elements, own, strict=True):
            if number in fresh:
                yield from zip(places(ids, Place.of(channel), counts, index), fresh[number], strict=True)
            index += len(ids)

    def _new(self, channel: str, elements: Iterable[Any]) -> list[Any]:
        """Give those that were not met before, each once; they are now."""
        met = self.met.setdefault(channel, set())
        new = [element for element in dict.fromkeys(elements) if element not in met]
        met.update(new)
        return new
