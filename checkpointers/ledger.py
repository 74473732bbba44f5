"""What a thread keeps beside its state: a ledger of effects, each claimed once, and bodies under their hash."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from checkpointers.database import now
from checkpointers.effects import BodyInfo, Entry, as_body, hash_of, plain
from checkpointers.errors import UnstorableValueError
from checkpointers.keys import see_text
from checkpointers.operations import bodies as kept
from checkpointers.operations import ledger
from checkpointers.operations.ledger import Told

if TYPE_CHECKING:
    from checkpointers.database import Database
    from checkpointers.memory import Memory, ThreadMemory
    from checkpointers.operations.common import Tools
    from checkpointers.statements import Operation, Statements

T = TypeVar("T")
MARK_BYTES: Final = 8
CLAIMED: Final = "claimed"
KEY: Final = "the key of an effect"


class Ledger:
    """The ledger of effects and the bodies of a saver's threads.

    An effect is claimed before it is done and changed when it is known what came of it; a claim without an outcome is
    in doubt, and nobody else's claim of the same key succeeds. Both are writes of the thread: who holds no lease, or
    lost it, writes nothing. A thread that is not there is begun.
    """

    def __init__(
        self,
        database: Database,
        memory: Memory,
        tools: Callable[[], Tools],
        *,
        token: Callable[[str], bytes | None],
        read: Callable[[Operation[Any]], Any],
    ) -> None:
        """Stand before the saver's database and memory."""
        self._database, self._memory, self._tools = database, memory, tools
        self._token, self._read = token, read

    def claim(self, thread: str, key: str, record: Mapping[str, Any], *, status: str = CLAIMED) -> tuple[Entry, bool]:
        """Claim an effect: True if it was not there and is now; False with what stands there, which stays as it is."""
        return self._claim(str(thread), key, self._told(str(thread), status, record))

    def change(self, entry: Entry, *, status: str, record: Mapping[str, Any], bodies: Sequence[bytes] = ()) -> Entry:
        """Change an entry if it is as it was read, else raise `EntryMovedError`; bodies are kept in the same commit."""
        return self._change(entry, self._told(entry.thread, status, record, bodies))

    def get(self, thread: str, key: str) -> Entry | None:
        """Give the entry of a key."""
        see_text(KEY, key)
        found: Entry | None = self._read(lambda: ledger.get(self._tools(), str(thread), key))
        return found

    def entries(self, thread: str) -> list[Entry]:
        """Give every entry of a thread, in the order of their claims."""
        found: list[Entry] = self._read(lambda: ledger.entries(self._tools(), str(thread)))
        return found

    def keep(self, thread: str, data: bytes) -> str:
        """Keep a body, and give its sha256, by which it is read; one that is there already is not stored again."""
        return self._keep(str(thread), _own(str(thread), data), self._token(str(thread)))

    def body(self, thread: str, hash: str, start: int = 0, stop: int | None = None) -> bytes:  # noqa: A002  its name
        """Read a body, or the slice of it from `start` to `stop`, of which only the parts that hold it are read."""
        see_text("the hash of a body", hash)
        found: bytes = self._read(lambda: kept.body(self._tools(), str(thread), hash, start=start, stop=stop))
        return found

    def bodies(self, thread: str) -> list[BodyInfo]:
        """List the bodies that a thread keeps."""
        found: list[BodyInfo] = self._read(lambda: kept.bodies(self._tools(), str(thread)))
        return found

    async def aclaim(
        self, thread: str, key: str, record: Mapping[str, Any], *, status: str = CLAIMED
    ) -> tuple[Entry, bool]:
        """Async `claim`."""
        told = self._told(str(thread), status, record)
        return await self._database.elsewhere(lambda: self._claim(str(thread), key, told))

    async def achange(
        self, entry: Entry, *, status: str, record: Mapping[str, Any], bodies: Sequence[bytes] = ()
    ) -> Entry:
        """Async `change`."""
        told = self._told(entry.thread, status, record, bodies)
        return await self._database.elsewhere(lambda: self._change(entry, told))

    async def aget(self, thread: str, key: str) -> Entry | None:
        """Async `get`."""
        return await self._database.elsewhere(lambda: self.get(thread, key))

    async def aentries(self, thread: str) -> list[Entry]:
        """Async `entries`."""
        return await self._database.elsewhere(lambda: self.entries(thread))

    async def akeep(self, thread: str, data: bytes) -> str:
        """Async `keep`."""
        own, token = _own(str(thread), data), self._token(str(thread))
        return await self._database.elsewhere(lambda: self._keep(str(thread), own, token))

    async def abody(self, thread: str, hash: str, start: int = 0, stop: int | None = None) -> bytes:  # noqa: A002  its name
        """Async `body`."""
        return await self._database.elsewhere(lambda: self.body(thread, hash, start, stop))

    async def abodies(self, thread: str) -> list[BodyInfo]:
        """Async `bodies`."""
        return await self._database.elsewhere(lambda: self.bodies(thread))

    def _told(self, thread: str, status: str, record: Mapping[str, Any], bodies: Sequence[bytes] = ()) -> Told:
        """Take what a caller says, as it is now, and the lease of its context."""
        see_text("the status of an effect", status)
        with _saying(thread):
            own, parts = plain(record), tuple(map(as_body, bodies))
        return Told(status, own, secrets.token_bytes(MARK_BYTES), self._token(thread), parts)

    def _written(self, thread: str, operation: Callable[[ThreadMemory], Statements[T]]) -> T:
        with self._memory.hold(thread) as memory:
            return self._database.run(lambda: operation(memory))

    def _claim(self, thread: str, key: str, told: Told, like: Entry | None = None) -> tuple[Entry, bool]:
        see_text(KEY, key)
        return self._written(
            thread, lambda memory: ledger.claim(self._tools(), memory, thread, key, told=told, now=now(), like=like)
        )

    def _enter(self, entry: Entry) -> tuple[Entry, bool]:
        """Enter what another ledger has, unless its key is there."""
        return self._claim(entry.thread, entry.key, self._told(entry.thread, entry.status, entry.record), entry)

    def _change(self, entry: Entry, told: Told) -> Entry:
        return self._written(
            entry.thread, lambda memory: ledger.change(self._tools(), memory, entry, told=told, now=now())
        )

    def _keep(self, thread: str, data: bytes, token: bytes | None) -> str:
        self._written(thread, lambda memory: kept.keep(self._tools(), memory, thread, data, token=token, now=now()))
        return hash_of(data)


def _own(thread: str, data: bytes) -> bytes:
    """Take a body as it is now."""
    with _saying(thread):
        return as_body(data)


@contextmanager
def _saying(thread: str) -> Iterator[None]:
    """Name the thread in what cannot be stored of it."""
    try:
        yield
    except UnstorableValueError as error:
        error.thread = thread
        raise
