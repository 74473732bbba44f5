"""What each step of a thread brought: from our savers each stored element once, from others what was rewritten."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from checkpointers.codec import DICT, LIST, SNAPSHOT, Ref, is_recipe, numbers
from checkpointers.keys import key_of
from checkpointers.operations.common import SELECT_CHECKPOINT, Tools, find_thread
from checkpointers.operations.read import Shelf, Wanted, join, opened
from checkpointers.paths import id_of
from checkpointers.records import Record, TaskWrites, in_order
from checkpointers.searching import Place, places
from checkpointers.statements import Statement, Statements
from checkpointers.step import Step
from checkpointers.timeline import Timeline, Told, internal

if TYPE_CHECKING:
    from checkpointers.saver import Saver

Brought = Iterator[tuple[Place, Any]]


class News(Protocol):
    """What a step brought."""

    def state(self, step: Step) -> Brought:
        """Give what is in the state for the first time, or has been written again."""

    def writes(self, step: Step) -> Brought:
        """Give what tasks that ran from here wrote."""


def news_of(timeline: Timeline) -> News:
    """Choose by the saver."""
    saver = timeline.own
    return Loaded() if saver is None else _elements(saver, timeline)


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
    """The stored rows of a thread of ours, each element decoded when it first appears."""

    tools: Tools
    thread: str
    records: dict[str, Record]
    pending: dict[str, list[TaskWrites]]
    shelf: Shelf
    ids: dict[tuple[str, int], list[str | None]] = field(default_factory=dict)
    met: set[tuple[str, Any]] = field(default_factory=set)

    def state(self, step: Step) -> Brought:
        """Give the elements that no step before had."""
        record = self.records.get(step.id)
        if record is None:
            yield from Loaded().state(step)  # it was dropped since: that is said
            return
        for channel, ref in record.refs.items():
            if not internal(channel):
                yield from self._channel(channel, ref, record)
        if step.is_told:
            told = (pair for pair in step.values.items() if isinstance(pair[1], Told))
            yield from (part for name, value in told for part in parts(name, value))

    def writes(self, step: Step) -> Brought:
        """Give them whole, from what was read already."""
        for _, write in in_order(self.pending.get(step.id, ())):
            if not internal(write.channel):
                yield Place.of(write.channel), self._value(write.channel, write.ref, step.number)

    def _value(self, channel: str, ref: Ref, step: int) -> Any:
        return join(self.tools, Wanted(self.thread, step, channel, ref), self.shelf)

    def _channel(self, channel: str, ref: Ref, record: Record) -> Brought:
        whole = self._resolved(channel, ref)
        kind = whole[0] & ~SNAPSHOT if isinstance(whole, list) else None
        if kind == LIST:
            yield from self._items(channel, list(numbers(whole[1:])), record.step)
        elif kind == DICT:
            for number in numbers(whole[1:]):
                if self._is_new(channel, number):
                    yield Place.of(channel), self._value(channel, [DICT, number, 1], record.step)
        elif self._is_new(channel, repr(ref)):
            yield Place.of(channel), self._value(channel, ref, record.step)

    def _items(self, channel: str, elements: list[int], step: int) -> Brought:
        """Give the new items of a list; where they stand follows from the ids of all."""
        fresh: dict[int, list[Any]] = {}
        for number in dict.fromkeys(elements):
            if self._is_new(channel, number):
                fresh[number] = self._value(channel, [LIST, number, 1], step)
                self.ids[channel, number] = [id_of(item) for item in fresh[number]]
        if not fresh:
            return
        ids = [own for number in elements for own in self.ids[channel, number]]
        standing = places(ids, Place.of(channel))
        for number in elements:
            for index in range(len(self.ids[channel, number])):
                place = next(standing)
                if number in fresh:
                    yield place, fresh[number][index]

    def _is_new(self, channel: str, element: Any) -> bool:
        known = (channel, element) in self.met
        self.met.add((channel, element))
        return not known

    def _resolved(self, channel: str, ref: Ref) -> Ref:
        return self.shelf.recipes[self.tools.names.keys[channel], tuple(ref)] if is_recipe(ref) else ref


def _elements(saver: Saver, timeline: Timeline) -> Elements:
    return saver._read(lambda: _rows(saver._tools(), timeline.thread, timeline.ns))  # noqa: SLF001  no state is joined


def _rows(tools: Tools, name: str, ns: str) -> Statements[Elements]:
    """Read the steps of a namespace, their writes, and every element that they need, each once."""
    thread = yield from find_thread(tools, name)
    if thread is None:
        return Elements(tools, name, {}, {}, Shelf({}, {}))
    rows = yield Statement(f"{SELECT_CHECKPOINT} WHERE thread = ? AND ns = ? ORDER BY step", (thread.key, key_of(ns)))
    records, pending, shelf = yield from opened(tools, thread, rows)
    ids = [record.id for record in records]
    return Elements(tools, name, dict(zip(ids, records, strict=True)), dict(zip(ids, pending, strict=True)), shelf)
