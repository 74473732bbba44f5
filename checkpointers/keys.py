"""Ids as short byte keys, the same on every database.

Thread, namespace, checkpoint and task ids are any text: uuids mostly, but also ten-kilobyte strings with NUL
bytes. A key is at most 200 bytes, fits every index, and sorts uuids as their text sorts.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from checkpointers.errors import CheckpointerError

_UUID: Final = b"u"
_TEXT: Final = b"t"
_HASH: Final = b"h"
_LONGEST: Final = 199
_UUID_LENGTH: Final = 36
_UUID_BYTES: Final = 16


def encoded(text: str) -> bytes:
    """Give the bytes of any Python text, lone surrogates included."""
    return text.encode("utf-8", "surrogatepass")


def decoded(raw: bytes) -> str:
    """Give the text that `encoded` made bytes of."""
    return raw.decode("utf-8", "surrogatepass")


@lru_cache(maxsize=8_192)
def digest(text: str) -> bytes:
    """Give 16 bytes that stand for this text in a unique index."""
    return blake2b(encoded(text), digest_size=16).digest()


def thread_number(name: str, tenant: str = "") -> int:
    """Give the number of a thread: computed, so that rows whose thread row is gone are still found to be its own."""
    raw = encoded(tenant) + b"\xff" + encoded(name)
    return int.from_bytes(blake2b(raw, digest_size=8, person=b"thread").digest()) >> 1


thread_key: Final = lru_cache(maxsize=8_192)(thread_number)


@lru_cache(maxsize=8_192)
def key_of(text: str) -> bytes:
    """Give the key of an id."""
    see_text("an id of a checkpoint, a namespace or a task", text)
    if len(text) == _UUID_LENGTH:
        with suppress(ValueError):
            raw = bytes.fromhex(text.replace("-", ""))
            if _uuid_of(raw) == text:
                return _UUID + raw
    raw = encoded(text)
    if len(raw) <= _LONGEST:
        return _TEXT + raw
    return _HASH + blake2b(raw, digest_size=32).digest()


@lru_cache(maxsize=8_192)
def text_of(key: bytes) -> str | None:
    """Give the id of a key, or None for one too long to be in its key: its record has it."""
    if key[:1] == _UUID:
        return _uuid_of(key[1:])
    return decoded(key[1:]) if key[:1] == _TEXT else None


def is_in_full(key: bytes) -> bool:
    """Tell whether a key says the whole id."""
    return key[:1] != _HASH


def see_text(what: str, given: object) -> None:
    """See that what is given is a text."""
    if not isinstance(given, str):
        raise CheckpointerError(f"{what} is a text, not {given!r:.80}")


def _uuid_of(raw: bytes) -> str:
    if len(raw) != _UUID_BYTES:
        msg = f"{len(raw)} bytes are no uuid"
        raise ValueError(msg)
    digits = raw.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
