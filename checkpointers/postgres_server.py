"""Postgres: one server, many machines; a pool of connections, and one round trip for a write."""

from __future__ import annotations

import contextlib
import os
import re
import select
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeVar

from checkpointers import tenancy
from checkpointers.database import OTHERS, Database, check_version, migrations
from checkpointers.errors import NO_TABLES, MissingDriverError, NotADatabaseError, StorageError
from checkpointers.places import shown
from checkpointers.postgres_commits import PAUSE, own_number, was_committed
from checkpointers.postgres_refusals import is_for_good, is_without_reason, may_be_cured, story
from checkpointers.postgres_words import FEW, KINDS, append_sql, at_once, few, in_schema, params_of, sent, shape
from checkpointers.statements import (
    DUPLICATE,
    Append,
    Many,
    Operation,
    Request,
    Rows,
    Statement,
    Together,
    drive,
)

if TYPE_CHECKING:
    import psycopg
    import psycopg_pool

T = TypeVar("T")
Cursor = Any
DEFAULT_SCHEMA: Final = "checkpointers"
MIGRATION_LOCK: Final = 0x6368_6563_6B70
WORKERS: Final = 32
PREPARE_AFTER: Final = 2
READS: Final = "-c default_transaction_read_only=on"
ONE_TRY: Final = 2.0
AT_ONE_MOMENT: Final = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
# A prepared statement is planned when it is prepared, not again for each of its first five uses: all look up keys.
# Servers older than Postgres 12 know no such setting.
PLAN_ONCE: Final = (
    "SELECT set_config('plan_cache_mode', 'force_generic_plan', false)"
    " WHERE current_setting('plan_cache_mode', true) IS NOT NULL"
)
TABLES: Final = (
    "cp_elements", "cp_writes", "cp_checkpoints", "cp_heads", "cp_threads", "cp_leases", "cp_keys", "cp_names",
    "cp_effects", "cp_bodies",
)  # fmt: skip


class PostgresDatabase(Database):
    """The connections to one schema of a Postgres database."""

    dialect = "postgres"

    def __init__(
        self,
        url: str,
        *,
        schema: str = DEFAULT_SCHEMA,
        pool_size: int = 10,
        timeout: float = 30.0,
        tenant: str = "",
        read_only: bool = False,
    ) -> None:
        """Fill the pool and bring the tables up to date; read-only, see that they are."""
        super().__init__(workers=max(WORKERS, pool_size))
        self._psycopg, pool = _driver()
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_$]{0,62}", schema):
            raise StorageError("postgres", f"{schema!r} is no plain schema name", hint="use letters, digits and _")
        self._name, self._schema = schema, f'"{schema}"'
        self._timeout, self.tenant, self._setting = timeout, tenant, tenancy.setting_of(tenant)
        self._read_only = read_only
        self._confirmed: weakref.WeakSet[Any] = weakref.WeakSet()
        self._filtered, self.unbound = False, ""
        self.place = _without_password(self._psycopg, url, schema)
        make_pool = partial(
            pool.ConnectionPool,
            url,
            min_size=1,
            max_size=pool_size,
            timeout=timeout,
            kwargs={"autocommit": True, "prepare_threshold": PREPARE_AFTER, **self._startup(url)},
            configure=_plan_once,
            reconnect_timeout=ONE_TRY,
            check=_check_if_readable(pool.ConnectionPool.check_connection),
            open=False,
            name="checkpointers",
        )
        self._pool: psycopg_pool.ConnectionPool[psycopg.Connection[Any]] = make_pool()
        try:
            with self._told():
                self._fill(make_pool)
                close_with(self, self._pool)
                self._again(self._look if read_only else self._migrate)
        except BaseException:
            self.close()
            raise

    def _fill(self, make_pool: Callable[[], psycopg_pool.ConnectionPool[psycopg.Connection[Any]]]) -> None:
        """Wait for the first connection; a pool that has none in time is closed, and does not say why."""
        give_up = time.monotonic() + self._timeout
        while True:
            try:
                return self._pool.open(wait=True, timeout=min(self._timeout, ONE_TRY))
            except self._psycopg.OperationalError as error:
                why = self._why() if is_without_reason(error) else error
                if is_for_good(why) or time.monotonic() > give_up:
                    raise why from None
            self._pool = make_pool()

    def run(self, operation: Operation[T]) -> T:
        """Answer each request in a round trip of its own."""
        with self._told():
            return self._again(lambda connection: drive(operation(), lambda r: self._answer(connection, r)))

    def read(self, operation: Operation[T]) -> T:
        """Read; a delete that slips between two statements is noticed by the saver, which takes a snapshot then."""
        return self.run(operation)

    def snapshot(self, operation: Operation[T]) -> T:
        """Read in a transaction that sees nothing of what others do meanwhile; it costs three round trips more."""

        def look(connection: psycopg.Connection[Any]) -> T:
            with connection.transaction():
                connection.execute(AT_ONE_MOMENT)
                return drive(operation(), lambda request: self._answer(connection, request))

        with self._told():
            return self._again(look)

    def exclusive(self, operation: Operation[T]) -> T:
        """Run in one transaction; its first statement locks what it changes.

        Where the connection is lost at its commit, the server is asked what became of it before it is done again.
        """
        tried: list[tuple[int | None, T]] = []

        def transact(connection: psycopg.Connection[Any]) -> T:
            for number, answer in tried:
                if number is not None and was_committed(connection, number, timeout=self._timeout):
                    return answer
            tried.clear()
            with connection.transaction():
                answer = drive(operation(), lambda request: self._answer(connection, request))
                tried.append((own_number(connection), answer))
            return answer

        with self._told():
            return self._again(transact)

    def vacuum(self, *, full: bool = False) -> None:
        """Let Postgres reuse the space of deleted rows; `full` gives it back to the disk and locks meanwhile."""
        words = "VACUUM (FULL, ANALYZE)" if full else "VACUUM (ANALYZE)"

        def sweep(connection: psycopg.Connection[Any]) -> None:
            for table in TABLES:
                connection.execute(f"{words} {self._schema}.{table}")

        with self._told():
            self._again(sweep)

    def size(self) -> int:
        """Give the bytes of the tables and their indexes; where there are tenants, of the tenant's own rows."""

        def measure(connection: psycopg.Connection[Any]) -> int:
            if (own := tenancy.bytes_of(connection, self._name)) is not None:
                return own
            row = connection.execute(
                "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c JOIN pg_namespace n"
                " ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relkind = 'r'",
                (self._name,),
            ).fetchone()
            return int(row[0]) if row else 0

        with self._told():
            return self._again(measure)

    def close(self) -> None:
        """Close the pool."""
        super().close()
        self._pool.close()

    def _again(self, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        """Do work on a connection; if the connection is lost, do it again on another, for as long as `timeout`.

        Every write is guarded, so doing it again after a lost answer changes nothing that is done already.
        """
        give_up = time.monotonic() + self._timeout
        while True:
            try:
                with self._pool.connection(timeout=min(self._timeout, ONE_TRY)) as connection:
                    return self._work(connection, work) if self.tenant else self._tried(connection, work)
            except self._psycopg.Error as error:
                why = self._why() if is_without_reason(error) else error
                if not may_be_cured(why) or (why is not error and is_for_good(why)) or time.monotonic() > give_up:
                    raise why from None
            time.sleep(PAUSE)

    def _why(self) -> psycopg.Error:
        """Say why there is no connection to be had."""
        found: psycopg.Error
        try:
            self._psycopg.connect(str(self._pool.conninfo), connect_timeout=int(ONE_TRY)).close()
        except self._psycopg.Error as error:
            found = error
        else:
            found = self._psycopg.OperationalError(f"all {self._pool.max_size} connections were in use")
        return found

    def _tried(self, connection: psycopg.Connection[Any], work: Callable[[psycopg.Connection[Any]], T]) -> T:
        """Work on a connection; one that others made forget its statements is given up."""
        try:
            return work(connection)
        except self._psycopg.errors.InvalidSqlStatementName:
            connection.close()
            raise

    def _work(self, connection: psycopg.Connection[Any], work: Callable[[psycopg.Connection[Any]], T]) -> T:
        """Work on a connection that is known to be the tenant's; after an error it is asked again."""
        if connection not in self._confirmed:
            tenancy.confirm(self.place, tenancy.tenant_of(connection), self._setting)
            self._confirmed.add(connection)
        try:
            return self._tried(connection, work)
        except BaseException:
            self._confirmed.discard(connection)
            raise

    def _startup(self, url: str) -> dict[str, str]:
        """Give what makes every connection of the pool one of the tenant's, and one that only reads."""
        given = self._psycopg.conninfo.conninfo_to_dict(url).get("options") or os.environ.get("PGOPTIONS", "")
        options = tenancy.startup_options(self._setting, given) if self.tenant else given
        options = f"{options} {READS}".strip() if self._read_only else options
        return {"options": options} if options != given else {}

    def _answer(self, connection: psycopg.Connection[Any], request: Request) -> Rows:
        if isinstance(request, Append):
            return self._append(connection, request)
        if isinstance(request, Many):
            return self._many(connection, request)
        if isinstance(request, Together):
            with connection.pipeline():
                asked = [self._ask(connection, _single(one)) for one in request.statements]
            return [cursor.fetchall() for cursor in asked]  # inside, each would be waited for by itself
        cursor = self._ask(connection, request)
        return cursor.fetchall() if cursor.description else []

    def _ask(self, connection: psycopg.Connection[Any], request: Statement) -> Cursor:
        return connection.execute(self._translated(request.sql), request.params, prepare=True, binary=True)

    def _many(self, connection: psycopg.Connection[Any], request: Many) -> Rows:
        if not request.writes or len(request.params) == 1:
            return self._answer(connection, _single(request))
        with connection.cursor() as cursor:
            cursor.executemany(self._translated(request.sql), request.params)
        return []

    def _append(self, connection: psycopg.Connection[Any], request: Append) -> Rows:
        """Send the guard and every insert as one statement: one round trip, one commit."""
        sql = append_sql(request.guard.sql, tuple(map(shape, request.changes)))
        params = [*request.guard.params, *chain.from_iterable(map(params_of, request.changes))]
        usual = True if all(len(change.rows) <= FEW for change in request.changes) else None  # what is large is rare
        try:
            return connection.execute(self._translated(sql), params, prepare=usual).fetchall()
        except self._psycopg.errors.UniqueViolation:
            return DUPLICATE

    def _translated(self, sql: str) -> Any:
        return in_schema(sql, self._schema, filtered=self._filtered)

    def _look(self, connection: psycopg.Connection[Any]) -> None:
        """See that there are tables, of the version that this release knows."""
        role = tenancy.role_of(connection, self._name)
        tenancy.confirm(self.place, role.tenant, self._setting)
        if not role.has_tables:
            raise NotADatabaseError(self.place, NO_TABLES, hint=OTHERS)
        rows = connection.execute(self._translated("SELECT coalesce(max(version), 0) FROM cp_schema")).fetchall()
        check_version(self.place, int(rows[0][0]), self.dialect, read_only=True)
        self._settle(connection, role)

    def _migrate(self, connection: psycopg.Connection[Any]) -> None:
        """Bring the tables up to date; a role that may only read and write finds nothing to do."""
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
            role = tenancy.role_of(connection, self._name)
            tenancy.confirm(self.place, role.tenant, self._setting)
            if not role.has_schema:
                connection.execute(f"CREATE SCHEMA {self._schema}")
            if not role.has_tables:
                connection.execute(self._translated("CREATE TABLE cp_schema (version INTEGER PRIMARY KEY)"))
            self._upgrade(connection)
            self._settle(connection, role)

    def _settle(self, connection: psycopg.Connection[Any], role: tenancy.Role) -> None:
        """Keep tenants apart, also for a role that the database does not hold to that."""
        apart = tenancy.settle(connection, self.place, self._name, tenant=self.tenant)
        self._filtered = apart and role.bypasses
        self.unbound = tenancy.UNBOUND.format(self.place, role.name) if self._filtered else ""

    def _upgrade(self, connection: psycopg.Connection[Any]) -> None:
        rows = connection.execute(self._translated("SELECT coalesce(max(version), 0) FROM cp_schema")).fetchall()
        done = rows[0][0]
        check_version(self.place, done, self.dialect)
        later = [(version, script) for version, script in migrations(self.dialect) if version > done]
        if done and later:
            tenancy.unforce(connection, self._name)
        for version, script in later:
            connection.execute(self._translated(script))
            connection.execute(self._translated("INSERT INTO cp_schema VALUES (?)"), (version,))

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Translate what Postgres and its driver say, at the one door."""
        try:
            yield
        except (self._psycopg.Error, OSError) as error:
            raise story(self.place, error) from error


def close_with(owner: object, pool: psycopg_pool.ConnectionPool[Any]) -> None:
    """Close a pool when its owner goes that forgot to.

    Whoever collects garbage does it, and that may be one of the pool's own threads, which cannot wait for itself.
    """

    def let_go() -> None:
        with contextlib.suppress(RuntimeError):
            pool.close()

    weakref.finalize(owner, let_go).atexit = False


def _single(request: Statement | Many) -> Statement:
    """Say in one statement what is asked with each row of parameters."""
    if isinstance(request, Statement):
        return request
    if len(request.params) == 1:
        return Statement(request.sql, request.params[0])
    kinds, count = tuple(map(type, request.params[0])), few(request.params)
    return Statement(at_once(request.sql, kinds, count), sent(request.params, [KINDS[kind] for kind in kinds], count))


def _plan_once(connection: psycopg.Connection[Any]) -> None:
    connection.execute(PLAN_ONCE)


def _check_if_readable(check: Callable[[Any], None]) -> Callable[[Any], None]:
    """Make a check that costs no round trip: an idle connection has nothing to read unless the server said goodbye."""

    def check_quietly(connection: psycopg.Connection[Any]) -> None:
        if connection.closed or select.select([connection.fileno()], [], [], 0)[0]:
            check(connection)

    return check_quietly


def _driver() -> tuple[Any, Any]:
    try:
        return import_module("psycopg"), import_module("psycopg_pool")
    except ImportError as error:
        msg = f"Postgres needs psycopg ({error}); install it with: pip install 'psycopg[binary,pool]'"
        raise MissingDriverError(msg) from error


def _without_password(driver: Any, url: str, schema: str) -> str:
    try:
        info = driver.conninfo.conninfo_to_dict(url)
    except driver.Error:  # its words repeat what it could not read, a password with it
        hint = (
            "it looks like postgresql://user:password@host:5432/name, with no name of a driver in it, and what is"
            " special in a password is percent-encoded"
        )
        raise StorageError("postgres", f"{shown(url)} is no address", hint=hint) from None
    return f"postgresql://{info.get('host', '')}:{info.get('port', 5432)}/{info.get('dbname', '')} schema {schema}"
