"""The tools of an agent; the only place that calls one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from graph_agent.errors import SetupError, ToolError
from graph_agent.policies import check_risks
from graph_agent.running import run
from graph_agent.tools import (
    KEY,
    RESULT,
    UNKNOWN_RISK,
    NotDone,
    OncePer,
    Outcome,
    Risk,
    Tool,
    compensation_of,
    once_per_of,
    outcome_of,
    tool,
)


class Toolbox:
    """The tools of an agent, by name; the only caller of a tool."""

    def __init__(self, tools: Iterable[Tool | BaseTool | Callable[..., Any]] = ()) -> None:
        """Take tools, LangChain tools, or plain functions; whose risk is not said, is an `external_action`."""
        self._tools: dict[str, Tool] = {}
        if isinstance(tools, Tool | BaseTool):
            raise SetupError(f"tools={tools.name} is one tool; write tools=[{tools.name}]")
        for one in tools:
            self.add(one)

    def add(self, one: Tool | BaseTool | Callable[..., Any], *, risk: Risk | None = None, **options: Any) -> Toolbox:
        """Add a tool; of a LangChain tool or a plain function, say the risk here."""
        if not isinstance(one, Tool):
            risk = UNKNOWN_RISK if risk is None else risk
            check_risks(risk)
            one = _foreign(one, risk, **options) if isinstance(one, BaseTool) else tool(risk=risk, **options)(one)
        elif risk is not None or options:
            said = ", ".join(["risk"] * (risk is not None) + list(options))
            raise SetupError(f"{one.name!r} is a tool already; say its {said} where it is made", tool=one.name)
        if one.name in self._tools:
            raise SetupError(f"there are two tools called {one.name!r}", tool=one.name)
        self._tools[one.name] = one
        return self

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def find(self, name: str) -> Tool | None:
        """Give a tool by name, None if there is none."""
        return self._tools.get(name)

    def get(self, name: str) -> Tool:
        """Give a tool by name; raises `ToolError` that names those there are."""
        found = self._tools.get(name)
        if found is None:
            raise ToolError(f"there is no tool {name!r}; the tools are {', '.join(self._tools) or 'none'}")
        return found

    def schemas(self) -> list[dict[str, Any]]:
        """Give what a model is told about the tools."""
        return [_offered(one) for one in self._tools.values()]

    async def call(self, name: str, args: Mapping[str, Any], *, deadline: float | None, key: str = "") -> Outcome:
        """Call a tool; whatever it raises comes out as it is. `key` is that of its effect."""
        one = self.get(name)
        return outcome_of(await one.run(one.checked(args), _limit(one, deadline), key))

    async def probe(self, name: str, key: str, args: Mapping[str, Any], *, deadline: float | None) -> Outcome | NotDone:
        """Ask whether an effect was made."""
        one = self.get(name)
        if one.probe is None:
            raise ToolError(f"{name} has no probe")
        found = await run(f"the probe of {name}", one.probe, _placed(one.probe, key, args), _limit(one, deadline))
        return found if isinstance(found, NotDone) else outcome_of(found)

    async def compensate(
        self, name: str, args: Mapping[str, Any], *, result: str, key: str, deadline: float | None
    ) -> Outcome:
        """Take an effect back, knowing its arguments, its result, and the key of taking it back."""
        one = self.get(name)
        own = one.compensate if isinstance(one.compensate, Tool) else None
        function = own.function if own else one.compensate
        if function is None:
            raise ToolError(f"{name} has no compensation")
        offered = {**one.typed(args, defaults=True), RESULT: result, KEY: key}
        given = {name: offered[name] for name in inspect.signature(function).parameters if name in offered}
        return outcome_of(await run(f"undo {name}", function, given, _limit(own or one, deadline)))


def _limit(one: Tool, deadline: float | None) -> float | None:
    return one.deadline if one.deadline is not None else deadline


def _placed(probe: Callable[..., Any], key: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """Give a probe its two arguments, whatever it calls them."""
    names = list(inspect.signature(probe).parameters)
    return dict(zip(names, (key, dict(args)), strict=False))


def _foreign(
    one: BaseTool, risk: Risk, *, once_per: OncePer = (), compensate: Callable[..., Any] | None = None, **options: Any
) -> Tool:
    """Take a LangChain tool."""
    return Tool(one, risk, once_per=once_per_of(one, once_per), compensate=compensation_of(one, compensate), **options)


@functools.lru_cache(maxsize=256)
def _offered(one: Tool) -> dict[str, Any]:
    """Give what a model is told of a tool; the key is not the model's to say."""
    offered = convert_to_openai_tool(one.schema)
    parameters = offered["function"].get("parameters", {})
    if KEY not in parameters.get("properties", {}):
        return offered
    properties = {name: value for name, value in parameters["properties"].items() if name != KEY}
    required = [name for name in parameters.get("required", ()) if name != KEY]
    parameters = {**parameters, "properties": properties, "required": required}
    return {**offered, "function": {**offered["function"], "parameters": parameters}}
