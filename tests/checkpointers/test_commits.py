"""What many threads append to one SQLite file at the same time: committed together, answered apart."""

from __future__ import annotations

import itertools
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from checkpointers import DiskFullError, SqliteSaver
from checkpointers.sqlite_commits import transaction
from checkpointers.statements import DUPLICATE, Append, Insert, Rows, Statement
from tests.checkpointers.graphs import config
from tests.checkpointers.test_storage import put, values

GUARD = "SELECT 7 WHERE ?"


@pytest.fixture
def saver(tmp_path: Path) -> Iterator[SqliteSaver]:
    """Give a saver whose file has rows of one key to collide with."""
    with SqliteSaver.open(tmp_path / "a.db") as opened:
        yield opened


def append(number: int, *, held: bool = True, times: int = 1) -> Append:
    """Make an append of a row; a second one of the same number is a duplicate."""
    rows = [(number, 1)] * times
    return Append(Statement(GUARD, (held,)), [Insert("cp_heads", ("ns", "step"), rows)])


def numbers(saver: SqliteSaver) -> set[int]:
    """Tell whose rows are stored."""
    return {int(ns) for (ns,) in saver.database._writer.execute("SELECT ns FROM cp_heads WHERE thread = 7")}


@contextmanager
def waiting(saver: SqliteSaver, *deeds: Callable[[], Any]) -> Iterator[list[Future[Any]]]:
    """Let every deed reach the commit while somebody else writes; all of them wait when the block begins."""
    database = saver.database
    with ThreadPoolExecutor(len(deeds)) as pool, database._lock:
        futures = [pool.submit(deed) for deed in deeds]
        give_up = time.monotonic() + 30
        while len(database._commits._queue) < len(deeds):
            assert time.monotonic() < give_up
            time.sleep(0.001)
        yield futures


def answers(saver: SqliteSaver, *appends: Append) -> list[Rows]:
    """Append all at the same time."""
    with waiting(saver, *(lambda one=one: saver.database._answer(one) for one in appends)) as futures:
        pass
    return [future.result() for future in futures]


def test_what_waits_is_committed_together(saver: SqliteSaver) -> None:
    """Eight threads of LangGraph, one commit; each finds its own."""
    put(saver, {"x": [0]})  # its names are known from now on

    def store(number: int) -> Any:
        return put(saver, {"x": [number]}, after=config(f"t{number}", checkpoint_ns=""))

    with waiting(saver, *(lambda n=n: store(n) for n in range(8))):
        heard: list[str] = []
        saver.database._writer.set_trace_callback(heard.append)
    assert heard.count("COMMIT") == 1
    assert [values(saver, config(f"t{number}"))["x"] for number in range(8)] == [[number] for number in range(8)]


def test_one_that_cannot_be_stored_keeps_no_other_from_it(saver: SqliteSaver) -> None:
    """A duplicate is told to its own thread, a guard that does not hold too."""
    saver.database._answer(append(3))
    found = answers(saver, append(1), append(2, held=False), append(3), append(4), append(5, times=2))
    assert found == [[(7,)], [], DUPLICATE, [(7,)], DUPLICATE]
    assert numbers(saver) == {1, 3, 4}


def test_a_guard_sees_what_was_appended_before_it_in_one_commit(saver: SqliteSaver) -> None:
    """Of two that want to be the first, one is."""
    first = Statement("SELECT 7 WHERE NOT EXISTS (SELECT 1 FROM cp_heads)")
    rivals = [Append(first, [Insert("cp_heads", ("ns", "step"), [(number, 1)])]) for number in range(2)]
    assert sorted(map(len, answers(saver, *rivals))) == [0, 1]
    assert len(numbers(saver)) == 1


def test_a_disk_that_fills_up_is_told_to_each(saver: SqliteSaver) -> None:
    """Nothing of them is stored, nobody believes that it is, and work goes on afterwards."""
    writer = saver.database._writer
    pages = writer.execute("PRAGMA page_count").fetchone()[0]
    writer.execute(f"PRAGMA max_page_count={pages}")
    large = Insert("cp_elements", ("channel", "n", "body"), [(1, 1, b"x" * 100_000)])

    def store(number: int) -> Rows:
        one = append(number)
        return saver.database.run(lambda: sent(Append(one.guard, [*one.changes, large])))

    with waiting(saver, *(lambda n=n: store(n) for n in range(3))) as futures:
        pass
    for future in futures:
        with pytest.raises(DiskFullError):
            future.result()
    assert numbers(saver) == set()
    writer.execute("PRAGMA max_page_count=1000000")
    assert answers(saver, append(1), append(2)) == [[(7,)], [(7,)]]
    assert numbers(saver) == {1, 2}


def test_what_was_given_up_is_stored_by_its_own_thread(saver: SqliteSaver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever commits for all may be interrupted: it alone has not stored."""
    commits = saver.database._commits
    truly, interrupted = commits._writer, list[int]()

    def interrupt() -> Any:
        if not interrupted:
            interrupted.append(1)
            raise KeyboardInterrupt
        return truly()

    monkeypatch.setattr(commits, "_writer", interrupt)
    with waiting(saver, *(lambda n=n: saver.database._answer(append(n)) for n in range(4))) as futures:
        pass
    ended = [type(future.exception()) for future in futures]
    assert ended.count(KeyboardInterrupt) == 1
    assert numbers(saver) == {number for number, how in enumerate(ended) if how is not KeyboardInterrupt}


@pytest.mark.parametrize("path", ["a.db", ":memory:"])
def test_a_transaction_that_was_cut_short_ends_only_itself(tmp_path: Path, path: str) -> None:
    """Whoever an interrupt met while leaving a transaction may be collected late: others write before and meanwhile."""
    with SqliteSaver.open(tmp_path / path if path != ":memory:" else path) as saver:
        put(saver, {"x": 1})
        writer = saver.database._open_writer()
        left = transaction(writer, "IMMEDIATE")
        left.__enter__()
        writer.execute("DELETE FROM cp_checkpoints")
        place = put(saver, {"x": 2})
        assert values(saver, place) == {"x": 2}
        assert saver.get_tuple(config()) is not None
        with transaction(writer, "IMMEDIATE"):
            writer.execute("UPDATE cp_threads SET bytes = 77")
            left.gen.close()
            assert writer.in_transaction
        assert writer.execute("SELECT bytes FROM cp_threads").fetchall() == [(77,)]


def test_a_lock_of_another_process_is_waited_for_once(tmp_path: Path) -> None:
    """All that wait are stored when it is free."""
    with SqliteSaver.open(tmp_path / "b.db") as saver, closing(sqlite3.connect(tmp_path / "b.db")) as other:
        other.execute("BEGIN IMMEDIATE")
        with waiting(saver, *(lambda n=n: saver.database._answer(append(n)) for n in range(3))) as futures:
            other.execute("COMMIT")
        assert [future.result() for future in futures] == [[(7,)]] * 3


def sent(request: Append) -> Any:
    """Make an operation of one request."""
    return (yield request)


KILLED = """
import itertools, os, signal, sys
from checkpointers import SqliteSaver
from tests.checkpointers.graphs import config
from tests.checkpointers.test_commits import waiting
from tests.checkpointers.test_storage import put

path, point = sys.argv[1], int(sys.argv[2])
counted, notes = itertools.count(1), os.open(path + ".notes", os.O_CREAT | os.O_APPEND | os.O_WRONLY)

def count(statement):
    if next(counted) == point:
        os.kill(os.getpid(), signal.SIGKILL)

def store(number, turn):
    after = config(f"t{number}", checkpoint_ns="") if turn == 1 else saver.get_tuple(config(f"t{number}")).config
    put(saver, {"x": list(range(turn)), f"new {turn}": number}, after=after, version=turn)
    os.write(notes, f"{number} {turn}\\n".encode())

with SqliteSaver.open(path) as saver:
    saver.database._writer.set_trace_callback(count)
    for turn in (1, 2):
        with waiting(saver, *(lambda n=n: store(n, turn) for n in range(5))):
            pass
"""


@pytest.mark.slow
def test_killed_in_the_middle_of_a_commit_for_many(tmp_path: Path) -> None:
    """At statements of that transaction: what was acknowledged is there, a thread has a step or has not, and work goes on."""
    for point in itertools.count(3, 19):
        path = tmp_path / f"{point}.db"
        command = [sys.executable, "-W", "ignore", "-c", KILLED, str(path), str(point)]
        code = subprocess.run(command, check=False, timeout=60).returncode
        notes = path.with_suffix(".db.notes").read_text().splitlines()
        acknowledged = {thread: int(turn) for thread, turn in sorted(note.split() for note in notes)}
        with SqliteSaver.open(path) as saver:
            assert saver.fsck() == []
            for number in range(5):
                found = saver.get_tuple(config(f"t{number}"))
                turn = len(saver.steps(f"t{number}"))
                assert turn >= acknowledged.get(str(number), 0)
                if found:
                    assert found.checkpoint["channel_values"] == {"x": list(range(turn)), f"new {turn}": number}
                place = found.config if found else config(f"t{number}", checkpoint_ns="")
                put(saver, {"x": ["on"]}, after=place, version=9)
                assert values(saver, config(f"t{number}"))["x"] == ["on"]
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert point > 20
    assert len(notes) == 10
