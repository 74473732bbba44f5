"""What only lists must cost next to nothing: `python -m benchmarks.listing [--threads 10000]`.

Prints the time of `import checkpointers` against `import langgraph.checkpoint.base`, and of listing many threads.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def import_seconds(module: str, times: int = 7) -> float:
    """Time an import in processes of its own, less the time that Python takes to start."""

    def once(code: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - start

    return statistics.median(once(f"import {module}") - once("pass") for _ in range(times))


def fill(saver: Any, threads: int) -> None:
    """Store one checkpoint in each of many threads."""
    for n in range(threads):
        versions = {"x": 1}
        checkpoint = {
            "v": 4,
            "id": f"{n}",
            "ts": "",
            "channel_values": {"x": n},
            "channel_versions": versions,
            "versions_seen": {},
        }
        config = {"configurable": {"thread_id": f"thread {n}", "checkpoint_ns": ""}, "metadata": {"user": n % 100}}
        saver.put(config, checkpoint, {"source": "loop", "step": 1, "parents": {}}, versions)


def listing_seconds(saver: Any) -> dict[str, float]:
    """Time listings, the state of no thread loaded."""
    calls = {
        "all": saver.threads,
        "status": lambda: saver.threads(status="waiting"),
        "metadata": lambda: saver.threads(metadata={"user": 7}),
        "newest 20": lambda: saver.threads(limit=20),
    }
    found = {}
    for name, call in calls.items():
        spans = []
        for _ in range(7):
            start = time.perf_counter()
            call()
            spans.append(time.perf_counter() - start)
        found[name] = statistics.median(spans)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=10_000)
    count = parser.parse_args().threads
    from checkpointers import PostgresSaver, SqliteSaver
    from checkpointers.testing import LocalPostgres

    ours, theirs = import_seconds("checkpointers"), import_seconds("langgraph.checkpoint.base")
    print(
        f"import checkpointers {ours * 1e3:.0f} ms, langgraph.checkpoint.base {theirs * 1e3:.0f} ms: 1/{theirs / ours:.0f}"
    )
    with tempfile.TemporaryDirectory() as folder, LocalPostgres() as server:
        for saver in (SqliteSaver.open(Path(folder) / "t.db", synchronous="normal"), PostgresSaver.open(server.url)):
            with saver:
                fill(saver, count)
                times = ", ".join(f"{name} {span * 1e3:.1f} ms" for name, span in listing_seconds(saver).items())
                print(f"{type(saver).__name__}, {count:,} threads: {times}")


if __name__ == "__main__":
    main()
