"""Tools: what the agent can do, with what risk, what makes two calls the same, how to find out, how to take it back."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar, overload

from langchain_core.tools import BaseTool, StructuredTool, create_schema_from_function
from pydantic import BaseModel, ValidationError

from graph_agent.arguments import plainly
from graph_agent.errors import SetupError, ToolError
from graph_agent.patch import Patch, canonical, clean, hashed, unkeepable
from graph_agent.policies import Retry, check_risks
from graph_agent.running import in_time, on_thread, run

F = TypeVar("F", bound=Callable[..., Any])
Risk = str
UNKNOWN_RISK: Final = "external_action"  # of a tool whose author did not say: a person looks, nothing is repeated
KEY: Final = "idempotency_key"
RESULT: Final = "result"
OncePer = Iterable[str] | Literal["call"]


class NotDone:
    """What a probe answers when the effect was not made."""

    def __repr__(self) -> str:
        return "NOT_DONE"


NOT_DONE: Final = NotDone()


class InvalidArgumentsError(ToolError):
    """Arguments that the tool's signature does not take; the model is told, and may try again."""


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
    once_per: tuple[str, ...] | Literal["call"] = ()
    retry: Retry | None = None
    deadline: float | None = None
    probe: Callable[..., Any] | None = None
    compensate: Callable[..., Any] | None = None

    @property
    def has_effect(self) -> bool:
        """Tell whether a call may change the world, and is noted in the ledger."""
        return self.risk != "read_only"

    @functools.cached_property
    def takes_key(self) -> bool:
        """Tell whether whoever carries it out knows a repeated call by its key."""
        if self.function is not None:
            return KEY in inspect.signature(self.function).parameters
        return KEY in self.schema.args

    def identity(self, args: Mapping[str, Any], call: str) -> str:
        """Give what two calls have in common that are the same effect: `once_per` says which arguments count."""
        said = self._said(args)
        if self.once_per == "call":  # with its arguments: not every model's ids are its own for ever
            return hashed(call, canonical(said), length=32)
        return hashed(canonical({name: said[name] for name in self.once_per or said if name in said}), length=32)

    def _said(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Give the arguments that are not as ever: a new one with a default makes no other effects of old calls."""
        if self.arguments is None:
            return dict(args)
        made, fields = self._validated(args), self.arguments.model_fields
        made_anew = {name for name, field in fields.items() if field.default_factory is not None}
        return plainly(made, exclude_defaults=True, exclude={KEY} | (made_anew - made.model_fields_set))

    def _validated(self, args: Mapping[str, Any]) -> BaseModel:
        """Check arguments; a tool of others may have the key among them, which is not there yet."""
        model = self.arguments
        assert model is not None  # noqa: S101  who calls this has asked
        return model.model_validate({**args, **({KEY: ""} if KEY in model.model_fields else {})})

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
        if KEY in args and self.takes_key:
            raise InvalidArgumentsError(f"{self.name} has no argument {KEY!r}: it is not yours to say")
        if model is None:
            return dict(args)
        known = [name for name in model.model_fields if name != KEY]
        unknown = set(args) - set(known)
        if unknown and (model.model_config.get("extra") != "allow" or KEY in unknown):
            names = ", ".join(known) or "no arguments"
            raise InvalidArgumentsError(f"{self.name} has no argument {min(unknown)!r}; it takes {names}")
        try:
            checked = plainly(self._validated(args), exclude_unset=True, exclude={KEY})
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise InvalidArgumentsError(f"{self.name}: {place}: {first['msg']}") from error
        except Exception as error:
            raise InvalidArgumentsError(f"{self.name}: {type(error).__name__}: {clean(str(error))}") from error
        if problem := unkeepable(checked):  # what was text may have become a number that no database keeps
            raise InvalidArgumentsError(f"{self.name}: {problem[0]}: {problem[1]}")
        return checked

    async def run(self, args: Mapping[str, Any], deadline: float | None, key: str = "") -> Any:
        """Call it with checked arguments, and the key of the effect if it takes that; a sync one on its own thread."""
        more = {KEY: key} if self.takes_key else {}
        if self.function is not None:
            return await run(self.name, self.function, {**self.typed(args), **more}, deadline)
        given = {**args, **more}
        if self._is_async():
            return await in_time(self.name, self.schema.ainvoke(given), deadline)
        return await on_thread(self.name, lambda: self.schema.invoke(given), deadline)

    def _is_async(self) -> bool:
        """Tell whether it can be stopped; LangChain's own async twin of a sync tool is a thread, which cannot."""
        if hasattr(self.schema, "coroutine"):
            return self.schema.coroutine is not None
        return type(self.schema)._arun is not BaseTool._arun  # noqa: SLF001  its way to say so

    def typed(self, args: Mapping[str, Any], *, defaults: bool = False) -> dict[str, Any]:
        """Give the arguments as the function is to have them; with the defaults of those left out, if wanted."""
        if self.arguments is None:
            return dict(args)
        made = self._validated(args)
        wanted = type(made).model_fields if defaults else made.model_fields_set & type(made).model_fields.keys()
        return {name: getattr(made, name) for name in wanted}


@overload
def tool(function: F, /) -> Tool: ...
@overload
def tool(
    *,
    risk: Risk = ...,
    once_per: OncePer = ...,
    retry: Retry | None = ...,
    deadline: float | None = ...,
    probe: Callable[..., Any] | None = ...,
    compensate: Callable[..., Any] | None = ...,
    name: str | None = ...,
) -> Callable[[F], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    risk: Risk = UNKNOWN_RISK,
    once_per: OncePer = (),
    retry: Retry | None = None,
    deadline: float | None = None,
    probe: Callable[..., Any] | None = None,
    compensate: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Any:
    """Make a tool of a function, sync or async, typed by its signature and described by its docstring.

    Args:
        function: the function, when used without parentheses.
        risk: `read_only`, `write_local`, `external_action` or `irreversible`; reviews and retries depend on it. A tool
            whose risk is not said is taken for an `external_action`.
        once_per: the arguments that make two calls of a plan step the same effect, all of them unless it says which;
            `"call"` makes each call of the model an effect of its own.
        retry: how to try again; without it only tools that are `read_only` or take a key are tried again.
        deadline: seconds that one call may take.
        probe: `probe(key, args)` finds out whether an effect was made: gives its result, or `NOT_DONE`. It is asked
            when a process died between an effect and its record.
        compensate: takes the effect back; it is given those of the call's arguments that it names, and `result` and
            `idempotency_key` if it names them. A `Tool` has a risk of its own.
        name: what the model calls it by; the function's name by default.
    """
    check_risks(risk)

    def make(function: Callable[..., Any]) -> Tool:
        schema = _schema(function, name)
        same, undo = once_per_of(schema, once_per), compensation_of(schema, compensate)
        return Tool(schema, risk, function, same, retry, deadline, probe, undo)

    return make if function is None else make(function)


def once_per_of(schema: BaseTool, names: OncePer) -> tuple[str, ...] | Literal["call"]:
    """Take the names of arguments that make two calls the same; raises `SetupError` for one that is none."""
    if names == "call":
        return "call"
    if isinstance(names, str):
        raise SetupError(f"once_per={names!r} is one name; write once_per=({names!r},)", name=names)
    names = tuple(names)
    for argument in names:
        if argument not in schema.args or argument == KEY:
            raise SetupError(f"once_per names {argument!r}, which {schema.name} does not take", name=argument)
    return names


def compensation_of(schema: BaseTool, compensate: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """Refuse a compensation that needs what there will not be."""
    if compensate is None:
        return None
    function = compensate.function if isinstance(compensate, Tool) else compensate
    if function is None:
        raise SetupError(f"compensate of {schema.name} is a tool without a function; wrap it in one", tool=schema.name)
    for name, one in inspect.signature(function).parameters.items():
        if name not in (*schema.args, RESULT, KEY) and one.default is one.empty and one.kind is not one.VAR_KEYWORD:
            msg = f"compensate of {schema.name} needs {name!r}; it is given the call's arguments, 'result' and {KEY!r}"
            raise SetupError(msg, tool=schema.name, name=name)
    return compensate


def _schema(function: Callable[..., Any], name: str | None) -> BaseTool:
    described = inspect.getdoc(function) or f"{function.__name__}{inspect.signature(function)}"
    given: dict[str, Any] = {"coroutine" if inspect.iscoroutinefunction(function) else "func": function}
    name = name or function.__name__
    if KEY in inspect.signature(function).parameters:  # not the model's to say
        hidden = (KEY, "run_manager", "callbacks")
        given["args_schema"] = create_schema_from_function(name, function, filter_args=hidden)
    return StructuredTool.from_function(name=name, description=described, **given)


def outcome_of(result: Any) -> Outcome:
    """Make what a function returned fit for the model and for the state."""
    patch = None
    if isinstance(result, Patch):
        return Outcome("(done)", result)
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Patch):  # noqa: PLR2004  value, patch
        result, patch = result
    if result is None:
        return Outcome("(no output)", patch)
    return Outcome(clean(result if isinstance(result, str) else _shown(result)), patch)


def _shown(result: Any) -> str:
    """Write a result; one that cannot be written does not make undone what was done."""
    try:
        return canonical(result)
    except Exception as error:  # noqa: BLE001  any object may be the result of a tool, and do anything when it is shown
        return f"(done; its result, a {type(result).__name__}, cannot be shown: {type(error).__name__})"
