"""Leases: taking, renewing and releasing a thread; every change of holder moves the thread's stamp."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from checkpointers.errors import BusyError
from checkpointers.keys import encoded
from checkpointers.operations.common import Tools, find_thread
from checkpointers.operations.remove import drop
from checkpointers.operations.whole import begin, erase, locked, restand
from checkpointers.standing import Holder, Standing, Thread
from checkpointers.statements import Statement, Statements

TAKE: Final = (
    "INSERT INTO cp_leases AS l (thread, epoch, token, owner, since, until, steps)"
    " VALUES (?, 1, ?, ?, cp_clock(), cp_clock() + ?, ?) ON CONFLICT (thread) DO UPDATE SET epoch = l.epoch + 1,"
    " token = excluded.token, owner = excluded.owner, since = excluded.since, until = excluded.until,"
    " steps = excluded.steps RETURNING epoch"
)
RENEW: Final = (
    "UPDATE cp_leases SET until = cp_clock() + ? WHERE thread = ? AND token = ? AND until >= cp_clock() RETURNING epoch"
)
RELEASE: Final = "UPDATE cp_leases SET token = NULL WHERE thread = ? AND token = ? RETURNING epoch"
STRAY_WRITES: Final = (
    "DELETE FROM cp_writes AS w WHERE w.thread = ? AND NOT EXISTS (SELECT 1 FROM cp_checkpoints c"
    " WHERE c.thread = w.thread AND c.ns = w.ns AND c.id = w.checkpoint)"
)
STORED: Final = "SELECT " + ", ".join(
    f"EXISTS (SELECT 1 FROM {table} WHERE thread = ?)"
    for table in ("cp_checkpoints", "cp_writes", "cp_effects", "cp_bodies")
)
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
    since = yield Statement("SELECT steps FROM cp_leases WHERE thread = ? AND token IS NOT NULL", (thread.key,))
    if ask.rollback and since:
        yield from _roll_back(tools, thread, since[0][0])
    before = thread.standing.stamp
    standing = thread.standing
    taken = yield Statement(TAKE, (thread.key, ask.token, encoded(ask.owner), ask.ttl, standing.steps))
    thread = (yield from find_thread(tools, name)) or thread
    after = replace(thread.standing)
    yield from restand(thread, after)
    return Taken(taken[0][0], before, after.stamp)


def _roll_back(tools: Tools, thread: Thread, steps: int) -> Statements[None]:
    """Remove the steps after this one, and writes on checkpoints that were never stored, with what only they need."""
    yield Statement(STRAY_WRITES, (thread.key,))
    rows = yield Statement("SELECT step FROM cp_checkpoints WHERE thread = ? AND step > ?", (thread.key, steps))
    yield from drop(tools, thread.name, [NO_STEP, *(row[0] for row in rows)])


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
    yield Statement("UPDATE cp_threads SET stamp = stamp WHERE thread = ?", (key,))
    if not (yield Statement(RELEASE, (key, token))):
        return
    if not any((yield Statement(STORED, (key,) * STORED.count("?")))[0]):
        yield from erase(key)
        yield Statement("DELETE FROM cp_leases WHERE thread = ?", (key,))
