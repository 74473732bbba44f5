"""Bodies: large texts of a thread, kept once under their hash, in parts that are read one without the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from checkpointers.effects import (
    BODIES,
    CHUNK,
    COVER,
    HASH_BYTES,
    BodyInfo,
    Cover,
    body_id,
    hash_of,
    opened_chunk,
    opened_cover,
    opened_part,
    sealed_body,
    sealed_cover,
)
from checkpointers.errors import IncompleteRecordError, IntegrityError, MissingBodyError
from checkpointers.memory import ThreadMemory
from checkpointers.operations.common import Tools, checked, find_thread, see_asked
from checkpointers.operations.guard import ATTEMPTS, Growth, append, entitled, too_busy
from checkpointers.operations.storing import Elements
from checkpointers.standing import Standing, Thread
from checkpointers.statements import Change, Insert, Row, Statement, Statements

BODY_COLUMNS: Final = ("hash", "n", "body")
SELECT_BODIES: Final = f"SELECT {', '.join(BODY_COLUMNS)} FROM cp_bodies WHERE thread = ?"
RENEW_COVER: Final = f"UPDATE cp_bodies SET body = ? WHERE thread = ? AND hash = ? AND n = {COVER}"


@dataclass(slots=True)
class NewBodies:
    """What storing some bodies changes: those that are not there come, old ones are as if kept only now."""

    count: int = 0
    size: int = 0
    rows: list[Row] = field(default_factory=list)
    renewed: list[Row] = field(default_factory=list)

    @property
    def changes(self) -> list[Insert | Change]:
        """Give the changes of the database."""
        inserts = [Insert("cp_bodies", BODY_COLUMNS, self.rows)] if self.rows else []
        return [*inserts, *([Change(RENEW_COVER, self.renewed)] if self.renewed else [])]

    def check(self, answer: str, thread: str) -> None:
        """See that no part is there of a body that is not."""
        if answer == "duplicate":
            raise IncompleteRecordError(thread=thread, step=None, channel=BODIES)


def keep(
    tools: Tools, memory: ThreadMemory, thread: str, data: bytes, *, token: bytes | None, now: int
) -> Statements[None]:
    """Store a body; one that is there already only if it is about to be taken for an old one."""
    for _ in range(ATTEMPTS):
        standing = yield from entitled(tools, memory, thread, token)
        new = yield from new_bodies(memory, standing, [data])
        if not new.changes:
            return
        growth = Growth(steps=standing.steps, checkpoints=0, size=new.size, bodies=new.count)
        answer = yield from append(memory, Elements(), changes=new.changes, growth=growth, now=now)
        if answer == "done":
            return
        memory.forget()
        new.check(answer, thread)
    raise too_busy(thread)


def new_bodies(memory: ThreadMemory, standing: Standing, bodies: Sequence[bytes]) -> Statements[NewBodies]:
    """Work out what storing these bodies takes."""
    new, thread = NewBodies(), memory.as_thread()
    for hash_, data in {hash_of(data): data for data in bodies}.items():
        rows = (yield from _rows(thread, hash_, COVER, COVER)) if memory.exists and standing.bodies else ()
        if not rows:
            added = list(sealed_body(memory.key, memory.vault, data, step=standing.head))
            new.rows += added
            new.count, new.size = new.count + 1, new.size + sum(len(row[-1]) for row in added)
        elif (cover := cover_of(thread, rows[0])).step < standing.head:
            row = sealed_cover(memory.key, memory.vault, replace(cover, step=standing.head))
            new.renewed.append((row[-1], memory.key, row[0]))
            new.size += len(row[-1]) - len(rows[0][-1])
    return new


def body(tools: Tools, name: str, hash_: str, *, start: int, stop: int | None) -> Statements[bytes]:
    """Read a part of a body, as a slice of it; a whole one must have the hash that it is kept under."""
    thread = yield from find_thread(tools, name)
    covers = (yield from _rows(thread, hash_, COVER, COVER)) if thread is not None else ()
    if thread is None or not covers:
        raise MissingBodyError(name, hash_)
    cover = cover_of(thread, covers[0])
    begin, end, _ = slice(start, stop).indices(cover.size)
    if begin >= end:
        return b""
    first, last = begin // CHUNK, (end - 1) // CHUNK
    rows = yield from _rows(thread, hash_, COVER + 1 + first, COVER + 1 + last)
    data = b"".join(chunk_of(thread, row) for row in rows)
    if len(data) != min(cover.size, (last + 1) * CHUNK) - first * CHUNK:
        raise IncompleteRecordError(thread=name, step=None, channel=BODIES)
    if end - begin == cover.size and hash_of(data) != hash_:
        raise IntegrityError(name, None, f"{BODIES} {hash_} has another hash")
    return data[begin - first * CHUNK : end - first * CHUNK]


def bodies(tools: Tools, name: str) -> Statements[list[BodyInfo]]:
    """List the bodies of a thread, by their covers alone."""
    thread = yield from find_thread(tools, name)
    found = (yield from covers_of(thread)) if thread is not None else []
    return sorted((BodyInfo(cover.hash.hex(), cover.size) for cover in found), key=lambda info: info.hash)


def covers_of(thread: Thread) -> Statements[list[Cover]]:
    """Read the cover of every body, and see that none is missing."""
    rows = yield Statement(f"{SELECT_BODIES} AND n = {COVER}", (thread.key,))
    found = [cover_of(thread, row) for row in rows]
    if len(found) < thread.standing.bodies:
        raise IncompleteRecordError(thread=thread.name, step=None, channel=BODIES)
    return found


def parts_of(thread: Thread, id_: bytes) -> Statements[Sequence[Row]]:
    """Read every row of a body, its cover first, by the print that they stand under."""
    return (yield Statement(f"{SELECT_BODIES} AND hash = ? ORDER BY n", (thread.key, id_)))


def see_body(thread: Thread, rows: Sequence[Row]) -> None:
    """See that these rows are all of a body; say of which one, as long as one of them can be read."""
    parts = list[bytes]()
    damage: str | None = None
    for row in rows:
        try:
            with checked(thread.name, f"part {row[1]}"):
                parts.append(opened_part(thread.key, thread.vault, row))
        except IntegrityError as error:
            damage = error.what
    damage = damage or _gap(thread, rows)
    if damage is not None:
        name = parts[0][:HASH_BYTES].hex() if parts else rows[0][0] if rows else "without a print"
        raise IntegrityError(thread.name, None, f"{BODIES} {name}: {damage}")


def _gap(thread: Thread, rows: Sequence[Row]) -> str | None:
    """Say what is wrong with rows each of which is what was written."""
    if not rows or rows[0][1] != COVER:
        return "its cover is missing"
    cover = cover_of(thread, rows[0])
    if len(rows) != COVER + 1 + cover.chunks:
        return "some of its parts are missing"
    whole = hash_of(b"".join(chunk_of(thread, row) for row in rows[1:]))
    return None if whole == cover.hash.hex() else "it has another hash"


def _rows(thread: Thread, hash_: str, first: int, last: int) -> Statements[Sequence[Row]]:
    id_ = body_id(thread.vault, hash_)
    params = (thread.key, id_, first, last)
    rows = yield Statement(f"{SELECT_BODIES} AND hash = ? AND n BETWEEN ? AND ? ORDER BY n", params)
    for number, row in enumerate(rows, first):
        see_asked(thread, (row[0], row[1]), (id_, number))
    return rows


def cover_of(thread: Thread, row: Row) -> Cover:
    """Open the cover of a body."""
    with checked(thread.name, f"the cover of one of its {BODIES}"):
        return opened_cover(thread.key, thread.vault, row)


def chunk_of(thread: Thread, row: Row) -> bytes:
    """Open a part of a body."""
    with checked(thread.name, f"part {row[1]} of one of its {BODIES}"):
        return opened_chunk(thread.key, thread.vault, row)
