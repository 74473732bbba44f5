"""Reading: one checkpoint, a page of them, what a DeltaChannel was told. Reading never writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from checkpointers.codec import Ref, is_recipe, joined, spans
from checkpointers.errors import IncompleteRecordError, StrictReadingError, UnreadableValueError
from checkpointers.errors import at as where
from checkpointers.keys import key_of
from checkpointers.lineage import Ancestor, MissingAncestorError, delta_history
from checkpointers.memory import ThreadMemory
from checkpointers.operations.common import (
    NS,
    ROOT,
    SELECT_CHECKPOINT,
    SELECT_ELEMENTS,
    SELECT_WRITES,
    STEP,
    Place,
    Tools,
    absent,
    checkpoint_row,
    find_thread,
    records_of,
    see_all_writes,
    see_asked,
    told_metadata,
    writes_of,
)
from checkpointers.operations.guard import meet
from checkpointers.operations.storing import learn, resolved
from checkpointers.records import Record, TaskWrites, in_order
from checkpointers.segments import MissingElementError, Stack, start_of
from checkpointers.standing import Thread
from checkpointers.statements import Many, Row, Statement, Statements

NOTHING: Final = Stack()


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checkpoint as read: everything a CheckpointTuple says, without LangGraph's type."""

    thread: str
    record: Record
    metadata: dict[str, Any]
    checkpoint: dict[str, Any]
    pending: list[tuple[str, str, Any]]
    is_head: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """A reference and where it was found, so that an error can name it."""

    thread: str
    step: int | None
    channel: str
    ref: Ref


def get(tools: Tools, place: Place, memory: ThreadMemory | None = None) -> Statements[Loaded | None]:
    """Read the checkpoint that a place names, or the one its namespace stands at; a memory learns what it holds."""
    thread = yield from find_thread(tools, place.thread)
    if thread is None:
        if memory is not None:
            meet(tools, memory, place.thread, None)
        return None
    row = yield from checkpoint_row(thread, place)
    if row is None:
        return None
    found = yield from load(tools, thread, [row])
    if memory is not None:
        memory.forget()
        meet(tools, memory, place.thread, thread)
        learn(tools, memory, found[0].record, found[0].checkpoint["channel_values"])
    return found[0]


def channel(tools: Tools, place: Place, name: str, default: Any) -> Statements[Any]:
    """Read one channel of a checkpoint and nothing else of its state."""
    thread = yield from find_thread(tools, place.thread)
    row = (yield from checkpoint_row(thread, place)) if thread is not None else None
    records = (yield from records_of(tools, thread, [row])) if thread is not None and row is not None else []
    if thread is None or not records or name not in records[0].refs:
        return default
    want = Wanted(place.thread, records[0].step, name, records[0].refs[name])
    return join(tools, want, (yield from fetch(tools, thread, [want])))


def load(tools: Tools, thread: Thread, rows: Sequence[Row]) -> Statements[list[Loaded]]:
    """Make whole checkpoints of rows: their values and their pending writes, in two requests."""
    if not rows:
        return []
    records, pending, shelf = yield from opened(tools, thread, rows)
    return [
        made(tools, thread, record, told_metadata(thread, row), tasks, shelf)
        for row, record, tasks in zip(rows, records, pending, strict=True)
    ]


def opened(
    tools: Tools, thread: Thread, rows: Sequence[Row]
) -> Statements[tuple[list[Record], list[list[TaskWrites]], Shelf]]:
    """Open rows of checkpoints: their records, the writes on each, and every element that either needs, each once."""
    records = yield from records_of(tools, thread, rows)
    pending = yield from pending_writes(tools, thread, rows, records)
    name = thread.name
    wanted = [Wanted(name, r.step, channel, ref) for r in records for channel, ref in r.refs.items()]
    wanted += [
        Wanted(name, record.step, write.channel, write.ref)
        for record, tasks in zip(records, pending, strict=True)
        for task in tasks
        for write in task.writes
    ]
    shelf = yield from fetch(tools, thread, wanted)
    return records, pending, shelf


def pending_writes(
    tools: Tools, thread: Thread, rows: Sequence[Row], records: Sequence[Record]
) -> Statements[list[list[TaskWrites]]]:
    """Read the writes stored on each of these checkpoints, and see that none of them is missing."""
    keys = [(thread.key, key_of(record.ns), key_of(record.id)) for record in records]
    by_checkpoint: dict[tuple[bytes, bytes], list[Row]] = {}
    for row in (yield Many(SELECT_WRITES, keys)):
        by_checkpoint.setdefault((row[0], row[1]), []).append(row)
    result = []
    for row, (_, ns, checkpoint) in zip(rows, keys, strict=True):
        written = by_checkpoint.get((ns, checkpoint), [])
        see_all_writes(thread, row, written)
        result.append((yield from writes_of(tools, thread, written, row[STEP])))
    return result


@dataclass(frozen=True, slots=True)
class Shelf:
    """The elements that were read of a thread, by channel, and the runs of the references that have recipes."""

    stacks: dict[int, Stack]
    recipes: dict[tuple[int, Any], Ref]


def fetch(tools: Tools, thread: Thread, wanted: Iterable[Wanted]) -> Statements[Shelf]:
    """Read every element that these references need, each once, in one request; in two if some have recipes."""
    wanted = list(wanted)
    refs = [(tools.names.keys[want.channel], want.ref) for want in wanted]
    long = {(key, tuple(ref)) for key, ref in refs if is_recipe(ref)}
    recipes = (yield from resolved(thread, long)) if long else {}
    ranges: dict[int, set[tuple[int, int]]] = {}
    for key, ref in refs:
        runs = spans(recipes[key, tuple(ref)] if is_recipe(ref) else ref)
        if runs:
            ranges.setdefault(key, set()).update(runs)
    stacks = {key: thread.stack(key) for key in ranges}
    params = [(thread.key, key, start_of(first), last) for key, runs in ranges.items() for first, last in joined(runs)]
    rows = (yield Many(SELECT_ELEMENTS, params)) if params else ()
    for channel, number, body in rows:
        see_asked(thread, channel in stacks, asked=True)
        stacks[channel].take(number, body)
    return Shelf(stacks, recipes)


def made(
    tools: Tools,
    thread: Thread,
    record: Record,
    metadata: dict[str, Any],
    tasks: Sequence[TaskWrites],
    shelf: Shelf,
) -> Loaded:
    """Make a whole checkpoint of what was read of it."""
    name = thread.name
    values = {
        channel: join(tools, Wanted(name, record.step, channel, ref), shelf) for channel, ref in record.refs.items()
    }
    pending = [
        (task, write.channel, join(tools, Wanted(name, record.step, write.channel, write.ref), shelf))
        for task, write in in_order(tasks)
    ]
    checkpoint: dict[str, Any] = {
        "v": record.v,
        "ts": record.ts,
        "id": record.id,
        "channel_values": values,
        "channel_versions": dict(record.versions),
        "versions_seen": {node: dict(seen) for node, seen in record.seen.items()},
    }
    if record.has_updated:
        checkpoint["updated_channels"] = record.updated
    if record.extra is not None:
        checkpoint |= tools.codec.value(record.extra)
    at = thread.standing
    is_head = record.ns == ROOT and bool(at.head) and key_of(record.id) == at.head_id
    return Loaded(name, record, metadata, checkpoint, pending, is_head=is_head)


def join(tools: Tools, want: Wanted, shelf: Shelf) -> Any:
    """Put one value together; an error names its place."""
    key = tools.names.keys[want.channel]
    ref = shelf.recipes[key, tuple(want.ref)] if is_recipe(want.ref) else want.ref
    try:
        return tools.codec.join(ref, shelf.stacks.get(key, NOTHING))
    except MissingElementError as error:
        raise absent(error, thread=want.thread, step=want.step, channel=want.channel) from error
    except StrictReadingError as error:
        error.where = f"channel {want.channel!r} of {where(want.thread, want.step)}"
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise UnreadableValueError(thread=want.thread, step=want.step, channel=want.channel, reason=reason) from error


def history_of(
    tools: Tools, place: Place, channels: Sequence[str]
) -> Statements[dict[str, tuple[list[tuple[str, str, Any]], tuple[Any] | None]]]:
    """Give what each DeltaChannel was told on the way to a checkpoint: its writes, and the value they start from."""
    empty: dict[str, tuple[list[tuple[str, str, Any]], tuple[Any] | None]] = {name: ([], None) for name in channels}
    thread = yield from find_thread(tools, place.thread)
    row = (yield from checkpoint_row(thread, place)) if thread is not None else None
    if thread is None or row is None:
        return empty
    (target,) = yield from records_of(tools, thread, [row])
    try:
        bases = yield from delta_history(target, channels, ancestors(tools, thread, target.ns))
    except MissingAncestorError as error:
        raise IncompleteRecordError(thread=thread.name, step=target.step, channel=str(error)) from error
    wanted = [
        Wanted(place.thread, target.step, channel, ref)
        for channel, base in bases.items()
        for ref in [base.seed, *(ref for _, ref in base.writes)]
        if ref is not None
    ]
    shelf = yield from fetch(tools, thread, wanted)

    def value(channel: str, ref: Ref) -> Any:
        return join(tools, Wanted(place.thread, target.step, channel, ref), shelf)

    return {
        channel: (
            [(task, channel, value(channel, ref)) for task, ref in base.writes],
            (value(channel, base.seed),) if base.seed is not None else None,
        )
        for channel, base in bases.items()
    }


def ancestors(tools: Tools, thread: Thread, ns: str) -> Callable[[int, int], Statements[list[Ancestor]]]:
    """Make the function that reads checkpoints of a namespace, from a step downwards, with their writes."""
    key = key_of(ns)

    def page(top: int, limit: int) -> Statements[list[Ancestor]]:
        rows = yield Statement(
            f"{SELECT_CHECKPOINT} WHERE thread = ? AND ns = ? AND step <= ? ORDER BY step DESC LIMIT {limit:d}",
            (thread.key, key, top),
        )
        if not rows:
            return []
        for row in rows:
            see_asked(thread, row[NS], key)
        records = yield from records_of(tools, thread, rows)
        tasks = yield from pending_writes(tools, thread, rows, records)
        return list(zip(records, tasks, strict=True))

    return page
