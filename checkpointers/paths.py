"""Paths into a state: `facts.build.text`, `messages.m3.content`, `log[0]`, `facts["a.b"]`; pure.

A part is a key of a mapping, the id of a list's item, an index, or an attribute of an object. An index is in brackets;
in a list whose items have no ids it may also stand as `.0`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from enum import Enum
from functools import lru_cache
from typing import Any, Final, Literal
from uuid import UUID

from checkpointers.errors import HistoryError

Part = str | int
Form = Literal["mapping", "named", "object", "atom"]
ABSENT: Final = object()
SHOWN: Final = 5
_PART: Final = re.compile(r'\[(-?\d+)\]|\[("(?:[^"\\]|\\.)*")\]|\.?([^.\[\]"]+)', re.DOTALL)
_PLAIN: Final = re.compile(r'[^.\[\]"]+')


def parse(path: str) -> tuple[Part, ...]:
    """Read a path; what is in brackets is an index, or any text in quotes."""
    parts: list[Part] = []
    end = 0
    while match := _PART.match(path, end):
        index, quoted, name = match.groups()
        if name is not None and (end == 0) == match[0].startswith("."):
            break
        parts.append(int(index) if index else json.loads(quoted) if quoted else name)
        end = match.end()
    if not parts or end != len(path):
        msg = f'{path!r} is no path; write it like facts.build, log[0] or facts["a.b"]'
        raise HistoryError(msg)
    return tuple(parts)


def joined(path: str, part: Part) -> str:
    """Write a path one part longer, so that `parse` reads it as it is meant."""
    if isinstance(part, int):
        return f"{path}[{part}]"
    if not _PLAIN.fullmatch(part):
        return f"{path}[{json.dumps(part, ensure_ascii=False)}]"
    return f"{path}.{part}" if path else part


def written(parts: Sequence[Part]) -> str:
    """Write a path."""
    path = ""
    for part in parts:
        path = joined(path, part)
    return path


def look(value: Any, parts: Sequence[Part]) -> Any:
    """Give what is at a path, `ABSENT` if nothing is."""
    for part in parts:
        value = _into(value, part)
        if value is ABSENT:
            break
    return value


def _into(value: Any, part: Part) -> Any:
    if isinstance(value, Mapping):
        named = {str(key): key for key in value} if part not in value else {str(part): part}
        return value[named[str(part)]] if str(part) in named else ABSENT
    if is_list(value):
        return _item(value, part)
    return (fields_of(value) or {}).get(str(part), ABSENT)


def _item(items: Sequence[Any], part: Part) -> Any:
    """Find an item; in a list whose items have ids of their own a number without brackets is an id."""
    if isinstance(part, str):
        found = next((item for item in items if id_of(item) == part), ABSENT)
        if found is not ABSENT or ids_of(items) or not re.fullmatch(r"-?\d{1,9}", part):
            return found
    index = int(part)
    return items[index] if -len(items) <= index < len(items) else ABSENT


def is_list(value: Any) -> bool:
    """Tell whether this is a list or a tuple without names."""
    return isinstance(value, list | tuple) and not hasattr(value, "_fields")


def id_of(item: Any) -> str | None:
    """Give the id that a list's item has, as text: its key or its attribute `id`."""
    own = _named_id(item, _form_of(item.__class__))
    if type(own) is str:
        return own
    return str(own) if isinstance(own, str | int | UUID) and not isinstance(own, bool) else None


def _named_id(item: Any, form: Form) -> Any:
    """Give what has the name `id`, without making the other parts of an object."""
    if form == "mapping":
        return item.get("id")
    if form == "named":
        return (fields_of(item) or {}).get("id")
    if form == "atom":
        return None
    extra = getattr(item, "__pydantic_extra__", None) or {}
    return extra["id"] if "id" in extra else getattr(item, "__dict__", {}).get("id")


@lru_cache(1_000)
def _form_of(kind: type) -> Form:
    """Say how the parts of what has this type are found; asking each of many items costs more than looking at it."""
    if issubclass(kind, Mapping):
        return "mapping"
    if issubclass(kind, type | Enum) or kind in (str, int, float, bool, bytes, type(None)):
        return "atom"
    return "named" if is_dataclass(kind) or issubclass(kind, tuple) else "object"


def ids_of(items: Sequence[Any]) -> list[str] | None:
    """Give the ids of a list's items if each has one of its own, else None."""
    ids = [own for item in items if (own := id_of(item)) is not None]
    return ids if len(ids) == len(items) == len(set(ids)) else None


def fields_of(value: Any) -> Mapping[str, Any] | None:
    """Give the named parts of an object that is data, None for one that is a value of its own."""
    if isinstance(value, type | Enum) or value is None:
        return None
    if is_dataclass(value):
        return {f.name: getattr(value, f.name) for f in fields(value) if hasattr(value, f.name)}
    if isinstance(value, tuple):
        return {name: getattr(value, name) for name in getattr(value, "_fields", ())}
    own = {name: part for name, part in getattr(value, "__dict__", {}).items() if not name.startswith("_")}
    return own | (getattr(value, "__pydantic_extra__", None) or {}) or None


def near(value: Any, parts: Sequence[Part]) -> list[str]:
    """Give paths that are there and like one that is not."""
    known = 0
    while known < len(parts) and (inside := _into(value, parts[known])) is not ABSENT:
        value, known = inside, known + 1
    names = {str(name): name for name in _names(value)}
    like = get_close_matches(str(parts[known]), names, SHOWN, 0.5) if known < len(parts) else []
    return [written([*parts[:known], names[name]]) for name in like or list(names)[:SHOWN]]


def _names(value: Any) -> Sequence[Part]:
    if is_list(value):
        return ids_of(value) or range(len(value))
    return [str(name) for name in (value if isinstance(value, Mapping) else fields_of(value) or ())]
