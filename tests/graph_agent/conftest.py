"""Agents for the tests: scripted models, a clock that stands still, and real files that outlive the agent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from checkpointers import Saver, SqliteSaver
from graph_agent import Agent
from graph_agent.testing import FrozenClock, ScriptedModel

Make = Callable[..., Agent]


@pytest.fixture
def clock() -> FrozenClock:
    """Give a clock that all agents of a test go by."""
    return FrozenClock()


@pytest.fixture
def make(tmp_path: Path, clock: FrozenClock) -> Iterator[Make]:
    """Make agents that share nothing but a file, as processes do.

    `saver=…` replaces it, and if that is none of ours, a ledger stands beside it.
    """
    opened: list[SqliteSaver] = []

    def ours(name: str) -> SqliteSaver:
        opened.append(SqliteSaver.open(tmp_path / name))
        return opened[-1]

    def made(*act: Any, plan: Sequence[Any] = ("do it",), saver: Any = None, **options: Any) -> Agent:
        own = {"clock": clock, "sleep": clock.sleep, "chance": lambda: 0.5, **options}
        if saver is None:
            saver = ours("agent.db")
        elif not isinstance(saver, Saver | str):
            own.setdefault("ledger", ours("effects.db"))
        model = own.pop("model", None) or scripted(*act, plan=plan)
        return Agent(model, saver=saver, **own)

    yield made
    for one in opened:
        one.close()


def scripted(*act: Any, plan: Sequence[Any] = ("do it",), **nodes: Sequence[Any]) -> ScriptedModel:
    """Make a model that plans these steps, acts by these lines, and otherwise agrees; a last line is repeated."""
    lines = {"plan": [list(plan)], "act": list(act) or ["done"], "reflect": ["continue"], "answer": ["the answer"]}
    return ScriptedModel({**lines, **nodes}, strict=False)


def call_of(run: Any, tool: str, number: int = 0) -> dict[str, Any]:
    """Give a call of a run by its tool."""
    return [call for call in run.state["calls"] if call["tool"] == tool][number]


def raw(thread: str) -> dict[str, Any]:
    """Give what LangGraph itself is told to find a thread."""
    return {"configurable": {"thread_id": thread}}
