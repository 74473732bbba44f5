"""`python -m tests.proofs.effects [--every N] [--only sqlite|postgres|official] [--durability sync|async]`.

An agent's process is killed by SIGKILL before and after everything it says to its database and every effect it makes,
then resumed by another process, which is killed too at some of the points; a last one goes on to the end. The effects
are made in a process of their own, which counts them. Whoever is asked about a call in doubt looks there.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from checkpointers import Keep, Saver, open_saver
from checkpointers.statements import Append, Insert, Many, Request, Together
from checkpointers.testing import FaultyDatabase, LocalPostgres
from graph_agent import NOT_DONE, Agent, tool
from graph_agent.testing import FrozenClock, ScriptedModel, calls
from tests.checkpointers.crash import FINE, KILLED, in_child
from tests.conftest import reopen
from tests.proofs.world import World

FIRST = calls(("look", {"what": "x"}), ("mail", {"what": "a"}), ("pay", {"what": "b"}))
SECOND = calls(("file", {"what": "c"}), ("print_it", {"what": "d"}))
EFFECTS = ("a", "b", "c", "d")
LONG = 6_000
KINDS = ("sqlite", "postgres", "official")
WHEN = ("before", "after")
PLACES = tuple(f"{when} {what}" for what in EFFECTS for when in WHEN)
WRITES = {"cp_effects": "claim", "cp_checkpoints": "put", "cp_writes": "put_writes"}
OURS = ("claim", "effect", "record", "put_writes", "put", "lease", "retain")
BOUNDARIES = {"sqlite": OURS, "postgres": OURS, "official": ("claim", "effect", "record", "lease")}


def boundaries_of(request: Request) -> list[str]:
    """Say what it is that a process says to its database: each write by its name, and looking."""
    if isinstance(request, Append):
        made = {one.table for one in request.changes if isinstance(one, Insert)}
        named = [name for table, name in WRITES.items() if table in made]
        changed = any("cp_effects" in one.sql for one in request.changes if not isinstance(one, Insert))
        return [*named, *(["record"] if changed else [])] or ["keep"]
    if isinstance(request, Many):
        return ["retain"] if request.writes else ["look"]
    if isinstance(request, Together):
        return ["look"]
    verb, _, rest = request.sql.partition(" ")
    if verb == "SELECT":
        return ["look"]
    return ["lease" if "cp_leases" in rest else "retain" if verb == "DELETE" else "thread"]


class Deaths:
    """Counts the boundaries that this process crosses, and dies at one of them; or at a place with a name."""

    def __init__(self, at: int | str = -1, notes: Path | None = None) -> None:
        self.at, self.count, self.notes = at, 0, notes

    def before(self, count: int, request: Request) -> None:
        self.count = max(self.count, count)
        if 2 * count == self.at:
            self.die(*(f"before {name}" for name in boundaries_of(request)))

    def after(self, count: int, request: Request) -> None:
        if 2 * count + 1 == self.at:
            self.die(*(f"after {name}" for name in boundaries_of(request)))

    def place(self, name: str) -> None:
        if name == self.at:
            self.die(f"{name.partition(' ')[0]} effect")

    def die(self, *where: str) -> None:
        if self.notes is not None:
            with self.notes.open("a") as notes:
                notes.writelines(f"{one}\n" for one in where)
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class Stage:
    """Where the lives of a proof are lived: which kind of saver, at which address, in which durability."""

    kind: str
    url: str
    world: World
    checkpoint: str
    folder: Path

    def noted(self, thread: str, kind: str, *what: str) -> list[str]:
        """Note something that outlives the process; give all that was noted."""
        file = self.folder / f"{thread}.{kind}"
        with file.open("a") as notes:
            notes.writelines(f"{one}\n" for one in what)
        return file.read_text().split()

    @contextmanager
    def agent(self, thread: str, deaths: Deaths | None = None) -> Iterator[Agent]:
        """Open everything as a new process does."""
        deaths = deaths or Deaths()
        real = reopen(self.url)
        with real.lease(thread, if_busy="interrupt"):  # do not wait for the lease of a process that is known to be dead
            pass
        keeper = type(real)(FaultyDatabase(real.database, deaths.before, after=deaths.after), types=())
        saver: Any = keeper
        options: dict[str, Any] = {}
        if self.kind == "official":
            saver, options = open_saver(f"langgraph+sqlite:///{self.folder}/official.db"), {"ledger": keeper}
        try:
            yield agent_of(saver, self.world, thread, deaths, checkpoint=self.checkpoint, **options)
        finally:
            keeper.close()


def agent_of(saver: Any, world: World, thread: str, deaths: Deaths, **options: Any) -> Agent:
    """Make the agent: a tool for each way to settle what is in doubt."""

    def doing(what: str, key: str = "") -> str:
        deaths.place(f"before {what}")
        done = world.do(thread, what, key)
        deaths.place(f"after {what}")
        return done

    def looked(key: str, args: dict[str, Any]) -> Any:
        del key
        return f"did {args['what']}" if world.counts(thread)[args["what"]] else NOT_DONE

    @tool(risk="read_only")
    def look(what: str) -> str:
        return f"saw {what}"

    @tool(risk="external_action")
    def mail(what: str, idempotency_key: str) -> str:
        return doing(what, idempotency_key)

    @tool(risk="irreversible")
    async def pay(what: str) -> str:
        return doing(what)

    @tool(risk="write_local", probe=looked)
    def file(what: str) -> str:
        return doing(what)

    @tool(risk="write_local")
    def print_it(what: str, idempotency_key: str) -> str:
        return doing(what, idempotency_key) + "." * LONG

    clock = FrozenClock()
    model = ScriptedModel(plan=[["one", "two"]], act=[FIRST, "one done", SECOND, "two done"], answer=["all done"])
    tools = [look, mail, pay, file, print_it]
    return Agent(model, tools=tools, saver=saver, clock=clock, sleep=clock.sleep, chance=lambda: 0.5, **options)


def live(stage: Stage, agent: Agent, thread: str) -> Any:
    """Go on with a thread until it is done, and note which calls were in doubt and which a person was asked about."""
    world = stage.world
    left = [entry.record for entry in agent.effects(thread) if entry.status == "claimed"]
    stage.noted(thread, "doubtful", *(record["args"]["what"] for record in left if record["tool"] == "pay"))
    run = agent.state(thread)
    run = agent.run("do all", thread=thread, progress=False) if run.status == "unknown" else run
    while run.status != "done":
        assert run.status in ("waiting", "crashed"), run
        doubts = [review for review in run.reviews if review.kind == "in_doubt"]
        stage.noted(thread, "asked", *(review.args["what"] for review in doubts))
        made = {review.id: world.counts(thread)[review.args["what"]] for review in doubts}
        run = agent.resume(
            thread, progress=False,
            approve=[review.id for review in run.reviews if review.kind != "in_doubt"],
            done={review.id: f"did {review.args['what']}" for review in doubts if made[review.id]},
            not_done=[review.id for review in doubts if not made[review.id]],
        )  # fmt: skip
    if isinstance(agent.saver, Saver):
        agent.saver.retain(Keep(last=4), threads=thread)
    return run


def told(agent: Agent, run: Any) -> dict[str, Any]:
    """Give what must be the same however often the process died."""
    state = run.state
    return {
        "answer": run.answer,
        "plan": [(step["title"], step["status"], step["result"]) for step in state["plan"]],
        "calls": [(call["tool"], call["args"], call["status"], call["result"]) for call in state["calls"]],
        "facts": sorted(fact["text"] for fact in state["facts"]),
        "messages": [(message["role"], message["content"]) for message in state["messages"]],
        "decisions": [(one["node"], one["chose"]) for one in state["decisions"]],
        "large": [agent.artifact(run, one["id"]) for one in state["artifacts"] if one.get("beside")],
        "ledger": sorted((entry.record["tool"], entry.status) for entry in agent.effects(run.thread)),
    }


def first_life(stage: Stage, thread: str, deaths: Deaths) -> None:
    with stage.agent(thread, deaths) as agent:
        live(stage, agent, thread)
        (stage.folder / "boundaries").write_text(str(deaths.count))


def last_life(stage: Stage, thread: str) -> None:
    """Go on to the end, and see that nothing is lost, wrong or done twice, and that who had to be asked was asked."""
    with stage.agent(thread) as agent:
        run = live(stage, agent, thread)
        ended = json.loads(json.dumps(told(agent, run)))
        expected = stage.folder / "expected"
        if not expected.exists():
            expected.write_text(json.dumps(ended))
        assert ended == json.loads(expected.read_text()), (ended, json.loads(expected.read_text()))
        counts = stage.world.counts(thread)
        assert all(counts[what] == 1 for what in EFFECTS), ("done twice or never", counts)
        asked, doubtful = set(stage.noted(thread, "asked")), set(stage.noted(thread, "doubtful"))
        assert asked == doubtful, ("asked", asked, doubtful)


def try_point(stage: Stage, thread: str, *deaths: Deaths) -> bool:
    """Live and die at each of these points in turn, then live to the end; tell whether the first death came."""
    died = [in_child(lambda one=one: first_life(stage, thread, one)) for one in deaths]
    assert in_child(lambda: last_life(stage, thread)) == FINE
    return died[0] == KILLED


def prove(stage: Stage, every: int) -> str:
    """Kill at every N-th boundary and at every place; at every third of these, kill the next life too."""
    start, tried, twice = time.monotonic(), 0, 0
    name = f"{stage.kind} {stage.checkpoint}"
    for number in range(2):  # the first life of a database learns names, the second is as all others are
        assert not try_point(stage, f"{name} {number}", Deaths())
    boundaries = 2 * int((stage.folder / "boundaries").read_text()) + 2
    stride = every | 1  # even numbers are before a request, odd ones after it
    points: list[int | str] = [*range(2, boundaries, stride), *(PLACES if every < boundaries else PLACES[:3])]
    notes = stage.folder / "deaths"
    for number, point in enumerate(points):
        second = [Deaths(2 + (7 * number) % (boundaries - 2))] if number % 3 == 2 else []
        died = try_point(stage, f"{name} at {point}", Deaths(point, notes), *second)
        assert died or isinstance(point, int), point  # a life may need fewer requests than the first one did
        tried, twice = tried + died, twice + len(second)
    assert tried > 0.9 * len(points), (tried, len(points))
    deaths = Counter(notes.read_text().splitlines())
    if every == 1:
        assert not (missed := wanted(stage.kind) - deaths.keys()), missed
    asked = sum(bool(file.read_text()) for file in stage.folder.glob("*.asked"))
    names = sorted({name.split()[1] for name in deaths})
    where = ", ".join(f"{name} {'+'.join(str(deaths[f'{when} {name}']) for when in WHEN)}" for name in names)
    return (
        f"crash points {stage.kind} {stage.checkpoint}: tried {tried}, twice {twice}, lost 0, duplicated 0, wrong 0,"
        f" in doubt and asked {asked}, boundaries {boundaries - 2}, seconds {time.monotonic() - start:.1f};"
        f" before+after: {where}"
    )


def wanted(kind: str) -> set[str]:
    """Name the boundaries at which a proof that tries every one must have killed."""
    return {f"{when} {name}" for name in BOUNDARIES[kind] for when in WHEN}


@contextmanager
def addresses(kinds: list[str], folder: str) -> Iterator[Callable[[str, str], str]]:
    """Give the address of an empty database for each kind and durability; those on a server go with the block."""
    with ExitStack() as stack:
        server = os.environ.get("TEST_POSTGRES_URL", "")
        if "postgres" in kinds and not server:
            server = stack.enter_context(LocalPostgres()).url

        def address(kind: str, name: str) -> str:
            if kind != "postgres":
                return f"sqlite:///{folder}/{name}.db"
            made = f"e{os.getpid()}_{name}"
            asked(server, f"CREATE DATABASE {made}")
            stack.callback(asked, server, f"DROP DATABASE {made} WITH (FORCE)")
            return server.rsplit("/", 1)[0] + f"/{made}"

        yield address


def asked(server: str, what: str) -> None:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(what)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--durability", choices=("sync", "async"))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    kinds = [given.only] if given.only else list(KINDS)
    with World.start() as world, tempfile.TemporaryDirectory() as folder, addresses(kinds, folder) as address:
        for kind in kinds:
            for durability in [given.durability] if given.durability else ["sync", "async"]:
                own = Path(folder) / f"{kind}-{durability}"
                own.mkdir()
                url = address(kind, f"{kind}_{durability}")
                assert in_child(lambda url=url: reopen(url).close()) == FINE
                checkpoint = "step" if durability == "sync" else "async"
                print(prove(Stage(kind, url, world, checkpoint, own), given.every), flush=True)


if __name__ == "__main__":
    main()
