"""What the documents say of the code in passing: names, signatures and files are those that there are."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import checkpointers
import graph_agent
from checkpointers import Diff, Lease, Ledger, PostgresSaver, Saver, SqliteSaver, Step
from checkpointers.step import Step as AnyStep
from graph_agent import Agent, Run
from graph_agent.history import Moment, Shown, Timeline
from graph_agent.run import Review
from tests.test_documents import BEGUN, COMMAND, NAMES, ROOT, spans, text_of

PACKAGES = (checkpointers, graph_agent)
SOURCES = {path: path.read_text() for one in PACKAGES for path in Path(one.__file__).parent.rglob("*.py")}
CODE = "\n".join(SOURCES.values())
DEFINED = {
    name for found in re.findall(r"(?m)^(?:async )?(?:class|def) (\w+)|^(\w+)(?::.*)? = ", CODE) for name in found
}
# What the documents call these things by; an attribute of such a name is such a thing too.
KINDS: dict[str, tuple[type, ...]] = {
    "agent": (Agent,), "saver": (Saver, SqliteSaver, PostgresSaver), "history": (Timeline,), "timeline": (Timeline,),
    "run": (Run,), "step": (AnyStep, Step, Moment), "diff": (Diff,), "lease": (Lease,), "ledger": (Ledger,), "saw": (Shown,),
    "review": (Review,),
}  # fmt: skip
# Doors that hand on what they are given to another one.
BEHIND = {
    "run": "astream",
    "arun": "astream",
    "stream": "astream",
    "resume": "astream_resume",
    "aresume": "astream_resume",
}
DOORS = {kind for kinds in KINDS.values() for kind in kinds}
OTHERS = {"ChatOpenAI", "Send", "create_deep_agent", "copy_context", "to_thread"}  # of LangChain, LangGraph, Python
GONE = {"CHANGELOG.md"}  # what was there when it was written, and a reader's own
MADE = {"desk.py", "orders.txt", "schema/004_name.sqlite.sql", "schema/004_name.postgres.sql"}  # of the reader's own
WRITTEN = ("docs/reference/", "docs/cli.md", "benchmarks/RESULTS.md")  # by programs, from what there is
FILE = re.compile(r"[\w./-]+\.(?:py|md|sql|toml|txt|json|ipynb)")


def check(said: str) -> None:
    """See that what is said between backticks, if it is said of our code, is so."""
    if re.fullmatch(r"[./]*\w+\.db", said):
        return
    if FILE.fullmatch(said):
        assert said in MADE or any(ROOT.glob(said)) or any(ROOT.glob(f"*/{said}")) or any(ROOT.glob(f"*/*/{said}")), (
            said
        )
    elif re.fullmatch(r"(?:checkpointers|graph_agent)(?:[.:]\w+)+", said):
        assert f'"{said}"' in CODE or said in text_of("pyproject.toml") or resolved(said), said
    elif re.fullmatch(r"[A-Z]+[a-z]\w+", said):
        assert said in DEFINED | OTHERS or hasattr(builtins, said), f"there is no {said}"
    elif found := re.fullmatch(r"@?([\w.]+)\((.*)\)", said):
        check_signature(said, *found.groups())
        check_expressions(said)
    else:
        check_expressions(said)


def resolved(name: str) -> Any:
    """Give what a dotted name leads to."""
    first, *rest = re.split(r"[.:]", name)
    found = import_module(first)
    for part in rest:
        with suppress(ImportError):
            import_module(f"{found.__name__}.{part}") if inspect.ismodule(found) else None
        found = getattr(found, part)
    return found


def check_signature(said: str, name: str, inside: str) -> None:
    """Compare what is said to be a whole signature: one with a star, or one that names everything."""
    try:
        function = ast.parse(f"def f({inside}): ...").body[0]
    except SyntaxError:
        return
    assert isinstance(function, ast.FunctionDef)
    arguments = function.args
    named = [one.arg for one in (*arguments.args, *arguments.kwonlyargs)]
    defaults = dict(zip(reversed(arguments.args), reversed(arguments.defaults), strict=False))
    defaults |= {
        one: default for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if default
    }
    for function_ in called(name):
        takes = inspect.signature(function_).parameters
        whole = "*" in inside or ("…" not in inside and len(takes) > 2 and (defaults and set(named) >= set(takes)))
        if not whole or any(one.kind is one.VAR_KEYWORD for one in takes.values()):
            continue
        assert set(named) <= set(takes), f"{said}: {name} takes {', '.join(takes)}"
        for argument, default in defaults.items():
            with suppress(ValueError):
                there, told = takes[argument.arg].default, ast.literal_eval(default)
                assert there == told or (there is None and not told), f"{said}: {argument.arg}"


def called(name: str) -> list[Callable[..., Any]]:
    """Give the functions and methods that a call may mean."""
    *before, last = name.split(".")
    if before and before[0] in ("checkpointers", "graph_agent"):
        return [resolved(name)]
    if before:
        owners = KINDS.get(before[-1], ()) or tuple(
            getattr(one, before[-1]) for one in PACKAGES if before[-1] in one.__all__
        )
        return [bound(owner, last) for owner in owners if hasattr(owner, last)]
    found = [getattr(one, last) for one in PACKAGES if last in one.__all__]
    return found or [bound(door, last) for door in DOORS if callable(getattr(door, last, None))]


def bound(owner: type, name: str) -> Callable[..., Any]:
    """Give a method as it is called, without its first parameter."""
    member: Any = getattr(owner, BEHIND.get(name, name) if owner is Agent else name)
    if inspect.ismethod(member) or not inspect.isfunction(inspect.getattr_static(owner, name)):
        return member
    return member.__get__(object())


def check_expressions(said: str) -> None:
    """See that attributes of things of ours are there, and that calls take what they are given."""
    plain = re.sub(r"=(?=[,)])", "=...", said.removeprefix("@").removeprefix("with ").replace("…", "...")).rstrip(":")
    try:
        tree = ast.parse(re.sub(r"\.\.\.(?= \w)", "...,", plain))
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
            for kinds in filter(None, [KINDS.get(owner)]):
                assert any(hasattr(kind, node.attr) or node.attr in names_of(kind) for kind in kinds), (
                    f"{said}: {node.attr}"
                )
        elif isinstance(node, ast.Call):
            check_call(said, node)


def names_of(kind: type) -> Iterator[str]:
    """Give the fields of a class that its instances alone have."""
    for base in kind.__mro__:
        yield from getattr(base, "__annotations__", ())
        with suppress(OSError, TypeError):
            yield from re.findall(r"self\.(\w+)\b.* = ", inspect.getsource(base))


def check_call(said: str, call: ast.Call) -> None:
    """See that a call of something of ours takes these arguments."""
    name = ast.unparse(call.func)
    if not re.fullmatch(r"[\w.]+", name):
        return
    found = called(name)
    if not found:
        known = "." in name or name in DEFINED | OTHERS or hasattr(builtins, name)
        assert known or not call.keywords, f"{said}: there is no {name}"
        return
    positional = [
        argument for argument in call.args if not (isinstance(argument, ast.Constant) and argument.value is ...)
    ]
    problems = []
    for function in found:
        try:
            inspect.signature(function).bind_partial(*positional, **{one.arg: one for one in call.keywords if one.arg})
        except TypeError as error:
            problems.append(str(error))
    assert len(problems) < len(found), f"{said}: {problems}"


@pytest.mark.parametrize("name", [name for name in NAMES if name not in GONE])
def test_what_is_named_is_there(name: str) -> None:
    """Classes, methods, arguments, defaults and files between backticks."""
    for said in spans(text_of(name)):
        if not BEGUN.sub("", said).startswith(("graph-agent", "make ", "python")):
            check(said)


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith(WRITTEN)])
def test_every_block_is_of_a_kind_that_is_checked(name: str) -> None:
    """A block is Python that runs, commands, what they print, the house, settings, or a signature."""
    text = text_of(name)
    assert set(re.findall(r"(?ms)^```(\w*)$.*?^```$", text)) <= {"python"}
    for block in re.findall(r"(?<=\n\n)(?:    .*\n)+", re.sub(r"(?ms)^```.*?^```", "", text)):
        lines = [line.strip() for line in block.splitlines()]
        if all(COMMAND.match(BEGUN.sub("", line)) for line in lines) or "├──" in block:
            continue
        if lines[0].startswith("["):
            ((_, groups),) = tomllib.loads("\n".join(lines))["project"].items()
            assert all(f'"{group}"' in CODE for group in groups)
            continue
        for said in re.findall(r"(?ms)^@?[\w.]+\(.*?\)$", "\n".join(lines)):
            check(" ".join(said.split()))
        assert re.fullmatch(r"(?s)(?:@?[\w.]+\(.*?\)\n?)+", "\n".join(lines)), block


def test_the_house_is_as_it_is_drawn() -> None:
    """Every module stands in the tree of the architecture, and every one that stands there is a module."""
    (tree,) = re.findall(r"(?m)^    checkpointers/\n(?:    .*\n)+", text_of("ARCHITECTURE.md"))
    for package, drawn in zip(PACKAGES, tree.split("    graph_agent/\n"), strict=True):
        folder = Path(package.__file__).parent
        there = {path.name for path in folder.glob("*.py")} - {"__main__.py"}
        inside = {path.name for path in folder.glob("*/*.py")}
        named = set(re.findall(r"\b\w+\.py\b", drawn))
        assert there - named <= {"__init__.py"}, f"not drawn: {there - named}"
        assert named <= there | inside, f"not there: {named - there - inside}"
        folders = {path.name for path in folder.iterdir() if path.is_dir() and path.name != "__pycache__"}
        assert set(re.findall(r"\b(\w+)/(?= |$)", drawn)) - {package.__name__} <= folders
        assert all(f"{name}/" in drawn for name in folders)


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong",
    [
        "agent.frobnicate(thread)", "agent.runn", "agent.saver.leese(thread)", "saver.lease(thread, tttl=3)", "history.blamed",
        "Agent(model, savor=…)", "Budget(max_stepps=3)", "Context(bytes=23_000, tokens=None, turns=5, inline=2_048)",
        "adopt(source, into, *, threadz=None)", "saver.lease(thread, *, ttl=31)", "PatchErrror", "docs/no_such.md",
        "graph_agent.nothing", "checkpointers.reader.open_writer(url)", "checkpointers.History.blamed", "Keep(last=, lest=)",
        "open_savior(url, keys=…)", "run.statuss", "agent.run(goal, threads=…)", "@tool(risks=…)", 'step.valuess["headers"]',
    ],
)  # fmt: skip
def test_the_check_of_names_can_fail(wrong: str) -> None:
    """A name, an argument or a default that is another one is noticed."""
    with pytest.raises((AssertionError, AttributeError)):
        check(wrong)
