"""LangGraph's own form of values, written and read strictly: by an explicit list of types, never by a stored name.

A type is built in (dates, messages, what LangGraph itself stores) or was listed in code; anything else is refused when
it is written and when it is read. A stored name is only ever looked up in a table, never imported, and the one call
that is made is the constructor of the type found there. No pickle, no JSON constructors. Nesting is looked at before
anything is decoded: 20 kB of brackets in objects in objects crash an interpreter that does not.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from inspect import isclass
from reprlib import Repr
from typing import Any, Final, NoReturn

import ormsgpack
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer, _msgpack_default
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from checkpointers.errors import BlockedTypeError, DamagedValueError, RebuildError, RefusedTypeError, TooLargeError
from checkpointers.fingerprint import check_keys
from checkpointers.kinds import ARRAY, PATTERN, SNAPSHOT, Kind, array_of, built_in, kind_of, name_of, why_not
from checkpointers.unpacking import (
    MAX_BYTES,
    MAX_DEPTH,
    OBJECT_DEPTH,
    Hook,
    Reader,
    check_nesting,
    local,
    unpacked,
)

# LangGraph replaces what is no text in a text by question marks; here it is refused.
_WRITE: Final = (
    ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
_HASHING: Final = (set, frozenset)  # may not take again what was in an object in them
_ANY_KEY: Final = _WRITE | ormsgpack.OPT_NON_STR_KEYS


class StrictSerializer(JsonPlusSerializer):
    """Writes as LangGraph's serializer does, byte for byte; neither writes nor reads a type that is not listed."""

    def __init__(self, types: Iterable[type] = (), *, max_bytes: int = MAX_BYTES, max_depth: int = MAX_DEPTH) -> None:
        """Take the types of the state: models, dataclasses, named tuples, enums.

        Plain data may be nested `max_depth` deep; all that one object holds `OBJECT_DEPTH`, or `max_depth` if less.
        """
        self.types = tuple(dict.fromkeys(types))
        self.max_bytes, self.max_depth = max_bytes, max_depth
        self._listed: dict[tuple[str, str], Kind] = {}
        self._kinds: dict[tuple[str, str], Kind] = {}
        self._writers: dict[type, Kind] = {re.Pattern: PATTERN}
        self._reader = Reader(self._object, max_depth, max_bytes)
        super().__init__(allowed_msgpack_modules=None, __unpack_ext_hook__=self._reader.read_object)
        for cls in self.types:
            self._list(cls)

    def _list(self, cls: type) -> None:
        kind = kind_of(cls, listed=True)
        place = (kind.module, kind.name)
        known = self._listed.get(place) or built_in(*place)
        if known is None:
            self._listed[place] = self._kinds[place] = self._writers[cls] = kind
        elif known.type is not cls:
            msg = f"two types are stored as {kind.module}.{kind.name}; rename one, or move it to another module"
            raise RefusedTypeError(msg)

    def with_msgpack_allowlist(self, extra_allowlist: Iterable[tuple[str, ...] | type]) -> StrictSerializer:
        """Add the types that a graph's own schemas name, as far as their modules are imported and they can be kept."""
        clone = StrictSerializer(self.types, max_bytes=self.max_bytes, max_depth=self.max_depth)
        for entry in extra_allowlist:
            cls = entry if isclass(entry) else _imported(entry)
            with suppress(RefusedTypeError):
                if cls is not None:
                    clone._list(cls)
        if len(clone._listed) == len(self._listed):
            return self
        clone.types = tuple(kind.type for kind in clone._listed.values())
        return clone

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Write; raises `RefusedTypeError` for what would not be read back."""
        if obj is None:
            return "null", b""
        if isinstance(obj, (bytes, bytearray)):
            return super().dumps_typed(obj)
        try:
            data = ormsgpack.packb(obj, self._outer, _ANY_KEY)
        except TypeError as error:
            local.hand_on(error, RefusedTypeError)
        if len(data) > self.max_bytes:
            raise TooLargeError(f"a value of {len(data):,} bytes is over max_bytes={self.max_bytes:,}")
        if local.trial or self.max_depth < OBJECT_DEPTH:
            self._try(data)
        return "msgpack", data

    def _try(self, data: bytes) -> None:
        """Read what was written: what its own type does not take is better refused now than when it is needed."""
        local.trial = False
        try:
            self._reader.read(data)
        except RebuildError as error:
            raise RefusedTypeError(f"it would not be read back: {error}") from error

    def _outer(self, obj: Any) -> Any:
        """Write an object that stands in plain data."""
        try:
            local.nested = False
            code, data = self._written(obj)
            if local.nested:
                check_nesting(data, OBJECT_DEPTH)
            return data if code is None else ormsgpack.Ext(code, data)
        except BaseException as error:  # msgpack would not say which
            local.keep(error)
            raise

    def _inner(self, obj: Any) -> Any:
        try:
            local.nested = True
            code, data = self._written(obj)
            return data if code is None else ormsgpack.Ext(code, data)
        except BaseException as error:
            local.keep(error)
            raise

    def _written(self, obj: Any) -> tuple[int | None, Any]:
        cls = type(obj)
        kind = self._writers.get(cls)
        if kind is None:
            if cls is _DeltaSnapshot:
                return SNAPSHOT, self._packed(obj.value)
            kind = built_in(cls.__module__, cls.__name__)
            if kind is None or kind.type is not cls:
                return _odd(obj)
            self._writers[cls] = kind
        parts = (kind.module, kind.name, kind.parts(obj), *kind.method)
        data = self._packed(parts, kind)
        # Last: what an object's own words write by this serializer is tried apart.
        if kind.listed or (kind.type in _HASHING and local.nested):
            local.trial = True
        return kind.code, data

    def _packed(self, parts: Any, kind: Kind | None = None) -> bytes:
        """Pack what an object is made of; no key that comes back as another, unless its class restores it."""
        before = local.error
        try:
            return ormsgpack.packb(parts, self._inner, _WRITE)
        except TypeError:
            if local.error is not before:  # of a callback: it would fail again
                raise
            data = ormsgpack.packb(parts, self._inner, _ANY_KEY)
            if kind is None or not kind.listed or not self._restores(kind, parts[2], data):
                check_keys(parts)
            return data

    def _restores(self, kind: Kind, value: Any, data: bytes) -> bool:
        """Tell whether an object that is read again has the same keys."""
        return _has_same_keys(kind.parts(self._object(kind.code, data, self._reader.read_object)), value)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Read; raises a `CheckpointerError` for whatever this serializer, with these types, did not write."""
        tag, raw = data
        if tag == "msgpack":
            return self._reader.read(raw)
        if tag == "null":
            return None
        if tag in ("bytes", "bytearray"):
            return super().loads_typed(data)
        raise DamagedValueError(f"values of the form {tag!r:.40} are never decoded; look at them with inspect_value")

    def _known(self, module: str, name: str) -> Kind | None:
        if kind := built_in(module, name):
            self._kinds[module, name] = kind
        return kind

    def _object(self, code: int, data: bytes, hook: Hook) -> Any:
        parts: Any = ormsgpack.unpackb(data, ext_hook=hook, option=ormsgpack.OPT_NON_STR_KEYS)
        if code >= ARRAY:
            if code == SNAPSHOT:
                return _DeltaSnapshot(parts)
            return array_of(parts) if code == ARRAY else _unknown(code)
        if type(parts) is not list:  # a network, of all that is read, unpacks into millions of addresses
            _unknown(code)
        try:
            module, name, value, *method = parts
            kind = self._kinds.get((module, name)) or self._known(module, name)
        except (TypeError, ValueError):
            _unknown(code)
        if kind is None or kind.code != code or kind.method != method:
            raise BlockedTypeError(str(module), ".".join(map(str, (name, *method))))
        try:
            return kind.build(value)
        except Exception as error:
            raise RebuildError(kind.module, kind.name, error) from error


def _has_same_keys(now: Any, then: Any) -> bool:
    """Tell whether dicts in plain data have the very same keys; their other contents are their own affair."""
    if isinstance(then, dict):
        same = isinstance(now, dict) and len(now) == len(then)
        return same and all(
            type(a) is type(b) and a == b and _has_same_keys(now[a], then[b]) for a, b in zip(now, then, strict=False)
        )
    if isinstance(then, list | tuple):
        return isinstance(now, list | tuple) and all(map(_has_same_keys, now, then))
    return True


def _unknown(code: int) -> NoReturn:
    raise DamagedValueError(f"a stored object of code {code} is not of this form")


def _imported(entry: Any) -> type | None:
    """Find a class without importing anything; a module's own `__getattr__` is not asked either."""
    *module, name = entry
    found = vars(sys.modules.get(".".join(module), object)).get(name)
    return found if isclass(found) else None


def _odd(obj: Any) -> tuple[int | None, Any]:
    """Write what has no kind: errors, as their text, and arrays."""
    numpy, cls = sys.modules.get("numpy"), type(obj)
    if isinstance(obj, BaseException):
        return None, repr(obj).encode(errors="replace").decode()
    if numpy is not None and cls is numpy.ndarray:
        if obj.dtype.kind in "biufcSU" and obj.dtype.itemsize:
            return None, _msgpack_default(obj)
        raise RefusedTypeError(f"an array of {obj.dtype} would not be read back; store numbers, or a list")
    if numpy is not None and isinstance(obj, numpy.generic):
        raise RefusedTypeError(f"{name_of(cls)} would not be read back; store value.item()")
    if hasattr(cls, "get_secret_value"):
        raise RefusedTypeError(why_not(cls))
    if cls.__module__ in ("builtins", "types", "_thread", "_io"):
        raise RefusedTypeError(f"{name_of(cls)} is not serializable; store what it is made from")
    raise RefusedTypeError(f"{name_of(cls)} is not a listed type; list it: types=[{name_of(cls)}]")


_SHORT: Final = Repr()
_SHORT.maxlevel, _SHORT.maxdict, _SHORT.maxlist, _SHORT.maxstring, _SHORT.maxother = 5, 30, 30, 120, 400


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Degraded:
    """An object as it is stored: the name of its type, and the plain data it would be made of."""

    type: str
    raw: Any

    def __repr__(self) -> str:
        """Stay short, and alive on whatever is nested."""
        return f"Degraded({self.type}, {_SHORT.repr(self.raw)})"


def _raw(code: int, data: bytes, hook: Hook) -> Any:
    try:
        parts = unpacked(data, hook)
    except ValueError:
        local.error = None
        return Degraded(f"damaged object of code {code}", data)
    match parts:
        case [str(module), str(name), raw, *_] if code < ARRAY:
            return Degraded(f"{module}.{name}", raw)
    named = {ARRAY: "numpy.ndarray", SNAPSHOT: name_of(_DeltaSnapshot)}
    return Degraded(named.get(code, f"object of code {code}"), parts)


_INSPECTOR: Final = Reader(_raw, MAX_DEPTH, MAX_BYTES)


def inspect_value(tag: str, data: bytes) -> Any:
    """Give what is stored as plain data, with `Degraded` for every object; builds and validates nothing."""
    if tag in ("null", "bytes", "bytearray"):
        return {"null": None, "bytes": data, "bytearray": bytearray(data)}[tag]
    if tag != "msgpack":
        return Degraded(tag, data)
    try:
        return _INSPECTOR.read(data)
    except (DamagedValueError, TooLargeError) as error:
        return Degraded(f"damaged msgpack ({error})", data)


class Inspector:
    """A serializer that only looks."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Refuse: nothing is written by looking."""
        msg = f"{name_of(type(obj))} is not written by an inspection"
        raise RefusedTypeError(msg)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Give plain data."""
        return inspect_value(*data)
