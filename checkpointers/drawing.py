"""What a history, a step and a diff show of themselves: read from stored rows, states only where they are looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from checkpointers.show.cards import Card, Chip, Rows, Values, Words, cut, some
from checkpointers.show.drawn import page_of
from checkpointers.show.strip import DRAWN, Mark, kinds_of, picture_of
from checkpointers.show.text import amount, lasted, short
from checkpointers.threads import StepInfo
from checkpointers.timeline import Timeline

if TYPE_CHECKING:
    from checkpointers.history import History
    from checkpointers.step import Step

LISTED: Final = 12
WHEN: Final = "%Y-%m-%d %H:%M:%S"
Told = Callable[[StepInfo], Mapping[str, Any]]


def marks_of(timeline: Timeline, told: Told = lambda _: {}) -> list[Mark]:
    """Make the marks of the newest steps; `told` adds what the reader of a state knows of one."""
    infos = list(timeline.infos.values())[-DRAWN:]
    return [_mark(timeline, info, told(info)) for info in infos]


def _mark(timeline: Timeline, info: StepInfo, more: Mapping[str, Any]) -> Mark:
    parent, nodes = timeline.parent(info), timeline.nodes_of(info)
    name = ", ".join(name for name in nodes if name != "__start__") or ("" if nodes else info.source)
    own = {"kind": kinds_of(info.status, info.source, nodes), "name": name, **more}
    return Mark(info.number, parent.number if parent else None, info.at, **own)


def history_card(history: History, marks: list[Mark] | None = None, *, kind: str = "history") -> Card:
    """Show a thread: its picture, and its newest steps."""
    timeline = history._timeline  # noqa: SLF001  a part of the history that stands in a module of its own
    infos = list(timeline.infos.values())
    marks = marks_of(timeline) if marks is None else marks
    first, head = infos[0], infos[-1]
    facts = (
        ("steps", f"{len(infos):,}"), ("branches", _tips(infos) if _tips(infos) > 1 else None),
        ("from", f"{first.at:{WHEN}}"), ("to", f"{head.at:{WHEN}}"),
        ("lasted", lasted(abs((head.at - first.at).total_seconds()))),
        ("forked from", head.metadata.get("forked_from") or first.metadata.get("forked_from")),
    )  # fmt: skip
    hidden = len(infos) - len(marks)
    note = f"{amount(hidden, 'older step')} not drawn" if hidden else ""
    return Card(timeline.thread, kind, head.status, facts, some(picture_of(marks), _newest(timeline, marks)), note)


def _tips(infos: Iterable[StepInfo]) -> int:
    parents = {info.parent_id for info in infos}
    return sum(info.id not in parents for info in infos)


def _newest(timeline: Timeline, marks: list[Mark]) -> Rows:
    shown, hidden = cut(marks[::-1], LISTED)
    infos = timeline.infos
    parents = {info.parent_id for info in infos.values()}

    def stood(info: StepInfo) -> Chip | str:
        return "" if info.status == "pending" and info.id in parents else Chip(info.status)

    rows = [
        (f"@{mark.number}", f"{mark.at:%H:%M:%S}", mark.name, stood(infos[mark.number]), mark.told) for mark in shown
    ]
    older = hidden + len(infos) - len(marks)
    return Rows("newest steps", ("step", "at", "node", "status", ""), rows, older, "step", folded=True)


def step_card(step: Step, wrote: Mapping[str, Any] | None = None) -> Card:
    """Show a step: what it changed first, then all that there is; `wrote` is that, where it is known already."""
    wrote = step.wrote if wrote is None else wrote
    facts = (
        ("at", f"{step.at:{WHEN}}"), ("from", f"@{step.parent}" if step.parent else None), ("checkpoint", step.id),
    )  # fmt: skip
    made_by = ", ".join(step.nodes) or step.source
    return Card(str(step), "step", step.status, facts, some(
        *_troubles(step),
        Values("wrote", wrote) if wrote else Words("", "nothing of the state changed"),
        state_block(step.values),
    ), f"made by {made_by}")  # fmt: skip


def _troubles(step: Step) -> list[Words | Values]:
    if step.status not in ("waiting", "failed"):
        return []
    asked = [Values("asks", getattr(one, "value", one)) for one in step.interrupts[:LISTED]]
    return [*asked, *(Words("failed", short(error, 2_000, redact=False), tone="bad") for error in step.errors[:LISTED])]


def state_block(values: Mapping[str, Any]) -> Values | None:
    """Show a whole state, folded."""
    return Values(f"state: {amount(len(values), 'channel')}", dict(values), folded=True) if values else None


def export_html(history: History, path: str | Path | None = None, *, redact: bool = True) -> str:
    """Write a thread as one HTML file that needs nothing else: its picture, then each of its newest steps, folded.

    What looks like a secret is left out, unless `redact` is false.
    """
    history = history._gathered()  # noqa: SLF001  it goes through many states
    steps = list(history)
    cards = [history._card, *(step._card for step in reversed(steps))]  # noqa: SLF001  what shows itself
    page = page_of(f"{history.thread}: {amount(len(history), 'step')}", cards, redact=redact)
    if path is not None:
        Path(path).write_text(page, encoding="utf-8")
    return page
