"""What was read lately is not read again while its thread stands as it did, and never outlives its next change."""

from __future__ import annotations

import gc
import os
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import ormsgpack
import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base.id import uuid6
from langgraph.types import Command

from checkpointers import Keep, Keyring, Saver, SqliteSaver
from checkpointers.codec import MUCH, Bundle, Codec
from checkpointers.compression import PLAIN
from checkpointers.database import now
from checkpointers.errors import BlockedTypeError, DamagedValueError, ShreddedError, ThreadBusyError
from checkpointers.paging import Listing, query_of
from checkpointers.recent import OVERHEAD, Recent
from checkpointers.resting import at_rest
from checkpointers.sealing import Digests, element_place
from checkpointers.sqlite_file import AT_ONCE
from checkpointers.strict import StrictSerializer
from tests.checkpointers.graphs import DeltaState, State, config, loop, of_a_run, review
from tests.checkpointers.test_fsck import ask, damaged, rows_of
from tests.checkpointers.test_storage import listening, put, rows, values
from tests.checkpointers.wild import Point, difference
from tests.conftest import reopen

KEYS = Keyring({"a": bytes(range(32))})


def asked_for(saver: Saver, call: Callable[[], Any]) -> tuple[list[str], Any]:
    """Give the kinds of requests that a call makes, and what it gives."""
    asked: list[Any] = []
    with listening(saver, asked):
        found = call()
    return [type(request).__name__ for request in asked], found


def search(saver: Saver, **wanted: Any) -> list[Any]:
    return [found.metadata["step"] for found in saver.list(config(), filter=wanted)]


READINGS = [
    pytest.param(lambda saver: saver.get_tuple(config()), id="state"),
    pytest.param(lambda saver: saver.get_tuple(config(checkpoint_id=saver.steps("t")[-5].id)), id="older"),
    pytest.param(lambda saver: list(saver.list(config(), filter={"step": 3})), id="search"),
    pytest.param(lambda saver: list(saver.list(config(), filter={"step": 99})), id="search in vain"),
]


@pytest.mark.parametrize("schema", [State, DeltaState])
@pytest.mark.parametrize("reading", READINGS)
def test_the_same_again_asks_for_one_row(url: str, reading: Callable[[Saver], Any], schema: Any) -> None:
    """It is what was read before, and what a saver reads that keeps nothing."""
    with reopen(url) as saver, reopen(url, memory_bytes=0) as keeps_nothing:
        loop(saver, schema).invoke({"until": 9, "n": 0, "messages": [HumanMessage("hi", id="m")]}, config())
        first = reading(saver)
        again, found = asked_for(saver, lambda: reading(saver))
        assert again.count("Together") == 0
        assert again[-1] == "Statement"
        once_more, plain = asked_for(keeps_nothing, lambda: reading(keeps_nothing))
        assert "Together" in once_more
        assert difference(first, found) is None
        assert difference(found, plain) is None
        assert "Together" in asked_for(keeps_nothing, lambda: reading(keeps_nothing))[0]


def test_what_a_delta_channel_was_told_again(url: str) -> None:
    """One row too, for the same channels of the same checkpoint."""
    with reopen(url) as saver, reopen(url, memory_bytes=0) as keeps_nothing:
        loop(saver, DeltaState).invoke({"until": 30, "n": 0}, config())
        place = config(checkpoint_id=saver.get_tuple(config()).checkpoint["id"])

        def told(of: Saver, *channels: str) -> Any:
            return of.get_delta_channel_history(config=place, channels=channels)

        first = told(saver, "messages", "log")
        again, found = asked_for(saver, lambda: told(saver, "messages", "log"))
        assert again == ["Statement"]
        assert difference(first, found) is None
        assert difference(found, told(keeps_nothing, "messages", "log")) is None
        assert asked_for(saver, lambda: told(saver, "messages"))[0] == ["Together"]  # the way to it is known
        assert difference(told(saver, "messages"), {"messages": first["messages"]}) is None


def test_nobody_changes_what_is_kept(url: str) -> None:
    """Everything handed out is the caller's own."""
    with reopen(url) as saver:
        place = put(saver, {"list": [{"a": [1]}], "messages": [HumanMessage("as it was", id="m")]})
        saver.put_writes(place, [("list", [{"b": [2]}])], "task")
        first = saver.get_tuple(config())
        for found in (saver.get_tuple(config()), saver.get_tuple(config())):
            assert difference(found, first) is None
            found.checkpoint["channel_values"]["list"][0]["a"].append(9)
            found.checkpoint["channel_values"]["messages"][0].content = "changed"
            found.checkpoint["channel_versions"]["list"] = 9
            found.checkpoint["versions_seen"]["n"] = {"x": 1}
            found.metadata["parents"]["x"] = "y"
            found.pending_writes[0][2][0]["b"].append(9)
            found.pending_writes.clear()
        assert difference(saver.get_tuple(config()), first) is None


def change(name: str, writer: Saver) -> None:
    """Change a thread in one of the ways there are."""
    head = writer.get_tuple(config())
    if name == "put":
        put(writer, {"n": "another"}, after=head.config, version=100)
    elif name == "write":
        writer.put_writes(head.config, [("n", "pending")], "task")
    elif name == "special write":
        writer.put_writes(head.config, [("__interrupt__", "x")], "task")
    elif name == "delete":
        writer.delete_thread("t")
    elif name == "prune":
        writer.prune(["t"])
    elif name == "retain":
        writer.retain(Keep(last=2))
    elif name == "run":
        loop(writer).invoke({"until": 12}, config())
    else:
        writer.delete_thread("t")
        put(writer, {"n": "in another life"})


CHANGES = ["put", "write", "special write", "delete", "prune", "retain", "run", "another life"]


@pytest.mark.parametrize("by", ["itself", "another"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen_at_once(url: str, name: str, by: str) -> None:
    """Whoever made it: what was kept of the thread before is not given any more."""
    with ExitStack() as opened:
        saver = opened.enter_context(reopen(url))
        writer = saver if by == "itself" else opened.enter_context(reopen(url))
        loop(saver).invoke({"until": 9, "n": 0}, config())
        for _ in range(2):
            saver.get_tuple(config())
            search(saver, source="loop")
        change(name, writer)
        with reopen(url, memory_bytes=0) as fresh:
            for reading in (lambda of: of.get_tuple(config()), lambda of: search(of, source="loop")):
                for _ in range(2):
                    assert difference(reading(saver), reading(fresh)) is None


def test_a_lease_hides_no_holder(url: str) -> None:
    """A thread that is held is read as before; who goes on from what was kept is refused as ever."""
    with reopen(url) as saver, reopen(url) as other:
        loop(saver).invoke({"until": 3, "n": 0}, config())
        with other.lease("t") as lease:
            first = saver.get_tuple(config())
            assert other._desk.renew(lease)
            again, found = asked_for(saver, lambda: saver.get_tuple(config()))
            assert again == ["Statement"]
            assert difference(first, found) is None
            saver._memory.forget()
            with pytest.raises(ThreadBusyError):
                put(saver, {"n": 1}, after=found.config, version=50)


def test_a_review_is_answered_from_what_was_kept(url: str) -> None:
    """A thread that waits is read twice, then resumed: its interrupts and its answers are as ever."""
    with reopen(url) as saver:
        app = review(saver)
        app.invoke({"n": 0}, config())
        waiting = [{one.id: one.value["ask"] for one in app.get_state(config()).interrupts} for _ in range(2)]
        assert waiting[0] == waiting[1]
        assert sorted(waiting[0].values()) == [1, 2]
        app.invoke(Command(resume={id_: f"yes {ask}" for id_, ask in waiting[0].items()}), config())
        assert sorted(app.get_state(config()).values["answers"]) == ["yes 1", "yes 2"]


def test_nothing_of_a_shredded_thread_is_kept(url: str) -> None:
    """Neither where its key was thrown away, nor elsewhere."""
    with reopen(url, keys=KEYS) as saver, reopen(url, keys=KEYS) as other:
        put(saver, {"secret": "of the thread"})
        for one in (saver, other, saver, other):
            assert values(one) == {"secret": "of the thread"}
        saver.shred("t")
        assert not saver._recent._threads
        for one in (saver, other):
            with pytest.raises(ShreddedError):
                one.get_tuple(config())


def test_values_of_every_form_are_kept_or_read_again(url: str) -> None:
    """What has no place among others in one payload is read as ever."""
    strange = {
        "bytes": b"\x00" * 99, "bytearray": bytearray(b"x" * 99), "none": None, "empty": [], "tiny": [1, 2.5, "x"] * 99,
        "table": {f"k{n}": n for n in range(99)}, "wide": dict.fromkeys(range(99), "text" * 20), "nested": [[[]]] * 99,
    }  # fmt: skip
    with reopen(url) as saver, reopen(url) as other:
        put(saver, strange)
        for _ in range(3):
            assert difference(values(saver), strange) is None
        del strange["bytearray"], strange["bytes"]
        other.delete_thread("t")
        put(other, strange)
        for _ in range(3):
            assert difference(values(saver), strange) is None
        assert asked_for(saver, lambda: values(saver))[0] == ["Statement"]


def test_many_channels_are_read_in_one_go(url: str) -> None:
    """However many: as many as one statement asks for, one more, and several times as many."""
    with reopen(url) as saver, reopen(url) as other:
        for count in (AT_ONCE, AT_ONCE + 1, 3 * AT_ONCE):
            state = {f"channel {n}": [{"of": n, "text": "long enough to be an element"}] for n in range(count)}
            put(saver, state)
            assert difference(values(other), state) is None


def test_a_value_that_is_two_stays_in_its_channel(url: str) -> None:
    """An element that holds more than one value moves no other channel's into another's place."""
    with reopen(url) as saver:
        state = {name: f"a text that is stored as an element of {name}" for name in ("a", "b", "c")}
        put(saver, state)
        key = saver._tools().key("t")
        channel = next(row for row in rows_of(saver, "cp_elements") if b"of b" in bytes(row["body"]))
        two = b"".join((PLAIN, b"\x01", ormsgpack.packb(state["b"]), ormsgpack.packb("and another text")))
        place = element_place(key, channel["channel"], channel["n"])
        with damaged(saver, "cp_elements", (channel, channel | {"body": Digests().seal(place, two)})):
            for _ in range(2):
                assert values(saver) == state
            assert not saver._recent._threads


def test_only_a_run_takes_note_of_what_it_loads(url: str) -> None:
    """Who looks at a long state pays for no look at its elements; a run, which stores the next, had it when it loaded."""
    with reopen(url) as saver:
        app = loop(saver)
        app.invoke({"until": 30, "n": 0}, config())
        before = {channel: rows(saver, channel) for channel in ("log", "n")}
    with reopen(url) as saver:
        app = loop(saver)
        app.get_state(config())
        assert not saver._memory._threads
        app.update_state(config(), {"log": ["by hand"]}, as_node="work")
        assert rows(saver, "log")[0] == before["log"][0] + 1
    with reopen(url) as saver:
        saver.get_tuple(of_a_run())
        assert saver._memory._threads["t"].last


def test_going_on_from_what_was_kept_stores_nothing_twice(url: str) -> None:
    """Who forgot what is stored learns it from what was kept as well as from what is read."""
    with reopen(url) as saver:
        items = [{"id": n, "text": f"item number {n} " * 4} for n in range(40)]
        place = put(saver, {"list": items[:39]})
        for _ in range(2):
            saver._memory.forget()
            saver._memory._threads.clear()
            found = saver.get_tuple(of_a_run())
        put(saver, {"list": items}, after=place, version=2)
        assert rows(saver, "list")[0] == 40
        assert difference(values(saver), {"list": items}) is None
        assert found is not None


def test_a_thread_in_another_life_while_it_is_listed(url: str) -> None:
    """Elements that a listing read before are not taken for those that have their numbers now."""
    with reopen(url) as saver, reopen(url) as other:

        def live(text: str) -> None:
            place = None
            for step in range(1, 8):
                place = put(
                    other, {"list": [f"{text} {n}, long enough " * 3 for n in range(step)]}, after=place, version=step
                )

        live("in the first life")
        listing = saver.list(config())
        before = next(listing)
        other.delete_thread("t")
        live("in another life, longer")
        after = list(listing)
        assert "first" in str(before.checkpoint["channel_values"])
        assert after
        assert not any("first" in str(one.checkpoint["channel_values"]) for one in after)


def test_what_cannot_be_decoded_again_is_read_again(url: str) -> None:
    """Whatever became of what was kept: the rows say what is right."""
    with reopen(url) as saver:
        put(saver, {"list": [1, 2, 3], "text": "some"})
        first, searched = saver.get_tuple(config()), search(saver, source="loop")
        (kept,) = saver._recent._threads.values()
        for name, ((thread, found), size) in list(kept.found.items()):
            broken = Bundle(b"\xc1", ["list"], [])
            again = (found[0], broken) if name[0] == "state" else ([(found[0][0][0], broken)], None)
            kept.found[name] = ((thread, again), size)
        assert difference(saver.get_tuple(config()), first) is None
        assert search(saver, source="loop") == searched


def test_another_serializer_is_not_given_what_was_kept(url: str) -> None:
    """What it may not build is refused with its place, as when it is read for the first time."""
    with reopen(url) as saver:
        put(saver, {"mine": Point(1, 2)})
        for _ in range(2):
            assert values(saver) == {"mine": Point(1, 2)}
        saver.serde = StrictSerializer()
        with pytest.raises(BlockedTypeError, match=r"channel 'mine' of t@1"):
            values(saver)


@pytest.mark.parametrize("wanted", [True, False])
def test_nobody_looks_for_garbage_while_much_is_decoded(wanted: bool) -> None:
    """Neither then nor, where the caller wants none, afterwards; and all is as it was, whatever becomes of it."""
    seen: list[bool] = []

    class Looking(StrictSerializer):
        def loads_typed(self, data: tuple[str, bytes]) -> Any:
            seen.append(gc.isenabled())
            return super().loads_typed(data)

    codec = Codec(Looking())
    much, little = (codec.payload("x", ["text"] * count) for count in (MUCH, 9))
    try:
        if not wanted:
            gc.disable()
        for payload in (much, little, much[: MUCH + 9]):
            with suppress(DamagedValueError):
                codec.value(payload)
            assert gc.isenabled() is wanted
    finally:
        gc.enable()
    assert seen == [False, wanted, False]


def test_a_process_forked_meanwhile_looks_for_garbage() -> None:
    """Nobody else is left in it to see to that."""

    def forked(_: Any) -> int:
        if (child := os.fork()) == 0:
            os._exit(0 if gc.isenabled() else 1)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert at_rest(forked, None) == 0
    assert gc.isenabled()


def overwrite(path: Path, data: bytes) -> None:
    with path.open("r+b") as file:
        file.write(data)
        file.truncate(len(data))


def changed(path: Path, sql: str, *params: Any) -> bytes:
    """Give a database after a statement, as one file; the file itself stays as it is."""
    before = path.read_bytes()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute(sql, params)
        connection.commit()
        connection.execute("PRAGMA journal_mode=WAL")
    after = path.read_bytes()
    overwrite(path, before)
    return after


def test_a_look_that_was_thrown_away_is_not_kept(tmp_path: Path) -> None:
    """Who reads a file at rest that is written meanwhile looks again, and never meets again what was half of each."""
    path = tmp_path / "x.db"
    with SqliteSaver.open(path) as writer:
        place = put(writer, {"n": "x"})
    before = path.read_bytes()
    with SqliteSaver.open(path) as writer:
        writer.put_writes(place, [("n", "pending")], "task")
        columns = ask(writer, "SELECT * FROM cp_threads")[0]
    after = path.read_bytes()
    overwrite(path, before)
    half = changed(path, f"REPLACE INTO cp_threads VALUES ({', '.join('?' * len(columns))})", *columns)
    with SqliteSaver.open(path, read_only=True) as saver:
        really, looks = saver.database._read, list[bytes]([half, after])

        def look(operation: Any) -> Any:
            overwrite(path, looks[0])
            try:
                return really(operation)
            finally:
                overwrite(path, looks[-1])
                looks[:] = looks[-1:]

        saver.database._read = look
        for _ in range(3):
            assert [write[2] for write in saver.get_tuple(place).pending_writes] == ["pending"]


def test_what_a_page_met_in_vain_is_read_again(url: str) -> None:
    """A listing goes on where a second look finds sound what the first one did not."""
    with reopen(url) as saver:
        place = None
        for step in range(1, 8):
            state = {"old" if step < 7 else "new": [f"{step}, long enough to be an element " * 3]}
            place = put(saver, state, after=place, version=step)
        listing = saver.list(config())
        next(listing)
        pairs = [(row, row | {"body": b"x" * 19}) for row in rows_of(saver, "cp_elements")]
        really, first = saver.database.read, [True]

        def look(operation: Any) -> Any:
            if not first:
                return really(operation)
            first.clear()
            with damaged(saver, "cp_elements", *pairs):
                return really(operation)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(saver.database, "read", look)
            assert len(list(listing)) == 6


def test_a_listing_of_a_channel_that_became_small(url: str) -> None:
    """What stands in place in a newer checkpoint is read as elements of an older one."""
    with reopen(url) as saver:
        states = [{"c": ["long enough to be an element " * 3]}, {"c": "small"}, {}, {"c": []}]
        place = None
        for step, state in enumerate(states * 3, 1):
            place = put(saver, state, after=place, version=step)
        found = [one.checkpoint["channel_values"] for one in saver.list(config())]
        assert found == (states * 3)[::-1]


def test_a_listing_goes_on_while_others_remove_what_it_listed(url: str) -> None:
    """It began when the thread had more: that is no damage."""
    with reopen(url) as saver, reopen(url) as other:
        loop(saver).invoke({"until": 30, "n": 0}, config())
        listing = saver.list({"configurable": {"thread_id": "t"}})
        newest = [next(listing) for _ in range(3)]
        other.retain(Keep(last=9))
        assert [*newest, *listing][:9] == list(other.list({"configurable": {"thread_id": "t"}}))


def test_a_listing_goes_on_while_others_add_to_what_it_listed(url: str) -> None:
    """What it gives is all that there was when it began."""
    with reopen(url) as saver, reopen(url) as other:
        loop(saver).invoke({"until": 30, "n": 0}, config())
        before = list(saver.list({"configurable": {"thread_id": "t"}}))
        listing = saver.list({"configurable": {"thread_id": "t"}})
        newest = [next(listing) for _ in range(3)]
        loop(other).invoke({"until": 40}, config())
        assert [*newest, *listing] == before


CHANGES = {
    "delete": (lambda saver: saver.delete_thread("a"), 0),
    "prune": (lambda saver: saver.prune(["a"]), 1),
    "retain": (lambda saver: saver.retain(Keep(last=2), threads=["a"]), 2),
    "shred": (lambda saver: saver.shred("a"), 0),
    "begin again": (lambda saver: [saver.delete_thread("a"), put(saver, {"n": 1}, after=config("a", checkpoint_ns=""))], 1),
    "add": (lambda saver: put(saver, {"n": 1}, after=config("a", checkpoint_ns="")), 6),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_listing_of_all_threads_goes_on_while_others_change_them(url: str, change: str) -> None:
    """A thread is listed as it stands when its turn comes, or not at all: that is no damage."""
    with reopen(url, keys=KEYS) as saver, reopen(url, keys=KEYS) as other:
        for name in ("b", "a", "c"):
            loop(saver).invoke({"until": 3, "n": 0}, config(name))
        listing = saver.list(None)
        seen = [next(listing)]
        deed, left = CHANGES[change]
        deed(other)
        seen += listing
        by_thread = [one.config["configurable"]["thread_id"] for one in seen]
        assert [by_thread.count(name) for name in "abc"] == [left, 5, 5]
        assert len(list(saver.list(None))) == len(seen)


def test_a_writer_that_waited_for_its_turn_is_listed_once(saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looked at the clock before others wrote; by that time all threads are listed."""
    early = now()
    place = put(saver, {"x": 1})
    place = put(saver, {"x": 2}, after=place, version=2)
    listing = saver.list(None)
    seen = [next(listing)]
    with monkeypatch.context() as patch:
        patch.setattr("checkpointers.saver.now", lambda: early)
        put(saver, {"x": 3}, after=place, version=3)
    seen += listing
    assert len({one.checkpoint["id"] for one in seen}) == len(seen)


def test_a_listing_of_so_many_asks_for_them_at_once(url: str) -> None:
    """Ten are one page; the newest of a listing without a limit is read alone, and the rest is not asked for."""
    with reopen(url) as saver:
        loop(saver).invoke({"until": 30, "n": 0}, config())
        ten, found = asked_for(saver, lambda: list(saver.list(config(), limit=10)))
        one, newest = asked_for(saver, lambda: list(saver.list(config(), limit=1)))
        first, begun = asked_for(saver, lambda: next(saver.list(config())))
        assert [len(found), found[0].config, newest[0].config] == [10, begun.config, begun.config]
        assert len(ten) <= len(one) + 1
        assert first == one


def test_a_listing_holds_one_state_and_not_all(tmp_path: Path) -> None:
    """What older checkpoints do not have is let go."""
    with SqliteSaver.open(tmp_path / "x.db") as saver:
        place = None
        for step in range(1, 120):
            place = put(saver, {"text": f"{step} " * 20_000, "same": "x" * 9_000}, after=place, version=step)
        listing = Listing(saver._tools(), query_of(config(), None, None), None)
        most = 0
        while listing.more():
            listing.took(saver.database.read(listing.page))
            if listing._cursor is not None:
                stacks = listing._cursor.shelf.stacks.values()
                most = max(most, sum(len(payload) for stack in stacks for _, payload in stack.items()))
        assert 9_000 < most < 4_500_000


def test_a_thread_in_another_life_is_gone_on_with(url: str) -> None:
    """Who wrote it before opens what it is now with the key that it has now."""
    with reopen(url, keys=KEYS) as saver, reopen(url, keys=KEYS) as other:
        put(saver, {"n": "in the first life"})
        other.delete_thread("t")
        place = put(other, {"n": "in another"})
        put(saver, {"n": "gone on"}, after=place, version=2)
        assert [one.checkpoint["channel_values"]["n"] for one in other.list(config())] == ["gone on", "in another"]


def test_what_is_kept_is_weighed(tmp_path: Path) -> None:
    """Metadata, versions and the thread's row count too: twenty times the budget is not held."""
    with SqliteSaver.open(tmp_path / "x.db") as writer:
        versions = {f"channel {n}": 1 for n in range(100)}
        for thread in range(60):
            checkpoint = {
                "v": 4, "id": str(uuid6()), "ts": "", "channel_values": versions, "channel_versions": versions,
                "versions_seen": {f"node {n}": versions for n in range(20)}, "updated_channels": None,
            }  # fmt: skip
            metadata = {"source": "loop", "step": 1, "parents": {}, "note": os.urandom(20_000).hex()}
            writer.put(config(f"t{thread}", checkpoint_ns=""), checkpoint, metadata, versions)
    with SqliteSaver.open(tmp_path / "x.db", memory_bytes=4 << 20) as saver:
        for thread in range(60):
            saver.get_tuple(config(f"t{thread}"))
        assert 1 < len(saver._recent._threads) < 10


def test_the_oldest_go_first() -> None:
    """What is kept stays within its budget; what was asked for last stays longest."""
    recent = Recent(3 * (2 * OVERHEAD + 100))
    for thread in range(5):
        recent.keep(thread, ("row", thread), "asked", f"found {thread}", size=100)
        recent.of(2, "asked")
    assert [thread for thread in range(5) if recent.of(thread, "asked")] == [2, 3, 4]
    assert recent.of(2, "asked") == (("row", 2), "found 2")
    assert recent.of(2, "something else") is None
    recent.keep(2, ("another row", 2), "something else", "new", size=100)
    assert recent.of(2, "asked") is None
    recent.keep(9, ("row", 9), "asked", "too much", size=20_000)
    assert recent.of(9, "asked") is None
    assert recent.of(2, "something else") == (("another row", 2), "new")
    recent.forget()
    assert not recent._threads
    assert not recent._bytes
    for asked in ("asked", "else", "asked", "else"):
        recent.keep(1, (b"row", 1), asked, "found", size=1)
    recent.forget(7)
    assert recent._bytes == 3 + OVERHEAD + 2 * (OVERHEAD + 1)
    recent.forget()
    assert not recent._bytes
