"""What to keep of a thread, and why: a policy and a pure plan. Nothing is deleted here."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from checkpointers.records import EPOCH, INTERRUPTED, NEAR

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_PERIODS: Final[Mapping[str, Callable[[datetime], object]]] = {
    "hourly": lambda t: (t.date(), t.hour),
    "daily": lambda t: t.date(),
    "weekly": lambda t: t.isocalendar()[:2],
    "monthly": lambda t: (t.year, t.month),
}


def duration(value: str | timedelta | float) -> timedelta:
    """Read `"30d"`, `"12h"`, seconds, or a timedelta."""
    if isinstance(value, timedelta):
        return value
    given = {"seconds": value} if isinstance(value, int | float) else {}
    if match := isinstance(value, str) and re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhdw])\s*", value):
        given = {_UNITS[match[2]]: float(match[1])}
    with suppress(ValueError, OverflowError):  # no number, or one of too many years
        if given:
            return timedelta(**given)
    msg = f"{value!r} is no duration; write a number and one of s, m, h, d, w, like '30d'"
    raise ValueError(msg)


@dataclass(frozen=True, kw_only=True)
class Keep:
    """What to keep of each thread; a checkpoint stays if any rule wants it, and the head always stays.

    `last` newest checkpoints · all `within` a duration · the newest of each of so many hours, days, weeks or months ·
    those `pinned`, as steps or `THREAD@STEP`. `max_age` is for whole threads: one not written to for longer goes,
    with everything in it, unless it waits for a review or is pinned.
    """

    last: int = 1
    within: str | timedelta | float | None = None
    hourly: int = 0
    daily: int = 0
    weekly: int = 0
    monthly: int = 0
    pinned: Sequence[int | str] = ()
    max_age: str | timedelta | float | None = None

    def __post_init__(self) -> None:
        """Refuse what makes no sense before anything is planned."""
        for name in ("last", *_PERIODS):
            if getattr(self, name) < 0:
                msg = f"Keep({name}={getattr(self, name)}) is negative"
                raise ValueError(msg)
        for value in (self.within, self.max_age):
            if value is not None:
                duration(value)
        if isinstance(self.pinned, str) or not isinstance(self.pinned, Sequence):
            msg = f"Keep(pinned={self.pinned!r}) names no steps; write [3, 'THREAD@5'] (a saver's pins always stay)"
            raise ValueError(msg)  # noqa: TRY004  as for the other nonsense


@dataclass(frozen=True, slots=True)
class Line:
    """What a plan needs to know of one checkpoint; `beside`: it is not on the way to where the thread stands."""

    step: int
    ns: str
    id: str
    parent: str | None
    at: datetime
    kinds: int = 0
    root: str | None = None
    beside: bool = False


@dataclass(frozen=True)
class Plan:
    """What would be kept of a thread and why, what would go, and what that frees (known once it is planned)."""

    thread: str
    kept: Mapping[int, Sequence[str]]
    dropped: Sequence[int]
    expired: bool = False
    frees: int = 0
    lines: Mapping[int, Line] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        """Say it in words, a line for each kept checkpoint."""
        if self.expired:
            return f"{self.thread}: expired, all {len(self.dropped)} checkpoints go, {self.frees:,} bytes"
        head = f"{self.thread}: keep {len(self.kept)}, drop {len(self.dropped)}, free {self.frees:,} bytes"
        rows = [f"  {self.thread}@{step}  {', '.join(reasons)}" for step, reasons in sorted(self.kept.items())]
        return "\n".join([head, *rows])


def plan(
    thread: str,
    keep: Keep,
    lines: Iterable[Line],
    *,
    now: datetime,
    pins: Iterable[int] = (),
    written: datetime | None = None,
) -> Plan:
    """Decide for every checkpoint of a thread, which was last `written` to, if not with a checkpoint; pure."""
    by_step = {line.step: line for line in lines}
    pinned = set(pins) | _pinned_steps(keep, thread)
    roots = sorted((line for line in by_step.values() if not line.ns), key=lambda line: -line.step)
    if not (written and _is_young(keep, written, now)) and _expired(keep, by_step, pinned, now):
        return Plan(thread, {}, sorted(by_step), expired=True, lines=by_step)
    reasons: dict[int, list[str]] = {}
    _keep_roots(reasons, keep, roots, pinned, now)
    _keep_fork_points(reasons, roots)
    _keep_calls(reasons, by_step, pinned)
    _keep_memories(reasons, by_step)
    return Plan(thread, reasons, sorted(set(by_step) - set(reasons)), lines=by_step)


def still_holds(decided: Plan, lines: Iterable[Line], pins: Iterable[int]) -> bool:
    """Tell whether a thread is still the one that was planned for.

    It may have grown since; but it may also have been taken back, or have begun anew with the same numbers, or a step
    that was to go is pinned.
    """
    now = {line.step: line.id for line in lines}
    then = {line.step: line.id for line in decided.lines.values()}
    grown = any(step not in then for step in now)
    same = all(then.get(step, id_) == id_ for step, id_ in now.items())
    kept = all(step in now for step in decided.kept)
    return same and kept and not (decided.expired and grown) and not set(pins) & set(decided.dropped)


def _keep_roots(
    reasons: dict[int, list[str]], keep: Keep, roots: Sequence[Line], pinned: set[int], now: datetime
) -> None:
    parents, head = {line.parent for line in roots}, head_of(roots)
    for place, line in enumerate(roots):
        why = reasons.setdefault(line.step, [])
        why += ["head"] * (line is head)
        why += [f"last {keep.last}"] * (place < keep.last)
        why += [f"within {keep.within}"] * (keep.within is not None and now - line.at <= duration(keep.within))
        why += ["pinned"] * (line.step in pinned)
        why += ["open review"] * bool(line.kinds & INTERRUPTED and line.id not in parents)
    for name, period in _PERIODS.items():
        for line in _newest_of_each(roots, period, getattr(keep, name)):
            reasons[line.step].append(f"{name}, {getattr(keep, name)}")
    for step in [step for step, why in reasons.items() if not why]:
        del reasons[step]


def head_of(roots: Iterable[Line]) -> Line | None:
    """Give where a thread stands: at its newest checkpoint that is not beside, if there is one."""
    return max(roots, key=lambda line: (not line.beside, line.step), default=None)


def _newest_of_each(roots: Sequence[Line], period: Callable[[datetime], object], count: int) -> list[Line]:
    newest: dict[object, Line] = {}
    for line in roots if count else ():
        if len(newest) < count or period(line.at) in newest:
            newest.setdefault(period(line.at), line)
    return list(newest.values())


def _keep_fork_points(reasons: dict[int, list[str]], roots: Sequence[Line]) -> None:
    """Keep the checkpoints where two kept branches meet, so that a fork still shows where it came from."""
    by_id = {line.id: line for line in roots}
    branches: dict[str, set[str]] = {}
    for line in [line for line in roots if line.step in reasons]:
        child, parent = line.id, line.parent
        while parent is not None and parent in by_id:
            known = parent in branches
            branches.setdefault(parent, set()).add(child)
            if known:
                break
            child, parent = parent, by_id[parent].parent
    for parent, children in branches.items():
        if len(children) > 1 and by_id[parent].step not in reasons:
            reasons[by_id[parent].step] = ["fork point"]


def _keep_calls(reasons: dict[int, list[str]], by_step: Mapping[int, Line], pinned: set[int]) -> None:
    """Keep what subgraphs stored for the kept checkpoints of their parent graph, and their newest otherwise."""
    kept = {by_step[step].id: step for step in reasons}
    stored = {line.id for line in by_step.values() if not line.ns}
    newest: dict[str, Line] = {}
    for line in sorted((line for line in by_step.values() if line.ns), key=lambda line: -line.step):
        called_from_stored = line.root is not None and line.root in stored
        if line.root in kept:
            reasons[line.step] = [f"called from step {kept[line.root or '']}"]
        elif line.step in pinned:
            reasons[line.step] = ["pinned"]
        elif line.ns not in newest and not (called_from_stored and ":" in line.ns):
            reasons[line.step] = ["head of its subgraph"]
        newest.setdefault(line.ns, line)


def _keep_memories(reasons: dict[int, list[str]], by_step: Mapping[int, Line]) -> None:
    """Keep what persistent subgraphs remembered at each kept checkpoint: whoever replays it goes on from there."""
    newest_first = sorted(by_step.values(), key=lambda line: -line.step)
    memories: dict[str, deque[Line]] = {}
    for line in newest_first:
        if line.ns and ":" not in line.ns:
            memories.setdefault(line.ns, deque()).append(line)
    for root in [line for line in newest_first if not line.ns and line.step in reasons]:
        for lines in memories.values():
            while lines and lines[0].step >= root.step + NEAR:
                lines.popleft()
            memory = next((line for line in lines if _is_before(line, root)), None)
            if memory is not None:
                reasons.setdefault(memory.step, [f"remembered at step {root.step}"])


def _is_before(line: Line, root: Line) -> bool:
    """Tell whether a subgraph that goes on from a root finds this: by the order of steps, near it by that of ids."""
    return line.step < root.step - NEAR or line.id < root.id


def _expired(keep: Keep, by_step: Mapping[int, Line], pinned: set[int], now: datetime) -> bool:
    if keep.max_age is None or not by_step or pinned & set(by_step):
        return False
    newest = max(by_step.values(), key=lambda line: line.step)
    return not newest.kinds & INTERRUPTED and not _is_young(keep, newest.at, now)


def _is_young(keep: Keep, at: datetime, now: datetime) -> bool:
    return keep.max_age is None or now - at <= duration(keep.max_age)


def _pinned_steps(keep: Keep, thread: str) -> set[int]:
    steps = set()
    for pin in keep.pinned:
        name, _, step = pin.rpartition("@") if isinstance(pin, str) else (thread, "", pin)
        if name == thread:
            steps.add(int(step))
    return steps


def moment(micros: int) -> datetime:
    """Give the time of stored microseconds."""
    return EPOCH + timedelta(0, 0, micros)
