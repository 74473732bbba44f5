"""All steps of a thread of ours, read in one go: what many states have is decoded once, and is one object in all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from checkpointers.codec import ATOM, LIST, WHOLE, Codec, Ref, numbers
from checkpointers.keys import key_of
from checkpointers.operations.common import SELECT_CHECKPOINT, Tools, find_thread
from checkpointers.operations.read import Sheet, made, opened
from checkpointers.operations.shelves import Shelf, Wanted, join
from checkpointers.paging import tuple_of
from checkpointers.segments import Stack
from checkpointers.standing import Thread
from checkpointers.statements import Statement, Statements

if TYPE_CHECKING:
    from langgraph.checkpoint.base import CheckpointTuple

    from checkpointers.saver import Saver

LATELY: Final = 64


class Sharing(Codec):
    """Values put together of elements that are decoded once; nobody may change them."""

    def __init__(self, codec: Codec) -> None:
        """Decode as another codec does."""
        super().__init__(codec.serde)
        self._chunks: dict[tuple[int, int], Any] = {}
        self._lately = lru_cache(LATELY)(super().join)

    def join(self, ref: Ref, stack: Stack) -> Any:
        """Put a value together; of neighbours that have the same reference it is the same object."""
        if isinstance(ref, int):
            return self._chunk(ref, stack)[0]
        return self._lately(tuple(ref) if isinstance(ref, list) else ref, stack)

    def bundle(self, values: Mapping[Any, tuple[Ref, Stack]]) -> None:
        """Decode each value by itself: what is shared is not decoded again."""
        del values

    def _assembled(self, kind: int, runs: Sequence[int], stack: Stack) -> Any:
        if kind in (ATOM, WHOLE):
            value = self._chunk(runs[0], stack)
            return value[0] if kind == ATOM else value
        chunks = [self._chunk(number, stack) for number in numbers(runs)]
        if kind == LIST:
            return [item for chunk in chunks for item in chunk]
        return {key: item for chunk in chunks for key, item in chunk.items()}

    def _chunk(self, number: int, stack: Stack) -> Any:
        place = (id(stack), number)  # a stack lives as long as what was gathered
        if place not in self._chunks:
            self._chunks[place] = self.value(stack.payload(number))
        return self._chunks[place]


@dataclass(frozen=True, slots=True)
class Gathered:
    """The checkpoints of a namespace by their ids, and every element that they or their writes need."""

    tools: Tools
    thread: Thread
    stored: dict[str, Sheet]
    shelf: Shelf

    @property
    def is_whole(self) -> bool:
        """Tell whether every element is there that a checkpoint or a write on one needs."""
        sheets = self.stored.values()
        states = (named for sheet in sheets for named in sheet.record.refs.items())
        writes = ((write.channel, write.ref) for sheet in sheets for _, write in sheet.writes)
        return self.shelf.holds(self.tools, chain(states, writes))

    def tuple_of(self, checkpoint_id: str) -> CheckpointTuple:
        """Give a checkpoint as LangGraph wants it."""
        return tuple_of(made(self.tools, self.stored[checkpoint_id], self.shelf)[0])

    def channel(self, checkpoint_id: str, name: str, default: Any) -> Any:
        """Give one channel of a checkpoint."""
        record = self.stored[checkpoint_id].record
        return self.value(name, record.refs[name], record.step) if name in record.refs else default

    def writes(self, checkpoint_id: str) -> Iterator[tuple[str, Any]]:
        """Give what tasks that ran from a checkpoint wrote, each with its channel."""
        one = self.stored[checkpoint_id]
        for _, write in one.writes:
            yield write.channel, self.value(write.channel, write.ref, one.record.step)

    def paths(self, checkpoint_id: str) -> list[str]:
        """Give the path of the task of each of these."""
        return [write.path for _, write in self.stored[checkpoint_id].writes]

    def value(self, channel: str, ref: Ref, step: int) -> Any:
        """Give what a reference stands for."""
        return join(self.tools, Wanted(self.thread.name, step, channel, ref), self.shelf)

    def resolved(self, channel: str, ref: Ref) -> Ref:
        """Give a reference with its runs in place."""
        return self.shelf.of(self.tools.names.keys[channel], ref)[0]


def gather(saver: Saver, thread: str, ns: str, first: int) -> Gathered | None:
    """Read the steps of a namespace from one on, their writes, and every element that they need, each once.

    What is missing is told only to who asks for it, too late to look again: so it is looked for here. What is missing
    at one moment too is damage, and the rest can be read.
    """
    tools = saver._tools()  # noqa: SLF001  a second way to read what the saver reads

    def operation() -> Statements[Gathered | None]:
        return _gathered(replace(tools, codec=Sharing(tools.codec)), thread, ns, first)

    found = saver._read(operation)  # noqa: SLF001
    return found if found is None or found.is_whole else saver.database.snapshot(operation)


def _gathered(tools: Tools, name: str, ns: str, first: int) -> Statements[Gathered | None]:
    thread = yield from find_thread(tools, name)
    if thread is None:
        return None
    sql = f"{SELECT_CHECKPOINT} WHERE thread = ? AND ns = ? AND step >= ? ORDER BY step"
    rows = yield Statement(sql, (thread.key, key_of(ns), first))
    sheets = yield from opened(tools, thread, rows, shelf := Shelf())
    return Gathered(tools, thread, {sheet.record.id: sheet for sheet in sheets}, shelf)
