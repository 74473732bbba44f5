"""Types and how their objects are written and read: each as LangGraph writes it, by a constructor that is known.

The built-in ones stand in a table; others are listed in code. Nothing here imports or calls by a stored name.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from collections import deque
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from functools import cache
from importlib import import_module
from inspect import getattr_static, isclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from math import prod
from operator import attrgetter
from pathlib import Path
from typing import Any, Final
from uuid import UUID
from zoneinfo import TZPATH, ZoneInfo, available_timezones

from checkpointers.errors import BlockedTypeError, DamagedValueError, RebuildError, RefusedTypeError

Build = Callable[[Any], Any]
LONGEST_PATTERN: Final = 10_000
_SINGLE, _POSITIONAL, _KEYWORDS, _METHOD, _V1, _V2, ARRAY, SNAPSHOT = range(8)
_MESSAGES: Final = "Base Human AI System Chat Tool Function"
_LANGGRAPH: Final = "Send TimeoutPolicy Interrupt Command StateSnapshot PregelTask Overwrite"
# Every (module, name) that may be built without being listed, and the module it is imported from.
_BUILT_IN: Final[dict[tuple[str, str], str]] = {
    **{("datetime", name): "datetime" for name in ("datetime", "date", "time", "timedelta", "timezone")},
    **{("ipaddress", f"IPv{v}{kind}"): "ipaddress" for v in "46" for kind in ("Address", "Interface", "Network")},
    **{
        (old, name): "pathlib" for old in ("pathlib", "pathlib._local") for name in ("Path", "PosixPath", "WindowsPath")
    },
    ("builtins", "set"): "builtins",
    ("builtins", "frozenset"): "builtins",
    ("collections", "deque"): "collections",
    ("uuid", "UUID"): "uuid",
    ("decimal", "Decimal"): "decimal",
    ("zoneinfo", "ZoneInfo"): "zoneinfo",
    **{
        (module := f"langchain_core.messages.{kind.lower()}", f"{kind}Message{chunk}"): module
        for kind in _MESSAGES.split()
        for chunk in ("", "Chunk")
    },
    ("langchain_core.messages.modifier", "RemoveMessage"): "langchain_core.messages.modifier",
    ("langchain_core.documents.base", "Document"): "langchain_core.documents.base",
    **{("langgraph.types", name): "langgraph.types" for name in _LANGGRAPH.split()},
    **{("langgraph.store.base", name): "langgraph.store.base" for name in ("Item", "GetOp")},
}


@dataclass(frozen=True, slots=True)
class Kind:
    """How objects of one type are written and read."""

    type: type
    module: str
    name: str
    code: int
    parts: Callable[[Any], Any]
    method: list[str]
    build: Build
    listed: bool


def _splat(cls: Any) -> Build:
    return lambda args: cls(*_of(args, list))


def _keywords(cls: Any) -> Build:
    return lambda fields: cls(**_of(fields, dict))


def _text(cls: Any) -> Build:
    return lambda text: cls(_of(text, str))


def _items(cls: Any) -> Build:
    def build(items: Any) -> Any:
        items = _of(items, list)
        try:
            return cls(items)
        except TypeError:  # what has no hash and stood in a set was a tuple
            return cls(_tuples(items))

    return build


def _of(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        msg = f"{kind.__name__} expected, {type(value).__name__} stored"
        raise TypeError(msg)
    return value


def _zone(cls: Any) -> Build:
    def build(key: Any) -> Any:
        if not _is_zone(_of(key, str)):
            msg = f"no time zone {key!r:.80}"
            raise ValueError(msg)
        return cls(key)

    return build


def _zone_parts(zone: ZoneInfo) -> str:
    if zone.key is None:
        raise RefusedTypeError("a time zone read from a file has no name to keep")
    if not _is_zone(zone.key):
        raise RefusedTypeError(f"no time zone is found again under {zone.key!r:.80}")
    return zone.key


def _is_zone(key: str) -> bool:
    """Look for a zone's file: a key that none has makes ZoneInfo import a package of that name."""
    if not re.fullmatch(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*", key):
        return False
    return any(Path(folder, key).is_file() for folder in TZPATH) or key in _zones()


@cache
def _zones() -> set[str]:
    return available_timezones()


def _pattern(args: Any) -> re.Pattern[Any]:
    pattern, flags = _of(args, list)
    if not isinstance(pattern, str | bytes) or len(pattern) > LONGEST_PATTERN or flags & (re.DEBUG | 1):
        msg = f"a pattern over {LONGEST_PATTERN} characters, or with flags that print"
        raise ValueError(msg)
    return re.compile(pattern, flags)


def _pattern_parts(pattern: re.Pattern[Any]) -> tuple[Any, int]:
    if len(pattern.pattern) > LONGEST_PATTERN or pattern.flags & (re.DEBUG | 1):
        raise RefusedTypeError(f"a pattern over {LONGEST_PATTERN} characters, or one that prints when it is compiled")
    return pattern.pattern, pattern.flags


def _send_parts(send: Any) -> tuple[Any, ...]:
    if type(send.node) is not str:
        raise RefusedTypeError(f"Send names a node by a {type(send.node).__name__}; name it by its text")
    timeout = getattr(send, "timeout", None)
    return (send.node, send.arg) if timeout is None else (send.node, send.arg, timeout)


def _send(cls: Any) -> Build:
    def build(args: Any) -> Any:
        node, arg, *timeout = _of(args, list)
        if len(timeout) > 1:
            msg = "two or three arguments expected"
            raise TypeError(msg)
        return cls(_of(node, str), arg, **dict(zip(("timeout",), timeout, strict=False)))

    return build


def _enum(cls: Any) -> Build:
    def build(value: Any) -> Any:
        try:
            return cls(value)
        except (ValueError, TypeError):
            return cls(_tuples(value))

    return build


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if type(value) is list else value


def _dataclass(cls: Any) -> Build:
    late = [field.name for field in dataclasses.fields(cls) if not field.init]
    if not late:
        return _keywords(cls)

    def build(fields: Any) -> Any:
        made = cls(**{name: value for name, value in _of(fields, dict).items() if name not in late})
        for name in late:
            object.__setattr__(made, name, fields[name])
        return made

    return build


def _dataclass_parts(cls: Any) -> Callable[[Any], Any]:
    names = [field.name for field in dataclasses.fields(cls)]
    return lambda value: {name: getattr(value, name) for name in names}


def _model(cls: Any) -> Build:
    """Validate by field names: a stored dump has them, whatever the aliases."""
    computed = set(cls.__pydantic_decorators__.computed_fields)
    if excluded := [name for name, field in cls.model_fields.items() if field.exclude]:
        raise RefusedTypeError(f"{name_of(cls)} excludes {excluded} from its dump: it would not be read back")

    def build(fields: Any) -> Any:
        if computed and type(fields) is dict:
            fields = {name: value for name, value in fields.items() if name not in computed}
        return cls.model_validate(fields, strict=False, by_name=True, by_alias=False)

    return build


def _built_in_model(cls: Any) -> Build:
    """As LangGraph does: a message that was changed into something invalid still comes back as it was written."""
    required = {name for name, field in cls.model_fields.items() if field.is_required()}
    blank = cls.model_construct(**dict.fromkeys(required)).__dict__  # pydantic compiles something for each default

    def build(fields: Any) -> Any:
        try:
            return cls(**fields)
        except Exception:
            if required - fields.keys():
                raise
            return cls.model_construct(**{**deepcopy(blank), **fields})

    return _message(cls, build) if _is_plain_message(cls) else build


def _is_plain_message(cls: Any) -> bool:
    """Tell whether an object of a class is nothing but its fields, each of which stands in its dump as it is."""
    hidden = cls.__private_attributes__ or cls.__pydantic_post_init__ is not None
    return not hidden and cls.__module__.startswith("langchain_core.messages.")


_SLOTS: Final = ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")


def _message(cls: Any, otherwise: Build) -> Build:
    """Make a message of its dump: with neither more nor fewer fields than it had, there is nothing to validate.

    That takes a tenth of the time, and gives the very message that was written, where validators may make another.
    """
    names, new = set(cls.model_fields), cls.__new__
    fill, note, widen, hide = (getattr_static(cls, slot).__set__ for slot in _SLOTS)

    def build(fields: Any) -> Any:
        if type(fields) is not dict or fields.keys() != names:
            return otherwise(fields)
        message = new(cls)
        fill(message, fields)
        note(message, names.copy())
        widen(message, {})
        hide(message, None)
        return message

    return build


_TIME: Final = ("hour", "minute", "second", "microsecond", "tzinfo", "fold")
_IPS: Final = (IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network)
_LEAVES: Final[tuple[tuple[Any, int, Callable[[Any], Any], Callable[[Any], Build]], ...]] = (
    (Path, _POSITIONAL, attrgetter("parts"), lambda cls: lambda args: cls(*(_of(arg, str) for arg in _of(args, list)))),
    (UUID, _SINGLE, attrgetter("hex"), _text),
    (Decimal, _SINGLE, str, _text),
    ((set, frozenset, deque), _SINGLE, tuple, _items),
    (_IPS, _SINGLE, str, _text),
    (dt.datetime, _METHOD, lambda moment: moment.isoformat(), lambda cls: cls.fromisoformat),
    (dt.timedelta, _POSITIONAL, attrgetter("days", "seconds", "microseconds"), _splat),
    (dt.date, _POSITIONAL, attrgetter("year", "month", "day"), _splat),
    (dt.time, _KEYWORDS, lambda time: {name: getattr(time, name) for name in _TIME}, _keywords),
    (dt.timezone, _POSITIONAL, lambda zone: zone.__getinitargs__(), _splat),
    (ZoneInfo, _SINGLE, _zone_parts, _zone),
    (Enum, _SINGLE, attrgetter("value"), _enum),
)


def kind_of(cls: Any, *, listed: bool) -> Kind:
    """Say how objects of a type are written and read; raises `RefusedTypeError` for those that cannot be."""
    method: list[str] = []
    if not _listable(cls):
        raise RefusedTypeError(why_not(cls))
    if _has(cls, "model_dump"):
        code, parts, method = _V2, cls.model_dump, ["model_validate_json"]
        build = (_model if listed else _built_in_model)(cls) if hasattr(cls, "model_fields") else _keywords(cls)
    elif _has(cls, "dict"):
        code, parts, build = _V1, cls.dict, _keywords(cls)
    elif _has(cls, "_asdict"):
        code, parts, build = _KEYWORDS, cls._asdict, _keywords(cls)
    elif leaf := next((leaf for leaf in _LEAVES if issubclass(cls, leaf[0])), None):
        code, parts, build = leaf[1], leaf[2], leaf[3](cls)
        method = ["fromisoformat"] if code == _METHOD else []
    elif dataclasses.is_dataclass(cls):
        code, parts, build = _KEYWORDS, _dataclass_parts(cls), _dataclass(cls)
    elif not listed and cls.__name__ == "Send":
        code, parts, build = _POSITIONAL, _send_parts, _send(cls)
    elif not listed:  # an item of a store
        code, parts, build = _KEYWORDS, _slots, _keywords(cls)
    else:
        raise RefusedTypeError(why_not(cls))
    return Kind(cls, cls.__module__, cls.__name__, code, parts, method, build, listed)


def _slots(item: Any) -> dict[str, Any]:
    return {name: getattr(item, name) for name in item.__slots__}


def _listable(cls: Any) -> bool:
    return isclass(cls) and not hasattr(cls, "get_secret_value")


def _has(cls: Any, method: str) -> bool:
    return callable(getattr(cls, method, None))


def name_of(cls: Any) -> str:
    """Give the full name of a class."""
    return f"{cls.__module__}.{cls.__qualname__}"


def why_not(cls: Any) -> str:
    """Say why objects of a class cannot be kept."""
    if not isclass(cls):
        return f"{cls!r:.80} is not a type; types=[…] takes classes"
    if hasattr(cls, "get_secret_value"):
        return f"{name_of(cls)} is a secret, which would be written in clear; keep its name in the state, not its value"
    sorts = "pydantic model, dataclass, named tuple, enum or kind of a built-in type"
    return f"{name_of(cls)} cannot be kept: it is no {sorts}; make it one, or store plain data"


PATTERN: Final = Kind(re.Pattern, "re", "compile", _POSITIONAL, _pattern_parts, [], _pattern, listed=False)


_known: Final[dict[tuple[str, str], Kind]] = {("re", "compile"): PATTERN}


def built_in(module: str, name: str) -> Kind | None:
    """Give the kind of a built-in type; its module comes from the table above, not from what was asked."""
    kind = _known.get((module, name))
    if kind is None and (place := _BUILT_IN.get((module, name))):
        kind = _known[module, name] = kind_of(getattr(import_module(place), name), listed=False)
    return kind


_DTYPE: Final = re.compile(r"[<>|=][biufcSU]\d{1,9}")


def array_of(parts: Any) -> Any:
    """Build a numpy array from its bytes, of numbers, times or texts."""
    try:
        dtype, shape, order, raw = _of(parts, list)
        known = _DTYPE.fullmatch(dtype) and order in ("C", "F") and all(type(n) is int and n >= 0 for n in shape)
        if known:
            numpy = import_module("numpy")
            found = numpy.dtype(dtype)
            if found.itemsize * prod(shape) == len(raw):
                return numpy.frombuffer(raw, dtype=found).reshape(shape, order=order)
    except Exception as error:
        raise RebuildError("numpy", "ndarray", error) from error
    if not known:
        raise BlockedTypeError("numpy", f"dtype({dtype!r:.80})")
    raise DamagedValueError("a stored array does not have as many bytes as its shape says")
