"""Transactions of one SQLite connection: what many threads append at the same time is committed together.

A commit waits for the disk, and only one can be under way. Whoever gets to write takes along what waits behind it, so
eight threads need one commit where they would need eight. Each append still happens as a whole or not at all, and none
is acknowledged before it is stored; one that cannot be stored keeps no other from it.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache

from checkpointers.statements import DUPLICATE, Append, Change, Insert, Rows


@dataclass(slots=True, eq=False)
class _Waiting:
    """An append on its way: answered, or to be tried alone."""

    request: Append
    answer: Rows | None = None
    alone: bool = False


class Commits:
    """The appends that wait for the one connection that writes."""

    def __init__(self, lock: AbstractContextManager[object], writer: Callable[[], Connection]) -> None:
        """Write with a connection that only the holder of a lock uses."""
        self._lock, self._writer = lock, writer
        self._queue: deque[_Waiting] = deque()

    def append(self, request: Append) -> Rows:
        """Commit an append, together with those that wait when this one's turn comes; or find that another did it."""
        mine = _Waiting(request)
        self._queue.append(mine)
        with self._lock:
            answer = mine.answer
            if answer is None and not mine.alone:
                answer = self._together(mine)
            return self._alone(request) if answer is None else answer

    def _together(self, mine: _Waiting) -> Rows | None:
        """Commit what waits in one transaction; if that fails, each is tried by the thread that wants it."""
        group = [mine]
        while self._queue:  # others may add to it, nobody else takes away
            waiting = self._queue.popleft()
            if waiting is not mine:
                group.append(waiting)
        if len(group) == 1:
            return None
        try:
            with transaction(self._writer(), "IMMEDIATE") as writer:
                answers = [insert_all(writer, waiting.request) for waiting in group]
        except BaseException as error:
            for waiting in group:
                waiting.alone = True
            if isinstance(error, sqlite3.IntegrityError):
                return None
            raise
        for waiting, answer in zip(group, answers, strict=True):
            waiting.answer = answer
        return mine.answer

    def _alone(self, request: Append) -> Rows:
        try:
            with transaction(self._writer(), "IMMEDIATE") as writer:
                return insert_all(writer, request)
        except sqlite3.IntegrityError:
            return DUPLICATE


def insert_all(writer: sqlite3.Connection, request: Append) -> Rows:
    """Make the changes of an append inside a transaction, if its guard holds."""
    held = writer.execute(request.guard.sql, request.guard.params).fetchall()
    for change in request.changes if held else ():
        if isinstance(change, Insert):
            sql, whole = _insert_sql(change.table, change.columns, change.replace, change.shared), change.shared
        else:
            sql, whole = change.sql, isinstance(change, Change)
        writer.executemany(sql, change.rows if whole else [(held[0][0], *row) for row in change.rows])
    return held


@lru_cache(maxsize=64)
def _insert_sql(table: str, columns: tuple[str, ...], replace: bool, shared: bool) -> str:  # noqa: FBT001  a cache key
    verb = "INSERT OR REPLACE" if replace else "INSERT"
    names = columns if shared else ("thread", *columns)
    return f"{verb} INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"


class Connection(sqlite3.Connection):
    """A connection that knows who began a transaction last: an earlier one that was cut short is not theirs to end."""

    turn: object = None


@contextlib.contextmanager
def transaction(connection: Connection, kind: str) -> Iterator[Connection]:
    """Commit what happens inside, or nothing of it; and first end what another one left behind.

    A generator is closed when it is dropped: a class would leave the transaction open where an interrupt comes first in
    its `__exit__`, before it has done anything. Where one comes while a generator is left, the error keeps it for a
    while, and others have had their turn when it is closed.
    """
    mine = object()
    try:
        connection.turn = mine
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        connection.execute(f"BEGIN {kind}")
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        if connection.turn is mine and connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
