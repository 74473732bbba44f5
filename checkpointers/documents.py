"""The JSON document of a thread, read: seen to be whole, and the values of its steps made, as strictly as can be."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from checkpointers.carrying import Written, paths_as_given
from checkpointers.errors import CheckpointerError, HistoryError, StrictReadingError, at
from checkpointers.exporting import FORMAT, VERSION
from checkpointers.patching import applied
from checkpointers.plain import visible
from checkpointers.spelling import read

if TYPE_CHECKING:
    from langgraph.checkpoint.base import DeltaChannelHistory
    from langgraph.checkpoint.serde.base import SerializerProtocol

_NOT_WHOLE: Final = "this is no thread that was exported whole: {}"
_PARTS: Final = {"thread": str, "ns": str, "steps": list}
_OF_A_STEP: Final[Mapping[str, Any]] = {
    "id": str, "parent": (str, NoneType), "metadata": Mapping, "checkpoint": Mapping, "versions": Mapping,
    "seen": Mapping, "writes": list,
}  # fmt: skip
#: What going through a document raises that somebody altered.
_ALTERED: Final = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)


class Taken(NamedTuple):
    """A step of a document, its values made; `state` is as it is spelled."""

    where: str
    state: Mapping[str, Any]
    checkpoint: Any
    metadata: Any
    parent: str | None
    told: dict[str, DeltaChannelHistory]
    writes: Written
    paths: list[str]
    beside: bool


def read_document(data: str | Mapping[str, Any]) -> Mapping[str, Any]:
    """Read what `history.export("json")` gave, and see that it has all that makes a thread, before anything is made."""
    try:
        document: Any = json.loads(data) if isinstance(data, str) else data
    except (ValueError, RecursionError) as error:
        raise HistoryError(f"this is no JSON ({error}); take what `export` gave as JSON") from error
    if not isinstance(document, Mapping) or (document.get("format"), document.get("version")) != (FORMAT, VERSION):
        raise HistoryError(f"this is no thread that was exported: it wants format {FORMAT!r}, version {VERSION}")
    wrong = next((name for name, kind in _PARTS.items() if not isinstance(document.get(name), kind)), None)
    if wrong or not document["steps"]:
        raise HistoryError(_NOT_WHOLE.format(f"its {wrong or 'steps'}: missing, empty or of another kind"))
    ids = set()
    for where, step, _ in _states(document):
        with of_step(where):
            _see_form(step)
            if step["id"] in ids:
                raise ValueError(f"another step has its id {step['id']!r}")
            ids.add(step["id"])
    return document


def _states(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    """Give each step, where it is, and its state, of which a document has what changed."""
    states: dict[str, Any] = {}
    for place, step in enumerate(document["steps"], 1):
        number = step.get("step", place) if isinstance(step, Mapping) else place
        with of_step(where := visible(f"{at(document['thread'], number):.120} of the document")):
            state = applied(states[step["parent"]], step["patch"]) if "patch" in step else step["state"]
            states[step["id"]] = state
        yield where, step, state


def _see_form(step: Mapping[str, Any]) -> None:
    """See that a step has all its parts, each of its kind."""
    missing = [name for name in _OF_A_STEP if name not in step]
    wrong = [name for name, kind in _OF_A_STEP.items() if name in step and not isinstance(step[name], kind)]
    if missing or wrong:
        raise ValueError(f"it has no {', '.join(missing)}" if missing else f"its {wrong[0]} is of another kind")
    if not step["id"] or not all(isinstance(seen, Mapping) for seen in step["seen"].values()):
        raise ValueError("its id or what its nodes saw is not of its kind")
    texts = [*step.get("paths", ())]
    for task, channel, _ in step["writes"]:
        texts += [task, channel]
    if len(texts) not in (2 * len(step["writes"]), 3 * len(step["writes"])) or set(map(type, texts)) - {str}:
        raise ValueError("its writes have no tasks, channels or paths that are texts")


@contextmanager
def of_step(where: str) -> Iterator[None]:
    """Say of which step of a document it is that something is wrong."""
    try:
        yield
    except StrictReadingError as error:
        error.where = error.where or where
        raise
    except HistoryError as error:
        raise HistoryError(f"{where}: {error}") from error
    except CheckpointerError:
        raise
    except _ALTERED as error:
        raise HistoryError(_NOT_WHOLE.format(f"{where}: {visible(repr(error)[:200])}")) from error


def taken(document: Mapping[str, Any], serde: SerializerProtocol) -> list[Taken]:
    """Make the values of all steps."""
    steps = []
    for where, step, state in _states(document):
        with of_step(where):
            steps.append(_made(step, state, serde, where))
    return steps


def _made(step: Mapping[str, Any], state: Mapping[str, Any], serde: SerializerProtocol, where: str) -> Taken:
    def values(spelled: Mapping[str, Any]) -> dict[str, Any]:
        return {name: read(value, serde) for name, value in spelled.items()}

    checkpoint = {
        **values(step["checkpoint"]), "id": step["id"], "channel_values": values(state),
        "channel_versions": dict(step["versions"]), "versions_seen": step["seen"],
    }  # fmt: skip
    writes = [(task, channel, read(value, serde)) for task, channel, value in step["writes"]]
    paths = step.get("paths") or paths_as_given(writes)
    metadata, beside = values(step["metadata"]), step.get("beside") is True
    return Taken(where, state, checkpoint, metadata, step["parent"], _told(step, serde), writes, paths, beside)


def _told(step: Mapping[str, Any], serde: SerializerProtocol) -> dict[str, DeltaChannelHistory]:
    """Read what steps that were removed told the DeltaChannels of one."""
    told: dict[str, DeltaChannelHistory] = {}
    for channel, history in step.get("told", {}).items():
        told[channel] = {"writes": [(str(task), channel, read(value, serde)) for task, _, value in history["writes"]]}
        if "seed" in history:
            told[channel]["seed"] = read(history["seed"], serde)
    return told
