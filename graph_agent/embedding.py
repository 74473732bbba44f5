"""Nearness in meaning, from any LangChain embeddings; each text is embedded once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from langchain_core.embeddings import Embeddings

from graph_agent.patch import hashed
from graph_agent.slicing import Item, Tier

KEPT: Final = 50_000


class Similarity:
    """How near items are to a query."""

    def __init__(self, embeddings: Embeddings) -> None:
        """Use a model of embeddings."""
        self._embeddings = embeddings
        self._vectors: dict[str, list[float]] = {}

    def __call__(self, query: str, items: Sequence[Item]) -> Mapping[str, float]:
        """Give the cosine of each relevant item to the query, by id."""
        asked = [item for item in items if item.tier is Tier.RELEVANT]
        if not asked or not query.strip():
            return {}
        names = {item.id: hashed(item.text, length=24) for item in asked}
        missing = {names[item.id]: item.text for item in asked if names[item.id] not in self._vectors}
        if missing:
            if len(self._vectors) + len(missing) > KEPT:
                self._vectors.clear()
                missing = {names[item.id]: item.text for item in asked}
            made = self._embeddings.embed_documents(list(missing.values()))
            self._vectors.update(zip(missing, map(_unit, made), strict=True))
        target = _unit(self._embeddings.embed_query(query))
        return {
            key: sum(a * b for a, b in zip(target, self._vectors[name], strict=True)) for key, name in names.items()
        }


def _unit(vector: Sequence[float]) -> list[float]:
    length = math.sqrt(sum(part * part for part in vector)) or 1.0
    return [part / length for part in vector]
