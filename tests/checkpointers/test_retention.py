"""Policies say what is kept and why; what is kept stays readable, in DeltaChannel threads too."""

from __future__ import annotations

import operator
import random
import time
from collections.abc import Callable
from contextvars import Context
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.graph import StateGraph
from langgraph.types import Command

from checkpointers import ForkedWarning, Keep, Saver
from checkpointers.retention import Line, plan
from tests.checkpointers.graphs import DeltaState, State, config, loop, nested, review
from tests.checkpointers.test_graphs import states
from tests.checkpointers.test_storage import put, values
from tests.checkpointers.wild import difference
from tests.conftest import reopen

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)


def line(step: int, *, parent: int | None = None, days: float = 0, **more: Any) -> Line:
    before = f"c{parent}" if parent is not None else (f"c{step - 1}" if step > 1 else None)
    return Line(step, more.pop("ns", ""), f"c{step}", before, NOW - timedelta(days=days), **more)


def kept(keep: Keep, lines: list[Line], **more: Any) -> dict[int, list[str]]:
    return {step: list(why) for step, why in plan("t", keep, lines, now=NOW, **more).kept.items()}


def test_each_rule_says_why() -> None:
    """The head always stays; every other checkpoint stays for a reason that is named."""
    lines = [line(n, days=10 - n) for n in range(1, 11)]
    assert kept(Keep(), lines) == {10: ["head", "last 1"]}
    assert kept(Keep(last=0), lines) == {10: ["head"]}
    assert list(kept(Keep(last=3), lines)) == [10, 9, 8]
    assert kept(Keep(last=0, within="36h"), lines)[9] == ["within 36h"]
    assert list(kept(Keep(last=0, daily=4), lines)) == [10, 9, 8, 7]
    assert kept(Keep(pinned=[3, "t@4", "other@5"]), lines)[4] == ["pinned"]
    assert sorted(kept(Keep(pinned=[3, "t@4", "other@5"]), lines, pins=[6])) == [3, 4, 6, 10]
    assert len(kept(Keep(last=0, hourly=3), [line(n, days=n / 100) for n in range(1, 30)])) <= 4


def test_open_reviews_fork_points_and_subgraphs_stay() -> None:
    """What a person still has to answer stays, and where kept branches meet, and what kept checkpoints called."""
    lines = [line(1), line(2), line(3, kinds=1), line(4, parent=2), line(5, parent=4)]
    found = kept(Keep(), lines)
    assert found == {5: ["head", "last 1"], 3: ["open review"], 2: ["fork point"]}
    inside = [*lines, line(6, ns="sub:1", root="c5", parent=0), line(7, ns="sub:0", root="c1", parent=0)]
    assert kept(Keep(), inside)[6] == ["called from step 5"]
    assert 7 not in kept(Keep(), inside)
    assert kept(Keep(), [line(1), line(8, ns="memory", parent=0)])[8] == ["head of its subgraph"]


def test_old_threads_expire_unless_somebody_waits() -> None:
    """`max_age` takes whole threads, but not one with an open review or a pin."""
    lines = [line(n, days=40) for n in range(1, 4)]
    assert plan("t", Keep(max_age="30d"), lines, now=NOW).expired
    assert not plan("t", Keep(max_age="50d"), lines, now=NOW).expired
    assert not plan("t", Keep(max_age="30d"), [*lines[:2], line(3, days=40, kinds=1)], now=NOW).expired
    assert not plan("t", Keep(max_age="30d"), lines, now=NOW, pins=[1]).expired


@pytest.mark.parametrize(
    "options",
    [{"last": -1}, {"within": "soon"}, {"max_age": "1 fortnight"}, {"daily": -2}, {"pinned": True}, {"pinned": "t@3"}],
)
def test_nonsense_is_refused(options: dict[str, Any]) -> None:
    """A policy that makes no sense is an error before anything is planned."""
    with pytest.raises(ValueError, match="negative|no duration|names no steps"):
        Keep(**options)


@given(
    parents=st.lists(st.integers(0, 30), min_size=1, max_size=30),
    keep=st.builds(Keep, last=st.integers(0, 5), daily=st.integers(0, 3), within=st.sampled_from([None, "3d", "1h"])),
    pins=st.sets(st.integers(1, 30), max_size=3),
)
def test_a_plan_keeps_what_it_says(parents: list[int], keep: Keep, pins: set[int]) -> None:
    """Law: kept and dropped partition the thread; head, pins and the last ones are kept; every kept one has a reason."""
    lines = [line(n, parent=min(parent, n - 1) or None, days=30 - n) for n, parent in enumerate(parents, 1)]
    decided = plan("t", keep, lines, now=NOW, pins=pins)
    steps = {one.step for one in lines}
    assert set(decided.kept) | set(decided.dropped) == steps
    assert not set(decided.kept) & set(decided.dropped)
    assert all(decided.kept.values())
    assert {max(steps), *(pins & steps), *sorted(steps)[len(steps) - keep.last :]} <= set(decided.kept)
    assert all(f"t@{step}" in str(decided) for step in decided.kept)


@pytest.mark.slow
@pytest.mark.parametrize("schema", [State, DeltaState], ids=["plain", "delta"])
@pytest.mark.parametrize("at_a_time", [500, 20])
def test_retained_checkpoints_read_as_before(
    saver: Saver, schema: Any, at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dry run and real run agree, to the byte; what is kept is unchanged and the thread goes on."""
    monkeypatch.setattr("checkpointers.upkeep.DROPPED_AT_A_TIME", at_a_time)
    app = loop(saver, schema)
    app.invoke({"until": 150, "n": 0}, config())
    before = {s[3]: s for s in states(app)}
    size = saver.threads()[0].bytes
    (dry,) = saver.retain(Keep(last=3, pinned=[40, "t@70"]), dry_run=True)
    assert saver.threads()[0].checkpoints == 152
    (done,) = saver.retain(Keep(last=3, pinned=[40, "t@70"]))
    assert (dry.kept, dry.dropped) == (done.kept, done.dropped)
    assert sorted(done.kept) == [40, 70, 150, 151, 152]
    assert saver.threads()[0].checkpoints == 5
    assert dry.frees == done.frees > 0.3 * size
    after = {s[3]: s for s in states(app)}
    assert difference(after, {step: before[step] for step in after}) is None
    app.invoke({"until": 155}, config())
    log = app.get_state(config()).values["log"]
    assert [entry["id"] for entry in log] == list(range(155))


def test_delta_threads_are_pruned_safely(saver: Saver) -> None:
    """A DeltaChannel that was never snapshotted survives `keep_latest`, runs on, and survives it again."""
    app = loop(saver, DeltaState)
    for until in (30, 60, 90):
        app.invoke({"until": until, "n": until - 30}, config())
        saver.prune(["t"])
        assert saver.threads()[0].checkpoints == 1
        assert app.get_state(config()).values["other"] == list(range(until))
        assert [entry["id"] for entry in app.get_state(config()).values["log"]] == list(range(until))


@pytest.mark.slow
def test_deleting_a_run_in_the_middle(saver: Saver) -> None:
    """What later runs were made from a deleted one stays readable, DeltaChannels included."""
    app = loop(saver, DeltaState)
    for run in ("one", "two", "three"):
        app.invoke({"until": 20, "n": 0}, config() | {"metadata": {"run_id": run}})
    before = {s[3]: s for s in states(app)}
    saver.delete_for_runs(["two"])
    after = {s[3]: s for s in states(app)}
    assert 0 < len(after) < len(before)
    assert difference(after, {step: before[step] for step in after}) is None
    saver.delete_for_runs(["three"])
    assert app.get_state(config()).values["other"] == list(range(20))


def test_retain_by_thread_and_tag_and_age(saver: Saver) -> None:
    """A policy goes over all threads, some, or those with a tag; an old thread goes whole."""
    app = loop(saver)
    for name in ("a", "b", "c"):
        app.invoke({"until": 5, "n": 0}, config(name))
    saver.tag("b", "archive")
    saver.pin("c", 2)
    assert [p.thread for p in saver.retain(Keep(), tag="archive")] == ["b"]
    assert [p.thread for p in saver.retain(Keep(), threads="a", dry_run=True)] == ["a"]
    assert [p.thread for p in saver.retain(Keep(), threads=["a", "missing"])] == ["a"]
    assert {i.thread: i.checkpoints for i in saver.threads()} == {"a": 1, "b": 1, "c": 7}
    assert saver.retain(Keep(max_age="1h")) != []
    assert {i.thread: i.checkpoints for i in saver.threads()} == {"a": 1, "b": 1, "c": 2}
    expired = saver.retain(Keep(max_age=0))
    assert {p.thread for p in expired if p.expired} == {"a", "b"}
    assert [i.thread for i in saver.threads()] == ["c"]
    saver.unpin("c", 2)
    saver.retain(Keep(max_age=0))
    assert saver.threads() == []
    assert saver.usage() == []


def test_reviews_and_subgraphs_survive_retention(saver: Saver) -> None:
    """A paused thread can be answered after everything else was dropped."""
    review(saver).invoke({}, config("r"))
    nested(saver).invoke({}, config("n"))
    saver.retain(Keep(last=0))
    saver.prune(["r", "n"])
    questions = review(saver).get_state(config("r")).interrupts
    done = review(saver).invoke(Command(resume={q.id: "ok" for q in questions}), config("r"))
    assert done["answers"] == ["ok", "ok"]
    assert nested(saver).invoke(Command(resume="fine"), config("n"))["answers"] == ["fine"]


def test_what_a_persistent_subgraph_remembered_stays(saver: Saver) -> None:
    """A step that is kept is replayed as before: with what its subgraph had in mind then, not now, nor nothing."""

    class Mind(TypedDict, total=False):
        n: int
        said: Annotated[list[int], operator.add]

    inner = StateGraph(Mind).add_node("count", lambda state: {"said": [len(state.get("said", []))]})
    inner.add_edge("__start__", "count")
    outer = StateGraph(State).add_node("pre", lambda state: {"n": state.get("n", 0) + 1})
    outer.add_node("inner", inner.compile(checkpointer=True))
    outer.add_edge("__start__", "pre").add_edge("pre", "inner")
    app = outer.compile(checkpointer=saver)
    for _ in range(5):
        app.invoke({}, config())
    (third,) = [one for one in app.get_state_history(config()) if one.values.get("n") == 3 and one.next == ("inner",)]
    step = next(one.number for one in saver.steps("t") if one.id == third.config["configurable"]["checkpoint_id"])
    kept = saver.retain(Keep(pinned=[step]))[0].kept
    assert [f"remembered at step {step}"] in kept.values()
    heads: list[Any] = []
    for chunk in app.stream(None, third.config, subgraphs=True):
        heads += [values["count"]["said"] for ns, values in [chunk] if ns and "count" in values]
    assert heads == [[2]]


def test_near_a_step_ids_tell_what_was_remembered() -> None:
    """Commits of a graph and of its subgraphs may be in another order than they were made in."""
    lines = [
        line(1),
        line(2, ns="inner", parent=0),
        line(3, ns="inner", parent=2),
        line(4, parent=1),
        line(5, parent=4),
    ]
    late = [replace(one, id="c44") if one.step == 3 else one for one in lines]
    assert kept(Keep(pinned=[4]), lines)[3] == ["head of its subgraph"]
    assert 2 not in kept(Keep(pinned=[4]), lines)
    assert kept(Keep(pinned=[4]), late)[2] == ["remembered at step 4"]
    far = [line(100, parent=0), *(line(n, ns="inner") for n in range(101, 199)), line(199, parent=100), line(200)]
    assert kept(Keep(pinned=[100]), far).keys() == {100, 198, 200}
    far[0] = replace(far[0], id="c150")
    assert kept(Keep(pinned=[100]), far).keys() == {100, 149, 198, 200}


@pytest.mark.parametrize("parents", [{"": ["a list"]}, {"": {}}, {"": 7}, ["none"]], ids=repr)
def test_metadata_that_says_nothing_of_the_parent_graph(saver: Saver, parents: Any) -> None:
    """What somebody wrote under `parents` that LangGraph never does names no step, and stops no policy."""
    checkpoint = {"v": 4, "id": "c1", "ts": "", "channel_values": {}, "channel_versions": {}, "versions_seen": {}}
    saver.put(config(checkpoint_ns="sub"), checkpoint, {"source": "loop", "step": 1, "parents": parents}, {})
    assert saver.retain(Keep(last=1), threads=["t"], dry_run=True) == []
    assert [step.ns for step in saver.steps("t", None)] == ["sub"]


@pytest.mark.parametrize("policy", ["retain", "prune"])
def test_a_thread_stands_where_it_stood_though_a_branch_beside_it_is_newer(url: str, policy: str) -> None:
    """The head is not the newest step where another writer's branch was kept beside it."""
    with reopen(url) as saver, reopen(url) as other:
        saver.on_conflict = other.on_conflict = "fork"
        mine, others = Context(), Context()
        begun = put(saver, {"x": "begun"})
        mine.run(saver.get_tuple, config())
        others.run(other.get_tuple, config())
        mine.run(put, saver, {"x": "head"}, after=begun, version=2)
        with pytest.warns(ForkedWarning):
            beside = others.run(put, other, {"x": "beside"}, after=begun, version=2)
        others.run(put, other, {"x": "beside, newer"}, after=beside, version=3)
        assert [step.beside for step in saver.steps("t")] == [False, False, True, True]
        if policy == "retain":
            (plan_of_t,) = saver.retain(Keep(last=1))
            assert plan_of_t.kept[2] == ["head"]
        else:
            saver.prune("t")
            assert [step.number for step in saver.steps("t")] == [2]
        assert values(saver) == {"x": "head"}
        assert (saver.threads()[0].step, saver.fsck()) == (2, [])


def test_space_is_given_back(saver: Saver) -> None:
    """After deleting, vacuum makes the database smaller on disk."""
    for n in range(30):
        put(saver, {"big": f"{n} " + random.Random(n).randbytes(10_000).hex()}, after=config(f"t{n}", checkpoint_ns=""))
    for n in range(30):
        saver.delete_thread(f"t{n}")
    before = saver.database.size()
    saver.vacuum(full=True)
    assert saver.database.size() < 0.5 * before
    assert saver.vacuum() >= 0


@pytest.mark.slow
def test_retention_beside_a_running_agent(saver: Saver) -> None:
    """Pruning a thread from elsewhere while it runs loses nothing of the run."""
    from concurrent.futures import ThreadPoolExecutor

    from tests.conftest import reopen

    with ThreadPoolExecutor(2) as pool:
        app = loop(saver)
        run = pool.submit(app.invoke, {"until": 120, "n": 0}, config())
        url = f"sqlite:///{saver.database.place}" if saver.database.dialect == "sqlite" else None
        other = reopen(url) if url else saver
        count = 0
        while not run.done():
            other.retain(Keep(last=2))
            count += 1
        if url:
            other.close()
        assert [e["id"] for e in run.result()["log"]] == list(range(120))
    assert count > 1
    assert [e["id"] for e in app.get_state(config()).values["log"]] == list(range(120))


def before_the_first_change(saver: Saver, patch: pytest.MonkeyPatch, deed: Callable[[], object]) -> None:
    """Let somebody else do something between what a job found and what it changes for that."""
    change, deeds = saver.database.exclusive, [deed]

    def changed(operation: Any) -> Any:
        if deeds:
            deeds.pop()()
        return change(operation)

    patch.setattr(saver.database, "exclusive", changed)


def chain(saver: Saver, text: str, count: int, *, run: str = "r", after: Any = None) -> list[Any]:
    places = [after]
    for number in range(1, count + 1):
        place = (places[-1] or config(checkpoint_ns="")) | {"metadata": {"run_id": run}}
        places.append(put(saver, {"x": f"{text} {number}"}, after=place, version=number))
    return places[1:]


def texts(saver: Saver) -> list[str]:
    return [one.checkpoint["channel_values"]["x"] for one in saver.list(config())][::-1]


def anew(saver: Saver) -> None:
    saver.delete_thread("t")
    chain(saver, "anew", 3)


MEANWHILE = {
    "begun anew": (anew, Keep(last=2), ["anew 2", "anew 3"]),
    "begun anew, longer": (lambda saver: (saver.delete_thread("t"), chain(saver, "anew", 8)), Keep(last=2),
                           ["anew 7", "anew 8"]),
    "taken back": (lambda saver: saver.delete_for_runs(["late"]), Keep(last=2), ["early 2", "early 3"]),
    "pinned": (lambda saver: saver.pin("t", 2), Keep(last=1), ["early 2", "late 3"]),
    "grown": (lambda saver: chain(saver, "new", 2, after=saver.get_tuple(config()).config), Keep(last=1),
              ["late 3", "new 1", "new 2"]),
    "cut by another": (lambda saver: saver.retain(Keep(last=1)), Keep(last=2), ["late 3"]),
    "expired, then written": (lambda saver: chain(saver, "new", 1, after=saver.get_tuple(config()).config),
                              Keep(max_age=0.5, last=2), ["late 3", "new 1"]),
    "expired, then pinned": (lambda saver: saver.pin("t", 2), Keep(max_age=0.5, last=2), ["early 2", "late 2", "late 3"]),
}  # fmt: skip


@pytest.mark.parametrize("case", MEANWHILE)
def test_a_thread_that_changes_between_its_plan_and_what_that_drops(
    url: str, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """A plan holds for the thread that it was made for, not for another one with the same numbers: else it is made again."""
    deed, keep, left = MEANWHILE[case]
    with reopen(url) as job, reopen(url) as other:
        chain(other, "late", 3, run="late", after=chain(other, "early", 3, run="early")[-1])
        if keep.max_age:
            time.sleep(0.6)
        before_the_first_change(job, monkeypatch, lambda: deed(other))
        job.retain(keep)
        assert texts(job) == left
        assert job.fsck() == []


@pytest.mark.parametrize(("call", "left"), [
    (lambda saver: saver.delete_for_runs("r"), ["anew 1", "anew 2", "anew 3"]),
    (lambda saver: saver.prune("t"), ["anew 3"]),
])  # fmt: skip
def test_a_thread_that_begins_anew_while_it_is_pruned(
    url: str, monkeypatch: pytest.MonkeyPatch, call: Callable[[Saver], None], left: list[str]
) -> None:
    """What goes is chosen when nobody else can change the thread any more."""
    with reopen(url) as job, reopen(url) as other:
        chain(other, "first", 6)

        def begin() -> None:
            other.delete_thread("t")
            chain(other, "anew", 3, run="another")

        before_the_first_change(job, monkeypatch, begin)
        call(job)
        assert texts(job) == left


def test_a_name_alone_is_one_name(saver: Saver) -> None:
    """A text is not the names of its letters."""
    for name in ("a", "b", "ab"):
        put(saver, {"n": 1}, after=config(name, checkpoint_ns="") | {"metadata": {"run_id": name}})
    saver.prune("ab", strategy="delete")
    assert {one.thread for one in saver.threads()} == {"a", "b"}
    saver.delete_for_runs("ab")
    saver.delete_for_runs("a")
    assert {one.thread for one in saver.threads()} == {"b"}
