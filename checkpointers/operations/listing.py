"""Listing checkpoints in pages, newest first, with what tells that none of them is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

import ormsgpack

from checkpointers.codec import Bundle
from checkpointers.compression import PLAIN
from checkpointers.errors import IncompleteRecordError, IntegrityError, ShreddedError
from checkpointers.keys import key_of
from checkpointers.operations.common import (
    ID,
    NS,
    ROOT,
    SELECT_CHECKPOINT,
    SELECT_THREAD,
    STEP,
    Place,
    Tools,
    all_there,
    find_thread,
    is_shredded,
    open_thread,
    see_asked,
    select_thread,
    told_by,
    told_metadata,
)
from checkpointers.operations.read import Loaded, Sheet, again, keep, load, recalled
from checkpointers.operations.shelves import Shelf
from checkpointers.records import NEAR, Record
from checkpointers.standing import STANDING_COLUMNS, Thread
from checkpointers.statements import Many, Row, Rows, Statement, Statements, Together

SCANNED: Final = 256
UPDATED: Final = 1 + STANDING_COLUMNS.index("updated_at")
THREADS: Final = 256
_PLAIN_VALUES: Final = (str, int, float, type(None))


@dataclass(frozen=True, slots=True)
class Query:
    """What a listing asks for; `place` None means all threads."""

    place: Place | None
    any_ns: bool
    filter: Mapping[str, Any] = field(default_factory=dict)
    before: str | None = None

    @property
    def is_search(self) -> bool:
        """Tell whether it asks a whole thread for some of its checkpoints, by values that can be remembered."""
        values = self.filter.values()
        return bool(values) and not self.before and all(isinstance(value, _PLAIN_VALUES) for value in values)


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where the next page of a listing starts: below this step of this thread; `others` come after it.

    `begun` is what was read together with the thread: how many checkpoints it has, and the first of them. `shelf` has
    the elements of the last checkpoint that was listed: the next has most of them too. A thread that `moved` since its
    first page had another number of checkpoints then.
    """

    thread: Thread | None
    step: int
    by_id: int | None = None
    listed: int = 0
    others: tuple[Thread, ...] = ()
    after: tuple[int, int] = (2**62, 0)
    begun: Sequence[Rows] = ()
    shelf: Shelf = field(default_factory=Shelf)
    moved: bool = False


def page(
    tools: Tools, query: Query, cursor: Cursor | None, limit: int
) -> Statements[tuple[list[Loaded], Cursor | None]]:
    """Read the next checkpoints of a listing, newest first, and where to go on; no cursor: it is finished."""
    if cursor is None and query.place is not None and query.is_search:
        return (yield from _search(tools, query, query.place, limit))
    return (yield from _page(tools, query, cursor, limit))


def _search(tools: Tools, query: Query, place: Place, limit: int) -> Statements[tuple[list[Loaded], Cursor | None]]:
    """Read the first page of a search; one made lately is not made again while its thread stands as it did."""
    asked = ("search", place, query.any_ns, limit, *query.filter.items())
    known = yield from recalled(tools, place, asked, lambda found: ([again(tools, *one) for one in found[0]], found[1]))
    if known is not None:
        return known[1]
    start = yield from _first(tools, query, SCANNED)
    if start is None or start.thread is None:
        return [], None
    kept: list[tuple[Sheet, Bundle | None]] = []
    found, following = yield from _page(tools, query, start, limit, kept)
    if all(bundle is not None for _, bundle in kept):
        bare = following and replace(following, shelf=Shelf())
        size = sum(sheet.bytes + len(bundle.payload) for sheet, bundle in kept if bundle is not None)
        keep(tools, start.thread, asked, (kept, bare), size)
    return found, following


def _page(
    tools: Tools, query: Query, cursor: Cursor | None, limit: int, kept: list[tuple[Sheet, Bundle | None]] | None = None
) -> Statements[tuple[list[Loaded], Cursor | None]]:
    size = SCANNED if query.filter else limit
    at = cursor or (yield from _first(tools, query, size))
    while at is not None and at.thread is not None:
        thread = at.thread
        whole = not query.filter and not query.before and (query.place is None or (query.any_ns and not query.place.id))
        if at.step == _HIGHEST and not at.begun:
            at = (yield from _begun(tools, query, at, size)) or (yield from _next_thread(tools, query, at))
            continue
        if at.step == _HIGHEST:
            counted, rows = at.begun
            _see_all(thread, counted)
        else:
            at, rows = yield from _further(tools, query, at, size)
            thread = at.thread or thread
        _see_rows(thread, query, rows, first=at.step == _HIGHEST)
        matching = [row for row in rows if _matches(thread, row, query.filter)]
        chosen = matching[:limit]
        shelf = at.shelf.copy()
        found = yield from load(tools, thread, chosen, shelf, kept)
        if not query.filter:
            yield from _see_parents(thread, [one.record for one in found], at.step)
        following: Cursor | None
        if len(rows) == size or len(matching) > limit:
            last = chosen if len(matching) >= limit else rows
            shelf = shelf.only(tools, found[-1].record.refs.items()) if found else Shelf()
            step, listed = last[-1][STEP], at.listed + len(found)
            following = replace(at, step=step, listed=listed, begun=(), shelf=shelf)
        else:
            if whole and not at.moved:
                all_there(thread, range(at.listed + len(found)))
            following = yield from _next_thread(tools, query, at)
        if found or following is None:
            return found, following
        at = following
    return [], None


def _beginning(key: int, query: Query, cursor: Cursor, size: int) -> tuple[Statement, Statement]:
    """Ask how many checkpoints a thread has, how many of them in a namespace that there is not; and for the first."""
    counted = Statement(
        "SELECT count(*), count(*) FILTER (WHERE c.ns <> ? AND NOT EXISTS"
        " (SELECT 1 FROM cp_heads h WHERE h.thread = c.thread AND h.ns = c.ns))"
        " FROM cp_checkpoints c WHERE c.thread = ?",
        (key_of(ROOT), key),
    )
    return counted, _below(key, query, cursor, size)


def _further(tools: Tools, query: Query, cursor: Cursor, size: int) -> Statements[tuple[Cursor, Rows]]:
    """Read the rows of a later page; the shelf holds only if the thread still stood as it did after that."""
    thread: Any = cursor.thread
    rows, now = yield Together((_below(thread.key, query, cursor, size), select_thread(thread.key)))
    if now and told_by(now[0]) == told_by(thread.row):
        return cursor, rows
    found = open_thread(tools, now[0], thread.name) if now else thread
    return replace(cursor, thread=found, shelf=Shelf(), moved=True), rows


def _see_all(thread: Thread, counted: Rows) -> None:
    """See that no checkpoint of a thread is missing or in a namespace that there is not, before they are listed."""
    count, strays = counted[0]
    if strays or count < thread.standing.checkpoints:
        raise IncompleteRecordError(thread=thread.name, step=None, channel=None)


def _see_rows(thread: Thread, query: Query, rows: Sequence[Row], *, first: bool) -> None:
    """See that rows are of the namespace asked for, and that a listing does not begin below where the thread stands."""
    place = query.place
    if place is not None and not query.any_ns:
        see_asked(thread, {row[NS] for row in rows} - {key_of(place.ns)}, set())
    if place is not None and place.id:
        see_asked(thread, {row[ID] for row in rows} - {key_of(place.id)}, set())
    if query.filter or query.before or not first:
        return
    rooted = place is None or (not place.id and (query.any_ns or place.ns == ROOT))
    if rooted and thread.standing.head and (not rows or rows[0][STEP] < thread.standing.head):
        raise IncompleteRecordError(thread=thread.name, step=thread.standing.head, channel=None)


def _see_parents(thread: Thread, records: Sequence[Record], below: int) -> Statements[None]:
    """See that between listed checkpoints none is missing: what one was made from is listed too, or is stored."""
    if any(later.step >= earlier for later, earlier in zip(records, [below, *(r.step for r in records)], strict=False)):
        raise IntegrityError(thread.name, None, "one of its checkpoints is found twice")
    listed = {(record.ns, record.id) for record in records}
    lowest = {record.ns: record.step for record in records}
    awaited = [
        (thread.key, key_of(record.ns), key_of(record.parent))
        for record in records
        if record.parent and record.chain and (record.ns, record.parent) not in listed
        if record.step != lowest[record.ns]
    ]
    sql = "SELECT 1 FROM cp_checkpoints WHERE thread = ? AND ns = ? AND id = ?"
    if awaited and len((yield Many(sql, awaited))) < len(awaited):
        raise IncompleteRecordError(thread=thread.name, step=None, channel=None)


def _matches(thread: Thread, row: Row, wanted: Mapping[str, Any]) -> bool:
    if not wanted:
        return True
    metadata = told_metadata(thread, row)
    return all(metadata.get(key) == value for key, value in wanted.items())


def _needles(wanted: Mapping[str, Any]) -> list[list[bytes]]:
    """Give, for each entry of a filter, the bytes that matching metadata contains, so that the database can look.

    Only what packs in one way, or in a few, is looked for; the answer is checked again after reading in any case.
    """
    found = []
    for key, value in wanted.items():
        if isinstance(value, str):
            forms: list[Any] = [value]
        elif isinstance(value, bool | int | float):
            forms = _numbers(value)
        else:
            continue
        needles = list(dict.fromkeys(needle for form in forms for needle in _packed_as(key, form)))
        found += [needles] if needles else []
    return found


def _packed_as(key: str, form: Any) -> list[bytes]:
    """Give how an entry is packed; what cannot be packed is nowhere stored."""
    try:
        return [ormsgpack.packb(key) + ormsgpack.packb(form)]
    except TypeError:
        return []


def _numbers(value: float) -> list[Any]:
    """Give every number and truth value that equals a number."""
    forms: list[Any] = [value]
    with suppress(OverflowError, ValueError):  # of infinity, of what is no number, and of what no float can be
        forms += [int(value), float(value)]
    if value in (0, 1):
        forms += [bool(value), -float(value)]
    return [form for form in forms if form == value]


def _first(tools: Tools, query: Query, size: int) -> Statements[Cursor | None]:
    if query.place is None:
        return (yield from _next_thread(tools, query, Cursor(None, 0)))
    if not query.before:
        return (yield from _at_the_head(tools, query, query.place.thread, Cursor(None, _HIGHEST), size))
    thread = yield from find_thread(tools, query.place.thread)
    if thread is None:
        return None
    step, same = yield from _step_before(thread, query)
    if step is None:
        return Cursor(thread, _HIGHEST, by_id=0)
    return Cursor(thread, step) if same else Cursor(thread, step + NEAR, by_id=step - NEAR)


_HIGHEST: Final = 2**31 - 1


def _at_the_head(tools: Tools, query: Query, name: str, start: Cursor, size: int) -> Statements[Cursor | None]:
    """Find a thread and read its first page with it: on Postgres a round trip takes longer than either."""
    key = tools.key(name)
    rows, *begun = yield Together((select_thread(key), *_beginning(key, query, start, size)))
    if not rows:
        thread = yield from find_thread(tools, name)
        return replace(start, thread=thread) if thread is not None else None
    return replace(start, thread=open_thread(tools, rows[0], name), begun=begun)


def _begun(tools: Tools, query: Query, cursor: Cursor, size: int) -> Statements[Cursor | None]:
    """Begin with a thread as it stands now: since it was found others may have changed it, or removed it."""
    thread: Any = cursor.thread
    try:
        return (yield from _at_the_head(tools, query, thread.name, cursor, size))
    except ShreddedError:
        if query.place is None:
            return None
        raise


def _step_before(thread: Thread, query: Query) -> Statements[tuple[int | None, bool]]:
    """Give the step of the checkpoint that a listing starts below, if it is stored, and whether it is of its namespace.

    A subgraph asks for what it had before a checkpoint of its parent graph. The two are stored side by side, so near
    that step the order of commits says little, and ids tell which was made first.
    """
    ns, id_ = key_of(query.place.ns if query.place else ROOT), key_of(query.before or "")
    rows = yield Statement(
        "SELECT step, ns, id FROM cp_checkpoints WHERE thread = ? AND id = ? ORDER BY ns = ? DESC, step LIMIT 1",
        (thread.key, id_, ns),
    )
    for row in rows:
        see_asked(thread, row[2], id_)
    same = query.place is None or query.any_ns or (bool(rows) and rows[0][1] == ns)
    return (int(rows[0][0]) if rows else None), same


def _next_thread(tools: Tools, query: Query, cursor: Cursor) -> Statements[Cursor | None]:
    """Go on with the next thread, the last changed first, when a listing is about all of them."""
    if query.place is not None:
        return None
    if cursor.others:
        return Cursor(cursor.others[0], _HIGHEST, by_id=0, others=cursor.others[1:], after=cursor.after)
    rows = yield Statement(
        f"{SELECT_THREAD} WHERE t.updated_at < ? OR (t.updated_at = ? AND t.thread < ?)"
        f" ORDER BY t.updated_at DESC, t.thread DESC LIMIT {THREADS:d}",
        (cursor.after[0], *cursor.after),
    )
    if not rows:
        return None
    after = (rows[-1][UPDATED], rows[-1][0])
    found = [open_thread(tools, row) for row in rows if not is_shredded(row)]
    if not found:
        return (yield from _next_thread(tools, query, replace(cursor, after=after)))
    return Cursor(found[0], _HIGHEST, by_id=0, others=tuple(found[1:]), after=after)


def _below(key: int, query: Query, cursor: Cursor, limit: int) -> Statement:
    params: list[Any]
    sql, params = f"{SELECT_CHECKPOINT} WHERE thread = ? AND step < ?", [key, cursor.step]
    if query.place is not None and not query.any_ns:
        sql, params = sql + " AND ns = ?", [*params, key_of(query.place.ns)]
    if query.place is not None and query.place.id:
        sql, params = sql + " AND id = ?", [*params, key_of(query.place.id)]
    if query.before and cursor.by_id is not None:
        sql, params = sql + " AND (id < ? OR step < ?)", [*params, key_of(query.before), cursor.by_id]
    for needles in _needles(query.filter):
        found = " OR ".join(["instr(metadata, ?) > 0"] * len(needles))
        sql, params = f"{sql} AND ({found} OR substr(metadata, 1, 1) <> ?)", [*params, *needles, PLAIN]
    return Statement(f"{sql} ORDER BY step DESC LIMIT {limit:d}", params)
