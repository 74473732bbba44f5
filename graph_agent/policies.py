"""Policies: frozen values whose methods decide and give the reason. They read no clock and throw no dice themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, NamedTuple

from graph_agent.errors import SetupError, ToolError
from graph_agent.state import Counters, total

RISKS: Final = ("read_only", "write_local", "external_action", "irreversible")
PRESSURE: Final = 0.8


class Verdict(NamedTuple):
    """A yes or no, with its reason."""

    yes: bool
    why: str


def kinds_of(error: BaseException) -> list[str]:
    """Give the names of an error's classes: they are stored, the classes are not."""
    return [kind.__name__ for kind in type(error).__mro__ if kind not in (object, BaseException, Exception)]


@dataclass(frozen=True, slots=True)
class Budget:
    """How much a thread may use, over all its runs and restarts; None is no limit.

    `max_wall_time` counts the seconds in which the agent works; the time it waits for a person, or lies dead, is free.
    """

    max_steps: int | None = 200
    max_wall_time: float | None = None
    max_llm_tokens: int | None = None
    max_tool_calls: int | None = None
    max_artifact_bytes_in_context: int = 8_000

    def __post_init__(self) -> None:
        """Refuse a limit below nothing."""
        for field in fields(self):
            limit = getattr(self, field.name)
            if limit is not None and limit < 0:
                raise SetupError(f"{field.name}={limit} is below nothing; None is no limit", limit=field.name)

    def record(self) -> dict[str, Any]:
        """Give it as plain data, for the state."""
        return asdict(self)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Budget:
        """Make it from plain data; what is missing is as ever."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in record.items() if name in known})

    def spent(self, usage: Counters) -> dict[str, float]:
        """Give the share that is used of each limit."""
        limits = {
            "steps": self.max_steps,
            "wall_time": self.max_wall_time,
            "llm_tokens": self.max_llm_tokens,
            "tool_calls": self.max_tool_calls,
        }
        return {
            name: total(usage, name) / limit if limit else 1.0 for name, limit in limits.items() if limit is not None
        }

    def exhausted(self, usage: Counters, **more: float) -> Verdict:
        """Tell whether a limit is reached, or would be passed by using so much more."""
        for name, share in self.spent(usage).items():
            limit = getattr(self, f"max_{name}")
            wanted = more.get(name, 0)
            if share >= 1 if not wanted else total(usage, name) + wanted > limit:
                return Verdict(yes=True, why=f"{name}: {total(usage, name) + wanted:g} of {limit:g}")
        return Verdict(yes=False, why="within the budget")

    def pressure(self, usage: Counters) -> Verdict:
        """Tell whether four fifths of a limit are used."""
        high = [f"{name} {share:.0%}" for name, share in self.spent(usage).items() if share >= PRESSURE]
        return Verdict(bool(high), ", ".join(high) or "within the budget")


@dataclass(frozen=True, slots=True)
class ReviewPolicy:
    """Which calls a person must see first: by risk, by the tool's name, and never for those named in `never_for`."""

    required_for: tuple[str, ...] = ("external_action", "irreversible")
    tools: tuple[str, ...] = ()
    never_for: tuple[str, ...] = ()
    expires_after: float | None = None

    def __post_init__(self) -> None:
        """Accept any iterable; refuse a risk that does not exist."""
        for name in ("required_for", "tools", "never_for"):
            given = getattr(self, name)
            object.__setattr__(self, name, (given,) if isinstance(given, str) else tuple(given))
        check_risks(*self.required_for)

    def decide(self, *, tool: str, risk: str) -> Verdict:
        """Tell whether a call needs a person, and why."""
        if tool in self.never_for:
            return Verdict(yes=False, why=f"{tool} is never reviewed")
        if tool in self.tools:
            return Verdict(yes=True, why=f"{tool} is always reviewed")
        if risk in self.required_for:
            return Verdict(yes=True, why=f"its risk is {risk}")
        return Verdict(yes=False, why=f"{risk} needs no review")


def check_risks(*risks: str) -> None:
    """Refuse a risk that does not exist."""
    for risk in risks:
        if risk not in RISKS:
            raise SetupError(f"there is no risk {risk!r}; the risks are {', '.join(RISKS)}", risk=risk)


class Again(NamedTuple):
    """Whether to try again, after how many seconds, and why."""

    yes: bool
    delay: float
    why: str


@dataclass(frozen=True, slots=True)
class Retry:
    """Trying again: what is worth it, how often, after how long. The delay doubles; jitter spreads it."""

    max_attempts: int = 4
    first_delay: float = 0.5
    factor: float = 2.0
    max_delay: float = 60.0
    jitter: float = 0.25

    def decide(self, error: BaseException, *, attempt: int, chance: float) -> Again:
        """Decide after the `attempt`-th try failed; `chance` is a random number between 0 and 1."""
        worth = retryable(error)
        if not worth.yes:
            return Again(yes=False, delay=0.0, why=worth.why)
        if attempt >= self.max_attempts:
            return Again(yes=False, delay=0.0, why=f"{attempt} attempts were made")
        delay = min(self.max_delay, self._grown(attempt))
        asked = _asked_delay(error)
        delay = max(delay * (1 + self.jitter * (2 * chance - 1)), min(asked, self.max_delay))
        return Again(yes=True, delay=delay, why=f"{worth.why}; attempt {attempt + 1} of {self.max_attempts}")

    def _grown(self, attempt: int) -> float:
        try:
            return self.first_delay * self.factor ** (attempt - 1)
        except OverflowError:
            return self.max_delay


NEVER: Final = frozenset({"insufficient_quota"})
STATUSES: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


def retryable(error: BaseException) -> Verdict:
    """Tell from its kind whether an error may go away by itself."""
    name = type(error).__name__
    if str(getattr(error, "code", "")) in NEVER:
        return Verdict(yes=False, why=f"{name}: the account has no credit left")
    if isinstance(error, ToolError):
        return Verdict(error.retryable, f"{name} says {'so' if error.retryable else 'not to'}")
    declared = getattr(error, "is_retryable", None)
    if isinstance(declared, bool):
        return Verdict(declared, f"{name} is {'' if declared else 'not '}worth a retry")
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        return Verdict(status in STATUSES, f"{name} with status {status}")
    transient = isinstance(error, ConnectionError | TimeoutError) or any(
        kind in ("APIConnectionError", "TransportError", "Timeout", "ConnectionError", "StreamChunkTimeoutError")
        for kind in kinds_of(error)
    )
    return Verdict(transient, f"{name} is {'a lost connection or a timeout' if transient else 'no passing trouble'}")


def _asked_delay(error: BaseException) -> float:
    """Give the seconds that a server asked to be left alone."""
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    try:
        return max(0.0, float(headers.get("retry-after", 0)))
    except (TypeError, ValueError):
        return 0.0


@dataclass(frozen=True, slots=True)
class Deadline:
    """How many seconds may pass: for a run, from its start and over restarts; for one node; for one tool call."""

    run: float | None = None
    node: float | None = 300.0
    tool: float | None = 120.0


@dataclass(frozen=True, slots=True)
class Context:
    """How much of the state a model is shown, in bytes of text; `turns` of the conversation always stay.

    With `tokens`, the budget is in tokens instead, counted as the model's usage reports have calibrated them. Results
    of more than `inline` bytes stand beside the state, which has their beginning.
    """

    bytes: int = 24_000
    tokens: int | None = None
    turns: int = 5
    inline: int = 2_048
