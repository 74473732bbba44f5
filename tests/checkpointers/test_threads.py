"""Order, status and listings: by step, never by clock; told from the rows, never by loading a state."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from langgraph.checkpoint.base import id as ids
from langgraph.graph import StateGraph
from langgraph.types import Command, interrupt

from checkpointers import Saver, UnknownThreadError
from tests.checkpointers.graphs import State, config, loop, nested, review
from tests.checkpointers.test_storage import put
from tests.conftest import reopen


def statuses(saver: Saver) -> dict[str, str]:
    return {info.thread: info.status for info in saver.threads()}


def test_a_slow_clock_does_not_bring_back_an_old_head(saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    """F8: a process whose clock is an hour behind goes on where the thread is, and stays the newest."""
    app = loop(saver)
    app.invoke({"until": 3, "n": 0}, config())
    real = ids.time.time_ns

    class Behind:
        @staticmethod
        def time_ns() -> int:
            return real() - 3_600 * 10**9

    monkeypatch.setattr(ids, "time", Behind)
    monkeypatch.setattr(ids, "_last_v6_timestamp", None)
    app.invoke({"until": 6}, config())
    state = app.get_state(config())
    assert state.values["n"] == 6
    assert state.next == ()
    assert [s.values["n"] for s in app.get_state_history(config(), limit=3)] == [6, 5, 4]
    assert app.invoke(None, config())["n"] == 6


def test_steps_count_up_and_are_never_given_twice(saver: Saver) -> None:
    """Every checkpoint gets the next number of its thread; a replaced one keeps its own; deleted ones leave gaps."""
    place = put(saver, {"x": 1})
    second = put(saver, {"x": 2}, after=place, version=2)
    assert saver.threads()[0].step == 2
    again = {
        "v": 4,
        "id": second["configurable"]["checkpoint_id"],
        "ts": "",
        "channel_values": {"x": 9},
        "channel_versions": {"x": 2},
        "versions_seen": {},
    }
    saver.put(place, again, {"source": "update"}, {"x": 2})
    assert (saver.threads()[0].step, saver.threads()[0].checkpoints) == (2, 2)
    assert saver.get_tuple(config()).checkpoint["channel_values"] == {"x": 9}
    saver.prune(["t"])
    put(saver, {"x": 3}, after=second, version=3)
    assert saver.threads()[0].step == 3


def test_every_status_is_told(saver: Saver) -> None:
    """Waiting, failed, pending and done; the same as the graph itself would say."""

    def fail(state: Any) -> Any:
        raise ValueError("no")

    broken = StateGraph(State)
    broken.add_node("fail", fail)
    broken.add_edge("__start__", "fail")
    loop(saver).invoke({"until": 2, "n": 0}, config("done"))
    review(saver).invoke({}, config("waiting"))
    nested(saver).invoke({}, config("waiting inside"))
    with pytest.raises(ValueError, match="no"):
        broken.compile(checkpointer=saver).invoke({}, config("failed"))
    builder = loop(saver).builder
    builder.compile(checkpointer=saver, interrupt_after=["work"]).invoke({"until": 5, "n": 0}, config("pending"))
    builder.compile(checkpointer=saver, interrupt_before=["work"]).invoke({"until": 5, "n": 0}, config("not begun"))
    assert statuses(saver) == {
        "done": "done", "waiting": "waiting", "waiting inside": "waiting", "failed": "failed", "pending": "pending",
        "not begun": "pending",
    }  # fmt: skip
    assert {i.thread for i in saver.threads(status="waiting")} == {"waiting", "waiting inside"}
    nested(saver).invoke(Command(resume="x"), config("waiting inside"))
    assert statuses(saver)["waiting inside"] == "done"


def test_joins_count_as_pending_only_when_all_have_arrived(saver: Saver) -> None:
    """A node that waits for two branches is due when both have finished."""
    builder = StateGraph(State)
    for name in ("a", "b", "slow", "join"):
        builder.add_node(name, lambda s, name=name: {"log": [name]})
    builder.add_edge("__start__", "a")
    builder.add_edge("__start__", "b")
    builder.add_edge("b", "slow")
    builder.add_edge(["a", "slow"], "join")
    graph = builder.compile(checkpointer=saver, interrupt_after=["slow"])
    graph.invoke({}, config("half"))
    assert statuses(saver)["half"] == "pending"
    graph.invoke(None, config("half"))
    assert graph.get_state(config("half")).next == ()
    assert statuses(saver)["half"] == "done"


def test_a_crash_between_writes_and_checkpoint_is_pending(saver: Saver) -> None:
    """F1: `next` is empty there, but work remains; the listing says so."""
    app = loop(saver)
    paused = app.builder.compile(checkpointer=saver, interrupt_after=["work"])
    paused.invoke({"until": 5, "n": 0}, config())
    state = app.get_state(config())
    task = state.tasks[0]
    saver.put_writes(state.config, [("n", 2), ("branch:to:work", None)], task.id, "~__pregel_pull, work")
    assert app.get_state(config()).next == ()
    assert statuses(saver) == {"t": "pending"}


def test_listing_filters(saver: Saver) -> None:
    """By metadata of the newest checkpoint, by tag, by time and by number."""
    app = loop(saver)
    for name in ("a", "b", "c"):
        app.invoke({"until": 1, "n": 0}, config(name) | {"metadata": {"who": name}})
    saver.tag("b", "keep", "red")
    saver.tag("c", "red")
    saver.untag("c", "nothing", "red")
    assert [i.thread for i in saver.threads()] == ["c", "b", "a"]
    assert [i.thread for i in saver.threads(limit=2)] == ["c", "b"]
    assert [i.thread for i in saver.threads(metadata={"who": "a"})] == ["a"]
    assert [i.thread for i in saver.threads(tag="red")] == ["b"]
    assert saver.threads(tag="red")[0].tags == ("keep", "red")
    assert saver.threads(since=datetime.now(UTC) + timedelta(hours=1)) == []
    assert len(saver.threads(since="1h")) == 3
    info = saver.threads(metadata={"who": "a"})[0]
    assert (info.step, info.checkpoints, info.status) == (3, 3, "done")
    assert info.bytes == sum(u.bytes for u in saver.usage("a"))
    assert info.created_at <= info.updated_at
    with pytest.raises(UnknownThreadError, match="no thread 'zzz'"):
        saver.tag("zzz", "x")


def test_listing_loads_no_state(url: str) -> None:
    """Thread listings and usage never touch a stored value."""

    class Explodes:
        def dumps_typed(self, value: Any) -> Any:
            raise AssertionError

        loads_typed = dumps_typed

    with reopen(url) as saver:
        loop(saver).invoke({"until": 3, "n": 0}, config())
        review(saver).invoke({}, config("w"))
    with reopen(url, serde=Explodes()) as saver:
        assert {i.status for i in saver.threads()} == {"done", "waiting"}
        assert saver.usage()


def test_a_run_seen_while_it_works(saver: Saver) -> None:
    """A thread in the middle of a run is pending; one that asks is waiting."""
    seen = []

    def look(state: Any) -> Any:
        seen.append(saver.threads()[0].status)
        return {"n": 1}

    builder = StateGraph(State)
    builder.add_node("look", look)
    builder.add_node("ask", lambda s: {"answers": [interrupt("?")]})
    builder.add_edge("__start__", "look")
    builder.add_edge("look", "ask")
    builder.compile(checkpointer=saver).invoke({}, config(), durability="sync")
    assert seen == ["pending"]
    assert saver.threads()[0].status == "waiting"


def test_an_error_that_commits_with_its_checkpoint_is_told(saver: Saver) -> None:
    """A failure stored in the same commit as the checkpoint it happened on is seen by the listing."""
    from checkpointers.grouping import Waiting
    from checkpointers.operations.common import place_of
    from checkpointers.operations.write import NewWrites

    for first in (None, "c0"):
        place = config(f"after {first}", checkpoint_ns="")
        if first:
            checkpoint = {
                "v": 1,
                "id": first,
                "ts": "",
                "channel_values": {},
                "channel_versions": {},
                "versions_seen": {},
            }
            place = saver.put(place, checkpoint, {"source": "loop"}, {})
        on = place_of(config(f"after {first}", checkpoint_ns="", checkpoint_id="c1"))
        saver._groups.join(Waiting(NewWrites(on, [("__error__", "no")], "task", "")))
        checkpoint = {"v": 1, "id": "c1", "ts": "", "channel_values": {}, "channel_versions": {}, "versions_seen": {}}
        saver.put(place, checkpoint, {"source": "loop"}, {})
    assert statuses(saver) == {"after None": "failed", "after c0": "failed"}


def test_open_questions_and_errors_are_counted(saver: Saver) -> None:
    """How many questions wait where a thread stands, answered ones left out, and how many tasks failed there."""
    app = review(saver)
    app.invoke({"log": []}, config("asks"))
    assert [(one.questions, one.errors) for one in saver.threads()] == [(2, 0)]
    first, _ = app.get_state(config("asks")).interrupts
    app.invoke(Command(resume={first.id: "yes"}), config("asks"))
    assert [(one.questions, one.errors) for one in saver.threads(status="waiting")] == [(1, 0)]

    def fail(state: State) -> dict[str, Any]:
        raise RuntimeError(str(state.get("n")))

    builder: Any = StateGraph(State)
    for name in ("one", "two"):
        builder.add_node(name, fail)
        builder.add_edge("__start__", name)
    with pytest.raises(RuntimeError):
        builder.compile(checkpointer=saver).invoke({"n": 1}, config("fails"))
    counts = {one.thread: (one.questions, one.errors) for one in saver.threads()}
    assert counts["asks"] == (1, 0)
    assert counts["fails"][0] == 0
    assert counts["fails"][1] >= 1
    assert saver.threads(status="done") == []
