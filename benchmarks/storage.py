"""Storage, side by side: `python -m benchmarks.storage [--n 50 200 1000] [--threads 500] [--repeat 1] [--json FILE]`.

Every case runs in a process of its own, the cases of one repeat in random order; medians over repeats, and ratios
against the official saver on the same database in the same run.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MB = 1e6
OURS = {"sqlite": "official-sqlite", "sqlite-normal": "official-sqlite", "postgres": "official-postgres"}
LEVEL = 1.05
PEERS = ["official-sqlite", "official-postgres", "memory", "keeps-nothing", "none"]


@contextmanager
def opened(kind: str, folder: Path, url: str):
    """Open one of the savers under comparison."""
    if kind in ("sqlite", "sqlite-normal"):
        from checkpointers import SqliteSaver

        with SqliteSaver.open(folder / "t.db", synchronous="normal" if kind.endswith("normal") else "full") as saver:
            yield saver
    elif kind == "postgres":
        from checkpointers import PostgresSaver

        with PostgresSaver.open(url) as saver:
            yield saver
    elif kind == "official-sqlite":
        from langgraph.checkpoint.sqlite import SqliteSaver as Official

        with Official.from_conn_string(str(folder / "t.db")) as saver:
            yield saver
    elif kind == "official-postgres":
        from langgraph.checkpoint.postgres import PostgresSaver as OfficialPostgres
        from psycopg.rows import dict_row
        from psycopg_pool import ConnectionPool

        options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        with ConnectionPool(url, kwargs=options, min_size=1, max_size=8) as pool:
            saver = OfficialPostgres(pool)
            saver.setup()
            yield saver
    else:
        yield _nothing(kind)


def _nothing(kind: str) -> Any:
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.checkpoint.memory import InMemorySaver

    class KeepsNothing(BaseCheckpointSaver):
        def get_tuple(self, config):
            return None

        def put(self, config, checkpoint, metadata, new_versions):
            return config

        def put_writes(self, config, writes, task_id, task_path=""):
            return None

    return {"memory": InMemorySaver, "keeps-nothing": KeepsNothing, "none": lambda: None}[kind]()


def bytes_on_disk(folder: Path, url: str, *, postgres: bool) -> int:
    """Measure what the databases take, the write-ahead log folded in."""
    if postgres:
        import psycopg

        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CHECKPOINT")
            row = connection.execute(
                "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
                " WHERE c.relkind = 'r' AND n.nspname IN ('public', 'checkpointers')"
            ).fetchone()
            return int(row[0] or 0)
    return sum(file.stat().st_size for file in folder.glob("t.db*"))


def measure_thread(case: dict[str, Any], folder: Path, url: str) -> dict[str, Any]:
    """Run one long thread, then read it as people do."""
    from benchmarks.workload import Delta, Plain, first_input, graph

    schema = {"plain": Plain, "delta": Delta}[case["schema"]]
    config = {"configurable": {"thread_id": "t"}, "recursion_limit": 10**6}
    # DeltaChannel threads are read half-way between two snapshots, not right after one, where reading costs nothing.
    n, out = case["n"] + (case["n"] // 20 if case["schema"] == "delta" else 0), {}
    with opened(case["saver"], folder, url) as saver:
        app = graph(schema, saver)
        gc.collect()
        marks, start = [], time.perf_counter()
        steps = app.stream(first_input(n), config, durability="sync" if saver else None, stream_mode="updates")
        marks.extend(time.perf_counter() for _ in steps)
        out["run_s"] = time.perf_counter() - start
        quarter = max(1, len(marks) // 4)
        out["first_quarter_ms"] = (marks[quarter - 1] - start) / quarter * 1e3
        out["last_quarter_ms"] = (marks[-1] - marks[-quarter - 1]) / quarter * 1e3
    if case["saver"] in PEERS[2:]:
        return out
    out["bytes"] = bytes_on_disk(folder, url, postgres="postgres" in case["saver"])
    with opened(case["saver"], folder, url) as saver:
        app = graph(schema, saver)
        out["get_state_first_s"], out["get_state_s"] = _timed(lambda: app.get_state(config), 7)
        out["history_50_s"], _ = _timed(lambda: list(app.get_state_history(config, limit=50)))
        out["filter_first_s"], out["filter_s"] = _timed(lambda: list(saver.list(config, filter={"step": 7})), 3)
    start = time.perf_counter()
    with opened(case["saver"], folder, url) as saver:
        out["open_s"] = time.perf_counter() - start
        app = graph(schema, saver)
        span, _ = _timed(lambda: app.invoke({"until": n + 1, "turn": n}, config, durability="sync"))
        out["go_on_s"] = span / 4
    return out


def measure_many(case: dict[str, Any], folder: Path, url: str) -> dict[str, Any]:
    """Run many short threads, one after another or several at a time."""
    from benchmarks.workload import Plain, first_input, graph

    with opened(case["saver"], folder, url) as saver:
        app = graph(Plain, saver)

        def one(index: int) -> None:
            config = {"configurable": {"thread_id": f"t{index}"}}
            app.invoke(first_input(2), config, durability="sync" if saver else None)

        one(-1)
        gc.collect()
        start = time.perf_counter()
        with ThreadPoolExecutor(case["workers"]) as pool:
            list(pool.map(one, range(case["threads"])))
        out = {"run_s": time.perf_counter() - start}
    if case["saver"] not in PEERS[2:]:
        out["bytes"] = bytes_on_disk(folder, url, postgres="postgres" in case["saver"])
    return out


def _timed(call: Any, times: int = 0) -> tuple[float, float]:
    """Time a call that nobody made before, and the same again, the median of some; what was before leaves no garbage."""
    spans = []
    gc.collect()
    for _ in range(1 + times):
        start = time.perf_counter()
        call()
        spans.append(time.perf_counter() - start)
    return spans[0], statistics.median(spans[1:] or spans)


def child(case: dict[str, Any], url: str) -> None:
    """Measure one case and print it."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=os.environ.get("BENCH_DIR")) as folder:
        measure = measure_many if "threads" in case else measure_thread
        result = measure(case, Path(folder), url)
    result["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(result))


def run_case(case: dict[str, Any], server: str) -> dict[str, Any]:
    """Run one case in a process of its own, on a database of its own, with nothing left to write of the case before."""
    import psycopg

    os.sync()
    name = f"b{random.getrandbits(48):x}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
        connection.execute(f"CREATE DATABASE {name}")
    url = server.rsplit("/", 1)[0] + "/" + name
    command = [sys.executable, "-m", "benchmarks.storage", "--child", json.dumps(case), "--url", url]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False, text=True, timeout=1800)
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    if done.returncode:
        raise SystemExit(f"case {case} failed with {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def cases(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """List what to run."""
    chosen = [*arguments.savers]
    found = [
        {"saver": saver, "schema": schema, "n": n}
        for n in arguments.n
        for schema in arguments.schemas
        for saver in chosen
    ]
    for workers in arguments.workers if arguments.threads else ():
        found += [{"saver": saver, "threads": arguments.threads, "workers": workers} for saver in chosen]
    return found


def report(results: dict[str, list[dict[str, Any]]]) -> str:
    """Make the tables: medians, then ratios against the official saver."""
    middle = {
        key: {name: statistics.median(run[name] for run in runs) for name in runs[0]} for key, runs in results.items()
    }
    lines = ["", "| case | run s | MB | ms/step, first → last quarter | get_state ms, first → again | first 50 s | filter ms, first → again | open ms | one step on ms | peak MB |",
             "|---|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for key, m in middle.items():
        cells = [
            f"{m['run_s']:.2f}", f"{m['bytes'] / MB:.2f}" if "bytes" in m else "",
            f"{m['first_quarter_ms']:.2f} → {m['last_quarter_ms']:.2f}" if "first_quarter_ms" in m else "",
            *(" → ".join(f"{m[k] * f:.{d}f}" for k in names if k in m) for f, d, *names in
              ((1e3, 1, "get_state_first_s", "get_state_s"), (1, 2, "history_50_s"),
               (1e3, 1, "filter_first_s", "filter_s"), (1e3, 1, "open_s"), (1e3, 1, "go_on_s"))),
            f"{m['peak_mb']:.0f}",
        ]  # fmt: skip
        lines.append(f"| {key} | {' | '.join(cells)} |")
    lines += [
        "",
        "Ours against the official saver of the same database (time: ours / theirs; bytes: theirs / ours), of the medians; and from",
        "what to what it went, repeat by repeat:",
        "",
    ]
    for key, m in middle.items():
        saver, _, rest = key.partition(" · ")
        peer = middle.get(f"{OURS.get(saver)} · {rest}")
        if peer:
            parts = [f"1/{peer['bytes'] / m['bytes']:,.0f} of the bytes"]
            theirs = results[f"{OURS.get(saver)} · {rest}"]
            parts += [
                f"{name[:-2]} {m[name] / peer[name]:.3f} (1/{peer[name] / m[name]:.1f}{_spread(name, results[key], theirs)})"
                for name in m
                if name.endswith("_s")
            ]
            lines.append(f"- {key}: {', '.join(parts)}")
    lines += _behind(middle)
    lines += _exponents(middle)
    return "\n".join(lines)


def _spread(name: str, ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> str:
    """Say from what to what the ratio went, repeat by repeat."""
    each = [one[name] / other[name] for one, other in zip(ours, theirs, strict=True)]
    return f"; {min(each):.3f} to {max(each):.3f}" if len(each) > 1 else ""


def _behind(middle: dict[str, dict[str, float]]) -> list[str]:
    """Name what takes longer than with the official saver, the worst first."""
    found = []
    for key, m in middle.items():
        saver, _, rest = key.partition(" · ")
        peer = middle.get(f"{OURS.get(saver)} · {rest}", {})
        found += [(m[name] / peer[name], f"{key}, {name[:-2]}") for name in m if name.endswith("_s") and name in peer]
    told = [f"- {what}: {ratio:.2f}" for ratio, what in sorted(found, reverse=True) if ratio > LEVEL]
    return ["", f"Where we are not ahead: more than {LEVEL} of the official saver's time, the worst first:", "", *told]


def _exponents(middle: dict[str, dict[str, float]]) -> list[str]:
    grown: dict[str, list[tuple[int, float]]] = {}
    for key, m in middle.items():
        saver, _, rest = key.partition(" · ")
        if rest.startswith(("plain", "delta")) and "bytes" in m:
            schema, _, n = rest.partition(" N=")
            grown.setdefault(f"{saver} · {schema}", []).append((int(n), m["bytes"]))
    lines = ["", "Growth exponent of the bytes between the two largest N:", ""]
    for key, points in grown.items():
        if len(points) > 1:
            (n1, b1), (n2, b2) = sorted(points)[-2:]
            lines.append(f"- {key}: {math.log(b2 / b1) / math.log(n2 / n1):.2f} (N={n1} → {n2})")
    return lines


def name_of(case: dict[str, Any]) -> str:
    """Give the row name of a case."""
    if "threads" in case:
        return f"{case['saver']} · {case['threads']} threads, {case['workers']} at a time"
    return f"{case['saver']} · {case['schema']} N={case['n']}"


def main() -> None:
    """Run everything and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, nargs="*", default=[50, 200, 1000])
    parser.add_argument("--schemas", nargs="*", default=["plain", "delta"])
    parser.add_argument("--savers", nargs="*", default=[*OURS, *PEERS])
    parser.add_argument("--threads", type=int, default=500)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 8])
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child")
    parser.add_argument("--url", default="")
    arguments = parser.parse_args()
    if arguments.child:
        child(json.loads(arguments.child), arguments.url)
        return
    from checkpointers.testing import LocalPostgres

    results: dict[str, list[dict[str, Any]]] = {name_of(case): [] for case in cases(arguments)}
    with LocalPostgres() as server:
        for _ in range(arguments.repeat):
            batch = cases(arguments)
            random.shuffle(batch)
            for case in batch:
                result = run_case(case, server.url)
                results[name_of(case)].append(result)
                print(f"{name_of(case)}: {result['run_s']:.2f} s", file=sys.stderr, flush=True)
    print(report(results))
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
