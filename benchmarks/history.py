"""History, side by side: `python -m benchmarks.history [--steps 1000] [--repeat 5] [--long 10000] [--json FILE]`.

A thread of so many iterations (four supersteps each, see `workload`) on our saver and on the official one of the same
database: our `History` against `get_state_history` of the graph on the official saver, the two taking turns. First the
newest 50 steps, then the whole log; the official one is gone through once, it takes minutes. Then our other verbs, and
`bisect` on a long thread with the states that it loads.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.storage import opened
from benchmarks.workload import Plain, first_input, graph

PAGE = 50
CONFIG = {"configurable": {"thread_id": "t"}, "recursion_limit": 10**6}
PAIRS = {"SQLite": ("sqlite", "official-sqlite"), "Postgres": ("postgres", "official-postgres")}
WANTED = {"first page": 50, "whole log": 100}
LOADS = 15


def log(message: str) -> None:
    """Say how far it is."""
    print(message, file=sys.stderr, flush=True)


def timed(call: Callable[[], Any]) -> float:
    """Time a call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def fill(saver: Any, steps: int) -> None:
    """Run the agent of the workload."""
    deque(graph(Plain, saver).stream(first_input(steps), CONFIG, durability="sync", stream_mode="updates"), maxlen=0)


def ours(saver: Any) -> dict[str, Callable[[], Any]]:
    """Give our side: what is drawn is drawn whole, as text."""
    from checkpointers import History

    return {
        "first page": lambda: list(map(str, History(saver, "t", newest=PAGE).log())),
        "whole log": lambda: list(map(str, History(saver, "t").log())),
    }


def theirs(saver: Any) -> dict[str, Callable[[], Any]]:
    """Give the official side, which makes the states; nothing is kept."""
    app = graph(Plain, saver)

    def whole() -> None:
        """Go through it in pages: in one go the official Postgres saver brings all states into memory at once."""
        before = None
        while page := list(app.get_state_history(CONFIG, before=before, limit=PAGE)):
            before = page[-1].config

    return {"first page": lambda: deque(app.get_state_history(CONFIG, limit=PAGE), maxlen=0), "whole log": whole}


def duel(our: Any, other: Any, repeat: int) -> dict[str, dict[str, list[float]]]:
    """Time both sides in turns, in any order."""
    sides = {"ours": ours(our), "theirs": theirs(other)}
    spans: dict[str, dict[str, list[float]]] = {name: {side: [] for side in sides} for name in WANTED}
    for name in WANTED:
        for turn in range(repeat):
            for side in random.sample(list(sides), 2):
                if name == "whole log" and side == "theirs" and turn:
                    continue
                spans[name][side].append(timed(sides[side][name]))
                log(f"  {name}, {side}: {spans[name][side][-1]:.4f} s")
    return spans


def verbs(saver: Any) -> dict[str, Callable[[], Any]]:
    """Give our other verbs, each from a history that nobody has read in."""
    from checkpointers import History
    from checkpointers.drawing import export_html

    def history() -> Any:
        return History(saver, "t")

    middle = len(history()) // 2
    return {
        "show of one step (nodes, what it wrote)": lambda: (history()[middle].nodes, history()[middle].wrote),
        "diff of two neighbours": lambda: history().diff(middle, middle + 1),
        "diff of the first half": lambda: history().diff(middle, len(history())),
        "blame of a number": lambda: history().blame("turn"),
        "blame of a message's content": lambda: history().blame("messages.tool-3.content"),
        "bisect": lambda: history().bisect(lambda step: step.values.get("turn", 0) >= 7),
        "grep": lambda: history().grep("search"),
        "export as JSON": lambda: history().export("json"),
        "export as Markdown": lambda: history().export("markdown"),
        "export as Python": lambda: history().export("python"),
        "export as HTML": lambda: export_html(history()),
    }


def long_bisect(saver: Any, steps: int) -> tuple[list[float], int]:
    """Look for a change at several places of a long thread of many fields; give the times and the most loads."""
    from checkpointers import History

    place: Any = {"configurable": {"thread_id": "long", "checkpoint_ns": ""}}
    for number in range(1, steps + 1):
        checkpoint: Any = {
            "v": 4, "id": f"{number:032d}", "ts": "2026-11-18T00:00:00+00:00", "channel_values": {"n": number, "text": "same"},
            "channel_versions": {"n": number, "text": 1}, "versions_seen": {},
        }  # fmt: skip
        place = saver.put(place, checkpoint, {"source": "loop", "step": number, "parents": {}}, {"n": number})
    load, loads, most = saver.get_tuple, [], 0
    saver.get_tuple = lambda config: loads.append(config) or load(config)
    history, spans = History(saver, "long"), []
    for first in (1, 2, steps // 3, steps // 2, steps - 1, steps, steps + 1):
        loads.clear()
        spans.append(timed(lambda first=first: history.bisect(lambda step: step.values["n"] >= first)))
        most = max(most, len(loads))
    del saver.get_tuple
    return spans, most


@contextmanager
def both(kinds: tuple[str, str], server: str) -> Iterator[tuple[Any, Any]]:
    """Open our saver and the official one, each on a database of its own."""
    import psycopg

    names = [f"h{random.getrandbits(48):x}" for _ in kinds]
    with psycopg.connect(server, autocommit=True) as connection:
        for name in names:
            connection.execute(f"CREATE DATABASE {name}")
    urls = [f"{server.rsplit('/', 1)[0]}/{name}" for name in names]
    with tempfile.TemporaryDirectory(prefix="bench-", dir=os.environ.get("BENCH_DIR")) as folder:
        places = [Path(folder, kind) for kind in kinds]
        for place in places:
            place.mkdir()
        with opened(kinds[0], places[0], urls[0]) as our, opened(kinds[1], places[1], urls[1]) as other:
            yield our, other
    with psycopg.connect(server, autocommit=True) as connection:
        for name in names:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def measure(kinds: tuple[str, str], server: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure one database."""
    with both(kinds, server) as (our, other):
        for kind, saver in zip(kinds, (our, other), strict=True):
            log(
                f"{kind}: {arguments.steps} iterations in {timed(lambda saver=saver: fill(saver, arguments.steps)):.1f} s"
            )
        found: dict[str, Any] = {"duel": duel(our, other, arguments.repeat), "verbs": {}}
        for name, call in verbs(our).items():
            found["verbs"][name] = [timed(call) for _ in range(min(3, arguments.repeat))]
            log(f"  {name}: {found['verbs'][name]}")
        found["bisect"], found["loads"] = long_bisect(our, arguments.long)
    return found


def told(spans: list[float]) -> str:
    """Give the median of times, and the spread if there are several."""
    middle = f"{statistics.median(spans) * 1e3:,.1f}"
    return middle if len(spans) == 1 else f"{middle} ({min(spans) * 1e3:,.1f} to {max(spans) * 1e3:,.1f})"


def report(results: dict[str, dict[str, Any]], arguments: argparse.Namespace) -> str:
    """Make the tables: medians, spread, ratios, and whether they are those that are wanted."""
    lines = ["", f"| {arguments.steps:,} iterations | ours, ms | get_state_history on the official saver, ms | theirs / ours | wanted |",
             "|---|---|---|---|---|"]  # fmt: skip
    for base, found in results.items():
        for name, sides in found["duel"].items():
            ratio = statistics.median(sides["theirs"]) / statistics.median(sides["ours"])
            met = "yes" if ratio >= WANTED[name] else "NO"
            cells = [
                f"{base} · {name}",
                told(sides["ours"]),
                told(sides["theirs"]),
                f"{ratio:,.0f}",
                f"{WANTED[name]}: {met}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    lines += ["", f"| ours, ms | {' | '.join(results)} |", f"|---|{'---|' * len(results)}"]
    lines += [
        f"| {verb} | {' | '.join(told(found['verbs'][verb]) for found in results.values())} |"
        for verb in next(iter(results.values()))["verbs"]
    ]
    bisects = [f"{told(found['bisect'])}, {found['loads']} states" for found in results.values()]
    lines.append(f"| bisect of {arguments.long:,} steps (at most {LOADS} states) | {' | '.join(bisects)} |")
    return "\n".join(lines)


def main() -> None:
    """Run everything and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--long", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--databases", nargs="*", default=[*PAIRS])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    from checkpointers.testing import LocalPostgres

    with LocalPostgres() as server:
        results = {base: measure(PAIRS[base], server.url, arguments) for base in arguments.databases}
    print(report(results, arguments))
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
