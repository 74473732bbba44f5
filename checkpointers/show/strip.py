"""A thread as a picture: lanes for branches, a mark for each step, bars for tokens, pauses drawn as breaks; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from statistics import median
from typing import Any, Final, Literal

from checkpointers.lanes import lanes
from checkpointers.redacting import redacted_text
from checkpointers.show.cards import Picture
from checkpointers.show.markup import NOTHING, Html, joined, tag, way
from checkpointers.show.text import amount, clipped, lasted

Kind = Literal["input", "node", "tool", "review", "failure", "change"]
DRAWN: Final = 1_000
LONGEST: Final = 2_000
LETTERS: Final = 14
LETTER: Final = 6.2
BREAK: Final = 40.0
LANE: Final = 26.0
BAND: Final = 18.0
BARS: Final = 46.0
LEFT: Final = 12.0
ROOMY: Final = 48
_SIGNS: Final[Mapping[Kind, str]] = {
    "input": "▶", "node": "●", "tool": "■", "review": "◆", "failure": "✕", "change": "○",
}  # fmt: skip
_WORDS: Final[Mapping[Kind, str]] = {
    "input": "input", "node": "step", "tool": "tool", "review": "waits for a person", "failure": "failure",
    "change": "changed or forked from outside",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mark:
    """What is drawn of one step."""

    number: int
    parent: int | None
    at: datetime
    kind: Kind
    name: str = ""
    told: str = ""
    phase: str = ""
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class _Plan:
    """Where everything stands."""

    x: Mapping[int, float]
    lane: Mapping[int, int]
    breaks: Sequence[tuple[float, str]]
    column: float
    width: float
    top: float
    bars: float
    height: float

    def y(self, number: int) -> float:
        return self.top + LANE * (self.lane[number] + 0.5)


def picture_of(marks: Sequence[Mark]) -> Picture:
    """Draw the newest of these steps, oldest first."""
    shown = marks[-DRAWN:]
    plan = _planned(shown)
    parts = joined(
        _phases(shown, plan), _links(shown, plan), _bars(shown, plan), _breaks(plan),
        *(_mark(mark, plan, room=90 if len(shown) <= 300 else 30) for mark in shown), _axis(shown, plan),  # noqa: PLR2004
    )  # fmt: skip
    words = f"{amount(len(shown), 'step')} in {amount(len(set(plan.lane.values())), 'branch')}"
    svg = tag("svg", tag("title", words), parts, width=plan.width, height=plan.height, role="img",
              viewbox=f"0 0 {plan.width:g} {plan.height:g}")  # fmt: skip
    used = {mark.kind for mark in shown}
    signs = [(_legend(kind), word) for kind, word in _WORDS.items() if kind in used]
    if any(mark.tokens for mark in shown):
        signs.append((_small(tag("rect", x=3, y=3, width=8, height=9, cls="y")), "tokens"))
    return Picture(svg, _lines(shown, plan), tuple(signs), from_end=len(shown) > ROOMY)


def _planned(marks: Sequence[Mark]) -> _Plan:
    placed = lanes([(mark.number, mark.parent) for mark in marks])
    lane = {mark.number: at.lane for mark, at in zip(marks, placed, strict=True)}
    column = 22.0 if len(marks) <= ROOMY else 13.0 if len(marks) <= 200 else 8.0  # noqa: PLR2004
    pauses = _pauses(marks)
    x, breaks, here = dict[int, float](), list[tuple[float, str]](), LEFT + 36
    for mark in marks:
        if mark.number in pauses:
            breaks.append((here + BREAK / 2, lasted(pauses[mark.number])))
            here += BREAK
        x[mark.number] = here + column / 2
        here += column
    top = BAND + 6 if any(mark.phase for mark in marks) else 2
    bars = top + LANE * (max(lane.values(), default=0) + 1) + 4
    names = max((len(mark.name) for mark in marks), default=0) if len(marks) <= ROOMY else 0
    room = (BARS if any(mark.tokens for mark in marks) else 0) + 18 + min(names, LETTERS) * LETTER * 0.87
    return _Plan(x, lane, breaks, column, here + LEFT + 24, top, bars, bars + room)


def _pauses(marks: Sequence[Mark]) -> dict[int, float]:
    """Give the steps before which nothing happened for much longer than usual, and how long."""
    waits = {after.number: (after.at - before.at).total_seconds() for before, after in pairwise(marks)}
    usual = median(waits.values()) if waits else 0.0
    longest = sorted((wait for wait in waits.values() if wait > max(5.0, 20 * usual)), reverse=True)[:40]
    return {number: wait for number, wait in waits.items() if longest and wait >= longest[-1]}


def _phases(marks: Sequence[Mark], plan: _Plan) -> Html:
    """Draw a band of phases over all; neighbours of one phase are one piece."""
    pieces: list[tuple[str, float, float]] = []
    for mark in marks:
        if not mark.phase:
            continue
        begins, ends = plan.x[mark.number] - plan.column / 2, plan.x[mark.number] + plan.column / 2
        if pieces and pieces[-1][0] == mark.phase and begins - pieces[-1][2] < 1:
            pieces[-1] = (mark.phase, pieces[-1][1], ends)
        else:
            pieces.append((mark.phase, begins, ends))
    return joined(*(_piece(piece, place) for place, piece in enumerate(pieces)))


def _piece(piece: tuple[str, float, float], place: int) -> Html:
    phase, begins, ends = piece
    tone = {"waiting": " wait", "error": " bad", "done": " good"}.get(phase, " a" * (place % 2))
    fitting = phase if len(phase) * LETTER < ends - begins else phase[:1].upper()
    rect = tag("rect", x=begins + 0.5, y=1, width=ends - begins - 1, height=BAND - 2, rx=3, cls=f"p{tone}")
    word = tag("text", clipped(fitting, 40), x=(begins + ends) / 2, y=BAND - 6, text_anchor="middle")
    return tag("g", tag("title", phase), rect, word)


def _links(marks: Sequence[Mark], plan: _Plan) -> Html:
    """Draw every step's way from its parent: in one lane a line, to another one a curve."""
    known = plan.x
    ways = [_link(mark.parent, mark.number, plan) for mark in marks if mark.parent in known]
    return tag("path", d="".join(ways), cls="e") if ways else NOTHING


def _link(parent: int | None, number: int, plan: _Plan) -> str:
    if parent is None:
        return ""
    x0, y0, x1, y1 = plan.x[parent], plan.y(parent), plan.x[number], plan.y(number)
    if y0 == y1:
        return f"M{x0:g} {y0:g}H{x1:g}"
    bend = min(plan.column * 1.5, x1 - x0)
    return f"M{x0:g} {y0:g}C{x0 + bend / 2:g} {y0:g} {x0 + bend / 2:g} {y1:g} {x0 + bend:g} {y1:g}H{x1:g}"


def _breaks(plan: _Plan) -> Html:
    """Draw pauses as cuts through all lanes, with how long they were."""
    drawn = []
    for x, words in plan.breaks:
        cut = "".join(f"M{x + dx:g} {plan.top:g}l4 6l-8 {plan.bars - plan.top - 14:g}l4 6" for dx in (-3, 3))
        rect = tag("rect", x=x - 5, y=plan.top, width=10, height=plan.bars - plan.top - 2, fill="var(--bg)")
        label = tag("text", words, x=x, y=plan.bars + 8, text_anchor="middle")
        drawn.append(
            tag("g", tag("title", f"nothing happened for {words}"), rect, tag("path", d=cut, cls="d e"), label)
        )
    return joined(*drawn)


def _bars(marks: Sequence[Mark], plan: _Plan) -> Html:
    """Draw the tokens of each step as bars, and the scale beside them."""
    most = max((mark.tokens for mark in marks), default=0)
    if not most:
        return NOTHING
    floor, wide = plan.bars + BARS - 4, max(3.0, plan.column - 6)
    high = {mark.number: max(1.5, (BARS - 12) * mark.tokens / most) for mark in marks if mark.tokens}
    bars = "".join(f"M{plan.x[n] - wide / 2:g} {floor:g}v-{h:.4g}h{wide:g}v{h:.4g}z" for n, h in high.items())
    scale = tag("text", _thousands(most), x=LEFT + 30, y=plan.bars + 14, text_anchor="end")
    line = tag("path", d=f"M{LEFT + 34:g} {floor:g}H{plan.width - LEFT:g}", cls="d")
    return joined(
        tag("path", d=bars, cls="y"), line, scale, tag("text", "0", x=LEFT + 30, y=floor + 3, text_anchor="end")
    )


def _thousands(number: int) -> str:
    return f"{number:,}" if number < 10_000 else f"{number / 1_000:,.0f}k"  # noqa: PLR2004


def _mark(mark: Mark, plan: _Plan, *, room: int) -> Html:
    x, column = plan.x[mark.number], plan.column
    hit = tag("path", d=f"M{x - column / 2:g} 0h{column:g}v{plan.bars + BARS - 4:g}h-{column:g}z", cls="x")
    told = f"@{mark.number} {clipped(mark.name, room // 2)} {clipped(redacted_text(mark.told[:LONGEST]), room)}".strip()
    if mark.tokens:
        told += f" · {amount(mark.tokens, 'token')}"
    return tag("g", tag("title", told), hit, _shape(mark.kind, x, plan.y(mark.number), min(5.5, column * 0.36)))


def _shape(kind: Kind, x: float, y: float, r: float) -> Html:
    """Draw a mark; each kind has a form of its own."""
    if kind == "tool":
        return tag("rect", x=round(x - r, 2), y=round(y - r, 2), width=2 * r, height=2 * r, cls="z tool")
    if kind == "review":
        d = way("M", x, y - r - 2, "l", r + 2, r + 2, "l", -r - 2, r + 2, "l", -r - 2, -r - 2, "z")
        return tag("path", d=d, cls="z wait")
    if kind == "failure":
        d = way("M", x - r, y - r, "L", x + r, y + r, "M", x - r, y + r, "L", x + r, y - r)
        return joined(tag("path", d=d, cls="cut under"), tag("path", d=d, cls="cut"))
    if kind == "input":
        d = way("M", x - r, y - r - 1, "l", 2 * r + 2, r + 1, "l", -2 * r - 2, r + 1, "z")
        return tag("path", d=d, cls="z")
    return tag("circle", cx=x, cy=y, r=r * 0.8 if kind == "node" else r, cls="z" if kind == "node" else "o")


def _axis(marks: Sequence[Mark], plan: _Plan) -> Html:
    """Write numbers under the steps, and their names where there is room."""
    foot = plan.bars + (BARS if any(mark.tokens for mark in marks) else 0)
    roomy = len(marks) <= ROOMY
    every = 1 if roomy else 5 if plan.column > 10 else 10  # noqa: PLR2004
    drawn = []
    for mark in marks:
        x = plan.x[mark.number]
        if mark.number % every == 0 or (roomy and every == 1):
            drawn.append(tag("text", str(mark.number), x=x, y=foot + 10, text_anchor="middle"))
        if roomy and mark.name:
            name, y = clipped(mark.name, LETTERS), foot + 20
            drawn.append(
                tag("text", name, transform=f"rotate(-60 {x + 4:g} {y:g})", x=x + 4, y=y, text_anchor="end", cls="t")
            )
    return joined(*drawn)


def _legend(kind: Kind) -> Html:
    return _small(_shape(kind, 7, 8, 4.5))


def _small(inside: Html) -> Html:
    return tag("svg", inside, width=14, height=16, viewbox="0 0 14 16", aria_hidden="true")


def _lines(marks: Sequence[Mark], plan: _Plan) -> tuple[str, ...]:
    """Draw it in letters: the newest steps, a line for each lane."""
    shown = marks[-72:]
    used = sorted({plan.lane[mark.number] for mark in shown})
    return tuple(
        "".join(_SIGNS[mark.kind] if plan.lane[mark.number] == lane else " " for mark in shown) for lane in used
    )


def kinds_of(
    status: str, source: str, nodes: Sequence[str], tools: frozenset[str] = frozenset({"tool", "tools"})
) -> Any:
    """Say as what a step of any graph is drawn."""
    if status == "failed":
        return "failure"
    if status == "waiting":
        return "review"
    if source in ("update", "fork"):
        return "change"
    if source == "input":
        return "input"
    return "tool" if tools & set(nodes) else "node"
