"""Real LangGraph graphs on our savers do what they do on the official ones: run, pause, resume, fork, look back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, Overwrite

from checkpointers import Saver
from checkpointers.testing import FaultyDatabase
from tests.checkpointers.graphs import DeltaState, State, config, loop, nested, review
from tests.checkpointers.wild import difference
from tests.conftest import reopen


def states(app: Any, thread: str = "t") -> list[tuple[Any, ...]]:
    """Give everything that the history of a thread shows, without ids and times."""
    return [
        (s.values, s.next, s.metadata.get("source"), s.metadata["step"], [t.name for t in s.tasks], [i.value for i in s.interrupts])
        for s in app.get_state_history(config(thread))
    ]  # fmt: skip


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("schema", [State, DeltaState], ids=["plain", "delta"])
def test_a_loop_leaves_the_same_history(saver: Saver, schema: Any, durability: str) -> None:
    """Every step of a run reads as it does in memory, for ordinary reducers and DeltaChannels."""
    found = []
    for one in (saver, InMemorySaver()):
        app = loop(one, schema)
        app.invoke({"until": 11, "n": 0}, config(), durability=durability)
        app.invoke({"until": 13}, config(), durability=durability)
        found.append(states(app))
    assert difference(found[0], found[1]) is None
    assert len(found[0]) > (10 if durability != "exit" else 1)


def test_async_and_sync_and_threads_share_one_saver(saver: Saver) -> None:
    """One object serves sync callers, several event loops one after another, and a running loop."""
    app = loop(saver)
    app.invoke({"until": 2, "n": 0}, config("sync"))
    for turn in range(3):
        asyncio.run(app.ainvoke({"until": 3 + turn, "n": 0}, config(f"loop {turn}")))

    async def both() -> None:
        await asyncio.gather(*(app.ainvoke({"until": 6, "n": 0}, config(f"g{i}")) for i in range(8)))
        app.invoke({"until": 4, "n": 0}, config("inside"))
        assert [s.values["n"] async for s in app.aget_state_history(config("g3"), limit=2)] == [6, 5]

    asyncio.run(both())
    assert app.get_state(config("inside")).values["n"] == 4
    assert {info.thread for info in saver.threads(status="done")} >= {"sync", "loop 0", "g7", "inside"}


def test_questions_are_resumed_by_another_process(url: str) -> None:
    """Parallel interrupts, answered one by one after a reopen; the sibling that finished is not run again."""
    with reopen(url) as saver:
        review(saver).invoke({}, config(), durability="sync")
        assert [info.status for info in saver.threads()] == ["waiting"]
    with reopen(url) as saver:
        app = review(saver)
        questions = app.get_state(config()).interrupts
        assert sorted(q.value["ask"] for q in questions) == [1, 2]
        app.invoke(Command(resume={questions[0].id: "yes"}), config(), durability="sync")
        assert [info.status for info in saver.threads()] == ["waiting"]
    with reopen(url) as saver:
        app = review(saver)
        (left,) = app.get_state(config()).interrupts
        done = app.invoke(Command(resume={left.id: "no"}), config(), durability="sync")
        assert sorted(done["answers"]) == ["no", "yes"]
        assert done["log"] == [{"did": 3}]
        assert [info.status for info in saver.threads()] == ["done"]


@pytest.mark.parametrize("persistent", [False, True])
def test_subgraphs_pause_resume_and_are_listed(saver: Saver, persistent: bool) -> None:
    """A subgraph's own checkpoints live in its namespace and are found again on resume."""
    found = []
    for one in (saver, InMemorySaver()):
        app = nested(one, persistent=persistent)
        app.invoke({}, config())
        inside = app.get_state(config(), subgraphs=True).tasks[0].state
        app.invoke(Command(resume="fine"), config())
        state = app.get_state(config())
        namespaces = {t.config["configurable"]["checkpoint_ns"].partition(":")[0] for t in one.list(config())}
        found.append((inside.values, inside.next, state.values, state.next, namespaces))
    assert difference(found[0], found[1]) is None
    assert found[0][2]["log"] == ["before", "before", "inner first", "after"]


def test_forks_and_replays(saver: Saver) -> None:
    """Going on from an old checkpoint makes a branch that becomes the head; the old branch stays readable."""
    found = []
    for one in (saver, InMemorySaver()):
        app = loop(one)
        app.invoke({"until": 4, "n": 0}, config())
        old = [s for s in app.get_state_history(config()) if s.values.get("n") == 2][0]  # noqa: RUF015
        fork = app.update_state(old.config, {"log": ["edited"]}, as_node="work")
        app.invoke(None, fork)
        app.invoke(None, old.config)
        found.append(states(app))
    assert difference(found[0], found[1]) is None
    assert any("edited" in s[0].get("log", []) for s in found[0])


@pytest.mark.parametrize("schema", [State, DeltaState], ids=["plain", "delta"])
def test_update_state_overwrite_and_fork(saver: Saver, schema: Any) -> None:
    """Overwrite and updates on old checkpoints do not leak between branches."""
    found = []
    for one in (saver, InMemorySaver()):
        app = loop(one, schema)
        app.invoke({"until": 6, "n": 0}, config())
        app.update_state(config(), {"log": Overwrite(["only"])}, as_node="work")
        history = list(app.get_state_history(config()))
        app.update_state(history[3].config, {"log": ["branch"]}, as_node="work")
        app.invoke({"until": 8}, config())
        found.append(states(app))
    assert difference(found[0], found[1]) is None


def test_get_tuple_inside_list(saver: Saver) -> None:
    """Nothing is held while a listing is looked at: reading and writing inside the loop works."""
    app = loop(saver)
    app.invoke({"until": 30, "n": 0}, config())
    seen = 0
    for found in saver.list(config()):
        assert saver.get_tuple(found.config) == found
        saver.put_writes(found.config, [("log", ["inside"])], "00000000-0000-0000-0000-00000000abcd")
        seen += 1
    assert seen == 32

    async def inside() -> int:
        return len([await saver.aget_tuple(t.config) async for t in saver.alist(config())])

    assert asyncio.run(inside()) == 32


def test_listing_all_threads(saver: Saver) -> None:
    """`list(None)` goes through every thread, filtered and limited."""
    app = loop(saver)
    for name in ("a", "b", "c"):
        app.invoke({"until": 2, "n": 0}, config(name) | {"metadata": {"who": name}})
    assert len(list(saver.list(None))) == 12
    assert len(list(saver.list(None, limit=5))) == 5
    found = list(saver.list(None, filter={"who": "b"}))
    assert {t.config["configurable"]["thread_id"] for t in found} == {"b"}
    middle = found[1].config
    assert len(list(saver.list(config("b", checkpoint_ns=""), before=middle))) == 2
    assert all(t.checkpoint["id"] < middle["configurable"]["checkpoint_id"] for t in saver.list(None, before=middle))


def test_a_search_ends_where_all_was_seen(saver: Saver) -> None:
    """The one checkpoint that a filter finds is read, and the thread is not gone through once more for another."""
    loop(saver).invoke({"until": 9, "n": 0}, config())
    for wanted, found in ({"step": 3}, [3]), ({"source": "loop"}, list(range(9, -1, -1))), ({"source": "no"}, []):
        looks: list[Any] = []
        watched = FaultyDatabase(saver.database, lambda number, request: looks.append(str(request)))  # noqa: B023
        listed = list(type(saver)(watched).list(config(), filter=wanted))
        assert [one.metadata["step"] for one in listed] == found
        if len(found) < 2:
            assert sum("ORDER BY step" in look for look in looks) == 1


def test_listing_without_a_namespace(saver: Saver) -> None:
    """F17: without a namespace all of them are listed, newest first; a limit counts over all."""
    for n, ns in enumerate(["", "child:1", "", "child:2"]):
        checkpoint = {
            "v": 1,
            "id": f"c{n}",
            "ts": "",
            "channel_values": {},
            "channel_versions": {},
            "versions_seen": {},
        }
        saver.put(config(checkpoint_ns=ns), checkpoint, {"source": "loop", "step": n}, {})
    assert [t.checkpoint["id"] for t in saver.list(config())] == ["c3", "c2", "c1", "c0"]
    assert [t.checkpoint["id"] for t in saver.list(config(), limit=1)] == ["c3"]
    assert [t.checkpoint["id"] for t in saver.list(config(checkpoint_ns=""), limit=1)] == ["c2"]
    assert [t.checkpoint["id"] for t in saver.list(config(), filter={"step": 1})] == ["c1"]
    assert [t.checkpoint["id"] for t in saver.list(config(checkpoint_ns="child:1", checkpoint_id="c1"))] == ["c1"]


def test_special_and_ordinary_writes_together(saver: Saver) -> None:
    """F17: of one task's writes, the ordinary ones stay as they were first written, the special ones are the newest."""
    found = []
    for one in (saver, InMemorySaver()):
        checkpoint = {"v": 1, "id": "c", "ts": "", "channel_values": {}, "channel_versions": {}, "versions_seen": {}}
        place = one.put(config(checkpoint_ns=""), checkpoint, {"source": "loop"}, {})
        one.put_writes(place, [("__interrupt__", "first"), ("x", 1), ("y", 1)], "task")
        one.put_writes(place, [("__interrupt__", "second"), ("x", 2), ("z", 2)], "task")
        one.put_writes(place, [("__resume__", "third")], "task")
        one.put_writes(place, [("__error__", "fourth")], "other")
        found.append(one.get_tuple(place).pending_writes)
    assert found[0] == found[1]
    assert ("task", "__interrupt__", "second") in found[0]
