"""A lease: one writer of a thread at a time; who is not, is told so and stores nothing."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import multiprocessing as mp
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import id as checkpoint_ids
from langgraph.graph import StateGraph
from langgraph.types import Command, Send

from checkpointers import CheckpointerError, HeadMovedError, Keep, LeaseLostError, Saver, SqliteSaver, ThreadBusyError
from checkpointers.grouping import Waiting
from checkpointers.operations.common import place_of
from checkpointers.operations.rows import NewWrites
from checkpointers.statements import Statement
from checkpointers.testing import FaultyDatabase, wait_until
from tests.checkpointers.graphs import State, config, loop, nested, review
from tests.checkpointers.test_storage import put, values
from tests.conftest import reopen

TTL = 0.3


def elsewhere(call: Callable[[], Any]) -> Any:
    """Call in a thread of its own, whose context knows nothing of this one's."""
    found: list[Any] = []

    def work() -> None:
        try:
            found.append((call(), None))
        except BaseException as error:
            found.append((None, error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    answer, error = found[0]
    if error is not None:
        raise error
    return answer


def ask(saver: Saver, sql: str) -> Any:
    def asking() -> Any:
        return (yield Statement(sql))

    return saver.database.read(asking)


def silent(saver: Saver) -> Saver:
    """Take the heartbeat from a saver: its leases run out as those of a process that was stopped."""
    saver._desk.heart._renew = lambda lease: True
    return saver


def ids(saver: Saver, thread: str = "t") -> list[int]:
    return [entry["id"] for entry in loop(saver).get_state(config(thread)).values.get("log", [])]


# What a run may do under a lease.


def test_invoke_stream_and_state_under_a_lease(saver: Saver) -> None:
    """Every way to run a graph writes under the lease of the block around it, with every durability."""
    app = loop(saver)
    with saver.lease("t") as lease:
        assert (lease.thread, lease.epoch, lease.lost) == ("t", 1, False)
        until = 0
        for durability in ("sync", "async", "exit"):
            until += 2
            app.invoke({"until": until, "n": until - 2}, config(), durability=durability)
            until += 2
            list(app.stream({"until": until}, config(), durability=durability))
        app.update_state(config(), {"static": "by hand"})
        lease.check()
    assert ids(saver) == list(range(until))
    assert values(saver)["static"] == "by hand"


def test_async_runs_under_a_lease(saver: Saver) -> None:
    """The async doors too, in a block that waits without keeping the loop."""
    app = loop(saver)

    async def main() -> None:
        async with saver.lease("t") as lease:
            assert lease.epoch == 1
            until = 0
            for durability in ("sync", "async", "exit"):
                until += 2
                await app.ainvoke({"until": until, "n": until - 2}, config(), durability=durability)
                until += 2
                async for _ in app.astream({"until": until}, config(), durability=durability):
                    pass
            await app.aupdate_state(config(), {"static": "by hand"})
            with pytest.raises(ThreadBusyError):
                await asyncio.to_thread(elsewhere, lambda: app.invoke({"until": 99}, config()))
        assert ids(saver) == list(range(until))

    asyncio.run(main())


def parallel(saver: Saver) -> Any:
    """Three branches at once, each slow enough to end in a worker of its own."""

    def branch(state: Any) -> dict[str, Any]:
        time.sleep(0.05)
        return {"log": [{"did": state["n"]}]}

    builder = StateGraph(State)
    builder.add_node("branch", branch)
    builder.add_conditional_edges("__start__", lambda _: [Send("branch", {"n": n}) for n in range(3)], ["branch"])
    return builder.compile(checkpointer=saver)


def test_parallel_branches_write_under_it(saver: Saver) -> None:
    """What parallel tasks wrote is stored from a callback that has no context; it is known by its run."""
    with saver.lease("t"):
        parallel(saver).invoke({}, config())
        with pytest.raises(ThreadBusyError):
            elsewhere(lambda: parallel(saver).invoke({}, config()))
    assert len(values(saver)["log"]) == 3


def test_parallel_reviews_and_subgraphs_write_under_it(saver: Saver) -> None:
    """Interrupts, answers and subgraphs too."""
    with saver.lease("t"):
        review(saver).invoke({}, config())
    with saver.lease("t"):
        state = review(saver).get_state(config())
        review(saver).invoke(Command(resume={i.id: "yes" for i in state.interrupts}), config())
    assert values(saver)["answers"] == ["yes", "yes"]
    with saver.lease("inner"):
        nested(saver).invoke({}, config("inner"))
        nested(saver).invoke(Command(resume="yes"), config("inner"))
    assert values(saver, config("inner"))["log"][-1] == "after"


def test_leases_of_many_runs_in_one_loop(saver: Saver) -> None:
    """Forty async runs at a time, each under a lease of its own."""
    app = loop(saver)

    async def one(name: str) -> int:
        async with saver.lease(name, ttl=5):
            return (await app.ainvoke({"until": 3, "n": 0}, config(name)))["n"]

    async def main() -> list[int]:
        return await asyncio.gather(*(one(f"t{n}") for n in range(40)))

    assert asyncio.run(main()) == [3] * 40
    assert {info.holder for info in saver.threads()} == {None}


def test_a_block_inside_a_block_shares_the_lease(saver: Saver) -> None:
    """Nesting joins; the outer block alone gives back."""
    with saver.lease("t", owner="outer") as outer:
        with saver.lease("t", owner="inner", if_busy="rollback") as inner:
            assert (inner.token, inner.epoch, inner.owner) == (outer.token, outer.epoch, "outer")
            put(saver, {"x": 1})
        put(saver, {"x": 2}, after=saver.get_tuple(config()).config, version=2)
        with pytest.raises(ThreadBusyError):
            elsewhere(lambda: saver.lease("t").__enter__())
        outer.lost = True
        with pytest.raises(LeaseLostError):
            inner.check()
        with pytest.raises(LeaseLostError):
            saver.lease("t").__enter__()
        outer.lost = False

    async def main() -> None:
        async with saver.lease("t"):
            async with saver.lease("t"):
                pass
            with saver.lease("t") as third:
                assert third.epoch == 2
            await asyncio.to_thread(put, saver, {"x": 3}, after=saver.get_tuple(config()).config, version=3)

    asyncio.run(main())
    assert values(saver) == {"x": 3}


def test_a_lease_is_for_one_block(saver: Saver) -> None:
    """The same object twice would be two writers with one token; a try that was refused may be made again."""
    lease = saver.lease("t")
    with lease, pytest.raises(CheckpointerError, match="one block"), lease:
        pass
    with pytest.raises(CheckpointerError, match="one block"), lease:
        pass
    with pytest.raises(LeaseLostError):
        lease.check()
    again = saver.lease("t")
    with saver.lease("t"), pytest.raises(ThreadBusyError):
        elsewhere(again.__enter__)
    with again:
        put(saver, {"x": 1})


# Who has it, and who is refused.


def test_busy_says_who_and_since_when(saver: Saver) -> None:
    """The refusal of a lease and that of a write name the holder; the listing tells it too."""
    put(saver, {"x": 1})
    before = datetime.now(UTC) - timedelta(seconds=1)
    with saver.lease("t", owner="worker seven"):
        for refused in (saver.lease("t").__enter__, lambda: put(saver, {"x": 2}, version=2)):
            with pytest.raises(ThreadBusyError, match="'t' is held by worker seven since 20") as caught:
                elsewhere(refused)
            assert (caught.value.thread, caught.value.owner) == ("t", "worker seven")
            assert before < caught.value.since < datetime.now(UTC) + timedelta(seconds=1)
        assert [info.holder for info in saver.threads()] == ["worker seven"]
    assert [info.holder for info in saver.threads()] == [None]
    with saver.lease("t") as lease:
        assert lease.owner.endswith(f":{os.getpid()}")
    assert values(saver) == {"x": 1}


def test_a_write_without_the_context_is_refused(saver: Saver) -> None:
    """A plain thread does not know the lease; one that was given the context does."""
    with saver.lease("t"):
        place = put(saver, {"x": 1})
        with pytest.raises(ThreadBusyError):
            elsewhere(lambda: saver.put_writes(place, [("x", 2)], "task"))
        with pytest.raises(ThreadBusyError):
            elsewhere(lambda: loop(saver).invoke({"until": 1}, config()))
        context = contextvars.copy_context()
        elsewhere(lambda: context.run(saver.put_writes, place, [("x", 3)], "task"))
    assert [write[2] for write in saver.get_tuple(config()).pending_writes] == [3]


def test_two_savers_of_one_process_are_two_writers(url: str) -> None:
    """A lease is of one saver; the other one is told who has it."""
    with reopen(url) as one, reopen(url) as two:
        with one.lease("t", owner="one"):
            place = put(one, {"x": 1})
            with pytest.raises(ThreadBusyError, match="one"):
                two.put_writes(place, [("x", 2)], "task")
            with pytest.raises(ThreadBusyError, match="one"), two.lease("t"):
                pass
            with two.lease("other"):
                put(two, {"x": 1}, after=config("other", checkpoint_ns=""))
        with two.lease("t"):
            put(two, {"x": 2}, after=place, version=2)
            with pytest.raises(ThreadBusyError):
                put(one, {"x": 3}, after=place, version=3)
        assert values(one) == {"x": 2}


def test_a_clean_exit_frees_at_once(saver: Saver) -> None:
    """Also one by an exception; nobody waits for the ttl."""
    for _ in range(3):
        with pytest.raises(ValueError, match="own"), saver.lease("t", ttl=3_600):
            raise ValueError("own")
        with saver.lease("t", ttl=3_600):
            put(saver, {"x": 1}, after=config(checkpoint_ns=""))
    put(saver, {"x": 2}, version=2)


def test_a_task_that_outlives_its_block_is_fenced(saver: Saver) -> None:
    """What was started inside a block keeps its context: its writes are refused, a lease of its own is a new one."""
    with saver.lease("t") as lease:
        place = put(saver, {"x": 1})
        context = contextvars.copy_context()
    with pytest.raises(LeaseLostError, match="released"):
        context.run(saver.put_writes, place, [("x", 2)], "task")

    def own() -> None:
        with saver.lease("t") as another:
            assert another.epoch == lease.epoch + 1
            saver.put_writes(place, [("x", 3)], "task")

    context.run(own)
    assert [write[2] for write in saver.get_tuple(config()).pending_writes] == [3]


def test_a_new_thread_leaves_nothing_behind(saver: Saver) -> None:
    """Holding a thread that nothing is written to makes no thread."""
    with saver.lease("t"):
        assert saver.threads() == []
        assert saver.get_tuple(config()) is None
    for table in ("cp_threads", "cp_leases", "cp_keys", "cp_checkpoints"):
        assert ask(saver, f"SELECT count(*) FROM {table}")[0][0] == 0
    with saver.lease("t"):
        saver.put_writes(config(checkpoint_ns="", checkpoint_id="c1"), [("x", 1)], "task")
    assert ask(saver, "SELECT count(*) FROM cp_writes")[0][0] == 1


# Living and dying.


def test_the_heartbeat_keeps_it_alive(saver: Saver) -> None:
    """A holder that writes nothing for many ttls still has it."""
    with saver.lease("t", ttl=TTL) as lease:
        for _ in range(8):
            time.sleep(TTL / 2)
            with pytest.raises(ThreadBusyError):
                elsewhere(saver.lease("t").__enter__)
        assert not lease.lost
        put(saver, {"x": 1})


def test_without_a_heartbeat_it_runs_out(url: str) -> None:
    """After the ttl anybody may take it or write; the old holder finds out at its next write, and stores nothing."""
    with reopen(url) as one, reopen(url) as two:
        silent(one)
        lease = one.lease("t", ttl=TTL)
        lease.__enter__()
        place = put(one, {"x": 1})
        time.sleep(TTL + 0.1)
        put(one, {"x": 2}, after=place, version=2)  # nobody took it over: it may go on
        with two.lease("t", owner="two") as second:
            assert second.epoch == 2
            with pytest.raises(LeaseLostError, match="two holds it now"):
                one.put_writes(place, [("x", 9)], "task")
            with pytest.raises(LeaseLostError):
                put(one, {"x": 9}, after=place, version=3)
        with pytest.raises(LeaseLostError, match="released"):
            one.put_writes(place, [("x", 9)], "task")
        lease.__exit__(None, None, None)
        assert values(two) == {"x": 2}
        assert two.get_tuple(config()).pending_writes == []


def test_a_lease_that_ran_out_and_that_nobody_took_goes_on(url: str) -> None:
    """Also for who has to look how the thread stands: a holder does not take itself for one that is to be evicted."""
    with reopen(url) as one, reopen(url) as two:
        silent(one)
        place = put(two, {"x": 1})
        lease = one.lease("t", ttl=TTL, owner="one")
        lease.__enter__()
        time.sleep(TTL + 0.1)
        for version in range(2, 5):
            place = put(one, {"x": version}, after=place, version=version)
        one.ledger.claim("t", "key", {})
        assert one.holder("t") is None
        with two.lease("t", owner="two"), pytest.raises(LeaseLostError, match="two holds it now"):
            put(one, {"x": 9}, after=place, version=9)
        with pytest.raises(LeaseLostError, match="it ran out and somebody else had"):
            put(one, {"x": 9}, after=place, version=9)
        lease.__exit__(None, None, None)
        assert values(two) == {"x": 4}


def test_a_write_evicts_a_holder_that_ran_out(url: str) -> None:
    """Without a lease, too, a thread whose holder ran out may be written; the holder is then no longer one."""
    with reopen(url) as one, reopen(url) as two:
        silent(one)
        lease = one.lease("t", ttl=TTL)
        lease.__enter__()
        place = put(one, {"x": 1})
        with pytest.raises(ThreadBusyError):
            two.put_writes(place, [("x", 5)], "task")
        time.sleep(TTL + 0.1)
        two.put_writes(place, [("x", 5)], "task")
        assert two.threads()[0].holder is None
        with pytest.raises(LeaseLostError):
            one.put_writes(place, [("x", 9)], "task 2")
        lease.__exit__(None, None, None)
        assert [write[2] for write in two.get_tuple(config()).pending_writes] == [5]


def test_a_lease_that_ran_out_is_not_renewed(url: str) -> None:
    """A holder that wakes after its ttl does not get the thread back by its heartbeat: somebody may have looked."""
    with reopen(url) as one, reopen(url) as two:
        renew = one._desk.heart._renew
        silent(one)
        lease = one.lease("t", ttl=TTL)
        lease.__enter__()
        put(one, {"x": 1})
        assert renew(lease)
        time.sleep(TTL + 0.1)
        assert not renew(lease)
        two.put_writes(config(checkpoint_ns="", checkpoint_id="other"), [("x", 5)], "task")
        assert not renew(lease)
        one._desk.heart._renew = renew
        wait_until(lambda: lease.lost)
        with pytest.raises(LeaseLostError):
            lease.check()
        lease.__exit__(None, None, None)


def test_a_write_does_not_pass_a_lease_renewed_since(url: str) -> None:
    """Whoever saw a lease run out, by a clock that went back since, does not write beside its holder."""
    with reopen(url) as one, reopen(url) as two:
        silent(one)
        lease = one.lease("t", ttl=TTL)
        lease.__enter__()
        place = put(one, {"x": 1})
        time.sleep(TTL + 0.1)

        seen: list[Any] = []

        def renewed(count: int, request: Any) -> None:
            if not seen and "cp_leases" in getattr(request, "sql", ""):
                seen.append(request)  # it has just read that the lease is over
                one.database.exclusive(lambda: _statement("UPDATE cp_leases SET until = cp_clock() + 60000000"))

        late = type(two)(FaultyDatabase(two.database, after=renewed))
        with pytest.raises(ThreadBusyError):
            late.put_writes(place, [("x", 5)], "task")
        one.put_writes(place, [("x", 6)], "task")
        lease.__exit__(None, None, None)
        assert [write[2] for write in two.get_tuple(config()).pending_writes] == [6]


def _statement(sql: str) -> Any:
    yield Statement(sql)


def _die(url: str) -> None:
    saver = reopen(url)
    with saver.lease("t", ttl=TTL, owner="dead"):
        loop(saver).invoke({"until": 3, "n": 0}, config(), durability="sync")
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_holder_frees_the_thread_within_the_ttl(url: str) -> None:
    """SIGKILL in the middle of a run: whoever waits has the thread soon after."""
    holder = mp.get_context("spawn").Process(target=_die, args=(url,))
    holder.start()
    holder.join(60)
    assert holder.exitcode == -signal.SIGKILL
    with reopen(url) as saver:
        with saver.lease("t", if_busy="enqueue", timeout=120) as lease:
            assert lease.epoch == 2
            loop(saver).invoke({"until": 6}, config())
        assert ids(saver) == list(range(6))


def test_many_leases_have_one_heartbeat(saver: Saver) -> None:
    """Two hundred at a time are kept alive by one thread, which ends with the last of them."""

    def hearts() -> int:
        return sum(thread.name == "checkpointers-leases" for thread in threading.enumerate())

    others = hearts()
    with ExitStack() as stack:
        leases = [stack.enter_context(saver.lease(f"t{n}", ttl=6.0)) for n in range(200)]
        before = ask(saver, "SELECT sum(until) FROM cp_leases")[0][0]
        time.sleep(2.6)
        assert hearts() == others + 1
        assert ask(saver, "SELECT sum(until) FROM cp_leases")[0][0] > before + 200 * 1_000_000
        assert ask(saver, "SELECT count(*) FROM cp_leases WHERE until > cp_clock()")[0][0] == 200
        assert not any(lease.lost for lease in leases)
    wait_until(lambda: hearts() <= others)
    assert ask(saver, "SELECT count(*) FROM cp_leases WHERE token IS NOT NULL")[0][0] == 0


def test_a_heartbeat_outlives_any_trouble(saver: Saver) -> None:
    """A renewal that fails is tried again at the next beat, whatever went wrong."""
    renew, failures = saver._desk.heart._renew, iter([OSError("no"), RuntimeError("no"), CheckpointerError("no")])

    def failing(lease: Any) -> bool:
        for error in failures:
            raise error
        return renew(lease)

    saver._desk.heart._renew = failing
    with saver.lease("t", ttl=1.2) as lease:
        time.sleep(1.8)
        assert next(failures, None) is None
        lease.check()
        saver._desk.heart._renew = lambda lease: False
        wait_until(lambda: lease.lost)
        with pytest.raises(LeaseLostError):
            put(saver, {"x": 1})


# Waiting, taking over.


def test_enqueue_waits_for_its_turn(saver: Saver) -> None:
    """Whoever waits gets the thread when it is given back; with a timeout, not for ever."""
    order: list[str] = []

    def wait() -> None:
        with saver.lease("t", if_busy="enqueue"):
            order.append("second")
            loop(saver).invoke({"until": 4}, config())

    with saver.lease("t"):
        waiting = threading.Thread(target=wait)
        waiting.start()
        start = time.monotonic()
        with pytest.raises(ThreadBusyError):
            elsewhere(saver.lease("t", if_busy="enqueue", timeout=0.3).__enter__)
        assert time.monotonic() - start >= 0.3
        with pytest.raises(ThreadBusyError):
            elsewhere(saver.lease("t", if_busy="enqueue", timeout=0).__enter__)
        loop(saver).invoke({"until": 2, "n": 0}, config())
        order.append("first")
    waiting.join()
    assert order == ["first", "second"]
    assert ids(saver) == [0, 1, 2, 3]


def test_many_wait_in_one_loop(saver: Saver) -> None:
    """More async waiters than the saver has workers do not keep the holder from its end."""
    turns: list[int] = []

    async def one(n: int) -> None:
        async with saver.lease("t", if_busy="enqueue", ttl=20):
            turns.append(n)
            await saver.aput_writes(config(checkpoint_ns="", checkpoint_id="c"), [("x", n)], f"task {n}")
            await asyncio.sleep(0.005)

    async def main() -> None:
        await asyncio.wait_for(asyncio.gather(*(one(n) for n in range(40))), 60)

    asyncio.run(main())
    assert sorted(turns) == list(range(40))


def test_a_cancelled_wait_leaves_nothing(saver: Saver) -> None:
    """Whoever gives up waiting holds nothing later, at whatever moment it gave up."""

    async def give_up(after: float) -> None:
        async with asyncio.timeout(after):
            async with saver.lease("t", if_busy="enqueue", ttl=60):
                await asyncio.sleep(0.05)

    async def main() -> None:
        async with saver.lease("t"):
            with pytest.raises(TimeoutError):
                await asyncio.create_task(give_up(0.1), context=contextvars.Context())
        for step in range(40):
            with suppress(TimeoutError):
                await give_up(step * 0.0004)

    asyncio.run(main())
    with saver.lease("t", if_busy="enqueue", timeout=5):
        put(saver, {"x": 1})


def test_interrupt_takes_over_at_once(saver: Saver) -> None:
    """The run that had it fails at its next write; what it stored stays, and the new holder goes on from there."""
    app, begun, go = loop(saver), threading.Event(), threading.Event()
    failed: list[BaseException] = []

    def first() -> None:
        try:
            with saver.lease("t", ttl=60, owner="first") as lease:
                app.invoke({"until": 2, "n": 0}, config(), durability="sync")
                begun.set()
                go.wait(30)
                assert not lease.lost
                app.invoke({"until": 9}, config(), durability="sync")
        except LeaseLostError as error:
            failed.append(error)

    running = threading.Thread(target=first)
    running.start()
    assert begun.wait(30)
    with saver.lease("t", if_busy="interrupt", owner="second") as lease:
        assert lease.epoch == 2
        go.set()
        running.join()
        assert "second holds it now" in str(failed[0])
        app.invoke({"until": 4}, config())
    assert ids(saver) == [0, 1, 2, 3]


def test_rollback_removes_what_the_holder_made(url: str) -> None:
    """Exactly the steps made under the lease that is taken over go, and what only they had; older ones stay."""
    with reopen(url) as one, reopen(url) as two:
        loop(one).invoke({"until": 3, "n": 0}, config())
        before = [(s.number, s.id) for s in one.steps("t")]
        usage = one.usage("t")
        old = one.lease("t", ttl=60)
        old.__enter__()
        loop(one).invoke({"until": 7}, config())
        one.put_writes(config(checkpoint_ns="", checkpoint_id="never stored"), [("log", [{"id": "gone"}])], "task")
        two.tag("t", "kept")
        with two.lease("t", if_busy="rollback") as lease:
            assert lease.epoch == 2
            assert [(s.number, s.id) for s in two.steps("t")] == before
            assert two.usage("t") == usage
            assert two.threads()[0].tags == ("kept",)
            with pytest.raises(LeaseLostError):
                loop(one).invoke({"until": 9}, config())
            loop(two).invoke({"until": 5}, config())
            assert min(s.number for s in two.steps("t")[len(before) :]) > 7
        old.__exit__(None, None, None)
        assert ids(two) == list(range(5))
        with two.lease("t", if_busy="rollback"):  # the lease was given back: what was made under it stays
            assert ids(two) == list(range(5))


def test_rollback_of_all_there_was(url: str) -> None:
    """A holder that began the thread: nothing stays of it, and the next run begins it."""
    with reopen(url) as one, reopen(url) as two:
        silent(one)
        old = one.lease("t", ttl=TTL)
        old.__enter__()
        loop(one).invoke({"until": 3, "n": 0}, config())
        time.sleep(TTL + 0.1)
        with two.lease("t", if_busy="rollback"):
            assert two.threads() == []
            assert two.usage("t") == []
            assert two.get_tuple(config()) is None
        with pytest.raises(LeaseLostError):
            loop(one).invoke({"until": 9}, config())
        old.__exit__(None, None, None)
        loop(two).invoke({"until": 2, "n": 0}, config())
        assert ids(two) == [0, 1]


@pytest.mark.slow
def test_beliefs_die_with_their_database(tmp_path: Path) -> None:
    """What a run believes of a thread is kept by database, and no two databases of a process are taken for one."""
    slots = set()
    for number in range(20):
        with SqliteSaver.open(tmp_path / f"{number}.db") as saver:
            slots.add(saver._slot("t"))
        del saver
        gc.collect()
    assert len(slots) == 20


def test_rollback_takes_back_an_answer(url: str) -> None:
    """What the holder wrote on an older checkpoint (an answer to its interrupt) goes too: the question is open again."""
    with reopen(url) as one, reopen(url) as two:
        review(one).invoke({}, config())
        questions = {i.id: "wrong" for i in review(one).get_state(config()).interrupts}
        before = one.get_tuple(config()).pending_writes
        old = one.lease("t", ttl=60)
        old.__enter__()
        first = next(iter(questions))
        review(one).invoke(Command(resume={first: "wrong"}), config())
        with two.lease("t", if_busy="rollback"):
            old.__exit__(None, None, None)
            assert two.get_tuple(config()).pending_writes == before
            review(two).invoke(Command(resume=dict.fromkeys(questions, "right")), config())
        assert values(two)["answers"] == ["right", "right"]


def test_a_take_whose_answer_was_lost_is_done_again(saver: Saver) -> None:
    """The same ask again, as after a connection lost at the commit, is not refused for its own sake."""
    from checkpointers.testing import faulty

    put(saver, {"x": 1})
    for number in range(1, 6):
        twice = type(saver)(faulty(saver.database, "duplicate", number))
        with twice.lease("t") as lease:
            put(twice, {"x": number}, after=config(checkpoint_ns=""))
            lease.check()


# What others may do meanwhile.


def test_others_may_care_for_a_held_thread(url: str) -> None:
    """Retention, pruning, tags and copies are for the owner of the database; the holder goes on after each."""
    with reopen(url) as one, reopen(url) as two, one.lease("t", owner="one"):
        app = loop(one)
        app.invoke({"until": 6, "n": 0}, config(), durability="sync")
        for n, care in enumerate(
            (
                lambda: two.tag("t", "red"),
                lambda: two.pin("t", 3),
                lambda: two.retain(Keep(last=3)),
                lambda: two.prune(["t"]),
                lambda: two.copy_thread("t", "copy"),
                lambda: two.retain(Keep(last=1)),
            )
        ):
            care()
            app.invoke({"until": 7 + n}, config(), durability="sync")
        assert ids(one) == list(range(12))
        assert two.threads()[0].tags == ("red",)
        assert two.threads()[0].holder == "one"
        two.delete_thread("copy")


def test_deleting_a_held_thread(url: str) -> None:
    """Refused for others; the holder may, and goes on writing under the same lease."""
    with reopen(url) as one, reopen(url) as two:
        with one.lease("t", owner="one"):
            loop(one).invoke({"until": 3, "n": 0}, config())
            for remove in (two.delete_thread, lambda thread: two.prune([thread], strategy="delete")):
                with pytest.raises(ThreadBusyError, match="one"):
                    remove("t")
            assert ids(two) == [0, 1, 2]
            one.delete_thread("t")
            assert two.threads() == []
            with pytest.raises(ThreadBusyError):
                two.put_writes(config(checkpoint_ns="", checkpoint_id="c"), [("x", 1)], "task")
            loop(one).invoke({"until": 2, "n": 0}, config())
            assert ids(two) == [0, 1]
        two.delete_thread("t")
        assert ask(two, "SELECT count(*) FROM cp_leases")[0][0] == 0


@pytest.mark.parametrize(
    "begun_again",
    [
        False,
        True,
    ],
)
def test_a_zombie_does_not_write_a_thread_that_was_deleted(url: str, begun_again: bool) -> None:
    """Its lease ran out, somebody deleted the thread and began another of this name: none of its writes land there."""
    with reopen(url) as one, reopen(url) as two:
        silent(one)
        old = one.lease("t", ttl=TTL)
        old.__enter__()
        place = put(one, {"x": 1})
        time.sleep(TTL + 0.1)
        two.delete_thread("t")
        if begun_again:
            put(two, {"x": "new"})
        with pytest.raises(LeaseLostError):
            one.put_writes(place, [("x", 9)], "task")
        with pytest.raises((LeaseLostError, HeadMovedError)):
            put(one, {"x": 9}, after=place, version=2)
        old.__exit__(None, None, None)
        assert ask(two, "SELECT count(*) FROM cp_writes")[0][0] == 0
        assert len(two.threads()) == begun_again


def test_writes_that_wait_together_are_not_mixed(saver: Saver) -> None:
    """Writes of a holder and of somebody else that wait for the same commit: each is judged by its own lease."""
    place = put(saver, {"x": 1})
    with saver.lease("t") as lease:
        own = NewWrites(place_of(place), [("x", 1)], "own", "", lease.token)
        saver._groups.join(Waiting(own))
        with pytest.raises(ThreadBusyError):
            elsewhere(lambda: saver.put_writes(place, [("__error__", "no")], "other"))
    assert [write[0] for write in saver.get_tuple(config()).pending_writes] == ["own"]


@pytest.mark.parametrize("days", [-2, 2])
def test_the_clock_of_a_writer_does_not_matter(postgres_url: str, days: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Postgres the server's clock alone decides: one that jumps neither frees a thread nor holds it."""
    with reopen(postgres_url) as one, reopen(postgres_url) as two:
        silent(one)
        old = one.lease("t", ttl=1.0, owner="one")
        old.__enter__()
        place = put(one, {"x": 1})
        real = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: real() + days * 86_400 * 10**9)
        # Ids of checkpoints are never older than the last one: without this, those of other tests would be of that day.
        monkeypatch.setattr(checkpoint_ids, "_last_v6_timestamp", checkpoint_ids._last_v6_timestamp)
        with pytest.raises(ThreadBusyError, match="one"), two.lease("t"):
            pass
        with pytest.raises(ThreadBusyError):
            put(two, {"x": 2}, after=place, version=2)
        put(one, {"x": 3}, after=place, version=3)
        time.sleep(1.1)
        with two.lease("t", owner="two"), pytest.raises(LeaseLostError, match="two"):
            one.put_writes(place, [("x", 9)], "task")
        old.__exit__(None, None, None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"ttl": 0}, {"ttl": -1}, {"ttl": float("nan")}, {"ttl": float("inf")}, {"ttl": "30"}, {"ttl": 0.001}, {"ttl": True},
        {"if_busy": "wait"}, {"if_busy": None}, {"owner": 7}, {"owner": b"x"}, {"timeout": 3}, {"timeout": -1, "if_busy": "enqueue"},
        {"timeout": "3", "if_busy": "enqueue"}, {"timeout": float("nan"), "if_busy": "enqueue"},
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(saver: Saver, wrong: dict[str, Any]) -> None:
    """At once and by name, before anything is asked of the database."""
    with pytest.raises(CheckpointerError, match=f"lease|{next(iter(wrong))}"):
        saver.lease("t", **wrong)
    with pytest.raises(TypeError):
        saver.lease("t", 30)
    assert ask(saver, "SELECT count(*) FROM cp_leases")[0][0] == 0


def test_names_of_threads_are_texts(saver: Saver) -> None:
    """A number is its text, as for LangGraph; odd names are names."""
    with saver.lease(7), pytest.raises(ThreadBusyError, match="'7'"):
        elsewhere(saver.lease("7").__enter__)
    for name in ("", "naïve ' \" ; --", "x" * 5_000, "\ud800"):
        with saver.lease(name, owner=name or "nobody"):
            put(saver, {"x": 1}, after=config(name, checkpoint_ns=""))


def test_epochs_only_grow(saver: Saver) -> None:
    """Every take of a thread that stays is the next epoch."""
    put(saver, {"x": 1})
    epochs = []
    for policy in ("reject", "enqueue", "interrupt", "rollback", "reject"):
        with saver.lease("t", if_busy=policy) as lease:
            epochs.append(lease.epoch)
    assert epochs == [1, 2, 3, 4, 5]
