"""The commands put together; nothing heavy is loaded before one of them needs it."""

from __future__ import annotations

import logging
import sys
from typing import Any

import typer

from graph_agent.cli import desk, doing, keeping, looking

HELP = """Git for agent threads: list them, look into every step, run and resume them, keep their databases sound.

Exit codes: 0 done · 1 failed · 2 usage · 3 not found · 4 conflict · 5 waits for a person · 6 damaged · 7 limit reached · 130 interrupted.
"""  # noqa: E501  a table
PANELS = {
    "Look": (looking.threads, looking.log, looking.show, looking.diff, looking.blame, looking.bisect, looking.context,
             looking.du, looking.ledger, looking.fsck),
    "Do": (doing.run, doing.resume, doing.review, doing.fork, doing.replay, doing.undo, doing.tools, doing.demo),
    "Keep": (keeping.retain, keeping.copy, keeping.delete, keeping.recover, keeping.adopt, keeping.vacuum,
             keeping.doctor),
}  # fmt: skip


def application() -> typer.Typer:
    """Make the application."""
    app = typer.Typer(help=HELP, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.callback()(_common)
    for panel, commands in PANELS.items():
        for command in commands:
            app.command(rich_help_panel=panel)(command)
    return app


def _common(
    debug: bool = typer.Option(False, "--debug", help="Show the trace of an error."),
) -> None:
    del debug  # read before anything else could fail


def main(arguments: list[str] | None = None) -> int:
    """Run a command and give its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    logging.getLogger("psycopg").addHandler(logging.NullHandler())  # what it says of a lost server is in our error

    def run() -> Any:
        try:
            application()(given, prog_name="graph-agent")
        except SystemExit as end:
            return end.code

    return desk.guarded(run, debug="--debug" in given)
