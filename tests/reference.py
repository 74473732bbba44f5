"""The reference of the two packages, made of their docstrings: `python -m tests.reference` writes it."""

from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGES = ("checkpointers", "graph_agent")
WIDE = 110
INHERITED = (BaseException, dict, tuple, enum.Enum)


def reference(package: str) -> str:
    """Give the page of a package: its public names, what each takes and says of itself, and its methods."""
    module = import_module(package)
    found = {name: getattr(module, name) for name in sorted(module.__all__)}
    errors = {name: one for name, one in found.items() if inspect.isclass(one) and issubclass(one, BaseException)}
    parts = [
        f"# {package}: every public name\n\n{module.__doc__}\n\nWritten from the docstrings by `python -m tests.reference`."
    ]
    parts += [_entry(name, one) for name, one in found.items() if name not in errors]
    rows = "\n".join(f"| `{name}` | {_line(one.__doc__)} |" for name, one in errors.items())
    return "\n\n".join([*parts, f"## Errors and warnings\n\n| name | what happened |\n|---|---|\n{rows}"]) + "\n"


def _entry(name: str, one: Any) -> str:
    if not callable(one):
        return f"## {name}\n\n{inspect.getdoc(one)}"
    parts = [f"## {name}", _code(name, one), _prose(one)]
    if inspect.isclass(one):
        parts += ["\n".join(_member(member, found) for member, found in _members(one))]
        parts += ["What waits has an async twin, with an `a` before its name."] if _has_twins(one) else []
    return "\n\n".join(part for part in parts if part)


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    """Give the public methods and properties that are our own, twins as one, those of a base where it is ours."""
    own = [base for base in cls.__mro__ if base.__module__.split(".")[0] in PACKAGES]
    names = {name: member for base in reversed(own) for name, member in vars(base).items() if not name.startswith("_")}
    for name, member in sorted(names.items()):
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        twin = name[0] == "a" and name[1:] in names
        if not twin and (isinstance(member, property) or inspect.isfunction(function)):
            yield name, member


def _has_twins(cls: type) -> bool:
    return any(f"a{name}" in dir(cls) for name, _ in _members(cls))


def _member(name: str, member: Any) -> str:
    function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
    told = f"`{name}`" if isinstance(member, property) else f"`{_signature(name, function)}`"
    function = member.fget if isinstance(member, property) else function
    more = _arguments(inspect.getdoc(function) or "", "  ")
    return f"- {told}: {_line(function.__doc__)}" + (f"\n{more}" if more else "")


def _code(name: str, one: Any) -> str:
    if inspect.isclass(one) and issubclass(one, INHERITED):
        hints = {
            name: hint for base in reversed(one.__mro__) for name, hint in getattr(base, "__annotations__", {}).items()
        }
        return "\n".join(f"    {key}: {_type(hint)}" for key, hint in hints.items() if not key.startswith("_"))
    return f"    {_signature(name, one, wide=True)}"


def _signature(name: str, one: Any, *, wide: bool = False) -> str:
    """Give what something takes and gives, as it is written in the code."""
    found = inspect.signature(one)
    taken = [each for each in found.parameters.values() if each.name not in ("self", "cls")]
    told = [_parameter(each) for each in taken]
    first = next((place for place, each in enumerate(taken) if each.kind is each.KEYWORD_ONLY), None)
    if first is not None and not any(each.kind is each.VAR_POSITIONAL for each in taken):
        told.insert(first, "*")
    gives = (
        "" if inspect.isclass(one) or found.return_annotation is found.empty else f" → {_type(found.return_annotation)}"
    )
    text = f"{name}({', '.join(told)}){gives}"
    return text if not wide or len(text) <= WIDE else "\n    ".join(_wrapped(text, " " * (len(name) + 1)))


def _parameter(each: inspect.Parameter) -> str:
    stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
    told = f"{stars}{each.name}" + (f": {_type(each.annotation)}" if each.annotation is not each.empty else "")
    if each.default is each.empty:
        return told
    plain = isinstance(each.default, str | int | float | bool | tuple | dict | None)
    return f"{told} = {each.default!r}" if plain else f"{told} = …"


def _type(annotation: Any) -> str:
    if isinstance(annotation, str):
        return annotation
    return str(getattr(annotation, "__forward_arg__", None) or getattr(annotation, "__name__", annotation))


def _wrapped(text: str, indent: str) -> Iterator[str]:
    """Break a signature after commas that stand in no bracket but the first."""
    line, depth = "", 0
    for piece in re.findall(r"[\[\](){}]|, |[^\[\](){},]+|,", text):
        depth += (piece in "([{") - (piece in ")]}")
        line += piece
        if piece == ", " and depth == 1 and len(line) > WIDE - 30:
            yield line.rstrip()
            line = indent
    yield line


def _prose(one: Any) -> str:
    """Give a docstring as Markdown: a list of arguments as a list."""
    text = inspect.getdoc(one) or ""
    return "\n\n".join(part for part in (text.partition("\nArgs:\n")[0].strip(), _arguments(text)) if part)


def _arguments(text: str, indent: str = "") -> str:
    listed = re.sub(r"\n {8,}", " ", text.partition("\nArgs:\n")[2])
    return "\n".join(f"{indent}- `{name}`: {told.strip()}" for name, told in re.findall(r"    ([\w, ]+): (.*)", listed))


def _line(text: str | None) -> str:
    first = " ".join((text or "").strip().split("\n\n")[0].split())
    return first.replace("|", "\\|")


def write() -> None:
    """Write the pages."""
    folder = ROOT / "docs" / "reference"
    folder.mkdir(exist_ok=True)
    for package in PACKAGES:
        (folder / f"{package}.md").write_text(reference(package))


if __name__ == "__main__":
    write()
