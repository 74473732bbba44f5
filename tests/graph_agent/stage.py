"""A stage for effects: a database and a world that outlive processes, and agents that are new on it each time."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from checkpointers import Saver
from graph_agent import Agent, ReviewPolicy, Tool, tool
from graph_agent.testing import FrozenClock, calls
from tests.checkpointers.crash import KILLED, in_child
from tests.conftest import reopen
from tests.graph_agent.conftest import scripted
from tests.proofs.world import World

PAY = calls(("pay", {"what": "rent"}))


def die() -> None:
    """End this process as a power cut does."""
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class Stage:
    """Where lives of one thread are lived; each effect of it is counted by another process."""

    url: str
    world: World
    thread: str = field(default_factory=lambda: f"t{uuid.uuid4().hex[:8]}")
    clock: FrozenClock = field(default_factory=FrozenClock)

    @contextmanager
    def agent(self, *act: Any, plan: Any = ("do it",), saver: Any = None, **options: Any) -> Iterator[Agent]:
        """Open everything as a new process does; the lease of one that died is not waited for."""
        own = {"review": ReviewPolicy(required_for=()), **options}
        with reopen(self.url) as opened:
            self.free(opened)
            yield Agent(
                own.pop("model", None) or scripted(*(act or (PAY, "done")), plan=plan), saver=saver or opened,
                clock=self.clock, sleep=self.clock.sleep, chance=lambda: 0.5, **own,
            )  # fmt: skip

    def free(self, saver: Saver) -> None:
        """Take the lease of a dead process away."""
        with saver.lease(self.thread, if_busy="interrupt"):
            pass

    def pay(self, *, dies: str = "", keyed: bool = False, **options: Any) -> Tool:
        """Make the tool `pay(what)`, which makes an effect, and may die before or after it."""

        def act(what: str, key: str = "") -> str:
            if dies == "before":
                die()
            done = self.world.do(self.thread, what, key)
            if dies == "after":
                die()
            return done

        def pay(what: str) -> str:
            """Pay something."""
            return act(what)

        def pay_with_key(what: str, idempotency_key: str) -> str:
            """Pay something."""
            return act(what, idempotency_key)

        return tool(name="pay", **{"risk": "external_action", **options})(pay_with_key if keyed else pay)

    def done(self, what: str = "rent") -> int:
        """Tell how often an effect was made."""
        return self.world.counts(self.thread)[what]

    def dies(self, *act: Any, dies: str = "after", keyed: bool = False, tools: Any = None, **options: Any) -> None:
        """Begin the thread in a process that dies at the effect; `options` are of the tool."""

        def life() -> None:
            with self.agent(*act, tools=tools or [self.pay(dies=dies, keyed=keyed, **options)]) as agent:
                agent.run("pay the rent", thread=self.thread, progress=False)

        self.killed(life)

    def killed(self, life: Callable[[], Any]) -> None:
        """Live a life that is to be cut off."""
        assert in_child(life) == KILLED

    def crashed(self, agent: Agent) -> Any:
        """See that the thread was cut off, and go on with it."""
        assert agent.state(self.thread).status == "crashed"
        return agent.resume(self.thread, progress=False)
