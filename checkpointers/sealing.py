"""Seals: what is read back at a place is what was written there, or reading raises.

Every row carries a seal over its content and its place: which table, which thread, which key columns. A flipped bit, a
row cut short, a row that stands where another belongs, are noticed before anything of them is decoded. Without
encryption a seal is a digest: it notices accidents. With encryption it is the tag of the cipher: nobody without the
key can make one.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import Final, Protocol

SEAL_BYTES: Final = 8
_ELEMENT: Final = struct.Struct(">cqii").pack
_WRITE: Final = struct.Struct(">cqiHHH").pack
_CHECKPOINT: Final = struct.Struct(">cqiqiHHH").pack
_METADATA: Final = struct.Struct(">cqHH").pack
_THREAD: Final = struct.Struct(">cqqiiiiiqqqH").pack
_NAME: Final = struct.Struct(">ci").pack
_NOTE: Final = struct.Struct(">cq").pack
_EFFECT: Final = struct.Struct(">cqii").pack
_BODY: Final = struct.Struct(">cqi").pack
NAME_BYTES: Final = 16


class BrokenSealError(ValueError):
    """A row that is not what was written at its place."""


class Vault(Protocol):
    """Seals and opens the rows of one thread."""

    def seal(self, place: bytes, raw: bytes) -> bytes:
        """Make the stored form of a row's content."""
        ...

    def open(self, place: bytes, blob: bytes) -> bytes:
        """Give the content back; raises `BrokenSealError` unless it was sealed at this place."""
        ...

    def hide(self, place: bytes, raw: bytes) -> bytes:
        """Make the stored form of a column that the seal of its row covers: only a cipher changes it."""
        ...

    def show(self, place: bytes, blob: bytes) -> bytes:
        """Give back what was hidden."""
        ...

    def name(self, raw: bytes) -> bytes:
        """Give the print under which a row of this stands: where there is a cipher, nobody else can test a guess."""
        ...


class Digests:
    """The seals of threads that are not encrypted."""

    def seal(self, place: bytes, raw: bytes) -> bytes:
        """Put a digest before the content."""
        return _digest(place, raw) + raw

    def open(self, place: bytes, blob: bytes) -> bytes:
        """Check the digest and take it off."""
        raw = blob[SEAL_BYTES:]
        if _digest(place, raw) != blob[:SEAL_BYTES]:
            msg = "its digest does not match"
            raise BrokenSealError(msg)
        return raw

    def hide(self, place: bytes, raw: bytes) -> bytes:
        """Leave it readable."""
        del place
        return raw

    def show(self, place: bytes, blob: bytes) -> bytes:
        """Give it as it is."""
        del place
        return blob

    def name(self, raw: bytes) -> bytes:
        """Give a digest."""
        return blake2b(raw, digest_size=NAME_BYTES).digest()


def _digest(place: bytes, raw: bytes) -> bytes:
    return blake2b(place + raw, digest_size=SEAL_BYTES).digest()


def element_place(thread: int, channel: int, number: int) -> bytes:
    """Say where an element, or a sealed row of them, stands."""
    return _ELEMENT(b"e", thread, channel, number)


def write_place(thread: int, key: tuple[bytes, bytes, bytes], kinds: int) -> bytes:
    """Say where the writes of a task stand: in which namespace, on which checkpoint."""
    return _WRITE(b"w", thread, kinds, *map(len, key)) + b"".join(key)


def checkpoint_place(
    thread: int, key: tuple[bytes, int, bytes, bytes | None], at: int, *, flags: int, metadata: bytes
) -> bytes:
    """Say where a checkpoint stands: its namespace, step, id and parent, and what else its row says in the open."""
    ns, step, id_, parent = key
    if parent is not None and not parent:
        msg = f"its parent is {parent!r}"
        raise ValueError(msg)
    above = parent or b""
    fixed = _CHECKPOINT(b"c", thread, step, at, flags, len(ns), len(id_), len(above))
    return b"".join((fixed, ns, id_, above, metadata))


def metadata_place(thread: int, ns: bytes, id_: bytes) -> bytes:
    """Say which checkpoint metadata belongs to."""
    return _METADATA(b"m", thread, len(ns), len(id_)) + ns + id_


def thread_place(thread: int, numbers: tuple[int, ...], head_id: bytes) -> bytes:
    """Say what else the row of a thread says: stamp, steps, head, flags, kinds, checkpoints, bytes and both times."""
    return _THREAD(b"t", thread, *numbers, len(head_id)) + head_id


def note_place(thread: int) -> bytes:
    """Say whose lease a note belongs to."""
    return _NOTE(b"l", thread)


def effect_place(thread: int, id_: bytes, number: int, revision: int) -> bytes:
    """Say where an entry of the ledger stands: under which print, as the how-manieth, changed how often."""
    return _EFFECT(b"x", thread, number, revision) + id_


def body_place(thread: int, hash_: bytes, number: int) -> bytes:
    """Say which part of which body a row is."""
    return _BODY(b"b", thread, number) + hash_


def name_seal(key: int, name: bytes) -> bytes:
    """Give the seal that binds a name to its key."""
    return blake2b(_NAME(b"n", key) + name, digest_size=SEAL_BYTES).digest()
