"""Reading: one checkpoint, a page of them, one channel. Reading never writes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from checkpointers.codec import Bundle, Ref, unpacked_dict
from checkpointers.keys import key_of
from checkpointers.memory import ThreadMemory
from checkpointers.operations.common import (
    ID,
    NS,
    ROOT,
    SELECT_WRITES,
    STEP,
    Place,
    Tools,
    checked,
    find_checkpoint,
    holder_in,
    metadata_of,
    records_of,
    see_all_writes,
    select_thread,
    told_by,
    writes_of,
)
from checkpointers.operations.guard import meet
from checkpointers.operations.shelves import Shelf, Wanted, decoded, fetch, fill, join, life_of, needs, see_life
from checkpointers.operations.storing import learn
from checkpointers.records import Record, TaskWrites, Write, in_order
from checkpointers.standing import Thread
from checkpointers.statements import Many, Row, Rows, Statements, Together

T = TypeVar("T")
ENTRY: Final = 128  # about what an entry of a dict takes


@dataclass(frozen=True, slots=True)
class Sheet:
    """A checkpoint as it was read, before its values are made: its record, its metadata as stored, the writes on it."""

    thread: Thread
    record: Record
    metadata: bytes
    writes: list[tuple[str, Write]]

    @property
    def bytes(self) -> int:
        """Give about how much this weighs."""
        return len(self.metadata) + weight_of(self.record, len(self.writes))


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checkpoint as read: everything a CheckpointTuple says, without LangGraph's type."""

    thread: str
    record: Record
    metadata: dict[str, Any]
    checkpoint: dict[str, Any]
    pending: list[tuple[str, str, Any]]
    is_head: bool = False


def weight_of(record: Record, writes: int) -> int:
    """Give about how much a record weighs, with so many writes on it."""
    entries = len(record.versions) + len(record.trail) + sum(map(len, record.seen.values())) + writes
    entries += sum(1 + len(base.writes) for base in record.bases.values())
    runs = sum(len(ref) for ref in record.refs.values() if isinstance(ref, list))
    return ENTRY * (entries + runs)


def get(tools: Tools, place: Place, memory: ThreadMemory | None = None) -> Statements[Loaded | None]:
    """Read the checkpoint that a place names, or the one its namespace stands at; a memory learns what it holds."""
    asked = ("state", place)
    known = yield from recalled(tools, place, asked, lambda kept: again(tools, *kept))
    thread, found = known or (yield from _anew(tools, place, asked))
    if memory is not None and thread is None:
        meet(tools, memory, place.thread, None)
    elif memory is not None and found is not None:
        memory.forget()
        meet(tools, memory, place.thread, thread)
        learn(tools, memory, found.record, found.checkpoint["channel_values"])
    return found


def _anew(tools: Tools, place: Place, asked: Hashable) -> Statements[tuple[Thread | None, Loaded | None]]:
    """Read a thread and a checkpoint of it from their rows, and keep what it is made of."""
    thread, row = yield from find_checkpoint(tools, place)
    if thread is None or row is None:
        return thread, None
    (sheet,) = yield from opened(tools, thread, [row], shelf := Shelf())
    found, bundle = made(tools, sheet, shelf)
    if bundle is not None:
        keep(tools, thread, asked, (sheet, bundle), sheet.bytes + len(bundle.payload))
    return thread, found


def recalled(
    tools: Tools, place: Place, asked: Hashable, made_of: Callable[[Any], T]
) -> Statements[tuple[Thread, T] | None]:
    """Give a thread that stands as it did when this was asked of it lately, and what is made of what was found then."""
    key = tools.key(place.thread)
    kept = tools.recent.of(key, asked)
    if kept is None:
        return None
    rows = yield select_thread(key)
    row, (thread, found) = kept
    if rows and told_by(rows[0]) == row:
        with suppress(Exception):  # it is met again where it is read anew, which knows its place
            return replace(thread, holder=holder_in(place.thread, rows[0])), made_of(found)
    tools.recent.forget(key)
    return None


def keep(tools: Tools, thread: Thread, asked: Hashable, found: Any, size: int) -> None:
    """Keep what was found, of so many bytes, when this was asked of a thread."""
    metadata = len(thread.standing.metadata)  # the row has it packed, too
    tools.recent.keep(thread.key, told_by(thread.row), asked, (thread, found), size=size + metadata)


def channel(tools: Tools, place: Place, name: str, default: Any) -> Statements[Any]:
    """Read one channel of a checkpoint and nothing else of its state."""
    thread, row = yield from find_checkpoint(tools, place)
    records = (yield from records_of(tools, thread, [row])) if thread is not None and row is not None else []
    if thread is None or not records or name not in records[0].refs:
        return default
    want = Wanted(place.thread, records[0].step, name, records[0].refs[name])
    return join(tools, want, (yield from fetch(tools, thread, [(name, want.ref)])))


def load(
    tools: Tools,
    thread: Thread,
    rows: Sequence[Row],
    shelf: Shelf,
    kept: list[tuple[Sheet, Bundle | None]] | None = None,
) -> Statements[list[Loaded]]:
    """Make whole checkpoints of rows, in two requests; and put by what they are made of, if that is to be kept."""
    found = []
    for sheet in (yield from opened(tools, thread, rows, shelf)):
        whole, bundle = made(tools, sheet, shelf)
        found.append(whole)
        if kept is not None:
            kept.append((sheet, bundle))
    return found


def opened(tools: Tools, thread: Thread, rows: Sequence[Row], shelf: Shelf) -> Statements[list[Sheet]]:
    """Open rows of checkpoints and of the writes on each, and put every element that either needs on a shelf."""
    if not rows:
        return []
    records = yield from records_of(tools, thread, rows)
    elements = yield from needs(tools, thread, shelf, [named for record in records for named in record.refs.items()])
    writes = writes_on(thread, rows)
    if elements is None:
        written = yield writes
    else:
        written, found, life = yield Together((writes, elements, life_of(thread)))
        see_life(thread, life)
        shelf.take(thread, found)
    pending = yield from pending_on(tools, thread, rows, written)
    left = [(write.channel, write.ref) for tasks in pending for task in tasks for write in task.writes]
    yield from fill(tools, thread, shelf, left)
    return [
        Sheet(thread, record, metadata_of(thread, row), in_order(tasks))
        for row, record, tasks in zip(rows, records, pending, strict=True)
    ]


def writes_on(thread: Thread, rows: Sequence[Row]) -> Many:
    """Ask for the writes on these checkpoints."""
    return Many(SELECT_WRITES, [(thread.key, row[NS], row[ID]) for row in rows])


def pending_on(tools: Tools, thread: Thread, rows: Sequence[Row], written: Rows) -> Statements[list[list[TaskWrites]]]:
    """Open the writes that were read of these checkpoints, and see that none of them is missing."""
    by_checkpoint: dict[tuple[bytes, bytes], list[Row]] = {}
    for row in written:
        by_checkpoint.setdefault((row[0], row[1]), []).append(row)
    result = []
    for row in rows:
        own = by_checkpoint.get((row[NS], row[ID]), [])
        see_all_writes(thread, row, own)
        result.append((yield from writes_of(tools, thread, own, row[STEP])))
    return result


def paths_on(tools: Tools, place: Place) -> Statements[list[str]]:
    """Give the path of the task of each write on a checkpoint, in the order in which those are told."""
    thread, row = yield from find_checkpoint(tools, place)
    if thread is None or row is None:
        return []
    (tasks,) = yield from pending_on(tools, thread, [row], (yield writes_on(thread, [row])))
    return [write.path for _, write in in_order(tasks)]


def made(tools: Tools, sheet: Sheet, shelf: Shelf) -> tuple[Loaded, Bundle | None]:
    """Make a whole checkpoint of what was read of it; with the bundle that its values are decoded from, if in one."""
    wanted: dict[Any, tuple[str, Ref]] = {channel: (channel, ref) for channel, ref in sheet.record.refs.items()}
    wanted |= {index: (write.channel, write.ref) for index, (_, write) in enumerate(sheet.writes)}
    values, bundle = decoded(tools, sheet.thread, sheet.record.step, wanted, shelf)
    return loaded(tools, sheet, values), bundle


def again(tools: Tools, sheet: Sheet, bundle: Bundle) -> Loaded:
    """Make a whole checkpoint of what was kept of it."""
    return loaded(tools, sheet, tools.codec.unbundle(bundle))


def loaded(tools: Tools, sheet: Sheet, values: dict[Any, Any]) -> Loaded:
    """Make a whole checkpoint of its values: those of channels by name, those that are pending by number."""
    thread, record = sheet.thread, sheet.record
    pending = [(task, write.channel, values.pop(index)) for index, (task, write) in enumerate(sheet.writes)]
    checkpoint: dict[str, Any] = {
        "v": record.v,
        "ts": record.ts,
        "id": record.id,
        "channel_values": values,
        "channel_versions": dict(record.versions),
        "versions_seen": {node: dict(seen) for node, seen in record.seen.items()},
    }
    if record.has_updated:
        checkpoint["updated_channels"] = None if record.updated is None else [*record.updated]
    if record.extra is not None:
        checkpoint |= tools.codec.value(record.extra)
    with checked(thread.name, "the checkpoint's metadata", record.step):
        metadata = unpacked_dict(sheet.metadata)
    at = thread.standing
    is_head = record.ns == ROOT and bool(at.head) and key_of(record.id) == at.head_id
    return Loaded(thread.name, record, metadata, checkpoint, pending, is_head=is_head)
