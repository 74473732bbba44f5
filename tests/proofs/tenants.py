"""`python -m tests.proofs.tenants [seconds]`: one tenant tries everything on another, on one Postgres database.

A probe leaks if its answer holds anything of the other tenant's, if it differs from the answer about a thread that
nobody has, or if a row of the other tenant's is not as it was.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import random
import re
import sys
import threading
import time
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg

from checkpointers import CheckpointerError, Keep, Keyring, PostgresSaver
from checkpointers.errors import TenancyWarning
from checkpointers.keys import digest, encoded, key_of, thread_key
from checkpointers.testing import LocalPostgres
from tests.checkpointers.graphs import State, config, loop

MINE, OTHER = "acme", "evil"
CANARY = "canary4f1d"
VICTIM, ABSENT = f"thread-{CANARY}", "thread-nobodyhas"
RUN = f"run-{CANARY}"
SECONDS = 5.0
EXEMPT = {"setup", "close", "get_next_version"}
TABLES = "SELECT relname FROM pg_class WHERE relnamespace = 'checkpointers'::regnamespace AND relkind = 'r' AND relname LIKE 'cp\\_%' AND relname <> 'cp_schema' ORDER BY 1"
GRANTS = (
    "GRANT USAGE ON SCHEMA checkpointers TO {0}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA checkpointers TO {0}",
    "REVOKE INSERT, UPDATE, DELETE ON checkpointers.cp_schema FROM {0}",
)


@contextmanager
def role(owner_url: str, *, rights: str = "NOBYPASSRLS", grants: tuple[str, ...] = GRANTS) -> Iterator[str]:
    """Give the address of a role of its own, which may read and write and nothing else."""
    name = f"app_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(owner_url, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {name} LOGIN NOSUPERUSER {rights}")
        for grant in grants:
            owner.execute(grant.format(name))
    try:
        yield re.sub(r"//[^@]+@", f"//{name}@", owner_url)
    finally:
        with psycopg.connect(owner_url, autocommit=True) as owner:
            owner.execute(f"DROP OWNED BY {name} CASCADE")
            owner.execute(f"DROP ROLE {name}")


def prepared(owner_url: str) -> None:
    """Make the tables and switch tenancy on, as an owner does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TenancyWarning)
        PostgresSaver.open(owner_url, tenant=MINE).close()


def furnish(saver: PostgresSaver) -> dict[str, Any]:
    """Give a tenant a thread with something secret in every place; give the ids of its checkpoints."""
    place = config(VICTIM, checkpoint_ns="", run_id=RUN)
    for number in range(1, 4):
        values = {CANARY: [f"{CANARY} value {n}" for n in range(number)], "shared": number}
        versions = dict.fromkeys(values, number)
        place = saver.put(place, checkpoint(number, values, versions), metadata(), versions)
        saver.put_writes(place, [(CANARY, f"{CANARY} write")], f"task-{number}", f"path-{CANARY}")
    saver.put_writes(place, [("__error__", f"{CANARY} failed")], "task-e")
    saver.tag(VICTIM, f"tag-{CANARY}")
    saver.pin(VICTIM, 1)
    entry, _ = saver.ledger.claim(VICTIM, EFFECT, {"to": CANARY})
    saver.ledger.change(entry, status=CANARY, record={CANARY: 1}, bodies=[BODY])
    return place


def checkpoint(number: int, values: dict[str, Any], versions: dict[str, Any]) -> Any:
    return {
        "v": 4, "id": id_of(number), "ts": "2026-01-02T03:04:05+00:00", "channel_values": values,
        "channel_versions": versions, "versions_seen": {f"node-{CANARY}": {}} if CANARY in values else {},
        "updated_channels": None,
    }  # fmt: skip


def id_of(number: int) -> str:
    return f"1f0ffff0-0000-6000-8000-{number:012d}"


def metadata() -> Any:
    return {"source": "loop", "step": 1, "parents": {}, "run_id": RUN, "who": CANARY}


def _put(saver: PostgresSaver, thread: str, at: str | None) -> Any:
    place = config(thread, checkpoint_ns="", **({"checkpoint_id": at} if at else {}))
    new = checkpoint(9, {"x": "mine"}, {"x": 1})
    saver.put(place, new, {"source": "loop", "step": 1, "parents": {}}, {"x": 1})
    found = saver.get_tuple(config(thread))
    return found and (found.checkpoint, found.parent_config, found.pending_writes)


def _lease(saver: PostgresSaver, thread: str, policy: Any) -> Any:
    with saver.lease(thread, if_busy=policy, owner="evil") as lease:
        return lease.epoch, _put(saver, thread, None)


def _copied(saver: PostgresSaver, source: str, target: str) -> Any:
    _put(saver, source, None)
    saver.copy_thread(source, target)
    return saver.steps(target)


def _claimed(saver: PostgresSaver, thread: str) -> Any:
    entry, new = saver.ledger.claim(thread, EFFECT, {"by": "another"})
    return new, saver.ledger.change(entry, status="done", record={}, bodies=[BODY]), saver.ledger.entries(thread)


EFFECT = "the key of an effect"
BODY = f"a body about {CANARY}".encode()
HASH = hashlib.sha256(BODY).hexdigest()
Probe = Callable[[PostgresSaver, str], Any]
AT: dict[str, Any] = {"checkpoint_ns": "", "checkpoint_id": id_of(3)}
ABOUT: dict[str, list[Probe]] = {
    "get_tuple": [lambda s, t: s.get_tuple(config(t)), lambda s, t: s.get_tuple(config(t, **AT)), lambda s, t: s.get(config(t))],
    "get_channel": [lambda s, t: s.get_channel(config(t), CANARY), lambda s, t: s.get_channel(config(t, **AT), CANARY)],
    "list": [
        lambda s, t: list(s.list(config(t))), lambda s, t: list(s.list(config(t), filter={"source": "loop"})),
        lambda s, t: list(s.list(None)), lambda s, t: list(s.list(None, filter={"run_id": RUN})),
        lambda s, t: list(s.list(config(t), before=config(t, **AT))),
    ],
    "put": [lambda s, t: _put(s, t, None), lambda s, t: _put(s, t, id_of(3)), lambda s, t: _put(s, t, id_of(9))],
    "put_writes": [lambda s, t: s.put_writes(config(t, **AT), [("x", 1)], "task-3"), lambda s, t: s.put_writes(config(t, **AT), [("__interrupt__", 1)], "task-e")],
    "get_delta_channel_history": [lambda s, t: s.get_delta_channel_history(config=config(t, **AT), channels=[CANARY])[CANARY]],
    "delete_thread": [lambda s, t: s.delete_thread(t)],
    "delete_for_runs": [lambda s, t: s.delete_for_runs([RUN])],
    "copy_thread": [lambda s, t: s.copy_thread(t, "copy"), lambda s, t: _copied(s, "own", t)],
    "prune": [lambda s, t: s.prune([t]), lambda s, t: s.prune([t], strategy="delete"), lambda s, t: s.prune([t], strategy="delete_all")],
    "threads": [lambda s, t: s.threads(), lambda s, t: s.threads(tag=f"tag-{CANARY}"), lambda s, t: s.threads(metadata={"who": CANARY}), lambda s, t: s.threads(status="failed")],
    "steps": [lambda s, t: s.steps(t), lambda s, t: s.steps(t, None)],
    "tasks": [lambda s, t: s.tasks(t)],
    "usage": [lambda s, t: s.usage(), lambda s, t: s.usage(t)],
    "readable": [lambda s, t: s.readable()],
    "tag": [lambda s, t: s.tag(t, "x")],
    "untag": [lambda s, t: s.untag(t, f"tag-{CANARY}")],
    "pin": [lambda s, t: s.pin(t, 2)],
    "unpin": [lambda s, t: s.unpin(t, 1)],
    "retain": [
        lambda s, t: s.retain(Keep(last=1)), lambda s, t: s.retain(Keep(last=1), threads=t),
        lambda s, t: s.retain(Keep(last=1), tag=f"tag-{CANARY}"), lambda s, t: s.retain(Keep(last=1), threads=[t], dry_run=True),
    ],
    "vacuum": [lambda s, t: s.vacuum(), lambda s, t: s.database.size()],
    "lease": [lambda s, t: _lease(s, t, "reject"), lambda s, t: _lease(s, t, "interrupt"), lambda s, t: _lease(s, t, "rollback")],
    "fsck": [lambda s, t: s.fsck(), lambda s, t: s.fsck(t)],
    "recover": [lambda s, t: s.recover(t, into="new"), lambda s, t: s.recover("own", into=t)],
    "rotate": [lambda s, t: s.rotate()],
    "shred": [lambda s, t: s.shred(t)],
    "holder": [lambda s, t: s.holder(t)],
    "ledger": [
        _claimed, lambda s, t: s.ledger.get(t, EFFECT), lambda s, t: s.ledger.entries(t), lambda s, t: s.ledger.bodies(t),
        lambda s, t: s.ledger.body(t, HASH), lambda s, t: (s.ledger.keep(t, BODY), s.ledger.body(t, HASH, 0, 6)),
    ],
    "inspect": [lambda s, t: s.inspect(config(t)), lambda s, t: s.inspect(config(t, **AT))],
}  # fmt: skip


async def _listed(saver: PostgresSaver, thread: str) -> Any:
    return [found async for found in saver.alist(config(thread))]


TWINS: dict[str, Callable[[PostgresSaver, str], Any]] = {
    "aget_tuple": lambda s, t: s.aget_tuple(config(t, **AT)),
    "alist": _listed,
    "athreads": lambda s, t: s.athreads(),
    "ausage": lambda s, t: s.ausage(),
    "asteps": lambda s, t: s.asteps(t, None),
    "atasks": lambda s, t: s.atasks(t),
    "areadable": lambda s, t: s.areadable(),
    "adelete_thread": lambda s, t: s.adelete_thread(t),
    "aprune": lambda s, t: s.aprune([t]),
    "acopy_thread": lambda s, t: s.acopy_thread(t, "copy"),
    "aput_writes": lambda s, t: s.aput_writes(config(t, **AT), [("x", 1)], "task-3"),
}


@dataclass
class Found:
    """What came out."""

    probes: int = 0
    leaks: list[str] = field(default_factory=list)
    methods: set[str] = field(default_factory=set)


class Probing:
    """Probes by one tenant of what another has."""

    def __init__(self, owner_url: str) -> None:
        """Look at the truth as the owner of the server, whom no rule binds."""
        self.owner = psycopg.connect(owner_url, autocommit=True)
        self.found = Found()
        self.truth = self.rows(MINE)

    def rows(self, tenant: str) -> dict[str, tuple[int, str]]:
        """Give a print of all rows of a tenant."""
        prints = {}
        for (table,) in self.owner.execute(TABLES).fetchall():
            rows = self.owner.execute(
                f"SELECT t::text FROM checkpointers.{table} t WHERE tenant = %s ORDER BY 1", (tenant,)
            ).fetchall()
            prints[table] = len(rows), hashlib.sha256(repr(rows).encode()).hexdigest()
        return prints

    def judge(self, name: str, answer: str, nothing: str | None = None) -> None:
        """Count a probe."""
        self.found.probes += 1
        why = []
        if re.search(CANARY, answer):
            why.append(f"said {answer[:300]}")
        if nothing is not None and answer != nothing:
            why.append(f"{answer[:300]} instead of {nothing[:300]}")
        if (now := self.rows(MINE)) != self.truth:
            why.append(f"changed {[table for table in now if now[table] != self.truth[table]]}")
            self.truth = now
        self.found.leaks += [f"{name}: {one}" for one in why]

    def api(self, saver: PostgresSaver) -> None:
        """Call every public method about the other's thread, and about one that nobody has."""
        for method, probes in ABOUT.items():
            self.found.methods.add(method)
            for number, probe in enumerate(probes):
                self._pair(f"{method} {number}", saver, probe)
        for method, twin in TWINS.items():
            self._pair(method, saver, lambda s, t, twin=twin: asyncio.run(_awaited(twin, s, t)))

    def _pair(self, name: str, saver: PostgresSaver, probe: Probe) -> None:
        answers = []
        for thread in (VICTIM, ABSENT):
            answers.append(_answer(probe, saver, thread))
            for own in {info.thread for info in saver.threads()} | {VICTIM, ABSENT}:
                saver.delete_thread(own)
        self.judge(name, *answers)

    def sql(self, url: str, tenant: str) -> None:
        """Say to the database itself what a tenant has no business saying."""
        options = f"-c checkpointers.tenant={tenant}"
        with psycopg.connect(url, autocommit=True, options=options) as connection:
            notices: list[str] = []
            connection.add_notice_handler(lambda notice: notices.append(str(notice.message_primary)))
            for (table,) in self.owner.execute(TABLES).fetchall():
                for statement in self.statements(f"checkpointers.{table}"):
                    self.judge(statement, self._said(connection, statement, notices))
            for statement in ANYWHERE:
                self.judge(statement, self._said(connection, statement, notices))
            for name, make in FORGERIES.items():
                answers = []
                for thread in (VICTIM, ABSENT):
                    statement, params = make(thread)
                    answers.append(_clean(self._said(connection, statement, notices, params), thread))
                    for table in ("cp_threads", "cp_names", "cp_heads"):
                        connection.execute(f"DELETE FROM checkpointers.{table}")
                self.judge(name, *answers)

    def statements(self, table: str) -> list[str]:
        """Give the statements that are tried on each table."""
        given = f"(SELECT t FROM {table} t)"
        return [
            f"SELECT * FROM {table}", f"SELECT count(*) FROM {table} HAVING count(*) > 0", f"TABLE {table}",
            f"SELECT 1 FROM {table} WHERE tenant = '{MINE}'", f"SELECT t::text FROM {table} t TABLESAMPLE SYSTEM (100)",
            f"SELECT 1 FROM {table} t WHERE pg_temp.peep(t::text)", f"SELECT row_to_json(t) FROM {table} t",
            f"WITH x AS MATERIALIZED (SELECT * FROM {table}) SELECT * FROM x", f"SELECT * FROM {table} FOR UPDATE",
            f"DELETE FROM {table} RETURNING *", f"DELETE FROM {table} WHERE tenant = '{MINE}' RETURNING 1",
            f"UPDATE {table} SET tenant = '{OTHER}' RETURNING 1", f"UPDATE {table} SET tenant = tenant RETURNING *",
            f"MERGE INTO {table} t USING (SELECT 1) x ON true WHEN MATCHED THEN DELETE",
            f"MERGE INTO {table} t USING (SELECT 1) x ON pg_temp.peep(t::text) WHEN MATCHED AND pg_temp.peep(t.tenant) THEN DELETE", f"TRUNCATE {table}",
            f"COPY {table} TO STDOUT", f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY", f"DROP TABLE {table}",
            f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY", f"DROP POLICY cp_tenant ON {table}",
            f"CREATE POLICY mine ON {table} USING (true)", f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE",
            f"CREATE RULE peep AS ON SELECT TO {table} DO INSTEAD SELECT 1", f"SELECT pg_temp.peep(({given})::text)",
        ]  # fmt: skip

    def _said(self, connection: psycopg.Connection[Any], statement: str, notices: list[str], params: Any = None) -> str:
        notices.clear()
        said: list[Any] = []
        try:
            with connection.transaction():
                connection.execute(PEEP)
                if statement.startswith("COPY"):
                    with connection.cursor().copy(statement) as copy:
                        said = list(copy)
                else:
                    cursor = connection.execute(statement, params)
                    said = cursor.fetchall() if cursor.description else [cursor.rowcount]
        except psycopg.Error as error:
            said = [error.sqlstate, error.diag.message_primary, error.diag.message_detail]
        decoded = [
            bytes(x).decode(errors="replace") for row in said for x in _cells(row) if isinstance(x, bytes | memoryview)
        ]
        return f"{said} {decoded} {notices}"


PEEP = (
    "CREATE OR REPLACE FUNCTION pg_temp.peep(text) RETURNS bool LANGUAGE plpgsql COST 0.0000001 AS"
    " $$ BEGIN RAISE NOTICE '%', $1; RETURN true; END $$"
)
ANYWHERE = (
    "SET row_security = off; SELECT * FROM checkpointers.cp_names", "SELECT * FROM pg_stats WHERE schemaname = 'checkpointers'",
    "RESET checkpointers.tenant; SELECT * FROM checkpointers.cp_names", "RESET ALL; SELECT * FROM checkpointers.cp_threads",
    "SET SESSION AUTHORIZATION DEFAULT; SELECT * FROM checkpointers.cp_threads", "SET ROLE NONE; SELECT * FROM checkpointers.cp_threads",
    "SET ROLE postgres", "SET SESSION AUTHORIZATION postgres", "SELECT last_value FROM checkpointers.cp_names_name_key_seq",
    "CREATE VIEW checkpointers.peep AS SELECT * FROM checkpointers.cp_names", "SELECT pg_read_file('PG_VERSION')",
    "SELECT query FROM pg_stat_activity WHERE usename <> current_user AND query <> '<insufficient privilege>' AND query <> ''",
    "INSERT INTO checkpointers.cp_schema VALUES (999)", "DELETE FROM checkpointers.cp_schema", "DROP SCHEMA checkpointers CASCADE",
)  # fmt: skip


def _thread_row(thread: str, tenant: str) -> tuple[str, list[Any]]:
    columns = "thread, stamp, steps, head, head_id, flags, kinds, checkpoints, bytes, created_at, updated_at, body"
    row = [thread_key(thread, MINE), 1, 1, 1, b"", 0, 0, 1, 1, 1, 1, b"forged"]
    return (
        f"INSERT INTO checkpointers.cp_threads ({columns}{tenant and ', tenant'}) VALUES ({', '.join(['%s'] * (12 + bool(tenant)))})",
        [*row, *([tenant] if tenant else [])],
    )


FORGERIES: dict[str, Callable[[str], tuple[str, list[Any]]]] = {
    "insert the other's key": lambda t: _thread_row(t, ""),
    "insert for the other": lambda t: _thread_row(t, MINE),
    "insert for nobody": lambda t: _thread_row(t, "nobody"),
    "upsert the other's key": lambda t: (
        _thread_row(t, "")[0] + " ON CONFLICT ON CONSTRAINT cp_threads_pkey DO UPDATE SET body = 'forged' RETURNING xmax = 0",
        _thread_row(t, "")[1],
    ),
    "insert the other's name": lambda t: (
        "INSERT INTO checkpointers.cp_names (digest, name) VALUES (%s, %s)",
        [digest(CANARY if t == VICTIM else ABSENT), encoded("x")],
    ),
    "insert the other's checkpoint": lambda t: (
        "INSERT INTO checkpointers.cp_heads (thread, ns, step) VALUES (%s, %s, 1) ON CONFLICT DO NOTHING RETURNING step",
        [thread_key(t, MINE), key_of("")],
    ),
    "select by key": lambda t: ("SELECT body FROM checkpointers.cp_threads WHERE thread = %s", [thread_key(t, MINE)]),
    "update by key": lambda t: ("UPDATE checkpointers.cp_threads SET body = 'x' WHERE thread = %s RETURNING 1", [thread_key(t, MINE)]),
    "delete by key": lambda t: ("DELETE FROM checkpointers.cp_elements WHERE thread = %s RETURNING 1", [thread_key(t, MINE)]),
}  # fmt: skip


def _cells(row: Any) -> Any:
    return row if isinstance(row, tuple | list) else (row,)


async def _awaited(twin: Callable[[PostgresSaver, str], Any], saver: PostgresSaver, thread: str) -> Any:
    return await twin(saver, thread)


def _answer(probe: Probe, saver: PostgresSaver, thread: str) -> str:
    try:
        return _clean(repr(probe(saver, thread)), thread)
    except (CheckpointerError, ValueError) as error:
        return _clean(f"{type(error).__name__}: {error}", thread)


def _clean(said: str, thread: str) -> str:
    """Take out what the caller said himself, and the time."""
    said = said.replace(thread, "THREAD").replace(str(thread_key(thread, OTHER)), "KEY")
    said = said.replace(str(thread_key(thread, MINE)), "KEY").replace(repr(RUN), "RUN")
    return re.sub(r"datetime\.datetime\([^)]*\)|\d{4}-\d\d-\d\d[T ][\d:.+]+|0x[0-9a-f]+", "TIME", said)


def probe_all(owner_url: str) -> Found:
    """Furnish one tenant, and let another and nobody probe it: by every method and by SQL; encrypted too."""
    prepared(owner_url)
    keys = Keyring({"one": os.urandom(32)})
    with role(owner_url) as app:
        with PostgresSaver.open(app, tenant=MINE) as mine:
            furnish(mine)
        probing = Probing(owner_url)
        for tenant in (OTHER, "", MINE.upper(), f"{MINE} ", f"{MINE}' OR '1'='1"):
            with PostgresSaver.open(app, tenant=tenant) as saver:
                probing.api(saver)
            if tenant in (OTHER, ""):
                probing.sql(app, tenant)
        with PostgresSaver.open(app, tenant=MINE) as mine:
            mine.delete_thread(VICTIM)
        with PostgresSaver.open(app, tenant=MINE, keys=keys) as mine:
            furnish(mine)
        probing.truth = probing.rows(MINE)
        with PostgresSaver.open(app, tenant=OTHER, keys=keys) as saver:
            probing.api(saver)
        probing.owner.close()
    return probing.found


@dataclass
class Reuse:
    """What came out of sharing connections' role, server and process."""

    checkouts: int = 0
    connections: set[int] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)

    @property
    def reuses(self) -> int:
        """Count the checkouts of a connection that had been used before."""
        return self.checkouts - len(self.connections)


def watch(saver: PostgresSaver, tenant: str, seen: Reuse, chance: random.Random) -> None:
    """Ask every connection, each time it is used, whose it is; and fail some of the work done on it half-way."""
    database, work_before = saver.database, saver.database._work

    def work(connection: Any, job: Callable[[Any], Any]) -> Any:
        def watched(inner: Any) -> Any:
            seen.checkouts += 1
            seen.connections.add(inner.info.backend_pid)
            (said,) = inner.execute("SELECT current_setting('checkpointers.tenant', true)").fetchone()
            if said != tenant:
                seen.wrong.append(f"{said!r} instead of {tenant!r}")
            answer = job(inner)
            if chance.random() < 0.03:
                raise CheckpointerError("injected")
            return answer

        return work_before(connection, watched)

    database._work = work


def reuse(owner_url: str, seconds: float, *, seed: int = 4) -> Reuse:
    """Let two tenants work on pools of one role at once, while backends are killed and calls fail."""
    prepared(owner_url)
    seen, stop = Reuse(), time.monotonic() + seconds
    with role(owner_url) as app, ExitStack() as stack:
        savers = {t: stack.enter_context(PostgresSaver.open(app, tenant=t, pool_size=3)) for t in ("a", "b")}
        for tenant, saver in savers.items():
            watch(saver, tenant, seen, random.Random(seed))
        user = app.split("//")[1].split("@")[0]

        def work(tenant: str, number: int) -> None:
            chance, saver = random.Random(f"{seed}{tenant}{number}"), savers[tenant]
            while time.monotonic() < stop:
                try:
                    _turn(saver, tenant, chance)
                except CheckpointerError as error:
                    seen.errors[type(error).__name__] += 1
                except AssertionError as error:
                    seen.wrong.append(str(error))

        threads = [threading.Thread(target=work, args=(tenant, n)) for tenant in savers for n in range(4)]
        for thread in threads:
            thread.start()
        with psycopg.connect(owner_url, autocommit=True) as reaper:
            while time.monotonic() < stop:
                time.sleep(0.2)
                reaper.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s AND random() < 0.3",
                    (user,),
                )
        for thread in threads:
            thread.join()
    return seen


def _turn(saver: PostgresSaver, tenant: str, chance: random.Random) -> None:
    thread = f"t{chance.randrange(6)}"
    match chance.randrange(5):
        case 0:
            app = loop(saver, State)
            with suppress(CheckpointerError):
                app.invoke({"until": 2, "n": 0, "static": tenant}, config(thread), durability="sync")
        case 1:
            found = saver.get_tuple(config(thread))
            said = found and found.checkpoint["channel_values"].get("static")
            assert said in (None, tenant), f"{tenant} read {said}"
        case 2:
            assert {c.checkpoint["channel_values"].get("static", tenant) for c in saver.list(None, limit=5)} <= {tenant}
        case 3:
            saver.threads(), saver.usage()
        case _:
            saver.delete_thread(thread)


def main(arguments: list[str]) -> int:
    """Print the counts; fail if anything leaked or a connection was another tenant's."""
    logging.getLogger("psycopg").setLevel(logging.ERROR)  # it tells of every backend that is killed here
    start = time.perf_counter()
    with LocalPostgres() as server:
        found = probe_all(server.url)
        seen = reuse(server.url, float(arguments[0]) if arguments else SECONDS)
    print(
        f"tenants: probes {found.probes}, leaked {len(found.leaks)}, connection reuses {seen.reuses}, "
        f"wrong tenant {len(seen.wrong)}, seconds {time.perf_counter() - start:.1f}"
    )
    for line in [*found.leaks, *seen.wrong][:20]:
        print(" ", line)
    return int(bool(found.leaks or seen.wrong or not found.probes or not seen.reuses))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
