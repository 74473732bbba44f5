"""For tests of agents, ours and yours: a model that follows a script, a clock that stands still, tools that count."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from pydantic import Field, PrivateAttr

from graph_agent.errors import SetupError
from graph_agent.patch import canonical, hashed
from graph_agent.prompts import PROMPTS
from graph_agent.slicing import utf8_bytes
from graph_agent.tools import Tool, tool

Line = Any


def calls(*wanted: tuple[str, Mapping[str, Any]], text: str = "") -> AIMessage:
    """Make a reply that calls tools: `calls(("search", {"query": "x"}))`."""
    made = [
        {
            "name": name,
            "args": dict(args),
            "id": f"call-{hashed(name, canonical(args), str(place))}",
            "type": "tool_call",
        }
        for place, (name, args) in enumerate(wanted)
    ]
    return AIMessage(text, tool_calls=made)


class ScriptedModel(BaseChatModel):
    """A chat model that says what a script says, by node: `ScriptedModel(plan=[["look"]], act=[calls(…), "found it"])`.

    A line of `plan` is a list of titles; of `reflect`, `"continue"`, `"replan"` or `"stop"`; of `act` and `answer`,
    text or `calls(…)`. A line may be a dict (a structure), an exception to raise, or a function of the messages that
    gives a line. Which line is said follows from how many decisions the thread has of that node, so a script goes on
    where it was after a restart. A script that is at its end repeats its last line, where `strict` is false.
    """

    script: dict[str, list[Any]] = Field(default_factory=dict)
    strict: bool = True
    _asked: list[tuple[str, list[BaseMessage]]] = PrivateAttr(default_factory=list)
    _tries: dict[tuple[str, str, int], int] = PrivateAttr(default_factory=dict)

    def __init__(
        self, script: Mapping[str, Sequence[Line]] | None = None, *, strict: bool = True, **nodes: Sequence[Line]
    ) -> None:
        """Take the lines of each node."""
        for node in {**(script or {}), **nodes}:
            if node not in PROMPTS:
                raise SetupError(f"there is no node {node!r} that asks a model; they are {', '.join(PROMPTS)}")
        super().__init__(script={k: list(v) for k, v in {**(script or {}), **nodes}.items()}, strict=strict)  # type: ignore[call-arg]

    @property
    def asked(self) -> list[tuple[str, list[BaseMessage]]]:
        """Give every question so far: the node and the messages."""
        return self._asked

    @property
    def model_name(self) -> str:
        """Give the name that decisions record."""
        return "scripted"

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[LanguageModelInput, AIMessage]:
        """Take tools, as any chat model that can call them."""
        names = [one.get("title") or one.get("function", {}).get("name", "") for one in tools if isinstance(one, dict)]
        return self.bind(tools=names, **{k: v for k, v in kwargs.items() if k != "ls_structured_output_format"})

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002  a script ends where it ends
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        about = (run_manager.metadata if run_manager else None) or {}
        node = str(about.get("node", "act"))
        self._asked.append((node, messages))
        line = self._line(node, about)
        while callable(line):
            line = line(messages)
        if isinstance(line, BaseException):
            raise line
        reply = _reply(node, line, kwargs.get("tools") or [])
        size = sum(utf8_bytes(str(message.content)) for message in messages)
        reply.usage_metadata = _usage(size // 4, utf8_bytes(str(reply.content)) // 4 + 1)  # type: ignore[assignment]
        return ChatResult(generations=[ChatGeneration(message=reply)])

    def _line(self, node: str, about: Mapping[str, Any]) -> Line:
        lines = self.script.get(node)
        if not lines:
            raise LookupError(f"the script has no lines for {node!r}")
        place = int(about.get("call", 0))
        line = lines[min(place, len(lines) - 1)]
        if place >= len(lines) and self.strict:
            raise LookupError(
                f"the script of {node!r} is used up: it has {len(lines)} line{'s' * (len(lines) != 1)}, and was asked"
                f" for line {place + 1}; give a thread that is done another script, or this script another thread"
            )
        if isinstance(line, Tries):
            key = (str(about.get("thread")), node, place)
            self._tries[key] = self._tries.get(key, -1) + 1
            return line.lines[min(self._tries[key], len(line.lines) - 1)]
        return line


class Tries:
    """Lines for the same question asked again: `Tries(ConnectionError(), "now it works")`."""

    def __init__(self, *lines: Line) -> None:
        """Take one line for each try."""
        self.lines = lines


def _usage(input_: int, output: int) -> dict[str, int]:
    return {"input_tokens": input_, "output_tokens": output, "total_tokens": input_ + output}


def _reply(node: str, line: Line, tools: Sequence[str]) -> AIMessage:
    if isinstance(line, AIMessage):
        return line.model_copy()
    if node == "plan" and isinstance(line, list | tuple):
        line = {"steps": [{"title": title} if isinstance(title, str) else title for title in line]}
    if node == "reflect" and isinstance(line, str):
        line = {"verdict": line}
    if isinstance(line, dict):
        call = {"name": tools[0] if tools else "", "args": line, "id": "structure", "type": "tool_call"}
        return AIMessage(json.dumps(line), tool_calls=[call])
    return AIMessage(str(line))


class FrozenClock:
    """A clock that stands still until it is told, or somebody sleeps by it."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        """Begin at a moment."""
        self.now = now
        self.naps: list[float] = []

    def __call__(self) -> float:
        """Give the time."""
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Let the time pass at once."""
        self.naps.append(seconds)
        self.now += seconds


class Deliveries:
    """What stand-in tools did, in order."""

    def __init__(self) -> None:
        """Begin with nothing done."""
        self.done: list[tuple[str, dict[str, Any]]] = []

    def __len__(self) -> int:
        return len(self.done)

    def tool(self, name: str = "deliver", *, risk: str = "external_action", fails: Sequence[Any] = ()) -> Tool:
        """Make a tool `name(to, body)` that notes each delivery; `fails` are raised first, one by one."""
        trouble = list(fails)

        def deliver(to: str, body: str = "") -> str:
            """Deliver something to somebody."""
            if trouble:
                raise trouble.pop(0)
            self.done.append((name, {"to": to, "body": body}))
            return f"delivered to {to}"

        return tool(risk=risk, name=name)(deliver)


def lookup(answers: Mapping[str, str] | Callable[[str], str], name: str = "search") -> Tool:
    """Make a read-only tool that answers queries from a dict or by a function."""

    def search(query: str) -> str:
        """Look something up."""
        return answers(query) if callable(answers) else answers.get(query, "nothing found")

    return tool(risk="read_only", name=name)(search)
