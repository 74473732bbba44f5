"""Which vault opens which thread: digests, or the cipher of the thread's own key.

A thread is encrypted as a whole or not at all, so that a row in clear among encrypted ones is a forgery. With a keyring
every new thread gets a key of its own, stored wrapped by the newest master key; a thread without one is refused unless
the saver was opened to migrate.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from checkpointers.cipher import Cipher, fresh_key
from checkpointers.codec import unpacked
from checkpointers.errors import CheckpointerError, KeyringError, ShreddedError, UnencryptedError
from checkpointers.plain import as_json
from checkpointers.sealing import BrokenSealError, Digests, Vault

if TYPE_CHECKING:
    from checkpointers.keyring import Keyring

KEPT: Final = 4_096
DIGESTS: Final = Digests()


class Vaults:
    """The vaults of one saver."""

    def __init__(
        self, keyring: Keyring | None = None, *, migrating: bool = False, readable: Iterable[str] = ()
    ) -> None:
        """Encrypt if there is a keyring; `migrating` lets threads be read that are not encrypted yet.

        What metadata has under the keys that are `readable` stays so.
        """
        if keyring is not None and not hasattr(keyring, "wrap"):
            raise KeyringError(
                f"keys is a Keyring(…), not {type(keyring).__name__}; Keyring.generate('NAME') makes one"
            )
        self.keyring, self.migrating = keyring, migrating
        names = _names(readable)
        if names and keyring is None:
            raise KeyringError(f"readable={names!r} is for what is encrypted; open the saver with keys=Keyring(…) too")
        self._labels = partial(_labels, names) if names else None
        self._opened: OrderedDict[tuple[int, bytes], Vault] = OrderedDict()
        self._lock = Lock()

    def fresh(self, thread: int) -> tuple[Vault, tuple[bytes, bytes] | None]:
        """Give the vault of a new thread, and the row of its key: under which master key, wrapped."""
        if self.keyring is None:
            return DIGESTS, None
        key = fresh_key()
        return self._kept(thread, self.keyring.wrap(key, _place(thread)), key)

    def rewrapped(self, thread: int, wrapped: bytes) -> tuple[bytes, bytes]:
        """Give the row of a thread's key under the newest master key."""
        keyring = self._ring()
        key = self._unwrapped(thread, f"#{thread}", wrapped)
        return self._kept(thread, keyring.wrap(key, _place(thread)), key)[1]

    def newest(self) -> tuple[bytes, bytes]:
        """Name the newest master key, and give what a key starts with that it wrapped."""
        keyring = self._ring()
        return keyring.newest.encode(), keyring.head

    def master_of(self, wrapped: bytes) -> bytes:
        """Name the master key that a thread's key is wrapped under."""
        return self._ring().key_id_of(wrapped).encode()

    def of(self, thread: int, name: str, wrapped: bytes | None) -> Vault:
        """Give the vault of a stored thread."""
        if wrapped == b"":
            raise ShreddedError(name)
        if wrapped is None:
            if self.keyring is not None and not self.migrating:
                raise UnencryptedError(name)
            return DIGESTS
        with self._lock:
            vault = self._opened.get((thread, wrapped))
        return vault or self._cipher(thread, wrapped, self._unwrapped(thread, name, wrapped))

    def forget(self, thread: int) -> None:
        """Drop the keys of a thread."""
        with self._lock:
            for slot in [slot for slot in self._opened if slot[0] == thread]:
                del self._opened[slot]

    def _ring(self, name: str = "") -> Keyring:
        if self.keyring is None:
            msg = f"thread {name!r} is encrypted; open the saver with keys=Keyring(…)"
            raise KeyringError(msg)
        return self.keyring

    def _unwrapped(self, thread: int, name: str, wrapped: bytes) -> bytes:
        try:
            return self._ring(name).unwrap(wrapped, _place(thread))
        except BrokenSealError as error:
            msg = f"the key of thread {name!r} does not open: {error}"
            raise KeyringError(msg) from error

    def _kept(self, thread: int, wrapped: bytes, key: bytes) -> tuple[Vault, tuple[bytes, bytes]]:
        return self._cipher(thread, wrapped, key), (self.master_of(wrapped), wrapped)

    def _cipher(self, thread: int, wrapped: bytes, key: bytes) -> Vault:
        vault: Vault = Cipher(key, self._labels)
        with self._lock:
            self._opened[thread, wrapped] = vault
            while len(self._opened) > KEPT:
                self._opened.popitem(last=False)
        return vault


def _names(readable: Iterable[str]) -> list[str]:
    """Take the keys of metadata that stay readable."""
    given: Any = (readable,) if isinstance(readable, str) else readable
    names = list(given) if isinstance(given, Iterable) else [given]
    if not all(isinstance(name, str) for name in names):
        raise CheckpointerError(f"readable={readable!r}: write keys of metadata, as readable=['user']")
    return sorted(names)


def _labels(names: Sequence[str], metadata: bytes) -> bytes:
    """Give what stays readable of packed metadata, as JSON that any database reads."""
    found = unpacked(metadata)
    listed = {name: as_json(found[name]) for name in names if name in found}
    return json.dumps(listed, allow_nan=False).encode() if listed else b""


def _place(thread: int) -> bytes:
    return b"k" + thread.to_bytes(8, "big")
