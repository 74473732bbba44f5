"""History: every step of a thread, what changed, who changed it; over any saver, from stored rows alone."""

from __future__ import annotations

import asyncio
import math
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import StateGraph
from langgraph.types import Command, interrupt

from checkpointers import (
    AsyncSaverError,
    CheckpointerError,
    History,
    HistoryError,
    IncompleteRecordError,
    Keep,
    Saver,
    SqliteSaver,
    Told,
    UnknownPathError,
    UnknownStepError,
    UnknownThreadError,
    export_html,
    open_saver,
)
from checkpointers.authors import nodes_of
from checkpointers.statements import Together
from checkpointers.threads import StepInfo
from tests.checkpointers.graphs import DeltaState, State, config, loop, nested, review
from tests.checkpointers.test_storage import put
from tests.checkpointers.wild import same
from tests.conftest import reopen

ROOT = Path(__file__).parent.parent.parent
AT = datetime(2026, 11, 18, tzinfo=UTC)


@pytest.fixture(params=["sqlite", "postgres", "official sqlite", "official postgres", "memory"])
def any_saver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Give each saver in turn, ours and the official ones."""
    with _opened(request, tmp_path) as saver:
        yield saver


@contextmanager
def _opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "memory":
        yield InMemorySaver()
        return
    urls = {"sqlite": f"sqlite:///{tmp_path}/any.db", "official sqlite": f"langgraph+sqlite:///{tmp_path}/any.db"}
    url = urls.get(request.param) or request.getfixturevalue("postgres_url")
    with open_saver(f"langgraph+{url}" if request.param == "official postgres" else url) as saver:
        yield saver


def test_a_thread_step_by_step(any_saver: Any) -> None:
    """Numbers, parents, sources, nodes, values and what each step wrote, the same for every saver."""
    app = loop(any_saver)
    app.invoke({"until": 3, "n": 0}, config())
    history = History(any_saver, "t")
    assert [step.number for step in history] == [1, 2, 3, 4, 5]
    assert (len(history), str(history[3]), history[-1].number) == (5, "t@3", 5)
    assert [step.parent for step in history] == [None, 1, 2, 3, 4]
    assert [step.source for step in history] == ["input", "loop", "loop", "loop", "loop"]
    assert [step.nodes for step in history] == [(), ("__start__",), ("work",), ("work",), ("work",)]
    assert [step.status for step in history] == ["pending"] * 4 + ["done"]
    assert [sorted(step.wrote) for step in history] == [[], ["n", "until"], *[["log", "messages", "n"]] * 3]
    states = list(reversed(list(app.get_state_history(config()))))
    for step, state in zip(history, states, strict=True):
        stored = {name: value for name, value in state.values.items() if value != []}
        assert same(dict(sorted(step.values.items())), dict(sorted(stored.items())))
        assert step.at.isoformat() == state.created_at
        assert app.get_state(step.config).values == state.values
        assert step.metadata["step"] == state.metadata["step"]
    assert repr(history) == "<History 't': 5 steps, 1 to 5>"
    assert repr(history[5]).startswith("<Step t@5 loop done ")
    assert history[5] == history[-1] != history[4]
    assert len({history[5], history[-1]}) == 1


def test_parallel_nodes_questions_and_updates(any_saver: Any) -> None:
    """Each channel is blamed on the node that wrote it; questions stay readable after their answers."""
    app = review(any_saver)
    app.invoke({}, config())
    waiting = History(any_saver, "t")[-1]
    assert (waiting.status, sorted(asked.value["ask"] for asked in waiting.interrupts)) == ("waiting", [1, 2])
    app.invoke(Command(resume={asked.id: "yes" for asked in waiting.interrupts}), config())
    app.update_state(config(), {"n": 3}, as_node="work")
    history = History(any_saver, "t")
    made = history[-2]
    assert (made.nodes, made.writers("answers"), made.writers("log")) == (("ask", "work"), ("ask",), ("work",))
    assert made.wrote == {"answers": ["yes", "yes"], "log": [{"did": 3}]}
    assert (history[-1].source, history[-1].nodes, history[-1].wrote) == ("update", (), {"n": 3})
    assert [(b.step, b.nodes, b.source, b.after) for b in history.blame("answers.0")] == [(3, ("ask",), "loop", "yes")]
    assert len(history[2].interrupts) == 2
    assert "update" in str(history.blame("n")[0])


def test_pulled_nodes_side_by_side(any_saver: Any) -> None:
    """Two nodes of one superstep that edges started are told apart, joins included."""
    builder = StateGraph(State)
    builder.add_node("a", lambda s: {"log": ["a"]})
    builder.add_node("b", lambda s: {"n": 7})
    builder.add_node("both", lambda s: {"answers": ["both"]})
    builder.add_node("other", lambda s: {"static": "other"})
    for source, target in (("__start__", "a"), ("__start__", "b"), (["a", "b"], "both"), ("a", "other")):
        builder.add_edge(source, target)
    builder.compile(checkpointer=any_saver).invoke({}, config())
    history = History(any_saver, "t")
    assert [step.nodes for step in history] == [(), ("__start__",), ("a", "b"), ("both", "other")]
    assert [history.blame(path)[0].nodes for path in ("log", "n", "answers", "static")] == [
        ("a",), ("b",), ("both",), ("other",),
    ]  # fmt: skip


def two_at_once(saver: Any, schema: type) -> Any:
    builder = StateGraph(schema)
    builder.add_node("begin", lambda s: {"until": s.get("until", -1) + 1})
    builder.add_node("a", lambda s: {"log": ["a"]} if s["until"] else {})
    builder.add_node("b", lambda s: {"n": interrupt("n?") if s.get("answers") == ["ask"] else 7})
    for source, target in (("__start__", "begin"), ("begin", "a"), ("begin", "b")):
        builder.add_edge(source, target)
    return builder.compile(checkpointer=saver)


def test_writers_after_a_fork_of_a_delta(any_saver: Any) -> None:
    """A fork of a step after which a DeltaChannel was first written stores it empty, as read by every node that ran."""
    app = two_at_once(any_saver, DeltaState)
    for _ in range(2):
        app.invoke({"n": 0}, config())
    place = app.update_state(History(any_saver, "t")[7].config, {"until": 2}, as_node="begin")
    app.invoke(None, place)
    made = History(any_saver, "t")[-1]
    assert (made.nodes, made.writers("log"), made.writers("n")) == (("a", "b"), ("a",), ("b",))


def test_what_came_with_an_answer_is_no_nodes(any_saver: Any) -> None:
    """An update that comes with `Command` is stored beside the writes of the nodes that go on."""
    app = two_at_once(any_saver, State)
    app.invoke({"answers": ["ask"], "until": 0}, config())
    app.invoke(Command(resume=8, update={"log": ["by hand"]}), config())
    made = History(any_saver, "t")[-1]
    assert (made.nodes, made.writers("log"), made.writers("n")) == (("a", "b"), ("a",), ("b",))


def test_failures_are_told(any_saver: Any) -> None:
    """The step that a failed node ran from has its error."""

    def fail(state: Any) -> Any:
        raise ValueError("no such luck")

    builder = StateGraph(State)
    builder.add_node("fail", fail)
    builder.add_edge("__start__", "fail")
    with pytest.raises(ValueError, match="no such luck"):
        builder.compile(checkpointer=any_saver).invoke({"n": 1}, config())
    head = History(any_saver, "t")[-1]
    assert head.status == "failed"
    assert "no such luck" in str(head.errors[0])


def test_subgraphs_have_their_own_history(any_saver: Any) -> None:
    """A namespace is a history of its own; its numbers are the thread's."""
    app = nested(any_saver)
    app.invoke({}, config())
    app.invoke(Command(resume="fine"), config())
    outer = History(any_saver, "t")
    ns = next(found.config["configurable"]["checkpoint_ns"] for found in any_saver.list(config())
              if found.config["configurable"]["checkpoint_ns"])  # fmt: skip
    inner = History(any_saver, "t", ns=ns)
    assert [step.nodes for step in outer][1:] == [("__start__",), ("before",), ("inner",), ("after",)]
    assert [step.nodes for step in inner][1:] == [("__start__",), ("first",), ("ask",)]
    assert inner.blame("answers[0]")[0].nodes == ("ask",)
    assert app.get_state(inner[-1].config).values["answers"] == ["fine"]
    if isinstance(any_saver, Saver):
        assert sorted(step.number for history in (outer, inner) for step in history) == list(range(1, 10))
        with pytest.raises(
            UnknownStepError, match="steps 1 to 9, 4 in other namespaces, this one in namespace 'inner:"
        ):
            _ = outer[inner[-1].number]
        with pytest.raises(UnknownStepError, match=r"no steps in namespace 'zzz'; it has them in '', 'inner:"):
            History(any_saver, "t", ns="zzz")


def forked(saver: Any) -> Any:
    app = loop(saver)
    app.invoke({"until": 4, "n": 0}, config())
    old = History(saver, "t")[4]
    app.invoke(None, app.update_state(old.config, {"log": ["edited"], "static": "fork"}, as_node="work"))
    return app


def test_blame_and_bisect_follow_the_head(any_saver: Any) -> None:
    """What another branch set is not blamed; the first step is looked for on the way to the head alone."""
    forked(any_saver)
    history = History(any_saver, "t")
    assert [step.parent for step in history] == [None, 1, 2, 3, 4, 5, 4, 7, 8]
    assert [(b.step, b.before, b.after) for b in history.blame("n")] == [
        (9, 3, 4), (8, 2, 3), (4, 1, 2), (3, 0, 1), (2, None, 0),
    ]  # fmt: skip
    assert [(b.step, b.source, b.kind) for b in history.blame("static")] == [(7, "update", "added")]
    assert history.bisect(lambda step: step.values.get("n", 0) >= 3).number == 8
    assert history.bisect(lambda step: True).number == 1
    assert history.bisect(lambda step: "purple" in step.values) is None
    assert [str(change) for change in history.diff(5, 7) if change.path in ("static", "n")] == [
        "~ n  3 → 2", "+ static  'fork'",
    ]  # fmt: skip


def test_a_page_says_that_it_does_not_know(any_saver: Any) -> None:
    """A page answers where something began only if it began there; what a search finds in it may be older."""
    forked(any_saver)
    whole, page = History(any_saver, "t"), History(any_saver, "t", newest=2)
    assert [step.number for step in page] == [8, 9]
    for least, first in ((4, 9), (3, 8)):
        assert page.bisect(lambda step, least=least: step.values.get("n", 0) >= least).number == first
        assert whole.bisect(lambda step, least=least: step.values.get("n", 0) >= least).number == first
    assert page.bisect(lambda step: "purple" in step.values) is None
    with pytest.raises(HistoryError, match="true at t@7 already, and of thread 't' only the newest 2 steps were read"):
        page.bisect(lambda step: step.values.get("n", 0) >= 2)
    assert History(any_saver, "t", newest=9).bisect(lambda step: True).number == 1
    found = page.grep("entry")
    assert found.since == 8
    assert str(found).endswith("\n… steps before @8 were not read: what is here may be older")
    assert "were not read" not in str(page.grep("purple"))
    assert whole.grep("entry").since is History(any_saver, "t", newest=9).grep("entry").since is None


@pytest.mark.slow
@pytest.mark.parametrize(("wrong", "told"), [
    ({"wanted": None}, "a text or a pattern of text, not None"),
    ({"wanted": b"entry"}, "not b'entry'"),
    ({"wanted": re.compile(b"entry")}, "not re.compile"),
    ({"where": "stat"}, "'stat' is nowhere to look; there are state, writes, metadata"),
    ({"where": ["state", "meta"]}, "'meta' is nowhere"),
    ({"where": []}, "say where to look: state, writes, metadata"),
    ({"where": None}, "say where to look"),
    ({"limit": -1}, "limit is a whole number from 0 on, not -1"),
    ({"limit": "3"}, "limit is a whole number"),
])  # fmt: skip
def test_a_search_that_cannot_be_is_refused(any_saver: Any, wrong: dict[str, Any], told: str) -> None:
    """It says what it takes; it is not silently empty."""
    forked(any_saver)
    history = History(any_saver, "t")
    with pytest.raises(HistoryError, match=re.escape(told)):
        history.grep(**{"wanted": "entry", **wrong})
    none = history.grep("entry", limit=0)
    assert len(none) == 0
    assert none.left_out == len(history.grep("entry"))


def test_a_fork_made_by_running_again(any_saver: Any) -> None:
    """`invoke(None, old)` leaves a step of source "fork": nobody ran for it and it changed nothing."""
    app = loop(any_saver)
    app.invoke({"until": 3, "n": 0}, config())
    app.invoke(None, History(any_saver, "t")[3].config)
    fork = next(step for step in History(any_saver, "t") if step.source == "fork")
    assert (fork.nodes, fork.wrote) == ((), {})
    assert History(any_saver, "t")[-1].values["n"] == 3


def test_retention_leaves_gaps(saver: Saver) -> None:
    """Numbers stay; what was dropped is said; a step tells of all that was done since the one left before it."""
    loop(saver).invoke({"until": 15, "n": 0}, config())
    saver.pin("t", 5, 9)
    saver.retain(Keep(last=2))
    history = History(saver, "t")
    assert [step.number for step in history] == [5, 9, 16, 17]
    assert [step.parent for step in history] == [None, 5, 9, 16]
    assert (history[9].nodes, history[9].wrote["n"]) == (("work",), 7)
    assert [(b.step, b.before, b.after) for b in history.blame("n")] == [
        (17, 14, 15), (16, 7, 14), (9, 3, 7), (5, None, 3),
    ]  # fmt: skip
    with pytest.raises(UnknownStepError, match="has no step 4; there are steps 1 to 17, 13 of them dropped"):
        _ = history[4]
    step = History(saver, "t")[9]
    saver.unpin("t", 5, 9)
    saver.retain(Keep(last=1))
    with pytest.raises(UnknownStepError, match="t@9 was dropped since"):
        _ = step.values


def test_addresses(any_saver: Any) -> None:
    """`THREAD@N`, from the newest back, a number, a beginning of an id; what is none of these is said."""
    loop(any_saver).invoke({"until": 3, "n": 0}, config("ada@example.com"))
    loop(any_saver).invoke({"until": 3, "n": 0}, config("t"))
    history = History(any_saver, "ada@example.com")
    for address in ("ada@example.com@3", "@3", "3", 3, "ada@example.com@-3", "-3", history[3].id, f"@{history[3].id}"):
        assert history.at(address).number == 3, address
    begins = next(
        history[3].id[:n] for n in range(1, 37) if sum(s.id.startswith(history[3].id[:n]) for s in history) == 1
    )
    assert history.at(begins).number == 3
    with pytest.raises(UnknownStepError, match="'t@3' is of thread 't'; this is the history of 'ada@example.com'"):
        history.at("t@3")
    with pytest.raises(UnknownStepError, match="has no step 99; there are steps 1 to 5"):
        history.at("@99")
    with pytest.raises(UnknownStepError, match="begins 5 ids: "):
        history.at(history[3].id[:4])
    with pytest.raises(UnknownStepError, match="'zzz' is no step .* the newest step is ada@example.com@5"):
        history.at("zzz")
    with pytest.raises(LookupError):
        _ = history[0]


def test_digits_that_begin_an_id(saver: Saver) -> None:
    """They are a number if there is such a step, else the beginning of an id."""
    place = config(checkpoint_ns="")
    for number, name in ((1, "7700-a"), (2, "7711-b"), (3, "1-c")):
        checkpoint = {"v": 1, "id": name, "ts": "", "channel_values": {"n": number}, "channel_versions": {"n": number},
                      "versions_seen": {}}  # fmt: skip
        place = saver.put(place, checkpoint, {}, {"n": number})
    history = History(saver, "t")
    assert [history.at(address).number for address in ("t@7711", "7700", "@1", "1", "t@3")] == [2, 1, 1, 1, 3]
    with pytest.raises(UnknownStepError, match="begins 2 ids: 7700-a, 7711-b"):
        history.at("t@77")
    with pytest.raises(UnknownStepError, match="has no step 9"):
        history.at("t@9")


def test_only_the_newest(any_saver: Any) -> None:
    """A page has the numbers, parents and nodes that the whole has; what is older is said to be that."""
    forked(any_saver)
    whole, page = History(any_saver, "t"), History(any_saver, "t", newest=4)
    assert [step.number for step in page] == [6, 7, 8, 9]
    for step in page:
        assert (step.nodes, step.parent, step.wrote) == (
            whole[step.number].nodes, whole[step.number].parent, whole[step.number].wrote,
        )  # fmt: skip
    assert [(line.lane, line.branched_from) for line in page.log()] == [(0, "t@5"), (0, "t@4"), (0, None), (0, None)]
    assert page.blame("n")[0].step == 9
    assert page.grep("entry 3", where="state")[0].step == 6
    assert page.blame("log[3]") == whole.blame("log[3]")
    assert page.blame("until") == []  # it was set before
    with pytest.raises(UnknownPathError, match="nothing was ever at 'purple'"):
        page.blame("purple")
    with pytest.raises(UnknownStepError, match="only the newest 4 steps of thread 't' were read, not 3"):
        _ = page[3]
    for wrong in (0, -1, "3", 2.0, 10**30):
        with pytest.raises(HistoryError, match="newest is a whole number from 1 on, not "):
            History(any_saver, "t", newest=wrong)
    assert len(History(any_saver, "t", newest=99)) == 9


def asked_of(saver: Saver, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Note each request to the database, and how many rows it was given."""
    asked: list[tuple[str, int]] = []
    read = saver.database.read

    def noted(operation: Any) -> Any:
        answer = None
        while True:
            try:
                request = operation.send(answer)
            except StopIteration as end:
                return end.value
            answer = yield request
            each = (
                zip(request.statements, answer, strict=True) if isinstance(request, Together) else [(request, answer)]
            )
            asked.extend((one.sql, len(rows)) for one, rows in each)

    monkeypatch.setattr(saver.database, "read", lambda operation: read(lambda: noted(operation())))
    return asked


def test_a_page_reads_its_rows_only(saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a long thread the newest rows are read, and those that they were made from; subgraphs are among them."""
    loop(saver).invoke({"until": 40, "n": 0}, config())
    nested(saver).invoke({}, config("n"))
    asked = asked_of(saver, monkeypatch)
    assert [info.number for info in saver.steps("t", newest=5)] == [37, 38, 39, 40, 41, 42]
    assert sum(rows for _, rows in asked) < 12
    assert asyncio.run(saver.asteps("t", newest=5)) == saver.steps("t")[-6:]
    every = saver.steps("n", None)
    assert saver.steps("n", None, newest=3)[-3:] == every[-3:]
    assert saver.steps("n", None, newest=99) == every
    assert saver.steps("nobody", newest=3) == []


def test_a_page_that_cannot_be_is_refused(saver: Saver) -> None:
    """Numbers of steps that are none say so, whatever the database; so do two ways to choose at once."""
    loop(saver).invoke({"until": 5, "n": 0}, config())
    for wrong in (0, -1, "3", 2.0, True, 10**30):
        with pytest.raises(HistoryError, match=f"newest is a whole number from 1 on, not {wrong!r}"):
            saver.steps("t", newest=wrong)
    for wrong in (-1, "3", None, 10**30):
        with pytest.raises(HistoryError, match=f"after is a whole number from 0 on, not {wrong!r}"):
            saver.steps("t", after=wrong)
    for wrong in (-1, "3", 10**30):
        with pytest.raises(HistoryError, match=f"limit is a whole number from 0 on, not {wrong!r}"):
            saver.threads(limit=wrong)
    with pytest.raises(HistoryError, match="either the newest steps or those after one"):
        saver.steps("t", newest=3, after=2)
    with pytest.raises(HistoryError, match="newest"):
        asyncio.run(saver.asteps("t", newest=0))
    assert [info.number for info in saver.steps("t", after=6)] == [7]
    assert saver.threads(limit=0) == []


def test_a_page_misses_its_head(tmp_path: Path) -> None:
    """A newest row that is gone is noticed by who reads only the newest."""
    with SqliteSaver.open(tmp_path / "damaged.db") as saver:
        loop(saver).invoke({"until": 5, "n": 0}, config())
        saver.database._writer.execute("DELETE FROM cp_checkpoints WHERE step = 7")
        with pytest.raises(IncompleteRecordError, match="t@7"):
            saver.steps("t", newest=2)


def test_what_is_gathered_is_what_is_loaded(any_saver: Any) -> None:
    """Read in one go, every state, write and node is what it is alone; an element of two states is one object."""
    forked(any_saver)
    review(any_saver).invoke({}, config("r"))
    loop(any_saver, DeltaState).invoke({"until": 6, "n": 0}, config("d"))
    for thread in ("t", "r", "d"):
        alone, together = History(any_saver, thread), History(any_saver, thread)._gathered()
        assert (together._timeline.rows is not None) == isinstance(any_saver, Saver)
        for one, other in zip(alone, together, strict=True):
            assert same(dict(one.values), dict(other.values))
            assert same(one.stored.metadata, other.stored.metadata)
            assert one.stored.checkpoint == other.stored.checkpoint
            assert one.stored.parent_config == other.stored.parent_config
            assert (one.pending, one.nodes) == (other.pending, other.nodes)
    if isinstance(any_saver, Saver):
        together = History(any_saver, "t")._gathered()
        assert together[4].values["log"][0] is together[9].values["log"][0]


@pytest.mark.parametrize("verb", [
    lambda history: history.grep("item"), lambda history: history.blame("log[0].text"),
    lambda history: history.export("json"), lambda history: history.export("markdown"), export_html,
])  # fmt: skip
def test_no_verb_makes_steps_share_what_they_hold(saver: Saver, verb: Callable[[History], Any]) -> None:
    """Who changes a value of one step changes no other, nor what is asked later, whatever was asked before."""
    last: Any = None
    log: list[dict[str, str]] = []
    for number in range(1, 25):
        log = [*log, {"text": f"item {number}"}]
        last = put(saver, {"log": log}, after=last, version=number)
    history = History(saver, "t")
    given = verb(history)
    history[9].values["log"][0]["text"] = "other"
    assert [step.number for step in history if step.values["log"][0]["text"] == "other"] == [9]
    assert verb(history) == given


def test_what_blame_gives_is_of_one_step(saver: Saver) -> None:
    """The values of two changes are two objects, though a value was put back as it was."""
    last: Any = None
    for number in range(1, 25):
        value = {"part": {"text": "even" if number % 2 == 0 else "odd"}}
        last = put(saver, {"log": [value]}, after=last, version=number)
    first, second, *_ = History(saver, "t").blame("log[0].part")
    first.before["text"] = "changed"
    assert second.after == {"text": "odd"}


def test_who_was_sent_is_read_without_the_rest(saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nodes that a `Send` started are named by one channel of the parent; no state is loaded."""
    review(saver).invoke({}, config())
    answered = {one.id: "yes" for one in History(saver, "t")[-1].interrupts}
    review(saver).invoke(Command(resume=answered), config())
    monkeypatch.setattr(saver, "get_tuple", lambda place: pytest.fail("a whole state was loaded"))
    assert History(saver, "t")[-1].nodes == ("ask", "work")


def test_what_is_not_there(any_saver: Any) -> None:
    """An unknown thread or path is an error of its own that says what there is."""
    with pytest.raises(UnknownThreadError, match="no thread 'nobody'"):
        History(any_saver, "nobody")
    loop(any_saver).invoke({"until": 3, "n": 0}, config())
    history = History(any_saver, "t")
    for path, matches in {
        "lag": ("log",), "log.7": ("log.0", "log.1", "log.2"), "log.1.txt": ("log.1.text",), "messages.m11": ("messages.m1",),
        "branch:to:work": ("until", "n", "log", "messages"), "n.x": (),
    }.items():  # fmt: skip
        with pytest.raises(UnknownPathError, match="nothing was ever at") as caught:
            history.blame(path)
        assert set(matches) <= set(caught.value.matches), path
    for path in ("", ".n", "log..1", "log[", "log[x]", "log[0]text"):
        with pytest.raises(HistoryError, match="is no path; write it like"):
            history.blame(path)


def test_blame_on_a_thread_made_by_hand(saver: Saver) -> None:
    """Set, changed, not touched, removed, set again: each time is told, through keys, ids, indexes and attributes."""
    message = HumanMessage("hello", id="m1")
    states: list[dict[str, Any]] = [
        {"facts": {"build": "red", "a.b": 1}, "plan": [{"id": "p1", "done": False}], "messages": [message]},
        {"facts": {"build": "green", "a.b": 1}, "plan": [{"id": "p1", "done": False}], "messages": [message]},
        {
            "facts": {"build": "green", "a.b": 2},
            "plan": [{"id": "p0"}, {"id": "p1", "done": True}],
            "messages": [message],
        },
        {"facts": {"a.b": 2}, "plan": [{"id": "p0"}], "messages": [message, HumanMessage("more", id="m2")]},
        {"facts": {"a.b": 2, "build": "blue"}, "plan": [{"id": "p0"}], "messages": [HumanMessage("edited", id="m1")]},
    ]
    place = None
    for version, values in enumerate(states, 1):
        place = put(saver, values, after=place, version=version)
    history = History(saver, "t")

    def told(path: str) -> list[tuple[int, str, Any, Any]]:
        return [(b.step, b.kind, b.before, b.after) for b in history.blame(path)]

    assert told("facts.build") == [
        (5, "added", None, "blue"), (4, "removed", "green", None), (2, "changed", "red", "green"), (1, "added", None, "red"),
    ]  # fmt: skip
    assert told('facts["a.b"]') == [(3, "changed", 1, 2), (1, "added", None, 1)]
    assert told("plan.p1.done") == [(4, "removed", True, None), (3, "changed", False, True), (1, "added", None, False)]
    assert told("plan[0].id") == [(3, "changed", "p1", "p0"), (1, "added", None, "p1")]
    assert told("plan[-1].id") == [(4, "changed", "p1", "p0"), (1, "added", None, "p1")]
    assert told("messages.m1.content") == [(5, "changed", "hello", "edited"), (1, "added", None, "hello")]
    assert [str(change) for change in history.diff(2, 3)] == [
        '~ facts["a.b"]  1 → 2', "~ plan.p1.done  False → True", "+ plan.p0  {'id': 'p0'}",
    ]  # fmt: skip
    assert not history.diff(3, 3)
    assert str(history.diff(history[4], history[5])).startswith("t@4 → t@5: 3 changes\n  + facts.build  'blue'\n")
    assert history[5].before == history[4].values


@pytest.mark.parametrize("length", [1, 2, 3, 17, 100])
def test_bisect_loads_few_states(saver: Saver, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of n steps at most ceil(log2(n)) + 1 are loaded, wherever the change is."""
    place = None
    for version in range(1, length + 1):
        place = put(saver, {"n": version}, after=place, version=version)
    loads = []
    load = saver.get_tuple
    monkeypatch.setattr(saver, "get_tuple", lambda place: loads.append(place) or load(place))
    for first in {1, 2, length // 2, length, length + 1}:
        loads.clear()
        found = History(saver, "t").bisect(lambda step, first=first: step.values["n"] >= first)
        assert (found.number if found else None) == (max(1, first) if first <= length else None)
        assert len(loads) <= math.ceil(math.log2(length)) + 1


def test_delta_channels_are_told(any_saver: Any) -> None:
    """Between snapshots the value of a DeltaChannel is its seed and what it was told; nothing is missing in silence."""
    loop(any_saver, DeltaState).invoke({"until": 6, "n": 0}, config())
    history = History(any_saver, "t")
    assert history[4].values["other"] == Told(None, ([0], [1]))
    assert [item["id"] for item in history[6].values["log"]] == [0, 1, 2, 3]
    seeded = history[8].values["log"]
    assert [item["id"] for item in seeded.seed] == [0, 1, 2, 3]
    assert [item["id"] for some in seeded.writes for item in some] == [4, 5]
    assert sorted(history[8].wrote) == ["log", "n", "other"]
    assert [b.step for b in history.blame("other")] == [8, 7, 6, 5, 4, 3]
    assert history.blame("n")[0].after == 6
    with pytest.raises(HistoryError, match="'log' is a DeltaChannel"):
        history.blame("log[0]")


def test_listing_steps_decodes_nothing(url: str) -> None:
    """Steps, their parents, times, statuses and nodes come without a stored value; so does the length."""

    class Explodes:
        def dumps_typed(self, value: Any) -> Any:
            raise AssertionError

        loads_typed = dumps_typed

    with reopen(url) as saver:
        loop(saver).invoke({"until": 3, "n": 0}, config())
        review(saver).invoke({}, config("w"))
        whole = saver.steps("t")
    with reopen(url, serde=Explodes()) as saver:
        assert saver.steps("t") == whole == asyncio.run(saver.asteps("t"))
        assert saver.steps("nobody") == []
        history = History(saver, "t")
        assert [step.nodes for step in history][2:] == [("work",)] * 3
        assert (len(history), history[-1].parent, History(saver, "w")[-1].status) == (5, 4, "waiting")
        with pytest.raises(CheckpointerError):
            _ = history[-1].values


def test_many_steps_are_listed_at_once(saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log is a few questions however long it is, and none for the values or writes."""
    loop(saver).invoke({"until": 98, "n": 0}, config())
    asked = asked_of(saver, monkeypatch)
    assert len(History(saver, "t").log()) == 100
    assert len(asked) <= 8
    assert not [sql for sql, _ in asked if "cp_elements" in sql or "cp_writes" in sql]


@pytest.mark.slow
def test_a_step_is_read_alone(saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who shows a step, or what differs between two, reads no more checkpoints than those and their parents."""
    loop(saver).invoke({"until": 98, "n": 0}, config())
    whole = History(saver, "t")
    told = [(s.nodes, s.parent, s.wrote, s.status, s.at) for s in (list(whole)[59], whole[100])]
    changes = str(whole.diff(59, 60))
    asked = asked_of(saver, monkeypatch)
    for ask in (lambda: [(s.nodes, s.parent, s.wrote, s.status, s.at) for s in (History(saver, "t")[60], History(saver, "t")[-1])],
                lambda: str(History(saver, "t").diff(59, 60))):  # fmt: skip
        asked.clear()
        assert ask() in (told, changes)
        assert sum(rows for sql, rows in asked if "cp_checkpoints" in sql) <= 16


def test_a_step_read_alone_is_the_listed_one(any_saver: Any) -> None:
    """Asked for by number, from the newest back, or by an id, before the others are listed or after: the same step."""
    forked(any_saver)
    listed = list(History(any_saver, "t"))
    for step in listed:
        for own in (step.number, step.number - len(listed) - 1, step.id, f"t@{step.number}"):
            alone = History(any_saver, "t").at(own)
            assert (alone, alone.parent, alone.nodes, alone.before) == (step, step.parent, step.nodes, step.before)
            assert [str(one) for one in alone.ancestry] == [str(one) for one in step.ancestry]
    for wrong in (0, 10, -10, 10**30):
        with pytest.raises(UnknownStepError, match="steps 1 to 9"):
            History(any_saver, "t")[wrong]


def test_verbs_load_what_they_need(saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A diff loads two states, a step its own and its parent's, blame of a channel that channel alone."""
    loop(saver).invoke({"until": 38, "n": 0}, config())
    loads, channels = [], []
    load, channel = saver.get_tuple, saver.get_channel
    monkeypatch.setattr(saver, "get_tuple", lambda place: loads.append(place) or load(place))
    monkeypatch.setattr(saver, "get_channel", lambda place, *rest: channels.append(rest[0]) or channel(place, *rest))
    History(saver, "t").diff(3, 30)
    assert (len(loads), channels) == (2, [])
    _ = History(saver, "t")[20].wrote
    assert (len(loads), channels) == (4, [])
    assert len(History(saver, "t").blame("n")) == 39
    assert (len(loads), set(channels)) == (4, {"n"})
    assert len(channels) <= 80


def test_history_never_writes(tmp_path: Path) -> None:
    """Everything works on a file that may not be written, and not a byte of it changes."""
    path = tmp_path / "read.db"
    with SqliteSaver.open(path) as saver:
        forked(saver)
        loop(saver, DeltaState).invoke({"until": 6, "n": 0}, config("d"))
    before = path.read_bytes()
    with SqliteSaver.open(path, read_only=True) as saver:
        for thread in ("t", "d"):
            history = History(saver, thread)
            assert all([step.values, step.wrote, step.nodes, step.interrupts, step.errors] for step in history)
            assert history.diff(2, -1)
            assert history.blame("n")
            assert history.bisect(lambda step: step.values.get("n", 0) > 1)
    assert path.read_bytes() == before


def test_a_damaged_step_is_said_and_the_others_read(tmp_path: Path) -> None:
    """The saver's own error comes through; other steps stay readable."""
    with SqliteSaver.open(tmp_path / "damaged.db") as saver:
        first = put(saver, {"x": [{"id": n, "text": f"text of {n} " * 9} for n in range(3)]})
        put(saver, {"x": [{"id": 7, "text": "another text " * 9}]}, after=first, version=2)
        saver.database._writer.execute("DELETE FROM cp_elements WHERE n <= 3")
        history = History(saver, "t")
        assert len(history) == 2
        with pytest.raises(IncompleteRecordError, match="t@1: channel 'x'"):
            _ = history[1].values
        with pytest.raises(IncompleteRecordError):
            history.diff(1, 2)


def test_async_savers_say_what_to_use(tmp_path: Path) -> None:
    """In its own loop an async saver cannot answer; from another thread it can; when its loop is over, it says so."""

    async def inside() -> AsyncSqliteSaver:
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "async.db")) as saver:
            await loop(saver).ainvoke({"until": 2, "n": 0}, config())
            with pytest.raises(AsyncSaverError, match="AsyncSqliteSaver answers only .* asyncio.to_thread"):
                History(saver, "t")
            history = await asyncio.to_thread(History, saver, "t")
            assert (await asyncio.to_thread(lambda: history[-1].values))["n"] == 2
            with pytest.raises(AsyncSaverError):
                _ = history[2].values
        return saver

    saver = asyncio.run(inside())
    with pytest.raises(AsyncSaverError):
        History(saver, "t")


def test_inside_a_running_loop(saver: Saver) -> None:
    """Ours answers inside a notebook's loop, also for threads that were made async."""

    async def inside() -> None:
        await loop(saver).ainvoke({"until": 3, "n": 0}, config())
        history = History(saver, "t")
        assert history[-1].values["n"] == 3
        assert history.blame("n")[0].step == 5
        assert [info.number for info in await saver.asteps("t", None)] == [1, 2, 3, 4, 5]

    asyncio.run(inside())


@pytest.mark.slow
def test_the_graph_is_not_imported(tmp_path: Path) -> None:
    """A thread is read without `langgraph.graph` and `langgraph.pregel`, which cost a second."""
    url = f"sqlite:///{tmp_path}/alone.db"
    with open_saver(url) as saver:
        loop(saver).invoke({"until": 3, "n": 0}, config())
    code = (
        f"import sys; from checkpointers import History, open_saver; h = History(open_saver({url!r}), 't');"
        "print(h[-1].values['n'], len(h.diff(2, 5)), h.blame('log.1.text')[0].step, h[4].nodes, h[4].interrupts,"
        " [m for m in sys.modules if m.startswith(('langgraph.graph', 'langgraph.pregel'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "3 3 4 ('work',) [] []"


def test_a_history_is_what_it_was_when_it_was_made(saver: Saver) -> None:
    """Steps made later are not in it, whenever it is looked at; a new one has them."""
    app = loop(saver)
    app.invoke({"until": 2, "n": 0}, config())
    history = History(saver, "t")
    app.invoke({"until": 4}, config())
    assert (len(history), len(History(saver, "t"))) == (4, 8)
    assert history[-1].number == 4


@pytest.mark.parametrize(
    "verb",
    [
        lambda history: history.blame("x"),
        lambda history: history.bisect(lambda step: step.values["x"] > 2),
        lambda history: history.compare(history),
        lambda history: history[-1].ancestry,
    ],
)
@pytest.mark.parametrize("anew", [False, True])
def test_a_history_whose_newest_step_was_dropped(saver: Saver, anew: bool, verb: Callable[[History], Any]) -> None:
    """What goes by the way to the head says that this is gone, also where another life has a step of that number."""
    place = None
    for number in range(1, 5):
        config_ = {"configurable": {**(place or config(checkpoint_ns=""))["configurable"], "run_id": f"r{number}"}}
        place = put(saver, {"x": number}, after=config_, version=number)
    history = History(saver, "t")
    if anew:
        saver.delete_thread("t")
        for number in range(6):
            put(saver, {"x": number}, version=number)
    else:
        saver.delete_for_runs(["r4"])
    with pytest.raises(UnknownStepError, match="step t@4 was dropped since this history was read; make a new History"):
        verb(history)


def test_the_way_to_a_step_that_was_not_read(saver: Saver) -> None:
    """With `newest`, the step before those is there to be looked at, and the way to it is not known."""
    loop(saver).invoke({"until": 5, "n": 0}, config())
    history = History(saver, "t", newest=3)
    before = history.at(History(saver, "t")[-4].id)
    with pytest.raises(UnknownStepError, match="only the newest 3 steps of thread 't' were read"):
        history.compare(before)


def test_one_channel_of_a_step(saver: Saver) -> None:
    """A channel is read without the rest of the state, sync and async, at a step or at the newest."""
    loop(saver).invoke({"until": 30, "n": 0}, config())
    for step in History(saver, "t"):
        for name in ("n", "log", "messages", "nothing"):
            assert same(saver.get_channel(step.config, name, "none"), step.values.get(name, "none"))
    assert saver.get_channel(config(), "n") == asyncio.run(saver.aget_channel(config(), "n")) == 30
    assert saver.get_channel(config("nobody"), "n") is None
    history, unread = History(saver, "t"), History(saver, "t")
    assert len(history) == 32
    saver.retain(Keep(last=2))
    with pytest.raises(UnknownStepError, match="was dropped since this history was read"):
        history.blame("n")
    saver.delete_thread("t")
    with pytest.raises(UnknownStepError, match="t@32 was dropped since"):
        len(unread)


def test_states_are_loaded_once_for_neighbours(saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Going through the steps with what each wrote loads each state once."""
    loop(saver).invoke({"until": 18, "n": 0}, config())
    loads = []
    load = saver.get_tuple
    monkeypatch.setattr(saver, "get_tuple", lambda place: loads.append(place) or load(place))
    history = History(saver, "t")
    assert loads == []
    assert len([step.wrote for step in history]) == len(loads) == 20
    history.diff(19, 20)
    assert len(loads) == 20


def test_versions_that_a_snapshot_moved_name_no_node() -> None:
    """LangGraph may move what a node has seen when it stores a snapshot: that is no run of the node."""

    def info(number: int, seen: dict[str, Any]) -> StepInfo:
        return StepInfo(number, f"c{number}", None, AT, "loop", "done", {}, seen=seen)

    before = info(1, {"a": {"x": 1}, "b": {"y": 1}})
    moved = info(2, {"a": {"x": 2}, "b": {"y": 2}, "__snapshot_bumps__": {"a|x": 2, "a:x": 1}})
    assert nodes_of(moved, before, []) == ("b",)


def test_checkpoints_of_odd_makes(saver: Saver) -> None:
    """Ids that are no UUIDs, no step in the metadata, no time: read as far as they go."""
    place = config(checkpoint_ns="")
    for number in (1, 2):
        seen = {"a": {"x": number}, "b": {"x": number}}
        checkpoint = {
            "v": 1, "id": f"odd {number}", "ts": "", "channel_values": {"x": number},
            "channel_versions": {"x": number}, "versions_seen": seen,
        }  # fmt: skip
        place = saver.put(place, checkpoint, {}, {"x": number})
        saver.put_writes(place, [("x", 1)], "task")
    history = History(saver, "t")
    assert (history[2].nodes, history.blame("x")[0].nodes, history.at("odd 2").number) == (("a", "b"), ("a", "b"), 2)
    assert history[1].at.year >= 2026
    assert History(saver, "t")[1].source == ""


def test_objects_by_attribute(saver: Saver) -> None:
    """Messages are compared and found field by field."""
    first = put(saver, {"messages": [HumanMessage("hello", id="a"), AIMessage("hi", id="b")]})
    put(saver, {"messages": [AIMessage("hi!", id="b"), HumanMessage("hello", id="a")]}, after=first, version=2)
    changes = {(c.path, c.kind, c.before, c.after) for c in History(saver, "t").diff(1, 2)}
    assert ("messages.b.content", "changed", "hi", "hi!") in changes
    assert {kind for _, kind, *_ in changes} == {"changed", "moved"}
