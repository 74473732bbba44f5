"""Values as stored: split into elements, each serialized and stored once; a checkpoint refers to runs of them.

A *reference* is what a checkpoint or a write keeps of a value, as plain msgpack data:

    b"…"                     the value itself, small enough to stand in place
    7                        the value in element 7 of its channel
    [kind, a, n, …]          runs of elements: n of them from a on, and so on; a list, or a dict in order
    [RECIPE | kind, b, r]    the runs are many, so they are element r of the channel's recipes, told against recipe b

Elements hold lists or dicts: of one item each, or of several where items are tiny. A single message is stored as a
list of one, so that written alone and in a list it is one element; any other single value is stored as it is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

import ormsgpack

from checkpointers.compression import PLAIN, squeeze, squeeze_against, unsqueeze, unsqueeze_against
from checkpointers.errors import DamagedValueError
from checkpointers.fingerprint import Packer, Prints, blame
from checkpointers.resting import at_rest
from checkpointers.segments import Piece, Stack

if TYPE_CHECKING:
    from langgraph.checkpoint.serde.base import SerializerProtocol

Ref = Any
T = TypeVar("T")
LIST: Final = 0
DICT: Final = 1
ATOM: Final = 2
WHOLE: Final = 3
SNAPSHOT: Final = 4
RECIPE: Final = 8
LONG_RUNS: Final = 64
INLINE_BYTES: Final = 40
TINY_ITEM: Final = 24
GRAIN: Final = 64
RECORD_WORTH_SQUEEZING: Final = 512
HIGHEST: Final = 2**31
MUCH: Final = 1 << 18
_MSGPACK_SINGLE: Final = (b"\x01\x91", b"\x01\x81")
_MSGPACK_HEADER: Final = (b"\xdd", b"\xdf")
_MSGPACK: Final = b"\x01"
_NULL: Final = b"\x02"
_NIL: Final = b"\xc0"
_MSGPACK_TAG: Final = "msgpack"
_TAGS: Final = ("", _MSGPACK_TAG, "null", "bytes", "bytearray", "json")
_CODES: Final = {tag: bytes((code,)) for code, tag in enumerate(_TAGS) if tag}
_SMALL: Final = frozenset({type(None), bool, int, float})
_SHORT: Final = 31


@dataclass(slots=True)
class Parts:
    """A value taken apart: its kind, its chunks, a fingerprint of each."""

    kind: int
    chunks: Sequence[Any]
    prints: Prints
    bytes: int


class Codec:
    """Between Python values and stored bytes, with the serializer of one saver."""

    def __init__(self, serde: SerializerProtocol) -> None:
        """Wrap a LangGraph serializer."""
        self.serde = serde
        self._dump, self._load = serde.dumps_typed, serde.loads_typed
        self._snapshot, plain, encrypted = _langgraph_types()
        self._plain = type(serde) in plain
        inner = serde.serde if isinstance(serde, encrypted) else serde  # what it writes is another each time
        self.packer = Packer(inner.dumps_typed, native=type(inner) in plain)

    @property
    def searchable(self) -> bool:
        """Tell whether a text in a value stands in its payload as it is."""
        return self._plain

    def split(self, channel: str, value: Any, before: Prints | None = None) -> Parts | bytes:
        """Take a value apart, or give its payload if it is small; raises `UnstorableValueError` with the path.

        `before` are the fingerprints of what the channel had: what is still there is recognized in groups.
        """
        kind = type(value)
        if kind in _SMALL or (kind is str and len(value) <= _SHORT and value.isascii()):
            return self.payload(channel, value)
        snapshot = SNAPSHOT if kind is self._snapshot else 0
        inner = value.value if snapshot else value
        try:
            parts = self._split(inner, before)
        except Exception as error:
            raise blame(channel, inner, self.packer.one, error, self._dump) from error
        if parts.bytes <= INLINE_BYTES and not snapshot:
            return self.payload(channel, inner)
        parts.kind |= snapshot
        return parts

    def _split(self, value: Any, before: Prints | None) -> Parts:
        pack = self.packer.one
        if type(value) is list and value:
            items = self.packer.each(value, before)
            if len(value) > 1 and items.size < TINY_ITEM * len(items):
                grains = tuple(b"".join((b"l", *grain)) for grain in _grains([*items]))
                return Parts(LIST, _grains(value), Prints(rest=grains), items.size)
            return Parts(LIST, _Singles(value), items, items.size)
        if type(value) is dict and value:
            prints = tuple([b"d" + pack({key: item}) for key, item in value.items()])
            pairs_, size = list(value.items()), sum(map(len, prints))
            if len(value) > 1 and size < TINY_ITEM * len(prints):
                chunks = [dict(grain) for grain in _grains(pairs_)]
                return Parts(DICT, chunks, Prints(rest=tuple(map(b"".join, _grains(prints)))), size)
            return Parts(DICT, [dict([pair]) for pair in pairs_], Prints(rest=prints), size)
        print_ = pack(value)
        if hasattr(type(value), "__pydantic_fields__"):
            return Parts(ATOM, _Singles([value]), Prints(rest=(print_,)), len(print_))
        # Of all that is packed alike, only these two come back as what they were.
        form = b"b" if type(value) is bytearray else b"w"
        return Parts(WHOLE, [value], Prints(rest=(form + print_,)), len(print_))

    def payload(self, channel: str, value: Any) -> bytes:
        """Serialize; the first byte names the serializer's type tag."""
        try:
            tag, data = self._dump(value)
            code = _CODES.get(tag)
            return _own_form(tag, data) if code is None else code + data
        except Exception as error:
            raise blame(channel, value, self._dump, error, self._dump) from error

    def value(self, payload: bytes) -> Any:
        """Deserialize a payload."""
        code = payload[0] if payload else len(_TAGS)
        if code >= len(_TAGS) or len(payload) < 1 + (not code):
            msg = "it has no form that is known"
            raise DamagedValueError(msg)
        if code:
            return self._loaded(_TAGS[code], payload[1:])
        end = 2 + payload[1]
        return self._load((payload[2:end].decode(), payload[end:]))

    def _loaded(self, tag: str, data: bytes) -> Any:
        typed = (tag, data)
        return self._load(typed) if len(data) < MUCH else at_rest(self._load, typed)

    def join(self, ref: Ref, stack: Stack) -> Any:
        """Put a value together again from the elements that were read of its channel."""
        if isinstance(ref, bytes):
            return self.value(ref)
        if isinstance(ref, int):
            return self.value(stack.payload(ref))[0]
        kind = ref[0]
        inner = self._assembled(kind & ~SNAPSHOT, ref[1:], stack)
        return self._snapshot(inner) if kind & SNAPSHOT else inner

    def _assembled(self, kind: int, runs: Sequence[int], stack: Stack) -> Any:
        if kind in (ATOM, WHOLE):
            value = self.value(stack.payload(runs[0]))
            return value[0] if kind == ATOM else value
        # Lists (and dicts) of a few items each are joined as bytes into one of all items, and decoded in one go.
        joined = self._spliced(kind, runs, stack) if self._plain else None
        if joined is not None:
            return self._loaded(_MSGPACK_TAG, b"".join(joined))
        chunks = [self.value(stack.payload(number)) for number in numbers(runs)]
        if kind == LIST:
            return [item for chunk in chunks for item in chunk]
        return {key: item for chunk in chunks for key, item in chunk.items()}

    def _spliced(self, kind: int, runs: Sequence[int], stack: Stack) -> list[Piece] | None:
        found = stack.spliced(pairs(runs), _MSGPACK_SINGLE[kind])
        return [_MSGPACK_HEADER[kind], found[0].to_bytes(4, "big"), *found[1]] if found is not None else None

    def bundle(self, values: Mapping[Any, tuple[Ref, Stack]]) -> Bundle | None:
        """Make one payload of many values, which is decoded in one go; None if one has a form of its own."""
        pieces: list[Piece] = [_MSGPACK_HEADER[DICT], len(values).to_bytes(4, "big")]
        for name, (ref, stack) in values.items():
            found = self._pieces(ref, stack)
            if found is None:
                return None
            pieces += (ormsgpack.packb(name), *found)
        snapshots = [name for name, (ref, _) in values.items() if isinstance(ref, list) and ref[0] & SNAPSHOT]
        return Bundle(b"".join(pieces), list(values), snapshots)

    def _pieces(self, ref: Ref, stack: Stack) -> Sequence[Piece] | None:
        """Give the msgpack of a value, which a snapshot is around; None for what is stored in another form."""
        if not self._plain:
            return None
        if isinstance(ref, bytes):
            return _bare(ref)
        kind, *runs = [ATOM, ref, 1] if isinstance(ref, int) else [ref[0] & ~SNAPSHOT, *ref[1:]]
        if kind == ATOM:
            found = stack.spliced([(runs[0], 1)], _MSGPACK_SINGLE[LIST])
            return found[1] if found is not None and found[0] == 1 else None
        return _bare(stack.payload(runs[0])) if kind == WHOLE else self._spliced(kind, runs, stack)

    def unbundle(self, bundle: Bundle) -> dict[Any, Any]:
        """Decode a bundle: each value by its name, in order."""
        values: dict[Any, Any] = self._loaded(_MSGPACK_TAG, bundle.payload)
        if list(values) != bundle.names:
            msg = "a value that is stored as more, or less, than one"
            raise DamagedValueError(msg)
        for name in bundle.snapshots:
            values[name] = self._snapshot(values[name])
        return values


@dataclass(frozen=True, slots=True)
class Bundle:
    """Values as one piece of msgpack, the names under which they stand in it, and which of them are snapshots."""

    payload: bytes
    names: list[Any]
    snapshots: list[Any]


def _own_form(tag: str, data: bytes) -> bytes:
    """Give the payload of a serializer's own tag; raises `ValueError` for one that is too long."""
    name = tag.encode()
    return bytes((0, len(name))) + name + data


def _bare(payload: bytes) -> tuple[bytes] | None:
    """Give a payload's msgpack; None for one of another form."""
    if payload[:1] == _MSGPACK:
        return (payload[1:],)
    return (_NIL,) if payload == _NULL else None


class _Singles(Sequence[Any]):
    """A list seen as lists of one item, made only for the items that are new."""

    def __init__(self, items: list[Any]) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: Any) -> Any:
        return [self._items[index]]


def _grains(items: Sequence[T]) -> list[Sequence[T]]:
    return [items[start : start + GRAIN] for start in range(0, len(items), GRAIN)]


def reference(kind: int, runs: Sequence[int]) -> Ref:
    """Give the reference of a value from its kind and the runs of its elements."""
    return runs[0] if kind == ATOM else [kind, *runs]


def numbers(runs: Sequence[int]) -> Iterable[int]:
    """Give each element number of `[first, count, first, count, …]`."""
    for first, count in pairs(runs):
        yield from range(first, first + count)


def pairs(runs: Sequence[int]) -> Iterable[tuple[int, int]]:
    """Give `(first, count)` of each run."""
    return zip(islice(runs, 0, None, 2), islice(runs, 1, None, 2), strict=True)


def extend(runs: list[int], number: int) -> None:
    """Add one element number at the end of runs."""
    if runs and runs[-2] + runs[-1] == number:
        runs[-1] += 1
    else:
        runs += (number, 1)


def is_recipe(ref: Ref) -> bool:
    """Tell whether the runs of a reference must be read first."""
    return isinstance(ref, list) and bool(ref[0] & RECIPE)


def as_ref(stored: Any) -> Ref:
    """Give a reference that was read, if it is one."""
    if type(stored) is list and len(stored) % 2 and set(map(type, stored)) == {int}:
        sound = len(stored) > 1 and min(stored) >= 0 and max(stored) <= HIGHEST
    else:
        sound = type(stored) is bytes or (type(stored) is int and 0 <= stored <= HIGHEST)
    if not sound:
        msg = f"{stored!r:.40} is no reference"
        raise ValueError(msg)
    return stored


def as_a(kind: type[T], stored: Any) -> T:
    """Give what was read, if it is of this type."""
    if not isinstance(stored, kind):
        msg = f"{stored!r:.40} is no {kind.__name__}"
        raise ValueError(msg)  # noqa: TRY004  what is stored is wrong, not who calls
    return stored


def pack_recipe(runs: Sequence[int], base: bytes | None = None) -> bytes:
    """Pack many runs; against an older recipe of the same value, only what differs takes room."""
    raw = ormsgpack.packb(runs)
    return raw if base is None else squeeze_against(base, raw)


def resolve(ref: Ref, recipes: Stack) -> Ref:
    """Give the reference with its runs in place."""
    kind, base, number = ref
    payload = recipes.payload(number)
    raw = payload if base == number else unsqueeze_against(recipes.payload(base), payload)
    return as_ref([kind & ~RECIPE, *ormsgpack.unpackb(raw)])


def spans(ref: Ref) -> list[tuple[int, int]]:
    """Give the `(first, count)` runs of elements that a reference needs of its own channel."""
    if isinstance(ref, bytes):
        return []
    if isinstance(ref, int):
        return [(ref, 1)]
    return list(pairs(ref[1:]))


def joined(runs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join `(first, count)` runs that touch or overlap into `(first, last)`, so that each element counts once."""
    result: list[tuple[int, int]] = []
    for first, count in sorted(runs):
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(result[-1][1], first + count - 1))
        else:
            result.append((first, first + count - 1))
    return result


def covers(runs: Sequence[tuple[int, int]], first: int, count: int = 1) -> bool:
    """Tell whether so many numbers from this one on are all in joined runs."""
    place = bisect_right(runs, (first, HIGHEST)) - 1
    return place >= 0 and first + count - 1 <= runs[place][1]


def packed(value: Any) -> bytes:
    """Pack plain data of a record; most are small numbers, and squeezing those costs more than it gives."""
    raw = ormsgpack.packb(value, option=ormsgpack.OPT_NON_STR_KEYS)
    return squeeze(raw) if len(raw) > RECORD_WORTH_SQUEEZING else PLAIN + raw


def unpacked(blob: bytes) -> Any:
    """Unpack plain data of a record."""
    return ormsgpack.unpackb(unsqueeze(blob), option=ormsgpack.OPT_NON_STR_KEYS)


def unpacked_dict(blob: bytes) -> dict[Any, Any]:
    """Unpack what must be a dict."""
    return as_a(dict, unpacked(blob))


@cache
def _langgraph_types() -> tuple[Any, tuple[type, ...], Any]:
    """Import late: who reads plain rows only does without them."""
    from langgraph.checkpoint.serde.encrypted import EncryptedSerializer  # noqa: PLC0415
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer  # noqa: PLC0415
    from langgraph.checkpoint.serde.types import _DeltaSnapshot  # noqa: PLC0415

    from checkpointers.strict import StrictSerializer  # noqa: PLC0415

    return _DeltaSnapshot, (JsonPlusSerializer, StrictSerializer), EncryptedSerializer
