"""What a node writes: built with helpers, checked before anything is stored.

A patch that is written twice changes nothing: the ids of its records follow from what they say.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Annotated, Any, Final, NotRequired, Required, get_args, get_origin, get_type_hints

from pydantic import PydanticSchemaGenerationError, TypeAdapter, ValidationError

from graph_agent.errors import PatchError, SetupError
from graph_agent.state import PlanStep, Trust

INT_BITS: Final = 64
MAX_DEPTH: Final = 100


def hashed(*parts: str, length: int = 10) -> str:
    """Give a short name that follows from texts."""
    return hashlib.sha256("\x1f".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:length]


def canonical(value: Any) -> str:
    """Write plain data in the one way that makes equal data equal text."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)


@dataclass(frozen=True, slots=True)
class Patch:
    """Changes of the state. Each method gives a new patch with one change more."""

    changes: Mapping[str, Any] = field(default_factory=dict)
    counts: Mapping[str, float] = field(default_factory=dict)

    def set(self, key: str, value: Any) -> Patch:
        """Write a key as it is; its reducer joins it with what is there."""
        return replace(self, changes={**self.changes, key: value})

    def add(self, key: str, *records: Mapping[str, Any]) -> Patch:
        """Add records to a list, or change those with the same id."""
        return self.set(key, [*self.changes.get(key, ()), *records])

    def fact(
        self, text: str, *, source: str = "agent", trust: Trust = "agent", step: str = "", contradicts: str = ""
    ) -> Patch:
        """Append a fact; one that contradicts a plan step makes the agent plan anew."""
        record = {"id": f"f-{hashed(text, source)}", "text": text, "source": source, "trust": trust, "step": step}
        return self.add("facts", {**record, **({"contradicts": contradicts} if contradicts else {})})

    def replace_plan(self, steps: Iterable[str | Mapping[str, Any]]) -> Patch:
        """Adopt a plan: open steps of the one before are dropped, unless they are taken over."""
        written = [{"title": step} if isinstance(step, str) else dict(step) for step in steps]
        for step in written:
            step.setdefault("id", f"s-{hashed(step.get('title', ''), step.get('detail', ''), length=8)}")
            step.setdefault("status", "open")
            step.setdefault("result", "")
        plan = hashed(*(step["id"] for step in written), length=8)
        return self.add("plan", *({**step, "plan": plan} for step in written))

    def step_done(self, step: PlanStep, result: str = "") -> Patch:
        """Mark a plan step as done."""
        return self.add("plan", {"id": step["id"], "status": "done", "result": result})

    def question(self, text: str) -> Patch:
        """Add an open question, which is shown to the model until it is answered; `ask_user` is what waits."""
        return self.add("questions", {"id": f"q-{hashed(text)}", "text": text, "status": "open"})

    def flag(self, text: str, *, source: str = "agent", step: str = "", name: str = "") -> Patch:
        """Raise a risk flag."""
        record = {"id": name or f"r-{hashed(text)}", "text": text, "source": source, "step": step, "raised": True}
        return self.add("risk_flags", record)

    def lower(self, name: str) -> Patch:
        """Lower a risk flag."""
        return self.add("risk_flags", {"id": name, "raised": False})

    def note(self, text: str, *, step: str = "") -> Patch:
        """Write a working note, which the user does not see."""
        return self.add("notes", {"id": f"n-{hashed(text, step)}", "role": "user", "content": text, "step": step})

    def say(self, text: str, *, at: str = "", name: str = "") -> Patch:
        """Say something to the user."""
        return self.add(
            "messages", {"id": name or f"m-{hashed(text, at)}", "role": "assistant", "content": text, "at": at}
        )

    def count(self, name: str, amount: float = 1) -> Patch:
        """Increment a counter."""
        return replace(self, counts={**self.counts, name: self.counts.get(name, 0) + amount})

    def __or__(self, other: Patch) -> Patch:
        """Join two patches: lists one after the other, anything else as the second says."""
        changes = dict(self.changes)
        for key, value in other.changes.items():
            mine = changes.get(key)
            changes[key] = [*mine, *value] if isinstance(mine, list) and isinstance(value, list) else value
        counts = {name: self.counts.get(name, 0) + other.counts.get(name, 0) for name in (*self.counts, *other.counts)}
        return Patch(changes, counts)


class Checker:
    """Checks what is written against the types of a state."""

    def __init__(self, schema: type[Any]) -> None:
        """Read the types once; every key needs a reducer, or two parallel writes would poison a thread."""
        self.keys = get_type_hints(schema, include_extras=True)
        for key, hint in self.keys.items():
            if get_origin(hint) in (Required, NotRequired):
                hint = self.keys[key] = get_args(hint)[0]  # noqa: PLW2901  the wrapper says nothing about the value
            reducer = getattr(hint, "__metadata__", (None,))[-1]
            if not callable(reducer):
                plain = get_args(hint)[0] if get_origin(hint) is Annotated else hint
                msg = f"the state key {key!r} has no reducer; write it as Annotated[{_name(plain)}, latest]"
                raise SetupError(msg, key=key)

    def check(self, node: str, changes: Mapping[str, Any]) -> None:
        """Refuse an unknown key, a wrong type, and what no database keeps as it is; name the place."""
        for key, value in changes.items():
            if key not in self.keys:
                close = ", ".join(sorted(self.keys))
                raise PatchError(node=node, key=key, path="", reason=f"there is no such key; the keys are {close}")
            if problem := unkeepable(value):
                raise PatchError(node=node, key=key, path=problem[0], reason=problem[1])
            if isinstance(value, str) and "\x00" in value:  # Postgres has no such text in a column of its own
                raise PatchError(node=node, key=key, path="", reason="the text has a NUL; `clean` makes it visible")
            adapter = _adapter(self.keys[key])
            try:
                if adapter is not None:
                    adapter.validate_python(value, strict=True)
            except ValidationError as error:
                first = error.errors()[0]
                path = "".join(f"[{part!r}]" for part in first["loc"])
                raise PatchError(node=node, key=key, path=path, reason=first["msg"]) from error


@cache
def _adapter(hint: Any) -> TypeAdapter[Any] | None:
    try:
        return TypeAdapter(hint)
    except PydanticSchemaGenerationError:
        return None


def _name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint).replace("typing.", "")


def unkeepable(value: Any, path: str = "", depth: int = 0) -> tuple[str, str] | None:
    """Find what would not come back as it is."""
    if isinstance(value, str):
        return None if value.isascii() or _encodes(value) else (path, "the text has a lone surrogate")
    if isinstance(value, float):
        return None if math.isfinite(value) else (path, f"{value} is no number that JSON has")
    if isinstance(value, int):
        return None if value.bit_length() < INT_BITS else (path, "the integer is over 64 bits; write it as text")
    if type(value) is tuple:
        return path, "a tuple comes back as a list; write a list"
    if depth > MAX_DEPTH:
        return path[:80], f"nested over {MAX_DEPTH} deep"
    return next((found for step, part in _parts(value) if (found := unkeepable(part, path + step, depth + 1))), None)


def _parts(value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((f"[{key!r}]", key) for key in value)
        yield from ((f"[{key!r}]", part) for key, part in value.items())
    elif isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        yield from ((f"[{index}]", part) for index, part in enumerate(value))


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def clean(text: str) -> str:
    """Make text from a model or a tool storable everywhere: a NUL and a lone surrogate become visible marks."""
    return text.replace("\x00", "\u2400").encode("utf-8", "replace").decode()
