"""The demo: killed in the middle, nothing lost, nothing done twice; with a script, with a served model, with a person."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.graph_agent.openai_server import OpenAIServer, Reply, Request, answer, calls, structured

ROOT = Path(__file__).parent.parent.parent
UNSET = dict.fromkeys(("GRAPH_AGENT_MODEL", "OPENAI_API_KEY", "OPENAI_BASE_URL"), "")


def played(*arguments: str, **environment: str) -> str:
    """Play it where nobody sits, and give what it says."""
    done = subprocess.run(
        [sys.executable, "-m", "graph_agent.demo", *arguments], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, check=False, env={**os.environ, **UNSET, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
    return done.stdout


def parts(told: str) -> tuple[list[str], list[str], str]:
    """Give what was done before and after the process died, and what is told in the end."""
    before, after = told.split("the process died (SIGKILL)")
    rest, _, end = after.partition("$ graph-agent")
    first, second = ([line for line in text.splitlines() if "· deleted" in line] for text in (before, rest))
    return first, second, end


def test_the_demo_loses_nothing() -> None:
    """Killed between an effect and its record, it goes on in another process, and deletes each file once."""
    told = played()
    (first,), (second,), end = parts(told)
    assert {first.split(":")[0], second.split(":")[0]} == {"  · deleted cache.bin", "  · deleted old.log"}
    assert second.endswith("its probe found that it was done")
    assert "disk: done" in told
    assert "deleted, each once: cache.bin, old.log; left: thesis.txt\n" in told
    for shown in ("disk@17", "2  done", "@17", "never delete anybody's work"):
        assert shown in end


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
    assert "  · deleted old.log: its probe found that it was done" in told
    assert "deleted, each once: old.log; left: cache.bin, thesis.txt\n" in told
    assert sorted(file.name for file in (tmp_path / "kept" / "files").glob("*")) == ["cache.bin", "thesis.txt"]


@pytest.mark.parametrize(
    ("answer", "said"), [("y", "deleted, each once: cache.bin, old.log"), ("n", "the thread waits")]
)
def test_a_person_decides(answer: str, said: str) -> None:
    """On a terminal it asks before it goes on, and does nothing without a yes."""
    main, end = pty.openpty()
    player = subprocess.Popen(
        [sys.executable, "-m", "graph_agent.demo"], cwd=ROOT, stdin=end, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, **UNSET},
    )  # fmt: skip
    os.close(end)
    os.write(main, f"{answer}\n".encode() * 3)
    told, _ = player.communicate(timeout=60)
    os.close(main)
    assert player.returncode == 0
    assert said in told.decode()
    assert ("SIGKILL" in told.decode()) is (answer == "y")


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


def test_a_model_that_cannot_be_had_is_told(tmp_path: Path) -> None:
    """Where nothing can begin, what is wrong is said, and nothing else is made up."""
    done = subprocess.run(
        [sys.executable, "-m", "graph_agent.demo"], cwd=ROOT, capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL, env={**os.environ, **UNSET, "GRAPH_AGENT_MODEL": "other:thing"},
    )  # fmt: skip
    assert done.returncode == 1
    assert "names no model" in done.stderr
    assert "KeyError" not in done.stderr
