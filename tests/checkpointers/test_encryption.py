"""An encrypted saver does all that a plain one does, and without the keys nothing of it can be read."""

from __future__ import annotations

import contextvars
import os
import signal
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from checkpointers import (
    CheckpointerError,
    History,
    IntegrityError,
    Keep,
    Keyring,
    KeyringError,
    Saver,
    UnencryptedError,
)
from checkpointers.errors import ShreddedError
from checkpointers.operations.common import CHECKPOINT_COLUMNS, find_thread, open_checkpoint
from checkpointers.sealing import Digests, checkpoint_place
from checkpointers.testing import FaultyDatabase, kill_at
from tests.checkpointers.graphs import DeltaState, State, config, loop
from tests.checkpointers.test_fsck import (
    adopted,
    answered,
    ask,
    copied,
    damaged,
    diverged,
    furnish,
    labelled,
    pruned,
    replace_row,
    retained,
    rows_of,
    runs_deleted,
)
from tests.checkpointers.test_graphs import states
from tests.checkpointers.test_storage import put
from tests.checkpointers.wild import difference
from tests.conftest import reopen
from tests.proofs import canary

A, B = bytes(range(32)), bytes(range(32, 64))
FIRST, BOTH, SECOND = Keyring({"a": A}), Keyring({"a": A, "b": B}), Keyring({"b": B})
OTHER = Keyring({"a": B})


@pytest.fixture
def sealed(url: str) -> Saver:
    """Give an encrypted saver on an empty database."""
    with reopen(url, keys=FIRST) as opened:
        yield opened


# It does all that a plain one does.


@pytest.mark.slow
@pytest.mark.parametrize("deed", [pruned, retained, runs_deleted, copied, adopted, answered, diverged, labelled])
def test_it_does_what_a_plain_one_does(sealed: Saver, tmp_path: Path, deed: Callable[..., None]) -> None:
    """The same histories, listings, labels and sizes of everything, whatever is done."""
    told = []
    for saver in (sealed, reopen("sqlite:///:memory:")):
        apps = furnish(saver)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            deed(saver, apps, tmp_path)
        told.append(everything(saver, apps))
    for name, found in told[0].items():
        assert difference(found, told[1][name]) is None, name


def everything(saver: Saver, apps: dict[str, Any]) -> dict[str, Any]:
    """Give all that a saver says of its threads, but for ids, times and sizes."""
    there = {info.thread: info for info in saver.threads()}
    metadata = {"who": "ada"}
    told: dict[str, Any] = {name: states(app, name) for name, app in apps.items() if name in there}
    told |= {f"{name} history": [(s.number, s.status, sorted(s.wrote)) for s in History(saver, name)] for name in there}
    told["threads"] = sorted((i.thread, i.status, i.step, i.checkpoints, i.tags, i.pins) for i in there.values())
    told["by metadata"] = [i.thread for i in saver.threads(metadata=metadata)]
    listed = list(saver.list(None, filter=metadata))
    told["filtered"] = sorted((t.config["configurable"]["thread_id"], t.metadata["step"]) for t in listed)
    told["one"] = len(list(saver.list(None, filter={"source": "loop", "step": 1})))
    told["usage"] = sorted((u.thread, u.channel, u.rows) for u in saver.usage())
    told["channel"] = [saver.get_channel(config(name), "n") for name in there]
    told["sizes agree"] = all(i.bytes == sum(u.bytes for u in saver.usage(i.thread)) for i in there.values())
    assert told["sizes agree"]
    return told


def test_another_process_goes_on(url: str) -> None:
    """What one saver wrote another one with the same keys reads, and goes on from, with a lease and without."""
    for until in (3, 6, 9):
        with reopen(url, keys=FIRST) as saver:
            for schema in (State, DeltaState):
                with saver.lease(schema.__name__):
                    loop(saver, schema).invoke({"until": until, "n": until - 3}, config(schema.__name__))
    with reopen(url, keys=BOTH) as saver:
        loop(saver).invoke({"until": 11}, config("State"))
        assert [e["id"] for e in loop(saver).get_state(config("State")).values["log"]] == list(range(11))
        assert [e["id"] for e in loop(saver, DeltaState).get_state(config("DeltaState")).values["log"]] == list(
            range(9)
        )


# Without the right keys it says so.

LOOKS: dict[str, Callable[[Saver, str], Any]] = {
    "get": lambda saver, name: saver.get_tuple(config(name)),
    "list": lambda saver, name: list(saver.list(config(name))),
    "channel": lambda saver, name: saver.get_channel(config(name), "n"),
    "steps": lambda saver, name: saver.steps(name),
    "history": lambda saver, name: list(History(saver, name)),
    "delta": lambda saver, name: saver.get_delta_channel_history(config=config(name), channels=["log"]),
    "put": lambda saver, name: put(saver, {"x": 1}, after=config(name, checkpoint_ns="")),
    "writes": lambda saver, name: saver.put_writes(
        config(name, checkpoint_ns="", checkpoint_id="c"), [("x", 1)], "task"
    ),
    "copy": lambda saver, name: saver.copy_thread(name, "another"),
    "prune": lambda saver, name: saver.prune([name]),
    "tag": lambda saver, name: saver.tag(name, "x"),
    "lease": lambda saver, name: saver.lease(name).__enter__(),
    "recover": lambda saver, name: saver.recover(name, into="another"),
}


def refuses(saver: Saver, name: str, error: type[Exception], match: str) -> None:
    for what, look in LOOKS.items():
        try:
            look(saver, name)
        except error as refusal:
            assert match in str(refusal), (what, refusal)  # noqa: PT017
        else:
            pytest.fail(f"{what} was not refused")


def test_without_the_keys_nothing_is_read_or_written(url: str) -> None:
    """No keys, other keys under the same id, keys under other ids: each refusal says what to do."""
    with reopen(url, keys=FIRST) as saver:
        loop(saver, DeltaState).invoke({"until": 3, "n": 0}, config())
        before = [rows_of(saver, table) for table in ("cp_threads", "cp_checkpoints", "cp_writes", "cp_elements")]
    wrong: list[tuple[Any, str]] = [
        (None, "open the saver with keys=Keyring"), (OTHER, "does not open"), (SECOND, "no key 'a' in the keyring"),
    ]  # fmt: skip
    for keys, said in wrong:
        with reopen(url, keys=keys) as saver:
            refuses(saver, "t", CheckpointerError if keys else KeyringError, said)
            with pytest.raises(KeyringError, match=said):
                saver.threads()
            (found,) = saver.fsck()
            assert said in found.what
            assert [rows_of(saver, t) for t in ("cp_threads", "cp_checkpoints", "cp_writes", "cp_elements")] == before
            if keys:
                with pytest.raises(KeyringError, match=said):
                    saver.rotate() if keys is OTHER.with_new("c") else reopen(url, keys=keys.with_new("c")).rotate()
    with reopen(url, keys=FIRST) as saver:
        assert loop(saver, DeltaState).get_state(config()).values["n"] == 3


def test_a_thread_in_clear_is_refused_unless_migrating(url: str) -> None:
    """Fails closed: with a keyring only encrypted threads are read, or written."""
    with reopen(url) as saver:
        loop(saver, DeltaState).invoke({"until": 3, "n": 0}, config())
        with pytest.raises(KeyringError, match="no key of its own"):
            saver.shred("t")
        with pytest.raises(KeyringError, match="keys=Keyring"):
            saver.rotate()
    with reopen(url, keys=FIRST) as saver:
        refuses(saver, "t", UnencryptedError, "open the saver with migrating=True and call rotate()")
        assert saver.rotate().encrypted == 0
    with reopen(url, keys=FIRST, migrating=True) as saver:
        app = loop(saver, DeltaState)
        app.invoke({"until": 6}, config())
        app.invoke({"until": 2, "n": 0}, config("new"))
        assert len(rows_of(saver, "cp_keys")) == 1
        done = saver.rotate()
        assert (done.rewrapped, done.encrypted, done.by_key) == (0, 1, {"a": 2})
        assert app.invoke({"until": 7}, config())["n"] == 7
    with reopen(url, keys=FIRST) as saver:
        assert [e["id"] for e in loop(saver, DeltaState).get_state(config()).values["log"]] == list(range(7))
        assert saver.fsck() == []
    with reopen(url) as saver, pytest.raises(KeyringError, match="is encrypted"):
        saver.get_tuple(config())


# Rotation.


def several(saver: Saver, *names: str, until: int = 2) -> None:
    for number, name in enumerate(names):
        loop(saver, DeltaState if number % 2 else State).invoke({"until": until, "n": 0}, config(name))


def logs(saver: Saver, *names: str) -> list[int]:
    return [
        loop(saver, DeltaState if n % 2 else State).get_state(config(name)).values.get("n")
        for n, name in enumerate(names)
    ]


def test_a_new_master_key_and_the_old_one_taken_away(url: str) -> None:
    """Rows stay as they are, keys are wrapped anew; a key that `by_key` does not name is not needed any more."""
    names = ("a", "b", "c", "d", "e")
    with reopen(url, keys=FIRST) as saver:
        several(saver, *names)
        saver.shred("e")
        rows = rows_of(saver, "cp_checkpoints")
    with reopen(url, keys=BOTH) as saver:
        several(saver, "new")
        done = saver.rotate(batch=2)
        assert (done.rewrapped, done.encrypted, done.by_key) == (4, 0, {"b": 5})
        assert saver.rotate().rewrapped == 0
        assert [row for row in rows_of(saver, "cp_checkpoints") if row in rows] == rows
        assert loop(saver).invoke({"until": 4}, config("a"))["n"] == 4
    with reopen(url, keys=SECOND) as saver:
        assert logs(saver, *names[:4]) == [4, 2, 2, 2]
        assert saver.fsck("a") == saver.fsck("new") == []
    with reopen(url, keys=FIRST) as saver, pytest.raises(KeyringError, match="no key 'b'"):
        saver.get_tuple(config("a"))


def test_a_rotation_that_is_stopped_goes_on(url: str) -> None:
    """Stopped between two threads: all can be read, the next call does the rest."""
    names = ("a", "b", "c", "d")
    with reopen(url) as saver:
        several(saver, *names)
    for keys, column in ((FIRST, "encrypted"), (BOTH, "rewrapped")):
        with reopen(url, keys=keys, migrating=True) as real:
            left = 4
            while left:
                begun = False

                def stop(count: int, request: Any) -> None:
                    nonlocal begun
                    writes = str(getattr(request, "sql", "")).startswith(("INSERT INTO cp_keys", "UPDATE cp_keys"))
                    if writes and begun:
                        raise KeyboardInterrupt
                    begun = begun or writes

                broken = type(real)(FaultyDatabase(real.database, stop), keys=keys, migrating=True)
                with suppress(KeyboardInterrupt):
                    assert getattr(broken.rotate(batch=1), column) == left == 1
                left -= 1
                assert logs(real, *names) == [2] * 4
                assert {found.what for found in real.fsck()} == set()
            assert real.rotate().by_key == {keys.newest: 4}
    with reopen(url, keys=SECOND) as saver:
        assert logs(saver, *names) == [2] * 4


def test_a_damaged_thread_stops_no_other(url: str) -> None:
    """What cannot be rotated stays as it is and is said at the end; all others are done."""
    with reopen(url) as saver:
        several(saver, "a", "b", "c")
        key, name = min((saver._tools().key(name), name) for name in "abc")  # the first in every batch
        ask(saver, "UPDATE cp_threads SET steps = steps + 1 WHERE thread = ?", key)
    with reopen(url, keys=FIRST, migrating=True) as saver:
        with pytest.raises(IntegrityError, match=f"#{key}"):
            saver.rotate(batch=1)
        assert len(rows_of(saver, "cp_keys")) == 2
        saver.delete_thread(name)
        several(saver, name)
        (row,) = [row for row in rows_of(saver, "cp_keys") if row["thread"] == key]
        ask(saver, "UPDATE cp_keys SET key = ? WHERE thread = ?", row["key"][:-1] + bytes([row["key"][-1] ^ 4]), key)
    with reopen(url, keys=BOTH) as saver:
        with pytest.raises(KeyringError, match=f"#{key}"):
            saver.rotate(batch=1)
        assert sorted(bytes(row["master"]) for row in rows_of(saver, "cp_keys")) == [b"a", b"b", b"b"]
        for sound in {*"abc"} - {name}:
            assert saver.fsck(sound) == []


def test_writers_go_on_while_another_process_rotates(url: str) -> None:
    """Who has the keys goes on as if nothing had been; who writes in clear is stopped, and nothing of his lands."""
    with reopen(url) as plain, reopen(url, keys=FIRST, migrating=True) as other:
        places = [
            put(saver, {"x": "before"}, after=config(name, checkpoint_ns=""))
            for saver, name in ((plain, "a"), (other, "b"))
        ]
        with reopen(url, keys=FIRST, migrating=True) as rotating:
            assert rotating.rotate().by_key == {"a": 2}
        with pytest.raises(KeyringError, match="is encrypted"):
            put(plain, {"x": "in clear"}, after=places[0], version=2)
        put(other, {"x": "after"}, after=places[1], version=2)
        with reopen(url, keys=BOTH) as rotating:
            assert rotating.rotate().by_key == {"b": 2}
    with reopen(url, keys=SECOND) as saver:
        assert [len(saver.steps(name)) for name in ("a", "b")] == [1, 2]
        assert saver.fsck() == []


def test_rotation_goes_by_the_keys_and_not_by_what_stands_beside_them(url: str) -> None:
    """A wrong word on who wrapped a key does not make it be left behind."""
    with reopen(url, keys=FIRST) as saver:
        several(saver, "a", "b")
        ask(saver, "UPDATE cp_keys SET master = ?", b"b")
        assert {found.what for found in saver.fsck()} == {
            "its key is not wrapped under the master key that is named beside it"
        }
    with reopen(url, keys=BOTH) as saver:
        assert saver.rotate().rewrapped == 2
    with reopen(url, keys=SECOND) as saver:
        assert logs(saver, "a", "b") == [2, 2]


def rotate_and_die(url: str, keys: Keyring, number: int) -> bool:
    """Rotate in another process, which dies before its N-th request; tell whether it did."""
    if (child := os.fork()) == 0:
        with suppress(BaseException):
            real = reopen(url, keys=keys, migrating=True)
            type(real)(FaultyDatabase(real.database, kill_at(number)), keys=keys, migrating=True).rotate(batch=2)
            os._exit(0)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or status == 0, status
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def crash_at_requests(url: str, *, first: int, step: int) -> int:
    """Die at requests so many apart, once while encrypting and once while wrapping anew; give how many there were."""
    number, died = first, True
    ring = Keyring({"k0": A})
    while died:
        with reopen(url) as saver:
            names = [f"{number} {letter}" for letter in "abc"]
            several(saver, *names, until=1)
        died = rotate_and_die(url, ring, number)
        with reopen(url, keys=ring, migrating=True) as saver:
            assert logs(saver, *names) == [1] * 3
            assert saver.fsck() == []
        ring = ring.with_new(f"k{number}")
        died = rotate_and_die(url, ring, number) or died
        rotate_and_die(url, ring, 1 + number % 7)
        with reopen(url, keys=ring, migrating=True) as saver:
            assert logs(saver, *names) == [1] * 3
            assert saver.rotate().by_key == {ring.newest: len(saver.threads())}
        with reopen(url, keys=Keyring({ring.newest: ring._keys[ring.newest]})) as saver:
            assert logs(saver, *names) == [1] * 3
            assert saver.fsck() == []
            for name in names:
                saver.delete_thread(name)
        number += step
    return number


@pytest.mark.slow
def test_killed_while_rotating(url: str) -> None:
    """SIGKILL at requests of a rotation: nothing becomes unreadable, and the next one ends it."""
    assert crash_at_requests(url, first=3, step=9) > 20


def test_readers_while_rotating(postgres_url: str) -> None:
    """A thread that is encrypted between two statements of a reader is read again, and is not called damaged."""
    with reopen(postgres_url) as saver:
        several(saver, "a")
    for number in (2, 3, 4):
        with reopen(postgres_url) as saver:
            several(saver, f"t{number}")
        with reopen(postgres_url, keys=FIRST, migrating=True) as real:

            def rotate(count: int, request: Any, number: int = number, real: Saver = real) -> None:
                if count == number:
                    type(real)(real.database, keys=FIRST, migrating=True).rotate()

            reader = type(real)(FaultyDatabase(real.database, rotate), keys=FIRST, migrating=True)
            assert logs(reader, f"t{number}") == [2]


# What its owner leaves readable.


def labelled_run(saver: Saver, name: str, **metadata: str) -> None:
    """Run a thread whose metadata has these."""
    loop(saver).invoke({"until": 2, "log": []}, {**config(name), "metadata": metadata})


def test_what_the_owner_lists_stays_readable(url: str) -> None:
    """Without a key the listed keys of metadata can be read, and nothing else; with it, everything, by any list."""
    with reopen(url, keys=FIRST, readable=["user", "absent"]) as saver:
        labelled_run(saver, "a", user="u-7", why="canary-4711")
        labelled_run(saver, "b", why="canary-4711")
        assert saver.fsck() == []
    with reopen(url) as nobody:
        (found,) = nobody.readable()
        assert (dict(found.metadata), found.step) == ({"user": "u-7"}, 4)
        blobs = [bytes(row["metadata"]) for row in rows_of(nobody, "cp_checkpoints")]
        assert sum(b"u-7" in blob for blob in blobs) == 4
        assert not any(b"canary-4711" in blob for blob in blobs)
        with pytest.raises(KeyringError):
            nobody.threads()
    with reopen(url, keys=BOTH) as saver:
        assert [one.metadata["why"] for one in saver.threads(metadata={"user": "u-7"})] == ["canary-4711"]
        assert len(list(saver.list(config("a"), filter={"user": "u-7"}))) == 4
        saver.rotate()
        saver.copy_thread("a", "c")
        assert logs(saver, "a", "c") == [2, 2]
        assert [found.metadata for found in saver.readable()] == [{"user": "u-7"}]  # the copy was made without the list


def test_what_is_readable_cannot_be_changed(url: str) -> None:
    """A label that was changed, taken away, put elsewhere or cut is an error that names the thread."""
    with reopen(url, keys=FIRST, readable=["user"]) as saver:
        labelled_run(saver, "a", user="u-7")
        labelled_run(saver, "b", user="u-8")
        (row, other) = (
            next(row for row in rows_of(saver, "cp_checkpoints") if row["thread"] == saver._tools().key(name))
            for name in ("a", "b")
        )
        blob = bytes(row["metadata"])
        bare = blob[5 + int.from_bytes(blob[1:5], "big") :]
        for forged in (
            blob.replace(b"u-7", b"u-9"),
            bare,
            bytes(other["metadata"]),
            blob[:-1],
            blob[:3],
            b"\x11" + bare,
        ):
            with damaged(saver, "cp_checkpoints", (row, row | {"metadata": forged})):
                with pytest.raises(IntegrityError, match="^a@"):
                    list(saver.list(config("a")))
                assert saver.fsck("a")
        assert saver.fsck() == []


def test_any_value_may_stay_readable(url: str) -> None:
    """Whatever metadata holds is told as plain JSON; what is not where the thread stands is not told as if it were."""
    told = {"when": float("inf"), "pairs": {1: "a", "1": "b"}, "list": [1, None, "x"]}
    with reopen(url, keys=FIRST, readable=list(told)) as saver:
        first = {"v": 4, "id": "1", "ts": "", "channel_values": {}, "channel_versions": {}, "versions_seen": {}}
        saver.put(config(checkpoint_ns=""), first, {"source": "input", "parents": {}, **told}, {})
        (found,) = saver.readable()
        assert found.metadata["list"] == [1, None, "x"]
        assert found.metadata["when"]["text"] == "inf"
        assert sorted(found.metadata["pairs"].values()) == ["a", "b"]
        put(saver, {"x": 2}, version=2)
        assert saver.readable() == []


def test_a_shredded_thread_leaves_nothing_readable(url: str) -> None:
    """With its key a thread loses what was readable without; a label that was cut is told, and hides no other thread."""
    with reopen(url, keys=FIRST, readable=["user"]) as saver:
        labelled_run(saver, "a", user="u-7")
        labelled_run(saver, "b", user="u-8")
        row = [row for row in rows_of(saver, "cp_checkpoints") if row["thread"] == saver._tools().key("b")][-1]
        with damaged(saver, "cp_checkpoints", (row, row | {"metadata": bytes(row["metadata"])[:9]})):
            assert sorted((one.damaged, one.metadata.get("user")) for one in saver.readable()) == [
                (False, "u-7"),
                (True, None),
            ]
        saver.shred("a")
        assert [one.metadata for one in saver.readable()] == [{"user": "u-8"}]
        assert not any(b"u-7" in bytes(row["metadata"]) for row in rows_of(saver, "cp_checkpoints"))
        with pytest.raises(ShreddedError):
            saver.get_tuple(config("a"))
        saver.delete_thread("a")
        assert saver.fsck() == []


@pytest.mark.parametrize("readable", [5, None, ["a", 1], b"ab"])
def test_keys_that_are_none_are_refused(url: str, readable: Any) -> None:
    """What names no keys of metadata is a mistake that is told."""
    with pytest.raises(CheckpointerError, match="write keys of metadata"):
        reopen(url, keys=FIRST, readable=readable)


def test_readable_is_for_what_is_encrypted(url: str) -> None:
    """Without keys everything is readable: listing some of it is a mistake that is told."""
    with pytest.raises(KeyringError, match="keys=Keyring"):
        reopen(url, readable=["user"])


# Forgeries.


def test_a_row_in_clear_among_encrypted_ones_is_refused(sealed: Saver) -> None:
    """Somebody who writes to the database but has no key makes no row that is read."""
    several(sealed, "a", "b")
    key = sealed._tools().key("a")
    thread = sealed.database.read(lambda: find_thread(sealed._tools(), "a"))
    row = [row for row in rows_of(sealed, "cp_checkpoints") if row["thread"] == key][-1]
    raw = open_checkpoint(thread, tuple(row[name] for name in CHECKPOINT_COLUMNS))
    places = (row["ns"], row["step"], row["id"], row["parent"])
    place = checkpoint_place(key, places, row["at"], flags=row["flags"], metadata=row["metadata"])
    with damaged(sealed, "cp_checkpoints", (row, row | {"body": Digests().seal(place, raw)})):
        # A digest in 256 begins as a sealed row does; that one is refused by the cipher itself.
        with pytest.raises(IntegrityError, match="not a sealed row|seal of the row is broken"):
            sealed.get_tuple(config("a"))
        assert logs(sealed, "b") == [2]
    assert logs(sealed, "a") == [2]


def test_a_whole_thread_in_clear_is_refused(url: str, tmp_path: Path) -> None:
    """The rows of a plain thread of the same name, with no key, in place of an encrypted one."""
    tables = ("cp_threads", "cp_checkpoints", "cp_writes", "cp_elements")
    with reopen(url) as saver:
        several(saver, "a", "b")
        forged = {table: rows_of(saver, table) for table in tables}
        saver.delete_thread("a")
        saver.delete_thread("b")
    with reopen(url, keys=FIRST) as saver:
        several(saver, "a", "b", until=3)
        key = saver._tools().key("a")
        for table in (*tables, "cp_keys"):
            ask(saver, f"DELETE FROM {table} WHERE thread = ?", key)
        for table, rows in forged.items():
            for row in rows:
                if row["thread"] == key:
                    replace_row(saver, table, None, row)
        with pytest.raises(UnencryptedError):
            saver.get_tuple(config("a"))
        assert logs(saver, "x", "b")[1] == 3


def test_a_row_of_another_thread_is_refused(sealed: Saver) -> None:
    """Encrypted rows say nothing in another thread, nor do keys; a thread without its key is not read."""
    several(sealed, "a", "x", "b")
    one, two = (sealed._tools().key(name) for name in ("a", "b"))
    for table in ("cp_checkpoints", "cp_elements", "cp_writes", "cp_threads"):
        first, second = (next(r for r in rows_of(sealed, table)[::-1] if r["thread"] == key) for key in (one, two))
        moved = first | {name: second[name] for name in ("body", "metadata") if name in first}
        with damaged(sealed, table, (first, moved)):
            with pytest.raises(IntegrityError):
                list(sealed.list(config("a")))
            assert logs(sealed, "b") == [2]
    keys = {row["thread"]: row for row in rows_of(sealed, "cp_keys")}
    swapped = [(keys[one], keys[two] | {"thread": one}), (keys[two], keys[one] | {"thread": two})]
    with damaged(sealed, "cp_keys", *swapped):
        for name in ("a", "b"):
            with pytest.raises(KeyringError, match=f"the key of thread '{name}' does not open"):
                sealed.get_tuple(config(name))
        assert logs(sealed, "y", "x")[1] == 2
    with damaged(sealed, "cp_keys", (keys[one], None)):
        with pytest.raises(UnencryptedError):
            sealed.get_tuple(config("a"))
        assert logs(sealed, "b") == [2]
    assert logs(sealed, "a", "x", "b") == [2, 2, 2]


# Shredding.


def test_nothing_of_a_shredded_thread_is_read(sealed: Saver) -> None:
    """Every look at it is refused, in this process and in others; the name is free again once it is deleted."""
    several(sealed, "a", "b")
    other = type(sealed)(sealed.database, keys=FIRST)
    assert logs(other, "a") == [2]
    sealed.shred("a")
    for saver in (sealed, other, type(sealed)(sealed.database, keys=BOTH)):
        refuses(saver, "a", CheckpointerError, "was thrown away; delete_thread() removes what is left")
        assert {info.status for info in saver.threads()} == {"shredded", "done"}
        assert [info.thread for info in saver.threads(status="done")] == ["b"]
        assert logs(saver, "x", "b")[1] == 2
    assert sealed.rotate().by_key == {"a": 1}
    with pytest.raises(KeyringError):
        sealed.shred("a")
    with pytest.raises(KeyringError):
        sealed.shred("nobody")
    sealed.delete_thread("a")
    assert [info.thread for info in sealed.threads()] == ["b"]
    assert sealed.get_tuple(config("a")) is None
    several(sealed, "a")
    assert logs(sealed, "a", "b") == [2, 2]
    assert sealed.fsck() == []


def test_a_shredded_thread_stops_nothing_else(sealed: Saver) -> None:
    """What goes over all threads passes it by: usage, retention, the vacuum."""
    several(sealed, "a", "b", until=4)
    sealed.shred("a")
    assert {one.thread for one in sealed.usage()} >= {"b"}
    assert [plan.thread for plan in sealed.retain(Keep(last=2))] == ["b"]
    assert {found.thread for found in sealed.fsck()} == {f"#{sealed._tools().key('a')}"}
    sealed.vacuum()


@pytest.mark.parametrize("how", ["listing", "runs"])
def test_a_shredded_thread_does_not_stop_listings(sealed: Saver, how: str) -> None:
    """Listing all checkpoints, and deleting runs by their ids, go on with the other threads."""
    several(sealed, "a", "b")
    sealed.shred("a")
    if how == "listing":
        assert {found.config["configurable"]["thread_id"] for found in sealed.list(None)} == {"b"}
    else:
        sealed.delete_for_runs(["no such run"])


def test_a_writer_in_another_process_stops_at_its_next_write(url: str) -> None:
    """A key that a process still has in its memory is of no use once the stored one is gone."""
    told, asked = os.pipe(), os.pipe()
    if (child := os.fork()) == 0:
        with suppress(BaseException):
            with reopen(url, keys=FIRST) as saver:
                place = put(saver, {"x": 1})
                os.write(told[1], b"written")
                os.read(asked[0], 10)
                try:
                    put(saver, {"x": 2}, after=place, version=2)
                except ShreddedError:
                    os._exit(7)
            os._exit(8)
        os._exit(9)
    assert os.read(told[0], 10) == b"written"
    with reopen(url, keys=FIRST) as saver:
        before = rows_of(saver, "cp_checkpoints")
        saver.shred("t")
        os.write(asked[1], b"go on")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert rows_of(saver, "cp_checkpoints") == before
    for end in (*told, *asked):
        os.close(end)


def test_a_lease_keeps_a_thread_from_being_shredded_by_others(sealed: Saver) -> None:
    """Whoever holds it may; for the others it is busy."""
    several(sealed, "a")
    other = contextvars.copy_context()
    lease = sealed.lease("a", owner="the holder")
    other.run(lease.__enter__)
    with pytest.raises(CheckpointerError, match="the holder"):
        sealed.shred("a")
    other.run(sealed.shred, "a")
    with pytest.raises(ShreddedError):
        sealed.get_tuple(config("a"))
    with suppress(ShreddedError):  # see the next test
        other.run(lease.__exit__, None, None, None)


def test_a_lease_on_a_shredded_thread_is_given_back(sealed: Saver) -> None:
    """The end of the block is no error, and the name is free at once."""
    several(sealed, "a")
    with sealed.lease("a"):
        sealed.shred("a")
    sealed.delete_thread("a")


def test_a_copy_has_a_key_of_its_own(sealed: Saver) -> None:
    """Shredding one of the two leaves the other, whichever it is; so it is with a recovered thread."""
    several(sealed, "a")
    sealed.copy_thread("a", "b")
    sealed.recover("a", into="c")
    keys = {bytes(row["key"]) for row in rows_of(sealed, "cp_keys")}
    bodies = [bytes(row["body"]) for table in ("cp_checkpoints", "cp_elements") for row in rows_of(sealed, table)]
    assert len(keys) == 3
    assert len(set(bodies)) == len(bodies)
    sealed.shred("a")
    assert logs(sealed, "b") == logs(sealed, "c") == [2]
    sealed.shred("c")
    assert loop(sealed).invoke({"until": 4}, config("b"))["n"] == 4


def test_no_two_rows_have_the_same_nonce(sealed: Saver) -> None:
    """Every row is sealed anew, those that are written twice too."""
    furnish(sealed)
    labelled(sealed, {"plain": loop(sealed)}, Path())
    found = [bytes(row[name]) for table in ("cp_checkpoints", "cp_elements", "cp_writes", "cp_threads") for row in rows_of(sealed, table) for name in ("body", "metadata") if name in row]  # fmt: skip
    assert all(blob[0] == 0x10 for blob in found)
    assert len({blob[1:13] for blob in found}) == len(found)


# The canary.


def test_a_canary_is_nowhere_in_clear(url: str) -> None:
    """Planted in every kind of value, it is found in a plain database and in no file or table of an encrypted one."""
    found = canary.look_everywhere(url)
    assert found.places > 15
    assert not found.unseen, "the search has not the power to find these"
    assert not found.clear
    assert not found.after_rotation
    assert all(line.startswith(("pg_wal", "base, pg_statistic")) for line in found.left)


def test_the_statistics_of_postgres_have_no_samples(postgres_url: str) -> None:
    """ANALYZE, which Postgres runs by itself too, does not copy contents into a table that no rotation reaches."""
    with reopen(postgres_url) as saver:
        several(saver, "a", "b")
        saver.vacuum()
    with psycopg.connect(postgres_url) as connection:
        sampled = connection.execute(
            "SELECT tablename, attname FROM pg_stats WHERE schemaname = 'checkpointers' AND attname IN"
            " ('body', 'metadata') AND (most_common_vals IS NOT NULL OR histogram_bounds IS NOT NULL)"
        ).fetchall()
    assert sampled == []


def test_the_key_of_a_shredded_thread_is_not_left_in_the_file(tmp_path: Path) -> None:
    """Not in a free page, not in the log: whoever has the master key finds nothing to unwrap."""
    with reopen(f"sqlite:///{tmp_path}/a.db", keys=FIRST) as saver:
        several(saver, "a", "b", "c")
        (row,) = [row for row in rows_of(saver, "cp_keys") if row["thread"] == saver._tools().key("b")]
        saver.shred("b")
        files = [path.read_bytes() for path in tmp_path.iterdir()]
        assert len(files) == 3
        assert not any(bytes(row["key"])[-28:] in data for data in files)


def test_a_slip_of_the_pen_is_not_a_plain_database(url: str) -> None:
    """An option that does not exist is refused: who meant to encrypt does not write in clear."""
    with pytest.raises(CheckpointerError, match="no option 'key'; it has types, serde, memory_bytes, keys"):
        reopen(url, key=object())
