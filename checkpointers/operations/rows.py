"""The rows of a write: those of the tasks, and that of a checkpoint, sealed to their places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from checkpointers.keys import key_of
from checkpointers.memory import ThreadMemory
from checkpointers.operations.common import (
    ROOT,
    SELECT_CHECKPOINT,
    SELECT_WRITES,
    WRITE_COLUMNS,
    Place,
    Tools,
    records_of,
    see_asked,
    writes_of,
)
from checkpointers.operations.storing import Elements, store_write
from checkpointers.records import Record, TaskWrites, Write, pack_writes
from checkpointers.sealing import checkpoint_place, write_place
from checkpointers.standing import Thread
from checkpointers.statements import Change, Delete, Insert, Row, Statement, Statements, Together
from checkpointers.tally import tally_of

SPECIAL_INDEX: Final = {"__error__": -1, "__scheduled__": -2, "__interrupt__": -3, "__resume__": -4}
STEP_OF: Final = "SELECT step FROM cp_checkpoints WHERE thread = ? AND ns = ? AND id = ?"
CHILDREN: Final = f"{SELECT_CHECKPOINT} WHERE thread = ? AND ns = ? AND parent = ? AND step > ({STEP_OF})"
COUNT_WRITES: Final = "UPDATE cp_checkpoints SET tally = tally + ? WHERE thread = ? AND ns = ? AND id = ?"


class NewWrites(NamedTuple):
    """The arguments of a `put_writes`; `at_head` tells, when asked, whether their run believes to stand there.

    Those that are not `of_run` come from outside: who stores them puts the checkpoint made of them only afterwards.
    """

    place: Place
    writes: Sequence[tuple[str, Any]]
    task: str
    path: str
    token: bytes | None = None
    at_head: Callable[[], bool] | None = None
    of_run: bool = False


@dataclass(slots=True)
class Rows:
    """Rows of writes, what they say, what they add to the tally of each checkpoint, and the bytes they replace."""

    rows: list[Row]
    tasks: list[TaskWrites]
    tallies: dict[tuple[bytes, bytes], int]
    replaced: int = 0

    def kinds_on(self, ns: bytes, checkpoint: bytes) -> int:
        """Tell which special writes are on a checkpoint."""
        kinds = 0
        for row, task in zip(self.rows, self.tasks, strict=True):
            if row[0] == ns and row[1] == checkpoint:
                kinds |= task.kinds
        return kinds

    def counted(self, memory: ThreadMemory, besides: bytes | None = None) -> list[Change]:
        """Count the new rows on their checkpoints, but for one that is stored only now."""
        counts = [(more, memory.key, ns, id_) for (ns, id_), more in self.tallies.items() if more and id_ != besides]
        return [Change(COUNT_WRITES, counts)] if counts and memory.exists else []

    @property
    def bytes(self) -> int:
        """Give by how much these rows grow the thread."""
        return sum(len(row[-1]) for row in self.rows) - self.replaced


def write_rows(
    tools: Tools, memory: ThreadMemory, elements: Elements, *, writes: Sequence[NewWrites], merge: bool
) -> Statements[Rows]:
    """Make one row for each task on each checkpoint, joined with what is stored of it when there may be some."""
    tasks: dict[tuple[bytes, bytes, bytes], TaskWrites] = {}
    for new in writes:
        key = (key_of(new.place.ns), key_of(str(new.place.id)), key_of(new.task))
        task = TaskWrites(new.task, _numbered(tools, memory, elements, new))
        tasks[key] = _joined(tasks[key], task) if key in tasks else task
    tallies: dict[tuple[bytes, bytes], int] = {}
    replaced = 0
    if merge and memory.exists:
        thread = memory.as_thread()
        for key, task in list(tasks.items()):
            rows = yield Statement(f"{SELECT_WRITES} AND task = ?", (memory.key, *key))
            for row in rows:
                see_asked(thread, tuple(row[:3]), key)
            for row, before in zip(rows, (yield from writes_of(tools, thread, rows)), strict=True):
                tasks[key] = _joined(before, task)
                replaced += len(row[-1])
                tallies[key[:2]] = tallies.get(key[:2], 0) - tally_of(before.kinds)
    rows = [(*key, task.kinds, _packed_writes(tools, memory, key, task)) for key, task in tasks.items()]
    for key, task in tasks.items():
        tallies[key[:2]] = tallies.get(key[:2], 0) + tally_of(task.kinds)
    return Rows(rows, list(tasks.values()), tallies, replaced)


def late_steps(tools: Tools, memory: ThreadMemory, writes: Sequence[NewWrites]) -> Statements[list[int]]:
    """Find the steps with a child that skips them where it looks for what a channel was told that is written now.

    So it is where somebody goes on from an old step, of whose next ones others were made: LangGraph tells both of it.
    """
    found = []
    for place in {new.place for new in writes if new.place.id}:
        if not memory.exists or _is_newest(memory, place):
            continue
        thread, key = memory.as_thread(), (memory.key, key_of(place.ns), key_of(place.id or ""))
        own, children = yield Together((Statement(STEP_OF, key), Statement(CHILDREN, (*key, *key))))
        channels = {channel for new in writes if new.place == place for channel, _ in new.writes}
        records = yield from records_of(tools, thread, children)
        if any(
            record.relinked or record.trail.get(channel, step) != step  # what relinked ones have below keeps its trails
            for (step,) in own
            for record in records
            for channel in channels
        ):
            found.append(int(own[0][0]))
    return found


def _is_newest(memory: ThreadMemory, place: Place) -> bool:
    """Tell whether a checkpoint is known to be the newest of its namespace, which has no children."""
    newest, standing = memory.records.get(place.ns), memory.standing
    is_head = standing is not None and place.ns == ROOT and standing.head_id == key_of(place.id or "")
    return is_head or (newest is not None and newest.id == place.id)


def _packed_writes(tools: Tools, memory: ThreadMemory, key: tuple[bytes, bytes, bytes], task: TaskWrites) -> bytes:
    return memory.vault.seal(write_place(memory.key, key, task.kinds), pack_writes(task, tools.names))


def _joined(before: TaskWrites, task: TaskWrites) -> TaskWrites:
    """Join what a task left before with what it leaves now: a special write is replaced, others stay as they were."""
    merged = {write.idx: write for write in task.writes}
    merged.update({write.idx: write for write in before.writes if write.idx >= 0 or write.idx not in merged})
    return TaskWrites(task.task, [merged[idx] for idx in sorted(merged)])


def _numbered(tools: Tools, memory: ThreadMemory, elements: Elements, new: NewWrites) -> list[Write]:
    written = {SPECIAL_INDEX.get(channel, index): (channel, value) for index, (channel, value) in enumerate(new.writes)}
    return [
        Write(index, channel, store_write(tools, memory, elements, channel=channel, value=value), new.path)
        for index, (channel, value) in written.items()
    ]


def sealed_row(
    of: ThreadMemory | Thread, record: Record, *, flags: int, tally: int, metadata: bytes, body: bytes
) -> Row:
    """Make the row of a checkpoint."""
    key = (key_of(record.ns), record.step, key_of(record.id), key_of(record.parent) if record.parent else None)
    place = checkpoint_place(of.key, key, record.at, flags=flags, metadata=metadata)
    return (*key, record.at, flags, tally, metadata, of.vault.seal(place, body))


def inserts(rows: Sequence[Row], *, merge: bool) -> list[Insert | Delete | Change]:
    """Insert rows of writes; over those that are there already, if they were joined with them."""
    return [Insert("cp_writes", WRITE_COLUMNS, rows, replace=merge)] if rows else []
