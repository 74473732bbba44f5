"""What seals, leases and encryption cost, in turns in one process: `python -m benchmarks.sealing [N] [ROUNDS]`.

The same run of N supersteps with rows that carry no seals at all, with digests, under a lease, and encrypted.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.workload import Plain, graph
from checkpointers import Keyring, PostgresSaver, SqliteSaver, vaults
from checkpointers.sealing import Digests
from checkpointers.testing import LocalPostgres

KEYS = Keyring({"bench": bytes(range(32))})


class Unsealed(Digests):
    """Neither makes nor checks a seal."""

    def seal(self, place: bytes, raw: bytes) -> bytes:
        del place
        return raw

    def open(self, place: bytes, blob: bytes) -> bytes:
        del place
        return bytes(blob)


def once(saver: Any, supersteps: int, *, lease: bool) -> tuple[float, float]:
    """Run a thread to its end and read it; milliseconds for each superstep, and for the reading."""
    app = graph(Plain, saver)
    config: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 10**6}
    with saver.lease("t") if lease else contextlib.nullcontext():
        start = time.perf_counter()
        app.invoke({"until": supersteps}, config, durability="sync")
        ran = time.perf_counter() - start
    reads = []
    for _ in range(7):
        start = time.perf_counter()
        app.get_state(config)
        reads.append(1_000 * (time.perf_counter() - start))
    return 1_000 * ran / supersteps, statistics.median(reads)


def compare(name: str, opened: Callable[..., Any], supersteps: int, rounds: int) -> None:
    """Print the medians of the ratios to the run without seals, and their spread."""
    found: dict[str, list[tuple[float, float]]] = {}
    plain = vaults.DIGESTS
    for number in range(rounds):
        for kind in ("no seals", "digests", "digests and lease", "encrypted"):
            vaults.DIGESTS = Unsealed() if kind == "no seals" else plain  # type: ignore[misc]  # only here
            with opened(
                f"{number}{kind[:3]}{kind[-3:]}".replace(" ", ""), keys=KEYS if kind == "encrypted" else None
            ) as saver:
                once(saver, 10, lease=False)
                saver.delete_thread("t")
                found.setdefault(kind, []).append(once(saver, supersteps, lease="lease" in kind))
    vaults.DIGESTS = plain  # type: ignore[misc]  # only here
    for kind, times in found.items():
        for what, index in (("superstep", 0), ("read", 1)):
            ratios = sorted(t[index] / base[index] for t, base in zip(times, found["no seals"], strict=True))
            print(
                f"{name:8} {kind:18} {what:9} {statistics.median(t[index] for t in times):7.2f} ms,"
                f" ratio {statistics.median(ratios):.3f} ({ratios[0]:.2f} to {ratios[-1]:.2f})",
                flush=True,
            )


def main(supersteps: int, rounds: int) -> None:
    """Compare on both databases."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        compare("sqlite", lambda name, **o: SqliteSaver.open(Path(folder, name), **o), supersteps, rounds)
    with LocalPostgres() as server:
        compare(
            "postgres", lambda name, **o: PostgresSaver.open(server.url, schema=f"s{name}", **o), supersteps, rounds
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300, int(sys.argv[2]) if len(sys.argv) > 2 else 7)
