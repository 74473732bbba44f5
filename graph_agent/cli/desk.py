"""What every command needs: the database, the output, and errors as one line with an exit code."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from checkpointers.errors import (
    CheckpointerError,
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
from checkpointers.places import file_of
from graph_agent import errors

if TYPE_CHECKING:
    from checkpointers import History, Saver
    from checkpointers.reader import Reader
    from graph_agent.agent import Agent

OK, FAILED, USAGE, NOT_FOUND, CONFLICT, WAITING, DAMAGED, SPENT, STOPPED = 0, 1, 2, 3, 4, 5, 6, 7, 130
SCHEMA: Final = 1
DEFAULT_DB: Final = "agent.db"
OURS: Final = ("sqlite:", "postgresql:", "postgres:")
PATIENCE: Final = 10.0
CODES: Final[tuple[tuple[tuple[type[BaseException], ...], int], ...]] = (
    (
        (UnknownThreadError, UnknownStepError, UnknownPathError, MissingBodyError, errors.UnknownThreadError,
         errors.UnknownReviewError), NOT_FOUND,
    ),
    (
        (ThreadBusyError, LeaseLostError, HeadMovedError, EntryMovedError, ThreadExistsError, errors.ThreadError,
         errors.ReviewError), CONFLICT,
    ),
    ((IntegrityError,), DAMAGED),
    ((errors.BudgetSpentError, errors.ExpiredThreadError), SPENT),
)  # fmt: skip
Db = Annotated[
    str,
    typer.Option(
        "--db", envvar="GRAPH_AGENT_DB", help="The database: an address such as sqlite:///agent.db, or a file."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, or one for each line.")]
App = Annotated[str, typer.Option("--app", envvar="GRAPH_AGENT_APP", help="Where the agent is: module:name.")]
Thread = Annotated[str, typer.Argument(help="The name of a thread.")]
Address = Annotated[str, typer.Argument(help="A step: THREAD@N, THREAD@-1, or THREAD@ and the beginning of an id.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it; without this it only says what it would do.")]
_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def address_of(db: str) -> str:
    """Give the address of a database that may be written as a file's name."""
    return db if "://" in db else f"sqlite:///{db}"


def existing(db: str) -> str:
    """Give the address of a database that is there: nothing is created by asking for it."""
    url = address_of(db)
    if url.startswith(("sqlite:", "langgraph+sqlite:")) and not Path(file_of(url)).exists():
        raise NotADatabaseError(file_of(url), "there is no such file", hint="pass --db, or set GRAPH_AGENT_DB")
    return url


def is_ours(db: str) -> bool:
    """Tell whether a database is read without its saver."""
    return address_of(db).startswith(OURS)


def reader(db: str) -> Reader:
    """Open a database to list what is in it."""
    from checkpointers.reader import open_reader

    return open_reader(existing(db), timeout=PATIENCE)


def saver(db: str) -> Any:
    """Open the saver of a database to read it."""
    from checkpointers import open_saver

    own: dict[str, Any] = {"read_only": True, "timeout": PATIENCE} if is_ours(db) else {}
    return open_saver(existing(db), **own)


def ours(db: str, *, write: bool = True, create: bool = False) -> Saver:
    """Open a saver of ours to change what is in it."""
    from checkpointers import Saver, open_saver

    own: dict[str, Any] = {"read_only": not write, "timeout": PATIENCE} if is_ours(db) else {}
    found = open_saver(address_of(db) if create else existing(db), **own)
    if not isinstance(found, Saver):
        raise CheckpointerError(f"{db} is a database of other savers; take it over first: graph-agent adopt")
    return found


def history(db: str, address: str) -> tuple[History, str]:
    """Give the history that an address is of, and the address."""
    from checkpointers import History

    thread = address.rpartition("@")[0] or address
    return History(saver(db), thread), address if "@" in address else f"{address}@-1"


def agent(app: str) -> Agent:
    """Load the agent that `module:name` names; a function makes it."""
    from importlib import import_module

    module, _, name = app.partition(":")
    if not name:
        raise errors.SetupError("which agent? pass --app module:name, or set GRAPH_AGENT_APP")
    sys.path.insert(0, os.getcwd())  # noqa: PTH109  a text is what the path takes
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise errors.SetupError(f"--app {app}: {error}") from error
    return found() if callable(found) and not hasattr(found, "resume") else found  # type: ignore[no-any-return]


def code_of(error: BaseException) -> int:
    """Give the exit code that tells what kind of error it was."""
    return next((code for kinds, code in CODES if isinstance(error, kinds)), FAILED)


def clean(text: Any) -> str:
    """Make a text fit for a terminal: what would move the cursor, colour, or turn a line around becomes visible."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), str(text))


def say(text: str) -> None:
    """Tell the person something that is not the data."""
    print(clean(text), file=sys.stderr)


def emit(data: Any) -> None:
    """Print one JSON document."""
    print(json.dumps({"schema": SCHEMA, "data": data}, default=_plain, ensure_ascii=True))


def stream(rows: Iterable[Any]) -> None:
    """Print one JSON document for each line."""
    for row in rows:
        print(json.dumps(row, default=_plain, ensure_ascii=True))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, bytes):
        return value.hex()
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    return list(value) if isinstance(value, set | frozenset | tuple) else repr(value)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table: for a person with columns that line up, for a pipe with tabs and nothing cut."""
    cells = [[clean(cell).replace("\n", " ") for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for row in [list(columns), *cells]:
            print("\t".join(cell.replace("\t", " ") for cell in row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(*columns, box=None, header_style="bold", pad_edge=False)
    for row in cells:
        shown.add_row(*map(Text, row))
    Console().print(shown)


def ago(moment: datetime) -> str:
    """Say how long ago something was, in one unit."""
    seconds = max(0.0, (datetime.now(UTC) - moment).total_seconds())
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def size(count: int) -> str:
    """Say how many bytes something is."""
    amount = float(count)
    for unit in ("B", "kB", "MB"):
        if amount < 1_000:  # noqa: PLR2004  the next unit
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1_000
    return f"{amount:.1f} GB"


def guarded(run: Callable[[], Any], *, debug: bool) -> int:
    """Run a command; an error is one line and a code, with `debug` its trace too."""
    try:
        code = run()
        return code if isinstance(code, int) else OK
    except (CheckpointerError, errors.GraphAgentError, ValueError, OSError) as error:
        if debug:
            raise
        say(f"graph-agent: {' '.join(str(error).split())}")
        return code_of(error)
    except KeyboardInterrupt:
        say("graph-agent: interrupted")
        return STOPPED
