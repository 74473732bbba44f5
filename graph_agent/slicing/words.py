"""From text to the words that are compared: lower case, stems, nothing that says little."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from snowballstemmer.english_stemmer import EnglishStemmer  # type: ignore[import-untyped]

_WORD: Final = re.compile(r"[^\W_]+")
_POSSESSIVE: Final = re.compile(r"['\u2019]s\b")
_LABEL: Final = re.compile(r"\s*(\w+(?:[ ._-]\w+){0,2}):\s")

_LONGEST: Final = 40  # what is longer is a digest or encoded data, and has no stem

# "may" is missing on purpose: it is a month as well.
_SAY_LITTLE: Final = """
    a an and are as at be been being but by for from had has have having he her hers him his i if in into is it its me
    mine my of off on onto or our ours out over own she so than that the their theirs them then there these they this
    those to too us up was we were with you your yours
    am can could did do does doing done don didn doesn isn wasn d ll m re s t ve might must shall should will would
    all any both each few just more most no not only other same some such very yes about here
    how what when where which who whom whose why
"""
STOP_WORDS: Final = frozenset(_SAY_LITTLE.split())


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """Reduce a word to its stem, each with a stemmer of its own, for a stemmer at work is not safe to share."""
    return str(EnglishStemmer().stemWord(word))


def words(text: str) -> list[tuple[str, str]]:
    """List the words that count, each with its stem, in the order of the text."""
    plain = _POSSESSIVE.sub("", text.lower())
    found = (word for word in _WORD.findall(plain) if word not in STOP_WORDS)
    return [(word, stem(word) if len(word) <= _LONGEST else word) for word in found]


def stems(text: str) -> list[str]:
    """List the stems of the words that count."""
    return [root for _, root in words(text)]


def label(text: str) -> frozenset[str]:
    """Find the stems of what a text says it is about or whose it is: `Ada: …`, `build status: …`."""
    found = _LABEL.match(text[:80])
    return frozenset(stems(found[1])) if found else frozenset()
