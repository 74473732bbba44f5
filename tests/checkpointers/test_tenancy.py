"""Tenants share a Postgres database and see nothing of one another, by its own rules and by what is asked of it."""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from checkpointers import PostgresSaver, Saver, SchemaError, StorageError, UnknownThreadError, tenancy
from checkpointers.care import Care
from checkpointers.database import migrations
from checkpointers.errors import TenancyWarning
from checkpointers.postgres_server import AT_ONE_MOMENT, PLAN_ONCE
from checkpointers.upkeep import Upkeep
from tests.checkpointers.graphs import DeltaState, config, loop
from tests.checkpointers.test_storage import put, values
from tests.proofs import tenants as proof

LONG = "a very long name " * 400
ODD = [
    "plain", "it's", 'double "quotes"', "100%", "%s", "back\\slash", "\\", " ", " a", "a ", "two\nlines", "tab\t", "-c x=y",
    "söder", "日本", "a=b,c;d", "'; DROP TABLE cp_names; --", "${HOME}", "x" * 63, "x" * 64, "x" * 65, LONG, LONG + "!",
]  # fmt: skip


@pytest.fixture
def app_url(postgres_url: str) -> Iterator[str]:
    """Give the address of a role that may read and write, in a database where tenants are kept apart."""
    proof.prepared(postgres_url)
    with proof.role(postgres_url) as url:
        yield url


def opened(url: str, tenant: str = "", **options: Any) -> PostgresSaver:
    return PostgresSaver.open(url, tenant=tenant, pool_size=4, **options)


def names(saver: Saver) -> list[str]:
    return sorted(info.thread for info in saver.threads())


def test_nothing_leaks(postgres_url: str) -> None:
    """Every public method and SQL of every kind, by another tenant and by none, encrypted and in clear: leaked 0."""
    found = proof.probe_all(postgres_url)
    assert found.leaks == []
    assert found.probes > 700
    public = {name for cls in (Saver, Upkeep, Care) for name in vars(cls) if not name.startswith("_")}
    sync = {name for name in public if not (name[0] == "a" and name[1:] in public) and callable(getattr(Saver, name))}
    assert sync - found.methods == proof.EXEMPT


def test_reused_connections_are_the_tenants_own(postgres_url: str) -> None:
    """Two tenants at work on one role, while backends are killed and calls fail half-way: wrong tenant 0."""
    seen = proof.reuse(postgres_url, 2.0)
    assert seen.wrong == []
    assert seen.reuses > 100
    assert len(seen.connections) > 6
    assert seen.errors["CheckpointerError"] > 0


def test_a_database_without_tenants_pays_nothing(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No column, no policy; and with a tenant no call sends one statement more."""
    asked: list[str] = []
    execute = psycopg.Connection.execute
    monkeypatch.setattr(psycopg.Connection, "execute", lambda *a, **k: asked.append(a[1]) or execute(*a, **k))

    def calls(saver: PostgresSaver) -> list[str]:
        with saver:
            put(saver, {"x": 1})
            asked.clear()
            put(saver, {"x": 2}, after=None, version=2)
            values(saver)
            return [str(sql) for sql in asked]

    without = calls(opened(postgres_url))
    with psycopg.connect(postgres_url) as owner:
        assert owner.execute("SELECT count(*) FROM pg_policy").fetchone() == (0,)
        assert owner.execute("SELECT count(*) FROM pg_attribute WHERE attname = 'tenant'").fetchone() == (0,)
    proof.prepared(postgres_url)
    with proof.role(postgres_url) as url:
        assert calls(opened(url, "acme")) == without


def test_tenants_of_any_name(app_url: str) -> None:
    """Quotes, percent, line ends, very long: each is a tenant of its own, and stays it in a new process."""
    for name in ODD:
        with opened(app_url, name) as saver:
            assert names(saver) == [], name[:40]
            put(saver, {"x": name})
    for name in ODD:
        with opened(app_url, name) as saver:
            assert values(saver) == {"x": name}
            assert names(saver) == ["t"]
    assert len({tenancy.setting_of(name) for name in ODD}) == len(ODD)


@pytest.mark.parametrize("name", ["\0", "a\0b", "\ud800", b"acme", 7])
def test_what_is_no_name_of_a_tenant(name: Any) -> None:
    """NUL and what is no text are refused before anything is connected."""
    with pytest.raises(StorageError, match="is no name of a tenant"):
        PostgresSaver.open("postgresql://nobody@127.0.0.1:1/nothing", tenant=name)


def test_what_was_there_before_is_nobodys(postgres_url: str) -> None:
    """Rows from before the first tenant stay with savers that have none, those that are open too."""
    with opened(postgres_url) as early:
        app = loop(early, DeltaState)
        for until in (3, 6):
            app.invoke({"until": until, "n": 0}, config("old"), durability="sync")
        proof.prepared(postgres_url)
        app.invoke({"until": 9, "n": 0}, config("old"), durability="sync")
        early.tag("old", "kept")
        early.copy_thread("old", "copy")
        with early.lease("old"):
            app.invoke({"until": 12, "n": 0}, config("old"), durability="sync")
        with proof.role(postgres_url) as url, opened(url) as none, opened(url, "acme") as acme:
            assert names(none) == ["copy", "old"]
            assert loop(none, DeltaState).get_state(config("old")).values["n"] == 12
            assert none.fsck() == []
            assert names(acme) == []
            with pytest.raises(UnknownThreadError):
                acme.tag("old", "mine")
            loop(acme, DeltaState).invoke({"until": 2, "n": 0}, config("old"), durability="sync")
            assert loop(acme, DeltaState).get_state(config("old")).values["n"] == 2
            assert loop(none, DeltaState).get_state(config("old")).values["n"] == 12
            assert acme.database.size() < none.database.size()


def test_switched_on_in_the_middle_of_runs(postgres_url: str) -> None:
    """The first tenant comes while others write: nobody fails, nothing is lost."""
    results: list[Any] = []
    with opened(postgres_url) as saver:
        app = loop(saver)

        def run(name: str) -> None:
            results.append(app.invoke({"until": 150, "n": 0}, config(name), durability="sync"))
            saver.prune([name])

        threads = [threading.Thread(target=run, args=(f"t{n}",)) for n in range(3)]
        for thread in threads:
            thread.start()
        while not saver.threads():
            pass
        proof.prepared(postgres_url)
        assert any(thread.is_alive() for thread in threads)
        for thread in threads:
            thread.join()
        assert [len(result["log"]) for result in results] == [150] * 3
        assert saver.fsck() == []


def test_a_superuser_is_warned_and_served(postgres_url: str) -> None:
    """The database binds no superuser, so it is said, once for each saver; the saver still keeps tenants apart."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opened(postgres_url).close()
    with pytest.warns(TenancyWarning, match="role 'postgres' is a superuser or has BYPASSRLS"):
        first = opened(postgres_url, "a")
    with pytest.warns(TenancyWarning):
        second = opened(postgres_url, "b")
    with pytest.warns(TenancyWarning):
        none = opened(postgres_url)
    with first, second, none:
        for saver in (first, second, none):
            tenant = saver.database.tenant
            loop(saver, DeltaState).invoke({"until": 5, "n": 0}, config(f"of {tenant}"), durability="sync")
            put(saver, {f"channel of {tenant}": tenant})
        for saver in (first, second, none):
            tenant = saver.database.tenant
            assert names(saver) == [f"of {tenant}", "t"]
            assert {u.thread for u in saver.usage()} == {f"of {tenant}", "t"}
            assert {c.config["configurable"]["thread_id"] for c in saver.list(None)} == {f"of {tenant}", "t"}
            assert {n for n in saver._names.keys if n.startswith("channel")} == {f"channel of {tenant}"}
            assert saver.fsck() == []
            saver.copy_thread("t", "copy")
            saver.prune(["copy"], strategy="delete")
    with proof.role(postgres_url) as url, opened(url, "a") as bound:
        assert values(bound) == {"channel of a": "a"}
        assert loop(bound, DeltaState).get_state(config("of a")).values["n"] == 5
        assert bound.fsck() == []
    with proof.role(postgres_url, rights="BYPASSRLS") as url, pytest.warns(TenancyWarning):
        opened(url, "a").close()


def test_a_role_that_is_not_the_owner(postgres_url: str) -> None:
    """It opens what is there with the rights to read and write alone; what only the owner can do is said, with how."""
    opened(postgres_url).close()
    with proof.role(postgres_url, grants=()) as url, pytest.raises(StorageError, match=r"(?s)permission denied.*GRANT"):
        opened(url)
    with proof.role(postgres_url) as url:
        with opened(url) as saver:
            put(saver, {"x": 1})
            assert values(saver) == {"x": 1}
        with pytest.raises(SchemaError, match=r"cp_threads.*open it once as role 'postgres': .*tenant='acme'"):
            opened(url, "acme")
        proof.prepared(postgres_url)
        with opened(url, "acme") as saver:
            assert names(saver) == []
            saver.vacuum()
        with psycopg.connect(postgres_url, autocommit=True) as owner:
            owner.execute("ALTER TABLE checkpointers.cp_writes NO FORCE ROW LEVEL SECURITY")
        for tenant in ("acme", ""):
            with pytest.raises(SchemaError, match=r"not kept apart in the tables cp_writes"):
                opened(url, tenant)
        proof.prepared(postgres_url)
        with psycopg.connect(postgres_url, autocommit=True) as owner:
            owner.execute("CREATE POLICY everybody ON checkpointers.cp_heads USING (true)")
        with pytest.raises(SchemaError, match="cp_heads"):
            opened(url, "acme")
        with pytest.raises(SchemaError, match="cp_heads have policies besides cp_tenant.*drop those"):
            opened(postgres_url, "acme")


def test_an_owner_that_is_no_superuser_is_bound_too(postgres_url: str) -> None:
    """The role that made the tables is kept to its tenant like any other."""
    database = postgres_url.rsplit("/", 1)[1]
    with proof.role(postgres_url, grants=(f"GRANT CREATE ON DATABASE {database} TO {{}}",)) as url:
        with opened(url, "a") as first, opened(url, "b") as second:
            put(first, {"x": 1})
            assert names(second) == []
            assert second.vacuum(full=True) == 0
            assert values(first) == {"x": 1}
        with psycopg.connect(url) as owner:
            assert owner.execute("SELECT count(*) FROM checkpointers.cp_threads").fetchone() == (0,)


def test_a_later_migration_changes_every_tenants_rows(app_url: str, postgres_url: str, monkeypatch: Any) -> None:
    """The owner sees all rows while it migrates, and the tables it makes are kept apart like the others."""
    for tenant in ("a", "b"):
        with opened(app_url, tenant) as saver:
            put(saver, {"x": tenant})
    database = postgres_url.rsplit("/", 1)[1]
    known = migrations("postgres")
    later = (known[-1][0] + 1, "CREATE TABLE cp_more (id BIGINT PRIMARY KEY); UPDATE cp_leases SET epoch = epoch;")
    later = (later[0], later[1] + "UPDATE cp_threads SET updated_at = 7;")
    with psycopg.connect(postgres_url, autocommit=True) as owner:
        name = f"owner_{database}"
        owner.execute(f"CREATE ROLE {name} LOGIN")
        owner.execute(f"GRANT CREATE ON DATABASE {database} TO {name}")
        owner.execute(f"ALTER SCHEMA checkpointers OWNER TO {name}")
        for (table,) in [*owner.execute(proof.TABLES).fetchall(), ("cp_schema",)]:
            owner.execute(f"ALTER TABLE checkpointers.{table} OWNER TO {name}")
        for module in ("database", "postgres_server"):
            monkeypatch.setattr(f"checkpointers.{module}.migrations", lambda _: [*known, later])
        opened(re.sub("//[^@]+@", f"//{name}@", postgres_url)).close()
        assert owner.execute("SELECT DISTINCT updated_at FROM checkpointers.cp_threads").fetchall() == [(7,)]
        apart = owner.execute("SELECT relforcerowsecurity, relname FROM pg_class WHERE relname ~ '^cp_[a-z]+$'")
        assert {name for forced, name in apart.fetchall() if not forced} == {"cp_schema"}
        owner.execute(f"DROP OWNED BY {name} CASCADE")
        owner.execute(f"DROP ROLE {name}")


def test_the_tenant_of_a_role(app_url: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pooler that drops options is noticed; a role that has its tenant from the server needs none of them."""
    user = re.findall("//([^@]+)@", app_url)[0]
    monkeypatch.setattr(tenancy, "startup_options", lambda _, given: given)
    with pytest.raises(
        SchemaError, match=r"for the tenant 'acme' is one for ''.*ALTER ROLE … SET checkpointers.tenant"
    ):
        opened(app_url, "acme")
    with psycopg.connect(postgres_url, autocommit=True) as owner:
        owner.execute(f"ALTER ROLE {user} SET checkpointers.tenant = 'acme'")
    with opened(app_url, "acme") as saver:
        put(saver, {"x": 1})
        assert values(saver) == {"x": 1}
    with pytest.raises(SchemaError, match="for the tenant 'evil' is one for 'acme'"):
        opened(app_url, "evil")
    with pytest.raises(SchemaError, match="its connections are those of the tenant 'acme'.*open it with tenant='acme'"):
        opened(app_url)
    monkeypatch.undo()
    with opened(app_url, "evil") as saver:
        assert names(saver) == []


def test_options_that_were_there_stay(app_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the address or the environment asks of each connection is still asked."""
    show = "SELECT current_setting('work_mem'), current_setting('checkpointers.tenant')"
    with opened(f"{app_url}?options=-c%20work_mem%3D7MB%20-c%20checkpointers.tenant%3Devil", "a b") as saver:
        assert saver.database._again(lambda c: c.execute(show).fetchone()) == ("7MB", "a b")
    monkeypatch.setenv("PGOPTIONS", "-c work_mem=8MB")
    with opened(app_url, "a b") as saver:
        assert saver.database._again(lambda c: c.execute(show).fetchone()) == ("8MB", "a b")


def test_connections_that_come_back_are_the_tenants(app_url: str, postgres_url: str) -> None:
    """Killed backends, `DISCARD ALL`, a transaction that failed: the next statement is of the same tenant."""
    with opened(app_url, "acme") as saver, opened(app_url, "evil") as other:
        place = None
        for version in range(1, 6):
            place = put(saver, {"x": version}, after=place, version=version)
            with psycopg.connect(postgres_url, autocommit=True) as reaper:
                reaper.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename <> 'postgres'")
            assert names(other) == []
        for statement in ("RESET ALL", "DISCARD ALL", "RESET checkpointers.tenant", "SELECT 1/0"):
            with suppress(psycopg.errors.DivisionByZero):
                saver.database._again(lambda c, sql=statement: c.execute(sql, prepare=False))
            assert values(saver) == {"x": 5}
        assert names(saver) == ["t"]


def test_a_connection_is_asked_again_after_an_error(app_url: str) -> None:
    """Whatever went wrong on a connection, it is not used again before it said whose it is."""
    with PostgresSaver.open(app_url, tenant="acme", pool_size=1) as saver:
        put(saver, {"x": 1})

        def meddle(connection: Any) -> None:
            connection.execute("SET checkpointers.tenant = 'evil'")
            raise RuntimeError

        with pytest.raises(RuntimeError):
            saver.database._again(meddle)
        with pytest.raises(SchemaError, match="for the tenant 'acme' is one for 'evil'"):
            values(saver)


def test_no_statement_of_ours_changes_a_setting(app_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the making of a connection says whose it is: no SET, RESET or set_config is ever sent but two words.

    The one is the same on every connection, the other is over with its transaction; neither is about tenants.
    """
    asked: list[str] = []
    execute = psycopg.Cursor.execute
    monkeypatch.setattr(psycopg.Cursor, "execute", lambda *a, **k: asked.append(str(a[1])) or execute(*a, **k))
    with opened(app_url, "acme") as saver:
        loop(saver, DeltaState).invoke({"until": 5, "n": 0}, config(), durability="sync")
        for probes in proof.ABOUT.values():
            for probe in probes:
                proof._answer(probe, saver, "t")
    assert len(asked) > 100
    assert "tenant" not in PLAN_ONCE
    assert {sql for sql in asked if re.match(r"\s*(SET|RESET|DISCARD)\b", sql) or "set_config" in sql} == {
        PLAN_ONCE,
        AT_ONE_MOMENT,
    }


def test_the_setting_is_the_tenant(app_url: str) -> None:
    """The limit, stated: whoever may say any SQL as a role that serves several tenants can name each of them."""
    with opened(app_url, "acme") as saver:
        put(saver, {"x": 1})
    with psycopg.connect(app_url, autocommit=True, options="-c checkpointers.tenant=evil") as connection:
        count = "SELECT count(*) FROM checkpointers.cp_threads"
        assert connection.execute(count).fetchone() == (0,)
        connection.execute("SET checkpointers.tenant = 'acme'")
        assert connection.execute(count).fetchone() == (1,)


def test_a_database_of_bytes(postgres_server: str) -> None:
    """A database without an encoding, whose driver gives bytes for text, opens, with and without tenants."""
    address = postgres_server.rsplit("/", 1)[0]
    with psycopg.connect(postgres_server, autocommit=True) as owner:
        owner.execute("CREATE DATABASE bytes_only TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'")
    try:
        with opened(f"{address}/bytes_only") as saver:
            put(saver, {"x": "ä"})
            assert values(saver) == {"x": "ä"}
        proof.prepared(f"{address}/bytes_only")
        with proof.role(f"{address}/bytes_only") as url, opened(url, "ä") as saver:
            put(saver, {"x": "ä"})
            assert values(saver) == {"x": "ä"}
            assert saver.database.size() > 0
    finally:
        with psycopg.connect(postgres_server, autocommit=True) as owner:
            owner.execute("DROP DATABASE bytes_only WITH (FORCE)")
