"""The commands put together; nothing heavy is loaded before one of them needs it."""

from __future__ import annotations

import io
import logging
import sys
import traceback
from collections.abc import Callable
from typing import Any, Final

import typer

from checkpointers.errors import CheckpointerError
from graph_agent import errors
from graph_agent.cli import (
    codes,
    comparing,
    desk,
    doing,
    following,
    handing,
    keeping,
    listing,
    looking,
    mending,
    paper,
    reviewing,
)
from graph_agent.cli.typed import Typed, TypedGroup

HELP = """Git for agent threads: list them, look into every step, run and resume them, keep their databases sound.

Exit codes: 0 done · 1 failed · 2 usage · 3 not found · 4 conflict · 5 waits for a person · 6 damaged · 7 limit reached · 130 interrupted.
"""  # noqa: E501  a table
PANELS: Final[dict[str, tuple[Callable[..., None], ...]]] = {
    "Look": (listing.threads, listing.log, looking.show, comparing.diff, looking.blame, looking.bisect, looking.grep,
             comparing.compare, looking.stats, looking.context, following.tail, listing.ledger, listing.du,
             listing.fsck),
    "Do": (doing.run, doing.resume, doing.fork, doing.replay, doing.undo, doing.tools, doing.demo),
    "Keep": (handing.export, handing.import_, keeping.retain, keeping.prune, keeping.copy, keeping.delete,
             mending.recover, mending.adopt, mending.migrate, mending.vacuum, mending.doctor),
}  # fmt: skip
REVIEW: Final = (
    reviewing.list_,
    reviewing.show,
    reviewing.approve,
    reviewing.edit,
    reviewing.reject,
    reviewing.respond,
)
UNPAGED: Final = (following.tail, looking.bisect)  # they print as they go
ANYWHERE: Final = ("--debug", "--no-pager")


class Reviews(TypedGroup):
    """The commands of `review`; a bare thread is listed."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take `review THREAD` for `review list THREAD`."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["list", *args]
        return super().parse_args(ctx, args)


def application(wanted: str = "") -> typer.Typer:
    """Make the application; of one that is asked for a command, nothing but that."""
    app = typer.Typer(
        cls=TypedGroup, help=HELP, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None
    )
    app.callback()(_common)
    every = {name_of(command) for commands in PANELS.values() for command in commands}
    for panel, commands in PANELS.items():
        for command in commands:
            if wanted in every and wanted != name_of(command):
                continue
            _add(app, command, paged=panel == "Look" and command not in UNPAGED)
    if wanted in every:
        return app
    about = "See what a person is asked, and answer"
    reviews = typer.Typer(
        cls=Reviews, help=f"{about}; a bare thread is listed.", no_args_is_help=True, rich_markup_mode=None
    )
    for command in REVIEW:
        _add(reviews, command, paged=command in (reviewing.list_, reviewing.show))
    app.add_typer(reviews, name="review", short_help=f"{about}.")
    return app


def name_of(command: Callable[..., Any]) -> str:
    """Give the name by which a command is called."""
    return command.__name__.rstrip("_")


def _add(app: typer.Typer, command: Callable[..., Any], *, paged: bool) -> None:
    short = (command.__doc__ or "").splitlines()[0].partition(";")[0].rstrip(".") + "."
    app.command(name_of(command), cls=Typed, short_help=short)(paper.readable(command, paged=paged))


def _version(wanted: bool) -> None:
    if wanted:
        print(f"graph-agent {mending.installed('graph-agent')}")
        raise typer.Exit


def _common(
    debug: bool = typer.Option(False, "--debug", help="Show the trace of an error."),
    no_pager: bool = typer.Option(False, "--no-pager", help="Print it all, also on a terminal; else PAGER is used."),
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Say which release it is."),
) -> None:
    del debug, no_pager, version  # read before anything else could fail


def main(arguments: list[str] | None = None) -> int:
    """Run a command and give its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    end = given.index("--") if "--" in given else len(given)
    said = {flag for flag in ANYWHERE if flag in given[:end]}
    given = [one for place, one in enumerate(given) if place >= end or one not in ANYWHERE]
    logging.getLogger("psycopg").addHandler(logging.NullHandler())  # what it says of a lost server is in our error
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that knows few letters is shown the others so

    def run() -> Any:
        try:
            with paper.pager(off="--no-pager" in said):
                application(given[0] if given else "")(given, prog_name="graph-agent")
        except SystemExit as stop:
            return stop.code

    return _guarded(run, debug="--debug" in said)


def _guarded(run: Callable[[], Any], *, debug: bool) -> int:
    """Run a command; an error is one line and a code, with `debug` its trace before them."""
    try:
        code = run()
        return code if isinstance(code, int) else codes.OK
    except Exception as error:  # noqa: BLE001  whatever it is, it is told
        if debug:
            paper.say(traceback.format_exc().rstrip())
        known = isinstance(error, CheckpointerError | errors.GraphAgentError | ValueError | OSError)
        kind = "" if known else f"{type(error).__name__}: "
        more = "" if known else "; --debug shows where"
        paper.say(f"graph-agent: {kind}{' '.join(str(error).split())}{more}")
        return codes.code_of(error)
    except KeyboardInterrupt:
        paper.say("graph-agent: interrupted")
        return codes.STOPPED
    finally:
        desk.AT_THE_END.close()
