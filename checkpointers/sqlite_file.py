"""SQLite: one file, many processes; one writing connection and as many reading ones as there are readers."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args

from checkpointers.database import CLOSED, OPEN_AGAIN, OTHERS, Database, check_version, migrations, now
from checkpointers.errors import (
    NO_TABLES,
    BusyError,
    DiskFullError,
    NotADatabaseError,
    ReadOnlyError,
    StorageError,
)
from checkpointers.sqlite_commits import Commits, Connection, insert_all, transaction
from checkpointers.statements import Append, Many, Operation, Request, Rows, Together, drive

T = TypeVar("T")
Synchronous = Literal["full", "normal"]
MEMORY: Final = ":memory:"
WORKERS: Final = 32
OLDEST_SQLITE: Final = (3, 35, 0)
MOVES: Final = 8
WAL_PAGES: Final = 500
AT_ONCE: Final = 16
WAIT_FOR_WAL: Final = 60.0
FREED_PAGES_AT_A_TIME: Final = 2_000


class SqliteDatabase(Database):
    """The connections to one SQLite file."""

    dialect = "sqlite"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        timeout: float = 30.0,
        synchronous: Synchronous = "full",
        read_only: bool = False,
    ) -> None:
        """Open the file and bring its tables up to date."""
        super().__init__(workers=WORKERS)
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise StorageError("sqlite", f"SQLite {sqlite3.sqlite_version} is older than 3.35", hint="update Python")
        self.place = _path_of(path)
        if synchronous not in get_args(Synchronous):
            hint = "'full' survives the machine's crash, 'normal' that of the process"
            raise StorageError(self.place, f"synchronous is not {synchronous!r:.40}", hint=hint)
        # SQLite keeps the log beside the file that a link leads to; and a relative path is one of now.
        self._path = self.place if self.place == MEMORY else os.path.realpath(self.place)
        self._timeout, self._synchronous, self._read_only = timeout, synchronous, read_only
        self.looks_again = read_only
        self._lock, self._lending = threading.RLock(), threading.Lock()  # the first while the disk is waited for
        self._idle: list[Connection] = []
        self._all: list[Connection] = []
        self._lent: list[Connection] = []
        self._closed = False
        self._commits = Commits(self._lock, self._open_writer)
        self._rests: tuple[int, ...] | None = None
        self._file: tuple[int, int] | None = None
        self._told = _Told(self.place, self._path)
        with self._told:
            if self.place != MEMORY and not read_only:
                _create(Path(self._path))
            if self.place != MEMORY and read_only:
                self._rests = self._resting()  # then it is read as it is: SQLite makes no files beside it
            self._writer = self._connect()
            if read_only:
                self._unmoved(self._version)
            else:
                self._migrate()
            if self.place != MEMORY:
                self._file = None if read_only else _identity(self._path)  # who only reads follows the name
                self._idle.append(reader := self._connect())  # every run begins by reading
                reader.execute("SELECT 1 FROM cp_schema").fetchall()  # with this, it knows the tables

    def run(self, operation: Operation[T]) -> T:
        """Answer reads from a reading connection and each write in a transaction of its own."""
        with self._told:
            return self._unmoved(lambda: drive(operation(), self._answer))

    def read(self, operation: Operation[T]) -> T:
        """Read from one snapshot, which costs nothing here."""
        with self._told:
            return self._unmoved(lambda: self._read(operation))

    def _read(self, operation: Operation[T]) -> T:
        with self._reader() as connection, transaction(connection, "DEFERRED"):
            return drive(operation(), lambda request: _execute(connection, request))

    def _unmoved(self, look: Callable[[], T]) -> T:
        """Read; where a file at rest began to be written meanwhile, read again as beside a writer.

        What was read, or was found wrong, counts only if the file did not move: half of it may be of before.
        """
        if not self._read_only:
            return look()
        for _ in range(MOVES):
            self._follow()
            rests = self._rests
            try:
                found = look()
            except Exception:
                if rests is None or rests == self._resting():
                    raise
                continue
            if rests is None or rests == self._resting():
                return found
        self._open_anew(None)
        return look()

    def _follow(self) -> None:
        """Open the file anew if it came to rest, or to be written, since it was opened."""
        with self._lock:
            self._open_writer()
            if self._rests is not None and self._rests != (rests := self._resting()):
                self._open_anew(rests)

    def _open_anew(self, rests: tuple[int, ...] | None) -> None:
        with self._lock:
            if self._rests == rests:
                return
            with self._lending:
                for connection in {self._writer, *self._idle}:
                    connection.close()
                self._idle, self._all, self._rests = [], [], rests
                self._writer = self._connect()

    def _resting(self) -> tuple[int, ...] | None:
        """Tell how a file stands that nobody writes; None if somebody may: the log beside it has something in it."""
        with contextlib.suppress(FileNotFoundError):
            if os.stat(self._path + "-wal").st_size:  # noqa: PTH116
                return None
        found = os.stat(self._path)  # noqa: PTH116  the same path that SQLite is given
        return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def exclusive(self, operation: Operation[T]) -> T:
        """Hold the write lock of the file from the first statement to the commit."""
        with self._told, self._lock, transaction(self._open_writer(), "IMMEDIATE"):
            return drive(operation(), lambda request: _execute(self._writer, request))

    def vacuum(self, *, full: bool = False) -> None:
        """Give free pages back in small steps that writers can slip between; `full` rebuilds the file."""
        with self._told:
            if full:
                with self._lock:
                    self._open_writer().execute("VACUUM")
            while not full and self._free_some():
                pass
            with self._lock:
                self._open_writer().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def size(self) -> int:
        """Give the bytes of the file and its write-ahead log."""
        if self.place == MEMORY:
            with self._lock:
                writer = self._open_writer()
                pages, size = (writer.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
                return int(pages * size)
        files = (Path(self._path + suffix) for suffix in ("", "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def close(self) -> None:
        """Close every connection; one that another thread is reading from is closed by that thread, when it has read.

        SQLite crashes the process where a statement goes on that was closed.
        """
        super().close()
        with self._lock, self._lending:
            self._closed = True
            for connection in self._all:
                if connection not in self._lent:
                    connection.close()
            self._all.clear()
            self._idle.clear()

    def __del__(self) -> None:
        """Close what a caller forgot to."""
        with contextlib.suppress(Exception):
            self.close()

    def _free_some(self) -> bool:
        with self._lock:
            writer = self._open_writer()
            before = int(writer.execute("PRAGMA freelist_count").fetchone()[0])
            writer.execute(f"PRAGMA incremental_vacuum({FREED_PAGES_AT_A_TIME})").fetchall()
            return 0 < int(writer.execute("PRAGMA freelist_count").fetchone()[0]) < before

    def _connect(self) -> Connection:
        mode = ("?mode=ro&immutable=1" if self._rests else "?mode=ro") if self._read_only else "?mode=rw"
        uri = "file:" + _quoted(self._path) + mode
        connection = sqlite3.connect(
            MEMORY if self.place == MEMORY else uri,
            uri=self.place != MEMORY,
            timeout=self._timeout,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            factory=Connection,
        )
        self._all.append(connection)
        connection.text_factory = _text
        connection.create_function("cp_clock", 0, now)
        connection.execute(f"PRAGMA synchronous={self._synchronous}")
        connection.execute(f"PRAGMA wal_autocheckpoint={WAL_PAGES}")
        connection.execute("PRAGMA secure_delete=FAST")
        return connection

    @contextlib.contextmanager
    def _reader(self) -> Iterator[Connection]:
        """Lend a connection that no other thread is using; an in-memory database has only one."""
        if self.place == MEMORY:
            with self._lock:
                yield self._open_writer()
            return
        with self._lending:
            self._open_writer()
            connection = self._idle.pop() if self._idle else self._connect()
            self._lent.append(connection)
        try:
            yield connection
        finally:
            with self._lending:
                self._lent.remove(connection)
                if self._closed or connection not in self._all:
                    connection.close()
                else:
                    self._idle.append(connection)

    def _open_writer(self) -> Connection:
        if self._closed:
            raise StorageError(self.place, CLOSED, hint=OPEN_AGAIN)
        if self._file is not None and self._file != _identity(self._path):
            raise StorageError(self.place, "the file was deleted or replaced while it was open", hint=OPEN_AGAIN)
        return self._writer

    def _answer(self, request: Request) -> Rows:
        if isinstance(request, Append):
            return self._commits.append(request)
        if isinstance(request, Many) and request.writes:
            with self._lock, transaction(self._open_writer(), "IMMEDIATE"):
                return _execute(self._writer, request)
        with self._reader() as connection:
            return _execute(connection, request)

    def _migrate(self) -> None:
        known = migrations(self.dialect)
        writer = self._writer
        _switch_to_wal(writer)
        with transaction(writer, "IMMEDIATE"):
            writer.execute("CREATE TABLE IF NOT EXISTS cp_schema (version INTEGER PRIMARY KEY)")
            done = self._version()
            for version, script in known:
                if version > done:
                    for statement in filter(str.strip, script.split(";\n")):
                        writer.execute(statement)
                    writer.execute("INSERT INTO cp_schema VALUES (?)", (version,))

    def _version(self) -> int:
        try:
            (version,) = self._writer.execute("SELECT coalesce(max(version), 0) FROM cp_schema").fetchone()
        except sqlite3.OperationalError as error:
            if "no such table" not in str(error):
                raise
            raise NotADatabaseError(self.place, NO_TABLES, hint=OTHERS) from error
        check_version(self.place, int(version), self.dialect, read_only=self._read_only)
        return int(version)


class _Told:
    """Translates what SQLite says, at the one door: every call goes through it, and a generator would take longer."""

    __slots__ = ("_log", "_place")

    def __init__(self, place: str, path: str) -> None:
        """Speak of a file."""
        self._place, self._log = place, path + "-wal"

    def __enter__(self) -> None:
        """Listen."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Tell what went wrong in our words, if it was the database or its file."""
        if isinstance(error, sqlite3.Error):
            raise _translated(self._place, error, log=os.path.exists(self._log)) from error  # noqa: PTH110  any name
        if isinstance(error, OSError):
            hint = "check the path and its folder"
            raise StorageError(self._place, error.strerror or error, hint=hint) from error
        if isinstance(error, UnicodeDecodeError):  # what it says repeats a text of the file that is damaged
            raise NotADatabaseError(self._place, f"what SQLite says of it is no text: {error.object!r:.200}") from error


def _execute(connection: sqlite3.Connection, request: Request) -> Rows:
    if isinstance(request, Append):
        return insert_all(connection, request)
    if isinstance(request, Together):
        return [_execute(connection, one) for one in request.statements]
    if isinstance(request, Many):
        return _execute_many(connection, request)
    return connection.execute(request.sql, request.params).fetchall()


def _execute_many(connection: sqlite3.Connection, request: Many) -> Rows:
    """Run a statement for each parameter row; so many of a query as one, which is quicker once it is prepared."""
    found, done = list[Any](), 0
    while not request.writes and len(request.params) - done >= AT_ONCE:
        some, done = request.params[done : done + AT_ONCE], done + AT_ONCE
        found += connection.execute(" UNION ALL ".join([request.sql] * AT_ONCE), [*chain.from_iterable(some)])
    for params in request.params[done:]:
        found += connection.execute(request.sql, params)
    return found


def _text(raw: bytes) -> str:
    """Give a text, of which we write none: bytes that one bit made a text of need not be one, and are met as damage."""
    return raw.decode(errors="replace")


def _path_of(path: object) -> str:
    if not isinstance(path, str | bytes | os.PathLike) or b"\0" in os.fsencode(path):
        hint = "give the path of a file, or ':memory:'"
        raise StorageError("sqlite", f"{path!r:.80} is no path", hint=hint)
    return os.fsdecode(path)


def _identity(path: str) -> tuple[int, int] | None:
    """Tell one file from another that stands under the same name."""
    with contextlib.suppress(FileNotFoundError):
        found = os.stat(path)  # noqa: PTH116  at every call
        return found.st_dev, found.st_ino
    return None


def _create(path: Path) -> None:
    """Make the file for its owner alone before SQLite would make it for everyone."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """Turn the write-ahead log on; SQLite does not wait by itself while another process is doing the same."""
    give_up = time.monotonic() + WAIT_FOR_WAL
    while True:
        try:
            if connection.execute("PRAGMA page_count").fetchone()[0] == 0:
                connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
            connection.execute("PRAGMA journal_mode=WAL").fetchall()
        except sqlite3.OperationalError as error:
            if _code(error) not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) or time.monotonic() > give_up:
                raise
            time.sleep(0.02)
        else:
            return


def _quoted(path: str) -> str:
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _code(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _translated(place: str, error: sqlite3.Error, *, log: bool) -> StorageError:
    kinds: dict[int, type[StorageError]] = {
        sqlite3.SQLITE_BUSY: BusyError,
        sqlite3.SQLITE_LOCKED: BusyError,
        sqlite3.SQLITE_FULL: DiskFullError,
        sqlite3.SQLITE_IOERR: DiskFullError,
        sqlite3.SQLITE_READONLY: ReadOnlyError,
        sqlite3.SQLITE_NOTADB: NotADatabaseError,
        sqlite3.SQLITE_CORRUPT: NotADatabaseError,
    }
    code = _code(error)
    if code == sqlite3.SQLITE_IOERR and "WRITE" not in getattr(error, "sqlite_errorname", ""):
        return StorageError(place, error, hint="check the disk; what was acknowledged is stored")
    if code == sqlite3.SQLITE_CANTOPEN:
        if log:
            hint = "a log stands beside it, which can only be read where its folder may be written: open it there once"
            return StorageError(place, error, hint=hint)
        return StorageError(place, error, hint="check that the path and its folder exist and may be used")
    return kinds.get(code, StorageError)(place, error)
