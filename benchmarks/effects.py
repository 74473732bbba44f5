"""What the ledger and large results cost: `python -m benchmarks.effects [CALLS] [ROUNDS]`.

In turns in one process: a run of CALLS calls of a tool that only reads, of one with an effect, and of one with an effect
and a key; then runs whose first result is small, or of 50 MB: what the steps after it take and store, on our saver, where
the result stands beside the state, and on the official one without a ledger, where it is in the state.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.workload import text
from checkpointers import PostgresSaver, SqliteSaver
from checkpointers.testing import LocalPostgres
from graph_agent import Agent, Budget, tool
from graph_agent.testing import ScriptedModel, calls

MB = 1_000_000
LARGE = 50 * MB
LATER = 10


def read(n: int) -> str:
    """Look something up."""
    return text(500, n)


def make(n: int) -> str:
    """Do something."""
    return text(500, n)


def make_with_key(n: int, idempotency_key: str) -> str:
    """Do something that knows its key."""
    return text(500, n) + idempotency_key[:0]


TOOLS = {
    "reads": tool(risk="read_only", name="do")(read),
    "effect": tool(risk="write_local", name="do")(make),
    "effect with a key": tool(risk="write_local", name="do")(make_with_key),
}


def per_call(saver: Any, one: Any, count: int) -> float:
    """Run so many calls, one after the other; milliseconds for each."""
    lines = [*(calls(("do", {"n": n})) for n in range(count)), "done"]
    model = ScriptedModel(plan=[["do it"]], act=lines, reflect=["continue"], answer=["done"], strict=False)
    agent = Agent(model, tools=[one], saver=saver, budget=Budget(max_steps=None))
    start = time.perf_counter()
    run = agent.run("do it", thread="t", progress=False)
    if run.status != "done":
        raise SystemExit(f"the run went wrong: {run}")
    return 1_000 * (time.perf_counter() - start) / count


def compare(name: str, opened: Callable[[], Any], count: int, rounds: int) -> None:
    """Print the medians of the ratios to calls that only read, and their spread."""
    found: dict[str, list[float]] = {kind: [] for kind in TOOLS}
    for _ in range(rounds):
        for kind, one in TOOLS.items():
            with opened() as saver:
                found[kind].append(per_call(saver, one, count))
    base = found["reads"]
    for kind, times in found.items():
        ratios = [mine / plain for mine, plain in zip(times, base, strict=True)]
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"| {name} | {kind} | {statistics.median(times):.1f} | {spread} |", flush=True)


def after(saver: Any, path: Path, size: int, options: dict[str, Any]) -> tuple[float, float, float]:
    """Take in a result of so many bytes, then work on; milliseconds and kilobytes of a later call, MB in all."""
    marks: list[tuple[float, int]] = []

    @tool(risk="read_only")
    def fetch() -> str:
        return text(1_000, 7) * (size // 1_000)

    @tool(risk="read_only")
    def note(n: int) -> str:
        marks.append((time.perf_counter(), stored(path)))
        return f"noted {n}"

    lines = [calls(("fetch", {})), *(calls(("note", {"n": n})) for n in range(LATER)), "done"]
    model = ScriptedModel(plan=[["work"]], act=lines, reflect=["continue"], answer=["done"], strict=False)
    run = Agent(model, tools=[fetch, note], saver=saver, **options).run("work", thread="t", progress=False)
    if run.status != "done":
        raise SystemExit(f"the run went wrong: {run}")
    seconds = (marks[-1][0] - marks[0][0]) / (len(marks) - 1)
    grown = (marks[-1][1] - marks[0][1]) / (len(marks) - 1)
    return 1_000 * seconds, grown / 1_000, stored(path) / MB


def stored(path: Path) -> int:
    """Count the bytes of a database and its log."""
    return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))


def large(rounds: int) -> None:
    """Print what steps cost after a small and a large result."""
    found: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
    for _ in range(rounds):
        for kind in ("ours", "official"):
            for size in (1_000, LARGE):
                with tempfile.TemporaryDirectory() as folder:
                    path = Path(folder) / "a.db"
                    address = f"sqlite:///{path}" if kind == "ours" else f"langgraph+sqlite:///{path}"
                    found.setdefault((kind, size), []).append(after(address, path, size, {}))
    for (kind, size), runs in found.items():
        times, grown, whole = (statistics.median(column) for column in zip(*runs, strict=True))
        spread = f"{times:.1f} ({min(r[0] for r in runs):.1f} to {max(r[0] for r in runs):.1f})"
        print(f"| {kind} | {size / MB:g} MB | {spread} | {grown:,.1f} | {whole:,.1f} |", flush=True)


@contextmanager
def sqlite() -> Iterator[Any]:
    """Open an empty file."""
    with tempfile.TemporaryDirectory() as folder, SqliteSaver.open(Path(folder) / "a.db") as saver:
        yield saver


def main() -> None:
    """Compare on both databases."""
    warnings.simplefilter("ignore")
    count, rounds = (int(sys.argv[1]) if len(sys.argv) > 1 else 40, int(sys.argv[2]) if len(sys.argv) > 2 else 7)
    print("| database | calls | ms for each | time / reads (least to most) |\n|---|---|---|---|")
    compare("SQLite", sqlite, count, rounds)
    with LocalPostgres() as server:
        names = iter(range(10**6))
        compare("Postgres", lambda: PostgresSaver.open(server.url, schema=f"b{next(names)}"), count, rounds)
    print("\n| saver | first result | ms for a later call | kB it stores | MB in all |\n|---|---|---|---|---|")
    large(3)


if __name__ == "__main__":
    main()
