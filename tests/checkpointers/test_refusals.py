"""What is asked wrongly is refused in words, at once, and changes nothing; what cannot work is not tried again and again."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver

from checkpointers import (
    CheckpointerError,
    Keep,
    KeyringError,
    PostgresSaver,
    Saver,
    SqliteSaver,
    StorageError,
    UnknownSchemeError,
    UnreachableError,
    UnstorableValueError,
    open_saver,
)
from checkpointers.statements import Statement, Statements
from tests.checkpointers.graphs import config, loop
from tests.checkpointers.test_storage import put, values
from tests.conftest import reopen

LABELLED_WRONG: list[Any] = [
    lambda saver: saver.tag("t", 3),
    lambda saver: saver.tag("t", True),
    lambda saver: saver.tag("t", None),
    lambda saver: saver.tag("t", "\ud800"),
    lambda saver: saver.pin("t", "3"),
    lambda saver: saver.pin("t", True),
    lambda saver: saver.pin("t", -1),
    lambda saver: saver.pin("t", 2**70),
    lambda saver: saver.threads(status="finished"),
    *[
        lambda saver, since=since: saver.threads(since=since)
        for since in (float("nan"), float("inf"), 1e18, -1e30, timedelta.max, "99999999999999d", "soon")
    ],
    lambda saver: saver.prune(None),
    lambda saver: saver.delete_for_runs(3),
    lambda saver: saver.put(config(checkpoint_ns=""), None, {}, {}),
    lambda saver: saver.put(config(checkpoint_ns=""), {**empty_checkpoint(), "channel_values": ["x"]}, {}, {}),
    lambda saver: saver.put(config(checkpoint_ns=""), empty_checkpoint(), None, {}),
    lambda saver: saver.put_writes(config(checkpoint_ns=""), [("x", 2)], "task"),
    *[
        lambda saver, wrong=wrong: saver.get_tuple(wrong)
        for wrong in ({}, {"configurable": {}}, {"configurable": None}, None, config(checkpoint_id=3))
    ],
    lambda saver: saver.get_tuple(config(checkpoint_ns=3)),
    lambda saver: saver.get_tuple(config(checkpoint_ns="", checkpoint_id=b"c1")),
    lambda saver: saver.put(config(), empty_checkpoint() | {"id": 3}, {}, {}),
    lambda saver: saver.put(config(), empty_checkpoint() | {"channel_values": {3: 3}}, {}, {}),
    lambda saver: saver.put(config(checkpoint_id=3), empty_checkpoint(), {}, {}),
    lambda saver: saver.put_writes(saver.get_tuple(config()).config, [(3, 2)], "task"),
    lambda saver: saver.put_writes(saver.get_tuple(config()).config, [("x", 2)], None),
    lambda saver: saver.put_writes(saver.get_tuple(config()).config, [("x", 2)], "task", None),
    *[lambda saver, limit=limit: list(saver.list(config(), limit=limit)) for limit in (1.5, "1", True, -1, 2**70)],
    lambda saver: list(saver.list(config(), before=config(checkpoint_id=3))),
    lambda saver: list(saver.list(config(), filter=["step"])),
]


@pytest.mark.parametrize("call", LABELLED_WRONG)
def test_what_a_method_cannot_take_changes_nothing(saver: Saver, call: Callable[[Saver], object]) -> None:
    """No tag becomes a pin, none makes a thread unreadable, and no write goes where nobody reads it."""
    put(saver, {"x": 1})
    saver.tag("t", "a")
    saver.pin("t", 1)
    with pytest.raises(CheckpointerError):
        call(saver)
    (info,) = saver.threads()
    assert (info.tags, info.pins) == (("a",), (1,))
    assert values(saver) == {"x": 1}
    assert saver.get_tuple(config()).pending_writes == []  # type: ignore[union-attr]
    assert saver.fsck() == []


def test_a_thread_by_its_number(saver: Saver) -> None:
    """An int thread id is its text, wherever one is taken."""
    put(saver, {"x": [f"some text {n}" for n in range(9)]}, after=config(5, checkpoint_ns=""))  # type: ignore[arg-type]
    assert saver.fsck(5) == []  # type: ignore[arg-type]
    assert {one.thread for one in saver.usage(5)} == {"5"}  # type: ignore[arg-type]


OPENED_WRONG: dict[str, tuple[Callable[[Path], object], type[Exception], str]] = {
    "on_conflict": (
        lambda d: SqliteSaver.open(d / "x.db", on_conflict="raise"),
        CheckpointerError,
        "'error' or 'fork'",
    ),
    "keys, a text": (lambda d: SqliteSaver.open(d / "x.db", keys="secret"), KeyringError, r"Keyring\.generate\("),
    "keys, bytes": (lambda d: SqliteSaver.open(d / "x.db", keys=b"k" * 32), KeyringError, "Keyring"),
    "synchronous": (lambda d: SqliteSaver.open(d / "x.db", synchronous="off"), StorageError, "'full'"),
    "no path": (lambda _: SqliteSaver.open(None), StorageError, "None is no path"),
    "a number": (lambda _: SqliteSaver.open(5), StorageError, "5 is no path"),
    "NUL": (lambda d: SqliteSaver.open(f"{d}/a\0b"), StorageError, "is no path"),
    "a long name": (lambda d: SqliteSaver.open(d / ("x" * 254)), StorageError, "x"),
    "no address": (lambda _: open_saver(None), UnknownSchemeError, "None is no address"),
    "a path": (lambda d: open_saver(d / "x.db"), UnknownSchemeError, "is no address"),
    "no slashes": (lambda _: open_saver("sqlite:u.db"), UnknownSchemeError, "write sqlite:///u.db"),
    "options": (lambda d: open_saver(f"sqlite:///{d}/x.db?mode=ro"), UnknownSchemeError, "read_only=True"),
}  # type: ignore[dict-item]


@pytest.mark.parametrize("case", OPENED_WRONG)
def test_what_cannot_be_opened_makes_no_file(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what would be right."""
    monkeypatch.chdir(tmp_path)
    call, kind, words = OPENED_WRONG[case]
    with pytest.raises(kind, match=words):
        call(tmp_path)
    assert [made.name for made in tmp_path.iterdir() if not made.name.startswith("x")] == []


def test_a_path_in_bytes_is_a_path(tmp_path: Path) -> None:
    """As everywhere in Python."""
    SqliteSaver.open(os.fsencode(tmp_path / "x.db")).close()  # type: ignore[arg-type]
    assert (tmp_path / "x.db").exists()


@pytest.mark.parametrize("deed", ["deleted", "replaced"])
def test_a_file_that_goes_while_it_is_open(tmp_path: Path, deed: str) -> None:
    """Nothing is acknowledged that nobody can read, and nothing is read that does not stand there any more."""
    path = tmp_path / "a.db"
    with SqliteSaver.open(path) as saver:
        place = put(saver, {"x": 1})
        if deed == "replaced":
            with SqliteSaver.open(tmp_path / "b.db") as other:
                put(other, {"x": "of another file"})
        for name in ("a.db", "a.db-wal", "a.db-shm"):
            (tmp_path / name).unlink()
        if deed == "replaced":
            (tmp_path / "b.db").rename(path)
        with pytest.raises(StorageError, match="deleted or replaced"):
            put(saver, {"x": 2}, after=place, version=2)
        with pytest.raises(StorageError, match="deleted or replaced"):
            saver.get_tuple(config())
    with SqliteSaver.open(path) as again:
        assert (again.get_tuple(config()) is None) == (deed == "deleted")


def test_who_only_reads_follows_the_name_of_a_file(tmp_path: Path) -> None:
    """A copy is put in the place of a file at rest: what stands there now is read."""
    for name in ("a", "b"):
        with SqliteSaver.open(tmp_path / f"{name}.db") as saver:
            put(saver, {"x": name})
    with SqliteSaver.open(tmp_path / "a.db", read_only=True) as reader:
        assert values(reader) == {"x": "a"}
        (tmp_path / "b.db").rename(tmp_path / "a.db")
        assert values(reader) == {"x": "b"}


def test_a_closed_saver_says_so_at_once(url: str) -> None:
    """Sync and async, and it is not waited for."""
    saver = reopen(url)
    saver.close()
    begun = time.monotonic()
    with pytest.raises(StorageError, match="is closed; open it again"):
        saver.get_tuple(config())
    with pytest.raises(StorageError, match="is closed; open it again"):
        asyncio.run(saver.aget_tuple(config()))
    assert time.monotonic() - begun < 10


UNREACHABLE = {
    "database": (lambda url: url.rsplit("/", 1)[0] + "/nowhere", 'database "nowhere" does not exist'),
    "role": (lambda url: url.replace("postgres@", "nobody@"), 'role "nobody" does not exist'),
}


@pytest.mark.parametrize("wrong", UNREACHABLE)
def test_who_may_not_connect_is_told_why(postgres_url: str, wrong: str) -> None:
    """In the words of the server, and long before the time is over that a server has to come back."""
    changed, words = UNREACHABLE[wrong]
    begun = time.monotonic()
    with pytest.raises(UnreachableError, match=words) as caught:
        PostgresSaver.open(changed(postgres_url), timeout=60)
    assert "check the database, the role" in str(caught.value)
    assert time.monotonic() - begun < 30


LOST = [
    "consuming input failed: SSL error: unexpected eof while reading",
    "SSL connection has been closed unexpectedly",
    'server closed the connection unexpectedly; prepared statement "x" does not exist',
]


@pytest.mark.parametrize("words", LOST)
def test_a_lost_connection_is_tried_again_whatever_is_said_of_it(postgres_url: str, words: str) -> None:
    """Only who never had one is told that he will not get one."""
    with PostgresSaver.open(postgres_url) as saver:
        put(saver, {"x": 1})
        left = [psycopg.OperationalError(words)]

        def look() -> Statements[Any]:
            if left:
                raise left.pop()
            return (yield Statement("SELECT count(*) FROM cp_threads"))

        assert saver.database.read(look)[0][0] == 1


def test_a_statement_that_takes_too_long_is_not_sent_again(postgres_url: str) -> None:
    """The server would say the same each time."""
    with PostgresSaver.open(f"{postgres_url}?options=-c%20statement_timeout%3D50ms", timeout=60) as saver:
        begun = time.monotonic()
        with pytest.raises(StorageError, match="statement_timeout be longer"):
            put(saver, {"x": [os.urandom(20_000) for _ in range(1_500)]})
        assert time.monotonic() - begun < 30
        assert saver.get_tuple(config()) is None


def test_a_connection_that_forgot_its_statements_is_given_up(postgres_url: str) -> None:
    """A pooler between may hand a session to others, who discard what was prepared in it: the driver hears nothing of it."""
    with PostgresSaver.open(postgres_url, pool_size=1) as saver:
        database: Any = saver.database

        def discard() -> None:
            database._again(lambda connection: connection.pgconn.exec_(b"DEALLOCATE ALL"))

        place = put(saver, {"x": 1})
        for version in range(2, 6):
            discard()
            place = put(saver, {"x": version}, after=place, version=version)
            discard()
            assert values(saver) == {"x": version}


def test_writers_of_several_threads_where_transactions_are_serializable(postgres_url: str) -> None:
    """The server gives up one of two that it cannot put in an order: that one is done again."""
    name = postgres_url.rpartition("/")[2]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    with PostgresSaver.open(postgres_url) as saver:

        async def runs() -> None:
            app = loop(saver)
            await asyncio.gather(*(app.ainvoke({"until": 12, "n": 0}, config(f"t{n}")) for n in range(6)))

        asyncio.run(runs())
        assert {info.checkpoints for info in saver.threads()} == {14}


PASSWORDS = ["postgresql+psycopg://app:s3cret@db/x", "postgresql://app:s3cret%@db/x", "postgresql://app:s3 cret@db/x"]


@pytest.mark.parametrize("address", PASSWORDS)
def test_no_password_is_told(address: str) -> None:
    """Neither in the words nor in what they stand on."""
    with pytest.raises(StorageError) as caught:
        PostgresSaver.open(address, timeout=1)
    assert "s3" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


class Level(IntEnum):
    LOW = 1


@dataclass
class Box:
    it: object


KEPT = [
    Box({1: np.arange(3)}),
    Box({"1": np.arange(3)}),
    {1: np.arange(3)},
    Box({1: Decimal("sNaN")}),
    Box([{2: {3: 4}}]),
]


@pytest.mark.parametrize("value", KEPT)
def test_keys_that_are_no_text_in_a_listed_class(tmp_path: Path, value: Any) -> None:
    """Whatever stands under them is its own affair."""
    with SqliteSaver.open(tmp_path / "x.db", types=[Box, Level]) as saver:
        put(saver, {"x": value})
        assert repr(values(saver)["x"]) == repr(value)


@pytest.mark.parametrize("value", [Box({Level.LOW: "x"}), Box([({Level.LOW: "x"},)]), {Level.LOW: "x"}])
def test_a_key_that_would_become_a_number_is_refused(tmp_path: Path, value: Any) -> None:
    """That it equals the number is not enough."""
    with SqliteSaver.open(tmp_path / "x.db", types=[Box, Level]) as saver:
        with pytest.raises(UnstorableValueError, match="a dict key of type Level"):
            put(saver, {"x": value})
        assert saver.get_tuple(config()) is None


@pytest.mark.parametrize("within", [float("nan"), float("inf"), "99999999999999d", "", []])
def test_what_is_no_duration(within: Any) -> None:
    """A policy is refused before anything is planned."""
    with pytest.raises(ValueError, match="is no duration"):
        Keep(within=within)


NUMBERS = [0, -0.0, 1, 1.5, True, 2**63, 2.0**63, 2.0**64, 1e300, float("inf"), -1, "a"]
ASKED = [*NUMBERS, 0.0, False, 2**64, 10**400, float("nan"), "\ud800", -float("inf"), 2]


@pytest.mark.parametrize("wanted", ASKED, ids=repr)
def test_a_filter_compares_as_python_does(saver: Saver, wanted: Any) -> None:
    """Whatever the database is asked beforehand: the same as a saver in memory, and no error."""
    memory, place = InMemorySaver(), config(checkpoint_ns="")
    for number, value in enumerate(NUMBERS):
        checkpoint: Any = {
            "v": 4, "id": f"{number:04}", "ts": "2026-01-02T03:04:05+00:00", "channel_values": {},
            "channel_versions": {}, "versions_seen": {}, "updated_channels": None,
        }  # fmt: skip
        for one in (saver, memory):
            one.put(place, checkpoint, {"step": number, "k": value}, {})  # type: ignore[typeddict-unknown-key]
    found = [[one.checkpoint["id"] for one in of.list(place, filter={"k": wanted})] for of in (saver, memory)]
    assert found[0] == found[1]
