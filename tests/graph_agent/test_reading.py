"""The agent's reading of its timeline: what it took, called, asked, was shown and was not."""

from __future__ import annotations

from typing import Any

import pytest

from graph_agent import Context as ContextOptions
from graph_agent.testing import Deliveries, Tries, calls, lookup
from tests.graph_agent.conftest import Make


def told(make: Make, **options: Any) -> Any:
    """Run a thread with a failure, a read, a review and an answer."""
    deliveries = Deliveries()
    agent = make(
        Tries(ConnectionError("gone"), calls(("search", {"query": "ada"}), ("deliver", {"to": "ada"}))),
        "told",
        tools=[lookup({"ada": "a person"}), deliveries.tool()],
        **options,
    )
    run = agent.run("Tell Ada", thread="t")
    waiting = agent.history("t")
    assert [(one.tool, one.answer, one.settled) for one in waiting.reviews()] == [("deliver", "", None)]
    return agent, agent.resume("t", approve=run.reviews[0].id)


def test_stats(make: Make) -> None:
    """Every sum is what the records and counters of the state say, and each group adds up to the whole."""
    agent, run = told(make)
    stats, state = agent.history("t").stats(), run.state
    asked = [one for one in state["decisions"] if one.get("saw")]
    assert stats.total.tokens_in == sum(one["tokens"]["input"] for one in asked) > 0
    assert stats.total.tokens_out == sum(one["tokens"]["output"] for one in asked) > 0
    assert stats.tokens == run.usage["llm_tokens"] == stats.total.tokens_in + stats.total.tokens_out
    assert (stats.llm_calls, stats.total.llm_calls) == (run.usage["llm_calls"], len(asked))
    assert (stats.total.failures, stats.total.retries, stats.total.tool_calls) == (1, 1, 2)
    assert {name: one.tool_calls for name, one in stats.by_tool.items()} == {"search": 1, "deliver": 1}
    assert (stats.by_node["act"].failures, stats.by_node["act"].retries) == (1, 1)
    assert stats.total.seconds == run.usage["wall_time"]
    for group in (stats.by_step, stats.by_node):
        for name in ("tokens_in", "tokens_out", "llm_calls", "tool_calls", "failures", "retries"):
            assert sum(getattr(one, name) for one in group.values()) == getattr(stats.total, name), name


def test_what_it_cost(make: Make) -> None:
    """With prices for a million tokens, each group adds up to the cost of the whole; a model without one is named."""
    agent, _ = told(make)
    history = agent.history("t")
    free, priced = history.stats(), history.stats({"scripted": (2.0, 10.0), "other": (1.0, 1.0)})
    assert (free.total.cost, free.unpriced) == (0.0, ["scripted"])
    assert priced.unpriced == []
    assert priced.total.cost == pytest.approx((priced.total.tokens_in * 2 + priced.total.tokens_out * 10) / 1e6)
    for group in (priced.by_step, priced.by_node):
        assert sum(one.cost for one in group.values()) == pytest.approx(priced.total.cost)


def test_calls_and_reviews(make: Make) -> None:
    """Each call and review with the step it was asked at and the step that settled it."""
    agent, run = told(make)
    history = agent.history("t")
    found = history.calls()
    assert [one.id for one in found] == [call["id"] for call in run.state["calls"]]
    for one in found:
        assert one.record == next(call for call in run.state["calls"] if call["id"] == one.id)
        assert one.id not in {call["id"] for call in history[one.asked].before["calls"]}
        at = {step.number: {c["id"]: c for c in step.values["calls"]} for step in history}
        assert at[one.settled][one.id]["status"] == "done"
        assert at[one.settled - 1][one.id]["status"] != "done"
    (review,) = history.reviews()
    assert (review.tool, review.answer, review.by) == ("deliver", "approve", "user")
    assert history[review.asked].number < review.settled
    failed = [line.step.number for line in history.log(failed=True)]
    assert failed == [step.number for step in history if step.patch.get("failures")]
    assert len(failed) == 1


def test_context(make: Make) -> None:
    """What was shown is what `saw` has, each item with its text and reason; shown and left out are all there is."""
    agent = make(
        calls(("search", {"query": "ada"})),
        "told",
        tools=[lookup({"ada": "a person"})],
        context=ContextOptions(bytes=1_500),
    )
    agent.run("Tell Ada", thread="t")
    update = {
        "facts": [{"id": f"f{n}", "text": f"fact {n} of many " * 9, "source": "x", "trust": "agent"} for n in range(40)]
    }
    agent.fork("t@3", thread="u", update=update)
    agent.resume("u")
    history = agent.history("u")
    shown = [(step, history.context(step)) for step in history if step.saw is not None]
    assert shown
    for step, context in shown:
        assert context.messages == step.saw.messages
        assert [(one.kind, one.id, one.reason) for one in context.items] == step.saw.items
        assert context.why == step.saw.left_out
        assert not {(one.kind, one.id) for one in context.items} & {(one.kind, one.id) for one in context.left_out}
    full = [context for _, context in shown if context.left_out]
    assert full
    assert all(sum(context.why.values()) >= len(context.left_out) for context in full)
    assert shown[0][1].left_out == []  # it was asked in the other thread
    assert all(one.text and one.bytes > 0 and not one.reason for one in full[0].left_out)
    quiet = next(step for step in history if step.saw is None)
    assert history.context(quiet.number) is None
