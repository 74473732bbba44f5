"""A thread taken in that was exported as JSON: step for step, into any saver; values are read strictly."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from langgraph.checkpoint.base import CheckpointTuple

from checkpointers.carrying import differences, put_written
from checkpointers.codec import Codec
from checkpointers.documents import Taken, of_step, read_document, taken
from checkpointers.errors import HistoryError, ThreadExistsError, at
from checkpointers.inherited import parent_of, put_told
from checkpointers.operations import remove
from checkpointers.operations.common import ROOT
from checkpointers.saver import Saver
from checkpointers.strict import StrictSerializer

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from checkpointers.operations.remove import Contents

_TOLD: Final = (
    "steps of it were removed before it was exported, and only savers of ours keep what those told its DeltaChannels;"
    " import it into one"
)
_UNSETTLED: Final = (
    "{:.120} has effects ({!r:.20}) of which only its ledger says whether they were made, and an export has no ledger:"
    " who goes on with it may make them again. Copy the thread with adopt(), or import its states alone:"
    " without_ledger=True"
)


def import_thread(
    saver: BaseCheckpointSaver[Any],
    data: str | Mapping[str, Any],
    *,
    thread: str | None = None,
    types: Iterable[type] = (),
    without_ledger: bool = False,
) -> str:
    """Make a thread of what `history.export("json")` gave, under its name or another that is free; give the name.

    Only listed types are built: those of a saver of ours, or `types`, whatever another saver would build. All of them
    are before anything is stored, and what fails after all leaves nothing behind. An import that was killed goes on
    when it is begun again with the same document. What a subgraph remembers is a document of its own, and is put into
    the thread from which it was called. The ledger of effects is not exported: a thread with effects that may be made
    again for that is refused, unless `without_ledger` says that this is known.
    """
    document = read_document(data)
    if document.get("unsettled") and not without_ledger:
        raise HistoryError(_UNSETTLED.format(at(document["thread"], None), document["unsettled"]))
    name = document["thread"] if thread is None else thread
    serde = saver.serde if isinstance(saver, Saver) else StrictSerializer(types)
    steps = taken(document, serde)
    if not isinstance(saver, Saver):
        _see_keepable(steps)
    target = _Target(saver, name, document["ns"])
    begun = target.begun(steps, serde)
    target.put(steps, begun)
    return name


def _see_keepable(steps: Sequence[Taken]) -> None:
    """Refuse what only savers of ours can keep."""
    if any(step.told for step in steps):
        raise HistoryError(_TOLD)
    versions: dict[tuple[str, Any], Any] = {}
    for step in steps:
        with of_step(step.where):
            _check_versions(step.checkpoint["channel_versions"], step.state, versions)


def _check_versions(now: Mapping[str, Any], state: Mapping[str, Any], known: dict[tuple[str, Any], Any]) -> None:
    """Refuse branches whose values have the same version: other savers would take one for the other."""
    for channel in state:
        place = (channel, now.get(channel))
        if known.setdefault(place, state[channel]) != state[channel]:
            msg = f"channel {channel!r} has version {place[1]!r} on two branches; only savers of ours tell them apart"
            raise HistoryError(msg)


class _Target:
    """One namespace of a thread in a saver, into which steps are put."""

    def __init__(self, saver: BaseCheckpointSaver[Any], thread: str, ns: str) -> None:
        self._saver, self._thread, self._ns = saver, thread, ns
        self._there = self._stored()

    def begun(self, steps: Sequence[Taken], serde: SerializerProtocol) -> int:
        """Count the steps that are there of an import that was cut off; a thread that has any other is refused."""
        there = self._there.get(self._ns, [])
        begun = steps[: len(there)]
        alone = not self._there.keys() - {self._ns}
        if {step.checkpoint["id"] for step in begun} != set(there) or not (alone or self._is_home_of(steps)):
            raise ThreadExistsError(self._thread)
        pack, lacking = Codec(serde).packer.one, len(there) < len(steps)
        for step in begun:
            config = self._config(step.checkpoint["id"])
            found, writes = self._saver.get_tuple(config), list(step.writes)
            if found is not None and step is begun[-1]:  # it may have been cut off between this and its writes
                stored = {write[:2] for write in found.pending_writes or []}
                writes = [write for write in writes if write[:2] in stored]
                lacking = lacking or len(writes) < len(step.writes)
            told = CheckpointTuple(config, step.checkpoint, step.metadata, None, writes)
            if found is None or parent_of(found) != (step.parent or None) or any(differences(told, found, pack)):
                raise ThreadExistsError(self._thread)
        if not lacking:
            raise ThreadExistsError(self._thread)
        return len(there)

    def _is_home_of(self, steps: Sequence[Taken]) -> bool:
        """Tell whether steps are of a subgraph that was called from the thread that is there."""
        parents = [step.metadata.get("parents") for step in steps]
        return any(isinstance(one, dict) and one.get(ROOT) in self._there.get(ROOT, ()) for one in parents)

    def put(self, steps: Sequence[Taken], begun: int) -> None:
        """Put the steps that are not there, and all writes of the last one that is; or nothing, if one fails."""
        for step in steps[max(begun - 1, 0) : begun]:
            put_written(self._saver, self._config(step.checkpoint["id"]), step.writes, step.paths)
        own = []
        try:
            for step in steps[begun:]:
                own.append(step.checkpoint["id"])
                with of_step(step.where):
                    self._put(step)
        except BaseException:
            with suppress(Exception):  # if the database cannot do that either, the import goes on when begun again
                self._remove(own)
            raise

    def _put(self, step: Taken) -> None:
        config = self._config(step.parent or None)
        if isinstance(self._saver, Saver):
            stored = put_told(
                self._saver, config, step.checkpoint, step.metadata, told=step.told, beside=step.beside
            )  # fmt: skip
        else:
            stored = self._saver.put(config, step.checkpoint, step.metadata, step.checkpoint["channel_versions"])
        put_written(self._saver, stored, step.writes, step.paths)

    def _remove(self, ids: Collection[str]) -> None:
        if isinstance(self._saver, Saver):
            drop = partial(remove.drop, self._saver._tools(), self._thread, partial(_numbers, self._ns, ids))  # noqa: SLF001
            self._saver._change(self._thread, drop)  # noqa: SLF001  what is removed here, only this stored
        elif not self._there:
            self._saver.delete_thread(self._thread)

    def _stored(self) -> dict[str, list[str]]:
        """Give the ids of all that is stored of the thread, by their namespaces."""
        if isinstance(self._saver, Saver):
            places = [(info.ns, info.id) for info in self._saver.steps(self._thread, None)]
        else:
            found = [
                one.config["configurable"] for one in self._saver.list({"configurable": {"thread_id": self._thread}})
            ]
            places = [(one.get("checkpoint_ns", ""), one["checkpoint_id"]) for one in found]
        stored: dict[str, list[str]] = {}
        for ns, id_ in places:
            stored.setdefault(ns, []).append(id_)
        return stored

    def _config(self, id_: str | None) -> RunnableConfig:
        configurable = {"thread_id": self._thread, "checkpoint_ns": self._ns}
        return {"configurable": configurable | ({"checkpoint_id": id_} if id_ else {})}


def _numbers(ns: str, ids: Collection[str], found: Contents) -> list[int]:
    return [record.step for record in found.records if record.ns == ns and record.id in ids]
