"""Tenants in one Postgres database, kept apart by the database: row level security, forced on every table.

The tenant of a connection is part of how it is made (`options=-c checkpointers.tenant=…`), so it is there from the
first statement on, costs none of its own, comes back with every new connection, and is what `RESET` and `DISCARD ALL`
go back to. A database that never saw a tenant has neither the column nor a policy.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from checkpointers.errors import SchemaError, StorageError

if TYPE_CHECKING:
    import psycopg

SETTING: Final = "checkpointers.tenant"
CURRENT: Final = f"coalesce(current_setting('{SETTING}', true), '')"
POLICY: Final = "cp_tenant"
LONGEST: Final = 63
_SHOWN: Final = 31
_READ: Final = re.compile(
    r"(?<!DELETE )\b(FROM|JOIN) cp_(?!schema\b)(\w+)(?: (?:AS )?(?!(?:WHERE|ON|GROUP|ORDER|LIMIT|LEFT|JOIN)\b)(\w+))?"
)
_ROLE: Final = f"""
    SELECT current_user, {CURRENT}, r.rolsuper OR r.rolbypassrls, n.oid IS NOT NULL,
        EXISTS (SELECT 1 FROM pg_class c WHERE c.relnamespace = n.oid AND c.relname = 'cp_schema')
    FROM pg_roles r LEFT JOIN pg_namespace n ON n.nspname = %s WHERE r.rolname = current_user
"""  # noqa: S608  own names
_TABLES: Final = """
    SELECT c.relname, pg_get_userbyid(c.relowner), pg_has_role(c.relowner, 'USAGE'),
        EXISTS (SELECT 1 FROM pg_policy p WHERE p.polrelid = c.oid AND p.polname = %s),
        c.relrowsecurity AND c.relforcerowsecurity AND ARRAY[%s]::name[] = ARRAY(
            SELECT p.polname FROM pg_policy p WHERE p.polrelid = c.oid AND p.polpermissive)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relkind = 'r' AND c.relname LIKE 'cp\\_%%' AND c.relname <> 'cp_schema'
    ORDER BY c.relname <> 'cp_threads', c.relname
"""
_UNIQUE: Final = """
    SELECT t.relname, i.relname, con.contype, ARRAY(
        SELECT quote_ident(a.attname) FROM unnest(x.indkey::int2[]) WITH ORDINALITY AS k (number, place)
        JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = k.number ORDER BY k.place)
    FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid
    JOIN pg_namespace n ON n.oid = t.relnamespace
    LEFT JOIN pg_constraint con ON con.conindid = i.oid AND con.contype IN ('p', 'u')
    WHERE n.nspname = %s AND t.relname = ANY(%s) AND x.indisunique
"""
_COLUMNS: Final = """
    SELECT c.relname, array_agg(quote_ident(a.attname)) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE n.nspname = %s AND c.relname = ANY(%s) GROUP BY c.relname
"""
UNBOUND: Final = (
    "{}: role {!r} is a superuser or has BYPASSRLS, so the database itself does not keep tenants apart for it, only"
    " this saver does; connect as a role that has neither"
)
ROW_BYTES: Final = 28
Connection = Any


@dataclass(frozen=True, slots=True)
class Role:
    """Who is connected, as which tenant, whether row level security binds it, and what of ours is there."""

    name: str
    tenant: str
    bypasses: bool
    has_schema: bool
    has_tables: bool


@dataclass(frozen=True, slots=True)
class Table:
    """A table of ours, without its schema: who owns it, and whether its rows are kept apart."""

    name: str
    owner: str
    mine: bool
    begun: bool
    apart: bool


def setting_of(tenant: str) -> str:
    """Give the name under which the database knows a tenant: its own, or for odd and long ones a print of it."""
    try:
        raw = tenant.encode()
    except (AttributeError, UnicodeEncodeError):
        raw = b"\0"
    if b"\0" in raw:
        raise StorageError("postgres", f"{tenant!r:.80} is no name of a tenant", hint="use text without NUL")
    if re.fullmatch(rf"[ -~]{{0,{LONGEST}}}", tenant):
        return tenant
    shown = re.sub(r"[^!-~]", "_", tenant)[:_SHOWN].ljust(_SHOWN, "_")
    return f"{shown}#{hashlib.blake2b(raw, digest_size=16).hexdigest()}"


def startup_options(setting: str, given: str) -> str:
    """Give the options of a connection that belongs to a tenant, behind those that it has already."""
    escaped = re.sub(r"([\\\s])", r"\\\1", setting)
    return f"{given} -c {SETTING}={escaped}".lstrip()


def own_rows(sql: str) -> str:
    """Read only the tenant's rows, by the words of the statement: for a role that row level security does not bind."""
    return _READ.sub(
        lambda found: f"{found[1]} (SELECT * FROM cp_{found[2]} WHERE tenant = {CURRENT}) AS {found[3] or 'own'}",  # noqa: S608  own names
        sql,
    )


def tenant_of(connection: Connection) -> str:
    """Ask a connection which tenant's it is."""
    found: str = _texts(connection.execute(f"SELECT {CURRENT}").fetchone())[0]
    return found


def confirm(place: str, found: str, wanted: str) -> None:
    """Refuse a connection that belongs to another tenant than the saver."""
    if found == wanted:
        return
    if not wanted:
        hint = f"open it with tenant={found!r}, or take the setting {SETTING} from the role or the environment"
        raise SchemaError(place, f"its connections are those of the tenant {found!r}", hint=hint)
    cause = f"a connection for the tenant {wanted!r} is one for {found!r}: its options were dropped, maybe by a pooler"
    raise SchemaError(place, cause, hint=f"give each tenant a role of its own: ALTER ROLE … SET {SETTING} = '{wanted}'")


def role_of(connection: Connection, schema: str) -> Role:
    """See who is connected."""
    return Role(*_texts(connection.execute(_ROLE, (schema,)).fetchone()))


def tables_of(connection: Connection, schema: str) -> list[Table]:
    """See how the tables stand, the one that every write locks first before the others."""
    return [Table(*_texts(row)) for row in connection.execute(_TABLES, (POLICY, POLICY, schema)).fetchall()]


def settle(connection: Connection, place: str, schema: str, *, tenant: str) -> bool:
    """Keep tenants apart once there are any, or refuse; tell whether they are."""
    tables = tables_of(connection, schema)
    if not (tenant or any(table.begun for table in tables)):
        return False
    missing = [table for table in tables if not table.apart]
    if missing and all(table.mine for table in missing):
        keep_apart(connection, schema, [table.name for table in tables])
        missing = [table for table in tables_of(connection, schema) if not table.apart]
    if missing:
        raise _not_apart(place, missing, tenant)
    return True


def _not_apart(place: str, missing: Sequence[Table], tenant: str) -> SchemaError:
    names, owner = ", ".join(table.name for table in missing), missing[0].owner
    if missing[0].mine:
        cause = f"the tables {names} have policies besides {POLICY}, which let tenants see one another"
        return SchemaError(place, cause, hint="drop those policies, then open it again")
    cause = f"tenants are not kept apart in the tables {names}, and only their owner can change that"
    return SchemaError(
        place,
        cause,
        hint=f"open it once as role {owner!r}: PostgresSaver.open(url, tenant={tenant or 'any'!r}).close()",
    )


def keep_apart(connection: Connection, schema: str, tables: Sequence[str]) -> None:
    """Switch on row level security for all tables, and make the tenant a part of every key.

    Without it in the keys, a refused duplicate would tell one tenant what another one has. Constraints keep their
    names, by which statements know them. Writers lock the threads first, as is done here, so nobody dies waiting.
    """
    quoted = {table: f'"{schema}".{table}' for table in tables}
    connection.execute(f"LOCK TABLE {', '.join(quoted.values())} IN ACCESS EXCLUSIVE MODE")
    for name in quoted.values():
        connection.execute(f"ALTER TABLE {name} ADD COLUMN IF NOT EXISTS tenant TEXT NOT NULL DEFAULT ''")
        connection.execute(
            f"ALTER TABLE {name} ALTER COLUMN tenant SET DEFAULT {CURRENT},"
            " ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY"
        )
        connection.execute(f"DROP POLICY IF EXISTS {POLICY} ON {name}")
        connection.execute(
            f"CREATE POLICY {POLICY} ON {name} USING (tenant = {CURRENT}) WITH CHECK (tenant = {CURRENT})"
        )
    for row in connection.execute(_UNIQUE, (schema, list(tables))).fetchall():
        table, index, kind, columns = _texts(row)
        if "tenant" not in columns:
            _widen(connection, schema, (table, index, kind), columns)


def _widen(connection: Connection, schema: str, which: tuple[str, str, str | None], columns: Sequence[str]) -> None:
    table, index, kind = which
    name, columns = f'"{schema}".{table}', [*columns, "tenant"]
    if kind is None:
        connection.execute(f'DROP INDEX "{schema}".{index}')
        connection.execute(f"CREATE UNIQUE INDEX {index} ON {name} ({', '.join(columns)})")
        return
    words = "PRIMARY KEY" if kind == "p" else "UNIQUE"
    connection.execute(
        f"ALTER TABLE {name} DROP CONSTRAINT {index}, ADD CONSTRAINT {index} {words} ({', '.join(columns)})"
    )


def unforce(connection: Connection, schema: str) -> None:
    """Let the owner see every tenant's rows until the end of a migration, which `settle` then forces again."""
    for table in tables_of(connection, schema):
        if table.apart:
            connection.execute(f'ALTER TABLE "{schema}".{table.name} NO FORCE ROW LEVEL SECURITY')


def bytes_of(connection: psycopg.Connection[Any], schema: str) -> int | None:
    """Count the bytes of the tenant's own rows, None where tenants are not kept apart."""
    tables = [table.name for table in tables_of(connection, schema) if table.begun]
    if not tables:
        return None
    total = 0
    for row in connection.execute(_COLUMNS, (schema, tables)).fetchall():
        table, columns = _texts(row)
        parts = " + ".join(f"coalesce(pg_column_size({column}), 0)" for column in columns)
        counted = connection.execute(
            f'SELECT coalesce(sum({ROW_BYTES} + {parts}), 0) FROM "{schema}".{table} WHERE tenant = {CURRENT}'  # noqa: S608  names from the catalog
        ).fetchone()
        total += int(counted[0]) if counted else 0
    return total


def _texts(value: Any) -> Any:
    """Read names as text in databases without an encoding too, which give bytes."""
    if isinstance(value, list | tuple):
        return [_texts(one) for one in value]
    return value.decode(errors="replace") if isinstance(value, bytes) else value
