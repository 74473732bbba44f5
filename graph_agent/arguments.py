"""Arguments of a call as plain data: equal ones are written alike in every process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from graph_agent.patch import canonical


def plainly(made: BaseModel, **options: Any) -> dict[str, Any]:
    """Write checked arguments; a set comes in an order that does not depend on the process."""
    written: dict[str, Any] = _ordered(made.model_dump(**options), made.model_dump(mode="json", **options))
    return written


def _ordered(value: Any, written: Any) -> Any:
    """Sort what was a set; the rest has the order that it was given."""
    if isinstance(written, dict) and isinstance(value, Mapping):
        parts = zip(value.values(), written.items(), strict=True)
        return {name: _ordered(one, part) for one, (name, part) in parts}
    if isinstance(written, list) and isinstance(value, set | frozenset):
        inner = [sorted(part, key=canonical) if _all_sets(value) else part for part in written]
        return sorted(inner, key=canonical)
    if isinstance(written, list) and isinstance(value, list | tuple) and len(value) == len(written):
        return [_ordered(one, part) for one, part in zip(value, written, strict=True)]
    return written


def _all_sets(value: set[Any] | frozenset[Any]) -> bool:
    return all(isinstance(one, frozenset) for one in value)
