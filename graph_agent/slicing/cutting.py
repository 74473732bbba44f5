"""How long a text is, who gets how much room, and how to leave out so that everyone can see what was left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

Size = Callable[[str], int]

NO_MARK: Final = "no room even for a mark"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What is not shown: which, how much, and how many for which reason."""

    ids: tuple[str, ...] = ()
    size: int = 0
    why: Mapping[str, int] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Count what was left out."""
        return len(self.ids)


class Counting:
    """What has been left out so far."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._ids: list[str] = []
        self._size = 0
        self._why: Counter[str] = Counter()

    def add(self, key: str, size: int, why: str) -> None:
        """Leave one more out."""
        self._ids.append(key)
        self._size += size
        self._why[why] += 1

    def done(self) -> LeftOut:
        """Sum up."""
        return LeftOut(tuple(self._ids), self._size, dict(sorted(self._why.items())))


def utf8_bytes(text: str) -> int:
    """Measure a text in bytes; a lone surrogate counts too, for no text may stop an agent."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def cut_mark(removed: int) -> str:
    """Say, in the place of what was removed, how many bytes it was."""
    return f"… [{removed} bytes cut]"


def cut(text: str, room: int, *, size: Size = utf8_bytes) -> str | None:
    """Keep as much of the beginning as fits together with the mark; None where not even the mark fits.

    A text that fits is returned itself. The length found by halving is tried before it is believed, so that a `size`
    which does not quite grow with the text, as of tokens, costs a few words at most and never the budget.
    """
    if size(text) <= room:
        return text
    low, high = 0, max(0, len(text) - 1)
    while low < high:
        middle = (low + high + 1) // 2
        if size(_shortened(text, middle)) <= room:
            low = middle
        else:
            high = middle - 1
    short = _shortened(text, low)
    return short if size(short) <= room else None


def shares(wishes: Sequence[int], room: int) -> list[int]:
    """Divide room fairly: who wishes little gets all of it, and the others equal parts of the rest."""
    given = [0] * len(wishes)
    for done, place in enumerate(sorted(range(len(wishes)), key=wishes.__getitem__)):
        given[place] = min(wishes[place], room // (len(wishes) - done))
        room -= given[place]
    return given


def _shortened(text: str, length: int) -> str:
    kept = text[:length].rstrip()
    return kept + cut_mark(utf8_bytes(text) - utf8_bytes(kept))
