"""What changed between two states: pure.

Items of a list are matched by their ids if every item of both lists has one of its own, else by their positions.
"""

from __future__ import annotations

import pickle
import reprlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from checkpointers.errors import HistoryError
from checkpointers.patching import Operation, patch, rising
from checkpointers.paths import ABSENT, fields_of, ids_of, is_list, joined, parse
from checkpointers.plain import as_json, visible
from checkpointers.show import Shows

if TYPE_CHECKING:
    from checkpointers.show.cards import Card

Kind = Literal["added", "removed", "changed", "moved"]
_SIGNS: Final[Mapping[Kind, str]] = {"added": "+", "removed": "-", "changed": "~", "moved": ">"}
SHOWN: Final = 60
PARTS: Final = 3
_SHORT: Final = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = SHOWN


@dataclass(frozen=True, slots=True)
class Change:
    """One change: at this path was `before`, and is `after`.

    What is added or moved in a list whose items have ids says at which `index` it stands there now; what only moved
    has its positions as `before` and `after`.
    """

    path: str
    before: Any
    after: Any
    kind: Kind
    index: int | None = None

    def __str__(self) -> str:
        """Say it in a line."""
        return visible(f"{_SIGNS[self.kind]} {self.path}  {told(self.kind, self.before, self.after)}")


@dataclass(frozen=True, slots=True)
class Stat:
    """How many changes of each kind a channel has."""

    added: int = 0
    removed: int = 0
    changed: int = 0
    moved: int = 0

    def __str__(self) -> str:
        """Say it as signs and numbers, without those that are none."""
        counts = {kind: getattr(self, kind) for kind in _SIGNS}
        return " ".join(f"{_SIGNS[kind]}{count}" for kind, count in counts.items() if count)


@dataclass(frozen=True, slots=True, repr=False)
class Diff(Shows):
    """The changes between two steps; there are none if it is false. `old` and `new` are the states."""

    before: str
    after: str
    changes: tuple[Change, ...]
    old: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)
    new: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)

    @property
    def stat(self) -> dict[str, Stat]:
        """Count the changes of each channel, by kind."""
        kinds: dict[str, Counter[str]] = {}
        for change in self:
            kinds.setdefault(str(parse(change.path)[0]), Counter())[change.kind] += 1
        return {channel: Stat(**counts) for channel, counts in kinds.items()}

    def json_patch(self) -> list[Operation]:
        """Give the changes as JSON Patch (RFC 6902): it makes the one state, as `as_json` gives it, of the other."""
        if self.old is None or self.new is None:
            raise HistoryError("a diff that was made without its states has no patch; use history.diff(…)")
        return patch(as_json(self.old), as_json(self.new))

    def __iter__(self) -> Iterator[Change]:
        """Go through the changes."""
        return iter(self.changes)

    def __len__(self) -> int:
        """Count the changes."""
        return len(self.changes)

    def __repr__(self) -> str:
        """Say it in few lines."""
        from checkpointers.show.text import brief  # noqa: PLC0415  loaded by who looks

        return brief(f"<Diff {self}>", width=200)

    def _card(self) -> Card:
        from checkpointers.show.differences import diff_card  # noqa: PLC0415  loaded by who looks

        return diff_card(self.before, self.after, self.changes)

    def __str__(self) -> str:
        """Say it in words, a line for each change."""
        count = f"{len(self)} change{'s' * (len(self) != 1)}"
        return "\n".join([visible(f"{self.before} → {self.after}: {count}"), *(f"  {change}" for change in self)])


def told(kind: Kind, before: Any, after: Any) -> str:
    """Show the values of a change, shortened."""
    if kind == "added":
        return _SHORT.repr(after)
    if kind == "changed" and (is_list(before) or isinstance(before, Mapping)):
        inside = list(compare(before, after))
        if inside and all(change.path for change in inside):  # what differs in it says more than both of it
            more = f"; … {len(inside) - PARTS} more" if len(inside) > PARTS else ""
            return "; ".join(map(str, inside[:PARTS])) + more
    return _SHORT.repr(before) if kind == "removed" else f"{_SHORT.repr(before)} → {_SHORT.repr(after)}"


def kind_of(before: Any, after: Any) -> Kind:
    """Name the change from one value to another; `ABSENT` is no value."""
    if before is ABSENT:
        return "added"
    return "removed" if after is ABSENT else "changed"


def same(before: Any, after: Any) -> bool:
    """Tell whether nothing changed; a value of another type is another value."""
    return next(compare(before, after), None) is None


def compare(before: Any, after: Any, path: str = "") -> Iterator[Change]:
    """Give every change from one value to another, as deep as it goes."""
    if before is after:
        return
    if before is ABSENT or after is ABSENT or type(before) is not type(after):
        yield Change(path, _shown(before), _shown(after), kind_of(before, after))
    elif isinstance(before, Mapping) and (keys := _keys(before, after)) is not None:
        for text, key in keys.items():
            old, new = before.get(key, ABSENT), after.get(key, ABSENT)
            if old is not new:
                yield from compare(old, new, joined(path, text))
    elif is_list(before):
        yield from _compare_lists(before, after, path)
    else:
        yield from _compare_objects(before, after, path)


def _shown(value: Any) -> Any:
    return None if value is ABSENT else value


def _keys(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> dict[str, Any] | None:
    """Give the keys of both by their texts, None if two have the same text: no path tells those apart."""
    keys = dict.fromkeys([*before, *after])
    texts = {str(key): key for key in keys}
    return texts if len(texts) == len(keys) else None


def _compare_objects(before: Any, after: Any, path: str) -> Iterator[Change]:
    old, new = (fields_of(value) if not isinstance(value, Mapping) else None for value in (before, after))
    changed = False
    for name in dict.fromkeys([*(old or ()), *(new or ())]):
        one, other = (old or {}).get(name, ABSENT), (new or {}).get(name, ABSENT)
        for change in compare(one, other, joined(path, name)) if one is not other else ():
            changed = True
            yield change
    if not changed and not _equal(before, after):
        yield Change(path, before, after, "changed")


def _equal(before: Any, after: Any) -> bool:
    """Compare what has no parts; what cannot be compared is compared as it would be pickled."""
    try:
        if bool(before == after) or bool(before != before and after != after):  # noqa: PLR0124  NaN
            return True
        if getattr(type(before), "__eq__", None) is not object.__eq__:
            return False
    except Exception:  # noqa: BLE001, S110  an array says neither yes nor no
        pass
    try:
        return pickle.dumps(before) == pickle.dumps(after)
    except Exception:  # noqa: BLE001  what cannot be compared at all is not known to be the same
        return False


def _compare_lists(before: Sequence[Any], after: Sequence[Any], path: str) -> Iterator[Change]:
    old, new = ids_of(before), ids_of(after)
    if old is not None and new is not None:
        yield from _compare_by_id(dict(zip(old, before, strict=True)), dict(zip(new, after, strict=True)), path)
        return
    common = min(len(before), len(after))
    for index, (one, other) in enumerate(zip(before, after, strict=False)):
        if one is not other:
            yield from compare(one, other, joined(path, index))
    for index in range(len(before) - 1, common - 1, -1):
        yield Change(joined(path, index), before[index], None, "removed")
    for index in range(common, len(after)):
        yield Change(joined(path, index), None, after[index], "added")


def _compare_by_id(before: dict[str, Any], after: dict[str, Any], path: str) -> Iterator[Change]:
    for own, item in before.items():
        if own in after:
            if item is not after[own]:
                yield from compare(item, after[own], joined(path, own))
        else:
            yield Change(joined(path, own), item, None, "removed")
    was = {own: index for index, own in enumerate(before)}
    now = {own: index for index, own in enumerate(after)}
    stay = rising([now[own] for own in before if own in after])
    for own, index in now.items():
        if own not in was:
            yield Change(joined(path, own), None, after[own], "added", index)
        elif index not in stay:
            yield Change(joined(path, own), was[own], index, "moved", index)
