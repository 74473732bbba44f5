"""Tools: what the agent can do, with what risk; and the only place that calls one."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar, overload

from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel, ValidationError

from graph_agent.errors import SetupError, ToolError
from graph_agent.patch import Patch, canonical, clean, unkeepable
from graph_agent.policies import Retry, check_risks

F = TypeVar("F", bound=Callable[..., Any])
Risk = str
UNKNOWN_RISK: Final = "external_action"  # of a tool whose author did not say: a person looks, nothing is repeated


class InvalidArgumentsError(ToolError):
    """Arguments that the tool's signature does not take; the model is told, and may try again."""


class MayStillRunError(ToolError):
    """A call that passed its deadline and could not be stopped: whether it happens is unknown."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a call: text for the model, and a patch if the tool wrote one."""

    text: str
    patch: Patch | None = None


@dataclass(frozen=True, eq=False)
class Tool:
    """A function the agent may call; still a function for everyone else."""

    schema: BaseTool
    risk: Risk
    function: Callable[..., Any] | None = None
    once_per: tuple[str, ...] = ()
    retry: Retry | None = None
    deadline: float | None = None

    @property
    def name(self) -> str:
        """Give the name the model calls it by."""
        return self.schema.name

    @property
    def description(self) -> str:
        """Say what it does."""
        return self.schema.description

    @property
    def arguments(self) -> type[BaseModel] | None:
        """Give the types of the arguments; None where the tool has a bare JSON schema."""
        schema = self.schema.tool_call_schema
        return schema if isinstance(schema, type) and issubclass(schema, BaseModel) else None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, outside any agent."""
        if self.function is None:
            return self.schema.invoke(kwargs)
        return self.function(*args, **kwargs)

    def checked(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Give the arguments as plain data of the declared types; raises `InvalidArgumentsError`."""
        if problem := unkeepable(args):
            raise InvalidArgumentsError(f"{self.name}: {problem[0]}: {problem[1]}")
        model = self.arguments
        if model is None:
            return dict(args)
        unknown = set(args) - set(model.model_fields)
        if unknown and model.model_config.get("extra") != "allow":
            names = ", ".join(model.model_fields) or "no arguments"
            raise InvalidArgumentsError(f"{self.name} has no argument {min(unknown)!r}; it takes {names}")
        try:
            return model.model_validate(dict(args)).model_dump(mode="json", exclude_unset=True)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise InvalidArgumentsError(f"{self.name}: {place}: {first['msg']}") from error

    async def run(self, args: Mapping[str, Any], deadline: float | None) -> Any:
        """Call it with checked arguments; a sync tool runs on a thread of its own."""
        given = dict(args) if self.function is None else self._typed(args)
        try:
            if self._is_async():
                made = self.schema.ainvoke(given) if self.function is None else self.function(**given)
                return await self._in_time(made, deadline)
            if self.function is None:
                return await self._on_thread(lambda: self.schema.invoke(given), deadline)
            return await self._on_thread(functools.partial(self.function, **given), deadline)
        except (SystemExit, KeyboardInterrupt) as end:
            raise ToolError(f"{self.name} tried to end the program: {end!r}") from end

    def _is_async(self) -> bool:
        """Tell whether it can be stopped; LangChain's own async twin of a sync tool is a thread, which cannot."""
        if self.function is not None:
            return inspect.iscoroutinefunction(self.function)
        if hasattr(self.schema, "coroutine"):
            return self.schema.coroutine is not None
        return type(self.schema)._arun is not BaseTool._arun  # noqa: SLF001  its way to say so

    async def _in_time(self, work: Awaitable[Any], deadline: float | None) -> Any:
        limit = asyncio.timeout(deadline)
        try:
            async with limit:
                return await work
        except TimeoutError as error:
            if limit.expired():
                raise TimeoutError(f"{self.name} passed its deadline of {deadline:g} s") from error
            raise

    async def _on_thread(self, work: Callable[[], Any], deadline: float | None) -> Any:
        """Run what cannot be stopped where it holds up nobody: a pool would be full of calls that hang."""
        loop, context = asyncio.get_running_loop(), contextvars.copy_context()
        ended: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

        def tell(result: Any, error: BaseException | None) -> None:
            if not ended.done():
                ended.set_result((result, error))

        def run() -> None:
            try:
                outcome: tuple[Any, BaseException | None] = context.run(work), None
            except BaseException as error:  # noqa: BLE001  raised again where the call is awaited
                outcome = None, error
            with suppress(RuntimeError):  # the loop has ended: nobody waits
                loop.call_soon_threadsafe(tell, *outcome)

        threading.Thread(target=run, name=f"tool {self.name}", daemon=True).start()
        done, _ = await asyncio.wait({ended}, timeout=deadline)
        if not done:
            raise MayStillRunError(f"{self.name} passed its deadline of {deadline:g} s and may still be running")
        result, error = ended.result()
        if error is not None:
            raise error
        return result

    def _typed(self, args: Mapping[str, Any]) -> dict[str, Any]:
        model = self.arguments
        if model is None:
            return dict(args)
        made = model.model_validate(dict(args))
        return {name: getattr(made, name) for name in model.model_fields if name in made.model_fields_set}


@overload
def tool(function: F, /) -> Tool: ...
@overload
def tool(
    *,
    risk: Risk = ...,
    once_per: Iterable[str] = ...,
    retry: Retry | None = ...,
    deadline: float | None = ...,
    name: str | None = ...,
) -> Callable[[F], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    risk: Risk = UNKNOWN_RISK,
    once_per: Iterable[str] = (),
    retry: Retry | None = None,
    deadline: float | None = None,
    name: str | None = None,
) -> Any:
    """Make a tool of a function, sync or async, typed by its signature and described by its docstring.

    Args:
        function: the function, when used without parentheses.
        risk: `read_only`, `write_local`, `external_action` or `irreversible`; reviews and retries depend on it. A tool
            whose risk is not said is taken for an `external_action`.
        once_per: the arguments that make two calls the same effect.
        retry: how to try again; without it only `read_only` tools are tried again.
        deadline: seconds that one call may take.
        name: what the model calls it by; the function's name by default.
    """
    check_risks(risk)

    def make(function: Callable[..., Any]) -> Tool:
        known = inspect.signature(function).parameters
        for argument in once_per:
            if argument not in known:
                raise SetupError(f"once_per names {argument!r}, which {function.__name__} does not take", name=argument)
        return Tool(_schema(function, name), risk, function, tuple(once_per), retry, deadline)

    return make if function is None else make(function)


def _schema(function: Callable[..., Any], name: str | None) -> BaseTool:
    described = inspect.getdoc(function) or f"{function.__name__}{inspect.signature(function)}"
    given = {"coroutine": function} if inspect.iscoroutinefunction(function) else {"func": function}
    return StructuredTool.from_function(name=name or function.__name__, description=described, **given)  # type: ignore[arg-type]


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
            one = Tool(one, risk, **options) if isinstance(one, BaseTool) else tool(risk=risk, **options)(one)
        if one.name in self._tools:
            raise SetupError(f"there are two tools called {one.name!r}", tool=one.name)
        self._tools[one.name] = one
        return self

    def __iter__(self) -> Any:
        return iter(self._tools.values())

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def get(self, name: str) -> Tool:
        """Give a tool by name; raises `ToolError` that names those there are."""
        found = self._tools.get(name)
        if found is None:
            raise ToolError(f"there is no tool {name!r}; the tools are {', '.join(self._tools) or 'none'}")
        return found

    def schemas(self) -> list[dict[str, Any]]:
        """Give what a model is told about the tools."""
        return [_offered(one) for one in self._tools.values()]

    async def call(self, name: str, args: Mapping[str, Any], *, deadline: float | None) -> Outcome:
        """Call a tool; whatever it raises comes out as it is."""
        one = self.get(name)
        result = await one.run(one.checked(args), one.deadline if one.deadline is not None else deadline)
        return _outcome(result)


@functools.lru_cache(maxsize=256)
def _offered(one: Tool) -> dict[str, Any]:
    return convert_to_openai_tool(one.schema)


def _outcome(result: Any) -> Outcome:
    patch = None
    if isinstance(result, Patch):
        return Outcome("(done)", result)
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Patch):  # noqa: PLR2004  value, patch
        result, patch = result
    if result is None:
        return Outcome("(no output)", patch)
    return Outcome(clean(result if isinstance(result, str) else canonical(result)), patch)
