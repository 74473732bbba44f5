"""What is handed out: the wheel has all it needs, and works alone; the source has all that its tests need."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.test_house import ROOT, files


def built(kind: str, folder: Path) -> Path:
    """Build a wheel or a source archive, without a network."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = folder.glob("graph_agent-*")
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel once."""
    return built("wheel", tmp_path_factory.mktemp("dist"))


def test_the_source_is_whole(tmp_path: Path) -> None:
    """Every file is in the source archive: its tests, and all that they read."""
    with tarfile.open(built("sdist", tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {str(path.relative_to(ROOT)) for path in files()} <= names


def test_it_has_all_it_needs_and_nothing_else(wheel: Path) -> None:
    """Both packages with their types and tables, the licence, the command; no tests, no notebooks."""
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"checkpointers", "graph_agent"}
    assert {"checkpointers/py.typed", "graph_agent/py.typed"} <= set(names)
    tables = {f"checkpointers/schema/{path.name}" for path in (ROOT / "checkpointers" / "schema").glob("*.sql")}
    assert tables <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    (entries,) = (name for name in names if name.endswith("entry_points.txt"))
    assert b"graph-agent = graph_agent.cli:main" in zipfile.ZipFile(wheel).read(entries)


def test_alone_it_plays_the_demo(wheel: Path, tmp_path: Path) -> None:
    """Unpacked beside what it depends on, away from the repository: the command runs, from the shell's door."""
    site, empty = tmp_path / "site", tmp_path / "empty"
    empty.mkdir()
    shutil.unpack_archive(wheel, site, "zip")
    code = (
        "import graph_agent, sys; assert graph_agent.__file__.startswith(sys.argv[1]), graph_agent.__file__;"
        "from graph_agent.cli import main; sys.exit(main(['demo', '--yes']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(site)], cwd=empty, env={"PYTHONPATH": str(site), "PATH": "", "HOME": str(empty)},
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-1_000:] + done.stderr[-2_000:]
    assert "deleted, each once: cache.bin, old.log; left: thesis.txt" in done.stdout
    assert list(empty.iterdir()) == []
