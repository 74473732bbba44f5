"""Many at once: processes that set up, write and read together; threads of one process; writers of one thread."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import inspect
import multiprocessing as mp
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import StateGraph
from langgraph.types import Command, Send, interrupt

from checkpointers import (
    CheckpointerError,
    HeadMovedError,
    History,
    Keep,
    Saver,
    SqliteSaver,
    ThreadBusyError,
    UnknownStepError,
    UnknownThreadError,
    open_saver,
)
from checkpointers.grouping import Groups, Waiting
from checkpointers.memory import WRITTEN_KEPT
from checkpointers.operations.common import Place
from checkpointers.operations.rows import NewWrites
from checkpointers.session import RUN
from checkpointers.testing import FaultyDatabase
from tests.checkpointers.graphs import DeltaState, State, config, loop, of_a_run
from tests.checkpointers.test_storage import put, values
from tests.conftest import reopen

SPAWN = mp.get_context("spawn")


def _write(url: str, name: str, barrier: Any, count: int) -> None:
    barrier.wait(60)
    with reopen(url) as saver:
        saver.on_conflict = "fork"
        place = None
        for version in range(1, count + 1):
            place = put(
                saver, {"x": f"{name} {version} " * 9}, after=place or config(name, checkpoint_ns=""), version=version
            )


@pytest.mark.slow
def test_eight_processes_start_and_write_at_once(url: str) -> None:
    """F28, issue 11: setting up together works, no lock error, and every acknowledged checkpoint is there."""
    barrier = SPAWN.Barrier(8)
    workers = [SPAWN.Process(target=_write, args=(url, f"w{n}", barrier, 100)) for n in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert [worker.exitcode for worker in workers] == [0] * 8
    with reopen(url) as saver:
        assert {i.thread: i.checkpoints for i in saver.threads()} == {f"w{n}": 100 for n in range(8)}


def _open_official(url: str, barrier: Any) -> None:
    barrier.wait(60)
    with open_saver(f"langgraph+{url}") as saver:
        loop(saver).invoke({"until": 2, "n": 0}, config("t"))


@pytest.mark.slow
def test_the_official_postgres_saver_is_set_up_by_one_at_a_time(postgres_url: str) -> None:
    """Issue 11: six processes open it on an empty database at once; none fails."""
    barrier = SPAWN.Barrier(6)
    workers = [SPAWN.Process(target=_open_official, args=(postgres_url, barrier)) for _ in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert [worker.exitcode for worker in workers] == [0] * 6


@pytest.mark.slow
def test_two_processes_write_one_thread(url: str) -> None:
    """Without a lease two writers may keep both their branches: nothing is lost and every checkpoint reads right."""
    barrier = SPAWN.Barrier(2)
    workers = [SPAWN.Process(target=_write, args=(url, "same", barrier, 60)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert [worker.exitcode for worker in workers] == [0, 0]
    with reopen(url) as saver:
        found = list(saver.list(config("same")))
        assert len(found) == 120
        assert all(t.checkpoint["channel_values"]["x"] == f"same {t.metadata['step']} " * 9 for t in found)


def test_another_process_wrote_in_between(url: str) -> None:
    """What this process remembers is dropped as soon as somebody else wrote: each goes on from what is stored."""
    with reopen(url) as one, reopen(url) as two:
        for until in range(2, 20, 2):
            loop(one).invoke({"until": until - 1}, config())
            loop(two).invoke({"until": until}, config())
        log = loop(one).get_state(config()).values["log"]
        assert [entry["id"] for entry in log] == list(range(len(log)))
        rows = next(u.rows for u in one.usage("t") if u.channel == "log")
        assert rows == len(log)


@pytest.mark.parametrize("parallel", [1, 2])
def test_two_answers_to_one_question(url: str, parallel: int) -> None:
    """A run that others overtook in the middle of a node leaves nothing on the step that they went on from."""
    overtake: list[Callable[[], Any]] = []
    turn = threading.Lock()

    def ask(state: Any) -> dict[str, Any]:
        said = interrupt("?")
        if said == "late":
            with turn:
                while overtake:
                    contextvars.Context().run(overtake.pop())
        return {"answers": [said]}

    def app(saver: Saver) -> Any:
        builder = StateGraph(State)
        builder.add_node("ask", ask)
        builder.add_conditional_edges("__start__", lambda _: [Send("ask", {"n": n}) for n in range(parallel)], ["ask"])
        return builder.compile(checkpointer=saver)

    def told(saver: Saver) -> list[Any]:
        return sorted(map(repr, saver.get_tuple(asked).pending_writes))

    def answer(saver: Saver, what: str) -> None:
        app(saver).invoke(Command(resume=dict.fromkeys(ids, what)), config(), durability="sync")

    with reopen(url) as late, reopen(url) as early:
        app(early).invoke({"n": 0}, config())
        state = app(early).get_state(config())
        asked, ids = state.config, [one.id for one in state.interrupts]
        stored: list[Any] = []

        def first() -> None:
            answer(early, "early")
            stored.append(told(early))

        overtake.append(first)
        with pytest.raises(HeadMovedError):
            contextvars.Context().run(lambda: answer(late, "late"))
        assert app(early).get_state(config()).values["answers"] == ["early"] * parallel
        assert [told(early)] == stored
        assert early.fsck() == []


GOES: dict[str, Callable[[Saver], object]] = {
    "deleted": lambda other: other.delete_thread("t"),
    "its run deleted": lambda other: other.delete_for_runs(["r3"]),
    "pruned": lambda other: (put(other, {"x": 4}, after=step_config(3), version=4), other.prune("t")),
    "begun anew": lambda other: (other.delete_thread("t"), put(other, {"x": "anew"})),
}


def step_config(number: int) -> dict[str, Any]:
    return config(checkpoint_ns="", checkpoint_id=f"c{number}")


def put_as(saver: Saver, number: int, text: str) -> None:
    checkpoint = empty_checkpoint() | {"id": f"c{number}", "channel_values": {"x": text}, "channel_versions": {"x": 1}}
    place = step_config(number - 1) if number > 1 else config(checkpoint_ns="")
    saver.put(place, checkpoint, {"source": "loop", "step": number, "run_id": f"r{number}", "who": text}, {"x": 1})


@pytest.mark.parametrize("goes", GOES)
def test_a_checkpoint_is_put_again_while_it_goes(url: str, goes: str) -> None:
    """Before whichever request somebody else removes it: what is acknowledged is counted, and nothing is told damaged."""
    with reopen(url) as saver, reopen(url) as other:
        interrupted, number = True, 0
        while interrupted:
            number, interrupted = number + 1, False
            saver.delete_thread("t")
            for step in (1, 2, 3):
                put_as(saver, step, "once")

            def fault(count: int, _: Any, number: int = number) -> None:
                nonlocal interrupted
                if count == number:
                    interrupted = True
                    contextvars.Context().run(GOES[goes], other)

            slow = type(saver)(FaultyDatabase(saver.database, fault))
            with suppress(CheckpointerError):
                contextvars.Context().run(put_as, slow, 3, "again")
            assert saver.fsck() == [], number
            stored = len(list(saver.list(config())))
            assert sum(info.checkpoints for info in saver.threads()) == stored
            assert (saver.get_tuple(config()) is None) == (stored == 0)
        assert number > 4


def test_the_head_put_again_is_listed_as_it_is(saver: Saver) -> None:
    """What a listing says of a thread is of the checkpoint that it stands at, also where that was put anew."""
    for text in ("once", "again"):
        put_as(saver, 1, text)
    assert [info.metadata["who"] for info in saver.threads()] == ["again"]
    assert [info.step for info in saver.threads(metadata={"who": "again"})] == [1]
    put_as(saver, 2, "next")
    put_as(saver, 1, "older")
    assert [(info.step, info.metadata["who"]) for info in saver.threads()] == [(2, "next")]


@pytest.mark.parametrize("meanwhile", ["another run", "a look at an old step"])
def test_a_stream_that_was_left_does_not_forget_where_it_stood(url: str, meanwhile: str) -> None:
    """Whatever else its context does, a run that others overtook takes nothing of theirs back without a word."""
    with reopen(url) as saver, reopen(url) as other:
        loop(saver).invoke({"until": 2, "n": 0}, config())
        old = [*loop(saver).get_state_history(config())][1].config
        stream = loop(saver).stream({"until": 4}, config(), durability="sync")
        next(stream)
        if meanwhile == "another run":
            loop(saver).invoke({"until": 2, "n": 0}, config("another"))
        loop(saver).get_state(old)
        gc.collect()
        contextvars.Context().run(lambda: loop(other).invoke({"until": 9}, config()))
        with pytest.raises(HeadMovedError):
            list(stream)
        assert values(saver)["n"] == 9


def test_deleted_and_begun_again_elsewhere(url: str) -> None:
    """A thread that another process deleted and began anew is a new thread for everyone."""
    with reopen(url) as one, reopen(url) as two:
        first = put(one, {"x": "old " * 20})
        two.delete_thread("t")
        put(two, {"x": "new " * 20})
        with pytest.raises(HeadMovedError, match="t@1"):
            put(one, {"x": "old " * 20, "y": "more " * 20}, after=first, version=2)
        put(one, {"x": "old " * 20, "y": "more " * 20}, after=config(checkpoint_ns=""), version=2)
        assert values(one) == values(two) == {"x": "old " * 20, "y": "more " * 20}
        assert [i.checkpoints for i in two.threads()] == [2]


@pytest.mark.slow
def test_many_threads_of_one_process(saver: Saver) -> None:
    """Sixteen threads run, read and list with one saver."""
    app = loop(saver)

    def work(n: int) -> int:
        app.invoke({"until": 8, "n": 0}, config(f"t{n}"))
        list(saver.list(config(f"t{n}")))
        saver.threads()
        return len(app.get_state(config(f"t{n}")).values["log"])

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(work, range(48))) == [8] * 48


def test_parallel_writes_of_one_superstep_share_commits(saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Siblings that finish together are all stored, in fewer commits than there are siblings."""
    monkeypatch.setattr("checkpointers.saver.WINDOW_SECONDS", 0.5)  # a busy machine may be slow to start them
    place = put(saver, {"x": 1})
    stamp = _stamp(saver)
    barrier = threading.Barrier(12)

    def sibling(n: int) -> None:
        barrier.wait()
        saver.put_writes(place, [("x", n)], f"task {n:02}", f"~{n:02}")

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(sibling, range(12)))
    found = saver.get_tuple(place)
    assert found is not None
    assert [w[2] for w in found.pending_writes] == list(range(12))
    assert _stamp(saver) - stamp < 12


def test_a_superstep_of_one_task_is_one_commit(saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writes of the only task wait for the checkpoint made of them, and are stored with it."""
    monkeypatch.setattr("checkpointers.saver.WINDOW_SECONDS", 5.0)  # a busy machine may be slow to follow
    app = loop(saver)
    app.invoke({"until": 10, "n": 0}, config(), durability="sync")
    before = _stamp(saver)
    app.invoke({"until": 60}, config(), durability="sync")
    assert (_stamp(saver) - before) / 51 < 1.7


@pytest.mark.parametrize("offset", range(5))
def test_an_interrupt_anywhere_leaves_nothing_held(tmp_path: Path, offset: int) -> None:
    """Whichever function it comes first in, of a write or of a read: others write, and so does who was interrupted."""
    with SqliteSaver.open(tmp_path / "x.db", timeout=5) as saver, SqliteSaver.open(tmp_path / "x.db") as another:
        place, reached = put(saver, {"x": 0}), 0
        for call in (
            lambda: put(saver, {"x": 1}, after=config("other", checkpoint_ns=""), version=2),
            lambda: saver.put_writes(place, [("x", 1)], "task"),
            lambda: saver.get_tuple(of_a_run()),
        ):
            for at in range(offset, 10_000, 5):
                if not _interrupted(call, at):
                    break
                reached += 1
                with ThreadPoolExecutor(1) as pool:
                    pool.submit(put, saver, {"x": at}, after=config("other", checkpoint_ns="")).result(60)
                    pool.submit(saver.put_writes, place, [("x", at)], f"task {reached % 8}").result(60)
                put(another, {"x": at}, after=config("of another", checkpoint_ns=""))
                assert values(saver, place) == {"x": 0}
        assert reached > 60


def _interrupted(call: Callable[[], Any], at: int) -> bool:
    """Interrupt a call in the so-manieth function that it enters; tell whether it got that far."""
    entered = 0

    def interrupt_there(frame: Any, event: str, _argument: Any) -> None:
        nonlocal entered
        # A generator is entered again where it stands; to raise there leaves out its own handlers, as no interrupt does.
        entered += event == "call" and not frame.f_code.co_flags & inspect.CO_GENERATOR
        if entered > at:
            sys.settrace(None)
            raise KeyboardInterrupt

    sys.settrace(interrupt_there)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return entered > at


def test_a_slow_commit_is_no_wait_in_vain() -> None:
    """What counts is that somebody took the writes along to be stored, not how long storing them took."""
    groups, waiting = Groups(), Waiting(NewWrites(Place("t", "", "c"), [("x", 1)], "task", ""))
    groups.join(waiting)
    assert not waiting.was_taken(0)
    assert groups.take("t") == [waiting]
    assert waiting.was_taken(0)
    waiting.settle(KeyError("what storing them came to"))
    with pytest.raises(KeyError):
        waiting.result()


def test_a_few_waits_in_vain_do_not_end_waiting() -> None:
    """A node is given up when most of its waits are in vain, and tried again later and later, until one is not."""
    groups, waiting = Groups(), Waiting(NewWrites(Place("t", "", "c"), [("x", 1)], "task", "", of_run=True))

    def turns(outcomes: str) -> str:
        told = ""
        for outcome in outcomes:
            worth = groups.worth_waiting(waiting)
            told += "w" if worth else "."
            if worth:
                groups.learn(waiting, joined=outcome == "j")
        return told

    assert turns("jvjjvjvj") == "w" * 8
    assert turns("v" * 40).count("w") <= 8
    assert turns("v" * 200).count("w") <= 4
    assert "w" in turns("j" * 1_025)
    assert turns("jjvjj") == "w" * 5


def test_writes_alone_do_not_wait_long(saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits in vain commits by itself, and waits ever less often."""
    place, waited = put(saver, {"x": 1}), _waits(saver, monkeypatch)
    of_one = by_run(SimpleNamespace(), place)
    for n in range(100):
        saver.put_writes(of_one, [("x", n)], f"task {n}")
    assert len(saver.get_tuple(place).pending_writes) == 100
    assert waited == [False] * 4


def test_who_writes_from_outside_of_a_run_waits_for_nobody(saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    """An update stores its writes and then its checkpoint, one after the other: waiting would be in vain each time."""
    app = loop(saver)
    app.invoke({"until": 3, "n": 0}, config(), durability="sync")
    waited = _waits(saver, monkeypatch)
    for n in range(3):
        app.update_state(config(), {"log": [f"by hand {n}"]}, as_node="work")
        asyncio.run(app.aupdate_state(config(), {"log": [f"by another hand {n}"]}, as_node="work"))
        saver.put_writes(saver.get_tuple(config()).config, [("log", [f"alone {n}"])], f"task {n}")
    assert waited == []
    assert sum("hand" in line for line in app.get_state(config()).values["log"]) == 6


def _waits(saver: Saver, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Give a list of all waits from now on: whether somebody came."""
    waited: list[bool] = []
    learn = saver._groups.learn

    def told(waiting: Waiting, *, joined: bool) -> None:
        waited.append(joined)
        learn(waiting, joined=joined)

    monkeypatch.setattr(saver._groups, "learn", told)
    return waited


def _stamp(saver: Saver) -> int:
    from checkpointers.statements import Statement

    def ask() -> Any:
        rows = yield Statement("SELECT max(stamp) FROM cp_threads")
        return rows[0][0]

    return saver.database.read(ask)


def test_memory_is_bounded(url: str) -> None:
    """What a process remembers of the threads it writes stays within its budget."""
    with reopen(url, memory_bytes=200_000) as saver:
        for n in range(60):
            place = put(saver, {"x": [f"{n} {i} " * 50 for i in range(20)]}, after=config(f"t{n}", checkpoint_ns=""))
            put(saver, {"x": [f"{n} {i} " * 50 for i in range(21)]}, after=place, version=2)
        remembered = sum(memory.bytes for memory in saver._memory._threads.values())
        assert remembered < 300_000
        assert saver._memory._bytes == remembered


def test_memory_of_a_long_thread_is_bounded(saver: Saver) -> None:
    """A channel that is replaced for ever does not pile up in memory."""
    place = None
    for version in range(1, 400):
        place = put(saver, {"x": f"{version} " * 10_000, "y": version}, after=place, version=version)
    assert saver._memory._threads["t"].bytes < 5 << 20


def test_writes_that_came_late_do_not_pile_up(saver: Saver) -> None:
    """What was written on checkpoints after others were made of them is counted, and not remembered for ever."""
    places = [put(saver, {"x": 1})]
    for version in range(2, 100):
        places.append(put(saver, {"x": version}, after=places[-1], version=version))
    for place in places:
        saver.put_writes(place, [("x", "late")], "task")
    put(saver, {"x": 100}, after=places[-1], version=100)
    assert len(saver._memory._threads["t"].written) <= WRITTEN_KEPT
    assert [len(found.pending_writes) for found in saver.list(config())] == [0] + [1] * 99


@pytest.mark.slow
@pytest.mark.parametrize("schema", [State])
def test_interleaved_runs_of_many_threads_in_one_loop(saver: Saver, schema: Any) -> None:
    """Fifty async runs at a time through one saver."""
    app = loop(saver, schema)

    async def main() -> list[Any]:
        return await asyncio.gather(*(app.ainvoke({"until": 4, "n": 0}, config(f"a{n}")) for n in range(50)))

    assert [r["n"] for r in asyncio.run(main())] == [4] * 50


def test_readers_do_not_wait_for_each_other(saver: Saver) -> None:
    """Issue 9: four reads are under way at once; each is held until all four have begun."""
    put(saver, {"x": 1})
    barrier = threading.Barrier(4)
    begun: set[int] = set()

    def meet(count: int, request: Any) -> None:
        if threading.get_ident() not in begun:
            begun.add(threading.get_ident())
            barrier.wait(30)

    meeting = type(saver)(FaultyDatabase(saver.database, meet))
    with ThreadPoolExecutor(4) as pool:
        found = [call.result(60) for call in [pool.submit(meeting.get_tuple, config()) for _ in range(4)]]
    assert [t.checkpoint["channel_values"] for t in found] == [{"x": 1}] * 4


def by_run(run: object, at: dict[str, Any]) -> dict[str, Any]:
    """Give the config of a call that a run makes."""
    return {"configurable": {**at["configurable"], RUN: run}}


def test_a_stream_that_each_step_is_asked_of_by_another_task(url: str) -> None:
    """Servers do so: each step has a context of its own, and what a task wrote may be stored late. It is one run all the same."""
    of_the_run = partial(by_run, object())
    with reopen(url) as saver, reopen(url) as other:
        first, second = contextvars.Context(), contextvars.Context()
        at = of_the_run(config(checkpoint_ns=""))
        first.run(saver.get_tuple, at)
        begun = first.run(put, saver, {"x": 1}, after=at)
        before = of_the_run(begun)
        after = of_the_run(second.run(put, saver, {"x": 2}, after=before, version=2))
        contextvars.Context().run(saver.put_writes, before, [("x", 3)], "late")
        assert [value for *_, value in saver.get_tuple(begun).pending_writes] == [3]  # type: ignore[union-attr]
        put(other, {"x": 4}, after=after, version=3)
        with pytest.raises(HeadMovedError):
            contextvars.Context().run(saver.put_writes, after, [("x", 5)], "overtaken")


def test_a_fork_of_what_was_loaded_by_its_id_is_meant(url: str) -> None:
    """Who saw a thread stand elsewhere, or saw none, may copy an old step of it: that is no loss."""
    with reopen(url) as one, reopen(url) as other:
        mine, theirs = loop(one), loop(other)
        mine.get_state(config())
        theirs.invoke({"until": 2, "n": 0}, config())
        oldest = list(theirs.get_state_history(config()))[-1]
        mine.update_state(oldest.config, None, as_node="__copy__")
        mine.get_state(config())
        theirs.invoke({"until": 4, "n": 0}, config())
        history = list(theirs.get_state_history(config()))
        mine.update_state(history[1].config, None, as_node="__copy__")
        assert [one.metadata["source"] for one in mine.get_state_history(config(), limit=1)] == ["fork"]


def test_writes_go_along_with_no_checkpoint_but_their_own(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a task wrote where its thread does not stand any more is refused, though a subgraph of its run stores."""
    monkeypatch.setattr("checkpointers.saver.WINDOW_SECONDS", 30.0)
    of_the_run = partial(by_run, object())
    with reopen(url) as saver, reopen(url) as other, ThreadPoolExecutor(1) as pool:
        first = put(saver, {"x": 1})
        saver.get_tuple(of_the_run(config(checkpoint_ns="")))
        contextvars.Context().run(put, other, {"x": 2}, after=first, version=2)
        writing = pool.submit(saver.put_writes, of_the_run(first), [("x", 3)], "task")
        give_up = time.monotonic() + 20
        while not saver._groups._waiting and time.monotonic() < give_up:
            time.sleep(0.001)
        inside = of_the_run(config(checkpoint_ns="inner:1"))
        put(saver, {"y": 1}, after=inside)
        with pytest.raises(HeadMovedError):
            writing.result(20)
        assert saver.get_tuple(first).pending_writes == []  # type: ignore[union-attr]
        assert saver.get_tuple(config(checkpoint_ns="inner:1")) is not None


def _held(saver: Saver) -> None:
    with saver.lease("t"):
        pass


DEEDS = {
    "tag": lambda saver: saver.tag("t", "x"),
    "lease": _held,
    "copy": lambda saver: saver.copy_thread("t", "copy"),
    "delete": lambda saver: saver.delete_thread("t"),
    "prune": lambda saver: saver.prune(["t"]),
}


@pytest.mark.parametrize("at", range(2, 9))
@pytest.mark.parametrize("deed", DEEDS)
def test_a_thread_that_begins_while_it_is_changed_as_a_whole(postgres_url: str, deed: str, at: int) -> None:
    """What somebody asks of a thread that there is not yet takes nothing back of what is stored meanwhile."""
    steps: list[Any] = []
    places: list[dict[str, Any]] = []
    with reopen(postgres_url) as writer, reopen(postgres_url) as other, ThreadPoolExecutor(1) as pool:

        def step(number: int) -> None:
            what = {"x": number, "list": [f"item {n} of several" for n in range(3 * number)]}
            places.append(put(writer, what, after=places[-1] if places else None, version=number))

        def meanwhile(number: int, request: Any) -> None:
            if number in (at, at + 1):
                steps.append(pool.submit(step, 1 + len(steps)))
                with suppress(TimeoutError):  # it may have to wait for the deed
                    steps[-1].result(0.3)

        watched = type(other)(FaultyDatabase(other.database, meanwhile))
        with suppress(UnknownThreadError, HeadMovedError, ThreadBusyError):
            DEEDS[deed](watched)
        stored = 0
        with suppress(HeadMovedError, ThreadBusyError):  # it was deleted meanwhile, or is held
            for done in steps:
                done.result(20)
                stored += 1
        with reopen(postgres_url) as fresh:
            assert fresh.fsck() == []
            if deed != "delete" and stored == len(steps) > 0:
                assert values(fresh)["x"] == stored


READINGS = {
    "fsck": lambda saver: saver.fsck("t"),
    "fsck of all": lambda saver: saver.fsck(),
    "steps": lambda saver: saver.steps("t") and [],
    "tasks": lambda saver: saver.tasks("t") and [],
    "state": lambda saver: loop(saver).get_state(config()) and [],
    "history": lambda saver: len(History(saver, "t")) and [],
    "listing": lambda saver: [*saver.list(config())] and [],
    "plan": lambda saver: saver.retain(Keep(last=2), dry_run=True) and [],
    "export": lambda saver: History(saver, "t").export("json") and [],
    "markdown": lambda saver: History(saver, "t").export("markdown") and [],
    "search": lambda saver: [*History(saver, "t").grep("of 1 ")] and [],
    "blame": lambda saver: [*History(saver, "t").blame("n")] and [],
    "told": lambda saver: saver.get_delta_channel_history(config=config(), channels=["log"]) and [],
}


@pytest.mark.parametrize("deed", ["add", "cut", "both"])
@pytest.mark.parametrize("reading", READINGS)
def test_what_is_read_while_others_work_is_never_damaged(url: str, reading: str, deed: str) -> None:
    """Before each request of a reading somebody else goes on with the thread, removes most of it, or both."""
    with reopen(url) as worker, reopen(url) as reader:
        app = loop(worker, DeltaState)
        app.invoke({"until": 12, "n": 0}, config())

        def meanwhile(number: int, request: Any) -> None:
            if number < 20:
                if deed != "cut":
                    app.invoke({"until": 12 + number}, config())
                if deed != "add":
                    worker.retain(Keep(last=20 - number))

        watched = type(reader)(FaultyDatabase(reader.database, meanwhile))
        with suppress(UnknownStepError):  # a history says that a step was dropped since
            assert READINGS[reading](watched) == []


GATHERINGS = {
    "json": lambda history: history.export("json"),
    "markdown": lambda history: history.export("markdown"),
    "html": lambda history: history.export("html"),
    "grep": lambda history: history.grep("item"),
    "blame": lambda history: history.blame("list[1]"),
}
TAKEN = {
    "pruned": lambda saver: saver.prune(["t"]),
    "deleted": lambda saver: saver.delete_thread("t"),
    "begun anew": lambda saver: (saver.delete_thread("t"), put(saver, {"list": ["an item", "of another life"]})),
}


@pytest.mark.parametrize("deed", TAKEN)
@pytest.mark.parametrize("verb", GATHERINGS)
def test_what_is_gathered_while_others_remove_is_never_damaged(url: str, verb: str, deed: str) -> None:
    """Before any request of a verb that goes through a whole thread, its elements go: single ones and sealed ones."""
    with reopen(url) as worker, reopen(url) as reader:
        for at in range(1, 40):
            worker.delete_thread("t")
            place = None
            for version in range(1, 22):
                changed = [f"item {n} of version {version if n % 3 else 0}" for n in range(2 * version)]
                place = put(worker, {"list": changed}, after=place, version=version)
            asked: list[int] = []

            def meanwhile(number: int, request: Any, at: int = at, asked: list[int] = asked) -> None:
                asked.append(number)
                if len(asked) == at:
                    TAKEN[deed](worker)

            watched = type(reader)(FaultyDatabase(reader.database, meanwhile))
            with suppress(UnknownStepError, UnknownThreadError):
                GATHERINGS[verb](History(watched, "t"))
            if len(asked) < at:
                break


GOES_ON = {
    "writes": lambda saver, place: saver.put_writes(place, [("x", "late")], "late"),
    "goes on": lambda saver, place: put(saver, {"x": 9, "list": ["new"] * 99}, after=place, version=9),
    "prunes": lambda saver, place: saver.retain(Keep(last=2)),
    "claims": lambda saver, place: saver.ledger.claim("t", "late", {}),
}


@pytest.mark.parametrize("deed", GOES_ON)
def test_a_thread_that_goes_on_while_it_is_recovered(postgres_url: str, deed: str) -> None:
    """What is recovered is of one moment: nothing sound is left behind, whatever its owner does before any request."""
    with reopen(postgres_url) as owner, reopen(postgres_url) as other, ThreadPoolExecutor(1) as pool:
        for at in range(1, 40):
            owner.delete_thread("t")
            owner.delete_thread("saved")
            place = None
            for version in range(1, 6):
                place = put(
                    owner, {"x": version, "list": [f"item {n}" for n in range(9)]}, after=place, version=version
                )
                owner.put_writes(place, [("x", version)], "task")
            owner.ledger.claim("t", "first", {})
            late: list[Any] = []
            asked: list[int] = []

            def meanwhile(
                number: int,
                request: Any,
                at: int = at,
                late: list[Any] = late,
                asked: list[int] = asked,
                place: Any = place,
            ) -> None:
                asked.append(number)
                if number == at:
                    late.append(pool.submit(GOES_ON[deed], owner, place))
                    with suppress(TimeoutError):  # it has to wait
                        late[0].result(0.1)

            step = type(other)(FaultyDatabase(other.database, meanwhile)).recover("t", into="saved")
            for done in late:
                done.result(20)
            assert step >= 5
            assert other.steps("saved")[-1].number == step
            assert other.ledger.get("saved", "first") is not None
            assert other.fsck() == []
            if len(asked) < at:
                break


def test_a_thread_that_begins_and_ends_while_it_is_deleted(postgres_url: str) -> None:
    """Whoever deletes has its place before anything goes: what is put then waits, and is stored whole."""
    with reopen(postgres_url) as saver, reopen(postgres_url) as other, ThreadPoolExecutor(1) as pool:
        late: list[Any] = []
        locks: list[int] = []

        def meanwhile(number: int, request: Any) -> None:
            sql = getattr(request, "sql", "")
            if sql.startswith("INSERT INTO cp_threads") and len(locks) == 1:
                put(other, {"x": 1})  # begun before it could be
            elif sql.startswith("UPDATE cp_threads"):
                locks.append(number)
                if len(locks) == 2:
                    other.delete_thread("t")
            elif sql.startswith("DELETE FROM cp_checkpoints"):
                late.append(pool.submit(put, other, {"x": 2, "list": [f"item {n} of several" for n in range(9)]}))
                with suppress(TimeoutError):
                    late[0].result(0.5)

        type(saver)(FaultyDatabase(saver.database, meanwhile)).delete_thread("t")
        late[0].result(20)
        assert values(other)["x"] == 2
        assert other.fsck() == []


GONE = {
    "deleted": (lambda saver: saver.delete_thread("t"), 3),
    "begun anew": (lambda saver: (saver.delete_thread("t"), put(saver, {"x": "anew"})), 3),
    "pruned": (lambda saver: saver.prune(["t"]), 1),
}


@pytest.mark.parametrize("at", range(1, 7))
@pytest.mark.parametrize("deed", GONE)
def test_what_is_put_while_others_remove_is_never_damaged(url: str, deed: str, at: int) -> None:
    """Who begins to write a thread reads it first, in several requests."""
    done, parent = GONE[deed]
    with reopen(url) as saver, reopen(url) as other:
        place, places = None, []
        for version in range(1, 5):
            place = put(other, {"x": version}, after=place, version=version)
            places.append(place)
        watched = type(saver)(FaultyDatabase(saver.database, lambda number, _: done(other) if number == at else None))
        put(watched, {"x": 9}, after=places[parent], version=9)
        assert saver.fsck() == []
