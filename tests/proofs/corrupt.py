"""Damage a database in every way a disk or a hand can, and look at it: `python -m tests.proofs.corrupt [N] [URL]`.

A database of many kinds of threads is looked at from every side. Then, N times, one thing is damaged: a bit of the file,
or a row of a table (a bit of a column, a column cut short, contents swapped with another row, a row dropped, a row that
moved to another place). Whatever can still be seen must be what was seen before, or a typed error. Listings are looked
at as a whole: one that is left after a few checkpoints need not have come to what is missing. A thread whose own row is
gone cannot be listed by it: that is counted apart, and only where reading the thread by its name is an error.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from checkpointers import CheckpointerError, Keep, PostgresSaver, Saver, SqliteSaver
from checkpointers.testing import LocalPostgres
from tests.checkpointers.graphs import DeltaState, State, config, loop, nested, review

TABLES = (
    "cp_threads", "cp_checkpoints", "cp_heads", "cp_writes", "cp_elements", "cp_effects", "cp_bodies", "cp_names",
)  # fmt: skip
GONE, DAMAGED = "not listed", "listed as damaged"
SERDE = JsonPlusSerializer()


@dataclass
class Count:
    """What came of it."""

    tried: int = 0
    silent: list[str] = field(default_factory=list)
    untyped: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    unlisted: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        told = ", ".join(f"{n} {what}" for what, n in self.outcomes.most_common())
        return (
            f"tried {self.tried}, silently different {len(self.silent)}, other threads affected {len(self.others)},"
            f" untyped errors {len(self.untyped)}, not listed but an error by name {self.unlisted} ({told})"
        )

    @property
    def good(self) -> bool:
        """Tell whether nothing was wrong."""
        return self.tried > 0 and not (self.silent or self.untyped or self.others)


def build(saver: Saver) -> None:
    """Make threads of every kind."""
    for thread, schema, until in (("plain", State, 12), ("delta", DeltaState, 10), ("pruned", DeltaState, 9)):
        loop(saver, schema).invoke({"until": until, "n": 0}, config(thread))
    loop(saver).invoke({"until": 80, "n": 0, "static": "s" * 200}, config("long"))
    saver.retain(Keep(last=5), threads=["pruned", "long"])
    review(saver).invoke({}, config("waiting"))
    nested(saver, persistent=True).invoke({}, config("nested"))
    nested(saver).invoke({}, config("inner"))
    app = loop(saver)
    app.invoke({"until": 4, "n": 0}, config("forked"))
    old = list(app.get_state_history(config("forked")))[3].config
    app.update_state(old, {"n": 1})
    app.invoke(None, config("forked"))
    saver.tag("plain", "kept", "red")
    saver.pin("plain", 3)
    for thread in ("plain", "forked"):
        for number in range(5):
            entry, _ = saver.ledger.claim(thread, f"send {number}", {"to": "ada", "number": number})
        saver.ledger.change(entry, status="done", record={"said": "ok"}, bodies=[b"a body", thread.encode() * 100_000])


Views = dict[tuple[str, str], Callable[[Saver], Any]]


def views(saver: Saver) -> Views:
    """Give every way to look at every thread, by thread and what is looked at."""
    found: Views = {}
    for info in saver.threads():
        name = info.thread
        found[name, "info"] = lambda s, name=name: listed(s, name)
        found[name, "head"] = lambda s, name=name: s.get_tuple(config(name))
        found[name, "steps"] = lambda s, name=name: s.steps(name, None)
        found[name, "list"] = lambda s, name=name: list(s.list(config(name)))
        found[name, "usage"] = lambda s, name=name: s.usage(name)
        found[name, "ledger"] = lambda s, name=name: s.ledger.entries(name)
        for number in range(5):
            found[name, f"effect {number}"] = lambda s, name=name, number=number: s.ledger.get(name, f"send {number}")
        found[name, "bodies"] = lambda s, name=name: s.ledger.bodies(name)
        for body in saver.ledger.bodies(name):
            found[name, f"body {body.hash}"] = lambda s, name=name, body=body: s.ledger.body(name, body.hash)
            found[name, f"start of {body.hash}"] = lambda s, name=name, body=body: s.ledger.body(name, body.hash, 2, 9)
        spaces = {step.ns for step in saver.steps(name, None)} - {""}
        for ns in spaces:
            found[name, f"head of {ns}"] = lambda s, name=name, ns=ns: s.get_tuple(config(name, checkpoint_ns=ns))
        for step in saver.steps(name, None)[:: max(1, info.checkpoints // 6)]:
            place = config(name, checkpoint_ns=step.ns, checkpoint_id=step.id)
            found[name, f"step {step.number}"] = lambda s, place=place: s.get_tuple(place)
            found[name, f"history {step.number}"] = lambda s, place=place: s.get_delta_channel_history(
                config=place, channels=["log", "other"]
            )
    del found["plain", "usage"]  # bytes of rows, not what is in them
    return {key: look for key, look in found.items() if key[1] != "usage"}


def listed(saver: Saver, name: str) -> Any:
    """Give what a listing says of a thread; one whose row is damaged is listed by its number."""
    found = saver.threads()
    damaged = DAMAGED if any(info.status == "damaged" for info in found) else GONE
    own = next((info for info in found if info.thread == name), None)
    return damaged if own is None or own.status == "damaged" else own


def seen(look: Callable[[Saver], Any], saver: Saver) -> Any:
    """Look, and give what was seen in a form that can be compared, or the error."""
    try:
        return SERDE.dumps_typed(look(saver))
    except (CheckpointerError, RecursionError) as error:
        return error


def looked_at(saver: Saver) -> tuple[Views, dict[tuple[str, str], Any], dict[int, str]]:
    """Give every way to look at the threads, what is seen so, and their names by their keys."""
    looks = views(saver)
    oracle = {key: seen(look, saver) for key, look in looks.items()}
    return looks, oracle, {saver._tools().key(info.thread): info.thread for info in saver.threads()}


def judge(count: Count, oracle: dict[tuple[str, str], Any], looks: Views, *, saver: Saver, what: str, of: Any) -> None:
    """Look at everything once; `of` is the thread that was damaged, if only one was."""
    worst, unlisted, refused = "no effect", set[str](), set[str]()
    for key, look in looks.items():
        try:
            now = seen(look, saver)
        except Exception as error:
            count.untyped.append(f"{what}: {key}: {type(error).__name__}: {error}")
            worst = "untyped"
            continue
        if isinstance(now, Exception):
            worst = f"{type(now).__name__}" if worst == "no effect" else worst
            refused |= {key[0]} if key[1] == "head" else set()
            if of is not None and key[0] not in of:
                count.others.append(f"{what}: {key}: {now}")
        elif now != oracle[key]:
            if GONE.encode() in now[1]:
                unlisted.add(key[0])
            if GONE.encode() in now[1] or DAMAGED.encode() in now[1]:
                continue
            count.silent.append(f"{what}: {key}")
            worst = "silent"
    count.silent += [f"{what}: {name} is not listed, nor is reading it an error" for name in unlisted - refused]
    count.tried += 1
    count.unlisted += bool(unlisted)
    count.outcomes[worst] += 1


def flip_file(path: Path, dice: random.Random) -> str:
    """Flip one bit of a file."""
    raw = bytearray(path.read_bytes())
    at = dice.randrange(len(raw) * 8)
    raw[at // 8] ^= 1 << at % 8
    path.write_bytes(bytes(raw))
    return f"bit {at} of page {at // 8 // 4096}"


def damaged_value(value: Any, dice: random.Random) -> Any:
    """Give something that a value might become."""
    if isinstance(value, bytes | memoryview):
        raw = bytearray(value)
        if raw and dice.random() < 0.5:
            raw[dice.randrange(len(raw))] ^= 1 << dice.randrange(8)
            return bytes(raw)
        return bytes(raw[: dice.randrange(len(raw))]) if raw else b"x"
    if isinstance(value, int):
        return value ^ 1 << dice.randrange(20)
    return b"u" + dice.randbytes(16)


Rows = list[dict[str, Any]]


def damage(rows: Rows, table: str, dice: random.Random) -> tuple[str, Rows, Rows]:
    """Choose a way to damage a table; give its words, the rows that go and those that come in their place."""
    one = dice.choice(rows)
    way = dice.choice(["value", "value", "value", "drop", "swap", "move"])
    other = dice.choice(rows)
    keys = {
        "cp_threads": 1, "cp_checkpoints": 4, "cp_heads": 2, "cp_writes": 4, "cp_elements": 3, "cp_names": 1,
        "cp_effects": 2, "cp_bodies": 3,
    }[table]  # fmt: skip
    names = list(one)
    if way == "drop":
        return f"{table}: dropped {_key(one, keys)}", [one], []
    if way == "swap" and other is not one:
        ours, theirs = dict(one), dict(other)
        for name in names[keys:]:
            ours[name], theirs[name] = theirs[name], ours[name]
        return f"{table}: swapped {_key(one, keys)} and {_key(other, keys)}", [one, other], [ours, theirs]
    name = dice.choice(names[:keys] if way == "move" else names)
    changed = {**one, name: damaged_value(one[name], dice)}
    return f"{table}: {name} of {_key(one, keys)}", [one], [changed]


def _key(row: dict[str, Any], keys: int) -> str:
    return " ".join(value.hex() if isinstance(value, bytes) else str(value) for value in list(row.values())[:keys])


def sqlite(count: int, seed: int) -> tuple[Count, Count]:
    """Damage an SQLite file: rows, and bits of the file."""
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        sound, hurt = Path(folder, "sound.db"), Path(folder, "hurt.db")
        with SqliteSaver.open(sound) as saver:
            build(saver)
            looks, oracle, names = looked_at(saver)
        with closing(sqlite3.connect(sound)) as base, base:
            base.execute("PRAGMA journal_mode=DELETE")
        in_rows, in_file = Count(), Count()
        for number in range(count):
            shutil.copy(sound, hurt)
            for left in (Path(f"{hurt}-wal"), Path(f"{hurt}-shm")):
                left.unlink(missing_ok=True)
            if number % 2:
                what, of, result = flip_file(hurt, dice), None, in_file
            else:
                (what, of), result = _damage_sqlite(hurt, dice, names), in_rows
            try:
                with SqliteSaver.open(hurt) as saver:
                    judge(result, oracle, looks, saver=saver, what=what, of=of)
            except CheckpointerError as error:
                result.tried += 1
                result.outcomes[f"{type(error).__name__} at opening"] += 1
            except Exception as error:
                result.tried += 1
                result.untyped.append(f"{what}: at opening: {type(error).__name__}: {error}")
        return in_rows, in_file


def _damage_sqlite(path: Path, dice: random.Random, names: dict[int, str]) -> tuple[str, list[str] | None]:
    table = dice.choice(TABLES)
    with open_to_anything(path) as base:
        what, gone, come = damage([dict(row) for row in base.execute(f"SELECT * FROM {table}")], table, dice)
        replace_sqlite(base, table, gone, come)
    return what, touched(table, gone, come, names)


@contextmanager
def open_to_anything(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a file so that its tables take rows that only a damaged page can have."""
    with closing(sqlite3.connect(path)) as base, base:
        base.row_factory = sqlite3.Row
        base.execute("PRAGMA writable_schema=ON")
        base.execute("UPDATE sqlite_schema SET sql = replace(sql, ' NOT NULL', '') WHERE name LIKE 'cp_%'")
        base.execute("PRAGMA writable_schema=RESET")
        yield base


def replace_sqlite(base: sqlite3.Connection, table: str, gone: Rows, come: Rows) -> None:
    """Put rows in the place of others."""
    for row in gone:
        base.execute(f"DELETE FROM {table} WHERE {' AND '.join(f'{k} IS ?' for k in row)}", list(row.values()))
    for row in come:
        marks = ", ".join("?" * len(row))
        base.execute(f"INSERT OR REPLACE INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))


def touched(table: str, gone: Rows, come: Rows, names: dict[int, str]) -> list[str] | None:
    """Give the threads whose rows were damaged; None where all share them."""
    if table == "cp_names":
        return None
    return [names[row["thread"]] for row in [*gone, *come] if row["thread"] in names]


def postgres(url: str, count: int, seed: int) -> Count:
    """Damage the rows of a Postgres database, and mend them again."""
    dice, result = random.Random(seed), Count()
    with PostgresSaver.open(url) as saver:
        build(saver)
        looks, oracle, names = looked_at(saver)
    with psycopg.connect(url, autocommit=True, row_factory=psycopg.rows.dict_row) as base:
        base.execute("SET search_path TO checkpointers")
        for _ in range(count):
            table = dice.choice(TABLES)
            rows = base.execute(f"SELECT * FROM {table}").fetchall()
            what, gone, come = damage(rows, table, dice)
            with changed(base, table, gone, come) as done, PostgresSaver.open(url, pool_size=1) as saver:
                if done:
                    judge(result, oracle, looks, saver=saver, what=what, of=touched(table, gone, come, names))
    return result


@contextmanager
def changed(base: Any, table: str, gone: Rows, come: Rows) -> Iterator[bool]:
    """Put rows in the place of others for a while; tell whether the database let it happen."""
    try:
        with base.transaction():
            _replace(base, table, gone, come)
    except psycopg.Error:
        yield False
        return
    try:
        yield True
    finally:
        with base.transaction():
            _replace(base, table, come, gone)


def _replace(base: Any, table: str, gone: Rows, come: Rows) -> None:
    for row in gone:
        where = " AND ".join(f"{name} IS NOT DISTINCT FROM %s" for name in row)
        base.execute(f"DELETE FROM {table} WHERE {where}", list(row.values()))
    for row in come:
        given = "OVERRIDING SYSTEM VALUE" if table == "cp_names" else ""
        marks = ", ".join(["%s"] * len(row))
        base.execute(f"INSERT INTO {table} ({', '.join(row)}) {given} VALUES ({marks})", list(row.values()))


def main(count: int, url: str | None) -> int:
    """Print what came of it; fail if anything is silently different, untyped or another thread's."""
    warnings.simplefilter("ignore")
    seed, start = random.randrange(1 << 32), time.monotonic()
    in_rows, in_file = sqlite(count, seed)
    print(f"corrupt sqlite rows: {in_rows}")
    print(f"corrupt sqlite file: {in_file}")
    if url:
        in_postgres = postgres(url, count // 2, seed)
    else:
        with LocalPostgres() as server:
            in_postgres = postgres(server.url, count // 2, seed)
    print(f"corrupt postgres rows: {in_postgres}; seconds {time.monotonic() - start:.0f}, seed {seed}")
    for result in (in_rows, in_file, in_postgres):
        for case in (*result.silent[:20], *result.untyped[:20], *result.others[:20]):
            print("  ", case[:300])
    return int(not all(result.good for result in (in_rows, in_file, in_postgres)))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 2_000, sys.argv[2] if len(sys.argv) > 2 else None))
