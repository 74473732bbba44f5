"""Reading: one checkpoint, a page of them, what a DeltaChannel was told. Reading never writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from checkpointers.codec import Ref, is_recipe, joined, spans
from checkpointers.errors import IncompleteRecordError, StrictReadingError, UnreadableValueError
from checkpointers.errors import at as where
from checkpointers.keys import key_of
from checkpointers.lineage import Ancestor, MissingAncestorError, delta_history
from checkpointers.memory import ThreadMemory
from checkpointers.operations.common import (
    ID,
    NS,
    ROOT,
    SELECT_CHECKPOINT,
    SELECT_ELEMENTS,
    SELECT_WRITES,
    STEP,
    Place,
    Tools,
    absent,
    find_checkpoint,
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
from checkpointers.statements import Many, Row, Rows, Statement, Statements, Together

NOTHING: Final = Stack()
AHEAD: Final = 2  # what is written on a checkpoint mostly comes next: read with the state, it need not be asked for


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
    thread, row = yield from find_checkpoint(tools, place)
    if thread is None and memory is not None:
        meet(tools, memory, place.thread, None)
    if thread is None or row is None:
        return None
    found = yield from load(tools, thread, [row])
    if memory is not None:
        memory.forget()
        meet(tools, memory, place.thread, thread)
        learn(tools, memory, found[0].record, found[0].checkpoint["channel_values"])
    return found[0]


def channel(tools: Tools, place: Place, name: str, default: Any) -> Statements[Any]:
    """Read one channel of a checkpoint and nothing else of its state."""
    thread, row = yield from find_checkpoint(tools, place)
    records = (yield from records_of(tools, thread, [row])) if thread is not None and row is not None else []
    if thread is None or not records or name not in records[0].refs:
        return default
    want = Wanted(place.thread, records[0].step, name, records[0].refs[name])
    return join(tools, want, (yield from fetch(tools, thread, [(name, want.ref)])))


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
    shelf = Shelf()
    elements = yield from _needs(tools, thread, shelf, [named for record in records for named in record.refs.items()])
    writes = _writes_on(thread, rows)
    if elements is None:
        written = yield writes
    else:
        written, found = yield Together((writes, elements))
        shelf.take(thread, found)
    pending = yield from _pending(tools, thread, rows, written)
    left = [(write.channel, write.ref) for tasks in pending for task in tasks for write in task.writes]
    yield from _fill(tools, thread, shelf, left)
    return records, pending, shelf


def _writes_on(thread: Thread, rows: Sequence[Row]) -> Many:
    return Many(SELECT_WRITES, [(thread.key, row[NS], row[ID]) for row in rows])


def _pending(tools: Tools, thread: Thread, rows: Sequence[Row], written: Rows) -> Statements[list[list[TaskWrites]]]:
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


@dataclass(frozen=True, slots=True)
class Shelf:
    """The elements that were read of a thread, by channel, and the runs of the references that have recipes."""

    stacks: dict[int, Stack] = field(default_factory=dict)
    recipes: dict[tuple[int, Any], Ref] = field(default_factory=dict)

    def take(self, thread: Thread, rows: Rows) -> None:
        """Add rows of elements, of channels that were asked for."""
        see_asked(thread, {channel for channel, _, _ in rows} - self.stacks.keys(), set())
        for channel, number, body in rows:
            self.stacks[channel].take(number, body)


def fetch(tools: Tools, thread: Thread, wanted: Iterable[tuple[str, Ref]]) -> Statements[Shelf]:
    """Read every element that references of channels need, each once."""
    shelf = Shelf()
    yield from _fill(tools, thread, shelf, wanted)
    return shelf


def _fill(tools: Tools, thread: Thread, shelf: Shelf, wanted: Iterable[tuple[str, Ref]]) -> Statements[None]:
    """Read what these references need and is not on the shelf, each element once."""
    elements = yield from _needs(tools, thread, shelf, wanted)
    if elements is not None:
        shelf.take(thread, (yield elements))


def _needs(tools: Tools, thread: Thread, shelf: Shelf, wanted: Iterable[tuple[str, Ref]]) -> Statements[Many | None]:
    """Ask for the elements that these references need and are not on the shelf; recipes are read at once."""
    refs = [(tools.names.keys[channel], ref) for channel, ref in wanted]
    long = {(key, tuple(ref)) for key, ref in refs if is_recipe(ref)} - shelf.recipes.keys()
    if long:
        shelf.recipes.update((yield from resolved(thread, long)))
    ranges: dict[int, set[tuple[int, int]]] = {}
    for key, ref in refs:
        stack = shelf.stacks.get(key)
        runs = spans(shelf.recipes[key, tuple(ref)] if is_recipe(ref) else ref)
        runs = runs if stack is None else [run for run in runs if not stack.has(*run)]
        if runs:
            ranges.setdefault(key, set()).update(runs)
    for key in ranges.keys() - shelf.stacks.keys():
        shelf.stacks[key] = thread.stack(key)
    params = [
        (thread.key, key, start_of(first), last + AHEAD) for key, runs in ranges.items() for first, last in joined(runs)
    ]
    return Many(SELECT_ELEMENTS, params) if params else None


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
    thread, row = yield from find_checkpoint(tools, place)
    if thread is None or row is None:
        return empty
    (target,) = yield from records_of(tools, thread, [row])
    try:
        bases = yield from delta_history(target, channels, ancestors(tools, thread, target.ns))
    except MissingAncestorError as error:
        raise IncompleteRecordError(thread=thread.name, step=target.step, channel=str(error)) from error
    wanted = [
        (channel, ref)
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
        tasks = yield from _pending(tools, thread, rows, (yield _writes_on(thread, rows)))
        return list(zip(records, tasks, strict=True))

    return page
