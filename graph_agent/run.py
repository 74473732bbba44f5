"""A run as people hold it: where a thread stands, what it asks, what it answered. Decided on tasks, never on `next`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from checkpointers.show import Shows
from checkpointers.show.text import brief
from graph_agent.errors import RunFailedError
from graph_agent.state import current_step, totals

if TYPE_CHECKING:
    from checkpointers.show.cards import Card

Status = Literal["running", "waiting", "done", "failed", "stopped", "crashed", "unknown"]
ENDED: Final[dict[str, Status]] = {"idle": "done", "done": "done", "error": "failed", "stopped": "stopped"}


@dataclass(frozen=True, slots=True, repr=False)
class Review(Shows):
    """A question to a person, bound to one call and its exact arguments."""

    id: str
    thread: str
    kind: str
    tool: str
    args: Mapping[str, Any]
    hash: str
    risk: str
    reason: str
    step: str
    description: str
    expires_at: float | None
    interrupt: str
    response_schema: Any = None

    def is_late(self, now: float) -> bool:
        """Tell whether its deadline has passed."""
        return self.expires_at is not None and now >= self.expires_at

    def __repr__(self) -> str:
        """Say what is asked, and by which name to answer."""
        return brief(f"<Review {self.id}: {self.description} ({self.reason})>")

    def _card(self) -> Card:
        from graph_agent.show.runs import review_card  # noqa: PLC0415  loaded by who looks

        return review_card(self)


@dataclass(frozen=True, slots=True, repr=False)
class Run(Shows):
    """Where a thread stands after a call.

    `finished` has what tasks of its unfinished step have written already, by their ids: they do not run again.
    """

    thread: str
    status: Status
    state: Mapping[str, Any]
    reviews: tuple[Review, ...] = ()
    error: str = ""
    finished: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def answer(self) -> str | None:
        """Give the final answer, None while there is none."""
        return self.state.get("answer") if self.status == "done" else None

    @property
    def phase(self) -> str:
        """Give the phase."""
        return str(self.state.get("phase", "idle"))

    @property
    def plan(self) -> list[dict[str, Any]]:
        """Give the steps of the plan that are not dropped."""
        return [step for step in self.state.get("plan", ()) if step.get("status") != "dropped"]

    @property
    def failures(self) -> list[dict[str, Any]]:
        """Give everything that failed, with its facts."""
        return list(self.state.get("failures", ()))

    @property
    def usage(self) -> dict[str, float]:
        """Give what was used: steps, seconds of work, tokens, calls."""
        return totals(self.state.get("usage", {}))

    @property
    def reason(self) -> str:
        """Say why the run is not simply done."""
        return self.error or str((self.state.get("halt") or {}).get("reason", ""))

    def raise_for_status(self) -> Run:
        """Give the run itself, unless it failed."""
        if self.status == "failed":
            last = self.failures[-1] if self.failures else None
            raise RunFailedError(f"thread {self.thread!r} failed: {self.reason}", thread=self.thread, failure=last)
        return self

    def __repr__(self) -> str:
        """Say where it stands, and why."""
        return brief(f"<Run {self}>")

    def _card(self) -> Card:
        from graph_agent.show.runs import run_card  # noqa: PLC0415  loaded by who looks

        return run_card(self)

    def __str__(self) -> str:
        step = current_step(self.state.get("plan", ()))
        done = sum(one.get("status") == "done" for one in self.plan)
        parts = [f"{self.thread}: {self.status}"]
        if self.plan:
            parts.append(f"step {done + 1 if step else done} of {len(self.plan)}{': ' + step['title'] if step else ''}")
        parts += [f"waits: {one.id} {one.description} ({one.reason})" for one in self.reviews]
        if self.reason:
            parts.append(self.reason)
        if self.answer is not None:
            parts.append(self.answer)
        return " · ".join(parts)


def status_of(snapshot: Any, *, running: bool = False) -> Status:
    """Decide where a thread stands from LangGraph's snapshot of it.

    `next` is empty between a step's writes and its checkpoint, so it proves nothing; tasks, interrupts and errors do.
    One that has no tasks and is not at its end stands at a node that this graph does not have.
    """
    signs: list[tuple[bool, Status]] = [
        (snapshot.metadata is None, "unknown"),
        (running, "running"),
        (bool(snapshot.interrupts), "waiting"),
        (bool(_errors(snapshot)), "failed"),
        (bool(snapshot.tasks) and snapshot.metadata.get("source") in ("fork", "update"), "stopped"),
        (bool(snapshot.tasks), "crashed"),
    ]
    for seen, status in signs:
        if seen:
            return status
    return ENDED.get(snapshot.values.get("phase", "idle"), "crashed")


def run_of(thread: str, snapshot: Any, *, running: bool = False) -> Run:
    """Make a run of LangGraph's snapshot."""
    status = status_of(snapshot, running=running)
    errors = _errors(snapshot)
    reviews = tuple(review_of(thread, one) for one in snapshot.interrupts) if status == "waiting" else ()
    finished = {task.id: task.result for task in snapshot.tasks if task.result is not None}
    return Run(thread, status, snapshot.values or {}, reviews, "; ".join(errors), finished)


def _errors(snapshot: Any) -> list[str]:
    """Give what tasks raised; one that was cut off raised nothing of its own."""
    told = [str(task.error) or repr(task.error) for task in snapshot.tasks if task.error]
    return [error for error in told if not error.startswith("CancelledError(")]


def review_of(thread: str, interrupt: Any) -> Review:
    """Make a review of an interrupt; one of a node of the user's own has only its value."""
    value: Mapping[str, Any] = (
        interrupt.value if isinstance(interrupt.value, Mapping) else {"description": str(interrupt.value)}
    )
    about = value.get("review", {})
    return Review(
        id=about.get("id", interrupt.id),
        thread=thread,
        kind=value.get("type", "interrupt"),
        tool=value.get("name", ""),
        args=value.get("args", {}),
        hash=about.get("hash", ""),
        risk=about.get("risk", ""),
        reason=about.get("reason", ""),
        step=about.get("step", ""),
        description=value.get("description", ""),
        expires_at=about.get("expires_at"),
        interrupt=interrupt.id,
        response_schema=interrupt.response_schema,
    )
