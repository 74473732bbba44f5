"""A thread taken in that was exported as JSON: step for step, into any saver; values are read strictly."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from checkpointers.carrying import paths_as_given, put_written
from checkpointers.errors import HistoryError, ThreadExistsError
from checkpointers.exporting import FORMAT, VERSION
from checkpointers.inherited import put_told
from checkpointers.patching import applied
from checkpointers.saver import Saver
from checkpointers.spelling import read
from checkpointers.strict import StrictSerializer

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver, DeltaChannelHistory
    from langgraph.checkpoint.serde.base import SerializerProtocol

_NOT_WHOLE: Final = "this is no thread that was exported whole: {}"
_TOLD: Final = (
    "steps of it were removed before it was exported, and only savers of ours keep what those told its DeltaChannels;"
    " import it into one"
)
_PARTS: Final = {"thread": str, "ns": str, "steps": list}
_OF_A_STEP: Final = ("parent", "metadata", "checkpoint", "versions", "seen", "writes")


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
    document = read_document(data)
    name = thread or document["thread"]
    if next(iter(saver.list({"configurable": {"thread_id": name}}, limit=1)), None) is not None:
        raise ThreadExistsError(name)
    if not isinstance(saver, Saver) and any("told" in step for step in document["steps"]):
        raise HistoryError(_TOLD)
    serde = saver.serde if isinstance(saver, Saver) else StrictSerializer(types)
    versions: dict[tuple[str, Any], Any] = {}
    try:
        for step, state in zip(document["steps"], _states(document), strict=True):
            if not isinstance(saver, Saver):
                _check_versions(step["versions"], state, versions)
            _put(saver, step, state, serde, {"thread_id": name, "checkpoint_ns": document["ns"]})
    except (KeyError, TypeError, AttributeError) as error:
        raise HistoryError(_NOT_WHOLE.format(repr(error)[:200])) from error
    return name


def read_document(data: str | Mapping[str, Any]) -> Mapping[str, Any]:
    """Read what `history.export("json")` gave, and see that it has all that makes a thread, before anything is made."""
    try:
        document: Any = json.loads(data) if isinstance(data, str) else data
    except ValueError as error:
        raise HistoryError(f"this is no JSON ({error}); take what `export` gave as JSON") from error
    if not isinstance(document, Mapping) or (document.get("format"), document.get("version")) != (FORMAT, VERSION):
        raise HistoryError(f"this is no thread that was exported: it wants format {FORMAT!r}, version {VERSION}")
    wrong = next((name for name, kind in _PARTS.items() if not isinstance(document.get(name), kind)), None)
    if wrong or not (document["steps"] and document["thread"]):
        raise HistoryError(_NOT_WHOLE.format(f"its {wrong or 'thread or its steps'} is missing or empty"))
    try:
        for step, _ in zip(document["steps"], _states(document), strict=True):
            missing = [name for name in _OF_A_STEP if name not in step]
            if missing:
                raise HistoryError(_NOT_WHOLE.format(f"step {step['id']} has no {', '.join(missing)}"))
    except (KeyError, TypeError, AttributeError) as error:
        raise HistoryError(_NOT_WHOLE.format(repr(error)[:200])) from error
    return document


def _states(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Give the state of each step, of which a document has what changed."""
    states: dict[str, Any] = {}
    for step in document["steps"]:
        states[step["id"]] = applied(states[step["parent"]], step["patch"]) if "patch" in step else step["state"]
        yield states[step["id"]]


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
    more = {name: read(value, serde) for name, value in step["checkpoint"].items()}
    checkpoint: Any = {
        **more, "id": step["id"], "channel_values": values, "channel_versions": step["versions"],
        "versions_seen": step["seen"],
    }  # fmt: skip
    parent = {"checkpoint_id": step["parent"]} if step["parent"] else {}
    config: RunnableConfig = {"configurable": {**place, **parent}}
    if isinstance(saver, Saver):
        stored = put_told(saver, config, checkpoint, metadata, told=_told(step, serde))
    else:
        stored = saver.put(config, checkpoint, metadata, dict(step["versions"]))
    written = [(task, channel, read(value, serde)) for task, channel, value in step["writes"]]
    put_written(saver, stored, written, step.get("paths") or paths_as_given(written))


def _told(step: Mapping[str, Any], serde: SerializerProtocol) -> dict[str, DeltaChannelHistory]:
    """Read what steps that were removed told the DeltaChannels of one."""
    told: dict[str, DeltaChannelHistory] = {}
    for channel, history in step.get("told", {}).items():
        told[channel] = {"writes": [(str(task), channel, read(value, serde)) for task, _, value in history["writes"]]}
        if "seed" in history:
            told[channel]["seed"] = read(history["seed"], serde)
    return told
