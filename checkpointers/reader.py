"""What can be asked of a database without reading a value: for who only lists, LangGraph is never loaded.

A saver answers the same and more, and costs a third of a second to import.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from checkpointers.care import Care
from checkpointers.errors import UnknownSchemeError
from checkpointers.memory import Memory
from checkpointers.operations.common import Tools
from checkpointers.places import file_of, scheme_of, shown
from checkpointers.recent import Recent
from checkpointers.records import Names
from checkpointers.underway import UnderWay
from checkpointers.vaults import Vaults

if TYPE_CHECKING:
    from checkpointers.codec import Codec
    from checkpointers.database import Database
    from checkpointers.keyring import Keyring
    from checkpointers.ledger import Ledger


class Reader(Care):
    """Threads, steps, bytes, findings: what rows say of themselves."""

    def __init__(self, database: Database, *, keys: Keyring | None = None) -> None:
        """Read a database; encrypted threads need their keys."""
        self.database, self.vaults = database, Vaults(keys)
        self._memory, self._recent, self._names = Memory(0), Recent(0), Names()
        self._under_way = UnderWay(database)

    def _tools(self) -> Tools:
        return Tools(cast("Codec", _LateCodec()), self._names, self.vaults, self.database.tenant)

    @property
    def ledger(self) -> Ledger:
        """Give the ledger and the bodies of the threads."""
        from checkpointers.ledger import Ledger  # noqa: PLC0415  paid by who asks for it

        return Ledger(self.database, self._memory, self._tools, token=self._token, read=self._read)

    def _token(self, thread: str) -> bytes | None:
        del thread
        return None

    def __enter__(self) -> Self:
        """Use as a context manager."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the database."""
        self.database.close()


class _LateCodec:
    """The codec of who meets a value after all."""

    def __getattr__(self, name: str) -> Any:
        from checkpointers.codec import Codec  # noqa: PLC0415  it loads LangGraph
        from checkpointers.options import serializer  # noqa: PLC0415

        return getattr(Codec(serializer(None, ())), name)


def open_reader(url: str, *, keys: Keyring | None = None, timeout: float = 30.0) -> Reader:
    """Open a database of ours to look at it: nothing is created or changed, and it may be in use."""
    scheme = scheme_of(url)
    if scheme == "sqlite":
        from checkpointers.sqlite_file import SqliteDatabase  # noqa: PLC0415  loaded when used

        return Reader(SqliteDatabase(file_of(url), read_only=True, timeout=timeout), keys=keys)
    if scheme in ("postgresql", "postgres"):
        from checkpointers.postgres_server import PostgresDatabase  # noqa: PLC0415

        return Reader(PostgresDatabase(url, pool_size=1, read_only=True, timeout=timeout), keys=keys)
    raise UnknownSchemeError(f"{shown(url)!r} is no database of ours; open_saver may open it")
