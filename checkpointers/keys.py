"""Ids as short byte keys, the same on every database.

Thread, namespace, checkpoint and task ids are any text: uuids mostly, but also ten-kilobyte strings with NUL
bytes. A key is at most 200 bytes, fits every index, and sorts uuids as their text sorts.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Final
from uuid import UUID

_UUID: Final = b"u"
_TEXT: Final = b"t"
_HASH: Final = b"h"
_LONGEST: Final = 199
_UUID_LENGTH: Final = 36


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


@lru_cache(maxsize=8_192)
def thread_key(name: str, tenant: str = "") -> int:
    """Give the number of a thread: computed, so that rows whose thread row is gone are still found to be its own."""
    raw = encoded(tenant) + b"\xff" + encoded(name)
    return int.from_bytes(blake2b(raw, digest_size=8, person=b"thread").digest()) >> 1


@lru_cache(maxsize=8_192)
def key_of(text: str) -> bytes:
    """Give the key of an id."""
    if len(text) == _UUID_LENGTH:
        try:
            uuid = UUID(text)
        except ValueError:
            pass
        else:
            if str(uuid) == text:
                return _UUID + uuid.bytes
    raw = encoded(text)
    if len(raw) <= _LONGEST:
        return _TEXT + raw
    return _HASH + blake2b(raw, digest_size=32).digest()


@lru_cache(maxsize=8_192)
def text_of(key: bytes) -> str | None:
    """Give the id of a key, or None for one too long to be in its key: its record has it."""
    if key[:1] == _UUID:
        return str(UUID(bytes=key[1:]))
    return decoded(key[1:]) if key[:1] == _TEXT else None
