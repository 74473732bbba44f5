"""When the ground gives way: what was acknowledged is readable, the message names place and cause, work goes on."""

from __future__ import annotations

import asyncio
import gc
import os
import select
import socket
import socketserver
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import psycopg
import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import StateGraph
from psycopg_pool import ConnectionPool
from psycopg_pool.pool import MaintenanceTask

from checkpointers import (
    BusyError,
    CheckpointerError,
    DiskFullError,
    IncompleteRecordError,
    Keep,
    NotADatabaseError,
    PostgresSaver,
    ReadOnlyError,
    Saver,
    SchemaError,
    SqliteSaver,
    StorageError,
    UnreachableError,
    open_saver,
)
from checkpointers.keys import thread_key
from checkpointers.postgres_server import PostgresDatabase
from checkpointers.sqlite_file import SqliteDatabase
from checkpointers.testing import FaultyDatabase, LocalPostgres, is_write, no_fault
from tests.checkpointers.graphs import DeltaState, State, config, loop
from tests.checkpointers.test_storage import put, values
from tests.conftest import reopen

CRASH_POINTS = int(os.environ.get("CRASH_POINTS", "200"))
CRASHED_STEPS = 800


def test_a_new_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    """The file and its write-ahead log have mode 0600; an existing file is left as it is."""
    with SqliteSaver.open(tmp_path / "a.db") as saver:
        put(saver, {"x": 1})
        for name in ("a.db", "a.db-wal", "a.db-shm"):
            assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    (tmp_path / "a.db").chmod(0o644)
    SqliteSaver.open(tmp_path / "a.db").close()
    assert stat.S_IMODE((tmp_path / "a.db").stat().st_mode) == 0o644


def test_disk_full(tmp_path: Path) -> None:
    """A full disk is said with the path; everything acknowledged stays; writing goes on when there is room again."""
    saver = SqliteSaver.open(tmp_path / "full.db")
    saver.database._writer.execute("PRAGMA max_page_count=60")
    place, acknowledged = None, 0
    with pytest.raises(DiskFullError, match=r"full\.db: database or disk is full; .*free some space"):
        for version in range(1, 1_000):
            place = put(saver, {"x": os.urandom(3_000).hex()}, after=place, version=version)
            acknowledged += 1
    assert acknowledged > 5
    assert len(list(saver.list(config()))) == acknowledged
    saver.database._writer.execute("PRAGMA max_page_count=100000")
    put(saver, {"x": "there is room again"}, after=place, version=1_001)
    assert values(saver)["x"] == "there is room again"
    saver.close()
    with closing(sqlite3.connect(tmp_path / "full.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_file_that_may_not_grow(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """F22: under a limit on file sizes the write fails by name, and everything acknowledged is readable afterwards."""
    code = f"""
import os, resource, signal, sys
from tests.checkpointers.test_storage import put
from checkpointers import SqliteSaver, StorageError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
saver = SqliteSaver.open({str(tmp_path / "small.db")!r})
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
place = None
try:
    for version in range(1, 1000):
        place = put(saver, {{"x": os.urandom(3000).hex()}}, after=place, version=version)
        print(version, flush=True)
except StorageError as error:
    print(error)
"""
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, cwd=pytestconfig.rootpath, capture_output=True, text=True, timeout=120, check=True)
    *acknowledged, said = done.stdout.splitlines()
    assert "small.db" in said
    assert "free some space" in said
    with SqliteSaver.open(tmp_path / "small.db") as saver:
        assert len(list(saver.list(config()))) == len(acknowledged) > 5
        put(saver, {"x": "goes on"})


def test_read_only(tmp_path: Path) -> None:
    """A read-only open reads, refuses writes by name, and creates nothing."""
    with pytest.raises(StorageError, match="missing.db"):
        SqliteSaver.open(tmp_path / "missing.db", read_only=True)
    assert list(tmp_path.iterdir()) == []
    with SqliteSaver.open(tmp_path / "a.db") as saver:
        put(saver, {"x": 1})
    with SqliteSaver.open(tmp_path / "a.db", read_only=True) as saver:
        assert values(saver) == {"x": 1}
        with pytest.raises(ReadOnlyError, match=r"a\.db.*nothing was written"):
            put(saver, {"x": 2}, version=2)


@pytest.mark.parametrize(
    "content", [b"not a database at all, just some text that is long enough", b"SQLite format 3\x00" + b"\xff" * 4_000]
)
def test_what_is_no_database(tmp_path: Path, content: bytes) -> None:
    """A file that is something else is refused by name and left as it is."""
    (tmp_path / "a.db").write_bytes(content)
    with pytest.raises(NotADatabaseError, match=r"a\.db"):
        SqliteSaver.open(tmp_path / "a.db")
    assert (tmp_path / "a.db").read_bytes() == content


def test_a_missing_folder_and_a_closed_saver_are_said(tmp_path: Path) -> None:
    """Simple mistakes get simple messages."""
    with pytest.raises(StorageError, match="folder"):
        SqliteSaver.open(tmp_path / "no" / "a.db")
    saver = SqliteSaver.open(tmp_path / "a.db")
    saver.close()
    saver.close()
    with pytest.raises(StorageError, match="closed"):
        saver.get_tuple(config())


class Dropping(MaintenanceTask):
    """Lets go of something on a thread of the pool, as the garbage collector may."""

    def __init__(self, pool: ConnectionPool[Any], held: list[Any]) -> None:
        super().__init__(pool)
        self.held, self.done = held, threading.Event()

    def _run(self, pool: ConnectionPool[Any]) -> None:
        self.held.clear()
        gc.collect()
        self.done.set()


@pytest.mark.parametrize("scheme", ["", "langgraph+"])
def test_a_forgotten_saver_closes_its_pool(postgres_url: str, scheme: str) -> None:
    """Whichever thread comes to collect it, one of the pool's own among them, nothing is raised where nobody hears it."""
    held: Any = [open_saver(scheme + postgres_url)]
    pool = held[0].conn if scheme else held[0].database._pool
    task = Dropping(pool, held)
    pool.run_task(task)
    assert task.done.wait(10)
    assert pool.closed


@pytest.mark.parametrize("options", [{"readable": ("a",)}, {"nonsense": 1}])
def test_what_is_opened_for_refused_options_is_closed(url: str, options: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection is left to the garbage collector."""
    kind = SqliteDatabase if url.startswith("sqlite") else PostgresDatabase
    opened: list[Any] = []
    begin = kind.__init__
    monkeypatch.setattr(kind, "__init__", lambda self, *a, **k: opened.append(self) or begin(self, *a, **k))
    with pytest.raises(CheckpointerError):
        open_saver(url, **options)
    assert [one._closed if kind is SqliteDatabase else one._pool.closed for one in opened] == [True]


def test_closing_waits_for_no_reader_and_takes_nothing_from_it(tmp_path: Path) -> None:
    """A connection that another thread is reading from is closed by that thread: else SQLite crashes the process."""
    saver = SqliteSaver.open(tmp_path / "a.db")
    put(saver, {"x": 1})
    with saver.database._reader() as connection:
        saver.close()
        assert connection.execute("SELECT count(*) FROM cp_threads").fetchall() == [(1,)]
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")


@pytest.mark.slow
def test_closing_while_others_read_crashes_nothing(tmp_path: Path) -> None:
    """Readers of a saver that is closed meanwhile are answered or told; the process lives."""
    script = (
        "import sys, threading, time\n"
        "from checkpointers import SqliteSaver, StorageError\n"
        "from tests.checkpointers.graphs import config, loop\n"
        "with SqliteSaver.open(sys.argv[1]) as saver: loop(saver).invoke({'until': 30, 'n': 0}, config())\n"
        "def work(saver):\n"
        "    try:\n"
        "        while True: saver.threads(), saver.steps('t'), list(saver.list(config(), limit=3))\n"
        "    except StorageError as error: assert 'closed' in str(error), error; told.append(1)\n"
        "told = []\n"
        "for number in range(60):\n"
        "    saver = SqliteSaver.open(sys.argv[1])\n"
        "    threads = [threading.Thread(target=work, args=(saver,)) for _ in range(4)]\n"
        "    for thread in threads: thread.start()\n"
        "    time.sleep(0.002 * (number % 9)); saver.close()\n"
        "    for thread in threads: thread.join()\n"
        "print(len(told))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, str(tmp_path / "a.db")], capture_output=True, text=True,
        check=False, timeout=200,
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, "240"), done.stderr[-2_000:]


def test_a_newer_schema_is_refused(saver: Saver, url: str) -> None:
    """Tables of a release that this one does not know are not touched."""
    saver.database.exclusive(lambda: iter_statement("INSERT INTO cp_schema VALUES (999)"))
    with pytest.raises(SchemaError, match="version 999"):
        reopen(url)


def iter_statement(sql: str) -> Any:
    from checkpointers.statements import Statement

    yield Statement(sql)


def test_a_locked_database_is_said_after_the_timeout(tmp_path: Path) -> None:
    """Waiting ends with a message, nothing is written, and the next try works."""
    saver = SqliteSaver.open(tmp_path / "a.db", timeout=0.1)
    other = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(BusyError, match=r"a\.db.*locked.*nothing was written"):
        put(saver, {"x": 1})
    other.execute("ROLLBACK")
    put(saver, {"x": 1})
    assert values(saver) == {"x": 1}
    saver.close()
    other.close()


def test_a_missing_element_names_its_place(saver: Saver) -> None:
    """Rows that vanished are an error with thread, step and channel; other threads are not affected."""
    for name in ("t", "other"):
        put(saver, {"x": "a value long enough to be an element of its own"}, after=config(name, checkpoint_ns=""))
    gone = f"DELETE FROM cp_elements WHERE thread = {thread_key('t')}"
    saver.database.exclusive(lambda: iter_statement(gone))
    with pytest.raises(IncompleteRecordError, match=r"t@1: channel 'x'"):
        saver.get_tuple(config())
    assert "x" in values(saver, config("other"))


@pytest.mark.parametrize("schema", [State, DeltaState], ids=["plain", "delta"])
@pytest.mark.parametrize("forever", [False, True], ids=["once", "for ever"])
def test_every_write_may_fail(url: str, schema: Any, forever: bool) -> None:
    """The N-th write fails, once or for ever, N = 1, 2, …: an error, then the thread goes on to the right end."""
    for number in range(1, 12):
        count = 0

        def fault(_: int, request: Any, number: int = number) -> None:
            nonlocal count
            count += is_write(request)
            if is_write(request) and (count >= number if forever else count == number):
                raise OSError("injected")

        with reopen(url) as real:
            name = f"{number} {forever}"
            broken = loop(type(real)(FaultyDatabase(real.database, fault)), schema)
            try:
                broken.invoke({"until": 6, "n": 0}, config(name), durability="sync")
            except StorageError as error:
                assert "injected" in str(error)  # noqa: PT017
        with reopen(url) as real:
            app = loop(real, schema)
            begun = app.get_state(config(name)).values.get("n") is not None
            app.invoke(None if begun else {"until": 6, "n": 0}, config(name), durability="sync")
            assert [e["id"] for e in app.get_state(config(name)).values["log"]] == list(range(6))


@pytest.mark.parametrize("schema", [State, DeltaState], ids=["plain", "delta"])
@pytest.mark.parametrize("lost", ["request", "answer"])
def test_a_connection_lost_at_any_request(postgres_url: str, schema: Any, lost: str) -> None:
    """Whether the request or its answer is lost: it is done again, once, and what is remembered stays true."""
    with PostgresSaver.open(postgres_url) as real:
        for number in range(1, 40, 2):

            def lose(count: int, request: Any, number: int = number) -> None:
                if count == number:
                    raise psycopg.OperationalError("injected")

            before, after = (lose, no_fault) if lost == "request" else (no_fault, lose)
            app = loop(PostgresSaver(FaultyDatabase(real.database, before, after=after)), schema)
            app.invoke({"until": 9, "n": 0}, config(f"t{number}"), durability="sync")
            fresh = loop(PostgresSaver(real.database), schema)
            assert [e["id"] for e in fresh.get_state(config(f"t{number}")).values["log"]] == list(range(9))
            assert len(list(fresh.get_state_history(config(f"t{number}")))) == 11
            assert real.threads(limit=1)[0].checkpoints == 11


class Forgetful(socketserver.ThreadingTCPServer):
    """Stands before a server, and breaks off when that has answered the next commit, or before it is asked for it."""

    daemon_threads = allow_reuse_address = True

    def __init__(self, url: str) -> None:
        super().__init__(("127.0.0.1", 0), Between)
        info = psycopg.conninfo.conninfo_to_dict(url)
        self.behind = (str(info["host"]), int(info["port"]))
        self.loses = ""
        self.url = psycopg.conninfo.make_conninfo(url, host="127.0.0.1", port=self.server_address[1])

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class Between(socketserver.BaseRequestHandler):
    server: Forgetful

    def handle(self) -> None:
        with socket.create_connection(self.server.behind) as behind:
            asked = b""
            while True:
                for one in select.select([self.request, behind], [], [])[0]:
                    data = one.recv(1 << 16)
                    asked = data if one is self.request else asked
                    committing = self.server.loses and b"COMMIT" in asked
                    if not data or (committing and (one is behind or self.server.loses == "request")):
                        self.server.loses = "" if committing else self.server.loses
                        return
                    (behind if one is self.request else self.request).sendall(data)


ONCE: dict[str, Callable[[Saver], Any]] = {
    "copy": lambda saver: saver.copy_thread("t", "copied"),
    "recover": lambda saver: saver.recover("t", into="recovered"),
    "retain": lambda saver: [plan.frees > 0 for plan in saver.retain(Keep(last=1))],
    "prune": lambda saver: saver.prune("t"),
    "delete": lambda saver: saver.delete_thread("t"),
}


@pytest.mark.parametrize("loses", ["request", "answer"])
@pytest.mark.parametrize("what", ONCE)
def test_a_commit_whose_answer_is_lost_was_made_once(postgres_url: str, what: str, loses: str) -> None:
    """The server is asked what became of it: what is done is not done again, and not told as what could not be done."""
    told = list[Any]()
    with Forgetful(postgres_url) as between:
        for lose in ("", loses):
            with PostgresSaver.open(between.url, schema=f"s{lose}", timeout=10) as saver:
                loop(saver).invoke({"until": 5, "n": 0}, config())
                between.loses = lose
                answer = ONCE[what](saver)
                assert not between.loses, "nothing was committed"
                told.append((answer, [(info.thread, info.checkpoints) for info in saver.threads()]))
    assert told[0] == told[1]


@pytest.mark.slow
def test_killed_before_any_request(url: str, pytestconfig: pytest.Config) -> None:
    """SIGKILL before request 1, 2, 3, … of run, prune, copy and delete, then again during recovery: nothing is lost."""
    command = [sys.executable, "-m", "tests.checkpointers.crash", url, str(CRASH_POINTS)]
    done = subprocess.run(command, cwd=pytestconfig.rootpath, capture_output=True, text=True, timeout=230, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    assert "lost 0, wrong 0" in done.stdout
    assert "tried 0" not in done.stdout


@pytest.fixture
def own_server() -> Iterator[LocalPostgres]:
    """A server that a test may crash."""
    with LocalPostgres() as server:
        yield server


@pytest.mark.slow
def test_a_server_started_by_hand_ends_with_its_process() -> None:
    """As a notebook starts one: without `with`, it answers, and nothing of it is left behind."""
    code = (
        "import psycopg; from checkpointers.testing import LocalPostgres; server = LocalPostgres().start();"
        "print(psycopg.connect(server.url).execute('SELECT 42').fetchone()[0], server.port, server._home)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    answer, port, home = done.stdout.split()
    assert answer == "42"
    assert not Path(home).exists()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(port))) != 0


def test_a_crashing_server(own_server: LocalPostgres) -> None:
    """`pg_ctl stop -m immediate` six times in the middle of runs: they wait, go on, and nothing is lost (F20)."""
    saver = PostgresSaver.open(own_server.url, timeout=60)
    app = loop(saver)
    results: list[Any] = []

    def run(name: str) -> None:
        results.append(app.invoke({"until": CRASHED_STEPS, "n": 0}, config(name), durability="sync"))

    threads = [threading.Thread(target=run, args=(f"t{n}",)) for n in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(6):
        time.sleep(0.2)
        assert any(thread.is_alive() for thread in threads), "the runs ended before the crash"
        own_server.stop("immediate")
        own_server.start()
    for thread in threads:
        thread.join()
    assert [[e["id"] for e in result["log"]] for result in results] == [list(range(CRASHED_STEPS))] * 2
    for n in range(2):
        assert app.get_state(config(f"t{n}")).values["n"] == CRASHED_STEPS
        assert len(saver.steps(f"t{n}")) == CRASHED_STEPS + 2
    saver.close()


def test_a_server_that_stays_away_is_said(own_server: LocalPostgres) -> None:
    """A bounded wait, then a message with the address and without the password."""
    saver = PostgresSaver.open(own_server.url.replace("postgres@", "postgres:secret@"), timeout=4)
    put(saver, {"x": 1})
    own_server.stop("immediate")
    with pytest.raises(UnreachableError, match="127.0.0.1") as caught:
        put(saver, {"x": 2}, version=2)
    assert "secret" not in str(caught.value)
    own_server.start()
    assert values(saver) == {"x": 1}
    put(saver, {"x": 2}, version=2)
    saver.close()
    own_server.stop()
    with pytest.raises(UnreachableError):
        PostgresSaver.open(own_server.url, timeout=1)


def test_terminated_backends_are_replaced(postgres_url: str) -> None:
    """An idle reaper between two steps is not noticed by the caller (F21)."""
    with PostgresSaver.open(postgres_url, pool_size=3) as saver:
        place = None
        for version in range(1, 6):
            place = put(saver, {"x": version}, after=place, version=version)
            with psycopg.connect(postgres_url, autocommit=True) as reaper:
                reaper.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE pid <> pg_backend_pid() AND datname = current_database()"
                )
        assert values(saver) == {"x": 5}


def test_cancelled_calls_leave_nothing_half_done(saver: Saver) -> None:
    """F24: a cancelled `aput` has happened or has not; nothing is locked, and the thread goes on."""

    async def main() -> int:
        happened, place = 0, None
        for version in range(1, 61):
            versions = {"x": version}
            checkpoint = {
                "v": 1,
                "id": f"c{version:03}",
                "ts": "",
                "channel_values": {"x": "v" * 99 + str(version)},
                "channel_versions": versions,
                "versions_seen": {},
            }
            call = asyncio.create_task(
                saver.aput(place or config(checkpoint_ns=""), checkpoint, {"source": "loop"}, versions)
            )
            await asyncio.sleep(0.0001 * (version % 30))
            call.cancel()
            try:
                place = await call
            except asyncio.CancelledError:
                await asyncio.sleep(0.02)
                found = await saver.aget_tuple(config(checkpoint_ns="", checkpoint_id=f"c{version:03}"))
                happened += found is not None
        await asyncio.wait_for(
            saver.aput(config(checkpoint_ns=""), checkpoint | {"id": "last"}, {"source": "loop"}, versions), 10
        )
        return happened

    asyncio.run(main())
    for found in saver.list(config()):
        assert found.checkpoint["channel_values"]["x"].startswith("v" * 99)
    assert saver.get_tuple(config()).checkpoint["id"] == "last"


QUESTIONS: dict[str, Callable[[Saver], Awaitable[Any]]] = {
    "aget_tuple": lambda saver: saver.aget_tuple(config()),
    "get_tuple": lambda saver: asyncio.to_thread(saver.get_tuple, config()),
    "aget_channel": lambda saver: saver.aget_channel(config(), "x"),
    "alist": lambda saver: anext(saver.alist(config()), None),
    "list": lambda saver: asyncio.to_thread(lambda: next(saver.list(config()), None)),
    "asteps": lambda saver: saver.asteps("t"),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_a_cancelled_call_still_stores_is_there_when_it_is_asked_for(saver: Saver, question: str) -> None:
    """A put that was given up while it was under way lands before what is asked, or done, after it."""
    begun, release = threading.Event(), threading.Event()

    def fault(_: int, request: Any) -> None:
        if is_write(request):
            begun.set()
            release.wait(10)

    async def main() -> None:
        slow = type(saver)(FaultyDatabase(saver.database, fault))
        new = {"x": 1}
        checkpoint = {"v": 1, "id": "c1", "ts": "", "channel_values": new, "channel_versions": new, "versions_seen": {}}
        call = asyncio.create_task(slow.aput(config(checkpoint_ns=""), checkpoint, {"source": "loop"}, new))
        assert await asyncio.to_thread(begun.wait, 10)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        asked = asyncio.ensure_future(QUESTIONS[question](slow))
        await asyncio.wait([asked], timeout=0.1)
        release.set()
        assert await asked

    asyncio.run(main())


def test_a_run_after_a_cancelled_one_goes_on_behind_all_that_was_done(saver: Saver) -> None:
    """Nodes were quicker than their steps are stored: who is cancelled then leaves LangGraph to put one after another."""
    done = asyncio.Event()

    async def work(state: Any) -> dict[str, Any]:
        if state["n"] == 11:
            done.set()
        return {"n": state["n"] + 1, "log": [state["n"]]}

    async def cancelled(thread: str) -> None:
        done.clear()
        slow = type(saver)(FaultyDatabase(saver.database, lambda _, request: time.sleep(0.02 * is_write(request))))
        builder = StateGraph(DeltaState)  # what tasks write of it is stored at once, not with the step that follows
        builder.add_node("work", work)
        builder.add_edge("__start__", "work")
        builder.add_conditional_edges("work", lambda s: "work" if s["n"] < 12 else "__end__", ["work", "__end__"])
        app = builder.compile(checkpointer=slow)
        run = asyncio.create_task(app.ainvoke({"n": 0}, config(thread), durability="async"))
        await done.wait()
        await asyncio.sleep(0.06)  # it waits for a dozen puts that each take a third of that
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        after = await app.ainvoke({"n": 11}, config(thread), durability="async")
        assert after["log"] == [*range(12), 11]

    async def main() -> None:
        for attempt in range(2):
            await cancelled(f"t{attempt}")

    asyncio.run(main())


def test_many_who_ask_while_much_is_stored_do_not_wait_for_what_stands_behind_them(saver: Saver) -> None:
    """Whoever waits for a write on a worker thread waits for none that needs that thread to begin."""

    async def main() -> None:
        places = [config(f"t{number}", checkpoint_ns="") for number in range(2)]
        slow = type(saver)(FaultyDatabase(saver.database, lambda _, request: time.sleep(0.01 * is_write(request))))

        async def write(place: Any) -> None:
            for version in range(12):
                new = {"x": version}
                checkpoint = empty_checkpoint() | {"channel_values": new, "channel_versions": new}
                place = await slow.aput(place, checkpoint, {"source": "loop"}, new)

        async def ask(place: Any) -> None:
            for _ in range(12):
                await slow.aget_tuple(place)

        await asyncio.wait_for(asyncio.gather(*(call(place) for place in places for call in (write, *[ask] * 24))), 60)

    asyncio.run(main())
    assert [info.checkpoints for info in saver.threads()] == [12] * 2


def test_retention_that_dies_half_way_changes_nothing(url: str) -> None:
    """A fault at any request of prune or retain leaves the thread as it was."""
    with reopen(url) as saver:
        loop(saver, DeltaState).invoke({"until": 30, "n": 0}, config())
        before = saver.usage("t"), loop(saver, DeltaState).get_state(config()).values
        number, failed = 0, True
        while failed:
            number += 1

            def fault(count: int, request: Any, number: int = number) -> None:
                if count == number:
                    raise OSError("injected")

            broken = type(saver)(FaultyDatabase(saver.database, fault))
            try:
                broken.prune(["t"])
                failed = False
            except StorageError:
                assert (saver.usage("t"), loop(saver, DeltaState).get_state(config()).values) == before
        assert number > 8
        assert loop(saver, DeltaState).get_state(config()).values == before[1]
        assert saver.retain(Keep(last=1)) == []
