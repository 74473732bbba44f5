"""Writing: a checkpoint, and the writes of a task; each one commit, one round trip where nothing must be looked up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar

import ormsgpack

from checkpointers.codec import packed
from checkpointers.errors import CheckpointerError, HeadMovedError, IntegrityError, UnstorableValueError
from checkpointers.keys import key_of
from checkpointers.lineage import is_trigger
from checkpointers.memory import ThreadMemory, Written
from checkpointers.operations.common import (
    BODY,
    CHECKPOINT_COLUMNS,
    ID,
    METADATA,
    NS,
    ROOT,
    Place,
    Tools,
    checkpoint_row,
    records_of,
)
from checkpointers.operations.guard import ATTEMPTS, Growth, Head, append, entitled, too_busy
from checkpointers.operations.names import named_with, naming, new_names
from checkpointers.operations.rows import NewWrites, Rows, inserts, late_steps, sealed_row, write_rows
from checkpointers.operations.storing import Elements, finish, store_told, store_value
from checkpointers.records import KNOWN_KEYS, Record, mark_of, pack_record
from checkpointers.sealing import metadata_place
from checkpointers.session import Line
from checkpointers.standing import Standing
from checkpointers.statements import Insert, Operation, Row, Statement, Statements
from checkpointers.status import BESIDE, flags_of
from checkpointers.tally import kinds_in, rows_in, tally_of

if TYPE_CHECKING:
    from langgraph.checkpoint.base import DeltaChannelHistory

T = TypeVar("T")
OnConflict = Literal["error", "fork"]
LOOKS: Final = 2


class NewCheckpoint(NamedTuple):
    """The arguments of a `put`, with the metadata that the config adds to.

    `told` is what ancestors that are not stored told its DeltaChannels; `step` is the number that it has elsewhere.
    """

    place: Place
    checkpoint: Mapping[str, Any]
    metadata: Mapping[str, Any]
    new_versions: Mapping[str, Any]
    token: bytes | None = None
    line: Line = "free"
    on_conflict: OnConflict = "error"
    told: Mapping[str, DeltaChannelHistory] = MappingProxyType({})
    step: int = 0


class Stored(NamedTuple):
    """What became of a `put`: its step, and whether it stands beside the head."""

    step: int
    beside: bool


def see_form(checkpoint: object, metadata: object) -> None:
    """See that a checkpoint is a dict with an id, and that its values and its metadata are dicts."""
    if not isinstance(checkpoint, Mapping) or "id" not in checkpoint:
        raise CheckpointerError(f"a checkpoint is a dict that has an id, not {checkpoint!r:.80}")
    for what, given in {"channel_values": checkpoint.get("channel_values", {}), "metadata": metadata}.items():
        if not isinstance(given, Mapping):
            raise CheckpointerError(f"{what} of a checkpoint is a dict, not {given!r:.80}")


def put(
    tools: Tools, memory: ThreadMemory, new: NewCheckpoint, writes: Sequence[NewWrites], now: int
) -> Statements[Stored]:
    """Store a checkpoint, with writes that wait for it; the same id again keeps its step."""
    return _truthful(memory, lambda: _put(tools, memory, new, writes, now))


def put_writes(tools: Tools, memory: ThreadMemory, writes: Sequence[NewWrites], now: int) -> Statements[None]:
    """Store the writes of tasks: ordinary ones once, special ones anew each time."""
    return _truthful(memory, lambda: _put_writes(tools, memory, writes, now))


def _truthful(memory: ThreadMemory, operation: Operation[T], looks: int = LOOKS) -> Statements[T]:
    """Let nothing be remembered of an operation that did not come to its end: it may be run again.

    It is, where it met damage: a memory may be of a thread in another life, with another key, and others may have
    removed something between two requests.
    """
    try:
        return (yield from operation())
    except IntegrityError:
        memory.forget()
        if not looks:
            raise
    except BaseException:
        memory.forget()
        raise
    return (yield from _truthful(memory, operation, looks - 1))


def _put(
    tools: Tools, memory: ThreadMemory, new: NewCheckpoint, writes: Sequence[NewWrites], now: int
) -> Statements[Stored]:
    before, names, known = _Before(), _names_of(new.checkpoint) | _channels_of(writes), False
    for attempt in range(ATTEMPTS):
        named = yield from naming(tools.names, names)
        standing = yield from entitled(tools, memory, new.place.thread, new.token)
        if new.line == "head" and _moved(standing, new):
            memory.forget()  # what is remembered may be older than what was loaded
            standing = yield from entitled(tools, memory, new.place.thread, new.token)
        beside = _is_beside(standing, new)
        if known:  # and looked at only now: if it goes, or changes, the thread does not stand as it did
            before = yield from _stored_before(tools, memory, new, merge=bool(writes))
        early = yield from _early(memory, new, look=attempt > 0)
        late = yield from late_steps(tools, memory, writes)
        elements = Elements(of_tasks=bool(writes))
        written = yield from write_rows(tools, memory, elements, writes=writes, merge=before.merge)
        _note(memory, writes, written)
        parent = yield from _parent(tools, memory, new.place)
        record = yield from _record(tools, memory, elements, new=new, parent=parent)
        yield from finish(memory, elements)
        record.step, record.at = before.step or max(new.step, standing.steps + 1), now
        if before.record is not None:
            _stay(record, before.record, parent)
        tally = early + written.tallies.get((key_of(record.ns), key_of(record.id)), 0)
        metadata = pack_metadata(new.metadata)
        flags = flags_of(new.checkpoint) | (BESIDE if beside else 0)
        row = _row(tools, memory, record, flags=flags, tally=tally, metadata=metadata)
        head = Head(record.step, row[ID], flags, metadata, kinds_in(tally))
        growth = Growth(
            steps=max(standing.steps, record.step),
            checkpoints=0 if before.step else 1,
            size=elements.bytes + len(row[METADATA]) + len(row[BODY]) + written.bytes - before.size,
            head=head if new.place.ns == ROOT and before.step in (0, standing.head) and not beside else None,
            kinds=_kinds_on_head(standing, written),
            early=(row[NS], row[ID], rows_in(early)),
            late=late,
        )
        changes = [*new_names(named), *inserts(written.rows, merge=before.merge)]
        changes += written.counted(memory, besides=row[ID])
        changes.append(Insert("cp_checkpoints", CHECKPOINT_COLUMNS, [row], replace=bool(before.step)))
        if new.place.ns != ROOT and not before.step:
            changes.append(Insert("cp_heads", ("ns", "step"), [(row[NS], record.step)], replace=True))
        answer = yield from append(memory, elements, changes=changes, growth=growth, now=now)
        yield from named_with(tools.names, named, answer)
        if answer == "done":
            # What came before it, or was on it when it was put before, was seen by its tally only.
            memory.written.setdefault((record.ns, record.id), Written(None if tally or before.step else set()))
            if not before.step:  # one that is put again may have children: it is not the newest
                memory.remember(record)
            return Stored(record.step, beside)
        memory.forget()
        known = known or answer == "duplicate"
    raise too_busy(new.place.thread)


class _Before(NamedTuple):
    """What is stored already of what is to be stored: the record of a checkpoint put again, its size."""

    record: Record | None = None
    size: int = 0
    merge: bool = False

    @property
    def step(self) -> int:
        """Give its step, 0 for a checkpoint that is new."""
        return self.record.step if self.record is not None else 0


def _is_beside(standing: Standing, new: NewCheckpoint) -> bool:
    """Tell whether a checkpoint goes beside the head: what it was made from is not where the thread stands any more."""
    if new.line == "free" or not _moved(standing, new):
        return False
    if new.line == "head" and new.on_conflict == "error":
        raise HeadMovedError(standing.name, standing.head)
    return True


def _moved(standing: Standing, new: NewCheckpoint) -> bool:
    stands_at = (key_of(new.place.id) if new.place.id else b"", key_of(new.checkpoint["id"]))
    return new.place.ns == ROOT and standing.head_id not in stands_at


def _early(memory: ThreadMemory, new: NewCheckpoint, *, look: bool) -> Statements[int]:
    """Count what was written on a checkpoint before it is stored: as remembered, or as a look at the rows tells."""
    if not look or not memory.exists:
        known = memory.written.get((new.place.ns, new.checkpoint["id"]))
        return known.tally if known else 0
    rows = yield Statement(
        "SELECT kinds FROM cp_writes WHERE thread = ? AND ns = ? AND checkpoint = ?",
        (memory.key, key_of(new.place.ns), key_of(new.checkpoint["id"])),
    )
    return sum(tally_of(kinds) for (kinds,) in rows)


def _put_writes(tools: Tools, memory: ThreadMemory, writes: Sequence[NewWrites], now: int) -> Statements[None]:
    thread, names = writes[0].place.thread, _channels_of(writes)
    merge = False
    for _ in range(ATTEMPTS):
        named = yield from naming(tools.names, names)
        standing = yield from entitled(tools, memory, thread, writes[0].token)
        if _astray(standing, writes):
            memory.forget()  # what is remembered may be older than what was loaded
            standing = yield from entitled(tools, memory, thread, writes[0].token)
            if _astray(standing, writes):
                raise HeadMovedError(thread, standing.head)
        elements = Elements(of_tasks=True)
        written = yield from write_rows(tools, memory, elements, writes=writes, merge=merge)
        yield from finish(memory, elements)
        growth = Growth(
            steps=standing.steps,
            checkpoints=0,
            size=elements.bytes + written.bytes,
            kinds=_kinds_on_head(standing, written),
            late=(yield from late_steps(tools, memory, writes)),
        )
        changes = [*new_names(named), *inserts(written.rows, merge=merge), *written.counted(memory)]
        answer = yield from append(memory, elements, changes=changes, growth=growth, now=now)
        yield from named_with(tools.names, named, answer)
        if answer == "done":
            _note(memory, writes, written)
            return
        memory.forget()
        merge = merge or answer == "duplicate"
    raise too_busy(thread)


def _astray(standing: Standing, writes: Sequence[NewWrites]) -> bool:
    """Tell whether a thread stands elsewhere than the run of some writes believes: they would mix with another's."""
    return any(
        new.at_head is not None and standing.head_id != key_of(new.place.id or "") and new.at_head() for new in writes
    )


def _kinds_on_head(standing: Standing, written: Rows) -> int:
    return written.kinds_on(key_of(ROOT), standing.head_id) if standing.head else 0


def _note(memory: ThreadMemory, writes: Sequence[NewWrites], written: Rows) -> None:
    """Remember what was written on a checkpoint; on one that is not stored yet, that other channels may have been."""
    for new in writes:
        slot = (new.place.ns, str(new.place.id))
        known = memory.written.setdefault(slot, Written())
        if known.channels is not None:
            known.channels.update(channel for channel, _ in new.writes)
    for slot in {(new.place.ns, str(new.place.id)) for new in writes}:
        memory.written[slot].tally += written.tallies.get((key_of(slot[0]), key_of(slot[1])), 0)


def _channels_of(writes: Sequence[NewWrites]) -> set[str]:
    return {channel for new in writes for channel, _ in new.writes}


def _names_of(checkpoint: Mapping[str, Any]) -> set[str]:
    """Give every name that storing a checkpoint needs a key for."""
    seen = checkpoint.get("versions_seen", {})
    channels = (checkpoint.get("channel_versions", {}), checkpoint.get("channel_values", {}), *seen.values())
    return set(seen).union(*channels, checkpoint.get("updated_channels") or ())


def _parent(tools: Tools, memory: ThreadMemory, place: Place) -> Statements[Record | None]:
    if not place.id or not memory.exists:
        return None
    remembered = memory.parent(place.ns, place.id)
    if remembered is not None:
        return remembered
    thread = memory.as_thread()
    row = yield from checkpoint_row(thread, place)
    if row is None:
        return None
    records = yield from records_of(tools, thread, [row])
    return records[0]


def _record(
    tools: Tools, memory: ThreadMemory, elements: Elements, *, new: NewCheckpoint, parent: Record | None
) -> Statements[Record]:
    """Make the record: what did not change is inherited from the parent, what did is stored."""
    checkpoint = new.checkpoint
    values, versions = checkpoint.get("channel_values", {}), checkpoint.get("channel_versions", {})
    record = Record(
        id=checkpoint["id"],
        ns=new.place.ns,
        parent=new.place.id,
        v=checkpoint.get("v", 1),
        ts=checkpoint.get("ts", ""),
        versions=dict(versions),
        seen={node: dict(seen) for node, seen in checkpoint.get("versions_seen", {}).items()},
        updated=_updated(checkpoint),
        has_updated="updated_channels" in checkpoint,
        chain=parent.mark if parent else b"",
    )
    extra = {key: value for key, value in checkpoint.items() if key not in KNOWN_KEYS}
    record.extra = tools.codec.payload("(checkpoint)", extra) if extra else None
    for channel in dict.fromkeys([*versions, *values]):
        inherited = parent.refs.get(channel) if parent else None
        unchanged = (
            channel not in new.new_versions
            and channel in versions
            and parent is not None
            and parent.versions.get(channel) == versions[channel]
        )
        if unchanged:
            if inherited is not None:
                record.refs[channel] = inherited
        elif channel in values:
            record.refs[channel] = yield from store_value(
                tools, memory, elements, ns=new.place.ns, channel=channel, value=values[channel], parent=inherited
            )
    if parent is not None:
        _trail(memory, record, parent, new)
    for channel, told in new.told.items():
        record.bases[channel] = store_told(tools, memory, elements, channel=channel, told=told)
    return record


def _trail(memory: ThreadMemory, record: Record, parent: Record, new: NewCheckpoint) -> None:
    """Note where a DeltaChannel finds its nearest writes, so that reading skips the steps that wrote it nothing."""
    known = memory.written.get((parent.ns, parent.id))
    written = known.channels if known else None
    for channel in record.versions:
        if channel in record.refs or is_trigger(channel):
            continue
        touched = channel in new.new_versions or written is None or channel in written
        record.trail[channel] = parent.step if touched else parent.trail.get(channel, parent.step)


def _stay(record: Record, before: Record, parent: Record | None) -> None:
    """Let a checkpoint that is put again be for its children what it was, and stay where removed ancestors left it."""
    if before.mark:
        record.mark, record.relinked = before.mark, True
    if before.bases and (parent is None or parent.id == before.parent):
        record.parent, record.chain, record.trail = before.parent, before.chain, dict(before.trail)
        record.bases = {channel: base for channel, base in before.bases.items() if channel not in record.refs}


def _updated(checkpoint: Mapping[str, Any]) -> list[str] | None:
    updated = checkpoint.get("updated_channels")
    return list(updated) if updated is not None else None


def _row(tools: Tools, memory: ThreadMemory, record: Record, *, flags: int, tally: int, metadata: bytes) -> Row:
    hidden = memory.vault.hide(metadata_place(memory.key, key_of(record.ns), key_of(record.id)), metadata)
    try:
        body = pack_record(record, tools.names)
    except (TypeError, ValueError) as error:
        raise UnstorableValueError(channel="(checkpoint)", path="", reason=str(error)) from error
    row = sealed_row(memory, record, flags=flags, tally=tally, metadata=hidden, body=body)
    if not record.relinked:
        record.mark = mark_of(body)
    return row


def pack_metadata(metadata: Mapping[str, Any]) -> bytes:
    """Pack the metadata so that a listing can read it without the serializer."""
    try:
        return packed(dict(metadata))
    except (TypeError, ormsgpack.MsgpackEncodeError) as error:
        raise UnstorableValueError(channel="(metadata)", path="", reason=str(error)) from error


def _stored_before(tools: Tools, memory: ThreadMemory, new: NewCheckpoint, *, merge: bool) -> Statements[_Before]:
    """Look at what is stored under the same id."""
    if not memory.exists:
        return _Before(merge=merge)
    thread = memory.as_thread()
    row = yield from checkpoint_row(thread, new.place._replace(id=new.checkpoint["id"]))
    if row is None:
        return _Before(merge=merge)
    record = (yield from records_of(tools, thread, [row]))[0]
    return _Before(record, len(row[METADATA]) + len(row[BODY]), merge)
