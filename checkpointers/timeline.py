"""The steps of a thread as one saver stores them, ours or any other; states are loaded one at a time, when needed."""

from __future__ import annotations

from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

from checkpointers.authors import SENDS, has_sends, nodes_of, sent
from checkpointers.carrying import paths_of
from checkpointers.errors import AsyncSaverError, CheckpointerError, UnknownStepError, UnknownThreadError, at
from checkpointers.gathering import Gathered, gather
from checkpointers.inherited import Inherited
from checkpointers.ledger import CLAIMED
from checkpointers.operations import survey
from checkpointers.operations.common import ROOT
from checkpointers.paths import ABSENT
from checkpointers.records import EPOCH, KIND_OF
from checkpointers.saver import Saver
from checkpointers.status import flags_of, status_of
from checkpointers.threads import StepInfo, counted, when

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, DeltaChannelHistory

T = TypeVar("T")
LOADED: Final = 16
_COUNTERS: Final = "counters_since_delta_snapshot"
_INTERNAL: Final = frozenset({"__start__", "__pregel_tasks"})


@dataclass(frozen=True, slots=True)
class Told:
    """What a DeltaChannel was told, where its value is not stored: from `seed`, each of `writes` in their order.

    Only the graph's own reducer makes the value of it: `graph.get_state(step.config).values`.
    """

    seed: Any
    writes: tuple[Any, ...]


class Timeline:
    """The steps of one namespace of a thread, up to the one that was the newest when this was made; it never writes.

    Of our savers they are listed when they are needed: who asks for one step by its number reads no row but its own
    and that of the step that it was made from.
    """

    def __init__(self, saver: BaseCheckpointSaver[Any], thread: str, ns: str, newest: int | None = None) -> None:
        """Find the newest step, or so many; a saver of another making has to load all of its states for that."""
        if newest is not None:
            counted("newest", newest, least=1)
        self.thread, self.ns, self.newest, self._saver = thread, ns, newest, saver
        self._gathered: Gathered | None = None
        found = self._ask(self._ours if isinstance(saver, Saver) else self._theirs)
        if not found:
            raise self._unknown()
        self.head = found[-1]
        self._near = {info.id: info for info in found}
        if self.own is None or newest is not None:
            self._every = found
        self._whole: Self | None = None
        self._remember()

    @cached_property
    def _every(self) -> list[StepInfo]:
        """All steps, or the newest after those that they were made from; oldest first."""
        own = cast("Saver", self._saver)
        found = [info for info in own.steps(self.thread, self.ns) if info.number <= self.head.number]
        if not found:
            raise self._dropped(self.head.number)
        return found

    @cached_property
    def infos(self) -> Mapping[int, StepInfo]:
        """The steps by their numbers, oldest first."""
        return {info.number: info for info in self._every[-(self.newest or 0) :]}

    @cached_property
    def by_id(self) -> Mapping[str, StepInfo]:
        """The steps by the ids of their checkpoints; with the newest, also those that they were made from."""
        return {info.id: info for info in self._every}

    def numbered(self, number: int) -> StepInfo:
        """Give a step by its number, or from the newest back."""
        if "_every" not in self.__dict__ and (alone := self._alone(number)) is not None:
            return alone
        infos = self.infos
        if number in infos:
            return infos[number]
        if -len(infos) <= number < 0:
            return list(infos.values())[number]
        raise self._no_step(number)

    def _alone(self, number: int) -> StepInfo | None:
        """Read a step and the one that it was made from, and no other; None if that cannot tell which step it is."""
        own = cast("Saver", self._saver)
        if not 0 < number <= self.head.number:
            return self.head if number == -1 else None
        found = own._read(lambda: survey.one_step(own._tools(), self.thread, self.ns, number))  # noqa: SLF001
        self._near |= {info.id: info for info in found}
        return found[-1] if found and found[-1].number == number else None

    def find(self, checkpoint_id: str) -> StepInfo | None:
        """Give a step by the id of its checkpoint, None if it is not stored or was not read."""
        return self._near.get(checkpoint_id) or self.by_id.get(checkpoint_id)

    def _remember(self) -> None:
        """Begin to keep the last few that are loaded."""
        self._lately = lru_cache(LOADED)(self._load)
        self._lately_values = lru_cache(LOADED)(self._values)
        self._lately_one = lru_cache(LOADED)(self._value)

    @property
    def own(self) -> Saver | None:
        """The saver if it is one of ours, which know more."""
        return self._saver if isinstance(self._saver, Saver) else None

    @property
    def serde(self) -> Any:
        """What the saver writes values with."""
        return self._saver.serde

    def parent(self, info: StepInfo) -> StepInfo | None:
        """Give the step that this one was made from, None if it is the first or the parent is not stored."""
        return self.find(info.parent_id) if info.parent_id else None

    def ancestry(self, end: StepInfo | None = None) -> list[StepInfo]:
        """Give the head, or another step, and all it was made from, newest first; other branches are left out."""
        chain: dict[str, StepInfo] = {}
        info: StepInfo | None = end or self.stands_at
        self._see_listed(end or self.stands_at)
        while info is not None and info.id not in chain and info.number in self.infos:
            chain[info.id] = info
            info = self.parent(info)
        return list(chain.values())

    @property
    def stands_at(self) -> StepInfo:
        """The step at which the thread stands: the newest that is not beside it, as another writer's branch is."""
        if not self.head.beside:
            return self.head
        return next((info for info in reversed([*self.infos.values()]) if not info.beside), self.head)

    def _see_listed(self, info: StepInfo) -> None:
        """See that a step is among the steps: it may have been dropped before those were listed."""
        listed = self.infos.get(info.number)
        if listed is None or listed.id != info.id:
            raise self._dropped(info.number) if info.id not in self.by_id else self._no_step(info.number)

    def way(self) -> list[StepInfo]:
        """Give the way to the head, oldest first, beginning with the step before it if that was not read."""
        chain = self.ancestry()[::-1]
        origin = self.parent(chain[0])
        return chain if origin is None or origin.number in self.infos else [origin, *chain]

    @property
    def older(self) -> bool:
        """Tell whether steps that others were made from were not read, as they are older than the newest."""
        return any(parent.number not in self.infos for info in self.infos.values() if (parent := self.parent(info)))

    def is_told(self, info: StepInfo) -> bool:
        """Tell whether the step has DeltaChannels, some of which may be `Told`."""
        return bool(info.metadata.get(_COUNTERS))

    def told_before(self, found: CheckpointTuple) -> dict[str, DeltaChannelHistory]:
        """Give what the DeltaChannels of a step were told by steps that were removed."""
        return self._ask(lambda: self._inherited.of(found))

    def paths_on(self, found: CheckpointTuple) -> list[str]:
        """Give the path of the task of each pending write of a step: the order of parallel ones hangs on them."""
        id_, written = found.checkpoint["id"], found.pending_writes or []
        if self._gathered is not None and id_ in self._gathered.stored:
            return self._gathered.paths(id_)
        return self._ask(lambda: paths_of(self._saver, self.config_of(id_), written)) if written else []

    def unsettled(self) -> int:
        """Count the effects in the thread's ledger that may be made again by who has no more than these states.

        Of those that are claimed nobody knows whether they were made; what came of those that were claimed where the
        states end is in the ledger alone, or in writes that wait there.
        """
        if self.own is None or self.ns != ROOT:
            return 0
        entries = self.own.ledger.entries(self.thread)
        return sum(entry.status == CLAIMED or entry.step >= self.head.number for entry in entries)

    @cached_property
    def _inherited(self) -> Inherited:
        return Inherited(self._saver, self.thread, self.by_id)

    def gathered(self) -> Self:
        """Give the same steps read in one go, for a verb that goes through them: their states share objects.

        Nobody may change those, so they are for nobody's hands. Of savers of another making nothing is read ahead.
        """
        if self.own is None or self._gathered is not None:
            return self
        if self._whole is None:
            rows = gather(self.own, self.thread, self.ns, min(self.infos))
            self._whole = copy(self)
            self._whole._gathered = rows  # noqa: SLF001  its own kind
            self._whole._remember()  # noqa: SLF001
        return self._whole

    @property
    def rows(self) -> Gathered | None:
        """What was read in one go, if it was."""
        return self._gathered

    def nodes_of(self, info: StepInfo) -> tuple[str, ...]:
        """Name the nodes that made a step; of the parent, no more is loaded than what it sent."""
        return nodes_of(info, self.parent(info), self.sends_to(info))

    def sends_to(self, info: StepInfo) -> list[str]:
        """Name the nodes of the `Send`s that were taken on the way to a step."""
        parent = self.parent(info)
        if parent is None or not has_sends(info, parent):
            return []
        if self.own is None:  # only our savers give one channel alone
            return sent(self.tuple_of(parent).checkpoint["channel_values"])
        return sent({SENDS: self._lately_one(parent.id, SENDS)})

    def tuple_of(self, info: StepInfo) -> CheckpointTuple:
        """Load a step whole; the last few that were asked for are kept."""
        return self._lately(info.id)

    def values_of(self, info: StepInfo) -> Mapping[str, Any]:
        """Load the state of a step, without the channels in which LangGraph keeps what is due."""
        return self._lately_values(info.id)

    def value_of(self, info: StepInfo, channel: str) -> Any:
        """Load one channel of a step, `ABSENT` if it has no value; only our savers spare the rest of the state."""
        if isinstance(self._saver, Saver) and channel not in (info.metadata.get(_COUNTERS) or {}):
            value = self._lately_one(info.id, channel)
            if value is not ABSENT or channel not in info.versions:
                return value
        return self.values_of(info).get(channel, ABSENT)

    def config_of(self, checkpoint_id: str | None = None) -> RunnableConfig:
        """Give the config that points to a checkpoint, or to the namespace."""
        configurable = {"thread_id": self.thread, "checkpoint_ns": self.ns}
        return {"configurable": configurable | ({"checkpoint_id": checkpoint_id} if checkpoint_id else {})}

    def _no_step(self, number: int) -> UnknownStepError:
        """Make the error for a number that is not here: it says which are."""
        highest = max(self.infos)
        if self.newest is not None and 0 < number < min(self.infos):
            return UnknownStepError(
                f"only the newest {self.newest} steps of thread {self.thread!r} were read, not {number}"
            )
        there = f"there are steps 1 to {highest}"
        elsewhere: dict[int, str] = {}
        if isinstance(self._saver, Saver):
            elsewhere = {info.number: info.ns for info in self._saver.steps(self.thread, None) if info.ns != self.ns}
        dropped = sum(n not in self.infos and n not in elsewhere for n in range(1, highest))
        others = sum(n <= highest for n in elsewhere)
        notes = [f"{dropped} of them dropped"] * bool(dropped) + [f"{others} in other namespaces"] * bool(others)
        if number in elsewhere:
            notes.append(f"this one in namespace {elsewhere[number]!r}: History(saver, {self.thread!r}, ns=…)")
        return UnknownStepError(f"thread {self.thread!r} has no step {number}; {', '.join([there, *notes])}")

    def _ours(self) -> list[StepInfo]:
        return cast("Saver", self._saver).steps(self.thread, self.ns, newest=self.newest or 1)

    def _theirs(self) -> list[StepInfo]:
        listed = [
            _info(found)
            for found in self._saver.list(self.config_of())
            if found.config["configurable"].get("checkpoint_ns", "") == self.ns
        ]
        listed.sort(key=lambda info: info.id)
        return [replace(info, number=number) for number, info in enumerate(listed, 1)]

    def _unknown(self) -> CheckpointerError:
        if not isinstance(self._saver, Saver):
            return UnknownThreadError(self.thread, f"or nothing is stored of it in namespace {self.ns!r}")
        spaces = sorted({info.ns for info in self._saver.steps(self.thread, None)})
        if not spaces:
            return UnknownThreadError(self.thread)
        known = ", ".join(map(repr, spaces))
        return UnknownStepError(f"thread {self.thread!r} has no steps in namespace {self.ns!r}; it has them in {known}")

    def _load(self, checkpoint_id: str) -> CheckpointTuple:
        if self._gathered is not None and checkpoint_id in self._gathered.stored:
            return self._gathered.tuple_of(checkpoint_id)
        found = self._ask(lambda: self._saver.get_tuple(self.config_of(checkpoint_id)))
        if found is None:
            known = self.find(checkpoint_id)
            raise self._dropped(known.number if known else 0)
        return found

    def _dropped(self, number: int) -> UnknownStepError:
        step = at(self.thread, number)
        return UnknownStepError(f"step {step} was dropped since this history was read; make a new History")

    def _value(self, checkpoint_id: str, channel: str) -> Any:
        if self._gathered is not None and checkpoint_id in self._gathered.stored:
            return _plain(self._gathered.channel(checkpoint_id, channel, ABSENT))
        saver = cast("Saver", self._saver)
        return _plain(saver.get_channel(self.config_of(checkpoint_id), channel, ABSENT))

    def _values(self, checkpoint_id: str) -> Mapping[str, Any]:
        found = self._lately(checkpoint_id)
        checkpoint = found.checkpoint
        values = {name: _plain(value) for name, value in checkpoint["channel_values"].items() if not internal(name)}
        deltas = found.metadata.get(_COUNTERS) or {}
        missing = [name for name in deltas if name in checkpoint["channel_versions"] and name not in values]
        if missing:
            config = self.config_of(checkpoint_id)
            told = self._ask(lambda: self._saver.get_delta_channel_history(config=config, channels=missing))
            for name, entry in told.items():
                writes = tuple(write[2] for write in entry["writes"])
                if writes or "seed" in entry:
                    values[name] = Told(_plain(entry.get("seed")), writes)
        return values

    def _ask(self, question: Callable[[], T]) -> T:
        """Ask the saver, unless it would wait for the very loop that waits for it."""
        loop = getattr(self._saver, "loop", None)
        if isinstance(loop, AbstractEventLoop) and (not loop.is_running() or loop is _running()):
            raise AsyncSaverError(type(self._saver).__name__)
        try:
            return question()
        except NotImplementedError as error:
            raise AsyncSaverError(type(self._saver).__name__) from error


def internal(channel: str) -> bool:
    """Tell whether LangGraph keeps in this channel what is due, and not a part of the state."""
    return channel in _INTERNAL or channel.startswith(("branch:to:", "join:"))


def _running() -> AbstractEventLoop | None:
    try:
        return get_running_loop()
    except RuntimeError:
        return None


def _plain(value: Any) -> Any:
    """Give the value that a snapshot of a DeltaChannel holds."""
    return value.value if type(value).__name__ == "_DeltaSnapshot" else value


def _info(found: CheckpointTuple) -> StepInfo:
    checkpoint, metadata = found.checkpoint, found.metadata
    kinds = 0
    for _, channel, _ in found.pending_writes or ():
        kinds |= KIND_OF.get(channel, 0)
    parent = found.parent_config["configurable"].get("checkpoint_id") if found.parent_config else None
    return StepInfo(
        0, checkpoint["id"], parent, when(checkpoint["ts"], EPOCH), metadata.get("source", ""),
        status_of(flags_of(checkpoint), kinds), metadata, found.config["configurable"].get("checkpoint_ns", ""),
        checkpoint["channel_versions"], checkpoint["versions_seen"],
    )  # fmt: skip
