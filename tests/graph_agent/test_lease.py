"""One writer of a thread: across processes, deaths and pauses; who has to wait, and who is stopped."""

from __future__ import annotations

import asyncio
import json
import multiprocessing as mp
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing, closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from checkpointers import LeaseLostError, Saver, ThreadBusyError, session
from checkpointers.lease import this_process
from checkpointers.testing import FaultyDatabase, is_write, wait_until
from graph_agent import Agent, Budget, Node, Run, tool
from graph_agent.errors import (
    FinishedThreadError,
    OpenThreadError,
    PatchError,
    SetupError,
    UnknownThreadError,
    WaitingThreadError,
)
from graph_agent.events import Ended, Started
from graph_agent.testing import Deliveries, Tries, calls, lookup
from tests.conftest import reopen
from tests.graph_agent.conftest import Make, call_of, raw, scripted
from tests.graph_agent.test_state import GoalView

SPAWN = mp.get_context("spawn")
RACES = 20
HANG = calls(("hang", {"x": "1"}))


def free(agent: Agent, thread: str = "t") -> bool:
    """Tell whether nobody has the lease of a thread."""
    return {one.thread: one.holder for one in agent.saver.threads()}.get(thread) is None


# --- Processes -------------------------------------------------------------------------------------------------------


class World:
    """What tools did in any process: a file."""

    def __init__(self, folder: str) -> None:
        self.path = Path(folder) / "world"

    def did(self, *words: object) -> None:
        with self.path.open("a") as file:
            file.write(" ".join(map(str, words)) + "\n")

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []

    def has(self, text: str) -> bool:
        return any(text in line for line in self.lines())


def racer(url: str, world: World, refused: Any = None) -> Agent:
    """Make an agent whose tool takes until the other process was refused."""

    def act(what: str) -> str:
        world.did(what, os.getpid())
        assert refused is None or refused[int(what)].wait(30)
        return "done"

    @tool(risk="write_local")
    def note(what: str) -> str:
        return act(what)

    @tool(risk="external_action")
    def send(what: str) -> str:
        return act(what)

    def line(messages: Any) -> Any:
        kind, what = str(messages).rpartition("do:")[2].split()[0].split("-")
        return calls((kind, {"what": what}))

    return Agent(scripted(line, "done"), tools=[note, send], saver=reopen(url))


def race(url: str, folder: str, barrier: Any, refused: Any) -> None:
    """Run or resume each thread at the same moment as another process."""
    world = World(folder)
    agent = racer(url, world, refused)
    for number in range(RACES):
        name = f"race-{number}"
        asked = [review.id for review in agent.state(name).reviews]
        barrier.wait(60)
        try:
            run = agent.resume(name, approve=asked) if asked else agent.run(f"do:note-{number} now", thread=name)
            told: dict[str, Any] = {"status": run.status}
        except OpenThreadError as error:
            refused[number].set()
            told = {"status": "refused", "owner": error.facts["owner"], "since": error.facts["since"].isoformat()}
        with Path(folder, f"{os.getpid()}.told").open("a") as file:
            file.write(json.dumps({**told, "race": number, "by": this_process()}) + "\n")
        barrier.wait(60)
    agent.saver.close()


@pytest.mark.slow
def test_races(url: str, tmp_path: Path) -> None:
    """Two processes begin or answer a thread at once: one does, the other is told who and since when; tools run once."""
    agent = racer(url, World(str(tmp_path)))
    for number in range(1, RACES, 2):
        assert agent.run(f"do:send-{number} now", thread=f"race-{number}").status == "waiting"
    barrier, refused = SPAWN.Barrier(2), [SPAWN.Event() for _ in range(RACES)]
    began = datetime.now(UTC)
    racers = [SPAWN.Process(target=race, args=(url, str(tmp_path), barrier, refused)) for _ in range(2)]
    for one in racers:
        one.start()
    for one in racers:
        one.join(120)
    assert [one.exitcode for one in racers] == [0, 0]
    told = [json.loads(line) for file in tmp_path.glob("*.told") for line in file.read_text().splitlines()]
    for number in range(RACES):
        won, lost = sorted((one for one in told if one["race"] == number), key=lambda one: one["status"])
        assert (won["status"], lost["status"], lost["owner"]) == ("done", "refused", won["by"])
        since = datetime.fromisoformat(lost["since"])
        assert began - timedelta(seconds=1) < since < datetime.now(UTC)
    assert sorted(int(line.split()[0]) for line in World(str(tmp_path)).lines()) == list(range(RACES))
    assert all(one.holder is None and one.status == "done" for one in agent.threads())
    agent.saver.close()


def slow(url: str, folder: str, who: str) -> Agent:
    """Make an agent of two turns; the call of the first takes until it may end, that of the second is for the end."""
    world = World(folder)

    @tool(risk="write_local")
    async def hang(x: str, idempotency_key: str) -> str:
        world.did("hang", who, idempotency_key)
        while who == "first" and not world.has("enough"):  # noqa: ASYNC110  it is said by another process
            await asyncio.sleep(0.01)
        return who

    @tool(risk="write_local")
    async def after(x: str) -> str:
        world.did("after", who)
        return who

    lines = [HANG, calls(("after", {"x": "1"})), "done"]
    return Agent(scripted(*lines), tools=[hang, after], saver=reopen(url), lease_ttl=1.5)


def first_life(url: str, folder: str) -> None:
    """Run until it is done, and write down what came of it."""
    try:
        told = slow(url, folder, "first").run("go", thread="t").status
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
    Path(folder, "told").write_text(told)


@contextmanager
def running(url: str, folder: Path) -> Iterator[Any]:
    """Start a process that is in the middle of a call."""
    process = SPAWN.Process(target=first_life, args=(url, str(folder)))
    process.start()
    try:
        wait_until(lambda: World(str(folder)).has("hang first"), seconds=60)
        yield process
    finally:
        process.kill()
        process.join(30)


@pytest.mark.slow
def test_killed_holder(url: str, tmp_path: Path) -> None:
    """Seen as running, with its name, while it lives; killed, it has the thread until the ttl, and then it is taken up."""
    agent = slow(url, str(tmp_path), "second")
    with running(url, tmp_path) as process:
        (listed,) = agent.threads()
        assert (agent.state("t").status, listed.status) == ("running", "running")
        assert listed.holder.endswith(f":{process.pid}")
        assert [one.thread for one in agent.threads(status="running", limit=3)] == ["t"]
        assert agent.threads(status="pending") == []
        with pytest.raises(OpenThreadError, match=rf"is running: \S+:{process.pid} has it since 20") as caught:
            agent.resume("t")
        assert (caught.value.facts["owner"], caught.value.facts["thread"]) == (listed.holder, "t")
        process.kill()
        process.join(30)
        run = agent.resume("t", if_busy="enqueue")
    assert (run.status, run.answer) == ("done", "done")
    key = agent.effects("t")[0].key
    assert World(str(tmp_path)).lines() == [f"hang first {key}", f"hang second {key}", "after second"]
    assert free(agent)
    agent.saver.close()


@pytest.mark.slow
def test_holder_that_died_is_crashed(tmp_path: Path) -> None:
    """Once its lease is over, a thread reads as it stands, and needs no word to be resumed."""
    url = f"sqlite:///{tmp_path}/test.db"
    agent = slow(url, str(tmp_path), "second")
    with running(url, tmp_path) as process:
        process.kill()
        process.join(30)
        wait_until(lambda: agent.state("t").status == "crashed")
        assert [one.status for one in agent.threads()] == ["pending"]
        assert agent.resume("t").status == "done"
    agent.saver.close()


def stop_between_commits(saver: Saver, pid: int) -> None:
    """Stop a process where it holds no lock: an SQLite file that is locked by one that sleeps is so until that wakes."""
    os.kill(pid, signal.SIGSTOP)
    for _ in range(100):
        if saver.database.dialect != "sqlite" or not locked(saver.database.place):
            return
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.01)
        os.kill(pid, signal.SIGSTOP)
    raise AssertionError("it held the lock each time")


def locked(path: str) -> bool:
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
        try:
            other.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        return False


@pytest.mark.slow
def test_zombie(url: str, tmp_path: Path) -> None:
    """Stopped, replaced, and woken: nothing it writes lands, it starts no other tool, and its caller is told by whom."""
    agent, world = slow(url, str(tmp_path), "second"), World(str(tmp_path))
    with running(url, tmp_path) as process:
        stop_between_commits(agent.saver, process.pid)
        assert agent.resume("t", if_busy="enqueue").status == "done"
        before, books = [(step.id, step.values) for step in agent.history("t")], agent.effects("t")
        world.did("enough")
        os.kill(process.pid, signal.SIGCONT)
        process.join(60)
        assert process.exitcode == 0
    told = (tmp_path / "told").read_text()
    assert told.startswith("LeaseLostError: the lease of thread 't' is over")
    key = agent.effects("t")[0].key
    assert world.lines() == [f"hang first {key}", f"hang second {key}", "after second", "enough"]
    assert [(step.id, step.values) for step in agent.history("t")] == before
    assert agent.effects("t") == books
    assert call_of(agent.state("t"), "hang")["result"] == "second"
    agent.saver.close()


# --- What is done if another run has the thread ----------------------------------------------------------------------


class Busy:
    """A run in the middle of a call, in a thread of its own, through a door of the agent."""

    def __init__(self, make: Make, door: str, **options: Any) -> None:
        self.make, self.door, self.options = make, door, options
        self.begun, self.enough = threading.Event(), threading.Event()
        self.pool = ThreadPoolExecutor(4)

        @tool(risk="write_local")
        async def hang(x: str, idempotency_key: str) -> str:
            self.begun.set()
            while not self.enough.is_set():  # noqa: ASYNC110  it is said on another thread
                await asyncio.sleep(0.005)
            return "late"

        self.agent = make(HANG, "first done", tools=[hang], **options)

    def through(self, agent: Agent, name: str, *args: Any, **options: Any) -> Run:
        """Call a door, sync or async or streaming."""
        if self.door == "async":
            return asyncio.run(getattr(agent, f"a{name}")(*args, **options))
        if self.door == "stream":
            stream = {"run": agent.stream, "resume": agent.stream_resume}[name]
            return list(stream(*args, **options))[-1].run
        return getattr(agent, name)(*args, **options)

    def start(self, *args: Any, **options: Any) -> Future[Run]:
        future = self.pool.submit(self.through, self.agent, "run", *args, **options)
        assert self.begun.wait(20)
        return future

    def other(self, *act: Any, **options: Any) -> Agent:
        """Make the agent of somebody else, whose call does not hang."""

        @tool(risk="write_local")
        async def hang(x: str, idempotency_key: str) -> str:
            return "at once"

        return self.make(*(act or (HANG, "second done")), tools=[hang], **{**self.options, **options})


@pytest.fixture(params=["sync", "async", "stream"])
def busy(make: Make, request: pytest.FixtureRequest) -> Iterator[Busy]:
    one = Busy(make, request.param)
    yield one
    one.enough.set()
    one.pool.shutdown()


def lost(future: Future[Run]) -> LeaseLostError:
    with pytest.raises(LeaseLostError, match=f"{this_process()} holds it now|was released") as caught:
        future.result(20)
    return caught.value


def said(run: Run) -> list[str]:
    return [message["content"] for message in run.state["messages"]]


def test_reject(busy: Busy) -> None:
    """Unless it is said otherwise, another run is refused, and told who has the thread and since when."""
    first, other = busy.start("one", thread="t"), busy.other()
    for options in ({}, {"if_busy": "reject"}):
        with pytest.raises(OpenThreadError, match="is running: ") as caught:
            busy.through(other, "run", "two", thread="t", supersede=True, **options)
        assert caught.value.facts["owner"] == this_process()
        assert timedelta(0) <= datetime.now(UTC) - caught.value.facts["since"] < timedelta(seconds=60)
        with pytest.raises(OpenThreadError, match="is running: "):
            busy.through(other, "resume", "t", **options)
    assert other.state("t").status == "running"
    busy.enough.set()
    assert first.result(20).answer == "first done"
    assert said(other.state("t")) == ["one", "first done"]
    assert free(other)


def test_enqueue(busy: Busy) -> None:
    """New input waits until the other run has ended, and goes on from there."""
    first, other = busy.start("one", thread="t"), busy.other("-", "-", "second done")
    second = busy.pool.submit(busy.through, other, "run", "two", thread="t", if_busy="enqueue")
    third = busy.pool.submit(busy.through, busy.other(), "resume", "t", if_busy="enqueue")
    time.sleep(0.2)
    assert not second.done()
    assert not third.done()
    busy.enough.set()
    assert first.result(20).answer == "first done"
    run = second.result(20)
    assert (run.status, said(run)) == ("done", ["one", "first done", "two", "second done"])
    with pytest.raises(FinishedThreadError):
        third.result(20)
    assert free(other)


def test_enqueue_behind_a_question(busy: Busy) -> None:
    """Who waited for a run that ends in a question does not pass over it."""
    tools = [busy.agent.kit.tools.get("hang"), Deliveries().tool()]
    busy.agent = busy.make(HANG, calls(("deliver", {"to": "ada"})), "never", tools=tools)
    first = busy.start("one", thread="t")
    second = busy.pool.submit(busy.through, busy.other(), "run", "two", thread="t", if_busy="enqueue")
    time.sleep(0.1)
    busy.enough.set()
    assert first.result(20).status == "waiting"
    with pytest.raises(WaitingThreadError, match="waits for a person"):
        second.result(20)


def test_interrupt_with_new_input(busy: Busy) -> None:
    """The other run is stopped, what it was doing is given up on record, and nothing more of it lands."""
    first, other = busy.start("one", thread="t"), busy.other("-", "second done")
    run = busy.through(other, "run", "two", thread="t", if_busy="interrupt", by="grace")
    assert (run.status, said(run)) == ("done", ["one", "two", "second done"])
    assert (call_of(run, "hang")["status"], call_of(run, "hang")["by"]) == ("superseded", "grace")
    busy.enough.set()
    assert lost(first).thread == "t"
    assert other.state("t").state == run.state
    assert free(other)


def test_interrupt_to_resume(busy: Busy) -> None:
    """Whoever resumes in place of another run goes on from what that has stored."""
    first, other = busy.start("one", thread="t"), busy.other()
    run = busy.through(other, "resume", "t", if_busy="interrupt")
    assert (run.answer, call_of(run, "hang")["result"]) == ("second done", "at once")
    busy.enough.set()
    lost(first)
    assert other.state("t").state == run.state


def test_interrupt_of_a_free_thread(busy: Busy) -> None:
    """Where no run has the thread, an unfinished one still takes new input only if told to give it up."""
    tools = [Deliveries().tool()]
    agent = busy.make(calls(("deliver", {"to": "ada"})), "done", tools=tools)
    busy.through(agent, "run", "one", thread="t", if_busy="interrupt")
    for if_busy in ("enqueue", "interrupt", "rollback"):
        with pytest.raises(WaitingThreadError, match="waits for a person"):
            busy.through(agent, "run", "two", thread="t", if_busy=if_busy)


def test_rollback(busy: Busy) -> None:
    """The other run is stopped, and all that it stored is taken back."""
    other = busy.other("zero done", "second done")
    busy.through(other, "run", "zero", thread="t")
    steps = [step.id for step in other.history("t")]
    busy.agent = busy.make("-", HANG, "never", tools=busy.agent.kit.tools)
    first = busy.start("one", thread="t")
    assert said(other.state("t"))[-1] == "one"
    run = busy.through(other, "run", "two", thread="t", if_busy="rollback")
    assert (run.status, said(run)) == ("done", ["zero", "zero done", "two", "second done"])
    assert [step.id for step in other.history("t")][: len(steps)] == steps
    busy.enough.set()
    lost(first)
    assert said(other.state("t")) == said(run)
    assert free(other)


def test_rollback_of_a_new_thread(busy: Busy) -> None:
    """What began with the other run begins anew."""
    first, other = busy.start("one", thread="t"), busy.other("second done")
    run = busy.through(other, "run", "two", thread="t", if_busy="rollback")
    assert (run.status, said(run), run.state.get("calls", [])) == ("done", ["two", "second done"], [])
    busy.enough.set()
    lost(first)


def test_rollback_opens_a_review_again(busy: Busy) -> None:
    """An answer that the other run was given is taken back with its steps, and another one may be given."""
    deliver = calls(("deliver", {"to": "ada"}))
    tools = [Deliveries().tool(), *busy.agent.kit.tools]
    waits = busy.through(busy.make(deliver, tools=tools), "run", "one", thread="t")
    before = [step.id for step in busy.agent.history("t")]
    busy.agent = busy.make("-", HANG, "never", tools=tools)
    first = busy.pool.submit(busy.through, busy.agent, "resume", "t", approve=waits.reviews[0].id)
    assert busy.begun.wait(20)
    other = busy.make("-", "second done", tools=tools)
    run = busy.through(other, "resume", "t", reject=waits.reviews[0].id, if_busy="rollback")
    assert (run.status, said(run)) == ("done", ["one", "second done"])
    assert [step.id for step in other.history("t")][: len(before)] == before
    assert [call["status"] for call in run.state["calls"]] == ["rejected"]
    busy.enough.set()
    lost(first)


def test_who_waits_can_be_stopped(make: Make) -> None:
    """Cancelled while it waits for its turn, a run leaves nothing behind, then or later."""
    one = Busy(make, "sync")
    first, other = one.start("one", thread="t"), one.other()

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(other.arun("two", thread="t", if_busy="enqueue"), 0.2)

    asyncio.run(give_up())
    one.enough.set()
    assert first.result(20).status == "done"
    time.sleep(0.6)
    assert free(other)
    one.pool.shutdown()


# --- How long a lease lasts ------------------------------------------------------------------------------------------


def test_a_long_call_keeps_its_thread(make: Make) -> None:
    """A call that takes longer than the ttl is no sign of death, even one that never awaits."""

    @tool(risk="write_local")
    def hang(x: str) -> str:
        time.sleep(2.5)
        return "late"

    agent, other = make(HANG, "done", tools=[hang], lease_ttl=1.0), make(HANG, "done", tools=[hang])
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(agent.run, "go", thread="t")
        wait_until(lambda: other.state("t").status == "running")
        time.sleep(2.0)
        with pytest.raises(OpenThreadError, match="is running"):
            other.resume("t")
        assert first.result(20).status == "done"
    assert free(agent)


@pytest.mark.parametrize("checkpoint", ["step", "iteration"])
def test_a_lost_lease_is_known_before_a_tool(make: Make, checkpoint: str) -> None:
    """Taken over while it waits for another attempt, a run does not make it, and says who has the thread."""
    other, tried, started = make("x"), [], list[str]()

    def search(query: str) -> str:
        tried.append(query)
        raise ConnectionError("try again")

    async def sleep(_: float) -> None:
        await asyncio.to_thread(taken_over.__enter__)
        mine = session.held((agent.saver.database.number, "t"))
        assert mine is not None
        while not mine.lost:  # noqa: ASYNC110  it is noticed by its heartbeat
            await asyncio.sleep(0.01)

    line = calls(("search", {"query": "x"}))
    agent = make(line, tools=[lookup(search)], sleep=sleep, lease_ttl=1.0, checkpoint=checkpoint)
    taken_over = other.saver.lease("t", owner="grace", if_busy="interrupt")
    with pytest.raises(LeaseLostError, match="grace holds it now"):
        for event in agent.stream("go", thread="t"):
            started.extend([event.node] if isinstance(event, Started) else [])
    assert (tried, started) == (["x"], ["plan", "act", "tool", "tool"])
    taken_over.__exit__(None, None, None)


def ends(make: Make) -> dict[str, tuple[Callable[[], Any], str | type[BaseException]]]:
    """Give every way in which a run may end."""

    async def bad(view: Any, kit: Any, where: Any) -> Any:
        return {"nonsense": 1}

    deliver = calls(("deliver", {"to": "ada"}))
    node = Node("bad", bad, GoalView)
    waiting = make(deliver, "done", tools=[Deliveries().tool()])
    return {
        "done": (lambda: make("done").run("go", thread="t"), "done"),
        "failed": (lambda: make(ValueError("no")).run("go", thread="t"), "failed"),
        "waiting": (lambda: waiting.run("go", thread="t"), "waiting"),
        "limit": (lambda: make("done", budget=Budget(max_steps=1)).run("go", thread="t"), "stopped"),
        "exception": (lambda: make("done", nodes=[("act", node)]).run("go", thread="t"), PatchError),
        "refused": (lambda: make("done").resume("t"), UnknownThreadError),
        "bad input": (lambda: make("done").run("go", thread="t", update={"nonsense": 1}), PatchError),
    }


@pytest.mark.parametrize("end", ["done", "failed", "waiting", "limit", "exception", "refused", "bad input"])
def test_no_end_keeps_the_lease(make: Make, end: str) -> None:
    """However a run ends, its thread is free at once; one that waits for a person, too."""
    work, comes = ends(make)[end]
    if isinstance(comes, str):
        assert work().status == comes
    else:
        with pytest.raises(comes):
            work()
    reader = make("done")
    assert free(reader)
    assert reader.state("t").status != "running"
    with reader.saver.lease("t"):
        pass


def hanging(make: Make) -> Agent:
    @tool(risk="write_local")
    async def hang(x: str, idempotency_key: str) -> str:
        await asyncio.Event().wait()
        return x

    return make(HANG, "done", tools=[hang])


def is_hanging(event: Any) -> bool:
    return isinstance(event, Started) and event.tool == "hang"


def test_stream_closed_early(make: Make) -> None:
    """Who leaves the loop over the events frees the thread at once: the next line may resume it."""
    agent, other = hanging(make), Busy(make, "sync").other()
    for event in agent.stream("go", thread="t"):
        if is_hanging(event):
            break
    assert free(agent)
    assert other.resume("t").answer == "second done"


def test_async_stream_closed_early(make: Make) -> None:
    """The same, async; one that is only left is closed by Python a moment later."""
    agent, other = hanging(make), Busy(make, "sync").other()

    async def begin(stream: Any) -> None:
        async for event in stream:
            if is_hanging(event):
                break

    async def work() -> None:
        async with aclosing(agent.astream("go", thread="a")) as stream:
            await begin(stream)
            assert not free(agent, "a")
        assert free(agent, "a")
        assert (await other.aresume("a")).answer == "second done"
        await begin(agent.astream("go", thread="b"))
        assert (await other.aresume("b", if_busy="enqueue")).answer == "second done"

    asyncio.run(work())


def test_cancelled(make: Make) -> None:
    """A task that is cancelled has freed its thread when it has ended."""
    agent, other = hanging(make), Busy(make, "sync").other()

    async def work() -> None:
        task = asyncio.create_task(agent.arun("go", thread="t"))
        while not (await other.astate("t")).state.get("calls"):  # noqa: ASYNC110  it begins on another thread
            await asyncio.sleep(0.005)
        assert (await other.astate("t")).status == "running"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert free(agent)
        assert (await other.aresume("t")).answer == "second done"

    asyncio.run(work())


def test_keyboard_interrupt_frees_the_thread(make: Make) -> None:
    """Once Ctrl-C came out of a cell, the next one may resume."""

    @tool(risk="write_local")
    async def hang(x: str, idempotency_key: str) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()
        return x

    agent, other = make(HANG, "done", tools=[hang]), Busy(make, "sync").other()
    with pytest.raises(KeyboardInterrupt):
        agent.run("go", thread="t")
    assert free(agent)
    assert other.resume("t").answer == "second done"


# --- Whose lease it is -----------------------------------------------------------------------------------------------


def test_who_listens_does_not_write(make: Make) -> None:
    """The lease is the run's, not that of whoever looks at its events, in whichever tasks."""
    agent = make(calls(("search", {"query": "x"})), "done", tools=[lookup({"x": "y"})])

    async def work() -> Any:
        events, event = agent.astream("go", thread="t"), None
        while not isinstance(event, Ended):
            event = await asyncio.wait_for(asyncio.create_task(anext(events)), 20)  # type: ignore[arg-type]
            if isinstance(event, Started) and event.node == "act":
                assert session.held((agent.saver.database.number, "t")) is None
                with pytest.raises(ThreadBusyError, match=this_process()):
                    await agent.graph.aupdate_state(raw("t"), {"goal": "mine"}, as_node="plan")
        await events.aclose()
        return event.run

    run = asyncio.run(work())
    assert (run.status, run.state["goal"]) == ("done", "go")


def test_within_a_lease_of_ones_own(make: Make) -> None:
    """Inside a lease of the caller's a run shares it, gives nothing back, and is still the only one."""
    agent, other = make("first", "second"), make("x")
    with agent.saver.lease("t") as lease:
        assert agent.run("one", thread="t").status == "done"
        with pytest.raises(OpenThreadError, match="is running"):
            other.run("two", thread="t")

        async def both() -> list[Any]:
            return await asyncio.gather(*(agent.arun("two", thread="t") for _ in range(2)), return_exceptions=True)

        done, refused = sorted(asyncio.run(both()), key=lambda one: isinstance(one, Exception))
        assert (done.status, type(refused)) == ("done", OpenThreadError)
        assert not lease.lost
        assert not free(other)
    assert free(other)


def test_reading_takes_no_lease(make: Make) -> None:
    """Looking at a thread writes nothing, whoever has it."""
    make("done").run("go", thread="t")

    def fault(_: int, request: Any) -> None:
        assert not is_write(request)

    saver = make("x").saver
    reader = make("x", saver=type(saver)(FaultyDatabase(saver.database, fault)))
    with make("x").saver.lease("t"):
        assert reader.state("t").status == "running"
        assert reader.history("t")[-1].values["answer"] == "done"
        assert [one.status for one in reader.threads()] == ["running"]
    assert reader.state("t").status == "done"


def test_a_fork_is_made_by_one(make: Make) -> None:
    """A fork has its new thread to itself while it is made; the old one may be running."""
    agent, other = make("done"), make("x")
    agent.run("go", thread="t")
    with other.saver.lease("f"), pytest.raises(OpenThreadError, match="thread 'f' is running"):
        agent.fork("t@3", thread="f")
    with other.saver.lease("t"):
        assert agent.fork("t@3", thread="f").status == "stopped"
    assert free(agent, "f")
    assert agent.resume("f").status == "done"


def test_a_failed_attempt_frees_the_thread_for_its_next(make: Make) -> None:
    """What is tried again is tried under one lease, from the first question to the last."""
    agent = make(Tries(ConnectionError("lost"), "done"))
    assert agent.run("go", thread="t").answer == "done"
    with agent.saver.lease("t") as lease:
        assert lease.epoch == 2


# --- What cannot be ----------------------------------------------------------------------------------------------------


def test_other_savers_have_no_leases() -> None:
    """There, one run of a thread in this process at a time, as ever; what needs a lease is refused in words."""
    begun, enough = threading.Event(), threading.Event()

    @tool(risk="read_only")
    def hang(x: str) -> str:
        begun.set()
        enough.wait(20)
        return x

    saver = InMemorySaver()
    agent, other = (Agent(scripted(HANG, "done"), tools=[hang], saver=saver) for _ in range(2))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(agent.run, "go", thread="t")
        assert begun.wait(20)
        with pytest.raises(OpenThreadError, match="is running: .*; wait for it, or use another thread") as caught:
            other.resume("t")
        assert caught.value.facts["owner"] == this_process()
        assert other.state("t").status == "running"
        enough.set()
        assert first.result(20).status == "done"
    for if_busy in ("enqueue", "interrupt", "rollback"):
        with pytest.raises(SetupError, match=f"if_busy='{if_busy}' needs a saver with leases.*InMemorySaver has none"):
            agent.run("go", thread="t", if_busy=if_busy)
    assert agent.run("go", thread="t", if_busy="reject").status == "done"


def test_a_ledger_beside_another_saver_brings_leases(make: Make) -> None:
    """With a ledger of ours the threads of any saver are leased where that stands: others wait, or take over."""
    one = Busy(make, "sync", saver=InMemorySaver())
    first, other = one.start("one", thread="t"), one.other("-", "second done")
    with pytest.raises(OpenThreadError, match="is running: .*; wait for it .*, or take it over"):
        other.resume("t")
    run = other.run("two", thread="t", if_busy="interrupt")
    assert (run.status, call_of(run, "hang")["status"]) == ("done", "superseded")
    one.enough.set()
    assert lost(first).thread == "t"
    one.pool.shutdown()


def test_what_cannot_be_meant(make: Make) -> None:
    """A policy that is none, and a time that is none."""
    with pytest.raises(SetupError, match="if_busy='wait' is none of 'reject', 'enqueue', 'interrupt', 'rollback'"):
        make("x").run("go", if_busy="wait")
    for ttl in (0, -1, float("nan")):
        with pytest.raises(SetupError, match="lease_ttl="):
            make("x", lease_ttl=ttl)
