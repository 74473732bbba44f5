"""Laws of blame, diff, bisect and grep: for threads of any shape, on every saver, against looking at all states.

Many more examples: `pytest tests/checkpointers/test_laws.py --hypothesis-profile=large`.
"""

from __future__ import annotations

import operator
from itertools import count, pairwise
from typing import Annotated, Any, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.channels import DeltaChannel
from langgraph.graph import StateGraph
from langgraph.types import Send

from checkpointers import History
from checkpointers.diffing import compare
from checkpointers.patching import applied
from checkpointers.plain import as_json
from checkpointers.timeline import Told
from tests.checkpointers.graphs import config, extend
from tests.checkpointers.test_history import any_saver  # noqa: F401  a fixture
from tests.checkpointers.test_verbs import naive
from tests.checkpointers.wild import difference, same

FEW = max(8, settings.default.max_examples // 10)
NUMBERS = count()


edits = st.lists(
    st.tuples(
        st.integers(0, 9),
        st.dictionaries(
            st.sampled_from(["log", "facts", "note"]),
            st.lists(st.sampled_from(["red", "green", {"id": "p", "text": "red"}, {"id": "q", "text": "blue green"}]), max_size=4)
            | st.dictionaries(st.sampled_from(["a", "b.c"]), st.sampled_from(["red", "green " * 9]), max_size=2)
            | st.sampled_from(["red", "a text that is long enough to be an element of its own, red " * 2]),
            max_size=3,
        ),
    ),
    min_size=1,
    max_size=12,
)  # fmt: skip


def grown(saver: Any, thread: str, steps: Any) -> dict[int, Any]:
    """Make a thread of any shape, each step from any before it; give their states by number."""
    places, states, versions = [config(thread, checkpoint_ns="")], [{}], [{}]
    for number, (parent, changes) in enumerate(steps, 1):
        before = 1 + parent % (number - 1) if number > 1 else 0
        states.append({**states[before], **changes})
        versions.append({**versions[before], **dict.fromkeys(changes, number)})
        checkpoint = {
            "v": 1, "id": f"{number:032d}", "ts": "2026-11-18T00:00:00+00:00", "channel_values": states[-1],
            "channel_versions": versions[-1], "versions_seen": {},
        }  # fmt: skip
        metadata = {"source": "loop", "step": number}
        places.append(saver.put(places[before], checkpoint, metadata, dict.fromkeys(changes, number)))
    return dict(enumerate(states[1:], 1))


@settings(max_examples=FEW)
@given(steps=edits)
def test_threads_of_any_shape(any_saver: Any, steps: Any) -> None:  # noqa: F811
    """Law: what a history says of any thread is what looking at all of its states says."""
    thread = f"t{next(NUMBERS)}"
    states = grown(any_saver, thread, steps)
    history = History(any_saver, thread)
    for number, state in states.items():
        assert dict(history[number].values) == state
        diff = history.diff(1, number)
        assert bool(diff) == bool(list(compare(states[1], state)))
        assert applied(as_json(states[1]), diff.json_patch()) == as_json(state)
    for pattern in ("red", "green"):
        found = {(m.step, m.path, m.line) for m in history.grep(pattern, where="state", limit=10_000)}
        assert found == naive(history, pattern, "state")
    chain = [step.number for step in history[-1].ancestry]
    for name in {name for number in chain for name in states[number]}:
        seen = [states[number].get(name) for number in chain]
        changed = [n for n, old, new in zip(chain, [None, *seen], seen, strict=False) if difference(old, new)]
        assert [blamed.step for blamed in history.blame(name)] == changed[::-1]
        found = history.bisect(lambda step, n=changed[-1]: step.number >= n)
        assert found is not None
        assert found.number == changed[-1]


def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    return {**old, **new}


class Anything(TypedDict, total=False):
    turn: int
    note: str
    log: Annotated[list[Any], operator.add]
    facts: Annotated[dict[str, Any], merged]
    told: Annotated[list[Any], DeltaChannel(extend, snapshot_frequency=3)]


NODES = ("a", "b", "c")
entries = st.lists(
    st.fixed_dictionaries({"id": st.integers(0, 5), "text": st.text("xy ", max_size=60)}), min_size=1, max_size=2
)
patches = st.fixed_dictionaries(
    {},
    optional={
        "log": entries,
        "told": entries,
        "facts": st.dictionaries(st.sampled_from(["red", "blue"]), st.integers(0, 2), min_size=1, max_size=2),
    },
)
# A turn: who runs side by side, by an edge or by a `Send` (the same node more than once), and what each writes.
turns = st.lists(st.tuples(st.sampled_from(NODES), st.booleans(), patches), min_size=1, max_size=3)
# A fork: from which step, what is written there by hand, and whether the graph goes on from it.
forks = st.tuples(st.integers(0, 30), patches, st.booleans())


def any_graph(saver: Any, script: list[Any]) -> Any:
    """Make a graph that does what a script says: a hub that sends to nodes, which come back to it."""

    def at(state: Any) -> list[Any]:
        turn = state.get("turn", 0) - 1
        return script[turn] if 0 <= turn < len(script) else []

    def way(state: Any) -> list[Any]:
        ways = [Send(node, {"patch": patch}) if sent else node for node, sent, patch in at(state)]
        return ways or ["__end__"]

    def work(name: str) -> Any:
        def node(state: Any) -> Any:
            if "patch" in state:
                return state["patch"] or {"log": []}
            return next((patch for own, sent, patch in at(state) if own == name and not sent), {}) or {"log": []}

        return node

    builder = StateGraph(Anything)
    builder.add_node("hub", lambda state: {"turn": state.get("turn", 0) + 1})
    for name in NODES:
        builder.add_node(name, work(name))
        builder.add_edge(name, "hub")
    builder.add_edge("__start__", "hub")
    builder.add_conditional_edges("hub", way, [*NODES, "__end__"])
    return builder.compile(checkpointer=saver)


def played(saver: Any, thread: str, script: list[Any], changes: list[Any]) -> Any:
    """Run a script, then fork it by hand."""
    graph = any_graph(saver, script)
    graph.invoke({"note": "begin"}, config(thread))
    for place, patch, goes_on in changes:
        known = [*graph.get_state_history(config(thread))]
        chosen = known[place % len(known)]
        there = graph.update_state(chosen.config, {"note": f"fork {place}", **patch}, as_node="hub")
        if goes_on:
            graph.invoke(None, there)
    return graph


def id_of(one: Any) -> str:
    return one["configurable"]["checkpoint_id"]


def settled(values: Any) -> dict[str, Any]:
    """Give values as the graph has them: empty where nothing is stored, a DeltaChannel by its reducer."""
    empty = {"log": [], "facts": {}, "told": []}
    return empty | {
        name: extend(value.seed or [], list(value.writes)) if isinstance(value, Told) else value
        for name, value in values.items()
    }


@pytest.mark.slow
@settings(max_examples=FEW)
@given(script=st.lists(turns, max_size=4), changes=st.lists(forks, max_size=3))
def test_graphs_of_any_shape(any_saver: Any, script: list[Any], changes: list[Any]) -> None:  # noqa: F811
    """Law: of any graph, its branches, sends, DeltaChannels and forks, a history says what the graph says."""
    thread = f"g{next(NUMBERS)}"
    graph = played(any_saver, thread, script, changes)
    known = {id_of(one.config): one for one in graph.get_state_history(config(thread))}
    history = History(any_saver, thread)
    assert {step.id for step in history} == set(known)
    for step in history:
        snapshot = known[step.id]
        parent = known.get(id_of(snapshot.parent_config)) if snapshot.parent_config else None
        assert difference(settled(step.values), settled(snapshot.values)) is None, step
        ran = parent.tasks if parent and step.source == "loop" else ()
        assert set(step.nodes) == {task.name for task in ran}, step
        for name in ("log", "facts", "told", "turn"):
            wrote = {task.name for task in ran if name in (task.result or {})}
            if wrote:
                assert set(step.writers(name)) == wrote, (step, name)
    check_changes(history, {step.number: settled(known[step.id].values) for step in history})


def check_changes(history: History, states: dict[int, Any]) -> None:
    """See that blame, bisect and diff say what the states say."""
    chain = [step.number for step in history[-1].ancestry]
    for name in ("log", "facts", "turn", "note"):
        seen = [states[number].get(name) for number in chain]
        stored = [name in history[number].values for number in chain]
        changed = [n for n, old, new, there in zip(chain, [None, *seen], seen, stored, strict=False)
                   if there and not same(old, new)]  # fmt: skip
        if changed:
            first = changed[0]
            blamed = [one.step for one in history.blame(name)][::-1]
            assert [n for n in blamed if n > first] == [n for n in changed if n > first], name
    told = [n for old, n in pairwise(chain) if not same(states[old]["told"], states[n]["told"])]
    if told:
        assert set(told) <= {one.step for one in history.blame("told")}
    for size in range(1, len(states[chain[-1]]["log"]) + 2):
        found = history.bisect(lambda step, n=size: len(step.values.get("log", ())) >= n)
        assert (found.number if found else None) == next((n for n in chain if len(states[n]["log"]) >= size), None)
    for before, after in [*pairwise(chain), (chain[0], chain[-1]), (len(states), 1)]:
        diff = history.diff(before, after)
        assert applied(as_json(history[before].values), diff.json_patch()) == as_json(history[after].values)
        differing = {name for name in states[after] if name != "told"
                     and not same(states[before].get(name), states[after][name])}  # fmt: skip
        assert differing <= set(diff.stat)


@pytest.mark.parametrize("length", [1, 2, 200])
def test_bisect_loads_few_states(any_saver: Any, length: int, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """On every saver: of n steps at most log2(n) + 1 states are loaded once the steps are listed."""
    grown(any_saver, "t", [(number - 1, {"n": number}) for number in range(length)])
    history, loads, load = History(any_saver, "t"), [], any_saver.get_tuple
    monkeypatch.setattr(any_saver, "get_tuple", lambda place: loads.append(place) or load(place))
    for first in {1, length // 2 + 1, length}:
        loads.clear()
        assert history.bisect(lambda step, n=first: step.number >= n and bool(step.values)).number == first
        assert len(loads) <= length.bit_length() + 1
