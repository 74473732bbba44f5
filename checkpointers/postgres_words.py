"""What operations say, in the words of Postgres: pure, and remembered, because the same few come again and again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, repeat
from typing import Any, Final

from checkpointers.statements import Change, Delete, Insert
from checkpointers.tenancy import own_rows

CLOCK: Final = "(extract(epoch from clock_timestamp()) * 1000000)::int8"
TYPES: Final = {
    "thread": "int8", "ns": "bytea", "step": "int4", "id": "bytea", "parent": "bytea", "at": "int8", "flags": "int4",
    "metadata": "bytea", "body": "bytea", "checkpoint": "bytea", "task": "bytea", "kinds": "int4", "channel": "int4",
    "n": "int4", "first": "int4", "last": "int4", "tally": "int8", "master": "bytea", "key": "bytea",
    "number": "int4", "revision": "int4", "hash": "bytea",
    "name_key": "int4", "name": "bytea", "digest": "bytea", "seal": "bytea",
}  # fmt: skip
FEW: Final = 8
SIZES: Final = (1, FEW)
VARYING: Final = (4, FEW)  # of elements, of which now none, now one, now some come with a step
KINDS: Final[dict[type, str]] = {int: "int8", bytes: "bytea"}
_CONFLICT: Final = re.compile(r"(INSERT INTO (cp_\w+)(?:(?!INSERT INTO).)*?) ON CONFLICT \([^)]*\)", re.DOTALL)
_OURS: Final = re.compile(r"(?<!INDEX )(?<!CONSTRAINT )\bcp_")
PRIMARY_KEYS: Final = {
    "cp_checkpoints": "thread, ns, step",
    "cp_writes": "thread, ns, checkpoint, task",
    "cp_elements": "thread, channel, n",
    "cp_heads": "thread, ns",
}


@lru_cache(maxsize=512)
def in_schema(sql: str, schema: str, *, filtered: bool = False) -> str:
    """Give the Postgres words of a statement; `filtered`: of the tenant's own rows, by its own words."""
    sql = own_rows(sql) if filtered else sql
    sql = sql.replace("cp_clock()", CLOCK)
    sql = re.sub(r"instr\((\w+), \?\)", r"position(?::bytea in \1)", sql)
    sql = _CONFLICT.sub(r"\1 ON CONFLICT ON CONSTRAINT \2_pkey", sql)
    return _OURS.sub(f"{schema}.cp_", sql.replace("%", "%%").replace("?", "%s"))


def few(rows: Sequence[Any], sizes: Sequence[int] = SIZES) -> int:
    """Give as how many rows these are sent value by value, 0 if by column.

    The driver takes longer to write an array than a few values; but every number of rows is a statement of its own,
    which the server has to learn. So there are two, with blank rows behind those that there are.
    """
    return next((size for size in sizes if len(rows) <= size), 0)


def sent(rows: Sequence[Sequence[Any]], types: Sequence[str], count: int) -> list[Any]:
    """Give rows of values of these types as the parameters that they are sent as, `count` of `few`.

    In blank ones are numbers of the size of the others: to the driver another size is another type, as of a NULL, and
    the server would learn anew.
    """
    if not count:
        return [list(column) for column in zip(*rows, strict=True)]
    last = rows[-1] if rows else (0,) * len(types)
    blank = [b"" if kind == "bytea" else value for kind, value in zip(types, last, strict=True)]
    values = chain(*rows, *repeat(blank, count - len(rows)))
    return [*values, len(rows)] if count > 1 else [*values]


def _given(types: Sequence[str], names: Sequence[str], count: int) -> str:
    """Give the rows that are sent as a table: by column; value by value; or so, with the number of those that count."""
    given = f"AS given ({', '.join(names)}, place)"
    if not count:
        return f"unnest({', '.join(f'?::{kind}[]' for kind in types)}) WITH ORDINALITY {given}"
    each = ", ".join(f"?::{kind}" for kind in types)
    rows = ", ".join(f"({each}, {place + 1})" for place in range(count))
    table = f"(VALUES {rows}) {given}"
    return f"(SELECT * FROM {table} WHERE place <= ?) AS given" if count > 1 else table  # noqa: S608  own names


@lru_cache(maxsize=256)
def at_once(sql: str, kinds: tuple[type, ...], count: int) -> str:
    """Give one statement that asks a question about each row of parameters; `count` of them if they are few.

    `OFFSET 0` keeps the question by itself: the database looks each row up, as it would for one, and plans no join.
    """
    pieces, names = sql.split("?"), [f"p{place}" for place in range(len(kinds))]
    asked = "".join(chain.from_iterable(zip(pieces, [*(f"given.{name}" for name in names), ""], strict=True)))
    rows = _given([KINDS[kind] for kind in kinds], names, count)
    return f"SELECT found.* FROM {rows} CROSS JOIN LATERAL ({asked} OFFSET 0) AS found ORDER BY given.place"  # noqa: S608  own names


Shape = tuple[str, tuple[str, ...], str, int]


def shape(change: Insert | Delete | Change) -> Shape:
    """Give what the text of a change depends on: not its rows, but how many they are if they are few."""
    if isinstance(change, Change):
        return change.sql, ("",) * len(change.rows), "", 0
    if isinstance(change, Delete):
        return change.sql, ("channel", "first", "last"), "", few(change.rows)
    how = "replace" if change.replace else "shared" if change.shared else ""
    sizes = VARYING if change.table == "cp_elements" else SIZES
    return change.table, change.columns, how, few(change.rows, sizes)


def params_of(change: Insert | Delete | Change) -> list[Any]:
    """Give the values that a change sends, in the order in which its text asks for them."""
    if isinstance(change, Change):
        return [*chain.from_iterable(change.rows)]
    _, columns, _, count = shape(change)
    return sent(change.rows, [TYPES[column] for column in columns], count)


@lru_cache(maxsize=256)
def append_sql(guard: str, changes: tuple[Shape, ...]) -> str:
    """Give one statement of a guard and of the changes that depend on it."""
    parts = [f"guard AS ({guard})"]
    for index, (what, columns, how, count) in enumerate(changes):
        if not any(columns):
            sql = f"{what} AND EXISTS (SELECT 1 FROM guard)"  # noqa: S608  own names
            parts += [f"change_{index}_{row} AS ({sql})" for row in range(len(columns))]
            continue
        given = _given([TYPES[column] for column in columns], columns, count)
        parts.append(f"change_{index} AS ({_change_sql(what, columns, given, how)})")
    return f"WITH {', '.join(parts)} SELECT thread FROM guard"  # noqa: S608  own names


def _change_sql(what: str, columns: tuple[str, ...], given: str, how: str) -> str:
    if what.startswith("DELETE"):
        table = what.split()[2]
        return (
            f"DELETE FROM {table} USING guard, {given}"  # noqa: S608  own names
            f" WHERE {table}.thread = guard.thread AND {table}.channel = given.channel"
            f" AND {table}.n BETWEEN given.first AND given.last"
        )
    names, values = ", ".join(columns), ", ".join(f"given.{name}" for name in columns)
    if how == "shared":
        return f"INSERT INTO {what} ({names}) OVERRIDING SYSTEM VALUE SELECT {values} FROM guard, {given}"  # noqa: S608  own names
    clause = _on_conflict(what, columns) if how == "replace" else ""
    return f"INSERT INTO {what} (thread, {names}) SELECT guard.thread, {values} FROM guard, {given}{clause}"  # noqa: S608  own names


def _on_conflict(table: str, columns: tuple[str, ...]) -> str:
    key = PRIMARY_KEYS[table]
    changed = ", ".join(f"{name} = EXCLUDED.{name}" for name in columns if name not in key.split(", "))
    return f" ON CONFLICT ({key}) DO UPDATE SET {changed}"
