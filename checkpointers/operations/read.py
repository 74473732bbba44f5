"""Reading: one checkpoint, a page of them, what a DeltaChannel was told. Reading never writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import ormsgpack

from checkpointers.codec import Ref, is_recipe, joined, spans, unpacked
from checkpointers.compression import PLAIN
from checkpointers.errors import IncompleteRecordError, UnreadableValueError
from checkpointers.keys import key_of
from checkpointers.lineage import Ancestor, delta_history
from checkpointers.memory import ThreadMemory
from checkpointers.operations.common import (
    ROOT,
    SELECT_CHECKPOINT,
    SELECT_ELEMENTS,
    SELECT_THREAD,
    SELECT_WRITES,
    STEP,
    TALLY,
    Place,
    Tools,
    checked,
    checkpoint_row,
    find_thread,
    metadata_of,
    open_thread,
    records_of,
    writes_of,
)
from checkpointers.operations.guard import is_head, meet
from checkpointers.operations.storing import learn, resolved
from checkpointers.records import Record, TaskWrites, in_order
from checkpointers.segments import MissingElementError, Stack, start_of
from checkpointers.standing import Thread
from checkpointers.statements import Many, Row, Statement, Statements

SCANNED: Final = 256
NOTHING: Final = Stack()
THREADS: Final = 256


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
class Query:
    """What a listing asks for; `place` None means all threads."""

    place: Place | None
    any_ns: bool
    filter: Mapping[str, Any] = field(default_factory=dict)
    before: str | None = None


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where the next page of a listing starts: below this step of this thread; `others` come after it."""

    thread: Thread | None
    step: int
    by_id: bool = False
    others: tuple[Thread, ...] = ()
    after: tuple[int, int] = (2**62, 0)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A reference and where it was found, so that an error can name it."""

    thread: str
    step: int | None
    channel: str
    ref: Ref


def get(tools: Tools, place: Place, memory: ThreadMemory | None = None) -> Statements[Loaded | None]:
    """Read the checkpoint that a place names, or the one its namespace stands at; a memory learns what it holds."""
    thread = yield from find_thread(tools, place.thread)
    if thread is None:
        return None
    row = yield from checkpoint_row(thread, place)
    if row is None:
        return None
    found = yield from load(tools, thread, [row])
    if memory is not None:
        memory.forget()
        meet(memory, thread)
        learn(tools, memory, found[0].record, found[0].checkpoint["channel_values"])
    return found[0]


def channel(tools: Tools, place: Place, name: str, default: Any) -> Statements[Any]:
    """Read one channel of a checkpoint and nothing else of its state."""
    thread = yield from find_thread(tools, place.thread)
    row = (yield from checkpoint_row(thread, place)) if thread is not None else None
    records = (yield from records_of(tools, thread, [row])) if thread is not None and row is not None else []
    if thread is None or not records or name not in records[0].refs:
        return default
    want = _Wanted(place.thread, records[0].step, name, records[0].refs[name])
    return join(tools, want, (yield from fetch(tools, thread, [want])))


def page(
    tools: Tools, query: Query, cursor: Cursor | None, limit: int
) -> Statements[tuple[list[Loaded], Cursor | None]]:
    """Read the next checkpoints of a listing, newest first, and where to go on; no cursor: it is finished."""
    at = cursor or (yield from _first(tools, query))
    while at is not None and at.thread is not None:
        size = SCANNED if query.filter else limit
        thread = at.thread
        rows = yield _below(thread, query, at, size)
        chosen = [row for row in rows if _matches(thread, row, query.filter)][:limit]
        found = yield from load(tools, thread, chosen)
        following: Cursor | None
        if len(chosen) == limit:
            following = replace(at, step=chosen[-1][STEP])
        elif len(rows) == size:
            following = replace(at, step=rows[-1][STEP])
        else:
            following = yield from _next_thread(tools, query, at)
        if found or following is None:
            return found, following
        at = following
    return [], None


def load(tools: Tools, thread: Thread, rows: Sequence[Row]) -> Statements[list[Loaded]]:
    """Make whole checkpoints of rows: their values and their pending writes, in two requests."""
    if not rows:
        return []
    records = yield from records_of(tools, thread, rows)
    pending = yield from pending_writes(tools, thread, rows, records)
    name = thread.name
    wanted = [_Wanted(name, r.step, channel, ref) for r in records for channel, ref in r.refs.items()]
    wanted += [
        _Wanted(name, record.step, write.channel, write.ref)
        for record, tasks in zip(records, pending, strict=True)
        for task in tasks
        for write in task.writes
    ]
    shelf = yield from fetch(tools, thread, wanted)
    return [
        _loaded(tools, thread, record, unpacked(metadata_of(thread, row)), tasks, shelf)
        for row, record, tasks in zip(rows, records, pending, strict=True)
    ]


def pending_writes(
    tools: Tools, thread: Thread, rows: Sequence[Row], records: Sequence[Record]
) -> Statements[list[list[TaskWrites]]]:
    """Read the writes stored on each of these checkpoints, and see that none of them is missing."""
    keys = [(thread.key, key_of(record.ns), key_of(record.id)) for record in records]
    by_checkpoint: dict[tuple[bytes, bytes], list[Row]] = {}
    for row in (yield Many(SELECT_WRITES, keys)):
        by_checkpoint.setdefault((bytes(row[0]), bytes(row[1])), []).append(row)
    result = []
    for row, record, (_, ns, checkpoint) in zip(rows, records, keys, strict=True):
        written = by_checkpoint.get((ns, checkpoint), [])
        if len(written) < row[TALLY]:
            raise IncompleteRecordError(thread=thread.name, step=record.step, channel="(writes)")
        result.append((yield from writes_of(tools, thread, written)))
    return result


@dataclass(frozen=True, slots=True)
class Shelf:
    """The elements that were read of a thread, by channel, and the runs of the references that have recipes."""

    stacks: dict[int, Stack]
    recipes: dict[tuple[int, Any], Ref]


def fetch(tools: Tools, thread: Thread, wanted: Iterable[_Wanted]) -> Statements[Shelf]:
    """Read every element that these references need, each once, in one request; in two if some have recipes."""
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
    for channel, number, body in (yield Many(SELECT_ELEMENTS, params)) if params else ():
        with checked(thread.name, f"element {number} of channel {tools.names.texts[channel]!r}"):
            stacks[channel].add(number, body)
    return Shelf(stacks, recipes)


def _loaded(
    tools: Tools,
    thread: Thread,
    record: Record,
    metadata: dict[str, Any],
    tasks: Sequence[TaskWrites],
    shelf: Shelf,
) -> Loaded:
    name = thread.name
    values = {
        channel: join(tools, _Wanted(name, record.step, channel, ref), shelf) for channel, ref in record.refs.items()
    }
    pending = [
        (task, write.channel, join(tools, _Wanted(name, record.step, write.channel, write.ref), shelf))
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
    stands = is_head(thread.standing, key_of(record.ns), key_of(record.id))
    return Loaded(name, record, metadata, checkpoint, pending, is_head=stands)


def join(tools: Tools, want: _Wanted, shelf: Shelf) -> Any:
    """Put one value together; an error names its place."""
    key = tools.names.keys[want.channel]
    ref = shelf.recipes[key, tuple(want.ref)] if is_recipe(want.ref) else want.ref
    try:
        return tools.codec.join(ref, shelf.stacks.get(key, NOTHING))
    except MissingElementError as error:
        raise IncompleteRecordError(thread=want.thread, step=want.step, channel=want.channel) from error
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise UnreadableValueError(thread=want.thread, step=want.step, channel=want.channel, reason=reason) from error


def _matches(thread: Thread, row: Row, wanted: Mapping[str, Any]) -> bool:
    if not wanted:
        return True
    metadata = unpacked(metadata_of(thread, row))
    return all(metadata.get(key) == value for key, value in wanted.items())


def _needles(wanted: Mapping[str, Any]) -> list[list[bytes]]:
    """Give, for each entry of a filter, the bytes that matching metadata contains, so that the database can look.

    Only what packs in one way, or in a few, is looked for; the answer is checked again after reading in any case.
    """
    found = []
    for key, value in wanted.items():
        if isinstance(value, str):
            forms: list[Any] = [value]
        elif isinstance(value, bool | int | float):
            forms = [form for form in (value, float(value), *_integers(value)) if form == value]
        else:
            continue
        name = ormsgpack.packb(key)
        found.append(list(dict.fromkeys(name + ormsgpack.packb(form) for form in forms)))
    return found


def _integers(value: float) -> list[Any]:
    """Give the integer and the truth value that equal a number."""
    if value not in (0, 1) and not float(value).is_integer():
        return []
    return [int(value), *([bool(value)] if value in (0, 1) else ())]


def _first(tools: Tools, query: Query) -> Statements[Cursor | None]:
    if query.place is None:
        return (yield from _next_thread(tools, query, Cursor(None, 0)))
    thread = yield from find_thread(tools, query.place.thread)
    if thread is None:
        return None
    step = (yield from _step_before(thread.key, query)) if query.before else _HIGHEST
    return Cursor(thread, step or _HIGHEST, by_id=step is None)


_HIGHEST: Final = 2**31 - 1


def _step_before(thread: int, query: Query) -> Statements[int | None]:
    """Give the step of the checkpoint that a listing starts below, None if it is not stored.

    Its namespace may be another one: a subgraph asks for what it had before a checkpoint of its parent graph.
    """
    rows = yield Statement(
        "SELECT step FROM cp_checkpoints WHERE thread = ? AND id = ? ORDER BY ns = ? DESC, step LIMIT 1",
        (thread, key_of(query.before or ""), key_of(query.place.ns if query.place else ROOT)),
    )
    return int(rows[0][0]) if rows else None


def _next_thread(tools: Tools, query: Query, cursor: Cursor) -> Statements[Cursor | None]:
    """Go on with the next thread, the last changed first, when a listing is about all of them."""
    if query.place is not None:
        return None
    if cursor.others:
        return replace(cursor, thread=cursor.others[0], step=_HIGHEST, by_id=True, others=cursor.others[1:])
    rows = yield Statement(
        f"{SELECT_THREAD} WHERE t.updated_at < ? OR (t.updated_at = ? AND t.thread < ?)"
        f" ORDER BY t.updated_at DESC, t.thread DESC LIMIT {THREADS:d}",
        (cursor.after[0], *cursor.after),
    )
    if not rows:
        return None
    found = [open_thread(tools, row) for row in rows]
    after = (found[-1].standing.updated_at, found[-1].key)
    return Cursor(found[0], _HIGHEST, by_id=True, others=tuple(found[1:]), after=after)


def _below(thread: Thread, query: Query, cursor: Cursor, limit: int) -> Statement:
    params: list[Any]
    sql, params = f"{SELECT_CHECKPOINT} WHERE thread = ? AND step < ?", [thread.key, cursor.step]
    if query.place is not None and not query.any_ns:
        sql, params = sql + " AND ns = ?", [*params, key_of(query.place.ns)]
    if query.place is not None and query.place.id:
        sql, params = sql + " AND id = ?", [*params, key_of(query.place.id)]
    if query.before and cursor.by_id:
        sql, params = sql + " AND id < ?", [*params, key_of(query.before)]
    for needles in _needles(query.filter):
        found = " OR ".join(["instr(metadata, ?) > 0"] * len(needles))
        sql, params = f"{sql} AND ({found} OR substr(metadata, 1, 1) <> ?)", [*params, *needles, PLAIN]
    return Statement(f"{sql} ORDER BY step DESC LIMIT {limit:d}", params)


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
    bases = yield from delta_history(target, channels, ancestors(tools, thread, target.ns))
    wanted = [
        _Wanted(place.thread, target.step, channel, ref)
        for channel, base in bases.items()
        for ref in [base.seed, *(ref for _, ref in base.writes)]
        if ref is not None
    ]
    shelf = yield from fetch(tools, thread, wanted)

    def value(channel: str, ref: Ref) -> Any:
        return join(tools, _Wanted(place.thread, target.step, channel, ref), shelf)

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
        records = yield from records_of(tools, thread, rows)
        tasks = yield from pending_writes(tools, thread, rows, records)
        return list(zip(records, tasks, strict=True))

    return page
