"""What happens during a run, as typed events; and the one live line that a person watches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

from checkpointers.show import Shows
from checkpointers.show.text import brief, short
from graph_agent.policies import Budget
from graph_agent.run import Review, Run
from graph_agent.state import Counters, current_step, tally, total

if TYPE_CHECKING:
    from checkpointers.show.cards import Card


def _names(event: object) -> tuple[str, ...]:
    return getattr(type(event), "__match_args__", ())


def _said(value: object) -> str:
    return repr(value) if isinstance(value, Shows) else repr(short(value))


class _Told(Shows):
    """What all events have in common: how they look."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Say it in a few lines."""
        told = ", ".join(f"{name}={_said(getattr(self, name))}" for name in _names(self) if name != "patch")
        return brief(f"{type(self).__name__}({told})")

    def _card(self) -> Card:
        from graph_agent.show.runs import event_card  # noqa: PLC0415  loaded by who looks

        return event_card(self)


@dataclass(frozen=True, slots=True, repr=False)
class Started(_Told):
    """A node began; `tool` names the tool of a call."""

    thread: str
    node: str
    tool: str = ""
    args: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """Say it in a line."""
        return brief(f"{self.node} begins" + (f": {self.tool}({short(self.args)})" if self.tool else ""), lines=1)


@dataclass(frozen=True, slots=True, repr=False)
class Finished(_Told):
    """A node ended; `patch` is what it wrote."""

    thread: str
    node: str
    patch: Mapping[str, Any] = field(repr=False)
    error: str = ""

    def __str__(self) -> str:
        """Say it in a line."""
        return brief(f"{self.node} " + (f"failed: {self.error}" if self.error else "ends"), lines=1)


@dataclass(frozen=True, slots=True, repr=False)
class Asked(_Told):
    """A person is asked."""

    thread: str
    review: Review

    def __str__(self) -> str:
        """Say it in a line."""
        return brief(f"asks: {self.review.description} ({self.review.reason})", lines=1)


@dataclass(frozen=True, slots=True, repr=False)
class Ended(_Told):
    """The run stands; nothing more happens by itself."""

    thread: str
    run: Run

    def __str__(self) -> str:
        """Say it in a line."""
        return brief(str(self.run), lines=1)


Event = Started | Finished | Asked | Ended


def event_of(thread: str, data: Mapping[str, Any]) -> Event | None:
    """Make an event of one of LangGraph's task messages; None for what nobody watches."""
    if "triggers" in data:
        given = data.get("input")
        call = given.get("call", {}) if isinstance(given, Mapping) else {}
        return Started(thread, data["name"], call.get("tool", ""), call.get("args", {}))
    if data.get("interrupts"):
        return None
    result = data.get("result")
    patch = result if isinstance(result, Mapping) else dict(result or ())
    return Finished(thread, data["name"], patch, str(data.get("error") or ""))


class Line:
    """One live line: phase, position in the plan, tool, tokens, budget. Silent where nobody is looking."""

    def __init__(self, stream: TextIO | None = None, *, budget: Budget | None = None) -> None:
        """Write to a terminal, stderr by default, or below the cell of a notebook."""
        self._stream = stream or sys.stderr
        self._notebook = _notebook() if stream is None else None
        self._shown = self._stream.isatty() and self._notebook is None
        self._budget = budget or Budget()
        self._usage: Counters = {}
        self._plan: dict[str, dict[str, Any]] = {}
        self._phase = self._doing = ""

    def see(self, event: Event) -> None:
        """Show what an event changes."""
        if isinstance(event, Started):
            self._doing = event.tool or event.node
        elif isinstance(event, Finished):
            self._phase = event.patch.get("phase", self._phase)
            self._usage = tally(self._usage, event.patch.get("usage", {}))
            for step in event.patch.get("plan", ()):
                self._plan.setdefault(step["id"], {}).update(step)
        text = "" if isinstance(event, Ended) else self.text()
        if self._shown:
            self._stream.write(f"\r\x1b[2K{text}")
            self._stream.flush()
        elif self._notebook:
            self._notebook(text)

    def text(self) -> str:
        """Give the line."""
        plan = [step for step in self._plan.values() if step.get("status") != "dropped"]
        step = current_step(plan)
        done = sum(one.get("status") == "done" for one in plan)
        where = f"{done}/{len(plan)} {step['title'][:40] if step else ''}".strip() if plan else ""
        used = max(self._budget.spent(self._usage).values(), default=0.0)
        tokens = f"{total(self._usage, 'llm_tokens'):,.0f} tokens"
        parts = [self._phase, where, self._doing, tokens, f"{used:.0%} of the budget"]
        return " · ".join(part for part in parts if part)


def _notebook() -> Callable[[str], None] | None:
    """Give what shows a line below the cell of a notebook, None anywhere else."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if type(shell).__name__ != "ZMQInteractiveShell":
        return None
    display = sys.modules["IPython"].display
    handle = display.display(display.Pretty(""), display_id=True)
    return lambda text: handle.update(display.Pretty(text))
