"""The doors of the agent: sync, async, streaming; when it saves; what it refuses to be built from."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.errors import NodeCancelledError

import graph_agent
from graph_agent import Agent, AgentState, Budget, Node, Patch, ReviewPolicy, tool
from graph_agent.errors import (
    GraphAgentError,
    InvalidAnswerError,
    OpenThreadError,
    RunFailedError,
    SetupError,
    UnknownThreadError,
)
from graph_agent.events import Asked, Ended, Finished, Line, Started
from graph_agent.testing import Deliveries, ScriptedModel, calls, lookup

ROOT = Path(__file__).parents[2]


def model(**lines: Any) -> ScriptedModel:
    """Give a model that looks two things up in two steps."""
    script = {
        "plan": [["look x up", "look y up"]],
        "act": [calls(("search", {"query": "x"})), "X", calls(("search", {"query": "y"})), "Y"],
        "answer": ["X and Y"],
    }
    return ScriptedModel({**script, **lines})


def agent(saver: Any = "memory://", **options: Any) -> Agent:
    tools = options.pop("tools", [lookup({"x": "1", "y": "2"})])
    return Agent(options.pop("model", None) or model(), tools=tools, saver=saver, **options)


@pytest.mark.parametrize("checkpoint", ["step", "iteration", "phase"])
def test_saved_as_often_as_wished(tmp_path: Path, checkpoint: str) -> None:
    """After every step, every turn or every change of phase: the same answer, fewer checkpoints, all resumable."""
    one = agent(f"sqlite:///{tmp_path}/t.db", checkpoint=checkpoint)
    run = one.run("look x and y up", thread="t")
    assert (run.status, run.answer) == ("done", "X and Y")
    steps = len(one.history("t"))
    assert steps == 16 if checkpoint == "step" else 4 <= steps <= 8
    assert [moment.saw is not None for moment in one.history("t")].count(True) >= 2
    one.saver.close()


def test_seldom_saving_is_refused_with_effects() -> None:
    """A crash would repeat what came since the last checkpoint: not with a tool that does something to the world."""
    with pytest.raises(SetupError, match="'deliver' twice"):
        agent(tools=[Deliveries().tool()], checkpoint="phase")
    with pytest.raises(SetupError, match="none of 'step'"):
        agent(checkpoint="never")


def test_a_seldom_saved_run_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    """What came after the last checkpoint is done again, what came before is not."""
    asked: list[str] = []

    @tool(risk="read_only")
    async def search(query: str) -> str:
        """Look something up; the first time for y, everything stops."""
        asked.append(query)
        if asked == ["x", "y"]:
            raise asyncio.CancelledError
        return query

    url = f"sqlite:///{tmp_path}/t.db"
    one = agent(url, tools=[search], checkpoint="iteration")
    with pytest.raises(NodeCancelledError):
        asyncio.run(one.arun("look x and y up", thread="t"))
    one.saver.close()
    two = agent(url, tools=[search], checkpoint="iteration")
    assert two.resume("t").answer == "X and Y"
    assert asked.count("x") == 1
    two.saver.close()


def test_events_tell_what_happens() -> None:
    """Typed events, in order, that end with the run; a review is an event of its own."""
    one = agent(review=ReviewPolicy(tools=("search",)))
    events = list(one.stream("look x and y up", thread="t"))
    nodes = [event.node for event in events if isinstance(event, Started)]
    assert nodes == ["plan", "act", "review"]
    finished = [event for event in events if isinstance(event, Finished)]
    assert finished[0].patch["phase"] == "executing"
    assert [type(event) for event in events[-2:]] == [Asked, Ended]
    again = list(one.stream_resume("t", approve=events[-2].review.id))
    assert [event.tool for event in again if isinstance(event, Started) and event.node == "tool"] == ["search"]


def test_who_stops_listening_stops_the_run() -> None:
    """Leaving the loop over the events ends the run where it is; it can be resumed."""
    one = agent()
    for event in one.stream("look x and y up", thread="t"):
        if isinstance(event, Started) and event.node == "act":
            break
    run = one.state("t")
    while run.status == "running":
        run = one.state("t")
    assert (one.resume("t") if run.status != "done" else run).answer == "X and Y"


def test_async_doors_and_a_running_loop() -> None:
    """The async doors in a loop, and the sync ones inside the same running loop, as in a notebook."""
    one = agent()

    async def cell() -> list[str]:
        first = await one.arun("look x and y up", thread="a")
        second = one.run("look x and y up", thread="b")
        return [first.status, second.status, (await one.astate("a")).status]

    assert asyncio.run(cell()) == ["done", "done", "done"]


def test_one_run_of_a_thread_at_a_time() -> None:
    """A second run of the same thread in the process is refused while the first goes on."""
    one = agent()

    async def both() -> list[Any]:
        runs = [one.arun("look x and y up", thread="t"), one.arun("look x and y up", thread="t")]
        return await asyncio.gather(*runs, return_exceptions=True)

    done, refused = sorted(asyncio.run(both()), key=lambda one: isinstance(one, Exception))
    assert done.status == "done"
    assert isinstance(refused, OpenThreadError)


def test_the_live_line_says_where_the_run_is() -> None:
    """Phase, position in the plan, what is being done, tokens; nothing at all where nobody looks."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    silent, seen = io.StringIO(), Terminal()
    lines = [Line(silent), Line(seen)]
    texts = []
    for event in agent().stream("look x and y up", thread="t"):
        for line in lines:
            line.see(event)
        texts.append(lines[1].text())
    assert silent.getvalue() == ""
    assert "search" in seen.getvalue()
    assert any(text.startswith("executing · 0/2 look x up · search · ") for text in texts)
    assert texts[-1].startswith("done · 2/2")


def test_a_failed_run_can_be_raised() -> None:
    """`raise_for_status` raises what the run recorded, with the record."""
    run = agent(model=model(plan=[ValueError("no idea")])).run("look x up", thread="t")
    assert run.status == "failed"
    with pytest.raises(RunFailedError, match="no idea") as caught:
        run.raise_for_status()
    assert caught.value.facts["failure"]["error"]["type"] == "ValueError"
    assert "failed" in str(run)


def test_what_an_agent_cannot_be_built_from() -> None:
    """Each refusal is one typed sentence."""
    for options, words in (
        ({"saver": 7}, "no LangGraph saver"),
        ({"prompts": {"sing": ""}}, "no prompt 'sing'"),
        ({"prompts": {"act": "{mood}"}}, "no key of the state"),
        ({"tools": [lookup({}), lookup({})]}, "two tools called 'search'"),
    ):
        with pytest.raises(SetupError, match=words):
            agent(**options)
    with pytest.raises(SetupError, match="names no model"):
        Agent("gpt")
    with pytest.raises(SetupError, match="no risk 'none'"):
        tool(risk="none")
    with pytest.raises(SetupError, match="goal is empty"):
        agent().run(" ")
    with pytest.raises(UnknownThreadError, match="no thread 'nobody'"):
        agent().resume("nobody")


def test_threads_are_listed() -> None:
    """By name, with any saver; with ours with their status."""
    for saver in ("memory://", InMemorySaver()):
        one = agent(saver)
        one.run("look x and y up", thread="t")
        assert [getattr(found, "thread", found) for found in one.threads()] == ["t"]


def test_what_was_written_is_told_as_news() -> None:
    """`patch` shows only the records that are new or changed."""
    one = agent()
    one.run("look x and y up", thread="t")
    observed = next(moment for moment in one.history("t") if moment.nodes == ("observe",))
    assert one.history("t").bisect(lambda step: "search" in str(step.values["facts"])) == observed
    assert [fact["source"] for fact in observed.patch["facts"]] == ["search"]
    assert len(observed.patch["artifacts"]) == 1


def test_public_names_are_there_and_documented() -> None:
    """Every public name loads, has a docstring and stands in the documentation."""
    text = (ROOT / "docs" / "agent.md").read_text()
    for name in graph_agent.__all__:
        assert getattr(graph_agent, name).__doc__, name
        assert f"`{name}" in text, name
    assert issubclass(OpenThreadError, GraphAgentError)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = graph_agent.Nothing
    assert (Patch().fact("a") | Patch().fact("b")).changes["facts"][1]["text"] == "b"


def test_a_fork_begins_with_what_it_is_told(tmp_path: Path) -> None:
    """A plan given as titles replaces the one there is; the old thread keeps its own; the fork runs by its plan."""
    one = agent(f"sqlite:///{tmp_path}/t.db")
    one.run("look x and y up", thread="t")
    before = dict(one.state("t").state)
    fork = one.fork("t@3", update={"plan": ["look y up", {"title": "say it"}]}, thread="u")
    assert [step["title"] for step in fork.plan] == ["look y up", "say it"]
    assert [step["title"] for step in one.resume("u").plan] == ["look y up", "say it"]
    assert dict(one.state("t").state) == before
    assert one.history("u")[1].metadata["forked_from"] == "t@3"
    one.saver.close()


def test_a_saver_whose_loop_has_ended_is_refused(postgres_url: str) -> None:
    """A sync door would wait for ever for a loop that does not run: it says so instead."""

    async def build() -> Agent:
        async with AsyncPostgresSaver.from_conn_string(postgres_url) as saver:
            await saver.setup()
            return agent(saver)

    one = asyncio.run(build())
    with pytest.raises(SetupError, match="does not run any more"):
        one.run("look x and y up", thread="t")


def test_a_fork_waits_to_be_resumed() -> None:
    """A fork has not crashed: it is stopped until it is resumed, and may be given a new goal."""
    one = agent()
    one.run("look x and y up", thread="t")
    fork = one.fork("t@4", thread="u")
    assert fork.status == "stopped"
    assert one.resume("u").answer == "X and Y"


def test_a_note_of_no_step_is_always_shown() -> None:
    """What a node of one's own notes without naming a step reaches the model."""

    async def remind(view: Any, kit: Any, where: Any) -> Patch:
        return Patch().note("the lift is broken")

    one = agent(nodes=[("act", Node("remind", remind, AgentState))])
    one.run("look x and y up", thread="t")
    steps = [moment for moment in one.history("t") if moment.nodes == ("act",)]
    assert all("the lift is broken" in str(moment.saw) for moment in steps)
    assert all(moment.saw.exact for moment in steps)


def test_two_answers_to_one_review_are_refused() -> None:
    """Which of them was meant is not guessed; nothing is saved, and the review stays open."""
    done = Deliveries()
    one = agent(tools=[done.tool()], model=model(act=[calls(("deliver", {"to": "ada"})), "X", "Y"]))
    review = one.run("tell ada", thread="t").reviews[0]
    for both in (
        {"reject": {review.id: "never"}, "edit": {review.id: {"to": "bob"}}},
        {"approve": review, "reject": review},
    ):
        with pytest.raises(InvalidAnswerError, match="two answers at once"):
            one.resume("t", **both)
    for odd in ({"approve": True}, {"edit": review.id}):
        with pytest.raises(InvalidAnswerError, match="names no review"):
            one.resume("t", **odd)
    assert (one.state("t").status, len(done)) == ("waiting", 0)
    assert one.resume(one.state("t"), approve=review).answer == "X and Y"


def test_one_text_is_one_thing() -> None:
    """A text where several are possible is one of them, not its letters."""
    run = agent().run("look x and y up", constraints="keep backups")
    assert run.state["constraints"] == ["keep backups"]
    assert ReviewPolicy(required_for="irreversible").required_for == ("irreversible",)
    with pytest.raises(SetupError, match=r"write tools=\[deliver\]"):
        agent(tools=Deliveries().tool())


def test_what_cannot_be_meant_is_refused() -> None:
    """A limit below nothing, a policy about no tool, a script for no node, a model that is none."""
    with pytest.raises(SetupError, match="max_steps=-3 is below nothing"):
        Budget(max_steps=-3)
    with pytest.raises(SetupError, match="names 'nope', which is no tool"):
        agent(review=ReviewPolicy(tools=("nope",)))
    with pytest.raises(SetupError, match="no node 'paln'"):
        ScriptedModel(paln=[["x"]])
    with pytest.raises(SetupError, match="None is no model"):
        Agent(None)
    with pytest.raises(SetupError, match="needs a name"):
        agent().run("look x up", thread="")


def test_runs_and_reviews_read_well() -> None:
    """What a notebook shows of a run has its reason, and the names to answer its reviews by."""
    one = agent(tools=[Deliveries().tool()], model=model(act=[calls(("deliver", {"to": "ada"})), "X", "Y"]))
    run = one.run("tell ada", thread="t")
    assert run.reviews[0].id in str(run)
    assert (
        repr(run.reviews[0]) == f'<Review {run.reviews[0].id}: deliver({{"to":"ada"}}) (its risk is external_action)>'
    )
    failed = agent(model=model(plan=[ValueError("no idea")])).run("look x up", thread="t")
    assert "no idea" in repr(failed)
