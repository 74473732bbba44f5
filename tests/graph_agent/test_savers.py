"""The agent on any LangGraph saver, ours and others': the same promises; and its graph as any LangGraph graph."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Annotated, Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver as OfficialPostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver as OfficialSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command
from typing_extensions import TypedDict

from checkpointers import PostgresSaver, SqliteSaver
from checkpointers.official import Borrowed
from graph_agent import Agent, AgentState, latest
from graph_agent.errors import SetupError
from graph_agent.events import Asked, Ended, Finished, Started
from graph_agent.testing import Deliveries, calls, lookup
from tests.graph_agent.conftest import Make, call_of, raw, scripted

KINDS = ["sqlite", "postgres", "official sqlite", "official postgres", "official async postgres", "memory"]
ONE = calls(("deliver", {"to": "ada", "body": "hi"}))
Open = Callable[[], Any]


class Loop:
    """An event loop on a thread of its own, as a server has one."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@pytest.fixture
def server() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture(params=KINDS)
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Give what opens one database anew, as another process would; memory is the one that cannot be reopened."""
    path, memory = tmp_path / "any.db", InMemorySaver()
    url = request.getfixturevalue("postgres_url") if "postgres" in request.param else ""
    with ExitStack() as stack:
        if request.param == "official async postgres":
            yield from _async_postgres(request.getfixturevalue("server"), url)
            return

        def sqlite() -> Any:
            connection = sqlite3.connect(path, check_same_thread=False)
            stack.callback(connection.close)
            return OfficialSqliteSaver(connection)

        def postgres() -> Any:
            saver = stack.enter_context(OfficialPostgresSaver.from_conn_string(url))
            saver.setup()
            return saver

        yield {
            "sqlite": lambda: stack.enter_context(SqliteSaver.open(path)),
            "postgres": lambda: stack.enter_context(PostgresSaver.open(url, pool_size=4)),
            "official sqlite": sqlite,
            "official postgres": postgres,
            "memory": lambda: memory,
        }[request.param]


def _async_postgres(server: Loop, url: str) -> Iterator[Open]:
    stack = AsyncExitStack()

    async def opened() -> Any:
        saver = await stack.enter_async_context(AsyncPostgresSaver.from_conn_string(url))
        await saver.setup()
        return saver

    yield lambda: server.run(opened())
    server.run(stack.aclose())


# One set of scenarios on every saver.


def test_review_and_resume(make: Make, reopen: Open) -> None:
    """A run stops at its review; another agent on the reopened saver goes on by thread id; nothing is done twice."""
    deliveries = Deliveries()
    run = make(ONE, "sent", saver=reopen(), tools=[deliveries.tool()]).run("tell Ada", thread="t")
    assert (run.status, len(deliveries)) == ("waiting", 0)
    after = make(ONE, "sent", saver=reopen(), tools=[deliveries.tool()])
    assert after.state("t").reviews == run.reviews
    run = after.resume("t", approve=run.reviews[0].id)
    assert (run.status, run.answer, deliveries.done) == ("done", "sent", [("deliver", {"to": "ada", "body": "hi"})])
    again = make(saver=reopen()).state("t")
    assert (again.status, again.state) == ("done", run.state)


def test_parallel_calls(make: Make, reopen: Open) -> None:
    """Of two parallel calls one needs a review: the other runs at once, and once."""
    deliveries = Deliveries()
    tools = [deliveries.tool(), deliveries.tool("note", risk="write_local")]
    line = calls(("note", {"to": "log"}), ("deliver", {"to": "ada"}))
    run = make(line, "done", saver=reopen(), tools=tools).run("go", thread="t")
    assert (run.status, [name for name, _ in deliveries.done]) == ("waiting", ["note"])
    assert call_of(run, "note")["status"] == "done"
    run = make(line, "done", saver=reopen(), tools=tools).resume("t", approve=run.reviews[0].id)
    assert (run.status, [name for name, _ in deliveries.done]) == ("done", ["note", "deliver"])
    assert {call["status"] for call in run.state["calls"]} == {"done"}


def test_retry_of_a_failing_tool(make: Make, reopen: Open) -> None:
    """A read-only tool is tried again; the attempts are on record, and can be read by another agent."""
    trouble = [ConnectionError("1"), ConnectionError("2")]

    def search(query: str) -> str:
        if trouble:
            raise trouble.pop()
        return "found"

    run = make(calls(("search", {"query": "x"})), "done", saver=reopen(), tools=[lookup(search)]).run("go", thread="t")
    assert (run.status, call_of(run, "search")["result"], call_of(run, "search")["attempts"]) == ("done", "found", 3)
    assert [one["attempt"] for one in make(saver=reopen()).state("t").failures] == [1, 2]


def test_fork_and_threads(make: Make, reopen: Open) -> None:
    """A past step becomes a new thread; both are listed, have a history, and the old one is as it was."""
    deliveries = Deliveries()
    agent = make(ONE, "sent", saver=reopen(), tools=[deliveries.tool()])
    run = agent.run("go", thread="t")
    asked = next(step.number for step in agent.history("t") if step.values.get("phase") == "waiting")
    agent.resume("t", approve=run.reviews[0].id)
    length = len(agent.history("t"))
    agent.fork(f"t@{asked}", thread="fork")
    fork = agent.resume("fork")
    assert (fork.status, fork.reviews[0].args) == ("waiting", run.reviews[0].args)
    assert agent.resume("fork", reject=fork.reviews[0].id).status == "done"
    assert len(deliveries) == 1
    assert {getattr(one, "thread", one) for one in agent.threads()} == {"t", "fork"}
    assert len(agent.history("t")) == length
    assert agent.state("t").state["calls"][0]["status"] == "done"
    assert agent.history("fork")[-1].values["calls"][0]["status"] == "rejected"


def test_stream(make: Make, reopen: Open) -> None:
    """The events of a run arrive through the sync door, and end with where the thread stands."""
    agent = make(ONE, "sent", saver=reopen(), tools=[Deliveries().tool()])
    events = list(agent.stream("go", thread="t"))
    assert [event.node for event in events if isinstance(event, Started)][:2] == ["plan", "act"]
    assert [event.node for event in events if isinstance(event, Finished)] == ["plan", "act"]
    assert [type(event) for event in events[-2:]] == [Asked, Ended]
    ended = list(agent.stream_resume("t", approve=events[-1].run.reviews[0].id))[-1]
    assert ended.run.status == "done"


def test_text_that_databases_choke_on(make: Make, reopen: Open) -> None:
    """NUL and lone surrogates from everywhere: no saver fails on them."""
    dirty = "a\x00\ud83d"
    agent = make(calls(("search", {"query": "x"})), dirty, saver=reopen(), tools=[lookup({"x": dirty})])
    run = agent.run(dirty, thread="t", by=dirty)
    assert (run.status, run.answer, run.state["goal"]) == ("done", "a␀?", "a␀?")


# What the agent makes of a saver.


def test_which_savers_are_wrapped(make: Make, tmp_path: Path) -> None:
    """One that is async already is used as it is; one that is only sync gets async twins; addresses are opened."""
    with SqliteSaver.open(tmp_path / "a.db") as ours:
        assert make(saver=ours).saver is ours
    memory = InMemorySaver()
    assert make(saver=memory).saver is memory
    connection = sqlite3.connect(tmp_path / "b.db", check_same_thread=False)
    official = make(saver=OfficialSqliteSaver(connection)).saver
    assert isinstance(official, Borrowed)
    official.close()
    assert connection.execute("SELECT 1").fetchone() == (1,)
    connection.close()
    opened = make(saver=f"sqlite:///{tmp_path}/c.db").saver
    assert isinstance(opened, SqliteSaver)
    opened.close()


@pytest.mark.parametrize("bad", [None, 7, object(), BaseCheckpointSaver])
def test_what_is_no_saver(bad: Any) -> None:
    """Anything else is refused with what to pass instead."""
    with pytest.raises(SetupError, match="is no LangGraph saver; pass one, or an address"):
        Agent(scripted(), saver=bad)


def test_async_saver_in_its_loop(make: Make, server: Loop, postgres_url: str) -> None:
    """The official async saver is bound to a loop: there the async doors work, and a sync one says what to do."""
    deliveries = Deliveries()

    async def work() -> None:
        async with AsyncPostgresSaver.from_conn_string(postgres_url) as saver:
            await saver.setup()
            agent = make(ONE, "sent", saver=saver, tools=[deliveries.tool()])
            run = await agent.arun("go", thread="t")
            assert run.status == "waiting"
            for door in (lambda: agent.run("x"), lambda: agent.resume("t"), lambda: agent.state("t")):
                with pytest.raises(SetupError, match="await the async twin"):
                    door()
            elsewhere = await asyncio.to_thread(agent.state, "t")
            assert elsewhere.status == "waiting"
            run = await agent.aresume("t", approve=run.reviews[0].id)
            assert (run.status, len(deliveries)) == ("done", 1)
            fork = await agent.afork("t@-3", thread="fork")
            assert fork.thread == "fork"

    server.run(work())


# The graph as any graph of LangGraph.


def test_graph_is_an_ordinary_graph(make: Make) -> None:
    """`ainvoke`, `astream` and `aget_state` of `agent.graph`, and Command with ids: no door of ours is needed."""
    deliveries = Deliveries()
    agent = make(ONE, "sent", tools=[deliveries.tool()])

    async def work() -> None:
        first = await agent.graph.ainvoke({"goal": "go"}, raw("t"), version="v2")
        (asked,) = first.interrupts
        assert (await agent.graph.aget_state(raw("t"))).next == ("review",)
        names = []
        command = Command(resume={asked.id: {"type": "approve"}})
        async for part in agent.graph.astream(command, raw("t"), stream_mode="updates"):
            names += list(part)
        assert names == ["review", "tool", "observe", "reflect", "act", "reflect", "answer"]
        assert (await agent.graph.aget_state(raw("t"))).values["answer"] == "sent"

    asyncio.run(work())
    assert len(deliveries) == 1
    assert agent.state("t").status == "done"


def test_graph_without_a_saver(make: Make) -> None:
    """Compiled without a checkpointer, as servers want it, it runs all the same."""
    from graph_agent import build_graph

    graph = build_graph(make("done").kit)
    assert asyncio.run(graph.ainvoke({"goal": "go"}))["answer"] == "done"


class Outer(TypedDict, total=False):
    goal: str
    answer: Annotated[str, latest]
    shouted: str


def test_graph_as_a_subgraph(make: Make, tmp_path: Path) -> None:
    """Within another graph, on that graph's saver: the review comes out, its answer goes in, state passes both ways."""
    deliveries = Deliveries()
    agent = make(ONE, "sent", tools=[deliveries.tool()])
    builder: Any = StateGraph(Outer)
    builder.add_node("agent", agent.graph)
    builder.add_node("shout", lambda state: {"shouted": state["answer"].upper()})
    builder.add_edge(START, "agent")
    builder.add_edge("agent", "shout")
    builder.add_edge("shout", END)

    def outer() -> Any:
        return builder.compile(checkpointer=agent.saver)

    async def work() -> None:
        first = await outer().ainvoke({"goal": "go"}, raw("outer"), version="v2")
        (asked,) = first.interrupts
        assert asked.value["name"] == "deliver"
        command = Command(resume={asked.id: {"type": "approve"}})
        last = await outer().ainvoke(command, raw("outer"), version="v2")
        assert (last.value["answer"], last.value["shouted"]) == ("sent", "SENT")

    asyncio.run(work())
    assert len(deliveries) == 1


def test_two_agents_in_one_graph(make: Make) -> None:
    """Two agents as nodes of one graph keep apart, but for the keys that they share with it."""
    one = make("first", plan=["a"]).graph
    two = make("second", plan=["b"]).graph

    class Both(AgentState, total=False):
        pass

    builder: Any = StateGraph(Both)
    builder.add_node("one", one)
    builder.add_node("two", two)
    builder.add_edge(START, "one")
    builder.add_edge("one", "two")
    graph = builder.compile(checkpointer=InMemorySaver())
    state = asyncio.run(graph.ainvoke({"goal": "go"}, raw("t")))
    assert state["phase"] == "done"
    assert [(step["title"], step["status"]) for step in state["plan"]] == [("a", "done"), ("b", "done")]
    assert len({message["id"] for message in state["messages"]}) == len(state["messages"])


def test_sync_doors_inside_a_running_loop(make: Make, reopen_ours: Open) -> None:
    """As in a notebook: run, resume, state, stream, fork and threads work while a loop runs in this very thread."""
    deliveries = Deliveries()

    async def cell() -> None:
        agent = make(ONE, "sent", saver=reopen_ours(), tools=[deliveries.tool()])
        run = agent.run("go", thread="t")
        assert agent.state("t").status == "waiting"
        run = agent.resume("t", approve=run.reviews[0].id)
        assert (run.status, len(deliveries)) == ("done", 1)
        assert list(agent.stream("more", thread="u"))[-1].run.status == "waiting"
        assert agent.fork("t@-1", thread="f").thread == "f"
        assert len(agent.threads()) == 3
        assert (await agent.astate("t")).status == "done"

    asyncio.run(cell())


@pytest.fixture
def reopen_ours(tmp_path: Path) -> Iterator[Open]:
    with ExitStack() as stack:
        yield lambda: stack.enter_context(SqliteSaver.open(tmp_path / "ours.db"))


def test_one_saver_many_loops(make: Make) -> None:
    """One agent is used from several loops and threads at once: its saver belongs to none of them."""
    agent = make("done")

    def in_a_loop(name: str) -> str:
        return asyncio.run(agent.arun("go", thread=name)).status

    async def together() -> list[str]:
        return await asyncio.gather(*(asyncio.to_thread(in_a_loop, f"t{n}") for n in range(4)), asyncio.to_thread(lambda: agent.run("go", thread="sync").status))  # fmt: skip

    assert asyncio.run(together()) == ["done"] * 5
