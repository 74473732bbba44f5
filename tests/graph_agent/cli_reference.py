"""The reference of the shell's commands, made of what they print: `python -m tests.graph_agent.cli_reference` writes it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from graph_agent.cli.main import PANELS

ROOT = Path(__file__).parents[2]
APP = """
from graph_agent import Agent, tool
from graph_agent.testing import ScriptedModel, calls

def recall(to: str) -> str:
    return f"recalled from {to}"

@tool(risk="external_action", compensate=recall)
def send(to: str) -> str:
    return f"sent to {to}"

@tool(risk="read_only")
def look(what: str) -> str:
    return f"saw {what}"

def agent():
    acts = [calls(("look", {"what": "x"}), ("send", {"to": "ada"})), "sent"]
    return Agent(ScriptedModel(plan=[["tell"]], act=acts, answer=["all sent"]), tools=[send, look], saver="sqlite:///agent.db")
"""
INTRO = """# The command line

`graph-agent VERB …` looks into databases of threads, and runs agents. `--db` says which database (an address, or a file;
else `GRAPH_AGENT_DB`, else `./agent.db`), `--app module:name` which agent (else `GRAPH_AGENT_APP`): an `Agent`, or a
function that makes one. What looks opens the database read-only: it creates nothing and changes nothing, and works on a
database that is in use, or that may only be read.

Data goes to stdout, everything else to stderr. On a terminal tables line up; in a pipe they are lines with tabs, and
nothing is cut. With `--json` a list is one JSON document for each line, anything else one document
`{"schema": 1, "data": …}`. Control characters, escapes and marks that turn text around are shown as what they are.

Exit codes: 0 done · 1 failed · 2 wrong usage · 3 not found · 4 conflict (held, settled, not at rest) · 5 waits for a
person · 6 damaged · 7 a limit is reached · 130 interrupted.

## A session

"""
SESSION = (
    "run 'tell ada' --thread ada", "threads", "log ada", "review ada", "resume ada --approve REVIEW", "show ada@4",
    "diff ada@4 ada@6 --stat", "blame ada phase", "ledger ada", "undo ada@2", "show ada@99", "log adda",
)  # fmt: skip


def ran(command: str, folder: str) -> str:
    """Run a command as a person does; what it prints and tells, with what changes from run to run made the same."""
    done = subprocess.run(  # noqa: S602  a command as it is typed
        f"{sys.executable} -m graph_agent {command}", shell=True, cwd=folder, capture_output=True, text=True, check=False,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "GRAPH_AGENT_APP": "app:agent",
             "COLUMNS": "100", "TERM": "dumb", "HOME": folder, "PYTHONWARNINGS": "ignore"},
    )  # fmt: skip
    text = re.sub(
        r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(\+00:00)?", "2026-11-18 12:00:00", done.stdout + done.stderr
    )
    text = re.sub(r"\d+ s ago", "2 s ago", re.sub(r"[\d.]+ [kM]?B\b", "9.8 kB", text))
    text = re.sub(r"'d-[0-9a-f]{10}'", "'d-0123456789'", text)
    text = re.sub(r"\b0\.\d{3,6}\b", "0.01", text)
    return aligned([line.rstrip("\n").split("\t") for line in text.strip().splitlines()])


def aligned(rows: list[list[str]]) -> str:
    """Line the columns of a table up, as a terminal would; what is no table stays as it is."""
    width = max(map(len, rows), default=0)
    sizes = [max((len(row[n]) for row in rows if len(row) == width), default=0) for n in range(width)]
    return "\n".join("  ".join(cell.ljust(sizes[n] if len(row) == width else 0) for n, cell in enumerate(row)).rstrip()
                     for row in rows)  # fmt: skip


def reference() -> str:
    """Write the reference."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "app.py").write_text(APP)
        parts, review = [INTRO], ""
        for command in SESSION:
            text = ran(command.replace("REVIEW", review), folder)
            review = review or (re.findall(r"r-[0-9a-f]{10}", text) or [""])[0]
            parts.append(f"```text\n$ graph-agent {command.replace('REVIEW', review)}\n{text}\n```\n\n")
        for panel, commands in PANELS.items():
            parts.append(f"## {panel}\n\n")
            for command in commands:
                parts.append(f"### {command.__name__}\n\n```text\n{ran(f'{command.__name__} --help', folder)}\n```\n\n")
    return "".join(parts).rstrip() + "\n"


if __name__ == "__main__":
    (ROOT / "docs" / "cli.md").write_text(reference())
