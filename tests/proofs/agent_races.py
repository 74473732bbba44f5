"""`python -m tests.proofs.agent_races [N] [--only sqlite|postgres]`: two processes resume one thread at the same moment.

The thread waits for an approval, or was cut off before or after its effect. The effect is counted by a process of its
own; whoever comes second is refused, or waits and finds it done.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

from checkpointers import Saver
from graph_agent import NOT_DONE, Agent, ReviewPolicy, tool
from graph_agent.errors import ThreadError
from graph_agent.testing import ScriptedModel, calls
from tests.proofs.lives import Clock, arguments, databases, live, opened
from tests.proofs.world import World

RACES = 50
EVERY = 0.2
KINDS = ("waiting", "cut off before", "cut off after")
POLICIES = ("reject", "enqueue")


def agent_of(saver: Saver, world: World, thread: str, *, dies: bool = False) -> Agent:
    """Make the agent of a thread, whose name says what it is to go through."""

    def die_at(place: str) -> None:
        if dies and place in thread:
            os.kill(os.getpid(), signal.SIGKILL)

    def looked(key: str, args: Any) -> Any:
        return "paid" if world.counts(thread)["rent"] else NOT_DONE

    @tool(risk="external_action", probe=looked)
    def pay(what: str) -> str:
        """Pay something."""
        die_at("cut off before")
        time.sleep(0.02)
        world.do(thread, what)
        die_at("cut off after")
        return "paid"

    model = ScriptedModel(plan=[["pay"]], act=[calls(("pay", {"what": "rent"})), "done"], answer=["done"])
    required = ("external_action",) if "waiting" in thread else ()
    return Agent(model, tools=[pay], saver=saver, review=ReviewPolicy(required_for=required))


def begun(url: str, world: World, thread: str) -> None:
    """Begin a thread, up to where the race is."""
    warnings.simplefilter("ignore")
    with opened(url) as saver:
        agent_of(saver, world, thread, dies=True).run("pay the rent", thread=thread, progress=False)


def freed(url: str, threads: Sequence[str]) -> None:
    """Take the leases of the dead away, which would be over in half a minute."""
    warnings.simplefilter("ignore")
    with opened(url) as saver:
        for thread in threads:
            with saver.lease(thread, if_busy="interrupt"):
                pass


def racer(url: str, world: World, threads: Sequence[str], start: float) -> dict[str, Any]:
    """Resume each thread at its moment, and say how it went."""
    warnings.simplefilter("ignore")
    told = {}
    with opened(url) as saver:
        for number, thread in enumerate(threads):
            agent = agent_of(saver, world, thread)
            asked = [review.id for review in agent.state(thread).reviews]
            time.sleep(max(0.0, start + number * EVERY - time.time()))
            try:
                how: Any = POLICIES[number % len(POLICIES)]
                told[thread] = agent.resume(thread, approve=asked, if_busy=how, progress=False).status
            except ThreadError as error:
                told[thread] = type(error).__name__
    return told


def judged(url: str, world: World, threads: Sequence[str]) -> dict[str, Any]:
    """Give the threads whose effect was made twice, and those that are not done or do not know of it."""
    warnings.simplefilter("ignore")
    double, lost = [], []
    with opened(url) as saver:
        for thread in threads:
            agent, made = agent_of(saver, world, thread), world.counts(thread)["rent"]
            run, entries = agent.state(thread), agent.effects(thread)
            double += [thread] * (made > 1)
            knows = [call["result"] for call in run.state["calls"]] == ["paid"]
            whole = run.status == "done" and knows and [entry.status for entry in entries] == ["done"]
            lost += [thread] * (not whole or made < 1)
    return {"double": double, "lost": lost}


def races(kind: str, url: str, world: World, many: int) -> bool:
    """Race so many times; print a line."""
    clock = Clock()
    threads = [f"{kind} {KINDS[number % len(KINDS)]} {number}" for number in range(many)]
    for thread in threads:
        ended = live(partial(begun, url, world, thread)).end()
        assert (ended is None) == ("cut off" in thread), thread
    live(partial(freed, url, threads)).end()
    start = time.time() + 1.0
    both = [live(partial(racer, url, world, threads, start)) for _ in range(2)]
    told = [one.end() or {} for one in both]
    found = live(partial(judged, url, world, threads)).end() or {}
    outcomes = [sorted(one[thread] for one in told) for thread in threads]
    refused = sum(word != "done" for pair in outcomes for word in pair)
    print(
        f"races {kind}: tried {many}, double runs {len(found['double'])}, lost {len(found['lost'])}, "
        f"refused {refused}, seconds {clock}",
        flush=True,
    )
    odd = [f"  {thread}: {pair}" for thread, pair in zip(threads, outcomes, strict=True) if "done" not in pair]
    print("".join(f"{line}\n" for line in (*odd, *found["double"], *found["lost"])), end="")
    return not (odd or found["double"] or found["lost"])


def main() -> int:
    """Race as often as asked, 50 times by default, on each database."""
    given = arguments("two processes that resume one thread", many=RACES)
    with World.start() as world, databases(given.only) as urls:
        good = [races(kind, url, world, given.many) for kind, url in urls.items()]
        return int(not all(good))


if __name__ == "__main__":
    sys.exit(main())
