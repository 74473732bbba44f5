"""What the savers need of a database, and the words in which its refusals are told."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import resources
from itertools import count
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from checkpointers.errors import SchemaError, StorageError

if TYPE_CHECKING:
    from checkpointers.statements import Operation

T = TypeVar("T")
OTHERS: Final = (
    "check the path; what LangGraph's own savers wrote opens as langgraph+sqlite:///… and the like, or adopt() it"
)
CLOSED: Final = "the saver is closed"
OPEN_AGAIN: Final = "open it again"


class Turn(threading.local):
    """When the call that a worker thread is at was handed over: it may wait for what was before, for that was begun.

    What came later may stand in line behind it, for the very worker that it would keep waiting.
    """

    _count: ClassVar[Iterator[int]] = count()
    number: int | None = None

    def next(self) -> int:
        """Give the number of what is handed over now."""
        return next(self._count)

    def take(self, number: int, call: Callable[[], T]) -> T:
        """Make a call that was handed over under this number."""
        self.number = number
        try:
            return call()
        finally:
            self.number = None


class Database(ABC):
    """One place where checkpoints are kept; shared by every thread and event loop of the process.

    Async callers are served by worker threads of the database's own, never by an event loop, so one object works
    in every loop, in a notebook, and beside sync callers. Its `number` is its own as long as the process lives: what a
    run believes of a thread is not believed of another database that came to stand at the same address. Where it
    `looks_again`, what an operation read may be thrown away and read anew: nothing of it may be kept.
    """

    place: str
    dialect: str
    tenant: str = ""
    looks_again: bool = False
    _numbers: ClassVar[Iterator[int]] = count()

    def __init__(self, *, workers: int) -> None:
        """Allow so many async callers at a time."""
        self.number, self.turn = next(self._numbers), Turn()
        self._workers = ThreadPoolExecutor(workers, thread_name_prefix="checkpointers")

    @abstractmethod
    def run(self, operation: Operation[T]) -> T:
        """Run an operation whose requests each stand alone; safe to run again after a lost connection."""

    @abstractmethod
    def read(self, operation: Operation[T]) -> T:
        """Run an operation that only reads, in as few round trips as it has requests; others may write between two."""

    def snapshot(self, operation: Operation[T]) -> T:
        """Run an operation that only reads, all of it as the database stood at one moment."""
        return self.read(operation)

    @abstractmethod
    def exclusive(self, operation: Operation[T]) -> T:
        """Run an operation in one transaction that no other writer interleaves with."""

    @abstractmethod
    def vacuum(self, *, full: bool) -> None:
        """Give unused space back to the disk."""

    @abstractmethod
    def size(self) -> int:
        """Give the bytes on disk."""

    async def elsewhere(self, call: Callable[[], T], noted: Callable[[Future[T]], None] | None = None) -> T:
        """Run a call on a worker thread, and have it noted; a cancelled caller leaves it to finish there."""
        from asyncio import wrap_future  # noqa: PLC0415  who is async has it

        try:
            under_way = self._workers.submit(self.turn.take, self.turn.next(), call)
        except RuntimeError as error:
            raise StorageError(self.place, CLOSED, hint=OPEN_AGAIN) from error
        answer = wrap_future(under_way)
        if noted is not None:  # after: what hears last that it is done is what noted it
            noted(under_way)
        return await answer

    def close(self) -> None:
        """Let go of everything; calling it again changes nothing."""
        self._workers.shutdown(wait=False)


def check_version(place: str, version: int, dialect: str, *, read_only: bool = False) -> None:
    """Refuse tables of a version that this release cannot use, or may not bring up to date."""
    known = [number for number, _ in migrations(dialect)]
    if version > known[-1]:
        raise SchemaError(place, f"its tables are of version {version}, this release knows {known[-1]}")
    if 0 < version < known[0]:
        cause = f"its tables are of version {version}, from before the first release"
        raise SchemaError(place, cause, hint="copy it with the release that wrote it, through any LangGraph saver")
    if read_only and version < known[-1]:
        cause = f"its tables are of version {version}, and are brought up to date by who may write them"
        raise SchemaError(place, cause, hint="open it once without read_only, or: graph-agent migrate").of(version)


def migrations(dialect: str) -> list[tuple[int, str]]:
    """Give the numbered migrations of a dialect, oldest first."""
    folder = resources.files("checkpointers") / "schema"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(f".{dialect}.sql"))
    return [(int(name[:3]), (folder / name).read_text("utf-8")) for name in names]


def now() -> int:
    """Give the time in microseconds."""
    return time.time_ns() // 1_000
