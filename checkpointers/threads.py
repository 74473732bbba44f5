"""What can be said of a thread, of its steps, and of where the bytes are, without loading a state."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from checkpointers.errors import HistoryError, IntegrityError

if TYPE_CHECKING:
    from checkpointers.status import Status

MOST: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class ThreadInfo:
    """One thread in a listing: its status, its newest step, its size, its times, and who holds its lease.

    `questions` are asked of a person where it stands and not answered yet, `errors` are tasks that failed there.
    """

    thread: str
    status: Status
    step: int
    checkpoints: int
    bytes: int
    created_at: datetime
    updated_at: datetime
    tags: tuple[str, ...]
    pins: tuple[int, ...]
    stored_metadata: builtins.bytes = field(repr=False)
    holder: str | None = None
    questions: int = 0
    errors: int = 0

    @property
    def metadata(self) -> dict[str, Any]:
        """Give the metadata of the newest checkpoint."""
        from checkpointers.codec import unpacked  # noqa: PLC0415  paid by who looks

        metadata: dict[str, Any] = unpacked(self.stored_metadata)
        return metadata


@dataclass(frozen=True, slots=True)
class Usage:
    """How many bytes a channel of a thread takes, in how many rows; "(checkpoints)" and "(writes)" are the records."""

    thread: str
    channel: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Readable:
    """What the owner of an encrypted thread left readable of its newest metadata; the thread is told by its number.

    It is read without a key, so no seal vouches for it; `damaged` says that it does not even read.
    """

    thread: int
    step: int
    at: datetime
    metadata: Mapping[str, Any]
    damaged: bool = False


@dataclass(frozen=True, slots=True)
class StepInfo:
    """One step in a listing: its number, its checkpoint and the parent's, when and how it was made, how it stood.

    `versions` and `seen` are LangGraph's: which version every channel has, and which ones every node has read. `beside`
    tells a step of a branch that was kept when two writers went on from the same step.
    """

    number: int
    id: str
    parent_id: str | None
    at: datetime
    source: str
    status: Status
    metadata: Mapping[str, Any]
    ns: str = ""
    versions: Mapping[str, Any] = field(default_factory=dict, repr=False)
    seen: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    beside: bool = False


def see_read(info: ThreadInfo) -> None:
    """See that the row of a listed thread could be read: else nothing is known of it but that it is there."""
    if info.status == "damaged" and not info.checkpoints:
        raise IntegrityError(info.thread, None, "its own row cannot be read, or not with these keys")


def counted(name: str, value: object, *, least: int) -> None:
    """See that what is asked for is a number that any database takes."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
        raise HistoryError(f"{name} is a whole number from {least} on, not {value!r}")


def when(ts: str, otherwise: datetime) -> datetime:
    """Give the time that a checkpoint says it was made at; one it cannot say is the other one."""
    try:
        at = datetime.fromisoformat(ts)
    except (ValueError, TypeError):
        return otherwise
    return at if at.tzinfo else at.replace(tzinfo=UTC)
