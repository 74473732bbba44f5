"""Whoever stops a run in the shell, or finds one stopped, is told how to go on, and can."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
APP = """
import time
from pathlib import Path
from graph_agent import Agent, tool
from graph_agent.testing import ScriptedModel, calls

@tool(risk="read_only")
def look(what: str) -> str:
    Path("looking").touch()
    time.sleep(0 if Path("quick").exists() else 30)
    return f"saw {what}"

@tool(risk="write_local", compensate=lambda name, result: f"removed {name}")
def make(name: str) -> str:
    return f"made {name}"

def agent():
    acts = [calls(("make", {"name": "a"})), calls(("look", {"what": "x"})), "seen"]
    return Agent(ScriptedModel(plan=[["look"]], act=acts, answer=["all seen"]), tools=[look, make],
                 saver="sqlite:///agent.db", lease_ttl=60.0)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(APP)
    return tmp_path


def begun(folder: Path, *words: str) -> subprocess.Popen[str]:
    """Begin a command in a folder, as a person does."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GRAPH_AGENT_APP": "shop:agent"}
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "graph_agent", *words], cwd=folder, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def ended(folder: Path, *words: str) -> tuple[int, str, str]:
    """Run a command to its end; give its code, what it prints and what it tells."""
    process = begun(folder, *words)
    out, told = process.communicate(timeout=60)
    return process.returncode, out, told


def underway(folder: Path, *words: str) -> subprocess.Popen[str]:
    """Begin a run, and wait until it is in the middle of a call."""
    process = begun(folder, *words)
    until = time.monotonic() + 60
    while not (folder / "looking").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)
    return process


def test_a_run_that_is_stopped_says_how_to_go_on(folder: Path) -> None:
    """Ctrl-C ends it with 130; its thread, whose name was told at once, is resumed and loses nothing."""
    process = underway(folder, "run", "look x up")
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    name = told.splitlines()[0].removeprefix("thread: ")
    assert f"go on with: graph-agent resume {name}" in told
    (folder / "quick").touch()
    assert ended(folder, "resume", name)[:2] == (0, "seen\n")
    assert [line.split("\t")[2] for line in ended(folder, "ledger", name)[1].splitlines()[1:]] == ["make"]


def test_a_thread_of_a_dead_process_is_waited_for_or_taken(folder: Path) -> None:
    """While the lease of a killed process stands, a resume is refused, waits, or takes the thread, as it is told."""
    process = underway(folder, "run", "look x up", "--thread", "t")
    process.kill()
    process.communicate()
    (folder / "quick").touch()
    code, _, told = ended(folder, "resume", "t")
    assert (code, "is running" in told) == (4, True)
    assert ended(folder, "resume", "t", "--if-busy", "interrupt")[:2] == (0, "seen\n")
    code, _, told = ended(folder, "resume", "t", "--if-busy", "whatever")
    assert (code, "--if-busy" in told) == (2, True)


def test_undo_says_what_it_lacks(folder: Path) -> None:
    """Without a step it is a wrong use, told with what to write; the goal stays in the listing afterwards."""
    (folder / "quick").touch()
    assert ended(folder, "run", "look x up", "--thread", "t")[0] == 0
    code, _, told = ended(folder, "undo", "t")
    assert (code, "write t@N" in told) == (2, True)
    code, out, _ = ended(folder, "undo", "t@1", "--yes")
    assert (code, "undone" in out) == (0, True)
    assert "look x up" in ended(folder, "threads")[1]
