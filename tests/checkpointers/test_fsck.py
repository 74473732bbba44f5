"""fsck finds whatever is not as it was written and accuses nobody else; recover gives the newest sound state back."""

from __future__ import annotations

import contextvars
import dataclasses
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import StateGraph
from langgraph.types import Command

from checkpointers import (
    IntegrityError,
    Keep,
    Keyring,
    Saver,
    ThreadExistsError,
    UnknownThreadError,
    adopt,
)
from checkpointers.database import migrations
from checkpointers.operations.checking import Finding
from checkpointers.operations.common import CHECKPOINT_COLUMNS, find_thread, records_of
from checkpointers.operations.write import sealed_row
from checkpointers.records import pack_record
from checkpointers.statements import Statement, Statements
from tests.checkpointers.graphs import DeltaState, State, config, loop, nested, review
from tests.checkpointers.test_storage import put
from tests.checkpointers.wild import difference
from tests.conftest import reopen

KEYS = Keyring.generate("first")
SEALED_ROWS = (
    "cp_threads", "cp_checkpoints", "cp_heads", "cp_writes", "cp_elements", "cp_keys", "cp_effects", "cp_bodies", "cp_names",
)  # fmt: skip
PRIMARY = {
    "cp_names": ("name_key",), "cp_threads": ("thread",), "cp_leases": ("thread",), "cp_keys": ("thread",),
    "cp_checkpoints": ("thread", "ns", "step"), "cp_heads": ("thread", "ns"),
    "cp_writes": ("thread", "ns", "checkpoint", "task"), "cp_elements": ("thread", "channel", "n"),
    "cp_effects": ("thread", "id"), "cp_bodies": ("thread", "hash", "n"),
}  # fmt: skip
COLUMNS = {
    table: [line.split()[0] for line in body.splitlines() if line.startswith("    ") and line.split()[0].islower()]
    for _, script in migrations("sqlite")
    for table, body in re.findall(r"CREATE TABLE (cp_\w+) \((.*?)\n\)", script, re.DOTALL)
}
for _, script in migrations("sqlite"):
    for table, column in re.findall(r"ALTER TABLE (cp_\w+) ADD COLUMN (\w+)", script):
        COLUMNS[table].append(column)
STRANGER = 2**62 - 57


def ask(saver: Saver, sql: str, *params: Any) -> list[Any]:
    """Do something to a database that no saver would."""

    def asked() -> Statements[Any]:
        return (yield Statement(sql, params))

    return list(saver.database.exclusive(asked))


def failing(saver: Saver) -> Any:
    def fail(state: Any) -> Any:
        raise ValueError("the till is empty")

    builder = StateGraph(State)
    builder.add_node("fail", fail)
    builder.add_edge("__start__", "fail")
    return builder.compile(checkpointer=saver)


def furnish(saver: Saver, *, until: int = 5) -> dict[str, Any]:
    """Make threads of every shape; give the graph of each."""
    apps = {
        "plain": loop(saver), "delta": loop(saver, DeltaState), "long": loop(saver), "review": review(saver),
        "nested": nested(saver, persistent=True), "inside": nested(saver), "failed": failing(saver), "forked": loop(saver),
    }  # fmt: skip
    apps["plain"].invoke({"until": until, "n": 0}, config("plain") | {"metadata": {"who": "ada", "run_id": "r1"}})
    apps["delta"].invoke({"until": until + 4, "n": 0}, config("delta"))
    apps["long"].invoke({"until": 130, "n": 0}, config("long"), durability="exit")
    for name in ("review", "nested", "inside"):
        apps[name].invoke({}, config(name), durability="sync")
    with pytest.raises(ValueError, match="till"):
        apps["failed"].invoke({}, config("failed"))
    fork(apps["forked"], "forked")
    for name in ("plain", "delta", "nested"):
        enter(saver, name)
    return apps


def enter(saver: Saver, thread: str) -> None:
    """Put into the ledger what was done, what is in doubt, and a body that a record names."""
    for number in range(4):
        saver.ledger.claim(thread, f"send {number}", {"to": "ada"})
    named = saver.ledger.keep(thread, f"{thread} ".encode() * 100_000)
    for number in range(2):
        entry = saver.ledger.get(thread, f"send {number}")
        assert entry is not None
        saver.ledger.change(entry, status="done", record={"body": named}, bodies=[b"said with it"])


def fork(app: Any, thread: str) -> None:
    app.invoke({"until": 3, "n": 0}, config(thread))
    old = list(app.get_state_history(config(thread)))[2]
    app.invoke(None, app.update_state(old.config, {"log": ["edited"]}, as_node="work"))


# What is sound is not accused.


def pruned(saver: Saver, apps: dict[str, Any], tmp_path: Path) -> None:
    saver.prune(list(apps))


def retained(saver: Saver, apps: dict[str, Any], tmp_path: Path) -> None:
    saver.pin("delta", 4)
    saver.retain(Keep(last=2))


def runs_deleted(saver: Saver, apps: dict[str, Any], tmp_path: Path) -> None:
    apps["plain"].invoke({"until": 8}, config("plain") | {"metadata": {"run_id": "r2"}})
    saver.delete_for_runs(["r1"])
    assert saver.steps("plain")


def copied(saver: Saver, apps: dict[str, Any], tmp_path: Path) -> None:
    for name in apps:
        saver.copy_thread(name, f"{name} copy")
    saver.delete_thread("plain")


def adopted(saver: Saver, apps: dict[str, Any], tmp_path: Path) -> None:
    source = InMemorySaver()
    for schema in (State, DeltaState):
        loop(source, schema).invoke({"until": 4, "n": 0}, config(f"adopted {schema.__name__}"))
    review(source).invoke({}, config("adopted review"))
    nested(source).invoke({}, config("adopted nested"), durability="sync")
    assert adopt(source, saver).threads == 4


def leased(saver: Saver, apps: dict[str, Any], tmp_path: Path) -> None:
    with saver.lease("plain"):
        apps["plain"].invoke({"until": 8}, config("plain"))
        assert saver.fsck() == []
    with saver.lease("nobody has written this"):
        assert saver.fsck() == []
    other = contextvars.copy_context()
    other.run(saver.lease("delta").__enter__)
    other.run(apps["delta"].invoke, {"until": 12}, config("delta"))
    with saver.lease("delta", if_busy="rollback"):
        assert saver.fsck() == []
    assert apps["delta"].get_state(config("delta")).values["n"] == 9


def diverged(saver: Saver, apps: dict[str, Any], tmp_path: Path) -> None:
    saver.on_conflict = "fork"
    app, before = loop(saver), saver.get_tuple(config("plain"))
    app.invoke({"until": 7}, config("plain"))
    saver.put(before.config, {**before.checkpoint, "id": "1f000000-0000-6000-8000-000000000000"}, before.metadata, {})
    assert len(saver.steps("plain")) > 8


def answered(saver: Saver, apps: dict[str, Any], tmp_path: Path) -> None:
    for name in ("nested", "inside"):
        apps[name].invoke(Command(resume="yes"), config(name), durability="sync")
    app = apps["review"]
    app.invoke(Command(resume={app.get_state(config("review")).interrupts[0].id: "one"}), config("review"))


def rotated(saver: Saver, apps: dict[str, Any], tmp_path: Path) -> None:
    ring = saver.vaults.keyring
    saver.vaults.keyring = ring.with_new("second") if ring else KEYS
    saver.vaults.migrating = ring is None
    done = saver.rotate()
    assert (done.rewrapped, done.encrypted) == ((len(apps), 0) if ring else (0, len(apps)))


def labelled(saver: Saver, apps: dict[str, Any], tmp_path: Path) -> None:
    saver.tag("plain", "kept", "red")
    saver.pin("plain", 2)
    apps["plain"].update_state(config("plain"), {"log": ["by hand"]}, as_node="work")
    saver.put_writes(saver.get_tuple(config("delta")).config, [("log", [1])], "a task before its checkpoint")


@pytest.mark.slow
@pytest.mark.parametrize("keys", [None, KEYS], ids=["plain", "encrypted"])
@pytest.mark.parametrize(
    "deed", [pruned, retained, runs_deleted, copied, adopted, leased, diverged, answered, rotated, labelled],
)  # fmt: skip
def test_a_sound_database_has_no_findings(url: str, tmp_path: Path, deed: Callable[..., None], keys: Any) -> None:
    """Whatever was done to it, by whichever saver; and it goes on from there."""
    with reopen(url, keys=keys) as saver:
        apps = furnish(saver)
        assert saver.fsck() == []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            deed(saver, apps, tmp_path)
        assert saver.fsck() == []
        ring, migrating = saver.vaults.keyring, saver.vaults.migrating
    with reopen(url, keys=ring, migrating=migrating) as saver:
        assert saver.fsck() == []
        loop(saver, DeltaState).invoke({"until": 15}, config("delta"))
        assert saver.fsck("delta") == saver.fsck("nobody") == []


# What is not sound is found, in its own thread.


@pytest.fixture(scope="module")
def stocks(tmp_path_factory: pytest.TempPathFactory, postgres_server: str) -> Iterator[dict[Any, str]]:
    """Give the addresses of databases with threads of every shape, each in a copy; whoever damages one mends it."""
    found: dict[Any, str] = {}
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        for keys in (None, KEYS):
            name = f"fsck_{'sealed' if keys else 'plain'}_{tmp_path_factory.getbasetemp().name.replace('-', '_')}"
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
            connection.execute(f'CREATE DATABASE "{name}"')
            folder = tmp_path_factory.mktemp(name)
            for backend, url in (
                ("sqlite", f"sqlite:///{folder}/a.db"),
                ("postgres", postgres_server.rsplit("/", 1)[0] + f"/{name}"),
            ):
                found[backend, keys is not None] = url
                with reopen(url, keys=keys) as saver:
                    furnish(saver, until=3)
                    saver.copy_thread("plain", "copy")
                    saver.prune(["copy"])
        yield found
        for (backend, _), url in found.items():
            if backend == "postgres":
                connection.execute(f'DROP DATABASE "{url.rsplit("/", 1)[1]}" WITH (FORCE)')


@pytest.fixture(params=[False, True], ids=["plain", "encrypted"])
def stock(request: pytest.FixtureRequest, backend: str, stocks: dict[Any, str]) -> Iterator[Saver]:
    """Open one of them, and see afterwards that nothing of it changed."""
    with reopen(stocks[backend, request.param], keys=KEYS if request.param else None) as saver:
        yield saver
        assert saver.fsck() == []


def rows_of(saver: Saver, table: str) -> list[dict[str, Any]]:
    """Read a table, in the order of its key."""
    names = COLUMNS[table]
    found = ask(saver, f"SELECT {', '.join(names)} FROM {table} ORDER BY {', '.join(PRIMARY[table])}")
    return [dict(zip(names, row, strict=True)) for row in found]


def replace_row(saver: Saver, table: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
    """Put one row in the place of another; the identity of a name too."""
    if old is not None:
        where = " AND ".join(f"{name} = ?" for name in PRIMARY[table])
        ask(saver, f"DELETE FROM {table} WHERE {where}", *(old[name] for name in PRIMARY[table]))
    if new is not None:
        own = "OVERRIDING SYSTEM VALUE " if table == "cp_names" and saver.database.dialect == "postgres" else ""
        sql = f"INSERT INTO {table} ({', '.join(new)}) {own}VALUES ({', '.join('?' * len(new))})"
        ask(saver, sql, *new.values())


@contextmanager
def damaged(saver: Saver, table: str, *pairs: tuple[dict[str, Any] | None, dict[str, Any] | None]) -> Iterator[None]:
    """Replace rows, and put back what was there."""
    for old, _ in pairs:
        replace_row(saver, table, old, None)
    for _, new in pairs:
        replace_row(saver, table, None, new)
    try:
        yield
    finally:
        for _, new in pairs:
            replace_row(saver, table, new, None)
        for old, _ in pairs:
            replace_row(saver, table, None, old)


def changes(value: Any, column: str) -> list[Any]:
    """Give what a value may become: a bit flipped in the front and in the back, cut short, gone."""
    if isinstance(value, int):
        return [value ^ 1, value ^ (1 << 10)]
    if value is None:
        return [b"t" + b"x" * 16]
    raw = bytes(value)
    flipped = [raw[:at] + bytes([raw[at] ^ 4]) + raw[at + 1 :] for at in {len(raw) // 2, len(raw) - 1} if raw]
    nothing = [None] if column == "parent" else []
    return [*flipped, raw[:-1] if raw else b"x", *nothing]


def spread(rows: list[Any], count: int) -> list[Any]:
    """Choose some rows, from the first to the last."""
    return [rows[len(rows) * place // count] for place in range(min(count, len(rows)))]


def owners(saver: Saver) -> dict[int, str]:
    return {saver._tools().key(info.thread): info.thread for info in saver.threads()}


def steps_of(saver: Saver) -> dict[tuple[int, bytes, bytes], int]:
    """Say which step each checkpoint is."""
    return {
        (row["thread"], bytes(row["ns"]), bytes(row["id"])): row["step"] for row in rows_of(saver, "cp_checkpoints")
    }


def accused(findings: list[Finding], names: dict[int, str], *keys: int) -> set[str]:
    """See that somebody is accused, and nobody but these threads; give the names used."""
    said = {found.thread for found in findings}
    allowed = {name for key in keys for name in (names.get(key, f"#{key}"), f"#{key}")}
    assert said, "nothing was found"
    assert said <= allowed, (said - allowed, findings)
    return said


@pytest.mark.parametrize("table", SEALED_ROWS)
def test_a_changed_column_is_found(stock: Saver, table: str) -> None:
    """Every column of every table: a finding that names the thread, and the step where there is one."""
    names, steps, tried = owners(stock), steps_of(stock), 0
    rows = rows_of(stock, table)
    taken = {tuple(bytes(v) if isinstance(v, bytes) else v for v in map(row.get, PRIMARY[table])) for row in rows}
    for row in spread(rows, 2):
        for column in COLUMNS[table]:
            for value in [*changes(row[column], column), *([b"\xff\xfe"] if column == "name" else ())]:
                new = row | {column: value}
                if tuple(map(new.get, PRIMARY[table])) in taken and column in PRIMARY[table]:
                    continue
                tried += 1
                with damaged(stock, table, (row, new)):
                    found = stock.fsck()
                    check_changed(found, names, steps, table=table, rows=(row, new))
    assert tried or not rows


def check_changed(
    found: list[Finding], names: dict[int, str], steps: dict[Any, int], *, table: str, rows: tuple[Any, Any]
) -> None:
    """Look at the findings about one row that was changed."""
    row, new = rows
    if table == "cp_names":
        assert found, rows
        assert found[0].thread == "", found
        return
    said = accused(found, names, row["thread"], new["thread"])
    told = {one.step for one in found}
    if table not in ("cp_threads", "cp_keys"):
        assert names[row["thread"]] in said, (said, rows)
    if table == "cp_checkpoints":
        assert {row["step"], new["step"], row["step"] + 1} & told, (found, rows)
    if table == "cp_writes":
        assert steps[row["thread"], bytes(row["ns"]), bytes(row["checkpoint"])] in told, (found, rows)
    if table == "cp_elements":
        assert told - {None}, (found, rows)


@pytest.mark.parametrize("table", SEALED_ROWS[:-1])
def test_a_dropped_row_is_found(stock: Saver, table: str) -> None:
    """Any row of any table: its thread is named, no other is."""
    names = owners(stock)
    rows = rows_of(stock, table)
    tips = [row for row in rows if table == "cp_checkpoints" and names[row["thread"]] == "forked"]
    for row in [*spread(rows, 12), *tips]:
        with damaged(stock, table, (row, None)):
            found = stock.fsck()
            accused(found, names, row["thread"])
            if table not in ("cp_threads", "cp_keys"):
                assert {one.thread for one in found} == {names[row["thread"]]}
            (named,) = {one.thread for one in stock.fsck(names[row["thread"]])}
            assert named == names[row["thread"]]


MOVABLE = ["cp_checkpoints", "cp_writes", "cp_elements", "cp_heads", "cp_effects", "cp_bodies"]


@pytest.mark.parametrize("table", MOVABLE)
def test_a_moved_row_is_found(stock: Saver, table: str) -> None:
    """A row that stands in another thread, in another place of its own, or in a thread that is not there."""
    names = owners(stock)
    rows = rows_of(stock, table)
    for row, other in zip(spread(rows, 4), spread(rows, 4)[::-1], strict=True):
        places = [{"thread": other["thread"]}, {"thread": STRANGER}]
        if table == "cp_elements":
            places.append({"n": 10_000})
        elif table == "cp_writes":
            places.append({"task": b"t another task"})
        elif table in ("cp_effects", "cp_bodies"):
            places.append({{"cp_effects": "id", "cp_bodies": "hash"}[table]: b"another print   "})
        else:
            places += [{"ns": b"tanother", "step": 9_999}]
        for place in places:
            new = row | place
            if any(all(new[name] == one[name] for name in PRIMARY[table]) for one in rows) or new == row:
                continue
            if table == "cp_checkpoints" and any(
                one is not row and all(one[name] == new[name] for name in ("thread", "ns", "id")) for one in rows
            ):
                continue
            with damaged(stock, table, (row, new)):
                accused(stock.fsck(), names, row["thread"], new["thread"])
            with damaged(stock, table, (None, new)):
                if table != "cp_checkpoints" or new["thread"] != row["thread"]:
                    accused(stock.fsck(), names, new["thread"])


@pytest.mark.parametrize("table", [*MOVABLE, "cp_threads", "cp_keys"])
def test_two_swapped_rows_are_found(stock: Saver, table: str) -> None:
    """Two rows that stand in one another's places, in one thread and in two."""
    names, key = owners(stock), PRIMARY[table]
    rows = rows_of(stock, table)
    for first in spread(rows, 4):
        others = [row for row in rows if row is not first]
        inside = [row for row in others if row["thread"] == first["thread"]][:1]
        for second in [*inside, *[row for row in others if row["thread"] != first["thread"]][:1]]:
            one = {name: (first if name in (*key, "id") else second)[name] for name in COLUMNS[table]}
            two = {name: (second if name in (*key, "id") else first)[name] for name in COLUMNS[table]}
            if one == first:
                continue
            with damaged(stock, table, (first, one), (second, two)):
                accused(stock.fsck(), names, first["thread"], second["thread"])


def test_a_dropped_name_is_found(stock: Saver) -> None:
    """A name is of the whole database: each thread that used it is named, the others stay sound."""
    rows = [row for row in rows_of(stock, "cp_names") if bytes(row["name"]) in (b"other", b"answers")]
    for row in rows:
        with damaged(stock, "cp_names", (row, None)):
            saver = reopened(stock)
            users = {"other": {"delta"}, "answers": {"review", "nested", "inside"}}[bytes(row["name"]).decode()]
            assert {found.thread for found in saver.fsck()} <= users
            assert {found.thread for found in stock.fsck()} <= users
            assert stock.fsck()


def test_a_parent_that_is_another_one_is_found(stock: Saver) -> None:
    """A checkpoint that is sound by itself, but is not the one that the next was made from."""
    tools, key = stock._tools(), stock._tools().key("plain")
    row = [row for row in rows_of(stock, "cp_checkpoints") if row["thread"] == key][1]
    columns = [row[name] for name in CHECKPOINT_COLUMNS]
    thread = stock.database.read(lambda: find_thread(tools, "plain"))
    (record,) = stock.database.read(lambda: records_of(tools, thread, [columns]))
    body = pack_record(dataclasses.replace(record, ts="2020-01-01T00:00:00+00:00"), tools.names)
    changed = sealed_row(thread, record, flags=row["flags"], tally=row["tally"], metadata=row["metadata"], body=body)
    with damaged(stock, "cp_checkpoints", (row, row | dict(zip(CHECKPOINT_COLUMNS, changed, strict=True)))):
        (found,) = stock.fsck()
        assert (found.thread, found.step) == ("plain", row["step"] + 1)
        assert found.what == "its parent is not the one that it was made from"


def reopened(saver: Saver) -> Saver:
    """Open another saver on the same database, which has learned nothing."""
    return type(saver)(saver.database, keys=saver.vaults.keyring)


def test_a_changed_lease_is_never_an_error_of_its_own(stock: Saver) -> None:
    """A lease says who may write, not what is stored: whatever stands there, fsck and the others go on."""
    with stock.lease("plain", owner="somebody"):
        (row,) = rows_of(stock, "cp_leases")
        for column in COLUMNS["cp_leases"][1:]:
            for value in [*changes(row[column], column), *([b"\xff\xfe"] if column == "owner" else ())]:
                with damaged(stock, "cp_leases", (row, row | {column: value})):
                    assert {found.thread for found in stock.fsck()} <= {"plain"}
                    assert len(stock.threads()) == 9


# What is sound is saved.


def oracle(saver: Saver, thread: str) -> dict[int, Any]:
    """Say what each step of a thread is, before anything happens to it."""
    app = loop(saver, DeltaState) if thread == "delta" else loop(saver)
    number = {step.id: step.number for step in saver.steps(thread)}
    return {number[s.config["configurable"]["checkpoint_id"]]: s for s in app.get_state_history(config(thread))}


def newest_readable(saver: Saver, thread: str, told: dict[int, Any]) -> int | None:
    """Say which is the newest step that another saver can still read as it was."""
    app = loop(reopened(saver), DeltaState if thread == "delta" else State)
    for step in sorted(told, reverse=True):
        try:
            if difference(app.get_state(told[step].config).values, told[step].values) is None:
                return step
        except IntegrityError:
            continue
    return None


@pytest.mark.parametrize("thread", ["plain", "delta"])
@pytest.mark.parametrize("table", ["cp_checkpoints", "cp_writes", "cp_elements"])
def test_the_newest_sound_state_is_recovered(stock: Saver, thread: str, table: str) -> None:
    """Whichever row is gone or damaged: the state is what it was at that step, and a run goes on from it."""
    key, told = stock._tools().key(thread), oracle(stock, thread)
    build = (lambda one: loop(one, DeltaState)) if thread == "delta" else loop
    rows = [row for row in rows_of(stock, table) if row["thread"] == key]
    for number, row in enumerate(spread(rows, 8)):
        new = row | {"body": bytes(row["body"])[:-2] + b"??"} if number % 2 else None
        with damaged(stock, table, (row, new)):
            before = [same_rows(rows_of(stock, name)) for name in SEALED_ROWS[:-1]]
            expected = newest_readable(stock, thread, told)
            if expected is None:
                with pytest.raises(IntegrityError, match="none of its checkpoints is sound"):
                    stock.recover(thread, into="saved")
                continue
            step = stock.recover(thread, into="saved")
            try:
                sounds = {found.sound for found in stock.fsck(thread)}
                assert (step, sounds) == (expected, {expected}), (row, step, expected)
                assert stock.fsck("saved") == []
                found = build(stock).get_state(build(stock).get_state(config("saved")).config)
                assert difference(found.values, told[step].values) is None
                assert (found.next, found.metadata["step"]) == (told[step].next, told[step].metadata["step"])
                done = build(stock).invoke({"until": 11}, config("saved"))
                assert [entry["id"] for entry in done["log"]][: len(done["log"])] == list(range(11))
                assert stock.fsck("saved") == []
                with pytest.raises(ThreadExistsError, match="saved"):
                    stock.recover(thread, into="saved")
            finally:
                stock.delete_thread("saved")
            assert before == [same_rows(rows_of(stock, name)) for name in SEALED_ROWS[:-1]]


def same_rows(rows: list[dict[str, Any]]) -> list[Any]:
    return [tuple(bytes(v) if isinstance(v, memoryview | bytes) else v for v in row.values()) for row in rows]


def test_what_waited_still_waits(stock: Saver) -> None:
    """Pending writes and questions are kept, in subgraphs too, and are answered in the recovered thread."""
    for name, build in (("review", review), ("nested", lambda s: nested(s, persistent=True)), ("inside", nested)):
        before = build(stock).get_state(config(name), subgraphs=True)
        (row, *_) = [row for row in rows_of(stock, "cp_threads") if row["thread"] == stock._tools().key(name)]
        with damaged(stock, "cp_threads", (row, None)):
            try:
                stock.recover(name, into="saved")
                app = build(stock)
                after = app.get_state(config("saved"), subgraphs=True)
                assert [i.value for i in after.interrupts] == [i.value for i in before.interrupts]
                assert [t.name for t in after.tasks] == [t.name for t in before.tasks]
                assert stock.fsck("saved") == []
                assert next(i.status for i in stock.threads() if i.thread == "saved") == "waiting"
                done = app.invoke(Command(resume={i.id: "yes" for i in after.interrupts}), config("saved"))
                assert done["answers"] == ["yes"] * len(after.interrupts) if name == "review" else done["log"]
                assert stock.fsck("saved") == []
            finally:
                stock.delete_thread("saved")


def test_branches_labels_and_failures_are_recovered(stock: Saver) -> None:
    """What was beside, tagged or failed is so in the recovered thread too."""
    for name, build in (("forked", loop), ("failed", failing), ("long", loop), ("copy", loop)):
        stock.tag(name, "kept")
        before = build(stock).get_state(config(name))
        try:
            step = stock.recover(name, into="saved")
            one, two = (next(i for i in stock.threads() if i.thread == n) for n in (name, "saved"))
            assert (one.status, one.step, one.checkpoints, one.tags) == (two.status, step, two.checkpoints, two.tags)
            assert one.bytes == two.bytes
            after = build(stock).get_state(config("saved"))
            assert difference(after.values, before.values) is None
            assert [t.error for t in after.tasks] == [t.error for t in before.tasks]
            assert len(stock.steps("saved")) == len(stock.steps(name))
            assert stock.fsck("saved") == []
        finally:
            stock.delete_thread("saved")
            stock.untag(name, "kept")


def test_nothing_sound_is_said_and_leaves_nothing(saver: Saver) -> None:
    """Without one sound checkpoint there is no thread to make."""
    furnish(saver)
    for thread in ("long", "inside"):
        ask(saver, "DELETE FROM cp_elements WHERE thread = ?", saver._tools().key(thread))
        ask(saver, "DELETE FROM cp_writes WHERE thread = ?", saver._tools().key(thread))
        roots = "DELETE FROM cp_checkpoints WHERE thread = ? AND ns = ?"
        ask(saver, roots, saver._tools().key(thread), b"t")
        with pytest.raises(IntegrityError, match=f"thread '{thread}': none of its checkpoints is sound"):
            saver.recover(thread, into="saved")
        assert "saved" not in {info.thread for info in saver.threads()}
        assert saver.fsck("saved") == []
    with pytest.raises(UnknownThreadError, match="nobody"):
        saver.recover("nobody", into="saved")
    with pytest.raises(ThreadExistsError, match="delta"):
        saver.recover("review", into="delta")
    with pytest.raises(ThreadExistsError, match="delta"):
        saver.recover("delta", into="delta")


def test_a_ledger_without_steps_is_recovered(saver: Saver) -> None:
    """A thread that has nothing else is sound; and what was done stays on record where no step is."""
    enter(saver, "only")
    kept = saver.ledger.entries("only"), saver.ledger.bodies("only")
    assert saver.recover("only", into="same") == 0
    furnish(saver)
    for thread in ("plain", "nested"):
        saver.pin(thread, 1)
        key = saver._tools().key(thread)
        ask(saver, "DELETE FROM cp_elements WHERE thread = ?", key)
        ask(saver, "DELETE FROM cp_checkpoints WHERE thread = ? AND ns = ?", key, b"t")
        told = saver.ledger.entries(thread), saver.ledger.bodies(thread)
        assert saver.recover(thread, into=f"{thread} saved") == 0
        for source, name, (entries, bodies) in (("only", "same", kept), (thread, f"{thread} saved", told)):
            own = [dataclasses.replace(entry, thread=source) for entry in saver.ledger.entries(name)]
            assert (own, saver.ledger.bodies(name)) == (entries, bodies)
            assert saver.fsck(name) == []
            assert saver.steps(name) == []
    last = loop(saver)
    last.invoke({"until": 1, "n": 0}, config("plain saved"))
    assert last.get_state(config("plain saved")).values["n"] == 1
    assert saver.fsck("plain saved") == []


def test_a_thread_of_which_all_was_removed_is_recovered(saver: Saver) -> None:
    """Nothing of it is damaged: its own row is all that there is while it is held."""
    with saver.lease("t"):
        loop(saver).invoke({"until": 1, "n": 0}, config())
        saver.delete_thread("t")
        assert saver.fsck("t") == []
        assert saver.recover("t", into="again") == 0
    assert saver.fsck("again") == []


def test_recovering_onto_rows_that_have_no_thread_is_refused(saver: Saver) -> None:
    """A name under which rows are left is not free."""
    furnish(saver)
    for name in ("review", "plain"):
        ask(saver, "DELETE FROM cp_threads WHERE thread = ?", saver._tools().key(name))
    with pytest.raises(ThreadExistsError, match="plain"):
        saver.recover("delta", into="plain")
    with pytest.raises(ThreadExistsError, match="review"):
        saver.recover("review", into="review")
    assert saver.fsck("review")[0].what == "its own row is missing"


def test_async_twins(stock: Saver) -> None:
    """The same answers in an event loop."""
    import asyncio

    async def both() -> None:
        assert await stock.afsck() == []
        assert await stock.arecover("delta", into="saved") == stock.steps("delta")[-1].number
        await stock.adelete_thread("saved")

    asyncio.run(both())


@pytest.mark.parametrize("damage", [0, 1])
def test_damage_that_lies_beside_is_in_nobodys_way(saver: Saver, damage: int) -> None:
    """Elements are read by ranges; one that is damaged there concerns those alone that need it, and fsck agrees."""
    entries = [f"entry {number} " * 12 for number in range(4)]
    places = {1: put(saver, {"x": entries[:2]})}
    places[2] = put(saver, {"x": entries[:3]}, after=places[1], version=2)
    places[3] = put(saver, {"x": [entries[1 - damage], entries[3]]}, after=places[1], version=2)
    row = next(row for row in rows_of(saver, "cp_elements") if row["n"] == damage)
    replace_row(saver, "cp_elements", row, row | {"body": bytes(row["body"])[:-2] + b"??"})
    again = reopened(saver)
    assert again.get_tuple(places[3]).checkpoint["channel_values"]["x"] == [entries[1 - damage], entries[3]]  # type: ignore[union-attr]
    for step in (1, 2):
        with pytest.raises(IntegrityError, match=f"t@{step}: element {damage} of channel 'x'"):
            again.get_tuple(places[step])
    assert {found.sound for found in again.fsck()} == {3}
    after = put(again, {"x": [entries[1 - damage], entries[3], "more"]}, after=places[3], version=3)
    assert again.get_tuple(after).checkpoint["channel_values"]["x"][-1] == "more"  # type: ignore[union-attr]


@pytest.mark.parametrize("damage", [0, 1])
def test_a_damaged_recipe_is_in_nobodys_way(saver: Saver, damage: int) -> None:
    """So it is with what says where the elements of a value lie."""
    entries = [f"entry {number} " * 12 for number in range(80)]
    first = put(saver, {"x": entries})
    halves = [entries[::2], entries[1::2]]
    places = [put(reopened(saver), {"x": half}, after=first, version=2) for half in halves]  # each a recipe of its own
    row = next(row for row in rows_of(saver, "cp_elements") if row["channel"] < 0 and row["n"] == damage)
    replace_row(saver, "cp_elements", row, row | {"body": bytes(row["body"])[:-2] + b"??"})
    again = reopened(saver)
    assert again.get_tuple(places[1 - damage]).checkpoint["channel_values"]["x"] == halves[1 - damage]  # type: ignore[union-attr]
    with pytest.raises(IntegrityError, match=rf"element {damage} of channel '\(recipes\)'"):
        again.get_tuple(places[damage])
