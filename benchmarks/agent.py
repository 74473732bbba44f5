"""A hundred tool calls: this agent against LangChain's, with its review, retry and limit middlewares, in one run.

    python -m benchmarks.agent [--calls 10 100] [--repeat 5]

Both use the same scripted model and tool, durable at every step; each case runs in a process of its own. The peer is
`langchain.agents.create_agent` on the official async SQLite saver.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.workload import text

RESULT_BYTES = 1_500


def model(count: int) -> Any:
    """Make the model: it looks `count` things up, one after the other, and answers."""
    from graph_agent.testing import ScriptedModel, calls

    state = {"done": 0}

    def act(_: list[Any]) -> Any:
        state["done"] += 1
        return calls(("search", {"query": f"question {state['done']}"})) if state["done"] <= count else "all looked up"

    return ScriptedModel(plan=[["look everything up"]], act=[act], reflect=["continue"], answer=["done"], strict=False)


def search(query: str) -> str:
    """Look something up."""
    return text(RESULT_BYTES, int(query.rsplit(maxsplit=1)[-1]))


def ours(count: int, path: Path, address: str) -> float:
    """Run this agent."""
    from graph_agent import Agent, Budget, tool

    agent = Agent(
        model(count),
        tools=[tool(risk="read_only")(search)],
        saver=address.format(path=path),
        budget=Budget(max_steps=10**6),
    )
    start = time.perf_counter()
    run = agent.run("look everything up", thread="t", progress=False)
    seconds = time.perf_counter() - start
    if run.status != "done" or run.usage["tool_calls"] != count:
        raise SystemExit(f"the run went wrong: {run}")
    agent.saver.close()
    return seconds


async def theirs(count: int, path: Path) -> float:
    """Run LangChain's agent."""
    from langchain.agents import create_agent
    from langchain.agents.middleware import (
        HumanInTheLoopMiddleware,
        ModelCallLimitMiddleware,
        ModelRetryMiddleware,
        ToolCallLimitMiddleware,
        ToolRetryMiddleware,
    )
    from langchain_core.tools import tool
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    middleware = [
        HumanInTheLoopMiddleware(interrupt_on={"delete": True}, interrupt_mode="per_call"),
        ModelRetryMiddleware(on_failure="error"),
        ToolRetryMiddleware(on_failure="error"),
        ModelCallLimitMiddleware(thread_limit=10**6),
        ToolCallLimitMiddleware(thread_limit=10**6),
    ]
    async with AsyncSqliteSaver.from_conn_string(str(path)) as saver:
        agent = create_agent(model(count), tools=[tool(search)], middleware=middleware, checkpointer=saver)
        config: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 10**6}
        start = time.perf_counter()
        done = await agent.ainvoke({"messages": [("user", "look everything up")]}, config, durability="sync")
        seconds = time.perf_counter() - start
    if sum(message.type == "tool" for message in done["messages"]) != count:
        raise SystemExit("the peer's run went wrong")
    return seconds


def child(case: str, count: int) -> None:
    """Measure one case and print it."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        path = Path(folder) / "t.db"
        addresses = {"ours": "sqlite:///{path}", "ours on the official saver": "langgraph+sqlite:///{path}"}
        seconds = asyncio.run(theirs(count, path)) if case == "create_agent" else ours(count, path, addresses[case])
        size = sum(file.stat().st_size for file in Path(folder).glob("t.db*"))
    print(json.dumps({"seconds": seconds, "bytes": size}))


def main() -> None:
    """Run everything, interleaved, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, nargs="*", default=[10, 100])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--child", nargs=2)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child[0], int(arguments.child[1]))
        return
    cases = [(case, n) for n in arguments.calls for case in ("ours", "ours on the official saver", "create_agent")]
    results: dict[tuple[str, int], list[dict[str, float]]] = {case: [] for case in cases}
    for _ in range(arguments.repeat):
        for case in random.sample(cases, len(cases)):
            command = [sys.executable, "-m", "benchmarks.agent", "--child", case[0], str(case[1])]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=600)
            results[case].append(json.loads(done.stdout.splitlines()[-1]))
    print(report(results))


def report(results: dict[tuple[str, int], list[dict[str, float]]]) -> str:
    """Make the table: medians with their spread, and ratios to the peer."""
    lines = [
        "| calls | agent | seconds (least to most) | MB | time / peer | bytes / peer |",
        "|---|---|---|---|---|---|",
    ]
    for (case, n), runs in results.items():
        seconds, size = [run["seconds"] for run in runs], statistics.median(run["bytes"] for run in runs)
        peer = results["create_agent", n]
        middle = statistics.median(seconds)
        time_ratio = middle / statistics.median(run["seconds"] for run in peer)
        size_ratio = statistics.median(run["bytes"] for run in peer) / size
        spread = f"{middle:.2f} ({min(seconds):.2f} to {max(seconds):.2f})"
        lines.append(f"| {n} | {case} | {spread} | {size / 1e6:.2f} | {time_ratio:.2f} | 1/{size_ratio:.1f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
