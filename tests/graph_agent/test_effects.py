"""Effects: claimed before, recorded after; what becomes of one that is met again; what a person is asked."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Annotated, Any

import pytest
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import NodeCancelledError
from langgraph.types import interrupt
from pydantic import BaseModel, Field

from checkpointers import StorageError, open_saver
from checkpointers.statements import Append
from checkpointers.testing import FaultyDatabase, wait_until
from graph_agent import NOT_DONE, Agent, AgentState, Patch, Retry, ReviewPolicy, Tool, Toolbox, ToolError, latest, tool
from graph_agent.errors import (
    InvalidAnswerError,
    OpenThreadError,
    ReviewError,
    SettledReviewError,
    SetupError,
    ThreadError,
    UnknownReviewError,
    WaitingThreadError,
)
from graph_agent.testing import calls
from tests.checkpointers.crash import FINE, in_child
from tests.checkpointers.test_proofs import proved
from tests.conftest import reopen
from tests.graph_agent.conftest import Make, call_of, scripted
from tests.graph_agent.stage import PAY, Stage, die
from tests.proofs.world import World

FREELY = ReviewPolicy(required_for=())
CUT_OFF = "it was begun, and nobody knows what came of it"


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """Start the process that counts effects."""
    with World.start() as started:
        yield started


@pytest.fixture
def stage(url: str, world: World) -> Stage:
    """Give a stage on each database in turn."""
    return Stage(url, world)


class Hands:
    """What tools did in this process."""

    def __init__(self) -> None:
        self.did: list[dict[str, Any]] = []

    def pay(self, **options: Any) -> Tool:
        """Make the tool `pay(what, how)`."""

        def pay(what: str, how: str = "cash") -> str:
            """Pay something."""
            self.did.append({"what": what, "how": how})
            return f"paid {what} {len(self.did)}"

        return tool(**{"risk": "write_local", **options})(pay)


@pytest.fixture
def hands() -> Hands:
    return Hands()


def rules(run: Any, tool: str = "pay") -> list[str]:
    """Give which rule applied to each call, "" where the effect was simply made."""
    return [call.get("rule", "") for call in run.state["calls"] if call["tool"] == tool]


def results(run: Any) -> list[str]:
    return [call["result"] for call in run.state["calls"]]


def pays(*args: dict[str, Any]) -> Any:
    return calls(*(("pay", one) for one in args))


# --- What two calls have in common -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("once_per", "first", "second", "times"),
    [
        ((), {"what": "a"}, {"what": "a"}, 1),
        ((), {"what": "a"}, {"what": "a", "how": "cash"}, 1),
        ((), {"what": "a"}, {"what": "a", "how": "card"}, 2),
        ((), {"what": "a"}, {"what": "b"}, 2),
        (("what",), {"what": "a"}, {"what": "a", "how": "card"}, 1),
        (("what",), {"what": "a"}, {"what": "b"}, 2),
        (("how",), {"what": "a"}, {"what": "b"}, 1),
        (("how",), {"what": "a"}, {"what": "a", "how": "card"}, 2),
        (("how", "what"), {"what": "a", "how": "cash"}, {"what": "a"}, 1),
        ("call", {"what": "a"}, {"what": "a"}, 2),
    ],
)
@pytest.mark.parametrize("apart", [False, True], ids=["one reply", "two replies"])
def test_once_per(
    make: Make, hands: Hands, once_per: Any, first: Any, second: Any, times: int, apart: bool
) -> None:  # fmt: skip
    """`once_per` says which arguments make two calls one effect; a default that is passed is a default."""
    lines = [pays(first), pays(second)] if apart else [pays(first, second)]
    run = make(*lines, "done", tools=[hands.pay(once_per=once_per)]).run("go", thread="t")
    assert (run.status, len(hands.did)) == ("done", times)
    told, again = results(run)
    assert (told == again) == (times == 1)
    assert [bool(rule) for rule in rules(run)] == [False, times == 1]


def test_a_recorded_result_comes_back_verbatim(make: Make, hands: Hands, clock: Any) -> None:
    """The second call gets the words of the first, is told so, and counts nothing twice; both are in the state."""

    @tool(risk="write_local")
    def pay(what: str) -> Any:
        """Pay something."""
        hands.did.append({"what": what})
        return f"paid\u2028{what} ✓", Patch().fact(f"{what} is paid").count("paid", 5)

    run = make(PAY, PAY, "done", tools=[pay]).run("go", thread="t")
    assert results(run) == ["paid\u2028rent ✓"] * 2
    assert len(hands.did) == 1
    at = "2027-01-15T08:00:00+00:00"
    assert rules(run) == ["", f"not run again: it was done at {at}, and this was recorded then"]
    assert run.usage["paid"] == 5
    assert [fact["text"] for fact in run.state["facts"] if fact["source"] == "pay"].count("rent is paid") == 1


@pytest.mark.parametrize("keeps", [True, False])
def test_replan(make: Make, hands: Hands, keeps: bool) -> None:
    """A plan that keeps the step meets the same effect; in another step it is another."""
    model = scripted(PAY, calls(("replan", {"reason": "think again"})), PAY, "done")
    model.script["plan"] = [["pay"], ["pay", "rest"] if keeps else ["pay anew"]]
    run = make(model=model, tools=[hands.pay()]).run("go", thread="t")
    assert (run.status, len(hands.did)) == ("done", 1 if keeps else 2)


def test_a_new_goal_is_another_effect(make: Make, hands: Hands) -> None:
    """The same plan, step and call under a new goal of an old thread is done again; within it, once."""
    agent = make(PAY, "done", PAY, PAY, "done", tools=[hands.pay()])
    agent.run("go", thread="t")
    run = agent.run("go", thread="t")
    assert (len(hands.did), results(run)) == (2, ["paid rent 1", "paid rent 2", "paid rent 2"])
    assert len({entry.key for entry in agent.effects("t")}) == 2


def test_edited_arguments_count(make: Make, hands: Hands) -> None:
    """What a person made of the arguments is what is done, and what a later call is compared with."""
    agent = make(
        pays({"what": "a"}), pays({"what": "b"}), "done", tools=[hands.pay()], review=ReviewPolicy(tools=("pay",))
    )
    run = agent.run("go", thread="t")
    run = agent.resume("t", edit={run.reviews[0].id: {"what": "b"}})
    run = agent.resume("t", approve=run.reviews[0].id)
    assert [one["what"] for one in hands.did] == ["b"]
    assert rules(run)[1].startswith("not run again")


def test_a_tool_that_got_another_argument(stage: Stage) -> None:
    """A release that adds an argument with a default, between a crash and its end, meets the effects of the old one."""
    stage.dies()

    @tool(risk="external_action")
    def pay(what: str, how: str = "cash") -> str:
        """Pay something."""
        return stage.world.do(stage.thread, what)

    with stage.agent(tools=[pay]) as agent:
        run = stage.crashed(agent)
        assert (run.status, run.reviews[0].kind, stage.done()) == ("waiting", "in_doubt", 1)


SETS = """
from graph_agent import tool

@tool(risk="write_local")
def tag(names: set[str], groups: dict[str, list[frozenset[str]]]) -> str:
    return ""

said = tag.checked({"names": list("abcdefgh"), "groups": {"x": [list("ijklmnop")]}})
print(said, tag.identity(said, "c"))
"""


@pytest.mark.slow
def test_a_set_is_the_same_in_every_process() -> None:
    """Its order depends on the process; what two calls have in common does not."""
    told = {
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", SETS], env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(told) == 1


def test_each_call_with_its_arguments(hands: Hands) -> None:
    """Not every model's ids are its own for ever: under an id that was used before, other arguments are another call."""
    one = hands.pay(once_per="call")
    assert one.identity({"what": "a"}, "call_0") == one.identity({"what": "a", "how": "cash"}, "call_0")
    assert one.identity({"what": "a"}, "call_0") != one.identity({"what": "b"}, "call_0")
    assert one.identity({"what": "a"}, "call_0") != one.identity({"what": "a"}, "call_1")


class Odd(BaseModel):
    """Arguments with a default that is another each time."""

    what: str
    nonce: int = Field(default_factory=time.perf_counter_ns)


def test_defaults_that_differ_each_time_are_not_what_calls_have_in_common(make: Make, hands: Hands) -> None:
    """A default that a function makes is not part of the key: else no call would ever be met again."""

    def pay(what: str, nonce: int) -> str:
        """Pay something."""
        hands.did.append({"what": what, "nonce": nonce})
        return "paid"

    one = StructuredTool.from_function(pay, args_schema=Odd)
    make(PAY, PAY, "done", tools=Toolbox().add(one, risk="write_local")).run("go", thread="t")
    assert len(hands.did) == 1


# --- The key, for whoever carries it out -----------------------------------------------------------------------------


class Keyed(BaseModel):
    """Arguments of a tool of others that takes a key."""

    what: str
    how: str = "cash"
    idempotency_key: str


def _as_function(hands: Hands) -> Any:
    @tool(risk="write_local")
    def pay(what: str, idempotency_key: str, how: str = "cash") -> str:
        """Pay something."""
        hands.did.append({"what": what, "key": idempotency_key})
        return "paid"

    return [pay]


def _as_langchain(hands: Hands) -> Any:
    def pay(what: str, how: str, idempotency_key: str) -> str:
        """Pay something."""
        hands.did.append({"what": what, "key": idempotency_key})
        return "paid"

    return Toolbox().add(StructuredTool.from_function(pay, args_schema=Keyed), risk="write_local")


def _as_schema(hands: Hands) -> Any:
    def pay(**given: Any) -> str:
        """Pay something."""
        hands.did.append({"what": given["what"], "key": given["idempotency_key"]})
        return "paid"

    schema = {
        "title": "pay", "description": "Pay something.", "type": "object", "required": ["what", "idempotency_key"],
        "properties": {name: {"type": "string"} for name in ("what", "how", "idempotency_key")},
    }  # fmt: skip
    return Toolbox().add(
        StructuredTool(name="pay", description="Pay something.", args_schema=schema, func=pay), risk="write_local"
    )


KINDS = {"function": _as_function, "langchain": _as_langchain, "schema": _as_schema}


@pytest.mark.parametrize("kind", KINDS)
def test_the_key_is_given_and_not_the_models_to_say(make: Make, hands: Hands, kind: str) -> None:
    """A tool that takes the key is given that of the ledger; the model is not shown it, and cannot say another."""
    forged = pays({"what": "rent", "idempotency_key": "mine"})
    agent = make(forged, PAY, "done", tools=KINDS[kind](hands))
    offered = agent.kit.tools.schemas()[0]["function"]["parameters"]
    assert "idempotency_key" not in str(offered)
    assert "what" in offered["properties"]
    run = agent.run("go", thread="t")
    refused, paid = run.state["calls"]
    assert (refused["status"], paid["status"]) == ("failed", "done")
    assert "idempotency_key" in refused["result"]
    (entry,) = agent.effects("t")
    assert hands.did == [{"what": "rent", "key": entry.key}]
    assert entry.key.startswith(f"t:{run.plan[0]['id']}:pay:")
    assert "idempotency_key" not in entry.record["args"]


def test_defaults_of_a_langchain_tool_that_takes_the_key(make: Make, hands: Hands) -> None:
    """A default that is passed and one that is not make one call, with a key among the arguments as without."""
    run = make(PAY, pays({"what": "rent", "how": "cash"}), "done", tools=_as_langchain(hands)).run("go", thread="t")
    assert (run.status, len(hands.did)) == ("done", 1)


# --- Failures --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "retry", "times"),
    [
        (ValueError("no"), None, 1),
        (ConnectionError("no"), None, 1),
        (ConnectionError("no"), Retry(max_attempts=3), 3),
        (ToolError("no", retryable=True), None, 4),
        (ToolError("no"), Retry(max_attempts=3), 1),
        (SystemExit(3), None, 1),
        (KeyboardInterrupt(), None, 1),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_tool_that_raises_after_its_effect(
    make: Make, hands: Hands, error: BaseException, retry: Retry | None, times: int, kind: str
) -> None:
    """What it raises is a failure: repeated if the author says so, else told to the model, who decides."""

    def pay(what: str) -> str:
        """Pay something."""
        hands.did.append({"what": what})
        raise error

    async def later(what: str) -> str:
        """Pay something."""
        return pay(what)

    one = tool(risk="write_local", retry=retry, name="pay")(pay if kind == "sync" else later)
    agent = make(PAY, "done", tools=[one])
    run = agent.run("go", thread="t")
    assert (run.status, len(hands.did)) == ("done", times)
    (call,) = run.state["calls"]
    assert (call["status"], call["attempts"]) == ("failed", times)
    assert [failure["attempt"] for failure in run.failures] == [*range(1, times + 1)]
    (entry,) = agent.effects("t")
    assert (entry.status, entry.record["attempt"]) == ("failed", times)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_tool_that_cancels_itself(make: Make, hands: Hands, kind: str) -> None:
    """It takes the run down with it, as a death would: what it did is in doubt, and not repeated."""

    def pay(what: str) -> str:
        """Pay something."""
        hands.did.append({"what": what})
        raise asyncio.CancelledError

    async def later(what: str) -> str:
        """Pay something."""
        return pay(what)

    agent = make(PAY, "done", tools=[tool(risk="write_local", name="pay")(pay if kind == "sync" else later)])
    with pytest.raises(NodeCancelledError):
        agent.run("go", thread="t")
    run = agent.resume("t")
    assert (run.status, run.reviews[0].reason, len(hands.did)) == ("waiting", CUT_OFF, 1)


def test_a_failed_call_that_is_made_again(make: Make, hands: Hands) -> None:
    """The model may try again what failed; the call says that it is another attempt."""
    trouble = [ValueError("no")]

    @tool(risk="write_local")
    def pay(what: str) -> str:
        """Pay something."""
        if trouble:
            raise trouble.pop()
        hands.did.append({"what": what})
        return "paid"

    agent = make(PAY, PAY, "done", tools=[pay])
    run = agent.run("go", thread="t")
    assert results(run) == ["error: ValueError: no", "paid"]
    assert rules(run) == ["", "begun again: attempt 1 failed"]
    assert agent.effects("t")[0].record["attempt"] == 2


def test_a_tool_that_asks_itself(make: Make, hands: Hands) -> None:
    """`interrupt()` in a tool is no failure: it is begun from its first line with the answer, and done once."""

    @tool(risk="write_local")
    def pay(what: str) -> str:
        """Pay something."""
        how = interrupt({"description": "how?"})
        hands.did.append({"what": what, "how": how})
        return f"paid by {how}"

    agent = make(PAY, PAY, "done", tools=[pay])
    run = agent.run("go", thread="t")
    assert (run.status, run.reviews[0].description, hands.did) == ("waiting", "how?", [])
    run = agent.resume("t", respond={run.reviews[0].id: "card"})
    assert run.status in ("waiting", "done")
    assert len(hands.did) == 1
    assert rules(run)[0] == "begun again: it had asked a person"
    assert run.failures == []


class Unshowable:
    def __str__(self) -> str:
        raise RuntimeError("not to be shown")


def _loop() -> Any:
    around: list[Any] = []
    around.append(around)
    return around


@pytest.mark.slow
@pytest.mark.parametrize(
    "result", [_loop(), {(1, 2): "x"}, {"x": Unshowable()}, "a\x00b\ud800", float("nan")],
    ids=["loop", "key", "object", "text", "nan"],
)  # fmt: skip
def test_a_result_that_cannot_be_told(make: Make, hands: Hands, result: Any) -> None:
    """The effect was made, whatever can be told of it: it is recorded as done, and not made again."""

    @tool(risk="write_local")
    def pay(what: str) -> Any:
        """Pay something."""
        hands.did.append({"what": what})
        return result

    agent = make(PAY, PAY, "done", tools=[pay])
    run = agent.run("go", thread="t")
    assert (run.status, len(hands.did)) == ("done", 1)
    assert [call["status"] for call in run.state["calls"]] == ["done", "done"]
    assert agent.effects("t")[0].status == "done"


@pytest.mark.parametrize(
    ("patch", "told"),
    [
        (Patch().set("goal", "mine"), "a tool may not write it"),
        (Patch().set("nothing", 1), "there is no such key"),
        (Patch().set("answer", 3), "string"),
        (Patch().add("facts", {"id": "f", "text": "\ud800"}), "surrogate"),
    ],
)
def test_a_patch_that_is_refused_after_the_effect(make: Make, hands: Hands, patch: Patch, told: str) -> None:
    """The effect stands and is not made again; the model is told that it was made and what was wrong."""

    @tool(risk="write_local")
    def pay(what: str) -> Any:
        """Pay something."""
        hands.did.append({"what": what})
        return "paid", patch

    agent = make(PAY, PAY, "done", tools=[pay])
    run = agent.run("go", thread="t")
    assert (run.status, len(hands.did)) == ("done", 1)
    for call in run.state["calls"]:
        assert call["status"] == "failed"
        assert "the call was made" in call["result"]
        assert told in call["result"]
    assert agent.effects("t")[0].status == "done"


class Mine(AgentState, total=False):
    """A state with a value of any kind."""

    mine: Annotated[Any, latest]


@pytest.mark.parametrize("risk", ["read_only", "write_local"])
def test_a_value_that_the_ledger_cannot_keep(make: Make, hands: Hands, risk: str) -> None:
    """A state may have values that are no plain data; a tool with an effect is told that it cannot write them."""

    @tool(risk=risk)
    def pay(what: str) -> Any:
        """Pay something."""
        hands.did.append({"what": what})
        return "paid", Patch().set("mine", {1, 2})

    run = make(PAY, "done", tools=[pay], state=Mine).run("go", thread="t")
    assert (run.status, len(hands.did)) == ("done", 1)
    (told,) = results(run)
    assert (told == "paid") == (run.state.get("mine") == {1, 2}) == (risk == "read_only")
    assert risk == "read_only" or "the call was made; what it wrote could not be taken" in told


# --- Cut off ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dies", ["before", "after"])
def test_killed_with_a_key(stage: Stage, dies: str) -> None:
    """It is run again under the same key: whoever carries it out does it once."""
    stage.dies(dies=dies, keyed=True)
    with stage.agent(tools=[stage.pay(keyed=True)]) as agent:
        run = stage.crashed(agent)
        assert (run.status, stage.done()) == ("done", 1)
        assert rules(run) == ["run again under the same key: who carries it out knows what was done"]
        (entry,) = agent.effects(stage.thread)
        assert (entry.status, entry.record["attempt"], entry.record["result"]) == ("done", 1, "did rent")


@pytest.mark.parametrize("dies", ["before", "after"])
def test_killed_with_a_probe(stage: Stage, dies: str) -> None:
    """Its probe is asked, with the key and the arguments; what it found is the result, or it is begun again."""
    asked: list[Any] = []

    def probe(key: str, args: dict[str, Any]) -> Any:
        asked.append((key, args))
        return "found" if stage.done(args["what"]) else NOT_DONE

    stage.dies(dies=dies, probe=probe)
    with stage.agent(tools=[stage.pay(probe=probe)]) as agent:
        run = stage.crashed(agent)
        (entry,) = agent.effects(stage.thread)
        assert asked == [(entry.key, {"what": "rent"})]
        assert (run.status, stage.done()) == ("done", 1)
        found = dies == "after"
        assert rules(run) == [f"its probe found that it was {'done' if found else 'not done'}"]
        assert results(run) == ["found" if found else "did rent"]
        assert (entry.status, entry.record["attempt"]) == ("done", 1 if found else 2)


def _hangs(key: str, args: Any) -> Any:
    threading.Event().wait(60)


async def _hangs_async(key: str, args: Any) -> Any:
    await asyncio.sleep(60)


def _raises(key: str, args: Any) -> Any:
    raise OSError("not reachable")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("probe", "why"),
    [
        (_raises, "its probe failed: OSError: not reachable"),
        (_hangs, "its probe failed: MayStillRunError: the probe of pay passed its deadline of 0.2 s"),
        (_hangs_async, "its probe failed: PassedDeadlineError: the probe of pay passed its deadline of 0.2 s"),
    ],
)
def test_a_probe_that_cannot_tell(stage: Stage, probe: Any, why: str) -> None:
    """A person is asked instead, and is told why; the failure is on record."""
    stage.dies(probe=probe)
    with stage.agent(tools=[stage.pay(probe=probe, deadline=0.2)]) as agent:
        run = stage.crashed(agent)
        assert (run.status, run.reviews[0].kind) == ("waiting", "in_doubt")
        assert run.reviews[0].reason.startswith(why)
        assert [failure["tool"] for failure in run.failures] == ["pay"]
        run = agent.resume(stage.thread, done={run.reviews[0].id: "seen"})
        assert (run.status, results(run), stage.done()) == ("done", ["seen"], 1)


ANSWERS: dict[str, tuple[Callable[[str], dict[str, Any]], str, str, int]] = {
    "done": (lambda id_: {"done": id_}, "(done)", "user said of attempt 1 that it was done", 1),
    "done with": (lambda id_: {"done": {id_: "nr 7"}}, "nr 7", "user said of attempt 1 that it was done", 1),
    "not_done": (
        lambda id_: {"not_done": id_}, "did rent", "begun again: user said of attempt 1 that it was not done", 2,
    ),
    "abandon": (
        lambda id_: {"abandon": id_}, "nobody knows whether this was done, and it is not to be tried again",
        "user said of attempt 1 to leave it be", 1,
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("answer", ANSWERS)
def test_a_person_settles_it(stage: Stage, answer: str) -> None:
    """Without key and probe a person is asked, by whichever process; the answer is done once, however often it comes."""
    given, told, rule, attempts = ANSWERS[answer]
    dies = "before" if answer == "not_done" else "after"
    stage.dies(dies=dies)
    with stage.agent(tools=[stage.pay()]) as agent:
        run = stage.crashed(agent)
        (review,) = run.reviews
        assert (review.kind, review.tool, review.args, review.reason) == ("in_doubt", "pay", {"what": "rent"}, CUT_OFF)
        assert agent.resume(stage.thread).status == "waiting"
    with stage.agent(tools=[stage.pay()]) as agent:
        run = agent.resume(stage.thread, **given(review.id))
        assert (run.status, results(run), rules(run), stage.done()) == ("done", [told], [rule], 1)
        (entry,) = agent.effects(stage.thread)
        assert entry.record["attempt"] == attempts
        assert entry.status == ("abandoned" if answer == "abandon" else "done")
    with stage.agent(tools=[stage.pay()]) as agent:  # twice, and late
        assert agent.resume(stage.thread, **given(review.id)).status == "done"
        other = {"abandon": review.id} if answer != "abandon" else {"not_done": review.id}
        with pytest.raises(SettledReviewError, match=f"settled: {answer.split(maxsplit=1)[0]} by user at"):
            agent.resume(stage.thread, **other)
        assert stage.done() == 1


def test_an_abandoned_effect_that_is_wanted_again(stage: Stage) -> None:
    """Whoever left it be did not say what came of it: the same call asks again, and is not simply made."""
    stage.dies()
    with stage.agent(PAY, PAY, "done", tools=[stage.pay()]) as agent:
        (first,) = stage.crashed(agent).reviews
        run = agent.resume(stage.thread, abandon=first.id)
        (second,) = run.reviews
        assert (second.kind, second.id != first.id, stage.done()) == ("in_doubt", True, 1)
        run = agent.resume(stage.thread, done={second.id: "found it"})
        assert (run.status, results(run)[1], stage.done()) == ("done", "found it", 1)


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["approve", "reject", "edit", "respond"])
def test_a_doubt_takes_no_other_answer(stage: Stage, wrong: str) -> None:
    """Whoever answers as if nothing had been done is told what it takes; nothing is changed by it."""
    stage.dies()
    with stage.agent(tools=[stage.pay()]) as agent:
        (review,) = stage.crashed(agent).reviews
        given: Any = {"edit": {review.id: {"what": "x"}}, "respond": {review.id: "x"}}.get(wrong, review.id)
        with pytest.raises(InvalidAnswerError, match=r"done=\{id: result\}, not_done=id .* or abandon=id"):
            agent.resume(stage.thread, **{wrong: given})
        assert agent.state(stage.thread).reviews[0].id == review.id
        with pytest.raises(InvalidAnswerError, match="two answers at once"):
            agent.resume(stage.thread, done=review.id, not_done=review.id)
        with pytest.raises(UnknownReviewError):
            agent.resume(stage.thread, done="r-nothing")
        assert (agent.effects(stage.thread)[0].status, stage.done()) == ("claimed", 1)


def test_an_ordinary_review_takes_no_answer_of_a_doubt(make: Make, hands: Hands) -> None:
    """Before it was begun nothing is in doubt."""
    agent = make(PAY, "done", tools=[hands.pay(risk="irreversible")])
    (review,) = agent.run("go", thread="t").reviews
    for answer in ("done", "not_done", "abandon"):
        with pytest.raises(InvalidAnswerError):
            agent.resume("t", **{answer: review.id})
    assert hands.did == []


def test_a_doubt_that_nobody_answers_in_time(stage: Stage) -> None:
    """Its time is up: the model is not told that it was not run, for nobody knows; the claim stays as it was."""
    stage.dies()
    policy = ReviewPolicy(required_for=(), expires_after=60)
    with stage.agent(tools=[stage.pay()], review=policy) as agent:
        (review,) = stage.crashed(agent).reviews
        assert review.expires_at == stage.clock.now + 60
        stage.clock.now += 61
        run = agent.resume(stage.thread)
        assert (run.status, call_of(run, "pay")["status"], stage.done()) == ("done", "expired", 1)
        assert "not run" not in results(run)[0]
        assert "nobody knows" in results(run)[0]
        assert agent.effects(stage.thread)[0].status == "claimed"
        with pytest.raises(SettledReviewError):
            agent.resume(stage.thread, not_done=review.id)


def test_a_doubt_that_is_given_up_for_a_new_goal(stage: Stage) -> None:
    """The state does not say that it was not run; the ledger still has the claim."""
    stage.dies()
    with stage.agent(PAY, "done", "done", tools=[stage.pay()]) as agent:
        (review,) = stage.crashed(agent).reviews
        with pytest.raises(WaitingThreadError):
            agent.run("else", thread=stage.thread)
        run = agent.run("else", thread=stage.thread, supersede=True)
        assert (run.status, stage.done()) == ("done", 1)
        assert call_of(run, "pay")["status"] == "superseded"
        assert "not run" not in results(run)[0]
        assert agent.effects(stage.thread)[0].status == "claimed"
        with pytest.raises(SettledReviewError):
            agent.resume(stage.thread, not_done=review.id)


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["done", "not_done", "abandon"])
def test_killed_between_the_answer_and_the_record(stage: Stage, answer: str) -> None:
    """What a person said is not lost and not taken twice; another attempt that is cut off is another question."""
    stage.dies(dies="before" if answer == "not_done" else "after")
    with stage.agent(tools=[stage.pay()]) as agent:
        (review,) = stage.crashed(agent).reviews

    def life() -> None:
        real = reopen(stage.url)
        stage.free(real)
        keeper = type(real)(FaultyDatabase(real.database, _dying_at_the_ledger()))
        with stage.agent(tools=[stage.pay()], saver=keeper) as agent:
            agent.resume(stage.thread, **{answer: review.id})

    stage.killed(life)
    with stage.agent(tools=[stage.pay()]) as agent:
        assert agent.state(stage.thread).status == "crashed"
        with pytest.raises((OpenThreadError, SettledReviewError)):
            agent.resume(stage.thread, **{"abandon" if answer == "done" else "done": review.id})
        run = agent.resume(stage.thread)
        assert (run.status, stage.done()) == ("done", 1)
        assert agent.effects(stage.thread)[0].status == ("abandoned" if answer == "abandon" else "done")


def _dying_at_the_ledger() -> Callable[[int, Any], None]:
    """Die before the first change of an entry of the ledger."""

    def fault(_: int, request: Any) -> None:
        if "UPDATE cp_effects" in repr(request):
            die()

    return fault


@pytest.mark.slow
def test_killed_again_in_the_next_attempt(stage: Stage) -> None:
    """Each attempt that was cut off is asked about for itself; an answer to the first does not count for the second."""
    stage.dies(dies="before")
    with stage.agent(tools=[stage.pay()]) as agent:
        (first,) = stage.crashed(agent).reviews

    def life() -> None:
        with stage.agent(tools=[stage.pay(dies="after")]) as agent:
            agent.resume(stage.thread, not_done=first.id)

    stage.killed(life)
    with stage.agent(tools=[stage.pay()]) as agent:
        (second,) = stage.crashed(agent).reviews
        assert (second.kind, second.id != first.id) == ("in_doubt", True)
        assert agent.resume(stage.thread, not_done=first.id).status == "waiting"  # late: it is settled
        with pytest.raises(SettledReviewError):
            agent.resume(stage.thread, done=first.id)
        run = agent.resume(stage.thread, done={second.id: "paid"})
        assert (run.status, results(run), stage.done()) == ("done", ["paid"], 1)
        assert rules(run) == ["user said of attempt 2 that it was done"]
        assert agent.effects(stage.thread)[0].record["attempt"] == 2


def test_two_calls_in_doubt_at_once(stage: Stage) -> None:
    """Each is asked about for itself, and may be answered for itself, in any order."""
    both = pays({"what": "rent"}, {"what": "tax"})
    barrier = threading.Barrier(2)

    def life() -> None:
        @tool(risk="write_local")
        def pay(what: str) -> str:
            """Pay something."""
            barrier.wait(20)
            if what == "rent":
                stage.world.do(stage.thread, what)
                die()
            threading.Event().wait(20)
            return ""

        with stage.agent(both, "done", tools=[pay]) as agent:
            agent.run("pay", thread=stage.thread, progress=False)

    stage.killed(life)
    with stage.agent(both, "done", tools=[stage.pay()]) as agent:
        run = stage.crashed(agent)
        reviews = {review.args["what"]: review.id for review in run.reviews}
        assert set(reviews) == {"rent", "tax"}
        run = agent.resume(stage.thread, not_done=reviews["tax"])
        assert [review.args["what"] for review in run.reviews] == ["rent"]
        run = agent.resume(stage.thread, done={reviews["rent"]: "known"})
        assert (run.status, results(run)) == ("done", ["known", "did tax"])
        assert (stage.done("rent"), stage.done("tax")) == (1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("answers", [("done", "done"), ("not_done", "not_done"), ("abandon", "abandon")])
def test_the_same_call_twice_in_doubt(stage: Stage, answers: tuple[str, str]) -> None:
    """Two calls that are one effect are asked about both; whatever is said, it is made once at most."""
    twice = pays({"what": "rent"}, {"what": "rent"})
    stage.dies(twice, "done", dies="before" if answers[0] == "not_done" else "after")
    with stage.agent(twice, "done", tools=[stage.pay()]) as agent:
        run = stage.crashed(agent)
        assert len(run.reviews) == 2
        given: dict[str, list[str]] = {}
        for answer, review in zip(answers, run.reviews, strict=True):
            given.setdefault(answer, []).append(review.id)
        run = agent.resume(stage.thread, **given)
        assert (run.status, stage.done()) == ("done", 1)


def test_the_record_that_cannot_be_written(stage: Stage) -> None:
    """A database that fails after the effect leaves it in doubt: the run says so, and the next one asks."""
    with reopen(stage.url) as real:

        def broken(_: int, request: Any) -> None:
            if "UPDATE cp_effects" in repr(request):
                raise OSError("disk full")

        keeper = type(real)(FaultyDatabase(real.database, broken))
        with stage.agent(tools=[stage.pay()], saver=keeper) as agent, pytest.raises(StorageError, match="disk full"):
            agent.run("pay", thread=stage.thread)
    with stage.agent(tools=[stage.pay()]) as agent:
        run = agent.resume(stage.thread)
        assert (run.status, [review.kind for review in run.reviews], stage.done()) == ("waiting", ["in_doubt"], 1)


# --- Deadlines -------------------------------------------------------------------------------------------------------


class Slow:
    """A sync tool that runs until it is let go."""

    def __init__(self, hands: Hands) -> None:
        self.hands, self.go, self.ended = hands, threading.Event(), threading.Event()
        self.trouble: BaseException | None = None

    def pay(self, **options: Any) -> Tool:
        def pay(what: str) -> str:
            """Pay something."""
            self.hands.did.append({"what": what})
            self.go.wait(30)
            self.ended.set()
            if self.trouble:
                raise self.trouble
            return f"late {len(self.hands.did)}"

        return tool(**{"risk": "write_local", "deadline": 0.05, **options})(pay)

    def end(self) -> None:
        self.go.set()
        assert self.ended.wait(10)
        time.sleep(0.05)  # the thread's own last words


@pytest.fixture
def slow(hands: Hands) -> Iterator[Slow]:
    one = Slow(hands)
    yield one
    one.go.set()


@pytest.mark.slow
def test_it_is_not_begun_again_while_it_may_be_running(make: Make, hands: Hands, slow: Slow) -> None:
    """Whatever a person says meanwhile, and however often; its late result counts in the end."""
    agent = make(PAY, "done", tools=[slow.pay()])
    run = agent.run("go", thread="t")
    for _ in range(3):
        (review,) = run.reviews
        assert review.kind == "in_doubt"
        assert "may still be running" in review.reason
        run = agent.resume("t", not_done=review.id)
        assert (run.status, len(hands.did)) == ("waiting", 1)
    slow.end()
    run = agent.resume("t", not_done=run.reviews[0].id)
    assert (run.status, results(run), len(hands.did)) == ("done", ["late 1"], 1)
    assert rules(run) == ["it came to its end late, and this was its result"]
    assert agent.effects("t")[0].status == "done"


def test_two_of_one_effect_that_is_still_running(make: Make, hands: Hands, slow: Slow) -> None:
    """Two calls in one reply that are one effect both wait for it, and both get what it came to."""
    agent = make(pays({"what": "rent"}, {"what": "rent"}), "done", tools=[slow.pay()])
    run = agent.run("go", thread="t")
    for _ in range(4):
        assert (run.status, len(hands.did)) == ("waiting", 1)
        run = agent.resume("t", not_done=run.reviews)
    slow.end()
    for _ in range(2):  # one of them asks a step later than the other
        run = agent.resume("t", not_done=run.reviews) if run.status == "waiting" else run
    assert (run.status, results(run), len(hands.did)) == ("done", ["late 1", "late 1"], 1)


@pytest.mark.parametrize("answer", ["done", "abandon"])
def test_what_is_still_running_can_be_given_up(make: Make, hands: Hands, slow: Slow, answer: str) -> None:
    """One that hangs for ever holds nobody up: only beginning it again has to wait."""
    agent = make(PAY, "done", tools=[slow.pay()])
    run = agent.run("go", thread="t")
    run = agent.resume("t", **{answer: run.reviews[0].id})
    assert (run.status, len(hands.did)) == ("done", 1)
    assert agent.effects("t")[0].status == ("done" if answer == "done" else "abandoned")


@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        (ValueError("refused"), "error: ValueError: refused"),
        (SystemExit(3), "error: ToolError: pay tried to end the program: SystemExit(3)"),
    ],
)
def test_a_late_failure_is_a_failure(
    make: Make, hands: Hands, slow: Slow, trouble: BaseException, told: str
) -> None:  # fmt: skip
    """What it raised at last is known: nothing is in doubt any more, and the model is told."""
    slow.trouble = trouble
    agent = make(PAY, "done", tools=[slow.pay()])
    run = agent.run("go", thread="t")
    slow.end()
    run = agent.resume("t", not_done=run.reviews[0].id)
    assert (run.status, results(run)) == ("done", [told])
    assert (agent.effects("t")[0].status, len(hands.did)) == ("failed", 1)


def test_another_agent_of_the_process_knows_what_is_running(make: Make, hands: Hands, slow: Slow) -> None:
    """A cell that is run again makes a new agent: to that, too, the call is still running."""
    run = make(PAY, "done", tools=[slow.pay()]).run("go", thread="t")
    again = make(PAY, "done", tools=[slow.pay()])
    run = again.resume("t", not_done=run.reviews[0].id)
    assert (run.status, len(hands.did)) == ("waiting", 1)
    slow.end()
    run = again.resume("t", not_done=run.reviews[0].id)
    assert (results(run), len(hands.did)) == (["late 1"], 1)


def test_a_forked_process_knows_nothing_of_what_is_running(make: Make, hands: Hands, slow: Slow, tmp_path: Any) -> None:
    """Threads do not come along: there it would be running for ever."""
    agent = make(PAY, "done", tools=[slow.pay()])
    (review,) = agent.run("go", thread="t").reviews

    def life() -> None:
        with reopen(f"sqlite:///{tmp_path}/agent.db") as saver:
            heir = Agent(scripted(PAY, "done"), tools=[hands.pay()], saver=saver)
            assert heir.resume("t", not_done=review.id, progress=False).status == "done"

    assert in_child(life) == FINE
    assert agent.effects("t")[0].record["attempt"] == 2


def test_a_loop_that_has_ended_keeps_nothing_running(make: Make, hands: Hands, slow: Slow) -> None:
    """`asyncio.run` for each call: what was begun in one loop is known to have ended in the next."""
    agent = make(PAY, "done", tools=[slow.pay()])
    run = asyncio.run(agent.arun("go", thread="t"))
    slow.end()
    run = asyncio.run(agent.aresume("t", not_done=run.reviews[0].id))
    assert (run.status, results(run), len(hands.did)) == ("done", ["late 1"], 1)


@pytest.mark.parametrize("retry", [None, Retry(max_attempts=5)])
@pytest.mark.parametrize("known", ["nothing", "probe"])
def test_an_async_call_that_was_stopped_is_in_doubt(make: Make, hands: Hands, known: str, retry: Retry | None) -> None:
    """As after a crash: its probe is asked, or a person; that failures may be tried again does not change it."""

    async def pay(what: str) -> str:
        """Pay something."""
        hands.did.append({"what": what})
        await asyncio.sleep(30)
        return "never"

    def probe(key: str, args: Any) -> Any:
        return "found"

    one = tool(risk="write_local", deadline=0.05, retry=retry, probe=probe if known == "probe" else None)(pay)
    agent = make(PAY, "done", tools=[one])
    run = agent.run("go", thread="t")
    assert len(hands.did) == 1
    if known == "probe":
        assert (run.status, results(run)) == ("done", ["found"])
        return
    assert (run.status, run.reviews[0].reason) == ("waiting", CUT_OFF)
    run = agent.resume("t", done={run.reviews[0].id: "it was"})
    assert (results(run), len(hands.did)) == (["it was"], 1)


def test_an_async_call_with_a_key_is_tried_again(make: Make, hands: Hands) -> None:
    """Under the same key, as often as harmless failures are."""

    @tool(risk="write_local", deadline=0.05)
    async def pay(what: str, idempotency_key: str) -> str:
        """Pay something."""
        hands.did.append({"key": idempotency_key})
        if len(hands.did) < 3:
            await asyncio.sleep(30)
        return "at last"

    run = make(PAY, "done", tools=[pay]).run("go", thread="t")
    assert (run.status, results(run), len(hands.did)) == ("done", ["at last"], 3)
    assert len({one["key"] for one in hands.did}) == 1


@pytest.mark.parametrize(("answer", "stands"), [("done", "done"), ("abandon", "abandoned")])
def test_an_async_call_with_a_key_that_never_answers(make: Make, hands: Hands, answer: str, stands: str) -> None:
    """Tried as often as harmless failures are, it is still in doubt: a person is asked, nothing is dropped unseen."""

    @tool(risk="write_local", deadline=0.02)
    async def pay(what: str, idempotency_key: str) -> str:
        """Pay something."""
        hands.did.append({"key": idempotency_key})
        await asyncio.sleep(30)
        return "never"

    agent = make(PAY, "done", tools=[pay])
    run = agent.run("go", thread="t")
    (review,) = run.reviews
    assert (run.status, review.kind, len(hands.did)) == ("waiting", "in_doubt", 4)
    assert "attempt 4 under its key, and nobody knows what came of it" in review.reason
    again = agent.resume("t", not_done=review.id)
    assert (again.status, len(hands.did), len({one["key"] for one in hands.did})) == ("waiting", 5, 1)
    run = agent.resume("t", **{answer: again.reviews[0].id})
    assert (run.status, agent.effects("t")[0].status, len(hands.did)) == ("done", stands, 5)


def test_a_sync_call_with_a_key_that_may_still_be_running(make: Make, hands: Hands, slow: Slow) -> None:
    """It is not begun again under its key either while it runs, and the run does not go on as if it had failed."""

    @tool(risk="write_local", deadline=0.05)
    def pay(what: str, idempotency_key: str) -> str:
        """Pay something."""
        return slow.pay(deadline=None)(what)

    agent = make(PAY, "done", tools=[pay])
    run = agent.run("go", thread="t")
    assert (run.status, run.reviews[0].kind, len(hands.did)) == ("waiting", "in_doubt", 1)
    slow.end()
    run = agent.resume("t", not_done=run.reviews[0].id)
    assert (run.status, results(run), len(hands.did)) == ("done", ["late 1"], 1)


async def cancelled(agent: Agent, hands: Hands) -> None:
    """Run a thread, and cancel that in the middle of its effect."""
    running = asyncio.create_task(agent.arun("go", thread="t"))
    await asyncio.to_thread(wait_until, lambda: bool(hands.did))
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


@pytest.mark.parametrize("known", ["nothing", "key", "probe"])
def test_a_run_that_is_cancelled_leaves_a_sync_call_running(make: Make, hands: Hands, slow: Slow, known: str) -> None:
    """It is not begun again while it runs, not even under its key or by its probe; then its result counts."""

    def keyed(what: str, idempotency_key: str) -> str:
        """Pay something."""
        return slow.pay(deadline=None)(what)

    probe = {"probe": lambda key, args: NOT_DONE} if known == "probe" else {}
    one = tool(risk="write_local", name="pay")(keyed) if known == "key" else slow.pay(deadline=None, **probe)
    agent = make(PAY, "done", tools=[one])

    asyncio.run(cancelled(agent, hands))
    run = agent.resume("t")
    assert (run.status, len(hands.did)) == ("waiting", 1)
    assert "may still be running" in run.reviews[0].reason
    slow.end()
    run = agent.resume("t", not_done=run.reviews[0].id)
    assert (run.status, results(run), len(hands.did)) == ("done", ["late 1"], 1)


def test_an_async_run_that_is_cancelled(make: Make, hands: Hands) -> None:
    """An async call is stopped with its run, and in doubt."""

    @tool(risk="write_local")
    async def pay(what: str) -> str:
        """Pay something."""
        hands.did.append({"what": what})
        await asyncio.sleep(30 if len(hands.did) == 1 else 0)
        return "paid"

    agent = make(PAY, "done", tools=[pay])

    asyncio.run(cancelled(agent, hands))
    run = agent.resume("t")
    assert (run.status, run.reviews[0].reason, len(hands.did)) == ("waiting", CUT_OFF, 1)
    run = agent.resume("t", not_done=run.reviews[0].id)
    assert (run.status, results(run), len(hands.did)) == ("done", ["paid"], 2)


# --- Savers of others ------------------------------------------------------------------------------------------------


def test_savers_of_others_need_a_ledger(hands: Hands, tmp_path: Any) -> None:
    """Without one a tool with effects is refused, and the message says what to do; one that only reads is not."""
    model = scripted(PAY, "done")
    with pytest.raises(
        SetupError, match="'pay' has effects, and InMemorySaver keeps no ledger .*: pass ledger='sqlite"
    ):
        Agent(model, tools=[hands.pay()], saver=InMemorySaver())
    Agent(model, tools=[hands.pay(risk="read_only")], saver=InMemorySaver())
    with pytest.raises(SetupError, match="leave ledger= out"):
        Agent(model, tools=[hands.pay()], saver=f"sqlite:///{tmp_path}/a.db", ledger=f"sqlite:///{tmp_path}/b.db")
    with pytest.raises(SetupError, match="is no saver of ours"):
        Agent(model, tools=[hands.pay()], saver=InMemorySaver(), ledger=InMemorySaver())
    agent = Agent(model, tools=[hands.pay()], saver=InMemorySaver(), ledger=f"sqlite:///{tmp_path}/ledger.db")
    assert agent.run("go", thread="t").status == "done"
    assert [entry.status for entry in agent.effects("t")] == ["done"]
    with reopen(f"sqlite:///{tmp_path}/ledger.db") as keeper:
        assert [entry.record["args"] for entry in keeper.ledger.entries("t")] == [{"what": "rent"}]


def test_two_processes_with_an_official_saver_and_one_ledger(stage: Stage, tmp_path: Any) -> None:
    """The ledger's saver has the lease: the second process is refused while the first runs, and repeats nothing."""
    official = f"langgraph+sqlite:///{tmp_path}/official.db"

    def agent(keeper: Any, one: Tool) -> Agent:
        return Agent(scripted(PAY, "done"), tools=[one], saver=open_saver(official), ledger=keeper, review=FREELY)

    def life() -> None:
        with reopen(stage.url) as keeper:
            agent(keeper, stage.pay(dies="after")).run("pay", thread=stage.thread, progress=False)

    stage.killed(life)
    with reopen(stage.url) as keeper:
        with pytest.raises(OpenThreadError, match="is running"):
            agent(keeper, stage.pay()).resume(stage.thread)
        stage.free(keeper)
        second = agent(keeper, stage.pay())
        run = second.resume(stage.thread)
        stands = second.graph.get_state({"configurable": {"thread_id": stage.thread}})
        assert (run.status, [review.kind for review in run.reviews]) == ("waiting", ["in_doubt"]), stands

    def answers() -> None:
        with reopen(stage.url) as keeper:
            run = agent(keeper, stage.pay()).resume(stage.thread, done={run_.reviews[0].id: "paid"}, progress=False)
            assert run.status == "done"

    run_ = run
    assert in_child(answers) == FINE
    with reopen(stage.url) as keeper:
        assert agent(keeper, stage.pay()).state(stage.thread).status == "done"
    assert stage.done() == 1


@pytest.mark.slow
def test_two_processes_resume_one_thread(url: str, pytestconfig: pytest.Config) -> None:
    """Whether it waits or was cut off: one does it, the effect is made once, and nothing is lost."""
    (line,) = proved("agent_races", "5", url=url, root=pytestconfig.rootpath)
    assert re.match(r"races (sqlite|postgres): tried 5, double runs 0, lost 0, ", line)


# --- What it costs ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("size", [10, 5_000])
def test_an_effect_costs_two_commits(stage: Stage, size: int) -> None:
    """A claim and a record, the result beside the state included: what a tool that only reads does not write."""

    def commits(risk: str, number: int) -> int:
        written: list[Any] = []
        with reopen(stage.url) as real:
            keeper = type(real)(FaultyDatabase(real.database, lambda _, one: _noted(written, one)))

            @tool(risk=risk)
            def pay(what: str) -> str:
                """Pay something."""
                return what * size

            agent = Agent(scripted(PAY, "done"), tools=[pay], saver=keeper, review=FREELY)
            assert agent.run("go", thread=f"{stage.thread} {number}").status == "done"
        return len(written)

    commits("read_only", 1)  # the first of a database learns the names of the channels
    bodies = 1 if size > 2_048 else 0  # without a record it is a commit of its own
    assert commits("write_local", 2) == commits("read_only", 3) - bodies + 2


def _noted(written: list[Any], request: Any) -> None:
    if isinstance(request, Append):
        written.append(request)


# --- Everything twice ------------------------------------------------------------------------------------------------


DELIVERIES: dict[str, Callable[[Agent, str, Any], Any]] = {
    "run": lambda agent, thread, run: agent.run("pay", thread=thread, request="order 7"),
    "resume": lambda agent, thread, run: agent.resume(thread),
    "approve": lambda agent, thread, run: agent.resume(thread, approve=run.reviews[0].id),
    "edit": lambda agent, thread, run: agent.resume(thread, edit={run.reviews[0].id: {"what": "rent"}}),
    "reject": lambda agent, thread, run: agent.resume(thread, reject=run.reviews[0].id),
    "respond": lambda agent, thread, run: agent.resume(thread, respond={run.reviews[0].id: "no"}),
    "fork": lambda agent, thread, run: agent.resume(agent.fork(f"{thread}@3", thread=f"{thread} fork")),
    "replay": lambda agent, thread, run: agent.replay(f"{thread}@3", thread=f"{thread} replay"),
    "replay ask": lambda agent, thread, run: agent.replay(f"{thread}@3", thread=f"{thread} ask", effects="ask"),
    "replay run": lambda agent, thread, run: agent.replay(f"{thread}@3", thread=f"{thread} run", effects="run"),
    "undo": lambda agent, thread, run: agent.undo(thread, to=f"{thread}@1"),
    "done": lambda agent, thread, run: agent.resume(thread, done=run.reviews[0].id),
    "not_done": lambda agent, thread, run: agent.resume(thread, not_done=run.reviews[0].id),
    "abandon": lambda agent, thread, run: agent.resume(thread, abandon=run.reviews[0].id),
}
EFFECTS = {"replay run": 2, "reject": 0, "respond": 0, "run": 0}


def _noting(undone: list[str]) -> Callable[[str], None]:
    def unpay(what: str) -> None:
        undone.append(what)

    return unpay


REVIEWED = ("run", "approve", "edit", "reject", "respond")
DOUBTS = ("done", "not_done", "abandon")


@pytest.mark.slow
@pytest.mark.parametrize("call", DELIVERIES)
def test_every_call_delivered_twice_and_late(stage: Stage, call: str) -> None:
    """The second delivery, at once or by another process after everything else, makes no second effect."""
    undone: list[str] = []
    one = stage.pay(compensate=_noting(undone))
    policy = ReviewPolicy(required_for=("external_action",) if call in REVIEWED else ())

    def made() -> tuple[int, int]:
        return stage.done(), len(undone)

    def again() -> None:
        with suppress(ThreadError, ReviewError), stage.agent(tools=[one], review=policy) as agent:
            DELIVERIES[call](agent, stage.thread, asked)

    if call in DOUBTS:
        stage.dies(dies="before" if call == "not_done" else "after")
    with stage.agent(tools=[one], review=policy) as agent:
        asked = stage.crashed(agent) if call in DOUBTS else agent.run("pay", thread=stage.thread, request="order 7")
        if call not in ("run", "resume"):
            DELIVERIES[call](agent, stage.thread, asked)
    first = made()
    assert first == (EFFECTS.get(call, 1), call == "undo")
    for _ in range(2):
        again()
    assert made() == first
    with stage.agent(tools=[one], review=policy) as agent:
        if agent.state(stage.thread).status == "waiting":
            agent.resume(stage.thread, approve=asked.reviews[0].id)
    settled = made()
    again()
    assert made() == settled
