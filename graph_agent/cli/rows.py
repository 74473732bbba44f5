"""Steps as their rows tell of them: what a log asks of a step, with no state behind it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from checkpointers.authors import SENDS, has_sends, nodes_of, sent_to
from checkpointers.errors import at

if TYPE_CHECKING:
    from checkpointers.history import History
    from checkpointers.threads import StepInfo

SENT: Final = "(sent)"  # to a node that cannot be told without the state


@dataclass(frozen=True)
class Row:
    """One step of a thread, by its own row, its parent's, and that one's parent's.

    `tasks` are the ids of those that ran from its parent, `known` the names of all nodes that have run in the thread.
    """

    thread: str
    info: StepInfo
    before: StepInfo | None
    earlier: StepInfo | None
    tasks: Sequence[str] = ()
    known: Collection[str] = ()

    @property
    def number(self) -> int:
        """Its number in the thread."""
        return self.info.number

    @property
    def id(self) -> str:
        """The id of its checkpoint."""
        return self.info.id

    @property
    def at(self) -> datetime:
        """When it was made."""
        return self.info.at

    @property
    def source(self) -> str:
        """How it was made."""
        return self.info.source

    @property
    def status(self) -> str:
        """How the thread stood here."""
        return self.info.status

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What LangGraph and the run say of it."""
        return self.info.metadata

    @property
    def parent(self) -> int | None:
        """The number of the step that this one was made from."""
        return self.before.number if self.before else None

    @property
    def failed(self) -> bool:
        """Whether a task failed here."""
        return self.status == "failed"

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that made it, as far as rows name them; `(sent)` where others may have been sent."""
        return (*self.named, SENT) if self.sent else self.named

    @property
    def named(self) -> tuple[str, ...]:
        """Those of the nodes that are known: an edge started them, or the ids of their tasks tell."""
        return nodes_of(self.info, self.before, self._told)

    @cached_property
    def _told(self) -> list[str]:
        return sent_to(self.before, self.tasks, self.known) if self.before and self._sends else []

    @property
    def sent(self) -> bool:
        """Whether tasks may have been sent to nodes that no row names."""
        return self._sends and not self._told

    @property
    def _sends(self) -> bool:
        before = self.before
        written = (
            before is not None
            and SENDS in before.versions
            and (self.earlier is None or has_sends(before, self.earlier))
        )
        return written and self.source in ("loop", "") and has_sends(self.info, before)

    def record(self) -> dict[str, Any]:
        """Say it for a program."""
        names = ("thread", "number", "id", "at", "source", "status", "parent", "sent")
        return {"address": str(self), **{name: getattr(self, name) for name in names}, "nodes": list(self.named)}

    def rewrote(self, channel: str) -> bool:
        """Tell whether the channel was written between the parent and here."""
        versions, before = self.info.versions, self.before.versions if self.before else {}
        return channel in versions and versions[channel] != before.get(channel)

    def address_of(self, number: int) -> str:
        """Give the address of another step of its thread."""
        return at(self.thread, number)

    def __str__(self) -> str:
        """Give its address."""
        return self.address_of(self.number)


def rows_of(
    thread: str, infos: Sequence[StepInfo], tasks: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> list[Row]:
    """Make rows of a thread's steps, oldest first; `tasks` are the ids of those that wrote, by checkpoint."""
    known = {info.id: info for info in infos}
    parents = {info.id: known.get(info.parent_id or "") for info in infos}
    nodes = {name for info in infos for name in info.seen} - {"__input__", "__interrupt__", "__start__"}

    def row(info: StepInfo) -> Row:
        before = parents[info.id]
        earlier = parents[before.id] if before else None
        return Row(thread, info, before, earlier, tasks.get(before.id, ()) if before else (), nodes)

    return list(map(row, infos))


def of_others(history: History) -> list[Row]:
    """Make rows of a history, for savers that cannot list steps without it."""
    return rows_of(history.thread, list(history._timeline.infos.values()))  # noqa: SLF001  what it listed already
