"""What stood when a lease began, so that a rollback finds the way back.

A run also writes on checkpoints that are older than its lease: an answer to an interrupt, results of tasks that were
due there. Such a row does not say whose it is, and a later write is joined with it. So who takes a thread notes which
checkpoints it stands at, and the rows of writes on them as they are stored: sealed to their places, under the thread's
own key if it has one. The note is sealed too, and names the token of its lease: no other lease goes by it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Final

from checkpointers.codec import as_a, packed, unpacked
from checkpointers.keys import key_of
from checkpointers.operations.common import ROOT, SELECT_WRITES, checked
from checkpointers.operations.rows import COUNT_WRITES
from checkpointers.operations.whole import insert_into, resealed
from checkpointers.sealing import Vault, note_place
from checkpointers.standing import Thread
from checkpointers.statements import Many, Row, Statement, Statements
from checkpointers.tally import tally_of

_WRITES: Final = (
    " LEFT JOIN cp_writes w ON w.thread = c.thread AND w.ns = c.ns AND w.checkpoint = c.id WHERE c.thread = ?"
)
STANDING: Final = (
    "SELECT c.step, w.ns, w.checkpoint, w.task, w.kinds, w.body FROM cp_checkpoints c"
    f"{_WRITES} AND c.ns = ? AND c.step = ?"
    " UNION ALL SELECT c.step, w.ns, w.checkpoint, w.task, w.kinds, w.body FROM cp_heads h"
    " JOIN cp_checkpoints c ON c.thread = h.thread AND c.ns = h.ns AND c.step = h.step"
    f"{_WRITES}"
)
SELECT_NOTE: Final = "SELECT note FROM cp_leases WHERE thread = ? AND note IS NOT NULL"
SET_NOTE: Final = "UPDATE cp_leases SET note = ? WHERE thread = ?"
DELETE_WRITES: Final = "DELETE FROM cp_writes WHERE thread = ? AND ns = ? AND checkpoint = ? AND task = ?"
_ROW: Final = (bytes, bytes, bytes, int, bytes)
Place = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Note:
    """The token of a lease, the steps that its thread stood at in each namespace, and the rows of writes on them."""

    token: bytes
    heads: frozenset[int]
    rows: frozenset[tuple[Any, ...]]


def new_note(thread: Thread, token: bytes) -> Statements[bytes | None]:
    """Make the note of a lease; None for a thread that has no step yet: all of it goes in a rollback."""
    if not thread.standing.steps:
        return None
    params = (thread.key, key_of(ROOT), thread.standing.head, thread.key)
    found = yield Statement(STANDING, params)
    rows = frozenset(tuple(row[1:]) for row in found if row[1] is not None)
    return _sealed(thread, Note(token, frozenset(row[0] for row in found), rows))


def _sealed(thread: Thread, note: Note) -> bytes:
    raw = packed([note.token, list(note.heads), list(note.rows)])
    return thread.vault.seal(note_place(thread.key), raw)


def note_of(thread: Thread) -> Statements[Note | None]:
    """Give what the lease of a thread noted; None if nobody has one, or one that a release without notes gave."""
    rows = (yield Statement(SELECT_NOTE, (thread.key,))) if thread.holder is not None else ()
    for (blob,) in rows:
        with checked(thread.name, "the note of its lease"):
            note = _opened(thread.vault.open(note_place(thread.key), blob))
        if thread.holder is not None and note.token == thread.holder.token:
            return note
    return None


def _opened(raw: bytes) -> Note:
    token, heads, rows = unpacked(raw)
    written: list[tuple[Any, ...]] = [
        tuple(as_a(kind, one) for kind, one in zip(_ROW, row, strict=True)) for row in as_a(list, rows)
    ]
    return Note(as_a(bytes, token), frozenset(as_a(int, head) for head in as_a(list, heads)), frozenset(written))


def noted_rows(thread: Thread) -> Statements[list[Row]]:
    """Give the rows of writes that a rollback may put back: what they refer to must stay until then."""
    note = yield from note_of(thread)
    return list(note.rows) if note is not None else []


def renote(thread: Thread, vault: Vault) -> Statements[None]:
    """Seal the note of a lease for another vault, or remove one that nobody goes by."""
    note = yield from note_of(thread)
    blob = None
    if note is not None:
        rows = frozenset(tuple(resealed(thread, "cp_writes", row, thread.key, vault)) for row in note.rows)
        blob = _sealed(replace(thread, vault=vault), replace(note, rows=rows))
    yield Statement(SET_NOTE, (blob, thread.key))


def take_back(thread: Thread, note: Note) -> Statements[None]:
    """Make the writes on the checkpoints that were noted what they were; on those that are gone nothing comes back.

    Tallies change by what is removed and put back, they are not counted anew: a row that was lost is missed as before.
    """
    rows = yield Statement("SELECT ns, id, step FROM cp_checkpoints WHERE thread = ?", (thread.key,))
    places = {(row[0], row[1]) for row in rows if row[2] in note.heads}
    there = (yield Many(SELECT_WRITES, [(thread.key, *place) for place in places])) if places else ()
    now, then = set(map(tuple, there)), {row for row in note.rows if row[:2] in places}
    yield Many(DELETE_WRITES, [(thread.key, *row[:3]) for row in now - then], writes=True)
    yield insert_into("cp_writes", thread.key, list(then - now))
    counts: Counter[Place] = Counter()
    with checked(thread.name, "writes on the steps that its lease began at"):
        for row in now ^ then:
            counts[row[:2]] += tally_of(row[3]) if row in then else -tally_of(row[3])
    yield Many(COUNT_WRITES, [(more, thread.key, *place) for place, more in counts.items()], writes=True)
