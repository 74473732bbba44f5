"""Kill an agent's process at many points, then resume it by thread id: `python -m tests.graph_agent.crash URL FOLDER FIRST EVERY`.

This process imports everything once and forks for each life, so that a life costs a tenth of a second. The world is a
file that tools append to; a clock that stands still and a script make every run the same but for the crashes. Every
effect is made once: by its key, which the world knows, or because somebody looks there when the agent asks.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from langgraph.checkpoint.sqlite import SqliteSaver as OfficialSqliteSaver

from checkpointers import Saver, open_saver
from checkpointers.testing import FaultyDatabase, kill_at
from graph_agent import Agent, tool
from graph_agent.testing import FrozenClock, ScriptedModel, calls
from tests.checkpointers.crash import FINE, KILLED, in_child
from tests.conftest import reopen

Die = Callable[[str], None]
FIRST = calls(("look", {"what": "a"}), ("note", {"what": "b"}), ("send", {"what": "c"}))
SECOND = calls(("flaky", {"what": "d"}), ("note", {"what": "e"}))
EFFECTS = "bce"
READS = {"a": 1, "d": 2}  # how often a life may read them: the second fails at first


def die_here() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class World:
    """What tools did, in a file that outlives every process."""

    def __init__(self, folder: Path, thread: str) -> None:
        self.path = folder / f"{thread}.world"

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []

    def did(self, what: str, key: str = "") -> None:
        line = f"{what} {key}"
        if not key or line not in self.lines():
            with self.path.open("a") as file:
                file.write(line + "\n")

    def counts(self) -> Counter[str]:
        return Counter(line.split()[0] for line in self.lines())


def agent_of(saver: Any, world: World, die: Die) -> Agent:
    """Make the agent of a life; `die` is called with the name of every place that it passes.

    With a saver of others its ledger stands in a file beside the world.
    """

    def at(place: str, line: Any) -> Any:
        def say(_: Any) -> Any:
            die(place)
            return line

        return say

    def doing(what: str, key: str = "") -> str:
        die(f"before {what}")
        world.did(what, key)
        die(f"after {what}")
        return f"did {what}"

    @tool(risk="read_only")
    def look(what: str) -> str:
        return doing(what)

    @tool(risk="write_local")
    def note(what: str, idempotency_key: str) -> str:
        return doing(what, idempotency_key)

    @tool(risk="external_action")
    def send(what: str) -> str:
        return doing(what)

    @tool(risk="read_only")
    def flaky(what: str) -> str:
        doing(what)
        if world.counts()[what] == 1:
            raise ConnectionError("the first time")
        return f"did {what}"

    async def sleep(seconds: float) -> None:
        die("asleep")
        await clock.sleep(seconds)

    clock = FrozenClock()
    model = ScriptedModel(
        plan=[at("plan", ["one", "two"])],
        act=[at("act 1", FIRST), at("act 2", "one done"), at("act 3", SECOND), at("act 4", "two done")],
        answer=[at("answer", "all done")],
    )
    ledger = None if isinstance(saver, Saver) else beside(world)
    tools = [look, note, send, flaky]
    return Agent(model, tools=tools, saver=saver, ledger=ledger, clock=clock, sleep=sleep, chance=lambda: 0.5)


PLACES = [
    "plan", "act 1", "act 2", "act 3", "act 4", "answer", "asleep",
    *(f"{when} {what}" for what in "abcde" for when in ("before", "after")),
]  # fmt: skip


def at_place(place: str, marker: Path) -> Die:
    """Die at a place, in the first life that comes there."""

    def die(here: str) -> None:
        if here == place and not marker.exists():
            marker.touch()
            die_here()

    return die


def live(agent: Agent, thread: str, world: World) -> tuple[dict[str, Any], list[str]]:
    """Go on with a thread until it is done, and give how that is, and what was asked of a call in doubt.

    What it asks is approved; where a call is in doubt, somebody looks into the world.
    """
    asked: list[str] = []
    run = agent.state(thread)
    run = agent.run("do all", thread=thread, progress=False) if run.status == "unknown" else run
    while run.status != "done":
        assert run.status in ("waiting", "crashed"), run
        doubts = {review.id: review.args["what"] for review in run.reviews if review.kind == "in_doubt"}
        asked += doubts.values()
        counts = world.counts()
        run = agent.resume(
            thread, progress=False,
            approve=[review.id for review in run.reviews if review.id not in doubts],
            done={name: f"did {what}" for name, what in doubts.items() if counts[what]},
            not_done=[name for name, what in doubts.items() if not counts[what]],
        )  # fmt: skip
    return told(run), asked


def bury(keeper: Saver, thread: str) -> None:
    """Do not wait for the lease of a process that is known to be dead."""
    with keeper.lease(thread, if_busy="interrupt"):
        pass


def beside(world: World) -> str:
    """Give the address of the ledger of a saver of others."""
    return f"sqlite:///{world.path.parent}/effects.db"


def told(run: Any) -> dict[str, Any]:
    """Give what must be the same however often the process died."""
    state = run.state
    return {
        "answer": run.answer,
        "plan": [(step["title"], step["status"], step["result"]) for step in state["plan"]],
        "calls": [(call["tool"], call["args"], call["status"], call["result"]) for call in state["calls"]],
        "facts": sorted(fact["text"] for fact in state["facts"]),
        "messages": [(message["role"], message["content"]) for message in state["messages"]],
        "decisions": [(one["node"], one["chose"]) for one in state["decisions"]],
        "notes": [(note["role"], note["content"]) for note in state["notes"]],
        "usage": {name: count for name, count in run.usage.items() if name != "llm_tokens"},
    }


def cost(agent: Agent, thread: str) -> tuple[float, bool]:
    """Give the tokens of a thread, and whether the model was told of a rule, which is the only thing that adds to them."""
    run = agent.state(thread)
    return run.usage["llm_tokens"], any(call.get("rule") for call in run.state["calls"])


def finished(agent: Agent, thread: str) -> set[str]:
    """Give the calls whose result is stored."""
    state = agent.state(thread).state
    return {call["args"]["what"] for call in state.get("calls", ()) if call["status"] == "done"}


def in_doubt(agent: Agent, thread: str) -> list[str]:
    """Give the calls that nobody but a person can tell about: claimed, without an outcome, a key or a probe."""
    left = [entry.record for entry in agent.effects(thread) if entry.status == "claimed"]
    return [record["args"]["what"] for record in left if record["tool"] == "send"]


def try_point(open_: Callable[[], Any], folder: Path, thread: str, killing: Callable[[], tuple[Any, Die]]) -> str:
    """Live once and die, then live to the end in another process; check what was promised."""
    world = World(folder, thread)

    def first_life() -> None:
        saver, die = killing()
        live(agent_of(saver, world, die), thread, world)

    def second_life() -> None:
        agent = agent_of(open_(), world, lambda _: None)
        bury(agent.saver if isinstance(agent.saver, Saver) else open_saver(beside(world)), thread)
        snapshot = agent.graph.get_state({"configurable": {"thread_id": thread}})
        if snapshot.next == () and snapshot.tasks:
            assert agent.state(thread).status == "crashed"
            (folder / f"{thread}.gap").touch()
        kept, before, doubtful = finished(agent, thread), world.counts(), in_doubt(agent, thread)
        ended, asked = json.loads(json.dumps(live(agent, thread, world)))
        expected, wanted = json.loads((folder / "expected").read_text())
        assert ended == expected, (ended, expected)
        tokens, ruled = cost(agent, thread)
        assert (tokens > wanted) if ruled else (tokens == wanted), (tokens, wanted, ruled)
        after = world.counts()
        assert all(after[what] == 1 for what in EFFECTS), ("done twice or never", before, after)
        assert asked == doubtful, (asked, doubtful)
        assert all(after[what] == before[what] for what in kept), (kept, before, after)
        assert all(1 <= after[what] <= before[what] + most for what, most in READS.items()), (before, after)

    died = in_child(first_life)
    assert in_child(second_life) == FINE
    return died


def expect(open_: Callable[[], Any], folder: Path) -> None:
    """Write down how a life without crashes ends."""

    def life() -> None:
        world = World(folder, "whole")
        agent = agent_of(open_(), world, lambda _: None)
        ended, asked = live(agent, "whole", world)
        tokens, ruled = cost(agent, "whole")
        assert (asked, ruled) == ([], False)
        (folder / "expected").write_text(json.dumps([ended, tokens]))

    assert in_child(life) == FINE


def every_request(url: str, folder: Path, first: int, every: int) -> tuple[int, bool]:
    """Die before each `every`-th request to the database."""

    def open_() -> Any:
        return reopen(url)

    def killing(number: int) -> tuple[Any, Die]:
        real = reopen(url)
        return type(real)(FaultyDatabase(real.database, kill_at(number))), lambda _: None

    expect(open_, folder)
    tried, number, died = 0, first, KILLED
    while died == KILLED:
        died = try_point(open_, folder, f"request-{number}", lambda at=number: killing(at))  # type: ignore[misc]
        tried, number = tried + 1, number + every
    return tried, died == FINE


def every_place(url: str, folder: Path) -> tuple[int, bool]:
    """Die before every question to the model, before and after every effect, and asleep before another attempt."""

    def open_() -> Any:
        return reopen(url)

    expect(open_, folder)
    for place in PLACES:
        thread = place.replace(" ", "-")
        died = try_point(open_, folder, thread, lambda place=place: (open_(), at_place(place, folder / f"{place}.met")))  # type: ignore[misc]
        assert died == KILLED, place
    return len(PLACES), True


class KilledAtPut(OfficialSqliteSaver):
    """The official saver of a process that dies before its N-th checkpoint, when that step's writes are stored."""

    left = 10**9

    def put(self, *args: Any, **options: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            die_here()
        return super().put(*args, **options)


def official(path: Path, left: int = 10**9) -> KilledAtPut:
    saver = KilledAtPut(sqlite3.connect(path, check_same_thread=False))
    saver.left = left
    return saver


def every_put(path: Path, folder: Path) -> tuple[int, bool]:
    """Die between a step's writes and its checkpoint, on the official saver, which has two commits there."""
    expect(lambda: official(path), folder)
    tried, died = 0, KILLED
    while died == KILLED:
        killing = partial(official, path, tried)
        died = try_point(partial(official, path), folder, f"put-{tried}", lambda at=killing: (at(), lambda _: None))
        tried += 1
    return tried, died == FINE


def main(kind: str, url: str, folder: str, first: int, every: int) -> None:
    warnings.simplefilter("ignore")
    if kind == "requests":
        tried, reached = every_request(url, Path(folder), first, every)
    elif kind == "places":
        tried, reached = every_place(url, Path(folder))
    else:
        tried, reached = every_put(Path(url), Path(folder))
    assert reached
    gaps = len(list(Path(folder).glob("*.gap")))
    print(f"{kind}: tried {tried}, lost 0, wrong 0, next empty {gaps}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
