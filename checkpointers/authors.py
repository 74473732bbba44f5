"""Which nodes made a checkpoint: told from what LangGraph keeps of versions and tasks; pure.

No checkpoint names its nodes. Those that an edge started are seen in the versions they have read since the parent;
those that a `Send` started are named in the parent. A task's id is a hash of its node's name, so a write that has
one is attributed to its node exactly.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from checkpointers.threads import StepInfo

SENDS: Final = "__pregel_tasks"
_BUMPS: Final = "__snapshot_bumps__"
_BY_COMMAND: Final = str(UUID(int=0))
_NOBODY: Final = ("__input__", "__interrupt__", _BUMPS)


def nodes_of(step: StepInfo, parent: StepInfo | None, sends: Sequence[str]) -> tuple[str, ...]:
    """Name the nodes that ran between a step and its parent; nobody ran for an input, an update or a fork."""
    if step.source not in ("loop", ""):
        return ()
    before = parent.seen if parent else {}
    marks = step.seen.get(_BUMPS) or {}
    ran = {name for name, read in step.seen.items() if name not in before or dict(read) != dict(before[name])}
    bumped = {name for name in ran if _only_bumped(name, step.seen[name], before.get(name, {}), marks)}
    return tuple(sorted({*(ran - bumped), *sends} - {"", *_NOBODY}))


def _only_bumped(name: str, read: Mapping[str, Any], before: Mapping[str, Any], marks: Mapping[str, Any]) -> bool:
    """Tell whether LangGraph moved these versions itself, to store a snapshot; the node did not run."""
    moved = {channel for channel, version in read.items() if before.get(channel) != version}
    return bool(moved) and not moved & _read(name, read, marks)


def _read(name: str, read: Mapping[str, Any], marks: Mapping[str, Any]) -> set[str]:
    """Name the channels that a node has read itself: LangGraph marks those that it only moved for a snapshot."""
    return {channel for channel, version in read.items() if marks.get(f"{name}|{channel}") != version}


def has_sends(step: StepInfo, parent: StepInfo | None) -> bool:
    """Tell whether the parent may have sent tasks: they were taken on the way to this step."""
    return parent is not None and step.versions.get(SENDS) != parent.versions.get(SENDS)


def sent(values: Mapping[str, Any]) -> list[str]:
    """Name the nodes that the `Send`s stored in a checkpoint go to, in their order."""
    sends = values.get(SENDS)
    return [getattr(send, "node", "") for send in sends] if isinstance(sends, list | tuple) else []


def sent_to(parent: StepInfo, tasks: Collection[str], names: Collection[str]) -> list[str]:
    """Name the nodes that tasks of a checkpoint were sent to, where each is one of the names.

    The id of a task tells its node and its place among the sends to whoever guesses both.
    """
    known = {_task_id(parent, name, "__pregel_push", str(place)): name for name in names for place in range(len(tasks))}
    return sorted({known[task] for task in tasks if task in known})


def writers(
    nodes: Collection[str], tasks: Collection[str], *, step: StepInfo, parent: StepInfo, sends: Sequence[str]
) -> tuple[str, ...]:
    """Pick the nodes that these tasks of the parent belong to; all of the nodes if an id is of another making."""
    names = {_task_id(parent, name, "__pregel_pull", *_triggers(step, name)): name for name in nodes}
    names |= {_task_id(parent, name, "__pregel_push", str(index)): name for index, name in enumerate(sends)}
    own = set(tasks) - {_BY_COMMAND}
    if not own <= names.keys():
        return tuple(nodes)
    return tuple(sorted({names[task] for task in own})) or tuple(nodes)


def _triggers(step: StepInfo, name: str) -> list[str]:
    joins = {channel for channel in step.versions if channel.startswith("join:") and channel.endswith(f":{name}")}
    own = {f"branch:to:{name}"} if name != "__start__" else set()
    read = _read(name, step.seen.get(name, {}), step.seen.get(_BUMPS) or {})
    return sorted({*read, *joins, *own})


def _task_id(parent: StepInfo, name: str, *kind: str) -> str:
    from xxhash import xxh3_128_hexdigest  # noqa: PLC0415  LangGraph's; only who asks for this much pays for it

    place = f"{parent.ns}|{name}" if parent.ns else name
    try:
        seed, number = UUID(parent.id).bytes, int(parent.metadata["step"]) + 1
    except (ValueError, TypeError, KeyError):
        return ""
    return str(UUID(xxh3_128_hexdigest(seed + "".join([place, str(number), name, *kind]).encode())))
