"""The shell's door as a person meets it: a terminal of 80 columns, a pager, completion, and texts that mean harm."""

# ruff: noqa: F401, F811  fixtures of another module

from __future__ import annotations

import fcntl
import json
import os
import pty
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointers import SqliteSaver
from graph_agent import Agent, tool
from graph_agent.testing import ScriptedModel, calls
from tests.checkpointers.graphs import config, loop
from tests.graph_agent.test_cli import HOSTILE, Shell, shell, waiting

ROOT = Path(__file__).parents[2]
NAME = f"t{HOSTILE}\tand\nmore"
FORBIDDEN = set("\x1b\x07\x08\x9b\x7f\u202e\u2066\u200b")
COMMAND = [sys.executable, "-m", "graph_agent"]


def environment(**more: str) -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("GRAPH_AGENT", "COLUMNS", "LINES"))
    }
    return {**kept, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "NO_COLOR": "1", **more}


def at_terminal(*arguments: str, folder: Path, **more: str) -> tuple[int, str]:
    """Run a command in a terminal of 80 columns and 24 lines; give its code, and all that the terminal was sent."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    run = subprocess.Popen(
        [*COMMAND, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=environment(**more),
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    sent = b""
    while True:
        try:
            part = os.read(ours, 65_536)
        except OSError:  # Linux says so that the other end is closed
            break
        if not part:
            break
        sent += part
    os.close(ours)
    return run.wait(), sent.decode().replace("\r\n", "\n")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run an agent that is told, and tells, what means harm; beside it a thread with 10 MB in one text."""
    folder = tmp_path_factory.mktemp("hostile")

    @tool(risk="external_action")
    def look(what: str) -> str:
        return HOSTILE + what

    acts = [calls(("look", {"what": HOSTILE}), ("look", {"what": HOSTILE * 2})), HOSTILE]
    script = ScriptedModel(plan=[[HOSTILE]], act=acts, answer=[HOSTILE])
    with SqliteSaver.open(folder / "agent.db") as saver:
        agent = Agent(script, tools=[look], saver=saver)
        run = agent.run(f"go {HOSTILE}\n\tnow", thread=NAME)
        agent.resume(NAME, approve=[run.reviews[0].id])
        loop(saver).invoke({"until": 1, "n": 0, "static": "x\x1b[31m" * 1_500_000}, config("huge"))
    return folder


PRINTING = [
    ("threads",), ("log", NAME), ("log", NAME, "--graph"), ("show", f"{NAME}@4"), ("show", f"{NAME}@-1", "--full"),
    ("diff", f"{NAME}@2", f"{NAME}@-1"), ("diff", f"{NAME}@2", f"{NAME}@-1", "--stat"), ("blame", NAME, "goal"),
    ("bisect", NAME, "true"), ("grep", "evil"), ("grep", "evil", NAME, "--where", "state"),
    ("compare", f"{NAME}@4", NAME), ("context", f"{NAME}@4"), ("stats", NAME), ("tail",), ("tail", NAME),
    ("ledger", NAME), ("du",), ("review", "list"), ("review", "show", NAME), ("retain", "--last", "1"), ("prune", NAME),
    ("delete", NAME), ("export", NAME, "--to", "markdown"), ("export", NAME, "--to", "python"),
    ("export", NAME, "--to", "html"), ("show", "huge@-1"), ("show", "huge@-1", "--full"), ("diff", "huge@1", "@-1"),
    ("grep", "^x", "huge", "-E"), ("log", f"{HOSTILE}x"), ("show", f"{NAME}@99"), ("blame", NAME, f"{HOSTILE}.x"),
]  # fmt: skip


@pytest.mark.parametrize("command", PRINTING, ids=lambda one: " ".join(one).encode("unicode_escape").decode()[:40])
def test_no_text_moves_the_cursor(
    shell: Shell, hostile: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """Piped, what would garble a screen is shown as what it is; a name of two lines stays in its line."""
    monkeypatch.chdir(hostile)
    code, out, told = shell(*command)
    assert code in (0, 3) or command[0] == "blame", told
    assert not (set(out + told) & FORBIDDEN), command
    assert "\r" not in out + told
    if command[0] in ("threads", "log", "tail", "ledger", "review") and code == 0 and "--graph" not in command:
        widths = {line.count("\t") for line in out.splitlines()}
        assert len(widths) <= 1 or command[:2] == ("review", "show")


@pytest.mark.parametrize("command", [("threads",), ("log", NAME), ("show", f"{NAME}@4"), ("review", "list"), ("tail",),
                                     ("diff", f"{NAME}@2", "@-1"), ("show", "huge@-1"), ("stats", NAME)],
                         ids=lambda one: one[0])  # fmt: skip
def test_at_a_terminal(hostile: Path, command: tuple[str, ...]) -> None:
    """In a terminal only the table's own bold is an escape."""
    code, sent = at_terminal(*command, folder=hostile, PAGER="cat")
    assert code == 0, sent
    assert not (set(sent.replace("\x1b[1m", "").replace("\x1b[0m", "")) & FORBIDDEN)


@pytest.mark.parametrize("command", [one for one in PRINTING if "--graph" not in one and one[0] in ("threads", "log", "show", "diff", "grep", "tail",
                                     "blame", "compare", "context", "stats", "ledger", "du", "review", "retain", "prune")],
                         ids=lambda one: " ".join(one).encode("unicode_escape").decode()[:40])  # fmt: skip
def test_json_is_ascii_and_whole(
    shell: Shell, hostile: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """JSON is plain ASCII, one document in each line, and says names as they are."""
    monkeypatch.chdir(hostile)
    code, out, _ = shell(*command, "--json")
    assert out.isascii()
    assert not (set(out) & FORBIDDEN)
    found = [json.loads(line) for line in out.splitlines()]
    if code == 0 and command[0] in ("threads", "tail"):
        assert NAME in {one["thread"] for one in found}


@pytest.mark.parametrize("command", ["threads", "log", "review list", "stats", "compare"])
def test_tables_fit_80_columns(tmp_path: Path, shell: Shell, waiting: str, command: str) -> None:
    """No line is wider than the terminal, and an id is never broken."""
    arguments = {"log": ["ada"], "stats": ["ada"], "compare": ["ada@3", "ada"]}.get(command, [])
    code, sent = at_terminal(*command.split(), *arguments, folder=tmp_path, PAGER="cat")
    table = [
        line.replace("\x1b[1m", "").replace("\x1b[0m", "")
        for line in sent.splitlines()
        if "\x1b" in line or "  " in line
    ]
    assert (code, max(map(len, table)) <= 80) == (0, True) or command == "compare"
    assert command != "review list" or waiting in sent


def test_a_pager_for_who_needs_one(tmp_path: Path) -> None:
    """What is longer than the terminal goes to PAGER whole; what fits, or is wanted so, does not."""
    with SqliteSaver.open(tmp_path / "agent.db") as saver:
        loop(saver).invoke({"until": 60, "n": 0}, config())
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\nsed 's/^/| /'\n")
    pager.chmod(0o755)
    code, sent = at_terminal("log", "t", folder=tmp_path, PAGER=str(pager))
    assert (code, sent.count("| t@"), sent.count("t@62  ")) == (0, 62, 1)
    for options, more in (
        (("log", "t", "-n", "5"), {}), (("log", "t", "--no-pager"), {}), (("log", "t"), {"PAGER": "cat"}),
        (("log", "t"), {"PAGER": "no-such-pager"}), (("log", "t"), {"PAGER": ""}),
    ):  # fmt: skip
        code, sent = at_terminal(*options, folder=tmp_path, **{"PAGER": str(pager), **more})
        assert (code, "| " in sent, "t@62  " in sent) == (0, False, True), options
    code, sent = at_terminal("log", "t", folder=tmp_path, PAGER="true")  # one that is closed at once
    assert (code, "Error" in sent, "Broken" in sent) == (0, False, False)


def test_colours_are_not_forced(tmp_path: Path, shell: Shell, waiting: str) -> None:
    """A pipe gets none, and NO_COLOR is heeded at a terminal."""
    assert "\x1b" not in shell("threads")[1]
    sent = at_terminal("threads", folder=tmp_path, PAGER="cat")[1]
    assert "\x1b[3" not in sent


def test_names_of_threads_are_completed(tmp_path: Path, shell: Shell, waiting: str, hostile: Path) -> None:
    """The shell's completion knows the commands and the threads; without a database it knows none and says nothing."""

    def completed(line: str, folder: Path) -> list[str]:
        done = subprocess.run(
            COMMAND, cwd=folder, capture_output=True, text=True, check=False,
            env=environment(_GRAPH_AGENT_COMPLETE="complete_bash", COMP_WORDS=f"graph-agent {line}", COMP_CWORD=str(len(line.split()))),
        )  # fmt: skip
        assert done.stderr == ""
        return done.stdout.split()

    assert completed("log a", tmp_path) == ["ada"]
    assert completed("log h", hostile) == ["huge"]
    assert completed("log t", hostile) == []
    assert "threads" in completed("thr", tmp_path)
    (tmp_path / "empty").mkdir()
    assert completed("log a", tmp_path / "empty") == []
    assert list((tmp_path / "empty").iterdir()) == []


def test_the_version(shell: Shell) -> None:
    code, out, _ = shell("--version")
    assert (code, out.split()[0]) == (0, "graph-agent")


def test_flags_for_all_commands_may_stand_anywhere(shell: Shell, waiting: str) -> None:
    assert shell("log", "ada", "--no-pager")[0] == 0
    code, out, told = shell("log", "adda", "--debug")
    assert (code, out) == (3, "")
    assert told.startswith("Traceback")
    assert told.splitlines()[-1].startswith("graph-agent: there is no thread 'adda'")
    assert shell("grep", "--", "--debug")[0] == 3
