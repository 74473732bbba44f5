"""Leases: taking, renewing and releasing a thread; every change of holder moves the thread's stamp."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from checkpointers.errors import BusyError, CheckpointerError
from checkpointers.keys import encoded
from checkpointers.operations.common import Tools, any_rows, find_thread
from checkpointers.operations.noting import SET_NOTE, new_note, note_of, take_back
from checkpointers.operations.remove import drop
from checkpointers.operations.whole import begin, erase, lock, locked, restand
from checkpointers.standing import Holder, Standing, Thread
from checkpointers.statements import Statement, Statements

TAKE: Final = (
    "INSERT INTO cp_leases AS l (thread, epoch, token, owner, since, until, steps, note)"
    " VALUES (?, 1, ?, ?, cp_clock(), cp_clock() + ?, ?, ?) ON CONFLICT (thread) DO UPDATE SET epoch = l.epoch + 1,"
    " token = excluded.token, owner = excluded.owner, since = excluded.since, until = excluded.until,"
    " steps = excluded.steps, note = excluded.note RETURNING epoch"
)
RENEW: Final = (
    "UPDATE cp_leases SET until = cp_clock() + ? WHERE thread = ? AND token = ? AND until >= cp_clock() RETURNING epoch"
)
RELEASE: Final = "UPDATE cp_leases SET token = NULL, note = NULL WHERE thread = ? AND token = ? RETURNING epoch"
STRAY_WRITES: Final = (
    "DELETE FROM cp_writes AS w WHERE w.thread = ? AND NOT EXISTS (SELECT 1 FROM cp_checkpoints c"
    " WHERE c.thread = w.thread AND c.ns = w.ns AND c.id = w.checkpoint)"
)
STORED: Final = ("cp_checkpoints", "cp_writes", "cp_effects", "cp_bodies")
NO_STEP: Final = 0


@dataclass(frozen=True, slots=True)
class Ask:
    """Who asks for a thread, for how long at a time, and whether whoever has it is to give way, with what it made."""

    token: bytes
    owner: str
    ttl: int
    force: bool = False
    rollback: bool = False


@dataclass(frozen=True, slots=True)
class Taken:
    """A lease: its epoch, and the stamps of the thread before and after."""

    epoch: int
    before: int
    after: int


def take(tools: Tools, name: str, ask: Ask, now: int) -> Statements[Taken | Holder]:
    """Take a thread, which need not exist yet; or give who has it."""
    thread = yield from _found_or_begun(tools, name, now)
    holder = thread.holder
    mine = holder is not None and holder.token == ask.token  # taken already, by a try whose answer was lost
    if holder is not None and not holder.expired and not ask.force and not mine:
        return holder
    before = thread.standing.stamp
    if ask.rollback and holder is not None:
        yield from _roll_back(tools, thread)
        thread = (yield from find_thread(tools, name)) or thread
    after = replace(thread.standing)
    note = yield from new_note(thread, ask.token)
    taken = yield Statement(TAKE, (thread.key, ask.token, encoded(ask.owner), ask.ttl, after.steps, note))
    yield from restand(thread, after)
    return Taken(taken[0][0], before, after.stamp)


def _roll_back(tools: Tools, thread: Thread) -> Statements[None]:
    """Remove the steps made under a lease, and writes on checkpoints that were never stored, with what only they need.

    What stood on the steps before comes back, and nothing else stays on them.
    """
    steps = (yield Statement("SELECT steps FROM cp_leases WHERE thread = ?", (thread.key,)))[0][0]
    note = yield from note_of(thread)
    if steps and note is None:
        msg = (
            f"what thread {thread.name!r} was when its lease began is not known: an older release gave that lease;"
            " wait for its end (if_busy='enqueue'), or take the thread over as it is (if_busy='interrupt')"
        )
        raise CheckpointerError(msg)
    yield Statement(STRAY_WRITES, (thread.key,))
    if note is not None:
        yield from take_back(thread, note)
        yield Statement(SET_NOTE, (None, thread.key))
    rows = yield Statement("SELECT step FROM cp_checkpoints WHERE thread = ? AND step > ?", (thread.key, steps))
    yield from drop(tools, thread.name, lambda _: [NO_STEP, *(row[0] for row in rows)])


def _found_or_begun(tools: Tools, name: str, now: int) -> Statements[Thread]:
    thread = yield from locked(tools, name)
    if thread is None:
        yield from begin(tools, tools.key(name), Standing(name, stamp=now, created_at=now, updated_at=now))
        thread = yield from locked(tools, name)
    if thread is None:
        raise BusyError(f"thread {name!r}", "it was deleted while its lease was taken")
    return thread


def renew(tools: Tools, name: str, token: bytes, ttl: int) -> Statements[bool]:
    """Hold a thread for so much longer; tell whether it is still held."""
    return bool((yield Statement(RENEW, (ttl, tools.key(name), token))))


def release(tools: Tools, name: str, token: bytes) -> Statements[None]:
    """Give a thread back; of one that nothing was ever written to, nothing stays."""
    key = tools.key(name)
    yield from lock(key)
    if not (yield Statement(RELEASE, (key, token))):
        return
    if not (yield from any_rows(STORED, key)):
        yield from erase(key)
        yield Statement("DELETE FROM cp_leases WHERE thread = ?", (key,))
