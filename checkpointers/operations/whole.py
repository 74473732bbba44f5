"""Whole threads: found and locked, begun, deleted, copied; what somebody else holds is left alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from checkpointers.effects import BODIES, COVER, EFFECTS, moved_part, sealed_entry
from checkpointers.errors import BusyError, IncompleteRecordError
from checkpointers.operations.bodies import BODY_COLUMNS
from checkpointers.operations.common import (
    CHECKPOINT_COLUMNS,
    ELEMENT_COLUMNS,
    ID,
    METADATA,
    NS,
    WRITE_COLUMNS,
    Tools,
    checked,
    find_thread,
    metadata_of,
    open_checkpoint,
    open_writes,
    place_of_row,
    told_holder,
)
from checkpointers.operations.guard import BEGIN, SET_STANDING, refusal
from checkpointers.operations.ledger import EFFECT_COLUMNS, entry_of
from checkpointers.sealing import Vault, element_place, metadata_place, write_place
from checkpointers.standing import Standing, Thread, fold_of, pack_standing
from checkpointers.statements import Many, Row, Statement, Statements

TABLES: Final = (
    "cp_bodies", "cp_effects", "cp_elements", "cp_writes", "cp_heads", "cp_checkpoints", "cp_keys", "cp_threads",
)  # fmt: skip
LEAVES: Final = {
    "cp_elements": ELEMENT_COLUMNS, "cp_writes": WRITE_COLUMNS, "cp_checkpoints": CHECKPOINT_COLUMNS,
    "cp_effects": EFFECT_COLUMNS, "cp_bodies": BODY_COLUMNS,
}  # fmt: skip
PRIMARY: Final = {
    "cp_elements": ("channel", "n"), "cp_writes": ("ns", "checkpoint", "task"), "cp_checkpoints": ("ns", "step"),
    "cp_effects": ("id",), "cp_bodies": ("hash", "n"),
}  # fmt: skip
NAMED_BY_VAULT: Final = ("cp_effects", "cp_bodies")
MOVED: Final = 500
TRIES: Final = 100
MOVED_PARTS: Final = 16


def lock(key: int) -> Statements[bool]:
    """Keep every other writer from a thread until the end of this transaction; tell whether there is one."""
    return bool((yield Statement("UPDATE cp_threads SET stamp = stamp WHERE thread = ? RETURNING thread", (key,))))


def locked(tools: Tools, name: str) -> Statements[Thread | None]:
    """Lock a thread, and find it; one that was not there to be locked, and then is found, is locked first."""
    for _ in range(TRIES):
        held = yield from lock(tools.key(name))
        thread = yield from find_thread(tools, name)
        if held or thread is None:
            return thread
    raise _never_still(name)


def _lock_place(tools: Tools, key: int, name: str) -> Statements[None]:
    """Lock a thread; where there is none, nobody else begins it until the end of this transaction."""
    row = pack_standing(key, tools.vaults.fresh(key)[0], Standing(name))
    for _ in range(TRIES):
        if (yield from lock(key)) or (yield Statement(BEGIN, (key, *row))):
            return
    raise _never_still(name)


def _never_still(name: str) -> BusyError:
    return BusyError(f"thread {name!r}", "it is begun and deleted again and again")


def restand(thread: Thread, after: Standing) -> Statements[None]:
    """Write how a thread stands, under a new stamp: whoever remembers an older one must look again."""
    after.stamp = thread.standing.stamp + 1
    yield Statement(SET_STANDING, (*pack_standing(thread.key, thread.vault, after), thread.key))


def may_change(tools: Tools, name: str, token: bytes | None) -> Statements[None]:
    """See that nobody else holds a thread, which need not be readable."""
    rows = yield Statement(
        "SELECT token, owner, since, until, epoch, until < cp_clock() FROM cp_leases"
        " WHERE thread = ? AND token IS NOT NULL",
        (tools.key(name),),
    )
    holder = told_holder(name, rows[0]) if rows else None
    held = holder is not None and not holder.expired
    if (held or token is not None) and (holder is None or holder.token != token):
        raise refusal(name, holder, token)


def delete_thread(tools: Tools, name: str, token: bytes | None, now: int) -> Statements[None]:
    """Remove everything of a thread; roots before leaves. What somebody else holds stays, with a refusal."""
    key = tools.key(name)
    yield from _lock_place(tools, key, name)
    yield from may_change(tools, name, token)
    yield from erase(key)
    if token is not None:
        yield from begin(tools, key, Standing(name, stamp=now, created_at=now, updated_at=now))
        yield Statement("UPDATE cp_leases SET steps = 0, note = NULL WHERE thread = ?", (key,))
    else:
        yield Statement("DELETE FROM cp_leases WHERE thread = ?", (key,))


def erase(key: int) -> Statements[None]:
    """Remove every row of a thread but its lease."""
    for table in reversed(TABLES):
        yield Statement(f"DELETE FROM {table} WHERE thread = ?", (key,))


def begin(tools: Tools, key: int, standing: Standing) -> Statements[tuple[Vault, bool]]:
    """Make the row of a new thread, with its key; tell whether there was none."""
    vault, new_key = tools.vaults.fresh(key)
    if not (yield Statement(BEGIN, (key, *pack_standing(key, vault, standing)))):
        return vault, False
    yield from keep_key(key, new_key)
    return vault, True


def keep_key(key: int, new_key: tuple[bytes, bytes] | None) -> Statements[None]:
    """Store a thread's own key, if it has one."""
    if new_key is not None:
        yield Statement("INSERT INTO cp_keys (thread, master, key) VALUES (?, ?, ?)", (key, *new_key))


def copy_thread(tools: Tools, source: str, target: str, now: int) -> Statements[str]:
    """Copy everything of a thread to another name: "done", or why not: "missing", "exists"."""
    thread = yield from locked(tools, source)
    if thread is None:
        return "missing"
    key = tools.key(target)
    standing = replace(thread.standing, name=target, stamp=now, created_at=now, updated_at=now)
    vault, begun = yield from begin(tools, key, standing)
    if not begun:
        return "exists"
    moved = yield from move_rows(thread, key, vault)
    moved.check(thread)
    if moved.fold != standing.fold:
        yield from restand(Thread(key, target, vault, standing), replace(standing, fold=moved.fold))
    yield Statement(
        "INSERT INTO cp_heads (thread, ns, step) SELECT ?, ns, step FROM cp_heads WHERE thread = ?", (key, thread.key)
    )
    return "done"


@dataclass(slots=True)
class Moved:
    """What of the rows that were sealed anew is counted in a thread's own row."""

    checkpoints: int = 0
    effects: int = 0
    fold: int = 0
    bodies: int = 0

    def add(self, table: str, rows: Sequence[Row]) -> None:
        """Count rows, as they are now."""
        if table == "cp_checkpoints":
            self.checkpoints += len(rows)
        elif table == "cp_effects":
            self.effects += len(rows)
            self.fold ^= fold_of(row[0] for row in rows)
        elif table == "cp_bodies":
            self.bodies += sum(row[1] == COVER for row in rows)

    def check(self, thread: Thread) -> None:
        """See that they were all there."""
        stands = thread.standing
        for channel, moved, counted in (
            (None, self.checkpoints, stands.checkpoints),
            (EFFECTS, self.effects, stands.effects),
            (BODIES, self.bodies, stands.bodies),
        ):
            if moved != counted:
                raise IncompleteRecordError(thread=thread.name, step=None, channel=channel)


def move_rows(thread: Thread, key: int, vault: Vault) -> Statements[Moved]:
    """Seal every row of a thread anew for another one, so many at a time; give what there was."""
    moved = Moved()
    for table in LEAVES:
        page = yield from page_of(thread.key, table)
        while page:
            rows = [resealed(thread, table, row, key, vault) for row in page]
            moved.add(table, rows)
            yield insert_into(table, key, rows)
            page = yield from page_of(thread.key, table, page[-1])
    return moved


def insert_into(table: str, key: int, rows: Sequence[Row]) -> Many:
    """Insert rows into one of the tables of a thread."""
    columns = LEAVES[table]
    marks = ", ".join("?" * (len(columns) + 1))
    sql = f"INSERT INTO {table} (thread, {', '.join(columns)}) VALUES ({marks})"
    return Many(sql, [(key, *row) for row in rows], writes=True)


def page_of(key: int, table: str, after: Row | None = None) -> Statements[Sequence[Row]]:
    """Read the next rows of a table of a thread, in the order of its key."""
    columns, order = LEAVES[table], PRIMARY[table]
    limit = MOVED_PARTS if table == "cp_bodies" else MOVED
    beyond = f" AND ({', '.join(order)}) > ({', '.join('?' * len(order))})" if after else ""
    rows = yield Statement(
        f"SELECT {', '.join(columns)} FROM {table} WHERE thread = ?{beyond}"
        f" ORDER BY {', '.join(order)} LIMIT {limit:d}",
        (key, *(primary_of(table, after) if after else ())),
    )
    return rows


def primary_of(table: str, row: Row) -> tuple[Any, ...]:
    """Give the key columns of a row, without the thread."""
    return tuple(row[LEAVES[table].index(name)] for name in PRIMARY[table])


def resealed(thread: Thread, table: str, row: Row, key: int, vault: Vault) -> Row:
    """Open a row and seal it for another place."""
    if table == "cp_elements":
        with checked(thread.name, f"element {row[1]}"):
            raw = thread.vault.open(element_place(thread.key, row[0], row[1]), row[2])
        return (row[0], row[1], vault.seal(element_place(key, row[0], row[1]), raw))
    if table == "cp_writes":
        raw = open_writes(thread, row)
        return (*row[:4], vault.seal(write_place(key, (row[0], row[1], row[2]), row[3]), raw))
    if table == "cp_effects":
        return sealed_entry(key, vault, entry_of(thread, row))
    if table == "cp_bodies":
        with checked(thread.name, f"part {row[1]} of one of its {BODIES}"):
            return moved_part(thread.key, thread.vault, row, (key, vault))
    raw, shown = open_checkpoint(thread, row), metadata_of(thread, row)
    metadata = vault.hide(metadata_place(key, row[NS], row[ID]), shown)
    return (*row[:METADATA], metadata, vault.seal(place_of_row(key, row, metadata), raw))
