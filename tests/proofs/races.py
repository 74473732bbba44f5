"""`python -m tests.proofs.races [N]`: two writers of one thread, with a lease and without; and zombies.

Two processes race for a payment that must be made once; a node notes each run in a file. Without a lease what counts is
that nothing acknowledged is lost in silence. A zombie is a process that stops itself just before a write reaches the
database, or in the middle of a node, while another one takes its thread over and goes on; then it is woken.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
import os
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.graph import StateGraph

from checkpointers import ForkedWarning, HeadMovedError, LeaseLostError, Saver, ThreadBusyError
from checkpointers.statements import Append, Request
from checkpointers.testing import FaultyDatabase
from tests.checkpointers.graphs import config
from tests.proofs.lives import Clock, Life, Notes, arguments, databases, findings, live, opened, snapshot

RACES = 100
AT_A_TIME = 10
EVERY = 0.1
TTL = 0.8
STEPS = 4
POLICIES = ("expiry", "interrupt", "rollback")


class State(TypedDict, total=False):
    n: int
    log: Annotated[list[str], operator.add]


def payment(saver: Any, notes: Notes, name: str, pause: float = 0.005, at: Callable[[int], None] = print) -> Any:
    """Make the graph: a few steps, each of which notes that it ran."""

    def step(state: State) -> State:
        n = state.get("n", 0)
        notes.add(f"ran {n} {name}")
        if at is not print:
            at(n)
        time.sleep(pause)
        return {"n": n + 1, "log": [f"{n} {name}"]}

    builder = StateGraph(State)
    builder.add_node("step", step)
    builder.add_edge("__start__", "step")
    builder.add_conditional_edges("step", lambda s: "step" if s["n"] < STEPS else "__end__", ["step", "__end__"])
    return builder.compile(checkpointer=saver)


def prepared(url: str, threads: Sequence[str]) -> None:
    """Begin each thread, and stop before the first step."""
    warnings.simplefilter("ignore")
    with opened(url) as saver, tempfile.TemporaryDirectory() as folder:
        app = payment(saver, Notes(Path(folder) / "none"), "nobody")
        paused = app.builder.compile(checkpointer=saver, interrupt_before=["step"])
        for thread in threads:
            paused.invoke({"n": 0}, config(thread), durability="sync")


def noting(saver: Saver, notes: Notes, name: str) -> Saver:
    """Note every checkpoint and every write that is acknowledged."""
    put, put_writes = saver.put, saver.put_writes

    def acknowledged_put(at: Any, *arguments: Any) -> Any:
        stored = put(at, *arguments)
        notes.add(f"put {stored['configurable']['checkpoint_id']} {name}")
        return stored

    def acknowledged_writes(at: Any, writes: Any, task: str, path: str = "") -> None:
        put_writes(at, writes, task, path)
        notes.add(f"wrote {at['configurable']['checkpoint_id']}/{task} {name}")

    saver.put, saver.put_writes = acknowledged_put, acknowledged_writes  # type: ignore[method-assign]
    return saver


def lost(saver: Saver, thread: str, notes: Notes) -> list[str]:
    """Give what was acknowledged and is not there."""
    found = list(saver.list(config(thread)))
    there = {f"put {one.checkpoint['id']}" for one in found}
    there |= {f"wrote {one.checkpoint['id']}/{write[0]}" for one in found for write in one.pending_writes or ()}
    said = [line.rpartition(" ")[0] for line in notes.all() if line.startswith(("put ", "wrote "))]
    return [line for line in said if line not in there]


def chain(saver: Saver, thread: str) -> set[str]:
    """Give the checkpoints on the way to the head."""
    parents = {
        one.checkpoint["id"]: one.parent_config and one.parent_config["configurable"]["checkpoint_id"]
        for one in saver.list(config(thread))
    }
    at, on = saver.get_tuple(config(thread)).checkpoint["id"], set()
    while at:
        on.add(at)
        at = parents.get(at)
    return on


@dataclass
class Count:
    """What came of the races."""

    races: int = 0
    double: int = 0
    lost: int = 0
    silent: int = 0
    refused: int = 0
    waited: int = 0
    moved: int = 0
    forked: int = 0
    odd: list[str] = field(default_factory=list)


def race(url: str, threads: Sequence[str], folder: Path, how: str) -> list[dict[str, Any]]:
    """Let two processes run through the same threads, each thread at the same moment."""
    start = time.monotonic() + 0.4

    def one(name: str) -> dict[str, Any]:
        warnings.simplefilter("ignore")
        outcomes: dict[str, str] = {}
        with opened(url, on_conflict="fork" if how == "fork" else "error") as saver:
            noting(saver, notes := Notes(folder / f"{how} ?"), name)

            def run(thread: str) -> None:
                own = Notes(folder / f"{how} {thread}")
                notes.path = own.path
                with warnings.catch_warnings(record=True) as seen:
                    warnings.simplefilter("always", ForkedWarning)
                    outcomes[thread] = _outcome(saver, thread, payment(saver, own, name), how)
                if any(issubclass(warning.category, ForkedWarning) for warning in seen):
                    outcomes[thread] = f"{outcomes[thread]} forked"

            for number, thread in enumerate(threads):
                time.sleep(max(0.0, start + number * EVERY - time.monotonic()))
                run(thread)
        return outcomes

    return [said for said in (life.end() for life in [live(lambda: one("A")), live(lambda: one("B"))]) if said]


def _outcome(saver: Saver, thread: str, app: Any, how: str) -> str:
    begun = time.monotonic()
    try:
        if how in ("reject", "enqueue"):
            timeout = 30.0 if how == "enqueue" else None
            with saver.lease(thread, ttl=5, if_busy=how, timeout=timeout):  # type: ignore[arg-type]
                app.invoke(None, config(thread), durability="sync")
        else:
            app.invoke(None, config(thread), durability="sync")
    except ThreadBusyError:
        return "busy"
    except HeadMovedError:
        return "moved"
    return "waited" if time.monotonic() - begun > EVERY else "done"


def judge(
    url: str, threads: Sequence[str], folder: Path, how: str, outcomes: list[dict[str, Any]], count: Count
) -> None:
    """Look at every thread after its race."""
    with opened(url) as saver:
        for thread in threads:
            notes = Notes(folder / f"{how} {thread}")
            ran = [line.split()[1] for line in notes.all() if line.startswith("ran ")]
            said = {name: outcome[thread] for name, outcome in zip("AB", outcomes, strict=True)}
            count.races += 1
            count.double += len(ran) != len(set(ran))
            count.refused += sum(word.startswith("busy") for word in said.values())
            count.waited += sum(word.startswith("waited") for word in said.values())
            count.moved += sum(word.startswith("moved") for word in said.values())
            count.forked += sum("forked" in word for word in said.values())
            missing = [*lost(saver, thread, notes), *findings(saver, thread)]
            count.lost += bool(missing)
            silent = _silent(saver, thread, notes, said)
            count.silent += bool(silent)
            state = payment(saver, notes, "nobody").get_state(config(thread)).values
            if missing or silent or [entry.split()[0] for entry in state["log"]] != [str(n) for n in range(STEPS)]:
                count.odd.append(f"{how} {thread}: {said} lost {missing} silent {silent} {state}")


def _silent(saver: Saver, thread: str, notes: Notes, said: dict[str, str]) -> list[str]:
    """Give who was told that all went well, though its last checkpoint is not on the way to the head."""
    on = chain(saver, thread)
    last = {line.split()[2]: line.split()[1] for line in notes.all() if line.startswith("put ")}
    return [
        name
        for name, word in said.items()
        if name in last and "moved" not in word and "forked" not in word and last[name] not in on
    ]


def races(kind: str, url: str, many: int) -> bool:
    """Race with a lease (rejected, enqueued) and without (error, fork); print a line for each."""
    good = True
    for how in ("reject", "enqueue", "error", "fork"):
        clock = Clock()
        threads = [f"{how} race {n}" for n in range(many)]
        live(partial(prepared, url, threads)).end()
        with tempfile.TemporaryDirectory() as folder:
            outcomes = race(url, threads, Path(folder), how)
            judged = live(partial(_judged, url, threads, Path(folder), how, outcomes)).end()
        found = Count(**(judged or {}))
        if how in ("reject", "enqueue"):
            told = f"double runs {found.double}, lost branches {found.lost}, refused {found.refused}, waited {found.waited}"
            good = good and not (found.double or found.lost or found.odd)
        else:
            told = f"silent losses {found.silent + found.lost}, moved {found.moved}, forked {found.forked}, double runs {found.double}"
            good = good and not (found.silent or found.lost)
        print(f"races {how} {kind}: tried {found.races}, {told}, seconds {clock}", flush=True)
        for line in found.odd[:5]:
            print(f"  {line}")
    return good


def _judged(url: str, threads: Sequence[str], folder: Path, how: str, outcomes: list[dict[str, Any]]) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    count = Count()
    judge(url, threads, folder, how, outcomes, count)
    return vars(count)


# Zombies.


class Stopping:
    """Stops this process, but never in the middle of a heartbeat or a commit: SQLite's file would stay locked meanwhile."""

    def __init__(self, database: Any) -> None:
        """Start with nothing counted."""
        self._beating, self._appends, self._done = threading.Lock(), itertools.count(1), False
        self._committing = database._lock if database.dialect == "sqlite" else contextlib.nullcontext()

    def watch(self, saver: Saver) -> None:
        """Know when the heart of a saver beats."""
        renew = saver._desk.heart._renew

        def beat(lease: Any) -> bool:
            with self._beating:
                return renew(lease)

        saver._desk.heart._renew = beat

    def stop(self) -> None:
        """Stop, once."""
        with self._beating, self._committing:
            if not self._done:
                self._done = True
                os.kill(os.getpid(), signal.SIGSTOP)
                time.sleep(0.1)  # the signal may reach another thread first; this one must do nothing until it is here

    def before(self, number: int) -> Callable[[int, Request], None]:
        """Make a fault: stop before the N-th write reaches the database."""

        def fault(count: int, request: Request) -> None:
            if isinstance(request, Append) and next(self._appends) == number:
                self.stop()

        return fault


def zombie(url: str, thread: str, folder: Path, number: int) -> dict[str, Any]:
    """Hold a thread and run; stop before write N, or for N = 0 in the middle of a node; say how it went on."""
    warnings.simplefilter("ignore")
    real = opened(url)
    stopping = Stopping(real.database)
    saver = type(real)(FaultyDatabase(real.database, stopping.before(number)))
    stopping.watch(saver)

    def stop(n: int) -> None:
        if number == 0 and n == 2:
            stopping.stop()

    app = payment(noting(saver, Notes(folder / thread), "Z"), Notes(folder / thread), "Z", 0.0, stop)
    try:
        with saver.lease(thread, ttl=TTL, owner="Z"):
            app.invoke(None, config(thread), durability="sync")
    except LeaseLostError:
        return {"said": "lost"}
    return {"said": "done"}


def heir(url: str, thread: str, folder: Path, policy: str) -> dict[str, Any]:
    """Take the thread over and go on to the end; give what it holds then."""
    warnings.simplefilter("ignore")
    with opened(url) as saver:
        notes = Notes(folder / thread)
        app = payment(saver, Notes(folder / f"{thread} heir"), "H", 0.0)
        how: Any = ("enqueue", TTL + 10) if policy == "expiry" else (policy, None)
        with saver.lease(thread, ttl=30, owner="H", if_busy=how[0], timeout=how[1]):
            missing = lost(saver, thread, notes) if policy != "rollback" else []
            app.invoke(None, config(thread), durability="sync")
        state = app.get_state(config(thread)).values
        return {
            "lost": missing, "holds": snapshot(saver, thread), "log": state["log"],
            "found": findings(saver, thread),
        }  # fmt: skip


def zombies(kind: str, url: str, many: int) -> bool:
    """Try so many zombies, with each way to take over in turn; print a line for each."""
    good, writes, many = True, STEPS + 2, -(-many // len(POLICIES))
    for policy in POLICIES:
        clock, landed, missing, told, tried = Clock(), 0, 0, 0, 0
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder)
            names = [f"zombie {policy} {n}" for n in range(many)]
            live(partial(prepared, url, names)).end()
            for start in range(0, many, AT_A_TIME):
                batch = [(names[n], n % writes) for n in range(start, min(start + AT_A_TIME, many))]
                lives = [live(partial(zombie, url, t, home, n)) for t, n in batch]
                stopped = [life.stopped() for life in lives]
                heirs = [live(partial(heir, url, t, home, policy)) for t, _ in batch]
                after = [life.end() for life in heirs]
                said = _woken(lives, stopped)
                now = live(partial(_now, url, [t for t, _ in batch], home, policy)).end()
                for (thread, _), was_stopped, was, word in zip(batch, stopped, after, said, strict=True):
                    if not was_stopped:
                        continue
                    tried += 1
                    told += word == "lost"
                    missing += bool(was["lost"] or was["found"] or now[thread][1])
                    if now[thread][0] != was["holds"] or word != "lost":
                        landed += 1
                        print(f"  {thread}: {word}, {was['log']}")
        print(
            f"zombies {policy} {kind}: tried {tried}, zombie writes landed {landed}, lost {missing}, "
            f"told {told}, seconds {clock}",
            flush=True,
        )
        good = good and tried > 0 and not (landed or missing)
    return good


def _woken(lives: Sequence[Life], stopped: Sequence[bool]) -> list[str]:
    for life, was_stopped in zip(lives, stopped, strict=True):
        if was_stopped:
            life.goes_on()
    return [_said(life) if was_stopped else "" for life, was_stopped in zip(lives, stopped, strict=True)]


def _said(life: Life) -> str:
    said = life.end()
    return str(said["said"]) if said else "killed"


def _now(url: str, threads: Sequence[str], folder: Path, policy: str) -> dict[str, Any]:
    """Give what threads hold after all, and what is missing of what was acknowledged, unless it was rolled back."""
    warnings.simplefilter("ignore")
    with opened(url) as saver:
        rolled = policy == "rollback"
        return {
            thread: (snapshot(saver, thread), [] if rolled else lost(saver, thread, Notes(folder / thread)))
            for thread in threads
        }


def main() -> int:
    """Race as often as asked, 100 times by default, on each database."""
    warnings.simplefilter("ignore")
    given = arguments("two writers of one thread, and zombies", many=RACES)
    with databases(given.only) as urls:
        good = [races(kind, url, given.many) & zombies(kind, url, given.many) for kind, url in urls.items()]
        return int(not all(good))


if __name__ == "__main__":
    sys.exit(main())
