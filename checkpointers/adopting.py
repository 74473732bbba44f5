"""Adopting: a database of the official savers (or any saver) copied into ours, checked equal, resumable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from checkpointers.carrying import differences, paths_of, put_written, rows_of
from checkpointers.codec import Codec
from checkpointers.errors import CheckpointerError
from checkpointers.inherited import Inherited, parent_of, put_told
from checkpointers.operations.common import find_thread
from checkpointers.registry import open_saver
from checkpointers.saver import Saver
from checkpointers.threads import see_read

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

    from checkpointers.standing import Thread

Id = tuple[str, str]


class AdoptionError(CheckpointerError):
    """A checkpoint that did not come out as it went in; what was copied before it is complete."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """What an adoption did: threads seen, checkpoints copied and checked, those there already, and effects entered."""

    threads: int
    checkpoints: int
    already: int
    effects: int = 0


class Step(NamedTuple):
    """A checkpoint of a source; of one of ours with its number, and whether it stands beside the head."""

    ns: str
    id: str
    number: int = 0
    beside: bool = False

    @property
    def place(self) -> Id:
        """Give what it is known by."""
        return self.ns, self.id


def adopt(source: BaseCheckpointSaver[Any] | str, into: Saver, *, threads: Sequence[str] | None = None) -> Adopted:
    """Copy every thread (or these) of a saver, or of its address, and check each checkpoint as it is copied.

    Of a saver of ours its ledger, bodies, tags, pins and numbers come along. Nothing of the source changes. If it stops
    half-way, run it again: what is there is not copied twice, nor what was removed since. A thread that went on in both
    is an `AdoptionError`.
    """
    if isinstance(source, str):
        opened: Any = open_saver(source)
        try:
            return adopt(opened, into, threads=threads)
        finally:
            opened.close()
    steps = _steps(source, threads)
    wanted = sorted(steps) if threads is None else [thread for thread in threads if thread in steps]
    copied = already = effects = 0
    for thread in wanted:
        old, new = _old_and_new(thread, steps[thread], into)
        inherited = Inherited(source, thread, {step.id for step in steps[thread]})
        if isinstance(source, Saver):  # first: nobody goes on without it
            effects += _take_ledger(source, into, thread)
        for step in old:
            _copy(source, into, thread, inherited, step=step, new=False)
        for step in new:
            copied += _copy(source, into, thread, inherited, step=step, new=True)
        if isinstance(source, Saver):
            _take_labels(source, into, thread, steps[thread])
        already += len(old)
    return Adopted(len(wanted), copied, already, effects)


def _old_and_new(thread: str, steps: Sequence[Step], into: Saver) -> tuple[Sequence[Step], Sequence[Step]]:
    """Tell which checkpoints are there, oldest first, and which are to be copied; others were removed there."""
    there = {(step.ns, step.id) for step in into.steps(thread, None)}
    known = [place for place, step in enumerate(steps) if step.place in there]
    own = there.difference(step.place for step in steps)
    # What is older than all that is there was copied once, and removed.
    if known or not own:
        new = steps[known[-1] + 1 :] if known else steps
    else:
        new = [step for step in steps if step.id > min(id_ for _, id_ in own)]
    if new and own:
        msg = (
            f"thread {thread!r} went on where it was adopted, and where it came from, too: nothing of it is copied;"
            " delete the one, or adopt into another database"
        )
        raise AdoptionError(msg)
    return [steps[place] for place in known], new


def _take_ledger(source: Saver, into: Saver, thread: str) -> int:
    """Copy the ledger of a thread, and its bodies; give how many effects are new there, or went on."""
    count = 0
    for body in source.ledger.bodies(thread):
        into.ledger.keep(thread, source.ledger.body(thread, body.hash))
    for entry in source.ledger.entries(thread):
        found, entered = into.ledger._enter(entry)  # noqa: SLF001
        count += entered
        if (found.status, found.record) != (entry.status, entry.record):
            if found.revision >= entry.revision:
                msg = f"effect {entry.key!r} of thread {thread!r} went on where it was adopted and where it came from"
                raise AdoptionError(msg)
            into.ledger.change(found, status=entry.status, record=entry.record)
            count += 1
    return count


def _take_labels(source: Saver, into: Saver, thread: str, steps: Sequence[Step]) -> None:
    """Give a thread the tags that it has there, and pin the same checkpoints."""
    found = _thread(source, thread)
    if found is None or not (found.standing.tags or found.standing.pins):
        return
    now = {(step.ns, step.id): step.number for step in into.steps(thread, None)}
    pinned = [step.place for step in steps if step.number in found.standing.pins]
    into.tag(thread, *found.standing.tags)
    into.pin(thread, *(now[place] for place in pinned if place in now))


def _copy(
    source: BaseCheckpointSaver[Any], into: Saver, thread: str, inherited: Inherited, *, step: Step, new: bool
) -> int:
    config = _config(thread, step.ns, step.id)
    found = source.get_tuple(config)
    if found is None:
        return 0
    if new:
        put_told(
            into, _config(thread, step.ns, parent_of(found)), found.checkpoint, found.metadata,
            told=inherited.of(found), step=step.number, beside=step.beside,
        )  # fmt: skip
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


def _steps(source: BaseCheckpointSaver[Any], threads: Sequence[str] | None) -> dict[str, list[Step]]:
    """Give the checkpoints of each thread in the order in which they are to be copied."""
    if isinstance(source, Saver):
        names = _names(source) if threads is None else threads
        return {thread: _own_steps(source, thread) for thread in names if _thread(source, thread) is not None}
    rows = rows_of(source, "SELECT thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id FROM checkpoints")
    if rows is None:
        listed = [(found, found.config["configurable"]) for found in source.list(None)]
        rows = [(c["thread_id"], c.get("checkpoint_ns", ""), c["checkpoint_id"], parent_of(f)) for f, c in listed]
    parents: dict[str, dict[Id, Id]] = {}
    for thread, ns, id_, parent in rows:
        parents.setdefault(thread, {})[ns, id_] = (ns, parent)
    return {thread: [Step(*place) for place in _parents_first(of)] for thread, of in parents.items()}


def _names(source: Saver) -> list[str]:
    """Name the threads of a saver of ours, those that have nothing but a ledger too; none is left out in silence."""
    listed = {info.thread: info for info in source.threads()}
    for info in listed.values():
        see_read(info)
    shredded = {info.thread for info in listed.values() if info.status == "shredded"}
    return [*dict.fromkeys([*listed, *(use.thread for use in source.usage())]).keys() - shredded]


def _thread(source: Saver, name: str) -> Thread | None:
    return source._read(lambda: find_thread(source._tools(), name))  # noqa: SLF001


def _own_steps(source: Saver, thread: str) -> list[Step]:
    return [Step(step.ns, step.id, step.number, step.beside) for step in source.steps(thread, None)]


def _parents_first(parents: Mapping[Id, Id]) -> list[Id]:
    """Put checkpoints in the order of their ids, each behind the one that it was made from."""
    ordered: dict[Id, None] = {}
    for place in sorted(parents, key=itemgetter(1)):
        way: dict[Id, None] = {}
        while place in parents and place not in ordered and place not in way:
            way[place] = None
            place = parents[place]  # noqa: PLW2901  up to one that is known
        ordered.update(dict.fromkeys(reversed(way)))
    return list(ordered)
