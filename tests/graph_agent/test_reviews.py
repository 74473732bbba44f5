"""Reviews: a person answers one question about one call, once; an answer that fits none changes nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain.agents.middleware import human_in_the_loop as langchain_form
from langgraph.types import Command, interrupt
from pydantic import TypeAdapter, ValidationError

from graph_agent import Node, Patch, ReviewPolicy, tool
from graph_agent.errors import (
    ExpiredReviewError,
    InvalidAnswerError,
    OpenThreadError,
    ReviewError,
    SettledReviewError,
    UnknownReviewError,
    WaitingThreadError,
)
from graph_agent.nodes.review import Answer
from graph_agent.testing import Deliveries, FrozenClock, calls, lookup
from tests.graph_agent.conftest import Make, call_of, raw
from tests.graph_agent.test_state import GoalView

ONE = calls(("deliver", {"to": "ada", "body": "hi"}))
TWO = calls(("deliver", {"to": "ada"}), ("deliver", {"to": "bob"}))


@pytest.fixture
def deliveries() -> Deliveries:
    return Deliveries()


def to(deliveries: Deliveries) -> list[str]:
    return [args["to"] for _, args in deliveries.done]


def told(agent: Any, number: int = 1) -> list[str]:
    """Give what the model read as results at a question of `act`."""
    sent = [messages for node, messages in agent.kit.model.chat.asked if node == "act"][number]
    return [str(message.content) for message in sent if message.type == "tool"]


def told_raw(agent: Any, answers: dict[str, Any]) -> Any:
    """Answer as any LangGraph client would, on thread `t`."""
    return asyncio.run(agent.graph.ainvoke(Command(resume=answers), raw("t"), version="v2"))


# What is asked.


def test_review_says_what_it_is_about(make: Make, deliveries: Deliveries, clock: FrozenClock) -> None:
    """A review names the call, its exact arguments, the risk, the reason, the plan step and the thread."""
    run = make(ONE, "done", tools=[deliveries.tool()]).run("go", thread="t")
    assert (run.status, run.phase, len(deliveries)) == ("waiting", "waiting", 0)
    (review,) = run.reviews
    assert (review.kind, review.tool, review.args) == ("tool_approval", "deliver", {"to": "ada", "body": "hi"})
    assert (review.risk, review.reason) == ("external_action", "its risk is external_action")
    assert (review.thread, review.step, review.expires_at) == ("t", run.plan[0]["id"], None)
    assert review.description == 'deliver({"body":"hi","to":"ada"})'
    assert review.id in str(review)
    call = call_of(run, "deliver")
    assert (call["status"], call["review"]["id"], call["hash"]) == ("waiting", review.id, review.hash)


def test_payload_is_langchains_per_call_form(make: Make, deliveries: Deliveries) -> None:
    """Interfaces made for LangChain's per-call reviews can show it, and their four answers are taken."""
    agent = make(ONE, "done", tools=[deliveries.tool()])
    agent.run("go", thread="t")
    (asked,) = agent.graph.get_state(raw("t")).interrupts
    assert {"type", "tool_call_id", "name", "args", "description"} <= set(asked.value)
    assert (asked.value["type"], asked.value["name"]) == ("tool_approval", "deliver")
    assert asked.response_schema["discriminator"]["propertyName"] == "type"
    theirs: Any = TypeAdapter(langchain_form.Decision)
    for decision in (
        {"type": "approve"},
        {"type": "edit", "edited_action": {"name": "deliver", "args": {"to": "eve"}}},
        {"type": "reject", "message": "no"},
        {"type": "respond", "message": "done by hand"},
    ):
        theirs.validate_python(decision)
        assert TypeAdapter(Answer).validate_python(decision) == decision


@pytest.mark.parametrize(
    ("policy", "waits"),
    [
        (ReviewPolicy(), True),
        (ReviewPolicy(never_for=["deliver"]), False),
        (ReviewPolicy(required_for=["irreversible"]), False),
        (ReviewPolicy(required_for=[], tools=["deliver"]), True),
    ],
)
def test_policy(make: Make, deliveries: Deliveries, policy: ReviewPolicy, waits: bool) -> None:
    """The policy says which calls are reviewed: by risk, always by name, or never."""
    run = make(ONE, "done", tools=[deliveries.tool()], review=policy).run("go")
    assert (run.status, len(deliveries)) == (("waiting", 0) if waits else ("done", 1))


# The four answers.


def test_approve(make: Make, deliveries: Deliveries, clock: FrozenClock) -> None:
    """The call is made as it was shown, in a new agent on the same file; who and when are recorded."""
    review = make(ONE, "done", tools=[deliveries.tool()]).run("go", thread="t").reviews[0]
    clock.now += 3600
    run = make(ONE, "done", tools=[deliveries.tool()]).resume("t", approve=review.id, by="grace")
    assert (run.status, run.answer) == ("done", "done")
    assert deliveries.done == [("deliver", {"to": "ada", "body": "hi"})]
    settled = call_of(run, "deliver")["review"]
    assert (settled["answer"], settled["by"], settled["at"]) == ("approve", "grace", "2027-01-15T09:00:00+00:00")


def test_edit(make: Make, deliveries: Deliveries) -> None:
    """The call is made with the new arguments, typed by the tool; the old ones are recorded."""

    @tool(risk="external_action")
    def send(to: str, times: int = 1) -> str:
        deliveries.done.append(("send", {"to": to, "times": times}))
        return "sent"

    agent = make(calls(("send", {"to": "ada"})), "done", tools=[send])
    review = agent.run("go", thread="t").reviews[0]
    run = agent.resume("t", edit={review.id: {"to": "eve", "times": "3"}})
    assert agent.resume("t", edit={review.id: {"to": "eve", "times": "3"}}).status == "done"
    assert (run.status, deliveries.done) == ("done", [("send", {"to": "eve", "times": 3})])
    call = call_of(run, "send")
    assert (call["args"], call["review"]["before"]) == ({"to": "eve", "times": 3}, {"to": "ada"})
    assert call["hash"] != review.hash


def test_reject(make: Make, deliveries: Deliveries) -> None:
    """The call is not made; the model is told, with the reason if there is one."""
    for answer, words in (
        ({"reject": None}, "The user rejected this call. It was not run."),
        ({"reject": "too early"}, "too early"),
    ):
        agent = make(ONE, "another way", tools=[deliveries.tool()])
        review = agent.run("go", thread=f"t{words}").reviews[0]
        given = review.id if answer["reject"] is None else {review.id: answer["reject"]}
        run = agent.resume(f"t{words}", reject=given)
        assert (run.status, run.answer, len(deliveries)) == ("done", "another way", 0)
        assert call_of(run, "deliver")["status"] == "rejected"
        assert told(agent)[0].startswith(words)


def test_respond(make: Make, deliveries: Deliveries) -> None:
    """A person answers in place of the tool; what they say is the user's word."""
    agent = make(ONE, "done", tools=[deliveries.tool()])
    review = agent.run("go", thread="t").reviews[0]
    run = agent.resume("t", respond={review.id: "told her myself\x00"})
    assert (run.status, len(deliveries)) == ("done", 0)
    assert told(agent) == ["told her myself␀"]
    assert [fact["trust"] for fact in run.state["facts"]] == ["user"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"edit": {"nope": 1}}, "deliver has no argument 'nope'; it takes to, body"),
        ({"edit": {"body": "x"}}, "to: Field required"),
        ({"edit": {"to": ["ada"]}}, "to: Input should be a valid string"),
        ({"edit": {"to": "\ud83d"}}, "lone surrogate"),
        ({"respond": 7}, "valid string"),
    ],
)
def test_invalid_answer(make: Make, deliveries: Deliveries, answer: dict[str, Any], why: str) -> None:
    """It is refused with the reason, nothing is saved, and the review can be answered again."""
    agent = make(ONE, "done", tools=[deliveries.tool()])
    review = agent.run("go", thread="t").reviews[0]
    ((verb, value),) = answer.items()
    before = len(agent.history("t"))
    with pytest.raises(InvalidAnswerError, match=why) as caught:
        agent.resume("t", **{verb: {review.id: value}})
    assert review.id in str(caught.value)
    assert (agent.state("t").status, len(agent.history("t"))) == ("waiting", before)
    assert agent.state("t").reviews == (review,)
    assert agent.resume("t", approve=review.id).status == "done"
    assert to(deliveries) == ["ada"]


def test_one_bad_answer_of_two_saves_neither(make: Make, deliveries: Deliveries) -> None:
    """Answers given together are taken together or not at all."""
    agent = make(TWO, "done", tools=[deliveries.tool()])
    ada, bob = agent.run("go", thread="t").reviews
    with pytest.raises(InvalidAnswerError):
        agent.resume("t", approve=ada.id, edit={bob.id: {"nope": 1}})
    assert len(agent.state("t").reviews) == 2
    assert call_of(agent.state("t"), "deliver")["status"] == "waiting"


@pytest.mark.slow
@pytest.mark.parametrize(
    "bad",
    [
        {"type": "nonsense"}, "yes", {"type": "edit", "edited_action": {"name": "deliver", "args": {"nope": 1}}},
        {"type": "edit", "edited_action": {"name": "other", "args": {"to": "ada"}}}, {"type": "approve", "by": "\ud83d"},
        {"type": "respond", "message": "\ud83d"},
    ],
)  # fmt: skip
def test_invalid_raw_answer(make: Make, deliveries: Deliveries, bad: Any) -> None:
    """An answer through `agent.graph` is checked as strictly: it raises, saves nothing, and can be given again."""
    agent = make(ONE, "done", tools=[deliveries.tool()])
    review = agent.run("go", thread="t").reviews[0]
    with pytest.raises(ValidationError):
        told_raw(agent, {review.interrupt: bad})
    assert agent.state("t").status == "waiting"
    run = agent.resume("t", approve=agent.state("t").reviews[0].id)
    assert (run.status, to(deliveries)) == ("done", ["ada"])


def test_raw_answers(make: Make, deliveries: Deliveries) -> None:
    """Plain LangGraph commands, by the interrupt's id, settle reviews, one by one and in another order."""
    agent = make(TWO, "done", tools=[deliveries.tool()])
    ada, bob = agent.run("go", thread="t").reviews
    first = told_raw(agent, {bob.interrupt: {"type": "approve", "by": "studio"}})
    assert [one.id for one in first.interrupts] == [ada.interrupt]
    last = told_raw(agent, {ada.interrupt: {"type": "reject"}})
    assert (last.value["answer"], to(deliveries)) == ("done", ["bob"])
    assert call_of(agent.state("t"), "deliver", 1)["review"]["by"] == "studio"


def test_tool_that_is_gone(make: Make, deliveries: Deliveries) -> None:
    """A review of a tool that the agent no longer has can be rejected, and cannot be edited."""
    review = make(ONE, "done", tools=[deliveries.tool()]).run("go", thread="t").reviews[0]
    agent = make(ONE, "done", tools=[])
    with pytest.raises(InvalidAnswerError, match="no tool 'deliver'"):
        agent.resume("t", edit={review.id: {"to": "eve"}})
    assert agent.resume("t", reject=review.id).status == "done"


# Several reviews.


def test_two_reviews_one_by_one(make: Make, deliveries: Deliveries) -> None:
    """One may be answered before the other, by another agent; nothing runs before its own answer, and each runs once."""
    searched = []
    search = lookup(lambda query: searched.append(query) or "found")
    tools = [deliveries.tool(), search]
    line = calls(("deliver", {"to": "ada"}), ("search", {"query": "x"}), ("deliver", {"to": "bob"}))
    ada, bob = make(line, "done", tools=tools).run("go", thread="t").reviews
    assert searched == ["x"]
    run = make(line, "done", tools=tools).resume("t", approve=bob.id)
    assert (run.status, [review.id for review in run.reviews]) == ("waiting", [ada.id])
    run = make(line, "done", tools=tools).resume("t", reject=ada.id)
    assert (run.status, to(deliveries), searched) == ("done", ["bob"], ["x"])
    assert [call["status"] for call in run.state["calls"]] == ["rejected", "done", "done"]


def test_two_reviews_at_once(make: Make, deliveries: Deliveries) -> None:
    """All may be answered in one call, each in its own way."""
    agent = make(TWO, "done", tools=[deliveries.tool()])
    ada, bob = agent.run("go", thread="t").reviews
    run = agent.resume("t", approve=[ada.id], edit={bob.id: {"to": "eve"}})
    assert (run.status, sorted(to(deliveries))) == ("done", ["ada", "eve"])


def test_sibling_without_review_runs_once(make: Make, deliveries: Deliveries) -> None:
    """A call that needs no review runs at once, and is not run again at any partial answer."""
    note = deliveries.tool("note", risk="write_local")
    line = calls(("note", {"to": "log"}), ("deliver", {"to": "ada"}), ("deliver", {"to": "bob"}))
    agent = make(line, "done", tools=[deliveries.tool(), note])
    run = agent.run("go", thread="t")
    assert to(deliveries) == ["log"]
    for review in run.reviews:
        run = make(line, "done", tools=[deliveries.tool(), note]).resume("t", approve=review.id)
    assert (run.status, sorted(to(deliveries))) == ("done", ["ada", "bob", "log"])


def test_resume_without_an_answer_waits_on(make: Make, deliveries: Deliveries) -> None:
    """Resuming a waiting thread without an answer answers nothing."""
    agent = make(ONE, "done", tools=[deliveries.tool()])
    before = agent.run("go", thread="t")
    run = agent.resume("t")
    assert (run.status, run.reviews, len(deliveries)) == ("waiting", before.reviews, 0)


# Answers given twice, or to nothing.


def test_same_answer_twice_is_one(make: Make, deliveries: Deliveries) -> None:
    """The same words again, while the other review is open and after the end, change nothing and are no error."""
    agent = make(TWO, "done", tools=[deliveries.tool()])
    ada, bob = agent.run("go", thread="t").reviews
    agent.resume("t", approve=ada.id)
    again = agent.resume("t", approve=ada.id)
    assert [review.id for review in again.reviews] == [bob.id]
    agent.resume("t", edit={bob.id: {"to": "eve"}})
    assert agent.resume("t", edit={bob.id: {"to": "eve"}}).status == "done"
    assert agent.resume("t", approve=ada.id).status == "done"
    assert sorted(to(deliveries)) == ["ada", "eve"]


def test_another_answer_is_refused(make: Make, deliveries: Deliveries, clock: FrozenClock) -> None:
    """A review that was settled otherwise says by whom, when and how; nothing is changed."""
    agent = make(TWO, "done", tools=[deliveries.tool()])
    ada, bob = agent.run("go", thread="t").reviews
    agent.resume("t", approve=ada.id, by="grace")
    for _ in range(2):
        with pytest.raises(SettledReviewError, match=r"approve by grace at 2027-01-15T08:00:00\+00:00") as caught:
            agent.resume("t", reject=ada.id, by="eve")
        assert caught.value.facts == {
            "review": ada.id,
            "by": "grace",
            "at": "2027-01-15T08:00:00+00:00",
            "answer": "approve",
        }
        agent.resume("t", edit={bob.id: {"to": "carl"}})
    for other in ({"to": "dora"}, {"to": "carl", "body": "x"}):
        with pytest.raises(SettledReviewError, match="edit by user"):
            agent.resume("t", edit={bob.id: other})
    assert sorted(to(deliveries)) == ["ada", "carl"]


@pytest.mark.parametrize("verb", ["reject", "respond"])
def test_same_verb_with_other_words_is_another_answer(make: Make, deliveries: Deliveries, verb: str) -> None:
    """What was said counts, not only which kind of answer it was."""
    agent = make(ONE, "done", tools=[deliveries.tool()])
    review = agent.run("go", thread="t").reviews[0]
    agent.resume("t", **{verb: {review.id: "one thing"}})
    assert agent.resume("t", **{verb: {review.id: "one thing"}}).status == "done"
    with pytest.raises(SettledReviewError):
        agent.resume("t", **{verb: {review.id: "another"}})


def test_reject_without_and_then_with_a_reason(make: Make, deliveries: Deliveries) -> None:
    """A bare rejection and one with a reason are two answers, whichever came first."""
    agent = make(ONE, "done", tools=[deliveries.tool()])
    review = agent.run("go", thread="t").reviews[0]
    agent.resume("t", reject={review.id: "because"})
    with pytest.raises(SettledReviewError):
        agent.resume("t", reject=review.id)


def test_unknown_review(make: Make, deliveries: Deliveries) -> None:
    """An id that no review has is refused, with the open ones."""
    agent = make(TWO, "done", tools=[deliveries.tool()])
    ada, bob = agent.run("go", thread="t").reviews
    with pytest.raises(UnknownReviewError, match="'r-nope'") as caught:
        agent.resume("t", approve="r-nope")
    assert ada.id in str(caught.value)
    assert bob.description in str(caught.value)
    agent.resume("t", reject=[ada.id, bob.id])
    with pytest.raises(UnknownReviewError, match="open are: none"):
        agent.resume("t", approve="r-nope")


def test_second_submit_never_reaches_the_next_question(make: Make, deliveries: Deliveries) -> None:
    """The answer to question 1 sent twice is no answer to question 2, through the doors and through the graph."""
    agent = make(ONE, calls(("deliver", {"to": "bob"})), "done", tools=[deliveries.tool()])
    first = agent.run("go", thread="t").reviews[0]
    answer = {first.interrupt: {"type": "approve"}}
    told_raw(agent, answer)
    second = agent.state("t").reviews[0]
    assert second.args == {"to": "bob"}
    assert agent.resume("t", approve=first.id).reviews == (second,)
    told_raw(agent, answer)
    waiting = agent.state("t")
    assert (waiting.status, [one.id for one in waiting.reviews], to(deliveries)) == ("waiting", [second.id], ["ada"])
    assert agent.resume("t", approve=second.id).status == "done"
    assert to(deliveries) == ["ada", "bob"]


def test_same_call_twice_is_two_reviews(make: Make, deliveries: Deliveries) -> None:
    """The same call with the same id in a later turn has a review of its own: an old approval does not open it."""
    agent = make(ONE, ONE, "done", tools=[deliveries.tool()])
    first = agent.run("go", thread="t").reviews[0]
    run = agent.resume("t", approve=first.id)
    assert run.status == "waiting"
    assert run.reviews[0].id != first.id
    assert agent.resume("t", approve=first.id).status == "waiting"
    assert to(deliveries) == ["ada"]


def test_answer_to_a_thread_that_waits_for_nobody(make: Make, deliveries: Deliveries) -> None:
    """Answers to threads without reviews are refused as unknown."""
    agent = make("done")
    agent.run("go", thread="t")
    with pytest.raises(ReviewError):
        agent.resume("t", approve="r-1")


# Reviews that nobody answers.


def test_expired_review(make: Make, deliveries: Deliveries, clock: FrozenClock) -> None:
    """Too late an answer is refused; resumed without one, the thread goes on, and the model knows that nobody answered."""
    agent = make(TWO, "done without", tools=[deliveries.tool()], review=ReviewPolicy(expires_after=60))
    ada, bob = agent.run("go", thread="t").reviews
    assert ada.expires_at == clock.now + 60
    clock.now += 59
    agent.resume("t", approve=bob.id)
    clock.now += 1
    with pytest.raises(ExpiredReviewError, match=ada.id):
        agent.resume("t", approve=ada.id)
    assert agent.state("t").status == "waiting"
    run = agent.resume("t")
    assert (run.status, run.answer, to(deliveries)) == ("done", "done without", ["bob"])
    settled = call_of(run, "deliver")
    assert (settled["status"], settled["review"]["by"]) == ("expired", "(deadline)")
    assert any("Nobody answered in time" in text for text in told(agent))
    with pytest.raises(SettledReviewError, match="expire by"):
        agent.resume("t", approve=ada.id)


def test_expired_and_open_reviews(make: Make, deliveries: Deliveries, clock: FrozenClock) -> None:
    """Answering one that is open settles one that is late as late."""
    agent = make(TWO, "done", tools=[deliveries.tool()], review=ReviewPolicy(expires_after=60))
    ada, _ = agent.run("go", thread="t").reviews
    clock.now += 10
    agent.resume("t", approve=ada.id)
    clock.now += 60
    assert agent.resume("t").status == "done"
    assert to(deliveries) == ["ada"]


# New input while somebody is asked.


def test_new_input_is_refused_while_a_review_is_open(make: Make, deliveries: Deliveries) -> None:
    """It would pass over the question; the error names the open ones, and nothing is changed."""
    agent = make(ONE, "done", tools=[deliveries.tool()])
    review = agent.run("go", thread="t").reviews[0]
    with pytest.raises(WaitingThreadError, match=review.id):
        agent.run("something else", thread="t")
    run = agent.state("t")
    assert (run.status, run.state["goal"], run.reviews) == ("waiting", "go", (review,))


def test_supersede(make: Make, deliveries: Deliveries, clock: FrozenClock) -> None:
    """New input may overtake the question, if it says so: the call is never run, finished siblings are not run again."""
    note = deliveries.tool("note", risk="write_local")
    line = calls(("note", {"to": "log"}), ("deliver", {"to": "ada"}))
    agent = make(line, "the new answer", tools=[deliveries.tool(), note])
    review = agent.run("go", thread="t").reviews[0]
    clock.now += 5
    run = make(line, "the new answer", tools=[deliveries.tool(), note]).run(
        "another goal", thread="t", supersede=True, by="grace"
    )
    assert (run.status, run.answer, run.state["goal"]) == ("done", "the new answer", "another goal")
    assert to(deliveries) == ["log"]
    call = call_of(run, "deliver")
    assert call["status"] == "superseded"
    assert (call["review"]["answer"], call["review"]["by"], call["review"]["at"]) == (
        "supersede", "grace", "2027-01-15T08:00:05+00:00",
    )  # fmt: skip
    with pytest.raises(SettledReviewError, match="supersede by grace"):
        agent.resume("t", approve=review.id)
    assert to(deliveries) == ["log"]
    assert call_of(run, "note")["status"] == "done"


def test_supersede_after_a_partial_answer(make: Make, deliveries: Deliveries) -> None:
    """What was approved but not begun is given up too: the new input comes instead of it."""
    agent = make(TWO, "the new answer", tools=[deliveries.tool()])
    ada, _ = agent.run("go", thread="t").reviews
    agent.resume("t", approve=ada.id, by="ada")
    run = agent.run("another goal", thread="t", supersede=True, by="grace")
    assert (run.status, run.answer) == ("done", "the new answer")
    assert to(deliveries) == []
    assert {call["status"] for call in run.state["calls"]} == {"superseded"}


def test_supersede_an_expired_review(make: Make, deliveries: Deliveries, clock: FrozenClock) -> None:
    """New input may overtake a late review as well."""
    agent = make(ONE, "new", tools=[deliveries.tool()], review=ReviewPolicy(expires_after=60))
    agent.run("go", thread="t")
    clock.now += 100
    run = agent.run("another", thread="t", supersede=True)
    assert (run.answer, to(deliveries)) == ("new", [])


# Questions to the user.


def test_question_and_answer(make: Make) -> None:
    """A question is a review that takes words; question and answer are part of the conversation and the user's fact."""
    agent = make(calls(("ask_user", {"question": "Which city?"})), "Paris it is")
    run = agent.run("go", thread="t")
    (review,) = run.reviews
    assert (run.status, review.kind, review.description) == ("waiting", "question", "Which city?")
    assert [question["status"] for question in run.state["questions"]] == ["open"]
    with pytest.raises(InvalidAnswerError, match=r"respond=\{id: text\}"):
        agent.resume("t", approve=review.id)
    run = agent.resume("t", respond={review.id: "Paris"}, by="grace")
    assert run.answer == "Paris it is"
    (question,) = run.state["questions"]
    assert (question["status"], question["answer"], question["by"]) == ("answered", "Paris", "grace")
    assert ("user", "Paris") in [(message["role"], message["content"]) for message in run.state["messages"]]
    assert ("Which city? Paris", "user") in [(fact["text"], fact["trust"]) for fact in run.state["facts"]]
    assert "Paris" in told(agent)


def test_question_may_be_rejected(make: Make) -> None:
    """Somebody who does not want to say is not asked for ever."""
    agent = make(calls(("ask_user", {"question": "Which city?"})), "no matter")
    review = agent.run("go", thread="t").reviews[0]
    run = agent.resume("t", reject={review.id: "you choose"})
    assert (run.answer, run.state["questions"][0]["status"]) == ("no matter", "superseded")
    assert "you choose" in told(agent)


def test_question_without_words(make: Make) -> None:
    """A question that asks nothing is the model's mistake, and it is told."""
    run = make(calls(("ask_user", {"question": " "}), ("ask_user", {})), "done").run("go")
    assert {call["status"] for call in run.state["calls"]} == {"failed"}


# Changing one's mind.


def test_changing_an_answer_is_a_fork_that_asks_again(make: Make, deliveries: Deliveries) -> None:
    """From the step of the question, a fork asks anew, takes another answer, and leaves the old thread as it was."""
    agent = make(ONE, "done", tools=[deliveries.tool()])
    review = agent.run("go", thread="t").reviews[0]
    agent.resume("t", approve=review.id)
    asking = next(step.number for step in agent.history("t") if step.values.get("phase") == "waiting")
    fork = agent.fork(f"t@{asking}", thread="fork")
    assert fork.status != "done"
    fork = agent.resume("fork")
    assert (fork.status, fork.reviews[0].args) == ("waiting", review.args)
    run = agent.resume("fork", reject=fork.reviews[0].id)
    assert (run.status, len(deliveries)) == ("done", 1)
    assert call_of(run, "deliver")["status"] == "rejected"
    assert call_of(agent.state("t"), "deliver")["status"] == "done"


# Interrupts of one's own nodes.


def test_interrupt_of_ones_own_node(make: Make) -> None:
    """A node of one's own may interrupt; it is a review like others, answered by its id."""

    async def body(view: Any, kit: Any, where: Any) -> Any:
        answer = interrupt("is this right?")
        return Patch().fact(f"somebody said {answer['message']}")

    agent = make("done", nodes=[("reflect", Node("ask", body, GoalView))])
    run = agent.run("go", thread="t")
    assert (run.status, run.reviews[0].description, run.reviews[0].kind) == ("waiting", "is this right?", "interrupt")
    run = agent.resume("t", respond={run.reviews[0].id: "yes"})
    assert run.status == "done"
    assert "somebody said yes" in [fact["text"] for fact in run.state["facts"]]


def test_answers_while_it_runs_elsewhere(make: Make, deliveries: Deliveries) -> None:
    """Two answers at once to one thread in one process: one is taken, the other refused or the same; it runs once."""
    agent = make(ONE, "done", tools=[deliveries.tool()])
    review = agent.run("go", thread="t").reviews[0]

    async def both() -> list[Any]:
        return await asyncio.gather(*(agent.aresume("t", approve=review.id) for _ in range(2)), return_exceptions=True)

    ended = asyncio.run(both())
    assert "done" in [getattr(run, "status", None) for run in ended]
    assert all(isinstance(one, OpenThreadError) or one.status in ("done", "running", "crashed") for one in ended)
    assert to(deliveries) == ["ada"]
