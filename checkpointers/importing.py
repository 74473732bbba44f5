"""A thread taken in that was exported as JSON: step for step, into any saver; values are read strictly."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from checkpointers.errors import HistoryError, ThreadExistsError
from checkpointers.exporting import FORMAT, VERSION
from checkpointers.patching import applied
from checkpointers.saver import Saver
from checkpointers.spelling import read
from checkpointers.strict import StrictSerializer

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.checkpoint.serde.base import SerializerProtocol


def import_thread(
    saver: BaseCheckpointSaver[Any],
    data: str | Mapping[str, Any],
    *,
    thread: str | None = None,
    types: Iterable[type] = (),
) -> str:
    """Make a thread of what `history.export("json")` gave, under its name or another that is free; give the name.

    Only listed types are built: those of a saver of ours, or `types`, whatever another saver would build.
    """
    document: Any = json.loads(data) if isinstance(data, str) else data
    if not isinstance(document, Mapping) or (document.get("format"), document.get("version")) != (FORMAT, VERSION):
        raise HistoryError(f"this is no thread that was exported: it wants format {FORMAT!r}, version {VERSION}")
    name = thread or str(document["thread"])
    if next(iter(saver.list({"configurable": {"thread_id": name}}, limit=1)), None) is not None:
        raise ThreadExistsError(name)
    serde = saver.serde if isinstance(saver, Saver) else StrictSerializer(types)
    states: dict[str, Any] = {}
    versions: dict[tuple[str, Any], Any] = {}
    try:
        for step in document["steps"]:
            states[step["id"]] = applied(states[step["parent"]], step["patch"]) if "patch" in step else step["state"]
            if not isinstance(saver, Saver):
                _check_versions(step["versions"], states[step["id"]], versions)
            _put(saver, step, states[step["id"]], serde, {"thread_id": name, "checkpoint_ns": document["ns"]})
    except (KeyError, TypeError, AttributeError) as error:
        raise HistoryError(f"this is no thread that was exported whole: {error!r:.200}") from error
    return name


def _check_versions(now: Mapping[str, Any], state: Mapping[str, Any], known: dict[tuple[str, Any], Any]) -> None:
    """Refuse branches whose values have the same version: other savers would take one for the other."""
    for channel in state:
        place = (channel, now.get(channel))
        if known.setdefault(place, state[channel]) != state[channel]:
            msg = f"channel {channel!r} has version {place[1]!r} on two branches; only savers of ours tell them apart"
            raise HistoryError(msg)


def _put(
    saver: BaseCheckpointSaver[Any],
    step: Mapping[str, Any],
    state: Mapping[str, Any],
    serde: SerializerProtocol,
    place: Mapping[str, Any],
) -> None:
    values = {name: read(value, serde) for name, value in state.items()}
    metadata: Any = {name: read(value, serde) for name, value in step["metadata"].items()}
    checkpoint: Any = {
        **step["checkpoint"], "id": step["id"], "channel_values": values, "channel_versions": step["versions"],
        "versions_seen": step["seen"],
    }  # fmt: skip
    parent = {"checkpoint_id": step["parent"]} if step["parent"] else {}
    stored = saver.put({"configurable": {**place, **parent}}, checkpoint, metadata, dict(step["versions"]))
    tasks: dict[str, list[tuple[str, Any]]] = {}
    for task, channel, value in step["writes"]:
        tasks.setdefault(task, []).append((channel, read(value, serde)))
    for order, (task, writes) in enumerate(tasks.items()):
        saver.put_writes(stored, writes, task, f"{order:06}")
