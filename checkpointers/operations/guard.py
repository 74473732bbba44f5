"""The guard of every write: it happens only if the thread still stands where it was when the write was prepared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from checkpointers.codec import packed, unpacked
from checkpointers.keys import digest, encoded, key_of
from checkpointers.memory import ThreadMemory
from checkpointers.operations.common import DELETE_ELEMENTS, ELEMENT_COLUMNS, ROOT
from checkpointers.operations.storing import Elements
from checkpointers.statements import DUPLICATE, Append, Delete, Insert, Statement, Statements

NO_METADATA: Final = packed({})
ADVANCE: Final = (
    "UPDATE cp_threads SET stamp = ?, steps = ?, checkpoints = checkpoints + ?, bytes = bytes + ?,"
    " updated_at = ?, counts = ?"
)
GUARDED: Final = "WHERE thread = ? AND stamp = ? RETURNING thread"
KINDS_BEFORE: Final = (
    "coalesce((SELECT max(w.kinds & 1) + max(w.kinds & 2) FROM cp_writes w"
    " WHERE w.thread = ? AND w.ns = ? AND w.checkpoint = ?), 0)"
)


def recall(memory: ThreadMemory, thread: str) -> Statements[None]:
    """Learn how a thread stands, unless this memory already knows."""
    if memory.thread is not None:
        return
    rows = yield Statement("SELECT thread, stamp, steps, counts FROM cp_threads WHERE digest = ?", (digest(thread),))
    if rows:
        memory.thread, memory.stamp, memory.steps = rows[0][0], rows[0][1], rows[0][2]
        memory.counts.update(unpacked(rows[0][3]))


@dataclass(frozen=True, slots=True)
class Head:
    """What the thread's row repeats of its newest checkpoint."""

    step: int
    id: bytes
    flags: int
    metadata: bytes
    kinds: int = 0


@dataclass(frozen=True, slots=True)
class Growth:
    """By how much a write changes the thread's row; `on` tells the kinds of writes on checkpoints."""

    steps: int
    checkpoints: int
    size: int
    head: Head | None = None
    on: tuple[tuple[bytes, int], ...] = ()


def append(
    memory: ThreadMemory,
    thread: str,
    elements: Elements,
    *,
    inserts: Sequence[Insert | Delete],
    growth: Growth,
    now: int,
) -> Statements[str]:
    """Write under the guard of the thread's stamp: "done", "stale" or "duplicate"."""
    changes: list[Insert | Delete] = []
    if elements.rows:
        changes.append(Insert("cp_elements", ELEMENT_COLUMNS, elements.rows))
    if elements.sealed:
        changes.append(Insert("cp_elements", ELEMENT_COLUMNS, elements.sealed, replace=True))
        changes.append(Delete(DELETE_ELEMENTS, elements.replaced))
    guard = _advance(memory, growth, now) if memory.thread is not None else _begin(memory, thread, growth, now)
    answer = yield Append(guard, [*changes, *inserts])
    if answer == DUPLICATE:
        return "duplicate"
    if not answer:
        return "stale"
    memory.thread, memory.stamp, memory.steps = answer[0][0], memory.stamp + 1, growth.steps
    return "done"


def _begin(memory: ThreadMemory, thread: str, growth: Growth, now: int) -> Statement:
    head = growth.head or Head(0, b"", 0, NO_METADATA)
    return Statement(
        "INSERT INTO cp_threads (digest, name, stamp, steps, head, head_id, flags, kinds, metadata, checkpoints, bytes,"
        " created_at, updated_at, counts) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (digest) DO NOTHING RETURNING thread",
        (
            digest(thread), encoded(thread), memory.stamp + 1, growth.steps, head.step, head.id, head.flags,
            head.kinds, head.metadata, growth.checkpoints, growth.size, now, now, packed(memory.counts),
        ),
    )  # fmt: skip


def _advance(memory: ThreadMemory, growth: Growth, now: int) -> Statement:
    if growth.head is None:
        special = [(checkpoint, kinds) for checkpoint, kinds in growth.on if kinds]
        cases = " | ".join(["kinds", *["CASE WHEN head_id = ? THEN ? ELSE 0 END"] * len(special)])
        sql = f"{ADVANCE}, kinds = {cases} {GUARDED}"
        more: tuple[Any, ...] = tuple(part for pair in special for part in pair)
    else:
        sql = f"{ADVANCE}, head = ?, head_id = ?, flags = ?, metadata = ?, kinds = {KINDS_BEFORE} | ? {GUARDED}"
        head = growth.head
        more = (head.step, head.id, head.flags, head.metadata, memory.thread, key_of(ROOT), head.id, head.kinds)
    common = (memory.stamp + 1, growth.steps, growth.checkpoints, growth.size, now, packed(memory.counts))
    return Statement(sql, (*common, *more, memory.thread, memory.stamp))
