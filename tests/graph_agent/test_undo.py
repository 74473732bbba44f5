"""Undo: what was done to the world is taken back, newest first, each effect once, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from checkpointers import Keep, Saver, StorageError, UnknownStepError, open_saver
from checkpointers.testing import FaultyDatabase, wait_until
from graph_agent import Agent, Budget, ReviewPolicy, Tool, tool
from graph_agent.errors import (
    InvalidAnswerError,
    OpenThreadError,
    SetupError,
    UnknownReviewError,
    UnknownThreadError,
    WaitingThreadError,
)
from graph_agent.testing import calls
from tests.conftest import reopen
from tests.graph_agent.conftest import Make, scripted
from tests.graph_agent.stage import Stage, die
from tests.proofs.world import World

FREELY = ReviewPolicy(required_for=())
RENT, TAX, FOOD = ({"what": what} for what in ("rent", "tax", "food"))


class Desk:
    """Pays and takes back; what it does is noted in order."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.trouble: dict[str, list[BaseException]] = {}

    def back(self, what: str) -> str:
        """Take a payment back."""
        if self.trouble.get(what):
            raise self.trouble[what].pop(0)
        self.did.append(f"back {what}")
        return f"{what} is back"

    def pay(self, **options: Any) -> Tool:
        def pay(what: str) -> str:
            """Pay something."""
            self.did.append(f"pay {what}")
            return f"paid {what}"

        return tool(**{"risk": "write_local", "compensate": self.back, **options})(pay)


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """Start the process that counts effects."""
    with World.start() as started:
        yield started


@pytest.fixture
def stage(url: str, world: World) -> Stage:
    return Stage(url, world)


def paid(*what: dict[str, Any]) -> Any:
    return calls(*(("pay", one) for one in what))


def states(undo: Any) -> list[tuple[str, str]]:
    return [(one.args["what"], one.state) for one in undo.effects]


# --- In order, once --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_newest_first_and_once(saver: Saver, desk: Desk) -> None:
    """Of several steps and replies the newest effect goes first; called again it finds nothing to do."""
    model = scripted(paid(RENT, TAX), paid(FOOD), "one", paid({"what": "gift"}), "two", plan=["one", "two"])
    agent = Agent(model, tools=[desk.pay()], saver=saver, review=FREELY)
    agent.run("go", thread="t")
    before = list(desk.did)
    dry = agent.undo("t", to="t@1", dry_run=True)
    assert (desk.did, dry.status, {one.state for one in dry.effects}) == (before, "planned", {"planned"})
    undo = agent.undo("t", to="t@1")
    assert undo.status == "done"
    assert desk.did == [*before, *(f"back {one.split()[1]}" for one in reversed(before))]
    assert len(desk.did) == 8
    assert (undo.left, agent.state("t").status) == ((), "done")
    again = agent.undo("t", to="t@1")
    assert (again.status, {one.state for one in again.effects}, len(desk.did)) == ("done", {"undone"}, 8)
    facts = [fact["text"] for fact in agent.state("t").state["facts"] if fact["source"] == "undo"]
    assert sorted(facts) == sorted(
        f'pay({{"what":"{what}"}}) was taken back' for what in ("rent", "tax", "food", "gift")
    )


def test_what_was_done_in_a_step_or_before_stays(make: Make, desk: Desk) -> None:
    """`to` names the last step that stays; an address that is none of this thread is refused."""
    agent = make(paid(RENT), paid(TAX), paid(FOOD), "done", tools=[desk.pay()])
    agent.run("go", thread="t")
    dry = agent.undo("t", to="t@0", dry_run=True)
    steps = {one.args["what"]: one.step for one in dry.effects}
    assert steps["rent"] < steps["tax"] < steps["food"]
    undo = agent.undo("t", to=f"t@{steps['tax']}")
    assert states(undo) == [("food", "undone"), ("tax", "undone")]
    assert states(agent.undo("t", to=f"t@{steps['food'] + 1}")) == []
    for address in ("other@1", "t@99", "t@x"):
        with pytest.raises(UnknownStepError):
            agent.undo("t", to=address)
    with pytest.raises((UnknownThreadError, UnknownStepError, KeyError)):
        agent.undo("nobody", to="nobody@1")
    assert desk.did[3:] == ["back food", "back tax"]


def test_after_retention_has_dropped_the_steps(make: Make, desk: Desk) -> None:
    """The ledger remembers after which step an effect was made; the step itself need not be there any more."""
    agent = make(paid(RENT), paid(TAX), "done", tools=[desk.pay()])
    agent.run("go", thread="t")
    steps = {one.args["what"]: one.step for one in agent.undo("t", to="t@0", dry_run=True).effects}
    agent.saver.retain(Keep(last=1), threads="t")
    assert len(agent.history("t")) == 1
    assert states(agent.undo("t", to=f"t@{steps['tax']}")) == [("tax", "undone")]
    assert states(agent.undo("t", to="t@1")) == [("tax", "undone"), ("rent", "undone")]
    assert desk.did[2:] == ["back tax", "back rent"]


# --- People ----------------------------------------------------------------------------------------------------------


def test_the_policy_reviews_and_all_may_be_approved_at_once(make: Make, desk: Desk) -> None:
    """After a dry run all its reviews are approved in one call, and the order stays."""
    agent = make(paid(RENT), paid(TAX), "done", tools=[desk.pay(risk="external_action")])
    run = agent.run("go", thread="t")
    for _ in range(2):  # one after the other: of calls of one reply, either may be claimed first
        run = agent.resume("t", approve=run.reviews)
    before = list(desk.did)
    dry = agent.undo("t", to="t@1", dry_run=True)
    assert [review.description for review in dry.reviews] == ['undo pay({"what":"tax"})', 'undo pay({"what":"rent"})']
    waits = agent.undo("t", to="t@1")
    assert (waits.status, states(waits), desk.did) == ("waiting", [("tax", "waiting"), ("rent", "planned")], before)
    assert [review.id for review in waits.reviews] == [review.id for review in dry.reviews]
    undo = agent.undo("t", to="t@1", approve=dry.reviews)
    assert (undo.status, desk.did[2:]) == ("done", ["back tax", "back rent"])
    assert agent.undo("t", to="t@1", approve=dry.reviews).status == "done"
    assert len(desk.did) == 4


def test_rejected(make: Make, desk: Desk) -> None:
    """What a person wants to stay stays, on record, and the older ones go on; who thinks better of it may approve."""
    agent = make(paid(RENT), paid(TAX), "done", tools=[desk.pay(risk="external_action")])
    run = agent.run("go", thread="t")
    for _ in range(2):  # one after the other: of calls of one reply, either may be claimed first
        run = agent.resume("t", approve=run.reviews)
    tax, rent = (review.id for review in agent.undo("t", to="t@1", dry_run=True).reviews)
    undo = agent.undo("t", to="t@1", reject=tax, approve=rent, by="ada")
    assert states(undo) == [("tax", "rejected"), ("rent", "undone")]
    assert (undo.effects[0].why, [one.args["what"] for one in undo.left]) == ("ada said so", ["tax"])
    assert states(agent.undo("t", to="t@1")) == [("tax", "rejected"), ("rent", "undone")]
    assert states(agent.undo("t", to="t@1", approve=tax)) == [("tax", "undone"), ("rent", "undone")]
    assert desk.did[2:] == ["back rent", "back tax"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"approve": "r-nothing"}, UnknownReviewError),
        ({"approve": "r-nothing.1"}, UnknownReviewError),
        ({"abandon": "{}"}, InvalidAnswerError),
        ({"done": "{}"}, InvalidAnswerError),
        ({"not_done": "{}"}, InvalidAnswerError),
        ({"respond": {"{}": "no"}}, InvalidAnswerError),
        ({"edit": {"{}": {"what": "x"}}}, InvalidAnswerError),
        ({"approve": "{}.1"}, InvalidAnswerError),
        ({"reject": "{}.1"}, InvalidAnswerError),
        ({"done": "{}.x"}, UnknownReviewError),
    ],
)
def test_answers_that_do_not_fit(make: Make, desk: Desk, answer: dict[str, Any], error: type[Exception]) -> None:
    """An answer that a review does not take lets nothing through."""
    agent = make(paid(RENT), "done", tools=[desk.pay(risk="external_action")])
    agent.resume("t", approve=agent.run("go", thread="t").reviews)
    (review,) = agent.undo("t", to="t@1", dry_run=True).reviews
    given = {
        kind: {key.format(review.id): value for key, value in one.items()}
        if isinstance(one, dict)
        else one.format(review.id)
        for kind, one in answer.items()
    }
    with pytest.raises(error):
        agent.undo("t", to="t@1", **given)
    assert desk.did == ["pay rent"]


def test_a_late_answer_does_not_let_the_next_undo_through(make: Make, desk: Desk) -> None:
    """An effect that is made again after it was taken back asks anew; the old approval is of the old effect."""
    agent = make(
        paid(RENT), paid(RENT), "done", tools=[desk.pay(risk="external_action")], review=FREELY,
        budget=Budget(max_steps=2),
    )  # fmt: skip
    assert agent.run("go", thread="t").status == "stopped"
    strict = make(paid(RENT), paid(RENT), "done", tools=[desk.pay(risk="external_action")])
    (first,) = strict.undo("t", to="t@1", dry_run=True).reviews
    assert strict.undo("t", to="t@1", approve=first.id).status == "done"
    run = agent.resume("t", budget=Budget())
    assert (run.status, desk.did) == ("done", ["pay rent", "back rent", "pay rent"])
    assert run.state["calls"][-1]["rule"] == "begun again: it was taken back"
    with pytest.raises(UnknownReviewError):
        strict.undo("t", to="t@1", approve=first.id)
    (second,) = strict.undo("t", to="t@1", dry_run=True).reviews
    assert (second.id != first.id, strict.undo("t", to="t@1", approve=second.id).status) == (True, "done")
    assert desk.did == ["pay rent", "back rent", "pay rent", "back rent"]


# --- Trouble ---------------------------------------------------------------------------------------------------------


def test_a_failure_in_the_middle_is_gone_on_from(make: Make, desk: Desk) -> None:
    """It stops at what fails, says so, leaves older effects alone, and goes on from there when it is called again."""
    agent = make(paid(RENT), paid(TAX), paid(FOOD), "done", tools=[desk.pay()])
    agent.run("go", thread="t")
    desk.trouble["tax"] = [ValueError("bank is closed")]
    undo = agent.undo("t", to="t@1")
    assert (undo.status, states(undo)) == ("failed", [("food", "undone"), ("tax", "failed"), ("rent", "planned")])
    assert undo.effects[1].why == "ValueError: bank is closed"
    undo = agent.undo("t", to="t@1")
    assert (undo.status, desk.did[3:]) == ("done", ["back food", "back tax", "back rent"])


def test_a_failure_after_it_was_approved_is_tried_again_unasked(make: Make, desk: Desk) -> None:
    """The person said that it should be taken back, and it was not yet."""
    agent = make(paid(RENT), "done", tools=[desk.pay(risk="external_action")])
    agent.resume("t", approve=agent.run("go", thread="t").reviews)
    desk.trouble["rent"] = [ValueError("bank is closed")]
    dry = agent.undo("t", to="t@1", dry_run=True)
    assert agent.undo("t", to="t@1", approve=dry.reviews).status == "failed"
    assert agent.undo("t", to="t@1").status == "done"


def test_a_failure_and_then_a_rejection(make: Make, desk: Desk) -> None:
    """Who gives it up after it failed is heard by the next undo too."""
    agent = make(paid(RENT), "done", tools=[desk.pay(risk="external_action")])
    agent.resume("t", approve=agent.run("go", thread="t").reviews)
    desk.trouble["rent"] = [ValueError("bank is closed")]
    (review,) = agent.undo("t", to="t@1", dry_run=True).reviews
    assert agent.undo("t", to="t@1", approve=review.id).status == "failed"
    for answers in ({"reject": review.id}, {}, {"reject": review.id}):
        assert states(agent.undo("t", to="t@1", **answers)) == [("rent", "rejected")]
    assert desk.did == ["pay rent"]


@pytest.mark.parametrize("how", ["nothing", "key"])
def test_killed_between_compensation_and_record(stage: Stage, how: str) -> None:
    """It is in doubt: run again under its key, or a person says what came of it; it is taken back once."""

    def taking_back(*, dies: bool) -> Tool:
        def back(what: str) -> str:
            stage.world.do(stage.thread, f"back {what}")
            return die() or "back" if dies else "back"

        def keyed(what: str, idempotency_key: str) -> str:
            stage.world.do(stage.thread, f"back {what}", idempotency_key)
            return die() or "back" if dies else "back"

        return stage.pay(risk="write_local", compensate=keyed if how == "key" else back)

    def life() -> None:
        with stage.agent(tools=[taking_back(dies=True)]) as agent:
            agent.run("go", thread=stage.thread, progress=False)
            agent.undo(stage.thread, to=f"{stage.thread}@1")

    stage.killed(life)
    to = f"{stage.thread}@1"
    with stage.agent(tools=[taking_back(dies=False)]) as agent:
        undo = agent.undo(stage.thread, to=to)
        if how == "nothing":
            (review,) = undo.reviews
            assert (undo.status, review.kind, stage.done("back rent")) == ("waiting", "in_doubt", 1)
            with pytest.raises(InvalidAnswerError, match="done="):
                agent.undo(stage.thread, to=to, approve=review.id)
            late = agent.undo(stage.thread, to=to, reject=review.id.partition(".")[0])
            assert states(late) == [("rent", "in doubt")]
            undo = agent.undo(stage.thread, to=to, done=review.id)
        assert (undo.status, states(undo)) == ("done", [("rent", "undone")])
        assert (stage.done("back rent"), stage.done("rent")) == (1, 1)


@pytest.mark.parametrize(("answer", "state", "times"), [("not_done", "undone", 2), ("abandon", "in doubt", 1)])
def test_a_compensation_in_doubt(stage: Stage, answer: str, state: str, times: int) -> None:
    """Not done is begun again; abandoned is left be, also by the next undo, and is named."""

    def taking_back(*, dies: bool) -> Tool:
        def back(what: str) -> str:
            stage.world.do(stage.thread, f"back {what}")
            return die() or "back" if dies else "back"

        return stage.pay(risk="write_local", compensate=back)

    def life() -> None:
        with stage.agent(tools=[taking_back(dies=True)]) as agent:
            agent.run("go", thread=stage.thread, progress=False)
            agent.undo(stage.thread, to=f"{stage.thread}@1")

    stage.killed(life)
    with stage.agent(tools=[taking_back(dies=False)]) as agent:
        (review,) = agent.undo(stage.thread, to=f"{stage.thread}@1").reviews
        undo = agent.undo(stage.thread, to=f"{stage.thread}@1", **{answer: review.id})
        assert states(undo) == [("rent", state)]
        again = agent.undo(stage.thread, to=f"{stage.thread}@1")
        assert (states(again), again.reviews, stage.done("back rent")) == ([("rent", state)], (), times)


def test_the_record_of_a_compensation_that_cannot_be_written(stage: Stage) -> None:
    """What was taken back is not called failed because a database was: it is in doubt, and not made again unasked."""
    back: list[str] = []

    def taken(what: str) -> str:
        back.append(what)
        return "back"

    with stage.agent(tools=[stage.pay(compensate=taken)]) as agent:
        agent.run("go", thread=stage.thread)
    with reopen(stage.url) as real:
        trouble = [OSError("disk full")]

        def broken(_: int, request: Any) -> None:
            if back and trouble and "UPDATE cp_effects" in repr(request):
                raise trouble.pop()

        keeper = type(real)(FaultyDatabase(real.database, broken))
        with stage.agent(tools=[stage.pay(compensate=taken)], saver=keeper) as agent, pytest.raises(StorageError):
            agent.undo(stage.thread, to=f"{stage.thread}@1")
    with stage.agent(tools=[stage.pay(compensate=taken)]) as agent:
        undo = agent.undo(stage.thread, to=f"{stage.thread}@1")
        assert (undo.status, [review.kind for review in undo.reviews], len(back)) == ("waiting", ["in_doubt"], 1)


def test_a_compensation_past_its_deadline(make: Make, desk: Desk) -> None:
    """It may still be running: it is not begun again, whatever is said; its late end counts."""
    go, begun = threading.Event(), list[str]()

    def back(what: str) -> str:
        begun.append(what)
        go.wait(20)
        return "back at last"

    agent = make(paid(RENT), "done", tools=[desk.pay(compensate=back, deadline=0.05)])
    agent.run("go", thread="t")
    undo = agent.undo("t", to="t@1")
    assert (undo.status, undo.reviews[0].kind, len(begun)) == ("waiting", "in_doubt", 1)
    undo = agent.undo("t", to="t@1", not_done=undo.reviews[0].id)
    assert (undo.status, "may still be running" in undo.effects[0].why, len(begun)) == ("waiting", True, 1)
    go.set()
    wait_until(lambda: agent.undo("t", to="t@1").status == "done")
    assert (len(begun), states(agent.undo("t", to="t@1"))) == (1, [("rent", "undone")])


def test_an_async_compensation_that_was_stopped(make: Make, desk: Desk) -> None:
    """It is in doubt, and not made again unasked."""
    begun: list[str] = []

    async def back(what: str) -> str:
        begun.append(what)
        await asyncio.sleep(20 if len(begun) == 1 else 0)
        return "back"

    agent = make(paid(RENT), "done", tools=[desk.pay(compensate=back, deadline=0.05)])
    agent.run("go", thread="t")
    (review,) = agent.undo("t", to="t@1").reviews
    assert agent.undo("t", to="t@1").status == "waiting"
    assert len(begun) == 1
    assert agent.undo("t", to="t@1", not_done=review.id).status == "done"
    assert len(begun) == 2


# --- What cannot be taken back ---------------------------------------------------------------------------------------


def test_effects_without_a_compensation_are_named(make: Make, desk: Desk) -> None:
    """They do not hold up the others."""

    @tool(risk="write_local")
    def shout(what: str) -> str:
        """Shout."""
        desk.did.append(f"shout {what}")
        return "shouted"

    agent = make(paid(RENT), calls(("shout", TAX)), paid(FOOD), "done", tools=[desk.pay(), shout])
    agent.run("go", thread="t")
    undo = agent.undo("t", to="t@1")
    assert states(undo) == [("food", "undone"), ("tax", "impossible"), ("rent", "undone")]
    assert (undo.status, undo.left[0].why) == ("done", "shout has no compensation")
    assert "impossible: shout" in repr(undo)
    gone = make(tools=[desk.pay()]).undo("t", to="t@1")
    assert states(gone)[1] == ("tax", "impossible")


def test_effects_in_doubt_are_named(stage: Stage) -> None:
    """Nobody knows whether there is something to take back: that is settled first."""
    stage.dies(paid(TAX), paid(RENT), "done", tools=[_dies_at(stage, "rent")])
    with stage.agent(paid(TAX), paid(RENT), "done", tools=[_dies_at(stage, "")]) as agent:
        with pytest.raises(OpenThreadError):
            agent.undo(stage.thread, to=f"{stage.thread}@1")
        undo = agent.undo(stage.thread, to=f"{stage.thread}@1", supersede=True)
        assert states(undo) == [("rent", "in doubt"), ("tax", "undone")]
        assert [one.args["what"] for one in undo.left] == ["rent"]
        assert agent.state(stage.thread).status == "stopped"
        assert (stage.done("back rent"), stage.done("back tax")) == (0, 1)


def _dies_at(stage: Stage, where: str) -> Tool:
    def back(what: str) -> str:
        return stage.world.do(stage.thread, f"back {what}")

    @tool(risk="write_local", compensate=back)
    def pay(what: str) -> str:
        """Pay something."""
        stage.world.do(stage.thread, what)
        return str(die()) if what == where else "paid"

    return pay


# --- On any thread ---------------------------------------------------------------------------------------------------


def test_on_a_waiting_thread(make: Make, desk: Desk) -> None:
    """It is refused unless what the thread waits for is given up; then the thread rests."""
    agent = make(paid(RENT), calls(("ask_user", {"question": "more?"})), "done", tools=[desk.pay()])
    run = agent.run("go", thread="t")
    with pytest.raises(WaitingThreadError):
        agent.undo("t", to="t@1")
    assert (desk.did, agent.state("t").status) == (["pay rent"], "waiting")
    assert agent.undo("t", to="t@1", dry_run=True).status == "planned"
    assert agent.undo("t", to="t@1", supersede=True, by="ada").status == "done"
    after = agent.state("t")
    assert (after.status, after.reviews, after.reason) == ("stopped", (), "ada took effects back")
    assert after.state["calls"][-1]["status"] == "superseded"
    assert agent.run("again", thread="t").status in ("done", "waiting")
    assert run.reviews


def test_on_a_stopped_thread(make: Make, desk: Desk) -> None:
    """It needs no leave, and the thread can go on afterwards."""
    agent = make(paid(RENT), "done", tools=[desk.pay()], budget=Budget(max_steps=2))
    assert agent.run("go", thread="t").status == "stopped"
    assert agent.undo("t", to="t@1").status == "done"
    assert agent.state("t").status == "stopped"
    assert agent.resume("t", budget=Budget()).status == "done"
    assert desk.did == ["pay rent", "back rent"]


def test_what_was_taken_back_is_made_again_under_another_key(make: Make) -> None:
    """Who carries it out knows the first key, and would do nothing; an attempt that fails keeps its key."""
    keys, trouble = list[str](), [ConnectionError("no line")]

    @tool(risk="write_local", compensate=lambda what: f"{what} is back")
    def pay(what: str, idempotency_key: str) -> str:
        """Pay something."""
        keys.append(idempotency_key)
        if len(keys) > 1 and trouble:
            raise trouble.pop()
        return f"paid {what}"

    agent = make(paid(RENT), paid(RENT), "done", tools=[pay], budget=Budget(max_tool_calls=1))
    assert agent.run("go", thread="t").status == "stopped"
    assert agent.undo("t", to="t@1").status == "done"
    assert agent.resume("t", budget=Budget()).status == "done"
    (entry, _) = agent.effects("t")
    assert keys == [entry.key, f"{entry.key}:2", f"{entry.key}:2"]
    assert agent.undo("t", to="t@1").status == "done"


def test_on_a_running_thread(make: Make, desk: Desk) -> None:
    """It waits its turn: a thread that runs is not undone under its feet."""
    agent = make(paid(RENT), "done", tools=[desk.pay()])
    agent.run("go", thread="t")
    with agent.saver.lease("t"), pytest.raises(OpenThreadError):
        make(tools=[desk.pay()]).undo("t", to="t@1")
    assert desk.did == ["pay rent"]


def test_on_a_fork(make: Make, desk: Desk) -> None:
    """What a fork inherited is not its own to take back; what it did itself is, and the source's stays."""
    agent = make(paid(RENT), paid(TAX), "done", tools=[desk.pay()])
    agent.run("go", thread="t")
    dry = agent.undo("t", to="t@0", dry_run=True)
    first = min(one.step for one in dry.effects)
    other = make(paid(RENT), paid(FOOD), "done", tools=[desk.pay()])
    run = other.replay(f"t@{first - 1}", thread="fork")
    assert (run.status, desk.did) == ("done", ["pay rent", "pay tax", "pay food"])
    assert states(agent.undo("fork", to="fork@0")) == [("food", "undone")]
    assert states(agent.undo("t", to="t@0")) == [("tax", "undone"), ("rent", "undone")]
    assert desk.did[3:] == ["back food", "back tax", "back rent"]


@pytest.mark.parametrize("effects", ["reuse", "ask", "run"])
def test_a_fork_of_a_thread_that_was_undone(make: Make, desk: Desk, effects: Any) -> None:
    """What was taken back is not there to be reused: a fork that does it again does it."""
    agent = make(paid(RENT), "done", tools=[desk.pay()])
    agent.run("go", thread="t")
    agent.undo("t", to="t@0")
    assert agent.replay("t@1", thread="fork", effects=effects).status == "done"
    assert desk.did == ["pay rent", "back rent", "pay rent"]
    assert states(agent.undo("fork", to="fork@0")) == [("rent", "undone")]


def test_with_an_official_saver(desk: Desk, tmp_path: Path) -> None:
    """The ledger stands elsewhere; the steps are those of the saver."""
    saver = open_saver(f"langgraph+sqlite:///{tmp_path}/official.db")
    model = scripted(paid(RENT), paid(TAX), "done")
    agent = Agent(model, tools=[desk.pay()], saver=saver, ledger=f"sqlite:///{tmp_path}/ledger.db", review=FREELY)
    agent.run("go", thread="t")
    steps = {one.args["what"]: one.step for one in agent.undo("t", to="t@0", dry_run=True).effects}
    assert states(agent.undo("t", to=f"t@{steps['tax']}")) == [("tax", "undone")]
    assert states(agent.undo("t", to="t@0")) == [("tax", "undone"), ("rent", "undone")]
    assert desk.did[2:] == ["back tax", "back rent"]


# --- What a compensation is given ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("size", [10, 5_000])
@pytest.mark.parametrize("kind", ["sync", "async", "tool"])
def test_what_a_compensation_is_given(make: Make, kind: str, size: int) -> None:
    """The arguments as the tool has them, with their defaults; the whole result; and a key of its own."""
    given: list[Any] = []

    def cancel(day: date, nights: int, result: str, idempotency_key: str) -> None:
        """Cancel a booking."""
        given.append((day, nights, result, idempotency_key))

    async def later(day: date, nights: int, result: str, idempotency_key: str) -> None:
        """Cancel a booking."""
        cancel(day, nights, result, idempotency_key)

    function: Any = {"sync": cancel, "async": later, "tool": tool(risk="read_only")(cancel)}[kind]

    @tool(risk="external_action", compensate=function)
    def book(day: date, nights: int = 2, note: str = "") -> str:
        """Book a room."""
        return "ä" * size

    agent = make(calls(("book", {"day": "2026-11-18"})), "done", tools=[book])
    agent.resume("t", approve=agent.run("go", thread="t").reviews)
    undo = agent.undo("t", to="t@0")
    if kind == "tool":  # its own risk says whether a person is asked
        assert (undo.status, undo.reviews) == ("done", ())
    else:
        assert undo.status == "waiting"
        undo = agent.undo("t", to="t@0", approve=undo.reviews)
    assert (undo.status, undo.effects[0].state) == ("done", "undone")
    (entry,) = [one for one in agent.effects("t") if "of" not in one.record]
    assert given == [(date(2026, 11, 18), 2, "ä" * size, f"{entry.key}:undo:1")]


def test_a_compensation_with_a_risk_of_its_own(make: Make, desk: Desk) -> None:
    """A harmless tool may have an undo that a person must see."""
    back = tool(risk="irreversible", name="refund")(desk.back)
    agent = make(paid(RENT), "done", tools=[desk.pay(compensate=back)])
    agent.run("go", thread="t")
    (review,) = agent.undo("t", to="t@0").reviews
    assert (review.tool, review.risk, review.reason) == ("refund", "irreversible", "its risk is irreversible")
    assert agent.undo("t", to="t@0", approve=review.id).status == "done"


def test_a_compensation_that_needs_what_there_will_not_be() -> None:
    """It is refused where it is written."""

    def back(who: str) -> None: ...

    with pytest.raises(SetupError, match="needs 'who'; it is given the call's arguments, 'result' and"):
        tool(risk="write_local", compensate=back)(lambda what: what)
