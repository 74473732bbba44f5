"""What an operation says to a database: statements, and the generator that sends them.

An operation is a generator. It yields a request, is sent the rows, and returns its answer; it never sees a
connection. So each is written once, runs on every database, and can be stopped before any request by a test.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")
Row = Sequence[Any]


class Statement(NamedTuple):
    """One SQL statement with `?` placeholders; answered with its rows."""

    sql: str
    params: Sequence[Any] = ()


class Many(NamedTuple):
    """One SQL statement run for each parameter row, in one round trip; answered with all rows, in order."""

    sql: str
    params: Sequence[Sequence[Any]]
    writes: bool = False


class Together(NamedTuple):
    """Several requests that read, in one round trip; answered with the rows of each."""

    statements: Sequence[Statement | Many]


class Insert(NamedTuple):
    """Rows for one table; its column `thread` is not among them: the guard of the append supplies it.

    A table that is `shared` has none: its rows are of the whole database.
    """

    table: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[Any]]
    replace: bool = False
    shared: bool = False


class Delete(NamedTuple):
    """A statement that removes rows, for each parameter row; its first placeholder is the thread, as for inserts."""

    sql: str
    rows: Sequence[Sequence[Any]]


class Change(NamedTuple):
    """A statement with a `WHERE`, run for each parameter row; rare ones, and few rows."""

    sql: str
    rows: Sequence[Sequence[Any]]


class Append(NamedTuple):
    """A guarded write: all changes happen in one commit with the guard, or nothing does.

    The guard is a statement that returns the thread's key if it still stands where the caller believed it
    (compare and set on its stamp) and no row otherwise. Answered with `((key,),)`, `()` when the guard did not
    hold, or `DUPLICATE` when one of the rows is stored already.
    """

    guard: Statement
    changes: Sequence[Insert | Delete | Change]


DUPLICATE: tuple[Row, ...] = (("duplicate",),)

Request = Statement | Many | Together | Append
Rows = Sequence[Row]
Statements = Generator[Request, Rows, T]
Operation = Callable[[], Statements[T]]


def drive(statements: Statements[T], answer: Callable[[Request], Rows]) -> T:
    """Run an operation to its end, with `answer` executing each request."""
    try:
        request = next(statements)
        while True:
            try:
                rows = answer(request)
            except BaseException as error:  # noqa: BLE001  the operation sees it first
                request = statements.throw(error)
            else:
                request = statements.send(rows)
    except StopIteration as end:
        value: T = end.value
        return value
    finally:
        statements.close()
