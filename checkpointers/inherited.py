"""What a checkpoint's DeltaChannels were told by ancestors that are not stored any more, asked of any saver.

No public method of a saver gives it with a checkpoint: who copies one by one would lose it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from checkpointers.lineage import is_trigger
from checkpointers.saver import Saver

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, DeltaChannelHistory


class Inherited:
    """What checkpoints of a thread keep of removed ancestors."""

    def __init__(self, saver: BaseCheckpointSaver[Any], thread: str, stored: Container[str]) -> None:
        """Ask a saver in which checkpoints with these ids are stored."""
        self._saver, self._stored = saver, stored
        self._based = cache(lambda ns: saver.based(thread, ns)) if isinstance(saver, Saver) else None

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


def parent_of(found: CheckpointTuple) -> str | None:
    """Give the id of the checkpoint that one was made from."""
    return found.parent_config["configurable"].get("checkpoint_id") if found.parent_config else None
