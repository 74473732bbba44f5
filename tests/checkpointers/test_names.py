"""Names of channels and nodes: each has one key in a database, whoever comes first, and a new one costs one commit."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from checkpointers import IntegrityError, Saver
from checkpointers.statements import Append, Many, Request
from tests.checkpointers.graphs import config
from tests.checkpointers.test_fsck import ask, reopened, replace_row, rows_of
from tests.checkpointers.test_storage import put, values
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


def test_more_names_than_are_stored_at_a_time(saver: Saver) -> None:
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


def test_new_names_cost_one_commit(saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a checkpoint come in one; known ones in none."""
    put(saver, named("begun"))
    asked: list[Request] = []
    answer = saver.database._answer
    monkeypatch.setattr(saver.database, "_answer", lambda *given: asked.append(given[-1]) or answer(*given))
    for number, new in enumerate([named("x"), named("x"), named("x") | named("y", 9)]):
        asked.clear()
        put(saver, new, after=config(f"t{number}", checkpoint_ns=""))
        kinds = [type(request) for request in asked if isinstance(request, Append) or getattr(request, "writes", False)]
        assert kinds == ([Append] if number == 1 else [Many, Append])
