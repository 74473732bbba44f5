"""What is kept in a thread beside its state: entries of the ledger, and bodies; as rows, and as plain values. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

import ormsgpack

from checkpointers.codec import as_a, packed, unpacked
from checkpointers.compression import squeeze, unsqueeze
from checkpointers.errors import UnstorableValueError
from checkpointers.fingerprint import blame
from checkpointers.keys import decoded, encoded
from checkpointers.records import EPOCH, MICROSECOND
from checkpointers.retention import moment
from checkpointers.sealing import Vault, body_place, effect_place

EFFECTS: Final = "(effects)"
BODIES: Final = "(bodies)"
CHUNK: Final = 256 << 10
COVER: Final = 0
HASH_BYTES: Final = 32
LARGEST: Final = 1 << 40
ROW_SEAL_BYTES: Final = 16  # of an entry's row: a digest of it, or the nonce of its cipher, is among them
_PLAIN: Final = (
    ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_UUID
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
)


@dataclass(frozen=True, slots=True)
class Entry:
    """What the ledger says of one effect: the how-manieth it is, how often it was changed, how it stands, since when.

    `step` is where the thread stood when it was claimed, `at` the time of the last change. `mark` is of the one call
    that changed it last, and `seal` how its row begins: all but these may be the same where a thread was deleted and
    its key claimed anew.
    """

    thread: str
    key: str
    number: int
    revision: int
    status: str
    step: int
    at: datetime
    record: Mapping[str, Any]
    size: int = field(default=0, repr=False, compare=False)
    mark: bytes = field(default=b"", repr=False, compare=False)
    seal: bytes = field(default=b"", repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class BodyInfo:
    """A body that is kept: its sha256, and how many bytes it has."""

    hash: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Cover:
    """What the first row of a body says of it; `step` is where the thread stood when it was last kept."""

    hash: bytes
    size: int
    step: int

    @property
    def chunks(self) -> int:
        """Give how many parts the body has."""
        return -(-self.size // CHUNK)


def plain(record: Mapping[str, Any]) -> dict[str, Any]:
    """Give a copy of a record, as it will be read: JSON-like, or an error that says what in it is not."""
    if not isinstance(record, Mapping):
        raise UnstorableValueError(channel=EFFECTS, path="", reason=f"a record is a mapping, not {record!r:.80}")
    value = dict(record)
    try:
        own: dict[str, Any] = ormsgpack.unpackb(_pack(value))
    except Exception as error:
        raise blame(EFFECTS, value, _pack, error, _dump) from error
    return own


def _pack(value: Any) -> bytes:
    return ormsgpack.packb(value, option=_PLAIN)


def _dump(value: Any) -> tuple[str, bytes]:
    return "msgpack", _pack(value)


def sealed_entry(thread: int, vault: Vault, entry: Entry) -> tuple[bytes, int, int, bytes]:
    """Make the row of an entry."""
    id_ = vault.name(encoded(entry.key))
    at = (entry.at - EPOCH) // MICROSECOND
    try:
        raw = packed([encoded(entry.key), entry.status, entry.step, at, entry.record, entry.mark])
    except TypeError as error:
        raise UnstorableValueError(channel=EFFECTS, path="", reason=str(error)) from error
    place = effect_place(thread, id_, entry.number, entry.revision)
    return id_, entry.number, entry.revision, vault.seal(place, raw)


def opened_entry(thread: int, name: str, vault: Vault, row: Sequence[Any]) -> Entry:
    """Give the entry of a row; raises `BrokenSealError` for what is not one."""
    id_, number, revision, body = row
    key, status, step, at, record, mark = unpacked(vault.open(effect_place(thread, id_, number, revision), body))
    told = as_a(str, status), as_a(int, step), moment(as_a(int, at)), as_a(dict, record)
    entry = Entry(name, decoded(as_a(bytes, key)), number, revision, *told, mark=as_a(bytes, mark))
    return as_stored(entry, body)


def as_stored(entry: Entry, body: bytes) -> Entry:
    """Give an entry with what its row shows from outside."""
    return replace(entry, size=len(body), seal=body[:ROW_SEAL_BYTES])


def as_body(data: object) -> bytes:
    """Give a body as it is now; what is neither bytes nor a view of some has no hash."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise UnstorableValueError(channel=BODIES, path="", reason=f"a body is bytes, not {data!r:.80}")
    return bytes(data)


def hash_of(data: bytes) -> str:
    """Give the name of a body: its sha256."""
    return sha256(data).hexdigest()


def body_id(vault: Vault, hash_: str) -> bytes:
    """Give the print under which the rows of a body stand."""
    return vault.name(encoded(hash_))


def sealed_body(thread: int, vault: Vault, data: bytes, *, step: int) -> Iterator[tuple[bytes, int, bytes]]:
    """Make the rows of a body: its cover, then its parts, each of which is read without the others."""
    digest = sha256(data).digest()
    yield sealed_cover(thread, vault, Cover(digest, len(data), step))
    id_ = body_id(vault, digest.hex())
    for number, start in enumerate(range(0, len(data), CHUNK), COVER + 1):
        raw = digest + squeeze(data[start : start + CHUNK])
        yield id_, number, vault.seal(body_place(thread, id_, number), raw)


def sealed_cover(thread: int, vault: Vault, cover: Cover) -> tuple[bytes, int, bytes]:
    """Make the first row of a body."""
    id_ = body_id(vault, cover.hash.hex())
    raw = cover.hash + packed([cover.size, cover.step])
    return id_, COVER, vault.seal(body_place(thread, id_, COVER), raw)


def opened_cover(thread: int, vault: Vault, row: Sequence[Any]) -> Cover:
    """Give what the first row of a body says; raises `BrokenSealError` for what is not one."""
    raw = opened_part(thread, vault, row)
    size, step = unpacked(raw[HASH_BYTES:])
    if not 0 <= as_a(int, size) < LARGEST:
        msg = f"it is said to have {size} bytes"
        raise ValueError(msg)
    return Cover(raw[:HASH_BYTES], size, as_a(int, step))


def opened_chunk(thread: int, vault: Vault, row: Sequence[Any]) -> bytes:
    """Give the bytes of a part."""
    return unsqueeze(opened_part(thread, vault, row)[HASH_BYTES:])


def moved_part(thread: int, vault: Vault, row: Sequence[Any], to: tuple[int, Vault]) -> tuple[bytes, int, bytes]:
    """Open any row of a body and seal it for another thread, or under another key."""
    raw = opened_part(thread, vault, row)
    key, other = to
    id_ = body_id(other, raw[:HASH_BYTES].hex())
    return id_, row[1], other.seal(body_place(key, id_, row[1]), raw)


def opened_part(thread: int, vault: Vault, row: Sequence[Any]) -> bytes:
    """Give the content of any row of a body: the hash it belongs to, then what it says."""
    id_, number, blob = row
    return vault.open(body_place(thread, id_, number), blob)
