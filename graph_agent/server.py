"""The agent behind LangGraph's server: `langgraph dev` finds its graph and its saver here, by `langgraph.json`.

`GRAPH_AGENT_APP=module:name` says which agent; without it the one of the demo is served, which needs no key. Threads
are in the agent's own saver, so everything else that reads them, reads those of the server too.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, Final

from graph_agent.agent import Agent
from graph_agent.job import agent_for, furnish, model_for
from graph_agent.settings import APP, agent_named, database

_LOCK: Final = Lock()
_PLAYGROUND: Final[list[tempfile.TemporaryDirectory[str]]] = []  # the demo's files go with the process


def served() -> Agent:
    """Give the agent that is served, the same for every run, whoever asks first."""
    with _LOCK:
        return _served()


@cache
def _served() -> Agent:
    if named := os.environ.get(APP):
        return agent_named(named)[0]
    _PLAYGROUND.append(tempfile.TemporaryDirectory(prefix="graph-agent-served-", ignore_cleanup_errors=True))
    folder = Path(_PLAYGROUND[0].name)
    furnish(folder)
    return agent_for(folder, model_for(), saver=database())


def graph() -> Any:
    """Give the graph without its saver: the server hands that in for every run."""
    return served().graph.copy(update={"checkpointer": None})


@asynccontextmanager
async def checkpointer() -> AsyncIterator[Any]:
    """Give the agent's own saver, in whose database its ledger and its large results are."""
    yield served().saver
