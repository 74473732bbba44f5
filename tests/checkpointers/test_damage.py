"""What is damaged is never read as something else: the bounded form of `python -m tests.proofs.corrupt`."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import ormsgpack
import pytest

from checkpointers import (
    IncompleteRecordError,
    IntegrityError,
    Keep,
    NotADatabaseError,
    Saver,
    SqliteSaver,
    sqlite_file,
)
from checkpointers.codec import packed
from checkpointers.effects import hash_of
from checkpointers.operations.common import HEAD
from checkpointers.sealing import Digests, write_place
from checkpointers.statements import Many, Request, Rows, Statement, Together
from tests.checkpointers.graphs import config, loop, nested, review
from tests.checkpointers.test_fsck import ask
from tests.checkpointers.test_storage import put
from tests.proofs import corrupt, forged, retyped

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.slow
def test_damage_is_never_silent(postgres_url: str) -> None:
    """F14: rows and bits of a file, rows of Postgres; a damaged thread is an error, the others read as before."""
    seed = random.randrange(1 << 32)
    for result in (*corrupt.sqlite(80, seed), corrupt.postgres(postgres_url, 20, seed)):
        assert result.tried > 15
        assert (result.silent, result.untyped, result.others) == ([], [], []), seed


Look = Callable[[SqliteSaver, list[str]], Any]
MISLED: list[tuple[str, str, int, Look]] = [
    ("cp_effects.id", "thread = ? AND id = ?", 1, lambda saver, ids: saver.ledger.get("t", "send 0")),
    ("cp_bodies.hash", "AND hash = ?", 1, lambda saver, ids: saver.ledger.body("t", hash_of(b"0" * 9), 2, 5)),
    ("cp_elements.channel", "AND channel = ?", 1, lambda saver, ids: saver.get_channel(config(), "log")),
    ("cp_checkpoints.id", "ns = ? AND id = ?", 2, lambda saver, ids: saver.get_tuple(config(checkpoint_id=ids[2]))),
    ("cp_checkpoints.step", "ns = ? AND step = ?", 2, lambda saver, ids: saver.get_tuple(config())),
    ("cp_checkpoints.id", "AND id = ?", -1, lambda saver, ids: list(saver.list(config(checkpoint_id=ids[2])))),
    ("cp_checkpoints.id", "AND id = ?", 1, lambda saver, ids: list(saver.list(config(), before=config(checkpoint_id=ids[2])))),
    ("cp_checkpoints.id", "ns = ? AND id = ?", 2, lambda saver, ids: saver.steps("t", newest=1)),
    ("cp_writes.task", "AND task = ?", 3, lambda saver, ids: again(saver, ids[0])),
]  # fmt: skip


def again(saver: SqliteSaver, id_: str) -> None:
    saver.put_writes(config(checkpoint_id=id_), [("n", 4)], "task one")


@pytest.mark.parametrize(("column", "sql", "at", "look"), MISLED)
def test_an_index_that_leads_to_another_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str, sql: str, at: int, look: Look
) -> None:
    """A row may be sound and still not the one that was asked for: a search in a damaged index comes to any."""
    with SqliteSaver.open(tmp_path / "a.db") as saver:
        loop(saver).invoke({"until": 6, "n": 0}, config())
        for number in range(2):
            saver.ledger.claim("t", f"send {number}", {})
            saver.ledger.keep("t", str(number).encode() * 9)
        ids = [step.id for step in saver.steps("t")]
        for task in ("task one", "task two"):
            saver.put_writes(config(checkpoint_id=ids[0]), [("n", 3)], task)
    truly, (table, name), led = sqlite_file._execute, column.split("."), list[Any]()

    def misled(connection: sqlite3.Connection, request: Request) -> Rows:
        if isinstance(request, Together):
            return [misled(connection, one) for one in request.statements]
        if isinstance(request, Statement) and HEAD in request.sql:
            ((head,),) = connection.execute("SELECT head FROM cp_threads").fetchall()
            request = Statement(request.sql.replace(HEAD, "?"), (*request.params[:-1], head))
        if not isinstance(request, Statement | Many) or sql not in request.sql or table not in request.sql:
            return truly(connection, request)
        every = [list(params) for params in (request.params if isinstance(request, Many) else [request.params])]
        for params in every:
            others = f"SELECT {name} FROM {table} WHERE {name} <> ? ORDER BY length({name}), {name} LIMIT 1"
            params[at] = connection.execute(others, (params[at],)).fetchone()[0]
        led.extend(every)
        return truly(connection, Many(request.sql, every))

    with SqliteSaver.open(tmp_path / "a.db") as saver:
        look(saver, ids)
    monkeypatch.setattr(sqlite_file, "_execute", misled)
    with SqliteSaver.open(tmp_path / "a.db") as saver, pytest.raises(IntegrityError):
        look(saver, ids)
    assert led


@pytest.mark.slow
@pytest.mark.parametrize("encrypted", [False, True])
def test_a_column_of_another_type(encrypted: bool) -> None:
    """The bounded form of `python -m tests.proofs.retyped`: one bit of a row's header makes a text of bytes."""
    count = retyped.prove(
        ("cp_checkpoints", "cp_heads", "cp_leases"), encrypted=encrypted, types=("a text", retyped.ALIKE, 0, 1 << 62)
    )
    assert count.tried > 25
    assert (count.silent, count.untyped, count.others) == ([], [], [])


@pytest.mark.parametrize("table", ["cp_threads", "cp_checkpoints", "cp_elements"])
def test_bytes_that_became_a_text_are_damage_of_one_thread(tmp_path: Path, table: str) -> None:
    """One bit does that, and SQLite says that all is well; they need not be a text, and another thread is another's."""
    with SqliteSaver.open(tmp_path / "a.db") as saver:
        for thread in ("hurt", "sound"):
            put(saver, {"x": [f"item {n} of {thread}" for n in range(9)]}, after=config(thread, checkpoint_ns=""))
        key = saver._tools().key("hurt")
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as base:
        base.execute(f"UPDATE {table} SET body = CAST(body AS TEXT) WHERE thread = ?", (key,))
        assert base.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    with SqliteSaver.open(tmp_path / "a.db") as saver:
        assert {finding.thread for finding in saver.fsck()} == {"hurt" if table != "cp_threads" else f"#{key}"}
        with pytest.raises(IntegrityError, match="hurt"):
            saver.get_tuple(config("hurt"))
        assert {info.thread for info in saver.threads()} >= {"sound"}
        assert saver.get_tuple(config("sound")) is not None
        put(saver, {"x": 2}, after=config("new", checkpoint_ns=""))


@pytest.mark.slow
def test_every_way_to_damage_is_tried() -> None:
    """The corruption is real: most of what is done to a row is noticed."""
    rows, _ = corrupt.sqlite(24, 1)
    assert rows.outcomes.get("no effect", 0) < rows.tried / 2


@pytest.mark.parametrize("more", [1, -1, 250])
def test_a_count_of_writes_that_is_off(saver: Saver, more: int) -> None:
    """Any number that nobody can have counted is damage, even where it would ask for no more rows than there are."""
    review(saver).invoke({"n": 0}, config())
    ask(saver, "UPDATE cp_checkpoints SET tally = tally + ? WHERE tally > 0", more)
    with pytest.raises(IntegrityError, match="its tally is not one"):
        saver.get_tuple(config())
    assert saver.fsck("t") != []


def test_the_head_of_a_subgraph_that_is_gone(saver: Saver) -> None:
    """A subgraph is not read as of its step before, because the row of its newest is gone."""
    nested(saver, persistent=True).invoke({"n": 0}, config())
    (ns,) = {step.ns for step in saver.steps("t", None) if step.ns}
    newest = max(step.number for step in saver.steps("t", None) if step.ns == ns)
    ask(saver, "DELETE FROM cp_checkpoints WHERE step = ?", newest)
    with pytest.raises(IncompleteRecordError):
        saver.get_tuple(config(checkpoint_ns=ns))


@pytest.mark.slow
def test_rows_that_anybody_can_seal_are_values_or_typed_errors() -> None:
    """The bounded form of `python -m tests.proofs.forged`: a digest that holds says nothing of what it seals."""
    count = forged.prove(40, 1)
    assert (count.tried, count.untyped.total(), count.others) == (40, 0, [])
    assert count.looks["typed"] > 40


ODD: list[Any] = [
    [],
    {},
    "x",
    7,
    None,
    [5, [[0, 1, b"\x02"]], None],
    [["path"]],
    ["path", [[0, 1, "x"]], None],
    ["path", [[0, {}, 1]], None],
]


@pytest.mark.parametrize("content", ODD, ids=repr)
def test_writes_of_another_form(saver: Saver, content: Any) -> None:
    """What this program never writes, under a digest that holds: an error of ours that names the step, and a finding."""
    review(saver).invoke({}, config())
    loop(saver).invoke({"until": 1, "n": 0}, config("other"))
    thread, ns, checkpoint, task, kinds = ask(
        saver, "SELECT thread, ns, checkpoint, task, kinds FROM cp_writes WHERE kinds > 0 ORDER BY task LIMIT 1"
    )[0]
    place = write_place(thread, (bytes(ns), bytes(checkpoint), bytes(task)), kinds)
    ask(saver, "UPDATE cp_writes SET body = ? WHERE task = ?", Digests().seal(place, packed(content)), bytes(task))
    with pytest.raises(IntegrityError) as caught:
        saver.get_tuple(config())
    assert (caught.value.thread, caught.value.step) == ("t", saver.threads()[-1].step)
    assert saver.fsck("t") != []
    assert saver.inspect(config()).problems != []
    assert saver.get_tuple(config("other")) is not None


@pytest.mark.parametrize("table", ["cp_elements", "cp_writes"])
def test_damage_names_the_step_that_needs_it(saver: Saver, table: str) -> None:
    """Where an element or a row of writes is damaged, the error names the step that was to be read."""
    for value in range(3):
        review(saver).invoke({"log": [{"value": value, "text": "long enough to be an element of its own"}]}, config())
    ask(saver, f"UPDATE {table} SET body = ?", b"nothing that was ever sealed")
    head = saver.steps("t")[-1].number
    with pytest.raises(IntegrityError, match=f"^t@{head}: ") as caught:
        saver.get_tuple(config())
    assert caught.value.step == head


def test_a_row_of_a_thread_of_another_form_stops_no_listing(saver: Saver) -> None:
    """A thread's own row is listed as damaged, whatever was sealed in it; the others as they are."""
    for thread in ("t", "other"):
        loop(saver).invoke({"until": 1, "n": 0}, config(thread))
    names = "thread, stamp, steps, head, flags, kinds, checkpoints, bytes, created_at, updated_at, head_id"
    key = saver._tools().key("t")
    (row,) = ask(saver, f"SELECT {names} FROM cp_threads WHERE thread = ?", key)
    place = forged.place_of("cp_threads", dict(zip(names.split(", "), [*row[:-1], bytes(row[-1])], strict=True)))
    others_name, tag, pin = (
        ormsgpack.packb([name, packed({}), packed({}), labels, None])
        for name, labels in ((b"other", None), (b"t", [[7], []]), (b"t", [[], ["x"]]))
    )
    broken = b"\x95\xa1t\xc4\x00\xc4\x00\xc0\xc0"
    for content in (b"\x90", b"\x01", packed({}), broken, others_name, tag, pin):
        ask(saver, "UPDATE cp_threads SET body = ? WHERE thread = ?", Digests().seal(place, content), key)
        assert {info.thread: info.status for info in saver.threads()} == {f"#{key}": "damaged", "other": "done"}
        with pytest.raises(IntegrityError):
            saver.get_tuple(config())
        assert saver.get_tuple(config("other")) is not None


@pytest.mark.parametrize(
    "harm", ["DELETE FROM cp_writes WHERE task = ?", "UPDATE cp_writes SET kinds = 0 WHERE task = ?"]
)
def test_questions_that_are_gone_are_not_fewer_questions(saver: Saver, harm: str) -> None:
    """A listing counts the rows of what waits, and says that a thread is damaged where one is missing or changed."""
    review(saver).invoke({"n": 0}, config())
    review(saver).invoke({"n": 0}, config("other"))
    assert [(info.status, info.questions) for info in saver.threads()] == [("waiting", 2)] * 2
    task = ask(saver, "SELECT task FROM cp_writes WHERE thread = ? AND kinds > 0 LIMIT 1", saver._tools().key("t"))[0][
        0
    ]
    ask(saver, harm, bytes(task))
    assert {info.thread: (info.status, info.questions) for info in saver.threads()} == {
        "t": ("damaged", 0), "other": ("waiting", 2),
    }  # fmt: skip


def test_a_damaged_thread_stops_no_retention_of_others(saver: Saver) -> None:
    """It is told at the end, and stays as it is."""
    for thread in ("first", "t", "last"):
        loop(saver).invoke({"until": 4, "n": 0}, config(thread))
    ask(saver, "UPDATE cp_checkpoints SET body = ? WHERE thread = ? AND step = 3", b"damaged", saver._tools().key("t"))
    with pytest.raises(IntegrityError, match="^t@3"):
        saver.retain(Keep(last=2))
    assert {info.thread: info.checkpoints for info in saver.threads()} == {"first": 2, "t": 6, "last": 2}


def test_a_thread_whose_own_row_is_damaged_is_told_by_retention(saver: Saver) -> None:
    """Asked for by its name, or among all; a thread that is not there, or was shredded, is neither."""
    for thread in ("first", "t", "last"):
        loop(saver).invoke({"until": 4, "n": 0}, config(thread))
    key = saver._tools().key("t")
    ask(saver, "UPDATE cp_threads SET body = ? WHERE thread = ?", b"damaged", key)
    with pytest.raises(IntegrityError, match="^thread 't'"):
        saver.retain(Keep(last=2), threads=["t"], dry_run=True)
    with pytest.raises(IntegrityError, match=f"^thread '#{key}'"):
        saver.retain(Keep(last=2))
    assert {info.thread: info.checkpoints for info in saver.threads()} == {"first": 2, f"#{key}": 0, "last": 2}
    assert saver.retain(Keep(last=2), threads=["nobody", "first"]) == []


def test_a_damaged_text_of_the_schema(tmp_path: Path) -> None:
    """What SQLite says of a damaged file may be no text itself; it is told as what it is."""
    path = tmp_path / "a.db"
    with SqliteSaver.open(path) as saver:
        loop(saver).invoke({"until": 1, "n": 0}, config())
    with closing(sqlite3.connect(path)) as base, base:
        base.execute("PRAGMA journal_mode=DELETE")
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b"CREATE TABLE cp_threads", b"CREATE \xecABLE cp_threads"))
    with pytest.raises(NotADatabaseError, match=r"a\.db"):
        SqliteSaver.open(path)
