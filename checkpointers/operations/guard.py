"""The guard of every write: it happens only if the thread still stands where it was when the write was prepared.

The stamp of a thread's row is compared and set with each write. Taking a lease changes it too, so whoever wrote before
must look again, and then sees that the thread is no longer his: the stamp is the fence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from checkpointers.effects import ROW_SEAL_BYTES
from checkpointers.errors import BusyError, LeaseLostError, ThreadBusyError
from checkpointers.memory import ThreadMemory
from checkpointers.operations.common import DELETE_ELEMENTS, ELEMENT_COLUMNS, Tools, find_thread
from checkpointers.operations.storing import Elements
from checkpointers.retention import moment
from checkpointers.standing import STANDING_COLUMNS, Holder, Standing, Thread, fold_of, pack_standing
from checkpointers.statements import DUPLICATE, Append, Change, Delete, Insert, Statement, Statements

BEGIN: Final = (
    f"INSERT INTO cp_threads (thread, {', '.join(STANDING_COLUMNS)}) VALUES ({', '.join('?' * 12)})"
    " ON CONFLICT (thread) DO NOTHING RETURNING thread"
)
SET_STANDING: Final = f"UPDATE cp_threads SET {', '.join(f'{name} = ?' for name in STANDING_COLUMNS)} WHERE thread = ?"
ADVANCE: Final = f"{SET_STANDING} AND stamp = ?"
EARLY: Final = " AND (SELECT count(*) FROM cp_writes w WHERE w.thread = ? AND w.ns = ? AND w.checkpoint = ?) = ?"
NOBODY_HOLDS: Final = (
    " AND NOT EXISTS (SELECT 1 FROM cp_leases l WHERE l.thread = ? AND l.token IS NOT NULL AND l.until >= cp_clock())"
)
HOLDS: Final = (
    " AND EXISTS (SELECT 1 FROM cp_effects e WHERE e.thread = ? AND e.id = ?"
    f" AND substr(e.body, 1, {ROW_SEAL_BYTES}) = ?)"
)
EVICT: Final = "UPDATE cp_leases SET token = NULL, note = NULL WHERE thread = ?"
ATTEMPTS: Final = 200
Changes = Sequence[Insert | Delete | Change]


def recall(tools: Tools, memory: ThreadMemory, thread: str) -> Statements[Standing]:
    """Learn how a thread stands, unless this memory already knows."""
    if memory.standing is None:
        return meet(tools, memory, thread, (yield from find_thread(tools, thread)))
    return memory.standing


def meet(tools: Tools, memory: ThreadMemory, thread: str, found: Thread | None) -> Standing:
    """Remember how a thread stands that was just read, or that there is none yet."""
    if found is None:
        memory.key, memory.standing = tools.key(thread), Standing(thread)
        memory.vault, memory.new_key = tools.vaults.fresh(memory.key)
        return memory.standing
    memory.key, memory.vault = found.key, found.vault
    memory.standing, memory.holder = found.standing, found.holder
    memory.counts.update(found.standing.counts)
    return found.standing


def entitled(tools: Tools, memory: ThreadMemory, thread: str, token: bytes | None) -> Statements[Standing]:
    """Say how a thread stands, and see that whoever has this token, or none, may write it."""
    remembered = memory.standing is not None
    standing = yield from recall(tools, memory, thread)
    if remembered and not _may(memory.holder, token):
        memory.forget()
        standing = yield from recall(tools, memory, thread)
    if not _may(memory.holder, token):
        raise refusal(thread, memory.holder, token)
    if token is not None and memory.holder is not None:
        # One that ran out and that nobody took goes on, and does not evict itself; the stamp tells if somebody does.
        memory.holder = replace(memory.holder, expired=False)
    return standing


def _may(holder: Holder | None, token: bytes | None) -> bool:
    if token is None:
        return holder is None or holder.expired
    return holder is not None and holder.token == token


def refusal(thread: str, holder: Holder | None, token: bytes | None) -> LeaseLostError | ThreadBusyError:
    """Say why somebody may not write."""
    if token is None and holder is not None:
        return ThreadBusyError(thread, holder.owner, moment(holder.since))
    return LeaseLostError(thread, holder.owner if holder else None)


class Head(NamedTuple):
    """What the thread's row repeats of the checkpoint that it stands at."""

    step: int
    id: bytes
    flags: int
    metadata: bytes
    kinds: int


class Growth(NamedTuple):
    """By how much a write changes the thread's row; `kinds` of the writes on the head, unless there is a new one.

    `early` says how many writes are believed to be stored on a checkpoint (namespace, id) that is stored only now;
    `late` are steps that get writes which a child of theirs does not look for.
    `entries` are the ids of new entries of the ledger; `holds` is the one (id, seal) that must stand there.
    """

    steps: int
    checkpoints: int
    size: int
    head: Head | None = None
    kinds: int = 0
    early: tuple[bytes, bytes, int] | None = None
    entries: Sequence[bytes] = ()
    bodies: int = 0
    holds: tuple[bytes, bytes] | None = None
    late: Sequence[int] = ()


def append(memory: ThreadMemory, elements: Elements, *, changes: Changes, growth: Growth, now: int) -> Statements[str]:
    """Write under the guard of the thread's stamp: "done", "stale" or "duplicate"."""
    known = memory.standing
    if known is None:  # pragma: no cover  every caller has recalled
        return "stale"
    every: list[Insert | Delete | Change] = []
    if elements.rows or elements.of_tasks:
        every.append(Insert("cp_elements", ELEMENT_COLUMNS, elements.rows))
    if elements.sealed:
        every.append(Insert("cp_elements", ELEMENT_COLUMNS, elements.sealed, replace=True))
        every.append(Delete(DELETE_ELEMENTS, elements.replaced))
    if memory.new_key is not None:
        every.append(Insert("cp_keys", ("master", "key"), [memory.new_key]))
    if memory.holder is not None and memory.holder.expired:
        every.append(Change(EVICT, [(memory.key,)]))
    after = _grown(known, growth, now)
    answer = yield Append(_guard(memory, known, after, growth), [*every, *changes])
    if answer == DUPLICATE:
        return "duplicate"
    if not answer:
        return "stale"
    memory.standing, memory.new_key = after, None
    if memory.holder is not None and memory.holder.expired:
        memory.holder = None
    return "done"


def _grown(known: Standing, growth: Growth, now: int) -> Standing:
    """Give how the thread will stand; the stamp of a new one starts with the time, so that none is used twice."""
    after = known.copy()
    after.stamp = known.stamp + 1 if known.stamp else now
    after.steps = growth.steps
    after.checkpoints += growth.checkpoints
    after.size += growth.size
    after.kinds |= growth.kinds
    # What is listed by this time never goes back, or a listing under way would meet it again.
    after.created_at, after.updated_at = known.created_at or now, max(known.updated_at, now)
    after.effects += len(growth.entries)
    after.fold ^= fold_of(growth.entries)
    after.bodies += growth.bodies
    after.late = sorted({*known.late, *growth.late}) if growth.late else known.late
    if growth.head is not None:
        head = growth.head
        after.head, after.head_id, after.flags, after.kinds = head.step, head.id, head.flags, head.kinds
        after.metadata = head.metadata
    return after


def _guard(memory: ThreadMemory, known: Standing, after: Standing, growth: Growth) -> Statement:
    row = pack_standing(memory.key, memory.vault, after, memory.counts)
    if not known.stamp:
        return Statement(BEGIN, (memory.key, *row))
    sql, params = ADVANCE, [*row, memory.key, known.stamp]
    if growth.early is not None:
        ns, id_, rows = growth.early
        sql, params = sql + EARLY, [*params, memory.key, ns, id_, rows]
    if growth.holds is not None:
        sql, params = sql + HOLDS, [*params, memory.key, *growth.holds]
    if memory.holder is not None and memory.holder.expired:
        sql, params = sql + NOBODY_HOLDS, [*params, memory.key]
    return Statement(f"{sql} RETURNING thread", params)


def too_busy(thread: str) -> BusyError:
    """Say that others kept writing a thread."""
    return BusyError(f"thread {thread!r}", f"it changed {ATTEMPTS} times while this write was prepared")
