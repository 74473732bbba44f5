"""Storage grows with new information only; what changed in place is noticed; what is deleted frees its room."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from pydantic import BaseModel

from checkpointers import PostgresSaver, Saver, SqliteSaver
from checkpointers.fingerprint import GROUP, HANDFUL, Packer, vars_of
from checkpointers.postgres_server import PostgresDatabase
from checkpointers.statements import Together
from checkpointers.strict import StrictSerializer
from checkpointers.testing import FaultyDatabase
from tests.checkpointers.graphs import DeltaState, State, config, loop, of_a_run
from tests.checkpointers.wild import difference
from tests.conftest import reopen


def put(
    saver: Saver,
    values: dict[str, Any],
    *,
    after: dict[str, Any] | None = None,
    version: int = 1,
    same: dict[str, int] | None = None,
) -> dict[str, Any]:
    """Store a checkpoint in which every channel is new, but for those that are the same since a version."""
    versions = dict.fromkeys(values, version) | (same or {})
    checkpoint = {
        "v": 4, "id": str(uuid6()), "ts": "2026-01-02T03:04:05+00:00", "channel_values": values,
        "channel_versions": versions, "versions_seen": {}, "updated_channels": None,
    }  # fmt: skip
    place = after or config(checkpoint_ns="")
    new = {channel: version for channel in versions if channel not in (same or ())}
    return saver.put(place, checkpoint, {"source": "loop", "step": version, "parents": {}}, new)


def rows(saver: Saver, channel: str) -> tuple[int, int]:
    """Give how many element rows a channel has, and their bytes."""
    return next(((u.rows, u.bytes) for u in saver.usage("t") if u.channel == channel), (0, 0))


def values(saver: Saver, at: dict[str, Any] | None = None) -> dict[str, Any]:
    found = saver.get_tuple(at or config())
    assert found is not None
    return found.checkpoint["channel_values"]


def items(count: int) -> list[dict[str, Any]]:
    return [{"id": n, "text": f"item number {n} " * 4} for n in range(count)]


@contextmanager
def listening(saver: Saver, asked: list[Any]) -> Iterator[None]:
    """Note every request that reaches the database, which answers as ever."""
    inner = saver.database
    saver.database = FaultyDatabase(inner, lambda _, request: asked.append(request))
    try:
        yield
    finally:
        saver.database = inner


dumped = StrictSerializer().dumps_typed


def test_unchanged_elements_are_stored_once(saver: Saver) -> None:
    """A list that grows by one stores one element each time; a static channel is stored once."""
    place = None
    for count in range(1, 40):
        place = put(saver, {"list": items(count), "static": "x" * 5_000}, after=place, version=count)
    assert rows(saver, "list")[0] == 39
    assert rows(saver, "static")[0] == 1
    assert values(saver) == {"list": items(39), "static": "x" * 5_000}


def test_branches_that_grow_in_turn_stay_apart(saver: Saver) -> None:
    """What did not change is what the parent has, not what was stored last: both count their versions alike."""
    ends = [put(saver, {"x": ["of both"], "y": 0})] * 2
    for version in range(2, 6):
        for branch in (0, 1):
            state = {"x": [f"of branch {branch}"], "y": [branch, version]}
            same = {"x": 2} if version > 2 else {}
            ends[branch] = put(saver, state, after=ends[branch], version=version, same=same)
    assert [values(saver, end) for end in ends] == [
        {"x": [f"of branch {branch}"], "y": [branch, 5]} for branch in (0, 1)
    ]


def test_a_write_and_the_checkpoint_made_of_it_share_elements(saver: Saver) -> None:
    """What a task wrote is not stored again in the checkpoint; nor is a single message written without a list."""
    start = put(saver, {"log": []})
    fact, message = items(1)[0], AIMessage("a message long enough to be stored as an element", id="1")
    saver.put_writes(start, [("log", [fact]), ("messages", message)], "task")
    put(saver, {"log": [fact], "messages": [message]}, after=start, version=2)
    assert rows(saver, "log")[0] == 1
    assert rows(saver, "messages")[0] == 1


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ([["builtins.tuple", [1, 2]]], [(1, 2)]),
        ([["builtins", "tuple", [1, 2]]], [(1, 2)]),
        ([["uuid.UUID", *dumped(UUID(int=1))]], [UUID(int=1)]),
        ([["uuid", "UUID", *dumped(UUID(int=1))]], [UUID(int=1)]),
        ([["langchain_core.messages.ai.AIMessage", *vars_of(AIMessage("x"))]], [(AIMessage("x"),)]),
        ([AIMessage("x")], [*b"angchain_core.messages.ai.AIMessage:", AIMessage("x").__dict__]),
        ([AIMessage("x")], [*b"langchain_core.messages.ai.AIMessage:", AIMessage("x").__dict__]),
        ([0] * 40 + [AIMessage("x")], [0] * 40 + [["langchain_core.messages.ai", "AIMessage"], AIMessage("x").__dict__]),
        ({"a": "x" * 60}, [100, {"a": "x" * 60}]),
        (["x" * 60, 1], [108, "x" * 60, 1]),
        (b"x" * 60, bytearray(b"x" * 60)),
        (UUID(int=1), ["uuid.UUID", *dumped(UUID(int=1))]),
    ],
)  # fmt: skip
def test_what_only_looks_like_another_value_is_stored_apart(saver: Saver, first: Any, then: Any) -> None:
    """No plain data, which whoever fills a list may choose, is taken for an object, nor an object for plain data."""
    for one, other in ((first, then), (then, first)):
        saver.delete_thread("t")
        start = put(saver, {"x": one, "list": [one, "x" * 60]})
        put(saver, {"x": other, "list": [other, "x" * 60]}, after=start, version=2)
        serde = saver.serde
        assert difference(values(saver)["x"], serde.loads_typed(serde.dumps_typed(other))) is None
        assert difference(values(saver)["list"], serde.loads_typed(serde.dumps_typed([other, "x" * 60]))) is None


def test_a_message_changed_in_place_is_noticed(saver: Saver) -> None:
    """Changing an object that is already stored changes what is stored next, and nothing that was stored before."""
    messages = [AIMessage(f"message {n} " * 5, id=str(n)) for n in range(5)]
    first = put(saver, {"messages": messages})
    messages[1].content = "edited"
    messages[3].additional_kwargs["deep"] = {"inside": [1]}
    second = put(saver, {"messages": messages}, after=first, version=2)
    messages[3].additional_kwargs["deep"]["inside"].append(2)
    put(saver, {"messages": messages}, after=second, version=3)
    assert [m.content for m in values(saver, first)["messages"]][1] == "message 1 " * 5
    assert [m.content for m in values(saver, second)["messages"]][1] == "edited"
    assert values(saver, second)["messages"][3].additional_kwargs == {"deep": {"inside": [1]}}
    assert values(saver)["messages"][3].additional_kwargs == {"deep": {"inside": [1, 2]}}
    assert rows(saver, "messages")[0] == 8


@pytest.mark.parametrize(
    ("old", "new"), [(1, True), (1, 1.0), (0, False), ("1", 1), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), (0.0, -0.0)]
)
def test_what_compares_equal_but_is_not_the_same_is_not_shared(saver: Saver, old: Any, new: Any) -> None:
    """`1`, `1.0` and `True` are three values, and so are dicts in another order."""
    pad = ["padding that makes the list long enough to be taken apart"]
    first = put(saver, {"list": [*pad, [old, *pad]]})
    put(saver, {"list": [*pad, [new, *pad]]}, after=first, version=2)
    assert repr(values(saver, first)["list"][1][0]) == repr(old)
    assert repr(values(saver)["list"][1][0]) == repr(new)


def test_dicts_share_their_items(saver: Saver) -> None:
    """Changing one key of a large dict stores that item; order and key types are kept."""
    table: dict[Any, Any] = {n: f"value {n} " * 5 for n in range(50)}
    table |= {(1, "t"): "tuple key " * 5, "text": "text key " * 5, None: "none key " * 5}
    first = put(saver, {"table": table})
    changed = {**table, 7: "changed " * 5}
    del changed[9]
    put(saver, {"table": changed}, after=first, version=2)
    assert rows(saver, "table")[0] == 54
    assert list(values(saver)["table"].items()) == list(changed.items())


def test_lists_of_tiny_items_are_kept_in_grains(saver: Saver) -> None:
    """A vector of numbers is not a row a number, and growing it does not store it again."""
    numbers = [n / 7 for n in range(2_000)]
    place = put(saver, {"numbers": numbers})
    before, size = rows(saver, "numbers")
    assert before <= 40
    for version in range(2, 12):
        numbers = [*numbers, float(version)]
        place = put(saver, {"numbers": numbers}, after=place, version=version)
    after, larger = rows(saver, "numbers")
    assert after - before <= 10
    assert larger - size < 10 * 700
    assert values(saver)["numbers"] == numbers


@pytest.mark.parametrize("schema", [State, DeltaState], ids=["plain", "delta"])
def test_going_on_after_reopening_stores_nothing_twice(url: str, schema: Any) -> None:
    """A process that knows nothing of a thread recognizes what is stored, lists and DeltaChannel snapshots alike."""
    for until in range(20, 120, 20):
        with reopen(url) as saver:
            loop(saver, schema).invoke({"until": until, "n": until - 20}, config(), durability="sync")
    with reopen(url) as saver:
        usage = {u.channel: u for u in saver.usage("t")}
        log = loop(saver, schema).get_state(config()).values["log"]
        assert [entry["id"] for entry in log] == list(range(100))
        assert usage["log"].rows <= 1 + 100 % 64
        assert usage["log"].bytes < 100 * 60


@pytest.mark.slow
def test_bytes_grow_with_steps_not_with_their_square(saver: Saver) -> None:
    """Twice the steps take about twice the bytes."""
    sizes = []
    for until in (64, 128, 256, 512):  # where rows of elements are just joined
        loop(saver).invoke({"until": until, "n": until // 2 if until > 64 else 0}, config(), durability="sync")
        sizes.append(saver.threads()[0].bytes)
    assert sizes[3] - sizes[2] < 2.3 * (sizes[2] - sizes[1])


def test_the_log_of_sqlite_is_written_over(tmp_path: Path) -> None:
    """It is folded back into the file before it is long: writing over it takes two thirds of what growing it takes."""
    with SqliteSaver.open(tmp_path / "t.db", synchronous="normal") as saver:
        place = None
        for version in range(1, 600):
            place = put(saver, {"text": f"{version} " * 2_000}, after=place, version=version)
        assert (tmp_path / "t.db-wal").stat().st_size < 600 * 4_096


def test_edits_all_over_a_large_dict_cost_what_they_change(saver: Saver) -> None:
    """Scattered updates of a large dict do not store its shape again and again in full."""
    table = {f"key {n}": f"value {n} of the table" for n in range(600)}
    place = put(saver, {"table": table})
    before = saver.threads()[0].bytes
    for version in range(2, 202):
        table = {**table, f"key {version * 37 % 600}": f"value of version {version} of the table"}
        place = put(saver, {"table": table}, after=place, version=version)
    assert values(saver)["table"] == table
    assert (saver.threads()[0].bytes - before) / 200 < 600


def test_reading_the_head_needs_as_many_rows_late_as_early(saver: Saver) -> None:
    """A state of constant size is read with the same requests after 20 and after 400 steps."""
    from checkpointers.testing import FaultyDatabase

    def count() -> int:
        watched = FaultyDatabase(saver.database, lambda number, request: None)
        type(saver)(watched).get_tuple(config())
        return watched.requests

    place = None
    found = []
    for version in range(1, 401):
        place = put(saver, {"state": {"n": version, "text": "constant size " * 10}}, after=place, version=version)
        if version in (20, 400):
            found.append(count())
    assert found[0] == found[1] <= 5


def test_deleting_everything_leaves_nothing(saver: Saver) -> None:
    """After delete_thread no row of the thread is left in any table."""
    for name in ("t", "other"):
        loop(saver).invoke({"until": 70, "n": 0}, config(name))
    saver.delete_thread("t")
    assert saver.usage("t") == []
    assert saver.get_tuple(config()) is None
    assert len(loop(saver).get_state(config("other")).values["log"]) == 70


def test_pruning_frees_what_nothing_kept_needs(saver: Saver) -> None:
    """Elements that only pruned checkpoints had go, out of sealed rows too."""
    place = None
    for version in range(1, 200):
        place = put(
            saver, {"plan": [{"step": version, "secret": f"canary-{version:04}-" * 3}]}, after=place, version=version
        )
    assert rows(saver, "plan")[0] < 80
    saver.prune(["t"])
    assert values(saver)["plan"][0]["step"] == 199
    assert rows(saver, "plan") == (1, rows(saver, "plan")[1])
    assert rows(saver, "plan")[1] < 200
    assert saver.threads()[0].checkpoints == 1


def test_the_thread_row_tells_the_bytes_there_are(saver: Saver) -> None:
    """The running count of bytes agrees with the rows after pruning, copying and writing on."""
    loop(saver).invoke({"until": 90, "n": 0}, config())
    saver.prune(["t"])
    assert saver.threads()[0].bytes == sum(u.bytes for u in saver.usage("t"))
    saver.copy_thread("t", "copy")
    assert {u.bytes for u in saver.threads()} == {sum(u.bytes for u in saver.usage("t"))}


def test_an_old_copy_and_its_source_go_their_own_ways(saver: Saver) -> None:
    """A copied thread shares nothing with its source."""
    loop(saver).invoke({"until": 70, "n": 0}, config())
    saver.copy_thread("t", "copy")
    loop(saver).invoke({"until": 140, "n": 70}, config("copy"))
    saver.delete_thread("t")
    assert [e["id"] for e in loop(saver).get_state(config("copy")).values["log"]] == list(range(140))
    saver.prune(["copy"])
    assert [e["id"] for e in loop(saver).get_state(config("copy")).values["log"]] == list(range(140))


def long_list() -> list[Any]:
    return [AIMessage(f"message {n} of a long conversation", id=f"m{n}") for n in range(300)]


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("at", [0, 127, 128, 299])
def test_a_change_anywhere_in_a_long_list_is_noticed(url: str, at: int, reopened: bool) -> None:
    """Long lists are compared in groups; one message changed in place is one new element, whoever loaded the list."""
    saver = reopen(url)
    place = put(saver, {"list": long_list()})
    if reopened:
        saver.close()
        saver = reopen(url)
        saver.get_tuple(config())
    changed = saver.get_tuple(config()).checkpoint["channel_values"]["list"] if reopened else long_list()
    before = rows(saver, "list")[0]
    place = put(saver, {"list": changed}, after=place, version=2)
    assert rows(saver, "list")[0] == before
    changed[at].content = "another text altogether"
    changed[at], changed[(at + 1) % 300] = changed[(at + 1) % 300], changed[at]
    place = put(saver, {"list": changed}, after=place, version=3)
    assert rows(saver, "list")[0] == before + 1
    assert values(saver)["list"] == changed
    same_fields = HumanMessage(**{k: v for k, v in vars(changed[5]).items() if k in ("content", "id")})
    changed[5] = same_fields
    put(saver, {"list": changed}, after=place, version=4)
    saver.close()
    with reopen(url) as again:
        assert values(again)["list"] == changed


class One(BaseModel, extra="allow"):
    text: str


class Other(BaseModel):
    text: str


def test_a_group_of_items_is_the_same_only_with_the_same_classes_and_fields() -> None:
    """An object that was replaced by one of another class with the same fields is new, and one with a field more."""
    packer, items = (
        Packer(lambda value: ("text", repr(value).encode()), native=True),
        [One(text=str(n)) for n in range(3 * GROUP)],
    )
    before = packer.each(items, None)
    assert packer.each(items, before).groups == before.groups
    items[GROUP + 5] = Other(text=items[GROUP + 5].text)
    items[2 * GROUP].more = "a field that its class does not declare"
    after = packer.each(items, before)
    changed = [n for n, (was, now) in enumerate(zip(before, after, strict=True)) if was != now]
    assert changed == [GROUP + 5, 2 * GROUP]
    assert after.size == sum(map(len, after))


@pytest.mark.parametrize(
    "items",
    [
        [One(text=str(n)) for n in range(2 * GROUP)],
        [(One, Other)[n % 2](text=str(n)) for n in range(2 * GROUP)],
        [{"id": n, "of": [n, {"and": One(text="nested")}]} for n in range(2 * GROUP)],
        [f"text {n}" for n in range(2 * GROUP)],
        [[n, None, 1.5] for n in range(2 * GROUP)],
    ],
    ids=["objects", "of two classes", "dicts", "texts", "lists"],
)
def test_a_group_of_items_that_did_not_change_is_recognized_at_once(items: list[Any]) -> None:
    """What was put together from the looks of single items is what a look at all of them sees."""
    packer = Packer(lambda value: ("text", repr(value).encode()), native=True)
    first = packer.each(items, None)
    again = packer.each(items, first)
    assert [again.groups[start] is group for start, group in first.groups.items()] == [True, True]
    assert [*again] == [*first]


@given(st.data())
def test_what_a_list_began_with(data: st.DataObject) -> None:
    """In groups or not, one list begins with another as their items say; and gives those that are left."""
    packer, letters = Packer(lambda value: ("text", repr(value).encode()), native=True), st.integers(0, 1)
    many = data.draw(st.lists(letters, max_size=12))
    first = [f"{letter} of a text" for letter in many for _ in range(data.draw(st.sampled_from([1, HANDFUL, GROUP])))]
    then = first[: data.draw(st.integers(0, len(first)))] + data.draw(st.lists(st.sampled_from(first or ["x"])))
    before = packer.each(first, None)
    after = packer.each(then, data.draw(st.sampled_from([before, None])))
    alone = [packer.one(item) for item in then]
    assert [*after] == alone
    assert len(after) == len(then)
    assert after.begins_with(before) == (then[: len(first)] == first)
    assert before.begins_with(after) == (first[: len(then)] == then)
    at = data.draw(st.integers(0, len(then)))
    assert [*after.since(at)] == alone[at:]


def test_tiny_items_read_and_written_on_keep_their_order(url: str) -> None:
    """A list stored in grains of several items, then read by another process, is not taken for one of single items."""
    with reopen(url) as saver:
        place = put(saver, {"list": ["the first item is a long one, and alone in its element"]})
        grown = [*values(saver)["list"], *range(64)]
        place = put(saver, {"list": grown}, after=place, version=2)
    with reopen(url) as saver:
        assert values(saver)["list"] == grown
        put(saver, {"list": [*grown, 99]}, after=place, version=3)
    with reopen(url) as saver:
        assert values(saver)["list"] == [*grown, 99]


def test_going_on_recognizes_what_was_just_read(url: str) -> None:
    """A run that loads the head and writes on needs no element of it again, and stores only what is new."""
    with reopen(url) as saver:
        place = put(saver, {"list": items(100)})
    with reopen(url) as saver:
        found = values(saver, of_a_run())["list"]
        asked: list[Any] = []
        with listening(saver, asked):
            put(saver, {"list": [*found, {"id": "new", "text": "a new item, long enough for a row"}]}, after=place)
        assert not [request for request in asked if "cp_elements" in str(getattr(request, "sql", ""))]
        assert values(saver)["list"][:100] == items(100)


def test_a_reader_pushes_no_writer_out(url: str) -> None:
    """What readers load is remembered only while there is room, and is the first to go."""
    with reopen(url) as saver:
        for name in ("reader", "writer"):
            put(saver, {"list": items(200)}, after=config(name, checkpoint_ns=""))
    with reopen(url, memory_bytes=50_000) as saver:
        head = saver.get_tuple(of_a_run("writer"))
        place = put(saver, {"list": items(201)}, after=head.config, version=2)
        saver.get_tuple(of_a_run("reader"))
        asked: list[Any] = []
        with listening(saver, asked):
            put(saver, {"list": items(202)}, after=place, version=3)
        assert [type(request).__name__ for request in asked] == ["Append"]


def texts(count: int) -> list[str]:
    return [f"{number:4}" + "a line of a text " * 20 for number in range(count)]


def test_what_a_subgraph_had_before_a_checkpoint_is_told_by_ids(saver: Saver) -> None:
    """A graph and its subgraph are stored side by side: which commit came first does not say which was made first."""

    def store(ns: str, name: str, after: str | None) -> None:
        place = {"configurable": {"thread_id": "t", "checkpoint_ns": ns, "checkpoint_id": after}}
        checkpoint = {**empty_checkpoint(), "id": name, "channel_values": {"x": name}, "channel_versions": {"x": 1}}
        saver.put(place, checkpoint, {"source": "loop", "step": 1, "parents": {}}, {"x": 1})

    ids = [str(uuid6(clock_seq=n)) for n in range(4)]
    store("sub", ids[1], None)  # made after the root's, stored before it
    store("", ids[0], None)
    store("", ids[3], ids[0])
    store("sub", ids[2], ids[1])  # made before the root's second, stored after it

    def before(name: str) -> list[str]:
        root = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": name}}
        found = saver.list({"configurable": {"thread_id": "t", "checkpoint_ns": "sub"}}, before=root)
        return [one.checkpoint["id"] for one in found]

    assert before(ids[0]) == []
    assert before(ids[3]) == [ids[2], ids[1]]


def test_a_state_is_read_in_two_round_trips(url: str) -> None:
    """A thread and its checkpoint are asked for together, and so are the writes on it and all that both refer to."""
    with reopen(url) as saver:
        loop(saver).invoke({"until": 40, "n": 0}, config())
        older = saver.steps("t")[-20].id
    with reopen(url, memory_bytes=0) as saver:
        for place in (config(), config(checkpoint_id=older)):
            saver.get_tuple(place)  # names are learned once
            asked: list[Any] = []
            with listening(saver, asked):
                found = saver.get_tuple(place)
            assert [type(request).__name__ for request in asked] == ["Together", "Together"]
            assert found is not None
            assert bool(found.pending_writes) == ("checkpoint_id" in place["configurable"])


def statements_learned(saver: Saver) -> set[str]:
    """Give what the one connection of a saver has prepared."""
    with saver.database._pool.connection() as connection:  # type: ignore[attr-defined]
        found = connection.execute("SELECT name, statement FROM pg_prepared_statements").fetchall()
        return {" ".join(row) for row in found if "pg_prepared_statements" not in row[1]}


def test_a_server_learns_one_statement_for_steps_that_bring_more_or_less(postgres_url: str) -> None:
    """Whether what a task wrote brings no elements, one or some: a connection learns what it is told once."""
    written, after = [[*items(10 * more)[-more:]] if more else [] for more in (0, 1, 0, 2, 4, 3)], list[set[str]]()
    with PostgresSaver.open(postgres_url, pool_size=1) as saver:
        place = put(saver, {"list": items(1)})
        for number, value in enumerate(written):
            saver.put_writes(place, [("list", value)], f"task {number}")
            after.append(statements_learned(saver))
        found = saver.get_tuple(place)
    assert found is not None
    assert [value for _, _, value in found.pending_writes or ()] == written
    assert after == after[:1] * len(written)


def test_what_a_run_asks_first_was_learned_when_the_saver_was_opened(postgres_url: str) -> None:
    with PostgresSaver.open(postgres_url) as saver:
        put(saver, {f"list {number}": items(3) for number in range(5)})
    with PostgresSaver.open(postgres_url, pool_size=1) as saver:
        before = statements_learned(saver)
        assert values(saver) == {f"list {number}": items(3) for number in range(5)}
        assert statements_learned(saver) == before


def test_a_small_element_waits_for_its_segment_to_be_squeezed(saver: Saver) -> None:
    """Alone it takes longer to squeeze and to open than to read; with its neighbours it takes a fraction of the room."""
    place = put(saver, {"list": texts(63)})
    count, loose = rows(saver, "list")
    assert (count, loose > 63 * 340) == (63, True)
    put(saver, {"list": texts(64)}, after=place, version=2)
    count, sealed = rows(saver, "list")
    assert (count, sealed < loose / 4) == (1, True)
    assert values(saver) == {"list": texts(64)}


def test_a_thread_that_moves_while_it_is_looked_at(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint that is read is the one that its thread was read to stand at, though another is newer by then."""
    truly, moved = PostgresDatabase._answer, list[Any]()
    with PostgresSaver.open(postgres_url) as saver, PostgresSaver.open(postgres_url) as other:
        place = put(saver, {"x": "a value"})

        def answered(self: PostgresDatabase, connection: Any, request: Any) -> Any:
            if moved or self is not saver.database or not isinstance(request, Together):
                return truly(self, connection, request)
            first = truly(self, connection, request.statements[0])
            moved.append(put(other, {"x": "another"}, after=place, version=2))
            return [first, *(truly(self, connection, one) for one in request.statements[1:])]

        monkeypatch.setattr(PostgresDatabase, "_answer", answered)
        assert values(saver) == {"x": "a value"}
        assert moved
        assert values(saver) == {"x": "another"}


@pytest.mark.parametrize("asked", ["state", "channel", "page", "again"])
def test_a_thread_that_begins_anew_while_it_is_read(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """Its rows stand where those of its earlier life stood: no answer is made of both."""

    def life(saver: Saver, name: str) -> dict[str, Any]:
        put(saver, {"mark": name, "list": [f"{name} {number} of a text" * 3 for number in range(3)]})
        return values(saver)

    reads: dict[str, Callable[[Saver], Any]] = {
        "state": values,
        "channel": lambda saver: {**values(saver), "list": saver.get_channel(config(), "list")},
        "page": lambda saver: next(one.checkpoint["channel_values"] for one in saver.list(config(), limit=5)),
        "again": lambda saver: [values(saver), values(saver)][1],
    }
    truly, lives = PostgresDatabase._answer, list[dict[str, Any]]()
    with PostgresSaver.open(postgres_url) as saver, PostgresSaver.open(postgres_url) as other:
        lives.append(life(saver, "one"))

        def answered(self: PostgresDatabase, connection: Any, request: Any) -> Any:
            if self is saver.database and len(lives) == 1 and "cp_elements" in str(request):
                other.delete_thread("t")
                lives.append(life(other, "two"))
            return truly(self, connection, request)

        monkeypatch.setattr(PostgresDatabase, "_answer", answered)
        saver._recent.forget()
        assert reads[asked](saver) == lives[1]
        assert len(lives) == 2


def test_writes_that_hold_more_than_comes_next(url: str) -> None:
    """What writes refer to is read with the state they are on, or after it where they hold much, or of other channels."""
    written = [("list", items(12)[2:]), ("new", {"text": "of a channel that the state does not have yet" * 2})]
    with reopen(url) as saver:
        place = put(saver, {"list": items(2)})
        saver.put_writes(place, written, "task")
        put(saver, {"list": items(12), "more": items(1)}, after=place, version=2)
    with reopen(url) as saver:
        found = saver.get_tuple(place)
        assert found is not None
        assert [(channel, value) for _, channel, value in found.pending_writes or ()] == written
        assert found.checkpoint["channel_values"] == {"list": items(2)}
