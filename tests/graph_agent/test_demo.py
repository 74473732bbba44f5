"""The demo: killed in the middle, nothing lost, nothing done twice; with a script, with a served model, with a person."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.graph_agent.openai_server import OpenAIServer, Reply, Request, answer, calls, structured

ROOT = Path(__file__).parent.parent.parent
FOUND = "(its probe found that it was done)"
ANSWER = "I deleted cache.bin and old.log: 1.3 MB are free again. thesis.txt was not touched."
UNSET = dict.fromkeys(("GRAPH_AGENT_MODEL", "OPENAI_API_KEY", "OPENAI_BASE_URL"), "")


def played(*arguments: str, **environment: str) -> str:
    """Play it where nobody sits, and give what it says."""
    done = subprocess.run(
        [sys.executable, "-m", "graph_agent.demo", *arguments], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, check=False, env={**os.environ, **UNSET, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
    return done.stdout


def test_the_demo_loses_nothing() -> None:
    """Killed between an effect and its record, it goes on in another process, and deletes each file once."""
    told = played()
    before, after = told.split("\nKilled (SIGKILL). Deleted: cache.bin, old.log. On record: ")
    recorded, rest = after.split(".\n", 1)
    (cut_off,) = {"cache.bin", "old.log"} - {recorded}
    assert f"  · deleted {cut_off} {FOUND}\n" in rest
    assert f"  · deleted {recorded}\n" in before or f"  · deleted {recorded} (not run again: " in rest
    assert "  · cache.bin 900,000 bytes, old.log 400,000 bytes, thesis.txt 2,000 bytes\n" in before
    assert rest.count(f"\ndisk: done. {ANSWER}\n") == told.count(ANSWER) == 1
    assert "deleted, each once: cache.bin, old.log; left: thesis.txt\n" in rest
    for shown in ("disk@17", "2  done", "@17", "never delete anybody's work", "old.log 400,000 bytes\n"):
        assert shown in rest.partition("$ graph-agent")[2]


def test_a_served_model_plays_it_too(tmp_path: Path) -> None:
    """With an address of an OpenAI-compatible server its model is used, and the demo says so."""

    def model(request: Request) -> Reply:
        schema = json.dumps(request.get("response_format") or {})
        if '"steps"' in schema:
            return structured({"steps": [{"title": "Free some space"}]})
        if "verdict" in schema:
            return structured({"verdict": "continue", "why": ""})
        said = json.dumps(request["messages"])
        if "900,000 bytes" not in said:
            return calls(("measure", {}))
        return answer("old.log is gone.") if "deleted old.log" in said else calls(("delete", {"name": "old.log"}))

    with OpenAIServer(model) as server:
        told = played(
            "--yes", "--keep", str(tmp_path / "kept"), OPENAI_BASE_URL=server.url, GRAPH_AGENT_MODEL="openai:m"
        )
        assert not server.failures
    assert told.startswith("model: openai:m\n")
    assert f"  · deleted old.log {FOUND}" in told
    assert "deleted, each once: old.log; left: cache.bin, thesis.txt\n" in told
    assert sorted(file.name for file in (tmp_path / "kept" / "files").glob("*")) == ["cache.bin", "thesis.txt"]


@contextmanager
def at_a_terminal(*arguments: str, **environment: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Play it where somebody sits: give the keyboard, and the player."""
    keyboard, end = pty.openpty()
    player = subprocess.Popen(
        [sys.executable, "-m", "graph_agent", "demo", *arguments], cwd=ROOT, stdin=end, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, env={**os.environ, **UNSET, **environment},
    )  # fmt: skip
    os.close(end)
    try:
        yield keyboard, player
    finally:
        player.kill()
        player.wait()
        os.close(keyboard)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("y\n", "deleted, each once: cache.bin, old.log"),
        ("what?\nYES\n", "deleted, each once: cache.bin, old.log"),
        ("n\n", "the thread waits"),
        ("\n", "the thread waits"),
        ("maybe\n" * 3, "the thread waits"),
        ("\x04", "the thread waits"),
    ],
)
def test_a_person_decides(typed: str, said: str) -> None:
    """On a terminal it asks before it goes on, and does nothing without a yes."""
    with at_a_terminal() as (keyboard, player):
        os.write(keyboard, typed.encode())
        told, _ = player.communicate()
    assert player.returncode == 0
    assert said in told
    assert "Traceback" not in told
    assert ("SIGKILL" in told) is ("yes" in typed.lower() or typed == "y\n")


@pytest.mark.parametrize("when", ["you: ", "in the middle, on purpose"])
def test_who_is_interrupted_says_so_in_a_line(tmp_path: Path, when: str) -> None:
    """While a part runs, and while it asks: what ran is killed, nothing goes on, and no trace is shown."""
    with at_a_terminal("--keep", str(tmp_path / "kept")) as (_, player):
        seen = ""
        while when not in seen:
            seen += player.stdout.readline()
        player.send_signal(signal.SIGINT)
        told, _ = player.communicate()
    assert player.returncode == 130
    assert "interrupted; whatever ran was killed" in told
    assert f"graph-agent log disk --db {tmp_path / 'kept' / 'agent.db'}" in told
    assert "Traceback" not in told
    assert not (tmp_path / "kept" / "deleted.log").exists()


def curious(request: Request) -> Reply:
    """Ask which file may go before one is deleted."""
    schema = json.dumps(request.get("response_format") or {})
    if '"steps"' in schema:
        return structured({"steps": [{"title": "Free some space"}]})
    if "verdict" in schema:
        return structured({"verdict": "continue", "why": ""})
    said = json.dumps(request["messages"])
    if "deleted old.log" in said:
        return answer("old.log is gone.")
    told = "the old one" in said or "Decide by yourself" in said
    return calls(("delete", {"name": "old.log"})) if told else calls(("ask_user", {"question": "Which one may go?"}))


def test_a_model_may_ask_before_it_acts() -> None:
    """A question is answered with words, the person's or that nobody is here; a call that comes after it is asked about."""
    with OpenAIServer(curious) as server:
        told = played(OPENAI_BASE_URL=server.url, GRAPH_AGENT_MODEL="openai:m")
        with at_a_terminal(OPENAI_BASE_URL=server.url, GRAPH_AGENT_MODEL="openai:m") as (keyboard, player):
            os.write(keyboard, b"the old one\nn\n")
            asked, _ = player.communicate()
        assert not server.failures
    assert "  ? Which one may go?" in told
    assert "deleted, each once: old.log; left: cache.bin, thesis.txt\n" in told
    assert '  ? delete({"name":"old.log"})' in asked
    assert "the thread waits: disk: waiting" in asked
    assert "SIGKILL" not in asked


@pytest.mark.parametrize("there", ["a file", "a folder with something in it"])
def test_a_folder_that_is_in_use_is_refused(tmp_path: Path, there: str) -> None:
    """The demo plays in a folder of its own, and says so before it does anything."""
    kept = tmp_path / "kept"
    if there == "a file":
        kept.write_text("mine")
    else:
        kept.mkdir()
        (kept / "agent.db").write_text("mine")
    done = subprocess.run(
        [sys.executable, "-m", "graph_agent.demo", "--keep", str(kept)], cwd=ROOT, capture_output=True, text=True,
        check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert (done.returncode, "name a folder that is not there yet" in done.stderr) == (2, True)


def test_a_folder_of_any_name(tmp_path: Path) -> None:
    """Marks that mean something in an address mean nothing in a folder's name."""
    assert "disk: done" in played("--keep", str(tmp_path / "we?ird #%20"))
    assert (tmp_path / "we?ird #%20" / "agent.db").exists()


def test_on_a_terminal_that_knows_few_letters() -> None:
    """What cannot be written there is spelled, in every part."""
    told = played(PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert told.isascii()
    assert "deleted, each once: cache.bin, old.log" in told


def test_a_model_that_cannot_be_had_is_told(tmp_path: Path) -> None:
    """Where nothing can begin, what is wrong is said, and nothing else is made up."""
    done = subprocess.run(
        [sys.executable, "-m", "graph_agent.demo"], cwd=ROOT, capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL, env={**os.environ, **UNSET, "GRAPH_AGENT_MODEL": "other:thing"},
    )  # fmt: skip
    assert done.returncode == 1
    assert "names no model" in done.stderr
    assert "KeyError" not in done.stderr
