"""Writing: a checkpoint, and the writes of a task; each one commit, one round trip where nothing must be looked up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import ormsgpack

from checkpointers.codec import packed
from checkpointers.errors import BusyError, UnstorableValueError
from checkpointers.keys import digest, key_of
from checkpointers.lineage import is_trigger
from checkpointers.memory import ThreadMemory
from checkpointers.operations.common import (
    CHECKPOINT_COLUMNS,
    ROOT,
    SELECT_WRITES,
    WRITE_COLUMNS,
    Place,
    Tools,
    checkpoint_row,
    intern,
    records_of,
    writes_of,
)
from checkpointers.operations.guard import Growth, Head, append, recall
from checkpointers.operations.storing import Elements, finish, store_value, store_write
from checkpointers.records import KNOWN_KEYS, Record, TaskWrites, Write, names_in, pack_record, pack_writes
from checkpointers.statements import Delete, Insert, Row, Statement, Statements
from checkpointers.status import flags_of

T = TypeVar("T")
ATTEMPTS: Final = 50
SPECIAL_INDEX: Final = {"__error__": -1, "__scheduled__": -2, "__interrupt__": -3, "__resume__": -4}


@dataclass(frozen=True, slots=True)
class NewCheckpoint:
    """The arguments of a `put`, with the metadata that the config adds to."""

    place: Place
    checkpoint: Mapping[str, Any]
    metadata: Mapping[str, Any]
    new_versions: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NewWrites:
    """The arguments of a `put_writes`."""

    place: Place
    writes: Sequence[tuple[str, Any]]
    task: str
    path: str


def put(
    tools: Tools, memory: ThreadMemory, new: NewCheckpoint, writes: Sequence[NewWrites], now: int
) -> Statements[int]:
    """Store a checkpoint, with writes that wait for it, and give its step; the same id again keeps its step."""
    return _truthful(memory, _put(tools, memory, new, writes, now))


def put_writes(tools: Tools, memory: ThreadMemory, writes: Sequence[NewWrites], now: int) -> Statements[None]:
    """Store the writes of tasks: ordinary ones once, special ones anew each time."""
    return _truthful(memory, _put_writes(tools, memory, writes, now))


def _truthful(memory: ThreadMemory, statements: Statements[T]) -> Statements[T]:
    """Let nothing be remembered of an operation that did not come to its end: it may be run again."""
    try:
        return (yield from statements)
    except BaseException:
        memory.forget()
        raise


def _put(
    tools: Tools, memory: ThreadMemory, new: NewCheckpoint, writes: Sequence[NewWrites], now: int
) -> Statements[int]:
    yield from _intern_writes(tools, writes)
    replaces: int | None = None
    merge = False
    for _ in range(ATTEMPTS):
        yield from recall(memory, new.place.thread)
        elements = Elements()
        rows, tasks = yield from _write_rows(tools, memory, elements, writes=writes, merge=merge)
        _note(memory, writes)
        parent = yield from _parent(tools, memory, new.place)
        record = yield from _record(tools, memory, elements, new=new, parent=parent)
        yield from finish(memory, elements)
        record.step = replaces or memory.steps + 1
        record.at = now
        row = _row(tools, record, new)
        is_head = new.place.ns == ROOT and not replaces
        growth = Growth(
            steps=max(memory.steps, record.step),
            checkpoints=0 if replaces else 1,
            size=elements.bytes + len(row[-1]) + len(row[-2]) + sum(len(written[-1]) for written in rows),
            head=Head(record.step, row[2], row[5], row[6], _kinds_on(row[2], rows, tasks)) if is_head else None,
        )
        inserts = _inserts(rows, merge=merge)
        inserts.append(Insert("cp_checkpoints", CHECKPOINT_COLUMNS, [row], replace=replaces is not None))
        answer = yield from append(memory, new.place.thread, elements, inserts=inserts, growth=growth, now=now)
        if answer == "done":
            memory.written.setdefault((record.ns, record.id), set())
            memory.remember(record)
            return record.step
        memory.forget()
        if answer == "duplicate":
            replaces, merge = (yield from _step_of(new)), bool(writes)
    raise _too_busy(new.place.thread)


def _put_writes(tools: Tools, memory: ThreadMemory, writes: Sequence[NewWrites], now: int) -> Statements[None]:
    yield from _intern_writes(tools, writes)
    thread = writes[0].place.thread
    merge = False
    for _ in range(ATTEMPTS):
        yield from recall(memory, thread)
        elements = Elements()
        rows, tasks = yield from _write_rows(tools, memory, elements, writes=writes, merge=merge)
        yield from finish(memory, elements)
        growth = Growth(
            steps=memory.steps,
            checkpoints=0,
            size=elements.bytes + sum(len(row[-1]) for row in rows),
            on=tuple((row[1], _kinds_on(row[1], [row], [task])) for row, task in zip(rows, tasks, strict=True)),
        )
        inserts = _inserts(rows, merge=merge)
        answer = yield from append(memory, thread, elements, inserts=inserts, growth=growth, now=now)
        if answer == "done":
            _note(memory, writes)
            return
        memory.forget()
        merge = merge or answer == "duplicate"
    raise _too_busy(thread)


def _kinds_on(checkpoint: bytes, rows: Sequence[Row], tasks: Sequence[TaskWrites]) -> int:
    """Tell which special writes of the root namespace are on a checkpoint."""
    kinds = 0
    for row, task in zip(rows, tasks, strict=True):
        if row[0] == key_of(ROOT) and row[1] == checkpoint:
            kinds |= task.kinds
    return kinds


def _note(memory: ThreadMemory, writes: Sequence[NewWrites]) -> None:
    """Remember which channels were written on a checkpoint; on one that is not stored yet, that some were."""
    for new in writes:
        slot = (new.place.ns, str(new.place.id))
        channels = memory.written.setdefault(slot, None)
        if channels is not None:
            channels.update(channel for channel, _ in new.writes)


def _intern_writes(tools: Tools, writes: Sequence[NewWrites]) -> Statements[None]:
    yield from intern(tools.names, (channel for new in writes for channel, _ in new.writes))


def _inserts(rows: Sequence[Row], *, merge: bool) -> list[Insert | Delete]:
    return [Insert("cp_writes", WRITE_COLUMNS, rows, replace=merge)] if rows else []


def _write_rows(
    tools: Tools, memory: ThreadMemory, elements: Elements, *, writes: Sequence[NewWrites], merge: bool
) -> Statements[tuple[list[Row], list[TaskWrites]]]:
    """Make one row for each task on each checkpoint, joined with what is stored of it when there may be some."""
    tasks: dict[tuple[bytes, bytes, bytes], TaskWrites] = {}
    for new in writes:
        key = (key_of(new.place.ns), key_of(str(new.place.id)), key_of(new.task))
        task = TaskWrites(new.task, _numbered(tools, memory, elements, new))
        tasks[key] = _joined(tasks[key], task) if key in tasks else task
    if merge and memory.thread is not None:
        for key, task in list(tasks.items()):
            rows = yield Statement(f"{SELECT_WRITES} AND task = ?", (memory.thread, *key))
            for before in (yield from writes_of(tools.names, rows)):
                tasks[key] = _joined(before, task)
    rows = [(*key, task.kinds, pack_writes(task, tools.names)) for key, task in tasks.items()]
    return rows, list(tasks.values())


def _joined(before: TaskWrites, task: TaskWrites) -> TaskWrites:
    """Join what a task left before with what it leaves now: a special write is replaced, others stay as they were."""
    merged = {write.idx: write for write in task.writes}
    merged.update({write.idx: write for write in before.writes if write.idx >= 0 or write.idx not in merged})
    return TaskWrites(task.task, [merged[idx] for idx in sorted(merged)])


def _parent(tools: Tools, memory: ThreadMemory, place: Place) -> Statements[Record | None]:
    if not place.id or memory.thread is None:
        return None
    remembered = memory.records.get((place.ns, place.id))
    if remembered is not None:
        return remembered
    rows = yield checkpoint_row(memory.thread, place)
    records = yield from records_of(tools.names, rows)
    return records[0] if records else None


def _record(
    tools: Tools, memory: ThreadMemory, elements: Elements, *, new: NewCheckpoint, parent: Record | None
) -> Statements[Record]:
    """Make the record: what did not change is inherited from the parent, what did is stored."""
    checkpoint = new.checkpoint
    values, versions = checkpoint.get("channel_values", {}), checkpoint.get("channel_versions", {})
    record = Record(
        id=checkpoint["id"],
        ns=new.place.ns,
        parent=new.place.id,
        v=checkpoint.get("v", 1),
        ts=checkpoint.get("ts", ""),
        versions=dict(versions),
        seen={node: dict(seen) for node, seen in checkpoint.get("versions_seen", {}).items()},
        updated=_updated(checkpoint),
        has_updated="updated_channels" in checkpoint,
    )
    extra = {key: value for key, value in checkpoint.items() if key not in KNOWN_KEYS}
    record.extra = tools.codec.payload("(checkpoint)", extra) if extra else None
    yield from intern(tools.names, [*names_in(record), *values])
    for channel in dict.fromkeys([*versions, *values]):
        inherited = parent.refs.get(channel) if parent else None
        unchanged = (
            channel not in new.new_versions
            and channel in versions
            and parent is not None
            and parent.versions.get(channel) == versions[channel]
        )
        if unchanged:
            if inherited is not None:
                record.refs[channel] = inherited
        elif channel in values:
            record.refs[channel] = yield from store_value(
                tools, memory, elements, ns=new.place.ns, channel=channel, value=values[channel], parent=inherited
            )
    if parent is not None:
        _trail(memory, record, parent, new)
    return record


def _trail(memory: ThreadMemory, record: Record, parent: Record, new: NewCheckpoint) -> None:
    """Note where a DeltaChannel finds its nearest writes, so that reading skips the steps that wrote it nothing."""
    written = memory.written.get((parent.ns, parent.id))
    for channel in record.versions:
        if channel in record.refs or is_trigger(channel):
            continue
        touched = channel in new.new_versions or written is None or channel in written
        record.trail[channel] = parent.step if touched else parent.trail.get(channel, parent.step)


def _updated(checkpoint: Mapping[str, Any]) -> list[str] | None:
    updated = checkpoint.get("updated_channels")
    return list(updated) if updated is not None else None


def _row(tools: Tools, record: Record, new: NewCheckpoint) -> Row:
    return (
        key_of(record.ns),
        record.step,
        key_of(record.id),
        key_of(record.parent) if record.parent else None,
        record.at,
        flags_of(new.checkpoint),
        pack_metadata(new.metadata),
        pack_record(record, tools.names),
    )


def pack_metadata(metadata: Mapping[str, Any]) -> bytes:
    """Pack the metadata so that a listing can read it without the serializer."""
    try:
        return packed(dict(metadata))
    except (TypeError, ormsgpack.MsgpackEncodeError) as error:
        raise UnstorableValueError(channel="(metadata)", path="", reason=str(error)) from error


def _step_of(new: NewCheckpoint) -> Statements[int | None]:
    rows = yield Statement(
        "SELECT c.step FROM cp_threads t JOIN cp_checkpoints c ON c.thread = t.thread"
        " WHERE t.digest = ? AND c.ns = ? AND c.id = ?",
        (digest(new.place.thread), key_of(new.place.ns), key_of(new.checkpoint["id"])),
    )
    return int(rows[0][0]) if rows else None


def _numbered(tools: Tools, memory: ThreadMemory, elements: Elements, new: NewWrites) -> list[Write]:
    return [
        Write(
            SPECIAL_INDEX.get(channel, index),
            channel,
            store_write(tools, memory, elements, channel=channel, value=value),
            new.path,
        )
        for index, (channel, value) in enumerate(new.writes)
    ]


def _too_busy(thread: str) -> BusyError:
    return BusyError(f"thread {thread!r}", f"it changed {ATTEMPTS} times while this write was prepared")
