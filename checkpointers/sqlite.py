"""The saver for SQLite: one file, many processes."""

from __future__ import annotations

import os
from typing import Unpack

from checkpointers.options import Options
from checkpointers.saver import Saver
from checkpointers.sqlite_file import SqliteDatabase, Synchronous


class SqliteSaver(Saver):
    """Checkpoints in an SQLite file, for any LangGraph graph.

    >>> saver = SqliteSaver.open(":memory:")
    >>> saver.close()
    """

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        timeout: float = 30.0,
        synchronous: Synchronous = "full",
        read_only: bool = False,
        **options: Unpack[Options],
    ) -> SqliteSaver:
        """Open a file, creating it (mode 0600) and its tables if needed; `:memory:` is private to this object.

        `timeout` is how long a write waits for other processes. `synchronous="normal"` is faster: a power
        failure may then undo the last commits, a crash of the process still loses nothing. `Options` has the rest.
        """
        database = SqliteDatabase(path, timeout=timeout, synchronous=synchronous, read_only=read_only)
        return cls._on(database, **options)

    from_conn_string = open  # noqa: A003  the official savers' name for it
