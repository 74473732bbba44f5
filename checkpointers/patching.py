"""JSON Patch (RFC 6902): what makes one JSON document of another, and the doing of it; pure.

Items of lists are matched by their ids if every item of both lists has one of its own, else by their positions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from copy import deepcopy
from itertools import pairwise
from typing import Any, Final

from checkpointers.errors import HistoryError
from checkpointers.paths import ids_of

Operation = dict[str, Any]
_WHOLE: Final = ""


def patch(before: Any, after: Any) -> list[Operation]:
    """Give the operations that make `after` of `before`, both as JSON has them."""
    return list(_changes(before, after, _WHOLE))


def _changes(before: Any, after: Any, at: str) -> Iterator[Operation]:
    if before is after:
        return
    if type(before) is not type(after):
        yield {"op": "replace", "path": at, "value": after}
    elif isinstance(before, dict):
        yield from _of_objects(before, after, at)
    elif isinstance(before, list):
        yield from _of_lists(before, after, at)
    elif before != after:
        yield {"op": "replace", "path": at, "value": after}


def _of_objects(before: dict[str, Any], after: dict[str, Any], at: str) -> Iterator[Operation]:
    yield from ({"op": "remove", "path": _under(at, key)} for key in before if key not in after)
    for key, value in after.items():
        if key in before:
            yield from _changes(before[key], value, _under(at, key))
        else:
            yield {"op": "add", "path": _under(at, key), "value": value}


def _of_lists(before: list[Any], after: list[Any], at: str) -> Iterator[Operation]:
    start = _alike(before, after)
    before, after = before[start:], after[start:]
    old, new = ids_of(before), ids_of(after)
    if old is not None and new is not None:
        yield from _in_order(old, new, after, (at, start))
        known = dict(zip(old, before, strict=True))
        pairs = [(index, known[own]) for index, own in enumerate(new) if own in known]
    else:
        pairs = list(enumerate(before[: len(after)]))
        common, last = start + len(pairs), start + len(before) - 1
        yield from ({"op": "remove", "path": f"{at}/{n}"} for n in range(last, common - 1, -1))
        yield from ({"op": "add", "path": f"{at}/{n}", "value": after[n - start]}
                    for n in range(common, start + len(after)))  # fmt: skip
    for index, item in pairs:
        yield from _changes(item, after[index], f"{at}/{start + index}")


def _alike(before: Sequence[Any], after: Sequence[Any]) -> int:
    """Count the first items that are the same objects: no id of theirs is needed to know it."""
    differing = (index for index, (one, other) in enumerate(zip(before, after, strict=False)) if one is not other)
    return next(differing, min(len(before), len(after)))


def _in_order(
    old: Sequence[str], new: Sequence[str], after: Sequence[Any], where: tuple[str, int]
) -> Iterator[Operation]:
    """Remove, add and move items until they stand as they should; each goes right behind the one before it."""
    at, start = where
    kept = set(new)
    for index in range(len(old) - 1, -1, -1):
        if old[index] not in kept:
            yield {"op": "remove", "path": f"{at}/{start + index}"}
    now = [own for own in old if own in kept]
    stay = _staying(now, new)
    known, place = set(now), -1
    for target, own in enumerate(new):
        if own in stay:
            place = now.index(own, place + 1)
        elif own not in known:
            place += 1
            now.insert(place, own)
            yield {"op": "add", "path": f"{at}/{start + place}", "value": after[target]}
        else:
            source = now.index(own)
            place += source > place
            now.insert(place, now.pop(source))
            if source != place:
                yield {"op": "move", "from": f"{at}/{start + source}", "path": f"{at}/{start + place}"}


def _staying(now: Sequence[str], new: Sequence[str]) -> set[str]:
    """Name the items that need not move: as many as are in order already."""
    place = {own: index for index, own in enumerate(new)}
    numbers = rising([place[own] for own in now])
    return {own for own in now if place[own] in numbers}


def rising(numbers: Sequence[int]) -> set[int]:
    """Give as many of these numbers as possible that rise from left to right: the items that did not move."""
    if all(one < other for one, other in pairwise(numbers)):
        return set(numbers)
    ends: list[int] = []
    previous: dict[int, int | None] = {}
    for number in numbers:
        place = bisect_left(ends, number)
        previous[number] = ends[place - 1] if place else None
        ends[place : place + 1] = [number]
    chosen, last = set(), ends[-1] if ends else None
    while last is not None:
        chosen.add(last)
        last = previous[last]
    return chosen


def _under(at: str, key: str) -> str:
    return f"{at}/{key.replace('~', '~0').replace('/', '~1')}"


def applied(document: Any, operations: Sequence[Operation]) -> Any:
    """Do what a patch says to a copy of a document: `add`, `remove`, `replace` and `move`."""
    holder = {_WHOLE: deepcopy(document)}
    for operation in operations:
        try:
            _apply(holder, operation)
        except (LookupError, ValueError, TypeError, AttributeError) as error:
            raise HistoryError(f"this patch does not fit what it is applied to, at {operation!r:.200}") from error
    return holder[_WHOLE]


def _apply(holder: dict[str, Any], operation: Operation) -> None:
    kind, path = operation["op"], _keys(operation["path"])
    if kind not in ("add", "remove", "replace", "move"):
        raise ValueError(kind)
    value = deepcopy(operation["value"]) if "value" in operation else None
    if kind == "move":
        value = _removed(holder, _keys(operation["from"]))
    elif kind != "add":
        _removed(holder, path)
    if kind != "remove":
        _added(holder, path, value)


def _keys(pointer: str) -> list[str]:
    return [key.replace("~1", "/").replace("~0", "~") for key in pointer.split("/")]


def _removed(holder: dict[str, Any], path: Sequence[str]) -> Any:
    inside = _inside(holder, path)
    return inside.pop(_index(path[-1], len(inside)) if isinstance(inside, list) else path[-1])


def _added(holder: dict[str, Any], path: Sequence[str], value: Any) -> None:
    inside = _inside(holder, path)
    if isinstance(inside, list):
        inside.insert(_index(path[-1], len(inside) + 1), value)
    else:
        inside[path[-1]] = value


def _inside(holder: dict[str, Any], path: Sequence[str]) -> Any:
    value: Any = holder
    for key in path[:-1]:
        value = value[_index(key, len(value))] if isinstance(value, list) else value[key]
    return value


def _index(key: str, size: int) -> int:
    index = int(key)
    if not 0 <= index < size:
        raise IndexError(key)
    return index
