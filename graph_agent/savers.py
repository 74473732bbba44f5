"""Any LangGraph saver, made fit for an async graph with sync doors; and whose turn it is to write a thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite import SqliteSaver

from checkpointers import CheckpointerError, LeaseLostError, Saver, StorageError, ThreadBusyError, open_saver, session
from checkpointers.lease import POLICIES, IfBusy, Lease, this_process
from checkpointers.official import borrowed
from checkpointers.operations.common import config_of
from graph_agent.errors import OpenThreadError, SetupError
from graph_agent.kit import Where

HINT: Final = "wait for it (if_busy='enqueue'), or take it over (if_busy='interrupt' or 'rollback')"
FIRST_LOOK: Final = 0.002
LONGEST_LOOK: Final = 0.25
LONGEST_WAIT: Final = 60.0
_RUNNING: Final[dict[tuple[Hashable, str, bytes | None], datetime]] = {}


def saver_of(given: Any) -> Any:
    """Take a saver, or its address; one that is only sync is given async twins."""
    if isinstance(given, str):
        return open_saver(given)
    if not isinstance(given, BaseCheckpointSaver):
        msg = f"saver={given!r} is no LangGraph saver; pass one, or an address such as 'sqlite:///agent.db'"
        raise SetupError(msg)
    return given if _is_async(given) else borrowed(given)


def keeper_of(saver: Any, ledger: Any) -> Saver | None:
    """Give the saver of ours that keeps ledger and bodies: the agent's own, or one beside it; None if there is none."""
    if isinstance(saver, Saver):
        if ledger is not None:
            raise SetupError("a saver of ours keeps the ledger itself; leave ledger= out")
        return saver
    keeper = open_saver(ledger) if isinstance(ledger, str) else ledger
    if keeper is not None and not isinstance(keeper, Saver):
        raise SetupError(
            f"ledger={ledger!r} is no saver of ours; pass one, or an address such as 'sqlite:///effects.db'"
        )
    return keeper


async def stored(saver: Any, where: Where) -> None:
    """Wait until the checkpoint that a task works from is stored, where LangGraph does not."""
    if where.durability == "sync":
        return
    if where.durability == "exit":
        raise SetupError("durability='exit' stores nothing before a run ends: an effect would be forgotten by a crash")
    config = config_of(where.thread, where.ns, where.checkpoint)
    pause, left = FIRST_LOOK, LONGEST_WAIT
    while await saver.aget_tuple(config) is None:
        if left <= 0:
            raise StorageError(where.thread, f"the step that decided on a call was not stored in {LONGEST_WAIT:g} s")
        await asyncio.sleep(pause)
        left, pause = left - pause, min(2 * pause, LONGEST_LOOK)


def loop_of(saver: Any) -> asyncio.AbstractEventLoop | None:
    """Give the loop that an async-only saver is bound to, None for one that works in all."""
    loop = getattr(saver, "loop", None)
    return loop if isinstance(loop, asyncio.AbstractEventLoop) else None


def _is_async(saver: Any) -> bool:
    own = type(saver).aget_tuple
    return own not in (BaseCheckpointSaver.aget_tuple, SqliteSaver.aget_tuple)


def listed(saver: Any, *, status: str | None = None, limit: int | None = None, **wanted: Any) -> list[Any]:
    """List threads as the saver does, but those that somebody holds as running; so the status is looked at here."""
    found = saver.threads(**wanted, **({"limit": limit} if status is None else {}))
    told = [replace(one, status="running") if getattr(one, "holder", None) is not None else one for one in found]
    return [one for one in told if status in (None, one.status)][:limit]


class Turns:
    """Whose turn it is to write a thread: that of one run at a time.

    With a saver of ours the thread is leased, so that holds for every process and machine on that database. Other
    savers have no leases: there, runs are kept apart within this process only.
    """

    def __init__(self, saver: Any, *, ttl: float) -> None:
        """Keep the turns of a saver's threads; a lease is over `ttl` seconds after its process died."""
        self._saver, self._ttl, self._leased = saver, ttl, isinstance(saver, Saver)
        try:
            _ = saver.lease("", ttl=ttl) if self._leased else None
        except CheckpointerError as error:
            raise SetupError(f"lease_ttl={ttl!r}: {error}") from error
        place = getattr(getattr(saver, "database", None), "place", "")
        self._home: Hashable = place if place and ":memory:" not in place else id(saver)

    async def taken(self, thread: str) -> bool:
        """Tell whether a run has the thread now: anywhere, if the saver has leases, else in this process."""
        if self._leased:
            return await self._saver.aholder(thread) is not None
        return (self._home, thread, None) in _RUNNING

    def check(self, thread: str) -> None:
        """Raise `LeaseLostError` if this context took a thread, and is known to have lost it."""
        lease = session.held(self._slot(thread)) if self._leased else None
        if lease is not None:
            lease.check()

    @asynccontextmanager
    async def take(self, thread: str, if_busy: IfBusy = "reject") -> AsyncIterator[bool]:
        """Have a thread from before it is loaded until all is written; give whether another run was stopped for it."""
        if if_busy not in POLICIES:
            raise SetupError(f"if_busy={if_busy!r} is none of {', '.join(map(repr, POLICIES))}")
        if not self._leased and if_busy != "reject":
            name = type(self._saver).__name__
            raise SetupError(f"if_busy={if_busy!r} needs a saver with leases, as 'sqlite:///agent.db'; {name} has none")
        lease, stopped = await self._lease(thread, if_busy) if self._leased else (None, False)
        try:
            with self._alone(thread, lease):
                yield stopped
        except LeaseLostError as error:
            if error.owner is not None or error.thread != thread:
                raise
            raise LeaseLostError(thread, await self._owner(thread)) from error
        finally:
            if lease is not None:
                with suppress(StorageError):  # what was written is stored, and the lease ends by itself
                    await lease.__aexit__(None, None, None)

    async def _lease(self, thread: str, if_busy: IfBusy) -> tuple[Lease, bool]:
        """Lease a thread, at once or when it is free; within a lease that the caller has, share that."""
        try:
            return await self._entered(thread, "enqueue" if if_busy == "enqueue" else "reject"), False
        except ThreadBusyError as error:
            if if_busy == "reject":
                raise _busy(thread, error.owner, error.since, hint=HINT) from error
        return await self._entered(thread, if_busy), True

    async def _entered(self, thread: str, if_busy: IfBusy) -> Lease:
        lease: Lease = self._saver.lease(thread, ttl=self._ttl, if_busy=if_busy)
        return await lease.__aenter__()

    async def _owner(self, thread: str) -> str | None:
        """Say who has a thread now, if that can be said."""
        with suppress(CheckpointerError):
            holder = await self._saver.aholder(thread)
            return holder.owner if holder else None
        return None

    @contextmanager
    def _alone(self, thread: str, lease: Lease | None) -> Iterator[None]:
        """Let one run of this process have a thread; of those that share a lease, too."""
        key, now = (self._home, thread, lease.token if lease else None), datetime.now(UTC)
        if (since := _RUNNING.setdefault(key, now)) is not now:
            raise _busy(thread, this_process(), since, hint="wait for it, or use another thread")
        try:
            yield
        finally:
            del _RUNNING[key]

    def _slot(self, thread: str) -> session.Slot:
        return self._saver.database.number, thread


def _busy(thread: str, owner: str, since: datetime, *, hint: str) -> OpenThreadError:
    return OpenThreadError(
        f"thread {thread!r} is running: {owner} has it since {since.isoformat(timespec='seconds')}; {hint}",
        thread=thread, status="running", owner=owner, since=since,
    )  # fmt: skip
