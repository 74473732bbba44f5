"""Pytest fixtures for agents: `pytest_plugins = ["graph_agent.fixtures"]` in your `conftest.py`.

A specification of an agent is then a test without a model:

    def test_it_asks_before_it_sends(make_agent, deliveries):
        lines = {"plan": [["tell Ada"]], "act": [calls(("deliver", {"to": "ada"})), "told"]}
        agent = make_agent(**lines, tools=[deliveries.tool()])
        run = agent.run("tell Ada")
        assert (run.status, len(deliveries)) == ("waiting", 0)
        assert agent.resume(run.thread, approve=run.reviews[0].id).answer == "told"
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from graph_agent.agent import Agent
from graph_agent.testing import Deliveries, FrozenClock, ScriptedModel

LINES = ("plan", "act", "reflect", "answer")


@pytest.fixture
def frozen_clock() -> FrozenClock:
    """Give a clock that stands still; agents of `make_agent` live by it."""
    return FrozenClock()


@pytest.fixture
def deliveries() -> Deliveries:
    """Give stand-in tools that note what they did."""
    return Deliveries()


@pytest.fixture
def make_agent(frozen_clock: FrozenClock) -> Iterator[Callable[..., Agent]]:
    """Give a maker of agents: lines of the script by node, everything else as `Agent` takes it."""
    made: list[Agent] = []

    def make(**options: Any) -> Agent:
        lines = {node: options.pop(node) for node in LINES if node in options}
        given = {"clock": frozen_clock, "sleep": frozen_clock.sleep, "chance": lambda: 0.5, **options}
        made.append(Agent(given.pop("model", None) or ScriptedModel(lines), **given))
        return made[-1]

    yield make
    for agent in made:
        close = getattr(agent.saver, "close", None)
        if close is not None:
            close()
