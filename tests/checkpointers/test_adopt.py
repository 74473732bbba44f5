"""Databases of the official savers come over whole: copied, checked equal, resumable."""

from __future__ import annotations

import asyncio
import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from contextvars import Context
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import StateGraph
from langgraph.types import Command, Send, interrupt

from checkpointers import (
    CheckpointerError,
    ForkedWarning,
    History,
    IntegrityError,
    Keep,
    Saver,
    SqliteSaver,
    adopt,
    import_thread,
    open_saver,
)
from checkpointers.adopting import AdoptionError
from tests.checkpointers.graphs import DeltaState, State, config, loop, nested, review
from tests.checkpointers.test_fsck import ask
from tests.checkpointers.test_graphs import states
from tests.checkpointers.test_storage import values
from tests.checkpointers.wild import difference


@pytest.fixture(params=["sqlite", "postgres", "memory"])
def official(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Give each official saver in turn, with threads of every kind in it."""
    with _official(request, tmp_path) as source:
        loop(source).invoke({"until": 30, "n": 0}, config("plain") | {"metadata": {"who": "ada", "run_id": "r"}})
        loop(source, DeltaState).invoke({"until": 30, "n": 0}, config("delta"))
        review(source).invoke({}, config("review"))
        nested(source).invoke({}, config("nested"))
        app = loop(source)
        app.invoke({"until": 4, "n": 0}, config("forked"))
        old = list(app.get_state_history(config("forked")))[3]
        app.invoke(None, app.update_state(old.config, {"log": ["edited"]}, as_node="work"))
        yield source


@contextmanager
def _official(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "memory":
        yield InMemorySaver()
    elif request.param == "sqlite":
        with open_saver(f"langgraph+sqlite:///{tmp_path}/official.db") as saver:
            yield saver
    else:
        with open_saver(f"langgraph+{request.getfixturevalue('postgres_url')}") as saver:
            yield saver


APPS = {
    "plain": (loop, State),
    "delta": (loop, DeltaState),
    "review": (review, None),
    "nested": (nested, None),
    "forked": (loop, State),
}


def app_of(name: str, saver: Any) -> Any:
    build, schema = APPS[name]
    return build(saver, schema) if schema else build(saver)


@pytest.mark.slow
def test_everything_comes_over(official: Any, saver: Saver) -> None:
    """Every thread has the same history, is resumed, and goes on; a second adoption copies nothing."""
    done = adopt(official, saver)
    assert (done.threads, done.already) == (5, 0)
    assert done.checkpoints == len(list(official.list(None)))
    for name in APPS:
        assert difference(states(app_of(name, saver), name), states(app_of(name, official), name)) is None, name
    again = adopt(official, saver)
    assert (again.checkpoints, again.already) == (0, done.checkpoints)
    questions = review(saver).get_state(config("review")).interrupts
    answers = review(saver).invoke(Command(resume={q.id: "yes" for q in questions}), config("review"))["answers"]
    assert answers == ["yes", "yes"]
    assert nested(saver).invoke(Command(resume="fine"), config("nested"))["answers"] == ["fine"]
    for name in ("plain", "delta"):
        app_of(name, saver).invoke({"until": 33}, config(name))
        log = app_of(name, saver).get_state(config(name)).values["log"]
        assert [entry["id"] for entry in log] == list(range(33))
    assert {i.thread: i.status for i in saver.threads()} == dict.fromkeys(APPS, "done")


def test_some_threads_only(official: Any, saver: Saver) -> None:
    """Only the threads that are named come over."""
    assert adopt(official, saver, threads=["delta", "missing"]).threads == 1
    assert [i.thread for i in saver.threads()] == ["delta"]


@pytest.mark.slow
def test_an_adoption_that_stopped_goes_on(official: Any, saver: Saver) -> None:
    """Stopped half-way, it is run again and completes what is missing."""

    class StopsError(Exception):
        pass

    real, count = saver.put, 0

    def put(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count == 17:
            raise StopsError
        return real(*arguments)

    saver.put = put
    with pytest.raises(StopsError):
        adopt(official, saver)
    saver.put = real
    done = adopt(official, saver)
    assert done.already == 16
    assert difference(states(app_of("delta", saver), "delta"), states(app_of("delta", official), "delta")) is None


def _rows(path: Path) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT * FROM checkpoints").fetchall()


def test_adopted_by_address(tmp_path: Path, saver: Saver) -> None:
    """The source may be an address; nothing of it changes."""
    address = f"langgraph+sqlite:///{tmp_path}/o.db"
    with open_saver(address) as source:
        loop(source).invoke({"until": 5, "n": 0}, config())
    before = _rows(tmp_path / "o.db")
    assert adopt(address, saver).checkpoints == 7
    assert _rows(tmp_path / "o.db") == before


def test_a_difference_is_an_error_with_its_place(tmp_path: Path, saver: Saver) -> None:
    """A checkpoint that does not come out as it went in stops the adoption by name."""
    address = f"langgraph+sqlite:///{tmp_path}/o.db"
    with open_saver(address) as source:
        loop(source).invoke({"until": 3, "n": 0}, config())
    real = saver.get_tuple

    def damaged(place: Any) -> Any:
        found = real(place)
        if found is not None:
            found.checkpoint["channel_values"]["n"] = "damaged"
        return found

    saver.get_tuple = damaged
    with pytest.raises(CheckpointerError, match=r"thread 't' did not come out as it went in: channel 'n' differs"):
        adopt(address, saver)


@pytest.mark.parametrize("how", ["retain", "prune", "delete_for_runs"])
def test_what_removed_steps_told_comes_over(saver: Saver, how: str) -> None:
    """A thread of DeltaChannels of which steps were removed is the same thread elsewhere."""
    with SqliteSaver.open(":memory:") as source:
        app = loop(source, DeltaState)
        for run in ("one", "two", "three"):
            app.invoke({"until": 9, "n": 0}, config() | {"metadata": {"run_id": run}})
        if how == "retain":
            source.retain(Keep(last=3, pinned=[7]))
        elif how == "prune":
            source.prune(["t"])
        else:
            source.delete_for_runs(["two"])
        adopt(source, saver)
        assert difference(states(loop(saver, DeltaState)), states(app)) is None
        assert saver.fsck() == []
        for one in (source, saver):
            loop(one, DeltaState).invoke({"until": 12}, config())
            one.prune(["t"])
        assert difference(loop(saver, DeltaState).get_state(config()).values, app.get_state(config()).values) is None


def test_what_a_step_without_its_parent_was_told_comes_over(saver: Saver) -> None:
    """Of any saver: what its history tells of steps that it does not list is asked for, too."""

    class Pruned(InMemorySaver):
        def list(self, *arguments: Any, **named: Any) -> Iterator[Any]:
            return islice(super().list(*arguments, **named), 2)

    source = Pruned()
    loop(source, DeltaState).invoke({"until": 9, "n": 0}, config())
    adopt(source, saver)
    assert loop(saver, DeltaState).get_state(config()).values["other"] == list(range(9))
    assert len(list(saver.list(config()))) == 2


def test_what_was_removed_since_is_not_adopted_again(saver: Saver) -> None:
    """A thread that went on stays where it stands, and what was removed of it stays removed."""
    source = InMemorySaver()
    loop(source).invoke({"until": 3, "n": 0}, config())
    adopt(source, saver)
    saver.prune(["t"])
    assert adopt(source, saver).checkpoints == 0
    app = loop(saver)
    app.invoke({"until": 6}, config())
    saver.retain(Keep(last=2))
    before = states(app)
    assert adopt(source, saver).checkpoints == 0
    assert difference(states(app), before) is None
    loop(source).invoke({"until": 4}, config())
    with pytest.raises(CheckpointerError, match="went on where it was adopted"):
        adopt(source, saver)
    assert difference(states(app), before) is None


def test_what_went_on_in_its_source_is_adopted(saver: Saver) -> None:
    """What is newer than all that is there comes after it."""
    source = InMemorySaver()
    loop(source).invoke({"until": 3, "n": 0}, config())
    adopt(source, saver)
    loop(source).invoke({"until": 5}, config())
    saver.prune(["t"])
    adopt(source, saver)
    assert loop(saver).get_state(config()).values["n"] == 5


class Foreign(BaseCheckpointSaver[Any]):
    """A saver of somebody else's, of which nothing is known but the contract."""

    def __init__(self) -> None:
        super().__init__()
        self._inside = InMemorySaver()
        for name in ("get_tuple", "list", "put", "put_writes", "get_next_version", "get_delta_channel_history"):
            setattr(self, name, getattr(self._inside, name))


@pytest.fixture(params=["sqlite", "postgres", "memory", "foreign", "ours"])
def any_source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Give a saver to adopt from, of every kind."""
    if request.param == "foreign":
        yield Foreign()
    elif request.param == "ours":
        with SqliteSaver.open(tmp_path / "source.db") as saver:
            yield saver
    else:
        with _official(request, tmp_path) as saver:
            yield saver


def fanned(saver: Any, fails: list[int]) -> Any:
    """Six tasks at once, of which some fail; all of them tell a DeltaChannel something."""

    def work(state: Any) -> dict[str, Any]:
        if state["n"] in fails:
            raise RuntimeError(state["n"])
        return {"other": [state["n"]], "log": [state["n"]]}

    builder = StateGraph(DeltaState)
    builder.add_node("work", work)
    builder.add_conditional_edges("__start__", lambda _: [Send("work", {"n": n}) for n in range(6)], ["work"])
    return builder.compile(checkpointer=saver)


def test_tasks_at_once_come_over_from_any_saver(any_source: Any, saver: Saver) -> None:
    """Those that had ended and those that had not; what these tell when they run again stands where it would have."""
    fails = [1, 3]
    for name in ("failed", "done"):
        with suppress(RuntimeError):
            fanned(any_source, fails if name == "failed" else []).invoke({"n": 0, "log": []}, config(name))
    assert adopt(any_source, saver).threads == 2
    assert saver.fsck() == []
    fails.clear()
    for name in ("failed", "done"):
        ended = [fanned(one, []).invoke(None, config(name)) for one in (any_source, saver)]
        assert ended[0] == ended[1]
        after = [fanned(one, []).get_state(config(name)).values for one in (any_source, saver)]
        assert [sorted(state["other"]) for state in after] == [[*range(6)]] * 2
        if not isinstance(any_source, Foreign):  # whose order is not known
            assert after[0] == after[1]


def test_a_question_that_was_settled_by_hand_comes_over(any_source: Any, saver: Saver) -> None:
    """One task then has writes under two paths: the question's, and those of the update."""
    app = review_once(any_source)
    app.invoke({"log": []}, config())
    app.update_state(config(), {"log": ["by hand"]}, as_node="ask")
    app.invoke(None, config())
    adopt(any_source, saver)
    assert review_once(saver).get_state(config()).values["log"] == ["by hand", "after"]
    assert difference(states(review_once(saver)), states(review_once(any_source))) is None


def review_once(saver: Any) -> Any:
    builder = StateGraph(State)
    builder.add_node("ask", lambda s: {"log": [interrupt("may I?")]})
    builder.add_node("after", lambda s: {"log": ["after"]})
    builder.add_edge("__start__", "ask")
    builder.add_edge("ask", "after")
    return builder.compile(checkpointer=saver)


def half_failed(saver: Any) -> Any:
    """Write a DeltaChannel for the first time in a step of which a part fails."""

    def bad(state: Any) -> None:
        if state["n"] < 9:
            raise RuntimeError("a sibling fails")

    builder = StateGraph(DeltaState)
    builder.add_node("one", lambda s: {"n": s["n"]})
    builder.add_node("good", lambda s: {"log": ["good"]})
    builder.add_node("bad", bad)
    builder.add_edge("__start__", "one")
    builder.add_edge("one", "good")
    builder.add_edge("one", "bad")
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize("sync", [True, False])
def test_the_first_version_of_a_channel_is_of_the_form_of_its_thread(any_source: Any, saver: Saver, sync: bool) -> None:
    """LangGraph asks for one without saying after which, and compares it with those that came over."""
    with suppress(RuntimeError):
        half_failed(any_source).invoke({"n": 0}, config())
    adopt(any_source, saver)
    app, more = half_failed(saver), {"n": 9}
    done = app.invoke(more, config()) if sync else asyncio.run(app.ainvoke(more, config()))
    assert done == half_failed(any_source).invoke(more, config())
    assert app.invoke({"n": 10}, config("new"))["log"] == ["good"]
    versions = saver.get_tuple(config("new")).checkpoint["channel_versions"].values()  # type: ignore[union-attr]
    assert {type(version) for version in versions} == {int}


def test_a_task_with_two_paths_keeps_all_that_it_wrote(any_source: Any, saver: Saver) -> None:
    """Its writes are numbered together, whatever paths they have."""
    place = any_source.put(
        config(checkpoint_ns=""), empty_checkpoint(), {"source": "loop", "step": 1, "parents": {}}, {}
    )
    any_source.put_writes(place, [("a", 1)], "task", "")
    any_source.put_writes(place, [("a", 1), ("b", 2)], "task", "~p")
    adopt(any_source, saver)
    kept = sorted(one[1:] for one in saver.get_tuple(place).pending_writes)  # type: ignore[union-attr]
    assert kept == [("a", 1), ("b", 2)]


def test_what_a_thread_of_ours_has_beside_its_states_comes_along(saver: Saver) -> None:
    """Its ledger first, with what was claimed and not settled; bodies, tags, pins and the numbers of its steps."""
    with SqliteSaver.open(":memory:") as source:
        loop(source).invoke({"until": 6, "n": 0}, config())
        source.retain(Keep(last=3, pinned=[2]))
        source.tag("t", "kept")
        source.pin("t", 2)
        paid, _ = source.ledger.claim("t", "pay", {"amount": 7})
        paid = source.ledger.change(
            paid, status="done", record={"amount": 7, "result": "paid"}, bodies=[b"receipt" * 99]
        )
        doubt, _ = source.ledger.claim("t", "send", {"to": "ada"})
        source.ledger.claim("only a ledger", "send", {"to": "eva"})
        assert adopt(source, saver).effects == 3
        assert saver.ledger.entries("t") == source.ledger.entries("t") == [paid, doubt]
        assert saver.ledger.entries("only a ledger") == source.ledger.entries("only a ledger")
        (body,) = saver.ledger.bodies("t")
        assert saver.ledger.body("t", body.hash) == b"receipt" * 99
        (info,) = saver.threads()
        assert (info.tags, info.pins) == (("kept",), (2,))
        assert [(step.number, step.id) for step in saver.steps("t")] == [
            (step.number, step.id) for step in source.steps("t")
        ]
        source.ledger.change(doubt, status="done", record={"to": "ada", "result": "sent"})
        assert adopt(source, saver).effects == 1
        assert [(entry.key, entry.status) for entry in saver.ledger.entries("t")] == [("pay", "done"), ("send", "done")]
        assert (adopt(source, saver).effects, saver.fsck()) == (0, [])
        mine = saver.ledger.get("only a ledger", "send")
        assert mine is not None
        saver.ledger.change(mine, status="abandoned", record={})
        with pytest.raises(AdoptionError, match="'send' of thread 'only a ledger'"):
            adopt(source, saver)


def test_a_thread_of_ours_stands_where_it_stood(saver: Saver) -> None:
    """By its steps, not by ids: a slow clock made the last one, and a branch beside the head is the newest."""
    ids = [f"1f0ffff0-0000-6000-8000-{number:012d}" for number in (5, 3, 4, 6)]
    with SqliteSaver.open(":memory:", on_conflict="fork") as source, warnings.catch_warnings():
        warnings.simplefilter("ignore", ForkedWarning)
        mine, others = Context(), Context()
        mine.run(put_as, source, ids[0], None, "one")
        for context in (mine, others):
            context.run(source.get_tuple, config())
        mine.run(put_as, source, ids[1], ids[0], "two")
        adopt(source, saver)
        assert values(saver) == values(source) == {"x": "two"}
        others.run(put_as, source, ids[2], ids[0], "beside")
        others.run(put_as, source, ids[3], ids[2], "beside, newer")
        assert adopt(source, saver).checkpoints == 2
        assert values(saver) == values(source) == {"x": "two"}
        assert [step.beside for step in saver.steps("t")] == [False, False, True, True]
        import_thread(saver, History(source, "t").export("json"), thread="imported")
        assert [step.beside for step in saver.steps("imported")] == [False, False, True, True]
        assert values(saver, config("imported")) == {"x": "two"}
        assert [change.after for change in History(saver, "imported").blame("x")] == ["two", "one"]
        assert saver.fsck() == []


def put_as(saver: Any, id_: str, parent: str | None, text: str) -> None:
    place = config(checkpoint_ns="", **({"checkpoint_id": parent} if parent else {}))
    versions = {"x": sum(map(ord, text))}
    checkpoint = empty_checkpoint() | {"id": id_, "channel_values": {"x": text}, "channel_versions": versions}
    saver.put(place, checkpoint, {"source": "loop", "step": len(text), "parents": {}}, versions)


def test_children_with_lower_ids_come_after_their_parents(saver: Saver) -> None:
    """Other savers order by ids alone; what a DeltaChannel is told comes from parents."""
    parent, child = "1f0ffff0-0000-6000-8000-000000000005", "1f0ffff0-0000-6000-8000-000000000003"
    source = InMemorySaver()
    put_as(source, parent, None, "parent")
    put_as(source, child, parent, "child")
    adopt(source, saver)
    assert [step.id for step in saver.steps("t")] == [parent, child]
    assert saver.fsck() == []


def test_a_child_that_is_stored_before_its_parent_is_sound(saver: Saver) -> None:
    """Nobody says in which order they must come."""
    put_as(saver, "c2", "c1", "child")
    put_as(saver, "c1", None, "parent")
    assert saver.fsck() == []
    assert saver.recover("t", into="again") == 2


def test_a_damaged_thread_of_ours_is_not_left_out_in_silence(saver: Saver) -> None:
    """Its row cannot be read, so no listing names it; those that are asked for by name come over."""
    with SqliteSaver.open(":memory:") as source:
        for thread in ("hurt", "sound"):
            loop(source).invoke({"until": 2, "n": 0}, config(thread))
        ask(source, "UPDATE cp_threads SET body = ? WHERE thread = ?", b"damaged", source._tools().key("hurt"))
        with pytest.raises(IntegrityError, match="#"):
            adopt(source, saver)
        with pytest.raises(IntegrityError, match="hurt"):
            adopt(source, saver, threads=["hurt"])
        assert adopt(source, saver, threads=["sound", "nobody"]).threads == 1
