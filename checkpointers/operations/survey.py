"""Surveying: threads, bytes and labels; none of it decodes a value."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from checkpointers import operations
from checkpointers.cipher import LABELLED, labels_in
from checkpointers.effects import BODIES, EFFECTS
from checkpointers.errors import IncompleteRecordError, IntegrityError, KeyringError, ShreddedError
from checkpointers.keys import key_of, text_of
from checkpointers.operations.common import (
    FLAGS,
    ID,
    NS,
    PARENT,
    ROOT,
    SELECT_CHECKPOINT,
    SELECT_THREAD,
    TALLY,
    Tools,
    all_there,
    checked,
    find_thread,
    holder_in,
    records_of,
    see_asked,
    told_metadata,
    told_thread,
)
from checkpointers.operations.names import learn_names
from checkpointers.records import FAILED, INTERRUPTED, RESUMED, Record
from checkpointers.retention import moment
from checkpointers.standing import NO_METADATA, Thread
from checkpointers.statements import Many, Row, Statement, Statements
from checkpointers.status import BESIDE, Status, status_of
from checkpointers.tally import kinds_in, tally_of
from checkpointers.threads import Readable, StepInfo, ThreadInfo, Usage, when

CHECKPOINTS: Final = "(checkpoints)"
WRITES: Final = "(writes)"
RECIPES: Final = "(recipes)"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which threads a listing wants."""

    status: Status | None = None
    since: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict)
    tag: str | None = None
    limit: int | None = None

    @property
    def some(self) -> bool:
        """Tell whether what a row says decides if its thread is listed."""
        return self.status is not None or self.tag is not None or bool(self.metadata)

    def takes(self, status: Status, tags: Sequence[str], metadata: Mapping[str, Any]) -> bool:
        """Tell whether a thread that stands so is wanted."""
        if self.status not in (None, status) or (self.tag is not None and self.tag not in tags):
            return False
        return all(metadata.get(key) == value for key, value in self.metadata.items())


def threads(tools: Tools, wanted: Wanted) -> Statements[list[ThreadInfo]]:
    """List threads, the most recently written first, from their own rows alone."""
    limit = f" LIMIT {wanted.limit:d}" if wanted.limit is not None and not wanted.some else ""
    rows = yield Statement(
        f"{SELECT_THREAD} WHERE t.checkpoints > 0 AND t.updated_at >= ?"
        f" ORDER BY t.updated_at DESC, t.thread DESC{limit}",
        (wanted.since,),
    )
    found: list[ThreadInfo] = []
    keys: list[int] = []
    for key, info in _infos(tools, rows, wanted):
        if wanted.limit is not None and len(found) >= wanted.limit:
            break
        if info is not None:
            found.append(info)
            keys.append(key)
    if not any(info.status in ("waiting", "failed") for info in found):
        return found
    stuck = _stuck((yield Statement(_STUCK, (key_of(ROOT), key_of(ROOT)))))
    return [stuck[key].told(info) if key in stuck else info for key, info in zip(keys, found, strict=True)]


_STUCK: Final = (
    "SELECT t.thread, c.tally, w.kinds, count(w.task) FROM cp_threads t"
    " LEFT JOIN cp_checkpoints c ON c.thread = t.thread AND c.ns = ? AND c.id = t.head_id"
    " LEFT JOIN cp_writes w ON w.thread = t.thread AND w.ns = ? AND w.checkpoint = t.head_id"
    " WHERE t.kinds <> 0 GROUP BY t.thread, c.tally, w.kinds"
)


@dataclass(slots=True)
class _Stuck:
    """What the writes on the checkpoint that a thread stands at say, and the tally that they must add up to."""

    tally: int | None
    counted: int = 0
    questions: int = 0
    errors: int = 0

    def add(self, kinds: int, count: int) -> None:
        """Count rows of these kinds; an answered question is a row of both."""
        self.counted += count * tally_of(kinds)
        self.questions += count if kinds & (INTERRUPTED | RESUMED) == INTERRUPTED else 0
        self.errors += count if kinds & FAILED else 0

    def told(self, info: ThreadInfo) -> ThreadInfo:
        """Tell it of a thread, or that rows are missing."""
        if self.counted != self.tally:
            return replace(info, status="damaged")
        return replace(info, questions=self.questions, errors=self.errors)


def _stuck(rows: Iterable[Row]) -> dict[int, _Stuck]:
    found: dict[int, _Stuck] = {}
    for thread, tally, kinds, count in rows:
        at = found.setdefault(thread, _Stuck(tally))
        if isinstance(kinds, int):
            at.add(kinds, int(count))
    return found


def _infos(tools: Tools, rows: Iterable[Row], wanted: Wanted) -> Iterator[tuple[int, ThreadInfo | None]]:
    """Tell what each row of a wanted thread says, and of one that cannot be opened, that it is there.

    One that the keys at hand do not open hides no other; where they open none of them, they are refused.
    """
    refusal, opened = None, False
    for row in rows:
        try:
            info, opened = _info(tools, row, wanted), True
        except ShreddedError:
            info = _unread(row, "shredded", wanted)
        except IntegrityError:
            info = _unread(row, "damaged", wanted)
        except KeyringError as error:
            info, refusal = _unread(row, "damaged", wanted), refusal or error
        yield row[0], info
    if refusal is not None and not opened:
        raise refusal


def _unread(row: Row, status: Status, wanted: Wanted) -> ThreadInfo | None:
    if not wanted.takes(status, (), {}):
        return None
    return ThreadInfo(f"#{row[0]}", status, 0, 0, 0, moment(0), moment(0), (), (), NO_METADATA)


def _info(tools: Tools, row: Row, wanted: Wanted) -> ThreadInfo | None:
    name, metadata, told, (tags, pins) = told_thread(tools, row)
    _, _, _, head, _, flags, kinds, checkpoints, size, created, updated, *_ = row
    status, holder = status_of(flags, kinds), holder_in(name, row)
    if wanted.some and not wanted.takes(status, tags, told):
        return None
    return ThreadInfo(
        name, status, head, checkpoints, size, moment(created), moment(updated), tuple(tags), tuple(pins), metadata,
        holder.owner if holder is not None and not holder.expired else None,
    )  # fmt: skip


def steps(tools: Tools, name: str, ns: str | None, after: int = 0) -> Statements[list[StepInfo]]:
    """List the steps of a namespace, or of all of them, oldest first, from the checkpoints' own rows alone."""
    thread = yield from find_thread(tools, name)
    if thread is None:
        return []
    # Those of other namespaces are read too: a row that is damaged may seem to be of one of them.
    rows = yield Statement(f"{SELECT_CHECKPOINT} WHERE thread = ? AND step > ? ORDER BY step", (thread.key, after))
    records = yield from records_of(tools, thread, rows)
    if not after:
        all_there(thread, {record.step for record in records})
    return [_step(thread, row, record) for row, record in zip(rows, records, strict=True) if ns in (None, record.ns)]


def tasks(tools: Tools, name: str, ns: str) -> Statements[dict[str, list[str]]]:
    """Give the ids of the tasks that have written on each checkpoint of a namespace; no value is read."""
    thread = yield from find_thread(tools, name)
    if thread is None:
        return {}
    sql = "SELECT checkpoint, task FROM cp_writes WHERE thread = ? AND ns = ?"
    rows = yield Statement(sql, (thread.key, key_of(ns)))
    found: dict[str, list[str]] = {}
    for checkpoint, task in rows:
        with checked(thread.name, "the writes of a task"):
            id_, told = text_of(checkpoint), text_of(task)
        if id_ is not None and told is not None:
            found.setdefault(id_, []).append(told)
    return found


def newest_steps(tools: Tools, name: str, ns: str | None, count: int) -> Statements[list[StepInfo]]:
    """List the newest steps and, before them, those that they were made from; oldest first, no other row is read."""
    thread = yield from find_thread(tools, name)
    if thread is None:
        return []
    own, params = ("", ()) if ns is None else (" AND ns = ?", (key_of(ns),))
    sql = f"{SELECT_CHECKPOINT} WHERE thread = ?{own} ORDER BY step DESC LIMIT {count:d}"
    found = yield from _with_origins(tools, thread, ns, (yield Statement(sql, (thread.key, *params))))
    head = thread.standing.head
    if ns in (None, ROOT) and head and (not found or found[-1].number < head):
        raise IncompleteRecordError(thread=name, step=head, channel=None)
    return found


def one_step(tools: Tools, name: str, ns: str, number: int) -> Statements[list[StepInfo]]:
    """List a step after the one that it was made from; no other row is read, and there is none if it is not stored."""
    thread = yield from find_thread(tools, name)
    if thread is None:
        return []
    rows = yield Statement(
        f"{SELECT_CHECKPOINT} WHERE thread = ? AND ns = ? AND step = ?", (thread.key, key_of(ns), number)
    )
    return (yield from _with_origins(tools, thread, ns, rows))


def _with_origins(tools: Tools, thread: Thread, ns: str | None, rows: Sequence[Row]) -> Statements[list[StepInfo]]:
    """List steps by their rows after those that they were made from, whose rows are read here; oldest first."""
    listed = {(row[NS], row[ID]) for row in rows}
    origins = {(row[NS], row[PARENT]) for row in rows if row[PARENT]} - listed
    select = f"{SELECT_CHECKPOINT} WHERE thread = ? AND ns = ? AND id = ?"
    older = (yield Many(select, [(thread.key, *one) for one in origins])) if origins else ()
    see_asked(thread, {(row[NS], row[ID]) for row in older} - origins, set())
    rows = [*older, *rows]
    if ns is not None:
        see_asked(thread, {row[NS] for row in rows} - {key_of(ns)}, set())
    found = zip(rows, (yield from records_of(tools, thread, rows)), strict=True)
    return [_step(thread, row, record) for row, record in sorted(found, key=lambda both: both[1].step)]


def _step(thread: Thread, row: Row, record: Record) -> StepInfo:
    metadata = told_metadata(thread, row)
    with checked(thread.name, "the checkpoint's row", record.step):
        status = status_of(row[FLAGS], kinds_in(row[TALLY]))
    return StepInfo(
        record.step, record.id, record.parent, when(record.ts, moment(record.at)), metadata.get("source", ""), status,
        metadata, record.ns, record.versions, record.seen, bool(row[FLAGS] & BESIDE),
    )  # fmt: skip


def usage(tools: Tools, name: str | None) -> Statements[list[Usage]]:
    """Say where the bytes are, the largest first."""
    yield from learn_names(tools.names)
    if name is None:
        known = {key: info.thread for key, info in _infos(tools, (yield Statement(SELECT_THREAD)), Wanted()) if info}
    else:
        known = {tools.key(name): name}
    where, params = ("", ()) if name is None else (" WHERE thread = ?", (tools.key(name),))
    elements = yield Statement(
        f"SELECT thread, channel, count(*), sum(length(body)) FROM cp_elements{where} GROUP BY thread, channel", params
    )
    checkpoints = yield Statement(
        f"SELECT thread, count(*), sum(length(body) + length(metadata)) FROM cp_checkpoints{where} GROUP BY thread",
        params,
    )
    writes = yield Statement(
        f"SELECT thread, count(*), sum(length(body)) FROM cp_writes{where} GROUP BY thread", params
    )
    effects = yield Statement(
        f"SELECT thread, count(*), sum(length(body)) FROM cp_effects{where} GROUP BY thread", params
    )
    bodies = yield Statement(
        f"SELECT thread, count(*), sum(length(body)) FROM cp_bodies{where} GROUP BY thread", params
    )
    found = [(key, _channel(tools, at), *counts) for key, at, *counts in elements]
    found += [(key, CHECKPOINTS, *counts) for key, *counts in checkpoints]
    for channel, counted in ((WRITES, writes), (EFFECTS, effects), (BODIES, bodies)):
        found += [(key, channel, *counts) for key, *counts in counted]
    told = [Usage(known[key], channel, rows, int(size or 0)) for key, channel, rows, size in found if key in known]
    return sorted(told, key=lambda one: (-one.bytes, one.thread, one.channel))


def _channel(tools: Tools, key: Any) -> str:
    """Call a channel by its name, or by what stands in the place of its key where that is damaged."""
    name = tools.names.texts.get(abs(key)) if isinstance(key, int) else None
    if name is None:
        return f"(channel key {key!r})"
    return name if key > 0 else f"{name} {RECIPES}"


def label(tools: Tools, name: str, *, add: Iterable[str | int], remove: Iterable[str | int]) -> Statements[bool]:
    """Change the tags (texts) and pins (steps) of a thread; tell whether it exists."""
    thread = yield from operations.whole.locked(tools, name)
    if thread is None:
        return False
    after = replace(thread.standing)
    labels = (set(after.tags) | set(after.pins) | set(add)) - set(remove)
    after.tags = sorted(x for x in labels if isinstance(x, str))
    after.pins = sorted(x for x in labels if isinstance(x, int))
    yield from operations.whole.restand(thread, after)
    return True


def readable() -> Statements[list[Readable]]:
    """Give what is readable without a key of the checkpoint that each thread stands at, if anything is."""
    rows = yield Statement(
        "SELECT c.thread, c.step, c.at, c.metadata FROM cp_threads t JOIN cp_checkpoints c ON c.thread = t.thread"
        " AND c.step = t.head WHERE substr(c.metadata, 1, 1) = ? ORDER BY c.at DESC, c.thread",
        (LABELLED,),
    )
    return [_readable(thread, step, at, blob) for thread, step, at, blob in rows]


def _readable(thread: int, step: int, at: int, blob: bytes) -> Readable:
    try:
        found = json.loads(labels_in(blob))
    except ValueError:
        found = None
    sound = isinstance(found, dict)
    return Readable(thread, step, moment(at), found if sound else {}, damaged=not sound)
