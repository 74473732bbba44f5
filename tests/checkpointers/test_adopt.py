"""Databases of the official savers come over whole: copied, checked equal, resumable."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from checkpointers import CheckpointerError, Keep, Saver, SqliteSaver, adopt, open_saver
from tests.checkpointers.graphs import DeltaState, State, config, loop, nested, review
from tests.checkpointers.test_graphs import states
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
