"""A lease: one writer per thread, told apart by a token, kept alive by a heartbeat, over at once when it is released.

Whoever takes a thread moves its stamp, which every write compares: a writer that was paused, cut off or replaced fails
at its next write, and nothing of it lands.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self

from checkpointers import session
from checkpointers.errors import CheckpointerError, LeaseLostError, StorageError, ThreadBusyError
from checkpointers.operations import leases
from checkpointers.retention import moment
from checkpointers.standing import Holder
from checkpointers.upkeep import now

if TYPE_CHECKING:
    from checkpointers.database import Database
    from checkpointers.memory import Memory
    from checkpointers.operations.common import Tools

IfBusy = Literal["reject", "enqueue", "interrupt", "rollback"]
POLICIES: Final = ("reject", "enqueue", "interrupt", "rollback")
BEATS: Final = 3
FIRST_PAUSE: Final = 0.02
LONGEST_PAUSE: Final = 1.0
MICROSECONDS: Final = 1_000_000


class Lease:
    """A thread held by one writer, inside a `with` (or `async with`) block; a block inside a block shares it."""

    def __init__(
        self, desk: Desk, thread: str, *, ttl: float, owner: str | None, if_busy: IfBusy, timeout: float | None
    ) -> None:
        """Prepare; the thread is taken when the block begins."""
        if if_busy not in POLICIES:
            msg = f"if_busy is one of {', '.join(POLICIES)}, not {if_busy!r}"
            raise CheckpointerError(msg)
        if ttl <= 0:
            msg = f"a lease lives for some time, not for {ttl} s"
            raise CheckpointerError(msg)
        self.thread, self.ttl, self.owner, self.epoch, self.lost = thread, ttl, owner or this_process(), 0, False
        self.token = secrets.token_bytes(16)
        self._desk, self._if_busy, self._timeout = desk, if_busy, timeout
        self._slot = (id(desk.database), thread)
        self._outer: Lease | None = None

    def check(self) -> None:
        """Raise `LeaseLostError` if the lease is known to be over."""
        if self.lost or (self._outer is not None and self._outer.lost):
            raise LeaseLostError(self.thread, None)

    def __enter__(self) -> Self:
        """Take the thread."""
        if not self._joined():
            self._begin(self._taken())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give it back."""
        if self._end():
            self._released()

    async def __aenter__(self) -> Self:
        """Take the thread without keeping the event loop waiting."""
        if not self._joined():
            self._begin(await self._desk.database.elsewhere(self._taken))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give it back."""
        if self._end():
            await self._desk.database.elsewhere(self._released)

    def _joined(self) -> bool:
        self._outer = session.held(self._slot)
        if self._outer is None:
            return False
        self._outer.check()
        self.token, self.epoch, self.owner = self._outer.token, self._outer.epoch, self._outer.owner
        return True

    def _begin(self, epoch: int) -> None:
        self.epoch = epoch
        session.hold(self._slot, self)
        self._desk.heart.add(self)

    def _end(self) -> bool:
        if self._outer is not None:
            return False
        session.hold(self._slot, None)
        self._desk.heart.remove(self)
        return True

    def _taken(self) -> int:
        """Take the thread, at once or as soon as it is free."""
        give_up = None if self._timeout is None else time.monotonic() + self._timeout
        pause = FIRST_PAUSE
        force = self._if_busy in ("interrupt", "rollback")
        ask = leases.Ask(
            self.token, self.owner, int(self.ttl * MICROSECONDS), force=force, rollback=self._if_busy == "rollback"
        )
        while isinstance(answer := self._desk.take(self.thread, ask), Holder):
            if self._if_busy != "enqueue" or (give_up is not None and time.monotonic() >= give_up):
                raise ThreadBusyError(self.thread, answer.owner, moment(answer.since))
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        return answer.epoch

    def _released(self) -> None:
        self._desk.release(self.thread, self.token)


class Desk:
    """Where the leases of one saver are taken and given back, so that what it remembers of the threads stays true."""

    def __init__(self, database: Database, memory: Memory, tools: Callable[[], Tools]) -> None:
        """Stand before the saver's database and memory."""
        self.database, self._memory, self._tools = database, memory, tools
        self.heart = Heart(self.renew)

    def take(self, thread: str, ask: leases.Ask) -> leases.Taken | Holder:
        """Take a thread for a lease, or give who has it; what this process remembers of the thread stays true."""
        with self._memory.hold(thread) as memory:
            taken = self.database.exclusive(lambda: leases.take(self._tools(), thread, ask, now()))
            known = memory.standing
            if isinstance(taken, Holder):
                return taken
            if known is not None and known.stamp == taken.before and taken.after == taken.before + 1:
                known.stamp = taken.after
                memory.holder = Holder(ask.token, ask.owner, 0, 0, taken.epoch, expired=False)
            else:
                memory.forget()
        return taken

    def release(self, thread: str, token: bytes) -> None:
        """Give back a thread that was taken with this token."""
        with self._memory.hold(thread) as memory:
            self.database.exclusive(lambda: leases.release(self._tools(), thread, token))
            if memory.standing is not None and memory.standing.checkpoints:
                memory.holder = None if memory.holder and memory.holder.token == token else memory.holder
            else:
                memory.forget()

    def renew(self, lease: Lease) -> bool:
        """Hold a thread for longer; tell whether it is still held."""
        ttl = int(lease.ttl * MICROSECONDS)
        return self.database.run(lambda: leases.renew(self._tools(), lease.thread, lease.token, ttl))


class Heart:
    """Renews the leases of one saver from one thread, which ends when there are none."""

    def __init__(self, renew: Callable[[Lease], bool]) -> None:
        """Renew by this call."""
        self._renew = renew
        self._changed = threading.Condition()
        self._due: dict[bytes, tuple[Lease, float]] = {}
        self._beating = False

    def add(self, lease: Lease) -> None:
        """Keep a lease alive."""
        with self._changed:
            self._due[lease.token] = lease, time.monotonic() + lease.ttl / BEATS
            self._changed.notify()
            if not self._beating:
                self._beating = True
                threading.Thread(target=self._beat, name="checkpointers-leases", daemon=True).start()

    def remove(self, lease: Lease) -> None:
        """Let a lease be."""
        with self._changed:
            self._due.pop(lease.token, None)
            self._changed.notify()

    def _beat(self) -> None:
        while (lease := self._next()) is not None:
            try:
                alive = self._renew(lease)
            except StorageError:
                alive = True  # nobody can tell: its writes will, and so will the next beat
            with self._changed:
                if not alive:
                    lease.lost = True
                    self._due.pop(lease.token, None)
                elif lease.token in self._due:
                    self._due[lease.token] = lease, time.monotonic() + lease.ttl / BEATS

    def _next(self) -> Lease | None:
        """Wait until a lease is due, None when there are none left."""
        with self._changed:
            while self._due:
                lease, due = min(self._due.values(), key=lambda entry: entry[1])
                if due <= time.monotonic():
                    return lease
                self._changed.wait(due - time.monotonic())
            self._beating = False
            return None


@lru_cache(maxsize=1)
def _host() -> str:
    return socket.gethostname()


def this_process() -> str:
    """Give the name under which this process holds threads unless it is told another."""
    return f"{_host()}:{os.getpid()}"
