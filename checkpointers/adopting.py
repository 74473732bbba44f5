"""Adopting: a database of the official savers (or any saver) copied into ours, checked equal, resumable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from checkpointers.carrying import differences, paths_of, put_written, rows_of
from checkpointers.codec import Codec
from checkpointers.errors import CheckpointerError
from checkpointers.inherited import Inherited, parent_of, put_told
from checkpointers.registry import open_saver
from checkpointers.saver import Saver

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

Id = tuple[str, str]
_TIME: Final[Callable[[Id], str]] = itemgetter(1)


class AdoptionError(CheckpointerError):
    """A checkpoint that did not come out as it went in; what was copied before it is complete."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """What an adoption did: threads seen, checkpoints copied and checked, and those that were there already."""

    threads: int
    checkpoints: int
    already: int


def adopt(source: BaseCheckpointSaver[Any] | str, into: Saver, *, threads: Sequence[str] | None = None) -> Adopted:
    """Copy every thread (or these) of a saver, or of its address, and check each checkpoint as it is copied.

    Nothing of the source changes. If it stops half-way, run it again: what is there is not copied twice, nor what was
    removed since. A thread that went on in both is an `AdoptionError`.
    """
    if isinstance(source, str):
        opened: Any = open_saver(source)
        try:
            return adopt(opened, into, threads=threads)
        finally:
            opened.close()
    places = _places(source)
    wanted = sorted(places) if threads is None else [thread for thread in threads if thread in places]
    copied = already = 0
    for thread in wanted:
        old, new = _old_and_new(thread, places[thread], into)
        inherited = Inherited(source, thread, {id_ for _, id_ in places[thread]})
        for ns, checkpoint_id in old:
            _copy(source, into, _config(thread, ns, checkpoint_id), inherited, new=False)
        for ns, checkpoint_id in new:
            copied += _copy(source, into, _config(thread, ns, checkpoint_id), inherited, new=True)
        already += len(old)
    return Adopted(len(wanted), copied, already)


def _old_and_new(thread: str, places: Sequence[Id], into: Saver) -> tuple[list[Id], list[Id]]:
    """Tell which checkpoints are there, oldest first, and which are to be copied; others were removed there."""
    there = {(step.ns, step.id) for step in into.steps(thread, None)}
    both, own = there.intersection(places), there.difference(places)
    # What is older than all that is there was copied once, and removed.
    since = max(map(_TIME, both), default=min(map(_TIME, own), default=""))
    new = sorted((place for place in places if _TIME(place) > since), key=_TIME)
    if new and own:
        msg = (
            f"thread {thread!r} went on where it was adopted, and where it came from, too: nothing of it is copied;"
            " delete the one, or adopt into another database"
        )
        raise AdoptionError(msg)
    return sorted(both, key=_TIME), new


def _copy(
    source: BaseCheckpointSaver[Any], into: Saver, config: RunnableConfig, inherited: Inherited, *, new: bool
) -> int:
    found = source.get_tuple(config)
    if found is None:
        return 0
    if new:
        place = _config(config["configurable"]["thread_id"], config["configurable"]["checkpoint_ns"], parent_of(found))
        put_told(into, place, found.checkpoint, found.metadata, told=inherited.of(found))
    written = found.pending_writes or []
    put_written(into, config, written, paths_of(source, config, written))
    _check(found, into.get_tuple(config), Codec(into.serde).packer.one, config)
    return int(new)


def _check(was: CheckpointTuple, now: CheckpointTuple | None, pack: Callable[[Any], bytes], config: Any) -> None:
    differing = ["it is missing"] if now is None else list(differences(was, now, pack))
    if differing:
        where = config["configurable"]
        msg = (
            f"checkpoint {where['checkpoint_id']} of thread {where['thread_id']!r} did not come out as it went in:"
            f" {'; '.join(differing)}"
        )
        raise AdoptionError(msg)


def _config(thread: str, ns: str | None = None, checkpoint_id: str | None = None) -> RunnableConfig:
    configurable: dict[str, Any] = {"thread_id": thread}
    if ns is not None:
        configurable["checkpoint_ns"] = ns
    if checkpoint_id is not None:
        configurable["checkpoint_id"] = checkpoint_id
    return {"configurable": configurable}


def _places(source: BaseCheckpointSaver[Any]) -> dict[str, list[tuple[str, str]]]:
    rows = rows_of(source, "SELECT thread_id, checkpoint_ns, checkpoint_id FROM checkpoints")
    if rows is None:
        listed = [found.config["configurable"] for found in source.list(None)]
        rows = [(c["thread_id"], c.get("checkpoint_ns", ""), c["checkpoint_id"]) for c in listed]
    places: dict[str, list[tuple[str, str]]] = {}
    for thread, ns, checkpoint_id in rows:
        places.setdefault(thread, []).append((ns, checkpoint_id))
    return places
