"""The seals of encrypted threads: AES-256-GCM under a key that is one thread's own.

`cryptography` (extra `crypto`) is imported by the first cipher, not by this module. No key is shown anywhere: keys are
held as `Key`, which has no telling repr, and an error is raised only where a key that came in plain is out of sight,
because there are tracebacks that print every local variable.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from importlib import import_module
from typing import TYPE_CHECKING, Final, NoReturn, SupportsIndex

from checkpointers.errors import KeyringError, MissingDriverError
from checkpointers.sealing import NAME_BYTES, BrokenSealError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
SEALED: Final = 0x10
LABELLED: Final = b"\x11"
LABEL_AT: Final = 5
Labels = Callable[[bytes], bytes]
_MARKER: Final = bytes([SEALED])
_SHORTEST: Final = 1 + NONCE_BYTES + TAG_BYTES


class Private:
    """Something that neither pickles nor copies: its bytes would be elsewhere, in clear."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        msg = f"a {type(self).__name__.strip('_')} is neither pickled nor copied: that would lay its key open"
        raise TypeError(msg)


class Key(Private, bytes):
    """The bytes of a key, which do not show."""

    def __repr__(self) -> str:
        return "<a key>"

    __str__ = __repr__


class Cipher(Private):
    """Seals a thread's rows under the thread's own key, each to its place.

    Nonces are 12 random bytes, which AES-GCM allows for up to 2^32 rows under one key: until then the chance that any
    two are alike, which would lay both rows open, stays below 2^-32 (NIST SP 800-38D). The key is one thread's alone,
    so the count is of one thread's rows, not of a database's: a thread that writes ten rows a second, day and night,
    gets there after thirteen years. A counter would need no such bound and would be worse: processes and forks that
    share a thread would have to agree on it, and a restored backup would give the same numbers again. A copy of a
    thread must get a key of its own.

    One object serves all threads of a process and its forks: it has no state but the key, and nonces are the kernel's.
    """

    __slots__ = ("_decrypt", "_encrypt", "_labels", "_names")

    def __init__(self, data_key: bytes, labels: Labels | None = None) -> None:
        """Take a thread's own key, 32 bytes, and what gives the part of a hidden column that stays readable."""
        self._labels = labels
        key = hidden(data_key)
        del data_key
        if key is None:
            raise KeyringError(f"a thread's own key is {KEY_BYTES} bytes, and this is not")
        self._names = Key(blake2b(key, digest_size=KEY_BYTES, person=b"names").digest())
        aes = aes_of(key)
        self._encrypt, self._decrypt = aes.encrypt, aes.decrypt

    def seal(self, place: bytes, raw: bytes) -> bytes:
        """Encrypt a row; it opens at this place alone."""
        nonce = os.urandom(NONCE_BYTES)
        return b"".join((_MARKER, nonce, self._encrypt(nonce, raw, place)))

    def open(self, place: bytes, blob: bytes) -> bytes:
        """Give back what was sealed at this place; anything else raises `BrokenSealError`."""
        if type(blob) is not bytes or len(blob) < _SHORTEST or blob[0] != SEALED:
            raise BrokenSealError("the row is not a sealed row: it was changed, cut or never sealed")
        try:
            return self._decrypt(blob[1:13], blob[13:], place)
        except driver()[1]:
            msg = "the seal of the row is broken: it was changed, is of another place or another key"
            raise BrokenSealError(msg) from None

    def hide(self, place: bytes, raw: bytes) -> bytes:
        """Seal a column; labels stand before it in clear, and it opens with these labels alone."""
        clear = self._labels(raw) if self._labels else b""
        if not clear:
            return self.seal(place, raw)
        return b"".join((LABELLED, len(clear).to_bytes(4, "big"), clear, self.seal(_bound(place, clear), raw)))

    def show(self, place: bytes, blob: bytes) -> bytes:
        """Give back what was hidden, with labels or without."""
        clear = labels_in(blob)
        if not clear:
            return self.open(place, blob)
        return self.open(_bound(place, clear), blob[LABEL_AT + len(clear) :])

    def name(self, raw: bytes) -> bytes:
        """Give a print that only this key makes: what can be guessed is not told by it."""
        return blake2b(raw, key=self._names, digest_size=NAME_BYTES).digest()


def labels_in(blob: bytes) -> bytes:
    """Give the labels that stand before what is hidden, to whoever has no key; nothing if there are none."""
    if type(blob) is not bytes or blob[:1] != LABELLED:
        return b""
    return blob[LABEL_AT : LABEL_AT + int.from_bytes(blob[1:LABEL_AT], "big")]


def _bound(place: bytes, clear: bytes) -> bytes:
    """Make labels a part of the place: the digest keeps the two from being taken for one another."""
    return blake2b(place, digest_size=KEY_BYTES, person=b"labels").digest() + clear


@cache
def driver() -> tuple[type[AESGCM], type[Exception]]:
    """Give the cipher of the package, and what it raises."""
    try:
        aead = import_module("cryptography.hazmat.primitives.ciphers.aead")
        return aead.AESGCM, import_module("cryptography.exceptions").InvalidTag
    except ImportError as error:
        msg = f"encryption needs cryptography ({error}); install it with: pip install cryptography"
        raise MissingDriverError(msg) from error


def aes_of(key: bytes) -> AESGCM:
    """Make a cipher."""
    return driver()[0](key)


def fresh_key() -> Key:
    """Make a key."""
    return Key(os.urandom(KEY_BYTES))


def hidden(raw: object) -> Key | None:
    """Give a key that does not show, None for what is no key."""
    return Key(raw) if isinstance(raw, bytes) and len(raw) == KEY_BYTES else None
