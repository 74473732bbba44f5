"""Removing: whole threads, runs, and what a plan drops; what is kept stays readable, DeltaChannels included."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from checkpointers.codec import Ref, is_recipe, joined, spans, unpacked
from checkpointers.keys import decoded, digest, encoded, key_of
from checkpointers.lineage import Ancestor, bases_of, nearest, refs_of
from checkpointers.operations.common import (
    CHECKPOINT_COLUMNS,
    DELETE_ELEMENTS,
    ELEMENT_COLUMNS,
    ROOT,
    SELECT_CHECKPOINT,
    SELECT_ELEMENTS,
    WRITE_COLUMNS,
    Tools,
    find_thread,
    records_of,
    writes_of,
)
from checkpointers.operations.storing import recipes_of, resolved
from checkpointers.records import Record, TaskWrites, pack_record
from checkpointers.retention import Line, moment
from checkpointers.segments import SEAL, Stack, start_of
from checkpointers.statements import Many, Row, Statement, Statements

TABLES: Final = ("cp_elements", "cp_writes", "cp_checkpoints", "cp_threads")
LEAVES: Final = {
    "cp_elements": ELEMENT_COLUMNS, "cp_writes": WRITE_COLUMNS, "cp_checkpoints": CHECKPOINT_COLUMNS,
}  # fmt: skip
FLAGS: Final = CHECKPOINT_COLUMNS.index("flags")
METADATA: Final = CHECKPOINT_COLUMNS.index("metadata")
BODY: Final = CHECKPOINT_COLUMNS.index("body")
MAX_NUMBER: Final = 2**31
SCANNED_AT_A_TIME: Final = 1_000


@dataclass(frozen=True, slots=True)
class Contents:
    """All rows of a thread but its elements."""

    thread: int
    rows: Sequence[Row]
    records: Sequence[Record]
    writes: dict[tuple[bytes, bytes], list[TaskWrites]]
    sizes: dict[tuple[bytes, bytes], int]

    def of(self, record: Record) -> list[TaskWrites]:
        """Give the writes stored on a checkpoint."""
        return self.writes.get((key_of(record.ns), key_of(record.id)), [])


def delete_thread(thread: str) -> Statements[None]:
    """Remove everything of a thread; roots before leaves."""
    key = yield from find_thread(thread)
    if key is not None:
        yield from _lock(key)
        yield from _erase(key)


def _erase(key: int) -> Statements[None]:
    for table in reversed(TABLES):
        yield Statement(f"DELETE FROM {table} WHERE thread = ?", (key,))


def copy_thread(source: str, target: str, now: int) -> Statements[str]:
    """Copy everything of a thread to another name: "done", or why not: "missing", "exists"."""
    key = yield from find_thread(source)
    if key is None:
        return "missing"
    yield from _lock(key)
    rows = yield Statement(
        "INSERT INTO cp_threads (digest, name, stamp, steps, head, head_id, flags, kinds, metadata, checkpoints, bytes,"
        " created_at, updated_at, counts, tags) SELECT ?, ?, 1, steps, head, head_id, flags, kinds, metadata,"
        " checkpoints, bytes, ?, ?, counts, tags FROM cp_threads WHERE thread = ?"
        " ON CONFLICT (digest) DO NOTHING RETURNING thread",
        (digest(target), encoded(target), now, now, key),
    )
    if not rows:
        return "exists"
    for table, columns in LEAVES.items():
        names = ", ".join(columns)
        yield Statement(
            f"INSERT INTO {table} (thread, {names}) SELECT ?, {names} FROM {table} WHERE thread = ?",
            (rows[0][0], key),
        )
    return "done"


def contents(tools: Tools, thread: str) -> Statements[Contents | None]:
    """Read all rows of a thread but its elements."""
    key = yield from find_thread(thread)
    if key is None:
        return None
    rows = yield Statement(f"{SELECT_CHECKPOINT} WHERE thread = ? ORDER BY step", (key,))
    records = yield from records_of(tools.names, rows)
    written = yield Statement("SELECT ns, checkpoint, task, kinds, body FROM cp_writes WHERE thread = ?", (key,))
    writes: dict[tuple[bytes, bytes], list[TaskWrites]] = {}
    sizes: dict[tuple[bytes, bytes], int] = {}
    for row, task in zip(written, (yield from writes_of(tools.names, written)), strict=True):
        place = (bytes(row[0]), bytes(row[1]))
        writes.setdefault(place, []).append(task)
        sizes[place] = sizes.get(place, 0) + len(row[-1])
    return Contents(key, rows, records, writes, sizes)


def lines(found: Contents) -> list[Line]:
    """Give what a plan needs to know of each checkpoint."""
    result = []
    for row, record in zip(found.rows, found.records, strict=True):
        kinds = 0
        for task in found.of(record):
            kinds |= task.kinds
        root = (unpacked(row[METADATA]).get("parents") or {}).get("")
        result.append(Line(record.step, record.ns, record.id, record.parent, moment(record.at), kinds, root))
    return result


def drop(tools: Tools, thread: str, dropped: Collection[int]) -> Statements[int]:
    """Remove these checkpoints of a thread and every element that only they needed; give the bytes freed."""
    key = yield from find_thread(thread)
    if key is None or not dropped:
        return 0
    yield from _lock(key)
    found = yield from contents(tools, thread)
    if found is None:
        return 0
    cut = _cut(found, dropped)
    before = yield from _bytes(key)
    yield from _relink(tools, key, cut.changed)
    yield Many(
        "DELETE FROM cp_checkpoints WHERE thread = ? AND ns = ? AND step = ?",
        [(key, key_of(record.ns), record.step) for record in cut.gone],
        writes=True,
    )
    yield Many(
        "DELETE FROM cp_writes WHERE thread = ? AND ns = ? AND checkpoint = ?",
        [(key, key_of(record.ns), key_of(record.id)) for record in cut.gone],
        writes=True,
    )
    if cut.stay.records:
        yield from _collect(tools, cut.stay)
        yield from _settle(tools, key)
    else:
        yield from _erase(key)
    return before - (yield from _bytes(key))


@dataclass(frozen=True, slots=True)
class Cut:
    """A thread before and after some of its checkpoints go: those, the kept ones that change, and all that stays."""

    gone: Sequence[Record]
    changed: Sequence[Record]
    stay: Contents


def _cut(found: Contents, dropped: Collection[int]) -> Cut:
    """Work out what dropping these steps leaves."""
    steps = set(dropped)
    gone = [record for record in found.records if record.step in steps]
    kept = [record for record in found.records if record.step not in steps]
    places = {(key_of(record.ns), key_of(record.id)) for record in gone}
    changed = {record.step: record for record in _relinked(found, kept)}
    stay = replace(
        found,
        records=[changed.get(record.step, record) for record in kept],
        writes={place: tasks for place, tasks in found.writes.items() if place not in places},
    )
    return Cut(gone, list(changed.values()), stay)


def _relinked(found: Contents, kept: Sequence[Record]) -> list[Record]:
    """Give the kept checkpoints whose parent goes, with what they need of it and their nearest kept ancestor."""
    by_ns: dict[str, dict[str, Ancestor]] = {}
    for record in found.records:
        by_ns.setdefault(record.ns, {})[record.id] = (record, found.of(record))
    ids: dict[str, set[str]] = {}
    for record in kept:
        ids.setdefault(record.ns, set()).add(record.id)
    return [
        replace(
            record,
            parent=nearest(record, by_ns[record.ns], ids[record.ns]),
            bases=bases_of(record, by_ns[record.ns]),
            trail={},
        )
        for record in kept
        if record.parent in by_ns[record.ns] and record.parent not in ids[record.ns]
    ]


def _relink(tools: Tools, key: int, changed: Sequence[Record]) -> Statements[None]:
    rows = [
        (
            key_of(record.parent) if record.parent else None,
            pack_record(record, tools.names), key, key_of(record.ns), record.step,
        )
        for record in changed
    ]  # fmt: skip
    if rows:
        sql = "UPDATE cp_checkpoints SET parent = ?, body = ? WHERE thread = ? AND ns = ? AND step = ?"
        yield Many(sql, rows, writes=True)


def would_free(tools: Tools, thread: str, dropped: Collection[int]) -> Statements[int]:
    """Count the bytes that `drop` would give back, without touching anything."""
    found = yield from contents(tools, thread)
    if found is None:
        return 0
    bodies = {record.step: row for record, row in zip(found.records, found.rows, strict=True)}
    cut = _cut(found, dropped)
    used = (yield from _used(tools, cut.stay)) if cut.stay.records else {}
    rewrites = yield from _rewrites(found.thread, used)
    sizes = yield Statement("SELECT channel, n, length(body) FROM cp_elements WHERE thread = ?", (found.thread,))
    elements = sum(
        size - len(rewrites[channel, n]) if (channel, n) in rewrites else size
        for channel, n, size in sizes
        if (channel, n) in rewrites or not _covers(used.get(channel, []), n)
    )
    rows = sum(len(bodies[record.step][METADATA]) + len(bodies[record.step][BODY]) for record in cut.gone)
    rows += sum(size for place, size in found.sizes.items() if place not in cut.stay.writes or not cut.stay.records)
    rows -= sum(len(pack_record(record, tools.names)) - len(bodies[record.step][BODY]) for record in cut.changed)
    return int(elements + rows)


def _collect(tools: Tools, found: Contents) -> Statements[None]:
    """Remove the elements that nothing of this refers to, those inside sealed rows too."""
    used = yield from _used(tools, found)
    rewrites = yield from _rewrites(found.thread, used)
    rows = yield Statement(
        "SELECT channel, min(n), max(n) FROM cp_elements WHERE thread = ? GROUP BY channel", (found.thread,)
    )
    gaps = [
        (found.thread, channel, first, last)
        for channel, lowest, highest in rows
        for first, last in _gaps(_with(used.get(channel, []), channel, rewrites), lowest, highest)
    ]
    if gaps:
        yield Many(DELETE_ELEMENTS, gaps, writes=True)
    if rewrites:
        sql = "UPDATE cp_elements SET body = ? WHERE thread = ? AND channel = ? AND n = ?"
        changed = [(body, found.thread, channel, start) for (channel, start), body in rewrites.items()]
        yield Many(sql, changed, writes=True)


def _rewrites(thread: int, used: dict[int, list[tuple[int, int]]]) -> Statements[dict[tuple[int, int], bytes]]:
    """Give the new form of each sealed row of which only some elements are still needed."""
    partial = [(thread, channel, start, start) for channel, runs in used.items() for start in _partly_used(runs)]
    stacks: dict[int, Stack] = {}
    for channel, number, body in (yield Many(SELECT_ELEMENTS, partial)) if partial else ():
        stacks.setdefault(channel, Stack()).add(number, body)
    return {
        (channel, start): stack.without(start, {n for n in range(start, start + SEAL) if not _covers(used[channel], n)})
        for channel, stack in stacks.items()
        for start in stack.sealed()
    }


def _partly_used(runs: Sequence[tuple[int, int]]) -> list[int]:
    edges = {start_of(edge) for first, last in runs for edge in (first, last)}
    return sorted(start for start in edges if not all(_covers(runs, n) for n in range(start, start + SEAL)))


def _with(
    runs: Sequence[tuple[int, int]], channel: int, rewrites: dict[tuple[int, int], bytes]
) -> list[tuple[int, int]]:
    """Count the first number of each rewritten row as used: the row stands under it."""
    return sorted([*runs, *((start, start) for key, start in rewrites if key == channel)])


def _used(tools: Tools, found: Contents) -> Statements[dict[int, list[tuple[int, int]]]]:
    """Give the runs of elements that anything refers to, by channel, sorted and joined; recipes are elements too."""
    refs = [(tools.names.keys[channel], ref) for channel, ref in _refs(found)]
    long = {(key, tuple(ref)) for key, ref in refs if is_recipe(ref)}
    recipes = (yield from resolved(found.thread, long)) if long else {}
    runs: dict[int, set[tuple[int, int]]] = {}
    for key, ref in refs:
        if is_recipe(ref):
            runs.setdefault(recipes_of(key), set()).update((number, 1) for number in ref[1:])
        runs.setdefault(key, set()).update(spans(recipes[key, tuple(ref)] if is_recipe(ref) else ref))
    return {channel: joined(spans_) for channel, spans_ in runs.items()}


def _covers(runs: Sequence[tuple[int, int]], number: int) -> bool:
    place = bisect_right(runs, (number, MAX_NUMBER)) - 1
    return place >= 0 and number <= runs[place][1]


def _refs(found: Contents) -> Iterable[tuple[str, Ref]]:
    for record in found.records:
        yield from refs_of(record)
    for tasks in found.writes.values():
        for task in tasks:
            for write in task.writes:
                yield write.channel, write.ref


def _gaps(used: Iterable[tuple[int, int]], lowest: int, highest: int) -> list[tuple[int, int]]:
    gaps, free = [], lowest
    for first, last in used:
        if first > free:
            gaps.append((free, first - 1))
        free = max(free, last + 1)
    if free <= highest:
        gaps.append((free, highest))
    return gaps


def _settle(tools: Tools, key: int) -> Statements[None]:
    """Make the thread's row true again after rows were removed."""
    rows = yield Statement(
        f"{SELECT_CHECKPOINT} WHERE thread = ? AND ns = ? ORDER BY step DESC LIMIT 1", (key, key_of(ROOT))
    )
    heads = yield from records_of(tools.names, rows)
    kinds = 0
    for head in heads:
        written = yield Statement(
            "SELECT kinds FROM cp_writes WHERE thread = ? AND ns = ? AND checkpoint = ?",
            (key, key_of(ROOT), key_of(head.id)),
        )
        for row in written:
            kinds |= row[0]
    total = yield from _bytes(key)
    head_step, head_id, flags, metadata = (
        (heads[0].step, key_of(heads[0].id), rows[0][FLAGS], rows[0][METADATA]) if heads else (0, b"", 0, None)
    )
    yield Statement(
        "UPDATE cp_threads SET head = ?, head_id = ?, flags = ?, kinds = ?, metadata = coalesce(?, metadata),"
        " bytes = ?, checkpoints = (SELECT count(*) FROM cp_checkpoints c WHERE c.thread = ?) WHERE thread = ?",
        (head_step, head_id, flags, kinds, metadata, total, key, key),
    )


def _bytes(thread: int) -> Statements[int]:
    rows = yield Statement(
        "SELECT (SELECT coalesce(sum(length(body)), 0) FROM cp_elements WHERE thread = ?)"
        " + (SELECT coalesce(sum(length(body) + length(metadata)), 0) FROM cp_checkpoints WHERE thread = ?)"
        " + (SELECT coalesce(sum(length(body)), 0) FROM cp_writes WHERE thread = ?)",
        (thread, thread, thread),
    )
    return int(rows[0][0])


def _lock(thread: int) -> Statements[None]:
    """Take the thread for this transaction, and make every memory of it stale."""
    yield Statement("UPDATE cp_threads SET stamp = stamp + 1 WHERE thread = ?", (thread,))


def steps_of_runs(run_ids: Collection[str]) -> Statements[dict[str, list[int]]]:
    """Find the checkpoints that these runs made, by thread."""
    found: dict[str, list[int]] = {}
    after = (0, b"", 0)
    while True:
        rows = yield Statement(
            "SELECT c.thread, c.ns, c.step, c.metadata, t.name"
            " FROM cp_checkpoints c JOIN cp_threads t ON t.thread = c.thread"
            f" WHERE (c.thread, c.ns, c.step) > (?, ?, ?) ORDER BY c.thread, c.ns, c.step LIMIT {SCANNED_AT_A_TIME}",
            after,
        )
        for *_, step, metadata, name in rows:
            if unpacked(metadata).get("run_id") in run_ids:
                found.setdefault(decoded(name), []).append(step)
        if len(rows) < SCANNED_AT_A_TIME:
            return found
        after = (rows[-1][0], bytes(rows[-1][1]), rows[-1][2])


def keep_latest(found: Contents) -> list[int]:
    """Give the steps that `keep_latest` drops: all but the newest of each namespace that is still alive.

    The namespace of a subgraph call (its name has a task id after a colon) goes with the checkpoint of the root
    graph that it was called from.
    """
    newest: dict[str, Any] = {}
    for line in lines(found):
        if line.ns not in newest or newest[line.ns].step < line.step:
            newest[line.ns] = line
    stored = {record.id for record in found.records if not record.ns}
    head = newest[""].id if "" in newest else None
    kept = {line.step for line in newest.values() if not (":" in line.ns and line.root in stored and line.root != head)}
    return [record.step for record in found.records if record.step not in kept]
