"""What something shows of itself, as plain data: a title, how it stands, facts, blocks of words, rows and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from checkpointers.show.markup import Html

Tone = Literal["good", "wait", "bad", "plain"]
_TONES: Final[dict[str, tuple[Tone, str]]] = {
    "done": ("good", "✓"), "undone": ("good", "✓"), "approved": ("good", "✓"), "exact": ("good", "✓"),
    "added": ("good", "+"), "read_only": ("plain", "○"), "write_local": ("plain", "◔"),
    "external_action": ("wait", "◑"), "irreversible": ("bad", "●"),
    "waiting": ("wait", "◆"), "planned": ("wait", "◇"), "stopped": ("wait", "■"), "in doubt": ("wait", "?"),
    "retrying": ("wait", "↻"), "expired": ("wait", "⧗"), "changed": ("wait", "~"), "moved": ("plain", "↕"),
    "failed": ("bad", "✕"), "crashed": ("bad", "✕"), "damaged": ("bad", "✕"), "rejected": ("bad", "✕"),
    "impossible": ("bad", "✕"), "not exact": ("bad", "≈"), "removed": ("bad", "-"),
    "running": ("plain", "▶"), "pending": ("plain", "…"), "open": ("plain", "○"), "dropped": ("plain", "-"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Chip:
    """A word for how something stands, with a sign of its own: it is told apart without colours."""

    word: str
    note: str = ""

    @property
    def tone(self) -> Tone:
        """Give its colour."""
        return _TONES.get(self.word, ("plain", ""))[0]

    @property
    def sign(self) -> str:
        """Give its sign."""
        return _TONES.get(self.word, ("plain", "·"))[1]


@dataclass(frozen=True, slots=True)
class Code:
    """A line that a person may type."""

    text: str


@dataclass(frozen=True, slots=True)
class Edit:
    """One text that became another."""

    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Named:
    """A value that has a name, by which it may be nobody's business."""

    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class Words:
    """A text under a heading; `folded` is only shown when it is opened."""

    label: str
    text: str
    folded: bool = False
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True)
class Rows:
    """A table; `hidden` says how many more there are, `more` what they are."""

    label: str
    head: tuple[str, ...]
    rows: Sequence[Sequence[Any]]
    hidden: int = 0
    more: str = "row"
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Values:
    """Any value, part by part; `exact` is for what a person decides about: long texts whole, secrets shown."""

    label: str
    value: Any
    folded: bool = False
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Meter:
    """So much of so much."""

    label: str
    used: float
    limit: float
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing, and the same in lines of text; `signs` explain its marks."""

    svg: Html
    lines: tuple[str, ...] = ()
    signs: tuple[tuple[Html, str], ...] = ()
    from_end: bool = False


@dataclass(frozen=True, slots=True)
class Card:
    """What something shows of itself."""

    title: str
    kind: str = ""
    status: str = ""
    facts: tuple[tuple[str, Any], ...] = ()
    blocks: tuple[Block, ...] = ()
    note: str = field(default="")


Block = Words | Rows | Values | Meter | Picture | Card


def some(*blocks: Block | None) -> tuple[Block, ...]:
    """Give the blocks that say something."""
    return tuple(block for block in blocks if block is not None)


def cut(items: Sequence[Any], limit: int) -> tuple[Sequence[Any], int]:
    """Give the first of many, and how many are left."""
    return items[:limit], max(0, len(items) - limit)
