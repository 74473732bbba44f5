"""The fixtures that the product ships, used as a user would."""

from __future__ import annotations

from typing import Any

from graph_agent.testing import Deliveries, FrozenClock, Tries, calls

pytest_plugins = ["graph_agent.fixtures"]


def test_it_asks_before_it_sends(make_agent: Any, deliveries: Deliveries) -> None:
    """A specification of an agent without a model: it asks, sends once, and is done."""
    agent = make_agent(
        plan=[["tell Ada"]], act=[calls(("deliver", {"to": "ada"})), "told"], tools=[deliveries.tool()]
    )  # fmt: skip
    run = agent.run("tell Ada")
    assert (run.status, len(deliveries)) == ("waiting", 0)
    run = agent.resume(run.thread, approve=run.reviews[0].id)
    assert (run.phase, run.answer, deliveries.done) == ("done", "told", [("deliver", {"to": "ada", "body": ""})])


def test_nobody_waits_for_real(make_agent: Any, frozen_clock: FrozenClock) -> None:
    """Waiting between attempts passes on the frozen clock."""
    agent = make_agent(plan=[Tries(ConnectionError("gone"), ConnectionError("gone"), ["look"])], act=["seen"])
    run = agent.run("look")
    assert run.answer == "seen"
    assert frozen_clock.naps == [0.5, 1.0]
    assert [failure["attempt"] for failure in run.failures] == [1, 2]
