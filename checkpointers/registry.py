"""Savers by address: ours, the official ones, and those that other packages register."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from checkpointers.errors import MissingDriverError, UnknownSchemeError
from checkpointers.places import file_of, scheme_of

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver

    AnySaver: TypeAlias = BaseCheckpointSaver[Any]

GROUP: Final = "checkpointers.backends"


def open_saver(url: str, **options: Any) -> AnySaver:
    """Open the saver of an address.

    `sqlite:///relative.db` and `sqlite:////absolute.db` · `postgresql://user@host/name` · `memory://` ·
    `langgraph+sqlite:///…` and `langgraph+postgresql://…` for the official savers · any scheme that an installed
    package registers under the entry point group `checkpointers.backends` as a function of the address.
    """
    scheme = scheme_of(url)
    opener = _OPENERS.get(scheme) or _registered(scheme)
    if opener is None:
        known = ", ".join(sorted({*_OPENERS, *(entry.name for entry in entry_points(group=GROUP))}))
        msg = (
            f"no saver serves {scheme}:// addresses; there are {known}. A package can add its own with the entry point"
            f" group {GROUP}; is one to be installed?"
        )
        raise UnknownSchemeError(msg)
    return opener(url, **options)


def _registered(scheme: str) -> Callable[..., AnySaver] | None:
    for entry in entry_points(group=GROUP, name=scheme):
        try:
            loaded: Callable[..., AnySaver] = entry.load()
        except ImportError as error:
            package = entry.dist.name if entry.dist else entry.value
            msg = f"{scheme}:// is served by {package}, which does not load: {error}; install what it needs"
            raise MissingDriverError(msg) from error
        return loaded
    return None


def _sqlite(url: str, **options: Any) -> AnySaver:
    from checkpointers.sqlite import SqliteSaver  # noqa: PLC0415  loaded when used

    return SqliteSaver.open(file_of(url), **options)


def _memory(url: str, **options: Any) -> AnySaver:
    from checkpointers.sqlite import SqliteSaver  # noqa: PLC0415

    del url
    return SqliteSaver.open(":memory:", **options)


def _postgres(url: str, **options: Any) -> AnySaver:
    from checkpointers.postgres import PostgresSaver  # noqa: PLC0415

    return PostgresSaver.open(url, **options)


def _official_sqlite(url: str, **options: Any) -> AnySaver:
    from checkpointers.official import OfficialSqlite  # noqa: PLC0415

    return OfficialSqlite.open(file_of(url), **options)


def _official_postgres(url: str, **options: Any) -> AnySaver:
    try:
        from checkpointers.official_postgres import OfficialPostgres  # noqa: PLC0415
    except ImportError as error:
        msg = f"Postgres needs psycopg ({error}); install it with: pip install 'psycopg[binary,pool]'"
        raise MissingDriverError(msg) from error
    return OfficialPostgres.open(url.removeprefix("langgraph+"), **options)


_OPENERS: Final[dict[str, Callable[..., AnySaver]]] = {
    "sqlite": _sqlite,
    "postgresql": _postgres,
    "postgres": _postgres,
    "memory": _memory,
    "langgraph+sqlite": _official_sqlite,
    "langgraph+postgresql": _official_postgres,
    "langgraph+postgres": _official_postgres,
}
