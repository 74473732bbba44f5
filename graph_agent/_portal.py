"""One background loop for the sync doors, so that they also work inside a notebook's running loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from graph_agent.errors import SetupError

T = TypeVar("T")
PATIENCE: Final = 10.0


class Portal:
    """A loop on a daemon thread, started when it is first needed, and again in a forked process."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process = 0

    def call(self, work: Coroutine[Any, Any, T], *, loop: asyncio.AbstractEventLoop | None = None) -> T:
        """Run a coroutine to its end, on `loop` if a saver is bound to one; an interrupt from the keyboard stops it."""
        home = loop or self._running()
        if problem := _unfit(loop):
            work.close()
            raise SetupError(problem)
        ended = threading.Event()
        future = asyncio.run_coroutine_threadsafe(_until(work, ended), home)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            ended.wait(PATIENCE)
            raise

    def start(self, work: Coroutine[Any, Any, T], *, loop: asyncio.AbstractEventLoop | None = None) -> Future[T]:
        """Begin a coroutine, and let it run."""
        return asyncio.run_coroutine_threadsafe(work, loop or self._running())

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            alive = self._thread is not None and self._thread.is_alive() and self._process == os.getpid()
            if self._loop is None or not alive:
                self._loop, self._process = asyncio.new_event_loop(), os.getpid()
                self._thread = threading.Thread(target=self._loop.run_forever, name="graph-agent", daemon=True)
                self._thread.start()
            return self._loop


async def _until(work: Coroutine[Any, Any, T], ended: threading.Event) -> T:
    try:
        return await work
    finally:
        ended.set()


def _unfit(loop: asyncio.AbstractEventLoop | None) -> str:
    """Say why the loop of a saver cannot be waited for from here, if it cannot."""
    if loop is None:
        return ""
    if not loop.is_running():
        return "this saver lives in an event loop that does not run any more; open it in one that does, and await there"
    try:
        here = asyncio.get_running_loop() is loop
    except RuntimeError:
        here = False
    return "this saver lives in the running loop, which a sync call would block; await the async twin" if here else ""


PORTAL = Portal()
