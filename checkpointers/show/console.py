"""Cards for a rich console: text alone, nothing in it is markup, no secrets; drawn short, a card is a glance."""

from __future__ import annotations

import json
from typing import Any, Final

from rich.console import Group
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from checkpointers.plain import as_json
from checkpointers.redacting import REDACTED, is_hidden, redacted_text
from checkpointers.show.cards import Block, Card, Chip, Code, Edit, Meter, Named, Picture, Rows, Values, Words
from checkpointers.show.text import amount, brief, clipped, first, short, visible

_STYLES: Final = {"good": "green", "wait": "yellow", "bad": "red", "plain": "dim"}
CELL: Final = 160
WHOLE: Final = 4_000
PARTS: Final = 12
EXACT: Final = 48
LONGEST: Final = 20_000


def rich_of(card: Card) -> Panel:
    """Draw a card."""
    title = Text.assemble((f"{clipped(card.kind, 40)} " if card.kind else "", "dim"), (_line(card.title, 80), "bold"))
    if card.status:
        title = Text.assemble(title, "  ", _chip(Chip(card.status)))
    return Panel(Group(*_inside(card)), title=title, title_align="left", border_style="dim", expand=False)


def _inside(card: Card) -> list[Any]:
    facts = [
        Text.assemble((f"{clipped(name, 40)} ", "dim"), _cell(Named(name, value)))
        for name, value in card.facts
        if value not in (None, "")
    ]
    note = [Text(_line(card.note), "dim")] if card.note else []
    return [
        *note,
        *([Text("   ").join(facts)] if facts else []),
        *(part for block in card.blocks for part in _block(block)),
    ]


def _block(block: Block) -> list[Any]:
    if isinstance(block, Card):
        return [rich_of(block)]
    if isinstance(block, Picture):
        return [Text(visible(line[:CELL])) for line in block.lines]
    if isinstance(block, Meter):
        return [Text(clipped(f"{block.label} {block.used:,.0f} of {block.limit:,.0f} {block.unit}", CELL), "dim")]
    label = [Text(clipped(block.label, CELL), "dim bold")] if block.label else []
    if isinstance(block, Words):
        return (
            [*label, Padding(Text(brief(redacted_text(block.text[:LONGEST]))), (0, 0, 0, 2))]
            if not block.folded
            else []
        )
    return [*label, _table(block)] if not block.folded else []


def _table(block: Rows | Values) -> Table:
    table = Table(box=None, pad_edge=False, show_header=isinstance(block, Rows) and any(block.head), header_style="dim")
    for name in block.head if isinstance(block, Rows) else ("", ""):
        table.add_column(Text(clipped(name, CELL)), overflow="fold")
    exact = isinstance(block, Values) and block.exact
    limit, cell = (EXACT, _whole) if exact else (PARTS, _cell)
    rows = [list(row) for row in block.rows] if isinstance(block, Rows) else _named(block.value, limit)
    for row in rows:
        table.add_row(*map(cell, row))
    if isinstance(block, Rows) and block.hidden:
        table.add_row(Text(f"… {block.hidden:,} more", "dim"))
    return table


def _named(value: Any, limit: int) -> list[list[Any]]:
    if isinstance(value, dict):
        more = [["…", f"{len(value) - limit:,} more"]] if len(value) > limit else []
        return [*([short(name, 40), Named(str(name), part)] for name, part in first(value, limit)), *more]
    return [["", value]]


def _whole(value: Any) -> Text:
    """Show what a person decides about: text as it is, other values as JSON, and exactly how much is not shown."""
    if isinstance(value, Named):
        value = value.value
    text = value if isinstance(value, str) else _as_json(value)
    hidden = len(text) - WHOLE
    return Text(visible(text[:WHOLE]) + (f" … {amount(hidden, 'character')} more" if hidden > 0 else ""))


def _as_json(value: Any) -> str:
    try:
        return json.dumps(as_json(value), ensure_ascii=False)
    except (RecursionError, ValueError):  # nothing that a tool's types let through
        return short(value, WHOLE, redact=False)


def _cell(value: Any) -> Text:
    if isinstance(value, Named):
        return Text(REDACTED) if is_hidden(value.name, value.value) else _cell(value.value)
    if isinstance(value, Chip):
        return _chip(value)
    if isinstance(value, Code):
        return Text(_line(value.text), "cyan")
    if isinstance(value, Edit):
        return Text.assemble((_line(value.before), "red strike"), " → ", (_line(value.after), "green"))
    return Text(short(value, CELL))


def _line(text: str, limit: int = CELL) -> str:
    """Give a text in one line, without what looks like a secret."""
    return clipped(redacted_text(text[:WHOLE]), limit)


def _chip(chip: Chip) -> Text:
    return Text(f"{chip.sign} {clipped(chip.word, 40)}".strip(), _STYLES[chip.tone])
