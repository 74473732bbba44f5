"""Cards as HTML: no script, nothing from elsewhere, long texts folded, and never more than there is room for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from checkpointers.paths import fields_of, is_list
from checkpointers.redacting import REDACTED, is_hidden, redacted_text
from checkpointers.show.cards import Block, Card, Chip, Code, Edit, Meter, Named, Picture, Rows, Values, Words
from checkpointers.show.markup import NOTHING, Html, joined, safe, spaced, tag
from checkpointers.show.style import PAGE, style
from checkpointers.show.text import amount, clipped, first, short

ROOM: Final = 120_000
PAGE_ROOM: Final = 4_000_000
LINE: Final = 240
SMALL: Final = 32
WHOLE: Final = 2_000
FOLDED: Final = 12_000
ITEMS: Final = 24
DEEP: Final = 5
AROUND: Final = 60
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def html_of(card: Card) -> str:
    """Draw a card for a notebook, without what looks like a secret."""
    return tag("div", tag("style", Html(style())), Writer().card(card), cls="ckpt")


def page_of(title: str, cards: list[Callable[[], Card]], *, redact: bool = True, room: int = PAGE_ROOM) -> str:
    """Draw cards as one page in one file: the first whole, the others folded; what there is no room for is counted."""
    drawn: list[Html] = []
    for place, make in enumerate(cards):
        if sum(map(len, drawn)) > room:
            drawn.append(tag("p", f"{amount(len(cards) - place, 'step')} more, for which there was no room", cls="n"))
            break
        drawn.append(Writer(redact=redact).card(make(), folded=place > 0))
    head = joined(
        tag("meta", charset="utf-8"), tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width"), tag("title", clipped(title, 120)),
        tag("style", Html(PAGE + style())),
    )  # fmt: skip
    body = tag("body", tag("main", *drawn, cls="ckpt"))
    return f"<!doctype html>{tag('html', tag('head', Html(head.replace('</meta>', ''))), body, lang='en')}\n"


class Writer:
    """Writes blocks; there is so much room for texts and values in all."""

    def __init__(self, *, redact: bool = True, room: int = ROOM) -> None:
        """Begin with all the room; `redact` leaves out what looks like a secret."""
        self._redact, self._left = redact, room
        self._kinds: dict[type[Any], Callable[[Any], Html]] = {
            Words: self._words, Rows: self._rows, Values: self._values, Meter: self._meter, Picture: self._picture,
        }  # fmt: skip

    def card(self, card: Card, *, folded: bool = False) -> Html:
        """Write a card, and those inside it."""
        head = spaced(
            tag("span", self._line(card.kind), cls="k") if card.kind else NOTHING,
            tag("b", self._line(card.title), cls="v"),
            self._chip(Chip(card.status)) if card.status else NOTHING,
            tag("span", self._line(card.note), cls="n v") if card.note else NOTHING,
        )
        facts = [
            tag("span", tag("i", f"{name} "), self.cell(Named(name, value)))
            for name, value in card.facts
            if value not in (None, "")
        ]
        inside = joined(tag("div", spaced(*facts), cls="f") if facts else NOTHING, *map(self._block, card.blocks))
        if folded:
            return tag("details", tag("summary", tag("span", head, cls="h")), inside, cls="c")
        return joined(tag("div", head, cls="h"), inside)

    def cell(self, value: Any) -> Html:
        """Write a value that stands beside others."""
        if isinstance(value, Named):
            return safe(REDACTED) if self._hides(value.name, value.value) else self.cell(value.value)
        if isinstance(value, Chip):
            return self._chip(value)
        if isinstance(value, Code):
            return tag("code", self._line(value.text, WHOLE))
        if isinstance(value, Edit):
            return self._edit(value)
        return self.text(value) if isinstance(value, str) else self.value(value, 1)

    def text(self, text: str, limit: int = LINE) -> Html:
        """Write a text: what is long is folded, with its exact size."""
        if isinstance(text, Html):
            return text
        size, text = len(text), self._clean(text[: FOLDED + WHOLE])
        if len(text) <= limit and text.count("\n") <= limit / 20:
            self._left -= len(text)
            return tag("span", text, cls="v")
        body = text[: min(FOLDED, max(0, self._left))]
        self._left -= len(body)
        hidden = size - len(body)
        rest = tag("span", f" … {amount(hidden, 'character')} more", cls="q") if hidden > 0 else NOTHING
        told = tag("span", f" … {amount(size, 'character')}", cls="n")
        summary = tag("summary", clipped(text, min(limit, 160)).removesuffix("…"), told)
        return tag("details", summary, tag("pre", body, rest)) if body else tag("span", summary_of(text, size), cls="v")

    def value(self, value: Any, deep: int = 0) -> Html:
        """Write any value, part by part."""
        parts = None if isinstance(value, str | bytes) else _parts(value)
        if isinstance(value, str):
            return self.text(value)
        if not parts or deep >= DEEP or self._left <= 0:
            self._left -= LINE // 4
            return tag("span", self._short(value, LINE), cls="v" if parts is None else "v q")
        rows = [self._part(name, part, deep) for name, part in parts[0]]
        hidden = parts[1] - len(rows)
        more = tag("div", f"{amount(hidden, 'more')[:-1]}" if hidden != 1 else "1 more", cls="n") if hidden else NOTHING
        whole = joined(tag("dl", *rows), more)
        if deep < 1 or (parts[1] <= 2 and deep < 3):  # noqa: PLR2004  what is small stands open
            return whole
        self._left -= LINE
        summary = tag("summary", tag("span", self._short(value, 76), cls="q"), tag("span", f" {_size(value)}", cls="n"))
        return tag("details", summary, tag("div", whole, cls="in"))

    def _part(self, name: Any, part: Any, deep: int) -> Html:
        self._left -= 60
        written = safe(REDACTED) if self._hides(name, part) else self.value(part, deep + 1)
        return joined(tag("dt", self._short(name, 80)), tag("dd", written))

    def _hides(self, name: Any, value: Any) -> bool:
        return self._redact and is_hidden(name, value)

    def _clean(self, text: str) -> str:
        return redacted_text(text) if self._redact else text

    def _line(self, text: str, limit: int = LINE) -> str:
        return text if isinstance(text, Html) else clipped(self._clean(text[: 2 * limit + WHOLE]), limit)

    def _short(self, value: Any, limit: int) -> str:
        return short(value, limit, redact=self._redact)

    def _block(self, block: Block) -> Html:
        if isinstance(block, Card):
            return tag("div", self.card(block), cls="c")
        return self._kinds[type(block)](block)

    def _headed(self, label: str, inside: Html, *, folded: bool = False) -> Html:
        if folded:
            return tag("details", tag("summary", label, cls="l"), inside)
        return joined(tag("div", label, cls="l") if label else NOTHING, inside)

    def _words(self, block: Words) -> Html:
        text = tag("div", self.text(block.text, WHOLE), cls=f"w {block.tone}")
        return self._headed(block.label, text, folded=block.folded)

    def _rows(self, block: Rows) -> Html:
        head = tag("tr", *(tag("th", name) for name in block.head)) if any(block.head) else NOTHING
        rows = [tag("tr", *(tag("td", self.cell(cell), cls=_side(cell)) for cell in row)) for row in block.rows]
        more = (
            tag("div", f"{block.hidden:,} more {block.more}{'s' * (block.hidden != 1)}", cls="n")
            if block.hidden
            else NOTHING
        )
        return self._headed(block.label, joined(tag("table", head, *rows), more), folded=block.folded)

    def _values(self, block: Values) -> Html:
        if block.exact and self._redact:
            return self._exact(block)
        if not block.exact or not isinstance(block.value, Mapping):
            return self._headed(block.label, self.value(block.value), folded=block.folded)
        rows = [
            joined(
                tag("dt", self._short(name, 80)),
                tag("dd", self.text(part, WHOLE) if isinstance(part, str) else self.value(part)),
            )
            for name, part in first(block.value, 2 * ITEMS)
        ]
        hidden = len(block.value) - len(rows)
        more = tag("div", f"{hidden:,} more", cls="n") if hidden else NOTHING
        return self._headed(block.label, joined(tag("dl", *rows), more), folded=block.folded)

    def _exact(self, block: Values) -> Html:
        """Write what a person decides about as it is."""
        plain = Writer(redact=False, room=self._left)
        written = plain._values(block)
        self._left = plain._left
        return written

    def _meter(self, block: Meter) -> Html:
        share = min(1.0, block.used / block.limit) if block.limit else 1.0
        bar = tag("span", tag("span", cls=f"u{' bad' * (share > 0.9)}", style=f"width:{share:.1%}"), cls="o")  # noqa: PLR2004
        told = f"{block.used:,.0f} of {block.limit:,.0f} {block.unit}, {share:.0%}"
        return tag("div", spaced(tag("span", block.label, cls="n"), bar, tag("span", told, cls="n")), cls="m")

    def _picture(self, block: Picture) -> Html:
        signs = (
            tag("div", spaced(*(tag("span", sign, " ", words) for sign, words in block.signs)), cls="g")
            if block.signs
            else NOTHING
        )
        return joined(tag("div", block.svg, cls="strip end" if block.from_end else "strip"), signs)

    def _chip(self, chip: Chip) -> Html:
        return tag(
            "span",
            f"{chip.sign} {clipped(chip.word, 40)}".strip(),
            cls=f"chip {chip.tone}",
            title=chip.note[:200] or None,
        )

    def _edit(self, edit: Edit) -> Html:
        """Show what differs of two texts, with a little of what stands around it."""
        before, after = (self._clean(text[:FOLDED]) for text in (edit.before, edit.after))
        if max(len(before), len(after)) <= SMALL:
            return tag("span", tag("del", before or "(empty)"), " → ", tag("ins", after or "(empty)"), cls="v")
        head = _common(before, after)
        room = min(len(before), len(after)) - head
        tail = min(room, _common(before[::-1], after[::-1]))
        start = max(0, head - AROUND)
        old, new = (text[head : len(text) - tail] for text in (before, after))
        ending = before[len(before) - tail :][:AROUND]
        self._left -= 2 * LINE
        return tag("span", "…" * (start > 0), before[start:head], tag("del", _middle(old)) if old else NOTHING,
                   tag("ins", _middle(new)) if new else NOTHING, ending, "…" * (tail > AROUND), cls="v")  # fmt: skip


def summary_of(text: str, size: int) -> str:
    """Say the beginning of a text and how long it is."""
    return f"{clipped(text, 80)} ({amount(size, 'character')})"


def _common(before: str, after: str) -> int:
    """Count the characters with which both begin."""
    both = enumerate(zip(before, after, strict=False))
    return next((place for place, (old, new) in both if old != new), min(len(before), len(after)))


def _middle(text: str) -> str:
    return (
        text
        if len(text) <= 2 * LINE
        else f"{text[:LINE]} … {amount(len(text) - 2 * LINE, 'character')} … {text[-LINE:]}"
    )


def _side(cell: Any) -> str | None:
    if isinstance(cell, str):
        return "s" if len(cell) <= SMALL and "\n" not in cell else None
    return "r" if isinstance(cell, int | float) and not isinstance(cell, bool) else None


def _parts(value: Any) -> tuple[list[tuple[Any, Any]], int] | None:
    """Give the first named parts of a value and how many it has, None if it is one thing."""
    if is_list(value):
        return [(index, item) for index, item in enumerate(value[:ITEMS])], len(value)
    named = value if isinstance(value, Mapping) else fields_of(value)
    return None if named is None else (first(named, ITEMS), len(named))


def _size(value: Any) -> str:
    return (
        amount(len(value), "item" if is_list(value) else "key") if hasattr(value, "__len__") else type(value).__name__
    )
