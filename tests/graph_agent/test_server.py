"""LangGraph's development server serves the agent with its own saver, offline."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from langgraph_sdk import get_client

from checkpointers import SqliteSaver
from graph_agent.history import Timeline
from graph_agent.job import GOAL, SIZES, agent_for, furnish, script

ROOT = Path(__file__).parent.parent.parent
CLI = [sys.executable, "-m", "langgraph_cli"]
PATIENCE = 90.0


def quiet(folder: Path) -> dict[str, str]:
    """Give an environment without keys, without the network beyond this machine, and without a home to write to."""
    own = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(ROOT), "GRAPH_AGENT_DB": "served.db"}
    nowhere = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
    return {**own, **nowhere, "no_proxy": "127.0.0.1", "LANGGRAPH_CLI_NO_ANALYTICS": "1", "LANGSMITH_TRACING": "false"}


def free_port() -> int:
    """Find a port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve what `langgraph.json` says from a folder of its own; the server ends with the block."""
    config = json.loads((ROOT / "langgraph.json").read_text())
    (folder / "langgraph.json").write_text(json.dumps({**config, "dependencies": [str(ROOT)]}))
    port = free_port()
    command = [*CLI, "dev", "--no-browser", "--no-reload", "--host", "127.0.0.1", "--port", str(port)]
    told = folder / "server.log"
    with told.open("w") as log:
        server = subprocess.Popen(
            command, cwd=folder, env=quiet(folder), stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_for(url, server, told)
            yield url
        finally:
            server.send_signal(signal.SIGINT)
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _wait_for(url: str, server: subprocess.Popen[bytes], told: Path) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        assert server.poll() is None, told.read_text()[-4_000:]
        try:
            with urlopen(f"{url}/ok", timeout=2):  # noqa: S310  our own server
                return
        except (URLError, OSError):
            time.sleep(0.2)
    raise AssertionError(told.read_text()[-4_000:])


async def driven(url: str) -> dict[str, Any]:
    """Drive a job through the API: it asks, is answered, and ends; give what the API tells of it."""
    async with get_client(url=url) as client:
        return await _driven(client)


async def _driven(client: Any) -> dict[str, Any]:
    thread = (await client.threads.create())["thread_id"]
    await client.runs.wait(thread, "agent", input={"goal": GOAL})
    waiting = await client.threads.get_state(thread)
    asked = {one["id"]: one["value"] for task in waiting["tasks"] for one in task["interrupts"]}
    answers = {key: {"type": "approve", "by": "ada"} for key in asked}
    state = await client.runs.wait(thread, "agent", command={"resume": answers})
    history = await client.threads.get_history(thread, limit=100)
    left = (await client.threads.create())["thread_id"]
    await client.runs.wait(left, "agent", input={"goal": GOAL})
    return {"thread": thread, "asked": asked, "state": state, "history": history, "left": left}


@pytest.mark.slow
def test_a_run_a_review_and_the_history_through_the_api(tmp_path: Path) -> None:
    """All of it stands in our saver: its history is read from the file, and a waiting thread is resumed without the server."""
    with serving(tmp_path) as url:
        told = asyncio.run(driven(url))
    assert sorted(one["args"]["name"] for one in told["asked"].values()) == ["cache.bin", "old.log"]
    assert "1.3 MB are free again" in told["state"]["answer"]
    assert {call["review"]["by"] for call in told["state"]["calls"] if "review" in call} == {"ada"}
    with SqliteSaver.open(tmp_path / "served.db") as saver:
        steps = Timeline(saver, told["thread"])
        assert [step.id for step in steps][::-1] == [one["checkpoint"]["checkpoint_id"] for one in told["history"]]
        assert [one.record["tool"] for one in saver.ledger.entries(told["thread"])] == ["delete", "delete"]
        folder = tmp_path / "later"
        folder.mkdir()
        furnish(folder)
        agent = agent_for(folder, script(), saver=saver)
        run = agent.state(told["left"])
        assert run.status == "waiting"
        assert agent.resume(run, approve=[one.id for one in run.reviews]).status == "done"
    assert sorted(file.name for file in folder.glob("files/*")) == [name for name in SIZES if name == "thesis.txt"]


def test_the_server_takes_the_file() -> None:
    """`langgraph validate` finds nothing wrong with `langgraph.json`."""
    done = subprocess.run(
        [*CLI, "validate", "--config", "langgraph.json"], cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "LANGGRAPH_CLI_NO_ANALYTICS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_agent_that_is_named_is_served(tmp_path: Path) -> None:
    """`GRAPH_AGENT_APP` says which agent; a name that is not there is told."""
    (tmp_path / "mine.py").write_text(
        "from graph_agent import Agent\nfrom graph_agent.testing import ScriptedModel\n"
        "def make(): return Agent(ScriptedModel(plan=[['a']], act=['mine'], answer=['-']))\n"
        "def none(): return None\n"
        "def takes(one): return make()\n"
    )
    code = (
        "import asyncio, graph_agent.server as s; g = s.graph(); assert g.checkpointer is None;"
        "print(asyncio.run(g.ainvoke({'goal': 'go'}))['answer'])"
    )

    def told(app: str) -> subprocess.CompletedProcess[str]:
        own = {**quiet(tmp_path), "GRAPH_AGENT_APP": app}
        return subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            cwd=tmp_path,
            env=own,
            capture_output=True,
            text=True,
            check=False,
        )

    assert told("mine:make").stdout.strip() == "mine"
    (tmp_path / "broken.py").write_text("def agent(:")
    for app, words in (
        ("mine:gone", "the agent 'mine:gone' cannot be loaded: AttributeError"), ("broken:agent", "SyntaxError"),
        ("os:path", "and no Agent"), (":x", "names no agent"), ("mine", "names no agent"), ("mine:none", "and no Agent"),
        ("mine:takes", "cannot be called without arguments"),
    ):  # fmt: skip
        assert f"SetupError: {words}" in (said := told(app).stderr) or words in said, (app, said[-500:])
        assert "graph_agent.errors.SetupError" in said, (app, said[-500:])
