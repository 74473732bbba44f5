"""A rollback: the thread is what it was when the lease began, in every namespace, whatever was done under it."""

from __future__ import annotations

import contextvars
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.types import Command

from checkpointers import CheckpointerError, IntegrityError, Keep, Keyring, LeaseLostError, Saver, SchemaError
from checkpointers.codec import packed
from checkpointers.database import migrations
from checkpointers.errors import ShreddedError, TenancyWarning
from checkpointers.sealing import Digests, note_place
from checkpointers.testing import FaultyDatabase
from tests.checkpointers.graphs import DeltaState, config, loop, nested, review
from tests.checkpointers.test_fsck import ask, failing
from tests.checkpointers.test_ledger import back_to_2
from tests.checkpointers.test_storage import put, values
from tests.conftest import reopen
from tests.proofs import tenants as proof

KEYS = Keyring.generate("first")
GRAPHS: dict[str, Callable[[Saver], Any]] = {
    "review": review,
    "nested": nested,
    "persistent": lambda saver: nested(saver, persistent=True),
    "failed": failing,
    "loop": loop,
    "delta": lambda saver: loop(saver, DeltaState),
}


def begun(saver: Saver, shape: str, thread: str = "t") -> Any:
    """Bring a thread to where a lease may find it: at a question, at a failure, in the middle of a loop."""
    app = GRAPHS[shape](saver)
    given = {"until": 4, "n": 0} if shape in ("loop", "delta") else {}
    with suppress(ValueError):
        app.invoke(given, config(thread), durability="sync")
    return app


def state(saver: Saver, thread: str = "t") -> Any:
    """Give all that can be read of a thread: each step of each namespace, its listing, and what fsck says."""
    steps = saver.steps(thread, None)
    tuples = [saver.get_tuple(config(thread, checkpoint_ns=step.ns, checkpoint_id=step.id)) for step in steps]
    heads = [saver.get_tuple(config(thread, checkpoint_ns=ns)) for ns in sorted({"", *(step.ns for step in steps)})]
    infos = [(i.status, i.step, i.checkpoints, i.bytes, i.metadata) for i in saver.threads() if i.thread == thread]
    return steps, tuples, heads, infos, saver.usage(thread), saver.fsck(thread)


class Holder:
    """A run elsewhere that holds a thread, until somebody takes it over."""

    def __init__(self, saver: Saver, thread: str = "t", **options: Any) -> None:
        """Take the thread."""
        self.saver, self._context = saver, contextvars.copy_context()
        self._lease = saver.lease(thread, ttl=60, **options)
        self.does(self._lease.__enter__)

    def does(self, work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Do something under the lease."""
        return self._context.run(work, *arguments, **options)

    def ends(self) -> None:
        """Give the thread back, if it is still there to be given."""
        self.does(self._lease.__exit__, None, None, None)


@contextmanager
def held(url: str, thread: str = "t", **options: Any) -> Iterator[Holder]:
    """Open a saver, and hold a thread with it."""
    with reopen(url, **options) as saver:
        holder = Holder(saver, thread)
        yield holder
        holder.ends()


def rolled_back(saver: Saver, thread: str = "t") -> Any:
    """Take a thread over, and give what is found."""
    with saver.lease(thread, if_busy="rollback"):
        return state(saver, thread)


# What may be done under a lease.


def questions(app: Any, thread: str) -> list[str]:
    return [one.id for one in app.get_state(config(thread), subgraphs=True).interrupts]


def answer_one(app: Any, saver: Saver, thread: str) -> None:
    if asked := questions(app, thread):
        app.invoke(Command(resume={asked[0]: "wrong"}), config(thread), durability="sync")


def answer_all(app: Any, saver: Saver, thread: str) -> None:
    if asked := questions(app, thread):
        app.invoke(Command(resume=dict.fromkeys(asked, "wrong " * 40)), config(thread), durability="async")


def go_on(app: Any, saver: Saver, thread: str) -> None:
    app.invoke(None, config(thread), durability="exit")


def new_input(app: Any, saver: Saver, thread: str) -> None:
    app.invoke({"until": 7, "log": ["more"]}, config(thread), durability="sync")


def by_hand(app: Any, saver: Saver, thread: str) -> None:
    app.update_state(config(thread), {"log": ["by hand"]})


def writes(app: Any, saver: Saver, thread: str) -> None:
    """Add to each row of writes on each head, replace what is special in it, and leave rows of other tasks."""
    for ns in {step.ns for step in saver.steps(thread, None)}:
        found = saver.get_tuple(config(thread, checkpoint_ns=ns))
        for task in {write[0] for write in found.pending_writes} | {"another task"}:
            for channel in ("__error__", "__resume__", "__interrupt__", "__scheduled__"):
                saver.put_writes(found.config, [(channel, ["put " * 30])], task)
            saver.put_writes(found.config, [("log", [{"n": n, "text": "put " * 30}]) for n in range(3)], task)


def early(app: Any, saver: Saver, thread: str) -> None:
    saver.put_writes(config(thread, checkpoint_ns="", checkpoint_id="never stored"), [("log", ["early"])], "task")


DEEDS = (answer_one, answer_all, go_on, new_input, by_hand, writes, early)


def do(holder: Holder, shape: str, thread: str, *deeds: Callable[[Any, Saver, str], None]) -> None:
    app = GRAPHS[shape](holder.saver)
    for deed in deeds:
        with suppress(ValueError):
            holder.does(deed, app, holder.saver, thread)


@pytest.mark.slow
@pytest.mark.parametrize("keys", [None, KEYS], ids=["plain", "encrypted"])
@pytest.mark.parametrize("shape", GRAPHS)
def test_nothing_stays_of_what_was_done(url: str, shape: str, keys: Any) -> None:
    """Each deed alone, and all after one another: what was there before is there, and nothing else."""
    with reopen(url, keys=keys) as saver:
        for number, deeds in enumerate([*((deed,) for deed in DEEDS), DEEDS]):
            thread = f"t{number}"
            begun(saver, shape, thread)
            if number % 2:
                saver.prune([thread])
            before = state(saver, thread)
            assert before[-1] == []
            with held(url, thread, keys=keys) as holder:
                do(holder, shape, thread, *deeds)
                after = state(saver, thread)
                assert rolled_back(saver, thread) == before, deeds
                assert after != before or deeds[0] in (answer_one, answer_all, go_on, early), deeds


@pytest.mark.slow
@settings(max_examples=25)
@given(
    shape=st.sampled_from(sorted(GRAPHS)),
    lives=st.lists(st.lists(st.sampled_from(DEEDS), max_size=4), min_size=1, max_size=3),
    kept=st.lists(st.sampled_from(DEEDS), max_size=2),
)
def test_any_deeds_are_taken_back(url: str, shape: str, lives: Any, kept: Any) -> None:
    """One holder after another is rolled back, and each begins where the first one did; then what is kept is kept."""
    with reopen(url) as saver:
        thread = f"t{len(saver.threads())}"
        begun(saver, shape, thread)
        do(holder := Holder(saver, thread), shape, thread, *kept)
        holder.ends()
        before = state(saver, thread)[:-2]
        for deeds in lives:
            do(Holder(saver, thread, if_busy="rollback"), shape, thread, *deeds)
        found = rolled_back(saver, thread)
        assert _but_size(found[:-2]) == _but_size(before)
        assert found[-1] == []
        with saver.lease(thread), suppress(ValueError):
            GRAPHS[shape](saver).invoke({"until": 2}, config(thread))
        assert saver.fsck(thread) == []


def _but_size(found: Any) -> Any:
    """Leave out how many bytes a thread has: elements that nothing refers to any more go at a rollback, too."""
    return *found[:3], [(*info[:3], *info[4:]) for info in found[3]]


# Edges.


def noted(saver: Saver) -> list[bytes | None]:
    return [row[0] for row in ask(saver, "SELECT note FROM cp_leases")]


def answered(saver: Saver, thread: str, text: str) -> Any:
    """Answer, as LangGraph does it, with something long enough to be stored as elements; give where."""
    found = saver.get_tuple(config(thread))
    task = next(write[0] for write in found.pending_writes if write[1] == "__interrupt__")
    saver.put_writes(found.config, [("__resume__", [f"{text} {n} " * 20 for n in range(3)])], task)
    return found.config


def test_an_answer_that_was_replaced_comes_back(url: str) -> None:
    """Also when retention went over the thread meanwhile: what the old answer refers to stays as long as the lease."""
    with reopen(url) as saver:
        begun(saver, "review")
        answered(saver, "t", "first")
        before = state(saver)
        with held(url) as holder:
            holder.does(answered, holder.saver, "t", "second")
            assert state(saver)[1] != before[1]
            holder.does(go_on, review(holder.saver), holder.saver, "t")
            for care in (lambda: saver.prune(["t"]), lambda: saver.retain(Keep(last=1)), lambda: saver.tag("t", "red")):
                holder.does(new_input, review(holder.saver), holder.saver, "t")
                care()
                assert saver.fsck() == []
            found = rolled_back(saver)
            assert found[-1] == []
        with held(url) as holder:
            before = state(saver)
            holder.does(put, holder.saver, {"x": 1}, after=config(checkpoint_ns=""))
            assert rolled_back(saver)[0] == before[0]


def test_elements_of_a_replaced_answer_stay_until_the_lease_is_over(url: str) -> None:
    """A removal in between leaves them, counted in the dry run too; one afterwards takes them."""
    with reopen(url) as saver:
        loop(saver).invoke({"until": 3, "n": 0}, config())
        review(saver).invoke({}, config("t"))
        answered(saver, "t", "first")
        before = state(saver)
        with held(url) as holder:
            holder.does(answered, holder.saver, "t", "second")
            saver.pin("t", before[0][-1].number)
            older = [step.number for step in before[0]][:2]
            (plan,) = saver.retain(Keep(last=1), dry_run=True)
            size = saver.threads()[0].bytes
            saver.copy_thread("t", "copy")
            assert state(saver, "copy")[1][-1].pending_writes == saver.get_tuple(config()).pending_writes
            saver.delete_thread("copy")
            saver.retain(Keep(last=1))
            assert size - saver.threads()[0].bytes == plan.frees
            assert saver.get_tuple(config()).pending_writes != before[2][0].pending_writes
            found = rolled_back(saver)
            assert found[2][0].pending_writes == before[2][0].pending_writes
            assert found[-1] == []
            assert not set(older) & {step.number for step in found[0]}


def test_the_steps_that_it_began_at_were_removed(url: str) -> None:
    """What retention dropped does not come back, nor do writes on it; older steps are left as they are."""
    with reopen(url) as saver:
        app = begun(saver, "loop")
        older = saver.steps("t")[-2]
        place = config(checkpoint_ns="", checkpoint_id=older.id)
        saver.put_writes(place, [("log", ["it stood here"])], "a task")
        saver.put_writes(saver.get_tuple(config()).config, [("log", ["and here"])], "a task")
        saver.pin("t", older.number)
        with held(url) as holder:
            holder.does(app.builder.compile(checkpointer=holder.saver).invoke, {"until": 6}, config())
            saver.retain(Keep(last=1))
            found = rolled_back(saver)
        assert [step.number for step in found[0]] == [older.number]
        assert ("a task", "log", ["it stood here"]) in saver.get_tuple(config()).pending_writes
        assert found[-1] == []


def test_what_is_added_to_other_older_steps_stays(url: str) -> None:
    """Only the steps that the thread stood at are noted: a limit, and one that nothing breaks on."""
    with reopen(url) as saver:
        begun(saver, "loop")
        older = config(checkpoint_ns="", checkpoint_id=saver.steps("t")[1].id)
        with held(url) as holder:
            holder.does(holder.saver.put_writes, older, [("log", ["late"])], "a late task")
            assert rolled_back(saver)[-1] == []
        assert ("a late task", "log", ["late"]) in saver.get_tuple(older).pending_writes


def test_the_holder_deleted_the_thread_and_began_again(url: str) -> None:
    """Nothing stays of what it made; what it deleted is gone."""
    with reopen(url) as saver:
        app = begun(saver, "review")
        with held(url) as holder:
            holder.does(holder.saver.delete_thread, "t")
            assert noted(saver) == [None]
            holder.does(begun, holder.saver, "loop")
            holder.does(holder.saver.put_writes, saver.get_tuple(config()).config, [("log", ["x"])], "task")
            with saver.lease("t", if_busy="rollback"):
                assert saver.get_tuple(config()) is None
                app.invoke({}, config())
                assert saver.fsck() == []
        assert [info.status for info in saver.threads()] == ["waiting"]


def test_a_thread_without_a_head(url: str) -> None:
    """A new thread has nothing to note; one whose steps were all removed has no step to note."""
    with reopen(url) as saver:
        with held(url) as holder:
            assert noted(saver) == [None]
            holder.does(begun, holder.saver, "review")
            holder.does(answer_one, review(holder.saver), holder.saver, "t")
            assert rolled_back(saver)[:4] == ([], [], [None], [])
        review(saver).invoke({}, config() | {"metadata": {"run_id": "r1"}})
        with saver.lease("t"):
            saver.delete_for_runs(["r1"])
            assert saver.get_tuple(config()) is None
        with held(url) as holder:
            holder.does(begun, holder.saver, "review")
            assert rolled_back(saver)[:4] == ([], [], [None], [])
            assert saver.fsck() == []


def test_a_note_lives_as_long_as_its_lease(url: str) -> None:
    """Given back, written by somebody else after it ran out, or deleted with the thread: nothing is kept of it."""
    with reopen(url) as saver:
        begun(saver, "review")
        place = saver.get_tuple(config()).config
        with saver.lease("t"):
            assert noted(saver) != [None]
        assert noted(saver) == [None]
        with held(url) as holder:
            ask(saver, "UPDATE cp_leases SET until = 0")
            saver.put_writes(place, [("log", ["x"])], "task")
            assert noted(saver) == [None]
            assert "task" in {write[0] for write in rolled_back(saver)[2][0].pending_writes}
            with pytest.raises(LeaseLostError):
                holder.does(holder.saver.put_writes, place, [("log", ["y"])], "task 2")
        with held(url):
            ask(saver, "UPDATE cp_leases SET until = 0")
            saver.delete_thread("t")
            assert noted(saver) == []


@pytest.mark.parametrize("policy", ["reject", "interrupt"])
def test_who_takes_a_thread_over_begins_where_it_stands(url: str, policy: Any) -> None:
    """What was written under a lease that ran out, or was interrupted, is what the next one began with."""
    with reopen(url) as saver:
        begun(saver, "review")
        with held(url) as first:
            do(first, "review", "t", answer_one)
            before = state(saver)
            if policy == "reject":
                ask(saver, "UPDATE cp_leases SET until = 0")
            second = Holder(saver, if_busy=policy)
            do(second, "review", "t", answer_one, go_on, writes)
            assert _but_size(rolled_back(saver)) == _but_size(before)


def test_a_lease_of_an_older_release(url: str) -> None:
    """It noted nothing, or left the note of another lease: refused, and the thread can be had as it is."""
    with reopen(url) as saver:
        begun(saver, "review")
        for column, value in (("note", None), ("token", b"of another one")):
            with held(url):
                ask(saver, f"UPDATE cp_leases SET {column} = ?", value)
                before = state(saver)
                with pytest.raises(CheckpointerError, match="older release.*enqueue.*interrupt"):
                    saver.lease("t", if_busy="rollback").__enter__()
                assert state(saver) == before
                saver.prune(["t"])
                with saver.lease("t", if_busy="interrupt"):
                    pass
        with held(url, "new"), saver.lease("new", if_busy="rollback"):
            pass


def test_a_damaged_note(url: str) -> None:
    """It is found, and nothing is done by it; the thread can be read and had as it is."""
    with reopen(url) as saver:
        begun(saver, "review")
        before = saver.get_tuple(config())
        with held(url):
            (note,) = noted(saver)
            for wrong in (note[:-1], note[:9] + bytes([note[9] ^ 1]) + note[10:], b""):
                ask(saver, "UPDATE cp_leases SET note = ?", wrong)
                with pytest.raises(IntegrityError, match="the note of its lease"):
                    saver.lease("t", if_busy="rollback").__enter__()
                assert ["the note of its lease" in found.what for found in saver.fsck()] == [True]
                assert saver.get_tuple(config()) == before
            with saver.lease("t", if_busy="interrupt"):
                assert saver.fsck() == []


@pytest.mark.parametrize(
    "content", [{}, 7, ["one"], [7, []], [{}, []], [[], 7], [[], [[b""]]], [[], [[b"", b"", b"", 0, {}]]]], ids=repr
)
def test_a_note_of_another_form(url: str, content: Any) -> None:
    """What this program never writes, under a digest that holds, is an error of ours too, and nothing is done by it."""
    with reopen(url) as saver:
        begun(saver, "review")
        with held(url):
            ((thread, token),) = ask(saver, "SELECT thread, token FROM cp_leases")
            forged = [bytes(token), *content] if isinstance(content, list) else content
            ask(saver, "UPDATE cp_leases SET note = ?", Digests().seal(note_place(thread), packed(forged)))
            with pytest.raises(IntegrityError, match="the note of its lease"):
                saver.lease("t", if_busy="rollback").__enter__()
            assert ["the note of its lease" in found.what for found in saver.fsck()] == [True]
            with pytest.raises(IntegrityError, match="the note of its lease"):
                saver.retain(Keep(last=1), threads=["t"], dry_run=True)
            with saver.lease("t", if_busy="interrupt"):
                assert saver.fsck() == []


def test_rows_that_were_lost_are_still_missed(url: str) -> None:
    """A rollback does not make a damaged thread look sound."""
    with reopen(url) as saver:
        begun(saver, "review")
        with held(url) as holder:
            do(holder, "review", "t", answer_one)
            ask(saver, "DELETE FROM cp_writes WHERE task = (SELECT task FROM cp_writes ORDER BY task LIMIT 1)")
            with pytest.raises(IntegrityError):
                saver.lease("t", if_busy="rollback").__enter__()
            assert saver.fsck() != []


def test_a_fault_at_any_request_changes_nothing(url: str) -> None:
    """A rollback happens whole or not at all."""
    with reopen(url) as saver, held_answered(saver, url) as (before, after):
        number = 0
        while noted(saver) and saver.threads()[0].holder == "one":
            number += 1
            assert state(saver) == after

            def fault(count: int, request: Any, number: int = number) -> None:
                if count == number:
                    raise OSError("injected")

            broken = type(saver)(FaultyDatabase(saver.database, fault))
            with suppress(CheckpointerError):
                broken.lease("t", if_busy="rollback").__enter__()
        assert number > 15
        assert state(saver) == before


@contextmanager
def held_answered(saver: Saver, url: str) -> Iterator[tuple[Any, Any]]:
    """Hold a thread under the name of one, with an answer; give what it was before, and what it is."""
    begun(saver, "review")
    before = state(saver)
    with reopen(url) as one:
        do(Holder(one, owner="one"), "review", "t", answer_one)
        yield before, state(saver)


def test_taking_a_lease_costs_one_statement_for_the_note(url: str) -> None:
    """Lock, look, note, take, stand: five in all, and none more for a write under it."""
    with reopen(url) as saver:
        begun(saver, "nested")
        asked: list[str] = []
        watched = type(saver)(FaultyDatabase(saver.database, lambda _, request: asked.append(type(request).__name__)))
        holder = Holder(watched)
        assert asked == ["Statement"] * 5
        place = saver.get_tuple(config()).config
        holder.does(watched.put_writes, place, [("log", ["x"])], "task")
        asked.clear()
        holder.does(watched.put_writes, place, [("log", ["y"])], "task 2")
        assert asked == ["Append"]
        holder.ends()


# Other releases, keys, tenants.


def test_tables_of_version_2_are_brought_up_to_date(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In place, with what is in them; code that does not know the new version refuses it."""
    new = {dialect: migrations(dialect) for dialect in ("sqlite", "postgres")}

    def older(dialect: str) -> list[tuple[int, str]]:
        return [(number, text) for number, text in new[dialect] if number == 2]

    with reopen(url) as saver:
        begun(saver, "review")
        before = state_without_notes(saver)
    back_to_2(url)
    with reopen(url) as saver:
        assert state_without_notes(saver) == before
        before = state(saver)
        with held(url) as holder:
            do(holder, "review", "t", answer_one)
            assert rolled_back(saver) == before
    for module in ("database", "sqlite_file", "postgres_server"):
        monkeypatch.setattr(f"checkpointers.{module}.migrations", older)
    with pytest.raises(SchemaError, match="version 3, this release knows 2"):
        reopen(url)


def state_without_notes(saver: Saver) -> Any:
    return saver.steps("t"), saver.get_tuple(config()), values(saver)


@pytest.mark.parametrize("migrated", [False, True], ids=["encrypted", "migrated"])
def test_a_note_is_as_secret_as_what_it_notes(url: str, migrated: bool) -> None:
    """Nothing of it is in clear, also if the thread was encrypted under the lease; rotated keys open it, none after."""
    both = KEYS.with_new("second")
    with reopen(url, keys=None if migrated else KEYS) as saver:
        begun(saver, "review")
        saver.put_writes(saver.get_tuple(config()).config, [("__resume__", "secret")], "asked")
        before = state(saver)
        holder = Holder(saver)
        clear = noted(saver)[0]
        do(holder, "review", "t", answer_one)
        holder.does(saver.put_writes, saver.get_tuple(config()).config, [("__resume__", "wrong")], "asked")
    assert (b"secret" in clear) == migrated
    with reopen(url, keys=both, migrating=True) as saver:
        done = saver.rotate()
        assert (done.encrypted, done.rewrapped) == ((1, 0) if migrated else (0, 1))
        (note,) = noted(saver)
        assert b"secret" not in note
        assert saver.fsck() == []
    with reopen(url, keys=Keyring({"second": raw_of(both)})) as saver:
        assert rolled_back(saver)[:3] == before[:3]
        Holder(saver).does(saver.shred, "t")
        assert noted(saver) == [None]
        with pytest.raises(ShreddedError):
            saver.lease("t", if_busy="rollback").__enter__()


def raw_of(keyring: Keyring) -> bytes:
    return bytes(keyring._keys["second"])


def test_tenants_roll_back_their_own(postgres_url: str) -> None:
    """Threads of one name: what one tenant notes and takes back is its own, for a bound role and for one that is not."""
    proof.prepared(postgres_url)
    with proof.role(postgres_url) as bound, warnings.catch_warnings():
        warnings.simplefilter("ignore", TenancyWarning)
        for url in (bound, postgres_url):
            with reopen(url, tenant="a") as one, reopen(url, tenant="b") as two:
                thread = url[:16]
                begun(one, "review", thread)
                begun(two, "nested", thread)
                before = state(one, thread), state(two, thread)
                do(Holder(one, thread), "review", thread, answer_one, writes)
                do(Holder(two, thread), "nested", thread, answer_all, writes)
                changed = state(two, thread)
                assert rolled_back(one, thread) == before[0]
                assert state(two, thread) == changed != before[1]
                assert rolled_back(two, thread) == before[1]
