"""Bodies: large texts beside the state, stored once, read in parts, gone when nothing that is kept names them."""

from __future__ import annotations

import hashlib
import random
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from checkpointers import (
    BodyInfo,
    IncompleteRecordError,
    IntegrityError,
    Keep,
    Keyring,
    MissingBodyError,
    Saver,
)
from checkpointers.effects import CHUNK
from checkpointers.keys import thread_key
from checkpointers.operations.collecting import READ_AT_A_TIME, hashes_in
from checkpointers.statements import Append, Many
from checkpointers.strict import StrictSerializer
from tests.checkpointers.graphs import DeltaState, config, loop
from tests.checkpointers.test_fsck import ask, rows_of
from tests.checkpointers.test_storage import listening, put, values
from tests.conftest import reopen

KEYS = Keyring.generate("first")
SEALED = pytest.mark.parametrize("keys", [None, KEYS], ids=["plain", "encrypted"])
DICE = random.Random(8)


def noise(size: int) -> bytes:
    return DICE.randbytes(size)


def kept(saver: Saver, thread: str = "t") -> set[str]:
    return {info.hash for info in saver.ledger.bodies(thread)}


def collected(saver: Saver, keep: Keep | None = None) -> int:
    """Retain, see that it freed what it said it would and that the thread is sound; give the bytes."""
    keep = keep or Keep(last=1)
    planned = sum(plan.frees for plan in saver.retain(keep, dry_run=True))
    before = sum(one.bytes for one in saver.usage("t"))
    freed = sum(plan.frees for plan in saver.retain(keep))
    assert planned == freed == before - sum(one.bytes for one in saver.usage("t"))
    assert saver.fsck() == []
    assert all(info.bytes == sum(u.bytes for u in saver.usage(info.thread)) for info in saver.threads())
    return freed


# Kept and read.


@pytest.mark.slow
@SEALED
@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5])
def test_it_is_read_back(url: str, keys: Any, size: int) -> None:
    """Whole and in any part, under its sha256, in another process; the same again stores nothing."""
    data = noise(size)
    with reopen(url, keys=keys) as saver:
        hash_ = saver.ledger.keep("t", data)
        before = saver.usage("t")
        asked: list[Any] = []
        with listening(saver, asked):
            assert saver.ledger.keep("t", data) == hash_ == hashlib.sha256(data).hexdigest()
        assert not [request for request in asked if isinstance(request, Append)]
        assert saver.usage("t") == before
    with reopen(url, keys=keys) as saver:
        assert saver.ledger.body("t", hash_) == data
        assert saver.ledger.bodies("t") == [BodyInfo(hash_, size)]
        edges = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, size - 1, size, size + 9, -1, -CHUNK, None]
        for start in edges[:-1]:
            for stop in edges:
                assert saver.ledger.body("t", hash_, start, stop) == data[start:stop], (start, stop)
        assert saver.fsck() == []
        with pytest.raises(MissingBodyError, match=r"thread 't' keeps no body '00'") as told:
            saver.ledger.body("t", "00")
        assert (told.value.thread, told.value.hash) == ("t", "00")
        with pytest.raises(MissingBodyError):
            saver.ledger.body("nobody", hash_)
        assert saver.ledger.bodies("nobody") == []


@pytest.mark.slow
def test_the_beginning_is_read_without_the_rest(saver: Saver) -> None:
    """Of 50 MB the first 4 KB are read from one part; a listing reads none."""
    data = noise(1 << 20) * 50
    hash_ = saver.ledger.keep("t", data)
    answered: list[int] = []

    def weigh(rows: Any) -> Any:
        answered.append(sum(len(value) for row in rows for value in row if isinstance(value, bytes)))
        return rows

    execute = saver.database.read

    def watched(operation: Any) -> Any:
        def listened() -> Any:
            statements, rows = operation(), None
            try:
                while True:
                    request = statements.send(rows)
                    rows = weigh((yield request))
            except StopIteration as end:
                return end.value

        return execute(listened)

    saver.database.read = watched
    assert saver.ledger.body("t", hash_, 0, 4_096) == data[:4_096]
    assert sum(answered) < CHUNK + 2_000
    answered.clear()
    assert saver.ledger.bodies("t") == [BodyInfo(hash_, len(data))]
    assert sum(answered) < 2_000
    del saver.database.read
    assert saver.ledger.body("t", hash_, 30_000_000, 30_000_010) == data[30_000_000:30_000_010]
    assert saver.ledger.body("t", hash_) == data


def test_what_compresses_is_small(saver: Saver) -> None:
    """A text takes what it says, not what it is long."""
    saver.ledger.keep("t", b"the same line again\n" * 100_000)
    (used,) = saver.usage("t")
    assert (used.channel, used.rows) == ("(bodies)", 9)
    assert used.bytes < 3_000


def test_it_comes_with_a_change(saver: Saver) -> None:
    """The bodies of a change land in its commit, each once."""
    entry, _ = saver.ledger.claim("t", "k", {})
    asked: list[Any] = []
    with listening(saver, asked):
        saver.ledger.change(entry, status="done", record={}, bodies=[b"one", b"two" * CHUNK, b"one"])
    assert sum(isinstance(request, Append) for request in asked) == 1
    assert [info.bytes for info in sorted(saver.ledger.bodies("t"), key=lambda i: i.bytes)] == [3, 3 * CHUNK]
    other, _ = saver.ledger.claim("t", "k2", {})
    saver.ledger.change(other, status="done", record={}, bodies=[b"one", b"three"])
    assert len(saver.ledger.bodies("t")) == 3
    assert saver.fsck() == []


def test_threads_have_their_own(saver: Saver) -> None:
    """The same bytes in two threads are two bodies; one goes with its thread."""
    hash_ = saver.ledger.keep("one", b"body")
    assert saver.ledger.keep("two", b"body") == hash_
    saver.delete_thread("one")
    with pytest.raises(MissingBodyError):
        saver.ledger.body("one", hash_)
    assert saver.ledger.body("two", hash_) == b"body"


# Collected.


@SEALED
def test_what_nothing_names_goes(url: str, keys: Any) -> None:
    """A body goes with the last checkpoint that names it, wherever in the state it did; the plan says what that frees."""
    with reopen(url, keys=keys) as saver:
        data = {name: noise(CHUNK + 9) for name in ("text", "deep", "message", "static", "log", "never")}
        place, hashes = None, {}
        for version, (name, body) in enumerate(data.items(), 1):
            hashes[name] = saver.ledger.keep("t", body)
            state: dict[str, Any] = {"n": version, "pad": "p" * 100}
            state |= {
                "text": {"ref": f"sha256:{hashes[name]}0abc"}, "deep": {"x": [{"a": {"b": hashes[name]}}]},
                "message": {"messages": [AIMessage(f"see {hashes[name]}!", id="1")]},
                "static": {"static": hashes[name]}, "log": {"log": [f"f{hashes[name]}"] * 3}, "never": {},
            }[name]  # fmt: skip
            place = put(saver, state, after=place, version=version)
        place = put(saver, {"n": 9}, after=place, version=9)
        assert collected(saver, Keep(last=4)) > 3 * CHUNK
        assert kept(saver) == {hashes[name] for name in ("static", "log")}
        for name in ("static", "log"):
            assert saver.ledger.body("t", hashes[name]) == data[name]
        with pytest.raises(MissingBodyError):
            saver.ledger.body("t", hashes["text"])
        put(saver, {"n": 10}, after=place, version=10)
        assert collected(saver) > 2 * CHUNK
        assert kept(saver) == set()
        assert rows_of(saver, "cp_bodies") == []


@pytest.mark.slow
@pytest.mark.parametrize("schema", [None, DeltaState])
def test_what_is_named_stays(saver: Saver, schema: Any) -> None:
    """By an old element of a long list that is sealed with others, by a DeltaChannel's base, by a write that waits."""
    app = loop(saver, schema) if schema else loop(saver)
    first = saver.ledger.keep("t", b"first")
    app.invoke({"until": 1, "n": 0, "log": [{"id": 0, "body": first}]}, config())
    second = saver.ledger.keep("t", b"second")
    app.invoke({"until": 90, "log": [{"body": second}]}, config())
    waiting = saver.ledger.keep("t", b"waiting")
    saver.put_writes(saver.get_tuple(config()).config, [("log", [{"body": waiting}])], "a task")
    nobody = saver.ledger.keep("t", b"nobody's")
    collected(saver)
    assert kept(saver) == {first, second, waiting, nobody}
    app.invoke({"until": 92}, config())
    collected(saver, Keep(last=2))
    assert {first, second} <= kept(saver)
    assert nobody not in kept(saver)


def test_the_ledger_names_too(saver: Saver) -> None:
    """A body that a record names stays, whatever else goes."""
    place = put(saver, {"n": 1})
    entry, _ = saver.ledger.claim("t", "k", {})
    hash_ = hashlib.sha256(b"answer").hexdigest()
    entry = saver.ledger.change(entry, status="done", record={"body": hash_}, bodies=[b"answer", b"unnamed"])
    for version in (2, 3):
        place = put(saver, {"n": version}, after=place, version=version)
    collected(saver)
    assert kept(saver) == {hash_}
    saver.ledger.change(entry, status="done", record={})
    put(saver, {"n": 4}, after=place, version=4)
    collected(saver)
    assert kept(saver) == set()


def test_metadata_names_too(saver: Saver) -> None:
    """So does what a checkpoint says besides its values."""
    hash_ = saver.ledger.keep("t", b"body")
    for number in range(1, 4):
        loop(saver).invoke({"until": number, "n": 0}, config() | {"metadata": {"attached": hash_}})
    collected(saver)
    assert kept(saver) == {hash_}


def test_a_body_of_a_step_to_come_stays(saver: Saver) -> None:
    """What was kept since the thread came to where it stands may be named by the next step, which is not stored yet."""
    place = put(saver, {"n": 1})
    place = put(saver, {"n": 2}, after=place, version=2)
    hash_ = saver.ledger.keep("t", b"of the next step")
    saver.retain(Keep(last=1))
    place = put(saver, {"n": 3, "log": [hash_]}, after=place, version=3)
    place = put(saver, {"n": 4}, after=place, version=4)
    assert saver.ledger.keep("t", b"of the next step") == hash_  # an old one that is wanted again
    collected(saver)
    assert values(put_and(saver, {"n": 5, "log": [hash_]}, place)) == {"n": 5, "log": [hash_]}
    assert saver.ledger.body("t", hash_) == b"of the next step"
    assert saver.fsck() == []


def put_and(saver: Saver, state: dict[str, Any], after: Any) -> Saver:
    put(saver, state, after=after, version=state["n"])
    return saver


def test_other_ways_to_remove(saver: Saver) -> None:
    """Pruning and deleting runs collect as retaining does; a thread with bodies and nothing else goes."""
    app = loop(saver)
    app.invoke({"until": 1, "n": 0}, config() | {"metadata": {"run_id": "r0"}})
    old = saver.ledger.keep("t", b"old")
    app.invoke({"until": 3}, config() | {"metadata": {"run_id": "r1"}})
    saver.prune(["t"])
    assert kept(saver) == set()
    young = saver.ledger.keep("t", b"young")
    saver.delete_for_runs(["r0"])
    assert kept(saver) == {young}
    assert old != young
    saver.delete_for_runs(["r0", "r1"])
    assert rows_of(saver, "cp_bodies") == rows_of(saver, "cp_threads") == []


def test_only_threads_with_old_bodies_are_searched(saver: Saver) -> None:
    """Without bodies retaining reads no element; nor with young ones only."""
    for young in (False, True):
        thread = f"t{young}"
        loop(saver).invoke({"until": 6, "n": 0}, config(thread))
        if young:
            saver.ledger.keep(thread, b"young")
        asked: list[Any] = []
        with listening(saver, asked):
            saver.retain(Keep(last=2), threads=thread)
        told = [getattr(request, "sql", "") for request in asked]
        searched = [one for request in asked if isinstance(request, Many) for one in request.params]
        assert not [one for one in searched if one[2:] == (0, READ_AT_A_TIME - 1)]
        assert young or not [sql for sql in told if sql.startswith("SELECT hash")]


def test_a_serializer_that_hides_texts_collects_nothing(url: str) -> None:
    """Where a hash cannot be looked for in what is stored, every body is taken for needed."""

    class Backwards(StrictSerializer):
        def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
            tag, data = super().dumps_typed(obj)
            return tag, data[::-1]

        def loads_typed(self, data: tuple[str, bytes]) -> Any:
            return super().loads_typed((data[0], data[1][::-1]))

    with reopen(url, serde=Backwards()) as saver:
        hash_, place = saver.ledger.keep("t", b"body"), None
        for version in (1, 2, 3):
            place = put(saver, {"n": version, "log": [hash_]}, after=place, version=version)
        saver.retain(Keep(last=1))
        assert saver.ledger.body("t", hash_) == b"body"


def test_hashes_are_found_in_any_text() -> None:
    """Whatever stands before and behind, more hexadecimal digits too."""
    one, two = hashlib.sha256(b"1").hexdigest(), hashlib.sha256(b"2").hexdigest()
    assert hashes_in(f"x{one}y {two}".encode()) == {one, two}
    assert {one, two} <= hashes_in(f"ab{one}{two}0".encode())
    assert hashes_in(one.encode()[:-1]) == hashes_in(one.upper().encode()) - {one} == set()


# Whatever happens to the database.


@SEALED
@pytest.mark.parametrize("damage", ["cover", "part", "last part", "all", "bit", "swapped", "cover bit"])
def test_a_damaged_body_is_noticed(url: str, keys: Any, damage: str) -> None:
    """A part that is gone, changed or stands elsewhere is an error with the hash, and no other bytes."""
    data = noise(3 * CHUNK)
    with reopen(url, keys=keys) as saver:
        put(saver, {"n": 1})
        hash_, other = saver.ledger.keep("t", data), saver.ledger.keep("t", b"sound")
        id_ = next(bytes(row["hash"]) for row in rows_of(saver, "cp_bodies") if row["n"] == 3)
        where, at = "WHERE thread = ? AND hash = ?", (thread_key("t"), id_)
        gone = {"cover": "= 0", "part": "= 2", "last part": "= 3", "all": ">= 0"}
        if damage in gone:
            ask(saver, f"DELETE FROM cp_bodies {where} AND n {gone[damage]}", *at)
        elif damage == "swapped":
            for old, new in ((1, 9), (2, 1), (9, 2)):
                ask(saver, f"UPDATE cp_bodies SET n = {new} {where} AND n = {old}", *at)
        else:
            n = 0 if damage == "cover bit" else 2
            body = next(
                bytes(row["body"]) for row in rows_of(saver, "cp_bodies") if (bytes(row["hash"]), row["n"]) == (id_, n)
            )
            ask(saver, f"UPDATE cp_bodies SET body = ? {where} AND n = {n}", body[:-1] + bytes([body[-1] ^ 1]), *at)
        with pytest.raises((IntegrityError, MissingBodyError)) as told:
            saver.ledger.body("t", hash_)
        assert told.value.thread == "t"
        if "cover" not in damage and damage != "all":
            assert saver.ledger.body("t", hash_, 0, 0) == b""
        if damage in ("part", "bit", "swapped"):
            assert damage == "swapped" or saver.ledger.body("t", hash_, 5, 9) == data[5:9]
            with pytest.raises(IntegrityError):
                saver.ledger.body("t", hash_, CHUNK + 5, CHUNK + 9)
        assert saver.ledger.body("t", other) == b"sound"
        findings = saver.fsck("t")
        assert any("(bodies)" in found.what for found in findings)
        assert damage == "all" or any(hash_ in found.what for found in findings)
        if damage in ("cover", "all"):
            with pytest.raises(IncompleteRecordError, match=r"\(bodies\)"):
                saver.ledger.bodies("t")
        if damage == "cover":
            with pytest.raises(IncompleteRecordError, match=r"\(bodies\)"):
                saver.ledger.keep("t", data)
        saver.recover("t", into="saved")
        assert kept(saver, "saved") == {other}
        assert saver.fsck("saved") == []


def test_one_that_has_another_hash_is_not_given(saver: Saver) -> None:
    """Parts that are sealed to their place but are not what the hash says: a fault of a program, not of a disk."""
    from checkpointers.effects import body_id, sealed_cover
    from checkpointers.operations.bodies import cover_of
    from checkpointers.operations.common import find_thread
    from checkpointers.sealing import body_place

    hash_ = saver.ledger.keep("t", b"body")
    thread = saver.database.read(lambda: find_thread(saver._tools(), "t"))
    id_ = body_id(thread.vault, hash_)
    cover = cover_of(thread, next((r["hash"], r["n"], r["body"]) for r in rows_of(saver, "cp_bodies") if r["n"] == 0))
    assert sealed_cover(thread.key, thread.vault, cover)[:2] == (id_, 0)
    forged = thread.vault.seal(body_place(thread.key, id_, 1), cover.hash + b"\0ydob")
    ask(saver, "UPDATE cp_bodies SET body = ? WHERE n = 1", forged)
    with pytest.raises(IntegrityError, match=f"{hash_} has another hash"):
        saver.ledger.body("t", hash_)
    assert "has another hash" in saver.fsck()[0].what


@SEALED
def test_a_copy_has_its_own_bodies(url: str, keys: Any) -> None:
    """Copied, sealed anew; deleting the first leaves the second."""
    with reopen(url, keys=keys) as saver:
        put(saver, {"n": 1})
        data = noise(20 * CHUNK)
        hash_ = saver.ledger.keep("t", data)
        saver.copy_thread("t", "copy")
        saver.delete_thread("t")
        assert saver.ledger.body("copy", hash_) == data
        assert saver.ledger.bodies("copy") == [BodyInfo(hash_, len(data))]
        assert saver.fsck() == []
        saver.copy_thread("copy", "t")
        ask(saver, "DELETE FROM cp_bodies WHERE n = 0 AND thread = ?", thread_key("t"))
        with pytest.raises(IncompleteRecordError, match=r"\(bodies\)"):
            saver.copy_thread("t", "third")
