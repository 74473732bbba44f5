"""Resuming: from any crash, by thread id, without losing or repeating what was stored; and who may not go on, and why."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver as OfficialSqliteSaver
from langgraph.types import interrupt

from checkpointers.testing import wait_until
from graph_agent import (
    AgentState,
    Budget,
    Deadline,
    Migrations,
    Node,
    Patch,
    ReviewPolicy,
    RunFailedError,
    latest,
    tool,
    upsert,
)
from graph_agent.errors import (
    ChangedGraphError,
    ExpiredThreadError,
    FinishedThreadError,
    OpenThreadError,
    SetupError,
    UnknownThreadError,
)
from graph_agent.events import Finished
from graph_agent.testing import Deliveries, FrozenClock, calls, lookup
from tests.graph_agent import crash
from tests.graph_agent.conftest import Make, call_of, raw
from tests.graph_agent.test_state import GoalView, Mine, writing

ROOT = Path(__file__).parent.parent.parent
HANG = calls(("note", {"to": "log"}), ("hang", {"x": "1"}))


# SIGKILL, many times.


def killed(kind: str, url: str, folder: Path, first: int = 1, every: int = 1) -> str:
    """Run the crashes in a process of their own, which may fork."""
    code = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "tests.graph_agent.crash",
        kind,
        url,
        str(folder),
        str(first),
        str(every),
    ]
    done = subprocess.run(code, cwd=ROOT, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr[-3_000:]
    assert "lost 0, wrong 0" in done.stdout
    return done.stdout


@pytest.mark.slow
def test_kill_at_every_place(tmp_path: Path) -> None:
    """Killed before any question to the model, before or after any effect, or asleep: the end is the same."""
    assert f"tried {len(crash.PLACES)}," in killed("places", f"sqlite:///{tmp_path}/a.db", tmp_path)


@pytest.mark.slow
def test_kill_at_some_requests(backend: str, url: str, tmp_path: Path) -> None:
    """Killed before requests to the database, near and far apart: the end is the same, no finished call is repeated."""
    first, every = (2, 7) if backend == "sqlite" else (8, 9)
    killed("requests", url, tmp_path, first, every)


@pytest.mark.slow
def test_next_is_empty_but_it_is_not_done(tmp_path: Path) -> None:
    """Where the official saver has two commits, a death between them loses nothing, though `next` is empty there."""
    told = killed("puts", str(tmp_path / "official.db"), tmp_path)
    assert int(told.rpartition("next empty ")[2].split()[0]) > 3


class FullDisk(OfficialSqliteSaver):
    """The official saver on a disk that is full when the last checkpoint comes."""

    full = True

    def put(self, config: Any, checkpoint: Any, *more: Any) -> Any:
        if self.full and checkpoint["channel_values"].get("phase") == "done":
            raise sqlite3.OperationalError("database or disk is full")
        return super().put(config, checkpoint, *more)


def test_last_checkpoint_that_is_not_stored(make: Make, tmp_path: Path) -> None:
    """With all writes stored but not the checkpoint, nothing is next and the phase is done: the thread is not."""
    saver = FullDisk(sqlite3.connect(tmp_path / "full.db", check_same_thread=False))
    agent = make("the end", saver=saver)
    with pytest.raises(sqlite3.OperationalError, match="disk is full"):
        agent.run("go", thread="t")
    snapshot = agent.graph.get_state(raw("t"))
    assert (snapshot.next, [task.name for task in snapshot.tasks]) == ((), ["answer"])
    run = agent.state("t")
    assert (run.status, run.phase, run.answer) == ("crashed", "done", None)
    saver.full = False
    assert agent.resume("t").answer == "the end"
    saver.conn.close()


# Where a thread stands.


def hanging(deliveries: Deliveries) -> tuple[list[Any], Callable[[], bool]]:
    """Make a tool that notes, one that never ends, and what tells that it has begun."""
    begun = threading.Event()

    async def hang(x: str, idempotency_key: str) -> str:
        """Hang."""
        begun.set()
        await asyncio.Event().wait()
        return x

    note = deliveries.tool("note", risk="write_local")
    return [note, tool(risk="write_local")(hang)], begun.is_set


def ending(deliveries: Deliveries) -> list[Any]:
    """Make the same tools, but the one that hung ends; it takes a key, so that it may be run again."""

    def hang(x: str, idempotency_key: str) -> str:
        deliveries.done.append(("hang", {"to": x}))
        return "ended"

    return [deliveries.tool("note", risk="write_local"), tool(risk="write_local")(hang)]


def crashed(make: Make, deliveries: Deliveries, *act: Any, **options: Any) -> Any:
    """Leave a thread where one of two parallel calls is done and the other was cut off."""
    tools, begun = hanging(deliveries)
    agent = make(*(act or (HANG, "done")), tools=tools, **options)

    async def cut() -> None:
        task = asyncio.create_task(agent.arun("go", thread="t"))
        while not begun() or call_of(await stood(agent), "note")["status"] != "done":  # noqa: ASYNC110  it begins on another thread or loop
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cut())
    return agent


async def stood(agent: Any) -> Any:
    return await agent.astate("t")


def test_status_crashed(make: Make) -> None:
    """Cut off in the middle of a step: crashed; finished siblings keep their results and are not run again."""
    deliveries = Deliveries()
    agent = crashed(make, deliveries)
    assert (agent.state("t").status, len(deliveries)) == ("crashed", 1)
    run = make(HANG, "done", tools=ending(deliveries)).resume("t")
    assert (run.status, [name for name, _ in deliveries.done]) == ("done", ["note", "hang"])
    assert call_of(run, "hang")["rule"].startswith("run again under the same key")
    assert "rule" not in call_of(run, "note")


def unknowing(done: list[str], begun: threading.Event, *, hangs: bool) -> list[Any]:
    """Make a tool that has no key and no probe: what came of a call that was cut off, it cannot say."""

    async def hang(x: str) -> str:
        begun.set()
        if hangs:
            await asyncio.Event().wait()
        done.append(x)
        return "ended"

    return [tool(risk="write_local")(hang)]


@pytest.mark.parametrize(
    ("answer", "result", "made", "left"),
    [
        ("done", "it was there", 0, "done"),
        ("not_done", "ended", 1, "done"),
        ("abandon", "nobody knows whether this was done, and it is not to be tried again", 0, "abandoned"),
    ],
)
def test_cut_off_and_nobody_knows(make: Make, answer: str, result: str, made: int, left: str) -> None:
    """Cut off in a call that cannot tell what came of it: a person is asked, and it is begun again only if they say so."""
    line, done, begun = calls(("hang", {"x": "1"})), list[str](), threading.Event()
    agent = make(line, "done", tools=unknowing(done, begun, hangs=True))
    for event in agent.stream("go", thread="t"):
        if getattr(event, "tool", "") == "hang":
            assert begun.wait(20)
            break
    assert agent.state("t").status == "crashed"
    agent = make(line, "done", tools=unknowing(done, begun, hangs=False))
    run = agent.resume("t")
    (review,) = run.reviews
    assert (run.status, review.kind, review.tool, review.args, done) == ("waiting", "in_doubt", "hang", {"x": "1"}, [])
    assert agent.resume("t").reviews == run.reviews
    run = agent.resume("t", **{answer: {review.id: "it was there"} if answer == "done" else review.id}, by="ada")
    assert (run.status, call_of(run, "hang")["result"], len(done)) == ("done", result, made)
    assert "ada said of attempt 1" in call_of(run, "hang")["rule"]
    assert [entry.status for entry in agent.effects("t")] == [left]


def test_status_running(make: Make) -> None:
    """While a run goes on in this process, others see that, and are refused."""
    tools, begun = hanging(Deliveries())
    agent = make(HANG, "done", tools=tools)

    async def look() -> None:
        task = asyncio.create_task(agent.arun("go", thread="t"))
        while not begun():  # noqa: ASYNC110  it begins on another thread or loop
            await asyncio.sleep(0.005)
        assert (await agent.astate("t")).status == "running"
        with pytest.raises(OpenThreadError, match="running"):
            await agent.aresume("t")
        with pytest.raises(OpenThreadError, match="running"):
            await agent.arun("another", thread="t")
        with pytest.raises(OpenThreadError, match="running"):
            await agent.arun("another", thread="t", supersede=True)
        with pytest.raises(OpenThreadError, match="running"):
            await agent.aresume("t", approve="r-1")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(look())
    assert agent.state("t").status == "crashed"
    assert agent.state("t").state["goal"] == "go"


def test_two_agents_on_one_thread_in_one_process(make: Make) -> None:
    """A cell that makes the agent anew while the old one runs: the thread is still running, and is refused."""
    deliveries = Deliveries()
    tools, begun = hanging(deliveries)
    agent = make(HANG, "done", tools=tools)

    async def look() -> None:
        task = asyncio.create_task(agent.arun("go", thread="t"))
        while not begun():  # noqa: ASYNC110  it begins on another thread or loop
            await asyncio.sleep(0.005)
        try:
            with pytest.raises(OpenThreadError, match="running"):
                await make(HANG, "done", tools=ending(deliveries)).aresume("t")
        finally:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(look())


def test_status_unknown(make: Make) -> None:
    """A thread that nobody began."""
    agent = make("done")
    assert agent.state("nope").status == "unknown"
    with pytest.raises(UnknownThreadError, match="'nope'; begin it with run"):
        agent.resume("nope")
    assert agent.threads() == []


def test_status_failed_by_the_model(make: Make) -> None:
    """A model that refuses ends the run in an error, with its record; the error's cause gone, the thread goes on."""
    agent = make(ValueError("bad request"))
    run = agent.run("go", thread="t")
    assert (run.status, run.phase, run.answer) == ("failed", "error", None)
    assert "bad request" in run.reason
    with pytest.raises(RunFailedError, match="bad request") as caught:
        run.raise_for_status()
    assert caught.value.facts["failure"] == run.failures[0]
    assert (run.failures[0]["node"], run.failures[0]["retry_at"]) == ("act", None)
    assert make().state("t").status == "failed"
    run = make("done").resume("t")
    assert (run.status, run.raise_for_status().answer) == ("done", "done")
    assert [one["node"] for one in run.state["decisions"]] == ["plan", "act", "answer"]


def test_status_stopped(make: Make) -> None:
    """A budget that is spent stops the thread with the reason; more budget, and it goes on where it was."""
    agent = make(calls(("search", {"query": "x"})), "done", tools=[lookup({})], budget=Budget(max_steps=2))
    run = agent.run("go", thread="t")
    assert (run.status, run.phase, run.reason) == ("stopped", "stopped", "steps: 2 of 2")
    assert agent.resume("t").status == "stopped"
    run = agent.resume("t", budget=Budget(max_steps=20))
    assert (run.status, run.answer, run.usage["steps"]) == ("done", "done", 6)


def test_status_waiting_and_done(make: Make) -> None:
    """Waiting has reviews and no answer; done has an answer, and no review."""
    agent = make(calls(("deliver", {"to": "ada"})), "done", tools=[Deliveries().tool()])
    run = agent.run("go", thread="t")
    assert (run.status, run.answer, len(run.reviews)) == ("waiting", None, 1)
    run = agent.resume("t", approve=run.reviews[0].id)
    assert (run.status, run.answer, run.reviews) == ("done", "done", ())


def test_done_thread(make: Make) -> None:
    """It cannot be resumed, but takes a new goal, and keeps what it knows."""
    agent = make(calls(("search", {"query": "x"})), "first", "second", tools=[lookup({"x": "y"})])
    agent.run("one", thread="t")
    with pytest.raises(FinishedThreadError, match="is done; give it new input"):
        agent.resume("t")
    run = agent.run("two", thread="t")
    assert (run.status, run.answer, run.state["goal"]) == ("done", "second", "two")
    assert [message["content"] for message in run.state["messages"]] == ["one", "first", "two", "second"]
    assert len(run.state["facts"]) == 1


def test_crashed_thread_takes_new_input_only_if_told(make: Make) -> None:
    """New input would give up what is unfinished: it must say so."""
    deliveries = Deliveries()
    agent = crashed(make, deliveries)
    with pytest.raises(OpenThreadError, match="crashed: its work is not finished"):
        agent.run("another", thread="t")
    assert agent.state("t").state["goal"] == "go"


def test_supersede_a_crashed_thread(make: Make) -> None:
    """What had finished stays finished, and is not run again; what was cut off is recorded as given up."""
    deliveries = Deliveries()
    crashed(make, deliveries)
    run = make(HANG, "new", tools=ending(deliveries)).run("another", thread="t", supersede=True, by="grace")
    assert (run.status, run.answer) == ("done", "new")
    assert [name for name, _ in deliveries.done] == ["note"]
    assert (call_of(run, "note")["status"], call_of(run, "note")["result"]) == ("done", "delivered to log")
    assert (call_of(run, "hang")["status"], call_of(run, "hang")["by"]) == ("superseded", "grace")


@pytest.mark.parametrize("how", ["budget", "deadline"])
def test_crashed_thread_with_another_budget(make: Make, how: str) -> None:
    """Resuming with a budget or a deadline neither forgets the calls that are under way nor repeats those that ended."""
    deliveries = Deliveries()
    crashed(make, deliveries)
    options = {"deadline": Deadline(run=1000)} if how == "deadline" else {}
    agent = make(HANG, "done", tools=ending(deliveries), **options)
    run = agent.resume("t", **({"budget": Budget(max_steps=50)} if how == "budget" else {}))
    assert (run.status, [name for name, _ in deliveries.done]) == ("done", ["note", "hang"])
    assert run.state["budget"]["max_steps"] == (50 if how == "budget" else 200)
    assert ("deadline_at" in run.state["budget"]) == (how == "deadline")


def test_answer_with_another_budget(make: Make) -> None:
    """An answer and a budget given together are both taken."""
    agent = make(calls(("deliver", {"to": "ada"})), "done", tools=[Deliveries().tool()])
    review = agent.run("go", thread="t").reviews[0]
    run = agent.resume("t", approve=review.id, budget=Budget(max_steps=77))
    assert (run.status, run.state["budget"]["max_steps"]) == ("done", 77)


# Interrupts from outside.


def test_keyboard_interrupt(make: Make) -> None:
    """Ctrl-C in a cell ends the wait with KeyboardInterrupt; the thread is resumable, finished siblings are kept."""
    deliveries = Deliveries()
    note = deliveries.tool("note", risk="write_local")

    async def hang(x: str, idempotency_key: str) -> str:
        """Hang, once the other call is on record."""
        while "done" not in [entry.status for entry in await agent.aeffects("t")]:  # noqa: ASYNC110  it is said by another task
            await asyncio.sleep(0.005)
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()
        return x

    agent = make(HANG, "done", tools=[note, tool(risk="write_local")(hang)])
    with pytest.raises(KeyboardInterrupt):
        agent.run("go", thread="t")
    wait_until(lambda: agent.state("t").status != "running")
    assert agent.state("t").status == "crashed"
    run = make(HANG, "done", tools=ending(deliveries)).resume("t")
    assert run.status == "done"
    assert [name for name, _ in deliveries.done] == ["note", "hang"]


def test_resume_right_after_keyboard_interrupt(make: Make) -> None:
    """Once Ctrl-C came out, the run has ended: the next cell may resume at once."""
    slow = threading.Event()

    async def hang(x: str) -> str:
        """Take its time to end."""
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.2)
            slow.set()
        return x

    agent = make(calls(("hang", {"x": "1"})), "done", tools=[tool(risk="write_local")(hang)])
    with pytest.raises(KeyboardInterrupt):
        agent.run("go", thread="t")
    try:
        assert agent.state("t").status == "crashed"
    finally:
        slow.wait(10)
        wait_until(lambda: agent.state("t").status != "running")


def test_stream_that_nobody_listens_to(make: Make) -> None:
    """Who stops listening stops the run; the thread is resumable."""
    deliveries = Deliveries()
    tools, _ = hanging(deliveries)
    agent = make(HANG, "done", tools=tools)
    for event in agent.stream("go", thread="t"):
        if isinstance(event, Finished) and event.node == "tool":  # the other one never ends
            break
    wait_until(lambda: agent.state("t").status != "running")
    assert agent.state("t").status == "crashed"
    assert make(HANG, "done", tools=ending(deliveries)).resume("t").status == "done"
    assert [name for name, _ in deliveries.done] == ["note", "hang"]


# Age.


def test_expired_thread(make: Make, clock: FrozenClock) -> None:
    """A thread older than `max_age` is not resumed, and can still be read; the error says how old."""
    from datetime import datetime

    agent = make(calls(("deliver", {"to": "ada"})), "done", tools=[Deliveries().tool()], max_age="1d")
    review = agent.run("go", thread="t").reviews[0]
    written = agent.graph.get_state(raw("t")).created_at
    clock.now = datetime.fromisoformat(written).timestamp() + 86_399
    assert agent.resume("t").status == "waiting"
    clock.now += 2
    with pytest.raises(ExpiredThreadError, match="1 day, 0:00:01 ago") as caught:
        agent.resume("t", approve=review.id)
    assert caught.value.facts["age"] > 86_400
    assert (agent.state("t").status, len(agent.history("t")) > 0) == ("waiting", True)
    assert make("x", tools=[Deliveries().tool()], max_age="2d").resume("t", approve=review.id).status == "done"


# Code that changed.


def asking(name: str) -> tuple[str, Node]:
    async def body(view: Any, kit: Any, where: Any) -> Any:
        return Patch().fact(f"{name}: {interrupt('well?')['message']}")

    return ("reflect", Node(name, body, GoalView))


def test_renamed_node(make: Make) -> None:
    """A thread that waits in a node which is gone is refused with the node's name; it does not end as if finished."""
    run = make("done", nodes=[asking("old")]).run("go", thread="t")
    assert run.status == "waiting"
    renamed = make("done", nodes=[asking("new")])
    assert renamed.state("t").status == "crashed"
    with pytest.raises(ChangedGraphError, match="stands at node 'old', which this graph does not have"):
        renamed.resume("t")
    with pytest.raises(ChangedGraphError, match="'old'"):
        renamed.run("another", thread="t")
    assert len(renamed.history("t")) > 0
    again = make("done", nodes=[asking("old")])
    assert again.resume("t", respond={run.reviews[0].id: "yes"}).status == "done"


def test_stopped_at_a_node_that_is_gone(make: Make) -> None:
    """A thread that stopped at a node which is gone is refused just so."""
    _, node = writing({}, view=GoalView)
    node = Node("mine", node.body, GoalView, decides=True)
    agent = make("done", nodes=[("reflect", node)], budget=Budget(max_steps=2))
    assert agent.run("go", thread="t").status == "stopped"
    with pytest.raises(ChangedGraphError, match="'mine'"):
        make("done").resume("t", budget=Budget())


def test_newer_state(make: Make) -> None:
    """State of a newer version is refused by older code, on resume, new input and fork; its history can be read."""
    newer = make("done", state=Mine, migrations=Migrations({1: lambda _: {"mood": "new"}}))
    newer.run("go", thread="t")
    older = make("done", state=Mine)
    for door in (
        lambda: older.resume("t"),
        lambda: older.run("more", thread="t"),
        lambda: older.fork("t@2", thread="f"),
    ):
        with pytest.raises(ChangedGraphError, match="version 2, this code knows 1"):
            door()
    assert older.state("t").answer == "done"
    assert len(older.history("t")) > 3


def test_missing_migration(make: Make) -> None:
    """State that no migration leads up from is refused, with what to register."""
    make("done").run("go", thread="t")
    gap = make("done", migrations=Migrations({2: lambda _: {}}))
    with pytest.raises(ChangedGraphError, match=r"no migration leads from 1 to 2; register one with Migrations\(\{1: "):
        gap.run("more", thread="t")


def test_migration_of_a_finished_thread(make: Make) -> None:
    """It is one more step of the thread, which says that it is one; what was stored stays as it was."""
    make("first", state=Mine).run("one", thread="t")
    before = [step.values for step in make(state=Mine).history("t")]
    migrations = Migrations(
        {1: lambda old: {"mood": old["goal"] + "!"}, 2: lambda old: {"marks": [{"id": old["mood"]}]}}
    )
    agent = make("first", "second", state=Mine, migrations=migrations)
    run = agent.run("two", thread="t")
    assert (run.status, run.answer) == ("done", "second")
    assert (run.state["schema_version"], run.state["mood"], run.state["marks"]) == (3, "one!", [{"id": "one!"}])
    history = agent.history("t")
    assert [step.values for step in history][: len(before)] == before
    assert [step.metadata.get("migration") for step in history].count(3) >= 1
    assert {step.metadata["schema_version"] for step in history} == {1, 3}


def test_migration_of_a_waiting_thread(make: Make) -> None:
    """The open reviews stay open, with their ids; the finished sibling is not run again; the answer is taken."""
    deliveries = Deliveries()
    tools = [deliveries.tool(), deliveries.tool("note", risk="write_local")]
    line = calls(("note", {"to": "log"}), ("deliver", {"to": "ada"}))
    review = make(line, "done", state=Mine, tools=tools).run("go", thread="t").reviews[0]
    agent = make(line, "done", state=Mine, tools=tools, migrations=Migrations({1: lambda _: {"mood": "up to date"}}))
    run = agent.resume("t", approve=review.id)
    assert (run.status, [name for name, _ in deliveries.done]) == ("done", ["note", "deliver"])
    assert (run.state["schema_version"], run.state["mood"]) == (2, "up to date")


def test_migration_of_a_crashed_thread(make: Make) -> None:
    """The calls that were under way are gone on with, and those that ended are not repeated."""
    deliveries = Deliveries()
    crashed(make, deliveries, state=Mine)
    agent = make(
        HANG, "done", state=Mine, tools=ending(deliveries), migrations=Migrations({1: lambda _: {"mood": "up"}})
    )
    run = agent.resume("t")
    assert (run.status, [name for name, _ in deliveries.done], run.state["mood"]) == ("done", ["note", "hang"], "up")


def test_migration_on_fork(make: Make) -> None:
    """A fork of an old step is brought up to date; the old thread stays old."""
    make("first", state=Mine).run("one", thread="t")
    agent = make("first", state=Mine, migrations=Migrations({1: lambda _: {"mood": "new"}}))
    fork = agent.fork("t@3", thread="fork")
    assert (fork.state["schema_version"], fork.state["mood"]) == (2, "new")
    assert agent.resume("fork").status == "done"
    assert agent.state("t").state["schema_version"] == 1
    assert "mood" not in agent.state("t").state or agent.state("t").state["mood"] == ""


def test_bad_migration(make: Make) -> None:
    """A migration that writes what the state does not take is refused, and nothing is stored."""
    make("first").run("one", thread="t")
    agent = make("first", migrations=Migrations({1: lambda _: {"nonsense": 1}}))
    with pytest.raises(Exception, match="nonsense"):
        agent.run("more", thread="t")
    assert make("first").state("t").state["schema_version"] == 1


def test_old_thread_gets_new_keys(make: Make) -> None:
    """A key that the old code did not have needs no migration: it begins empty."""
    make(calls(("deliver", {"to": "ada"})), "done", tools=[Deliveries().tool()]).run("go", thread="t")

    class Newer(AgentState, total=False):
        marks: Annotated[list[dict[str, Any]], upsert]
        mood: Annotated[str, latest]

    agent = make("x", state=Newer, tools=[Deliveries().tool()], nodes=[writing(Patch().add("marks", {"id": "a"}))])
    run = agent.resume("t", approve=agent.state("t").reviews[0].id)
    assert (run.status, run.state["marks"]) == ("done", [{"id": "a"}])


def test_thread_of_the_bare_graph(make: Make) -> None:
    """A thread that was begun through `agent.graph` is a thread like any other."""
    agent = make(calls(("deliver", {"to": "ada"})), "done", tools=[Deliveries().tool()])
    asyncio.run(agent.graph.ainvoke({"goal": "go"}, raw("t")))
    review = agent.state("t").reviews[0]
    assert agent.resume("t", approve=review.id).status == "done"


def test_empty_goal(make: Make) -> None:
    """A goal that says nothing is refused before a thread is made."""
    agent = make("done")
    with pytest.raises(SetupError, match="the goal is empty"):
        agent.run("  ", thread="t")
    assert agent.state("t").status == "unknown"


def test_thread_names(make: Make) -> None:
    """A thread gets a name if it has none; a name may be any text or number, and does not meddle with others."""
    agent = make("done")
    made = agent.run("go").thread
    assert agent.state(made).status == "done"
    for name in ("a/b", "ü x", "t@3", "%", 7):
        assert agent.run("go", thread=name).thread == str(name)
        assert agent.state(name).answer == "done"


def test_review_policy_of_another_day(make: Make) -> None:
    """A review that is open stays open, whatever the policy is by now."""
    deliveries = Deliveries()
    line = calls(("deliver", {"to": "ada"}))
    make(line, "done", tools=[deliveries.tool()]).run("go", thread="t")
    agent = make(line, "done", tools=[deliveries.tool()], review=ReviewPolicy(required_for=[]))
    assert (agent.resume("t").status, len(deliveries)) == ("waiting", 0)


def test_fork_of_an_expired_thread(make: Make, clock: FrozenClock) -> None:
    """The way out that the error names works: a fork is as young as its making."""
    agent = make("done", max_age="1d")
    agent.run("go", thread="t")
    clock.now += 10 * 365 * 86_400
    with pytest.raises(ExpiredThreadError, match="fork"):
        agent.run("more", thread="t")
    agent.fork("t@3", thread="fork")
    young = make("done", max_age="20000d")
    assert young.resume("fork").status == "done"
