"""Surveying: threads, bytes and labels; none of it decodes a value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from checkpointers.codec import packed, unpacked
from checkpointers.keys import decoded, digest, key_of
from checkpointers.operations.common import (
    CHECKPOINT_COLUMNS,
    SELECT_CHECKPOINT,
    Tools,
    find_thread,
    learn_names,
    records_of,
)
from checkpointers.records import Record
from checkpointers.retention import moment
from checkpointers.statements import Row, Statement, Statements
from checkpointers.status import Status, status_of
from checkpointers.threads import StepInfo, ThreadInfo, Usage, when

CHECKPOINTS: Final = "(checkpoints)"
WRITES: Final = "(writes)"
RECIPES: Final = "(recipes)"
FLAGS: Final = CHECKPOINT_COLUMNS.index("flags")
METADATA: Final = CHECKPOINT_COLUMNS.index("metadata")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which threads a listing wants."""

    status: Status | None = None
    since: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict)
    tag: str | None = None
    limit: int | None = None


def threads(wanted: Wanted) -> Statements[list[ThreadInfo]]:
    """List threads, the most recently written first, from their own rows alone."""
    decided_here = wanted.status is not None or wanted.tag is not None or bool(wanted.metadata)
    limit = f" LIMIT {wanted.limit:d}" if wanted.limit is not None and not decided_here else ""
    rows = yield Statement(
        "SELECT name, flags, kinds, head, checkpoints, bytes, created_at, updated_at, tags, metadata FROM cp_threads"
        f" WHERE checkpoints > 0 AND updated_at >= ? ORDER BY updated_at DESC, thread DESC{limit}",
        (wanted.since,),
    )
    found: list[ThreadInfo] = []
    for row in rows:
        if wanted.limit is not None and len(found) >= wanted.limit:
            break
        info = _info(row)
        if _fits(info, wanted):
            found.append(info)
    return found


def _info(row: Any) -> ThreadInfo:
    name, flags, kinds, head, checkpoints, size, created, updated, labels, metadata = row
    tags, pins = unpacked(labels) if labels else ((), ())
    return ThreadInfo(
        decoded(name), status_of(flags, kinds), head, checkpoints, size, moment(created), moment(updated),
        tuple(tags), tuple(pins), metadata,
    )  # fmt: skip


def _fits(info: ThreadInfo, wanted: Wanted) -> bool:
    if wanted.status not in (None, info.status) or (wanted.tag is not None and wanted.tag not in info.tags):
        return False
    if not wanted.metadata:
        return True
    metadata = info.metadata
    return all(metadata.get(key) == value for key, value in wanted.metadata.items())


def steps(tools: Tools, thread: str, ns: str | None) -> Statements[list[StepInfo]]:
    """List the steps of a namespace, or of all of them, oldest first, from the checkpoints' own rows alone."""
    key = yield from find_thread(thread)
    if key is None:
        return []
    where, params = ("", (key,)) if ns is None else (" AND ns = ?", (key, key_of(ns)))
    rows = yield Statement(f"{SELECT_CHECKPOINT} WHERE thread = ?{where} ORDER BY step", params)
    records = yield from records_of(tools.names, rows)
    special = yield Statement(
        f"SELECT ns, checkpoint, kinds FROM cp_writes WHERE thread = ?{where} AND kinds <> 0", params
    )
    kinds: dict[tuple[bytes, bytes], int] = {}
    for space, checkpoint, bits in special:
        place = (bytes(space), bytes(checkpoint))
        kinds[place] = kinds.get(place, 0) | bits
    return [
        _step(row, record, kinds.get((key_of(record.ns), key_of(record.id)), 0))
        for row, record in zip(rows, records, strict=True)
    ]


def _step(row: Row, record: Record, kinds: int) -> StepInfo:
    metadata = unpacked(row[METADATA])
    return StepInfo(
        record.step, record.id, record.parent, when(record.ts, moment(record.at)), metadata.get("source", ""),
        status_of(row[FLAGS], kinds), metadata, record.ns, record.versions, record.seen,
    )  # fmt: skip


def usage(tools: Tools, thread: str | None) -> Statements[list[Usage]]:
    """Say where the bytes are, the largest first."""
    yield from learn_names(tools.names)
    where, params = "", cast("tuple[bytes, ...]", ())
    if thread is not None:
        where, params = " WHERE t.digest = ?", (digest(thread),)
    join = "JOIN cp_threads t ON t.thread = x.thread"
    elements = yield Statement(
        f"SELECT t.name, x.channel, count(*), sum(length(x.body)) FROM cp_elements x {join}{where}"
        " GROUP BY t.name, x.channel",
        params,
    )
    checkpoints = yield Statement(
        f"SELECT t.name, count(*), sum(length(x.body) + length(x.metadata)) FROM cp_checkpoints x {join}{where}"
        " GROUP BY t.name",
        params,
    )
    writes = yield Statement(
        f"SELECT t.name, count(*), sum(length(x.body)) FROM cp_writes x {join}{where} GROUP BY t.name",
        params,
    )
    found = [
        Usage(
            decoded(name),
            tools.names.texts[key] if key > 0 else f"{tools.names.texts[-key]} {RECIPES}",
            rows,
            int(size),
        )
        for name, key, rows, size in elements
    ]
    found += [Usage(decoded(name), CHECKPOINTS, rows, int(size)) for name, rows, size in checkpoints]
    found += [Usage(decoded(name), WRITES, rows, int(size)) for name, rows, size in writes]
    return sorted(found, key=lambda one: (-one.bytes, one.thread, one.channel))


def label(thread: str, *, add: Iterable[str | int], remove: Iterable[str | int]) -> Statements[bool]:
    """Change the tags (texts) and pins (steps) of a thread; tell whether it exists."""
    key = yield from find_thread(thread)
    if key is None:
        return False
    rows = yield Statement("UPDATE cp_threads SET stamp = stamp + 1 WHERE thread = ? RETURNING tags", (key,))
    tags, pins = unpacked(rows[0][0]) if rows[0][0] else ([], [])
    labels = (set(tags) | set(pins) | set(add)) - set(remove)
    split = [sorted(x for x in labels if isinstance(x, str)), sorted(x for x in labels if isinstance(x, int))]
    yield Statement("UPDATE cp_threads SET tags = ? WHERE thread = ?", (packed(split), key))
    return True
