"""The official savers, opened so that they do not bite: waiting for locks, living through lost connections, async too.

The packaged SQLite saver raises on async use and waits only 5 s for a lock; the Postgres one fails when six processes
set it up at once and never recovers a connection it lost. These are the same classes with the same tables.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

SETUP_LOCK: Final = 0x6C67_6F66


class _Threaded(BaseCheckpointSaver[Any]):
    """Async twins on worker threads, and an end."""

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(self, config: RunnableConfig | None, **wanted: Any) -> AsyncIterator[CheckpointTuple]:
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
        return await asyncio.to_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await asyncio.to_thread(self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        await asyncio.to_thread(self.delete_thread, thread_id)

    async def aget_delta_channel_history(self, *, config: RunnableConfig, channels: Sequence[str]) -> Any:
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


class OfficialSqlite(_Threaded, SqliteSaver):
    """`langgraph-checkpoint-sqlite` with a busy timeout and async methods."""

    @classmethod
    def open(cls, path: str, *, timeout: float = 30.0, **options: Any) -> OfficialSqlite:
        """Open a file of the official saver."""
        return cls(sqlite3.connect(path, timeout=timeout, check_same_thread=False), **options)

    def close(self) -> None:
        """Close the connection."""
        self.conn.close()


class OfficialPostgres(_Threaded, PostgresSaver):
    """`langgraph-checkpoint-postgres` on a pool that replaces lost connections, set up by one process at a time."""

    @classmethod
    def open(cls, url: str, *, pool_size: int = 10, **options: Any) -> OfficialPostgres:
        """Connect to a database of the official saver, creating its tables if needed."""
        pool: ConnectionPool[Any] = ConnectionPool(
            url,
            kwargs={"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row},
            min_size=1,
            max_size=pool_size,
            check=ConnectionPool.check_connection,
            open=True,
        )
        saver = cls(pool, **options)
        with pool.connection() as connection:
            connection.execute("SELECT pg_advisory_lock(%s)", (SETUP_LOCK,))
            try:
                saver.setup()
            finally:
                connection.execute("SELECT pg_advisory_unlock(%s)", (SETUP_LOCK,))
        return saver

    def close(self) -> None:
        """Close the pool."""
        if isinstance(self.conn, ConnectionPool):
            self.conn.close()
