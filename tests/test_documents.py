"""The documents cannot lie: their code runs, their commands exist, their links lead somewhere."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from graph_agent.cli.main import application
from tests.reference import PACKAGES, reference

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")])
NAMES = [str(path.relative_to(ROOT)) for path in DOCUMENTS]
ELSEWHERE = {"docs/agent.md"}  # needs a model to answer: `test_notebook` has one
COMMAND = re.compile(r"^(?:\$ )?((?:graph-agent|make|langgraph|pip install|python -m) ?.*)$")
ANSWERED = re.compile(r"^(?:[A-Z_]+=\S+ )*")


def text_of(name: str) -> str:
    return (ROOT / name).read_text()


def blocks(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("name", [name for name in NAMES if blocks(text_of(name)) and name not in ELSEWHERE])
def test_code_in_the_documents_runs(name: str, tmp_path: Path) -> None:
    """Every Python block of a document runs, in order, in an empty folder."""
    script = tmp_path / "doc.py"
    script.write_text("\n".join(blocks(text_of(name))))
    folder = tmp_path / "empty"
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script)], cwd=folder, env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, (name, done.stderr[-2_000:])


def commands(text: str) -> Iterator[str]:
    """Give every command that a document tells somebody to type: in its text, in blocks, after a prompt."""
    text = re.sub(r"```(?:python|json|mermaid)\n.*?```", "", text, flags=re.DOTALL).replace("\\\n", " ")
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    for line in [*spans, *(line.strip() for line in text.splitlines())]:
        if found := COMMAND.match(ANSWERED.sub("", line)):
            yield found[1].partition("  #")[0].strip()


def options_of(command: Any) -> set[str]:
    return {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}


def check_verb(words: list[str]) -> None:
    """See that a command of ours exists, with the options that are given to it."""
    command: Any = get_command(application())
    known = {"--help", "--install-completion", "--show-completion", *options_of(command)}
    for word in words:
        if not word.startswith("-") and getattr(command, "commands", None):
            assert word in command.commands or not word.islower(), f"there is no command {word!r}"
            command = command.commands.get(word, command)
            known |= options_of(command)
    given = {word.partition("=")[0] for word in words if re.match(r"--?[a-zA-Z]", word)}
    assert given <= known, (words, given - known)


def check(command: str) -> None:
    words = shlex.split(re.split(r" [|>&<] ?| && ", command)[0])
    if words[0] == "graph-agent":
        check_verb(words[1:])
    elif words[0] == "make":
        targets = set(re.findall(r"^([a-z]+):", text_of("Makefile"), re.MULTILINE))
        assert {word for word in words[1:] if "=" not in word} <= targets, command
    elif words[0] == "python":
        assert find_spec(words[2]), command
    elif words[0] == "pip":
        extras = tomllib.loads(text_of("pyproject.toml"))["project"]["optional-dependencies"]
        for wanted in re.findall(r"graph-agent\[([\w,]+)\]", command):
            assert set(wanted.split(",")) <= extras.keys(), command


@pytest.mark.parametrize("name", NAMES)
def test_commands_in_the_documents_exist(name: str) -> None:
    """Every command, with its options, is one that there is; the reference of the shell is made of real output."""
    for command in commands(text_of(name)):
        check(command)


def test_the_check_of_commands_can_fail() -> None:
    """What is not there is noticed: a verb, an option, a target, a module, an extra."""
    told = "Type `graph-agent log ada --failed` or `make test`:\n\n    $ graph-agent threads --json | head\n"
    assert list(commands(told)) == [
        "graph-agent log ada --failed", "make test", "graph-agent threads --json | head",
    ]  # fmt: skip
    wrong = ("graph-agent lag", "graph-agent log ada --nothing", "make nothing", "python -m benchmarks.nothing")
    for command in (*wrong, "pip install 'graph-agent[nothing]'"):
        with pytest.raises(AssertionError):
            check(command)


def anchors(text: str) -> set[str]:
    """Give the places that a link may lead to, as forges name them."""
    return {
        re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    }


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name: str) -> None:
    """Every link within the repository leads to a file, and to a heading of it."""
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(name)):
        if target.startswith(("http:", "https:")):
            continue
        path, _, anchor = target.partition("#")
        there = (ROOT / name).parent / path if path else ROOT / name
        assert there.exists(), (name, target)
        assert not anchor or anchor in anchors(there.read_text()), (name, target)


def test_tests_that_are_named_exist() -> None:
    """The tests that invariants, findings and threats name are there."""
    named = {test for name in NAMES for test in re.findall(r"`(test_\w+)`", text_of(name))}
    code = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    assert len(named) > 100
    assert named <= set(re.findall(r"^def (test_\w+)", code, re.MULTILINE)) | {
        path.stem for path in (ROOT / "tests").rglob("test_*.py")
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_the_reference_is_what_the_docstrings_say(package: str) -> None:
    """`python -m tests.reference` was run after the last change of a docstring or a signature."""
    assert text_of(f"docs/reference/{package}.md") == reference(package)
