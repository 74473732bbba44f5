"""What Postgres and its driver refuse, in our words; and what another try may cure."""

from __future__ import annotations

import re
from typing import Final

from checkpointers.database import CLOSED, OPEN_AGAIN
from checkpointers.errors import BusyError, DiskFullError, ReadOnlyError, StorageError, UnreachableError

# The server goes down or comes up, or has become a replica; a pooler has forgotten what was prepared; others won.
_CURABLE: Final = ("57P01", "57P02", "57P03", "57P05", "25006", "26000", "40001", "40P01")
_CLOSED: Final = "PoolClosed"
_NO_CONNECTION: Final = "PoolTimeout"
_KINDS: Final[dict[str, type[StorageError]]] = {
    "53100": DiskFullError, "25006": ReadOnlyError, "55P03": BusyError, "40P01": BusyError, "40001": BusyError,
}  # fmt: skip
_HINTS: Final = {
    "42501": (
        "let the owner of the tables say GRANT USAGE ON SCHEMA … and GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES"
        " IN SCHEMA … to this role, or open it once as the owner"
    ),
    "57014": "nothing of this call was written; let this role's statement_timeout be longer",
}
# Who may not connect is told so before there is a session, in words alone.
_FOR_GOOD: Final = re.compile(r"does not exist|authentication failed|no pg_hba\.conf entry|is not permitted")
_NAMES: Final = "check the database, the role and the password in the address"


def may_be_cured(error: Exception) -> bool:
    """Tell what another try may cure, on another connection, from a refusal."""
    state = getattr(error, "sqlstate", None)
    if state is None:
        return type(error).__name__ != _CLOSED
    return state[:2] == "08" or state in _CURABLE


def is_without_reason(error: Exception) -> bool:
    """Tell whether a pool gave up waiting for a connection: why there was none it tells its log only."""
    return type(error).__name__ == _NO_CONNECTION


def is_for_good(error: Exception) -> bool:
    """Tell whether who could not connect may not, however long he waits."""
    return getattr(error, "sqlstate", None) is None and bool(_FOR_GOOD.search(str(error)))


def story(place: str, error: Exception) -> StorageError:
    """Tell what went wrong, and what to do next."""
    state = getattr(error, "sqlstate", None) or ""
    if state in _KINDS:
        return _KINDS[state](place, error)
    if type(error).__name__ == _CLOSED:
        return StorageError(place, CLOSED, hint=OPEN_AGAIN)
    if state in _HINTS:
        return StorageError(place, error, hint=_HINTS[state])
    if state[:2] in ("08", "57", "28", "3D") or (not state and _is_connection_error(error)):
        return UnreachableError(place, error, hint=_NAMES if is_for_good(error) else None)
    return StorageError(place, error)


def _is_connection_error(error: Exception) -> bool:
    return isinstance(error, OSError) or type(error).__name__ in ("OperationalError", _NO_CONNECTION)
