"""`python -m tests.proofs.crash [--all] [family …]`: SIGKILL at every boundary, again during recovery, then the truth.

A boundary is before and after each thing a process says to its database, commits included. Every family is prepared
once, run once undisturbed, and then killed at each boundary of that run; two more processes recover, the first of them
killed too. What is left must be what the undisturbed run left, and what was acknowledged must be there in between.
"""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from checkpointers import Keep, Keyring, LeaseLostError, Saver, ThreadExistsError, adopt
from tests.checkpointers.graphs import DeltaState, config, loop
from tests.proofs.lives import Clock, Life, Notes, databases, findings, live, opened, rows_of, snapshot

TTL = 0.5
SLACK = 4.0
BATCH = 10
POINTS = 24
BASE = "base"
SEALED = 64
STOOD = [("asked", "__resume__", "first"), ("asked", "__interrupt__", ["?"]), ("done", "x", "done")]


class Boundaries:
    """Counts what this process says to its database while it is armed, and dies at one of the boundaries."""

    armed, count, at = False, 0, -1

    def cross(self, work: Callable[[], Any]) -> Any:
        """Do one thing, or die before or after it."""
        if not self.armed:
            return work()
        self.count += 1
        number = self.count
        if 2 * number == self.at:
            os.kill(os.getpid(), signal.SIGKILL)
        done = work()
        if 2 * number + 1 == self.at:
            os.kill(os.getpid(), signal.SIGKILL)
        return done


BOUNDARIES = Boundaries()


@functools.cache
def counted(kind: type[sqlite3.Connection]) -> type[sqlite3.Connection]:
    """Make a kind of connection whose statements are boundaries."""

    class Counted(kind):  # type: ignore[misc, valid-type]
        def execute(self, *arguments: Any) -> Any:
            return BOUNDARIES.cross(lambda: super(Counted, self).execute(*arguments))

    return Counted


@contextmanager
def watched() -> Iterator[None]:
    """Make boundaries of all that is said to either database."""
    connect, wait = sqlite3.connect, psycopg.Connection.wait

    def connected(*arguments: Any, factory: Any = sqlite3.Connection, **options: Any) -> Any:
        return connect(*arguments, factory=counted(factory), **options)

    def waited(connection: Any, *arguments: Any, **options: Any) -> Any:
        return BOUNDARIES.cross(lambda: wait(connection, *arguments, **options))

    sqlite3.connect = connected
    psycopg.Connection.wait = waited
    try:
        yield
    finally:
        sqlite3.connect, psycopg.Connection.wait = connect, wait


@dataclass
class Run:
    """One life of a family: which database and thread, what was acknowledged before, and how long it waited."""

    url: str
    space: str
    thread: str
    notes: Notes
    waited: float = 0.0
    lost: list[str] = field(default_factory=list)

    @contextmanager
    def armed(self) -> Iterator[None]:
        """From here on, boundaries count."""
        BOUNDARIES.armed = True
        yield
        BOUNDARIES.armed = False

    def saver(self, **options: Any) -> Saver:
        """Open the database."""
        return opened(self.url, self.space, **options)

    def missing(self, stored: set[str]) -> None:
        """Note what was acknowledged and is not there."""
        self.lost += sorted(set(self.notes.all()) - stored)

    def lease(self, saver: Saver, **options: Any) -> Any:
        """Take the thread as soon as a dead holder's lease is over."""
        start = time.monotonic()
        lease = saver.lease(self.thread, ttl=TTL, **({"if_busy": "enqueue", "timeout": TTL + SLACK} | options))
        lease.__enter__()
        self.waited = max(self.waited, time.monotonic() - start)
        return lease


def values(number: int) -> dict[str, Any]:
    """Give a state that grows, over the size at which elements are sealed together."""
    log = [{"id": n, "text": f"entry {n} " * 6} for n in range(SEALED - 3 + number)]
    return {"log": log, "n": number, "static": "s" * 400}


def place(thread: str, checkpoint: str | None) -> dict[str, Any]:
    """Point to a checkpoint."""
    return config(thread, checkpoint_ns="", **({"checkpoint_id": checkpoint} if checkpoint else {}))


def put(saver: Saver, thread: str, number: int, after: str | None, name: str = "c") -> None:
    """Store a checkpoint whose id and content are always the same."""
    versions = {"log": number, "n": number, "static": 1}
    checkpoint = {
        "v": 4, "id": f"{name}{number}", "ts": "2026-01-02T03:04:05+00:00", "channel_values": values(number),
        "channel_versions": versions, "versions_seen": {}, "updated_channels": None,
    }  # fmt: skip
    saver.put(place(thread, after), checkpoint, {"source": "loop", "step": number, "parents": {}}, versions)


def stored(saver: Saver, thread: str) -> set[str]:
    """Give the checkpoints of a thread."""
    return {found.checkpoint["id"] for found in saver.list(config(thread))}


# The families: each begins where the last life left it, and acknowledges what is done.


def puts(run: Run) -> None:
    with run.saver() as saver:
        _put_up_to(6, run, saver)


def _put_up_to(last: int, run: Run, saver: Saver) -> None:
    there = stored(saver, run.thread)
    run.missing(there)
    with run.armed():
        for number in range(1, last + 1):
            if f"c{number}" not in there:
                put(saver, run.thread, number, f"c{number - 1}" if number > 1 else None)
                run.notes.add(f"c{number}")


def writes(run: Run) -> None:
    special = [("__error__", "no"), ("__interrupt__", ["?"]), ("__resume__", "one"), ("__resume__", "two")]
    tasks = [[("log", [{"id": n}] * n), ("x", n)] for n in range(3)] + [[write] for write in special]
    with run.saver() as saver:
        if not stored(saver, run.thread):
            put(saver, run.thread, 1, None)
        found = saver.get_tuple(config(run.thread))
        there = {write[0] for write in found.pending_writes}
        run.missing(there)
        with run.armed():
            for number, task in enumerate(tasks):
                name = f"task {number}"
                if name not in there:
                    saver.put_writes(place(run.thread, "c1"), task, name, f"~{number}")
                    run.notes.add(name)


def take(run: Run) -> None:
    with run.saver() as saver:
        with run.armed():
            lease = run.lease(saver)
        _one_more(run, saver)
        lease.__exit__(None, None, None)


def renew(run: Run) -> None:
    with run.saver() as saver:
        lease = run.lease(saver)
        with run.armed():
            for _ in range(3):
                if not saver._desk.heart._renew(lease):
                    raise LeaseLostError(run.thread, None)
        _one_more(run, saver)
        lease.__exit__(None, None, None)


def release(run: Run) -> None:
    with run.saver() as saver:
        lease = run.lease(saver, **({"if_busy": "reject", "timeout": None} if run.notes.all() else {}))
        _one_more(run, saver)
        with run.armed():
            lease.__exit__(None, None, None)
        run.notes.add("released")


def _one_more(run: Run, saver: Saver) -> None:
    if "c1" not in stored(saver, run.thread):
        put(saver, run.thread, 1, None)


def hold(run: Run) -> None:
    """Take and release a thread that nothing is ever written to."""
    with run.saver() as saver, run.armed():
        run.lease(saver).__exit__(None, None, None)


def under_lease(run: Run) -> None:
    with run.saver() as saver:
        lease = run.lease(saver)
        _put_up_to(3, run, saver)
        lease.__exit__(None, None, None)


def rollback(run: Run) -> None:
    """Take over from a holder that made three steps of its own, and wrote on the one that it began at."""
    with run.saver() as one, run.saver() as two:
        if "gone on" in run.notes.all():
            return
        if "made" not in run.notes.all():
            lease = one.lease(run.thread, ttl=60, if_busy="rollback")
            lease.__enter__()
            for number in range(1, 4):
                put(one, run.thread, number, f"c{number - 1}" if number > 1 else None)
            for task, channel, value in (("asked", "__resume__", "wrong"), ("late", "x", "late")):
                one.put_writes(place(run.thread, "b6"), [(channel, value)], task)
            run.notes.add("made")
        with run.armed():
            lease = run.lease(two, if_busy="rollback", timeout=None)
        found = two.get_tuple(place(run.thread, "b6"))
        if found.pending_writes != STOOD:
            run.lost.append(f"what stood on b6: {found.pending_writes}")
        put(two, run.thread, 9, None)
        lease.__exit__(None, None, None)
        run.notes.add("gone on")


def prune(run: Run) -> None:
    with run.saver() as saver, run.armed():
        saver.prune([run.thread])


def retain(run: Run) -> None:
    with run.saver() as saver, run.armed():
        saver.retain(Keep(last=3), threads=run.thread)


def copy(run: Run) -> None:
    with run.saver() as saver:
        copied = f"{run.thread} copy"
        if run.notes.all() and not stored(saver, copied):
            run.lost.append(copied)
        with suppress(ThreadExistsError), run.armed():
            saver.copy_thread(run.thread, copied)
        run.notes.add("copied")
        assert snapshot(saver, copied) == snapshot(saver, run.thread)


def adoption(run: Run) -> None:
    with opened(f"sqlite:///{run.notes.path.parent}/source.db") as source, run.saver() as saver, run.armed():
        adopt(source, saver, threads=[run.thread])


def migrate(run: Run) -> None:
    with run.armed(), run.saver() as saver:
        there = stored(saver, run.thread)
        run.missing(there)
        if not there:
            put(saver, run.thread, 1, None)
            run.notes.add("c1")


def delete(run: Run) -> None:
    with run.saver() as saver:
        if run.notes.all() and any(rows_of(saver, run.thread).values()):
            run.lost.append("deleted")
        with run.armed():
            saver.delete_thread(run.thread)
        run.notes.add("deleted")


def ledger(run: Run) -> None:
    """Claim effects and say what became of them, each with a body that the next one keeps too."""
    with run.saver() as saver:
        there = {entry.key: entry for entry in saver.ledger.entries(run.thread)}
        done = {f"{key} done" for key, entry in there.items() if entry.status == "done"}
        run.missing(there.keys() | done)
        with run.armed():
            for number in range(1, 4):
                entry = there.get(f"k{number}") or saver.ledger.claim(run.thread, f"k{number}", {"to": "ada"})[0]
                run.notes.add(entry.key)
                if entry.status != "done":
                    bodies = [b"said" * (number + n) * 70_000 for n in range(2)]
                    saver.ledger.change(entry, status="done", record={"said": number}, bodies=bodies)
                    run.notes.add(f"{entry.key} done")


def rotate(run: Run) -> None:
    with run.saver(keys=_keys()) as saver, run.armed():
        saver.rotate()


def encrypt(run: Run) -> None:
    with run.saver(keys=_keys(), migrating=True) as saver, run.armed():
        saver.rotate()


def _keys(*, old: bool = False) -> Keyring:
    return Keyring({"old": b"o" * 32} if old else {"old": b"o" * 32, "new": b"n" * 32})


@dataclass(frozen=True)
class Family:
    """What is done, what thread it is done to, and whether it needs a database of its own."""

    name: str
    act: Callable[[Run], None]
    base: bool = False
    own: bool = False


FAMILIES = (
    Family("put", puts),
    Family("put_writes", writes),
    Family("lease take", take),
    Family("lease renew", renew),
    Family("lease release", release),
    Family("lease of nothing", hold),
    Family("put under lease", under_lease),
    Family("rollback", rollback, base=True),
    Family("prune", prune, base=True),
    Family("retain", retain, base=True),
    Family("copy", copy, base=True),
    Family("adopt", adoption, base=True),
    Family("delete", delete, base=True),
    Family("ledger", ledger),
    Family("migrate", migrate, own=True),
    Family("rotate", rotate, own=True),
    Family("encrypt", encrypt, own=True),
)


KEYED = (rotate, encrypt)


@dataclass
class Count:
    """How the tries of a family went."""

    tried: int = 0
    lost: int = 0
    wrong: int = 0
    stuck: int = 0
    boundaries: int = 0

    def __str__(self) -> str:
        """Say it in the form of every proof."""
        return f"tried {self.tried}, lost {self.lost}, wrong {self.wrong}, stuck {self.stuck}"

    @property
    def good(self) -> bool:
        """Tell whether nothing was lost, wrong or stuck."""
        return self.tried > 0 and not (self.lost or self.wrong or self.stuck)


class Proof:
    """One family on one database."""

    def __init__(self, family: Family, kind: str, url: str, folder: Path) -> None:
        """Choose."""
        self.family, self.kind, self.url, self.folder = family, kind, url, folder
        self.truth = ""

    def run(self, number: int) -> Run:
        """Give the run that dies at a boundary, 0 for the undisturbed one."""
        name = f"{self.family.name} {number}"
        return Run(self.url, f" {name}" if self.family.own else "", name, Notes(self.folder / f"{self.kind} {name}"))

    def try_all(self, most: int | None) -> Count:
        """Try every boundary, or so many that are spread over all."""
        self._done([live(lambda: self._prepare([0]))])
        (undisturbed,) = self._done([live(lambda: self._life(0, 0, last=True))])
        assert undisturbed is not None
        count = Count(boundaries=undisturbed["count"])
        self.truth = undisturbed["truth"]
        last = 2 * count.boundaries + 1
        step = 1 if most is None else max(1, -(-(last - 1) // most))
        points = list(range(2, last + 1, step))
        self._done([live(lambda: self._prepare(points))])
        for start in range(0, len(points), BATCH):
            self._try(points[start : start + BATCH], count)
        return count

    def _try(self, points: Sequence[int], count: Count) -> None:
        first = self._done([live(lambda p=p: self._life(p, p)) for p in points])
        second = self._done([live(lambda p=p: self._life(p, 2 + p % (2 * count.boundaries))) for p in points])
        third = self._done([live(lambda p=p: self._life(p, 0, last=True)) for p in points])
        for point, one, two, three in zip(points, first, second, third, strict=True):
            count.tried += 1
            assert three is not None
            said = [life for life in (one, two, three) if life is not None]
            count.lost += any(life["lost"] for life in said)
            count.stuck += any(life["waited"] > TTL + SLACK or life["stuck"] for life in said)
            if three["truth"] != self.truth or three["found"]:
                count.wrong += 1
                print(f"  {self.family.name} at {point}: {three['found']} {_difference(self.truth, three['truth'])}")
            for life in said:
                if life["lost"]:
                    print(f"  {self.family.name} at {point}: lost {life['lost']}")

    def _life(self, point: int, at: int, *, last: bool = False) -> dict[str, Any]:
        """Live once, and die at a boundary of this life if it is reached."""
        warnings.simplefilter("ignore")
        BOUNDARIES.armed, BOUNDARIES.count, BOUNDARIES.at = False, 0, at
        run = self.run(point)
        with watched():
            while True:
                try:
                    self.family.act(run)
                    break
                except LeaseLostError:  # a busy machine may keep a process from its heartbeat for a whole ttl
                    BOUNDARIES.armed = False
        said = {"lost": run.lost, "waited": run.waited, "count": BOUNDARIES.count, "truth": "", "found": [], "stuck": 0}
        if last:
            keys = {"keys": _keys()} if self.family.act in KEYED else {}
            with run.saver(**keys) as saver:
                said["found"] = findings(saver, run.thread)
                rows = rows_of(saver, run.thread) if self.family.name in ("delete", "lease of nothing") else ""
                # Adopting again may store an element again: what is read is the same, and what counts here.
                said["truth"] = f"{snapshot(saver, run.thread, rows=self.family.act is not adoption)} {rows}"
        return said

    def _prepare(self, points: Sequence[int]) -> None:
        warnings.simplefilter("ignore")
        if self.family.act in KEYED:
            before = {"keys": _keys(old=True)} if self.family.act is rotate else {}
            for point in points:
                with self.run(point).saver(**before) as saver:
                    for thread in (self.run(point).thread, "another"):
                        put(saver, thread, 1, None)
                        put(saver, thread, 2, "c1")
            return
        if not self.family.base:
            if not self.family.own:
                opened(self.url).close()
            return
        source = f"sqlite:///{self.folder}/source.db" if self.family.act is adoption else self.url
        if self.family.act is adoption:
            opened(self.url).close()
        with opened(source) as saver:
            name = BASE if self.family.act is not rollback else f"{BASE} put"
            if name not in {info.thread for info in saver.threads()}:
                self._make(saver, name)
            for point in points:
                saver.copy_thread(name, self.run(point).thread)

    def _make(self, saver: Saver, name: str) -> None:
        if self.family.act is rollback:
            put(saver, name, 5, None, "b")
            put(saver, name, 6, "b5", "b")
            for task, channel, value in STOOD:
                saver.put_writes(place(name, "b6"), [(channel, value)], task)
            return
        app = loop(saver, DeltaState)
        app.invoke({"until": 7, "n": 0}, config(name))
        app.builder.compile(checkpointer=saver, interrupt_after=["work"]).invoke({"until": 9}, config(name))
        saver.ledger.keep(name, b"nobody names it")
        entry, _ = saver.ledger.claim(name, "before the last step", {})
        saver.ledger.change(entry, status="done", record={}, bodies=[b"nor this" * 50_000])
        app.invoke({"until": 10}, config(name))
        saver.ledger.claim(name, "in doubt", {"body": saver.ledger.keep(name, b"but this")})
        saver.tag(name, "kept")
        saver.pin(name, 4)

    def _done(self, lives: Sequence[Life]) -> list[dict[str, Any] | None]:
        return [life.end() for life in lives]


def _difference(wanted: str, found: str) -> str:
    at = next((n for n, (a, b) in enumerate(zip(wanted, found, strict=False)) if a != b), min(len(wanted), len(found)))
    return f"…{wanted[max(0, at - 60) : at + 100]}… became …{found[max(0, at - 60) : at + 100]}…"


def prove(kind: str, url: str, names: Sequence[str] = (), most: int | None = None) -> bool:
    """Prove these families, or all, on one database; print a line for each."""
    good = True
    with tempfile.TemporaryDirectory() as folder:
        for family in FAMILIES:
            if names and family.name not in names:
                continue
            clock, home = Clock(), Path(folder) / family.name
            home.mkdir()
            count = Proof(family, kind, url, home).try_all(most)
            print(f"crash {family.name} {kind}: {count}, seconds {clock}", flush=True)
            good = good and count.good
            shutil.rmtree(home)
    return good


def main() -> int:
    """Try so many boundaries of each family, or with `--all` every one."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description="SIGKILL at every boundary, then recovery")
    parser.add_argument("--only", choices=("sqlite", "postgres"), help="one database instead of both")
    parser.add_argument("--all", action="store_true", help="every boundary")
    parser.add_argument("--points", type=int, default=POINTS, help="so many boundaries of each family")
    parser.add_argument("families", nargs="*", help=", ".join(family.name for family in FAMILIES))
    given = parser.parse_args()
    most = None if given.all else given.points
    with databases(given.only) as urls:
        good = [prove(kind, url, given.families, most) for kind, url in urls.items()]
        return int(not all(good))


if __name__ == "__main__":
    sys.exit(main())
