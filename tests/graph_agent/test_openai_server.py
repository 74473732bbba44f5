"""What `ChatOpenAI` makes of each reply: the agent's rules of retry and refusal are written from this table.

Where a test pins down something that one would not expect, it is so that an upgrade which changes it is noticed here,
and not by a person whose agent acted on half a tool call.
"""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import openai
import pytest
from langchain_core.exceptions import (
    ContextOverflowError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelError,
    ModelInvalidRequestError,
    ModelNotFoundError,
    ModelPermissionDeniedError,
    ModelRateLimitError,
    ModelTimeoutError,
)
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langchain_openai.chat_models import base
from langchain_openai.chat_models._client_utils import StreamChunkTimeoutError
from pydantic import BaseModel, ValidationError

from tests.graph_agent.openai_server import (
    OpenAIServer,
    Reply,
    answer,
    calls,
    cut,
    empty,
    failing_midway,
    malformed,
    overflow,
    slow,
    status,
    structured,
)

Ask = Callable[[Any], AIMessage]


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Verdict(BaseModel):
    """A verdict."""

    colour: str
    sure: bool


def model(server: OpenAIServer, **options: Any) -> ChatOpenAI:
    return ChatOpenAI(**{"base_url": server.url, "api_key": "test", "model": "test", "max_retries": 0, **options})


def invoke(runnable: Any) -> AIMessage:
    return runnable.invoke("hi")


def ainvoke(runnable: Any) -> AIMessage:
    return asyncio.run(runnable.ainvoke("hi"))


def stream(runnable: Any) -> AIMessageChunk:
    chunks = list(runnable.stream("hi"))
    return sum(chunks[1:], start=chunks[0])


def astream(runnable: Any) -> AIMessageChunk:
    async def collect() -> list[AIMessageChunk]:
        return [chunk async for chunk in runnable.astream("hi")]

    chunks = asyncio.run(collect())
    return sum(chunks[1:], start=chunks[0])


whole = pytest.mark.parametrize("ask", [invoke, ainvoke])
streamed = pytest.mark.parametrize("ask", [stream, astream])
every_door = pytest.mark.parametrize("ask", [invoke, ainvoke, stream, astream])


def failure(reply: Reply, ask: Ask, **options: Any) -> BaseException:
    """Give what is raised, once the server has nothing to complain about the test itself."""
    with OpenAIServer([reply]) as server:
        with pytest.raises(Exception) as caught:  # noqa: PT011
            ask(model(server, **options))
        assert len(server.requests) <= 1  # none, where the client gave up before the server had read it
        assert server.failures == []
    return caught.value


# --- What works ------------------------------------------------------------------------------------------------------


@whole
def test_answer(ask: Ask) -> None:
    with OpenAIServer([answer("hello")]) as server:
        said = ask(model(server))
    assert said.content == "hello"
    assert said.response_metadata["finish_reason"] == "stop"
    assert said.response_metadata["id"].startswith("chatcmpl-")
    assert (
        said.usage_metadata["total_tokens"]
        == said.usage_metadata["input_tokens"] + said.usage_metadata["output_tokens"]
    )
    assert server.requests[0]["messages"] == [{"role": "user", "content": "hi"}]
    assert server.requests[0].headers["authorization"] == "Bearer test"


def test_usage_is_what_the_script_says() -> None:
    """Details reach `usage_metadata` under LangChain's names; without them the details are there and empty."""
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 64}}
    with OpenAIServer([answer("hello", usage), answer("hello")]) as server:
        first, second = (model(server).invoke("hi").usage_metadata for _ in range(2))
    assert (first["input_tokens"], first["output_tokens"], first["total_tokens"]) == (100, 20, 120)
    assert first["input_token_details"] == {"cache_read": 64}
    assert second["input_token_details"] == second["output_token_details"] == {}


@every_door
def test_tool_calls(ask: Ask) -> None:
    """Two calls and a text, whole or in pieces; the ids of two replies never meet."""
    two = calls(("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4}), text="let me see")
    with OpenAIServer([two, two]) as server:
        first, second = (ask(model(server).bind_tools([add])) for _ in range(2))
    assert first.content == "let me see"
    assert [call["args"] for call in first.tool_calls] == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    assert len({call["id"] for call in [*first.tool_calls, *second.tool_calls]}) == 4
    assert first.response_metadata["finish_reason"] == "tool_calls"
    assert server.requests[0]["tools"][0]["function"]["name"] == "add"


@streamed
@pytest.mark.parametrize("wanted", [True, None])
def test_stream(ask: Ask, wanted: bool | None) -> None:
    """A stream comes in pieces. With a `base_url` it has no usage unless `stream_usage` is asked for."""
    with OpenAIServer([answer("hello there")]) as server:
        said = ask(model(server, stream_usage=wanted))
    assert said.content == "hello there"
    assert said.response_metadata["finish_reason"] == "stop"
    assert (said.usage_metadata is not None) == bool(wanted)
    assert server.requests[0]["stream"] is True


def test_stream_comes_in_pieces() -> None:
    with OpenAIServer([answer("hello there")]) as server:
        assert [chunk.content for chunk in model(server).stream("hi") if chunk.content] == ["hel", "lo ", "the", "re"]


@whole
@pytest.mark.parametrize("options", [{}, {"method": "json_schema"}])
def test_structured_by_schema(ask: Ask, options: dict[str, str]) -> None:
    """The default method is `json_schema`."""
    with OpenAIServer([structured({"colour": "red", "sure": True})]) as server:
        assert ask(model(server).with_structured_output(Verdict, **options)) == Verdict(colour="red", sure=True)
    assert server.requests[0]["response_format"]["type"] == "json_schema"
    assert "tools" not in server.requests[0]


@whole
def test_structured_by_function(ask: Ask) -> None:
    with OpenAIServer([calls(("Verdict", {"colour": "red", "sure": True}))]) as server:
        found = ask(model(server).with_structured_output(Verdict, method="function_calling"))
    assert found == Verdict(colour="red", sure=True)
    assert server.requests[0]["tool_choice"]["function"]["name"] == "Verdict"


# --- What is refused -------------------------------------------------------------------------------------------------

REFUSED = [
    (400, base.OpenAIInvalidRequestError, ModelInvalidRequestError, False),
    (401, base.OpenAIAuthenticationError, ModelAuthenticationError, False),
    (403, base.OpenAIPermissionDeniedError, ModelPermissionDeniedError, False),
    (404, base.OpenAIModelNotFoundError, ModelNotFoundError, False),
    (429, base.OpenAIRateLimitError, ModelRateLimitError, True),
    (500, base.OpenAIAPIError, ModelAPIError, True),
    (503, base.OpenAIAPIError, ModelAPIError, True),
]


@every_door
@pytest.mark.parametrize(("code", "exact", "kind", "retryable"), REFUSED)
def test_refused(ask: Ask, code: int, exact: type, kind: type[ModelError], retryable: bool) -> None:
    """These statuses have a kind of `ModelError` each, which knows whether to try again."""
    error = failure(status(code, "no", error_code="some_code"), ask)
    assert type(error) is exact
    assert isinstance(error, kind)
    assert error.is_retryable is retryable
    assert (error.status_code, error.code, str(error)) == (code, "some_code", f"Error code: {code} - no")


@every_door
@pytest.mark.parametrize(
    ("code", "exact"),
    [
        (408, openai.APIStatusError),
        (409, openai.ConflictError),
        (413, openai.APIStatusError),
        (422, openai.UnprocessableEntityError),
    ],
)
def test_refused_without_a_kind(ask: Ask, code: int, exact: type) -> None:
    """These are no `ModelError`, although the SDK's own retries count 408 and 409 among what may pass."""
    error = failure(status(code, "no"), ask)
    assert type(error) is exact
    assert not isinstance(error, ModelError)


@every_door
def test_retry_after_is_in_the_response(ask: Ask) -> None:
    error = failure(status(429, "slow down", retry_after=1.5), ask)
    assert error.response.headers["retry-after"] == "1.5"


@whole
def test_no_money_left_looks_retryable(ask: Ask) -> None:
    """Only the code tells a spent quota, which no retry mends, from a moment's rush."""
    error = failure(status(429, "You exceeded your current quota", error_code="insufficient_quota"), ask)
    assert (error.is_retryable, error.code) == (True, "insufficient_quota")


@every_door
def test_context_overflow_is_told_by_its_code(ask: Ask) -> None:
    """LangChain looks for the code in the error's text, where the SDK no longer puts it; the code itself is there."""
    error = failure(overflow(), ask)
    assert type(error) is base.OpenAIInvalidRequestError
    assert not isinstance(error, ContextOverflowError)
    assert error.code == "context_length_exceeded"


@every_door
def test_context_overflow_that_is_recognised(ask: Ask) -> None:
    """Newer models word it so that LangChain knows it."""
    error = failure(overflow("Input tokens exceed the configured limit of 272000 tokens."), ask)
    assert type(error) is base.OpenAIContextOverflowError
    assert isinstance(error, ContextOverflowError)
    assert not isinstance(error, ModelInvalidRequestError)
    assert error.is_retryable is False


def test_the_client_retries_by_default() -> None:
    """`max_retries` is 2 unless it is given: an agent with retries of its own would multiply them."""
    busy = status(429, "slow down", retry_after=0.01)
    with OpenAIServer([busy, busy, answer("at last")]) as server:
        said = ChatOpenAI(base_url=server.url, api_key="test", model="test").invoke("hi")
    assert said.content == "at last"
    assert [request.headers["x-stainless-retry-count"] for request in server.requests] == ["0", "1", "2"]


# --- What breaks on the way ------------------------------------------------------------------------------------------


@every_door
@pytest.mark.parametrize("after_bytes", [0, 300])
def test_cut(ask: Ask, after_bytes: int) -> None:
    error = failure(cut(after_bytes), ask)
    assert type(error) is base.OpenAIConnectionError
    assert isinstance(error, ModelConnectionError)
    assert error.is_retryable is True


@every_door
def test_unreachable(ask: Ask) -> None:
    server = OpenAIServer([])
    server.close()
    with pytest.raises(base.OpenAIConnectionError) as caught:
        ask(model(server))
    assert caught.value.is_retryable is True


@whole
def test_cut_behind_a_polite_proxy(ask: Ask) -> None:
    """Half a body that is framed as a whole one is broken JSON."""
    assert type(failure(cut(300, clean=True), ask)) is json.JSONDecodeError


@streamed
def test_stream_cut_behind_a_polite_proxy(ask: Ask) -> None:
    """A stream that ends too soon raises nothing: only the missing `finish_reason` tells."""
    with OpenAIServer([cut(600, answer("hello world, how are you"), clean=True)]) as server:
        said = ask(model(server))
    assert said.content == "hello "
    assert "finish_reason" not in said.response_metadata


@every_door
@pytest.mark.parametrize("after_bytes", [None, 300])
def test_slow(ask: Ask, after_bytes: int | None) -> None:
    """The client's timeout is between two reads, so it also ends a body that stalls in the middle."""
    error = failure(slow(30, answer("late"), after_bytes), ask, timeout=0.2)
    assert type(error) is base.OpenAITimeoutError
    assert isinstance(error, ModelTimeoutError)
    assert not isinstance(error, ModelConnectionError)
    assert error.is_retryable is True


def test_stream_that_stalls_has_a_timeout_of_its_own() -> None:
    """`stream_chunk_timeout` raises what is no `ModelError`, and in async streams only."""
    error = failure(slow(30, answer("late"), after_bytes=300), astream, stream_chunk_timeout=0.2)
    assert type(error) is StreamChunkTimeoutError
    assert isinstance(error, TimeoutError)
    assert not isinstance(error, ModelError)


@every_door
def test_malformed(ask: Ask) -> None:
    """A body that is not JSON is a `ValueError`, and no `ModelError`."""
    error = failure(malformed(), ask)
    assert type(error) is json.JSONDecodeError


@whole
def test_empty(ask: Ask) -> None:
    """No choices: LangChain takes the first one all the same."""
    assert type(failure(empty(), ask)) is IndexError


@streamed
def test_empty_stream(ask: Ask) -> None:
    """Streamed, no choices are an empty message without a `finish_reason`."""
    with OpenAIServer([empty()]) as server:
        said = ask(model(server))
    assert (said.content, said.tool_calls) == ("", [])
    assert "finish_reason" not in said.response_metadata


@streamed
def test_stream_that_fails_midway(ask: Ask) -> None:
    """An error inside a stream has no status, so it is the SDK's bare error and no `ModelError`."""
    error = failure(failing_midway("hel", "overloaded"), ask)
    assert type(error) is openai.APIError
    assert not isinstance(error, ModelError)


@every_door
def test_out_of_tokens(ask: Ask) -> None:
    """An answer that stops in the middle raises nothing."""
    with OpenAIServer([answer("hello th", finish="length")]) as server:
        assert ask(model(server)).response_metadata["finish_reason"] == "length"


# --- What the model gets wrong ---------------------------------------------------------------------------------------

HALF = '{"a": 1, "b"'


@whole
def test_arguments_that_are_not_json(ask: Ask) -> None:
    """They come as an invalid call, with their text and the reason."""
    with OpenAIServer([calls(("add", HALF))]) as server:
        said = ask(model(server).bind_tools([add]))
    assert said.tool_calls == []
    [invalid] = said.invalid_tool_calls
    assert (invalid["name"], invalid["args"]) == ("add", HALF)
    assert "not valid JSON" in invalid["error"]
    assert invalid["id"]


@streamed
def test_streamed_arguments_that_are_not_json(ask: Ask) -> None:
    """Streamed, half the JSON is completed by guessing: a valid call with what had arrived. The pieces keep the truth."""
    with OpenAIServer([calls(("add", HALF))]) as server:
        said = ask(model(server).bind_tools([add]))
    assert [call["args"] for call in said.tool_calls] == [{"a": 1}]
    assert said.invalid_tool_calls == []
    assert said.tool_call_chunks[0]["args"] == HALF


@whole
def test_half_a_call_that_invoke_takes_for_whole(ask: Ask) -> None:
    """`invoke` over a stream loses even the pieces; of a call cut in half nothing shows but the missing reason to stop."""
    half = cut(1_300, calls(("add", {"a": 1, "b": 234_567})), clean=True)
    with OpenAIServer([half]) as server:
        said = ask(model(server, streaming=True).bind_tools([add]))
    assert [call["args"] for call in said.tool_calls] == [{"a": 1}]
    assert not hasattr(said, "tool_call_chunks")
    assert "finish_reason" not in said.response_metadata


@streamed
def test_tool_calls_need_not_be_streamed(ask: Ask) -> None:
    """`disable_streaming="tool_calling"` asks for a request with tools whole, so that nothing is guessed."""
    with OpenAIServer([calls(("add", HALF))]) as server:
        said = ask(model(server, disable_streaming="tool_calling").bind_tools([add]))
    assert server.requests[0]["stream"] is False
    assert said.tool_calls == []
    assert said.invalid_tool_calls[0]["args"] == HALF


@whole
def test_arguments_that_are_a_list(ask: Ask) -> None:
    """JSON that is not an object fails the whole reply."""
    with OpenAIServer([calls(("add", "[1]"))]) as server, pytest.raises(ValidationError, match="valid dictionary"):
        ask(model(server).bind_tools([add]))


@streamed
def test_streamed_arguments_that_are_a_list(ask: Ask) -> None:
    """Streamed, it is an invalid call without a reason."""
    with OpenAIServer([calls(("add", "[1]"))]) as server:
        [invalid] = ask(model(server).bind_tools([add])).invalid_tool_calls
    assert (invalid["args"], invalid["error"]) == ("[1]", None)


@every_door
def test_no_arguments(ask: Ask) -> None:
    """No text at all is no arguments."""
    with OpenAIServer([calls(("add", ""))]) as server:
        assert ask(model(server).bind_tools([add])).tool_calls[0]["args"] == {}


@whole
@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize(
    ("reply", "exact"),
    [
        (answer("red, I think"), ValidationError),
        (structured({"colour": "red"}), ValidationError),
        (answer('{"colour": "re', finish="length"), openai.LengthFinishReasonError),
        (answer('{"colour": "re', finish="content_filter"), openai.ContentFilterFinishReasonError),
    ],
)
def test_structured_by_schema_that_does_not_fit(ask: Ask, raw: bool, reply: Reply, exact: type) -> None:
    """The SDK parses into the class and raises, whatever `include_raw` says; none of it is a `ModelError`."""
    with OpenAIServer([reply]) as server, pytest.raises(exact) as caught:
        ask(model(server).with_structured_output(Verdict, include_raw=raw))
    assert type(caught.value) is exact


@whole
def test_structured_by_a_plain_schema_keeps_what_does_not_parse(ask: Ask) -> None:
    """Given a dict instead of a class, `include_raw` works, and the reply and its usage are not lost."""
    schema = Verdict.model_json_schema()
    with OpenAIServer([answer("red, I think")]) as server:
        found = ask(model(server).with_structured_output(schema, include_raw=True))
    assert found["parsed"] is None
    assert "Invalid json output" in str(found["parsing_error"])
    assert found["raw"].usage_metadata["output_tokens"] > 0


@whole
@pytest.mark.parametrize("reply", [answer("red"), calls(("Verdict", "{nope"))])
def test_structured_by_function_that_is_not_called(ask: Ask, reply: Reply) -> None:
    """No call, or a call that is not JSON, is `None` and no error."""
    with OpenAIServer([reply]) as server:
        assert ask(model(server).with_structured_output(Verdict, method="function_calling")) is None


# --- The server itself -----------------------------------------------------------------------------------------------


def test_exhausted_script() -> None:
    """A request too many is a failure of the test, and named as that."""
    with OpenAIServer([answer("one")]) as server:
        model(server).invoke("hi")
        with pytest.raises(ModelAPIError, match="the script is exhausted: request 2 came, 1 replies were written"):
            model(server).invoke("hi")
    assert len(server.requests) == 2
    assert len(server.failures) == 1


def test_script_as_a_function() -> None:
    """Requests of a fan-out are answered at once, each by what it asked."""
    together = threading.Barrier(4)

    def echo(request: dict[str, Any]) -> Reply:
        together.wait(timeout=10)
        return answer(request["messages"][-1]["content"] + "!")

    with OpenAIServer(echo) as server:
        said = model(server).batch(["a", "b", "c", "d"])
    assert [message.content for message in said] == ["a!", "b!", "c!", "d!"]
    assert len({message.response_metadata["id"] for message in said}) == 4


def test_script_that_raises() -> None:
    def wrong(request: dict[str, Any]) -> Reply:
        raise LookupError(request["model"])

    with OpenAIServer(wrong) as server, pytest.raises(ModelAPIError):
        model(server).invoke("hi")
    assert server.failures == ["the script raised LookupError('test')"]


def test_other_doors_are_shut() -> None:
    """A model that LangChain sends to the Responses API by its name does not find it."""
    with OpenAIServer([]) as server, pytest.raises(ModelNotFoundError):
        model(server, model="gpt-5-pro").invoke("hi")
    assert server.failures == ["nothing is served at /v1/responses"]


def test_a_body_that_is_no_request() -> None:
    with OpenAIServer([]) as server:
        request = urllib.request.Request(f"{server.url}/chat/completions", data=b"[1]", method="POST")  # noqa: S310
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request)  # noqa: S310
        caught.value.close()
    assert (caught.value.code, server.failures) == (400, ["the request is not a JSON object"])


@every_door
@pytest.mark.parametrize("after_bytes", [None, 300])
def test_close_ends_what_is_slow(ask: Ask, after_bytes: int | None) -> None:
    """Closing does not wait for a wait, and the client sees a lost connection."""
    before = set(threading.enumerate())
    server = OpenAIServer([slow(3_600, answer("never"), after_bytes)])
    mine = set(threading.enumerate()) - before
    killer = threading.Timer(0.2, server.close)
    killer.start()
    with pytest.raises(ModelConnectionError):
        ask(model(server))
    killer.join()
    assert not any(thread.is_alive() for thread in mine)
    server.close()


def test_keep_alive() -> None:
    """Connections are kept on demand, and closing does not wait for those that are idle."""
    with openai.DefaultHttpxClient() as client, OpenAIServer([answer("a"), answer("b")], keep_alive=True) as server:
        assert [model(server, http_client=client).invoke("hi").content for _ in range(2)] == ["a", "b"]
        assert server.connections == 1
        server.close()
