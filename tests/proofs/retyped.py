"""Make a value of another type of every column: `python -m tests.proofs.retyped`.

SQLite keeps any type in any column, and one bit of a row's header says which: what was bytes is a text, a number or
nothing. For each column of each table and each type one row of a database is changed, its threads are looked at from
every side, and then everything is called that a saver can do with them: what comes is what was there, or a typed error.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from checkpointers import CheckpointerError, Keep, Keyring, Saver, SqliteSaver
from tests.checkpointers.graphs import config, loop
from tests.proofs import corrupt

ALIKE = "the same bytes, as a text"
TYPES: tuple[Any, ...] = (None, 0, 7, 1 << 62, 0.5, "a text", ALIKE, b"", b"x")
ALL = (*corrupt.TABLES, "cp_leases", "cp_keys")
RING = Keyring({"one": b"1" * 32})
LEASE = {"epoch": 1, "token": b"t" * 16, "owner": b"somebody", "since": 1, "until": 2, "steps": 0, "note": None}


def deeds(saver: Saver, thread: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Give everything that can be done with a thread besides looking at it; the last of it ends the thread."""
    yield "fsck", lambda: saver.fsck(thread)
    yield "inspect", lambda: saver.inspect(config(thread))
    yield "usage", lambda: saver.usage(thread)
    yield "tasks", lambda: saver.tasks(thread)
    yield "holder", lambda: saver.holder(thread)
    yield "newest", lambda: saver.steps(thread, newest=3)
    yield "filter", lambda: list(saver.list(config(thread), filter={"step": 3}))
    yield "recover", lambda: saver.recover(thread, into=f"{thread} again")
    yield "copy", lambda: saver.copy_thread(thread, f"{thread} copy")
    yield "tag", lambda: saver.tag(thread, "seen")
    yield "plan", lambda: saver.retain(Keep(last=2), threads=[thread], dry_run=True)
    yield "retain", lambda: saver.retain(Keep(last=2), threads=[thread])
    yield "prune", lambda: saver.prune([thread])
    yield "keep", lambda: saver.ledger.keep(thread, b"more")
    yield "claim", lambda: saver.ledger.claim(thread, "another", {})
    yield "go on", lambda: loop(saver).update_state(config(thread), {"n": 1})
    yield "rollback", lambda: saver.lease(thread, if_busy="rollback").__enter__().__exit__(None, None, None)
    yield "delete", lambda: saver.delete_thread(thread)


def deeds_on_all(saver: Saver) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Give what is done with a database."""
    yield "fsck", saver.fsck
    yield "threads", saver.threads
    yield "list", lambda: list(saver.list(None, filter={"step": 3}))
    yield "usage", saver.usage
    yield "readable", saver.readable
    yield "runs", lambda: saver.delete_for_runs(["no such run"])
    yield "plan", lambda: saver.retain(Keep(last=2), dry_run=True)
    if saver.vaults.keyring is not None:
        yield "rotate", saver.rotate


def prove(tables: Sequence[str], *, encrypted: bool = False, types: Sequence[Any] = TYPES) -> corrupt.Count:
    """Change a row of each column of these tables into each type, and look at what comes of it."""
    count, dice = corrupt.Count(), random.Random(1)
    options: dict[str, Any] = {"keys": RING} if encrypted else {}
    with tempfile.TemporaryDirectory() as folder:
        sound, hurt = Path(folder, "sound.db"), Path(folder, "hurt.db")
        with SqliteSaver.open(sound, **options) as saver:
            corrupt.build(saver)
            looks, oracle, names = corrupt.looked_at(saver)
        with corrupt.open_to_anything(sound) as base:
            corrupt.replace_sqlite(base, "cp_leases", [], [{"thread": key, **LEASE} for key in names])
            columns = [(table, row[1]) for table in tables for row in base.execute(f"PRAGMA table_info({table})")]
        for table, column in columns:
            for value in types:
                shutil.copy(sound, hurt)
                of = _retype(hurt, table, column, value, names=names, dice=dice)
                if of is not None:
                    with SqliteSaver.open(hurt, **options) as saver:
                        what = f"{table}.{column} = {value!r}"
                        corrupt.judge(count, oracle, looks, saver=saver, what=what, of=of or None)
                        if table == "cp_leases":  # who may write a thread is not a part of it, and has no seal
                            count.silent = [case for case in count.silent if not case.startswith("cp_leases")]
                        _do_all(count, saver, what, of)
                for left in Path(folder).glob("hurt.db*"):
                    left.unlink()
    return count


def _retype(
    path: Path, table: str, column: str, value: Any, *, names: dict[int, str], dice: random.Random
) -> list[str] | None:
    """Change one row; give its thread, or None where the table does not let it happen."""
    with suppress(sqlite3.Error), corrupt.open_to_anything(path) as base:
        rows = [dict(row) for row in base.execute(f"SELECT * FROM {table}")]
        one = dice.choice(rows) if rows else {}
        if not rows or (type(one[column]) is type(value) and value != 1 << 62):
            return None
        corrupt.replace_sqlite(base, table, [one], [{**one, column: value}])
        if value is ALIKE and isinstance(one[column], bytes):
            sql = f"UPDATE {table} SET {column} = CAST(? AS TEXT) WHERE {column} = ?"
            base.execute(sql, (one[column], value))
        return corrupt.touched(table, [one], [], names) or []
    return None


def _do_all(count: corrupt.Count, saver: Saver, what: str, of: Sequence[str]) -> None:
    each = [(name, *deed) for name in of or ("plain",) for deed in deeds(saver, name)]
    for name, called, deed in [*(("all", *deed) for deed in deeds_on_all(saver)), *each]:
        try:
            deed()
        except CheckpointerError:
            continue
        except Exception as error:
            count.untyped.append(f"{what}: {called} of {name}: {type(error).__name__}: {error}")


def main() -> int:
    """Print what came of it; fail if anything is silently different, untyped or another thread's."""
    warnings.simplefilter("ignore")
    start, good = time.monotonic(), True
    for encrypted in (False, True):
        count = prove(ALL, encrypted=encrypted)
        print(f"retyped {'encrypted' if encrypted else 'in clear'}: {count}; seconds {time.monotonic() - start:.0f}")
        for case in (*count.silent[:20], *count.untyped[:40], *count.others[:20]):
            print("  ", case[:300])
        good = good and count.good
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
