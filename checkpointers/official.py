"""The official savers, opened so that they do not bite: waiting for locks, living through lost connections, async too.

The packaged SQLite saver raises on async use and waits only 5 s for a lock; the Postgres one fails when six processes
set it up at once and never recovers a connection it lost. These are the same classes with the same tables.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.sqlite import SqliteSaver

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig


class Threaded(BaseCheckpointSaver[Any]):
    """Async twins on worker threads, and an end."""

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Read on a worker thread."""
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(self, config: RunnableConfig | None, **wanted: Any) -> AsyncIterator[CheckpointTuple]:
        """List on a worker thread."""
        # All at once: the packaged saver holds its lock while it is iterated.
        for found in await asyncio.to_thread(lambda: list(self.list(config, **wanted))):
            yield found

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store on a worker thread."""
        return await asyncio.to_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store on a worker thread."""
        await asyncio.to_thread(self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete on a worker thread."""
        await asyncio.to_thread(self.delete_thread, thread_id)

    async def aget_delta_channel_history(self, *, config: RunnableConfig, channels: Sequence[str]) -> Any:
        """Read on a worker thread."""
        return await asyncio.to_thread(lambda: self.get_delta_channel_history(config=config, channels=channels))

    def close(self) -> None:
        """Close the connection."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class OfficialSqlite(Threaded, SqliteSaver):
    """`langgraph-checkpoint-sqlite` with a busy timeout and async methods."""

    @classmethod
    def open(cls, path: str, *, timeout: float = 30.0, read_only: bool = False, **options: Any) -> OfficialSqlite:
        """Open a file of the official saver; `read_only`, nothing is set up in it."""
        place = f"{Path(path).absolute().as_uri()}?mode=ro" if read_only else path
        opened = cls(sqlite3.connect(place, timeout=timeout, check_same_thread=False, uri=read_only), **options)
        opened.is_setup = read_only
        return opened

    def close(self) -> None:
        """Close the connection."""
        self.conn.close()


class Borrowed(Threaded):
    """A saver that is only sync, with async twins; it stays its owner's to close."""

    def __init__(self, inner: BaseCheckpointSaver[Any]) -> None:
        """Stand before a saver."""
        super().__init__(serde=inner.serde)
        self.inner = inner

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Read."""
        return self.inner.get_tuple(config)

    def list(self, config: RunnableConfig | None, **wanted: Any) -> Iterator[CheckpointTuple]:
        """List."""
        return self.inner.list(config, **wanted)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store."""
        return self.inner.put(config, checkpoint, metadata, new_versions)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store."""
        self.inner.put_writes(config, writes, task_id, task_path)

    def delete_thread(self, thread_id: str) -> None:
        """Delete."""
        self.inner.delete_thread(thread_id)

    def get_next_version(self, current: Any, channel: None) -> Any:
        """Count as the saver does."""
        return self.inner.get_next_version(current, channel)

    def get_delta_channel_history(self, *, config: RunnableConfig, channels: Sequence[str]) -> Any:
        """Read."""
        return self.inner.get_delta_channel_history(config=config, channels=channels)

    def close(self) -> None:
        """Leave it open: it is not ours."""


def borrowed(saver: BaseCheckpointSaver[Any]) -> Borrowed:
    """Give a saver that is only sync its async twins."""
    return Borrowed(saver)
