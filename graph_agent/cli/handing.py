"""Commands that hand a thread on, and take one in: export, import."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import mkstemp
from typing import Annotated, Any, Literal

import typer

from graph_agent.cli import desk, paper
from graph_agent.cli.desk import Address, Db, Json
from graph_agent.settings import database

Form = Literal["json", "markdown", "html", "python"]


def export(
    address: Address, db: Db = desk.DEFAULT_DB,
    to: Annotated[Form, typer.Option(help="python makes the state of one step again, the others tell all.")] = "json",
    out: Annotated[Path | None, typer.Option(help="A new file, for its owner alone; else it is printed.")] = None,
    redact: Annotated[bool, typer.Option("--redact/--no-redact", help="Leave out what looks like a secret.")] = True,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
) -> None:  # fmt: skip
    """Hand a thread on as JSON, Markdown, one HTML file, or Python; `import` takes JSON."""
    ((history, step),) = desk.places(db, address, agents=to == "html")
    text = history.export(to, redact=redact, step=step.number)
    if out is None:
        print(text.removesuffix("\n"))
    else:
        _save(text, out, force=force)
    if redact:
        paper.say("what looks like a secret was left out; --no-redact keeps it")


def _save(text: str, out: Path, *, force: bool) -> None:
    """Write a file that only its owner may read; one that is there stays whole, unless it is to go."""
    handle, name = mkstemp(dir=out.parent, prefix=f".{out.name}.") if force else (_new(out), str(out))
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        if force:
            Path(name).replace(out)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _new(out: Path) -> int:
    try:
        return os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise FileExistsError(f"{out}: it exists, and stays as it is; --force writes over it") from error


def import_(
    file: Annotated[str, typer.Argument(help="What `export` wrote; - is the standard input.")],
    thread: Annotated[str | None, typer.Option("--thread", help="Another name, that is free.")] = None,
    without_ledger: Annotated[
        bool, typer.Option("--without-ledger", help="Also a thread with effects that may be made again.")
    ] = False,
    db: Db = desk.DEFAULT_DB, as_json: Json = False,
) -> None:  # fmt: skip
    """Take in a thread that was exported as JSON; under its name or another that is free."""
    from checkpointers import open_saver
    from checkpointers.documents import read_document
    from checkpointers.errors import HistoryError
    from checkpointers.importing import import_thread

    try:
        document = read_document(sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8"))
    except (HistoryError, UnicodeDecodeError) as error:
        raise HistoryError(f"{file}: {error}") from error
    opened: Any = open_saver(database(db))
    with opened as saver:
        name = import_thread(saver, document, thread=thread, without_ledger=without_ledger)
    if as_json:
        paper.emit({"thread": name})
    else:
        print(paper.line(name))
