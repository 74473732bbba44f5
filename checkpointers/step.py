"""One step of a thread: what LangGraph stored of it, and what that says about who made it of what."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from checkpointers.authors import writers
from checkpointers.diffing import same
from checkpointers.errors import at
from checkpointers.paths import ABSENT
from checkpointers.plain import visible
from checkpointers.show import Shows
from checkpointers.status import Status
from checkpointers.timeline import Timeline

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import CheckpointTuple

    from checkpointers.show.cards import Card
    from checkpointers.threads import StepInfo


class Step(Shows):
    """One step of a thread, `THREAD@NUMBER`; its state is loaded when it is asked for."""

    __slots__ = ("_info", "_timeline")

    def __init__(self, timeline: Timeline, info: StepInfo) -> None:
        """Stand for a step of a timeline; a `History` makes these."""
        self._timeline, self._info = timeline, info

    @property
    def number(self) -> int:
        """Its number in the thread."""
        return self._info.number

    @property
    def id(self) -> str:
        """The id of its checkpoint."""
        return self._info.id

    @property
    def at(self) -> datetime:
        """When it was made, by the clock of who made it."""
        return self._info.at

    @property
    def source(self) -> str:
        """How it was made: by an "input", the "loop", an "update" or a "fork"."""
        return self._info.source

    @property
    def beside(self) -> bool:
        """Whether it is of a branch that was kept beside where the thread stands."""
        return self._info.beside

    @property
    def status(self) -> Status:
        """How the thread stood here: "waiting", "failed", "pending" or "done"."""
        return self._info.status

    @property
    def metadata(self) -> Mapping[str, Any]:
        """LangGraph's metadata, with what the run added to it."""
        return self._info.metadata

    @property
    def config(self) -> RunnableConfig:
        """The config that points here: for `graph.get_state`, `graph.invoke(None, …)`, `graph.update_state`."""
        return self._timeline.config_of(self.id)

    @property
    def parent(self) -> int | None:
        """The number of the step that this one was made from; None for the first, or if it is not stored."""
        parent = self._timeline.parent(self._info)
        return parent.number if parent else None

    @property
    def values(self) -> Mapping[str, Any]:
        """The state as stored, channel by channel; a DeltaChannel between its snapshots is `Told`."""
        return self._timeline.values_of(self._info)

    @property
    def wrote(self) -> dict[str, Any]:
        """The channels whose values differ from the parent's, with the values they have here."""
        before = self.before
        return {
            name: value
            for name, value in self.values.items()
            if self.rewrote(name) and not same(before.get(name, ABSENT), value)
        }

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes whose writes made this step; none if it was an input, an update from outside or a fork."""
        return self._timeline.nodes_of(self._info)

    @property
    def interrupts(self) -> list[Any]:
        """What was asked of a person here, answered since or not."""
        asked = [value for _, channel, value in self.pending if channel == "__interrupt__"]
        return [one for some in asked for one in (some if isinstance(some, list | tuple) else [some])]

    @property
    def errors(self) -> list[Any]:
        """The failures of tasks that ran from here, as stored."""
        return [value for _, channel, value in self.pending if channel == "__error__"]

    @property
    def parent_id(self) -> str | None:
        """The id of the checkpoint that this one was made from, stored or not."""
        return self._info.parent_id

    @property
    def stored(self) -> CheckpointTuple:
        """All that LangGraph stored of it."""
        return self._timeline.tuple_of(self._info)

    @property
    def serde(self) -> Any:
        """What its saver writes values with."""
        return self._timeline.serde

    @property
    def pending(self) -> list[tuple[str, str, Any]]:
        """What tasks that ran from here wrote, each with its task and its channel, applied since or not."""
        return self._timeline.tuple_of(self._info).pending_writes or []

    @property
    def failed(self) -> bool:
        """Whether something failed here."""
        return self.status == "failed"

    @property
    def is_told(self) -> bool:
        """Whether it has DeltaChannels, whose values may be `Told`."""
        return self._timeline.is_told(self._info)

    @property
    def ancestry(self) -> list[Self]:
        """The steps that it was made from, itself among them, oldest first."""
        return [type(self)(self._timeline, info) for info in reversed(self._timeline.ancestry(self._info))]

    def address_of(self, number: int) -> str:
        """Give the address of another step of its thread."""
        return at(self._timeline.thread, number)

    def __str__(self) -> str:
        """Give its address."""
        return self.address_of(self.number)

    def __repr__(self) -> str:
        """Say what can be said without loading it."""
        return visible(f"<Step {self} {self.source} {self.status} {self.at:%Y-%m-%d %H:%M:%S}>")

    def _card(self) -> Card:
        from checkpointers.drawing import step_card  # noqa: PLC0415  loaded by who looks

        return step_card(self)

    def __eq__(self, other: object) -> bool:
        """Tell whether it is the same checkpoint of the same thread."""
        return isinstance(other, Step) and self.config == other.config

    def __hash__(self) -> int:
        """Hash by checkpoint."""
        return hash(self.id)

    @property
    def before(self) -> Mapping[str, Any]:
        """The state of the parent; empty for the first."""
        parent = self._timeline.parent(self._info)
        return self._timeline.values_of(parent) if parent else {}

    def change_of(self, channel: str) -> tuple[Any, Any]:
        """The value of a channel at the parent and here; `ABSENT` where it has none."""
        parent = self._timeline.parent(self._info)
        before = self._timeline.value_of(parent, channel) if parent else ABSENT
        return before, self._timeline.value_of(self._info, channel)

    def rewrote(self, channel: str) -> bool:
        """Tell whether the channel has a version that the parent had not; if not, its value is the same."""
        parent = self._timeline.parent(self._info)
        versions = self._info.versions
        return parent is None or channel not in versions or versions[channel] != parent.versions.get(channel)

    def writers(self, channel: str) -> tuple[str, ...]:
        """Name those of the nodes that wrote this channel; all of them if that is not to be seen."""
        parent = self._timeline.parent(self._info)
        if parent is None or len(self.nodes) < 2:  # noqa: PLR2004  one alone, or nobody
            return self.nodes
        pending = self._timeline.tuple_of(parent).pending_writes or ()
        tasks = {task for task, name, _ in pending if name == channel}
        return writers(self.nodes, tasks, step=self._info, parent=parent, sends=self._timeline.sends_to(self._info))
