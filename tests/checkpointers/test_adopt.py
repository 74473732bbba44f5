"""Databases of the official savers come over whole: copied, checked equal, resumable."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from checkpointers import CheckpointerError, Saver, adopt, open_saver
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
