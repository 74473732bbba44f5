"""What several operations need: places, names, and rows made into records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from checkpointers.codec import Codec
from checkpointers.keys import decoded, digest, encoded, key_of
from checkpointers.records import Names, Record, TaskWrites, unpack_record, unpack_writes
from checkpointers.statements import Insert, Many, Row, Statement, Statements

ROOT: Final = ""
CHECKPOINT_COLUMNS: Final = ("ns", "step", "id", "parent", "at", "flags", "metadata", "body")
WRITE_COLUMNS: Final = ("ns", "checkpoint", "task", "kinds", "body")
ELEMENT_COLUMNS: Final = ("channel", "n", "body")
SELECT_CHECKPOINT: Final = f"SELECT {', '.join(CHECKPOINT_COLUMNS)} FROM cp_checkpoints"
SELECT_ELEMENTS: Final = (
    "SELECT channel, n, body FROM cp_elements WHERE thread = ? AND channel = ? AND n BETWEEN ? AND ?"
)
DELETE_ELEMENTS: Final = "DELETE FROM cp_elements WHERE thread = ? AND channel = ? AND n BETWEEN ? AND ?"
SELECT_WRITES: Final = (
    "SELECT ns, checkpoint, task, kinds, body FROM cp_writes WHERE thread = ? AND ns = ? AND checkpoint = ?"
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a config points: a thread, a namespace of it, maybe a checkpoint."""

    thread: str
    ns: str
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Tools:
    """What an operation is given besides its arguments."""

    codec: Codec
    names: Names


def place_of(config: Mapping[str, Any]) -> Place:
    """Read a LangGraph config; an int thread id is its text."""
    configurable = config["configurable"]
    return Place(
        str(configurable["thread_id"]), configurable.get("checkpoint_ns") or ROOT, configurable.get("checkpoint_id")
    )


def config_of(thread: str, ns: str, checkpoint_id: str) -> dict[str, Any]:
    """Give the config that points to a checkpoint."""
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}}


def find_thread(thread: str) -> Statements[int | None]:
    """Give the key of a thread, None if there is none."""
    rows = yield Statement("SELECT thread FROM cp_threads WHERE digest = ?", (digest(thread),))
    return int(rows[0][0]) if rows else None


def intern(names: Names, texts: Iterable[str]) -> Statements[None]:
    """Make sure that each of these names has a key."""
    missing = names.missing(texts)
    if missing:
        rows = [(digest(text), encoded(text)) for text in missing]
        yield Many("INSERT INTO cp_names (digest, name) VALUES (?, ?) ON CONFLICT DO NOTHING", rows, writes=True)
        yield from learn_names(names)


def learn_names(names: Names) -> Statements[None]:
    """Learn all names that are stored."""
    rows = yield Statement("SELECT name_key, name FROM cp_names")
    names.learn((key, decoded(name)) for key, name in rows)


def records_of(names: Names, rows: Sequence[Row]) -> Statements[list[Record]]:
    """Unpack rows of the checkpoints table, learning names on the way."""
    mappings = [dict(zip(CHECKPOINT_COLUMNS, row, strict=True)) for row in rows]
    try:
        return [unpack_record(mapping, names) for mapping in mappings]
    except KeyError:
        yield from learn_names(names)
        return [unpack_record(mapping, names) for mapping in mappings]


def writes_of(names: Names, rows: Sequence[Row]) -> Statements[list[TaskWrites]]:
    """Unpack rows of the writes table, learning names on the way."""
    try:
        return [unpack_writes(row[2], row[4], names) for row in rows]
    except KeyError:
        yield from learn_names(names)
        return [unpack_writes(row[2], row[4], names) for row in rows]


def checkpoint_row(thread: int, place: Place) -> Statement:
    """Select the checkpoint that a place names, or the latest of its namespace."""
    ns = key_of(place.ns)
    if place.id:
        return Statement(f"{SELECT_CHECKPOINT} WHERE thread = ? AND ns = ? AND id = ?", (thread, ns, key_of(place.id)))
    return Statement(f"{SELECT_CHECKPOINT} WHERE thread = ? AND ns = ? ORDER BY step DESC LIMIT 1", (thread, ns))


def rows_insert(rows: Sequence[Sequence[Any]], *, replace: bool) -> Insert:
    """Insert rows into the checkpoints table."""
    return Insert("cp_checkpoints", CHECKPOINT_COLUMNS, rows, replace=replace)
