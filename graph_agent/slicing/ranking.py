"""Which texts have to do with a query: by words in common, by what stands next to them, by meaning where known."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from graph_agent.slicing.words import label, stems, words

# The five numbers of the ranking. Around each of them the benchmark is flat: it is the ideas that carry it.
SATURATION: Final = 0.8  # BM25's k1: how much a word repeated in a text still adds
LENGTH: Final = 0.6  # BM25's b: how much a long text has to say more to count the same
NEARNESS: Final = 0.6  # what each further place leaves of a neighbour's support
NAMED: Final = 2.0  # how much more a text counts whose own label is named in the query
MEANING: Final = 0.4  # the best similarity in meaning, measured in best matches of words

_FAINT: Final = 0.02  # support below this share of the best match ends
_NEIGHBOURS: Final = 6  # how far a reason looks for the neighbour that gave support


class Entry(Protocol):
    """What the index reads of an item, which never changes; a changed item is a new one with the same id."""

    @property
    def id(self) -> str: ...  # noqa: D102
    @property
    def text(self) -> str: ...  # noqa: D102
    @property
    def kind(self) -> str: ...  # noqa: D102
    @property
    def source(self) -> str: ...  # noqa: D102
    @property
    def position(self) -> int: ...  # noqa: D102


class Index:
    """The words of many items, kept between steps: an update costs what changed, not what there is.

    Numbers are derived from counts when asked, so an index with a past ranks like a fresh one. One caller at a time.
    """

    def __init__(self, items: Collection[Entry] = ()) -> None:
        """Take in the first items."""
        self._entries: dict[str, Entry] = {}
        self._lengths: dict[str, int] = {}
        self._total = 0
        self._postings: dict[str, dict[str, int]] = {}
        self._labels: dict[str, dict[str, frozenset[str]]] = {}
        self._places: dict[str, list[tuple[int, str]]] = {}
        self._source_words: dict[str, set[str]] = {}
        self.update(items)

    def __len__(self) -> int:
        """Count the items."""
        return len(self._entries)

    def update(self, items: Collection[Entry]) -> None:
        """Make the index hold exactly these items: new ones come in, changed ones change, missing ones go."""
        wanted = {item.id: item for item in items}
        if len(wanted) != len(items):
            raise ValueError("two items have the same id; an id must name one item")
        for key, item in wanted.items():
            known = self._entries.get(key)
            if known is not item and not (known is not None and _same(known, item)):
                self._forget(key)
                self._learn(item)
        if len(self._entries) != len(wanted):
            for key in self._entries.keys() - wanted.keys():
                self._forget(key)

    def rank(self, query: str, similarity: Mapping[str, float] | None = None) -> Ranking:
        """Score what has to do with the query; what has nothing to do with it is not in the scores."""
        asked = {root: word for word, root in words(query)}
        matches = self._matches(asked)
        lifted = self._lifted(matches, similarity or {})
        scores = self._supported(lifted)
        self._add_sources(scores, asked)
        self._raise_named(scores, asked)
        return Ranking(self, asked, lifted, scores)

    def scores(self, query: str, similarity: Mapping[str, float] | None = None) -> dict[str, float]:
        """Score items by id, as `rank` does."""
        return self.rank(query, similarity).scores

    def kind(self, key: str) -> str:
        """Tell the kind of an item."""
        return self._entries[key].kind

    def words_in(self, key: str, asked: Mapping[str, str]) -> list[str]:
        """List the query's words that an item has, as the query wrote them."""
        return [word for root, word in asked.items() if key in self._postings.get(root, ())]

    def words_in_source(self, key: str, asked: Mapping[str, str]) -> list[str]:
        """List the query's words that the source of an item has."""
        source = self._entries[key].source
        return [word for root, word in asked.items() if source in self._source_words.get(root, ())]

    def neighbours(self, key: str) -> Iterable[tuple[int, str]]:
        """List the items near an item in its source, each with its distance."""
        entry = self._entries[key]
        places = self._places[entry.source]
        at = bisect_left(places, (entry.position, key))
        for other in range(max(0, at - _NEIGHBOURS), min(len(places), at + _NEIGHBOURS + 1)):
            if other != at:
                yield abs(other - at), places[other][1]

    def _learn(self, item: Entry) -> None:
        counts = Counter(stems(item.text))
        self._entries[item.id] = item
        self._lengths[item.id] = counts.total()
        self._total += counts.total()
        for root, count in counts.items():
            self._postings.setdefault(root, {})[item.id] = count
        named = label(item.text)
        for root in named:
            self._labels.setdefault(root, {})[item.id] = named
        if item.source not in self._places:
            for root in stems(item.source):
                self._source_words.setdefault(root, set()).add(item.source)
        insort(self._places.setdefault(item.source, []), (item.position, item.id))

    def _forget(self, key: str) -> None:
        item = self._entries.pop(key, None)
        if item is None:
            return
        self._total -= self._lengths.pop(key)
        for root in set(stems(item.text)):
            _drop(self._postings, root, key)
        for root in label(item.text):
            _drop(self._labels, root, key)
        places = self._places[item.source]
        del places[bisect_left(places, (item.position, key))]
        if not places:
            del self._places[item.source]
            for root in set(stems(item.source)):
                self._source_words[root].discard(item.source)

    def _rarity(self, holders: int) -> float:
        return math.log1p((len(self._entries) - holders + 0.5) / (holders + 0.5))

    def _matches(self, asked: Iterable[str]) -> dict[str, float]:
        found: dict[str, float] = {}
        lengths = self._lengths
        fixed = SATURATION * (1 - LENGTH)
        per_word = SATURATION * LENGTH * len(lengths) / self._total if self._total else 0.0
        for root in asked:
            postings = self._postings.get(root, {})
            weight = self._rarity(len(postings)) * (SATURATION + 1)
            for key, count in postings.items():
                found[key] = found.get(key, 0.0) + weight * count / (count + fixed + per_word * lengths[key])
        return found

    def _lifted(self, matches: dict[str, float], similarity: Mapping[str, float]) -> dict[str, float]:
        """Add meaning to words: by how far an item is more similar than the average one."""
        known = {key: near for key, near in similarity.items() if key in self._entries and math.isfinite(near)}
        if not known:
            return matches
        average, best = math.fsum(known.values()) / len(known), max(known.values())
        scale = MEANING * max(matches.values(), default=1 / MEANING)
        lifted = dict(matches)
        for key, near in known.items() if best > average else ():
            if near > average:
                lifted[key] = lifted.get(key, 0.0) + scale * (near - average) / (best - average)
        return lifted

    def _supported(self, scores: Mapping[str, float]) -> dict[str, float]:
        """Let neighbours of the same source support each other: the answer stands next to the question."""
        faint = _FAINT * max(scores.values(), default=0.0)
        supported = dict(scores)
        for places in self._places.values() if scores else ():
            for walk in (places, reversed(places)):
                carried = 0.0
                for _, key in walk:
                    if carried:
                        supported[key] = supported.get(key, 0.0) + carried
                    carried = (carried + scores.get(key, 0.0)) * NEARNESS
                    if carried < faint:
                        carried = 0.0
        return supported

    def _add_sources(self, scores: dict[str, float], asked: Iterable[str]) -> None:
        """Count a word that names the source, such as its date or file, like a word of the text."""
        for root in asked:
            sources = sorted(self._source_words.get(root, ()))
            weight = self._rarity(sum(len(self._places[source]) for source in sources))
            for source in sources:
                for _, key in self._places[source]:
                    scores[key] = scores.get(key, 0.0) + weight

    def _raise_named(self, scores: dict[str, float], asked: Mapping[str, str]) -> None:
        """Prefer what is by or about whom the query names."""
        named = {key for root in asked for key, names in self._labels.get(root, {}).items() if names <= asked.keys()}
        scores.update({key: scores[key] * NAMED for key in named & scores.keys()})


@dataclass(frozen=True, slots=True)
class Ranking:
    """The scores of one query, and why they are what they are."""

    index: Index
    asked: Mapping[str, str]
    own: Mapping[str, float]
    scores: dict[str, float]

    def reason(self, key: str) -> str:
        """Say in words why an item has its score; empty where it has none."""
        if key not in self.scores:
            return ""
        if found := self.index.words_in(key, self.asked):
            return f"matches {_quoted(found)}"
        near = max(
            ((self.own.get(other, 0.0) * NEARNESS**far, other) for far, other in self.index.neighbours(key)),
            default=None,
        )
        if near and near[0] > self.own.get(key, 0.0):
            return self._beside(near[1])
        if key in self.own:
            return "similar in meaning"
        if found := self.index.words_in_source(key, self.asked):
            return f"its source matches {_quoted(found)}"
        return "not far from a match"

    def _beside(self, other: str) -> str:
        found = self.index.words_in(other, self.asked)
        why = f"matches {_quoted(found)}" if found else "is similar in meaning"
        return f"next to {self.index.kind(other)} {other} which {why}"


def _quoted(found: list[str]) -> str:
    return ", ".join(f"'{word}'" for word in found)


def _same(one: Entry, other: Entry) -> bool:
    return (
        one.text == other.text
        and one.position == other.position
        and one.source == other.source
        and one.kind == other.kind
    )


def _drop(table: dict[str, dict[str, int]] | dict[str, dict[str, frozenset[str]]], root: str, key: str) -> None:
    del table[root][key]
    if not table[root]:
        del table[root]
