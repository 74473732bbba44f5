"""The one door to a model: any LangChain chat model, asked for calls, text or a structure; with repairs and usage."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from json import JSONDecodeError
from typing import Any, Final, Generic, TypeVar

from langchain_core.exceptions import ContextOverflowError, OutputParserException
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from pydantic import BaseModel, ValidationError

from graph_agent.errors import MalformedReplyError, NoModelError, SetupError
from graph_agent.patch import canonical, clean
from graph_agent.slicing import Message, utf8_bytes

S = TypeVar("S", bound=BaseModel)
REPAIRS: Final = 2
BYTES_PER_TOKEN: Final = 4.0
_BROKEN: Final = {
    "length": "it was cut off for its length",
    "max_tokens": "it was cut off for its length",
    "content_filter": "it was cut off by a content filter",
    "safety": "it was cut off by a content filter",
}
_ENDS: Final = ("finish_reason", "stop_reason", "done_reason")  # the same thing, as providers call it
_CUT: Final = {"LengthFinishReasonError": "length", "ContentFilterFinishReasonError": "content_filter"}
_GARBAGE: Final = (JSONDecodeError, IndexError, KeyError, ValidationError, OutputParserException)


class GarbledReplyError(MalformedReplyError):
    """An answer that broke off or is no answer at all; asking again may help."""

    is_retryable = True


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model answered, what it cost, and what had to be repaired on the way."""

    text: str
    calls: list[dict[str, Any]] = field(default_factory=list)
    tokens: dict[str, int] = field(default_factory=dict)
    repairs: list[dict[str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Structured(Generic[S]):
    """A structure that a model filled in, what it cost, and what had to be repaired on the way."""

    value: S
    tokens: dict[str, int]
    repairs: list[dict[str, str]]


class Model:
    """A chat model as the nodes use it."""

    def __init__(self, model: str | BaseChatModel) -> None:
        """Take `"openai:NAME"`, or any LangChain chat model."""
        self.chat = model if isinstance(model, BaseChatModel) else _named(model)
        self.name = str(
            getattr(self.chat, "model_name", None) or getattr(self.chat, "model", None) or type(self.chat).__name__
        )

    async def reply(
        self, messages: Sequence[Message], *, tools: Sequence[dict[str, Any]] = (), about: Mapping[str, Any]
    ) -> Reply:
        """Ask for text or calls; calls with unreadable arguments are sent back to be repaired."""
        chat = self.chat.bind_tools(list(tools)) if tools else self.chat
        spent, repairs, sent = _Spent(messages), list[dict[str, str]](), _spoken(messages)
        for _ in range(REPAIRS + 1):
            answer = await _asked(chat, sent, about)
            spent.add(answer)
            problem = _problem(answer)
            if problem is None:
                calls = [{name: _clean(call[name]) for name in ("id", "name", "args")} for call in answer.tool_calls]
                return Reply(clean(_text(answer)), calls, spent.tokens, repairs)
            sent = [*sent, *_repaired(answer, f"could not be read: {problem}", repairs, problem)]
        raise MalformedReplyError(
            f"{self.name} did not send readable calls: {repairs[-1]['problem']}", repairs=repairs, tokens=spent.tokens
        )

    async def structured(
        self, messages: Sequence[Message], schema: type[S], *, about: Mapping[str, Any]
    ) -> Structured[S]:
        """Ask for a structure; what does not fit it is sent back to be repaired."""
        chat = self.chat.with_structured_output(_plain_schema(schema), include_raw=True)
        spent, repairs, sent = _Spent(messages), list[dict[str, str]](), _spoken(messages)
        for _ in range(REPAIRS + 1):
            found = await _asked(chat, sent, about)
            raw = found["raw"]
            spent.add(raw)
            try:
                if found["parsing_error"] or found["parsed"] is None:
                    raise ValueError(str(found["parsing_error"] or "there is no structure in the answer"))  # noqa: TRY301
                return Structured(schema.model_validate(_clean(found["parsed"])), spent.tokens, repairs)
            except ValueError as error:
                problem = _refusal(raw) or _short(error)
            sent = [*sent, *_repaired(raw, f"does not fit {schema.__name__}: {problem}", repairs, problem)]
        raise MalformedReplyError(
            f"{self.name} did not fill in {schema.__name__}: {repairs[-1]['problem']}", repairs=repairs,
            tokens=spent.tokens,
        )  # fmt: skip


async def _asked(chat: Any, messages: list[BaseMessage], about: Mapping[str, Any]) -> Any:
    try:
        return await chat.ainvoke(messages, config={"metadata": dict(about), "tags": [str(about.get("node", ""))]})
    except _GARBAGE as error:
        raise GarbledReplyError(f"the answer is no reply: {type(error).__name__}: {_short(error)}") from error
    except Exception as error:
        if type(error).__name__ not in _CUT:
            raise
        return {"raw": _half(error), "parsed": None, "parsing_error": _BROKEN[_CUT[type(error).__name__]]}


def _half(error: Any) -> AIMessage:
    """Give the half of an answer that the client raised, with what it cost."""
    whole = getattr(error, "completion", None)
    used = getattr(whole, "usage", None)
    counts = {"input_tokens": used.prompt_tokens, "output_tokens": used.completion_tokens} if used else {}
    usage = {**counts, "total_tokens": sum(counts.values())} if counts else None
    text = whole.choices[0].message.content if whole and whole.choices else ""
    return AIMessage(text or "", usage_metadata=usage)


def _repaired(answer: AIMessage, told: str, repairs: list[dict[str, str]], problem: str) -> list[BaseMessage]:
    """Note what was wrong with an answer, and give what is said about it: its own words, and that they do not do."""
    said = clean(_text(answer)[:500] or _raw_calls(answer))
    repairs.append({"reply": said, "problem": clean(problem)})
    wish = HumanMessage(clean(f"That {told}. Send it again, complete and valid."))
    return [AIMessage(said), wish] if said else [wish]


def is_overflow(error: BaseException) -> bool:
    """Tell whether a model refused a request because it was too long."""
    return isinstance(error, ContextOverflowError) or getattr(error, "code", None) == "context_length_exceeded"


def _named(name: Any) -> BaseChatModel:
    if not isinstance(name, str):
        raise SetupError(f"{name!r} is no model; write 'openai:NAME', or pass a LangChain chat model")
    provider, _, model = name.partition(":")
    if provider != "openai" or not model:
        raise SetupError(f"{name!r} names no model; write 'openai:NAME', or pass a LangChain chat model", model=name)
    key, address = os.environ.get("OPENAI_API_KEY"), os.environ.get("OPENAI_BASE_URL")
    if not key and not address:
        raise NoModelError(
            f"{name!r} needs OPENAI_API_KEY (or OPENAI_BASE_URL for a server of your own) to be set; `make demo` runs"
            " without a model.",
            model=name,
        )
    from langchain_openai import ChatOpenAI  # noqa: PLC0415  half a second that other models need not pay

    # Retries are the agent's, so that they are counted; calls are not streamed, for half of a broken one looks whole.
    return ChatOpenAI(model=model, max_retries=0, disable_streaming="tool_calling", api_key=key or "none")  # type: ignore[arg-type]


def _spoken(messages: Iterable[Message]) -> list[BaseMessage]:
    return [_message(message) for message in messages]


def _message(message: Message) -> BaseMessage:
    role, content = message["role"], message.get("content", "")
    if role == "system":
        return SystemMessage(content)
    if role == "tool":
        return ToolMessage(content, tool_call_id=message["tool_call_id"])
    if role == "assistant":
        calls = [{**call, "type": "tool_call"} for call in message.get("tool_calls") or ()]
        return AIMessage(content, tool_calls=calls)
    return HumanMessage(content)


def _text(message: BaseMessage) -> str:
    return str(message.text)


def _problem(answer: AIMessage) -> str | None:
    """Say what is wrong with an answer that came, None if nothing is."""
    told = answer.response_metadata
    finish = next((str(told[end]).lower() for end in _ENDS if told.get(end)), None)
    if finish is None and told.get("model_provider") == "openai":
        return "it broke off before its end"
    if answer.invalid_tool_calls:
        bad = answer.invalid_tool_calls[0]
        return f"the arguments of {bad.get('name')} are not valid JSON"
    if finish in _BROKEN:
        return _BROKEN[finish]
    if not answer.tool_calls and not _text(answer).strip():
        return _refusal(answer) or "it is empty"
    return None


def _refusal(answer: AIMessage) -> str | None:
    refusal = answer.additional_kwargs.get("refusal")
    return f"it was refused: {refusal}" if refusal else None


def _clean(value: Any) -> Any:
    """Make plain data from a model storable everywhere, its keys too."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {_clean(key): _clean(part) for key, part in value.items()}
    return [_clean(part) for part in value] if isinstance(value, list) else value


def _raw_calls(message: AIMessage) -> str:
    bad = [(call.get("name"), call.get("args")) for call in message.invalid_tool_calls]
    good = [(call["name"], canonical(call["args"])) for call in message.tool_calls]
    return "; ".join(f"{name}({args})" for name, args in [*bad, *good])[:500]


def _plain_schema(schema: type[BaseModel]) -> dict[str, Any]:
    """Give the schema as plain JSON schema: with a class, a reply that does not fit it would be lost."""
    plain = schema.model_json_schema()
    return {"description": (schema.__doc__ or "").strip(), **plain, "title": schema.__name__}


def _short(error: BaseException) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc'])) or 'it'}: {first['msg']}"
    return str(error).splitlines()[0][:300] if str(error) else type(error).__name__


class _Spent:
    """The tokens that one question cost, its repairs included."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._estimate = estimate(messages)
        self.tokens = {"input": 0, "output": 0, "estimated": 0}

    def add(self, answer: Any) -> None:
        usage = getattr(answer, "usage_metadata", None) or {}
        self.tokens["estimated"] += self._estimate
        self.tokens["input"] += usage.get("input_tokens", 0) or self._estimate
        self.tokens["output"] += usage.get("output_tokens", 0) or round(utf8_bytes(_text(answer)) / BYTES_PER_TOKEN)


def estimate(messages: Iterable[Message]) -> int:
    """Estimate the tokens of a question before it is asked, by its bytes."""
    return round(sum(utf8_bytes(str(message.get("content", ""))) + 12 for message in messages) / BYTES_PER_TOKEN)


def calibrated(tokens: Iterable[Mapping[str, int]]) -> float:
    """Give by how much estimates have been off: the provider's counts over ours, of the last decisions."""
    last = list(tokens)[-8:]
    ours = sum(one.get("estimated", 0) for one in last)
    return sum(one.get("input", 0) for one in last) / ours if ours else 1.0
