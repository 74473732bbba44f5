"""What was written is what is read, the same on both databases, or a typed error when it is written."""

from __future__ import annotations

import datetime as dt
import enum
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from checkpointers import CheckpointerError, Saver, SqliteSaver, UnreadableValueError, UnstorableValueError
from checkpointers.strict import StrictSerializer
from tests.checkpointers.graphs import State, config, loop
from tests.checkpointers.test_storage import put, values
from tests.checkpointers.wild import Colour, Mood, difference
from tests.checkpointers.wild import values as wild_values
from tests.conftest import reopen

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize(
    "value",
    ["a\x00b", float("nan"), float("inf"), float("-inf"), -0.0, 2**63 - 1, -(2**63), Colour.RED, Mood.GOOD, b"\x00",
     dt.datetime(2026, 1, 2, tzinfo=dt.UTC), dt.timedelta(days=1), uuid.UUID(int=3), {1, 2}, frozenset({3}), {1: "a", (2, "b"): None},
     "\u202eright to left", "x" * 1_000_000, [[[[[]]]]], {}, [], None, True],
)  # fmt: skip
def test_values_come_back_as_they_were(saver: Saver, value: Any) -> None:
    """At the top level, in a list, in a dict, and as a write: the same value, of the same type."""
    place = put(saver, {"top": value, "list": [value, "x" * 60], "dict": {"k": value, "pad": "x" * 60}})
    saver.put_writes(place, [("top", value)], "task")
    found = saver.get_tuple(place)
    assert found is not None
    wanted = {"top": value, "list": [value, "x" * 60], "dict": {"k": value, "pad": "x" * 60}}
    assert difference(found.checkpoint["channel_values"], wanted) is None
    assert difference(found.pending_writes, [("task", "top", value)]) is None


def test_a_bytearray_comes_back_where_the_serializer_keeps_it(saver: Saver) -> None:
    """Long or short, at the top level a bytearray stays one."""
    put(saver, {"short": bytearray(b"x"), "long": bytearray(b"x" * 500)})
    assert difference(values(saver), {"short": bytearray(b"x"), "long": bytearray(b"x" * 500)}) is None


@settings(max_examples=60)
@given(value=wild_values)
def test_any_value_comes_back_as_its_serializer_says(saver: Saver, value: Any) -> None:
    """Whatever the serializer keeps, the saver keeps; what the serializer turns into a list stays a list."""
    serde = JsonPlusSerializer()
    saver.delete_thread("t")
    put(saver, {"value": value, "list": [value, value, "x" * 60]})
    expected = serde.loads_typed(serde.dumps_typed(value))
    assert difference(values(saver), {"value": expected, "list": [expected, expected, "x" * 60]}) is None


class Key(enum.Enum):
    A = "a"


def _cycle() -> list[Any]:
    cycle: list[Any] = []
    cycle.append(cycle)
    return cycle


def _deep(depth: int) -> Any:
    value: Any = None
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        ("\ud800", "", "lone surrogate"),
        ({"a": [1, {"b": "x\udfff"}]}, "['a'][1]['b']", "lone surrogate"),
        ([1, 2**64], "[1]", "64 bits"),
        ({"f": lambda: None}, "['f']", "not serializable"),
        ({"k": {Key.A: 1}}, "['k']", "dict key of type Key"),
        ({uuid.UUID(int=1): 1}, "", "dict key of type UUID"),
        (_cycle(), "[0]", "nested too deeply"),
        (_deep(2_000), "[0]", "nested too deeply"),
        (open(__file__).close, "", "not serializable"),  # noqa: PTH123, SIM115
    ],
)  # fmt: skip
def test_what_cannot_be_kept_is_refused_with_its_place(saver: Saver, value: Any, path: str, reason: str) -> None:
    """The error names thread, channel and path; nothing of the call is written, and the thread goes on."""
    place = put(saver, {"fine": "x"})
    before = saver.usage("t")
    with pytest.raises(UnstorableValueError) as caught:
        put(saver, {"fine": "y" * 100, "bad": value}, after=place, version=2)
    assert caught.value.channel == "bad"
    assert caught.value.path.startswith(path)
    assert reason in str(caught.value)
    assert "'t'" in str(caught.value)
    with pytest.raises(UnstorableValueError, match="bad"):
        saver.put_writes(place, [("fine", "z" * 100), ("bad", value)], "task")
    assert saver.usage("t") == before
    assert values(saver) == {"fine": "x"}
    put(saver, {"fine": "y" * 100}, after=place, version=2)
    assert values(saver) == {"fine": "y" * 100}


class _Fails(StrictSerializer):
    """Refuses what it is told to, for a reason of its own."""

    refused: tuple[type, ...] = (object,)

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        if isinstance(obj, self.refused):
            raise PermissionError("the vault is sealed")
        return super().dumps_typed(obj)


class _FailsAtTypes(_Fails):
    refused = (type,)


@pytest.mark.parametrize(
    ("serde", "value", "path"),
    [
        (_Fails(), "text", ""),
        (_Fails(), 7, ""),
        (_Fails(), {"a": ["x" * 50, "y" * 50]}, ""),
        (_Fails(), [None, True], ""),
        (_FailsAtTypes(), {"a": ["x" * 50, int]}, "['a'][1]"),
    ],
)
def test_what_a_serializer_says_is_told(url: str, serde: _Fails, value: Any, path: str) -> None:
    """What is wrong with a value is not guessed from its type: a serializer that fails is quoted, on both doors."""
    with reopen(url, serde=serde) as saver:
        for call in (
            lambda: put(saver, {"bad": value}),
            lambda: saver.put_writes(config(checkpoint_ns="", checkpoint_id="1"), [("bad", value)], "task"),
        ):
            with pytest.raises(UnstorableValueError, match="the vault is sealed") as caught:
                call()
            assert caught.value.path == path
        assert saver.threads() == []


def test_a_bad_sibling_does_not_take_the_others_with_it(saver: Saver) -> None:
    """Writes that wait for one commit together fail one by one."""
    from concurrent.futures import ThreadPoolExecutor

    place = put(saver, {"fine": "x"})
    with ThreadPoolExecutor(4) as pool:
        values_ = ["a" * 60, 2**64, "b" * 60, "c" * 60]
        calls = [pool.submit(saver.put_writes, place, [("fine", v)], f"task {i}") for i, v in enumerate(values_)]
        errors = [type(call.exception()) for call in calls]
    assert errors == [type(None), UnstorableValueError, type(None), type(None)]
    found = saver.get_tuple(place)
    assert found is not None
    assert [w[0] for w in found.pending_writes] == ["task 0", "task 2", "task 3"]


@pytest.mark.parametrize(
    "thread",
    ["", " ", "\x00", "a\x00b", "é" * 3_000, "'; DROP TABLE cp_threads; --", "../../etc", "\ud800", 7, "%s ? $1 {}"],
)
def test_thread_ids_of_any_length_and_alphabet(saver: Saver, thread: Any) -> None:
    """A thread id is any text; an int is its text."""
    place = config(thread, checkpoint_ns="n" * 500 if thread == "é" * 3_000 else "")
    first = put(saver, {"x": 1}, after=place)
    assert first["configurable"]["thread_id"] == str(thread)
    found = saver.get_tuple(place)
    assert found is not None
    assert found.checkpoint["channel_values"] == {"x": 1}
    assert [t.config["configurable"]["thread_id"] for t in saver.list(place)] == [str(thread)]
    assert next(saver.list(place)).config["configurable"]["checkpoint_ns"] == place["configurable"]["checkpoint_ns"]
    saver.copy_thread(thread, f"copy of {str(thread)[:9]}")
    saver.delete_thread(thread)
    assert saver.get_tuple(place) is None


def test_checkpoint_and_task_ids_of_any_length(saver: Saver) -> None:
    """Ids that are no uuids work, however long."""
    for checkpoint_id in ("plain", "long " * 200, "\x00"):
        versions = {"x": 1}
        checkpoint = {
            "v": 1,
            "id": checkpoint_id,
            "ts": "not a time",
            "channel_values": {"x": 1},
            "channel_versions": versions,
            "versions_seen": {},
        }
        place = saver.put(config(checkpoint_ns=""), checkpoint, {"source": "loop"}, versions)
        saver.put_writes(place, [("x", 2)], "task " * 100)
        found = saver.get_tuple(place)
        assert found is not None
        assert found.checkpoint == checkpoint
        assert found.pending_writes == [("task " * 100, "x", 2)]


def test_nul_in_model_output_does_not_stop_a_run(saver: Saver) -> None:
    """A NUL in a top-level text channel is stored like any other character."""
    app = loop(saver, State)
    app.invoke({"until": 2, "n": 0, "static": "a\x00b\x00"}, config())
    assert app.get_state(config()).values["static"] == "a\x00b\x00"


@pytest.mark.parametrize(
    "wanted", [{"nothing": None}, {"x' OR 1=1 --": 1}, {"source": "loop' OR '1'='1"}, {"a.b": 1}, {"step": 1.0}]
)
def test_filters_are_values_never_query_text(saver: Saver, wanted: dict[str, Any]) -> None:
    """A filter compares metadata in the same way on every database."""
    put(saver, {"x": 1})
    found = list(saver.list(config(), filter=wanted))
    assert len(found) == (1 if wanted in ({"nothing": None}, {"step": 1.0}) else 0)


def test_what_cannot_be_decoded_names_its_place(saver: Saver) -> None:
    """A stored value whose serializer refuses it is an error with thread, step and channel."""

    class Refuses(StrictSerializer):
        def loads_typed(self, data: tuple[str, bytes]) -> Any:
            if b"poison" in data[1]:
                raise ValueError("no")
            return super().loads_typed(data)

    put(saver, {"fine": 1, "bad": "poison " * 20})
    with pytest.raises(UnreadableValueError, match=r"channel 'bad' of t@1: ValueError: no"):
        type(saver)(saver.database, serde=Refuses()).get_tuple(config())


def test_a_serializer_that_keeps_tuples_gets_them_back(url: str) -> None:
    """Tuples are kept where the serializer keeps them, in and out of lists."""
    import pickle

    from tests.conftest import reopen

    class Pickles:
        def dumps_typed(self, value: Any) -> tuple[str, bytes]:
            return "pickle", pickle.dumps(value)

        def loads_typed(self, data: tuple[str, bytes]) -> Any:
            return pickle.loads(data[1])  # noqa: S301  our own bytes

    with reopen(url, serde=Pickles()) as saver:
        first = put(saver, {"top": (1, 2), "list": [(1, "x" * 60), [1, "x" * 60]]})
        put(saver, {"top": (1, 2), "list": [[1, "x" * 60], (1, "x" * 60)]}, after=first, version=2)
        assert values(saver, first) == {"top": (1, 2), "list": [(1, "x" * 60), [1, "x" * 60]]}
        assert values(saver)["list"] == [[1, "x" * 60], (1, "x" * 60)]


class Reversed:
    """A cipher that keeps nothing secret."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "reversed", plaintext[::-1]

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        return ciphertext[::-1]


@pytest.mark.parametrize(
    "serde",
    [
        JsonPlusSerializer(allowed_msgpack_modules=True),
        JsonPlusSerializer(allowed_msgpack_modules=None, pickle_fallback=True),
        EncryptedSerializer(Reversed(), JsonPlusSerializer(allowed_msgpack_modules=True)),
    ],
    ids=["any type", "pickle", "any type, encrypted"],
)
def test_a_serializer_that_builds_anything_is_refused(saver: Saver, serde: Any) -> None:
    """Who can write a row could run code: one that does as a stored row says is not taken, nor behind a cipher."""
    with pytest.raises(CheckpointerError, match="leave serde out"):
        type(saver)(saver.database, serde=serde)


def test_a_stricter_clone_shares_the_database(tmp_path: Any) -> None:
    """`with_allowlist` gives a saver with another serializer on the same connections."""
    serde = JsonPlusSerializer(allowed_msgpack_modules=None)
    with SqliteSaver.open(tmp_path / "a.db", serde=serde) as saver:
        put(saver, {"colour": Colour.RED})
        assert values(saver)["colour"] == "red"
        clone = saver.with_allowlist([("tests.checkpointers.wild", "Colour")])
        assert values(clone)["colour"] is Colour.RED
        assert clone.database is saver.database


def test_unknown_keys_of_a_checkpoint_are_kept(saver: Saver) -> None:
    """What other versions of LangGraph add to a checkpoint comes back."""
    checkpoint = {
        "v": 1, "id": "c", "ts": "2026-01-02T03:04:05.6+02:00", "channel_values": {}, "channel_versions": {},
        "versions_seen": {"n": {"c": "1.0"}}, "pending_sends": [{"s": 1}], "updated_channels": ["c"],
    }  # fmt: skip
    place = saver.put(config(checkpoint_ns=""), checkpoint, {"source": "input"}, {})
    found = saver.get_tuple(place)
    assert found is not None
    assert found.checkpoint == checkpoint


texts = st.text()


@settings(max_examples=200)
@given(text=texts)
def test_keys_of_ids_are_unambiguous(text: str) -> None:
    """A key gives its id back, or is a digest of it."""
    from checkpointers.keys import key_of, text_of

    assert text_of(key_of(text)) in (text, None)
    assert len(key_of(text)) <= 200
