"""What an object looks like now, as bytes: cheap to make, and different whenever the object is.

Messages may be changed in place, so a saver that stores only what is new has to look at every element of every
changed channel. Packing is several times cheaper than serializing and tells apart what compares equal: `1`, `1.0`
and `True`; lists and tuples; dicts of another order. It is also strict: text that the serializer would alter
silently (a lone surrogate), integers over 64 bits and cycles are refused here, with their path.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from itertools import chain, repeat
from operator import add, attrgetter, eq
from typing import Any, Final

import ormsgpack

from checkpointers.errors import CheckpointerError, UnstorableValueError, is_too_deep

Dump = Callable[[Any], tuple[str, bytes]]

_OPTIONS: Final = (
    ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_UUID
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
)
_ANY_KEY: Final = _OPTIONS | ormsgpack.OPT_NON_STR_KEYS
_KEPT_KEYS: Final = (str, int, float, bytes, type(None))
_PLAIN: Final = (str, bytes, int, float, type(None), dict, list, tuple)
_SIMPLEST: Final = (None, "", 0)
_HALF: Final = 2**63
_MAX_DEPTH: Final = 300
GROUP: Final = 128
HANDFUL: Final = 16
FEW: Final = 4  # so many are quicker packed one by one than asked what they have in common
# Before the name of a class stands what no plain data looks like: the byte that msgpack never uses, or an extension.
_NEVER: Final = b"\xc1"
_MARK: Final = ormsgpack.Ext(0, b"")
_BINARY: Final = re.compile(rb"[\xc4-\xc6]")
# What lists of so many items begin with.
_HEADS: Final = {size: ormsgpack.packb([None] * size)[:-size] for size in (GROUP, HANDFUL)}
_FIELDS: Final = attrgetter("__dict__")
_EXTRAS: Final = attrgetter("__pydantic_extra__")


@dataclass(frozen=True, slots=True)
class Group:
    """How neighbouring items look together, which is quicker to see than each alone, and each one's fingerprint.

    `objects`: whether all or none of them are of pydantic; None if some are. `packed`: None where each needs a look.
    """

    kinds: list[type]
    objects: bool | None
    packed: bytes | None
    prints: list[bytes]
    size: int


@dataclass(slots=True)
class Prints:
    """A fingerprint of each part of a value: those of groups first, by where they start, then the rest; their bytes.

    What is alike in two values is the same groups: comparing them touches no fingerprint of what they hold.
    """

    groups: dict[int, Group] = field(default_factory=dict)
    rest: tuple[bytes, ...] = ()
    grouped: int = 0
    size: int = 0

    def __len__(self) -> int:
        """Count them."""
        return self.grouped + len(self.rest)

    def __iter__(self) -> Iterator[bytes]:
        """Give each, in order."""
        return chain(*(group.prints for group in self.groups.values()), self.rest)

    def since(self, first: int) -> Iterator[bytes]:
        """Give those from one on."""
        left = [
            group.prints[max(0, first - at) :] for at, group in self.groups.items() if at + len(group.kinds) > first
        ]
        return chain(*left, self.rest[max(0, first - self.grouped) :])

    def begins_with(self, before: Prints) -> bool:
        """Tell whether the others are the first of these."""
        same = 0
        for start, group in before.groups.items():
            if self.groups.get(start) is not group:
                break
            same = start + len(group.kinds)
        return all(map(eq, before.since(same), self.since(same))) and len(before) <= len(self)


class Packer:
    """Makes fingerprints, over a serializer: different whenever it would write something else.

    `native`: it writes plain data as msgpack does, and of an object nothing but what its class is known for. Of any
    other serializer, only what is plain is looked at here: what more it keeps, it knows alone.
    """

    def __init__(self, dump: Dump, *, native: bool) -> None:
        """Ask the serializer about what msgpack does not know."""
        self._dump, self._native = dump, native

    def one(self, value: Any) -> bytes:
        """Pack a value."""
        if not self._native:
            return self._foreign(value)
        # Messages are most of what is packed: their fields go in directly, without a call back into Python.
        prefix = _prefix_of(type(value))  # type: ignore[arg-type]  # every class can be hashed
        inner = value if not prefix else (value.__dict__ if not value.__pydantic_extra__ else vars_of(value))
        try:
            return prefix + ormsgpack.packb(inner, self._expose, _OPTIONS)
        except TypeError:
            packed = ormsgpack.packb(value, self._in_words, _ANY_KEY)
            check_keys(value)
            return packed

    def _foreign(self, value: Any) -> bytes:
        with suppress(TypeError):
            packed = ormsgpack.packb(value, None, _OPTIONS)
            if not _BINARY.search(packed):  # bytes that may change are packed as those that may not
                return packed
        return _NEVER + ormsgpack.packb(self._words(value))

    def each(self, items: list[Any], before: Prints | None) -> Prints:
        """Pack every item; where a whole group is what it was, its items are too.

        Groups are large; what is left is in handfuls, and the last few items are packed by themselves.
        """
        prints, start = Prints(), 0
        known = before.groups if before else {}
        for size in (GROUP, HANDFUL):
            while start + size <= len(items):
                group = prints.groups[start] = self._group(items[start : start + size], known.get(start))
                prints.size += group.size
                start += size
        prints.grouped, prints.rest = start, tuple(self._all(items[start:]))
        prints.size += sum(map(len, prints.rest))
        return prints

    def _all(self, items: list[Any]) -> list[bytes]:
        if len(items) <= FEW:
            return list(map(self.one, items))
        kinds = list(map(type, items))
        return self._prints(items, kinds, self._packs(self._inside(items, objects=_are_objects(set(kinds)))))

    def _group(self, items: list[Any], last: Group | None) -> Group:
        """Look at many items at once: they are the last group if nothing of it changed."""
        kinds = list(map(type, items))
        if last is not None and last.kinds == kinds:
            packed = self._together(self._inside(items, objects=last.objects))
            if packed is not None and packed == last.packed:
                return last
        objects = _are_objects(set(kinds))
        packs = self._packs(self._inside(items, objects=objects))
        prints = self._prints(items, kinds, packs)
        together = b"".join((_HEADS[len(items)], *packs)) if packs else None  # msgpack is put in a row
        return Group(kinds, objects, together, prints, sum(map(len, prints)))

    def _inside(self, items: list[Any], *, objects: bool | None) -> list[Any] | None:
        """Give what of each item is packed, of objects their fields; None where one needs a look by itself."""
        if objects is None or not self._native:
            return None
        if not objects:
            return items
        return None if any(map(_EXTRAS, items)) else list(map(_FIELDS, items))

    def _prints(self, items: list[Any], kinds: list[type], packs: list[bytes] | None) -> list[bytes]:
        if packs is None:
            return [self.one(item) for item in items]
        named = {kind: _prefix_of(kind) for kind in set(kinds)}
        return list(map(add, map(named.__getitem__, kinds), packs)) if any(named.values()) else packs

    def _packs(self, inside: list[Any] | None) -> list[bytes] | None:
        """Pack what is in each item."""
        if inside is None:
            return None
        with suppress(TypeError):
            return list(map(ormsgpack.packb, inside, repeat(self._expose), repeat(_OPTIONS)))
        return None

    def _together(self, inside: list[Any] | None) -> bytes | None:
        """Pack what is in all items, as one list."""
        with suppress(TypeError):
            return None if inside is None else ormsgpack.packb(inside, self._expose, _OPTIONS)
        return None

    def _expose(self, value: Any) -> Any:
        """Turn what msgpack does not know into what it does: fields, where those are all that is written."""
        kind: type = type(value)
        return _named(kind, vars_of(value)) if _prefix_of(kind) else self._in_words(value)

    def _in_words(self, value: Any) -> Any:
        """Turn what msgpack does not know into what the serializer writes of it."""
        kind = type(value)
        if kind is tuple:
            return _named(kind, [list(value)])
        if not issubclass(kind, Enum):
            for base, content in _NATIVE.items():
                if issubclass(kind, base):
                    return _named(kind, [content(value)])
        return _named(kind, self._words(value))

    def _words(self, value: Any) -> list[Any]:
        tag, data = self._dump(value)
        return [tag, bytes(data)]


# Msgpack writes these, subclasses too, as what they are in C: it asks none of their methods.
_NATIVE: Final[dict[type, Callable[[Any], Any]]] = {
    dict: lambda value: dict(dict.items(value)),
    list: lambda value: [*list.__iter__(value)],
    str: str.__str__,
    int: int.__pos__,
}


def _named(kind: type, parts: list[Any]) -> list[Any]:
    return [_MARK, kind.__module__, kind.__qualname__, *parts]


@lru_cache(maxsize=1_024)
def _prefix_of(kind: type) -> bytes:
    """Give what stands for a class before the fields of its objects, if those are all that is written; else nothing."""
    return _NEVER + ormsgpack.packb((kind.__module__, kind.__qualname__)) if _is_its_fields(kind) else b""


def _is_its_fields(kind: type) -> bool:
    """Tell whether what is written of a pydantic object depends on nothing but its fields, as of messages."""
    schema = getattr(kind, "__pydantic_core_schema__", None)
    if not isinstance(schema, dict):
        return False
    from pydantic import BaseModel  # noqa: PLC0415  who has such objects has it loaded

    return issubclass(kind, BaseModel) and kind.model_dump is BaseModel.model_dump and not _is_written_otherwise(schema)


def _is_written_otherwise(schema: Any) -> bool:
    """Tell whether a schema of pydantic names anything that is called when it is written."""
    if isinstance(schema, dict):
        own = "serialization" in schema or bool(schema.get("computed_fields"))
        return own or any(map(_is_written_otherwise, schema.values()))
    return isinstance(schema, list | tuple) and any(map(_is_written_otherwise, schema))


def _are_objects(kinds: set[type]) -> bool | None:
    """Tell whether all of these classes are of pydantic, or none; None if only some are."""
    found = {bool(_prefix_of(kind)) for kind in kinds}
    return found.pop() if len(found) == 1 else None


def vars_of(value: Any) -> list[Any]:
    """Give all that a pydantic object keeps, undeclared fields included."""
    return [value.__dict__, value.__pydantic_extra__]


def blame(
    channel: str, value: Any, accepts: Callable[[Any], object], error: Exception, dump: Dump
) -> UnstorableValueError:
    """Say which part of a value is the one that cannot be stored, in the serializer's own words if it has some."""
    # A serializer that takes nothing at all has no part to name.
    path, part = _culprit(value, accepts) if all(_accepted(plain, accepts) for plain in _SIMPLEST) else ("", value)
    of_a_key = next((one for one in (error, _refusal(part, accepts)) if isinstance(one, DictKeyError)), None)
    reason = _reason(part, of_a_key or _own_words(part, dump) or error)
    return UnstorableValueError(channel=channel, path=path, reason=reason)


def _refusal(part: Any, accepts: Callable[[Any], object]) -> Exception | None:
    try:
        accepts(part)
    except Exception as refused:  # noqa: BLE001  that is what is asked for
        return refused
    return None


def _own_words(part: Any, dump: Dump) -> Exception | None:
    """Give what the serializer says of a part; of plain data, what was said first says more."""
    refused = _refusal(part, dump)
    return None if isinstance(part, _PLAIN) and not isinstance(refused, CheckpointerError) else refused


def check_keys(value: Any) -> None:
    """Refuse the dict keys that msgpack turns into something else without a word: enums, uuids, dates."""
    if isinstance(value, dict):
        for key in value:
            _check_key(key)
    if isinstance(value, dict | list | tuple):
        for _, child in _children(value):
            check_keys(child)


def _check_key(key: Any) -> None:
    if type(key) is tuple:
        for part in key:
            _check_key(part)
    elif not isinstance(key, _KEPT_KEYS) or (isinstance(key, Enum) and not isinstance(key, str)):
        msg = f"a dict key of type {type(key).__qualname__} would come back as something else; use its text"
        raise DictKeyError(msg)


class DictKeyError(TypeError):
    """A dict key that would not come back as it is."""


def _culprit(value: Any, accepts: Callable[[Any], object]) -> tuple[str, Any]:
    path = ""
    for _ in range(_MAX_DEPTH):
        for step, child in _children(value):
            if not _accepted(child, accepts):
                path, value = path + step, child
                break
        else:
            break
    return path, value


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from ((f" key {_shown(key)}", key) for key in value)
        yield from ((f"[{_shown(key)}]", item) for key, item in value.items())
    elif isinstance(value, str | bytes | int | float | Enum) or value is None:
        return
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"[{index}]", item) for index, item in enumerate(value))
    elif isinstance(fields := _fields_of(value), dict):
        yield from ((f".{name}", item) for name, item in fields.items())


def _shown(key: Any) -> str:
    try:
        return f"{key!r:.60}"
    except Exception:  # noqa: BLE001  it is somebody's own
        return type(key).__qualname__


def _fields_of(value: Any) -> Any:
    try:
        return value.__dict__
    except Exception:  # noqa: BLE001  it is somebody's own
        return None


def _accepted(value: Any, accepts: Callable[[Any], object]) -> bool:
    return _refusal(value, accepts) is None


def _reason(part: Any, error: Exception) -> str:
    """Say what is wrong with a part: what it is known for, if it is that, or else what was said of it."""
    if isinstance(error, (DictKeyError, CheckpointerError)):
        return str(error)
    if isinstance(part, str) and not _accepted(part, str.encode):
        return "the text has a lone surrogate, which no database can keep"
    if isinstance(part, int) and not -_HALF <= part < 2 * _HALF:
        return "the integer is over 64 bits; store it as text"
    if is_too_deep(error):
        return f"nested too deeply or in a cycle ({error})"
    if isinstance(part, _PLAIN):
        return f"the serializer refuses it: {type(error).__name__}: {error}"
    return f"{type(part).__module__}.{type(part).__qualname__} is not serializable ({error})"
