"""Types are an explicit list: what is on it comes back exactly, what is not is neither written nor read."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import enum
import pickle
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import ormsgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_TYPES
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import BaseModel, ConfigDict, Field, SecretStr, computed_field

from checkpointers.errors import (
    BlockedTypeError,
    CheckpointerError,
    DamagedValueError,
    RebuildError,
    RefusedTypeError,
    TooLargeError,
)
from checkpointers.kinds import _BUILT_IN, built_in
from checkpointers.strict import Degraded, StrictSerializer, inspect_value
from checkpointers.unpacking import _deepest, local, nested_within
from tests.checkpointers import gadgets, wild
from tests.checkpointers.gadgets import BUILT_IN, LISTED, SAMPLES, TYPES, Colour, Outer, Pair, Point, deep, ext, pack

pytestmark = pytest.mark.filterwarnings("ignore")
SERDE = StrictSerializer(TYPES)
WILD = StrictSerializer((wild.Colour, wild.Mood, wild.Point))
PLAIN = StrictSerializer()


def same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and (a == b or wild.difference(a, b) is None)


@pytest.mark.parametrize("name", SAMPLES)
def test_every_type_comes_back_as_it_was(name: str) -> None:
    """T types registered, T round trip: the same type and value, alone and in plain data and objects."""
    value = SAMPLES[name]
    for whole in (value, [value], {"a": [value, 1]}, Outer.Inner(value)):
        found = SERDE.loads_typed(SERDE.dumps_typed(whole))
        assert type(found) is type(whole)
    found = SERDE.loads_typed(SERDE.dumps_typed(value))
    if name == "StateSnapshot":  # a named tuple of tuples, which come back as lists, as LangGraph has it
        assert list(found) == list(value)
    elif name == "GetOp":
        assert found == value._replace(namespace=["n"])
    elif name == "PregelTask":
        assert (found.id, found.path) == ("i", ["p"])
    else:
        assert same(found, value), (found, value)


def test_what_is_built_in_is_what_langgraph_calls_safe() -> None:
    """Every built-in type has a sample; the table is LangGraph's, written out."""
    assert set(_BUILT_IN) | {("re", "compile")} == SAFE_MSGPACK_TYPES
    skipped = {"WindowsPath"} if sys.platform != "win32" else {"PosixPath"}
    sampled = {type(value) for value in BUILT_IN.values()}
    missing = {key for key in _BUILT_IN if key[1] not in skipped and built_in(*key).type not in sampled}
    assert {name for _, name in missing} <= {"Path"}


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_bytes_are_those_of_langgraph(name: str) -> None:
    """Written by either, the same bytes; so old threads are read and the codec's splices hold."""
    assert PLAIN.dumps_typed([BUILT_IN[name]]) == JsonPlusSerializer().dumps_typed([BUILT_IN[name]])


@pytest.mark.parametrize("name", LISTED)
def test_listed_bytes_are_those_of_langgraph(name: str) -> None:
    """Listed types too."""
    assert SERDE.dumps_typed([LISTED[name]]) == JsonPlusSerializer().dumps_typed([LISTED[name]])


@settings(max_examples=150)
@given(value=wild.values)
def test_any_value_is_written_alike_and_read_back(value: Any) -> None:
    """A law: the same bytes as LangGraph's, and reading gives a value of which that is true again."""
    written = WILD.dumps_typed(value)
    assert written == JsonPlusSerializer().dumps_typed(value)
    found = WILD.loads_typed(written)
    assert wild.difference(found, WILD.loads_typed(WILD.dumps_typed(found))) is None
    inspect_value(*written)


def test_exceptions_are_kept_as_their_text() -> None:
    """`__error__` writes must never fail, whatever was raised."""
    assert PLAIN.dumps_typed(KeyError("x")) == JsonPlusSerializer().dumps_typed(KeyError("x"))
    assert PLAIN.loads_typed(PLAIN.dumps_typed([ValueError("x")])) == ["ValueError('x')"]


# --- refused when written ---


class Child(Point):
    pass


class Bare:
    pass


class Fussy(BaseModel):
    secret: SecretStr = SecretStr("x")
    amount: int = 0


@dataclasses.dataclass
class Token:
    value: str = "x"

    def get_secret_value(self) -> str:
        return self.value


class Sized(BaseModel):
    model_config = ConfigDict(extra="forbid")
    text: str = ""

    @computed_field
    @property
    def size(self) -> int:
        return len(self.text)


@dataclasses.dataclass
class Once:
    start: dataclasses.InitVar[int]
    value: int = 0


class Hidden(BaseModel):
    value: int = Field(default=1, exclude=True)


@pytest.mark.parametrize("value", [LISTED["enum"], LISTED["enum of str"], LISTED["dataclass"], LISTED["named tuple"], LISTED["model"],
                                   LISTED["nested class"], LISTED["subclass"], Bare(), object(), Bare, iter([])])  # fmt: skip
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [{"a": v}], lambda v: {1: {2: gadgets.Send("n", v)}}])
def test_a_type_that_is_not_listed_is_not_written(value: Any, wrap: Any) -> None:
    """The error names the type and says what to do."""
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    wanted = f"{name} is not serializable" if kind.__module__ == "builtins" else f"list it: types=[{name}]"
    with pytest.raises(RefusedTypeError, match=re.escape(wanted)) as caught:
        PLAIN.dumps_typed(wrap(value))
    assert isinstance(caught.value, TypeError)
    assert PLAIN.loads_typed(PLAIN.dumps_typed([1])) == [1]  # nothing of it stays behind


def test_subclasses_need_listing_too() -> None:
    """Of a listed type, and of a built-in one."""
    forged = type("UUID", (Point,), {"__module__": "uuid"})(1)
    for value in (
        forged,
        Child(1),
        Outer.Inner(Child(1)),
        type("Mine", (HumanMessage,), {})("x"),
        type("Set", (set,), {})(),
    ):
        with pytest.raises(RefusedTypeError, match="not a listed type"):
            SERDE.dumps_typed(value)


def test_secrets_are_not_written() -> None:
    """Neither alone, nor in a listed model, nor by being listed."""
    for value in (SecretStr("x"), [SecretStr("x")], Fussy()):
        with pytest.raises(RefusedTypeError, match="in clear"):
            StrictSerializer([Fussy]).dumps_typed(value)
    with pytest.raises(RefusedTypeError, match="in clear"):
        StrictSerializer([SecretStr])
    with pytest.raises(RefusedTypeError, match="in clear"):
        StrictSerializer([Token])


def test_what_its_own_type_would_refuse_is_not_written() -> None:
    """A value that could not be built again is refused now, not when it is needed."""
    for cls, value in ((Once, Once(1)), (gadgets.Address, gadgets.Address.model_construct(parts="x"))):
        with pytest.raises(RefusedTypeError, match="would not be read back"):
            StrictSerializer([cls]).dumps_typed([value])


def test_what_cannot_be_listed() -> None:
    """Plain classes, things that are no classes, models that leave fields out of their dump."""
    for odd, why in ((Bare, "cannot be kept"), ("Bare", "takes classes"), (Hidden, "would not be read back")):
        with pytest.raises(RefusedTypeError, match=why):
            StrictSerializer([odd])


def test_two_types_of_one_stored_name() -> None:
    """LangGraph stores `__name__` alone."""
    other = type("Inner", (Point,), {"__module__": Outer.Inner.__module__})
    with pytest.raises(RefusedTypeError, match=r"two types are stored as .*\.Inner"):
        StrictSerializer([Outer.Inner, other])
    with pytest.raises(RefusedTypeError, match="two types"):
        StrictSerializer([type("UUID", (gadgets.Point,), {"__module__": "uuid"})])
    assert StrictSerializer([Outer.Inner, Outer.Inner, gadgets.uuid.UUID]).types[0] is Outer.Inner


def test_patterns_that_print_or_take_for_ever() -> None:
    """Refused both ways."""
    for pattern in (re.compile("a" * 10_001), re.compile("a", re.DEBUG)):
        with pytest.raises(RefusedTypeError, match="pattern"):
            PLAIN.dumps_typed(pattern)


# --- blocked when read ---


@pytest.mark.parametrize("name", LISTED)
def test_a_type_that_is_not_listed_is_not_read(name: str) -> None:
    """Never a dict in disguise, never None: an error that names it."""
    kind = type(LISTED[name])
    for value in (LISTED[name], [LISTED[name]], {"a": gadgets.Send("n", LISTED[name])}):
        with pytest.raises(BlockedTypeError) as caught:
            PLAIN.loads_typed(JsonPlusSerializer().dumps_typed(value))
    inside = {type(value).__name__ for value in LISTED.values()}
    assert caught.value.module == kind.__module__
    assert caught.value.name.split(".")[0] in inside
    assert caught.value.name in str(caught.value)


@pytest.mark.parametrize(
    ("blob", "error"),
    [
        (ext(0, "os", "system", "true"), BlockedTypeError),
        (ext(3, "datetime", "datetime", "2026-01-01", "strptime"), BlockedTypeError),
        (ext(5, "langchain_core.messages.ai", "AIMessage", {"content": "x"}, "model_construct"), BlockedTypeError),
        (ext(2, "langchain_core.messages.ai", "AIMessage", {"content": "x"}), BlockedTypeError),
        (ext(0, "uuid", "UUID", "no uuid"), RebuildError),
        (ext(0, "zoneinfo", "ZoneInfo", "../x"), RebuildError),
        (ext(1, "re", "compile", ["a", re.DEBUG]), RebuildError),
        (ext(1, "re", "compile", ["a" * 10_001, 0]), RebuildError),
        (ext(1, "langgraph.types", "Send", [1, 2]), RebuildError),
        (ext(0, "builtins", "set", "abc"), RebuildError),
        (ext(1, "pathlib", "Path", [1]), RebuildError),
        (ext(5, "langchain_core.messages.ai", "AIMessage", {}, "model_validate_json"), RebuildError),
        (ext(6, "|O", [1], "C", b"\0" * 8), BlockedTypeError),
        (ormsgpack.Ext(42, b"\xc0"), DamagedValueError),
        (ormsgpack.Ext(0, b"\xc1"), DamagedValueError),
        (ext(0, "os"), DamagedValueError),
        (ext(0, ["os"], "system", 1), DamagedValueError),
        (ormsgpack.Ext(0, ormsgpack.packb(ext(0, "ipaddress", "IPv4Network", "10.0.0.0/8"))), DamagedValueError),
    ],
)
def test_each_kind_of_refusal(blob: Any, error: type) -> None:
    """Each typed, at the top and nested."""
    for value in (blob, [blob], ormsgpack.Ext(7, pack({"a": blob}))):
        with pytest.raises(error):
            PLAIN.loads_typed(("msgpack", pack(value)))
        assert "Degraded" in repr(inspect_value("msgpack", pack(value)))


@pytest.mark.parametrize("tag", ["json", "pickle", "", "msgpack+aes", "yaml"])
def test_other_forms_are_never_decoded(tag: str) -> None:
    """Not even the one LangGraph once wrote."""
    with pytest.raises(DamagedValueError, match="never decoded"):
        PLAIN.loads_typed((tag, b'{"lc": 2, "type": "constructor", "id": ["uuid", "UUID"], "args": ["x"]}'))
    assert inspect_value(tag, b"{}") == Degraded(tag, b"{}")


def test_a_schema_that_changed_is_an_error_of_its_type() -> None:
    """Not LangGraph's silent dict."""
    old = StrictSerializer([gadgets.Customer, gadgets.Mood]).dumps_typed([gadgets.Customer()])
    renamed = type("Customer", (BaseModel,), {"__module__": gadgets.__name__, "__annotations__": {"name": int}})
    with pytest.raises(RebuildError, match=r"gadgets\.Customer does not take its stored data"):
        StrictSerializer([renamed, gadgets.Mood]).loads_typed(old)


CALL = {"name": "look", "args": {"at": [1]}, "id": "c", "type": "tool_call"}
USAGE = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
MESSAGES: list[BaseMessage] = [
    HumanMessage("hello", id="h", name="Ada"),
    HumanMessage([{"type": "text", "text": "hello"}, "more"], more={"undeclared": [1]}),
    AIMessage("", tool_calls=[CALL], usage_metadata=USAGE, response_metadata={"model": "m"}, id="a"),
    AIMessage("", invalid_tool_calls=[{"name": "look", "args": "{", "id": "c", "error": "cut", "type": "invalid_tool_call"}]),
    AIMessageChunk("", tool_call_chunks=[{"name": "look", "args": '{"at": [1', "id": "c", "index": 0, "type": "tool_call_chunk"}]),
    ToolMessage("found", tool_call_id="c", artifact={"rows": [1, None]}, status="error"),
    SystemMessage("be brief", additional_kwargs={"cache": True}),
    ChatMessage("hello", role="critic"),
    FunctionMessage("found", name="look"),
    RemoveMessage("h"),
]  # fmt: skip


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_is_made_of_its_fields_as_langgraph_makes_it(message: BaseMessage) -> None:
    """The same object in every respect, and one that can be used as any other."""
    stored = PLAIN.dumps_typed(message)
    ours, theirs = PLAIN.loads_typed(stored), JsonPlusSerializer().loads_typed(stored)
    assert ours == message
    for name in ("__class__", "__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert copy.deepcopy(ours) == ours.model_copy() == pickle.loads(pickle.dumps(ours)) == message  # noqa: S301
    ours.content, ours.odd = "changed", 1  # type: ignore[attr-defined]  # messages take undeclared fields
    assert ours.model_fields_set >= {"content", "odd"}
    assert PLAIN.loads_typed(stored).content == message.content


def test_a_message_of_another_release_is_validated() -> None:
    """One that lacks a field of today gets it from its class, and one with more keeps it."""
    fields = HumanMessage("hello", id="h").model_dump()
    del fields["response_metadata"]
    for change in ({}, {"later": 1}):
        parts = ("langchain_core.messages.human", "HumanMessage", {**fields, **change}, "model_validate_json")
        raw = ormsgpack.packb(ormsgpack.Ext(5, ormsgpack.packb(parts)))
        assert PLAIN.loads_typed(("msgpack", raw)) == HumanMessage("hello", id="h", **change)


def test_a_message_changed_in_place_is_not_made_another() -> None:
    """What validators would add or turn into something else is not what was written."""
    message = AIMessage("", id="a")
    message.tool_calls, message.id = [{"name": "look", "args": {}, "id": None, "note": "odd"}], 5  # type: ignore[list-item,assignment,typeddict-unknown-key]
    back = PLAIN.loads_typed(PLAIN.dumps_typed(message))
    assert (back.tool_calls, back.id) == ([{"name": "look", "args": {}, "id": None, "note": "odd"}], 5)


def test_a_message_changed_into_something_invalid_comes_back() -> None:
    """Messages are not validated when they are changed, so what was stored must be read."""
    message = AIMessage("x")
    message.content = None  # type: ignore[assignment]
    found = PLAIN.loads_typed(PLAIN.dumps_typed(message))
    assert type(found) is AIMessage
    assert found.content is None


def test_every_cut_of_a_value_is_typed() -> None:
    """Truncated anywhere: an error of ours."""
    _, data = SERDE.dumps_typed([SAMPLES["messages.AIMessage"], LISTED["model"], {1, 2}])
    for end in range(len(data)):
        with pytest.raises(CheckpointerError):
            SERDE.loads_typed(("msgpack", data[:end]))


@settings(max_examples=300)
@given(
    data=st.binary(max_size=60)
    | st.builds(lambda c, d: pack(ormsgpack.Ext(c, d)), st.integers(0, 127), st.binary(max_size=40))
)
def test_any_bytes_are_a_value_or_a_typed_error(data: bytes) -> None:
    """A law of both readers."""
    with contextlib.suppress(CheckpointerError):
        SERDE.loads_typed(("msgpack", data))
    repr(inspect_value("msgpack", data))


@dataclasses.dataclass
class Stopping:
    stopped: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.stopped:
            raise KeyboardInterrupt


def test_an_interrupt_from_the_keyboard_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a callback raises is lost in msgpack; we hand it on."""
    serde = StrictSerializer([Stopping])
    written = serde.dumps_typed([Stopping()])
    monkeypatch.setattr(Stopping, "stopped", True)
    with pytest.raises(KeyboardInterrupt):
        serde.loads_typed(written)
    assert serde.loads_typed(serde.dumps_typed([1])) == [1]


def test_inspection_leaves_no_error_behind() -> None:
    """Wherever the stack ends, what inspection shows as a damaged object is not raised by the next read."""
    blob = deep(100, 1)

    def down(levels: int) -> Any:
        return down(levels - 1) if levels else inspect_value("msgpack", blob)

    for levels in range(sys.getrecursionlimit() - 400, sys.getrecursionlimit(), 7):
        with contextlib.suppress(RecursionError):
            down(levels)
        assert local.error is None


def test_a_time_zone_is_looked_up_and_never_imported() -> None:
    """`ZoneInfo` imports a package of the name it is given, if no file has it."""
    watch = gadgets.Watch()
    blobs = [pack(ext(0, "zoneinfo", "ZoneInfo", key)) for key in ("No/Such", "tripwire/zone", "../tripwire")]
    for blob in blobs * 2:
        with watch as seen, pytest.raises(RebuildError, match="no time zone"):
            PLAIN.loads_typed(("msgpack", blob))
    assert not seen


# --- limits ---


def test_bytes_are_limited_both_ways() -> None:
    """The limit is looked at before anything is decoded."""
    serde = StrictSerializer(max_bytes=100)
    assert serde.loads_typed(serde.dumps_typed("x" * 90)) == "x" * 90
    for act in (lambda: serde.dumps_typed("x" * 101), lambda: serde.loads_typed(("msgpack", pack("x" * 101)))):
        with pytest.raises(TooLargeError, match="max_bytes=100"):
            act()


@given(depth=st.integers(1, 1_100), limit=st.sampled_from([1, 5, 64, 500, 1_022]), wide=st.booleans())
@settings(max_examples=80)
def test_plain_data_is_limited_exactly(depth: int, limit: int, wide: bool) -> None:
    """As many lists in one another as `max_depth` says, no more, whatever stands beside them; an empty one at the end is none."""
    data = b"\x91" * (depth - 1) + (b"\xdc\x04\x4c" + b"\x91\xc0" * 1_100 if wide else b"\x91\xc0")
    deepest = depth + wide
    serde = StrictSerializer(max_depth=limit)
    if deepest <= limit:
        serde.loads_typed(("msgpack", data))
    else:
        with pytest.raises(TooLargeError):
            serde.loads_typed(("msgpack", data))


@given(objects=st.integers(0, 60), lists=st.integers(0, 30), text=st.sampled_from(["", "x" * 300, "漢" * 300]))
@settings(max_examples=80)
def test_nesting_is_counted_through_objects(objects: int, lists: int, text: str) -> None:
    """A law of the count: objects and lists both count, texts do not."""
    inner = pack([text])
    for _ in range(objects):
        inner = pack(ormsgpack.Ext(7, b"\x91" * lists + inner))
    depth = objects * (lists + 1) + 1
    assert nested_within(inner, depth)
    assert len(inner) <= depth - 1 or not nested_within(inner, depth - 1)


def test_hostile_nesting_is_refused_on_a_small_stack() -> None:
    """What crashes an interpreter elsewhere is an error here, in a thread of a megabyte too."""
    outcomes: list[object] = []

    def read() -> None:
        for objects, lists in ((20, 1_000), (80, 1_000), (5_000, 0), (300, 1), (1, 300), (60, 250)):
            try:
                outcomes.append(PLAIN.loads_typed(("msgpack", deep(objects, lists))))
            except TooLargeError as error:
                outcomes.append(type(error))
            outcomes.append(repr(inspect_value("msgpack", deep(objects, lists)))[:8])

    before = threading.stack_size(1 << 20)
    thread = threading.Thread(target=read)
    thread.start()
    threading.stack_size(before)
    thread.join()
    assert outcomes == [TooLargeError, "Degraded"] * 6


def test_objects_nested_to_the_limit_are_written_and_read() -> None:
    """What may be written can be read, and what could not be is not written."""
    serde = StrictSerializer([Outer.Inner])
    value: Any = None
    for _ in range(84):
        value = Outer.Inner(value)
    assert serde.loads_typed(serde.dumps_typed(value)) == value
    with pytest.raises(TooLargeError):
        serde.dumps_typed([Outer.Inner(Outer.Inner(value))])
    sent: Any = None
    for _ in range(86):
        sent = gadgets.Send("n", sent)
    with pytest.raises(TooLargeError):
        PLAIN.dumps_typed([sent])


@pytest.mark.slow
@pytest.mark.parametrize("head", [b"\xdd", b"\xdf", b"\xc6", b"\xdb", b"\xc9"])
def test_headers_that_lie_take_no_memory(head: bytes) -> None:
    """A hundred bytes that say they are four thousand million items are an error in a small process."""
    code = (
        "import resource, sys; from checkpointers.strict import *; s = StrictSerializer();"
        "size = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize() + (64 << 20);"
        "resource.setrlimit(resource.RLIMIT_AS, (size, size));"
        f"data = {head!r} + b'\\xff' * 4 + b'\\x05' * 90\n"
        "for blob in (data, b'\\xc7\\x5f\\x07' + data, (data[:5]) * 20):\n"
        "  try: s.loads_typed(('msgpack', blob)); sys.exit(2)\n"
        "  except DamagedValueError: pass"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]


def test_the_limit_of_msgpack_itself_is_known() -> None:
    """`max_depth` is counted from it; a release that goes deeper is noticed."""
    assert 256 <= _deepest() <= 1_024


# --- the allowlist of a graph ---


def test_a_graphs_own_types_are_added() -> None:
    """As LangGraph passes them: names, of modules that are imported."""
    names = {(Point.__module__, "Point"), ("langchain_core.messages.ai", "AIMessage"), (Colour.__module__, "Colour")}
    serde = PLAIN.with_msgpack_allowlist(names)
    assert type(serde) is StrictSerializer
    assert set(serde.types) == {Point, Colour}
    assert serde.loads_typed(serde.dumps_typed([Point(1), Colour.RED])) == [Point(1), Colour.RED]
    assert serde.with_msgpack_allowlist(names) is serde
    assert PLAIN.with_msgpack_allowlist([]) is PLAIN
    assert PLAIN.with_msgpack_allowlist([Pair]).types == (Pair,)
    limited = StrictSerializer(max_bytes=10, max_depth=3).with_msgpack_allowlist([Pair])
    assert (limited.max_bytes, limited.max_depth) == (10, 3)


def test_the_allowlist_imports_nothing_and_asks_no_module() -> None:
    """Names of modules that are not imported, of what is no class, of what cannot be kept: left out."""
    module = type(sys)("lazy_module_for_a_test")
    module.__getattr__ = lambda name: gadgets.tripwire(name) and Point  # type: ignore[method-assign]
    sys.modules[module.__name__] = module
    gadgets.TRACES.clear()
    odd = [
        ("antigravity", "x"),
        ("os", "system"),
        (module.__name__, "Point"),
        (__name__, "Bare"),
        ("x",),
        (__name__, "Missing"),
    ]
    assert PLAIN.with_msgpack_allowlist(odd) is PLAIN
    assert "antigravity" not in sys.modules
    assert gadgets.TRACES == []
    del sys.modules[module.__name__]


# --- raw inspection ---


def test_inspection_builds_nothing() -> None:
    """Every object is shown with its type's name and its fields."""
    message = inspect_value(*PLAIN.dumps_typed([HumanMessage("hello")]))[0]
    assert (message.type, message.raw["content"]) == ("langchain_core.messages.human.HumanMessage", "hello")
    assert inspect_value(*SERDE.dumps_typed({"a": Colour.RED})) == {"a": Degraded(f"{Colour.__module__}.Colour", "red")}
    assert repr(inspect_value(*PLAIN.dumps_typed({1}))) == "Degraded(builtins.set, [1])"
    assert inspect_value("null", b"") is None
    assert inspect_value("bytes", b"x") == b"x"
    assert same(inspect_value("bytearray", b"x"), bytearray(b"x"))
    assert inspect_value("msgpack", b"\xc1").raw == b"\xc1"
    with pytest.raises(dataclasses.FrozenInstanceError):
        message.raw = 1


def test_a_long_value_has_a_short_repr() -> None:
    """A repr stays readable, and alive on whatever is nested."""
    assert len(repr(Degraded("a.B", [{"x": "y" * 10_000}] * 10_000))) < 10_000
    nested: Any = 1
    for _ in range(5_000):
        nested = [nested]
    assert "..." in repr(Degraded("a.B", nested))


# --- payloads that would do something ---


@pytest.mark.slow
def test_gadgets_are_never_executed(tmp_path: Path) -> None:
    """In a process of its own, with every import, open file and process heard."""
    found = gadgets.run(tmp_path)
    assert found["payloads"] > 1_300
    assert (found["executed"], found["untyped"], found["events"]) == (0, [], [])
    assert found["typed"] > 1_300


@pytest.mark.slow
def test_the_gadgets_are_live(tmp_path: Path) -> None:
    """Read by LangGraph's serializer without limits, they do run: a trap that never closes proves nothing."""
    assert gadgets.run(tmp_path, permissive=True)["executed"] > 100


class Coordinates(NamedTuple):
    x: int = 0


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    pair: tuple[int, ...] = ()
    place: Coordinates = Coordinates()


class Kind(enum.Enum):
    A = frozenset({1})


def test_values_that_change_their_form_on_the_way() -> None:
    """Tuples become lists in between; strict models, enums of sets and sets of tuples come back all the same."""
    serde = StrictSerializer([Strict, Kind, Coordinates, Sized])
    for value in (Sized(text="a"), Strict(pair=(1, 2)), Kind.A, {(1, (2, 3)), "x"}, frozenset({(1,)}), Coordinates(2)):
        assert same(serde.loads_typed(serde.dumps_typed(value)), value)
