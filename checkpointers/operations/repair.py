"""Repairing: the sound part of a damaged thread as a new one, keys changed, keys thrown away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from checkpointers.cipher import LABELLED
from checkpointers.effects import sealed_entry
from checkpointers.errors import IntegrityError, KeyringError, UnknownThreadError
from checkpointers.keys import key_of
from checkpointers.lineage import by_namespace, relinked
from checkpointers.operations import checking
from checkpointers.operations.bodies import parts_of
from checkpointers.operations.common import CONTENTS, FLAGS, ID, NS, SELECT_THREAD, TALLY, Tools, any_rows, open_thread
from checkpointers.operations.noting import SET_NOTE, renote
from checkpointers.operations.remove import settled
from checkpointers.operations.rows import sealed_row
from checkpointers.operations.whole import (
    LEAVES,
    NAMED_BY_VAULT,
    PRIMARY,
    Moved,
    begin,
    insert_into,
    keep_key,
    lock,
    may_change,
    page_of,
    primary_of,
    resealed,
    restand,
)
from checkpointers.records import Record, pack_record
from checkpointers.sealing import Vault, metadata_place
from checkpointers.segments import SEAL, start_of
from checkpointers.standing import Standing, Thread
from checkpointers.statements import Many, Row, Statement, Statements

SHREDDED: Final = (b"", b"")


@dataclass(frozen=True, slots=True)
class Rotation:
    """What a rotation did: keys wrapped anew, threads encrypted, and how many threads each master key still opens."""

    rewrapped: int
    encrypted: int
    by_key: dict[str, int]


def recover(tools: Tools, name: str, into: str, now: int) -> Statements[int | None]:
    """Make a new thread of all that is sound of another; give its newest step, None if the new name is taken.

    A thread may have a ledger or bodies and no step, or no step that is sound: then it is step 0.
    Nobody writes the other one meanwhile. Where its own row is missing there is nothing to lock, nor can it be written.
    """
    yield from lock(tools.key(name))
    yield from checking.names(tools)
    check = yield from checking.thread(tools, tools.key(name), name)
    if check is None:
        raise UnknownThreadError(name)
    if check.refusal is not None:
        raise check.refusal
    key, heads = tools.key(into), check.heads()
    if (yield from any_rows(CONTENTS, key)):
        return None
    if check.findings and not (heads or check.effects or check.bodies):
        raise IntegrityError(name, None, "none of its checkpoints is sound")
    standing = _standing(check, into, heads, now)
    vault, begun = yield from begin(tools, key, standing)
    if not begun:
        return None
    kept = {step: check.records[step] for step in check.sound}
    places = {(key_of(record.ns), key_of(record.id)) for record in kept.values()}
    written = [row for row, _ in check.written if (row[0], row[1]) in places]
    fresh = Thread(key, into, vault, standing)
    for table, rows in (
        ("cp_checkpoints", _checkpoints(tools, check, kept, fresh)),
        ("cp_writes", [resealed(check.thread, "cp_writes", row, key, vault) for row in written]),
        ("cp_elements", [resealed(check.thread, "cp_elements", row, key, vault) for row in check.elements]),
    ):
        if rows:
            yield insert_into(table, key, rows)
    yield from _ledger(check, fresh)
    yield from settled(tools, into)
    return heads[0] if heads else 0


def _ledger(check: checking.Checkup, into: Thread) -> Statements[None]:
    """Take along what is sound of the ledger, numbered anew, and of the bodies."""
    moved = Moved()
    numbered = [replace(entry, number=number) for number, entry in enumerate(check.effects, 1)]
    rows: list[Row] = [sealed_entry(into.key, into.vault, entry) for entry in numbered]
    if rows:
        moved.add("cp_effects", rows)
        yield insert_into("cp_effects", into.key, rows)
    for id_ in check.bodies:
        parts = yield from parts_of(check.thread, id_)
        rows = [resealed(check.thread, "cp_bodies", row, into.key, into.vault) for row in parts]
        moved.add("cp_bodies", rows)
        yield insert_into("cp_bodies", into.key, rows)
    if moved != Moved():
        counted = replace(into.standing, effects=moved.effects, fold=moved.fold, bodies=moved.bodies)
        yield from restand(into, counted)


def _checkpoints(tools: Tools, check: checking.Checkup, kept: dict[int, Record], into: Thread) -> list[Row]:
    """Seal the kept checkpoints for the new thread, each below its nearest kept ancestor."""
    by_ns, deltas, rows = by_namespace(check.records.values(), check.on), check.deltas(), []
    ids = {(record.ns, record.id) for record in kept.values()}
    for step, record in kept.items():
        if record.chain and (record.ns, record.parent) not in ids:
            moved = relinked(record, by_ns[record.ns], kept, told=deltas, strict=False)
            bases = {name: base for name, base in moved.bases.items() if name in deltas}
            rows.append(_sealed(tools, check, replace(moved, bases=bases), into))
        else:
            rows.append(resealed(check.thread, "cp_checkpoints", check.rows[step], into.key, into.vault))
    return rows


def _sealed(tools: Tools, check: checking.Checkup, record: Record, into: Thread) -> Row:
    row = check.rows[record.step]
    place = metadata_place(into.key, row[NS], row[ID])
    metadata = into.vault.hide(place, check.metadata[record.step])
    body = pack_record(record, tools.names)
    return sealed_row(into, record, flags=row[FLAGS], tally=row[TALLY], metadata=metadata, body=body)


def _standing(check: checking.Checkup, name: str, heads: list[int], now: int) -> Standing:
    """Say how the new thread stands: as the old one said, as far as that can be read, at its newest sound step."""
    counts = dict(check.thread.standing.counts)
    for channel, numbers in check.numbers.items():
        counts[channel] = max([counts.get(channel, 0), *(start_of(number) + SEAL for number in numbers)])
    steps = max([check.thread.standing.steps, *check.records])
    standing = replace(check.thread.standing, name=name, stamp=now, created_at=now, updated_at=now)
    standing.steps, standing.counts, standing.checkpoints = steps, counts, len(check.sound)
    standing.head, standing.head_id = 0, b""
    standing.effects = standing.fold = standing.bodies = 0
    for step in heads[:1]:
        row = check.rows[step]
        standing.head, standing.head_id, standing.flags = step, row[ID], row[FLAGS]
        standing.metadata = check.metadata[step]
    return standing


@dataclass(frozen=True, slots=True)
class Batch:
    """Some keys that were looked at: how many were wrapped anew, the last of them, and the first refusal."""

    rewrapped: int
    last: int | None
    refusal: KeyringError | None


def rewrap(tools: Tools, limit: int, after: int) -> Statements[Batch]:
    """Wrap the keys of the next threads under the newest master key; one that does not open stops no other."""
    newest, head = tools.vaults.newest()
    rows = yield Statement(
        "SELECT thread, key FROM cp_keys WHERE (master <> ? OR substr(key, 1, ?) <> ?) AND master <> ? AND thread > ?"
        f" ORDER BY thread LIMIT {limit:d}",
        (newest, len(head), head, SHREDDED[0], after),
    )
    changed, refusal = [], None
    for thread, key in rows:
        try:
            changed.append((*tools.vaults.rewrapped(thread, key), thread, key))
        except KeyringError as error:
            refusal = refusal or error
    if changed:
        yield Many("UPDATE cp_keys SET master = ?, key = ? WHERE thread = ? AND key = ?", changed, writes=True)
    return Batch(len(changed), rows[-1][0] if rows else None, refusal)


def unencrypted(limit: int, after: int) -> Statements[list[int]]:
    """Give the keys of the next threads that are not encrypted."""
    rows = yield Statement(
        "SELECT t.thread FROM cp_threads t LEFT JOIN cp_keys k ON k.thread = t.thread"
        f" WHERE k.key IS NULL AND t.thread > ? ORDER BY t.thread LIMIT {limit:d}",
        (after,),
    )
    return [row[0] for row in rows]


def encrypt(tools: Tools, key: int) -> Statements[bool]:
    """Encrypt every row of a thread that is not."""
    if not (yield from lock(key)):
        return False
    rows = yield Statement(f"{SELECT_THREAD} WHERE t.thread = ? AND k.key IS NULL", (key,))
    if not rows:
        return False
    thread = open_thread(tools, rows[0])
    vault, new_key = tools.vaults.fresh(key)
    moved = Moved()
    for table in NAMED_BY_VAULT:
        yield from _renamed(thread, table, vault, moved)
    for table in LEAVES.keys() - NAMED_BY_VAULT:
        page = yield from page_of(key, table)
        while page:
            yield _replaced(table, key, [resealed(thread, table, row, key, vault) for row in page])
            page = yield from page_of(key, table, page[-1])
    yield from renote(thread, vault)
    yield from keep_key(key, new_key)
    yield from restand(replace(thread, vault=vault), replace(thread.standing, fold=moved.fold))
    return True


def _renamed(thread: Thread, table: str, vault: Vault, moved: Moved) -> Statements[None]:
    """Put new contents into rows that another key gives another place, one by one of a list made before."""
    at = f"thread = ? AND {' AND '.join(f'{name} = ?' for name in PRIMARY[table])}"
    columns = LEAVES[table]
    for primary in (
        yield Statement(f"SELECT {', '.join(PRIMARY[table])} FROM {table} WHERE thread = ?", (thread.key,))
    ):
        rows = yield Statement(f"SELECT {', '.join(columns)} FROM {table} WHERE {at}", (thread.key, *primary))
        new = resealed(thread, table, rows[0], thread.key, vault)
        moved.add(table, [new])
        told = ", ".join(f"{name} = ?" for name in columns)
        yield Statement(f"UPDATE {table} SET {told} WHERE {at}", (*new, thread.key, *primary))


def _replaced(table: str, key: int, rows: Sequence[Row]) -> Many:
    """Put new contents into rows that stay where they are."""
    columns = LEAVES[table]
    changed = [name for name in columns if name in ("metadata", "body")]
    sql = (
        f"UPDATE {table} SET {', '.join(f'{name} = ?' for name in changed)}"
        f" WHERE thread = ? AND {' AND '.join(f'{name} = ?' for name in PRIMARY[table])}"
    )
    return Many(
        sql, [(*(row[columns.index(n)] for n in changed), key, *primary_of(table, row)) for row in rows], writes=True
    )


def masters() -> Statements[dict[str, int]]:
    """Count the threads whose keys each master key opens."""
    rows = yield Statement("SELECT master, count(*) FROM cp_keys WHERE master <> ? GROUP BY master", (SHREDDED[0],))
    return {bytes(master).decode(): int(count) for master, count in rows}


def shred(tools: Tools, name: str, token: bytes | None) -> Statements[bool]:
    """Throw a thread's key away; tell whether it had one."""
    key = tools.key(name)
    yield from lock(key)
    yield from may_change(tools, name, token)
    rows = yield Statement(
        "UPDATE cp_keys SET master = ?, key = ? WHERE thread = ? AND master <> ? RETURNING thread",
        (*SHREDDED, key, SHREDDED[0]),
    )
    if rows:  # whoever wrote it until now must look again, and finds no key
        yield Statement("UPDATE cp_threads SET stamp = stamp + 1 WHERE thread = ?", (key,))
        yield Statement(SET_NOTE, (None, key))
        # What was left readable goes too; what was sealed says nothing any more, with it or without.
        yield Statement(
            "UPDATE cp_checkpoints SET metadata = ? WHERE thread = ? AND substr(metadata, 1, 1) = ?",
            (b"", key, LABELLED),
        )
    return bool(rows)
