"""The legal phase changes; an illegal one is an error of the node that tried.

A new goal begins anew at `planning` from wherever the thread stands: that is a new start, and no change of phase.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

Phase = Literal["idle", "planning", "executing", "reflecting", "waiting", "stopped", "done", "error"]
PHASES: Final[tuple[str, ...]] = get_args(Phase)

_ANYWHERE: Final = frozenset({"stopped", "error"})
LEGAL: Final[dict[str, frozenset[str]]] = {
    "idle": frozenset({"planning"}) | _ANYWHERE,
    "planning": frozenset({"executing"}) | _ANYWHERE,
    "executing": frozenset({"reflecting", "waiting"}) | _ANYWHERE,
    "waiting": frozenset({"executing", "planning"}) | _ANYWHERE,
    "reflecting": frozenset({"executing", "planning", "done"}) | _ANYWHERE,
    "stopped": frozenset({"planning", "executing", "reflecting", "waiting"}) | _ANYWHERE,
    "error": frozenset({"planning", "executing", "reflecting", "waiting"}) | _ANYWHERE,
    "done": frozenset({"planning"}),
}


def is_legal(before: str, after: str) -> bool:
    """Tell whether a thread may go from one phase to another; staying is always allowed."""
    return before == after or after in LEGAL.get(before, ())


def illegal(before: str, *path: str) -> tuple[str, str] | None:
    """Give the first change on a path of phases that is not legal."""
    for after in path:
        if not is_legal(before, after):
            return before, after
        before = after
    return None
