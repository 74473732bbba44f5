"""The agent and a model it does not control: real HTTP, the real client, and all that goes wrong between them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_openai import ChatOpenAI

from checkpointers import Saver
from graph_agent import Agent, Deadline, Retry, Run, tool
from graph_agent.errors import MalformedReplyError, NoModelError, SetupError
from graph_agent.models import Model, calibrated, estimate
from graph_agent.testing import FrozenClock, ScriptedModel, Tries, lookup
from graph_agent.testing import calls as calling
from tests.conftest import reopen
from tests.graph_agent.conftest import scripted
from tests.graph_agent.openai_server import (
    OpenAIServer,
    Reply,
    Request,
    answer,
    calls,
    cut,
    empty,
    malformed,
    overflow,
    slow,
    status,
    structured,
)

PLAN = structured({"steps": [{"title": "add the numbers"}], "why": "it is one sum"})
SUM = [PLAN, calls(("add", {"a": 1, "b": 2})), answer("The sum is 3.")]
Serve = Callable[..., OpenAIServer]
Make = Callable[..., Agent]


@tool(risk="read_only")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Start a server that the environment points to; a script that does not fit the test fails it."""
    servers: list[OpenAIServer] = []

    def start(*replies: Reply, script: Any = None) -> OpenAIServer:
        servers.append(OpenAIServer(script or replies))
        monkeypatch.setenv("OPENAI_BASE_URL", servers[-1].url)
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        return servers[-1]

    yield start
    for server in servers:
        server.close()
        assert server.failures == []


@pytest.fixture
def make(make: Make) -> Make:
    """Make agents that speak to the server, if they are not given another model."""
    return lambda model="openai:test", **options: make(model=model, **{"tools": [add], **options})


def said(request: Request) -> list[tuple[str, str | None]]:
    return [(message["role"], message["content"]) for message in request["messages"]]


def kinds(run: Run) -> list[str]:
    return [failure["error"]["type"] for failure in run.failures]


# --- A whole run -----------------------------------------------------------------------------------------------------


def test_a_whole_run(serve: Serve, make: Make) -> None:
    """plan, act with a call, observe, act with text, answer: each request has the prompt first and the situation last."""
    two = structured({"steps": [{"title": "add the numbers", "detail": "exactly"}, {"title": "tell"}]})
    server = serve(two, SUM[1], answer("The sum is 3."), answer("Told."), answer("It is 3."))
    run = make().run("What is 1 + 2?", thread="t", constraints=["be exact"])
    assert (run.status, run.answer) == ("done", "It is 3.")
    plan, act, after, tell, final = server.requests
    assert plan["response_format"]["type"] == "json_schema"
    assert plan["response_format"]["json_schema"]["name"] == "Plan"
    assert "tools" not in plan
    assert said(plan)[0][0] == "system"
    assert said(plan)[1:] == [
        ("user", "What is 1 + 2?"),
        ("user", "## Goal\nWhat is 1 + 2?\n\n## Constraints\n- be exact"),
    ]
    assert [one["function"]["name"] for one in act["tools"]] == ["add", "ask_user", "replan"]
    assert act["tools"][0]["function"]["description"] == "Add two numbers."
    always = "## Goal\nWhat is 1 + 2?\n\n## Constraints\n- be exact\n\n## Plan\n"
    situation = f"{always}[>] add the numbers\n[ ] tell\n\n## Current step\nadd the numbers: exactly"
    assert said(act)[-1] == ("user", situation)
    call, result = after["messages"][2:4]
    assert [(one["id"], one["function"]) for one in call["tool_calls"]] == [
        (result["tool_call_id"], {"name": "add", "arguments": '{"a": 1, "b": 2}'})
    ]
    assert (result["role"], result["content"]) == ("tool", "3")
    assert '## Facts\n- add({"a":1,"b":2}) → 3 (tool: add)' in said(after)[-1][1]
    assert "[x] add the numbers → The sum is 3.\n[>] tell" in said(tell)[-1][1]
    assert [role for role, _ in said(final)] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "assistant",
        "user",
    ]
    assert "tools" not in final


def test_nothing_is_streamed(serve: Serve, make: Make) -> None:
    """No request is a stream, also while the run itself is watched as one: half of a broken call would look whole."""
    server = serve(*SUM)
    assert [type(event).__name__ for event in make().stream("sum", thread="t")][-1] == "Ended"
    assert [request.get("stream") for request in server.requests] == [False, False, False]


def test_the_prompts_can_be_replaced(serve: Serve, make: Make) -> None:
    """A prompt of the user's own is sent in place of the agent's, with the state's values in it."""
    server = serve(*SUM)
    make(prompts={"act": "Work on: {goal}"}).run("sum", thread="t")
    assert said(server.requests[1])[0] == ("system", "Work on: sum")
    assert "You plan" in said(server.requests[0])[0][1]


# --- Without a model -------------------------------------------------------------------------------------------------


def test_no_key_and_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a key and an address, the agent says in one sentence what to set, before anything is asked."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(NoModelError) as caught:
        Agent("openai:test")
    message = str(caught.value)
    assert "OPENAI_API_KEY" in message
    assert "OPENAI_BASE_URL" in message
    assert "\n" not in message
    assert caught.value.facts == {"model": "openai:test"}


@pytest.mark.parametrize("name", ["test", "openai:", "", "other:model"])
def test_a_name_that_is_none(name: str) -> None:
    """A name that means nothing is refused with the form it must have."""
    with pytest.raises(SetupError, match="write 'openai:NAME'"):
        Agent(name)


def test_a_server_of_ones_own_needs_no_key(serve: Serve, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an address alone the run works."""
    serve(*SUM)
    monkeypatch.delenv("OPENAI_API_KEY")
    assert make().run("sum", thread="t").answer == "The sum is 3."


NEVER = [
    (status(400, "no such parameter"), "OpenAIInvalidRequestError"),
    (status(401, "Incorrect API key provided", error_code="invalid_api_key"), "OpenAIAuthenticationError"),
    (status(403, "not yours"), "OpenAIPermissionDeniedError"),
    (status(404, "no such model"), "OpenAIModelNotFoundError"),
    (status(422, "what?"), "UnprocessableEntityError"),
    (status(429, "You exceeded your current quota", error_code="insufficient_quota"), "OpenAIRateLimitError"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("refusal", "kind"), NEVER)
def test_what_no_retry_mends(serve: Serve, make: Make, clock: FrozenClock, refusal: Reply, kind: str) -> None:
    """A refusal for good is asked once, never waited for, and told with its reason; a person mends it and resumes."""
    server = serve(refusal)
    run = make().run("sum", thread="t")
    assert (run.status, len(server.requests), clock.naps) == ("failed", 1, [])
    assert kinds(run) == [kind]
    assert refusal.error["message"] in run.reason
    assert kind in run.reason
    assert run.failures[0]["retry_at"] is None
    serve(*SUM)
    assert make().resume("t").answer == "The sum is 3."


# --- What passes -----------------------------------------------------------------------------------------------------

PASSES = {
    "429": status(429, "slow down", retry_after=7),
    "500": status(500, "oops"),
    "503": status(503, "overloaded"),
    "408": status(408, "too slow"),
    "409": status(409, "conflict"),
    "cut before the body": cut(0),
    "cut in the body": cut(300),
    "cut by a polite proxy": cut(300, clean=True),
    "not JSON": malformed(),
    "no choices": empty(),
    "arguments that are no object": calls(("add", "[1]")),
}


@pytest.mark.slow
@pytest.mark.parametrize("trouble", PASSES.values(), ids=PASSES.keys())
@pytest.mark.parametrize("place", [0, 1])
def test_what_passes_is_tried_again(serve: Serve, make: Make, clock: FrozenClock, trouble: Reply, place: int) -> None:
    """The same question is asked again after a delay; the failed attempt is on record, and the run ends well."""
    server = serve(*SUM[:place], trouble, trouble, *SUM[place:])
    run = make().run("sum", thread="t")
    assert (run.status, run.answer) == ("done", "The sum is 3.")
    asked = [request["messages"] for request in server.requests]
    assert len(asked) == 5
    assert asked[place] == asked[place + 1] == asked[place + 2]
    assert {request.headers["x-stainless-retry-count"] for request in server.requests} == {"0"}
    assert [(f["node"], f["attempt"]) for f in run.failures] == [(["plan", "act"][place], n) for n in (1, 2)]
    assert clock.naps == ([7, 7] if trouble.retry_after else [0.5, 1])


def test_it_is_not_tried_for_ever(serve: Serve, make: Make, clock: FrozenClock) -> None:
    """After the last attempt the run fails with the reason; resumed, it begins to count anew."""
    server = serve(*[status(500, "oops")] * 3)
    run = make(retry=Retry(max_attempts=3)).run("sum", thread="t")
    assert (run.status, len(server.requests), clock.naps) == ("failed", 3, [0.5, 1])
    assert "oops" in run.reason
    assert "3 attempts were made" in run.reason
    serve(status(500, "oops"), *SUM)
    run = make().resume("t")
    assert (run.status, [f["attempt"] for f in run.failures]) == ("done", [1, 2, 3, 1])


@pytest.mark.parametrize("after_bytes", [None, 300])
def test_slow_beyond_the_clients_timeout(serve: Serve, make: Make, after_bytes: int | None) -> None:
    """An answer that does not come, or stalls, within the client's own timeout is asked for again."""
    server = serve(slow(30, PLAN, after_bytes), *SUM)
    run = make(ChatOpenAI(model="test", timeout=0.2, max_retries=0)).run("sum", thread="t")
    assert (run.status, kinds(run), len(server.requests)) == ("done", ["OpenAITimeoutError"], 4)


def test_slow_beyond_the_nodes_deadline(serve: Serve, make: Make) -> None:
    """A node that passes its deadline is cancelled and tried again, as after any timeout."""
    server = serve(slow(30, PLAN), *SUM)
    run = make(deadline=Deadline(node=1.0)).run("sum", thread="t")
    assert (run.status, kinds(run), len(server.requests)) == ("done", ["TimeoutError"], 4)
    assert run.failures[0]["retry_at"] is not None


# --- What does not fit in --------------------------------------------------------------------------------------------

WORDINGS = [overflow(), status(400, "Input tokens exceed the configured limit of 272000 tokens.")]


@pytest.mark.parametrize("refusal", WORDINGS)
def test_too_long_is_shown_less(serve: Serve, make: Make, clock: FrozenClock, refusal: Reply) -> None:
    """A question refused as too long is asked again at once with half as much of the state, and half again."""
    server = serve(refusal, refusal, *SUM)
    facts = [{"id": f"f-{n}", "text": f"fact {n}: {'word ' * 60}"} for n in range(100)]
    run = make().run("sum", thread="t", update={"facts": facts})
    assert (run.status, clock.naps) == ("done", [])
    whole, half, quarter, act = [len(said(request)[-1][1]) for request in server.requests[:4]]
    assert (round(whole / half), round(half / quarter)) == (2, 2)
    assert round(act / quarter) == 4
    assert [d["saw"]["budget"] for d in run.state["decisions"] if "saw" in d][:2] == [6000, 24000]
    assert len(run.failures) == 2


def test_too_long_and_then_busy(serve: Serve, make: Make, clock: FrozenClock) -> None:
    """What was too long once stays shorter when something else goes wrong in between, and costs no attempt."""
    busy = status(500, "oops")
    server = serve(overflow(), overflow(), busy, busy, *SUM)
    facts = [{"id": f"f-{n}", "text": f"fact {n}: {'word ' * 60}"} for n in range(100)]
    run = make(retry=Retry(max_attempts=3)).run("sum", thread="t", update={"facts": facts})
    assert (run.status, clock.naps) == ("done", [0.5, 1])
    sizes = [len(said(request)[-1][1]) for request in server.requests]
    assert sizes[2] == sizes[3] == sizes[4] < sizes[1] < sizes[0]


@pytest.mark.slow
@pytest.mark.parametrize("refusal", WORDINGS)
def test_too_long_at_its_shortest(serve: Serve, make: Make, refusal: Reply) -> None:
    """When even an eighth is too long the run fails and says so; resumed with a larger model, it goes on."""
    server = serve(*[refusal] * 4)
    run = make().run("sum", thread="t")
    assert (run.status, len(server.requests)) == ("failed", 4)
    assert refusal.error["message"][:40] in run.reason
    serve(*SUM)
    assert make().resume("t").status == "done"


# --- What the model gets wrong ---------------------------------------------------------------------------------------

HALF = '{"a": 1, "b"'
BAD_CALLS = {
    "arguments that are not JSON": (calls(("add", HALF)), "the arguments of add are not valid JSON", f"add({HALF})"),
    "cut off": (answer("The sum i", finish="length"), "it was cut off for its length", "The sum i"),
    "filtered": (answer("The sum", finish="content_filter"), "it was cut off by a content filter", "The sum"),
    "empty": (answer("  "), "it is empty", "  "),
}


@pytest.mark.parametrize(("bad", "problem", "reply"), BAD_CALLS.values(), ids=BAD_CALLS.keys())
def test_a_reply_is_repaired(serve: Serve, make: Make, bad: Reply, problem: str, reply: str) -> None:
    """The model sees what it sent and what is wrong with it; the decision records both, and that it cost more."""
    used = {"prompt_tokens": 100, "completion_tokens": 10}
    bad = Reply(**{**bad.__dict__, "usage": used})
    server = serve(PLAN, bad, bad, Reply(**{**SUM[1].__dict__, "usage": used}), SUM[2])
    run = make().run("sum", thread="t")
    assert (run.status, run.failures) == ("done", [])
    _, act, *_ = run.state["decisions"]
    assert act["repairs"] == [{"reply": reply, "problem": problem}] * 2
    assert (act["tokens"]["input"], act["tokens"]["output"]) == (300, 30)
    first, second = server.requests[1], server.requests[2]
    assert said(second)[: len(said(first))] == said(first)
    assert said(second)[len(said(first)) :] == [
        ("assistant", reply),
        ("user", f"That could not be read: {problem}. Send it again, complete and valid."),
    ]


def test_a_reply_that_stays_unreadable(serve: Serve, make: Make) -> None:
    """After two repairs the run fails, on record, without a retry; it can be resumed."""
    server = serve(PLAN, *[calls(("add", HALF))] * 3)
    run = make().run("sum", thread="t")
    assert (run.status, kinds(run), len(server.requests)) == ("failed", ["MalformedReplyError"], 4)
    assert "the arguments of add are not valid JSON" in run.reason
    assert run.failures[0]["error"]["tokens"]
    assert [call["tool"] for call in run.state.get("calls", ())] == []
    serve(*SUM[1:])
    assert make().resume("t").answer == "The sum is 3."


BAD_PLANS = {
    "prose": (answer("First I add, then I tell."), "Invalid json output"),
    "a step without a title": (structured({"steps": [{"detail": "x"}]}), "steps.0.title: Field required"),
    "no steps": (structured({"steps": []}), "steps: List should have at least 1 item"),
    "cut off": (answer('{"steps": [{"ti', finish="length"), "it was cut off for its length"),
    "filtered": (answer('{"steps": [{"ti', finish="content_filter"), "it was cut off by a content filter"),
    "empty": (answer(""), ""),
}


@pytest.mark.slow
@pytest.mark.parametrize(("bad", "problem"), BAD_PLANS.values(), ids=BAD_PLANS.keys())
def test_a_structure_is_repaired(serve: Serve, make: Make, bad: Reply, problem: str) -> None:
    """A plan that does not fit is sent back with the reason, and the decision records it."""
    server = serve(bad, *SUM)
    run = make().run("sum", thread="t")
    assert (run.status, run.failures, len(server.requests)) == ("done", [], 4)
    [repair] = run.state["decisions"][0]["repairs"]
    assert problem in repair["problem"]
    assert said(server.requests[1])[-1][1].startswith(f"That does not fit Plan: {problem}")


@pytest.mark.slow
@pytest.mark.parametrize("bad", [BAD_PLANS["prose"][0], BAD_PLANS["cut off"][0], BAD_PLANS["no steps"][0]])
def test_a_structure_that_never_fits(serve: Serve, make: Make, bad: Reply) -> None:
    """After two repairs the run fails, on record; it can be resumed."""
    server = serve(*[bad] * 3)
    run = make().run("sum", thread="t")
    assert (run.status, kinds(run), len(server.requests)) == ("failed", ["MalformedReplyError"], 3)
    serve(*SUM)
    assert make().resume("t").answer == "The sum is 3."


@pytest.mark.parametrize("before", [[], [PLAN]])
def test_a_refusal_is_told_in_its_words(serve: Serve, make: Make, before: list[Reply]) -> None:
    """What the provider marks as a refusal is no empty answer: the failure says what the model said."""
    message = {"role": "assistant", "content": None, "refusal": "I will not do that."}
    shape = {
        "id": "x", "object": "chat.completion", "created": 1, "model": "test",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}],
    }  # fmt: skip
    refused = Reply(raw=(json.dumps(shape).encode(), b""))
    serve(*before, *[refused] * 3)
    run = make().run("sum", thread="t")
    assert (run.status, kinds(run)) == ("failed", ["MalformedReplyError"])
    assert "it was refused: I will not do that." in run.reason


def test_a_call_of_a_tool_that_is_none(serve: Serve, make: Make) -> None:
    """An unknown tool and wrong arguments are results that the model reads, each with its call; nothing is run."""
    wrong = calls(("subtract", {"a": 1}), ("add", {"a": "x", "b": 2}))
    server = serve(PLAN, wrong, *SUM[1:])
    run = make().run("sum", thread="t")
    assert run.status == "done"
    messages = server.requests[2]["messages"]
    results = {m["tool_call_id"]: m["content"] for m in messages if m["role"] == "tool"}
    assert list(results) == [one["id"] for m in messages for one in m.get("tool_calls") or ()]
    first, second = results.values()
    assert "subtract" in first
    assert "add: a:" in second


# --- Tokens ----------------------------------------------------------------------------------------------------------


def test_tokens_are_what_the_provider_says(serve: Serve, make: Make) -> None:
    """Each decision has the provider's counts beside our estimate; the thread's usage is their sum."""
    used = [{"prompt_tokens": 1000 + n, "completion_tokens": 10 * n} for n in (1, 2, 3)]
    serve(*(Reply(**{**reply.__dict__, "usage": one}) for reply, one in zip(SUM, used, strict=True)))
    run = make().run("sum", thread="t")
    asked = [one["tokens"] for one in run.state["decisions"] if "tokens" in one]
    assert [(one["input"], one["output"]) for one in asked] == [(1001, 10), (1002, 20), (1003, 30)]
    assert all(0 < one["estimated"] < 300 for one in asked)
    assert run.usage["llm_tokens"] == 1001 + 1002 + 1003 + 60
    assert run.usage["llm_calls"] == 3


def test_tokens_nobody_reports_are_estimated(serve: Serve, make: Make) -> None:
    """A server that reports no usage does not make a run free."""

    def without_usage(reply: Reply) -> Reply:
        message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
        if reply.calls:
            message["tool_calls"] = [
                {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": args}}
                for n, (name, args) in enumerate(reply.calls)
            ]
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if reply.calls else "stop"}
        body = {"id": "x", "object": "chat.completion", "created": 1, "model": "test", "choices": [choice]}
        return Reply(raw=(json.dumps(body).encode(), b""))

    serve(*map(without_usage, SUM))
    run = make().run("sum", thread="t")
    assert run.status == "done"
    for one in run.state["decisions"]:
        if "tokens" in one:
            assert one["tokens"]["input"] == one["tokens"]["estimated"] > 0
    assert run.usage["llm_tokens"] >= sum(d["tokens"]["estimated"] for d in run.state["decisions"] if "tokens" in d)


def test_estimates_are_calibrated() -> None:
    """The factor is the provider's counts over ours, of the last eight decisions; without any it is one."""
    assert calibrated([]) == 1
    assert calibrated([{"estimated": 100, "input": 150}, {"estimated": 100, "input": 250}]) == 2
    assert calibrated([{"estimated": 1, "input": 1000}] + [{"estimated": 100, "input": 50}] * 8) == 0.5
    assert estimate([{"role": "user", "content": "x" * 388}]) == 100


def test_a_repair_does_not_spoil_the_calibration(serve: Serve, make: Make) -> None:
    """A question asked three times counts three times on both sides."""
    used = {"prompt_tokens": 600, "completion_tokens": 1}
    bad = Reply(**{**answer(" ").__dict__, "usage": used})
    serve(PLAN, bad, bad, Reply(**{**SUM[1].__dict__, "usage": used}), SUM[2])
    act = make().run("sum", thread="t").state["decisions"][1]["tokens"]
    assert act["input"] == 1800
    assert act["estimated"] % 3 == 0
    assert calibrated([act]) == pytest.approx(600 / (act["estimated"] / 3))


# --- Text that no database keeps -------------------------------------------------------------------------------------

NASTY = "a\x00b\ud800c"
CLEAN = "a␀b?c"


def test_nul_and_lone_surrogates_of_a_server(serve: Serve, make: Make) -> None:
    """JSON may say what UTF-8 cannot: in text, arguments, names and ids, whole or broken, it becomes visible marks."""
    server = serve(
        answer(NASTY),
        structured({"steps": [{"title": f"add {NASTY}", "detail": NASTY}], "why": NASTY}),
        calls(("look", f'{{"query": "{json.dumps(NASTY)[1:-1]}", "b"')),
        calls(("look", {"query": NASTY}), (f"look{NASTY}", {NASTY: [NASTY, {"x": NASTY}]}), text=NASTY),
        answer(f"done {NASTY}"),
    )
    run = make(tools=[lookup({}, "look")]).run("sum", thread="t")
    assert (run.status, run.answer) == ("done", f"done {CLEAN}")
    assert [(one["error"]["type"], one["tool"]) for one in run.failures] == [("ToolError", f"look{CLEAN}")]
    assert [call["args"] for call in run.state["calls"]] == [{"query": CLEAN}, {CLEAN: [CLEAN, {"x": CLEAN}]}]
    assert [len(d.get("repairs", ())) for d in run.state["decisions"]][:2] == [1, 1]
    assert len(server.requests) == 5
    assert make(tools=[lookup({}, "look")]).state("t").state == run.state


def test_nul_and_lone_surrogates_in_both_databases(saver: Saver, url: str) -> None:
    """They do not stop a run on SQLite or Postgres, and what was stored is what is read."""
    model = ScriptedModel(
        plan=[[{"title": f"look {NASTY}"}]],
        act=[
            calling(("look", {"query": NASTY}), text=NASTY),
            calling(("replan", {"reason": NASTY})),
            calling(("ask_user", {"question": NASTY})),
            f"seen {NASTY}",
        ],
        answer=[NASTY],
        strict=False,
    )
    options: dict[str, Any] = {"tools": [lookup(lambda query: query + NASTY, "look")]}
    run = Agent(model, saver=saver, **options).run(f"look {NASTY}", thread="t")
    assert run.status == "waiting", run.reason
    run = Agent(model, saver=saver, **options).resume("t", respond={run.reviews[0].id: CLEAN})
    assert run.status == "done", run.reason
    assert CLEAN in run.answer
    with reopen(url) as other:
        assert Agent(model, saver=other, **options).state("t").state == run.state


@pytest.mark.slow
@pytest.mark.parametrize("odd", ["NaN", "-Infinity", str(2**70), "[" * 120 + "]" * 120], ids=lambda odd: odd[:9])
def test_numbers_of_a_server_that_are_none(serve: Serve, make: Make, odd: str) -> None:
    """What Python takes for JSON and no database keeps fails the call, not the run: the model is told why."""
    server = serve(PLAN, calls(("look", f'{{"query": {odd}}}'), ("ask_user", f'{{"question": {odd}}}')), *SUM[1:])
    run = make(tools=[lookup({}, "look"), add]).run("sum", thread="t")
    assert run.status == "done"
    assert [one["error"]["type"] for one in run.failures] == ["InvalidArgumentsError"] * 2
    assert [call["status"] for call in run.state["calls"]] == ["failed", "failed", "done"]
    assert odd[:20] in run.state["calls"][0]["args"]["sent"]
    told = [content for role, content in said(server.requests[2]) if role == "tool"]
    assert [one.partition(": [")[0] for one in told] == ["error: look", "error: ask_user"]
    assert make().state("t").state == run.state


# --- Any chat model --------------------------------------------------------------------------------------------------


def test_any_chat_model_will_do() -> None:
    """A LangChain chat model is taken as it is, and named in the records."""
    model = Model(ScriptedModel(act=["hello"]))
    reply = asyncio.run(model.reply([{"id": "1", "role": "user", "content": "hi"}], about={"node": "act"}))
    assert (model.name, reply.text, reply.calls) == ("scripted", "hello", [])
    with pytest.raises(MalformedReplyError, match="it is empty") as caught:
        asyncio.run(
            Model(ScriptedModel(act=[""])).reply([{"id": "1", "role": "user", "content": "hi"}], about={"node": "act"})
        )
    assert len(caught.value.facts["repairs"]) == 3


BROKEN_OFF = [
    {"finish_reason": "length"},
    {"finish_reason": "MAX_TOKENS"},
    {"stop_reason": "max_tokens"},
    {"done_reason": "length"},
    {"finish_reason": "SAFETY"},
    {"finish_reason": None, "model_provider": "openai"},
]


@pytest.mark.parametrize("told", BROKEN_OFF, ids=str)
def test_half_an_answer_is_none_whoever_gives_it(make: Make, told: dict[str, Any]) -> None:
    """That an answer was cut off is understood in the words of other providers, too."""
    half = AIMessage("The sum i", response_metadata=told)
    whole = AIMessage("The sum is 3.", response_metadata={"stop_reason": "end_turn"})
    run = make(scripted(Tries(half, whole))).run("sum", thread="t")
    assert run.answer == "The sum is 3."
    assert "off" in run.state["decisions"][1]["repairs"][0]["problem"]


def test_a_structure_by_calls_is_repaired(make: Make) -> None:
    """Models without structured output fill in a call; one that does not fit is shown to them."""
    wrong = calling(("Plan", {"steps": [{"name": "x"}]}))
    model = scripted(plan=["do it"])
    model.script["plan"] = [Tries(wrong, ["do it"])]
    run = make(model).run("go", thread="t")
    [repair] = run.state["decisions"][0]["repairs"]
    assert repair == {"reply": 'Plan({"steps":[{"name":"x"}]})', "problem": "steps.0.title: Field required"}
    assert [str(message.content) for message in model.asked[1][1][-2:-1]] == [repair["reply"]]
