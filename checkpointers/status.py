"""Where a thread stands, told from its stored rows alone: is there more to run, is it waiting, did it fail.

LangGraph keeps no such word. What is due is seen in the trigger channels of the newest checkpoint, as the graph
itself would see it; what a pause or a failure left behind, in the special writes on that checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from checkpointers.records import FAILED, INTERRUPTED

Status = Literal["waiting", "failed", "pending", "done", "damaged", "shredded"]
PENDING: Final = 1
BESIDE: Final = 2
_BRANCH: Final = "branch:to:"
_JOIN: Final = "join:"
_PAIR: Final = 2


def flags_of(checkpoint: Mapping[str, Any]) -> int:
    """Give the bits that a checkpoint's row carries for listings."""
    return PENDING if _due(checkpoint) else 0


def status_of(flags: int, kinds: int) -> Status:
    """Say where a thread stands, from its head's flags and the kinds of the writes on it."""
    if kinds & INTERRUPTED:
        return "waiting"
    if kinds & FAILED:
        return "failed"
    return "pending" if flags & PENDING else "done"


def _due(checkpoint: Mapping[str, Any]) -> bool:
    values = checkpoint.get("channel_values") or {}
    if values.get("__pregel_tasks"):
        return True
    versions, seen = checkpoint.get("channel_versions") or {}, checkpoint.get("versions_seen") or {}
    return any(_triggers(channel, value) and _unseen(channel, versions, seen) for channel, value in values.items()) or (
        any(
            channel in values and _newer(versions.get(channel), version)
            for node, read in seen.items()
            if not node.startswith("__")
            for channel, version in read.items()
            if not channel.startswith(_JOIN)
        )
    )


def _triggers(channel: str, value: Any) -> bool:
    if channel.startswith(_JOIN):
        awaited = channel.removeprefix(_JOIN).partition(":")[0].split("+")
        # A deferred join keeps, beside who has arrived, whether the others have finished.
        arrived, finished = value if isinstance(value, tuple | list) and len(value) == _PAIR else (value, True)
        return bool(finished) and isinstance(arrived, set | frozenset | list) and set(awaited) <= set(arrived)
    return channel.startswith(_BRANCH) or channel == "__start__"


def _unseen(channel: str, versions: Mapping[str, Any], seen: Mapping[str, Mapping[str, Any]]) -> bool:
    readers = [read[channel] for node, read in seen.items() if channel in read and node != "__interrupt__"]
    return all(_newer(versions.get(channel), version) for version in readers)


def _newer(version: Any, than: Any) -> bool:
    try:
        return bool(version is not None and version > than)
    except TypeError:
        return True
