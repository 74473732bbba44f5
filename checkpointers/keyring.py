"""Master keys, and the wrapping of a thread's own key under them.

Two levels, so that rotating a master key re-wraps 32 bytes for each thread and no row, and so that forgetting a
thread's own key erases the thread. `cryptography` (extra `crypto`) is imported by the first keyring or cipher, not by
this module.

No key is shown anywhere: keys are held as `Key`, which has no telling repr, and an error is raised only where a key
that came in plain is out of sight, because there are tracebacks that print every local variable.
"""

from __future__ import annotations

import base64
import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final, NoReturn, Self

from checkpointers.cipher import KEY_BYTES, NONCE_BYTES, TAG_BYTES, Key, Private, aes_of, driver, fresh_key, hidden
from checkpointers.errors import KeyringError
from checkpointers.sealing import BrokenSealError

WRAPPED: Final = 0x01

_LABEL: Final = b"checkpointers: a thread's key\x00"
_WRAPPED_BODY: Final = NONCE_BYTES + KEY_BYTES + TAG_BYTES
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ID_FORM: Final = "1 to 64 of A-Z a-z 0-9 . _ -"
_OTHERS: Final = 0o077


class Keyring(Private):
    """Master keys by id; the newest wraps, each unwraps what it wrapped.

    A key that is taken out of the ring makes every thread that is still wrapped under it unreadable, so it goes only
    after all threads were wrapped under a newer one.
    """

    __slots__ = ("_keys", "newest")
    _keys: Mapping[str, Key]
    newest: str

    def __init__(self, keys: Mapping[str, bytes], *, newest: str | None = None) -> None:
        """Take 32-byte keys by id; the newest is the one named, or the last."""
        ids = [name if _is_id(name) else "" for name in keys]
        held = [hidden(raw) for raw in keys.values()]
        chosen = [name for name in ids if newest in (None, name)]
        del keys, newest
        if not ids:
            raise KeyringError("a keyring holds at least one key; Keyring.generate('first') makes one")
        good: dict[str, Key] = {}
        for number, (name, key) in enumerate(zip(ids, held, strict=True), 1):
            if not name:
                raise KeyringError(f"the id of key {number} of {len(ids)} is not {_ID_FORM}")
            if key is None:
                raise KeyringError(f"key {name!r} is not {KEY_BYTES} bytes; os.urandom({KEY_BYTES}) makes such a key")
            good[name] = key
        if not chosen:
            raise KeyringError(f"the newest key is not one of the keyring, which holds {_listed(good)}")
        object.__setattr__(self, "_keys", MappingProxyType(good))
        object.__setattr__(self, "newest", chosen[-1])
        driver()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        del value
        raise AttributeError(f"a Keyring does not change: cannot set {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a Keyring does not change: cannot delete {name!r}")

    def __repr__(self) -> str:
        if not hasattr(self, "newest"):  # a traceback shows it before it is made
            return "Keyring()"
        return f"Keyring({_listed(self._keys)}; newest {self.newest!r})"

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of its keys, in their order."""
        return tuple(self._keys)

    @property
    def head(self) -> bytes:
        """What every key starts with that the newest master key wrapped."""
        return bytes([WRAPPED, len(self.newest)]) + self.newest.encode()

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Read `id: base64` lines, the newest last, from a file that nobody else may read or write."""
        found = _parsed(_read(path))
        if isinstance(found, str):
            raise KeyringError(f"{os.fspath(path)}: {found}")
        return cls(found)

    @classmethod
    def from_env(cls, name: str) -> Self:
        """Read the same lines from an environment variable."""
        if name not in os.environ:
            raise KeyringError(f"the environment variable {name} is not set; set it to lines of the form `id: base64`")
        found = _parsed(os.environ[name])
        if isinstance(found, str):
            raise KeyringError(f"the environment variable {name}: {found}")
        return cls(found)

    @classmethod
    def generate(cls, id: str) -> Self:  # noqa: A002 - the word of the text form
        """Make a keyring of one fresh key."""
        return cls({id: fresh_key()})

    def with_new(self, id: str) -> Keyring:  # noqa: A002 - the word of the text form
        """Give a keyring with one more, fresh key, which is its newest."""
        if id in self._keys:
            raise KeyringError(f"there is a key {id!r} already; a new key needs an id of its own")
        return Keyring({**self._keys, id: fresh_key()})

    def save(self, path: str | os.PathLike[str], *, replace: bool = False) -> None:
        """Write a file that its owner alone may read, whole or not at all, and none over another unless told to.

        A symbolic link at `path` is itself replaced, never followed. Keys that only the replaced file holds are lost.
        """
        target = Path(path)
        draft = target.parent / f".keyring-{os.urandom(8).hex()}"
        try:
            self._draft(draft)
            if replace:
                draft.replace(target)
            else:
                os.link(draft, target)
            _settle(target.parent)
        except FileExistsError as error:
            msg = f"{target}: there is a file already; choose another path, or replace it with save(path, replace=True)"
            raise KeyringError(msg) from error
        except OSError as error:
            msg = f"{target}: {error.strerror}; the keys may not be stored: save to a folder that you may write to"
            raise KeyringError(msg) from error
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)

    def wrap(self, data_key: bytes, place: bytes) -> bytes:
        """Seal a thread's own key under the newest master key, for this place alone.

        Nonces are random: up to 2^32 wrappings under one master key, two are alike with a chance below 2^-32. Each
        thread takes one, and one more for each rotation to that key.
        """
        key = hidden(data_key)
        del data_key
        if key is None:
            raise KeyringError(f"a thread's own key is {KEY_BYTES} bytes, and what was to be wrapped is not")
        head = self.head
        nonce = os.urandom(NONCE_BYTES)
        return head + nonce + aes_of(self._keys[self.newest]).encrypt(nonce, key, _LABEL + head + place)

    def unwrap(self, blob: bytes, place: bytes) -> bytes:
        """Give back the key that was wrapped for this place, under whichever key of the ring."""
        name = self.key_id_of(blob)
        if name not in self._keys:
            raise KeyringError(
                f"no key {name!r} in the keyring, which holds {_listed(self._keys)}; the master key was perhaps removed"
                " from the keyring: put it back, or take the keyring that the thread was written with"
            )
        split = 2 + len(name)
        head, nonce, body = blob[:split], blob[split : split + NONCE_BYTES], blob[split + NONCE_BYTES :]
        try:
            return Key(aes_of(self._keys[name]).decrypt(nonce, body, _LABEL + head + place))
        except driver()[1]:
            msg = f"the wrapped key does not open with key {name!r}: it was changed, is of another place or another key"
            raise BrokenSealError(msg) from None

    @staticmethod
    def key_id_of(blob: bytes) -> str:
        """Name the master key that a wrapped key needs; what is not a wrapped key raises `BrokenSealError`."""
        if type(blob) is bytes and len(blob) > 1 and blob[0] == WRAPPED and len(blob) == 2 + blob[1] + _WRAPPED_BODY:
            name = blob[2 : 2 + blob[1]].decode("ascii", "replace")
            if _is_id(name):
                return name
        raise BrokenSealError("this is not a wrapped key: it was changed, or is something else")

    def _draft(self, path: Path) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor is no path
            os.fchmod(descriptor, 0o600)
            file.write(b"# Master keys; whoever has them reads every thread. The newest is the last.\n")
            names = sorted(self._keys, key=self.newest.__eq__)
            file.writelines(name.encode() + b": " + base64.b64encode(self._keys[name]) + b"\n" for name in names)
            file.flush()
            os.fsync(descriptor)


def _is_id(name: object) -> bool:
    return isinstance(name, str) and _ID.fullmatch(name) is not None


def _listed(keys: Mapping[str, Key]) -> str:
    return ", ".join(map(repr, keys))


def _parsed(text: str) -> dict[str, Key] | str:
    """Give the keys of a text, or say what is wrong with it: raising here would show the text to some tracebacks."""
    found: dict[str, Key] = {}
    for number, line in enumerate(text.split("\n"), 1):
        entry = line.partition("#")[0].strip()
        name, _, encoded = (part.strip() for part in entry.partition(":"))
        if not entry:
            continue
        if not _is_id(name):
            return f"line {number} is not of the form `id: base64`, the id being {_ID_FORM}; correct or remove it"
        key = _decoded(encoded)
        if key is None:
            return f"line {number}: the key is not the base64 of {KEY_BYTES} bytes; restore it, or remove the line"
        if name in found:
            return f"line {number} has the id of a line above; give each key an id of its own"
        found[name] = key
    return found or "there is no key in it; Keyring.generate('first').save(path) makes a file with one"


def _decoded(encoded: str) -> Key | None:
    try:
        return hidden(base64.b64decode(encoded, validate=True))
    except ValueError:
        return None


def _read(path: str | os.PathLike[str]) -> str:
    try:
        seen = os.lstat(path)
        # A link that comes in between is not followed, and a pipe is not waited for.
        links = 0 if stat.S_ISLNK(seen.st_mode) else os.O_NOFOLLOW
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | links)
        try:
            refusal = _refusal(seen, os.fstat(descriptor), os.geteuid())
            if refusal is None:
                with open(descriptor, "rb", closefd=False) as file:
                    return file.read().decode("utf-8-sig", "replace")
        finally:
            os.close(descriptor)
    except OSError as error:
        msg = f"{os.fspath(path)}: {error.strerror}; check the path; Keyring.generate('first').save(path) makes a file"
        raise KeyringError(msg) from error
    raise KeyringError(f"{os.fspath(path)}: {refusal}")


def _refusal(seen: os.stat_result, file: os.stat_result, me: int) -> str | None:
    """Say why a file is not to be trusted, from what stands at its path, what was opened, and who asks."""
    if not stat.S_ISREG(file.st_mode):
        return "this is not a file; give the path of a file of keys"
    if file.st_uid not in {me, 0}:
        return "the file belongs to somebody else; take one of your own, or chown it after a look at it"
    if stat.S_ISLNK(seen.st_mode) and seen.st_uid != file.st_uid:
        return "a symbolic link that is not of the file's owner leads to it; give the path of the file itself"
    if stat.S_IMODE(file.st_mode) & _OTHERS:
        mode = f"{stat.S_IMODE(file.st_mode):04o}"
        return f"others may read or write it (mode {mode}); run chmod 600 on it, and consider new keys"
    return None


def _settle(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
