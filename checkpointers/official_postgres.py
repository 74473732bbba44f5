"""The official Postgres saver, opened so that it does not bite; apart, because it needs a driver."""

from __future__ import annotations

import time
from typing import Any, Final

from langgraph.checkpoint.postgres import PostgresSaver
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool

from checkpointers.official import Threaded
from checkpointers.postgres_server import READS, close_with

SETUP_LOCK: Final = 0x6C67_6F66
PAUSE: Final = 0.05


class OfficialPostgres(Threaded, PostgresSaver):
    """`langgraph-checkpoint-postgres` on a pool that replaces lost connections, set up by one process at a time."""

    @classmethod
    def open(cls, url: str, *, pool_size: int = 10, read_only: bool = False, **options: Any) -> OfficialPostgres:
        """Connect to a database of the official saver, creating its tables if needed; `read_only`, nothing is."""
        reads = {"options": READS} if read_only else {}
        pool: ConnectionPool[Any] = ConnectionPool(
            url,
            kwargs={"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row, **reads},
            min_size=1,
            max_size=pool_size,
            check=ConnectionPool.check_connection,
            open=True,
        )
        try:
            saver = cls(pool, **options)
            close_with(saver, pool)
            if read_only:
                return saver
            with pool.connection() as connection:
                # Asked again and again: its indexes are built CONCURRENTLY, which would wait for those who wait.
                while not connection.execute("SELECT pg_try_advisory_lock(%s) AS got", (SETUP_LOCK,)).fetchone()["got"]:
                    time.sleep(PAUSE)
                try:
                    saver.setup()
                finally:
                    connection.execute("SELECT pg_advisory_unlock(%s)", (SETUP_LOCK,))
        except BaseException:
            pool.close()
            raise
        return saver

    def close(self) -> None:
        """Close the pool."""
        if isinstance(self.conn, ConnectionPool):
            self.conn.close()
