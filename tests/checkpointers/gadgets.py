"""Stored bytes that would do something if the reader let them: each leaves a trace when it is executed.

`payloads` makes them, wired to one folder: what runs creates a file there or adds to `TRACES`. `child` decodes them all
in a process of its own, with an audit hook that sees every import, open file, process and socket.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import ipaddress as ip
import itertools
import json
import pickle
import re
import subprocess
import sys
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import TZPATH, ZoneInfo

import ormsgpack
from langchain_core import messages as m
from langchain_core.documents import Document
from langchain_core.messages import BaseMessageChunk
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.store.base import GetOp, Item
from langgraph.types import Command, Interrupt, Overwrite, PregelTask, Send, StateSnapshot, TimeoutPolicy
from pydantic import BaseModel, ConfigDict, Field, RootModel, computed_field, model_validator

TRACES: list[str] = []
HERE = __name__
PACK = ormsgpack.OPT_NON_STR_KEYS


class Colour(enum.Enum):
    RED = "red"
    PAIR = (1, (2, 3))


class Mood(str, enum.Enum):  # noqa: UP042
    GOOD = "good"


class Level(enum.IntEnum):
    LOW = 1


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


@dataclasses.dataclass
class Point:
    x: int
    label: str | None = None
    total: int = dataclasses.field(init=False, default=0)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    colour: Colour
    point: Point | None = None


class Pair(NamedTuple):
    left: Any
    right: Any = None


class Address(BaseModel):
    model_config = ConfigDict(strict=True)
    town: str = Field(default="", alias="TownName")
    parts: tuple[int, ...] = ()

    @computed_field
    @property
    def size(self) -> int:
        return len(self.town)


class Customer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    address: Address | None = None
    mood: Mood = Mood.GOOD
    since: dt.datetime | None = None


class Tags(RootModel[list[str]]):
    pass


class Outer:
    @dataclasses.dataclass
    class Inner:
        """Stored by its own name alone."""

        value: Any = None


class Moment(dt.datetime):
    """A kind of a built-in type, listed."""


TYPES = (Colour, Mood, Level, Rights, Point, Frozen, Pair, Address, Customer, Tags, Outer.Inner, Moment)
LISTED: dict[str, Any] = {
    "enum": Colour.RED, "enum of a tuple": Colour.PAIR, "enum of str": Mood.GOOD, "enum of int": Level.LOW, "flag": Rights.READ | Rights.WRITE,
    "dataclass": Point(1, "a"), "frozen dataclass": Frozen(colour=Colour.RED, point=Point(2)), "named tuple": Pair(1, Point(3)),
    "aliases": Address(TownName="Ulm", parts=(1, 2)), "model": Customer(address=Address(TownName="X"), since=dt.datetime(2026, 1, 2, tzinfo=dt.UTC)),
    "root model": Tags(["a"]), "nested class": Outer.Inner([Outer.Inner(1)]), "subclass": Moment(2026, 1, 2),
}  # fmt: skip
_NOW = dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC)
BUILT_IN: dict[str, Any] = {
    "datetime.datetime": _NOW, "datetime.date": dt.date(2026, 1, 2), "datetime.time": dt.time(1, 2, 3, 4, tzinfo=dt.UTC, fold=1),
    "datetime.timedelta": dt.timedelta(-1, 2, 3), "datetime.timezone": dt.timezone(dt.timedelta(hours=2), "X"),
    "uuid.UUID": uuid.UUID(int=7), "decimal.Decimal": Decimal("1.10"), "builtins.set": {1, "a", (1, (2,))}, "builtins.frozenset": frozenset({1}),
    "collections.deque": deque([1, [2]]), "zoneinfo.ZoneInfo": ZoneInfo("Europe/Berlin"), "re.Pattern": re.compile("a+", re.IGNORECASE), "bytes pattern": re.compile(b"a"),
    **{f"ipaddress.{type(a).__name__}": a for a in (*map(ip.ip_address, ("127.0.0.1", "::1")), *map(ip.ip_network, ("10.0.0.0/8", "fe80::/64")),
                                                 *map(ip.ip_interface, ("10.0.0.1/8", "fe80::1/64")))},
    "pathlib.Path": Path("/a/b"),
    **{f"messages.{type(each).__name__}": each for each in (
        m.HumanMessage("x", id="1"), m.HumanMessageChunk(content="x"), m.AIMessage("x", tool_calls=[{"name": "f", "args": {"a": 1}, "id": "c", "type": "tool_call"}]),
        m.AIMessageChunk(content="x"), m.SystemMessage("x"), m.SystemMessageChunk(content="x"), m.ChatMessage("x", role="r"), m.ChatMessageChunk(content="x", role="r"),
        m.ToolMessage("x", tool_call_id="c", artifact={"a": {1}}), m.ToolMessageChunk(content="x", tool_call_id="c"), m.FunctionMessage("x", name="f"),
        m.FunctionMessageChunk(content="x", name="f"), m.RemoveMessage(id="1"), m.BaseMessage(content="x", type="t"), BaseMessageChunk(content="x", type="t"))},
    "Document": Document("x", metadata={"a": 1}), "Send": Send("n", {"a": m.HumanMessage("x")}), "Send in time": Send("n", 1, timeout=TimeoutPolicy(run_timeout=2.0)),
    "TimeoutPolicy": TimeoutPolicy(idle_timeout=dt.timedelta(seconds=1)), "Interrupt": Interrupt({"q": 1}, id="i"), "Command": Command(update={"a": 1}, goto=["n"]),
    "Overwrite": Overwrite([1]), "Item": Item(value={"a": 1}, key="k", namespace=("n",), created_at=_NOW, updated_at=_NOW), "GetOp": GetOp(("n",), "k"),
    "PregelTask": PregelTask("i", "n", ["p"]), "StateSnapshot": StateSnapshot({"a": 1}, ["n"], {}, None, None, None, [], []), "snapshot": _DeltaSnapshot([1, {2}]),
}  # fmt: skip
SAMPLES = BUILT_IN | LISTED


class Gadget(NamedTuple):
    name: str
    tag: str
    data: bytes
    harmless: bool = False  # may be read, as plain data or a built-in type
    crashes: bool = False  # takes an unguarded reader down, or minutes of its time


def tripwire(*args: Any, **kwargs: Any) -> str:
    TRACES.append(repr((args, kwargs))[:80])
    return "executed"


class Model(BaseModel):
    path: str = ""

    @model_validator(mode="before")
    @classmethod
    def _run(cls, data: Any) -> Any:
        tripwire("model")
        return data


@dataclasses.dataclass
class Data:
    path: str = ""

    def __post_init__(self) -> None:
        tripwire("dataclass")


class Choice(enum.Enum):
    A = 1

    @classmethod
    def _missing_(cls, value: object) -> Any:
        tripwire(value)
        return cls.A


class Plain:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        tripwire("class")

    construct = model_construct = model_validate_json = parse_obj = fromisoformat = classmethod(tripwire)


class Pickled:
    def __init__(self, call: Callable[..., Any], *args: Any) -> None:
        self.call, self.args = call, args

    def __reduce__(self) -> Any:
        return self.call, self.args


def pack(value: Any) -> bytes:
    return ormsgpack.packb(value, option=PACK)


def ext(code: int, *parts: Any) -> ormsgpack.Ext:
    return ormsgpack.Ext(code, pack(parts))


def _targets(folder: Path) -> Iterator[tuple[str, str, list[Any], dict[str, Any]]]:
    """Module, name, positional and keyword arguments of what an attacker would call."""
    touch, made = f"touch {folder}/ran", f"{folder}/made"
    code = f"open({made!r}, 'w')"
    yield from (("os", name, [touch], {"command": touch}) for name in ("system", "popen"))
    yield from ((module, "system", [touch], {"command": touch}) for module in ("posix", "nt"))
    for name in ("Popen", "run", "call", "check_call", "check_output", "getoutput", "getstatusoutput"):
        yield "subprocess", name, [touch if name.startswith("get") else ["touch", made]], {"args": ["touch", made]}
    yield from (("builtins", name, [code], {"source": code}) for name in ("eval", "exec"))
    yield "builtins", "compile", [code, "x", "exec"], {"source": code, "filename": "x", "mode": "exec"}
    yield "builtins", "open", [made, "w"], {"file": made, "mode": "w"}
    yield "builtins", "__import__", ["this"], {"name": "this"}
    yield "builtins", "getattr", [{}, "clear"], {}
    yield "importlib", "import_module", ["this"], {"name": "this"}
    yield "runpy", "run_module", ["this"], {"mod_name": "this"}
    yield "os", "mkdir", [made], {"path": made}
    yield "os", "makedirs", [made], {"name": made}
    yield "os", "mkfifo", [made], {"path": made}
    yield "os", "putenv", ["EXECUTED", "1"], {}
    yield "os", "_exit", [3], {"status": 3}
    yield "sys", "exit", [3], {"status": 3}
    yield "shutil", "copy", ["/etc/hostname", made], {"src": "/etc/hostname", "dst": made}
    yield "shutil", "rmtree", [str(folder / "kept")], {"path": str(folder / "kept")}
    yield "tempfile", "mkdtemp", ["", "", str(folder)], {"dir": str(folder)}
    yield "timeit", "timeit", ["pass", code], {"stmt": code, "number": 1}
    yield "pickle", "loads", [pickle.dumps(Pickled(tripwire, 1))], {"data": pickle.dumps(Pickled(tripwire, 1))}
    yield "ctypes", "CDLL", ["libc.so.6"], {"name": "libc.so.6"}
    yield "socket", "create_connection", [["127.0.0.1", 9]], {"address": ["127.0.0.1", 9]}
    yield "urllib.request", "urlopen", ["file:///etc/hostname"], {"url": "file:///etc/hostname"}
    yield "webbrowser", "open", ["file:///nothing"], {"url": "file:///nothing"}
    yield "logging.config", "dictConfig", [{"version": 1, "formatters": {"a": {"()": "os.getcwd"}}}], {}
    yield "langchain_core.load.load", "loads", [_lc(1, ["os", "system"], {})], {"text": "{}"}
    yield "langgraph.checkpoint.serde.jsonplus", "JsonPlusSerializer", [], {"pickle_fallback": True}
    yield "pydantic.types", "SecretStr", ["x"], {"secret_value": "x"}
    for name in ("tripwire", "Model", "Data", "Choice", "Plain", "TRACES.append", "Model.model_validate_json"):
        yield HERE, name, ["arg"], {"path": made}
    yield "tests.checkpointers.never_imported", "boom", ["arg"], {"a": 1}
    yield "this", "s", [], {}


METHODS = (
    "model_validate_json", "model_construct", "construct", "parse_file", "parse_raw", "from_orm", "fromisoformat",
    "__init__", "__call__", "__class__", "__reduce_ex__", "write_text", "touch", "mkdir", "unlink", "append",
)  # fmt: skip


def _calls(folder: Path) -> Iterator[Gadget]:
    for module, name, args, kwargs in _targets(folder):
        first, where = (args or [None])[0], f"{module}.{name}"
        yield Gadget(f"single {where}", "msgpack", pack(ext(0, module, name, first)))
        yield Gadget(f"positional {where}", "msgpack", pack(ext(1, module, name, args)))
        yield Gadget(f"keywords {where}", "msgpack", pack(ext(2, module, name, kwargs)))
        yield Gadget(f"v1 {where}", "msgpack", pack(ext(4, module, name, kwargs)))
        yield Gadget(f"v2 {where}", "msgpack", pack(ext(5, module, name, kwargs, "model_validate_json")))
        yield Gadget(f"method {where}", "msgpack", pack(ext(3, module, name, first, "__call__")))
        for number in (1, 2):
            data = json.dumps(_lc(number, [*module.split("."), name], kwargs, args)).encode()
            yield Gadget(f"lc:{number} {where}", "json", data)


def _methods(folder: Path) -> Iterator[Gadget]:
    made = f"{folder}/made"
    owners = (
        ("pathlib", "Path", made), ("pathlib", "PosixPath", made), ("datetime", "datetime", "2026"), ("uuid", "UUID", made),
        ("builtins", "set", [1]), ("re", "compile", "a"), ("langgraph.types", "Send", "n"), (HERE, "Plain", made), (HERE, "Model", made),
        ("langchain_core.messages.ai", "AIMessage", {"content": "x"}), ("langchain_core.documents.base", "Document", made),
    )  # fmt: skip
    for (module, name, arg), method in itertools.product(owners, METHODS):
        allowed = (name, method) == ("datetime", "fromisoformat")
        yield Gadget(f"{module}.{name}.{method}", "msgpack", pack(ext(3, module, name, arg, method)), allowed)
        if not (name in ("AIMessage",) and method == "model_validate_json"):
            yield Gadget(f"v2 {module}.{name}.{method}", "msgpack", pack(ext(5, module, name, arg, method)))


def _built_in(folder: Path) -> Iterator[Gadget]:
    """Types that are allowed, with arguments, codes and names that are not."""
    pydantic = ["content", "additional_kwargs"]
    odd: list[tuple[str, ormsgpack.Ext]] = [
        *((f"zone {key}", ext(0, "zoneinfo", "ZoneInfo", key)) for key in (
            "../../../etc/passwd", "/etc/passwd", "tripwire/zone", "no_such", "", ".", "..", "a//b", "a\x00b", 7, None, ["UTC"])),
        *((f"pattern flags {flags}", ext(1, "re", "compile", ["a", flags])) for flags in (128, 1, 2**40, "x", None)),
        *((f"pattern {name}", ext(1, "re", "compile", [text, 0])) for name, text in (
            ("bomb", "(" * 50_000 + ")" * 50_000), ("long", "a" * 2_000_000), ("bad", "(?P<"), ("odd", 7), ("sets", "(?i)" + "[^a-\uffff]" * 100_000))),
        *((f"send {n}", ext(1, "langgraph.types", "Send", args)) for n, args in enumerate(
            ([], ["n"], [1, 2], ["n", 1, 2, 3], {"node": "n"}, "ab", [["os"], "system"], ["n", 1, {"__class__": 1}]))),
        *((f"wrong code {code} {name}", ext(code, module, name, arg, *rest)) for code, (module, name, arg, *rest) in itertools.product(
            (0, 1, 2, 3, 4, 5), (("builtins", "object", []), ("datetime", "datetime", "2026-01-01", "strptime"), ("collections", "Counter", []),
                                 ("pathlib", "Path.write_text", ["a"]), ("", "", []), (".os", "system", ["a"]), ("os.path", "..", [])))),
        *((f"names {names!r:.30}", ext(code, *names)) for code, names in itertools.product((0, 1, 2, 3, 4, 5), (
            (), (1,), ("os",), ("os", "system"), (1, 2, 3, 4), ([], {}, []), ({}, [], [], []), ("os", ["system"], "x", None), (None,) * 4))),
        *((f"not a list {value!r:.20}", ormsgpack.Ext(code, pack(value))) for code, value in itertools.product(
            (0, 1, 2, 3, 4, 5, 6), ("abc", "abcd", {"a": 1, "b": 2, "c": 3}, None, 7, b"abc"))),
        *((f"no msgpack in {code}", ormsgpack.Ext(code, raw)) for code, raw in itertools.product((*range(9), 100), (b"", b"\xc1", b"\x93", b"\xdd\xff\xff\xff\xff"))),
        *((f"unknown code {code}", ormsgpack.Ext(code, pack(["os", "system", "touch x", "y"]))) for code in range(8, 128)),
        *((f"array {dtype!r:.20}", ext(6, dtype, shape, "C", b"\0" * 16)) for dtype, shape in (
            ("O", [2]), ("|O", [2]), ("|V16", [1]), ("i4,(2)f8", [1]), ("<f8", [-1]), ("<f8", [2**62, 2**62]), ("<f8", [3]), ("<f8", "2"),
            (f"__import__('os').system('touch {folder}/ran')", [1]), ("<U99999999", [0]), (["a"], [1]), ({"names": ["a"], "formats": ["O"]}, [1]))),
        ("message without fields", ext(5, "langchain_core.messages.ai", "AIMessage", {}, "model_validate_json")),
        ("message of a list", ext(5, "langchain_core.messages.ai", "AIMessage", pydantic, "model_validate_json")),
        ("uuid of a dict", ext(0, "uuid", "UUID", {"hex": 1})),
        ("decimal of a list", ext(0, "decimal", "Decimal", [0, [1], 0])),
        ("address of an int", ext(0, "ipaddress", "IPv4Address", 1)),
        ("set of a text", ext(0, "builtins", "set", "abc")),
        ("set of dicts", ext(0, "builtins", "set", [{}])),
        ("path of numbers", ext(1, "pathlib", "Path", [1])),
        ("windows path", ext(1, "pathlib", "WindowsPath", ["a"])),
        ("timedelta of texts", ext(1, "datetime", "timedelta", ["a"])),
        ("time zone of a call", ext(2, "datetime", "time", {"tzinfo": "os.system"})),
    ]  # fmt: skip
    call = pack(["os", "system", "touch x", "y"])
    odd_codes = (bytes((0xC7, len(call), code)) for code in range(128, 256))
    yield from (Gadget(f"negative code {head[2] - 256}", "msgpack", head + call) for head in odd_codes)
    for name, made in odd:
        yield Gadget(name, "msgpack", pack(made))


def _wrapped(folder: Path) -> Iterator[Gadget]:
    """A call that hides in what is allowed."""
    inner = ext(0, HERE, "tripwire", str(folder))
    ai = ("langchain_core.messages.ai", "AIMessage")
    places: dict[str, Any] = {
        "list": [1, inner], "dict": {"a": {"b": inner}}, "snapshot": ormsgpack.Ext(7, pack([inner])), "set": ext(0, "builtins", "set", [inner]),
        "send": ext(1, "langgraph.types", "Send", ["n", inner]), "interrupt": ext(2, "langgraph.types", "Interrupt", {"value": inner, "id": "x"}),
        "message": ext(5, *ai, {"content": "x", "additional_kwargs": {"a": inner}}, "model_validate_json"), "module": ext(0, inner, "system", "x"),
        "name": ext(0, "os", inner, "x"), "method": ext(3, "datetime", "datetime", "2026-01-01", inner), "time": ext(2, "datetime", "time", {"tzinfo": inner}),
        "command": ext(2, "langgraph.types", "Command", {"update": {"a": inner}}), "unknown": ormsgpack.Ext(99, pack([inner])),
        "blocked": ext(0, "os", "system", inner), "array": ext(6, inner, [1], "C", b""),
    }  # fmt: skip
    yield from (Gadget(f"in {name}", "msgpack", pack(value)) for name, value in places.items())
    for depth in (2, 10, 60):
        value = pack([inner])
        for _ in range(depth):
            value = pack([ormsgpack.Ext(7, value)])
        yield Gadget(f"in {depth} snapshots", "msgpack", value)
    key = b"\x81" + pack(inner) + b"\xc0"
    yield Gadget("as a key", "msgpack", key)
    yield Gadget("as a key in an object", "msgpack", pack(ormsgpack.Ext(7, key)))


def deep(objects: int, lists: int) -> bytes:
    value = b"\xc0"
    for _ in range(objects):
        value = pack(ormsgpack.Ext(7, b"\x91" * lists + value))
    return value


def _large() -> Iterator[Gadget]:
    for objects, lists in ((1, 1_100), (2, 300), (20, 1_000), (40, 1_000), (300, 0), (5_000, 0), (80, 250)):
        crashes = objects * lists > 10_000
        yield Gadget(f"{objects} objects of {lists} lists", "msgpack", deep(objects, lists), crashes=crashes)
    yield Gadget("lists", "msgpack", b"\x91" * 1_000_000)
    yield Gadget("dicts", "msgpack", b"\x81\xa0" * 100_000)
    two = b"\xc7\xff\x07\xc0" + deep(40, 1_000)[:254]
    yield Gadget("a second value in an object", "msgpack", two, harmless=True)
    for head in (b"\xdd", b"\xdf", b"\xc6", b"\xdb", b"\xc9"):
        yield Gadget(f"lies about its length {head!r}", "msgpack", head + b"\xff" * 4 + b"\x05" * 90)
        yield Gadget(f"lies again and again {head!r}", "msgpack", (head + b"\x7f\xff\xff\xff") * 20)
    yield from (
        Gadget(f"garbage {raw!r}", "msgpack", raw)
        for raw in (b"", b"\xc1", b"\xa1\xff", b"\x81\x80\xc0", b"\x91", b"\xd9")
    )


def _tags(folder: Path) -> Iterator[Gadget]:
    import os

    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        for call, args in ((os.system, (f"touch {folder}/ran",)), (tripwire, (1,)), (eval, ("__import__('this')",))):
            data = pickle.dumps(Pickled(call, *args), protocol)
            yield from (
                Gadget(f"pickle {protocol} {call.__name__} as {tag}", tag, data)
                for tag in ("pickle", "json", "msgpack+pickle")
            )
            yield Gadget(f"pickle {protocol} {call.__name__} as msgpack", "msgpack", data, harmless=True)
    for tag in (
        "",
        "marshal",
        "yaml",
        "pickle+aes",
        "msgpack+aes",
        "msgpack ",
        "MSGPACK",
        "__import__",
        "\x00",
        "json ",
        "os.system",
    ):
        yield Gadget(f"tag {tag!r}", tag, b"touch")
    yield Gadget("secret", "json", json.dumps({"lc": 1, "type": "secret", "id": ["PATH"]}).encode())
    yield Gadget("plain json", "json", b"[1]")


def _lc(number: int, where: list[str], kwargs: dict[str, Any], args: list[Any] | None = None) -> dict[str, Any]:
    plain = [arg for arg in args or [] if not isinstance(arg, bytes)]
    kept = {name: value for name, value in kwargs.items() if not isinstance(value, bytes)}
    return {"lc": number, "type": "constructor", "id": where, "args": plain, "kwargs": {} if plain else kept, "method": [None, "construct"]}  # fmt: skip


def payloads(folder: Path) -> list[Gadget]:
    """Make the corpus, wired to a folder."""
    (folder / "kept").mkdir(exist_ok=True)
    makers = (_calls(folder), _methods(folder), _built_in(folder), _wrapped(folder), _large(), _tags(folder))
    ends = ("os._exit", "webbrowser.open", "pattern sets", "pattern long")
    every = itertools.chain(*makers)
    return [gadget._replace(crashes=gadget.crashes or gadget.name.endswith(ends)) for gadget in every]


def warm_up(strict: Any) -> None:
    """Meet every type once: what is imported then, by names of our own, is none of the payloads' doing."""
    with suppress(ImportError):
        import_module("numpy")
    for value in SAMPLES.values():
        strict.loads_typed(strict.dumps_typed(value))
    with suppress(ValueError):
        strict.loads_typed(("msgpack", pack(ext(0, "zoneinfo", "ZoneInfo", "No/Such"))))


WATCHED = (
    "import", "exec", "compile", "open", "os.", "subprocess.", "socket.", "ctypes.", "pickle.", "marshal.", "shutil.",
    "tempfile.", "urllib.", "webbrowser.", "code.__new__", "function.__new__", "pty.", "glob.", "sys.addaudithook",
)  # fmt: skip


class Watch:
    """An audit hook, which stays as long as the process does; it listens between `start` and `stop`."""

    def __init__(self) -> None:
        self.on, self.seen = False, list[str]()
        sys.addaudithook(self._hear)

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        zone = event == "open" and str(args[0]).startswith(TZPATH)  # a built-in type's own file
        if self.on and event.startswith(WATCHED) and not zone:
            self.seen.append(f"{event} {args!r:.80}")

    def __enter__(self) -> list[str]:
        self.seen, self.on = [], True
        return self.seen

    def __exit__(self, *error: object) -> None:
        self.on = False


def traces(folder: Path) -> int:
    """Count what was executed so far."""
    return len(TRACES) + sum(1 for path in folder.iterdir() if path.name != "kept") + (not (folder / "kept").is_dir())


def child(folder: Path, *, permissive: bool = False) -> dict[str, Any]:
    """Decode and inspect every payload here and now; count what happened."""
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    from checkpointers.errors import CheckpointerError
    from checkpointers.strict import StrictSerializer, inspect_value

    corpus = [gadget for gadget in payloads(folder) if not (permissive and gadget.crashes)]
    strict: Any = StrictSerializer(TYPES)
    if permissive:
        strict = JsonPlusSerializer(pickle_fallback=True, allowed_json_modules=True, allowed_msgpack_modules=True)
    warm_up(strict)
    result: dict[str, Any] = {
        "payloads": len(corpus),
        "executed": 0,
        "typed": 0,
        "read": 0,
        "untyped": [],
        "events": [],
    }
    watch, before = Watch(), traces(folder)
    TRACES.clear()
    for gadget in corpus:
        outcome = "read"
        with watch as seen:
            if not permissive:
                inspect_value(gadget.tag, gadget.data)
            try:
                strict.loads_typed((gadget.tag, gadget.data))
            except CheckpointerError:
                outcome = "typed"
            except BaseException as error:
                outcome = repr(error)[:100]
        result["executed"] += traces(folder) > before or bool(seen)
        before = traces(folder)
        result["events"] += [f"{gadget.name}: {event}" for event in seen]
        if outcome in ("typed", "read") and (outcome == "typed" or gadget.harmless or permissive):
            result[outcome] += 1
        else:
            result["untyped"].append(f"{gadget.name}: {outcome}")
    return result


def main() -> None:
    """Decode in this process: a folder, a file for the result, and whether to use LangGraph's serializer without limits."""
    Path(sys.argv[2]).write_text(json.dumps(child(Path(sys.argv[1]), permissive="permissive" in sys.argv)))


def run(folder: Path, *, permissive: bool = False) -> dict[str, Any]:
    """Decode the corpus in a process of its own."""
    traps, result = folder / "traps", folder / "result.json"
    traps.mkdir()
    code = "from tests.checkpointers import gadgets; gadgets.main()"
    arguments = [str(traps), str(result), *(["permissive"] if permissive else [])]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *arguments], cwd=root, capture_output=True, text=True, check=False
    )
    if not result.exists():
        raise AssertionError(f"the reader died ({done.returncode}): {done.stderr[-800:]}")
    return json.loads(result.read_text())
