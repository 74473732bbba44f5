"""What nodes work with besides their view: model, tools, policies; and the clock and dice that policies lack."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from graph_agent.context import Composer
from graph_agent.ledger import Effects
from graph_agent.models import Model
from graph_agent.patch import Checker
from graph_agent.policies import Budget, Deadline, Retry, ReviewPolicy
from graph_agent.toolbox import Toolbox

LONGEST_NAP: Final = 3_600.0
Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Kit:
    """Everything that is the same for every step of an agent.

    `fence` raises if a thread was taken over; `stored` waits for a step to be; results over `inline` bytes are kept
    beside the state.
    """

    model: Model
    tools: Toolbox
    composer: Composer
    checker: Checker
    prompts: Mapping[str, str]
    budget: Budget = field(default_factory=Budget)
    review: ReviewPolicy = field(default_factory=ReviewPolicy)
    retry: Retry = field(default_factory=Retry)
    deadline: Deadline = field(default_factory=Deadline)
    effects: Effects = field(default_factory=lambda: Effects(None, clock=time.time))
    inline: int = 2_048
    clock: Callable[[], float] = time.time
    chance: Callable[[], float] = random.random
    sleep: Sleep = asyncio.sleep
    fence: Callable[[str], None] = lambda _: None
    stored: Callable[[Where], Awaitable[None]] | None = None

    def now(self) -> str:
        """Give the time as it is written into records."""
        return datetime.fromtimestamp(self.clock(), UTC).isoformat()

    def budget_of(self, view: Mapping[str, Any]) -> Budget:
        """Give the budget that a thread has, this agent's if it has none of its own."""
        record = view.get("budget")
        return Budget.of(record) if record else self.budget

    def within_run(self, seconds: float | None, view: Mapping[str, Any]) -> float | None:
        """Give so many seconds, or what is left of the run if that is less; None is no limit."""
        ends = (view.get("budget") or {}).get("deadline_at")
        left = None if ends is None else max(0.0, ends - self.clock())
        return min((limit for limit in (seconds, left) if limit is not None), default=None)

    async def settled(self, where: Where) -> None:
        """Wait until the step that decided on a call is stored: nothing is done that nobody would remember."""
        if self.stored is not None:
            await self.stored(where)

    async def wait_until(self, moment: float | None) -> None:
        """Wait until a moment that may have passed while nothing ran."""
        if moment is not None and (left := moment - self.clock()) > 0:
            await self.sleep(min(left, LONGEST_NAP))


@dataclass(frozen=True, slots=True)
class Where:
    """Where a node runs: the thread, and the checkpoint that holds the state it was given."""

    thread: str
    checkpoint: str
    task: str
    ns: str = ""
    durability: str = "sync"

    @classmethod
    def of(cls, info: Any, durability: str) -> Where:
        """Read what LangGraph says of the task; the last part of its namespace is the task's own."""
        ns, _, _ = info.checkpoint_ns.rpartition("|")
        return cls(info.thread_id or "", info.checkpoint_id, info.task_id, ns, durability)
