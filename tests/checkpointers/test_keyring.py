"""What is sealed opens at its place, under its key, as it was, or not at all; and no key ever shows."""

from __future__ import annotations

import base64
import copy
import os
import pickle
import stat
import subprocess
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpointers.cipher import KEY_BYTES, NONCE_BYTES, SEALED, TAG_BYTES, Cipher
from checkpointers.errors import CheckpointerError, KeyringError, MissingDriverError
from checkpointers.keyring import Keyring, _refusal
from checkpointers.sealing import BrokenSealError

ROOT = Path(__file__).parents[2]
KEY = b"CANARY-one-\x00\xff-CANARY-one-1234567"
OTHER = b"CANARY-two-\x01\xfe-CANARY-two-1234567"
DATA = b"CANARY-data-\x02\xfd-CANARY-data-12345"
assert {len(KEY), len(OTHER), len(DATA)} == {KEY_BYTES}

keys = st.binary(min_size=KEY_BYTES, max_size=KEY_BYTES)
ids = st.from_regex(r"[A-Za-z0-9._-]{1,64}", fullmatch=True)
rings = st.dictionaries(ids, keys, min_size=1, max_size=4)
places = st.binary(max_size=40)


def line(key_id: str, key: bytes) -> str:
    """Give the text form of one key."""
    return f"{key_id}: {base64.b64encode(key).decode()}\n"


def key_file(path: Path, text: str | bytes, mode: int = 0o600) -> Path:
    """Write a file of keys."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return path


def flips(blob: bytes) -> list[bytes]:
    """Give a blob with each of its bits flipped in turn."""
    return [(int.from_bytes(blob) ^ (1 << bit)).to_bytes(len(blob)) for bit in range(len(blob) * 8)]


def forms(*secrets: bytes) -> list[str]:
    """Give what a key would look like if it showed: as itself, escaped, in base64, in hex."""
    shown = []
    for secret in secrets:
        shown += [repr(secret)[2:-1], secret.hex(), base64.b64encode(secret).decode().rstrip("=")]
        shown += [part for part in ("CANARY-one", "CANARY-two", "CANARY-data") if part.encode() in secret]
    return shown


# -- the cipher ---------------------------------------------------------------------------------------------------------


@given(keys, places, st.binary(max_size=2_000))
def test_what_is_sealed_opens(key: bytes, place: bytes, raw: bytes) -> None:
    """Any content at any place comes back, also by another object with the same key; the form is as documented."""
    blob = Cipher(key).seal(place, raw)
    assert Cipher(key).open(place, blob) == raw
    assert (blob[0], len(blob)) == (SEALED, 1 + NONCE_BYTES + len(raw) + TAG_BYTES)
    assert type(blob) is bytes


@given(keys, st.lists(places, min_size=2, max_size=2, unique=True), st.binary(max_size=50))
def test_another_place(key: bytes, two: list[bytes], raw: bytes) -> None:
    """What was sealed at one place opens at no other."""
    with pytest.raises(BrokenSealError, match="of another place"):
        Cipher(key).open(two[1], Cipher(key).seal(two[0], raw))


@given(st.lists(keys, min_size=2, max_size=2, unique=True), places, st.binary(max_size=50))
def test_another_key(two: list[bytes], place: bytes, raw: bytes) -> None:
    """What was sealed under one key opens under no other."""
    with pytest.raises(BrokenSealError):
        Cipher(two[1]).open(place, Cipher(two[0]).seal(place, raw))


def test_every_bit_of_a_sealed_row_counts() -> None:
    """Each of the bits flipped, each truncation, each marker, anything added: refused."""
    cipher, place, raw = Cipher(DATA), b"a place", b"what was written, some 40 bytes of it...."
    blob = cipher.seal(place, raw)
    damaged = flips(blob)
    assert len(damaged) == 8 * len(blob) == 560
    damaged += [blob[:length] for length in range(len(blob))]
    damaged += [blob[length:] for length in range(1, len(blob) + 1)]
    damaged += [bytes([marker]) + blob[1:] for marker in range(256) if marker != SEALED]
    damaged += [blob + b"\x00", b"\x00" + blob, blob + blob, b"", bytes(1), bytes(len(blob)), raw]
    for one in damaged:
        with pytest.raises(BrokenSealError) as caught:
            cipher.open(place, one)
        assert isinstance(caught.value, ValueError)
        assert cipher.open(place, blob) == raw


@pytest.mark.parametrize("stored", [None, 16, 1.5, "\x10" + "x" * 60, bytearray(60), memoryview(bytes(60)), [16] * 60])
def test_what_is_not_bytes_is_no_sealed_row(stored: object) -> None:
    """A database may give back any type for a damaged row."""
    with pytest.raises(BrokenSealError):
        Cipher(DATA).open(b"", stored)


@given(st.binary(max_size=80))
def test_nobody_makes_a_seal_without_the_key(blob: bytes) -> None:
    """Any bytes that were not sealed are refused, with and without the marker."""
    for one in (blob, bytes([SEALED]) + blob):
        with pytest.raises(BrokenSealError):
            Cipher(DATA).open(b"place", one)


def test_equal_rows_look_different() -> None:
    """The same content at the same place never gives the same bytes: no nonce is used twice."""
    cipher = Cipher(DATA)
    blobs = [cipher.seal(b"place", b"same") for _ in range(20_000)]
    assert len({blob[1 : 1 + NONCE_BYTES] for blob in blobs}) == len(blobs)
    assert not any(b"same" in blob[1 + NONCE_BYTES :] for blob in blobs)


@pytest.mark.parametrize("size", [0, 16, 24, 31, 33, 64])
def test_a_thread_key_has_32_bytes(size: int) -> None:
    """AES would take 16 and 24, too; a shorter key is a mistake."""
    for refused in (
        lambda: Cipher(bytes(size)),
        lambda: Keyring({"a": KEY}).wrap(bytes(size), b""),
        lambda: Keyring({"a": bytes(size)}),
    ):
        with pytest.raises(KeyringError, match="32 bytes"):
            refused()


@pytest.mark.parametrize("wrong", [KEY_BYTES, None, "x" * KEY_BYTES, [0] * KEY_BYTES, bytearray(KEY_BYTES)])
def test_a_key_is_bytes(wrong: object) -> None:
    """`bytes(32)` makes a key of zeros of a number; a text is no key either."""
    for refused in (lambda: Cipher(wrong), lambda: Keyring({"a": wrong}), lambda: Keyring({"a": KEY}).wrap(wrong, b"")):
        with pytest.raises(KeyringError, match="32 bytes"):
            refused()


def test_threads_share_a_cipher() -> None:
    """Eight threads seal and open with one object; none gets what is another's."""
    cipher = Cipher(DATA)

    def work(number: int) -> int:
        good = 0
        for turn in range(1_500):
            place, raw = b"%d/%d" % (number, turn), bytes([number]) * (turn % 600)
            good += cipher.open(place, cipher.seal(place, raw)) == raw
        return good

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [1_500] * 8


def test_forks_share_a_cipher() -> None:
    """Children of a fork open what the parent sealed and the reverse, and no two draw the same nonces."""
    code = """
import os
from checkpointers.cipher import Cipher
cipher, blobs = Cipher(bytes(32)), []
before = cipher.seal(b"place", b"parent")
for child in range(4):
    ours, theirs = os.pipe()
    if os.fork() == 0:
        assert cipher.open(b"place", before) == b"parent"
        os.write(theirs, b"".join(cipher.seal(b"place", b"%d" % child) for _ in range(100)))
        os._exit(0)
    os.close(theirs)
    with open(ours, "rb") as pipe:
        text = pipe.read()
    some = [text[at : at + 30] for at in range(0, len(text), 30)]
    assert len(some) == 100 and all(cipher.open(b"place", blob) == b"%d" % child for blob in some)
    blobs += some
    assert os.wait()[1] == 0
assert len({blob[1:13] for blob in blobs + [cipher.seal(b"place", b"0") for _ in range(100)]}) == 500
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


# -- wrapping -----------------------------------------------------------------------------------------------------------


@given(rings, keys, places)
def test_what_is_wrapped_unwraps(ring: dict[str, bytes], data_key: bytes, place: bytes) -> None:
    """Under whichever key is the newest, and the wrapped key names it."""
    for newest in ring:
        keyring = Keyring(ring, newest=newest)
        blob = keyring.wrap(data_key, place)
        assert keyring.unwrap(blob, place) == data_key
        assert keyring.key_id_of(blob) == newest
        assert Keyring(ring).unwrap(blob, place) == data_key


def test_every_bit_of_a_wrapped_key_counts() -> None:
    """Each bit flipped, each truncation: refused; a changed id is an unknown key at most."""
    keyring, place = Keyring({"a": KEY, "b": OTHER}), b"a place"
    blob = keyring.wrap(DATA, place)
    cut = [blob[:length] for length in range(len(blob))] + [blob + b"\x00", blob[1:], b"\x00" + blob]
    for one in (*flips(blob), *cut):
        unknown = one[:2] == blob[:2] and len(one) == len(blob) and one[2:3] != blob[2:3]
        with pytest.raises((BrokenSealError, KeyringError) if unknown else BrokenSealError):
            keyring.unwrap(one, place)
    for one in (*cut, *flips(blob)[-16:], blob[:2] + b"\n" + blob[3:], None, blob.decode("latin-1")):
        with pytest.raises(BrokenSealError, match="not a wrapped key"):
            keyring.key_id_of(one)


def test_the_id_of_the_key_is_sealed_too() -> None:
    """One key under two ids: what one wrapped is not taken for the other's."""
    keyring = Keyring({"a": KEY, "b": KEY})
    blob = keyring.wrap(DATA, b"")
    assert blob[2:3] == b"b"
    with pytest.raises(BrokenSealError, match="key 'a'"):
        keyring.unwrap(blob[:2] + b"a" + blob[3:], b"")


def test_a_wrapped_key_of_another_place_or_master() -> None:
    """A thread's key opens for its thread, under its master key."""
    blob = Keyring({"a": KEY}).wrap(DATA, b"one")
    with pytest.raises(BrokenSealError):
        Keyring({"a": KEY}).unwrap(blob, b"two")
    with pytest.raises(BrokenSealError):
        Keyring({"a": OTHER}).unwrap(blob, b"one")


def test_a_wrapped_key_is_no_row_and_the_reverse() -> None:
    """The two forms are never taken for each other, even under one key."""
    wrapped, sealed = Keyring({"a": KEY}).wrap(DATA, b""), Cipher(KEY).seal(b"", DATA)
    with pytest.raises(BrokenSealError):
        Cipher(KEY).open(b"", wrapped)
    with pytest.raises(BrokenSealError):
        Cipher(KEY).open(b"", bytes([SEALED]) + wrapped[3:])
    with pytest.raises(BrokenSealError):
        Keyring({"a": KEY}).unwrap(sealed, b"")
    with pytest.raises(BrokenSealError):
        Keyring({"a": KEY}).unwrap(wrapped[:3] + sealed[1:], b"")
    with pytest.raises(BrokenSealError):
        Keyring({"a": KEY}).unwrap(wrapped[:3] + Cipher(KEY).seal(wrapped[:3], DATA)[1:], b"")


def test_rotation() -> None:
    """What the old key wrapped is unwrapped by the new keyring, which wraps under its new key; the old ring is as it was."""
    old = Keyring({"2025": KEY})
    blob = old.wrap(DATA, b"place")
    new = old.with_new("2026")
    assert (new.ids, new.newest, old.ids, old.newest) == (("2025", "2026"), "2026", ("2025",), "2025")
    assert new.unwrap(blob, b"place") == DATA
    again = new.wrap(new.unwrap(blob, b"place"), b"place")
    assert new.key_id_of(again) == "2026"
    with pytest.raises(KeyringError, match=r"no key '2026' in the keyring, which holds '2025'; .*perhaps removed"):
        old.unwrap(again, b"place")
    with pytest.raises(KeyringError, match="there is a key '2026' already"):
        new.with_new("2026")


# -- a keyring ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", ["", "a" * 65, "a b", "a:b", "é", "a\n", "#a", 1, None, b"a"])
def test_ids_are_plain(bad: object) -> None:
    """An id stands in a text, in a row and in errors."""
    with pytest.raises(KeyringError, match="id of key 2 of 2"):
        Keyring({"good": KEY, bad: OTHER})


def test_a_keyring_has_a_newest_key() -> None:
    """The last, or the one that is named, which has to be there; and there is one."""
    assert Keyring({"b": KEY, "a": OTHER}).newest == "a"
    assert Keyring({"b": KEY, "a": OTHER}, newest="b").newest == "b"
    with pytest.raises(KeyringError, match="holds 'a'"):
        Keyring({"a": KEY}, newest="b")
    with pytest.raises(KeyringError, match="at least one"):
        Keyring({})


def test_a_keyring_does_not_change() -> None:
    """Not by its attributes, not by the mapping it was made of."""
    made_of = {"a": KEY}
    keyring = Keyring(made_of)
    made_of["b"] = OTHER
    assert keyring.ids == ("a",)
    for change in (
        lambda: setattr(keyring, "newest", "b"),
        lambda: setattr(keyring, "other", "b"),
        lambda: delattr(keyring, "newest"),
    ):
        with pytest.raises(AttributeError, match="does not change"):
            change()
    with pytest.raises(TypeError):
        keyring._keys["b"] = OTHER


@given(rings, st.data())
def test_a_file_gives_back_what_was_saved(
    tmp_path_factory: pytest.TempPathFactory, ring: dict[str, bytes], data: st.DataObject
) -> None:
    """Every key, and the newest, whichever it is; the same text does in an environment variable."""
    path = tmp_path_factory.mktemp("keys") / "keyring"
    keyring = Keyring(ring, newest=data.draw(st.sampled_from(sorted(ring))))
    keyring.save(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TEST_KEYS", path.read_text())
        for read in (Keyring.from_file(path), Keyring.from_file(str(path)), Keyring.from_env("TEST_KEYS")):
            assert dict(read._keys) == ring
            assert read.newest == keyring.newest


def test_the_text_form(tmp_path: Path) -> None:
    """Comments, empty lines, blanks, line ends and marks of other systems."""
    text = f"# ours\n\n  old :  {base64.b64encode(KEY).decode()}   # until spring\r\n\t# é\n{line('new', OTHER)}"
    for form in (text, "\ufeff" + text, text.rstrip("\n")):
        keyring = Keyring.from_file(key_file(tmp_path / "keys", form))
        assert (dict(keyring._keys), keyring.newest) == ({"old": KEY, "new": OTHER}, "new")


BAD_LINES = {
    "no colon": base64.b64encode(KEY).decode(),
    "no id": f": {base64.b64encode(KEY).decode()}",
    "no key": "a:",
    "key first": f"{base64.b64encode(KEY).decode()}: a",
    "a long id": line("a" * 65, KEY),
    "an odd id": line("a b", KEY),
    "not base64": "a: !" + base64.b64encode(KEY).decode(),
    "not the end": "a: " + base64.b64encode(KEY).decode()[:-1],
    "two keys": "a: " + base64.b64encode(KEY).decode() * 2,
    "blanks inside": "a: " + base64.b64encode(KEY).decode().replace("L", " L"),
    "hex": f"a: {KEY.hex()}",
    "letters that are none": "a: é" + base64.b64encode(KEY).decode()[1:],
    "16 bytes": line("a", KEY[:16]),
    "31 bytes": line("a", KEY[:31]),
    "33 bytes": line("a", KEY + b"x"),
    "twice": line("first", OTHER),
}


@pytest.mark.parametrize("bad", BAD_LINES.values(), ids=BAD_LINES.keys())
def test_bad_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: str) -> None:
    """The error names the file or the variable, and the line, and shows nothing of it."""
    text = f"# keys\n{line('first', KEY)}{bad}"
    path = key_file(tmp_path / "keys", text)
    monkeypatch.setenv("TEST_KEYS", text)
    for read, where in (
        (lambda: Keyring.from_file(path), str(path)),
        (lambda: Keyring.from_env("TEST_KEYS"), "TEST_KEYS"),
    ):
        with pytest.raises(KeyringError) as caught:
            read()
        assert where in str(caught.value)
        assert "line 3" in str(caught.value)
        assert not any(form in str(caught.value) for form in forms(KEY, OTHER, KEY[:16], KEY[:31]))


@pytest.mark.parametrize("content", [b"", b"\n\n", b"# only words\n", b"\xff\xfe\x00", bytes(range(255, 55, -1))])
def test_texts_without_keys(tmp_path: Path, content: bytes) -> None:
    """Any bytes give a keyring or a `KeyringError`."""
    with pytest.raises(KeyringError, match="keys: (there is no key in it|line 1)|line"):
        Keyring.from_file(key_file(tmp_path / "keys", content))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """No bytes of a file raise anything else."""
    path = key_file(tmp_path_factory.mktemp("keys") / "keys", content)
    with pytest.raises(KeyringError, match="keys: "):
        Keyring.from_file(path)


def test_no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that is not set, or empty."""
    monkeypatch.delenv("TEST_KEYS", raising=False)
    with pytest.raises(KeyringError, match="TEST_KEYS is not set; set it"):
        Keyring.from_env("TEST_KEYS")
    monkeypatch.setenv("TEST_KEYS", " ")
    with pytest.raises(KeyringError, match="TEST_KEYS: there is no key in it"):
        Keyring.from_env("TEST_KEYS")


# -- files --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o700])
def test_modes_of_the_owner(tmp_path: Path, mode: int) -> None:
    """What the owner may do is the owner's affair."""
    assert Keyring.from_file(key_file(tmp_path / "keys", line("a", KEY), mode)).ids == ("a",)


@pytest.mark.parametrize("bit", [0o001, 0o002, 0o004, 0o010, 0o020, 0o040])
def test_modes_of_others(tmp_path: Path, bit: int) -> None:
    """Each bit for others is refused, with the mode and what to do."""
    path = key_file(tmp_path / "keys", line("a", KEY), 0o600 | bit)
    with pytest.raises(KeyringError, match=f"keys: others may .*{0o600 | bit:04o}.*chmod 600"):
        Keyring.from_file(path)


def test_what_is_no_file(tmp_path: Path) -> None:
    """A folder, a pipe that nobody writes to, a device, nothing at all."""
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(KeyringError, match="not a file"):
            Keyring.from_file(path)
    with pytest.raises(KeyringError, match=r"none: No such file.*Keyring.generate\('first'\).save"):
        Keyring.from_file(tmp_path / "none")


def test_symbolic_links(tmp_path: Path) -> None:
    """One's own link is followed, to a file with the same demands; a loop, or one to nothing, is not."""
    path, link = key_file(tmp_path / "keys", line("a", KEY)), tmp_path / "link"
    link.symlink_to(path)
    assert Keyring.from_file(link).ids == ("a",)
    path.chmod(0o640)
    with pytest.raises(KeyringError, match="link: others may"):
        Keyring.from_file(link)
    path.unlink()
    with pytest.raises(KeyringError, match="link: No such file"):
        Keyring.from_file(link)
    path.symlink_to(link)
    with pytest.raises(KeyringError, match="link: "):
        Keyring.from_file(link)


def seen(kind: int, mode: int, owner: int) -> os.stat_result:
    """Give what the system would say of a file."""
    return os.stat_result((kind | mode, 1, 1, 1, owner, owner, 100, 0, 0, 0))


@pytest.mark.parametrize(
    ("link", "owner", "me", "reason"),
    [
        (None, 5, 5, None),
        (None, 0, 5, None),
        (None, 6, 5, "belongs to somebody else"),
        (None, 5, 0, "belongs to somebody else"),
        (5, 5, 5, None),
        (0, 0, 5, None),
        (6, 5, 5, "symbolic link"),
        (0, 5, 5, "symbolic link"),
        (6, 0, 5, "symbolic link"),
        (6, 6, 5, "belongs to somebody else"),
    ],
)
def test_owners(link: int | None, owner: int, me: int, reason: str | None) -> None:
    """The file is one's own or root's, and a link to it is its owner's."""
    file = seen(stat.S_IFREG, 0o600, owner)
    refusal = _refusal(file if link is None else seen(stat.S_IFLNK, 0o777, link), file, me)
    assert refusal is None if reason is None else reason in (refusal or "")


def test_saving(tmp_path: Path) -> None:
    """Mode 0600 under any umask; nothing is written over unless told to; nothing else is left in the folder."""
    path, keyring = tmp_path / "keys", Keyring({"a": KEY})
    for umask in (0o000, 0o022, 0o777):
        path.unlink(missing_ok=True)
        before = os.umask(umask)
        try:
            keyring.save(path)
        finally:
            os.umask(before)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(KeyringError, match=r"keys: there is a file already.*replace=True"):
        Keyring({"b": OTHER}).save(path)
    assert Keyring.from_file(path).ids == ("a",)
    path.chmod(0o644)
    keyring.with_new("b").save(path, replace=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Keyring.from_file(path).ids == ("a", "b")
    assert list(tmp_path.iterdir()) == [path]


def test_a_draft_is_never_open_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its mode is 0600 from its first moment, and file and folder are on the disk before `save` returns."""
    modes: list[int] = []
    settled: list[tuple[bool, bool]] = []

    def look(descriptor: int, mode: int) -> None:
        modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))

    def settle(descriptor: int) -> None:
        settled.append((stat.S_ISDIR(os.fstat(descriptor).st_mode), (tmp_path / "keys").exists()))

    before = os.umask(0)
    try:
        monkeypatch.setattr(os, "fchmod", look)
        monkeypatch.setattr(os, "fsync", settle)
        Keyring({"a": KEY}).save(tmp_path / "keys")
    finally:
        os.umask(before)
    assert modes == [0o600]
    assert settled == [(False, False), (True, True)]


def test_a_link_that_comes_in_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that was a file when it was looked at, and is a link when it is opened, is refused."""
    path, link = key_file(tmp_path / "keys", line("a", KEY)), tmp_path / "link"
    link.symlink_to(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "lstat", lambda _: path.stat())
        with pytest.raises(KeyringError, match="link: "):
            Keyring.from_file(link)


def test_saving_where_a_link_stands(tmp_path: Path) -> None:
    """A link is not followed: refused, or itself replaced."""
    target, link = key_file(tmp_path / "target", "precious"), tmp_path / "link"
    link.symlink_to(target)
    with pytest.raises(KeyringError, match="already"):
        Keyring({"a": KEY}).save(link)
    Keyring({"a": KEY}).save(link, replace=True)
    assert not link.is_symlink()
    assert target.read_text() == "precious"


def test_saving_where_one_cannot(tmp_path: Path) -> None:
    """No folder, or a folder at the path: named, and nothing is left behind."""
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "none" / "keys", tmp_path / "folder"):
        with pytest.raises(KeyringError, match=path.name):
            Keyring({"a": KEY}).save(path, replace=True)
    assert list(tmp_path.iterdir()) == [tmp_path / "folder"]


def test_a_fresh_keyring(tmp_path: Path) -> None:
    """Fresh keys differ, and what one wrapped the saved one unwraps."""
    one, two = Keyring.generate("a"), Keyring.generate("a")
    assert one._keys["a"] != two._keys["a"]
    one.save(tmp_path / "keys")
    assert Keyring.from_file(tmp_path / "keys").unwrap(one.wrap(DATA, b""), b"") == DATA


# -- what shows ---------------------------------------------------------------------------------------------------------


def broken(keyring: Keyring, folder: Path) -> list[Callable[[], object]]:
    """Give a call for each way to fail with keys at hand."""
    cipher, sealed, wrapped = Cipher(DATA), Cipher(DATA).seal(b"", b"row"), keyring.wrap(DATA, b"")
    loose = key_file(folder / "loose", line("a", KEY), 0o644)
    bad = [key_file(folder / f"bad{n}", line("first", KEY) + text) for n, text in enumerate(BAD_LINES.values())]
    return [
        lambda: Keyring({"a": KEY, "b": KEY[:16]}),
        lambda: Keyring({"a": KEY, "b c": OTHER}),
        lambda: Keyring({KEY: "a"}),
        lambda: Keyring({"a": base64.b64encode(KEY).decode()}),
        lambda: Keyring({"a": KEY}, newest="b"),
        lambda: Keyring({"a": KEY}, newest=base64.b64encode(KEY).decode()),
        lambda: keyring.with_new("a"),
        lambda: keyring.with_new("a b"),
        lambda: keyring.save(folder / "none" / "keys"),
        lambda: keyring.save(loose),
        lambda: keyring.wrap(DATA + b"\n", b""),
        lambda: keyring.wrap(DATA, "place"),
        lambda: keyring.unwrap(wrapped, b"other"),
        lambda: keyring.unwrap(wrapped, "place"),
        lambda: keyring.unwrap(wrapped[:-1], b""),
        lambda: Keyring({"z": OTHER}).unwrap(wrapped, b""),
        lambda: Cipher(DATA + b"\n"),
        lambda: cipher.open(b"other", sealed),
        lambda: cipher.open("place", sealed),
        lambda: cipher.seal(b"", "text"),
        lambda: setattr(keyring, "newest", KEY),
        lambda: Keyring.from_file(loose),
        *(lambda path=path: Keyring.from_file(path) for path in bad),
        *(
            lambda value=value, how=how: how(value)
            for value in (keyring, cipher, keyring._keys["a"])
            for how in COPIERS
        ),
    ]


COPIERS: list[Callable[[object], object]] = [
    copy.copy,
    copy.deepcopy,
    *(
        lambda value, protocol=protocol: pickle.dumps(value, protocol)
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    ),
]


def test_no_key_shows_in_an_error(tmp_path: Path) -> None:
    """Neither in its words nor in its traceback, all local variables of our frames printed, causes and contexts too."""
    secrets = forms(KEY, OTHER, DATA, KEY[:16])
    calls = broken(Keyring({"old": OTHER, "a": KEY}), tmp_path)
    for call in calls:
        with pytest.raises((CheckpointerError, BrokenSealError, TypeError, AttributeError)) as caught:
            call()
        error: BaseException | None = caught.value
        while error is not None:
            told = traceback.TracebackException.from_exception(error, capture_locals=True)
            ours = [frame for frame in told.stack if frame.filename != __file__]
            shown = [str(error), repr(error), repr(vars(error)), *(str(frame.locals) for frame in ours)]
            assert [form for form in secrets for text in shown if form in text] == []
            error = error.__cause__ or error.__context__


def test_no_key_shows_otherwise() -> None:
    """Nor in a repr, a text, the attributes, the state of the objects; an unwrapped key hides, too."""
    keyring = Keyring({"old": OTHER, "a": KEY})
    unwrapped = keyring.unwrap(keyring.wrap(DATA, b""), b"")
    assert repr(keyring) == str(keyring) == f"{keyring}" == "Keyring('old', 'a'; newest 'a')"
    shown = [repr(unwrapped), str(unwrapped), f"{unwrapped}", f"{unwrapped!r:>50}", repr([unwrapped])]
    for value in (keyring, Cipher(DATA), unwrapped):
        shown += [repr(value), str(value), repr(value.__getstate__()), repr(getattr(value, "__dict__", None))]
        shown += [repr(getattr(value, name)) for name in dir(value) if name not in ("__doc__",)]
    assert [form for form in forms(KEY, OTHER, DATA) for text in shown if form in text] == []
    assert (unwrapped, hash(unwrapped), type(bytes(unwrapped))) == (DATA, hash(DATA), bytes)


def test_keys_are_not_pickled() -> None:
    """Neither pickled nor copied, and the error says so."""
    keyring = Keyring({"a": KEY})
    for value, name in ((keyring, "Keyring"), (Cipher(DATA), "Cipher"), (keyring._keys["a"], "Key")):
        for how in COPIERS:
            with pytest.raises(TypeError, match=f"a {name} is neither pickled nor copied"):
                how(value)


# -- the package --------------------------------------------------------------------------------------------------------


def test_without_the_package() -> None:
    """The module imports without `cryptography`, and who needs it is told what to install; with it, only who needs it pays."""
    code = """
import sys
sys.path.insert(0, ".")
sys.modules["cryptography"] = None
from checkpointers.errors import MissingDriverError
from checkpointers.cipher import Cipher
from checkpointers.keyring import Keyring
for needing in (lambda: Cipher(bytes(32)), lambda: Keyring({"a": bytes(32)}), lambda: Keyring.generate("a")):
    try:
        needing()
    except MissingDriverError as error:
        assert "pip install cryptography" in str(error), error
    else:
        raise AssertionError
del sys.modules["cryptography"]
assert not [name for name in sys.modules if name.startswith("cryptography")]
Cipher(bytes(32))
assert [name for name in sys.modules if name.startswith("cryptography")]
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)
    assert issubclass(MissingDriverError, ImportError)
