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
        self._process = 0

    def call(self, work: Coroutine[Any, Any, T], *, loop: asyncio.AbstractEventLoop | None = None) -> T:
        """Run a coroutine to its end, on `loop` if a saver is bound to one; an interrupt from the keyboard stops it."""
        home = loop or self._running()
        if _is_here(home):
            work.close()
            msg = "this saver lives in the running event loop, which a sync call would block; await the async twin"
            raise SetupError(msg)
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
            if self._loop is None or self._process != os.getpid():
                self._loop, self._process = asyncio.new_event_loop(), os.getpid()
                threading.Thread(target=self._loop.run_forever, name="graph-agent", daemon=True).start()
            return self._loop


async def _until(work: Coroutine[Any, Any, T], ended: threading.Event) -> T:
    try:
        return await work
    finally:
        ended.set()


def _is_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


PORTAL = Portal()
