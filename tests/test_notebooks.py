"""The notebooks run top to bottom, show what is stored in them, and what is stored tells nothing of a machine."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError

from tests.notebooks_run import FOLDER, executed, notebooks, steady, told, written

TELLTALE = re.compile(
    r"(?<![\w.])/(?:tmp|home|root|Users|work|var|private|opt|usr)/|[A-Z]:\\\\|<script|javascript:|[Tt]raceback|\x1b\["
)
EACH = pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)


def code(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def plain(cell: Any) -> list[str]:
    """Give what a cell shows as text, without what is another one each time."""
    return [
        f"{output.output_type} {steady(output.get('text') or output.get('data', {}).get('text/plain', ''))}"
        for output in told(cell)
    ]


def notebook_of(path: Path, *sources: str) -> Path:
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(one) for one in sources]), path)
    return path


def test_there_are_eight() -> None:
    assert [path.name[:2] for path in notebooks()] == [f"{number:02}" for number in range(1, 9)]


@pytest.mark.slow
@EACH
def test_it_shows_what_is_stored(path: Path, request: pytest.FixtureRequest) -> None:
    """A fresh run raises nothing and says the same; `python -m tests.notebooks_run` stores what it says now."""
    own = "TEST_POSTGRES_URL" in os.environ and path.name.startswith("06")
    fresh = executed(path, {"TEST_POSTGRES_URL": request.getfixturevalue("postgres_url")} if own else {})
    stored = nbformat.read(path, as_version=4)
    for old, new in zip(code(stored), code(fresh), strict=True):
        assert plain(new) == plain(old), new.source


@EACH
def test_what_is_stored_reads_well(path: Path) -> None:
    """Every cell was run, in order; no output has a path, an error, a script or a warning."""
    stored = nbformat.read(path, as_version=4)
    nbformat.validate(stored)
    assert [cell.execution_count for cell in code(stored)] == list(range(1, len(code(stored)) + 1))
    assert not any(cell.metadata for cell in stored.cells)
    for cell in code(stored):
        for output in cell.outputs:
            assert output.output_type in ("stream", "display_data", "execute_result")
            assert output.get("name") != "stderr", output.get("text")
            texts = [output.get("text", ""), *(t for k, t in output.get("data", {}).items() if k != "image/png")]
            assert [found[0] for text in texts for found in TELLTALE.finditer(text)] == []


@EACH
def test_its_links_lead_somewhere(path: Path) -> None:
    """Relative links of the prose are files of the repository."""
    prose = "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown")
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", prose)
    assert [link for link in links if not (FOLDER / link).exists()] == []
    assert prose.startswith("# ")


@pytest.mark.slow
def test_a_notebook_has_no_network(tmp_path: Path) -> None:
    """This machine answers; nobody else is asked."""
    here = "import socket; server = socket.create_server(('127.0.0.1', 0)); _ = socket.create_connection(server.getsockname())"
    away = "import urllib.request; urllib.request.urlopen('http://example.invalid')"
    assert executed(notebook_of(tmp_path / "here.ipynb", here)).cells[0].outputs == []
    for source in (away, "socket.create_connection(('192.0.2.1', 80), 1)"):
        with pytest.raises(CellExecutionError, match="a notebook asked for the network"):
            executed(notebook_of(tmp_path / "away.ipynb", "import socket", source))


def shown(path: Path, *texts: str) -> Any:
    """Make a notebook that was run."""
    notebook = nbformat.read(notebook_of(path, *("print()" for _ in texts)), as_version=4)
    for cell, text in zip(notebook.cells, texts, strict=True):
        cell.outputs = [nbformat.v4.new_output("stream", text=text)]
    nbformat.write(notebook, path)
    return notebook


def test_what_says_the_same_is_left_as_it_is(tmp_path: Path) -> None:
    """Another time is no other word; where a word is another, all is stored, for times in one notebook belong together."""
    path = tmp_path / "stored.ipynb"
    shown(path, "at 2026-01-02 03:04:05 in 0.5 s", "done")
    later = "at 2027-06-07 08:09:10 in 12 s"
    assert written(path, shown(tmp_path / "same.ipynb", later, "done")) == 0
    assert nbformat.read(path, as_version=4).cells[0].outputs[0].text.startswith("at 2026")
    assert written(path, shown(tmp_path / "other.ipynb", later, "failed")) == 1
    assert [cell.outputs[0].text for cell in code(nbformat.read(path, as_version=4))] == [later, "failed"]
