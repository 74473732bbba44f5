"""A lease: one writer per thread, told apart by a token, kept alive by a heartbeat, over at once when it is released.

Whoever takes a thread moves its stamp, which every write compares: a writer that was paused, cut off or replaced fails
at its next write, and nothing of it lands.
"""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self

from checkpointers import session
from checkpointers.database import now
from checkpointers.errors import CheckpointerError, LeaseLostError, ThreadBusyError
from checkpointers.operations import leases
from checkpointers.retention import moment
from checkpointers.standing import Holder

if TYPE_CHECKING:
    from checkpointers.database import Database
    from checkpointers.memory import Memory
    from checkpointers.operations.common import Tools

IfBusy = Literal["reject", "enqueue", "interrupt", "rollback"]
POLICIES: Final = ("reject", "enqueue", "interrupt", "rollback")
BEATS: Final = 3
FIRST_PAUSE: Final = 0.02
LONGEST_PAUSE: Final = 0.25
MICROSECONDS: Final = 1_000_000
SHORTEST: Final = 0.05
LONGEST: Final = 365 * 86_400.0


class Lease:
    """A thread held by one writer, inside one `with` (or `async with`) block; a block inside a block shares it."""

    def __init__(
        self, desk: Desk, thread: str, *, ttl: float, owner: str | None, if_busy: IfBusy, timeout: float | None
    ) -> None:
        """Prepare; the thread is taken when the block begins."""
        _check(ttl=ttl, owner=owner, if_busy=if_busy, timeout=timeout)
        self.thread, self.ttl, self.owner, self.epoch = thread, float(ttl), owner or this_process(), 0
        self.lost = self.over = False
        self.token = secrets.token_bytes(16)
        self._desk, self._if_busy, self._timeout = desk, if_busy, timeout
        self._slot = (desk.database.number, thread)
        self._outer: Lease | None = None
        self.runs: dict[int, object] = {}
        self._used, self._lock = threading.Lock(), threading.Lock()
        self._unwanted, self._pause, self._give_up = False, FIRST_PAUSE, 0.0

    def check(self) -> None:
        """Raise `LeaseLostError` if the lease is known to be over."""
        if self.lost or self.over or (self._outer is not None and (self._outer.lost or self._outer.over)):
            raise LeaseLostError(self.thread, None)

    def __enter__(self) -> Self:
        """Take the thread."""
        with self._once():
            if not self._joined():
                while (pause := self._taken()) is not None:
                    time.sleep(pause)
                self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give it back."""
        if self._end():
            self._released()

    async def __aenter__(self) -> Self:
        """Take the thread without keeping the event loop waiting, nor one of the saver's workers."""
        with self._once():
            if not self._joined():
                while (pause := await self._desk.database.elsewhere(self._taken)) is not None:  # noqa: ASYNC110
                    await asyncio.sleep(pause)  # no event tells when another process lets go
                self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give it back."""
        if self._end():
            await self._desk.database.elsewhere(self._released)

    @contextmanager
    def _once(self) -> Iterator[None]:
        """Let one block use this, and leave nothing behind if it does not come to begin."""
        if not self._used.acquire(blocking=False):
            raise CheckpointerError("a lease is for one block; ask for another with saver.lease(…)")
        self._unwanted, self._pause = False, FIRST_PAUSE
        self._give_up = time.monotonic() + (self._timeout or 0.0)
        try:
            yield
        except CheckpointerError:
            self._used.release()
            raise
        except BaseException:
            self._leave()
            raise

    def _joined(self) -> bool:
        """Share the lease that this context has already; one that was given back since does not count."""
        outer = session.held(self._slot)
        if outer is None or outer.over:
            return False
        outer.check()
        self._outer = outer
        self.token, self.epoch, self.owner = outer.token, outer.epoch, outer.owner
        return True

    def _begin(self) -> None:
        session.hold(self._slot, self)
        self._desk.heart.add(self)

    def _end(self) -> bool:
        if self._outer is not None:
            return False
        self.over = True
        session.let_go(self._slot, self)
        self._desk.heart.remove(self)
        return True

    def _taken(self) -> float | None:
        """Try to take the thread; give how long to wait before the next try, None if it is taken."""
        force, rollback = self._if_busy in ("interrupt", "rollback"), self._if_busy == "rollback"
        ask = leases.Ask(self.token, self.owner, int(self.ttl * MICROSECONDS), force=force, rollback=rollback)
        answer = self._desk.take(self.thread, ask)
        if isinstance(answer, Holder):
            return self._wait_for(answer)
        with self._lock:
            self.epoch = answer.epoch
            unwanted = self._unwanted
        if unwanted:
            self._released()
        return None

    def _wait_for(self, holder: Holder) -> float:
        left = math.inf if self._timeout is None else self._give_up - time.monotonic()
        if self._if_busy != "enqueue" or left <= 0:
            raise ThreadBusyError(self.thread, holder.owner, moment(holder.since))
        pause = self._pause * (1 + secrets.randbelow(1_000) / 1_000) / 2  # so that those who wait do not ask together
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        return min(pause, left)

    def _leave(self) -> None:
        """Nobody waits for the thread any more: give it back if it was taken, else the try under way does."""
        if self._outer is not None:
            return
        with self._lock:
            self._unwanted, taken, self.epoch = True, self.epoch, 0
        if taken:
            self._end()
            threading.Thread(target=self._released, name="checkpointers-leave", daemon=True).start()

    def _released(self) -> None:
        self._desk.release(self.thread, self.token)


def _check(*, ttl: float, owner: str | None, if_busy: IfBusy, timeout: float | None) -> None:
    if if_busy not in POLICIES:
        msg = f"if_busy is one of {', '.join(POLICIES)}, not {if_busy!r}"
        raise CheckpointerError(msg)
    if not _is_time(ttl) or not SHORTEST <= ttl <= LONGEST:
        msg = f"a lease lives for some time ({SHORTEST} s to {LONGEST:.0f} s), not for {ttl!r} s"
        raise CheckpointerError(msg)
    if owner is not None and not isinstance(owner, str):
        msg = f"the owner of a lease is a name, not {owner!r}"
        raise CheckpointerError(msg)
    if timeout is not None and (if_busy != "enqueue" or not _is_time(timeout) or timeout < 0):
        msg = f"a timeout is the seconds that if_busy='enqueue' waits, not {timeout!r} for {if_busy!r}"
        raise CheckpointerError(msg)


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


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
                alive, pause = self._renew(lease), lease.ttl / BEATS
            except Exception:  # noqa: BLE001  nobody can tell: its writes will, and so will the next beat, soon
                alive, pause = True, lease.ttl / BEATS**2
            with self._changed:
                if lease.token not in self._due:
                    continue
                if not alive:
                    lease.lost = True
                    del self._due[lease.token]
                else:
                    self._due[lease.token] = lease, time.monotonic() + pause

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
