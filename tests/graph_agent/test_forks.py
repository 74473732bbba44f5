"""Forks and replays: what the source did to the world is not done again unasked, and nothing depends on the source."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from checkpointers import Keep, Saver
from checkpointers.testing import FaultyDatabase
from graph_agent import NOT_DONE, Agent, Patch, ReviewPolicy, Tool, tool
from graph_agent.errors import SettledReviewError, SetupError, ThreadError
from graph_agent.testing import calls
from tests.conftest import reopen
from tests.graph_agent.conftest import Make, call_of, scripted
from tests.graph_agent.stage import PAY, Stage, die
from tests.proofs.world import World

FREELY = ReviewPolicy(required_for=())
LARGE = "ä" * 4_000


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """Start the process that counts effects."""
    with World.start() as started:
        yield started


@pytest.fixture
def stage(url: str, world: World) -> Stage:
    return Stage(url, world)


class Hands:
    """What tools did."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.keys: list[str] = []

    def pay(self, **options: Any) -> Tool:
        def pay(what: str) -> str:
            """Pay something."""
            self.did.append(what)
            return f"paid {what}, the {len(self.did)}."

        return tool(**{"risk": "write_local", **options})(pay)

    def keyed(self) -> Tool:
        def pay(what: str, idempotency_key: str) -> str:
            """Pay something."""
            self.did.append(what)
            self.keys.append(idempotency_key)
            return f"paid {what}"

        return tool(risk="write_local")(pay)


@pytest.fixture
def hands() -> Hands:
    return Hands()


def result(run: Any, tool: str = "pay") -> str:
    return str(call_of(run, tool)["result"])


def rule(run: Any) -> str:
    return str(call_of(run, "pay").get("rule", ""))


# --- Reuse, ask, run -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("step", ["t@1", "t@2"], ids=["before the plan", "before the act"])
def test_reuse_is_the_default(make: Make, hands: Hands, step: str) -> None:
    """A call whose effect the source has made gets what was recorded then, and says from where; others are made."""
    agent = make(PAY, calls(("pay", {"what": "tax"})), "done", tools=[hands.pay()])
    agent.run("go", thread="t")
    run = agent.replay(step, thread="fork")
    assert (run.status, hands.did) == ("done", ["rent", "tax"])
    assert result(run) == "paid rent, the 1."
    assert rule(run).startswith("not run again: it was done in thread 't' at ")
    other = make(calls(("pay", {"what": "gift"})), "done", tools=[hands.pay()])
    assert other.replay(step, thread="else").status == "done"
    assert hands.did == ["rent", "tax", "gift"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "told", "times"),
    [
        ("done", "paid rent, the 1.", 1),
        ("done with", "nr 7", 1),
        ("not_done", "paid rent, the 2.", 2),
        ("abandon", "nobody knows whether this was done, and it is not to be tried again", 1),
    ],
)
def test_ask(make: Make, hands: Hands, answer: str, told: str, times: int) -> None:
    """A person is shown what was done and where, and decides; without a result of their own the recorded one counts."""
    agent = make(PAY, "done", tools=[hands.pay()])
    agent.run("go", thread="t")
    run = agent.replay("t@1", thread="fork", effects="ask")
    (review,) = run.reviews
    assert (run.status, review.kind, hands.did) == ("waiting", "in_doubt", ["rent"])
    assert review.reason.startswith("it was done in thread 't' at ")
    given: Any = {"done with": {"done": {review.id: "nr 7"}}}.get(answer, {answer: review.id})
    run = agent.resume("fork", **given)
    assert (run.status, result(run), len(hands.did)) == ("done", told, times)
    again = agent.resume("fork", **given)
    assert (again.status, len(hands.did)) == ("done", times)
    with pytest.raises(SettledReviewError):
        agent.resume("fork", **({"abandon": review.id} if answer != "abandon" else {"not_done": review.id}))


def test_ask_asks_for_a_tool_that_takes_the_key_too(make: Make, hands: Hands) -> None:
    """Its key in the fork is another, so nobody would know a repeated call by it."""
    agent = make(PAY, "done", tools=[hands.keyed()])
    agent.run("go", thread="t")
    assert agent.replay("t@1", thread="fork", effects="ask").status == "waiting"
    assert hands.did == ["rent"]


def test_run_makes_them_again(make: Make, hands: Hands) -> None:
    """As effects of the fork, under keys of its own, and under the review policy."""
    agent = make(PAY, PAY, "done", tools=[hands.keyed()])
    agent.run("go", thread="t")
    run = agent.replay("t@1", thread="fork", effects="run")
    assert (run.status, rule(run), hands.did) == ("done", "", ["rent", "rent"])
    assert [key.partition(":")[0] for key in hands.keys] == ["t", "fork"]
    strict = make(PAY, "done", tools=[hands.keyed()], review=ReviewPolicy(required_for="write_local"))
    assert strict.replay("t@1", thread="other", effects="run").status == "waiting"
    assert len(hands.did) == 2


def test_an_unknown_way_is_refused(make: Make, hands: Hands) -> None:
    """Before anything is written."""
    agent = make(PAY, "done", tools=[hands.pay()])
    agent.run("go", thread="t")
    with pytest.raises(SetupError, match="effects='again' is none of 'reuse', 'ask', 'run'"):
        agent.fork("t@1", thread="fork", effects="again")  # type: ignore[arg-type]
    assert agent.state("fork").status == "unknown"


@pytest.mark.slow
def test_every_step_replayed_repeats_nothing(make: Make, hands: Hands) -> None:
    """From wherever a thread is replayed, nothing that it did is done again unasked."""
    agent = make(PAY, calls(("pay", {"what": "tax"}), ("pay", {"what": "fee"})), "done", tools=[hands.pay()])
    agent.run("go", thread="t")
    did = list(hands.did)
    for step in range(1, len(agent.history("t")) + 1):
        for effects in ("reuse", "ask"):
            fork = agent.fork(f"t@{step}", thread=f"{effects} {step}", effects=effects)  # type: ignore[arg-type]
            run = agent.resume(fork) if fork.status != "done" else fork
            assert run.status == "done" or {one.kind for one in run.reviews} == {"in_doubt"}
            assert hands.did == did, step


# --- Forks of forks, and of what is gone -----------------------------------------------------------------------------


@pytest.mark.parametrize("effects", ["reuse", "ask"])
def test_a_fork_of_a_fork(make: Make, hands: Hands, effects: Any) -> None:
    """It inherits what its source inherited, and still says which thread did it."""
    agent = make(PAY, "done", tools=[hands.pay()])
    agent.run("go", thread="t")
    agent.fork("t@1", thread="u")
    run = agent.replay("u@-1", thread="v", effects=effects)
    told = run.reviews[0].reason if effects == "ask" else rule(run)
    assert "it was done in thread 't' at " in told
    assert hands.did == ["rent"]
    assert agent.replay("u@-1", thread="w", effects="run").status == "done"
    assert hands.did == ["rent", "rent"]


@pytest.mark.parametrize("how", ["deleted", "dropped"])
def test_the_source_is_gone(saver: Saver, hands: Hands, how: str) -> None:
    """A fork has the records and the large results itself."""

    @tool(risk="write_local")
    def pay(what: str) -> str:
        """Pay something."""
        hands.did.append(what)
        return LARGE

    agent = Agent(scripted(PAY, "done"), tools=[pay], saver=saver, review=FREELY)
    agent.run("go", thread="t")
    agent.fork("t@1", thread="before")
    agent.fork("t@-1", thread="after")
    saver.delete_thread("t") if how == "deleted" else saver.retain(Keep(last=1), threads="t")
    run = agent.resume("before")
    assert (run.status, hands.did) == ("done", ["rent"])
    for thread in ("before", "after"):
        state = agent.state(thread).state
        (name,) = [one["id"] for one in state["artifacts"] if one.get("beside")]
        assert agent.artifact(thread, name) == LARGE


@pytest.mark.slow
def test_large_results_of_finished_tasks_come_along(stage: Stage) -> None:
    """A step that was cut off: what its finished tasks returned is there in the fork, whoever returned it."""

    def tools(*, dies: bool) -> list[Tool]:
        looked = threading.Event()

        @tool(risk="read_only")
        def look(what: str) -> Any:
            """Look at something."""
            return LARGE, Patch().add("artifacts", {"id": "a-own", "type": "page", "text": LARGE + "own"})

        @tool(risk="write_local", probe=lambda key, args: NOT_DONE)
        def pay(what: str) -> str:
            """Pay something."""
            looked.wait(0.5)  # the other task has written by then
            return str(die()) if dies else stage.world.do(stage.thread, what)

        return [look, pay]

    both = calls(("look", {"what": "x"}), ("pay", {"what": "rent"}))

    def life() -> None:
        with stage.agent(both, "done", tools=tools(dies=True)) as agent:
            agent.run("go", thread=stage.thread, progress=False)

    stage.killed(life)
    with stage.agent(both, "done", tools=tools(dies=False)) as agent:
        fork = agent.fork(f"{stage.thread}@-1", thread=f"{stage.thread} fork")
        agent.saver.delete_thread(stage.thread)
        run = agent.resume(fork)
        assert (run.status, stage.done()) == ("done", 1)
        large = {one["id"]: agent.artifact(run, one["id"]) for one in run.state["artifacts"] if one.get("beside")}
        assert sorted(map(len, large.values())) == [len(LARGE), len(LARGE) + 3]


def test_what_a_recorded_call_wrote_comes_along(make: Make, hands: Hands) -> None:
    """A large artifact that a tool wrote itself is there when a fork reuses its call, and the model is shown it."""

    @tool(risk="write_local")
    def pay(what: str) -> Any:
        """Pay something."""
        hands.did.append(what)
        return "paid", Patch().add("artifacts", {"id": "a-own", "type": "receipt", "text": LARGE})

    agent = make(PAY, "done", tools=[pay])
    agent.run("go", thread="t")
    agent.fork("t@1", thread="fork")
    agent.saver.delete_thread("t")
    run = agent.resume("fork")
    assert (run.status, agent.artifact("fork", "a-own"), hands.did) == ("done", LARGE, ["rent"])


# --- In doubt --------------------------------------------------------------------------------------------------------


def test_a_fork_of_what_is_in_doubt_with_a_key(stage: Stage) -> None:
    """Source and fork settle it under the same key, so whoever carries it out does it once."""
    stage.dies(keyed=True)
    with stage.agent(tools=[stage.pay(keyed=True)]) as agent:
        run = agent.replay(f"{stage.thread}@-1", thread=f"{stage.thread} fork")
        assert (run.status, stage.done()) == ("done", 1)
        again = agent.replay(f"{stage.thread}@1", thread=f"{stage.thread} second")
        assert (again.status, stage.done()) == ("done", 1)
        assert (stage.crashed(agent).status, stage.done()) == ("done", 1)


def test_a_fork_of_what_is_in_doubt_with_a_key_has_trouble(stage: Stage) -> None:
    """What it tries again after a failure goes under the key of the source still: it may have been done."""
    stage.dies(keyed=True)
    trouble = [ConnectionError("no line")]

    def pay(what: str, idempotency_key: str) -> str:
        """Pay something."""
        if trouble:
            raise trouble.pop()
        return stage.world.do(stage.thread, what, idempotency_key)

    with stage.agent(tools=[tool(risk="external_action")(pay)]) as agent:
        run = agent.replay(f"{stage.thread}@-1", thread=f"{stage.thread} fork")
        assert (run.status, call_of(run, "pay")["attempts"], stage.done()) == ("done", 2, 1)
        (entry,) = agent.effects(run.thread)
        assert (entry.status, entry.record["key"]) == ("done", agent.effects(stage.thread)[0].key)


def test_a_fork_of_what_is_in_doubt_with_a_probe(stage: Stage) -> None:
    """The probe is asked by the key that the effect was begun under."""
    asked: list[str] = []

    def probe(key: str, args: Any) -> Any:
        asked.append(key)
        return "found" if key.startswith(f"{stage.thread}:") else NOT_DONE

    stage.dies(probe=probe)
    with stage.agent(tools=[stage.pay(probe=probe)]) as agent:
        run = agent.replay(f"{stage.thread}@1", thread=f"{stage.thread} fork")
        assert (run.status, result(run), stage.done()) == ("done", "found", 1)
        (entry,) = agent.effects(stage.thread)
        assert asked == [entry.key]


def test_a_fork_of_what_is_in_doubt_asks(stage: Stage) -> None:
    """Without key and probe each of them asks for itself."""
    stage.dies()
    with stage.agent(tools=[stage.pay()]) as agent:
        run = agent.replay(f"{stage.thread}@-1", thread=f"{stage.thread} fork")
        assert (run.status, run.reviews[0].kind, stage.done()) == ("waiting", "in_doubt", 1)
        run = agent.resume(run, done=run.reviews[0].id)
        assert run.status == "done"
        assert (stage.crashed(agent).status, stage.done()) == ("waiting", 1)


def test_a_fork_of_what_still_runs(make: Make, hands: Hands) -> None:
    """A call that passed its deadline in the source is not begun again by the fork either."""
    go = threading.Event()

    @tool(risk="write_local", deadline=0.05, probe=lambda key, args: NOT_DONE)
    def pay(what: str) -> str:
        """Pay something."""
        hands.did.append(what)
        go.wait(20)
        return "late"

    agent = make(PAY, "done", tools=[pay])
    assert agent.run("go", thread="t").status == "waiting"
    run = agent.replay("t@3", thread="fork")
    assert (run.status, hands.did) == ("waiting", ["rent"])
    assert "may still be running" in run.reviews[0].reason
    go.set()


def test_a_question_in_doubt_is_asked_anew(make: Make, hands: Hands) -> None:
    """A fork of a thread that waits for an answer waits for it too; each has its own."""
    go = threading.Event()

    @tool(risk="write_local", deadline=0.05)
    def pay(what: str) -> str:
        """Pay something."""
        hands.did.append(what)
        go.wait(20)
        return "late"

    agent = make(PAY, "done", tools=[pay])
    agent.run("go", thread="t")
    fork = agent.resume(agent.fork("t@-1", thread="fork"))
    assert (fork.status, fork.reviews[0].kind) == ("waiting", "in_doubt")
    assert agent.resume("fork", done={fork.reviews[0].id: "seen"}).status == "done"
    assert agent.state("t").status == "waiting"
    assert hands.did == ["rent"]
    go.set()


# --- Twice, and cut off ----------------------------------------------------------------------------------------------


def test_forked_twice(make: Make, hands: Hands) -> None:
    """A name is taken once; without a name each is another, and none of them does anything again."""
    agent = make(PAY, "done", tools=[hands.pay()])
    agent.run("go", thread="t")
    agent.fork("t@1", thread="fork")
    with pytest.raises(ThreadError, match="'fork' exists"):
        agent.fork("t@1", thread="fork")
    with pytest.raises(ThreadError, match="'t' exists"):
        agent.fork("t@1", thread="t")
    runs = [agent.replay("t@1") for _ in range(2)]
    assert len({run.thread for run in runs}) == 2
    assert hands.did == ["rent"]


def test_a_fork_that_was_cut_off(stage: Stage) -> None:
    """Killed before its first step was stored: made again it is whole; made in another way it needs another name."""
    with stage.agent(tools=[stage.pay()]) as agent:
        agent.run("go", thread=stage.thread)
    name = f"{stage.thread} fork"

    def life() -> None:
        real = reopen(stage.url)

        def fault(_: int, request: Any) -> None:
            if "INSERT INTO cp_checkpoints" in repr(request) or "'cp_checkpoints'" in repr(request):
                die()

        keeper = type(real)(FaultyDatabase(real.database, fault))
        with stage.agent(tools=[stage.pay()], saver=keeper) as agent:
            agent.fork(f"{stage.thread}@1", thread=name)

    stage.killed(life)
    with stage.agent(tools=[stage.pay()]) as agent:
        with agent.saver.lease(name, if_busy="interrupt"):
            pass
        assert [entry.status for entry in agent.effects(name)] == ["done"]
        with pytest.raises(ThreadError, match="a ledger of its own"):
            agent.fork(f"{stage.thread}@1", thread=name, effects="run")
        run = agent.replay(f"{stage.thread}@1", thread=name)
        assert (run.status, stage.done()) == ("done", 1)


def test_a_tool_cannot_say_what_stands_beside_the_state(make: Make, hands: Hands) -> None:
    """It would name a body that is not there, and no model could be asked any more."""

    @tool(risk="write_local")
    def pay(what: str) -> Any:
        """Pay something."""
        hands.did.append(what)
        forged = {"id": "a-forged", "type": "page", "hash": "0" * 64, "bytes": 9_000, "beside": True}
        return "paid", Patch().add("artifacts", forged)

    agent = make(PAY, "done", tools=[pay])
    run = agent.run("go", thread="t")
    assert (run.status, hands.did) == ("done", ["rent"])
    assert "not a tool's to say" in result(run)
    assert agent.replay("t@1", thread="fork").status == "done"
