"""`python -m tests.proofs.faults [most]`: each kind of fault at the N-th request, N = 1, 2, …, once and for ever.

A run takes a lease, runs a graph, writes, keeps to a policy and gives the thread back. It ends well or with an error of
ours; then another saver without faults takes the thread over and brings it to its end. What was acknowledged must be
there, and the end must be the one of a run without faults: anything else without an error is a silent loss. A torn
write is a database that broke its word: there an error that names the damage is a good answer, too.
"""

from __future__ import annotations

import itertools
import sys
import warnings
from collections import Counter
from typing import Any

from checkpointers import CheckpointerError, IntegrityError, Keep, Saver
from checkpointers.testing import FAULT_KINDS, FaultKind, faulty
from tests.checkpointers.graphs import DeltaState, config, loop
from tests.proofs.lives import Clock, arguments, databases, findings, opened

STEPS = 5
SECONDS = 0.01


def work(saver: Saver, thread: str, acknowledged: list[tuple[str, str]]) -> None:
    """Run a thread to its end, from wherever it stands, under a lease."""
    with saver.lease(thread, ttl=5, if_busy="interrupt"):
        app = loop(saver, DeltaState)
        begun = app.get_state(config(thread)).values.get("n") is not None
        app.invoke(None if begun else {"until": STEPS, "n": 0}, config(thread), durability="sync")
        head = saver.get_tuple(config(thread)).config
        for task in ("one", "two"):
            saver.put_writes(head, [("log", [{"id": task}])], task)
            acknowledged.append((head["configurable"]["checkpoint_id"], task))
        saver.tag(thread, "worked")
        acknowledged.append(("", "worked"))
        saver.retain(Keep(last=2), threads=thread)


def held(saver: Saver, thread: str) -> dict[str, Any]:
    """Give what must be the same at the end, whatever happened."""
    found = list(saver.list(config(thread)))
    (info,) = [info for info in saver.threads() if info.thread == thread]
    state = loop(saver, DeltaState).get_state(config(thread))
    return {
        "values": state.values, "next": state.next, "status": info.status, "tags": info.tags, "holder": info.holder,
        "kept": len(found), "checkpoints": info.checkpoints,
        "pending": [write for write in found[0].pending_writes or () if write[0] in ("one", "two")],
    }  # fmt: skip


class Noted:
    """Notes the checkpoints that a saver acknowledged."""

    def __init__(self, saver: Saver) -> None:
        """Listen."""
        self.puts: list[str] = []
        put = saver.put

        def noting(*arguments: Any) -> Any:
            stored = put(*arguments)
            self.puts.append(stored["configurable"]["checkpoint_id"])
            return stored

        saver.put = noting  # type: ignore[method-assign]


def try_one(url: str, saver: Saver, kind: FaultKind, number: int, *, forever: bool, truth: Any) -> tuple[str, int]:
    """Run with one fault, then recover; say how that went: fine, told, refused (a torn write was named, by fsck at least), or what is wrong."""
    thread, acknowledged, first = f"{kind} {number} {forever}", [], "fine"
    broken = type(saver)(faulty(saver.database, kind, number, forever=forever, seconds=SECONDS))
    noted = Noted(broken)
    try:
        work(broken, thread, acknowledged)
    except CheckpointerError as error:
        first = f"{type(error).__name__}: {error}"
    except Exception as error:
        return f"untyped {type(error).__name__}: {error}", broken.database.requests
    finally:
        broken.database._workers.shutdown(wait=False)
    requests = broken.database.requests
    try:
        missing = _missing(saver, thread, noted, acknowledged, retained=first == "fine")
        again: list[tuple[str, str]] = []
        with opened(url) as another:
            work(another, thread, again)
            after = held(another, thread)
            found = findings(another, thread)
    except IntegrityError:
        return ("refused" if kind == "tear" else f"damaged after {first}"), requests
    if kind == "tear" and found and not missing and after == truth:
        return "refused", requests
    if missing or after != truth or found:
        return f"silent: {first} missing {missing} {found} {_differ(truth, after)}", requests
    return "fine" if first == "fine" else "told", requests


def _missing(saver: Saver, thread: str, noted: Noted, acknowledged: list[Any], *, retained: bool) -> list[Any]:
    """Give what was acknowledged and is not there before anybody recovers; what was retained away is not missed."""
    found = {one.checkpoint["id"]: one for one in saver.list(config(thread))}
    tags = {info.thread: info.tags for info in saver.threads()}.get(thread, ())
    dropping = retained or "worked" in tags
    puts = [put for put in noted.puts if put not in found] if not dropping else []
    writes = [
        (id_, task)
        for id_, task in acknowledged
        if (id_ and task not in {write[0] for write in found[id_].pending_writes or ()})
        or (not id_ and task not in tags)
    ]
    return puts + writes


def _differ(wanted: dict[str, Any], found: dict[str, Any]) -> str:
    return str({key: (wanted[key], found[key]) for key in wanted if wanted[key] != found[key]})[:600]


def prove(kind: str, url: str, most: int | None = None) -> bool:
    """Try every fault at every request, or at so many that are spread over all; print the counts."""
    clock, outcomes, silent = Clock(), Counter[str](), []
    with opened(url) as saver:
        work(saver, "truth", [])
        truth = held(saver, "truth")
        counting = type(saver)(faulty(saver.database, "delay", 0))
        work(counting, "counting", [])
        requests = counting.database.requests
        step = 1 if most is None else max(1, -(-requests // most))
        start = 0
        for fault, forever in itertools.product(FAULT_KINDS, (False, True)):
            start = start % step + 1  # so that a bounded proof looks at other requests for each fault
            for number in range(start, requests + 1, step):
                outcome, _ = try_one(url, saver, fault, number, forever=forever, truth=truth)
                outcomes[outcome.partition(" ")[0].rstrip(":")] += 1
                if outcome not in ("fine", "told", "refused"):
                    silent.append(f"{fault} at {number}{' and later' if forever else ''}: {outcome}")
    tried = outcomes.total()
    print(
        f"faults {kind}: tried {tried}, silent {len(silent)}, went well {outcomes['fine']}, told {outcomes['told']}, "
        f"torn and named {outcomes['refused']}, requests {requests}, seconds {clock}",
        flush=True,
    )
    for line in silent[:20]:
        print(f"  {line}")
    return tried > 0 and not silent


def main() -> int:
    """Try all on each database."""
    warnings.simplefilter("ignore")
    given = arguments("faults at every request, or at so many", most=None)
    with databases(given.only) as urls:
        good = [prove(kind, url, given.most) for kind, url in urls.items()]
        return int(not all(good))


if __name__ == "__main__":
    sys.exit(main())
