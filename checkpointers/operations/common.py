"""What several operations need: places, threads, names, and rows opened and made into records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from checkpointers.codec import Codec, unpacked_dict
from checkpointers.errors import DAMAGE, CheckpointerError, IncompleteRecordError, IntegrityError
from checkpointers.keys import key_of, text_of, thread_key, thread_number
from checkpointers.operations.names import ALL_NAMES, learn_names, take_names
from checkpointers.recent import Recent
from checkpointers.records import Names, Record, TaskWrites, unpack_record, unpack_writes
from checkpointers.sealing import checkpoint_place, metadata_place, write_place
from checkpointers.segments import MissingElementError
from checkpointers.standing import (
    STANDING_COLUMNS,
    Holder,
    Labels,
    Thread,
    holder_of,
    unpack_standing,
    unpack_told,
)
from checkpointers.statements import Many, Row, Rows, Statement, Statements, Together
from checkpointers.tally import rows_in
from checkpointers.vaults import Vaults

T = TypeVar("T")
ROOT: Final = ""
NO_THREAD: Final = -(1 << 62)  # none has a negative one; and a small number is of another type to Postgres
NAMING: Final = '{"configurable": {"thread_id": "ada"}}'
CHECKPOINT_COLUMNS: Final = ("ns", "step", "id", "parent", "at", "flags", "tally", "metadata", "body")
NS, STEP, ID, PARENT, AT, FLAGS, TALLY, METADATA, BODY = range(len(CHECKPOINT_COLUMNS))
WRITE_COLUMNS: Final = ("ns", "checkpoint", "task", "kinds", "body")
ELEMENT_COLUMNS: Final = ("channel", "n", "body")
SELECT_CHECKPOINT: Final = f"SELECT {', '.join(CHECKPOINT_COLUMNS)} FROM cp_checkpoints"
HEAD: Final = "(SELECT head FROM cp_threads WHERE thread = ?)"
SELECT_ELEMENTS: Final = (
    f"SELECT {', '.join(ELEMENT_COLUMNS)} FROM cp_elements WHERE thread = ? AND channel = ? AND n BETWEEN ? AND ?"
)
DELETE_ELEMENTS: Final = "DELETE FROM cp_elements WHERE thread = ? AND channel = ? AND n BETWEEN ? AND ?"
SELECT_ALL_WRITES: Final = f"SELECT {', '.join(WRITE_COLUMNS)} FROM cp_writes WHERE thread = ?"
SELECT_WRITES: Final = f"{SELECT_ALL_WRITES} AND ns = ? AND checkpoint = ?"
SELECT_THREAD: Final = (
    f"SELECT t.thread, {', '.join(f't.{name}' for name in STANDING_COLUMNS)}, k.key,"
    " l.token, l.owner, l.since, l.until, l.epoch, CASE WHEN l.token IS NOT NULL THEN l.until < cp_clock() END"
    " FROM cp_threads t LEFT JOIN cp_keys k ON k.thread = t.thread LEFT JOIN cp_leases l ON l.thread = t.thread"
)
SELECT_BEGINNING: Final = "SELECT created_at FROM cp_threads WHERE thread = ?"
_KEY: Final = 1 + len(STANDING_COLUMNS)
CONTENTS: Final = ("cp_checkpoints", "cp_writes", "cp_elements", "cp_effects", "cp_bodies")


class Place(NamedTuple):
    """Where a config points: a thread, a namespace of it, maybe a checkpoint."""

    thread: str
    ns: str
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Tools:
    """What an operation is given besides its arguments."""

    codec: Codec
    names: Names
    vaults: Vaults = field(default_factory=Vaults)
    tenant: str = ""
    recent: Recent = field(default_factory=lambda: Recent(0))

    def key(self, thread: str) -> int:
        """Give the number of a thread."""
        return thread_key(thread, self.tenant)


def place_of(config: Mapping[str, Any]) -> Place:
    """Read a LangGraph config; an int thread id is its text."""
    try:
        configurable = config["configurable"]
        thread = str(configurable["thread_id"])
    except (KeyError, TypeError) as error:
        raise CheckpointerError(f"a config names its thread, {NAMING}; this one does not") from error
    return Place(thread, configurable.get("checkpoint_ns") or ROOT, configurable.get("checkpoint_id"))


def config_of(thread: str, ns: str, checkpoint_id: str) -> dict[str, Any]:
    """Give the config that points to a checkpoint."""
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}}


class checked:  # noqa: N801  it stands in a `with`; and as a generator it would take longer than what it watches
    """Names the thread and the place when a seal does not hold, or when what it holds has not the form of such a row.

    A digest can be made by anybody who can write rows, and a newer program may write others. A `KeyError` is a name
    that was not learned yet.
    """

    __slots__ = ("_step", "_thread", "_what")

    def __init__(self, thread: str, what: str, step: int | None = None) -> None:
        """Take the place."""
        self._thread, self._what, self._step = thread, what, step

    def __enter__(self) -> None:
        """Watch."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Tell what went wrong, if it is damage."""
        if isinstance(error, DAMAGE):
            raise damaged(self._thread, self._what, error, self._step) from error


def damaged(thread: str, what: str, error: Exception, step: int | None = None) -> IntegrityError:
    """Say which row is not what was written."""
    return IntegrityError(thread, step, f"{what}: {error}")


def absent(error: MissingElementError, *, thread: str, step: int | None, channel: str) -> IntegrityError:
    """Say what a value cannot be put together without: an element that is not stored, or not as it was written."""
    if error.damage is None:
        return IncompleteRecordError(thread=thread, step=step, channel=channel)
    return damaged(thread, f"element {error.number} of channel {channel!r}", error.damage, step)


def find_thread(tools: Tools, name: str) -> Statements[Thread | None]:
    """Find a thread, None if there is none; raises if rows of it are there and its own row is not."""
    key = tools.key(name)
    for _ in range(2):  # it may have been begun since the first look
        rows = yield select_thread(key)
        if rows:
            return open_thread(tools, rows[0], name)
        if not (yield from any_rows(CONTENTS, key)):
            return None
    raise IntegrityError(name, None, "its own row is missing, other rows of it are there")


def select_thread(key: int) -> Statement:
    """Ask for the row of a thread."""
    return Statement(f"{SELECT_THREAD} WHERE t.thread = ?", (key,))


def any_rows(tables: Sequence[str], key: int) -> Statements[bool]:
    """Tell whether any of these tables has a row of a thread."""
    each = ", ".join(f"EXISTS (SELECT 1 FROM {table} WHERE thread = ?)" for table in tables)
    found = yield Statement(f"SELECT {each}", (key,) * len(tables))
    return any(found[0])


def wrapped_key(key: int) -> Statements[bytes | None]:
    """Read a thread's own key as it is stored, None if it has none."""
    rows = yield Statement("SELECT key FROM cp_keys WHERE thread = ?", (key,))
    return rows[0][0] if rows else None


def open_thread(tools: Tools, row: Row, name: str | None = None) -> Thread:
    """Open the row of a thread; without a name, learn it from the row."""
    key, wrapped, said = row[0], row[_KEY], name if name is not None else f"#{row[0]}"
    vault = tools.vaults.of(key, said, wrapped)
    with checked(said, "the thread's row"):
        standing = unpack_standing(key, vault, row[1:_KEY])
    if (name is not None and standing.name != name) or tools.key(standing.name) != key:
        raise _misnamed(said, standing.name)
    return Thread(key, standing.name, vault, standing, holder_in(standing.name, row), row)


def told_by(row: Row) -> Row:
    """Give of the row of a thread what every change changes, and a lease does not."""
    return row[: _KEY + 1]


def told_thread(tools: Tools, row: Row) -> tuple[str, bytes, dict[str, Any], Labels]:
    """Open of the row of a thread what a listing tells, its metadata as stored and as it is.

    Of ten thousand threads, the rest would take as long again.
    """
    key, said = row[0], f"#{row[0]}"
    try:  # what `checked` does, without what it costs for each of them
        name, metadata, labels, *_ = unpack_told(key, tools.vaults.of(key, said, row[_KEY]), row[1:_KEY])
        told = unpacked_dict(metadata)
    except DAMAGE as error:
        raise damaged(said, "the thread's row", error) from error
    if thread_number(name, tools.tenant) != key:
        raise _misnamed(said, name)
    return name, metadata, told, labels


def _misnamed(said: str, name: str) -> IntegrityError:
    return IntegrityError(said, None, f"its row says it is thread {name!r}")


def holder_in(name: str, row: Row) -> Holder | None:
    """Say who holds a thread, by its row; None if nobody does."""
    return told_holder(name, row[_KEY + 1 :]) if row[_KEY + 1] is not None else None


def told_holder(name: str, row: Row) -> Holder:
    """Say who holds a thread, by the columns of a lease that has a token."""
    with checked(name, "the row of its lease"):
        return holder_of(row)


def is_shredded(row: Row) -> bool:
    """Tell whether the key of a thread was thrown away, by the row that `SELECT_THREAD` gives."""
    return bool(row[_KEY] == b"")


def records_of(tools: Tools, thread: Thread, rows: Sequence[Row]) -> Statements[list[Record]]:
    """Open rows of the checkpoints table, learning names on the way."""
    bodies = [open_checkpoint(thread, row) for row in rows]
    columns = [dict(zip(CHECKPOINT_COLUMNS, row, strict=True)) for row in rows]

    def unpacked() -> list[Record]:
        return [_record(tools, thread, row, body) for row, body in zip(columns, bodies, strict=True)]

    return (yield from _with_names(tools, thread, unpacked))


def _record(tools: Tools, thread: Thread, row: Mapping[str, Any], body: bytes) -> Record:
    with checked(thread.name, "the checkpoint's row", row["step"]):
        return unpack_record(row, body, tools.names)


def _with_names(tools: Tools, thread: Thread, unpacked: Callable[[], T]) -> Statements[T]:
    """Unpack what has names in it; again once all names are learned, if there are strange ones."""
    try:
        return unpacked()
    except KeyError:
        yield from learn_names(tools.names)
    try:
        return unpacked()
    except KeyError as error:
        raise IntegrityError(thread.name, None, f"the name with key {error} is missing") from error


def open_checkpoint(thread: Thread, row: Row) -> bytes:
    """Give the content of a checkpoint's row."""
    with checked(thread.name, "the checkpoint's row", row[STEP] if isinstance(row[STEP], int) else None):
        return thread.vault.open(place_of_row(thread.key, row, row[METADATA]), row[BODY])


def place_of_row(thread: int, row: Row, metadata: bytes) -> bytes:
    """Say where a checkpoint's row stands in a thread, with this metadata."""
    key = (row[NS], row[STEP], row[ID], row[PARENT])
    return checkpoint_place(thread, key, row[AT], flags=row[FLAGS], metadata=metadata)


def told_metadata(thread: Thread, row: Row) -> dict[str, Any]:
    """Give the metadata of a checkpoint's row."""
    with checked(thread.name, "the checkpoint's metadata", row[STEP]):
        return unpacked_dict(thread.vault.show(metadata_place(thread.key, row[NS], row[ID]), row[METADATA]))


def metadata_of(thread: Thread, row: Row) -> bytes:
    """Give the packed metadata of a checkpoint's row."""
    with checked(thread.name, "the checkpoint's metadata", row[STEP]):
        return thread.vault.show(metadata_place(thread.key, row[NS], row[ID]), row[METADATA])


def writes_of(
    tools: Tools, thread: Thread, rows: Sequence[Row], step: int | None = None
) -> Statements[list[TaskWrites]]:
    """Open rows of the writes table, learning names on the way; an error names the step, if it is given."""
    bodies = [open_writes(thread, row, step) for row in rows]

    def one(row: Row, body: bytes) -> TaskWrites:
        with checked(thread.name, f"writes on checkpoint {_said(row[1])}", step):
            return unpack_writes(row[2], body, tools.names)

    def unpacked() -> list[TaskWrites]:
        return [one(row, body) for row, body in zip(rows, bodies, strict=True)]

    return (yield from _with_names(tools, thread, unpacked))


def open_writes(thread: Thread, row: Row, step: int | None = None) -> bytes:
    """Give the content of a row of writes."""
    with checked(thread.name, f"writes on checkpoint {_said(row[1])}", step):
        return thread.vault.open(write_place(thread.key, (row[0], row[1], row[2]), row[3]), row[4])


def see_all_writes(thread: Thread, row: Row, written: Sized) -> None:
    """See that every row of writes was read that a checkpoint counts."""
    with checked(thread.name, "the checkpoint's row", row[STEP]):
        counted = rows_in(row[TALLY])
    if len(written) < counted:
        raise IncompleteRecordError(thread=thread.name, step=row[STEP], channel="(writes)")


def _said(key: Any) -> str:
    try:
        return text_of(key) or key.hex()
    except DAMAGE:
        return repr(key)


def find_checkpoint(tools: Tools, place: Place) -> Statements[tuple[Thread | None, Row | None]]:
    """Find a thread, and the checkpoint of it that a place names or at which its namespace stands, asked for at once.

    A thread that is written meanwhile may stand elsewhere by then: its checkpoint is asked for again. Who knows no
    name yet asks for those, too: nothing can be told without.
    """
    if place.ns != ROOT and not place.id:
        thread = yield from find_thread(tools, place.thread)
        return thread, (yield from checkpoint_row(thread, place)) if thread is not None else None
    found, rows = yield from _rows_at(tools, tools.key(place.thread), place)
    thread = open_thread(tools, found[0], place.thread) if found else (yield from find_thread(tools, place.thread))
    if thread is None:
        return None, None
    if found and rows and _is_asked(thread, place, rows[0]):
        return thread, rows[0]
    return thread, (yield from checkpoint_row(thread, place))


def rehearse(tools: Tools) -> Statements[None]:
    """Ask what is asked first of every thread, of none: what a database learns for it, it knows when a run waits."""
    yield from _rows_at(tools, NO_THREAD, Place("", ROOT))
    channels = [(NO_THREAD, channel, 0, 0) for channel in range(2)]  # asked for at once, as of most threads
    life = Statement(SELECT_BEGINNING, (NO_THREAD,))
    yield Together((Many(SELECT_WRITES, [(NO_THREAD, b"", b"")]), Many(SELECT_ELEMENTS, channels), life))


def _rows_at(tools: Tools, key: int, place: Place) -> Statements[tuple[Rows, Rows]]:
    what, by = ("id = ?", key_of(place.id)) if place.id else (f"step = {HEAD}", key)
    asked = Statement(f"{SELECT_CHECKPOINT} WHERE thread = ? AND ns = ? AND {what}", (key, key_of(place.ns), by))
    found, rows, *named = yield Together((select_thread(key), asked, *([] if tools.names.texts else [ALL_NAMES])))
    for names in named:
        take_names(tools.names, names)
    return found, rows


def _is_asked(thread: Thread, place: Place, row: Row) -> bool:
    asked = key_of(place.id) if place.id else thread.standing.head
    return bool((row[NS], row[ID if place.id else STEP]) == (key_of(place.ns), asked))


def checkpoint_row(thread: Thread, place: Place) -> Statements[Row | None]:
    """Select the checkpoint that a place names, or the one at which its namespace stands."""
    ns = key_of(place.ns)
    if not place.id and place.ns != ROOT:
        return (yield from _newest_of(thread, ns))
    by: tuple[str, Any] = ("id", key_of(place.id)) if place.id else ("step", thread.standing.head)
    rows = yield Statement(f"{SELECT_CHECKPOINT} WHERE thread = ? AND ns = ? AND {by[0]} = ?", (thread.key, ns, by[1]))
    if rows:
        see_asked(thread, (rows[0][NS], rows[0][CHECKPOINT_COLUMNS.index(by[0])]), (ns, by[1]))
        return rows[0]
    if place.id:
        yield from _look_for_strays(thread, ns, by[1])
    elif thread.standing.head:
        raise IncompleteRecordError(thread=thread.name, step=thread.standing.head, channel=None)
    return None


def _newest_of(thread: Thread, ns: bytes) -> Statements[Row | None]:
    """Select the newest checkpoint of a namespace, and see that it is the one that is said to be."""
    rows = yield Statement(
        f"SELECT {', '.join(CHECKPOINT_COLUMNS)},"
        " (SELECT h.step FROM cp_heads h WHERE h.thread = c.thread AND h.ns = c.ns)"
        " FROM cp_checkpoints c WHERE c.thread = ? AND c.ns = ? ORDER BY c.step DESC LIMIT 1",
        (thread.key, ns),
    )
    if not rows:
        rows = yield Statement("SELECT step FROM cp_heads WHERE thread = ? AND ns = ?", (thread.key, ns))
        if rows:
            raise IncompleteRecordError(thread=thread.name, step=rows[0][0], channel=None)
        return None
    see_asked(thread, rows[0][NS], ns)
    if rows[0][-1] != rows[0][STEP]:
        raise IncompleteRecordError(thread=thread.name, step=rows[0][-1] or rows[0][STEP], channel=None)
    return rows[0][:-1]


def see_asked(thread: Thread, found: Any, asked: Any) -> None:
    """See that a row is one that was asked for, by its columns: an index that is damaged leads to others."""
    if found != asked:
        raise IntegrityError(thread.name, None, "an index leads to another row than it says")


def all_there(thread: Thread, steps: Collection[int]) -> None:
    """See that all checkpoints of a thread were read, by their steps."""
    if len(steps) < thread.standing.checkpoints:
        raise IncompleteRecordError(thread=thread.name, step=None, channel=None)


def _look_for_strays(thread: Thread, ns: bytes, id_: bytes) -> Statements[None]:
    """Nothing has an id that was asked for: see that no row with it is damaged, nor the index that leads to it."""
    rows = yield Statement(f"{SELECT_CHECKPOINT} WHERE thread = ?", (thread.key,))
    for row in rows:
        open_checkpoint(thread, row)
        if (row[NS], row[ID]) == (ns, id_):
            raise IncompleteRecordError(thread=thread.name, step=row[STEP], channel=None)
    all_there(thread, {row[STEP] for row in rows})
