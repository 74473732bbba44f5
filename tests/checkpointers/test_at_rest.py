"""A file that is only read: as it is where nobody writes it, beside its writer where somebody does; never stale, never torn."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpointers import NotADatabaseError, SqliteSaver, StorageError, sqlite_file
from checkpointers.statements import Statement
from tests.checkpointers.graphs import config, loop


def written(path: Path, *names: str, steps: int = 2) -> None:
    """Run these threads, and leave the file at rest."""
    with SqliteSaver.open(path) as saver:
        for name in names:
            loop(saver).invoke({"until": steps, "n": 0}, config(name))
    assert not Path(f"{path}-wal").exists()


def names(saver: SqliteSaver) -> set[str]:
    return {one.thread for one in saver.threads()}


def test_behind_a_link_the_newest_is_read(tmp_path: Path) -> None:
    """The log of a file stands beside the file, not beside a link that leads to it: what is in it is read."""
    (tmp_path / "real").mkdir()
    written(tmp_path / "real" / "x.db", "a")
    link = tmp_path / "x.db"
    link.symlink_to(tmp_path / "real" / "x.db")
    with SqliteSaver.open(link, read_only=True) as reader, SqliteSaver.open(tmp_path / "real" / "x.db") as writer:
        assert names(reader) == {"a"}
        loop(writer).invoke({"until": 2, "n": 0}, config("b"))
        assert names(reader) == {"a", "b"}
        with SqliteSaver.open(link, read_only=True) as late:
            assert names(late) == {"a", "b"}


def test_a_link_to_nothing_makes_a_file_for_its_owner(tmp_path: Path) -> None:
    """A database that is created through a link is as private as any."""
    (tmp_path / "x.db").symlink_to(tmp_path / "there.db")
    SqliteSaver.open(tmp_path / "x.db").close()
    assert (tmp_path / "there.db").stat().st_mode & 0o777 == 0o600


def test_a_relative_path_is_one_of_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who changes the folder of the process goes on reading the file that was opened."""
    written(tmp_path / "x.db", "a")
    monkeypatch.chdir(tmp_path)
    with SqliteSaver.open("x.db", read_only=True) as reader:
        monkeypatch.chdir("/")
        assert names(reader) == {"a"}
        written(tmp_path / "x.db", "b")
        assert names(reader) == {"a", "b"}


def test_what_lasts_is_told_and_not_looked_at_for_ever(tmp_path: Path) -> None:
    """An error that does not come from a writer is raised, beside a writer that has emptied its log too."""
    written(tmp_path / "x.db", "a")

    def wrong() -> Any:
        return (yield Statement("SELECT * FROM nothing_like_that", ()))

    with SqliteSaver.open(tmp_path / "x.db") as writer:
        loop(writer).invoke({"until": 2, "n": 0}, config("b"))
        with SqliteSaver.open(tmp_path / "x.db", read_only=True) as reader:
            writer.vacuum()
            with pytest.raises(StorageError, match="no such table"):
                reader.database.read(wrong)
        with (
            SqliteSaver.open(tmp_path / "x.db", read_only=True) as reader,
            pytest.raises(StorageError, match="no such table"),
        ):
            reader.database.read(wrong)


@pytest.mark.parametrize("deed", [lambda saver: saver.delete_thread("a"), lambda saver: saver.prune(["a"])])
def test_a_writer_between_two_statements_tears_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deed: Callable[[SqliteSaver], None]
) -> None:
    """A file at rest that is written in the middle of a look is looked at again: no thread seems damaged, none is mixed."""
    written(tmp_path / "origin.db", "a", "b", steps=12)
    real, crossed = sqlite_file._execute, 0
    for number in range(1, 9):
        path = tmp_path / f"{number}.db"
        shutil.copy(tmp_path / "origin.db", path)
        with SqliteSaver.open(path, read_only=True) as reader:
            seen = 0

            def crossing(connection: sqlite3.Connection, request: Any, path: Path = path, number: int = number) -> Any:
                nonlocal seen, crossed
                rows = real(connection, request)
                seen += 1
                if seen == number:
                    crossed += 1
                    monkeypatch.setattr(sqlite_file, "_execute", real)
                    with SqliteSaver.open(path) as writer:
                        deed(writer)
                return rows

            monkeypatch.setattr(sqlite_file, "_execute", crossing)
            found, steps = reader.get_tuple(config("a")), reader.steps("a")
            monkeypatch.setattr(sqlite_file, "_execute", real)
            assert found is None or found.checkpoint["channel_values"]["n"] == 12
            assert len(steps) in (0, 1, 14)
            assert reader.fsck() == []
    assert crossed >= 3


def test_a_time_that_is_put_back_hides_nothing(tmp_path: Path) -> None:
    """A copy or an archive may put the time of a file back: that it was written is noticed all the same."""
    path = tmp_path / "x.db"
    written(path, "a")
    before = path.stat()
    with SqliteSaver.open(path, read_only=True) as reader:
        assert names(reader) == {"a"}
        with SqliteSaver.open(path) as writer:
            writer.tag("a", "tagged")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert reader.threads()[0].tags == ("tagged",)


def test_what_is_no_database_is_told_where_it_is_only_read(tmp_path: Path) -> None:
    """Damage that comes while a file is open is an error, not a wait."""
    path = tmp_path / "x.db"
    written(path, "a", "b")
    with SqliteSaver.open(path, read_only=True) as reader:
        assert names(reader) == {"a", "b"}
        path.write_bytes(path.read_bytes()[:4096] + b"\xaa" * (path.stat().st_size - 4096))
        with pytest.raises(NotADatabaseError):
            reader.threads()


def test_a_log_in_a_folder_that_may_only_be_read(tmp_path: Path) -> None:
    """What a crash left beside a file cannot be read where nothing may be made: that is said, and what to do."""
    path = tmp_path / "x.db"
    folder = tmp_path / "archive"
    folder.mkdir()
    with SqliteSaver.open(path) as saver:
        loop(saver).invoke({"until": 2, "n": 0}, config("a"))
        for end in ("", "-wal"):
            shutil.copy(f"{path}{end}", folder / f"x.db{end}")
    folder.chmod(0o555)
    try:
        if os.access(folder, os.W_OK):  # root may write anywhere: the words alone are looked at
            told = sqlite_file._translated(str(path), _cannot_open(), log=True)
        else:
            with pytest.raises(StorageError) as caught:
                SqliteSaver.open(folder / "x.db", read_only=True)
            told = caught.value
    finally:
        folder.chmod(0o755)
    assert "a log stands beside it" in str(told)


def _cannot_open() -> sqlite3.Error:
    try:
        sqlite3.connect("file:/nowhere/at/all.db?mode=ro", uri=True).execute("SELECT 1")
    except sqlite3.Error as error:
        return error
    raise AssertionError
