"""Savers by address, and what adopting ours changes in a program: an import."""

from __future__ import annotations

import asyncio
import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from checkpointers import (
    CheckpointerError,
    MissingDriverError,
    PostgresSaver,
    SqliteSaver,
    StorageError,
    UnknownSchemeError,
    open_saver,
)
from tests.checkpointers.graphs import config, loop


@pytest.mark.parametrize("scheme", ["sqlite", "memory", "langgraph+sqlite", "postgresql", "langgraph+postgresql"])
def test_every_address_runs_a_graph_sync_and_async(scheme: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Each scheme gives a saver that works in both worlds and closes."""
    if "postgres" in scheme:
        address = ("langgraph+" if "+" in scheme else "") + request.getfixturevalue("postgres_url")
    else:
        address = "memory://" if scheme == "memory" else f"{scheme}:///{tmp_path}/a b%20.db"
    with open_saver(address) as saver:
        app = loop(saver)
        app.invoke({"until": 3, "n": 0}, config())
        asyncio.run(app.ainvoke({"until": 5, "n": 0}, config("async")))
        assert app.get_state(config()).values["n"] == 3

        async def history() -> int:
            return len([s async for s in app.aget_state_history(config("async"))])

        assert asyncio.run(history()) == 7


def test_relative_and_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three slashes are a relative path, four an absolute one."""
    monkeypatch.chdir(tmp_path)
    open_saver("sqlite:///here.db").close()
    open_saver(f"sqlite:///{tmp_path}/there.db").close()
    assert {p.name for p in tmp_path.glob("*.db")} == {"here.db", "there.db"}


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("agent.db", "sqlite:///agent.db"),
        ("mongodb://host/db", "there are langgraph\\+postgres.*checkpointers.backends"),
        ("sqlite://agent.db", "three slashes"),
        ("sqlite:///", "names no file"),
    ],
)
def test_a_wrong_address_says_what_would_be_right(address: str, said: str) -> None:
    """The message holds the next thing to type."""
    with pytest.raises(UnknownSchemeError, match=said):
        open_saver(address)


def test_other_packages_register_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry point of the group `checkpointers.backends` serves its scheme; one that does not load says so."""
    package = tmp_path / "other-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(
        "[checkpointers.backends]\nother = other_saver:opened\nbroken = nowhere_at_all:opened\n"
    )
    (tmp_path / "other_saver.py").write_text(
        "from checkpointers import SqliteSaver\ndef opened(url, **options):\n    return SqliteSaver.open(':memory:')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    with open_saver("other://anything") as saver:
        assert isinstance(saver, SqliteSaver)
    with pytest.raises(MissingDriverError, match="broken:// is served by other"):
        open_saver("broken://anything")


@pytest.mark.parametrize("address", ["postgresql://localhost/x", "langgraph+postgresql://localhost/x"])
def test_a_missing_driver_says_what_to_install(address: str, tmp_path: Path) -> None:
    """Without psycopg the message is the pip command, and files of either kind still open."""
    code = f"""
import sys
sys.modules["psycopg"] = None
from checkpointers import MissingDriverError, open_saver
open_saver("sqlite:///{tmp_path}/a.db").close()
open_saver("langgraph+sqlite:///{tmp_path}/b.db").close()
try:
    open_saver({address!r})
except MissingDriverError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'psycopg[binary,pool]'" in done.stdout


def test_adopting_ours_changes_an_import(tmp_path: Path, postgres_url: str) -> None:
    """Programs written for the official savers, sync and async, run as they are."""

    def sync_program(cls: Any, address: str) -> None:
        with cls.from_conn_string(address) as saver:
            saver.setup()
            loop(saver).invoke({"until": 3, "n": 0}, config("program"))

    async def async_program(cls: Any, address: str) -> None:
        async with cls.from_conn_string(address) as saver:
            await saver.setup()
            await loop(saver).ainvoke({"until": 3, "n": 0}, config("async program"))

    for cls, address in ((SqliteSaver, str(tmp_path / "p.db")), (PostgresSaver, postgres_url)):
        sync_program(cls, address)
        asyncio.run(async_program(cls, address))
        with cls.open(address) as saver:
            assert len(saver.threads()) == 2
    with PostgresSaver.from_conn_string(postgres_url, pipeline=True) as saver:
        assert len(saver.threads()) == 2


def test_schemas_are_apart(postgres_url: str) -> None:
    """Two schemas of one database do not see each other, whatever their names."""
    with PostgresSaver.open(postgres_url, schema="one") as one, PostgresSaver.open(postgres_url, schema="two") as two:
        loop(one).invoke({"until": 3, "n": 0}, config())
        assert two.get_tuple(config()) is None
        loop(two).invoke({"until": 4, "n": 0}, config())
        two.prune(["t"])
        assert (len(list(one.list(config()))), len(list(two.list(config())))) == (5, 1)
    for name in ("", 'o"dd', "a b", "%s", "x" * 64):
        with pytest.raises(StorageError, match="schema"):
            PostgresSaver.open(postgres_url, schema=name)


def test_a_saver_is_opened_not_made(tmp_path: Path) -> None:
    """The constructor of the official saver takes a connection; ours says what to call instead."""
    import sqlite3

    connection = sqlite3.connect(tmp_path / "x.db")
    with pytest.raises(CheckpointerError, match=r"SqliteSaver\.open"):
        SqliteSaver(connection)
    connection.close()
