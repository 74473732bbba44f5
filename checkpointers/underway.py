"""What async callers handed over to be stored, as long as it is under way: who gave one up may ask for it next."""

from __future__ import annotations

import threading
from concurrent.futures import Future, wait
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from checkpointers.database import Database

T = TypeVar("T")
LAST_STEPS: Final = 1_000
TURNS: Final = 4  # of an event loop, from the end of one of LangGraph's puts to the begin of the next, and more


class UnderWay:
    """The calls that store something of a thread; what is asked of that thread later comes after them.

    A caller who is cancelled leaves his call to a worker thread, and may go on with the thread before that is done: he
    would start from what it is about to change.
    """

    def __init__(self, database: Database) -> None:
        """Start with none."""
        self._database, self._lock = database, threading.Lock()
        self._calls: dict[str, dict[Future[Any], int]] = {}

    async def handed_over(self, thread: str, call: Callable[[], T]) -> T:
        """Store something of a thread elsewhere."""
        return await self._database.elsewhere(call, partial(self._add, thread))

    def _add(self, thread: str, call: Future[Any]) -> None:
        with self._lock:
            self._calls.setdefault(thread, {})[call] = self._database.turn.next()
        call.add_done_callback(partial(self._drop, thread))

    def _drop(self, thread: str, call: Future[Any]) -> None:
        with self._lock:
            left = self._calls[thread]
            del left[call]
            if not left:
                del self._calls[thread]

    def settle(self, thread: str) -> None:
        """Wait for the calls that were handed over before this one; how they end is told to who made them."""
        if thread in self._calls:
            turn = self._database.turn.number
            with self._lock:
                calls = [one for one, number in self._calls.get(thread, {}).items() if turn is None or number < turn]
            wait(calls)

    async def run_out(self, thread: str) -> None:
        """Wait until a cancelled run has handed over all that it did: LangGraph puts one step after another."""
        from asyncio import sleep  # noqa: PLC0415  who is async has it

        for _ in range(LAST_STEPS):
            for _ in range(TURNS):
                await sleep(0)
            if thread not in self._calls:
                return
            await self._database.elsewhere(partial(self.settle, thread))
