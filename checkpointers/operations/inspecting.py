"""Looking at what is stored without a check: damaged rows, unknown types, states of newer programs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from checkpointers.codec import Codec
from checkpointers.errors import CheckpointerError, KeyringError
from checkpointers.keys import key_of
from checkpointers.operations import shelves
from checkpointers.operations.common import (
    ID,
    ROOT,
    SELECT_CHECKPOINT,
    SELECT_WRITES,
    STEP,
    Place,
    Tools,
    records_of,
    told_metadata,
    wrapped_key,
    writes_of,
)
from checkpointers.records import in_order
from checkpointers.sealing import SEAL_BYTES, Digests, Vault
from checkpointers.standing import Standing, Thread
from checkpointers.statements import Row, Statement, Statements
from checkpointers.strict import Degraded, Inspector


class Lenient(Digests):
    """Opens what carries a digest, whether it matches or not."""

    def open(self, place: bytes, blob: bytes) -> bytes:
        """Take the digest off."""
        del place
        return bytes(blob[SEAL_BYTES:])


LENIENT: Final[Vault] = Lenient()


@dataclass(frozen=True, slots=True)
class Raw:
    """A checkpoint as it is stored: plain data, `Degraded` where there was an object, and what could not be read."""

    thread: str
    step: int | None
    id: str | None
    metadata: Any
    values: dict[str, Any]
    writes: list[tuple[str, str, Any]]
    problems: list[str] = field(default_factory=list)


def raw(tools: Tools, place: Place) -> Statements[Raw | None]:
    """Read the checkpoint that a place names, or the newest of its namespace, as far as there is anything to read."""
    tools = replace(tools, codec=Codec(Inspector()))
    key = tools.key(place.thread)
    wrapped = yield from wrapped_key(key)
    vault = tools.vaults.of(key, place.thread, wrapped) if wrapped is not None else LENIENT
    thread = Thread(key, place.thread, vault, Standing(place.thread))
    by, given = (" AND id = ?", (key_of(place.id),)) if place.id else ("", ())
    rows = yield Statement(
        f"{SELECT_CHECKPOINT} WHERE thread = ? AND ns = ?{by} ORDER BY step DESC LIMIT 1",
        (key, key_of(place.ns or ROOT), *given),
    )
    return (yield from _told(tools, thread, rows[0])) if rows else None


def _told(tools: Tools, thread: Thread, row: Row) -> Statements[Raw]:
    found = Raw(thread.name, row[STEP], None, None, {}, [])
    try:
        (record,) = yield from records_of(tools, thread, [row])
    except (CheckpointerError, ValueError, TypeError) as error:
        return replace(
            found, problems=[f"its record cannot be read: {error}"], values={"(record)": Degraded("row", row)}
        )
    found = replace(found, id=record.id, metadata=_metadata(thread, row, found.problems))
    for channel, ref in record.refs.items():
        found.values[channel] = yield from _value(tools, thread, (record.step, channel, ref), found.problems)
    rows = yield Statement(SELECT_WRITES, (thread.key, row[0], row[ID]))
    for one in rows:
        try:
            tasks = yield from writes_of(tools, thread, [one])
        except (CheckpointerError, ValueError, TypeError) as error:
            found.problems.append(f"writes cannot be read: {error}")
            continue
        for task, write in in_order(tasks):
            value = yield from _value(tools, thread, (record.step, write.channel, write.ref), found.problems)
            found.writes.append((task, write.channel, value))
    return found


def _metadata(thread: Thread, row: Row, problems: list[str]) -> Any:
    try:
        return told_metadata(thread, row)
    except (CheckpointerError, ValueError) as error:
        problems.append(f"metadata cannot be read: {error}")
        return Degraded("metadata", row)


def _value(tools: Tools, thread: Thread, what: tuple[int, str, Any], problems: list[str]) -> Statements[Any]:
    step, channel, ref = what
    want = shelves.Wanted(thread.name, step, channel, ref)
    try:
        return shelves.join(tools, want, (yield from shelves.fetch(tools, thread, [(channel, ref)])))
    except KeyringError:
        raise
    except (CheckpointerError, ValueError, KeyError) as error:
        problems.append(str(error))
        return Degraded("value that cannot be read", ref)
