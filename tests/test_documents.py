"""The documents cannot lie: their code runs and prints what they say, their commands exist, their links lead somewhere.

What they say of names, signatures and files is looked at in `test_documents_names`.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pytest
import typer
from langgraph_cli.cli import dev
from typer.main import get_command

from graph_agent.cli.main import ANYWHERE, application
from tests.notebooks_run import notebooks
from tests.reference import PACKAGES, reference

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(
    chain(
        ROOT.glob("*.md"),
        *((ROOT / folder).rglob("*.md") for folder in ("docs", "benchmarks", "notebooks")),
        (ROOT / "notebooks").glob("*.ipynb"),
    )
)
NAMES = [str(path.relative_to(ROOT)) for path in DOCUMENTS]
ELSEWHERE = {"docs/agent.md"}  # needs a model to answer: `test_notebook` has one
BEGUN = re.compile(
    r"^(?:(?:[-*>$] |[!%])\s*)*(?:(?:export )?[A-Z_]+=(?:'[^']*'|\S+?)[; ]+|cd \S+ && |uv run )*(?:\S*/bin/)?"
)
COMMAND = re.compile(r"^((?:graph-agent|make|langgraph|pip3? install|python3? -m)(?: (?! ).*)?)$")
SAYS = re.compile(r"(?m)^( *print\(.*\)) *# →(.*)$")
MARK = "\0"
USAGE: Any = typer.BadParameter.__base__
CLONE = "/path/to/clone"
PLACEHOLDER = re.compile(r"[A-Z][A-Z_]*")


def text_of(name: str) -> str:
    """Give a document; of a notebook what it says, for its code is run elsewhere."""
    text = (ROOT / name).read_text()
    if not name.endswith(".ipynb"):
        return text
    cells = json.loads(text)["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def blocks(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def ran(code: list[str], folder: Path, *, warnings: str = "ignore") -> str:
    """Run the blocks of a document, in order, in an empty folder, and give what they print.

    A `print` whose comment begins with an arrow must print just that, as its last line; `…` stands for anything.
    """
    folder.mkdir()
    script = folder.parent / f"{folder.name}.py"
    script.write_text(SAYS.sub(lambda line: f"{line[1]}; print({MARK + line[2]!r})", "\n".join(code)))
    done = subprocess.run(
        [sys.executable, "-W", warnings, str(script)], cwd=folder, env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2_000:]
    lines = done.stdout.splitlines()
    for printed, said in pairwise(lines):
        if said.startswith(MARK):
            wanted = ".*".join(map(re.escape, said.removeprefix(MARK).strip().split("…")))
            assert re.fullmatch(wanted, printed), f"{printed!r} is printed, and not {said.removeprefix(MARK)!r}"
    return done.stdout


@pytest.mark.parametrize("name", [name for name in NAMES if blocks(text_of(name)) and name not in ELSEWHERE])
def test_code_in_the_documents_runs(name: str, tmp_path: Path) -> None:
    """Every Python block of a document runs, in order, in an empty folder, and prints what it says."""
    ran(blocks(text_of(name)), tmp_path / "empty")


def test_the_check_of_code_can_fail(tmp_path: Path) -> None:
    """An error is noticed, and another word than the one that is said to be printed."""
    assert "yes, it is" in ran(['print("yes, it is")  # → yes…is\n'], tmp_path / "right")
    for number, wrong in enumerate(("print(nothing)", "print(1)  # → 2", 'print("12")  # → 1', "print(1)  # →  11")):
        with pytest.raises(AssertionError):
            ran([wrong], tmp_path / f"wrong{number}")


def spans(text: str) -> list[str]:
    """Give what stands between backticks in the prose of a document, in one line each."""
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return [
        " ".join(span.split())
        for part in re.split(r"\n\s*\n|\n(?=\|)", prose)
        for span in re.findall(r"`([^`]+)`", part)
    ]


def commands(text: str) -> Iterator[str]:
    """Give every command that a document tells somebody to type: in its text, in blocks, after a prompt."""
    text = re.sub(r"```(?:python|json|mermaid)\n.*?```", "", text, flags=re.DOTALL).replace("\\\n", " ")
    for line in [*spans(text), *(line.strip() for line in text.splitlines())]:
        if found := COMMAND.match(BEGUN.sub("", line)):
            yield found[1].partition("  #")[0].strip()


def options_of(command: Any) -> set[str]:
    return {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}


def check_verb(given: list[str]) -> None:
    """Read a command of ours as the shell reads it; one that is only named, with nothing after it, may lack arguments."""
    command: Any = get_command(application())
    name, words = "graph-agent", [word for word in given if word not in ANYWHERE and word not in ("…", "...")]
    if words and words[0].startswith("-"):
        assert set(words) <= {"--help", "--install-completion", "--show-completion", *options_of(command)}, words
        return
    while hasattr(command, "commands"):
        if not words or words[0] in ("VERB", "--help"):
            return
        if name == "review" and words[0] not in command.commands:
            words = ["list", *words]
        assert words[0] in command.commands, f"there is no command {words[0]!r}"
        name, *words = words
        command = command.commands[name]
    if words and "--help" not in words:
        try:
            command.make_context(name, ["1" if PLACEHOLDER.fullmatch(word) else word for word in words])
        except USAGE as error:
            raise AssertionError(f"{name} {words}: {error}") from error


def parts_of(command: str) -> Iterator[list[str]]:
    """Give the words of every command in a line, without what leads to and from files."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    tokens = iter(lexer)
    for token in tokens:
        if set(token) <= set("<>&") and token not in ("&", "&&"):
            words = words[:-1] if words[-1:] in (["1"], ["2"]) else words
            next(tokens)
        elif set(token) <= set("|&;"):
            yield words
            words = []
        else:
            words.append(token)
    yield words


def check(command: str) -> None:
    for words in parts_of(command):
        if words:
            check_words(words)


def check_words(words: list[str]) -> None:
    named = [word for word in words[1:] if not word.startswith("-")]
    if words[0] == "graph-agent":
        check_verb(words[1:])
    elif words[0] == "make":
        check_target(named)
    elif words[0] == "langgraph":
        assert named in ([], ["dev"]), words
        assert {word for word in words if word.startswith("-")} <= options_of(dev), words
    elif words[0] in ("python", "python3") and "-m" in words[1:2]:
        check_module(words[2], words[3:])
    elif words[0] in ("pip", "pip3"):
        for wanted in named[1:]:
            check_package(wanted)


def check_target(named: list[str]) -> None:
    """See that a target, or a variable that is set for it, is one of the Makefile."""
    targets = set(re.findall(r"^([a-z]+):", text_of("Makefile"), re.MULTILINE))
    set_there = {word.partition("=")[0] for word in named if "=" in word}
    assert {word for word in named if "=" not in word} <= targets, named
    assert set_there <= set(re.findall(r"\$\((\w+)\)", text_of("Makefile"))), named


def check_module(name: str, words: list[str]) -> None:
    """See that a module is there, that it takes the options, and that the tests and notebooks it is given are there."""
    found = find_spec(name)
    assert found, name
    if name == "graph_agent":
        return check_verb(words)
    if name == "pytest":
        assert all((ROOT / word.partition("::")[0]).exists() for word in words if not word.startswith("-")), words
        return None
    code = Path(found.origin or "").read_text()
    taken = {*re.findall(r"add_argument\(\s*\"(--[\w-]+)", code), "--help"}
    assert {word.strip("[]") for word in words if word.startswith(("-", "[-"))} <= taken, (name, words)
    assert not words or taken != {"--help"} or "sys.argv" in code, (name, words)
    if name == "tests.notebooks_run":
        assert all(map(notebooks, ([word] for word in words))), words
    return None


def check_package(wanted: str) -> None:
    """See that what is to be installed is ours, with extras that there are, or something that ours needs."""
    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    extras = project["optional-dependencies"]
    needed = {re.split(r"[^\w.-]", one)[0] for one in chain(project["dependencies"], *extras.values())}
    name, chosen = re.fullmatch(r"([\w./-]+)(?:\[([\w,]+)\])?.*", wanted).groups()
    ours = {project["name"], ".", CLONE}
    assert name in {*ours, *needed}, f"what is {name!r}?"
    assert name not in ours or set((chosen or "").split(",")) <= {"", *extras}, wanted


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
    for command in WRONG:
        with pytest.raises(AssertionError):
            check(command)
    for command in RIGHT:
        check(command)
    for line in SEEN:
        assert len(list(commands(line))) == 1, line
        with pytest.raises(AssertionError):
            check(*commands(line))


WRONG = (
    "graph-agent lag", "graph-agent Lag", "graph-agent LOG ada", "graph-agent log ada --nothing", "graph-agent blame ada",
    "graph-agent show a b c", "graph-agent export ada --to xml", "graph-agent retain --last many", "graph-agent --nothing",
    "graph-agent threads --status nonsense", "graph-agent threads && graph-agent lag", "graph-agent log ada; graph-agent lag",
    "graph-agent threads | graph-agent nothing", "graph-agent threads > x.txt && make nothing", "python -m graph_agent lag",
    "python -m benchmarks.nothing", "python -m pytest tests/no_such.py", "make nothing", "make demo; make nothing",
    "langgraph deev", "pip install graph-agnt", "pip install 'graph-agent[nothing]'", "pip3 install '.[nothing]'",
    "pip install graph-agent && graph-agent lag", "pip install '/path/to/clone[nothing]'", "pip install /path/to/nothing",
    "make fast PITEST='-k NAME'", "langgraph dev --no-brauser", "python -m benchmarks.storage --nothing 1",
    "python -m tests.reference --nothing", "python -m tests.reference now", "python -m tests.notebooks_run 09",
)  # fmt: skip
RIGHT = (
    "graph-agent", "graph-agent VERB …", "graph-agent blame", "graph-agent retain --last N --yes", "graph-agent show THREAD@N",
    "graph-agent review ada", "graph-agent review --help", "graph-agent --no-pager log ada", "graph-agent --version",
    "graph-agent bisect ada 'grep -q \"a; b | c\"'", "graph-agent threads --json 2> err.txt | head -n 3 > out.txt",
    "make demo", "python -m graph_agent log ada --graph", "pip install -e '.[dev]'", "langgraph dev --no-browser",
    "pip install '/path/to/clone[postgres,crypto]'", "make fast PYTEST='-k NAME'", "python -m tests.notebooks_run 01",
    "python -m benchmarks.slicing DATA.json --budget 2000 [--embeddings module:factory]", "python -m tests.proofs.mutants",
)  # fmt: skip
SEEN = (
    "    .venv/bin/graph-agent lag\n", "Type `!graph-agent lag`.", "- graph-agent lag", "> graph-agent lag",
    "`uv run graph-agent lag`", "`export GRAPH_AGENT_DB=x; graph-agent lag`", "`GRAPH_AGENT_DB='a b' graph-agent lag`",
    "`cd x && graph-agent lag`", "a line that ends with `graph-agent\nlag`", "| a | `graph-agent lag` |", "`%pip install graph-agnt`", "```sh\n$ graph-agent lag\n```",
)  # fmt: skip


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
