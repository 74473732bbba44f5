"""The guards of effects, one test each, on both databases: remove one, and its test fails (`tests/proofs/mutants.py`)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver

from checkpointers import LeaseLostError, Saver
from checkpointers.testing import wait_until
from graph_agent import Agent, Toolbox, tool
from graph_agent.errors import SetupError, UnknownReviewError
from graph_agent.events import Started
from graph_agent.testing import Deliveries, calls, lookup
from tests.conftest import reopen
from tests.graph_agent.conftest import Make, call_of, raw, scripted

NOTE = calls(("note", {"to": "ada", "body": "hi"}))
HANG = calls(("hang", {"x": "1"}))
BEGUN_AGAIN = "begun again: user said of attempt 1 that it was not done"


@pytest.fixture
def books(url: str) -> Iterator[Saver]:
    """Give a saver on either database."""
    with reopen(url) as saver:
        yield saver


def statuses(agent: Agent, thread: str = "t") -> list[str]:
    return [entry.status for entry in agent.effects(thread)]


def test_an_effect_is_claimed_before_it_is_made(make: Make, books: Saver, url: str) -> None:
    """While it is made its claim is there for any process to read; after it, what it returned."""
    seen: list[tuple[str, dict[str, Any]]] = []

    @tool(risk="write_local")
    def note(to: str, body: str) -> str:
        with reopen(url) as other:
            (entry,) = other.ledger.entries("t")
        seen.append((entry.status, dict(entry.record["args"])))
        return "noted"

    agent = make(NOTE, "done", tools=[note], saver=books)
    assert agent.run("go", thread="t").status == "done"
    assert seen == [("claimed", {"to": "ada", "body": "hi"})]
    (entry,) = agent.effects("t")
    assert (entry.status, entry.record["result"], entry.record["attempt"]) == ("done", "noted", 1)
    assert entry.key.startswith("t:s-")
    assert ":note:" in entry.key


def test_the_same_call_again_is_given_the_record(make: Make, books: Saver) -> None:
    """In the same step, later or at once, it is not made again: it has the recorded result, and the model is told so."""
    deliveries = Deliveries()
    both = calls(*[("note", {"to": "ada", "body": "hi"})] * 2)
    agent = make(NOTE, both, "done", tools=[deliveries.tool("note", risk="write_local")], saver=books)
    run = agent.run("go", thread="t")
    assert (run.status, len(deliveries), len(agent.effects("t"))) == ("done", 1, 1)
    assert {call["result"] for call in run.state["calls"]} == {"delivered to ada"}
    rules = [call.get("rule", "")[:46] for call in run.state["calls"]]
    assert rules == ["", *["not run again: it was done at 2027-01-15T08:00"] * 2]
    _, messages = agent.kit.model.chat.asked[-1]
    assert sum("not run again" in str(message.content) for message in messages) == 2


def test_a_new_goal_is_another_effect(make: Make, books: Saver) -> None:
    """The same words on the same thread, asked for anew: the same steps and calls are other effects."""
    deliveries = Deliveries()
    agent = make(NOTE, "done", NOTE, "done", tools=[deliveries.tool("note", risk="write_local")], saver=books)
    for _ in range(2):
        assert agent.run("go", thread="t").status == "done"
    first, second = (entry.key for entry in agent.effects("t"))
    assert (len(deliveries), statuses(agent)) == (2, ["done", "done"])
    assert second == first.replace(":note:", "~2:note:")


class Line:
    """A tool without key or probe, on a line that may be dead: what came of a call it cannot say."""

    def __init__(self) -> None:
        self.begun, self.made, self.dead = threading.Event(), list[str](), True

    def tools(self) -> list[Any]:
        async def hang(x: str) -> str:
            self.made.append(x)
            self.begun.set()
            await asyncio.sleep(3_600 if self.dead else 0)
            return "ended"

        return [tool(risk="write_local")(hang)]

    def cut_off(self, events: Any) -> None:
        """Stop a run in the middle of the call."""
        self.begun.clear()
        for event in events:
            if isinstance(event, Started) and event.tool == "hang":
                assert self.begun.wait(20)
                break


def test_an_answer_is_for_one_attempt(make: Make, books: Saver) -> None:
    """Cut off again after somebody said "not done", it is asked about again; the old answer, given again, says nothing."""
    line = Line()
    agent = make(HANG, "done", tools=line.tools(), saver=books)
    line.cut_off(agent.stream("go", thread="t"))
    (first,) = agent.resume("t").reviews
    line.cut_off(agent.stream_resume("t", not_done=first.id))
    assert (agent.state("t").status, len(line.made)) == ("crashed", 2)
    run = agent.resume("t")
    (second,) = run.reviews
    assert (run.status, second.kind, len(line.made)) == ("waiting", "in_doubt", 2)
    assert second.id != first.id
    line.dead = False
    run = agent.resume("t", not_done=first.id)
    assert (run.status, run.reviews[0].id, len(line.made)) == ("waiting", second.id, 2)
    with pytest.raises(UnknownReviewError, match="has no review 'r-none'"):
        agent.resume("t", not_done="r-none")
    run = agent.resume("t", not_done=second.id)
    assert (run.status, len(line.made), statuses(agent)) == ("done", 3, ["done"])
    assert call_of(run, "hang")["rule"] == BEGUN_AGAIN.replace("1", "2")
    assert agent.effects("t")[0].record["attempt"] == 3


def test_a_record_needs_the_lease(make: Make, books: Saver, url: str) -> None:
    """Who lost the thread in the middle of an effect records nothing of it, and is told; it is in doubt for the next."""

    @tool(risk="write_local")
    def note(to: str, body: str) -> str:
        taken_over.__enter__()
        return "noted"

    agent = make(NOTE, "done", tools=[note], saver=books)
    with reopen(url) as other:
        taken_over = other.lease("t", owner="grace", if_busy="interrupt")
        with pytest.raises(LeaseLostError, match="grace holds it now"):
            agent.run("go", thread="t")
        assert statuses(agent) == ["claimed"]
        taken_over.__exit__(None, None, None)
    assert [review.kind for review in agent.resume("t").reviews] == ["in_doubt"]


def test_an_effect_waits_for_its_step(make: Make, books: Saver) -> None:
    """Where no step waits until it is stored, an effect does: no crash forgets who decided on it."""
    stored: list[list[str]] = []

    @tool(risk="write_local")
    def note(to: str, body: str) -> str:
        found = books.get_tuple(raw("t"))
        assert found is not None
        stored.append([call["status"] for call in found.checkpoint["channel_values"].get("calls", ())])
        return "noted"

    agent = make(NOTE, "done", tools=[note], saver=slow(books), checkpoint="async")
    assert agent.run("go", thread="t").status == "done"
    assert stored == [["approved"]]
    with pytest.raises(SetupError, match="durability='exit' stores nothing before a run ends"):
        asyncio.run(agent.graph.ainvoke({"goal": "go"}, raw("u"), durability="exit"))
    assert (len(stored), statuses(agent, "u")) == (1, [])


def slow(saver: Saver) -> Any:
    """Make the saver take its time for each checkpoint."""

    class Slow(type(saver)):  # type: ignore[misc]
        async def aput(self, *args: Any, **options: Any) -> Any:
            await asyncio.sleep(0.2)
            return await super().aput(*args, **options)

    return Slow(saver.database)


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_effects_without_a_ledger_are_refused(make: Make, durability: str) -> None:
    """A saver of others keeps no ledger: without one beside it only tools that read are taken; ours needs none beside."""
    checkpoint = "step" if durability == "sync" else "async"
    harmless = lookup({"x": "y"})
    foreign = Toolbox().add(StructuredTool.from_function(lambda x: x, name="copy", description="copy"))
    for tools in ([harmless, Deliveries().tool()], [tool(risk="write_local")(Line.cut_off)], foreign):
        with pytest.raises(SetupError, match="has effects, and InMemorySaver keeps no ledger of them: pass ledger="):
            Agent(scripted("done"), tools=tools, saver=InMemorySaver(), checkpoint=checkpoint)
    agent = Agent(scripted("done"), tools=[harmless], saver=InMemorySaver(), checkpoint=checkpoint)
    assert agent.run("go").status == "done"
    with pytest.raises(SetupError, match="keeps the ledger itself; leave ledger= out"):
        Agent(scripted("done"), saver="memory://", ledger="memory://")


@pytest.mark.parametrize(("effects", "made", "waits"), [("reuse", 1, False), ("ask", 1, True), ("run", 2, False)])
def test_a_fork_takes_the_books_along(make: Make, books: Saver, effects: Any, made: int, waits: bool) -> None:
    """From before an effect nothing is made again unasked, whatever becomes of the old thread."""
    deliveries = Deliveries()
    agent = make(NOTE, "done", tools=[deliveries.tool("note", risk="write_local")], saver=books)
    agent.run("go", thread="t")
    decided = next(step.number for step in agent.history("t") if step.values.get("calls"))
    agent.fork(f"t@{decided - 1}", thread="f", effects=effects)
    books.delete_thread("t")
    run = agent.resume("f")
    assert [review.kind for review in run.reviews] == (["in_doubt"] if waits else [])
    run = agent.resume("f", done={run.reviews[0].id: "delivered to ada"}) if waits else run
    assert (run.status, call_of(run, "note")["result"], len(deliveries)) == ("done", "delivered to ada", made)


def test_what_may_still_run_is_not_begun_again(make: Make, books: Saver) -> None:
    """A call that cannot be stopped: in doubt at its deadline, not begun again while it runs, its late result counts."""
    made, go_on = list[str](), threading.Event()

    def hang(x: str) -> str:
        made.append(x)
        go_on.wait(30)
        return "late"

    agent = make(HANG, "done", tools=[tool(risk="write_local", deadline=0.05)(hang)], saver=books)
    run = agent.run("go", thread="t")
    for _ in range(2):
        (review,) = run.reviews
        assert review.kind == "in_doubt"
        assert review.reason.endswith("may still be running")
        run = agent.resume("t", not_done=review.id)
    assert (run.status, made) == ("waiting", ["1"])
    go_on.set()
    wait_until(lambda: agent.resume("t", not_done=agent.state("t").reviews[0].id).status == "done")
    run = agent.state("t")
    assert (run.status, call_of(run, "hang")["result"], made) == ("done", "late", ["1"])
    assert statuses(agent) == ["done"]


def test_taking_back_is_done_once(make: Make, books: Saver) -> None:
    """However often undo is called, and after a compensation that failed: each effect is taken back once."""
    deliveries, trouble, back = Deliveries(), [ConnectionError("no line")], list[tuple[str, str]]()

    def recall(to: str, result: str) -> str:
        if to == "ada" and trouble:
            raise trouble.pop()
        back.append((to, result))
        return "recalled"

    both = calls(("note", {"to": "ada", "body": "hi"}), ("note", {"to": "bob", "body": "hi"}))
    note: Callable[..., Any] = deliveries.tool("note", risk="write_local").function  # type: ignore[assignment]
    agent = make(both, "done", saver=books, tools=[tool(risk="write_local", name="note", compensate=recall)(note)])
    agent.run("go", thread="t")
    order = [entry.record["args"]["to"] for entry in reversed(agent.effects("t"))]
    for _ in range(3):
        undone = agent.undo("t", to="t@1")
    assert (undone.status, undone.left) == ("done", ())
    assert back == [(to, f"delivered to {to}") for to in order]
    assert statuses(agent).count("undone") == 2


def test_a_goal_that_was_rolled_back_is_another_one(make: Make) -> None:
    """What was done for it stays on record under its own key: the next goal with the same plan does its own."""
    notes = Deliveries()
    begun, over = threading.Event(), threading.Event()

    @tool(risk="write_local")
    def hang(x: str, idempotency_key: str) -> str:
        begun.set()
        over.wait(20)
        return x + idempotency_key

    note = notes.tool("note", risk="write_local")
    agent = make(NOTE, HANG, "done", tools=[note, hang])
    with ThreadPoolExecutor(1) as elsewhere:
        cut_off = elsewhere.submit(agent.run, "go", thread="t")
        assert begun.wait(20)
        run = make(NOTE, "done", tools=[note]).run("something else", thread="t", if_busy="rollback")
        over.set()
        assert isinstance(cut_off.exception(20), LeaseLostError)
    assert (run.status, len(notes)) == ("done", 2)


@pytest.mark.parametrize(
    ("effects", "stands", "made"), [("reuse", "done", 1), ("ask", "waiting", 1), ("run", "done", 2)]
)
def test_a_fork_of_the_step_that_decided(make: Make, effects: str, stands: str, made: int) -> None:
    """A call that had ended in the forked step goes by the rule that the fork was given."""
    notes = Deliveries()
    agent = make(NOTE, "done", tools=[notes.tool("note", risk="write_local")])
    agent.run("go", thread="t")
    decided = next(step.number for step in agent.history("t") if step.values.get("calls"))
    agent.fork(f"t@{decided}", thread="f", effects=effects)
    assert (agent.resume("f").status, len(notes)) == (stands, made)
