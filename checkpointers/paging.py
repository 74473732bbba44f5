"""Between what is read and LangGraph's types: where a listing is, checkpoints, what a DeltaChannel was told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata, CheckpointTuple, DeltaChannelHistory

from checkpointers.errors import HistoryError
from checkpointers.operations import listing as pages
from checkpointers.operations import read
from checkpointers.operations.common import Place, Tools, config_of, place_of
from checkpointers.threads import counted

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

    from checkpointers.statements import Statements

PAGES: Final = 16
Page = tuple[list[read.Loaded], pages.Cursor | None]


class Listing:
    """Where a listing is: pages grow from one checkpoint, so that looking at the newest one reads no other.

    Who says how many he wants is taken at his word.
    """

    def __init__(self, tools: Tools, query: pages.Query, limit: int | None) -> None:
        """Start at the newest; at most so many."""
        if limit is not None:
            counted("limit", limit, least=0)
        self._tools, self._query, self._left = tools, query, limit
        self.thread = query.place.thread if query.place else None
        self._cursor: pages.Cursor | None = None
        self._size, self._finished = (1 if limit is None else PAGES), limit == 0

    def more(self) -> bool:
        """Tell whether there may be another page."""
        return not self._finished

    def page(self) -> Statements[Page]:
        """Give the operation that reads the next page."""
        size = self._size if self._left is None else min(self._left, self._size)
        return pages.page(self._tools, self._query, self._cursor, size)

    def took(self, page: Page) -> list[CheckpointTuple]:
        """Go on behind a page; give what is on it."""
        found, self._cursor = page
        self._left = None if self._left is None else self._left - len(found)
        self._size = min(2 * self._size, PAGES)
        self._finished = self._cursor is None or self._left == 0
        return [tuple_of(one) for one in found]


def query_of(
    config: RunnableConfig | None, wanted: dict[str, Any] | None, before: RunnableConfig | None
) -> pages.Query:
    """Say what a listing asks for."""
    if not isinstance(wanted, Mapping | None):
        raise HistoryError(f"a filter gives metadata by its names, as a dict; not {wanted!r:.80}")
    place: Place | None = place_of(config) if config else None
    any_ns = config is not None and config["configurable"].get("checkpoint_ns") is None
    start = before["configurable"].get("checkpoint_id") if before else None
    return pages.Query(place, any_ns, wanted or {}, start)


def tuple_of(found: read.Loaded, config: RunnableConfig | None = None) -> CheckpointTuple:
    """Give a checkpoint that was read as LangGraph wants it."""
    record = found.record
    own = config_of(found.thread, record.ns, record.id)
    parent = config_of(found.thread, record.ns, record.parent) if record.parent else None
    return CheckpointTuple(
        config=config or cast("RunnableConfig", own),
        checkpoint=cast("Checkpoint", found.checkpoint),
        metadata=cast("CheckpointMetadata", found.metadata),
        parent_config=cast("RunnableConfig | None", parent),
        pending_writes=found.pending,
    )


def delta_of(writes: list[tuple[str, str, Any]], seed: tuple[Any] | None) -> DeltaChannelHistory:
    """Give what a DeltaChannel was told as LangGraph wants it."""
    history: DeltaChannelHistory = {"writes": writes}
    if seed is not None:
        history["seed"] = seed[0]
    return history
