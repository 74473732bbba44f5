"""What the proofs share: databases to try, processes that live once and say how it went, and what a thread holds."""

from __future__ import annotations

import argparse
import atexit
import faulthandler
import json
import os
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkpointers import PostgresSaver, Saver, SqliteSaver
from checkpointers.keys import thread_key
from checkpointers.statements import Statement
from checkpointers.testing import LocalPostgres
from tests.checkpointers.graphs import config

TABLES = (
    "cp_threads", "cp_leases", "cp_checkpoints", "cp_writes", "cp_elements", "cp_heads", "cp_keys", "cp_effects", "cp_bodies",
)  # fmt: skip
TOO_LONG = 120.0
_LIVING: set[int] = set()


def arguments(about: str, **numbers: int | None) -> argparse.Namespace:
    """Read the command line of a proof: numbers, and which database."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--only", choices=("sqlite", "postgres"), help="one database instead of both")
    for name, default in numbers.items():
        parser.add_argument(name, type=int, nargs="?", default=default)
    return parser.parse_args()


@contextmanager
def databases(only: str | None = None) -> Iterator[dict[str, str]]:
    """Give the address of an empty database of each kind."""
    with tempfile.TemporaryDirectory() as folder:
        urls = {"sqlite": f"sqlite:///{folder}/proof.db"}
        if only == "sqlite":
            yield urls
            return
        if url := os.environ.get("TEST_POSTGRES_URL"):
            yield urls | {"postgres": url} if only is None else {"postgres": url}
            return
        with LocalPostgres() as server:
            yield urls | {"postgres": server.url} if only is None else {"postgres": server.url}


def opened(url: str, space: str = "", **options: Any) -> Saver:
    """Open a saver; `space` is a database of its own beside the others of the address."""
    if url.startswith("sqlite"):
        return SqliteSaver.open(url.removeprefix("sqlite:///") + space, **options)
    return PostgresSaver.open(url, pool_size=3, schema=f"checkpointers{space.replace(' ', '_')}", **options)


@dataclass
class Life:
    """A process on its own; it says one thing when it ends, or dies before."""

    process: int
    says: int

    def stopped(self) -> bool:
        """Wait until it stopped itself, or ended."""
        _, status = os.waitpid(self.process, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            _LIVING.discard(self.process)
        return os.WIFSTOPPED(status)

    def goes_on(self) -> None:
        """Wake it."""
        os.kill(self.process, signal.SIGCONT)

    def end(self) -> dict[str, Any] | None:
        """Wait for its end; give what it said, None if it was killed on purpose."""
        with os.fdopen(self.says) as pipe:
            said = pipe.read()
        _, status = os.waitpid(self.process, 0)
        _LIVING.discard(self.process)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            return None
        assert status == 0, f"{status}: {said[-3_000:]}"
        told: dict[str, Any] = json.loads(said)
        return told


def live(work: Callable[[], dict[str, Any] | None]) -> Life:
    """Begin a process that does this."""
    reads, writes = os.pipe()
    if (child := os.fork()) == 0:
        code = 0
        faulthandler.dump_traceback_later(TOO_LONG, exit=True)  # one that hangs says where
        try:
            os.close(reads)
            said = json.dumps(work() or {})
        except BaseException:
            code, said = 1, traceback.format_exc()
        with os.fdopen(writes, "w") as pipe:
            pipe.write(said)
        os._exit(code)
    os.close(writes)
    _LIVING.add(child)
    return Life(child, reads)


@atexit.register
def end_all() -> None:
    """Leave no process behind when a proof fails: one that is stopped would keep its pipes open for ever."""
    for process in _LIVING:
        os.kill(process, signal.SIGKILL)


def snapshot(saver: Saver, thread: str, *, rows: bool = True) -> str:
    """Give all that a thread holds, but for its name and times; with how many rows, or without."""
    found = [
        (
            tuple_.checkpoint,
            dict(tuple_.metadata),
            tuple_.parent_config and tuple_.parent_config["configurable"]["checkpoint_id"],
            tuple_.pending_writes,
        )
        for tuple_ in saver.list(config(thread))
    ]
    usage = saver.usage(thread)
    infos = [
        (info.status, info.step, info.checkpoints, info.tags, info.pins, info.bytes == sum(one.bytes for one in usage))
        for info in saver.threads()
        if info.thread == thread
    ]
    entries = [(e.key, e.number, e.revision, e.status, e.step, e.record) for e in saver.ledger.entries(thread)]
    bodies = [(body, len(saver.ledger.body(thread, body.hash))) for body in saver.ledger.bodies(thread)]
    counted = [(one.channel, one.rows) for one in usage if rows]
    return repr((found, infos, counted, entries, bodies)).replace(repr(thread), "'T'")


def rows_of(saver: Saver, thread: str) -> dict[str, int]:
    """Count the rows of a thread in each table."""

    def count() -> Any:
        found = {}
        for table in TABLES:
            rows = yield Statement(f"SELECT count(*) FROM {table} WHERE thread = ?", (thread_key(thread),))
            found[table] = rows[0][0]
        return found

    counted: dict[str, int] = saver.database.read(count)
    return counted


def findings(saver: Saver, thread: str) -> list[str]:
    """Give what fsck finds in a thread."""
    return [repr(finding) for finding in saver.fsck(thread)]


class Notes:
    """Lines in a file that several processes append to, and that outlives them."""

    def __init__(self, path: Path) -> None:
        """Use this file."""
        self.path = path

    def add(self, line: str) -> None:
        """Append a line in one write."""
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, f"{line}\n".encode())
        os.close(file)

    def all(self) -> list[str]:
        """Give the lines."""
        return self.path.read_text().splitlines() if self.path.exists() else []


class Clock:
    """Seconds since now."""

    def __init__(self) -> None:
        """Start."""
        self._start = time.perf_counter()

    def __str__(self) -> str:
        """Give them with one digit."""
        return f"{self.seconds:.1f}"

    @property
    def seconds(self) -> float:
        """Give them."""
        return time.perf_counter() - self._start
