"""What can be wrong with a database, a thread or a step, each with words and a code of its own; and that looking leaves no trace."""

# ruff: noqa: F401, F811  fixtures of another module

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver as OfficialPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver as OfficialSqliteSaver

from checkpointers import Saver, SqliteSaver, open_saver
from checkpointers.official import OfficialSqlite
from checkpointers.official_postgres import OfficialPostgres
from checkpointers.places import shown
from tests.checkpointers.graphs import config, loop
from tests.conftest import reopen
from tests.graph_agent.test_cli import Shell, rows, shell, waiting

ROOT = Path(__file__).parents[2]
NOBODY = 65_534
OF_A_THREAD = (
    ("log", "tt"), ("show", "tt@1"), ("diff", "tt@1", "tt@2"), ("diff", "t@1", "tt@1"), ("blame", "tt", "n"),
    ("bisect", "tt", "true"), ("grep", "x", "tt"), ("compare", "tt", "t"), ("compare", "t", "tt"), ("stats", "tt"),
    ("context", "tt@1"), ("du", "tt"), ("ledger", "tt"), ("fsck", "tt"), ("tail", "tt"), ("export", "tt"),
    ("review", "list", "tt"), ("review", "show", "tt"), ("copy", "tt", "x"), ("delete", "tt"), ("prune", "tt"),
    ("retain", "--last", "1", "--thread", "tt"),
)  # fmt: skip
OF_A_STEP = (
    ("show", "t@99"), ("show", "t@ffff"), ("diff", "t@1", "@99"), ("compare", "t@99", "t"), ("context", "t@99"),
    ("export", "t@99"),
)  # fmt: skip


@pytest.fixture
def there(saver: Saver) -> Saver:
    loop(saver).invoke({"until": 3, "n": 0}, config())
    return saver


@pytest.mark.parametrize("command", OF_A_THREAD, ids=lambda one: one[0])
def test_an_unknown_thread(shell: Shell, url: str, there: Saver, command: tuple[str, ...]) -> None:
    """Every command says so, with the nearest name."""
    code, out, told = shell(*command, "--db", url)
    assert (code, out) == (3, "")
    assert "no thread 'tt'; there is 't'" in told
    assert told.count("\n") == 1


@pytest.mark.parametrize("command", OF_A_STEP, ids=lambda one: one[0])
def test_an_unknown_step(shell: Shell, url: str, there: Saver, command: tuple[str, ...]) -> None:
    """Every command says so, with the steps that there are."""
    code, out, told = shell(*command, "--db", url)
    assert (code, out, told.count("\n")) == (3, "", 1)
    assert "steps 1 to 5" in told or "newest step is t@5" in told


def test_a_database_of_the_official_saver(shell: Shell, backend: str, url: str, tmp_path: Path) -> None:
    """Ours says how to open it; the official one's own address works, and nothing in it is changed."""
    kind = OfficialSqliteSaver if backend == "sqlite" else OfficialPostgresSaver
    with kind.from_conn_string(url.removeprefix("sqlite:///")) as official:
        official.setup()
        loop(official).invoke({"until": 3, "n": 0}, config())
    code, _, told = shell("log", "t", "--db", url)
    assert (code, "langgraph+" in told, "adopt" in told) == (1, True, True)
    before = _print(tmp_path)
    theirs = f"langgraph+{url}"
    assert len(rows(shell("log", "t", "--db", theirs)[1])) == 6
    assert rows(shell("threads", "--db", theirs)[1])[1:] == [["t", "5"]]
    assert rows(shell("threads", "--db", theirs, "--limit", "0")[1]) == [["THREAD", "STEPS"]]
    for option in ("--status", "--since", "--tag", "--goal"):
        code, out, told = shell("threads", "--db", theirs, option, "done")
        assert (code, out, option in told, "adopt" in told) == (2, "", True, True)
    for command in (("show", "t@3"), ("diff", "t@1", "@5"), ("blame", "t", "n"), ("grep", "entry"), ("compare", "t@2", "t"),
                    ("export", "t"), ("review", "list"), ("log", "t", "--graph")):  # fmt: skip
        code, out, told = shell(*command, "--db", theirs)
        assert (code, bool(out)) == (0, True), told
    for command in (("du",), ("ledger", "t"), ("fsck",), ("tail", "t"), ("delete", "t"), ("vacuum",)):
        code, out, told = shell(*command, "--db", theirs)
        assert (code, out, told.count("\n"), "graph-agent adopt" in told) == (1, "", 1, True)
    assert shell("log", "tt", "--db", theirs)[0] == 3
    assert {name: seen for name, seen in _print(tmp_path).items() if "-" not in name} == {
        name: seen for name, seen in before.items() if "-" not in name
    }


def test_a_saver_that_is_refused_is_closed(
    shell: Shell, backend: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that cannot work on a database of others leaves no connection to it open."""
    kind = OfficialSqlite if backend == "sqlite" else OfficialPostgres
    open_saver(f"langgraph+{url}").close()
    closed: list[Any] = []
    close = kind.close
    monkeypatch.setattr(kind, "close", lambda saver: closed.append(saver) or close(saver))
    assert shell("delete", "t", "--db", f"langgraph+{url}")[0] == 1
    assert len(closed) == 1


@pytest.mark.parametrize(
    "command", [("threads",), ("show", "t@1"), ("tail",), ("grep", "x"), ("migrate", "--yes"), ("doctor",)]
)
def test_a_wrong_path(shell: Shell, tmp_path: Path, command: tuple[str, ...]) -> None:
    """A file that is not there, one that is no database, an empty one: each its own code, and none is made."""
    (tmp_path / "empty.db").touch()
    (tmp_path / "text.db").write_text("no database " * 1_000)
    (tmp_path / "folder.db").mkdir()
    before = _print(tmp_path)
    for name, code, said in (
        ("nowhere.db", 3, "no such file"),
        ("folder.db", 3, "it is a folder"),
        ("text.db", 6, "not a database"),
        ("empty.db", 1, "no tables"),
    ):
        got, out, told = shell(*command, "--db", name)
        assert said in out + told
        assert got == (0 if command == ("doctor",) else code)
    assert {name: seen for name, seen in _print(tmp_path).items() if "pycache" not in name} == before


def test_a_wrong_server(shell: Shell, postgres_url: str) -> None:
    """Nobody there, no such database, and one without our tables."""
    nobody = "postgresql://127.0.0.1:1/x?connect_timeout=1"
    code, _, told = shell("threads", "--db", postgres_url)
    assert (code, "no tables" in told) == (1, True)
    code, _, told = shell("threads", "--db", nobody)
    assert (code, "start the server" in told) == (1, True)
    for address in (f"{postgres_url}x", f"langgraph+{postgres_url}x"):
        code, _, told = shell("log", "t", "--db", address)
        assert (code, "does not exist" in told, "--db" in told) == (3, True, True)


@pytest.mark.parametrize("address", [
    "postgresql://ada:hunter2@127.0.0.1:1/x?connect_timeout=1", "postgresql://ada:hunter2@127.0.0.1:1y/x",
    "postgresql://127.0.0.1:1/x?connect_timeout=1&password=hunter2", "sqlite://ada:hunter2@host/x.db",
    "ada:hunter2@host/x", "nobody://ada:hunter2@host/x", "nobody://:hunter2@host/x", "host=h password='hunter2 b'",
])  # fmt: skip
@pytest.mark.parametrize("command", [("doctor",), ("grep", "x")], ids=lambda one: one[0])
def test_a_password_is_never_printed(
    shell: Shell, address: str, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is wrong with the address that it stands in."""
    monkeypatch.setattr("graph_agent.cli.desk.PATIENCE", 0.1)
    code, out, told = shell(*command, "--db", address)
    assert "hunter2" not in out + told
    assert code == (0 if command == ("doctor",) else code) != 2
    assert out + told


def test_an_address_is_told_without_its_password(shell: Shell, postgres_url: str) -> None:
    """Also where the database is there; what is no password stays, so that a person knows which one it was."""
    with SqliteSaver.open("there.db"), reopen(postgres_url):
        pass
    with_password = postgres_url + ("&" if "?" in postgres_url else "?") + "password=hunter2"
    code, out, told = shell("grep", "nowhere", "--db", with_password)
    assert (code, "password=***" in told, "hunter2" in out + told) == (3, True, False)
    code, out, told = shell("delete", "t", "--db", "langgraph+sqlite:///there.db")
    assert (code, "langgraph+sqlite:///there.db is a database of other savers" in told) == (1, True)
    assert shown("postgresql://ada@host:5432/x?sslmode=require") == "postgresql://ada@host:5432/x?sslmode=require"
    assert shown("langgraph+postgresql://ada:a:b/c@d@host/x") == "langgraph+postgresql://ada:***@host/x"


def _print(folder: Path) -> dict[str, tuple[str, int]]:
    """Say of every file what is in it, and when it was changed."""
    return {
        str(file.relative_to(folder)): (hashlib.sha256(file.read_bytes()).hexdigest(), file.stat().st_mtime_ns)
        for file in folder.rglob("*") if file.is_file()
    }  # fmt: skip


LOOKS = (
    ("threads",), ("log", "ada"), ("log", "ada", "--graph"), ("show", "ada@3"), ("diff", "ada@2", "ada@3"),
    ("blame", "ada", "plan"), ("grep", "tell"), ("compare", "ada@3", "ada"), ("context", "ada@4"), ("stats", "ada"),
    ("tail",), ("du",), ("ledger", "ada"), ("fsck",), ("doctor",), ("review", "list"), ("review", "show", "ada"),
    ("export", "ada"), ("retain", "--last", "1"), ("prune", "ada"), ("delete", "ada"), ("migrate", "--plan"),
)  # fmt: skip


def test_looking_leaves_no_trace(shell: Shell, waiting: str, tmp_path: Path) -> None:
    """Not a byte, not a time, not a file beside it: also where a dry run opens it."""
    before = _print(tmp_path)
    assert not [name for name in before if name.endswith(("-wal", "-shm"))]
    for look in LOOKS:
        code, _, told = shell(*look)
        assert code == 0, (look, told)
        assert {name: seen for name, seen in _print(tmp_path).items() if "pycache" not in name} == {
            name: seen for name, seen in before.items() if "pycache" not in name
        }, look


def test_looking_where_nobody_may_write(shell: Shell, waiting: str, tmp_path: Path) -> None:
    """A file and a folder that may only be read, by somebody who is not their owner, nor root."""
    place = Path(mkdtemp())  # others may go through what is above it, and nobody else's folders are touched
    folder = place / "archive"
    folder.mkdir()
    shutil.copy(tmp_path / "agent.db", folder / "agent.db")
    try:
        (folder / "agent.db").chmod(0o444)
        folder.chmod(0o555)
        place.chmod(0o755)
        code = (
            "import os, sys; from graph_agent.cli import main\n"
            f"codes = lambda: [main(list(look)) for look in {LOOKS!r}]\n"
            f"codes(); os.getuid() or (os.setgroups([]), os.setgid({NOBODY}), os.setuid({NOBODY}))\n"
            "print(codes(), file=sys.stderr)"
        )  # first as who may read the packages, so that all are loaded
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip
        assert done.stderr.splitlines()[-1] == str([0] * len(LOOKS)), done.stderr
        assert [file.name for file in folder.iterdir()] == ["agent.db"]
    finally:
        folder.chmod(0o755)
        shutil.rmtree(place)


def test_looking_at_one_that_is_written(tmp_path: Path) -> None:
    """A reader that was there first sees what comes, and one that meets a writer disturbs it not."""
    from checkpointers.reader import open_reader

    url = f"sqlite:///{tmp_path}/live.db"
    with SqliteSaver.open(tmp_path / "live.db") as saver:
        loop(saver).invoke({"until": 3, "n": 0}, config())
    with open_reader(url) as reader:
        assert len(reader.steps("t")) == 5
        with SqliteSaver.open(tmp_path / "live.db") as saver:
            loop(saver).invoke({"until": 6, "n": 3}, config())
            assert [step.number for step in reader.steps("t")] == [step.number for step in saver.steps("t")]
            with open_reader(url) as other:
                assert len(other.steps("t")) == len(saver.steps("t"))
            saver.vacuum()
            loop(saver).invoke({"until": 8, "n": 6}, config())
            assert len(reader.steps("t")) == len(saver.steps("t"))
        count = len(reader.steps("t"))
        assert count > 5
    with open_reader(url) as reader:
        assert len(reader.steps("t")) == count
