"""Values that states really hold, and what it means for two of them to be the same."""

from __future__ import annotations

import datetime as dt
import enum
import math
import uuid
from dataclasses import dataclass, fields, is_dataclass
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.types import Send


class Colour(enum.Enum):
    RED = "red"


class Mood(str, enum.Enum):  # noqa: UP042  the mixed-in form is the trap
    GOOD = "good"


@dataclass
class Point:
    x: int
    label: str | None = None


TYPES = (Colour, Mood, Point)


texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    st.sampled_from(["", "\x00", "a\x00b", "é", "\u202e", "🜁" * 40, "word " * 80]),
)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=True), texts, st.binary(max_size=60)
)  # fmt: skip
messages = st.one_of(
    st.builds(HumanMessage, content=texts, id=texts),
    st.builds(AIMessage, content=texts, id=texts, additional_kwargs=st.dictionaries(texts, scalars, max_size=2)),
    st.builds(ToolMessage, content=texts, tool_call_id=texts),
)
objects = st.one_of(
    messages,
    st.sampled_from([Colour.RED, Mood.GOOD, uuid.UUID(int=7), Decimal("1.10"), dt.date(2026, 1, 2), {"s"}, frozenset({1})]),
    st.builds(Point, st.integers(0, 9), st.none() | texts),
    st.builds(Send, st.just("node"), scalars),
    st.datetimes(timezones=st.none() | st.just(dt.UTC)),
)  # fmt: skip
keys = st.one_of(texts, st.integers(-9, 9), st.tuples(st.integers(0, 3), texts))
values = st.recursive(
    scalars | objects,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4) | st.tuples(inner, inner),
    max_leaves=12,
)
facts = st.fixed_dictionaries({"id": st.integers(0, 999), "text": st.text("abc ", min_size=20, max_size=200)})


def difference(a: Any, b: Any, path: str = "") -> str | None:
    """Say where two values differ in type or content; NaN equals NaN, order counts where it is kept."""
    if type(a) is not type(b):
        return f"{path}: {type(a).__name__} {a!r:.80} against {type(b).__name__} {b!r:.80}"
    if isinstance(a, float) and math.isnan(a) and math.isnan(b):
        return None
    if isinstance(a, list | tuple) and len(a) == len(b):
        return next(
            (d for i, (x, y) in enumerate(zip(a, b, strict=True)) if (d := difference(x, y, f"{path}[{i}]"))), None
        )
    if isinstance(a, dict) and list(map(repr, a)) == list(map(repr, b)):
        pairs = zip(a, a.values(), b.values(), strict=True)
        return next((d for key, x, y in pairs if (d := difference(x, y, f"{path}[{key!r:.20}]"))), None)
    if (is_dataclass(a) and not isinstance(a, type)) or hasattr(a, "__pydantic_fields__"):
        names = [f.name for f in fields(a)] if is_dataclass(a) else list(a.__dict__)
        found = (difference(getattr(a, n), getattr(b, n, None), f"{path}.{n}") for n in names)
        return next(filter(None, found), None)
    if isinstance(a, Send):
        return difference((a.node, a.arg), (b.node, b.arg), f"{path}.send")
    return None if a == b else f"{path}: {a!r:.200} against {b!r:.200}"


def same(a: Any, b: Any) -> bool:
    """Tell whether two values are the same."""
    return difference(a, b) is None
