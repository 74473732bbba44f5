"""Names of channels and nodes: each has one key in a database, whoever comes first, and a new one costs no commit of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from checkpointers import IntegrityError, Saver, StorageError
from checkpointers.records import Names
from checkpointers.statements import Append, Many, Request, Together
from checkpointers.testing import FaultyDatabase
from tests.checkpointers.graphs import config
from tests.checkpointers.test_fsck import ask, reopened, replace_row, rows_of
from tests.checkpointers.test_storage import listening, put, values
from tests.conftest import reopen


def named(prefix: str, count: int = 3) -> dict[str, Any]:
    return {f"{prefix} {number}": f"{prefix} {number} " * 9 for number in range(count)}


def stored_names(saver: Saver) -> dict[int, str]:
    return {row["name_key"]: bytes(row["name"]).decode() for row in rows_of(saver, "cp_names")}


def test_two_savers_that_know_of_different_names(saver: Saver, url: str) -> None:
    """The keys that one would take next are taken by the other: both learn, and neither reads the other's name as its own."""
    with reopen(url) as other:
        first = put(saver, named("begun"))
        assert values(other)
        second = put(saver, named("mine", 5), after=first, version=2)
        third = put(other, named("theirs", 9), after=second, version=3)
        fourth = put(saver, named("mine again", 2), after=third, version=4)
        for reader in (saver, other, reopened(saver)):
            assert [values(reader, at) for at in (first, second, third, fourth)] == [
                named("begun"), named("mine", 5), named("theirs", 9), named("mine again", 2),
            ]  # fmt: skip
        assert sorted(stored_names(saver)) == list(range(1, len(stored_names(saver)) + 1))
        assert saver.fsck() == []


def before_the_next_append(saver: Saver, patch: pytest.MonkeyPatch, deed: Callable[[], object]) -> None:
    """Let something happen once, between the making of a write and its commit."""
    deeds = [deed]

    def fault(number: int, request: Request) -> None:
        if isinstance(request, Append) and deeds:
            deeds.pop()()

    patch.setattr(saver, "database", FaultyDatabase(saver.database, fault))


@pytest.mark.parametrize("who", ["another saver", "another thread"])
@pytest.mark.parametrize("names", ["x", "y", "xy"])
def test_names_that_are_stored_meanwhile(
    saver: Saver, url: str, monkeypatch: pytest.MonkeyPatch, who: str, names: str
) -> None:
    """The same name, or another with the key that this one was to get: the write is made anew, of what is stored now."""
    with reopen(url) as other:
        put(saver, named("begun"))
        assert values(other)
        writer = other if who == "another saver" else saver
        theirs = {name: value for one in names for name, value in named(one).items()}
        before_the_next_append(saver, monkeypatch, lambda: put(writer, theirs, after=config("u", checkpoint_ns="")))
        put(saver, named("x") | named("z"), after=config("v", checkpoint_ns=""))
        put(writer, named("more"), after=config("w", checkpoint_ns=""))
        for reader in (saver, other, reopened(saver)):
            assert values(reader, config("u")) == theirs
            assert values(reader, config("v")) == named("x") | named("z")
            assert values(reader, config("w")) == named("more")
        told = list(stored_names(saver).values())
        assert len(told) == len(set(told))
        assert saver.fsck() == []


def test_names_of_a_write_that_failed(saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that were meant for them are theirs when they are stored after all, and nobody reads them before."""
    put(saver, named("begun"))

    def fail() -> None:
        raise OSError("the power is gone")

    before_the_next_append(saver, monkeypatch, fail)
    with pytest.raises((StorageError, OSError)):
        put(saver, named("x"), after=config("u", checkpoint_ns=""))
    assert set(stored_names(saver).values()) == set(named("begun"))
    put(saver, named("y"), after=config("v", checkpoint_ns=""))
    put(saver, named("y") | named("x"), after=config("u", checkpoint_ns=""))
    assert values(reopened(saver), config("u")) == named("y") | named("x")
    assert values(reopened(saver), config("v")) == named("y")
    assert saver.fsck() == []


def test_writes_that_name_things_first(saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a task wrote names channels too, and may come to a name later than another."""
    place = put(saver, named("begun"))
    with_names = [(name, value) for name, value in named("x").items()]
    other = reopened(saver)
    before_the_next_append(saver, monkeypatch, lambda: put(other, named("x"), after=config("u", checkpoint_ns="")))
    saver.put_writes(place, with_names, "task")
    found = reopened(saver).get_tuple(place)
    assert found is not None
    assert [write[1:] for write in found.pending_writes or ()] == with_names
    assert saver.fsck() == []


def test_very_many_names_at_once(saver: Saver) -> None:
    """A state of very many channels is one state."""
    put(saver, named("n", 1_200))
    assert values(reopened(saver)) == named("n", 1_200)
    assert len(set(stored_names(saver).values())) == 1_200


def test_threads_that_name_things_at_the_same_time(saver: Saver) -> None:
    """Of one process too, each name gets one key."""
    barrier = threading.Barrier(4)

    def work(number: int) -> None:
        barrier.wait()
        for turn in range(5):
            place = config(f"t{number}", checkpoint_ns="")
            put(saver, named(f"shared {turn}") | named(f"own {number} {turn}"), after=place, version=turn + 1)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = list(stored_names(saver).values())
    assert len(told) == len(set(told)) == 5 * 3 + 4 * 5 * 3
    for number in range(4):
        assert values(reopened(saver), config(f"t{number}")) == named("shared 4") | named(f"own {number} 4")
    assert saver.fsck() == []


@pytest.mark.parametrize("place", ["first", "last"])
def test_the_key_of_a_damaged_row_is_not_given_again(saver: Saver, place: str) -> None:
    """New names go around it, and the name itself is refused until its row is mended."""
    put(saver, named("x"))
    key = (min if place == "first" else max)(stored_names(saver))
    row = next(row for row in rows_of(saver, "cp_names") if row["name_key"] == key)
    replace_row(saver, "cp_names", row, row | {"name": b"another"})
    other = reopened(saver)
    put(other, named("y"), after=config("u", checkpoint_ns=""))
    assert values(reopened(saver), config("u")) == named("y")
    assert key not in {other._names.keys[name] for name in named("y")}
    with pytest.raises(IntegrityError, match=r"row of the name 'x \d' is not what was written"):
        put(other, named("x"), after=config("v", checkpoint_ns=""))


def test_a_name_that_is_not_sealed_is_not_believed(saver: Saver) -> None:
    """Else a row without a seal could give any name any key."""
    put(saver, named("x"))
    ask(saver, "UPDATE cp_names SET seal = NULL WHERE name_key = 1")
    assert "name" in saver.fsck()[0].what
    with pytest.raises(IntegrityError, match="name"):
        values(reopened(saver))


def test_new_names_cost_no_commit(saver: Saver) -> None:
    """They are stored with the checkpoint that needs them."""
    put(saver, named("begun"))
    for number, new in enumerate([named("x"), named("x"), named("x") | named("y", 9)]):
        asked: list[Request] = []
        with listening(saver, asked):
            put(saver, new, after=config(f"t{number}", checkpoint_ns=""))
        kinds = [type(request) for request in asked if isinstance(request, Append | Many)]
        assert kinds == [Append]


def test_a_stored_name_keeps_its_key() -> None:
    """Who heard too late that another thread stored it is told so, and takes no other key for it: some write with this one."""
    names = Names()
    names.learn([(1, "x")])
    assert names.reserve(["x", "y"]) == [(2, "y")]
    assert names.reserve(["x", "y", "z"]) == [(2, "y"), (3, "z")]
    names.learn([(2, "other")])
    assert names.reserve(["x", "y"]) == [(4, "y")]
    assert (names.keys["x"], names.missing("xyz"), names.texts) == (1, ["y", "z"], {1: "x", 2: "other"})


def test_opening_learns_the_names_and_what_is_asked_first(saver: Saver) -> None:
    """The first state that is read needs two requests, of statements that the database has met; not the names again."""
    put(saver, named("channel"))
    asked: list[Any] = []
    fresh = type(saver)._on(FaultyDatabase(saver.database, lambda _, request: asked.append(request)))
    met = {one.sql for request in asked for one in request.statements}
    asked.clear()
    assert values(fresh) == named("channel")
    assert [type(request) for request in asked] == [Together, Together]
    first = {one.sql for request in asked for one in request.statements}
    assert first <= met
    assert any("cp_names" in sql for sql in met - first)


@pytest.mark.parametrize(("table", "column"), [("cp_names", "seal"), ("cp_threads", "body"), ("cp_elements", "body")])
def test_what_cannot_be_read_keeps_nobody_from_opening(saver: Saver, url: str, table: str, column: str) -> None:
    """Whoever opens may want to mend it, or something else: what is wrong is said where it is asked for."""
    put(saver, named("channel"))
    ask(saver, f"ALTER TABLE {table} RENAME COLUMN {column} TO away")
    with reopen(url) as other, pytest.raises(StorageError):
        other.get_tuple(config())
    ask(saver, f"ALTER TABLE {table} RENAME COLUMN away TO {column}")
    with reopen(url) as other:
        assert values(other) == named("channel")
