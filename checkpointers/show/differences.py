"""What a diff shows of itself: how much changed, and each change with its place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

from checkpointers.show.cards import Card, Chip, Edit, Named, Rows, cut

LISTED: Final = 60


class Change(Protocol):
    """One change."""

    @property
    def path(self) -> str: ...  # noqa: D102
    @property
    def before(self) -> Any: ...  # noqa: D102
    @property
    def after(self) -> Any: ...  # noqa: D102
    @property
    def kind(self) -> str: ...  # noqa: D102


def diff_card(before: str, after: str, changes: Sequence[Change]) -> Card:
    """Show the changes between two steps."""
    counts = Counter(change.kind for change in changes)
    facts = tuple((kind, f"{counts[kind]:,}") for kind in ("added", "removed", "changed", "moved") if counts[kind])
    shown, hidden = cut(changes, LISTED)
    rows = Rows("", ("", "path", "value"), list(_rows(shown)), hidden, "change")
    return Card(f"{before} → {after}", "diff", "" if changes else "same", facts, (rows,) if changes else ())


def _rows(changes: Iterable[Change]) -> Iterable[tuple[Any, ...]]:
    for change in changes:
        yield Chip(change.kind), change.path, Named(change.path, _value(change))


def _is_plain(value: Any) -> bool:
    """Tell whether this is text or something short."""
    return isinstance(value, str | bool | float | None) or (isinstance(value, int) and abs(value) < 1 << 64)


def _value(change: Change) -> Any:
    if change.kind == "added":
        return change.after
    if change.kind == "removed":
        return change.before
    if change.kind == "moved":
        return f"from place {change.before} to {change.after}"
    texts = [
        value if isinstance(value, str) else repr(value) for value in (change.before, change.after) if _is_plain(value)
    ]
    if len(texts) == 2:  # noqa: PLR2004  both
        return Edit(*texts)
    return {"before": change.before, "after": change.after}
