"""What went wrong as an exit code, by its kind."""

from __future__ import annotations

from typing import Final

from checkpointers.errors import (
    NO_TABLES,
    EntryMovedError,
    HeadMovedError,
    IntegrityError,
    LeaseLostError,
    MissingBodyError,
    NotADatabaseError,
    ThreadBusyError,
    ThreadExistsError,
    UnknownPathError,
    UnknownStepError,
    UnknownThreadError,
)
from graph_agent import errors

OK, FAILED, USAGE, NOT_FOUND, CONFLICT, WAITING, DAMAGED, SPENT, STOPPED = 0, 1, 2, 3, 4, 5, 6, 7, 130


class NoSuchDatabaseError(NotADatabaseError):
    """There is no file, or no such database on the server."""

    hint = "pass --db, or set GRAPH_AGENT_DB"


CODES: Final[tuple[tuple[tuple[type[BaseException], ...], int], ...]] = (
    (
        (UnknownThreadError, UnknownStepError, UnknownPathError, MissingBodyError, errors.UnknownThreadError,
         errors.UnknownReviewError, NoSuchDatabaseError, FileNotFoundError), NOT_FOUND,
    ),
    (
        (ThreadBusyError, LeaseLostError, HeadMovedError, EntryMovedError, ThreadExistsError, errors.ThreadError,
         errors.ReviewError, FileExistsError), CONFLICT,
    ),
    ((IntegrityError,), DAMAGED),
    ((errors.BudgetSpentError, errors.ExpiredThreadError), SPENT),
)  # fmt: skip


def code_of(error: BaseException) -> int:
    """Give the exit code that tells what kind of error it was."""
    if type(error) is NotADatabaseError and error.cause != NO_TABLES:
        return DAMAGED
    return next((code for kinds, code in CODES if isinstance(error, kinds)), FAILED)
