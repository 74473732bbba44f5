"""Following threads that other processes write: each step told once, nothing changed, and an end of every kind."""

# ruff: noqa: F401, F811  fixtures of another module

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from checkpointers import Saver
from checkpointers.reader import open_reader
from graph_agent.cli import following
from graph_agent.cli.following import Watch
from tests.checkpointers.graphs import config, loop, review
from tests.conftest import reopen
from tests.graph_agent.test_cli import Shell, rows, shell

ROOT = Path(__file__).parents[2]
LONG = "t" * 100  # 300 lines with it are more than a pipe and its reader hold


@contextmanager
def tail(url: str, *options: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Follow a database as a process of its own."""
    run = subprocess.Popen(
        [sys.executable, "-m", "graph_agent", "tail", "--db", url, *options], cwd=folder, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        yield run
    finally:
        if run.poll() is None:
            run.kill()
        run.communicate()


def test_steps_of_another_process_come_live(url: str, saver: Saver, tmp_path: Path) -> None:
    """Each step once, in order, of every thread, also of one that is begun meanwhile; until one waits."""
    loop(saver).invoke({"until": 3, "n": 0}, config("old"))
    with tail(url, "-f", "-n", "1", "--json", "--until", "waiting", folder=tmp_path) as run:
        assert run.stdout
        assert json.loads(run.stdout.readline())["address"] == "old@5"
        loop(saver).invoke({"until": 6, "n": 0}, config("old"))
        loop(saver).invoke({"until": 2, "n": 0}, config("new"))
        review(saver).invoke({}, config("asks"))
        out, err = run.communicate()
        assert (run.returncode, err) == (0, "")
    found = [json.loads(line) for line in out.splitlines()]
    told = {name: [row["number"] for row in found if row["thread"] == name] for name in ("old", "new", "asks")}
    assert list(dict.fromkeys(told["old"])) == [step.number for step in saver.steps("old")][5:]
    assert list(dict.fromkeys(told["new"])) == [step.number for step in saver.steps("new")]
    assert (found[-1]["thread"], found[-1]["status"]) == ("asks", "waiting")
    named = {step.number: step for step in saver.steps("old")}
    assert all(
        row["nodes"] in (["work"], ["__start__"])
        for row in found
        if row["thread"] == "old" and named[row["number"]].source == "loop"
    )


def test_looks_and_what_they_tell(url: str, saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look tells what came since the last one; a step that stands otherwise comes again; little is kept."""
    monkeypatch.setattr(following, "KEPT", 3)
    monkeypatch.setattr(following, "OVERLAP", timedelta(0))
    graph = review(saver)
    with open_reader(url) as reader:
        watch = Watch(reader, None)
        assert watch.begin(10) == []
        assert watch.look() == []
        graph.invoke({}, config("a"))
        first = watch.look()
        assert [str(row) for row in first] == [str(f"a@{n}") for n in range(1, len(first) + 1)]
        assert first[-1].status == "waiting"
        assert watch.look() == []
        for name in "bcdefg":
            loop(saver).invoke({"until": 1, "n": 0}, config(name))
        assert {row.thread for row in watch.look()} == set("bcdefg")
        assert len(watch.seen) == 3
        saver.put_writes(saver.get_tuple(config("g")).config, [("__error__", ValueError("late"))], "task")
        assert [(str(row), row.status) for row in watch.look()] == [("g@3", "failed")]
        saver.delete_thread("g")
        loop(saver).invoke({"until": 1, "n": 0}, config("g"))
        assert next(row.number for row in watch.look() if row.thread == "g") == 1


def test_the_end(shell: Shell, url: str, saver: Saver) -> None:
    """It ends by itself without -f, after --for, and at once where a thread stands as it should."""
    loop(saver).invoke({"until": 20, "n": 0}, config())
    assert [line.split()[2] for line in shell("tail", "t", "--db", url, "-n", "2")[1].splitlines()] == ["t@21", "t@22"]
    assert len(shell("tail", "--db", url)[1].splitlines()) == 10
    assert shell("tail", "t", "--db", url, "-n", "0", "-f", "--for", "0")[:2] == (0, "")
    assert shell("tail", "t", "--db", url, "-n", "0", "--until", "done")[:2] == (0, "")
    assert shell("tail", "t", "--db", url, "-n", "0", "--until", "failed", "--for", "0")[0] == 3
    code, _, told = shell("tail", "tt", "--db", url)
    assert (code, "'t'" in told) == (3, True)


def test_until_one_runs(shell: Shell, url: str, saver: Saver, tmp_path: Path) -> None:
    """A thread runs while it is held; what can never come is not offered."""
    loop(saver).invoke({"until": 1, "n": 0}, config())
    assert shell("tail", "--db", url, "-n", "0", "--until", "running", "--for", "0.5")[0] == 3
    with saver.lease("t"):
        assert shell("tail", "t", "--db", url, "-n", "0", "--until", "running", "--for", "0")[:2] == (0, "")
    with tail(url, "-n", "1", "--until", "running", "--for", "60", folder=tmp_path) as run:
        assert run.stdout
        run.stdout.readline()
        with saver.lease("t"):
            loop(saver).invoke({"until": 2, "n": 1}, config())
            assert run.wait() == 0
    for never in ("damaged", "shredded"):
        assert shell("tail", "t", "--db", url, "--until", never, "--for", "0")[0] == 2


def test_ctrl_c(url: str, saver: Saver, tmp_path: Path) -> None:
    """130, and not a word."""
    loop(saver).invoke({"until": 1, "n": 0}, config())
    with tail(url, "-f", folder=tmp_path) as run:
        assert run.stdout
        run.stdout.readline()
        run.send_signal(signal.SIGINT)
        _, err = run.communicate()
        assert (run.returncode, err) == (130, "")


@pytest.mark.parametrize("command", [("tail", "-f", "-n", "300"), ("log", LONG), ("log", LONG, "--json"), ("export", LONG)], ids=lambda one: one[0])  # fmt: skip
def test_a_reader_that_goes_away(url: str, saver: Saver, tmp_path: Path, command: tuple[str, ...]) -> None:
    """As `| head` does it: no error, no word."""
    loop(saver).invoke({"until": 300, "n": 0}, config(LONG))
    run = subprocess.Popen(
        [sys.executable, "-m", "graph_agent", *command, "--db", url], cwd=tmp_path, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}, pipesize=4_096,
    )  # fmt: skip
    assert run.stdout
    assert run.stderr
    run.stdout.readline()
    run.stdout.close()
    loop(saver).invoke({"until": 302, "n": 300}, config(LONG))
    err = run.stderr.read()
    run.stderr.close()
    assert (run.wait(), err) == (0, "")
