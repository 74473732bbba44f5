"""A value is new unless the serializer would write the same of it: whatever its class answers, has or hides."""

from __future__ import annotations

import dataclasses
import enum
import operator
import os
import pickle
import re
import uuid
import zoneinfo
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypedDict

import numpy as np
import pydantic
import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph import StateGraph
from langgraph.types import Command, Interrupt, Send
from pydantic import BaseModel, PrivateAttr, computed_field, field_serializer, model_serializer, model_validator

from checkpointers import Saver, SqliteSaver, UnstorableValueError
from checkpointers.codec import Codec
from checkpointers.strict import StrictSerializer
from tests.checkpointers.graphs import config
from tests.checkpointers.test_storage import put, rows, values

PAD = "x" * 60


class Answering(dict[str, Any]):
    """Answers every attribute with what it has under that name."""

    __getattr__ = dict.get


@dataclasses.dataclass
class Output(dict[str, Any]):
    """A dataclass that is a dict, too."""

    name: str = "same"


@dataclasses.dataclass
class Lines(list[str]):
    """A dataclass that is a list, too."""

    name: str = "same"


class Hiding(dict[str, Any]):
    """Shows others nothing of what msgpack writes of it."""

    def keys(self) -> Any:
        """Have none."""
        return {}.keys()

    def __iter__(self) -> Any:
        """Give none."""
        return iter(())


@dataclasses.dataclass
class Cart:
    """Says by itself what is kept of it."""

    owner: str

    def __init__(self, owner: str, items: Iterable[int] = ()) -> None:
        """Fill it."""
        self.owner, self._items = owner, list(items)

    def dict(self) -> dict[str, Any]:
        """Give what makes it again."""
        return {"owner": self.owner, "items": self._items}


class Counted(BaseModel):
    """Writes a private attribute."""

    text: str
    _n: int = PrivateAttr(0)

    @model_serializer(mode="wrap")
    def _write(self, write: Any) -> dict[str, Any]:
        return {**write(self), "n": self._n}

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, value: Any, read: Any) -> Any:
        n = value.pop("n", 0) if isinstance(value, dict) else 0
        made = read(value)
        made._n = n
        return made


class Dumping(BaseModel):
    """Has a dump of its own."""

    text: str
    _n: int = PrivateAttr(0)

    def model_dump(self, **_: Any) -> dict[str, Any]:
        """Write what is hidden in the text."""
        return {"text": f"{self.text} {self._n}" if self._n else self.text}


class Computing(BaseModel):
    """Writes what it computes."""

    text: str
    _n: int = PrivateAttr(0)

    @computed_field
    def twice(self) -> int:
        """Give it twice."""
        return 2 * self._n


class Twin(str, enum.Enum):  # noqa: UP042  StrEnum has no other values
    """Members that are the same text."""

    def __new__(cls, code: int, label: str) -> Self:
        """Keep a code beside the text."""
        made = str.__new__(cls, label)
        made._value_ = code
        return made

    A = (1, "same")
    B = (2, "same")


@dataclasses.dataclass
class ToolError(Exception):
    """Shows more than its fields."""

    tool: str

    def __repr__(self) -> str:
        """Show its arguments."""
        return f"ToolError({self.args})"


@dataclasses.dataclass
class Late:
    """Has a field that comes later."""

    text: str
    later: Any = dataclasses.field(init=False)


@pydantic.dataclasses.dataclass
class Checked:
    """A dataclass that pydantic checks."""

    text: str


class Field:
    """What only its model knows how to write."""

    def __init__(self, text: str) -> None:
        """Take it."""
        self.text = text


class Holder(BaseModel, arbitrary_types_allowed=True):
    """Writes a field of a type that nothing else writes."""

    field: Any

    @field_serializer("field")
    def _write(self, field: Any) -> str:
        return field.text

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        text = value["field"]
        return {"field": Field(text) if isinstance(text, str) else text}


class Keyed(BaseModel):
    """Has keys that only validation restores."""

    names: dict[uuid.UUID, int]


def made(cls: type[Any], n: int) -> Any:
    """Make an object with a hidden number."""
    one = cls(text="one")
    one._n = n
    return one


def filled(output: Any, content: Any) -> Any:
    """Give it a content."""
    (output.update if isinstance(output, dict) else output.extend)(content)
    return output


def late(*value: Any) -> Late:
    """Set what comes later, or not."""
    one = Late("one")
    if value:
        (one.later,) = value
    return one


PAIRS: dict[str, tuple[Any, Any, list[type[Any]]]] = {
    "answers everything": (Answering(a="one " * 20), Answering(a="two " * 20), []),
    "dict and dataclass": (filled(Output(), {"a": 1, "pad": PAD}), filled(Output(), {"a": 2, "pad": PAD}), []),
    "list and dataclass": (filled(Lines(), ["one", PAD]), filled(Lines(), ["two", PAD]), []),
    "hides its keys": (Hiding(a=1, pad=PAD), Hiding(a=2, pad=PAD), []),
    "ordered": (OrderedDict(a=1, b=PAD), OrderedDict(b=PAD, a=1), []),
    "own dict": (Cart("ada", [1, 2]), Cart("ada", [3, 4]), [Cart]),
    "private": (made(Counted, 1), made(Counted, 2), [Counted]),
    "own dump": (made(Dumping, 1), made(Dumping, 2), [Dumping]),
    "computed": (made(Computing, 1), made(Computing, 2), [Computing]),
    "text enum": (Twin.A, Twin.B, [Twin]),
    "error": (ToolError("search"), filled_error := ToolError("search"), []),
    "fields of its own": (Holder(field=Field("one")), Holder(field=Field("two")), [Holder]),
}
filled_error.args = ("other",)
PAIRS["error"][0].args = ("one",)


def written(serde: Any, value: Any) -> bytes:
    """Give what a serializer writes."""
    return serde.dumps_typed(value)[1]


SHAPES: dict[str, Callable[[Any], Any]] = {
    "alone": lambda one: one,
    "in a list": lambda one: [one, PAD],
    "in a dict": lambda one: {"k": one, "pad": PAD},
    "deeper": lambda one: [{"k": [one]}, PAD],
    "many": lambda one: [one] * 20,
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", PAIRS)
def test_what_is_written_otherwise_is_new(name: str, shape: str) -> None:
    """In a channel, and as a write: the second one is not taken for the first."""
    first, then, types = PAIRS[name]
    one, other = SHAPES[shape](first), SHAPES[shape](then)
    with SqliteSaver.open(":memory:", types=types) as saver:
        assert written(saver.serde, one) != written(saver.serde, other)
        start = put(saver, {"x": one})
        saver.put_writes(start, [("x", other)], "task")
        put(saver, {"x": other}, after=start, version=2)
        assert written(saver.serde, values(saver, start)["x"]) == written(saver.serde, back(saver, one))
        assert written(saver.serde, values(saver)["x"]) == written(saver.serde, back(saver, other))
        found = saver.get_tuple(start)
        assert found is not None
        assert [written(saver.serde, value) for *_, value in found.pending_writes or ()] == [
            written(saver.serde, back(saver, other))
        ]


def back(saver: Saver, value: Any) -> Any:
    """Give what the serializer makes of a value."""
    return saver.serde.loads_typed(saver.serde.dumps_typed(value))


def test_rows_that_answer_every_attribute() -> None:
    """As a graph has them: each is read as it was made."""

    class State(TypedDict):
        found: Annotated[list[Any], operator.add]

    def node(_: State) -> Any:
        return {"found": [Answering(n=1, text=PAD), Answering(n=2, text=PAD)]}

    with SqliteSaver.open(":memory:") as saver:
        graph = StateGraph(State).add_node(node).add_edge("__start__", "node").compile(saver)
        graph.invoke({"found": []}, config())
        assert [row["n"] for row in graph.get_state(config()).values["found"]] == [1, 2]


@pytest.mark.parametrize("one", [Checked("one"), Holder(field=Field("one")), Keyed(names={uuid.UUID(int=1): 1})])
@pytest.mark.parametrize("shape", SHAPES)
def test_what_a_model_knows_how_to_write_is_stored(one: Any, shape: str) -> None:
    """A dataclass of pydantic, a field that only its model can write, keys that validation restores."""
    with SqliteSaver.open(":memory:", types=[type(one)]) as saver:
        put(saver, {"x": SHAPES[shape](one)})
        assert written(saver.serde, values(saver)["x"]) == written(saver.serde, SHAPES[shape](one))


class Loose(BaseModel):
    """Has keys that nobody restores."""

    names: Any


def test_keys_that_no_class_restores_are_refused() -> None:
    """They would come back as texts."""
    with SqliteSaver.open(":memory:", types=[Loose]) as saver:
        put(saver, {"x": Loose(names={1: "one", (2, 3): PAD})})
        assert values(saver)["x"].names == {1: "one", (2, 3): PAD}
        with pytest.raises(UnstorableValueError, match="dict key of type UUID"):
            put(saver, {"x": Loose(names={uuid.UUID(int=1): PAD})})


def test_a_field_that_is_not_set_is_refused_after_one_that_is_nothing() -> None:
    """What cannot be written is not taken for what was."""
    with SqliteSaver.open(":memory:", types=[Late]) as saver:
        start = put(saver, {"x": [late(None), PAD]})
        with pytest.raises(UnstorableValueError):
            put(saver, {"x": [late(), PAD]}, after=start, version=2)


class Plain(BaseModel):
    """Nothing but its fields."""

    text: str


def test_the_fields_of_plain_models_are_all_that_is_looked_at() -> None:
    """Messages and plain models are not written to see whether they changed: that takes ten times as long."""
    asked: list[Any] = []

    class Asked(StrictSerializer):
        def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
            asked.append(obj)
            return super().dumps_typed(obj)

    serde = Asked([Plain, Counted])
    codec = Codec(StrictSerializer([Plain, Counted]))
    codec.packer._dump = serde.dumps_typed
    codec.split("x", [AIMessage("one"), Plain(text="one"), {"of": [Plain(text="two")]}])
    assert not asked
    codec.split("x", [made(Counted, 1)])
    assert len(asked) == 1


class Pickled:
    """A serializer of somebody's own, which keeps more than others."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Write."""
        return "pickle", pickle.dumps(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Read."""
        return pickle.loads(data[1])  # noqa: S301  what this test wrote


def attributed(value: Any, **attributes: Any) -> Any:
    """Set attributes that no class declares."""
    vars(value).update(attributes)
    return value


@dataclasses.dataclass
class Open:
    """Takes any attribute."""

    text: str


class Text(str):  # noqa: SLOT000  that is what it is for
    """A text with attributes."""


KEPT_APART: dict[str, tuple[Any, Any]] = {
    "private": (made(Counted, 1), made(Counted, 2)),
    "fields set": (Plain(text="one"), Plain.model_construct(set(), text="one")),
    "undeclared": (attributed(Open("one"), more=1), attributed(Open("one"), more=2)),
    "factory": (defaultdict(list, a=1), defaultdict(dict, a=1)),
    "text": (attributed(Text("one"), more=1), attributed(Text("one"), more=2)),
    "bytes": ([b"one"], [bytearray(b"one")]),
    "bytes in bytes": ({"a": bytearray(b"one")}, {"a": b"one"}),
    "tuple": ((1, 2), [1, 2]),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", KEPT_APART)
def test_what_only_a_serializer_of_ones_own_keeps_apart(name: str, shape: str) -> None:
    """Nobody knows what it writes but itself."""
    one, other = map(SHAPES[shape], KEPT_APART[name])
    with SqliteSaver.open(":memory:", serde=Pickled()) as saver:
        start = put(saver, {"x": one})
        put(saver, {"x": other}, after=start, version=2)
        assert pickled(values(saver)["x"]) == pickled(other)
        assert pickled(values(saver, start)["x"]) == pickled(one)


def pickled(value: Any) -> list[bytes]:
    """Pickle each item of a list by itself: that some are the same object is not kept."""
    return list(map(pickle.dumps, value)) if type(value) is list else [pickle.dumps(value)]


def test_an_encrypting_serializer_stores_once_what_did_not_change() -> None:
    """It writes the same otherwise each time; what it writes into is looked at."""

    class Cipher:
        def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
            return "salted", (salt := os.urandom(8)) + bytes(one ^ salt[0] for one in plaintext)

        def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
            return bytes(one ^ ciphertext[0] for one in ciphertext[8:])

    serde = EncryptedSerializer(Cipher(), StrictSerializer([Counted]))
    many = [*(made(Counted, n) for n in range(5)), *(AIMessage(f"{n} " * 20, id=str(n)) for n in range(5)), {1: PAD}]
    with SqliteSaver.open(":memory:", serde=serde) as saver:
        place = put(saver, {"x": many})
        stored = rows(saver, "x")[0]
        for version in range(2, 5):
            place = put(saver, {"x": many, "y": version}, after=place, version=version)
        assert rows(saver, "x")[0] == stored
        assert written(serde.serde, values(saver)["x"]) == written(serde.serde, many)


def zone_of_a_file() -> zoneinfo.ZoneInfo:
    """Give a time zone that has a name of its own."""
    with next(Path(one, "Europe/Paris") for one in zoneinfo.TZPATH if Path(one, "Europe/Paris").is_file()).open(
        "rb"
    ) as file:
        return zoneinfo.ZoneInfo.from_file(file, key="My/Zone")


class Letter(enum.Enum):
    """A key that msgpack would write as its value."""

    A = 1


UNREADABLE: dict[str, Callable[[], Any]] = {
    "a set of objects that hold lists": lambda: {Send("n", ("a", "b"))},
    "a number for a node": lambda: Send(1, "x"),  # type: ignore[arg-type]
    "no node": lambda: Send(None, {}),  # type: ignore[arg-type]
    "a zone of a file": zone_of_a_file,
    "a pattern that is no text": lambda: re.compile("\ud800"),
    "an array of nothing": lambda: np.ndarray((3,), np.dtype("U0")),
    "no text in a message": lambda: AIMessage("a\ud800"),
    "no text in an object": lambda: Send("n", {"t": "a\ud800"}),
    "no text in a set": lambda: {"\ud800"},
    "no text in a deque": lambda: deque(["a\ud800"]),
    "no text in a path": lambda: Path(os.fsdecode(b"a\xff")),
    "a key of a sent dict": lambda: Send("n", {uuid.UUID(int=1): 1}),
    "a key in a command": lambda: Command(goto=[Send("n", {Letter.A: 1})]),
    "a key in a question": lambda: Interrupt(value={Letter.A: 1}, id="i"),
    "a key in a deque": lambda: deque([{uuid.UUID(int=1): 1}]),
    "a key of a message's own": lambda: HumanMessage("x", foo={Letter.A: 1}),
    "a key in a snapshot": lambda: [_DeltaSnapshot([{uuid.UUID(int=1): 1}])],
}


@pytest.mark.parametrize("shape", ["alone", "in a list", "in a dict"])
@pytest.mark.parametrize("name", UNREADABLE)
def test_what_would_come_back_as_something_else_is_refused(name: str, shape: str) -> None:
    """When it is written, as a value and as a write; and nothing of it is stored."""
    value = SHAPES[shape](UNREADABLE[name]())
    with SqliteSaver.open(":memory:") as saver:
        start = put(saver, {"x": 1})
        with pytest.raises(UnstorableValueError):
            put(saver, {"x": value}, after=start, version=2)
        with pytest.raises(UnstorableValueError):
            saver.put_writes(start, [("x", value)], "task")
        found = saver.get_tuple(config())
        assert found is not None
        assert (found.checkpoint["channel_values"], found.pending_writes) == ({"x": 1}, [])


class Spelled(Exception):  # noqa: N818
    """Says of itself what is no text."""

    def __repr__(self) -> str:
        """Say so."""
        return "a\ud800"


def test_an_error_whose_words_are_no_text_is_stored() -> None:
    """What went wrong is more than its spelling."""
    with SqliteSaver.open(":memory:") as saver:
        start = put(saver, {"x": 1})
        saver.put_writes(start, [("__error__", Spelled())], "task")
        found = saver.get_tuple(config())
        assert found is not None
        assert found.pending_writes == [("task", "__error__", "a?")]


def test_a_message_that_was_made_odd_comes_back() -> None:
    """What was set in place, in a message with fields of its own, is not validated when it is read."""
    message = AIMessage("x", foo=1)
    message.tool_calls = [{"name": "a"}]  # type: ignore[typeddict-item]
    other = HumanMessage("x")
    other.self = 1
    with SqliteSaver.open(":memory:") as saver:
        put(saver, {"x": [message, other]})
        found = values(saver)["x"]
    assert [one.model_dump() for one in found] == [message.model_dump(), other.model_dump()]


class Own:
    """A serializer with a tag and a form of somebody's own."""

    def __init__(self, tag: Any, data: Callable[[bytes], Any] = bytes) -> None:
        """Take them."""
        self.tag, self.data = tag, data

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Write."""
        return self.tag, self.data(pickle.dumps(obj))

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Read."""
        assert data[0] == self.tag
        return pickle.loads(data[1])  # noqa: S301  what this test wrote


@pytest.mark.parametrize("tag", ["", "x", "x" * 255, "\x00", "ü"])
def test_any_tag_of_a_serializer_is_kept(tag: str) -> None:
    """Also one that is empty."""
    with SqliteSaver.open(":memory:", serde=Own(tag)) as saver:
        put(saver, {"x": ["one " * 20], "y": 1})
        assert values(saver) == {"x": ["one " * 20], "y": 1}


@pytest.mark.parametrize("serde", [Own("x" * 256), Own("\ud800"), Own(7), Own("x", str), Own("x", lambda _: None)])
def test_what_a_serializer_may_not_give_is_refused(serde: Any) -> None:
    """It says in which channel."""
    with SqliteSaver.open(":memory:", serde=serde) as saver, pytest.raises(UnstorableValueError, match="'x'"):
        put(saver, {"x": ["one " * 20]})


class Short:
    """A serializer that writes next to nothing, and what it wrote elsewhere."""

    known: ClassVar[list[Any]] = []

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Write its number."""
        if obj not in self.known:
            self.known.append(obj)
        return "msgpack", bytes((self.known.index(obj) // 200,)) if obj == [None] else bytes((7,))

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Read."""
        return [None] if data[1] == b"\x00" else ["same"]


def test_elements_of_next_to_nothing_are_sealed() -> None:
    """An element that is nothing but what all of its row begin with is not one that was deleted."""
    many = [f"{n} " * 30 for n in range(130)]
    with SqliteSaver.open(":memory:", serde=Short()) as saver:
        put(saver, {"x": many})
        assert values(saver)["x"] == ["same"] * 130


@pytest.mark.parametrize(
    "field", [{"channel_versions": {"x": 2**70}}, {"ts": None}, {"ts": 5}, {"ts": "\ud800"}], ids=repr
)
def test_a_checkpoint_of_odd_parts_is_refused(field: dict[str, Any]) -> None:
    """What LangGraph says of a checkpoint comes back as it was, or is not stored."""
    checkpoint = empty_checkpoint() | {"channel_values": {"x": 1}, "channel_versions": {"x": 1}} | field
    with SqliteSaver.open(":memory:") as saver:
        with pytest.raises(UnstorableValueError, match="checkpoint"):
            saver.put(config(checkpoint_ns=""), checkpoint, {}, {"x": 1})  # type: ignore[typeddict-item]
        assert saver.threads() == []
