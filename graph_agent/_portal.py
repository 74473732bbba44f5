"""One background loop for the sync doors, so that they also work inside a notebook's running loop; and runs apart."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
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

    def start(
        self, work: Coroutine[Any, Any, T], *, loop: asyncio.AbstractEventLoop | None = None
    ) -> Callable[[], None]:
        """Begin a coroutine, and let it run; what is given stops it, and waits until it has ended."""
        home, ended = loop or self._running(), threading.Event()
        future = asyncio.run_coroutine_threadsafe(_until(work, ended), home)

        def stop() -> None:
            future.cancel()
            if not _is_here(home) and not sys.is_finalizing():
                ended.wait(PATIENCE)

        return stop

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
    here = "this saver lives in the running loop, which a sync call would block; await the async twin"
    return here if _is_here(loop) else ""


def _is_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


async def apart(events: AsyncGenerator[T]) -> AsyncGenerator[T]:
    """Pass on what a generator gives, which runs in a task and a context of its own, and no further than is listened.

    What it sets in its context, as the lease under which it writes, is not seen by whoever listens, and stays with it
    even if each event is asked for by another task. When nobody listens any more it is stopped, and waited for.
    """
    queue: asyncio.Queue[tuple[T] | None] = asyncio.Queue()

    async def pump() -> None:
        async with aclosing(events) as told:
            async for event in told:
                queue.put_nowait((event,))
                await queue.join()

    running = asyncio.create_task(pump())
    running.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (told := await queue.get()) is not None:
            yield told[0]
            queue.task_done()
        await running
    finally:
        running.cancel()
        await asyncio.wait({running})
        _ = running.cancelled() or running.exception()  # nobody listens


PORTAL = Portal()
