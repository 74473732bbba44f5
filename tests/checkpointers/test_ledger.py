"""The ledger: an effect is claimed once, by whoever may write the thread, and stays on record whatever is pruned."""

from __future__ import annotations

import asyncio
import contextvars
import multiprocessing as mp
import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.base import empty_checkpoint

from checkpointers import (
    CheckpointerError,
    Entry,
    EntryMovedError,
    IncompleteRecordError,
    IntegrityError,
    Keep,
    Keyring,
    KeyringError,
    LeaseLostError,
    PostgresSaver,
    ReadOnlyError,
    Saver,
    SchemaError,
    SqliteSaver,
    StorageError,
    ThreadBusyError,
    UnstorableValueError,
)
from checkpointers.database import migrations
from checkpointers.keys import thread_key
from checkpointers.operations import remove
from checkpointers.statements import Append
from checkpointers.testing import FaultyDatabase, faulty
from tests.checkpointers.graphs import config, loop
from tests.checkpointers.test_fsck import ask, rows_of
from tests.checkpointers.test_lease import elsewhere, silent
from tests.checkpointers.test_storage import listening, put, values
from tests.conftest import reopen

KEYS = Keyring.generate("first")
SEALED = pytest.mark.parametrize("keys", [None, KEYS], ids=["plain", "encrypted"])
TTL = 0.2


def filled(saver: Saver, thread: str = "t", count: int = 3) -> list[Entry]:
    """Give a thread a few effects, of which the first is done."""
    found = [saver.ledger.claim(thread, f"send {n}", {"to": "ada", "n": n})[0] for n in range(count)]
    return [saver.ledger.change(found[0], status="done", record={"said": ["ok", None, 1.5]}), *found[1:]]


def commits(asked: list[Any]) -> int:
    return sum(isinstance(request, Append) for request in asked)


# Laws.


@SEALED
def test_a_key_is_claimed_once(url: str, keys: Any) -> None:
    """The second claim gets what stands there and changes nothing, in any process and after any change."""
    with reopen(url, keys=keys) as saver:
        start = datetime.now(UTC)
        entry, new = saver.ledger.claim("t", "k", {"a": {"b": [1, None, True, "ü", 2.5]}}, status="claimed")
        assert new
        assert (entry.thread, entry.key, entry.number, entry.revision) == ("t", "k", 1, 1)
        assert (entry.status, entry.step, entry.record) == ("claimed", 0, {"a": {"b": [1, None, True, "ü", 2.5]}})
        assert start - timedelta(seconds=1) < entry.at < datetime.now(UTC) + timedelta(seconds=1)
        assert saver.ledger.claim("t", "k", {"other": 1}, status="mine") == (entry, False)
        assert saver.ledger.claim("t", "K", {})[0].number == 2
        done = saver.ledger.change(entry, status="done", record={"b": 2})
    with reopen(url, keys=keys) as other:
        assert other.ledger.get("t", "k") == done
        assert other.ledger.claim("t", "k", {}) == (done, False)
        assert [entry.key for entry in other.ledger.entries("t")] == ["k", "K"]
        assert other.ledger.entries("nobody") == []
        assert other.ledger.get("nobody", "k") is other.ledger.get("t", "nothing") is None
        assert other.fsck() == []
        assert other.threads() == []


def test_only_what_was_read_is_changed(saver: Saver) -> None:
    """A change on an older revision is refused with what stands there."""
    (done, claimed, _) = filled(saver)
    again = saver.ledger.change(claimed, status="done", record={})
    with pytest.raises(EntryMovedError, match=r"the effect 'send 1' of thread 't' is 'done' now, revision 2") as told:
        saver.ledger.change(claimed, status="failed", record={"x": 1})
    assert told.value.entry == again == saver.ledger.get("t", "send 1")
    assert (again.number, again.revision, again.step) == (2, 2, claimed.step)
    saver.delete_thread("t")
    for _ in range(2):
        with pytest.raises(EntryMovedError, match="is not there any more") as told:
            saver.ledger.change(done, status="again", record={})
        assert told.value.entry is None
    assert saver.ledger.entries("t") == []


@SEALED
def test_an_entry_of_another_life_is_not_changed(url: str, keys: Any) -> None:
    """A thread was deleted and its key claimed anew, in just the same words: that claim is another's."""
    with reopen(url, keys=keys) as saver, reopen(url, keys=keys) as other:
        for owner in (saver, other):
            mine, _ = saver.ledger.claim("t", "pay", {"to": "ada"})
            saver.delete_thread("t")
            theirs, new = owner.ledger.claim("t", "pay", {"to": "ada"})
            assert new
            with pytest.raises(EntryMovedError, match="the effect 'pay' of thread 't' is 'claimed' now") as told:
                saver.ledger.change(mine, status="done", record={})
            assert told.value.entry == theirs
            assert owner.ledger.change(theirs, status="failed", record={}).revision == 2
            assert [entry.status for entry in saver.ledger.entries("t")] == ["failed"]
            saver.delete_thread("t")


@pytest.mark.parametrize("moved", [False, True])
def test_an_entry_in_another_row_is_changed(url: str, moved: bool) -> None:
    """What was claimed goes on after its thread was encrypted, and after it was copied away and back."""
    with reopen(url, keys=KEYS, migrating=True) as saver:
        with reopen(url) as plain:
            entry, _ = plain.ledger.claim("t", "pay", {})
        if moved:
            saver.copy_thread("t", "t2")
            saver.delete_thread("t")
            saver.copy_thread("t2", "t")
        else:
            assert saver.rotate().encrypted == 1
        assert saver.ledger.change(entry, status="done", record={}) == saver.ledger.get("t", "pay")
        assert saver.fsck() == []


def test_where_the_thread_stood(saver: Saver) -> None:
    """An entry says at which step it was claimed, whenever it is changed."""
    place = put(saver, {"n": 1})
    entry, _ = saver.ledger.claim("t", "k", {})
    put(saver, {"n": 2}, after=place, version=2)
    assert entry.step == 1
    assert saver.ledger.change(entry, status="done", record={}).step == 1
    assert saver.ledger.claim("t", "k2", {})[0].step == 2
    assert values(saver)["n"] == 2


@pytest.mark.parametrize("key", ["", "a\0b", "\ud800", "x" * 20_000, "ключ", "k" * 36])
def test_any_text_is_a_key(saver: Saver, key: str) -> None:
    """Keys are any text, and are told apart by all of it."""
    entry, new = saver.ledger.claim("t", key, {})
    assert new
    assert saver.ledger.claim("t", key + "x", {})[1]
    assert saver.ledger.get("t", key) == entry
    assert [one.key for one in saver.ledger.entries("t")] == [key, key + "x"]


@pytest.mark.parametrize(
    "value", [object(), datetime(2026, 1, 1, tzinfo=UTC), (1, 2), {1: 2}, {1, 2}, 1 << 70, "\ud800", float],
    ids=["object", "time", "tuple", "key", "set", "integer", "surrogate", "type"],
)  # fmt: skip
def test_a_record_is_plain_data(saver: Saver, value: Any) -> None:
    """What would not come back as it is is refused with its place, and nothing is written."""
    with pytest.raises(UnstorableValueError, match=r"channel '\(effects\)' at \['deep'\]\[0\].* of thread 't'"):
        saver.ledger.claim("t", "k", {"deep": [{"er": value}]})
    entry, new = saver.ledger.claim("t", "k", {})
    assert new
    with pytest.raises(UnstorableValueError):
        saver.ledger.change(entry, status="done", record={"x": value})
    assert saver.ledger.entries("t") == [entry]


WRONG: list[tuple[Callable[[Any, Entry], Any], str]] = [
    (lambda ledger, entry: ledger.claim("t", 5, {}), "the key of an effect is a text, not 5"),
    (lambda ledger, entry: ledger.claim("t", None, {}), "the key of an effect is a text, not None"),
    (lambda ledger, entry: ledger.get("t", 5), "the key of an effect is a text, not 5"),
    (lambda ledger, entry: ledger.claim("t", "x", {}, status=5), "the status of an effect is a text, not 5"),
    (lambda ledger, entry: ledger.claim("t", "x", {}, status=None), "the status of an effect is a text, not None"),
    (lambda ledger, entry: ledger.change(entry, status=b"x", record={}), "the status of an effect is a text, not b'x'"),
    (
        lambda ledger, entry: ledger.claim("t", "x", [1]),
        "of thread 't': a record is a mapping, not \\[1\\]; nothing was",
    ),
    (lambda ledger, entry: ledger.claim("t", "x", None), "of thread 't': a record is a mapping, not None; nothing was"),
    (lambda ledger, entry: ledger.keep("t", "text"), "of thread 't': a body is bytes, not 'text'; nothing was written"),
    (lambda ledger, entry: ledger.change(entry, status="x", record={}, bodies=["s"]), "a body is bytes, not 's'"),
    (lambda ledger, entry: ledger.change(entry, status="x", record={}, bodies=b"abc"), "a body is bytes, not 97"),
    (lambda ledger, entry: ledger.body("t", None), "the hash of a body is a text, not None"),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_what_is_of_another_kind_is_refused(saver: Saver, number: int) -> None:
    """Nothing is acknowledged that the ledger cannot be read with."""
    wrong, told = WRONG[number]
    entry, _ = saver.ledger.claim("t", "k", {})
    with pytest.raises(CheckpointerError, match=told):
        wrong(saver.ledger, entry)
    with pytest.raises(CheckpointerError, match=told):
        asyncio.run(wrong(_Twins(saver.ledger), entry))
    assert (saver.ledger.entries("t"), saver.ledger.bodies("t"), saver.fsck()) == ([entry], [], [])


class _Twins:
    """A ledger by its async methods."""

    def __init__(self, ledger: Any) -> None:
        self._ledger = ledger

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, f"a{name}")


def test_a_body_is_what_it_was_when_it_was_given(saver: Saver) -> None:
    """Any bytes are a body, and changing them afterwards changes nothing."""
    given = bytearray(b"body")
    hashes = [saver.ledger.keep("t", one) for one in (given, memoryview(given))]
    given[:] = b"else"
    assert [saver.ledger.body("t", one) for one in hashes] == [b"body"] * 2


def test_a_record_is_what_it_was_when_it_was_given(saver: Saver) -> None:
    """Changing it afterwards changes neither what is stored nor what was answered."""
    record = {"list": [1]}
    entry, _ = saver.ledger.claim("t", "k", record)
    record["list"].append(2)
    assert entry.record == saver.ledger.get("t", "k").record == {"list": [1]}


def test_a_claim_and_a_change_cost_one_commit_each(saver: Saver) -> None:
    """One round trip where nothing must be looked up; the writes of the loop know nothing of any of it."""
    place, asked = put(saver, {"n": 1}), []
    saver.ledger.claim("t", "first", {})
    with listening(saver, asked):
        entry, _ = saver.ledger.claim("t", "k", {})
        assert (len(asked), commits(asked)) == (1, 1)
        saver.ledger.change(entry, status="done", record={})
        assert (len(asked), commits(asked)) == (2, 2)
        put(saver, {"n": 2}, after=place, version=2)
        assert len(asked) == 3
        assert not [request for request in asked[2:] if "cp_effects" in repr(request) or "cp_bodies" in repr(request)]
        saver.threads()
        assert not [request for request in asked[3:] if "cp_effects" in repr(request) or "cp_bodies" in repr(request)]


def test_its_bytes_count(saver: Saver) -> None:
    """What the thread's row says is the sum of what `usage` says, whatever is done."""
    place = put(saver, {"n": 1})
    entry = filled(saver)[1]
    for size in (10, 5_000, 1):
        entry = saver.ledger.change(entry, status="done", record={"text": os.urandom(size).hex()}, bodies=[b"x" * size])
        used = {one.channel: one.bytes for one in saver.usage("t")}
        assert {"(effects)", "(bodies)"} <= used.keys()
        assert saver.threads()[0].bytes == sum(used.values())
    put(saver, {"n": 2}, after=place, version=2)
    saver.retain(Keep(last=1))
    assert saver.threads()[0].bytes == sum(one.bytes for one in saver.usage("t"))


RING = Keyring({"a": bytes(range(32))})


def claims(url: str, sealed: bool, gate: Any, answers: Any) -> None:
    with reopen(url, keys=RING if sealed else None) as saver:
        gate.wait()
        for number in range(50):
            answers.put((number, os.getpid(), saver.ledger.claim("t", f"k{number}", {"by": os.getpid()})))
        answers.put(None)


@pytest.mark.slow
@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "encrypted"])
def test_two_processes_claim_the_same_keys(url: str, sealed: bool) -> None:
    """Of two that claim fifty keys at once exactly one is told True for each, and what stands there is his."""
    reopen(url).close()
    context = mp.get_context("spawn")
    gate, answers = context.Barrier(2), context.Queue()
    workers = [context.Process(target=claims, args=(url, sealed, gate, answers)) for _ in range(2)]
    for worker in workers:
        worker.start()
    told: dict[int, list[Any]] = {}
    ended = 0
    while ended < 2:
        one = answers.get(timeout=60)
        ended += one is None
        if one is not None:
            told.setdefault(one[0], []).append(one[1:])
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert len(told) == 50
    for answered in told.values():
        assert sorted(new for _, (_, new) in answered) == [False, True]
        (winner,) = [process for process, (_, new) in answered if new]
        assert {entry.record["by"] for _, (entry, _) in answered} == {winner}
    with reopen(url, keys=RING if sealed else None) as saver:
        assert sorted(entry.number for entry in saver.ledger.entries("t")) == list(range(1, 51))
        assert saver.fsck() == []


def test_many_threads_claim_and_change_beside_a_run(saver: Saver) -> None:
    """Claims of one process, beside the writes of a graph: every key once, every change once."""
    wins: list[str] = []

    def work() -> None:
        for number in range(20):
            entry, new = saver.ledger.claim("t", f"k{number}", {})
            if new:
                wins.append(entry.key)
                saver.ledger.change(entry, status="done", record={"bytes": number}, bodies=[b"b%d" % number])

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    loop(saver).invoke({"until": 12, "n": 0}, config())
    for worker in workers:
        worker.join()
    assert sorted(wins) == sorted(f"k{n}" for n in range(20))
    assert {entry.status for entry in saver.ledger.entries("t")} == {"done"}
    assert len(saver.ledger.bodies("t")) == 20
    assert [entry["id"] for entry in loop(saver).get_state(config()).values["log"]] == list(range(12))
    assert saver.fsck() == []


def test_async_twins(saver: Saver) -> None:
    """The same answers in an event loop, under a lease of that loop's task."""

    async def main() -> None:
        async with saver.lease("t"):
            entry, new = await saver.ledger.aclaim("t", "k", {"a": 1})
            assert new
            done = await saver.ledger.achange(entry, status="done", record={}, bodies=[b"body"])
            hash_ = await saver.ledger.akeep("t", b"another")
            assert await saver.ledger.aget("t", "k") == done
            assert await saver.ledger.aentries("t") == [done]
            assert await saver.ledger.abody("t", hash_, 2, 5) == b"oth"
            assert {info.bytes for info in await saver.ledger.abodies("t")} == {4, 7}
            with pytest.raises(ThreadBusyError):
                await asyncio.to_thread(elsewhere, lambda: saver.ledger.claim("t", "k2", {}))
        assert (await saver.ledger.aclaim("t", "k", {})) == (done, False)

    asyncio.run(main())


# Who may.


def writes_of(saver: Saver, entry: Entry) -> list[Callable[[], Any]]:
    return [
        lambda: saver.ledger.claim("t", "zombie", {}),
        lambda: saver.ledger.change(entry, status="zombie", record={}, bodies=[b"of a zombie"]),
        lambda: saver.ledger.keep("t", b"kept by a zombie"),
    ]


@pytest.mark.parametrize("which", [0, 1, 2], ids=["claim", "change", "keep"])
def test_a_zombie_writes_nothing(url: str, which: int) -> None:
    """Whose lease was taken over is told so at its first word, and nothing of it lands."""
    with reopen(url) as one, reopen(url) as two:
        silent(one)
        context = contextvars.copy_context()
        context.run(one.lease("t", ttl=TTL, owner="one").__enter__)
        entry, _ = context.run(one.ledger.claim, "t", "k", {})
        with two.lease("t", if_busy="interrupt", owner="two"):
            before = two.ledger.entries("t"), two.ledger.bodies("t"), two.usage("t")
            with pytest.raises(LeaseLostError, match="two holds it now"):
                context.run(writes_of(one, entry)[which])
            assert (two.ledger.entries("t"), two.ledger.bodies("t"), two.usage("t")) == before
            moved = two.ledger.change(entry, status="done by two", record={})
        with pytest.raises(LeaseLostError):
            context.run(writes_of(one, entry)[which])
        assert two.ledger.entries("t") == [moved]
        assert two.fsck() == []


@pytest.mark.parametrize("which", [0, 1, 2], ids=["claim", "change", "keep"])
def test_without_a_lease_a_held_thread_is_busy(url: str, which: int) -> None:
    """Somebody without a lease stores nothing in a thread that is held, in this process and in another."""
    with reopen(url) as one, reopen(url) as two:
        entry, _ = one.ledger.claim("t", "k", {})
        with one.lease("t"):
            for saver in (one, two):
                with pytest.raises(ThreadBusyError, match="is held by"):
                    elsewhere(writes_of(saver, entry)[which])
            assert one.ledger.entries("t") == [entry]
            assert one.ledger.bodies("t") == []
        writes_of(two, entry)[which]()


def test_a_lease_of_a_thread_with_nothing_else(saver: Saver) -> None:
    """Releasing it leaves the ledger, and what was kept before the first checkpoint."""
    with saver.lease("t"):
        entry, _ = saver.ledger.claim("t", "k", {})
    with saver.lease("b"):
        hash_ = saver.ledger.keep("b", b"early")
    with saver.lease("nothing"):
        pass
    assert saver.ledger.entries("t") == [entry]
    assert saver.ledger.body("b", hash_) == b"early"
    assert len(rows_of(saver, "cp_threads")) == 2
    with saver.lease("t", if_busy="rollback"):
        assert saver.ledger.claim("t", "k", {}) == (entry, False)
    assert saver.fsck() == []


def test_rolling_back_keeps_the_ledger(url: str) -> None:
    """What a run did to the world is not undone by taking its checkpoints back."""
    with reopen(url) as one, reopen(url) as two:
        context = contextvars.copy_context()
        context.run(one.lease("t", ttl=60).__enter__)
        context.run(put, one, {"n": 1})
        entry, _ = context.run(one.ledger.claim, "t", "k", {})
        with two.lease("t", if_busy="rollback"):
            assert two.get_tuple(config()) is None
            assert two.ledger.entries("t") == [entry]
        assert two.ledger.claim("t", "k", {}) == (entry, False)
        assert two.fsck() == []


def test_read_only(url: str, backend: str) -> None:
    """A database that may not be written says so, and is read."""
    with reopen(url) as saver:
        (entry, *_) = filled(saver)
        hash_ = saver.ledger.keep("t", b"body")
    if backend == "sqlite":
        reader = reopen(url, read_only=True)
    else:
        reader = reopen(url)
        reader.database._timeout = 0.5
        reader.database._pool.close()
        with psycopg.connect(url, autocommit=True) as base:
            base.execute(f'ALTER DATABASE "{base.info.dbname}" SET default_transaction_read_only = on')
        reader = PostgresSaver.open(url, pool_size=2, timeout=0.5)
    with reader:
        assert reader.ledger.entries("t")[0] == entry
        assert reader.ledger.body("t", hash_) == b"body"
        for write in writes_of(reader, entry):
            with pytest.raises(ReadOnlyError, match="nothing was written"):
                write()
        assert len(reader.ledger.entries("t")) == 3


# Whatever happens to the database.


@pytest.mark.parametrize("kind", ["fail", "lose", "delay", "duplicate"])
def test_every_request_may_fail(url: str, kind: Any) -> None:
    """Whichever request of a claim or a change fails or is done twice: it is there whole or not, and can be repeated."""
    with reopen(url) as saver:
        real = saver.database
        for number in range(1, 8):
            thread = f"t{number}"
            saver.database = faulty(real, kind, number)
            entry = done = None
            told: list[str] = []
            while done is None:
                try:
                    entry = entry or saver.ledger.claim(thread, "k", {"n": number})[0]
                    done = saver.ledger.change(entry, status="done", record={}, bodies=[b"body"])
                except EntryMovedError as error:
                    done = error.entry
                except StorageError as error:
                    told.append(str(error))
            saver.database = real
            assert saver.ledger.entries(thread) == [done]
            assert done.revision == 2
            assert all("injected" in one for one in told)
            assert [info.bytes for info in saver.ledger.bodies(thread)] == [4]
            assert saver.fsck(thread) == []


def test_a_lost_answer_is_not_a_second_claim(saver: Saver) -> None:
    """A claim, or a change, that is stored but not acknowledged and is done again is still this call's own."""

    class LostError(Exception):
        pass

    class Again(FaultyDatabase):
        def run(self, operation: Any) -> Any:
            try:
                return super().run(operation)
            except LostError:
                return super().run(operation)

    to_lose: list[bool] = []

    def lose(count: int, request: Any) -> None:
        if isinstance(request, Append) and to_lose:
            to_lose.pop()
            raise LostError

    saver.database = Again(saver.database, after=lose)
    to_lose.append(True)
    entry, new = saver.ledger.claim("t", "k", {})
    assert new
    assert saver.ledger.claim("t", "k", {}) == (entry, False)
    to_lose.append(True)
    assert saver.ledger.change(entry, status="done", record={}).revision == 2
    to_lose.append(True)
    saver.ledger.keep("t", b"body")
    assert not to_lose
    assert [one.revision for one in saver.ledger.entries("t")] == [2]
    assert saver.fsck() == []


# What else is done to a thread.


@SEALED
def test_it_outlives_the_history(url: str, keys: Any) -> None:
    """Pruned, retained, its runs deleted: the ledger stays, even of a thread of which nothing else does."""
    with reopen(url, keys=keys) as saver:
        place = loop(saver), config() | {"metadata": {"run_id": "r1"}}
        place[0].invoke({"until": 6, "n": 0}, place[1])
        entries = filled(saver)
        saver.retain(Keep(last=1))
        saver.prune(["t"])
        assert (saver.ledger.entries("t"), saver.fsck()) == (entries, [])
        saver.delete_for_runs(["r1"])
        assert saver.get_tuple(config()) is None
        assert (saver.ledger.entries("t"), saver.fsck()) == (entries, [])
    with reopen(url, keys=keys) as saver:
        assert [saver.ledger.claim("t", f"send {n}", {})[1] for n in range(4)] == [False] * 3 + [True]
        place = put(saver, {"n": 1})
        assert saver.threads()[0].bytes == sum(one.bytes for one in saver.usage("t"))
        saver.prune(["t"], strategy="delete")
        assert saver.ledger.entries("t") == []
        assert rows_of(saver, "cp_effects") == rows_of(saver, "cp_threads") == []


def test_an_expired_thread_takes_its_ledger_along(saver: Saver) -> None:
    """A thread that nobody wrote to goes with everything in it; a claim is a write."""
    put(saver, {"n": 1}, after=config("old", checkpoint_ns=""))
    filled(saver, "old")
    (plan,) = saver.retain(Keep(max_age=0), dry_run=True)
    assert plan.expired
    assert saver.retain(Keep(max_age="1h")) == []
    assert len(saver.ledger.entries("old")) == 3
    (done,) = saver.retain(Keep(max_age=0))
    assert (done.expired, done.frees) == (True, plan.frees)
    assert saver.ledger.entries("old") == []
    assert rows_of(saver, "cp_threads") == []


def test_an_old_thread_with_a_young_claim_is_not_expired(saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its newest checkpoint is older than the limit, its last claim is not."""
    from checkpointers import saver as home

    monkeypatch.setattr(home, "now", lambda: 1_000_000)
    put(saver, {"n": 1})
    put(saver, {"n": 1}, after=config("without", checkpoint_ns=""))
    monkeypatch.undo()
    entry, _ = saver.ledger.claim("t", "k", {})
    assert [plan.thread for plan in saver.retain(Keep(max_age="1h"))] == ["without"]
    assert saver.ledger.entries("t") == [entry]


def test_a_claim_since_a_thread_was_found_expired_stays(saver: Saver) -> None:
    """Between the plan and what it does somebody claims an effect: the checkpoints go, the ledger does not."""
    put(saver, {"n": 1})
    entry, _ = saver.ledger.claim("t", "k", {})
    planned = entry.at - timedelta(seconds=1)
    since = int(planned.timestamp() * 1_000_000)
    saver.database.exclusive(lambda: remove.drop(saver._tools(), "t", lambda _: [1], unwritten_since=since))
    assert saver.get_tuple(config()) is None
    assert saver.ledger.entries("t") == [entry]
    assert saver.fsck() == []


@SEALED
def test_a_copy_has_its_own(url: str, keys: Any) -> None:
    """A copy takes the ledger along; what is claimed later in one is not in the other."""
    with reopen(url, keys=keys) as saver:
        put(saver, {"n": 1})
        entries = filled(saver)
        saver.copy_thread("t", "copy")
        copied = saver.ledger.entries("copy")
        assert [(e.key, e.number, e.revision, e.status, e.step, e.at, e.record) for e in copied] == [
            (e.key, e.number, e.revision, e.status, e.step, e.at, e.record) for e in entries
        ]
        assert {entry.thread for entry in copied} == {"copy"}
        assert saver.ledger.claim("copy", "only here", {})[1]
        assert saver.ledger.claim("copy", "send 1", {}) == (copied[1], False)
        saver.ledger.change(copied[2], status="done", record={})
        assert saver.ledger.entries("t") == entries
        assert saver.fsck() == []
        bodies = [bytes(row["body"]) for row in rows_of(saver, "cp_effects")]
        ids = [bytes(row["id"]) for row in rows_of(saver, "cp_effects")]
        assert len(set(bodies)) == 7
        assert len(set(ids)) == (7 if keys else 4)


def test_a_copy_of_what_is_not_whole_is_refused(saver: Saver) -> None:
    """A copy without an entry would do its effect again."""
    put(saver, {"n": 1})
    filled(saver)
    ask(saver, "DELETE FROM cp_effects WHERE number = ?", 2)
    with pytest.raises(IncompleteRecordError, match=r"thread 't'.*\(effects\)"):
        saver.copy_thread("t", "copy")
    assert saver.ledger.entries("copy") == []


def test_encrypting_and_rotating(url: str) -> None:
    """What was in clear is encrypted, under prints that nobody else can make; keys change; who has none reads nothing."""
    with reopen(url) as saver:
        put(saver, {"n": 1})
        entries = filled(saver, count=30)
        hash_ = saver.ledger.keep("t", b"a body" * 100_000)
        clear = {bytes(row["id"]) for row in rows_of(saver, "cp_effects")}
    with reopen(url, keys=KEYS, migrating=True) as saver:
        assert saver.ledger.entries("t") == entries
        assert saver.rotate().encrypted == 1
        assert not clear & {bytes(row["id"]) for row in rows_of(saver, "cp_effects")}
    ring = KEYS.with_new("second")
    with reopen(url, keys=ring) as saver:
        assert saver.rotate().rewrapped == 1
        assert saver.ledger.entries("t") == entries
        assert saver.ledger.claim("t", "send 2", {}) == (entries[2], False)
        assert saver.ledger.claim("t", "send 30", {})[1]
        assert saver.ledger.body("t", hash_) == b"a body" * 100_000
        assert saver.fsck() == []
    with reopen(url) as saver:
        for look in (lambda: saver.ledger.entries("t"), lambda: saver.ledger.body("t", hash_)):
            with pytest.raises(KeyringError):
                look()
    with reopen(url, keys=ring) as saver:
        saver.shred("t")
        for look in (lambda: saver.ledger.entries("t"), lambda: saver.ledger.claim("t", "send 2", {})):
            with pytest.raises(KeyringError, match="was thrown away"):
                look()
        saver.delete_thread("t")
        assert rows_of(saver, "cp_effects") == rows_of(saver, "cp_bodies") == []


# Damage.


def lookers(saver: Saver) -> list[Callable[[], Any]]:
    return [
        lambda: saver.ledger.entries("t"),
        lambda: saver.ledger.claim("t", "send 1", {"again": True}),
        lambda: saver.ledger.get("t", "send 1"),
    ]


@pytest.mark.slow
@SEALED
@pytest.mark.parametrize("damage", ["dropped", "body", "number", "revision", "id", "swapped", "row"])
@pytest.mark.parametrize("looker", [0, 1, 2], ids=["entries", "claim", "get"])
def test_a_damaged_ledger_is_noticed(url: str, keys: Any, damage: str, looker: int) -> None:
    """Whatever is wrong with the row of an effect, it is not taken for one that was never claimed, nor for another."""
    with reopen(url, keys=keys) as saver:
        put(saver, {"n": 1})
        filled(saver)
    with reopen(url, keys=keys) as saver:
        key = thread_key("t")
        if damage == "dropped":
            ask(saver, "DELETE FROM cp_effects WHERE thread = ? AND number = 2", key)
        elif damage == "row":
            ask(saver, "DELETE FROM cp_threads WHERE thread = ?", key)
        elif damage == "swapped":
            one, two = (row for row in rows_of(saver, "cp_effects") if row["number"] > 1)
            for row, other in ((one, two), (two, one)):
                ask(saver, "UPDATE cp_effects SET number = ?, body = ? WHERE thread = ? AND id = ?", other["number"], other["body"], key, row["id"])  # fmt: skip
        else:
            (row,) = [row for row in rows_of(saver, "cp_effects") if row["number"] == 2]
            value = row[damage] ^ 4 if isinstance(row[damage], int) else row[damage][:-1] + bytes([row[damage][-1] ^ 4])
            ask(saver, f"UPDATE cp_effects SET {damage} = ? WHERE thread = ? AND number = 2", value, key)
        with pytest.raises(IntegrityError, match="thread 't'"):
            lookers(saver)[looker]()
        findings = saver.fsck("t")
        assert findings
        assert {found.thread for found in findings} == {"t"}
        assert damage == "row" or any("(effects)" in found.what for found in findings)


def test_an_entry_that_its_id_does_not_find_is_not_claimed_again(tmp_path: Path) -> None:
    """A bit of a page put a row out of its order: a scan passes by it, a search does not come to it."""
    with SqliteSaver.open(tmp_path / "a.db") as saver:
        filled(saver, count=5)
        second, key = sorted((saver.vaults.fresh(1)[0].name(f"send {n}".encode()), f"send {n}") for n in range(5))[1]
    with closing(sqlite3.connect(tmp_path / "a.db")) as base, base:
        base.execute("PRAGMA journal_mode=DELETE")
    raw, thread = (tmp_path / "a.db").read_bytes(), thread_key("t").to_bytes(8, "big")
    assert raw.count(thread + second) == 1
    earlier = (thread_key("t") - 1).to_bytes(8, "big")
    (tmp_path / "a.db").write_bytes(raw.replace(thread + second, earlier + second))
    with SqliteSaver.open(tmp_path / "a.db") as saver:
        ledger = saver.ledger
        for look in (lambda: ledger.get("t", key), lambda: ledger.claim("t", key, {}), lambda: ledger.entries("t")):
            with pytest.raises(IncompleteRecordError, match="effects"):
                look()
        assert any("(effects)" in finding.what for finding in saver.fsck("t"))


def test_a_claim_counts_once(url: str) -> None:
    """A process compares when it gets to know a thread, and again when another has written; not at every claim."""
    with reopen(url) as one, reopen(url) as two:
        filled(one)
        asked: list[Any] = []
        with listening(two, asked):
            two.ledger.claim("t", "a", {})
            first = len(asked)
            two.ledger.claim("t", "b", {})
            assert len(asked) == first + 1
            one.ledger.claim("t", "c", {})
            two.ledger.claim("t", "d", {})
            assert sum("LEFT JOIN cp_effects" in getattr(request, "sql", "") for request in asked) == 2
        ask(one, "DELETE FROM cp_effects WHERE number = 2")
        with pytest.raises(IncompleteRecordError, match=r"\(effects\)"):
            one.ledger.claim("t", "e", {})


@SEALED
def test_recovering_takes_the_ledger_along(url: str, keys: Any) -> None:
    """What is sound of it is in the new thread, in the order of its claims, and goes on."""
    with reopen(url, keys=keys) as saver:
        app = loop(saver)
        app.invoke({"until": 4, "n": 0}, config())
        entries = filled(saver, count=4)
        hash_ = saver.ledger.keep("t", b"body" * 200_000)
        ask(saver, "UPDATE cp_effects SET body = ? WHERE number = 2", b"damaged")
        assert any("(effects) entry 2" in found.what for found in saver.fsck())
        saver.recover("t", into="saved")
        saved = saver.ledger.entries("saved")
        assert [(e.key, e.number, e.status) for e in saved] == [
            ("send 0", 1, "done"), ("send 2", 2, "claimed"), ("send 3", 3, "claimed")
        ]  # fmt: skip
        assert [e.record for e in saved] == [entries[n].record for n in (0, 2, 3)]
        assert saver.ledger.body("saved", hash_) == b"body" * 200_000
        assert saver.fsck("saved") == []
        assert saver.ledger.claim("saved", "send 1", {})[0].number == 4
        saver.ledger.change(saved[1], status="done", record={})
        assert saver.fsck("saved") == []
        assert next(i.bytes for i in saver.threads() if i.thread == "saved") == sum(
            u.bytes for u in saver.usage("saved")
        )


# Databases of before.


BACK_TO_2 = (
    "DROP TABLE cp_effects", "DROP TABLE cp_bodies", "ALTER TABLE cp_leases DROP COLUMN note",
    "DELETE FROM cp_schema WHERE version > 2",
)  # fmt: skip


def back_to_2(url: str) -> None:
    """Make a database what version 2 would have left."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as base, base:
            for statement in BACK_TO_2:
                base.execute(statement)
        return
    with psycopg.connect(url, autocommit=True) as base:
        base.execute("SET search_path TO checkpointers")
        for statement in BACK_TO_2:
            base.execute(statement)


def test_a_database_of_version_2_is_brought_up_to_date(url: str, backend: str) -> None:
    """In place: its threads are what they were, and have a ledger now; who may only read it is told to let it be done."""
    with reopen(url) as saver:
        loop(saver).invoke({"until": 3, "n": 0}, config())
    back_to_2(url)
    if backend == "sqlite":
        with pytest.raises(SchemaError, match=r"of version 2.*open it once without read_only"):
            reopen(url, read_only=True)
    with reopen(url) as saver:
        assert saver.fsck() == []
        assert saver.ledger.entries("t") == []
        entries = filled(saver)
        loop(saver).invoke({"until": 5}, config())
        assert [entry["id"] for entry in values(saver)["log"]] == list(range(5))
        assert saver.ledger.entries("t") == entries
        assert saver.fsck() == []
    assert [number for number, _ in migrations(backend)] == [2, 3]


def test_a_row_of_version_2_has_no_ledger(saver: Saver) -> None:
    """The row of a thread as version 2 packed it is read as one that has claimed nothing."""
    import ormsgpack

    from checkpointers.operations.common import find_thread
    from checkpointers.sealing import thread_place
    from checkpointers.standing import pack_standing, unpack_standing

    put(saver, {"n": 1})
    thread = saver.database.read(lambda: find_thread(saver._tools(), "t"))
    row = pack_standing(thread.key, thread.vault, thread.standing)
    numbers, head_id = (*row[:3], *row[4:-1]), row[3]
    raw = ormsgpack.unpackb(thread.vault.open(thread_place(thread.key, numbers, head_id), row[-1]))
    old = thread.vault.seal(thread_place(thread.key, numbers, head_id), ormsgpack.packb(raw[:4]))
    found = unpack_standing(thread.key, thread.vault, (*row[:-1], old))
    assert (found.effects, found.fold, found.bodies) == (0, 0, 0)
    assert found == thread.standing


def test_a_real_database_of_version_2(tmp_path: Path) -> None:
    """A file with the tables of version 2 alone gets those of version 3."""
    path = tmp_path / "two.db"
    script = dict(migrations("sqlite"))[2]
    with closing(sqlite3.connect(path)) as base, base:
        base.execute("CREATE TABLE cp_schema (version INTEGER PRIMARY KEY)")
        base.executescript(script)
        base.execute("INSERT INTO cp_schema VALUES (2)")
    with SqliteSaver.open(path) as saver:
        saver.put(config(checkpoint_ns=""), empty_checkpoint(), {"source": "input", "step": -1, "parents": {}}, {})
        assert saver.ledger.claim("t", "k", {})[1]
        assert saver.fsck() == []


# Tenants.


def test_tenants_claim_apart(postgres_url: str) -> None:
    """The same thread and key of two tenants are two; the tables are under the rules of the others, new or migrated."""
    with psycopg.connect(postgres_url, autocommit=True) as base:
        base.execute("DROP ROLE IF EXISTS cp_ledger_app")
        base.execute("CREATE ROLE cp_ledger_app LOGIN")
        base.execute(f'GRANT CREATE ON DATABASE "{base.info.dbname}" TO cp_ledger_app')
    app = postgres_url.replace("postgres@", "cp_ledger_app@")
    try:
        with PostgresSaver.open(app, tenant="one") as one, PostgresSaver.open(app, tenant="two") as two:
            entry, new = one.ledger.claim("t", "k", {"secret": 1})
            hash_ = one.ledger.keep("t", b"secret")
            assert new
            assert two.ledger.entries("t") == two.ledger.bodies("t") == []
            assert two.ledger.claim("t", "k", {})[1]
            assert two.ledger.keep("t", b"secret") == hash_
            two.delete_thread("t")
            assert one.ledger.entries("t") == [entry]
            assert one.ledger.body("t", hash_) == b"secret"
        with psycopg.connect(postgres_url) as base:
            base.execute("SET search_path TO checkpointers")
            for statement in BACK_TO_2:
                base.execute(statement)
        with PostgresSaver.open(app, tenant="two") as two, PostgresSaver.open(app, tenant="one") as one:
            assert one.ledger.claim("late", "k", {})[1]
            assert two.ledger.claim("late", "k", {})[1]
        with psycopg.connect(postgres_url) as base:
            found = base.execute(
                "SELECT relname FROM pg_class WHERE relname IN ('cp_effects', 'cp_bodies') AND relrowsecurity"
                " AND relforcerowsecurity ORDER BY 1"
            ).fetchall()
            assert [name for (name,) in found] == ["cp_bodies", "cp_effects"]
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as base:
            base.execute("DROP OWNED BY cp_ledger_app CASCADE")
            base.execute("DROP ROLE cp_ledger_app")
