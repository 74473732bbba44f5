"""Attempts, budgets and deadlines: what is counted, that a restart counts on, and that nothing is waited for unrecorded."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.exceptions import ModelRateLimitError

from checkpointers import SqliteSaver
from graph_agent import Agent, Budget, Deadline, Retry, Run
from graph_agent.errors import ToolError
from graph_agent.policies import retryable
from graph_agent.testing import FrozenClock, ScriptedModel, Tries, calls, lookup
from tests.graph_agent import crash
from tests.graph_agent.conftest import Make, scripted

LOOK = lookup(lambda query: f"about {query}", "look")
LOST = ConnectionError("the line is dead")


class KilledError(BaseException):
    """The end of the process, as far as a test in the same process can have it."""


def dying(error: type[BaseException]) -> Callable[[float], Any]:
    """Make a `sleep` in which the process ends."""

    async def sleep(seconds: float) -> None:
        raise error(seconds)

    return sleep


def dies(agent: Agent, work: Callable[[], Any]) -> None:
    with pytest.raises(BaseException):  # noqa: B017, PT011  what LangGraph makes of it is not ours
        work()
    assert agent.state("t").status in ("crashed", "failed")


def tries(run: Run) -> list[tuple[str, int]]:
    return [(failure["node"], failure["attempt"]) for failure in run.failures]


# --- How a retry decides ---------------------------------------------------------------------------------------------


def test_delays_grow_up_to_a_limit() -> None:
    """Each delay is `factor` times the one before, up to `max_delay`, however many attempts there are."""
    retry = Retry(max_attempts=10**6, first_delay=1.0, factor=3.0, max_delay=50.0)
    delays = [retry.decide(LOST, attempt=attempt, chance=0.5).delay for attempt in (1, 2, 3, 4, 5, 6, 5_000)]
    assert delays == [1, 3, 9, 27, 50, 50, 50]


@pytest.mark.parametrize(("chance", "delay"), [(0.0, 3.0), (0.5, 4.0), (1.0, 5.0)])
def test_chance_spreads_delays(chance: float, delay: float) -> None:
    """Jitter takes away or adds as much as its share, by chance."""
    assert Retry(first_delay=4, jitter=0.25).decide(LOST, attempt=1, chance=chance).delay == delay


def test_attempts_end() -> None:
    """The last attempt is the last, and the reason says so."""
    retry = Retry(max_attempts=2)
    assert retry.decide(LOST, attempt=1, chance=0.5).yes
    assert retry.decide(LOST, attempt=2, chance=0.5) == (False, 0.0, "2 attempts were made")


@pytest.mark.parametrize(
    ("header", "delay"), [("7", 7.0), ("0.1", 0.5), ("600", 60.0), ("soon", 0.5), ("nan", 0.5), ("-3", 0.5)]
)
def test_a_servers_wish_counts(header: str, delay: float) -> None:
    """`Retry-After` lengthens a delay up to `max_delay`; nonsense in it is passed over."""
    error = ModelRateLimitError("slow down")
    error.response = type("Response", (), {"headers": {"retry-after": header}})()
    assert Retry().decide(error, attempt=1, chance=0.5).delay == delay


class StatusError(Exception):
    """An error of an HTTP client that is not LangChain's."""

    def __init__(self, status_code: int) -> None:
        super().__init__(str(status_code))
        self.status_code = status_code


@pytest.mark.parametrize(
    ("error", "worth"),
    [
        (ConnectionError(), True),
        (TimeoutError(), True),
        (StatusError(429), True),
        (StatusError(503), True),
        (StatusError(400), False),
        (StatusError(404), False),
        (ToolError("no"), False),
        (ToolError("later", retryable=True), True),
        (ValueError("x"), False),
        (type("APIConnectionError", (Exception,), {})(), True),
        (type("QuotaError", (Exception,), {"code": "insufficient_quota", "status_code": 429})(), False),
    ],
)
def test_what_is_worth_another_attempt(error: Exception, worth: bool) -> None:
    """Lost connections, timeouts and passing statuses are; what a repetition cannot change is not; each says why."""
    verdict = retryable(error)
    assert verdict.yes is worth
    assert type(error).__name__ in verdict.why


# --- Attempts that outlive the process -------------------------------------------------------------------------------


def test_an_attempt_is_on_record_before_the_wait(make: Make, clock: FrozenClock, tmp_path: Path) -> None:
    """When a wait begins, the database has the attempt, its error, and the moment of the next one."""
    seen = []

    async def sleep(seconds: float) -> None:
        with SqliteSaver.open(tmp_path / "agent.db") as other:
            stored = other.get({"configurable": {"thread_id": "t"}})["channel_values"]
        failure = stored["failures"][-1]
        seen.append((failure["attempt"], failure["error"]["message"], failure["retry_at"] - clock.now, seconds))
        await clock.sleep(seconds)

    model = scripted(act=[Tries(LOST, LOST, LOST, "done")])
    run = make(model=model, sleep=sleep, retry=Retry(first_delay=10)).run("go", thread="t")
    assert run.status == "done"
    assert seen == [(n, "the line is dead", delay, delay) for n, delay in ((1, 10), (2, 20), (3, 40))]


@pytest.mark.slow
@pytest.mark.parametrize("error", [asyncio.CancelledError, KilledError])
@pytest.mark.parametrize(("away", "left"), [(4, [6, 20]), (10, [20]), (3600, [20])])
def test_a_killed_wait_goes_on(
    make: Make, clock: FrozenClock, error: type[BaseException], away: float, left: list[float]
) -> None:
    """Another process waits only for what is left of the delay, and counts the attempts on."""
    retry = Retry(first_delay=10)
    lines = scripted(act=[Tries(LOST, LOST, "done")])
    first = make(model=lines, sleep=dying(error), retry=retry)
    dies(first, lambda: first.run("go", thread="t"))
    assert first.state("t").failures[0]["retry_at"] == clock.now + 10
    clock.now += away
    run = make(model=lines, retry=retry).resume("t")
    assert (run.status, clock.naps, tries(run)) == ("done", left, [("act", 1), ("act", 2)])


def test_every_wait_may_be_killed(make: Make, clock: FrozenClock) -> None:
    """Attempts are not won by dying: the last one is the last, however many processes made them."""
    retry = Retry(max_attempts=3, first_delay=10)
    lines = scripted(act=[LOST])
    agent = make(model=lines, sleep=dying(KilledError), retry=retry)
    dies(agent, lambda: agent.run("go", thread="t"))
    dies(agent, lambda: agent.resume("t"))
    clock.now += 10
    dies(agent, lambda: agent.resume("t"))
    clock.now += 20
    run = make(model=lines, retry=retry).resume("t")
    assert (run.status, clock.naps, tries(run)) == ("failed", [], [("act", 1), ("act", 2), ("act", 3)])
    assert "3 attempts were made" in run.reason
    assert len([node for node, _ in lines.asked if node == "act"]) == 3


DEATH = """
import os, sys
from graph_agent import Agent, Retry
from graph_agent.testing import ScriptedModel
async def sleep(seconds):
    os._exit(9)
model = ScriptedModel(plan=[["do it"]], act=[ConnectionError("the line is dead")])
Agent(model, saver=sys.argv[1], clock=lambda: 1000.0, sleep=sleep, chance=lambda: 0.5,
      retry=Retry(first_delay=10)).run("go", thread="t")
"""


@pytest.mark.slow
def test_a_process_that_ends_in_its_wait(make: Make, clock: FrozenClock, tmp_path: Path) -> None:
    """The same with a real process that ends there, without a word."""
    code = [sys.executable, "-W", "ignore", "-c", DEATH, f"sqlite:///{tmp_path}/agent.db"]
    done = subprocess.run(code, check=False, capture_output=True, text=True)
    assert done.returncode == 9, done.stderr
    clock.now = 1003.0
    agent = make(retry=Retry(first_delay=10))
    assert agent.state("t").status == "running"  # as far as its lease can tell
    crash.bury(agent.saver, "t")
    assert agent.state("t").status == "crashed"
    run = agent.resume("t")
    assert (run.status, clock.naps, tries(run)) == ("done", [7], [("act", 1)])


def test_attempts_are_counted_per_question(make: Make, clock: FrozenClock) -> None:
    """A question that was answered at last does not count against the next one."""
    lines = scripted()
    lines.script |= {
        "plan": [Tries(LOST, LOST, LOST, ["do it"])],
        "act": [Tries(LOST, LOST, LOST, calls(("look", {"query": "x"}))), Tries(LOST, LOST, LOST, "done")],
    }
    run = make(model=lines, tools=[LOOK]).run("go", thread="t")
    assert run.status == "done"
    assert tries(run) == [(node, n) for node in ("plan", "act", "act") for n in (1, 2, 3)]
    assert clock.naps == [0.5, 1, 2] * 3


# --- Budgets ---------------------------------------------------------------------------------------------------------


def busy(clock: FrozenClock, turns: int = 12) -> ScriptedModel:
    """Make a model that looks up one thing after another, and takes ten seconds for each question."""

    def turn(number: int) -> Callable[[Any], Any]:
        def line(_: Any) -> Any:
            clock.now += 10
            return calls(("look", {"query": f"thing {number}"}))

        return line

    return scripted(act=[*(turn(number) for number in range(turns)), "done"])


def situations(model: ScriptedModel) -> list[str]:
    """Give the situations that `act` was shown."""
    return [str(messages[-1].content) for node, messages in model.asked if node == "act"]


LIMITS = [
    (Budget(max_steps=10), Budget(max_steps=100), "steps: 10 of 10"),
    (Budget(max_wall_time=60), Budget(max_wall_time=600), "wall_time: 60 of 60"),
    (Budget(max_tool_calls=6), Budget(max_tool_calls=60), "tool_calls: 6 of 6"),
    (Budget(max_llm_tokens=2_400), Budget(max_llm_tokens=50_000), "llm_tokens: "),
]


@pytest.mark.slow
@pytest.mark.parametrize(("budget", "larger", "reason"), LIMITS)
def test_a_limit_stops_the_run(make: Make, clock: FrozenClock, budget: Budget, larger: Budget, reason: str) -> None:
    """A thread warns at four fifths of a limit and stops at it, before another question; a larger one lets it go on."""
    model = busy(clock)
    run = make(model=model, tools=[LOOK], budget=budget).run("go", thread="t")
    asked = len(model.asked)
    assert (run.status, run.failures) == ("stopped", [])
    assert run.reason.startswith(reason)
    warned = ["budget: " in situation for situation in situations(model)]
    assert warned[0] is False
    assert warned[-1] is True
    assert "budget_pressure" in [flag["id"] for flag in run.state["risk_flags"]]
    # Another process, with no more to spend: it stays as it is, and nobody is asked.
    again = make(model=model, tools=[LOOK], budget=larger).resume("t")
    assert (again.status, len(model.asked)) == ("stopped", asked)
    assert again.reason.startswith(reason)
    done = make(model=model, tools=[LOOK]).resume("t", budget=larger)
    assert (done.status, done.answer, len(done.state["calls"])) == ("done", "done", 12)


def test_a_warning_comes_at_four_fifths(make: Make, clock: FrozenClock) -> None:
    """At three quarters nothing is said; at four fifths it is, with the share."""
    model = busy(clock)
    make(model=model, tools=[LOOK], budget=Budget(max_tool_calls=5)).run("go", thread="t")
    assert ["budget" in situation for situation in situations(model)] == [False] * 4 + [True]
    assert "## Risk flags\n- budget: tool_calls 80%" in situations(model)[-1]


STRIDES = [("max_steps", 4), ("max_wall_time", 20), ("max_tool_calls", 2), ("max_llm_tokens", 500)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "stride"), STRIDES)
def test_limits_count_over_restarts(make: Make, clock: FrozenClock, name: str, stride: int) -> None:
    """A thread that is resumed by one process after the other uses what one would: its counters are its own."""
    counter, whole, model = name.removeprefix("max_"), busy(clock, turns=6), busy(clock, turns=6)
    used = make(model=whole, tools=[LOOK]).run("go", thread="one").usage
    run = make(model=model, tools=[LOOK]).run("go", thread="t", budget=Budget(**{name: stride}))
    stops = 0
    while run.status == "stopped":
        stops += 1
        assert run.usage[counter] <= stops * stride
        run = make(model=model, tools=[LOOK]).resume("t", budget=Budget(**{name: (stops + 1) * stride}))
    assert run.status == "done", run.reason
    assert stops >= 2
    assert [node for node, _ in model.asked] == [node for node, _ in whole.asked]
    assert used[counter] <= run.usage[counter] <= used[counter] * 1.25


def test_calls_beyond_the_limit_are_not_made(make: Make) -> None:
    """Of several calls wanted at once, none is made if not all fit; the decision is on record."""
    made = []
    tool = lookup(lambda query: made.append(query) or "found", "look")
    three = calls(*(("look", {"query": str(n)}) for n in range(3)))
    run = make(three, three, "done", tools=[tool], budget=Budget(max_tool_calls=4)).run("go", thread="t")
    assert (run.status, run.reason, sorted(made)) == ("stopped", "tool_calls: 6 of 4", ["0", "1", "2"])
    assert [decision["node"] for decision in run.state["decisions"]] == ["plan", "act", "act"]
    run = make(three, three, "done", tools=[tool]).resume("t", budget=Budget(max_tool_calls=10))
    assert run.status == "done"


def test_a_question_too_dear_is_not_asked(make: Make) -> None:
    """A question is estimated before it is asked; one that would pass the limit stops the run, and no attempt is lost."""
    model = scripted("done")
    run = make(model=model, budget=Budget(max_llm_tokens=50)).run("go", thread="t")
    assert (run.status, model.asked, run.failures) == ("stopped", [], [])
    assert run.reason.startswith("llm_tokens: ")
    assert run.usage.get("llm_calls", 0) == 0
    assert make(model=model).resume("t", budget=Budget(max_llm_tokens=5_000)).status == "done"


def test_a_budget_may_belong_to_the_thread(make: Make) -> None:
    """`run(budget=…)` replaces the agent's for one thread, and another agent keeps to it."""
    run = make(calls(("look", {"query": "x"})), tools=[LOOK]).run("go", thread="t", budget=Budget(max_tool_calls=2))
    assert run.status == "stopped"
    assert make(tools=[LOOK], budget=Budget(max_tool_calls=99)).resume("t").status == "stopped"


def test_waiting_is_free(make: Make, clock: FrozenClock) -> None:
    """The hours a person takes to answer do not count as the agent's wall time."""
    agent = make(calls(("ask_user", {"question": "which?"})), "done", budget=Budget(max_wall_time=60))
    run = agent.run("go", thread="t")
    clock.now += 86_400
    run = agent.resume("t", respond={run.reviews[0].id: "that one"})
    assert (run.status, run.usage["wall_time"]) == ("done", 0)


@pytest.mark.parametrize(("used", "warned"), [(0, False), (79, False), (80, True), (100, True)])
def test_pressure_begins_at_four_fifths(used: int, warned: bool) -> None:
    """Four fifths of a limit are pressure, anything less is not; the limits that are near are named."""
    verdict = Budget(max_tool_calls=100, max_llm_tokens=10**6).pressure({"tool_calls": {"act": used}})
    assert verdict.yes is warned
    assert not warned or verdict.why == f"tool_calls {used}%"


def test_no_limit_is_no_limit() -> None:
    """Limits that are None are not looked at; one of zero is reached before anything is used."""
    free = Budget(max_steps=None)
    assert free.spent({"steps": {"act": 10**9}}) == {}
    assert not free.exhausted({"steps": {"act": 10**9}}, llm_tokens=10**9).yes
    assert Budget(max_llm_tokens=0).exhausted({}).yes


# --- Deadlines -------------------------------------------------------------------------------------------------------


def test_the_deadline_of_a_run(make: Make, clock: FrozenClock) -> None:
    """When the run's time is up nobody is asked any more, and the reason says so."""
    model = busy(clock)
    run = make(model=model, tools=[LOOK], deadline=Deadline(run=45)).run("go", thread="t")
    assert (run.status, run.reason) == ("stopped", "the deadline of the run has passed")
    assert len(situations(model)) == 5


def test_the_deadline_of_a_node(make: Make, clock: FrozenClock) -> None:
    """A model that does not answer in time is given up, on record, and asked again as after any timeout."""
    gate = threading.Event()
    model = scripted(Tries(lambda _: str(gate.wait(30)), "done"))
    try:
        run = make(model=model, deadline=Deadline(node=0.3)).run("go", thread="t")
    finally:
        gate.set()
    assert (run.status, run.answer, tries(run), clock.naps) == ("done", "done", [("act", 1)], [0.5])
    assert run.failures[0]["error"]["type"] == "TimeoutError"


def test_a_deadline_does_not_begin_again(make: Make, clock: FrozenClock) -> None:
    """A run's deadline counts from its start, over restarts; a later one lets it go on."""
    model = busy(clock)
    run = make(model=model, tools=[LOOK], deadline=Deadline(run=45)).run("go", thread="t")
    asked = len(model.asked)
    again = make(model=model, tools=[LOOK], deadline=Deadline(run=45)).resume("t")
    assert (again.status, again.reason, len(model.asked)) == ("stopped", run.reason, asked)
    assert make(model=model, tools=[LOOK], deadline=Deadline(run=900)).resume("t").status == "done"


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"deadline": Deadline(run=900)}),
        pytest.param({"budget": Budget(max_steps=50)}),
        {},
    ],
)
def test_a_crash_in_a_call_goes_on_there(make: Make, clock: FrozenClock, options: dict[str, Any]) -> None:
    """A thread whose process died in a call goes on with that call, also with a deadline or a new budget."""
    deaths: list[BaseException] = [KilledError()]

    def look(query: str) -> str:
        if deaths:
            raise deaths.pop()
        return f"about {query}"

    made = {name: value for name, value in options.items() if name == "deadline"}
    more = {name: value for name, value in options.items() if name == "budget"}
    model, look_up = busy(clock, turns=2), lookup(look, "look")
    agent = make(model=model, tools=[look_up], **made)
    dies(agent, lambda: agent.run("go", thread="t"))
    run = make(model=model, tools=[look_up], **made).resume("t", **more)
    assert (run.status, run.answer) == ("done", "done")
    assert [node for node, _ in model.asked] == ["plan", "act", "act", "act"]
    assert [call["args"] for call in run.state["calls"]] == [{"query": "thing 0"}, {"query": "thing 1"}]


def test_a_budget_comes_with_an_answer(make: Make) -> None:
    """A budget that is given with the answer to a question replaces the thread's, as without a question."""
    agent = make(calls(("ask_user", {"question": "which?"})), "done", budget=Budget(max_tool_calls=1))
    run = agent.run("go", thread="t")
    run = agent.resume("t", respond={run.reviews[0].id: "that one"}, budget=Budget(max_tool_calls=9))
    assert (run.status, run.state["budget"]["max_tool_calls"]) == ("done", 9)


def test_a_larger_budget_ends_the_warning(make: Make, clock: FrozenClock) -> None:
    """Once there is enough again, `act` is not told any more that there is not."""
    model = busy(clock, turns=8)
    make(model=model, tools=[LOOK], budget=Budget(max_tool_calls=5)).run("go", thread="t")
    asked = len(situations(model))
    run = make(model=model, tools=[LOOK]).resume("t", budget=Budget(max_tool_calls=500))
    assert run.status == "done"
    assert not any("budget: " in situation for situation in situations(model)[asked + 1 :])


def test_failed_attempts_count(make: Make, clock: FrozenClock) -> None:
    """The time and tokens of attempts that failed are used up all the same."""

    def slowly(_: Any) -> Any:
        clock.now += 10
        return ConnectionError("lost")

    run = make(Tries(slowly, slowly, "done")).run("go", thread="t")
    assert (run.status, run.usage["wall_time"]) == ("done", 20)
    unreadable = make("", retry=Retry(max_attempts=1)).run("go", thread="u")
    assert (unreadable.status, len(unreadable.failures)) == ("failed", 1)
    assert unreadable.usage["llm_tokens"] > 3 * 100


def test_the_time_of_tools_counts(make: Make, clock: FrozenClock) -> None:
    """The wall time is that in which the agent works: its tools work, too."""

    def look(query: str) -> str:
        clock.now += 30
        return "found"

    both = calls(("look", {"query": "a"}), ("look", {"query": "b"}))
    run = make(both, "done", tools=[lookup(look, "look")]).run("go", thread="t")
    assert run.status == "done"
    assert run.usage["wall_time"] >= 30
