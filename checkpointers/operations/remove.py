"""Removing: whole threads, runs, and what a plan drops; what is kept stays readable, DeltaChannels included."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from checkpointers.codec import covers
from checkpointers.errors import IncompleteRecordError
from checkpointers.keys import key_of
from checkpointers.lineage import MissingAncestorError, by_namespace, delta_channels, is_past, relinked
from checkpointers.operations.collecting import gaps_between, unused_bodies, used_elements
from checkpointers.operations.common import (
    BODY,
    DELETE_ELEMENTS,
    FLAGS,
    ID,
    METADATA,
    NS,
    PARENT,
    ROOT,
    SELECT_ALL_WRITES,
    SELECT_CHECKPOINT,
    SELECT_ELEMENTS,
    SELECT_THREAD,
    STEP,
    TALLY,
    Tools,
    all_there,
    checked,
    find_thread,
    is_shredded,
    metadata_of,
    open_thread,
    records_of,
    see_all_writes,
    told_metadata,
    writes_of,
)
from checkpointers.operations.noting import noted_rows
from checkpointers.operations.rows import sealed_row
from checkpointers.operations.whole import erase, locked, restand
from checkpointers.records import Record, TaskWrites, pack_record
from checkpointers.retention import Line, head_of, moment
from checkpointers.sealing import element_place
from checkpointers.segments import SEAL, Stack, start_of
from checkpointers.standing import Thread
from checkpointers.statements import Many, Row, Statement, Statements
from checkpointers.status import BESIDE
from checkpointers.tally import kinds_in

SCANNED_AT_A_TIME: Final = 1_000
Choose = Callable[["Contents"], Collection[int]]


@dataclass(frozen=True, slots=True)
class Contents:
    """All rows of a thread but its elements; and those that its lease noted."""

    thread: Thread
    rows: Sequence[Row]
    records: Sequence[Record]
    writes: dict[tuple[bytes, bytes], list[TaskWrites]]
    sizes: dict[tuple[bytes, bytes], int]
    noted: Sequence[TaskWrites] = ()

    def of(self, record: Record) -> list[TaskWrites]:
        """Give the writes stored on a checkpoint."""
        return self.writes.get((key_of(record.ns), key_of(record.id)), [])


def contents(tools: Tools, name: str) -> Statements[Contents | None]:
    """Read all rows of a thread but its elements."""
    thread = yield from find_thread(tools, name)
    return (yield from contents_of(tools, thread)) if thread is not None else None


def contents_of(tools: Tools, thread: Thread) -> Statements[Contents]:
    """Read all rows of a thread that was found but its elements."""
    rows = yield Statement(f"{SELECT_CHECKPOINT} WHERE thread = ? ORDER BY step", (thread.key,))
    records = yield from records_of(tools, thread, rows)
    written = yield Statement(SELECT_ALL_WRITES, (thread.key,))
    writes: dict[tuple[bytes, bytes], list[TaskWrites]] = {}
    sizes: dict[tuple[bytes, bytes], int] = {}
    for row, task in zip(written, (yield from writes_of(tools, thread, written)), strict=True):
        place = (row[0], row[1])
        writes.setdefault(place, []).append(task)
        sizes[place] = sizes.get(place, 0) + len(row[-1])
    all_there(thread, {record.step for record in records})
    for row in rows:
        see_all_writes(thread, row, writes.get((row[NS], row[ID]), ()))
    noted = yield from writes_of(tools, thread, (yield from noted_rows(thread)))
    return Contents(thread, rows, records, writes, sizes, noted)


def lines(found: Contents) -> list[Line]:
    """Give what a plan needs to know of each checkpoint."""
    result = []
    for row, record in zip(found.rows, found.records, strict=True):
        kinds = 0
        for task in found.of(record):
            kinds |= task.kinds
        parents = told_metadata(found.thread, row).get("parents")
        root = parents.get("") if isinstance(parents, dict) else None
        called_from = root if isinstance(root, str) else None  # metadata is whatever somebody wrote
        at, beside = moment(record.at), bool(row[FLAGS] & BESIDE)
        result.append(Line(record.step, record.ns, record.id, record.parent, at, kinds, called_from, beside))
    return result


def drop(tools: Tools, name: str, choose: Choose, *, unwritten_since: int = 0) -> Statements[int]:
    """Remove checkpoints of a thread and every element that only they needed; give the bytes freed.

    Which, is chosen while nobody else can change the thread: what was seen of it before may be of another life of it.
    What is kept keeps all that it needs of them, or nothing happens. The ledger stays, whatever goes: an effect is not
    done again because history was pruned. Only with the last checkpoint of a thread that nobody wrote to since that
    time it goes too.
    """
    thread = yield from locked(tools, name)
    if thread is None:
        return 0
    found = yield from contents_of(tools, thread)
    dropped = choose(found)
    if not dropped:
        return 0
    cut = _cut(found, dropped)
    before = yield from _bytes(thread.key)
    yield from _relink(tools, found, cut.changed)
    yield Many(
        "DELETE FROM cp_checkpoints WHERE thread = ? AND ns = ? AND step = ?",
        [(thread.key, key_of(record.ns), record.step) for record in cut.gone],
        writes=True,
    )
    yield Many(
        "DELETE FROM cp_writes WHERE thread = ? AND ns = ? AND checkpoint = ?",
        [(thread.key, key_of(record.ns), key_of(record.id)) for record in cut.gone],
        writes=True,
    )
    if cut.stay.records or thread.holder is not None or _in_use(thread, unwritten_since):
        yield from _settle(thread, cut.stay.records, bodies_gone=(yield from _collect(tools, cut.stay)))
    else:
        yield from erase(thread.key)
    return before - (yield from _bytes(thread.key))


def _in_use(thread: Thread, unwritten_since: int) -> bool:
    """Tell whether a thread has a ledger that must outlive its checkpoints."""
    return bool(thread.standing.effects) and thread.standing.updated_at > unwritten_since


def settled(tools: Tools, name: str) -> Statements[None]:
    """Remove what nothing of a thread refers to, and make true what its own row says."""
    thread = yield from locked(tools, name)
    if thread is not None:
        found = yield from contents_of(tools, thread)
        yield from _settle(thread, found.records, bodies_gone=(yield from _collect(tools, found)))


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
    by_ns, steps = by_namespace(found.records, found.of), {record.step for record in kept}
    try:
        told = {ns: delta_channels(near.values()) for ns, near in by_ns.items()}
        return [
            relinked(record, by_ns[record.ns], steps, told=told[record.ns])
            for record in kept
            if record.parent in (near := by_ns[record.ns]) and near[record.parent][0].step not in steps
        ]
    except MissingAncestorError as error:
        raise IncompleteRecordError(thread=found.thread.name, step=error.args[0], channel=None) from error


def _relink(tools: Tools, found: Contents, changed: Sequence[Record]) -> Statements[None]:
    before = {record.step: row for record, row in zip(found.records, found.rows, strict=True)}
    rows = []
    for record in changed:
        old = before[record.step]
        row = sealed_row(
            found.thread, record, flags=old[FLAGS], tally=old[TALLY], metadata=old[METADATA],
            body=pack_record(record, tools.names),
        )  # fmt: skip
        rows.append((row[PARENT], row[BODY], found.thread.key, row[NS], row[STEP]))
    if rows:
        sql = "UPDATE cp_checkpoints SET parent = ?, body = ? WHERE thread = ? AND ns = ? AND step = ?"
        yield Many(sql, rows, writes=True)


def would_free(tools: Tools, found: Contents, dropped: Collection[int], *, unwritten_since: int = 0) -> Statements[int]:
    """Count the bytes that `drop` would give back, without touching anything."""
    bodies = {record.step: row for record, row in zip(found.records, found.rows, strict=True)}
    cut = _cut(found, dropped)
    if not cut.stay.records and not _in_use(found.thread, unwritten_since):
        return (yield from _bytes(found.thread.key))
    used = yield from used_elements(tools, cut.stay)
    unused = yield from unused_bodies(tools, cut.stay, used)
    rewrites = yield from _rewrites(found.thread, used)
    sizes = yield Statement("SELECT channel, n, length(body) FROM cp_elements WHERE thread = ?", (found.thread.key,))
    with checked(found.thread.name, "the number of an element"):
        elements = sum(
            size - len(rewrites[channel, n]) if (channel, n) in rewrites else size
            for channel, n, size in sizes
            if (channel, n) in rewrites or not covers(used.get(channel, []), n)
        )
    rows = sum(len(bodies[record.step][METADATA]) + len(bodies[record.step][BODY]) for record in cut.gone)
    rows += sum(size for place, size in found.sizes.items() if place not in cut.stay.writes)
    sealing = len(found.thread.vault.seal(b"", b""))
    rows -= sum(
        len(pack_record(record, tools.names)) + sealing - len(bodies[record.step][BODY]) for record in cut.changed
    )
    return int(elements + rows + sum(unused.values()))


def _collect(tools: Tools, found: Contents) -> Statements[int]:
    """Remove what nothing of this refers to: elements, those inside sealed rows too, and bodies; count the bodies."""
    used = yield from used_elements(tools, found)
    bodies = yield from unused_bodies(tools, found, used)
    if bodies:
        gone = [(found.thread.key, id_) for id_ in bodies]
        yield Many("DELETE FROM cp_bodies WHERE thread = ? AND hash = ?", gone, writes=True)
    rewrites = yield from _rewrites(found.thread, used)
    rows = yield Statement(
        "SELECT channel, min(n), max(n) FROM cp_elements WHERE thread = ? GROUP BY channel", (found.thread.key,)
    )
    with checked(found.thread.name, "the number of an element"):
        gaps = [
            (found.thread.key, channel, first, last)
            for channel, lowest, highest in rows
            for first, last in gaps_between(_with(used.get(channel, []), channel, rewrites), lowest, highest)
        ]
    if gaps:
        yield Many(DELETE_ELEMENTS, gaps, writes=True)
    if rewrites:
        sql = "UPDATE cp_elements SET body = ? WHERE thread = ? AND channel = ? AND n = ?"
        changed = [(body, found.thread.key, channel, start) for (channel, start), body in rewrites.items()]
        yield Many(sql, changed, writes=True)
    return len(bodies)


def _rewrites(thread: Thread, used: dict[int, list[tuple[int, int]]]) -> Statements[dict[tuple[int, int], bytes]]:
    """Give the new form of each sealed row of which only some elements are still needed."""
    partial = [(thread.key, channel, start, start) for channel, runs in used.items() for start in _partly_used(runs)]
    stacks: dict[int, Stack] = {}
    for channel, number, body in (yield Many(SELECT_ELEMENTS, partial)) if partial else ():
        with checked(thread.name, f"element {number}"):
            stacks.setdefault(channel, thread.stack(channel)).add(number, body)
    result = {}
    for channel, stack in stacks.items():
        for start in stack.sealed():
            unused = {n for n in range(start, start + SEAL) if not covers(used[channel], n)}
            place = element_place(thread.key, channel, start)
            result[channel, start] = thread.vault.seal(place, stack.without(start, unused))
    return result


def _partly_used(runs: Sequence[tuple[int, int]]) -> list[int]:
    edges = {start_of(edge) for first, last in runs for edge in (first, last)}
    return sorted(start for start in edges if not all(covers(runs, n) for n in range(start, start + SEAL)))


def _with(
    runs: Sequence[tuple[int, int]], channel: int, rewrites: dict[tuple[int, int], bytes]
) -> list[tuple[int, int]]:
    """Count the first number of each rewritten row as used: the row stands under it."""
    return sorted([*runs, *((start, start) for key, start in rewrites if key == channel)])


def _settle(thread: Thread, kept: Sequence[Record], *, bodies_gone: int) -> Statements[None]:
    """Make the rows that say how the thread stands true again after others were removed."""
    key, after = thread.key, replace(thread.standing)
    rows = yield Statement(f"{SELECT_CHECKPOINT} WHERE thread = ? AND ns = ? ORDER BY step DESC", (key, key_of(ROOT)))
    heads = [row for row in rows if row[STEP] == after.head] or [row for row in rows if not row[FLAGS] & BESIDE] or rows
    after.head, after.head_id, after.flags, after.kinds = 0, b"", 0, 0
    for row in heads[:1]:
        after.head, after.head_id, after.flags = row[STEP], row[ID], row[FLAGS]
        after.metadata = metadata_of(thread, row)
        after.kinds = kinds_in(row[TALLY])
    after.size = yield from _bytes(key)
    counted = yield Statement("SELECT count(*) FROM cp_checkpoints WHERE thread = ?", (key,))
    after.checkpoints = counted[0][0]
    after.bodies -= bodies_gone
    after.late = [step for step in after.late if any(is_past(step, record) for record in kept)]
    yield Statement("DELETE FROM cp_heads WHERE thread = ?", (key,))
    yield Statement(
        "INSERT INTO cp_heads (thread, ns, step) SELECT thread, ns, max(step) FROM cp_checkpoints"
        " WHERE thread = ? AND ns <> ? GROUP BY thread, ns",
        (key, key_of(ROOT)),
    )
    yield from restand(thread, after)


def _bytes(thread: int) -> Statements[int]:
    rows = yield Statement(
        "SELECT (SELECT coalesce(sum(length(body)), 0) FROM cp_elements WHERE thread = ?)"
        " + (SELECT coalesce(sum(length(body) + length(metadata)), 0) FROM cp_checkpoints WHERE thread = ?)"
        " + (SELECT coalesce(sum(length(body)), 0) FROM cp_writes WHERE thread = ?)"
        " + (SELECT coalesce(sum(length(body)), 0) FROM cp_effects WHERE thread = ?)"
        " + (SELECT coalesce(sum(length(body)), 0) FROM cp_bodies WHERE thread = ?)",
        (thread,) * 5,
    )
    return int(rows[0][0])


def threads_of_runs(tools: Tools, run_ids: Collection[str]) -> Statements[list[str]]:
    """Find the threads in which these runs made checkpoints."""
    found = []
    for row in (yield Statement(SELECT_THREAD)):
        if not is_shredded(row):
            thread = open_thread(tools, row)
            if (yield from _has_one_of(thread, run_ids)):
                found.append(thread.name)
    return found


def _has_one_of(thread: Thread, run_ids: Collection[str]) -> Statements[bool]:
    after = 0
    while True:
        rows = yield Statement(
            f"{SELECT_CHECKPOINT} WHERE thread = ? AND step > ? ORDER BY step LIMIT {SCANNED_AT_A_TIME}",
            (thread.key, after),
        )
        if any(_is_of(run_ids, thread, row) for row in rows):
            return True
        if len(rows) < SCANNED_AT_A_TIME:
            return False
        after = rows[-1][STEP]


def of_runs(run_ids: Collection[str], found: Contents) -> list[int]:
    """Give the steps that these runs made."""
    return [row[STEP] for row in found.rows if _is_of(run_ids, found.thread, row)]


def _is_of(run_ids: Collection[str], thread: Thread, row: Row) -> bool:
    run = told_metadata(thread, row).get("run_id")
    return isinstance(run, str) and run in run_ids


def keep_latest(found: Contents) -> list[int]:
    """Give the steps that `keep_latest` drops: all but where each namespace stands that is still alive.

    The namespace of a subgraph call (its name has a task id after a colon) goes with the checkpoint of the root
    graph that it was called from.
    """
    by_ns: dict[str, list[Line]] = {}
    for line in lines(found):
        by_ns.setdefault(line.ns, []).append(line)
    newest = [stands for some in by_ns.values() if (stands := head_of(some)) is not None]
    stored = {record.id for record in found.records if not record.ns}
    head = next((line.id for line in newest if not line.ns), None)
    kept = {line.step for line in newest if not (":" in line.ns and line.root in stored and line.root != head)}
    return [record.step for record in found.records if record.step not in kept]
