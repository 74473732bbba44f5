"""What commands print: data on stdout, words on stderr; tables, JSON, a pager where somebody sits at a terminal."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import wraps
from typing import Any, Final

import typer

from checkpointers.show.text import visible

SCHEMA: Final = 1
PAGERS: Final = "less"
WHOLE: Final = ("REVIEW", "STATUS", "AT", "WRITTEN", "SIZE", "SOURCE")  # columns that no line may break
_LINE: Final = str.maketrans({"\n": "␊", "\t": "␉"})


def clean(text: Any) -> str:
    """Make a text fit for a terminal: what would move the cursor, colour, or turn a line around becomes visible."""
    return visible(str(text))


def line(text: Any) -> str:
    """Make a text fit for one line, or one cell of a table."""
    return clean(text).translate(_LINE)


def say(text: str) -> None:
    """Tell the person something that is not the data."""
    print(clean(text), file=sys.stderr)


def told(data: Any) -> Any:
    """Give values of anybody's as JSON has them; what has no form there says its type and its text."""
    from checkpointers.plain import as_json

    return as_json(data)


def emit(data: Any) -> None:
    """Print one JSON document."""
    _write({"schema": SCHEMA, "data": data})


def answer(text: Any, *, as_json: bool, **data: Any) -> None:
    """Print what came of a command, in a line or as JSON."""
    if as_json:
        emit(data)
    else:
        print(line(text))


def stream(rows: Iterable[Any]) -> None:
    """Print one JSON document for each line."""
    for row in rows:
        _write(row)


def _write(data: Any) -> None:
    text = json.dumps(data, default=_plain, ensure_ascii=True, allow_nan=False)
    print(text.replace("\x7f", "\\u007f"), flush=not sys.stdout.isatty())


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return dict(value) if isinstance(value, Mapping) else told(value)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table: for a person columns that line up, without the empty ones; for a pipe tabs, and all."""
    cells = [[line(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for row in [list(columns), *cells]:
            print("\t".join(row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, header_style="bold", pad_edge=False)
    said = [place for place in range(len(columns)) if not cells or any(row[place] for row in cells)]
    for place in said:
        shown.add_column(columns[place], overflow="fold", no_wrap=columns[place] in WHOLE)
    for row in cells:
        shown.add_row(*(Text(row[place]) for place in said))
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


class Pager(io.TextIOBase):
    """A terminal's stdout that is handed to a pager as soon as it has more than the terminal shows at once."""

    def __init__(self, terminal: Any, command: Sequence[str]) -> None:
        """Hold back what is printed until it is known whether it fits."""
        self._terminal, self._command = terminal, command
        self._held: list[str] = []
        self._columns, self._room = shutil.get_terminal_size()
        self._pager: subprocess.Popen[str] | None = None

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The terminal's."""
        return str(self._terminal.encoding)

    def isatty(self) -> bool:
        """It is one: tables line up."""
        return True

    def write(self, text: str) -> int:
        """Hold it back, or hand it on; what a person has no wish to see any more goes nowhere."""
        if self._pager is not None:
            with suppress(BrokenPipeError):
                self._pager.stdin.write(text)  # type: ignore[union-attr]
            return len(text)
        self._held.append(text)
        self._room -= sum(len(one) // self._columns + one.endswith("\n") for one in text.splitlines(keepends=True))
        if self._room <= 1:
            environment = {"LESS": "FRX", **os.environ}
            self._pager = subprocess.Popen(self._command, stdin=subprocess.PIPE, text=True, env=environment)  # noqa: S603  the user's own choice
            with suppress(BrokenPipeError):
                self._let_go(self._pager.stdin)
        return len(text)

    def end(self) -> None:
        """Print what was held back, or wait for the person to close the pager."""
        if self._pager is None:
            self._let_go(self._terminal)
            return
        try:
            self._pager.communicate()
        except KeyboardInterrupt:  # it is the pager's
            self._pager.wait()

    def _let_go(self, where: Any) -> None:
        held, self._held = "".join(self._held), []
        where.write(held)
        where.flush()


_pager_off: ContextVar[bool] = ContextVar("pager_off", default=False)


@contextmanager
def pager(*, off: bool) -> Iterator[None]:
    """Say whether there may be a pager."""
    token = _pager_off.set(off)
    try:
        yield
    finally:
        _pager_off.reset(token)


@contextmanager
def _paged() -> Iterator[None]:
    """Send what is printed through the person's pager, where there is a terminal, a pager and enough to read."""
    command = shlex.split(os.environ.get("PAGER", PAGERS))
    stdout = sys.stdout
    plain = _pager_off.get() or not stdout.isatty() or command[:1] in ([], ["cat"])
    if plain or shutil.which(command[0]) is None:
        yield
        return
    held = Pager(stdout, command)
    sys.stdout = held
    try:
        yield
    finally:
        sys.stdout = stdout
        held.end()


def readable(command: Callable[..., Any], *, paged: bool) -> Callable[..., Any]:
    """Give a command that minds who reads it: a pager for a person, and a reader that goes away is no error."""

    @wraps(command)
    def run(*args: Any, **options: Any) -> Any:
        try:
            if not paged:
                return _flushed(command, *args, **options)
            with _paged():
                return _flushed(command, *args, **options)
        except BrokenPipeError as gone:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            raise typer.Exit from gone

    return run


def _flushed(command: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
    try:
        return command(*args, **options)
    finally:
        sys.stdout.flush()
