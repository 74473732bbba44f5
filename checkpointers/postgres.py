"""The saver for Postgres: one server, many machines."""

from __future__ import annotations

import warnings
from typing import Any, Unpack

from checkpointers.errors import TenancyWarning
from checkpointers.options import Options
from checkpointers.postgres_server import DEFAULT_SCHEMA, PostgresDatabase
from checkpointers.saver import Saver


class PostgresSaver(Saver):
    """Checkpoints in a Postgres database, for any LangGraph graph."""

    @classmethod
    def open(
        cls,
        url: str,
        *,
        schema: str = DEFAULT_SCHEMA,
        pool_size: int = 10,
        timeout: float = 30.0,
        tenant: str = "",
        read_only: bool = False,
        **options: Unpack[Options],
    ) -> PostgresSaver:
        """Connect, creating the schema and its tables if needed.

        `timeout` is how long a call waits for a free connection, or for a server that went away to come back. A saver
        with a `tenant` reads and writes what is of that tenant and nothing else, by the database's own rules. `Options`
        has the rest.
        """
        database = PostgresDatabase(
            url, schema=schema, pool_size=pool_size, timeout=timeout, tenant=tenant, read_only=read_only
        )
        if database.unbound:
            warnings.warn(TenancyWarning(database.unbound), stacklevel=2)
        return cls._on(database, **options)

    @classmethod
    def from_conn_string(cls, conn_string: str, *, pipeline: bool = False, **options: Any) -> PostgresSaver:
        """Connect as the official saver does; `pipeline` is accepted and not needed."""
        del pipeline
        return cls.open(conn_string, **options)
