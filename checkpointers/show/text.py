"""Text of anybody's, made harmless to look at: controls are seen, long ones are cut; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from reprlib import Repr
from typing import Any, Final

from checkpointers.paths import fields_of
from checkpointers.redacting import REDACTED, is_hidden, redacted_text

# C0 and C1 but for tab and newline, marks and overrides of direction, what has no width, tags, halves of characters. A
# joiner stays where it joins pictures.
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200c\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufdd0-\ufdef\ufeff\uffa0\ufff0-\uffff\ud800-\udfff\U000e0000-\U000e0fff]"
    "|(?<![\u2600-\u27bf\ufe0f\U0001f000-\U0001faff])\u200d"
)
_NAMES: Final = {
    "\u061c": "ALM", "\u200b": "ZWSP", "\u200c": "ZWNJ", "\u200d": "ZWJ", "\u200e": "LRM", "\u200f": "RLM",
    "\u202a": "LRE", "\u202b": "RLE", "\u202c": "PDF", "\u202d": "LRO", "\u202e": "RLO", "\u2066": "LRI",
    "\u2067": "RLI", "\u2068": "FSI", "\u2069": "PDI", "\ufeff": "BOM",
}  # fmt: skip
LINES: Final = 10
MORE: Final = 2_000


def visible(text: str) -> str:
    """Make what cannot be seen, or would change how the rest is seen, something that is seen."""
    return _UNSEEN.sub(_seen, text)


def _seen(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:  # noqa: PLR2004  the pictures of the controls stand in the same order
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"⟨{_NAMES.get(found[0], f'U+{code:04X}')}⟩"  # noqa: PLR2004


def clipped(text: str, limit: int) -> str:
    """Give a text in one line, cut at a length."""
    cut = text[: limit + 1]
    line = " ".join(visible(cut[:limit]).split())
    return f"{line}…" if len(cut) > limit else line


def brief(text: str, lines: int = LINES, width: int = 1_000) -> str:
    """Give a text for a terminal: no controls, at most so many lines of such a width."""
    shown = text[: lines * width].split("\n")
    cut = [visible(line[:width]) + "…" * (len(line) > width) for line in shown[:lines]]
    hidden = text.count("\n") + 1 - len(cut)
    return "\n".join([*cut[: lines - 1], f"… {amount(hidden + 1, 'more line')}"] if hidden > 0 else cut)


def amount(count: float, noun: str) -> str:
    """Count something in words: `1 step`, `1,000 steps`."""
    number = f"{count:,.0f}" if count == int(count) else f"{count:,.1f}"
    ending = "" if count == 1 else "es" if noun.endswith("ch") else "s"
    return f"{number} {noun}{ending}"


def lasted(seconds: float) -> str:
    """Say how long something took, in the largest unit that fits."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}" if seconds >= 10 * size else f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"  # noqa: PLR2004


class _Short(Repr):
    """Values in a line: of no value more than a little is looked at; secrets go before anything is cut."""

    def __init__(self, *, redact: bool) -> None:
        super().__init__()
        self._redact = redact
        self.maxlevel, self.maxdict, self.maxlist, self.maxtuple = 3, 6, 6, 6
        self.maxstring = self.maxother = self.maxlong = 120

    def _named(self, name: Any, value: Any, level: int) -> str:
        return REDACTED if self._redact and is_hidden(name, value) else self.repr1(value, level - 1)

    def repr_int(self, x: int, level: int) -> str:
        del level
        return repr(x) if x.bit_length() < 400 else f"<a number of {x.bit_length():,} bits>"  # noqa: PLR2004

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        items = [f"{self.repr1(k, level - 1)}: {self._named(k, v, level)}" for k, v in first(x, self.maxdict)]
        return "{…}" if level <= 0 and x else "{" + ", ".join([*items, *["…"] * (len(x) > self.maxdict)]) + "}"

    def repr_str(self, x: str, level: int) -> str:
        text = x[: 4 * self.maxstring] if len(x) > 4 * self.maxstring else x
        return super().repr_str(redacted_text(text) if self._redact else text, level)

    def repr_bytes(self, x: bytes, level: int) -> str:
        del level
        return repr(x) if len(x) <= 40 else f"<{amount(len(x), 'byte')}: {x[:16].hex(' ')} …>"  # noqa: PLR2004

    def repr_instance(self, x: Any, level: int) -> str:
        if level > 0 and (parts := fields_of(x)):
            inside = ", ".join(f"{name}={self._named(name, part, level)}" for name, part in first(parts, 6))
            return f"{type(x).__name__}({inside}{', …' * (len(parts) > 6)})"  # noqa: PLR2004
        try:
            return repr(x)[: self.maxother]
        except Exception:  # noqa: BLE001  somebody's own repr
            return f"<{type(x).__name__}>"


def first(items: Mapping[Any, Any], count: int) -> list[tuple[Any, Any]]:
    """Give the first items of a mapping, without going through the others."""
    return [pair for pair, _ in zip(items.items(), range(count), strict=False)]


def short(value: Any, limit: int = 120, *, redact: bool = True) -> str:
    """Give a value in one line, without what looks like a secret; text is given as it is."""
    try:
        text = value[: limit + MORE] if isinstance(value, str) else _Short(redact=redact).repr(value)
    except Exception:  # noqa: BLE001  a value that cannot be looked at is still there
        text = f"<{type(value).__name__}>"
    return clipped(redacted_text(text) if redact else text, limit)
