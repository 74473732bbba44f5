"""The house rules that a machine can check."""

from __future__ import annotations

import ast
import inspect
import re
import statistics
import subprocess
import sys
from importlib import import_module
from itertools import chain
from pathlib import Path

import pytest

import checkpointers
from checkpointers import Ledger, Saver
from checkpointers.care import Care
from checkpointers.database import migrations
from checkpointers.upkeep import Upkeep

ROOT = Path(__file__).parent.parent
PRODUCT = [*sorted((ROOT / "checkpointers").rglob("*.py")), *sorted((ROOT / "graph_agent").rglob("*.py"))]
FOLDERS = ("checkpointers", "graph_agent", "tests", "benchmarks", "docs", "notebooks", ".ci")
TOP = ("*.md", "*.toml", "*.json", "constraints.txt", "Makefile", "LICENSE")


def files() -> list[Path]:
    """Give the files of the repository, also where it is no clone, or somebody else's."""
    inside = chain.from_iterable((ROOT / folder).rglob("*") for folder in FOLDERS)
    top = chain.from_iterable(ROOT.glob(pattern) for pattern in TOP)
    return sorted(path for path in {*inside, *top} if path.is_file() and "__pycache__" not in path.parts)


@pytest.mark.slow
def test_sizes() -> None:
    """Modules of at most 400 lines, functions of at most 60, half of them of at most 8."""
    lengths = []
    for path in PRODUCT:
        text = path.read_text()
        assert text.count("\n") <= 400, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lengths.append(node.end_lineno - node.lineno + 1)
                assert lengths[-1] <= 60, (path, node.name)
    assert statistics.median(lengths) <= 8


@pytest.mark.parametrize("cls", [Saver, Upkeep, Care, Ledger])
def test_every_method_has_its_twin(cls: type) -> None:
    """What is there sync is there async, with the same parameters."""
    own = {name: f for name, f in vars(cls).items() if inspect.isfunction(f) and not name.startswith("_")}
    alone = {"get_next_version", "setup", "close", "lease"}
    for name, function in own.items():
        if name in alone or (name[0] == "a" and name[1:] in own):
            continue
        twin = own.get(f"a{name}")
        assert twin is not None, name
        wanted, found = (list(inspect.signature(f).parameters.values()) for f in (function, twin))
        if not any(p.kind is p.VAR_KEYWORD for p in found):
            assert [(p.name, p.kind, p.default) for p in wanted] == [(p.name, p.kind, p.default) for p in found], name


def test_import_is_cheap() -> None:
    """`import checkpointers` loads nothing of LangGraph and no driver; a policy or an error does not either."""
    code = (
        "import sys, checkpointers; checkpointers.Keep; checkpointers.StorageError; dir(checkpointers);"
        "print([m for m in sys.modules if m.split('.')[0] in ('langgraph', 'langchain_core', 'psycopg', 'sqlite3', 'pydantic')])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_savers_do_not_pull_the_graph() -> None:
    """Opening and listing never imports `langgraph.graph`, which costs a second."""
    code = (
        "import sys; from checkpointers import SqliteSaver; s = SqliteSaver.open(':memory:'); s.threads(); s.close();"
        "print([m for m in sys.modules if m.startswith(('langgraph.graph', 'langgraph.pregel'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("package", ["checkpointers", "graph_agent"])
def test_no_public_name_is_a_module(package: str) -> None:
    """Importing a module binds its name in the package: one that is public too would be replaced by it."""
    modules = {path.stem for path in (ROOT / package).glob("*.py")} | {path.name for path in (ROOT / package).iterdir()}
    assert not modules & set(import_module(package).__all__)


def test_public_names_are_there_and_documented() -> None:
    """Every public name loads, has a docstring, and stands in the reference."""
    reference = (ROOT / "docs" / "checkpointers.md").read_text()
    for name in checkpointers.__all__:
        assert getattr(checkpointers, name).__doc__, name
        assert f"`{name}" in reference, name
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = checkpointers.Nothing


def test_both_databases_have_the_same_schema() -> None:
    """One logical schema: the same migrations, tables and columns in both dialects."""

    def shape(dialect: str) -> list[tuple[int, list[str]]]:
        found = []
        for number, text in migrations(dialect):
            words = re.sub(r"--.*|ALTER TABLE \w+ ALTER [^;]*;", "", text)
            for odd in ("BLOB", "BYTEA"):
                words = words.replace(odd, "BYTES")
            words = words.replace("BIGINT", "INTEGER")
            words = re.sub(
                r"INTEGER PRIMARY KEY AUTOINCREMENT|\w+ GENERATED ALWAYS AS IDENTITY PRIMARY KEY|INTEGER PRIMARY KEY",
                "KEY",
                words,
            )
            words = words.replace(" WITHOUT ROWID", "")
            found.append((number, words.split()))
        return found

    assert shape("sqlite") == shape("postgres")


def test_files_speak_of_the_product_alone() -> None:
    """No machine paths, no addresses of package indexes, no leftovers."""
    index = re.compile("|".join(("py" + r"pi\.org", "python" + "hosted", "npm" + r"js\.org", "index" + "-url")))
    assert len(files()) > 300
    for name in files():
        if name.suffix == ".png":
            continue
        text = name.read_text(errors="replace")
        assert not re.search(r"(^|[\s\"'=(])/(?:work|root|farm)/", text), name
        assert not index.search(text), name
        assert not re.search(r"\b(?:TO" + r"DO|FIX" + r"ME|X" + r"XX)\b", text), name
