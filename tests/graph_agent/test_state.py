"""The state: reducers that may be repeated, patches that are checked before they are stored, phases that follow a table."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Mapping
from typing import Annotated, Any, NotRequired, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from graph_agent import AgentState, Node, Patch, latest, merge, tally, tool, upsert
from graph_agent.errors import PatchError, PhaseError, SetupError
from graph_agent.nodes.road import travel
from graph_agent.patch import Checker, clean
from graph_agent.phases import LEGAL, PHASES, Phase, illegal, is_legal
from graph_agent.policies import ReviewPolicy
from graph_agent.state import current_step, outstanding, replan, total
from graph_agent.testing import calls
from tests.graph_agent.conftest import Make, call_of, raw


class Mine(AgentState, total=False):
    mood: Annotated[str, latest]
    marks: Annotated[list[dict[str, Any]], upsert]
    numbers: Annotated[dict[str, Any], merge]


class MyView(TypedDict, total=False):
    goal: str
    mood: str


class GoalView(TypedDict, total=False):
    goal: str


def writing(changes: Any, *, name: str = "mine", **options: Any) -> tuple[str, Node]:
    """Make a node of one's own, before `reflect`, that writes something."""

    async def body(view: Mapping[str, Any], kit: Any, where: Any) -> Any:
        return changes(view) if callable(changes) else changes

    return ("reflect", Node(name, body, options.pop("view", MyView), **options))


# What a node writes is checked, and what is refused poisons nothing.

BAD = [
    pytest.param({"nonsense": 1}, "nonsense", "", "no such key", id="unknown key"),
    pytest.param({"mood": 7}, "mood", "", "valid string", id="wrong type"),
    pytest.param({"facts": [{"text": "no id"}]}, "facts", "[0]['id']", "required", id="record without an id"),
    pytest.param({"facts": [{"id": "f", "txt": "x"}]}, "facts", "[0]['txt']", "not permitted", id="unknown field"),
    pytest.param({"facts": [{"id": "f", "text": "\ud83d"}]}, "facts", "[0]['text']", "surrogate", id="surrogate"),
    pytest.param({"numbers": {"a": [1, math.nan]}}, "numbers", "['a'][1]", "nan is no number", id="NaN"),
    pytest.param({"numbers": {"a": math.inf}}, "numbers", "['a']", "inf is no number", id="infinity"),
    pytest.param({"numbers": {"big": 2**64}}, "numbers", "['big']", "64 bits", id="65 bits"),
    pytest.param({"numbers": {"\udc00": 1}}, "numbers", "", "surrogate", id="surrogate in a key"),
    pytest.param({"numbers": {"t": (1, 2)}}, "numbers", "['t']", "a tuple comes back as a list", id="tuple"),
    pytest.param({"mood": "a\x00b"}, "mood", "", "NUL", id="NUL"),
    pytest.param({"phase": "resting"}, "phase", "", "Input should be", id="no such phase"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("changes", "key", "path", "reason"), BAD)
def test_bad_patch_of_a_node(make: Make, changes: dict[str, Any], key: str, path: str, reason: str) -> None:
    """It is an error that names node, key and path; the thread can be read, and goes on once the node is mended."""
    bad = make(state=Mine, nodes=[writing(changes)])
    with pytest.raises(PatchError) as caught:
        bad.run("go", thread="t")
    assert caught.value.facts["node"] == "mine"
    assert caught.value.facts["key"] == key
    assert path in caught.value.facts["path"]
    assert reason in caught.value.facts["reason"]
    assert "'mine'" in str(caught.value)
    assert key in str(caught.value)
    assert bad.graph.get_state(raw("t")).values["goal"] == "go"
    stood = bad.state("t")
    assert (stood.status, "PatchError" in stood.error) == ("failed", True)
    assert key in stood.error
    mended = make(state=Mine, nodes=[writing({"mood": "fine"})])
    run = mended.resume("t")
    assert (run.status, run.answer, run.state["mood"]) == ("done", "done", "fine")


@pytest.mark.slow
@pytest.mark.parametrize(("changes", "key", "path", "reason"), [one for one in BAD if one.id != "no such phase"])
def test_bad_patch_of_a_tool(make: Make, changes: dict[str, Any], key: str, path: str, reason: str) -> None:
    """The call failed, but was made: the model reads its result and what was wrong; nothing of the patch is stored."""
    ran = []

    @tool(risk="read_only")
    def write(x: str) -> Any:
        ran.append(x)
        return "the result", Patch(changes)

    run = make(calls(("write", {"x": "1"})), "done", state=Mine, tools=[write]).run("go", thread="t")
    assert run.status == "done"
    call = call_of(run, "write")
    assert (call["status"], ran) == ("failed", ["1"])
    assert call["result"].startswith("the result\n")
    assert reason in call["result"]
    failure = run.failures[0]
    assert (failure["tool"], failure["error"]["type"]) == ("write", "PatchError")
    assert (failure["error"]["node"], failure["error"]["key"]) == ("tool write", key)
    assert path in failure["error"]["path"]


def test_bad_input(make: Make) -> None:
    """What a caller writes is checked as what a node writes, before a thread is made of it."""
    agent = make(state=Mine)
    with pytest.raises(PatchError, match="nonsense"):
        agent.run("go", thread="t", update={"nonsense": 1})
    with pytest.raises(PatchError, match="mood"):
        agent.run("go", thread="t", update={"mood": 1})
    assert agent.state("t").status == "unknown"


def test_deep_nesting() -> None:
    """What is nested so deep that a serializer would give up is refused, with the beginning of the path."""
    value: Any = "x"
    for _ in range(200):
        value = [value]
    with pytest.raises(PatchError, match="nested over"):
        Checker(Mine).check("n", {"numbers": {"deep": value}})


def test_nul_and_surrogates_become_visible(make: Make) -> None:
    """Text from a person, a model or a tool may hold anything; it is stored with visible marks instead."""

    @tool(risk="read_only")
    def dirty(x: str) -> str:
        return f"{x}\x00\ud83d"

    run = make(calls(("dirty", {"x": "a"})), "said\x00 \ud83d", tools=[dirty]).run("goal\x00\ud800", thread="t")
    assert (run.state["goal"], run.answer) == ("goal␀?", "said␀ ?")
    assert call_of(run, "dirty")["result"] == "a␀?"
    assert clean("plain") == "plain"


# Reducers may be repeated.

keys = st.sampled_from("abcd")
records = st.lists(
    st.fixed_dictionaries({"id": keys}, optional={"text": st.text(max_size=3), "n": st.integers(0, 3)}), max_size=5
)
steps = st.lists(
    st.fixed_dictionaries(
        {"id": keys}, optional={"title": st.text(max_size=3), "status": st.sampled_from(["open", "done", "dropped"])}
    ),
    max_size=4,
    unique_by=lambda step: step["id"],
)
counters = st.dictionaries(
    st.sampled_from(["steps", "calls"]), st.dictionaries(keys, st.integers(0, 9), max_size=3), max_size=2
)
dicts = st.dictionaries(keys, st.integers(), max_size=3)


def plans(given_steps: list[dict[str, Any]], name: str | None) -> list[dict[str, Any]]:
    return [{**step, **({"plan": name} if name else {})} for step in given_steps]


@given(records, records, records)
def test_upsert(old: Any, one: Any, two: Any) -> None:
    """Repeating changes nothing, at once or later; ids are unique; writes of different records commute but for order."""
    once = upsert(upsert([], old), one)
    assert upsert(once, one) == once
    both = upsert(once, two)
    assert upsert(upsert(both, one), two) == both
    assert len({record["id"] for record in both}) == len(both)
    if not {r["id"] for r in one} & {r["id"] for r in two}:
        other = upsert(upsert(upsert([], old), two), one)
        assert {r["id"]: r for r in other} == {r["id"]: r for r in both}


@given(steps, steps, st.sampled_from(["p", None]))
def test_replan(old: Any, new: Any, name: str | None) -> None:
    """Repeating changes nothing; what is done stays done; no other plan's step stays open; a change adopts nothing."""
    before = upsert([], plans(old, "before"))
    once = replan(before, plans(new, name))
    assert replan(once, plans(new, name)) == once
    named = {step["id"] for step in new}
    if name and new:
        done = {step["id"] for step in old if step.get("status") == "done"}
        assert done <= {step["id"] for step in once if step.get("status") == "done"}
        assert not [step for step in once if step["id"] not in named and step.get("status") == "open"]
    else:
        assert once == upsert(before, new)


@given(counters, counters, counters)
def test_tally(one: Any, two: Any, three: Any) -> None:
    """Counters join in any order, however often."""
    assert tally(tally(one, two), two) == tally(one, two)
    assert tally(one, two) == tally(two, one)
    assert tally(tally(one, two), three) == tally(one, tally(two, three))
    for name in one:
        assert total(tally(one, two), name) >= total(one, name)


@given(dicts, dicts)
def test_merge_and_latest(one: Any, two: Any) -> None:
    """Repeating changes nothing."""
    assert merge(merge(one, two), two) == merge(one, two)
    assert latest(latest(one, two), two) == two


WRITES: dict[str, Any] = {
    "schema_version": 1, "goal": "g", "turn": 2, "constraints": ["c"], "budget": {"max_steps": 3}, "usage": {"steps": {"a": 1}},
    "phase": "planning", "halt": {"kind": "resumed", "node": "act"}, "plan": [{"id": "s", "title": "t", "plan": "p"}],
    "facts": [{"id": "f"}], "questions": [{"id": "q"}], "artifacts": [{"id": "a"}], "risk_flags": [{"id": "r"}],
    "messages": [{"id": "m"}], "decisions": [{"id": "d"}], "calls": [{"id": "c"}], "failures": [{"id": "x"}],
    "notes": [{"id": "n"}], "prompts": {"p": "text"}, "answer": "a",
}  # fmt: skip


@pytest.mark.parametrize("key", list(AgentState.__annotations__))
def test_parallel_writes(key: str) -> None:
    """Two tasks of a step may write the same key; nobody's thread is poisoned by it, and every key can be checked."""
    Checker(AgentState).check("n", {key: WRITES[key]})
    builder: Any = StateGraph(AgentState)
    for name in ("one", "two"):
        builder.add_node(name, lambda _: {key: WRITES[key]})
        builder.add_edge(START, name)
        builder.add_edge(name, END)
    graph = builder.compile(checkpointer=InMemorySaver())
    assert graph.invoke({"goal": "g"}, raw("t"))[key] == WRITES[key]
    assert graph.invoke({"goal": "g"}, raw("t"))[key] == WRITES[key]


# Phases.

DRAWN = {
    "idle": {"planning"}, "planning": {"executing"}, "executing": {"reflecting", "waiting"},
    "waiting": {"executing", "planning"}, "reflecting": {"executing", "planning", "done"}, "done": {"planning"},
    "stopped": {"planning", "executing", "reflecting", "waiting"}, "error": {"planning", "executing", "reflecting", "waiting"},
}  # fmt: skip
ALL = list(itertools.product(PHASES, PHASES))


def test_table_of_phases() -> None:
    """The table is the drawn one; any work can stop or fail, staying is no change, and a change has a way or has not."""
    assert set(LEGAL) == set(PHASES) == set(get_args(Phase))
    for before, after in ALL:
        ends = after in ("stopped", "error") and before != "done"
        assert is_legal(before, after) == (before == after or ends or after in DRAWN[before]), (before, after)
    assert illegal("idle", "planning", "executing") is None
    assert illegal("planning", "executing", "done") == ("executing", "done")


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), ALL)
def test_phase_changes_of_a_node(make: Make, before: str, after: str) -> None:
    """Every legal change of a node passes; every other is an error that names both phases, and nothing is written."""
    kit = make(saver="memory://").kit
    _, node = writing({"phase": after})
    builder: Any = StateGraph(AgentState)
    builder.add_node("mine", travel(node, kit))
    builder.add_edge(START, "mine")
    step = builder.compile().ainvoke({"phase": before})
    if is_legal(before, after):
        assert asyncio.run(step)["phase"] == after
    else:
        with pytest.raises(PhaseError, match=f"from {before} to {after}"):
            asyncio.run(step)


def test_illegal_phase_does_not_poison(make: Make) -> None:
    """A node of one's own that jumps to the end is refused; mended, the thread goes on."""
    bad = make("done", nodes=[("act", writing({"phase": "done"}, view=GoalView)[1])])
    with pytest.raises(PhaseError, match="from executing to done"):
        bad.run("go", thread="t")
    assert bad.state("t").status == "failed"
    assert make("done", nodes=[("act", writing({}, view=GoalView)[1])]).resume("t").answer == "done"


# Patches.


def test_patch_helpers() -> None:
    """Each helper adds records whose ids follow from what they say: written twice, they are one."""
    schema = Checker(AgentState)

    def both(made: Any, key: str) -> Any:
        patch = made(Patch())
        schema.check("n", patch.changes)
        reducer = schema.keys[key].__metadata__[-1]
        once = reducer([], patch.changes[key])
        assert reducer(once, made(Patch()).changes[key]) == once
        return once

    fact = both(lambda p: p.fact("sky is blue", source="eyes", trust="tool", step="s", contradicts="s"), "facts")[0]
    assert (fact["text"], fact["trust"], fact["contradicts"]) == ("sky is blue", "tool", "s")
    plan = both(lambda p: p.replace_plan(["one", {"title": "two", "detail": "more"}]), "plan")
    assert [(step["title"], step["status"]) for step in plan] == [("one", "open"), ("two", "open")]
    assert len({step["plan"] for step in plan}) == 1
    assert both(lambda p: p.question("why?"), "questions")[0]["status"] == "open"
    assert (
        both(lambda p: p.flag("hot").lower(p.flag("hot").changes["risk_flags"][0]["id"]), "risk_flags")[0]["raised"]
        is False
    )
    assert both(lambda p: p.note("hm", step="s"), "notes")[0]["content"] == "hm"
    assert both(lambda p: p.say("hello", at="now"), "messages")[0]["role"] == "assistant"
    done = replan(plan, Patch().step_done(plan[0], "it is one").changes["plan"])
    assert current_step(done)["title"] == "two"
    assert done[0]["result"] == "it is one"


def test_patches_join() -> None:
    """Joined lists follow each other, other keys are as the second says, counts add up; no patch is changed itself."""
    one = Patch().fact("a").count("x").set("goal", "1")
    two = Patch().fact("b").count("x", 2).set("goal", "2")
    joined = one | two
    assert [fact["text"] for fact in joined.changes["facts"]] == ["a", "b"]
    assert (joined.changes["goal"], joined.counts) == ("2", {"x": 3})
    assert (len(one.changes["facts"]), one.counts) == (1, {"x": 1})


def test_outstanding() -> None:
    """A call is outstanding until it has an outcome."""
    seen = {status: bool(outstanding([{"id": "c", "status": status}])) for status in ("waiting", "approved", "retrying", "done", "failed", "rejected", "answered", "expired", "superseded")}  # fmt: skip
    assert [status for status, open_ in seen.items() if open_] == ["waiting", "approved", "retrying"]


# State and nodes of one's own.


def test_own_keys(make: Make) -> None:
    """A key of one's own is written by a caller, by a node and by a tool, seen by a node, kept, and joined by its reducer."""
    seen = []

    def body(view: Any) -> Any:
        seen.append(dict(view))
        return Patch().set("mood", "well").add("marks", {"id": "node"}).count("looks")

    @tool(risk="read_only")
    def mark(x: str) -> Any:
        return x, Patch().add("marks", {"id": x})

    agent = make(calls(("mark", {"x": "tool"})), "done", state=Mine, tools=[mark], nodes=[writing(body)])
    run = agent.run("go", thread="t", update={"mood": "good", "marks": [{"id": "caller"}]})
    assert run.status == "done"
    assert seen[0] == {"goal": "go", "mood": "good"}
    assert (run.state["mood"], run.usage["looks"]) == ("well", 2)
    assert [one["id"] for one in run.state["marks"]] == ["caller", "tool", "node"]
    assert make(state=Mine).state("t").state["marks"] == run.state["marks"]


def test_key_without_a_reducer(make: Make) -> None:
    """It would poison a thread at the first parallel write, so no agent is made; the message says what to write."""

    class Bare(AgentState, total=False):
        colour: str

    class Described(AgentState, total=False):
        colour: Annotated[str, "a colour"]

    for state in (Bare, Described):
        with pytest.raises(SetupError, match=r"'colour' has no reducer.*Annotated\[str, latest\]"):
            make(state=state)


def test_reducer_inside_notrequired(make: Make) -> None:
    """`NotRequired[Annotated[…]]` is a key with a reducer, as it is for LangGraph."""

    class Wrapped(AgentState):
        mood: NotRequired[Annotated[str, latest]]

    assert make(state=Wrapped).run("go", update={"mood": "fine"}).state["mood"] == "fine"


def test_state_without_the_agents_keys(make: Make) -> None:
    """A state that is not `AgentState` and more cannot be an agent's; the error says so."""

    class Alone(TypedDict, total=False):
        mood: Annotated[str, latest]

    with pytest.raises(SetupError, match="AgentState"):
        make(state=Alone)


def test_order_of_own_nodes(make: Make) -> None:
    """Each stands before the one it names; one may stand before another of one's own; two at one place are refused."""
    order = []

    def noting(name: str) -> Node:
        async def body(view: Any, kit: Any, where: Any) -> Any:
            order.append(name)
            return {}

        return Node(name, body, GoalView)

    agent = make(
        nodes=[("reflect", noting("b")), ("b", noting("a")), ("plan", noting("first")), ("answer", noting("last"))]
    )
    assert agent.run("go").status == "done"
    assert order == ["first", "a", "b", "last"]
    with pytest.raises(SetupError, match="put 'two' before 'one'"):
        make(nodes=[("reflect", noting("one")), ("reflect", noting("two"))])
    for target, name in (("nowhere", "one"), ("tool", "one"), ("reflect", "act")):
        with pytest.raises(SetupError, match="cannot stand before"):
            make(nodes=[(target, noting(name))])


def test_own_node_fails_and_is_tried_again(make: Make, clock: Any) -> None:
    """Its failure is recorded and tried again like any other node's; the nodes around it run once."""
    order: list[str] = []

    async def flaky(view: Any, kit: Any, where: Any) -> Any:
        order.append("flaky")
        if order.count("flaky") == 1:
            raise ConnectionError("gone")
        return {}

    async def outer(view: Any, kit: Any, where: Any) -> Any:
        order.append("outer")
        return {}

    nodes = [("reflect", Node("flaky", flaky, GoalView)), ("flaky", Node("outer", outer, GoalView))]
    run = make(nodes=nodes).run("go")
    assert run.status == "done"
    assert order == ["outer", "flaky", "flaky"]
    assert [(one["node"], one["attempt"]) for one in run.failures] == [("flaky", 1)]
    assert len(clock.naps) == 1


def test_own_node_sees_only_its_view(make: Make) -> None:
    """A node gets the keys of its view and no other; a view of a key that is none is refused."""
    seen = []
    agent = make(nodes=[writing(lambda view: seen.append(set(view)) or {})], state=Mine)
    agent.run("go", update={"mood": "x"})
    assert seen == [{"goal", "mood"}]
    with pytest.raises(SetupError, match="'mood', which is no key"):
        make(nodes=[writing({})])


def test_prompts_with_keys(make: Make) -> None:
    """A prompt of one's own is filled in with keys of the state, and nothing else of Python; bad ones are refused."""
    agent = make(state=Mine, prompts={"act": "Mood: {mood}. {goal.__class__}"})
    agent.run("go", update={"mood": "{goal} and \\1"})
    node, messages = agent.kit.model.chat.asked[1]
    assert node == "act"
    assert str(messages[0].content) == "Mood: {goal} and \\1. {goal.__class__}"
    with pytest.raises(SetupError, match="'nobody'"):
        make(prompts={"nobody": "x"})
    with pytest.raises(SetupError, match="no key of the state"):
        make(prompts={"act": "{mood}"})


def test_review_policy_is_checked() -> None:
    """A risk that does not exist is refused where it is written."""
    with pytest.raises(SetupError, match="no risk 'bad'"):
        ReviewPolicy(required_for=("bad",))
