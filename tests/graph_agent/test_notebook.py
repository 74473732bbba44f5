"""The notebook of the documentation, as a person types it, over real HTTP; and what it shows."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from tests.graph_agent.openai_server import OpenAIServer, answer, calls, structured
from tests.test_documents import ran

ROOT = Path(__file__).parents[2]


def script() -> list[Any]:
    """Give what the model says: a plan of one step, a call, the result."""
    return [
        structured({"steps": [{"title": "Tell Ada", "detail": ""}], "why": "one mail is enough"}),
        calls(("send_email", {"to": "ada@example.org", "body": "The build is green."})),
        answer("Ada was told that the build is green."),
        structured({"steps": [{"title": "Tell Ada", "detail": ""}], "why": "one mail is enough"}),
    ]


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "agent.md").read_text(), re.DOTALL)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first block of the documentation runs as it is written, in a fresh folder, against a real server."""
    monkeypatch.chdir(tmp_path)
    with OpenAIServer(script()) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        names: dict[str, Any] = {"__name__": "notebook"}
        exec(compile(blocks()[0], "notebook", "exec"), names)
        assert server.failures == []
    assert names["run"].answer == "Ada was told that the build is green."
    history = names["history"]
    names["agent"].saver.close()
    assert len(server.requests) == 3
    assert history.thread == "ada"


def test_the_notebook_runs_inside_a_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same in a running event loop, as a notebook has one."""

    async def cell() -> None:
        test_the_notebook_runs(tmp_path, monkeypatch)

    asyncio.run(cell())


@pytest.mark.slow
def test_the_other_examples_run(tmp_path: Path) -> None:
    """Every further Python block of the documentation runs, in order, without a model or a network."""
    ran(blocks()[1:], tmp_path / "empty", warnings="error")
