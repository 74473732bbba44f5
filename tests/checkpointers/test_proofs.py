"""The proofs of leases and crashes, bounded; `python -m tests.proofs.crash --all` and its neighbours do all of it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from checkpointers import Saver
from checkpointers.database import Database
from checkpointers.statements import Append, Many, Statement
from checkpointers.testing import FAULT_KINDS, faulty, half
from tests.checkpointers.graphs import config
from tests.checkpointers.test_storage import put, values
from tests.proofs.mutants import MUTANTS, ROOT

CRASH_POINTS = os.environ.get("PROOF_CRASH_POINTS", "3")
RACES = os.environ.get("PROOF_RACES", "9")
FAULTS = os.environ.get("PROOF_FAULTS", "3")


def proved(name: str, *arguments: str, url: str, root: object) -> list[str]:
    """Run a proof in a process of its own; it forks, and what runs the tests has threads."""
    kind = "sqlite" if url.startswith("sqlite") else "postgres"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", f"tests.proofs.{name}", "--only", kind, *arguments],
        cwd=str(root), env={**os.environ, "TEST_POSTGRES_URL": url}, capture_output=True, text=True, timeout=230, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-4_000:]
    return done.stdout.splitlines()


@pytest.mark.slow
def test_killed_at_boundaries_of_every_family(url: str, pytestconfig: pytest.Config) -> None:
    """SIGKILL at some boundaries of each, again during recovery: nothing lost, wrong or stuck."""
    lines = proved("crash", "--points", CRASH_POINTS, url=url, root=pytestconfig.rootpath)
    assert len(lines) >= 14
    assert all("lost 0, wrong 0, stuck 0" in line and "tried 0" not in line for line in lines)


@pytest.mark.slow
def test_two_writers_race(url: str, pytestconfig: pytest.Config) -> None:
    """With a lease nothing runs twice; without one nothing is lost in silence; zombies write nothing."""
    lines = proved("races", RACES, url=url, root=pytestconfig.rootpath)
    assert sum("double runs 0, lost branches 0" in line for line in lines) == 2
    assert sum("silent losses 0" in line for line in lines) == 2
    assert sum("zombie writes landed 0, lost 0" in line for line in lines) == 3


@pytest.mark.slow
def test_faults_are_never_silent(url: str, pytestconfig: pytest.Config) -> None:
    """Six kinds of fault at some requests, once and for ever: an error of ours or the right end."""
    (line,) = proved("faults", FAULTS, url=url, root=pytestconfig.rootpath)
    assert "silent 0" in line
    assert "tried 0" not in line


def test_every_guard_is_where_its_mutant_says() -> None:
    """A mutant whose guard was written otherwise since would be tried no more, and nobody told."""
    assert [mutant.name for mutant in MUTANTS if mutant.old not in (ROOT / mutant.file).read_text()] == []


@pytest.mark.parametrize("kind", FAULT_KINDS)
def test_what_each_fault_does(saver: Saver, kind: str) -> None:
    """The database that fails on purpose does what it says, once."""
    put(saver, {"x": 1})
    head = saver.get_tuple(config()).config
    broken: Database = faulty(saver.database, kind, 1, seconds=0.05)
    sql = "UPDATE cp_threads SET steps = steps + 1 RETURNING steps"

    def count() -> object:
        return (yield Statement(sql))[0][0]

    before = saver.database.read(lambda: _ask("SELECT steps FROM cp_threads"))
    if kind in ("fail", "lose", "tear"):
        with pytest.raises(Exception, match="injected"):
            broken.run(count)
    else:
        broken.run(count)
    done = {"fail": 0, "tear": 0, "duplicate": 2}.get(kind, 1)
    assert saver.database.read(lambda: _ask("SELECT steps FROM cp_threads")) == before + done
    broken.run(count)
    assert saver.database.read(lambda: _ask("SELECT steps FROM cp_threads")) == before + done + 1
    saver.database.exclusive(lambda: _ask(f"UPDATE cp_threads SET steps = {before} RETURNING steps"))
    assert values(saver, head) == {"x": 1}


def _ask(sql: str) -> object:
    return (yield Statement(sql))[0][0]


def test_a_fault_in_a_transaction(saver: Saver) -> None:
    """A duplicate transaction is done twice as a whole; a torn one is not done at all."""

    def twice() -> object:
        yield Statement("INSERT INTO cp_schema VALUES (0)")
        return (yield Statement("DELETE FROM cp_schema WHERE version = 0 RETURNING version"))

    assert len(faulty(saver.database, "duplicate", 2).exclusive(twice)) == 1
    for kind in ("fail", "lose", "tear"):
        with pytest.raises(Exception, match="injected"):
            faulty(saver.database, kind, 2).exclusive(twice)
        assert saver.database.read(lambda: _ask("SELECT count(*) FROM cp_schema WHERE version = 0")) == 0


def test_half_of_a_request() -> None:
    """What can be divided is; what cannot is not done."""
    one = Statement("SELECT 1")
    assert half(one) == []
    assert half(Many("x", [(1,), (2,), (3,)])) == [Many("x", [(1,)])]
    assert half(Many("x", [(1,)])) == []
    (torn,) = half(Append(one, ["a", "b", "c"]))
    assert torn.changes == ["a"]


def test_a_fault_is_overtaken(saver: Saver) -> None:
    """A request that is held back goes on when another was answered, or after a while."""
    import threading
    import time

    broken = faulty(saver.database, "reorder", 1, seconds=5)
    order: list[str] = []
    late = threading.Thread(target=lambda: (broken.run(lambda: _ask("SELECT 1")), order.append("first")))
    late.start()
    time.sleep(0.1)
    broken.run(lambda: _ask("SELECT 2"))
    order.append("second")
    late.join(2)
    assert not late.is_alive()
    assert set(order) == {"first", "second"}
    start = time.monotonic()
    faulty(saver.database, "reorder", 1, seconds=0.1).run(lambda: _ask("SELECT 1"))
    assert time.monotonic() - start >= 0.1


def test_the_size_of_a_thread_is_what_is_stored(saver: Saver) -> None:
    """`threads()` and `usage()` tell the same bytes, over the size at which elements are sealed together, too."""
    place = None
    for count in range(60, 70):
        place = put(
            saver, {"log": [{"id": n, "text": f"entry {n} " * 6} for n in range(count)]}, after=place, version=count
        )
        assert saver.threads()[0].bytes == sum(usage.bytes for usage in saver.usage("t"))
