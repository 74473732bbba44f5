"""Elements as rows: one alone, or 64 sealed into one row once their numbers are complete.

Reading a long list then takes a few rows and a few decompressions instead of thousands, and neighbours compress
together. A sealed row starts at a multiple of 64 and holds exactly the 64 elements from there on; an element that was
deleted since leaves an empty place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final

import ormsgpack

from checkpointers.compression import squeeze, unsqueeze
from checkpointers.errors import DAMAGE

SEAL: Final = 64
Opener = Callable[[int, bytes], bytes]
Piece = bytes | memoryview
_SEALED: Final = 0x7F
_ROW: Final = 128  # about what a row takes besides its bytes
_PREFIX: Final = 2
_SHORT_LIST, _LIST_16, _DICT_16, _LONG_HEAD = 0x90, 0xDC, 0xDE, 4  # of msgpack, after the byte of the tag


def start_of(number: int) -> int:
    """Give the number at which the row that may hold an element starts."""
    return number - number % SEAL


def seal(payloads: Sequence[bytes]) -> bytes:
    """Make the stored form of 64 elements; what they all begin with is kept once."""
    starts = {payload[:_PREFIX] for payload in payloads if payload}
    prefix = starts.pop() if len(starts) == 1 else b""
    if prefix in payloads:  # nothing would be left of it, as of one that was deleted
        prefix = b""
    bodies = [payload[len(prefix) :] for payload in payloads]
    head = ormsgpack.packb([prefix, [len(payload) for payload in payloads]])
    return squeeze(b"".join((bytes((_SEALED,)), len(head).to_bytes(4, "big"), head, *bodies)))


class MissingElementError(KeyError):
    """An element that is not among those that were read; `damage` is why its row could not be opened."""

    def __init__(self, number: int, damage: Exception | None = None) -> None:
        """Name the element."""
        super().__init__(number)
        self.number, self.damage = number, damage


class Segment:
    """One sealed row, opened."""

    __slots__ = ("_ends", "_lengths", "_raw", "_start", "prefix", "whole")

    def __init__(self, raw: bytes) -> None:
        """Open the raw form of a sealed row; raises `ValueError` for anything else."""
        end = 5 + int.from_bytes(raw[1:5], "big")
        match ormsgpack.unpackb(raw[5:end]):
            case [bytes(prefix), list(lengths)] if len(lengths) == SEAL and set(map(type, lengths)) == {int}:
                self.prefix, self._lengths = prefix, lengths
            case _:
                msg = "a damaged row of elements"
                raise ValueError(msg)
        self.whole = all(lengths)
        self._raw, self._start = raw, end
        if sum(lengths) - len(prefix) * (SEAL - lengths.count(0)) != len(raw) - end or min(lengths) < 0:
            msg = "a row of elements that was cut"
            raise ValueError(msg)
        self._ends: list[int] = []

    def __len__(self) -> int:
        """Give its bytes."""
        return len(self._raw)

    def payload(self, index: int) -> bytes:
        """Give one element; empty if it was deleted."""
        body = self._between(index, index + 1)
        return self.prefix + body if body else b""

    def holds(self, first: int, end: int) -> bool:
        """Tell whether none of the elements from one to another was deleted."""
        return self.whole or all(self._lengths[first:end])

    def bodies(self, first: int, last: int) -> Piece:
        """Give neighbours without their common prefix, joined; most often that is all there is, and much."""
        return memoryview(self._raw)[self._start :] if last - first == SEAL - 1 else self._between(first, last + 1)

    def _between(self, first: int, end: int) -> bytes:
        if not self._ends:
            shared = len(self.prefix)
            sizes = (length - shared if length else 0 for length in self._lengths)
            self._ends = list(accumulate(sizes, initial=self._start))
        return self._raw[self._ends[first] : self._ends[end]]


class Stack:
    """The elements of one channel that were read, single and sealed."""

    __slots__ = ("_damage", "_open", "_raw", "_segments")

    def __init__(self, opener: Opener | None = None) -> None:
        """Start empty; every row is opened before it is looked into."""
        self._open = opener
        self._raw: dict[int, bytes] = {}
        self._segments: dict[int, Segment] = {}
        self._damage: dict[int, Exception] = {}

    def add(self, number: int, body: bytes) -> None:
        """Add a row as stored."""
        raw = unsqueeze(self._open(number, body) if self._open else body)
        if raw[:1] == b"\x7f":
            self._segments[number] = Segment(raw)
        else:
            self._raw[number] = raw

    def take(self, number: int, body: bytes) -> None:
        """Add a row that may lie beside those that are needed: its damage is told to who asks for what it holds."""
        try:
            self.add(number, body)
        except DAMAGE as error:
            self._damage[number] = error

    def payload(self, number: int) -> bytes:
        """Give one element; raises `MissingElementError` if it is not stored."""
        raw = self._raw.get(number)
        if raw is None and (segment := self._segments.get(start_of(number))) is not None:
            raw = segment.payload(number % SEAL)
        if not raw:
            raise MissingElementError(number, self._damage.get(number) or self._damage.get(start_of(number)))
        return raw

    def has(self, first: int, last: int) -> bool:
        """Tell whether the rows of the elements from one to another were read, sound or not."""
        end = last + 1
        return all(
            start in self._segments
            or start in self._damage
            or all(n in self._raw or n in self._damage for n in range(max(first, start), min(end, start + SEAL)))
            for start in range(start_of(first), end, SEAL)
        )

    def holds(self, first: int, last: int) -> bool:
        """Tell whether each of the elements from one to another can be given."""
        return all(
            self._gives(start, range(max(first, start), min(last + 1, start + SEAL)))
            for start in range(start_of(first), last + 1, SEAL)
        )

    def _gives(self, start: int, wanted: range) -> bool:
        segment = self._segments.get(start)
        if segment is not None and segment.holds(wanted.start - start, wanted.stop - start):
            return True
        return all(map(self._raw.get, wanted))

    @property
    def weight(self) -> int:
        """Give about how many bytes this takes."""
        rows = (self._raw.values(), self._segments.values())
        return sum(_ROW + len(row) for some in rows for row in some)

    def copy(self) -> Stack:
        """Give another one that has the same rows, as far as they are sound; what is added to it is not added here."""
        other = Stack(self._open)
        other._raw, other._segments = dict(self._raw), dict(self._segments)
        return other

    def only(self, ranges: Iterable[tuple[int, int]]) -> Stack:
        """Give another one that has the sound rows of the elements from one to another, of each of these."""
        other = Stack(self._open)
        for first, last in ranges:
            for start in range(start_of(first), last + 1, SEAL):
                if start in self._segments:
                    other._segments[start] = self._segments[start]
                else:
                    within = range(max(first, start), min(last + 1, start + SEAL))
                    other._raw.update((number, self._raw[number]) for number in within if number in self._raw)
        return other

    def spliced(self, runs: Iterable[tuple[int, int]], prefix: bytes) -> tuple[int, list[Piece]] | None:
        """Give what the lists (or dicts) in these elements hold, without their heads, and how many items that is.

        `prefix` is what a list of one item begins with; None if an element is anything else than a short list.
        """
        pieces: list[Piece] = []
        total = 0
        for first, count in runs:
            number, end = first, first + count
            while number < end:
                payload = self._raw.get(number)
                if payload is None:
                    segment = self._segments.get(start_of(number))
                    if segment is not None and segment.prefix == prefix and segment.whole:
                        last = min(end, start_of(number) + SEAL) - 1
                        pieces.append(segment.bodies(number % SEAL, last % SEAL))
                        total += last + 1 - number
                        number = last + 1
                        continue
                    payload = self.payload(number)
                if payload[:_PREFIX] == prefix:
                    items, head = 1, _PREFIX
                else:
                    items, head = _head_of(payload, prefix)
                    if not head:
                        return None
                pieces.append(payload[head:])
                total += items
                number += 1
        return total, pieces

    def items(self) -> Iterator[tuple[int, bytes]]:
        """Give every element that was read."""
        yield from self._raw.items()
        for start, segment in self._segments.items():
            for index in range(SEAL):
                if payload := segment.payload(index):
                    yield start + index, payload

    def without(self, start: int, dropped: Collection[int]) -> bytes:
        """Give the stored form of a sealed row once these elements are gone from it."""
        segment = self._segments[start]
        return seal([b"" if start + index in dropped else segment.payload(index) for index in range(SEAL)])

    def sealed(self) -> list[int]:
        """Give where the sealed rows that were read start."""
        return sorted(self._segments)


def _head_of(payload: bytes, prefix: bytes) -> tuple[int, int]:
    """Tell how many items a short list (or dict) has, as one of `prefix` has, and in how many bytes that stands."""
    single = prefix[1]
    first = payload[1] if payload[:1] == prefix[:1] and len(payload) > 1 else 0
    if first & 0xF0 == single & 0xF0:
        return first & 0x0F, 2
    if first == (_LIST_16 if single & 0xF0 == _SHORT_LIST else _DICT_16) and len(payload) >= _LONG_HEAD:
        return int.from_bytes(payload[2:_LONG_HEAD], "big"), _LONG_HEAD
    return 0, 0
