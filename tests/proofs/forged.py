"""`python -m tests.proofs.forged [N] [seed]`: rows of any content under a digest that holds, as anybody can make them.

Who can write rows of a database without keys can seal whatever he likes, and a newer program may write what this one
does not know. N times a row of a database of many kinds of threads is given another content, in its form or out of it,
and sealed; then everything is done to its thread that there is. A value may come out, or an error of ours, and what is
seen of the other threads is what was seen before.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ormsgpack

from checkpointers import CheckpointerError, Keep, Saver, SqliteSaver
from checkpointers.codec import packed, unpacked
from checkpointers.compression import squeeze, unsqueeze
from checkpointers.sealing import (
    Digests,
    body_place,
    checkpoint_place,
    effect_place,
    element_place,
    note_place,
    thread_place,
    write_place,
)
from tests.checkpointers.graphs import config
from tests.proofs.corrupt import Views, build, looked_at, seen

ODD: tuple[Any, ...] = (
    None, 0, -1, 1, 2**31, 2**62, 1.5, True, "", "x", "\0", b"", b"x", [], {}, [1], [0, 1, 1], [8, 1, 1], {"a": 1},
    {1: 2}, [[1, 2, 3]], [None] * 3,
)  # fmt: skip
NUMBERS = ("stamp", "steps", "head", "flags", "kinds", "checkpoints", "bytes", "created_at", "updated_at")
KEYS = {
    "cp_threads": ("thread",), "cp_leases": ("thread",), "cp_checkpoints": ("thread", "ns", "step"),
    "cp_writes": ("thread", "ns", "checkpoint", "task"), "cp_elements": ("thread", "channel", "n"),
    "cp_effects": ("thread", "id"), "cp_bodies": ("thread", "hash", "n"),
}  # fmt: skip
VAULT = Digests()
Row = dict[str, Any]


@dataclass
class Count:
    """What came of it."""

    tried: int = 0
    looks: Counter[str] = field(default_factory=Counter)
    untyped: Counter[str] = field(default_factory=Counter)
    others: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"tried {self.tried}, untyped errors {self.untyped.total()}, other threads affected {len(self.others)}"
            f" (values {self.looks['value']}, typed errors {self.looks['typed']})"
        )


def place_of(table: str, row: Row) -> bytes:
    """Say where a row stands, as its seal does."""
    thread = row["thread"]
    match table:
        case "cp_threads":
            return thread_place(thread, tuple(row[name] for name in NUMBERS), row["head_id"])
        case "cp_checkpoints":
            key = (row["ns"], row["step"], row["id"], row["parent"])
            return checkpoint_place(thread, key, row["at"], flags=row["flags"], metadata=row["metadata"])
        case "cp_writes":
            return write_place(thread, (row["ns"], row["checkpoint"], row["task"]), row["kinds"])
        case "cp_elements":
            return element_place(thread, row["channel"], row["n"])
        case "cp_effects":
            return effect_place(thread, row["id"], row["number"], row["revision"])
        case "cp_bodies":
            return body_place(thread, row["hash"], row["n"])
        case _:
            return note_place(thread)


def another(value: Any, dice: random.Random) -> Any:
    """Change something in plain data, at any depth, packed data in it too."""
    if isinstance(value, list) and value and dice.random() < 0.8:
        changed, at = list(value), dice.randrange(len(value))
        match dice.randrange(4):
            case 0:
                del changed[at]
            case 1:
                changed.insert(at, dice.choice(ODD))
            case _:
                changed[at] = another(value[at], dice)
        return changed
    if isinstance(value, dict) and value and dice.random() < 0.8:
        named, key = dict(value), dice.choice(list(value))
        match dice.randrange(4):
            case 0:
                del named[key]
            case 1:
                named[dice.choice((0, 1, 99, "x", -5))] = dice.choice(ODD)
            case _:
                named[key] = another(value[key], dice)
        return named
    if isinstance(value, bytes) and dice.random() < 0.5:
        with suppress(Exception):
            return packed(another(unpacked(value), dice))
    if type(value) is int and dice.random() < 0.5:
        return value + dice.choice((-1, 1, 5, 64, 1_000, -1_000))
    return dice.choice(ODD)


def noise(raw: bytes, dice: random.Random) -> bytes:
    """Change some bytes."""
    data = bytearray(raw or b"\0")
    for _ in range(dice.choice((1, 1, 2, 8))):
        at = dice.randrange(len(data))
        match dice.randrange(4):
            case 0:
                data[at] ^= 1 << dice.randrange(8)
            case 1:
                data[at] = dice.randrange(256)
            case 2:
                del data[at + 1 :]
            case _:
                data[at:at] = dice.randbytes(4)
    return bytes(data)


def content(table: str, raw: bytes, dice: random.Random) -> bytes:
    """Give another content of a row: mostly in the form that it had."""
    with suppress(Exception):
        if dice.random() < 0.75:
            match table:
                case "cp_threads":
                    return ormsgpack.packb(another(ormsgpack.unpackb(raw), dice), option=ormsgpack.OPT_NON_STR_KEYS)
                case "cp_elements":
                    return squeeze(noise(unsqueeze(raw), dice))
                case "cp_bodies":
                    return raw[:32] + packed(another(unpacked(raw[32:]), dice))
                case _:
                    return packed(another(unpacked(raw), dice))
    return noise(raw, dice)


def forge(base: sqlite3.Connection, dice: random.Random) -> tuple[str, int]:
    """Give one row another content under a seal that holds; name the table and the thread."""
    table = dice.choice([*KEYS, "cp_checkpoints", "cp_writes", "cp_elements"])
    column = "note" if table == "cp_leases" else "body"
    row = dict(dice.choice(base.execute(f"SELECT * FROM {table} WHERE {column} IS NOT NULL").fetchall()))
    raw = VAULT.open(place_of(table, row), row[column])
    if table == "cp_checkpoints" and dice.random() < 0.3:
        row["metadata"] = packed(another(unpacked(row["metadata"]), dice))
    else:
        raw = content(table, raw, dice)
    row[column] = VAULT.seal(place_of(table, row), raw)
    where = " AND ".join(f"{name} = ?" for name in KEYS[table])
    told = ", ".join(f"{name} = ?" for name in row)
    base.execute(f"UPDATE {table} SET {told} WHERE {where}", [*row.values(), *(row[name] for name in KEYS[table])])
    base.commit()
    return table, row["thread"]


def deeds(thread: str) -> dict[str, Callable[[Saver], Any]]:
    """Give what else is done with a thread; none of it says the same twice."""
    return {
        "inspect": lambda s: s.inspect(config(thread)),
        "inspect all": lambda s: [s.inspect(place) for place in places(thread, range(1, 9))],
        "fsck": lambda s: s.fsck(thread),
        "recover": lambda s: s.recover(thread, into=f"{thread} recovered"),
        "copy": lambda s: s.copy_thread(thread, f"{thread} copied"),
        "claim": lambda s: s.ledger.claim(thread, "another", {}),
        "keep": lambda s: s.ledger.keep(thread, b"another"),
        "tasks": lambda s: s.tasks(thread),
        "usage": lambda s: s.usage(thread),
        "plan": lambda s: s.retain(Keep(last=2), threads=[thread], dry_run=True),
        "tag": lambda s: s.tag(thread, "another"),
        "put": lambda s: s.put_writes(s.get_tuple(config(thread)).config, [("log", ["more"])], "another"),
        "take over": lambda s: s.lease(thread, if_busy="rollback").__enter__().__exit__(None, None, None),
        "retain": lambda s: s.retain(Keep(last=1), threads=[thread]),
        "delete": lambda s: s.delete_thread(thread),
    }


def places(thread: str, numbers: range) -> list[Any]:
    """Point to checkpoints that may be there."""
    return [config(thread, checkpoint_ns="", checkpoint_id=f"{number}") for number in numbers]


def look(count: Count, what: str, call: Callable[[], Any]) -> None:
    """Do something, and count how it ends."""
    try:
        call()
    except CheckpointerError:
        count.looks["typed"] += 1
    except Exception as error:
        inside = [frame for frame in traceback.extract_tb(error.__traceback__) if "/checkpointers/" in frame.filename]
        at = [frame for frame in inside if "/tests/" not in frame.filename][-1:]
        count.untyped[
            f"{what}: {type(error).__name__}: {error!s:.80} {[(Path(f.filename).name, f.lineno) for f in at]}"
        ] += 1
    else:
        count.looks["value"] += 1


def prove(many: int, seed: int) -> Count:
    """Forge so many rows, each in a copy of one database."""
    dice, count = random.Random(seed), Count()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sound, hurt = Path(folder, "sound.db"), Path(folder, "hurt.db")
        with SqliteSaver.open(sound) as saver:
            build(saver)
            for thread in ("waiting", "nested"):  # they have a note each, of a lease that nobody gives back
                saver.lease(thread, ttl=3_600).__enter__()._desk.heart._due.clear()
            looks, oracle, names = looked_at(saver)
        with closing(sqlite3.connect(sound)) as base, base:
            base.execute("PRAGMA journal_mode=DELETE")
        for _ in range(many):
            for left in ("-wal", "-shm"):
                Path(f"{hurt}{left}").unlink(missing_ok=True)
            shutil.copy(sound, hurt)
            base = sqlite3.connect(hurt)
            base.row_factory = sqlite3.Row
            table, key = forge(base, dice)
            base.close()
            with SqliteSaver.open(hurt) as saver:
                _look_at(count, saver, (table, names[key]), looks, oracle)
            count.tried += 1
    return count


def _look_at(count: Count, saver: Saver, forged: tuple[str, str], looks: Views, oracle: dict[Any, Any]) -> None:
    table, thread = forged
    for name, what in looks:
        if name == thread:
            look(count, f"{table} {what}", lambda name=name, what=what: looks[name, what](saver))
        elif what in ("info", "head"):
            with suppress(Exception):  # an error is not what was seen before
                if seen(looks[name, what], saver) == oracle[name, what]:
                    continue
            count.others.append(f"{table} of {thread}: {what} of {name}")
    for what, deed in deeds(thread).items():
        look(count, f"{table} {what}", lambda deed=deed: deed(saver))


def main() -> int:
    """Print the counts; fail if anything came out that is neither a value nor an error of ours."""
    start = time.perf_counter()
    many = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 32)
    count = prove(many, seed)
    print(f"forged sqlite: {count}, seconds {time.perf_counter() - start:.0f}, seed {seed}")
    for what, times in count.untyped.most_common(20):
        print(f"  {times} x {what}")
    for what in count.others[:20]:
        print(f"  {what}")
    return int(bool(count.untyped or count.others or not count.tried))


if __name__ == "__main__":
    sys.exit(main())
