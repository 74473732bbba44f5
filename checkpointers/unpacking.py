"""Msgpack decoded within limits, and the errors of strict reading.

A callback's error is lost in msgpack, and so is the place of what is nested: brackets in objects in objects, 20 kB of
them, crash an interpreter. So depth is looked at before an object is decoded, and errors are handed on here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache, reduce
from operator import getitem
from typing import Any, Final, NoReturn

import ormsgpack

from checkpointers.errors import CheckpointerError, DamagedValueError, TooLargeError, is_too_deep

MAX_BYTES: Final = 256 << 20
MAX_DEPTH: Final = 1_022  # msgpack's own limit, which costs nothing
OBJECT_DEPTH: Final = 256
Hook = Callable[[int, bytes], Any]


class _Local(threading.local):
    """What msgpack does not hand on: the first error of a callback; and what is known of the value being written."""

    error: BaseException | None = None
    trial: bool = False
    nested: bool = False

    def keep(self, error: BaseException) -> None:
        """Remember an error; those that follow from it do not count."""
        if self.error is None:
            self.error = error

    def hand_on(self, last: Exception, kind: type[CheckpointerError]) -> NoReturn:
        """Raise the error that a callback failed with, or else the one of msgpack itself, as one of ours."""
        error, self.error = self.error or last, None
        if is_too_deep(error):
            raise TooLargeError("a value is nested too deeply") from None
        if type(error) is ValueError:
            raise kind(f"{error}; this is no value that can be kept") from None
        raise error from error.__cause__


local = _Local()


_CONTAINERS: Final = bytes((*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF, 0xC7, 0xC8, 0xC9, *range(0xD4, 0xD9)))
_OTHERS: Final = bytes(set(range(256)) - set(_CONTAINERS))
_SCALAR, _STRING, _LIST, _MAP, _EXT = range(5)


def _shapes() -> list[tuple[int, int, int]]:
    """Give for each first byte of msgpack what it starts, in how many bytes its length stands, and its own length."""
    shapes = [(_SCALAR, 0, 0)] * 256
    for first in range(0x80, 0x90):
        shapes[first] = (_MAP, 0, first & 15)
        shapes[first + 16] = (_LIST, 0, first & 15)
    for first in range(0xA0, 0xC0):
        shapes[first] = (_SCALAR, 0, first & 31)
    sizes = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
    shapes[0xCA:0xD4] = [(_SCALAR, 0, size) for size in sizes.values()]
    shapes[0xD4:0xD9] = [(_EXT, 0, 1 << power) for power in range(5)]
    for power in range(3):
        shapes[0xC4 + power] = shapes[0xD9 + power] = (_STRING, 1 << power, 0)
        shapes[0xC7 + power] = (_EXT, 1 << power, 0)
    shapes[0xDC:0xE0] = [(_LIST, 2, 0), (_LIST, 4, 0), (_MAP, 2, 0), (_MAP, 4, 0)]
    return shapes


_SHAPES: Final = _shapes()


def nested_within(data: bytes, limit: int) -> bool:
    """Tell whether no more than `limit` lists, dicts and objects stand in one another."""
    if len(data) <= limit:
        return True
    left, ends, at = [1], [0], 0  # of each open container: how many items are to come, and where an object ends
    try:
        while left:
            if not left[-1]:
                left.pop()
                at = ends.pop() or at
                continue
            left[-1] -= 1
            sort, width, size = _SHAPES[data[at]]
            at += 1 + width
            if width:
                size = int.from_bytes(data[at - width : at], "big")
            if sort <= _STRING:
                at += size
                if size > limit and _brackets(data[at:]) + len(left) <= limit:
                    return True
                continue
            at += sort == _EXT
            left.append(1 if sort == _EXT else size * (sort - _STRING))
            ends.append(at + size if sort == _EXT else 0)
            if len(left) > limit + 1:
                return False
    except IndexError:
        raise DamagedValueError("a stored object ends too early") from None
    return True


def check_nesting(data: bytes, limit: int) -> None:
    """Raise `TooLargeError` for an object that is nested more deeply."""
    # Most objects have fewer brackets in all than may be nested; but texts of other scripts look like brackets.
    if _brackets(data) > limit and not nested_within(data, limit):
        raise TooLargeError(f"an object holds more than {limit} lists, dicts and objects in one another")


def _brackets(data: bytes) -> int:
    return len(data.translate(None, _OTHERS))


@cache
def _deepest() -> int:
    """Ask msgpack how deep it goes by itself."""
    depth = MAX_DEPTH - 1
    while depth < 2 * MAX_DEPTH:
        try:
            ormsgpack.unpackb(b"\x91" * (depth + 1) + b"\xc0")
        except ValueError:
            break
        depth += 1
    return depth


def unpacked(data: bytes, hook: Hook) -> Any:
    """Decode what an object holds."""
    return ormsgpack.unpackb(data, ext_hook=hook, option=ormsgpack.OPT_NON_STR_KEYS)


class Reader:
    """Decodes msgpack within limits, with what `made` makes of each object of it."""

    def __init__(self, made: Callable[[int, bytes, Hook], Any], depth: int, size: int) -> None:
        """Take what makes an object of its code and bytes, and the limits."""
        self._made, self._depth, self._size = made, depth, size
        self._inside = min(depth, OBJECT_DEPTH)
        self._pad = max(0, _deepest() - depth)

    def read(self, data: bytes) -> Any:
        """Decode a value; what may follow it is not looked at."""
        if len(data) > self._size:
            raise TooLargeError(f"a stored value of {len(data):,} bytes is over max_bytes={self._size:,}")
        try:
            if self._pad and len(data) > self._depth and _brackets(data) > self._depth:
                # In so many lists more, msgpack's own limit of nesting comes as early as it should.
                return reduce(getitem, (0,) * self._pad, unpacked(b"\x91" * self._pad + data, self.read_object))
            return ormsgpack.unpackb(data, ext_hook=self.read_object, option=ormsgpack.OPT_NON_STR_KEYS)
        except ValueError as error:
            local.hand_on(error, DamagedValueError)

    def read_object(self, code: int, data: bytes) -> Any:
        """Make an object that stands in plain data."""
        try:
            if len(data) > self._inside:
                check_nesting(data, self._inside)
            return self._made(code, data, self._inner)
        except BaseException as error:  # msgpack would not say which
            local.keep(error)
            raise

    def _inner(self, code: int, data: bytes) -> Any:
        try:
            return self._made(code, data, self._inner)
        except BaseException as error:
            local.keep(error)
            raise
