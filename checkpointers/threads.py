"""What can be said of a thread, and of where the bytes are, without loading a state."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from checkpointers.codec import unpacked
from checkpointers.status import Status


@dataclass(frozen=True, slots=True)
class ThreadInfo:
    """One thread in a listing: its status, its newest step, its size and its times."""

    thread: str
    status: Status
    step: int
    checkpoints: int
    bytes: int
    created_at: datetime
    updated_at: datetime
    tags: tuple[str, ...]
    pins: tuple[int, ...]
    stored_metadata: builtins.bytes

    @property
    def metadata(self) -> dict[str, Any]:
        """Give the metadata of the newest checkpoint."""
        metadata: dict[str, Any] = unpacked(self.stored_metadata)
        return metadata


@dataclass(frozen=True, slots=True)
class Usage:
    """How many bytes a channel of a thread takes, in how many rows; "(checkpoints)" and "(writes)" are the records."""

    thread: str
    channel: str
    rows: int
    bytes: int
