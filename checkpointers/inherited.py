"""What a checkpoint's DeltaChannels were told by ancestors that are not stored: asked of any saver, put in ours.

LangGraph has no words for it, neither to give nor to take: who copies a thread checkpoint by checkpoint would lose it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from checkpointers import session
from checkpointers.lineage import is_trigger
from checkpointers.operations.common import Place
from checkpointers.operations.told import based
from checkpointers.saver import Saver

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        BaseCheckpointSaver,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
        DeltaChannelHistory,
    )


class Inherited:
    """What checkpoints of a thread keep of removed ancestors."""

    def __init__(self, saver: BaseCheckpointSaver[Any], thread: str, stored: Container[str]) -> None:
        """Ask a saver in which checkpoints with these ids are stored."""
        self._saver, self._stored = saver, stored
        self._based = cache(lambda ns: _based(saver, thread, ns)) if isinstance(saver, Saver) else None

    def of(self, found: CheckpointTuple) -> dict[str, DeltaChannelHistory]:
        """Give what each DeltaChannel was told, of those that were told more than stored ancestors tell."""
        channels = self._channels(found)
        told = self._saver.get_delta_channel_history(config=found.config, channels=channels) if channels else {}
        return {name: history for name, history in told.items() if history["writes"] or "seed" in history}

    def _channels(self, found: CheckpointTuple) -> Sequence[str]:
        if self._based is not None:
            return self._based(found.config["configurable"]["checkpoint_ns"]).get(found.checkpoint["id"], [])
        if parent_of(found) in self._stored:
            return []
        versions: Mapping[str, Any] = found.checkpoint["channel_versions"]
        return [name for name in versions if name not in found.checkpoint["channel_values"] and not is_trigger(name)]


def put_told(
    saver: Saver,
    config: RunnableConfig,
    found: Checkpoint,
    metadata: CheckpointMetadata,
    *,
    told: Mapping[str, DeltaChannelHistory],
    step: int = 0,
    beside: bool = False,
) -> RunnableConfig:
    """Store a checkpoint in a saver of ours, with what ancestors that are not stored there told its DeltaChannels.

    It keeps the number of its `step`, if no higher one is given there yet, and stands `beside` the head if it did.
    """
    if not (told or step or beside):
        return saver.put(config, found, metadata, found["channel_versions"])
    lines = session.lines(config)
    new = saver._new_checkpoint(lines, config, found, metadata, found["channel_versions"])  # noqa: SLF001
    line: session.Line = "branch" if beside else new.line
    return saver._put(new._replace(told=told, step=step, line=line), lines)  # noqa: SLF001


def _based(saver: Saver, thread: str, ns: str) -> dict[str, list[str]]:
    place = Place(thread, ns, None)
    return saver._read(lambda: based(saver._tools(), place))  # noqa: SLF001


def parent_of(found: CheckpointTuple) -> str | None:
    """Give the id of the checkpoint that one was made from."""
    return found.parent_config["configurable"].get("checkpoint_id") if found.parent_config else None
