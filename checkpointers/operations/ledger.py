"""The ledger of a thread: what was to be done, each under a key once, and what came of it.

An entry is a row of its own, written under the guard of the thread's stamp: who lost the lease changes nothing. The
thread's own row counts the entries, so that one that is gone is missed before its effect is done again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from checkpointers.effects import EFFECTS, Entry, as_stored, opened_entry, sealed_entry
from checkpointers.errors import EntryMovedError, IncompleteRecordError
from checkpointers.keys import encoded
from checkpointers.memory import ThreadMemory
from checkpointers.operations.bodies import new_bodies
from checkpointers.operations.common import Tools, checked, find_thread, see_asked
from checkpointers.operations.guard import ATTEMPTS, Growth, append, entitled, too_busy
from checkpointers.operations.storing import Elements
from checkpointers.retention import moment
from checkpointers.standing import Standing, Thread, fold_of
from checkpointers.statements import Change, Insert, Row, Statement, Statements

EFFECT_COLUMNS: Final = ("id", "number", "revision", "body")
SELECT_EFFECTS: Final = f"SELECT {', '.join(EFFECT_COLUMNS)} FROM cp_effects WHERE thread = ?"
ALL_EFFECTS: Final = f"SELECT thread, {', '.join(EFFECT_COLUMNS)} FROM cp_effects WHERE thread = ? ORDER BY number"
CHANGE: Final = "UPDATE cp_effects SET revision = ?, body = ? WHERE thread = ? AND id = ?"
AUDIT: Final = (
    "SELECT t.stamp, e.thread, e.id FROM cp_threads t LEFT JOIN cp_effects e ON e.thread = t.thread WHERE t.thread = ?"
)


@dataclass(frozen=True, slots=True)
class Told:
    """What a writer says of an effect, with which bodies, under which lease; the mark is this one call's."""

    status: str
    record: Mapping[str, Any]
    mark: bytes
    token: bytes | None
    bodies: Sequence[bytes] = ()


def claim(
    tools: Tools, memory: ThreadMemory, thread: str, key: str, *, told: Told, now: int, like: Entry | None = None
) -> Statements[tuple[Entry, bool]]:
    """Enter an effect unless its key is there, as it stands elsewhere if it does; tell whether it was this call."""
    for _ in range(ATTEMPTS):
        standing = yield from entitled(tools, memory, thread, told.token)
        if (yield from _all_there(memory, standing)):
            number, at = standing.effects + 1, moment(now)
            entry = Entry(thread, key, number, 1, told.status, standing.head, at, told.record, mark=told.mark)
            if like is not None:
                entry = replace(entry, revision=like.revision, step=like.step, at=like.at)
            row = sealed_entry(memory.key, memory.vault, entry)
            growth = Growth(steps=standing.steps, checkpoints=0, size=len(row[-1]), entries=[row[0]])
            inserts = [Insert("cp_effects", EFFECT_COLUMNS, [row])]
            answer = yield from append(memory, Elements(), changes=inserts, growth=growth, now=now)
            if answer == "done":
                return as_stored(entry, row[-1]), True
            found = (yield from _stored(memory.as_thread(), key)) if answer == "duplicate" else None
            if found is not None:  # the guard held: nothing that is remembered is wrong
                return found, found.mark == told.mark
        memory.forget()
    raise too_busy(thread)


def _all_there(memory: ThreadMemory, standing: Standing) -> Statements[bool]:
    """See, once, that no entry is gone; False if the thread is not as it is remembered."""
    if not memory.audited and standing.effects:
        rows = yield Statement(AUDIT, (memory.key,))
        if not rows or rows[0][0] != standing.stamp:
            return False
        _agree(memory.key, standing, rows)
    memory.audited = True
    return True


def _agree(key: int, standing: Standing, rows: Sequence[Row]) -> None:
    """See that the entries are those that were counted, each in its place: elsewhere its id does not find it."""
    ids = [id_ for _, of, id_ in rows if of == key and isinstance(id_, bytes)]
    if (len(ids), fold_of(ids)) != (standing.effects, standing.fold):
        raise IncompleteRecordError(thread=standing.name, step=None, channel=EFFECTS)


def change(tools: Tools, memory: ThreadMemory, entry: Entry, *, told: Told, now: int) -> Statements[Entry]:
    """Say what became of an effect, unless somebody else did since; its bodies come in the same commit."""
    revision, at = entry.revision + 1, moment(now)
    after = replace(entry, revision=revision, status=told.status, record=told.record, at=at, mark=told.mark)
    for attempt in range(ATTEMPTS):
        standing = yield from entitled(tools, memory, entry.thread, told.token)
        if attempt:
            entry = yield from _still_there(memory, entry, told.mark)
            if entry.mark == told.mark:  # a try before this one, whose answer was lost
                return entry
        if memory.exists:
            row = sealed_entry(memory.key, memory.vault, after)
            new = yield from new_bodies(memory, standing, told.bodies)
            growth = Growth(
                steps=standing.steps,
                checkpoints=0,
                size=len(row[-1]) - entry.size + new.size,
                bodies=new.count,
                holds=(row[0], entry.seal),
            )
            changes = [Change(CHANGE, [(after.revision, row[-1], memory.key, row[0])]), *new.changes]
            answer = yield from append(memory, Elements(), changes=changes, growth=growth, now=now)
            if answer == "done":
                return as_stored(after, row[-1])
            new.check(answer, entry.thread)
        memory.forget()
    raise too_busy(entry.thread)


def _still_there(memory: ThreadMemory, entry: Entry, mark: bytes) -> Statements[Entry]:
    """Give an entry as it is stored now, as it was read or with this mark; raise if it is neither.

    A thread that is encrypted meanwhile has it in another row.
    """
    found = (yield from _stored(memory.as_thread(), entry.key)) if memory.exists else None
    if found is None or found.mark not in (entry.mark, mark):
        raise EntryMovedError(entry.thread, entry.key, found)
    return found


def get(tools: Tools, name: str, key: str) -> Statements[Entry | None]:
    """Read what the ledger says of a key; nothing only if no entry is missing."""
    thread = yield from find_thread(tools, name)
    if thread is None:
        return None
    found = yield from _stored(thread, key)
    if found is None and thread.standing.effects:
        rows = yield Statement(AUDIT, (thread.key,))
        if rows and rows[0][0] == thread.standing.stamp:
            _agree(thread.key, thread.standing, rows)
    return found


def entries(tools: Tools, name: str) -> Statements[list[Entry]]:
    """Read the whole ledger of a thread, in the order of its claims."""
    thread = yield from find_thread(tools, name)
    return (yield from stored_entries(thread)) if thread is not None else []


def stored_entries(thread: Thread) -> Statements[list[Entry]]:
    """Read every entry of a thread that was found, and see that none is missing, or where a search misses it."""
    rows = yield Statement(ALL_EFFECTS, (thread.key,))
    found = [entry_of(thread, row) for of, *row in rows if of == thread.key]
    if len(found) < thread.standing.effects:
        raise IncompleteRecordError(thread=thread.name, step=None, channel=EFFECTS)
    return found


def entry_of(thread: Thread, row: Row) -> Entry:
    """Open a row of the ledger."""
    with checked(thread.name, f"{EFFECTS} entry {row[1]}"):
        return opened_entry(thread.key, thread.name, thread.vault, row)


def _stored(thread: Thread, key: str) -> Statements[Entry | None]:
    id_ = thread.vault.name(encoded(key))
    rows = yield Statement(f"{SELECT_EFFECTS} AND id = ?", (thread.key, id_))
    for row in rows:
        see_asked(thread, row[0], id_)
    return entry_of(thread, rows[0]) if rows else None
