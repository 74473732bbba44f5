"""What happens during a run, as typed events; and the one live line that a person watches."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TextIO

from graph_agent.run import Review, Run
from graph_agent.state import current_step


@dataclass(frozen=True, slots=True)
class Started:
    """A node began; `tool` names the tool of a call."""

    thread: str
    node: str
    tool: str = ""
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finished:
    """A node ended; `patch` is what it wrote."""

    thread: str
    node: str
    patch: Mapping[str, Any] = field(repr=False)
    error: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """A person is asked."""

    thread: str
    review: Review


@dataclass(frozen=True, slots=True)
class Ended:
    """The run stands; nothing more happens by itself."""

    thread: str
    run: Run


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
    """One live line: phase, position in the plan, tool, tokens. Silent where nobody is looking."""

    def __init__(self, stream: TextIO | None = None) -> None:
        """Write to a terminal, stderr by default."""
        self._stream = stream or sys.stderr
        self._shown = self._stream.isatty()
        self._state: dict[str, Any] = {"plan": {}, "tokens": 0.0, "phase": "", "doing": ""}

    def see(self, event: Event) -> None:
        """Show what an event changes."""
        if isinstance(event, Started):
            self._state["doing"] = event.tool or event.node
        elif isinstance(event, Finished):
            self._learn(event.patch)
        if self._shown:
            text = "" if isinstance(event, Ended) else self.text()
            self._stream.write(f"\r\x1b[2K{text}")
            self._stream.flush()

    def text(self) -> str:
        """Give the line."""
        plan = list(self._state["plan"].values())
        step = current_step(plan)
        done = sum(one.get("status") == "done" for one in plan)
        where = f"{done}/{len(plan)} {step['title'][:40] if step else ''}" if plan else ""
        parts = [self._state["phase"], where, self._state["doing"], f"{self._state['tokens']:,.0f} tokens"]
        return " · ".join(part for part in parts if part)

    def _learn(self, patch: Mapping[str, Any]) -> None:
        self._state["phase"] = patch.get("phase", self._state["phase"])
        for step in patch.get("plan", ()):
            self._state["plan"].setdefault(step["id"], {}).update(step)
        for places in (patch.get("usage", {}).get("llm_tokens", {}),):
            self._state.setdefault("places", {}).update(places)
            self._state["tokens"] = sum(self._state["places"].values())
