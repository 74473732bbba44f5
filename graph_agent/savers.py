"""Any LangGraph saver, made fit for an async graph with sync doors."""

from __future__ import annotations

import asyncio
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite import SqliteSaver

from checkpointers import open_saver
from checkpointers.official import borrowed
from graph_agent.errors import SetupError


def saver_of(given: Any) -> Any:
    """Take a saver, or its address; one that is only sync is given async twins."""
    if isinstance(given, str):
        return open_saver(given)
    if not isinstance(given, BaseCheckpointSaver):
        msg = f"saver={given!r} is no LangGraph saver; pass one, or an address such as 'sqlite:///agent.db'"
        raise SetupError(msg)
    return given if _is_async(given) else borrowed(given)


def loop_of(saver: Any) -> asyncio.AbstractEventLoop | None:
    """Give the loop that an async-only saver is bound to, None for one that works in all."""
    loop = getattr(saver, "loop", None)
    return loop if isinstance(loop, asyncio.AbstractEventLoop) else None


def _is_async(saver: Any) -> bool:
    own = type(saver).aget_tuple
    return own not in (BaseCheckpointSaver.aget_tuple, SqliteSaver.aget_tuple)
