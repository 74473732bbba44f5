"""What DeltaChannels were told, of one checkpoint after the other: the way back is read once, and told as it is."""

from __future__ import annotations

from contextlib import ExitStack
from random import Random
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import StateGraph
from langgraph.types import Command

from checkpointers import Keep, Saver
from checkpointers.errors import CheckpointerError
from checkpointers.operations.common import find_thread
from checkpointers.operations.told import WAY
from tests.checkpointers.graphs import DeltaState, config, loop
from tests.checkpointers.test_fsck import damaged, rows_of
from tests.checkpointers.test_storage import listening
from tests.checkpointers.wild import difference
from tests.conftest import reopen

CHANNELS = ["log", "other"]


def told(saver: Saver, place: dict[str, Any]) -> Any:
    """Give what was told, or the kind of the error."""
    try:
        return saver.get_delta_channel_history(config=place, channels=CHANNELS)
    except CheckpointerError as error:
        return type(error).__name__


def places(saver: Saver) -> list[dict[str, Any]]:
    return [found.config for found in saver.list(config())]


def branched(saver: Saver) -> None:
    """Make a thread of some length with two branches, and holes where checkpoints were removed."""
    app = loop(saver, DeltaState)
    app.invoke({"until": 60, "n": 0}, config())
    history = list(app.get_state_history(config()))
    for back in (7, 33):
        fork = app.update_state(history[back].config, {"log": ["another way"]}, as_node="work")
        app.invoke({"until": 70}, fork)
    saver.retain(Keep(last=45, pinned=[5, 20, 21, 50]))


def test_the_way_back_is_read_once(url: str) -> None:
    """Fifty states of a thread, the newest first: each row of checkpoints, writes and elements once, not once for each."""
    with reopen(url) as saver:
        loop(saver, DeltaState).invoke({"until": 50, "n": 0}, config())
    with reopen(url) as saver:
        each, asked = places(saver), list[Any]()
        with listening(saver, asked):
            for place in each:
                told(saver, place)
        said = [str(getattr(request, "sql", "")) for request in asked]
        assert len(each) > 50
        assert sum("step < ?" in sql for sql in said) == 1
        assert sum("FROM cp_writes" in sql for sql in said) == 1
        assert sum("FROM cp_elements" in sql for sql in said) <= 3


@pytest.mark.parametrize("seed", range(3))
def test_in_any_order_it_is_told_as_by_who_asks_for_the_first_time(url: str, seed: int) -> None:
    """Whatever was read before, of whichever branch: what is kept of it changes no answer."""
    with reopen(url) as saver:
        branched(saver)
        each = places(saver)
        right = {}
        for place in each:
            with reopen(url) as fresh:
                right[place["configurable"]["checkpoint_id"]] = told(fresh, place)
    assert len(right) == len(each) > 40
    with reopen(url) as saver:
        for place in Random(seed).choices(each, k=3 * len(each)):
            assert difference(told(saver, place), right[place["configurable"]["checkpoint_id"]]) is None


def test_the_way_goes_on_below_what_was_read(url: str) -> None:
    """A channel that is seldom written is followed over more ancestors than are read at once, from wherever one begins."""
    with reopen(url) as saver:
        loop(saver, DeltaState).invoke({"until": 600, "n": 0}, config())
        each = places(saver)[::149]
    with reopen(url) as saver:
        for place in (*each, *each[::-1]):
            step = saver.get_tuple(place).metadata["step"]
            found = saver.get_delta_channel_history(config=place, channels=["other"])["other"]
            assert [value for _, _, value in found["writes"]] == [[n] for n in range(step)]


def test_the_way_is_read_once_from_the_oldest_too(url: str) -> None:
    """What was read joins: nothing is read over and over, and what is kept does not grow with each question."""
    with reopen(url) as saver:
        loop(saver, DeltaState).invoke({"until": 300, "n": 0}, config())
        each = places(saver)[::-1]
    with reopen(url) as saver:
        for place in each:
            told(saver, place)
        (kept,) = saver._recent._threads.values()
        (_, (stretches, _shelf)), _size = kept.found[WAY, ""]
        assert [len(stretch.found) for stretch in stretches] == [len(each) - 1]


@pytest.mark.parametrize("others", [0, 70])
@pytest.mark.parametrize("who", ["the same", "another"])
def test_what_was_written_before_its_checkpoint_is_told(url: str, who: str, others: int) -> None:
    """Whoever wrote it, and however much was written meanwhile on checkpoints that are not stored."""
    first, second, third = (str(uuid6()) for _ in range(3))
    with reopen(url) as saver, reopen(url) as another:
        for of in (saver, InMemorySaver()):
            stored(of, first, None, {"log": "1"})
            (another if of is saver and who == "another" else of).put_writes(at(second), [("log", ["early"])], "task")
            for number in range(others):
                of.put_writes(at(f"nothing {number}"), [("other", [number])], f"task {number}")
            stored(of, str(uuid6()), None, {"log": "1"}, ns="sub")
            stored(of, second, first, {"log": "2"})
            stored(of, third, second, {"log": "2", "n": "1"}, new={"n": "1"})
            found = of.get_delta_channel_history(config=at(third), channels=["log"])["log"]["writes"]
            assert [value for _, _, value in found] == [["early"]]


def test_what_was_written_on_a_checkpoint_that_is_put_again_is_told(url: str) -> None:
    """By the same saver and by another, who did not see it written."""
    for again in (False, True):
        first, second = str(uuid6()), str(uuid6())
        with reopen(url) as saver, reopen(url) as another:
            stored(saver, first, None, {"log": "1"})
            saver.put_writes(at(first), [("log", ["on it"])], "task")
            of = another if again else saver
            stored(of, first, None, {"log": "1"})
            stored(of, second, first, {"log": "1", "n": "1"}, new={"n": "1"})
            found = of.get_delta_channel_history(config=at(second), channels=["log"])["log"]["writes"]
            assert [value for _, _, value in found] == [["on it"]]
            saver.delete_thread("t")


def at(id_: str | None, ns: str = "") -> dict[str, Any]:
    return config(checkpoint_ns=ns, **({"checkpoint_id": id_} if id_ else {}))


def stored(
    saver: Any, id_: str, parent: str | None, versions: dict[str, str], *, new: Any = None, ns: str = ""
) -> None:
    checkpoint = empty_checkpoint() | {"id": id_, "channel_versions": versions}
    saver.put(at(parent, ns), checkpoint, {"source": "loop", "step": 1, "parents": {}}, new or versions)


def test_it_is_read_anew_when_the_thread_has_changed(url: str) -> None:
    """A thread that somebody else went on with, or deleted and made again, is told as it is now."""
    with reopen(url) as saver, reopen(url) as other:
        app = loop(other, DeltaState)
        for until in (9, 14, 19):
            app.invoke({"until": until, "n": until - 9}, config())
            for place in places(other):
                assert difference(told(saver, place), told(other, place)) is None
            if until == 14:
                other.delete_thread("t")


def test_a_row_that_is_missing_is_missed(url: str) -> None:
    """An ancestor that is gone is an error each time for who needs it, whatever was read before; and only for them."""
    with reopen(url) as saver:
        loop(saver, DeltaState).invoke({"until": 12, "n": 0}, config())
        each = places(saver)
        gone = sorted(rows_of(saver, "cp_checkpoints"), key=lambda row: row["step"])[6]
    with reopen(url) as saver, damaged(saver, "cp_checkpoints", (gone, None)):
        for place in [*each[:3], *each[-3:], *each[:3]]:
            found = told(saver, place)
            assert (found == "IncompleteRecordError") is (place in each[:3])


def test_a_checkpoint_put_again_keeps_what_removed_ones_told_it(saver: Saver) -> None:
    """Its ancestors are gone: nobody else knows."""
    app = loop(saver, DeltaState)
    app.invoke({"until": 9, "n": 0}, config())
    saver.retain(Keep(last=3, pinned=[4]))
    for place in places(saver):
        found, before = saver.get_tuple(place), told(saver, place)
        assert found is not None
        above = found.parent_config or config(checkpoint_ns="")
        saver.put(above, found.checkpoint, found.metadata, {})
        assert told(saver, place) == before
    assert app.get_state(config()).values["other"] == list(range(9))
    assert saver.fsck() == []


def replayed(saver: Any, reopened: Any = lambda saver: saver) -> Any:
    """Run a node on a step that another branch went on from without it, and go on with that branch, for a while."""

    def app(saver: Any) -> Any:
        builder = StateGraph(DeltaState)
        builder.add_node("one", lambda s: {"n": 1})
        builder.add_node("two", lambda s: {"other": ["late"], "log": ["late"]})
        builder.add_node("three", lambda s: {"n": 3})
        builder.add_edge("__start__", "one")
        builder.add_edge("one", "two")
        builder.add_edge("two", "three")
        return builder.compile(checkpointer=saver)

    graph = app(saver)
    graph.invoke({"other": ["first"], "log": ["first"]}, config(), durability="sync", interrupt_before=["two"])
    stop = graph.get_state(config())
    branch = graph.update_state(stop.config, {"n": 5}, as_node="three")
    for n in range(5):
        branch = graph.update_state(branch, {"n": n}, as_node="three")
    graph = app(saver := reopened(saver))
    graph.invoke(Command(resume="x"), stop.config, durability="sync")
    for n in range(2):
        branch = graph.update_state(branch, {"n": n, **({"other": ["on"]} if n else {})}, as_node="three")
    return saver


def said(saver: Any) -> list[Any]:
    """Give what each checkpoint was told, the newest first, without ids."""
    found = [saver.get_delta_channel_history(config=one.config, channels=CHANNELS) for one in saver.list(config())]
    return [
        {name: (of.get("seed"), [value for _, _, value in of["writes"]]) for name, of in one.items()} for one in found
    ]


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("kept", [1, 3, 99])
def test_what_a_step_is_told_late_is_told_to_all_that_were_made_from_it(url: str, kept: int, again: bool) -> None:
    """As other savers do, whoever remembers what, before steps were removed and after."""
    right = said(replayed(InMemorySaver()))
    assert sum("late" in str(one) for one in right) > 4
    with ExitStack() as savers:
        saver = replayed(
            savers.enter_context(reopen(url)), lambda saver: savers.enter_context(reopen(url)) if again else saver
        )
        assert said(saver) == right
        saver.retain(Keep(last=kept))
        left = said(saver)
        assert [pack(one) for one in left] == [pack(right[-one.number]) for one in saver.steps("t")[::-1]]
        assert saver.fsck() == []
        with reopen(url) as other:
            assert said(other) == left
            other.copy_thread("t", "copy")
            assert [*other.steps("copy")] != []
        assert saver.threads()[0].checkpoints == len(left) >= min(kept, len(right))


def pack(told: Any) -> Any:
    """Give what comes of what was told: pruned checkpoints keep writes where others have a value."""
    return {
        name: [*(seed.value if seed else ()), *(item for write in writes for item in write)]
        for name, (seed, writes) in told.items()
    }


def test_only_what_was_told_late_is_kept_as_late(url: str) -> None:
    """A run that goes on, a fork, and writes of a channel that is looked for anyway, leave nothing in the thread's row."""
    with reopen(url) as saver:
        branched(saver)
        (thread,) = [saver.database.read(lambda: find_thread(saver._tools(), "t"))]
        assert [*thread.standing.late] == []
        saver.delete_thread("t")
        replayed(saver)
        thread = saver.database.read(lambda: find_thread(saver._tools(), "t"))
        assert len(thread.standing.late) == 1
        saver.prune(["t"])
        thread = saver.database.read(lambda: find_thread(saver._tools(), "t"))
        assert [*thread.standing.late] == []


def step(
    saver: Any, id_: str, parent: str | None, log: int | None, n: int, *, run: str = "r", value: Any = None
) -> None:
    """Store a checkpoint at which `log` has a version, or none, and no value."""
    place = config(checkpoint_ns="", **({"checkpoint_id": parent} if parent else {}))
    versions = {"n": n, **({"log": log} if log else {})}
    values = {} if value is None else {"n": value}
    checkpoint = empty_checkpoint() | {"id": id_, "channel_versions": versions, "channel_values": values}
    counters = {"counters_since_delta_snapshot": {"log": [1, 1]}} if log else {}
    saver.put(place, checkpoint, {"source": "loop", "step": n, "parents": {}, "run_id": run, **counters}, {"n": n})


def tell(saver: Any, id_: str, what: str) -> None:
    saver.put_writes(config(checkpoint_ns="", checkpoint_id=id_), [("log", [what])], f"task {what}")


def log_of(saver: Any, id_: str) -> list[Any]:
    place = config(checkpoint_ns="", checkpoint_id=id_)
    found = saver.get_delta_channel_history(config=place, channels=["log"])["log"]
    return [value for _, _, value in found["writes"]]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("again", [True, False])
def test_what_was_told_late_outlives_the_step_that_was_told(url: str, first: bool, again: bool) -> None:
    """It goes, and its child keeps that; those made from the child find it there, whatever trails they have."""
    root, gone, child, grandchild, later = (str(uuid6()) for _ in range(5))
    memory, version = InMemorySaver(), None if first else 1
    with reopen(url) as saver:
        for of in (saver, memory):
            step(of, root, None, version, 1)
            if not first:
                tell(of, root, "root")
            step(of, gone, root, version, 2, run="gone")
            step(of, child, gone, version, 3)
            step(of, grandchild, child, version, 4)
            if again:
                step(of, gone, root, version, 2, run="gone")  # the same once more is not the newest
            tell(of, gone, "late")
            step(of, later, grandchild, 7, 5)
        kept = [child, grandchild, later]
        before = [log_of(saver, id_) for id_ in kept]
        assert before == [log_of(memory, id_) for id_ in kept]
        assert ["late"] in before[-1]
        saver.delete_for_runs(["gone"])
        assert len(saver.steps("t")) == 4
        with reopen(url) as fresh:
            for of in (saver, fresh):
                assert [log_of(of, id_) for id_ in kept][first * 2 :] == before[first * 2 :]
        assert saver.fsck() == []


def test_what_was_told_outlives_a_step_that_is_not_recovered(url: str) -> None:
    """As it outlives one that is removed: those that are made from its child later find it there."""
    root, lost, child, later = (str(uuid6()) for _ in range(4))
    with reopen(url) as saver:
        step(saver, root, None, None, 1)
        step(saver, lost, root, None, 2, value="a value of its own, too long to stand in place")
        step(saver, child, lost, None, 3)
        tell(saver, lost, "late")
        step(saver, later, child, 7, 4)
        assert log_of(saver, later) == [["late"]]
        (element,) = rows_of(saver, "cp_elements")
        with damaged(saver, "cp_elements", (element, None)):
            assert saver.recover("t", into="saved") == 4
        assert [info.number for info in saver.steps("saved")] == [1, 3, 4]
        saver.delete_thread("t")
        saver.copy_thread("saved", "t")
        assert log_of(saver, later) == [["late"]]


def test_what_is_told_late_above_a_step_that_was_removed(url: str) -> None:
    """A child that was left to another parent looks there; those made from it before looked past both."""
    first, root, gone, child, grandchild = (str(uuid6()) for _ in range(5))
    with reopen(url) as saver:
        step(saver, first, None, 1, 0)
        step(saver, root, first, 1, 1)
        step(saver, gone, root, 1, 2, run="gone")
        step(saver, child, gone, 1, 3)
        step(saver, grandchild, child, 1, 4)
        saver.delete_for_runs(["gone"])
        tell(saver, root, "late")
        with reopen(url) as fresh:
            for of in (saver, fresh):
                assert [log_of(of, id_) for id_ in (child, grandchild)] == [[["late"]], [["late"]]]
