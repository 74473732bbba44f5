"""Running a function in time: stopped at its deadline if it can be, else left alone on a thread of its own."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from graph_agent.errors import ToolError

Ended = tuple[Any, BaseException | None]


class PassedDeadlineError(TimeoutError):
    """A call that was stopped at its deadline: what it had done by then is not known."""


class MayStillRunError(ToolError):
    """A call that passed its deadline and could not be stopped; `ended` is done when it has come to its end."""

    def __init__(self, message: str, ended: asyncio.Future[Ended]) -> None:
        """Say which call, and how to learn of its end."""
        super().__init__(message)
        self.ended = ended


async def run(name: str, function: Callable[..., Any], given: Mapping[str, Any], deadline: float | None) -> Any:
    """Call a function, sync or async; a sync one runs on a thread of its own."""
    if inspect.iscoroutinefunction(function):
        return await in_time(name, function(**given), deadline)
    return await on_thread(name, functools.partial(function, **given), deadline)


async def in_time(name: str, work: Awaitable[Any], deadline: float | None) -> Any:
    """Await something until its deadline."""
    limit = asyncio.timeout(deadline)
    try:
        async with limit:
            return await work
    except TimeoutError as error:
        if limit.expired():
            raise PassedDeadlineError(f"{name} passed its deadline of {deadline:g} s") from error
        raise


async def on_thread(name: str, work: Callable[[], Any], deadline: float | None) -> Any:
    """Run what cannot be stopped where it holds up nobody: a pool would be full of calls that hang."""
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    ended: asyncio.Future[Ended] = loop.create_future()

    def tell(result: Any, error: BaseException | None) -> None:
        if not ended.done():
            ended.set_result((result, error))

    def run() -> None:
        try:
            outcome: Ended = context.run(work), None
        except BaseException as error:  # noqa: BLE001  raised again where the call is awaited
            outcome = None, error
        with suppress(RuntimeError):  # the loop has ended: nobody waits
            loop.call_soon_threadsafe(tell, *outcome)

    threading.Thread(target=run, name=f"tool {name}", daemon=True).start()
    done, _ = await asyncio.wait({ended}, timeout=deadline)
    if not done:
        raise MayStillRunError(f"{name} passed its deadline of {deadline:g} s and may still be running", ended)
    result, error = ended.result()
    if error is not None:
        raise error
    return result
