"""Verbs of history: patches, grep, lanes, runs side by side; each against a naive reading of all states."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.memory import InMemorySaver

from checkpointers import History, HistoryError, Saver
from checkpointers.diffing import Diff, Stat
from checkpointers.lanes import Lane, lanes
from checkpointers.news import parts
from checkpointers.patching import applied, patch
from checkpointers.plain import as_json, visible
from checkpointers.searching import leaves
from checkpointers.timeline import internal
from tests.checkpointers.graphs import DeltaState, config, loop, review
from tests.checkpointers.test_diffing import _sorted, json_like
from tests.checkpointers.test_history import any_saver, forked  # noqa: F401  a fixture
from tests.checkpointers.test_storage import put
from tests.checkpointers.wild import difference, values


@given(json_like, json_like)
def test_a_patch_makes_the_one_of_the_other(a: Any, b: Any) -> None:
    """Law: applied to A it gives B exactly, by the library and by us; between equals there is none."""
    before, after = as_json({"x": a}), as_json({"x": b})
    operations = json.loads(json.dumps(Diff("a", "b", (), {"x": a}, {"x": b}).json_patch()))
    for result in (jsonpatch.apply_patch(before, operations), applied(before, operations)):
        assert difference(_sorted(result), _sorted(after)) is None
    assert bool(operations) == (difference(_sorted(before), _sorted(after)) is not None)


@given(values, values)
def test_any_value_is_patched_as_json(a: Any, b: Any) -> None:
    """Law: objects of every kind have a form in JSON, which a patch makes of another."""
    before, after = json.loads(json.dumps(as_json(a))), json.loads(json.dumps(as_json(b)))
    assert difference(_sorted(applied(before, patch(before, after))), _sorted(after)) is None


def test_a_patch_matches_items_by_id() -> None:
    """A moved item is moved, an added one added; the others are not spoken of."""
    items = [{"id": n, "text": f"{n}"} for n in range(9)]
    assert patch(items, [items[-1], *items[:-1]]) == [{"op": "move", "from": "/8", "path": "/0"}]
    assert patch(items, [{"id": "new"}, *items]) == [{"op": "add", "path": "/0", "value": {"id": "new"}}]
    assert patch(items, items[:4] + items[5:]) == [{"op": "remove", "path": "/4"}]
    with pytest.raises(HistoryError, match="does not fit"):
        applied([], [{"op": "remove", "path": "/4"}])
    with pytest.raises(HistoryError, match="without its states"):
        Diff("a", "b", ()).json_patch()


def test_stat_and_patch_of_two_steps(any_saver: Any) -> None:  # noqa: F811
    """Changes are counted by channel; the patch makes the later state; another thread's step may be the other."""
    forked(any_saver)
    loop(any_saver).invoke({"until": 2, "n": 0}, config("u"))
    history, other = History(any_saver, "t"), History(any_saver, "u")
    diff = history.diff(3, 5)
    assert diff.stat == {"n": Stat(changed=1), "log": Stat(added=2), "messages": Stat(added=2)}
    assert sum(one.added + one.removed + one.changed + one.moved for one in diff.stat.values()) == len(diff)
    assert [str(one) for one in diff.stat.values()] == ["~1", "+2", "+2"]
    for before, after in ((history[3], history[5]), (history[7], history[4]), (history[3], other[-1])):
        diff = history.diff(before, after)
        assert jsonpatch.apply_patch(as_json(before.values), diff.json_patch()) == as_json(after.values)
    assert (diff.before, diff.after) == ("t@3", "u@4")


def naive(history: History, pattern: str, where: str) -> set[tuple[int, str, str]]:
    """Look through all that every step has, and keep what was not met before."""
    met: set[tuple[str, str]] = set()
    found = set()
    for step in history:
        pairs = (
            step.values.items()
            if where == "state"
            else [(channel, value) for _, channel, value in step.pending if not internal(channel)]
        )
        for name, value in pairs:
            texts = [leaf for place, part in parts(name, value) for leaf in leaves(part, place)]
            for place, text in texts:
                if pattern in text and (place.key, text) not in met:
                    met.add((place.key, text))
                    found.add(
                        (step.number, place.path, next(line for line in text.split("\n") if pattern in line)[:160])
                    )
    return found


def test_grep(any_saver: Any) -> None:  # noqa: F811
    """Each value is told where it first appeared, on every branch; a write that was taken in, as the state it became."""
    forked(any_saver)
    history = History(any_saver, "t")
    found = history.grep("entry 1")
    assert [(m.step, m.where, m.path) for m in found] == [(4, "state", "log.1.text")]
    assert str(found[0]).startswith("@4  state  log.1.text: entry 1 entry 1")
    assert [(m.step, m.path) for m in history.grep("edited", where="state")] == [(7, "log[2]")]
    assert [m.step for m in history.grep(re.compile("ENTRY [01]", re.IGNORECASE), where="writes")] == [2, 3]
    assert {(m.where, m.path) for m in history.grep("fork")} >= {("state", "static")}
    assert [(m.step, m.line) for m in history.grep("input", where="metadata")] == [(1, "input")]
    few = history.grep("message", limit=2)
    assert (len(few), few.left_out > 0, str(few).splitlines()[-1]) == (2, True, f"… and {few.left_out} more")
    for pattern in ("entry", "m", "1", "e"):
        for where in ("state", "writes"):
            assert {(m.step, m.path, m.line) for m in history.grep(pattern, where=where, limit=10_000)} == naive(
                history, pattern, where
            )


def test_grep_in_questions_and_deltas(any_saver: Any) -> None:  # noqa: F811
    """What was asked is among the writes; what a DeltaChannel was told is found."""
    review(any_saver).invoke({}, config())
    asked = History(any_saver, "t").grep("2", where="writes")
    assert [match.line for match in asked if match.path.endswith(".value.ask")] == ["2"]
    assert not History(any_saver, "t").grep("__pregel")
    loop(any_saver, DeltaState).invoke({"until": 6, "n": 0}, config("d"))
    found = History(any_saver, "d").grep("entry 3", where="state")
    assert [(m.step, m.path) for m in found] == [(6, "log.3.text")]
    assert {(m.step, m.path, m.line) for m in History(any_saver, "d").grep("entry", where="state")} == naive(
        History(any_saver, "d"), "entry", "state"
    )


def test_lines_and_what_garbles() -> None:
    """Of a long text the lines that match, what is around it; controls are shown, not sent."""
    saver = InMemorySaver()
    text = "one\n" + "x" * 500 + "needle" + "y" * 500 + "\nneedle \x1b[31mred\u202e needle\nlast"
    put(saver, {"text": text})
    lines = [m.line for m in History(saver, "t").grep("needle")]
    assert [len(line) for line in lines] == [168, 23]
    assert str(History(saver, "t").grep("red")[0]).endswith("needle \\u001b[31mred\\u202e needle")
    assert visible("a\x00\u200b\U000e0041é\n") == "a\\u0000\\u200b\\udb40\\udc41é\n"


@given(st.lists(st.integers(0, 30), max_size=30))
def test_lanes_never_cross(parents: list[int]) -> None:
    """Law: whatever the forks, a lane is one step's or passes by, and leads from each step to those made from it."""
    steps = [(row, parent % (row + 1) - 1 if row else None) for row, parent in enumerate(parents)]
    steps = [(row, parent if parent is not None and parent >= 0 else None) for row, parent in steps]
    laid = lanes(steps)
    for row, at in enumerate(laid):
        assert at.lane not in at.passing
        assert not set(at.branches) & {at.lane, *at.passing}
        parent = steps[row][1]
        if parent is not None:
            assert (at.origin is None) == (laid[parent].lane == at.lane)
            assert at.origin in (None, parent)
            assert at.origin is None or at.lane in laid[parent].branches
            assert all(at.lane in laid[between].passing for between in range(parent + 1, row))
    row = len(steps) - 1
    while row > 0 and steps[row][1] is not None:  # the way to the newest step is one lane
        assert laid[row].origin is None
        row = steps[row][1]


def test_a_log_with_lanes(any_saver: Any) -> None:  # noqa: F811
    """A branch within a thread and a thread forked from it have lanes of their own."""
    forked(any_saver)
    state = History(any_saver, "t")[3]
    found = any_saver.get_tuple(state.config)
    metadata = {**found.metadata, "source": "fork", "forked_from": "t@3"}
    any_saver.put(config("u", checkpoint_ns=""), found.checkpoint, metadata, found.checkpoint["channel_versions"])
    history, other = History(any_saver, "t"), History(any_saver, "u")
    lines = history.log()
    assert [line.lane for line in lines] == [0, 0, 0, 0, 1, 1, 0, 0, 0]
    assert [line.passing for line in lines] == [(), (), (), (), (0,), (0,), (), (), ()]
    assert (lines[3].branches, lines[4].branched_from) == ((1,), "t@4")
    assert str(lines[6]).startswith("●  t@7")
    assert str(lines[4]).startswith("│ ●  t@5")
    both = {str(line.step): line for line in other.log(history)}
    assert both["u@1"].branched_from == "t@3"
    assert (both["u@1"].lane, both["u@1"].passing, both["t@3"].branches) == (1, (0,), (1,))
    assert other.log()[0].branched_from == "t@3"
    assert history.log(failed=True) == []
    assert lanes([("a", None)]) == [Lane(0)]


def test_two_runs_side_by_side(any_saver: Any) -> None:  # noqa: F811
    """Where two runs part, two branches of a thread, and a thread and its fork."""
    for thread, until in (("a", 4), ("b", 3)):
        loop(any_saver).invoke({"until": until, "n": 0}, config(thread))
    a, b = History(any_saver, "a"), History(any_saver, "b")
    found = a.compare(b)
    assert (str(found.parted.a), str(found.parted.b)) == ("a@2", "b@2")
    assert [change.path for change in found.parted.diff] == ["until"]
    assert (len(found), found.pairs[-1].b, found.totals[0]["steps"], found.totals[1]["work"]) == (6, None, 6, 3)
    assert a.compare(a).parted is None
    forked(any_saver)
    history = History(any_saver, "t")
    branches = history.compare(history[6])
    assert (branches.shared, str(branches.parted.a), str(branches.parted.b)) == (4, "t@7", "t@5")
    found = any_saver.get_tuple(history[3].config)
    metadata = {**found.metadata, "source": "fork", "forked_from": "t@3"}
    any_saver.put(config("u", checkpoint_ns=""), found.checkpoint, metadata, found.checkpoint["channel_versions"])
    fork = history.compare(History(any_saver, "u"))
    assert (fork.shared, fork.pairs[0].same, str(fork.pairs[0].a), str(fork.parted.a)) == (2, True, "t@3", "t@4")


def test_each_stored_value_is_read_once(saver: Saver) -> None:
    """What a search decodes grows with what is stored, not with steps times state."""
    loop(saver).invoke({"until": 60, "n": 0}, config())
    load, sizes = saver.serde.loads_typed, []
    saver.serde.loads_typed = lambda data: sizes.append(len(data[1])) or load(data)
    saver._codec = None
    assert len(History(saver, "t").grep("entry", where="state")) == 60
    assert 60 * 72 < sum(sizes) < 60 * 1_000
