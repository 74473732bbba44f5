"""A thread handed on: as JSON that can be imported, as Markdown for a model, as Python that makes a state again.

The JSON document: "format" and "version"; "thread", "ns", "redacted"; "unsettled", how many effects of its ledger the
states do not tell the end of, if there are any; "steps", oldest first, each with "step" (its number), "id", "parent"
(an id), "beside" if it is of a branch beside where the thread stands, "source" and "nodes" (to be read), "checkpoint"
(the clock and what else LangGraph keeps of it), "versions", "seen", "metadata"; "state", the values of all channels, or
"patch", the RFC 6902 patch that makes them of those of the parent, which then stands before it; "writes", each [task,
channel, value], and "paths", that of the task of each, by which parallel tasks are told in order (documents of older
releases have none); and where ancestors are not stored any more "told", by DeltaChannel what those told it: its "seed",
if there is one, and their "writes". Values are spelled as `spelling` says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pprint import pformat
from typing import TYPE_CHECKING, Any, Final

from checkpointers.diffing import Diff, compare
from checkpointers.patching import patch
from checkpointers.plain import as_json, visible
from checkpointers.records import KNOWN_KEYS
from checkpointers.redacting import REDACTED, is_hidden, is_secret, redacted
from checkpointers.spelling import cleaned, respelled, spelled
from checkpointers.step import Step
from checkpointers.timeline import Timeline, Told

if TYPE_CHECKING:
    from langgraph.checkpoint.serde.base import SerializerProtocol

FORMAT: Final = "checkpointers.thread"
VERSION: Final = 1
_APART: Final = ("channel_values", "channel_versions", "versions_seen", "id")
LONGEST: Final = 2_000
END: Final = 500
_ODD: Final = object()


def as_document(steps: list[Step], timeline: Timeline, *, redact: bool) -> dict[str, Any]:
    """Give a thread as JSON, all of it."""
    speller = Speller(timeline.serde, redact=redact, shared=timeline.own is not None)
    states: dict[str, dict[str, Any]] = {}
    told = [
        _step(step, speller, states) | _paths(step, timeline) | _told_before(step, speller, timeline) for step in steps
    ]
    head = {"format": FORMAT, "version": VERSION, "thread": timeline.thread, "ns": timeline.ns, "redacted": redact}
    unsettled = timeline.unsettled()
    return {**head, **({"unsettled": unsettled} if unsettled else {}), "steps": told}


def _step(step: Step, speller: Speller, states: dict[str, dict[str, Any]]) -> dict[str, Any]:
    found = step.stored
    checkpoint: Mapping[str, Any] = {**found.checkpoint}
    before = states.get(step.parent_id or "")
    state = {
        name: before[name] if before and name in before and not step.rewrote(name) else speller.told(name, value)
        for name, value in checkpoint["channel_values"].items()
    }
    states[step.id] = state
    return {
        "step": step.number, "id": step.id, "parent": step.parent_id, "source": step.source, "nodes": list(step.nodes),
        "checkpoint": {
            name: value if name in KNOWN_KEYS else speller.told(name, value)
            for name, value in checkpoint.items() if name not in _APART
        },
        "versions": dict(checkpoint["channel_versions"]), "seen": checkpoint["versions_seen"],
        "metadata": {name: speller.told(name, value) for name, value in found.metadata.items()},
        **({"beside": True} if step.beside else {}),
        **({"state": state} if before is None else {"patch": patch(before, state)}),
        "writes": [[task, channel, speller.told(channel, value)] for task, channel, value in step.pending],
    }  # fmt: skip


def _paths(step: Step, timeline: Timeline) -> dict[str, Any]:
    paths = timeline.paths_on(step.stored)
    return {"paths": paths} if paths else {}


def _told_before(step: Step, speller: Speller, timeline: Timeline) -> dict[str, Any]:
    """Give what ancestors that were removed told the DeltaChannels of a step, if they did."""
    told = timeline.told_before(step.stored)

    def spell(channel: str, writes: Any) -> list[Any]:
        return [[task, channel, speller.told(channel, value)] for task, _, value in writes]

    each = {
        channel: {
            "writes": spell(channel, history["writes"]),
            **({"seed": speller.told(channel, history["seed"])} if "seed" in history else {}),
        }
        for channel, history in told.items()
    }
    return {"told": each} if each else {}


class Speller:
    """Spells values, items of lists that it knows already only once: by what they are, or by how they are written."""

    def __init__(self, serde: Any, *, redact: bool, shared: bool) -> None:
        """Spell as a serializer does; `shared` says that what is the same is the same object, and stays."""
        self._serde: SerializerProtocol = getattr(
            serde, "serde", serde
        )  # of one that encrypts: what is exported is not
        self._redact, self._shared = redact, shared
        self._objects: dict[tuple[int, bool], tuple[Any, Any]] = {}
        self._written: dict[tuple[bytes, bool], Any] = {}

    def told(self, name: str, value: Any) -> Any:
        """Spell what has this name."""
        secret = self._redact and is_secret(name)
        if type(value) is list and value:
            items = [self._item(item, secret=secret) for item in value]
            if all(item is not _ODD for item in items):
                return items
        spelling = spelled(value, self._serde)
        return cleaned(spelling, secret=secret) if self._redact else spelling

    def _item(self, item: Any, *, secret: bool) -> Any:
        if not self._shared:
            return self._spelled(item, secret=secret)
        place = (id(item), secret)
        if place not in self._objects:
            self._objects[place] = (item, self._spelled(item, secret=secret))  # the item keeps its number
        return self._objects[place][1]

    def _spelled(self, item: Any, *, secret: bool) -> Any:
        """Spell one item, `_ODD` if it is not written as a part of a list would be."""
        tag, data = self._serde.dumps_typed(item)
        if tag != "msgpack":
            return None if tag == "null" else _ODD
        place = (data, secret)
        if place not in self._written:
            spelling = respelled(data)
            self._written[place] = cleaned(spelling, secret=secret) if self._redact else spelling
        return self._written[place]


def as_text(document: Mapping[str, Any]) -> str:
    """Write JSON, a step a line, so that nothing in it garbles a screen."""
    head = {name: value for name, value in document.items() if name != "steps"}
    steps = ",\n".join(_json(step) for step in document["steps"])
    return visible(f'{_json(head)[:-1]}, "steps": [\n{steps}\n]}}\n')


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def as_markdown(steps: list[Step], *, thread: str, redact: bool) -> str:
    """Write what each step changed, for a model to read: values in fences that nothing in them ends."""
    return "\n".join(
        [f"# Thread {_code(thread)}", "", *(line for step in steps for line in _told(step, redact=redact))]
    )


def _told(step: Step, *, redact: bool) -> Iterator[str]:
    who = ", ".join(step.nodes) or step.source
    yield f"## {_code(str(step))} {_code(who)} {step.status} {step.at:%Y-%m-%d %H:%M:%S}"
    changes = Diff("", "", tuple(compare(dict(step.before), dict(step.values)))).changes
    shown = [_line(change.kind, change.path, change.after, redact=redact) for change in changes]
    shown += [_line("error", "", error, redact=redact) for error in step.errors]
    shown += [_line("asked", "", asked, redact=redact) for asked in step.interrupts]
    text = "\n".join(shown) or "(nothing changed)"
    fence = "`" * max(3, _longest(text) + 1)
    yield from (fence, text, fence, "")


def _line(kind: str, path: str, value: Any, *, redact: bool) -> str:
    told = as_json(value)
    if redact:
        told = redacted(told, secret=is_hidden(path, value))
    return visible(f"{kind} {path}: {_cut(json.dumps(told, ensure_ascii=False))}")


def _cut(text: str) -> str:
    """Leave out the middle of a long text: what a list has new stands at its end."""
    hidden = len(text) - LONGEST
    return f"{text[: LONGEST - END]}… ({hidden} characters) …{text[-END:]}" if hidden > 0 else text


def _longest(text: str) -> int:
    runs = [len(run) for run in "".join(c if c == "`" else " " for c in text).split()]
    return max(runs, default=0)


def _code(text: str) -> str:
    """Write a name in the middle of a line; it cannot end the code that it stands in."""
    name = visible(text).replace("\n", "\\n").replace("`", "'")
    return f"`{name}`"


def as_python(step: Step, *, redact: bool) -> str:
    """Write code that makes the state of a step again: plain values as they are, others for the serializer."""
    speller = Speller(step.serde, redact=redact, shared=False)
    lines = [f"state[{name!r}] = {_made(speller, name, value)}" for name, value in step.values.items()]
    head = [
        "from checkpointers import StrictSerializer, Told",
        "from checkpointers.spelling import read",
        "",
        "serde = StrictSerializer()  # types=[…] of your own",
    ] * any("read(" in line or "Told(" in line for line in lines)
    return "\n".join(
        [f"# The state of {str(step)!a}{f', secrets as {REDACTED!r}' * redact}.", *head, "state = {}", *lines, ""]
    )


def _made(speller: Speller, name: str, value: Any) -> str:
    """Write the code of a value; what a DeltaChannel was told stays that, for its reducer."""
    if isinstance(value, Told):
        writes = [_made(speller, name, write) for write in value.writes]
        return f"Told({_made(speller, name, value.seed)}, ({', '.join([*writes, ''])}))"
    spelling = speller.told(name, value)
    code = pformat(spelling, width=100, sort_dicts=False)
    return f"read({code}, serde)" if '"$' in json.dumps(spelling) else code
