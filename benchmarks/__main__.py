"""Measure everything and write it down: `python -m benchmarks [SECTION …] [--data LOCOMO.json]`, or `make bench`.

`RESULTS.md` is a text of ours around what was measured: the part of each section stands between two marks, with the
machine and the day. Sections that are not named keep theirs. `--data` is for slicing, which needs conversations.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE / "RESULTS.md"
PLOTS = HERE / "plots"
SAVERS = ("sqlite", "postgres", "official-sqlite", "official-postgres", "keeps-nothing", "none")
SECTIONS: dict[str, list[str]] = {
    "storage": ["--n", "1", "10", "200", "1000", "--threads", "500", "--repeat", "3", "--savers", *SAVERS],
    "listing": [],
    "history": [],
    "agent": ["--calls", "10", "100", "--repeat", "5"],
    "effects": ["40", "7"],
    "sealing": ["300", "7"],
    "slicing": ["--budget", "2000", "8000"],
}
PACKAGES = ("langgraph", "langgraph-checkpoint", "langgraph-checkpoint-sqlite", "langgraph-checkpoint-postgres")
COLOURS = {"sqlite": "#0b6bb5", "postgres": "#1d8a5b", "official-sqlite": "#9a5b00", "official-postgres": "#b3261e"}


def machine() -> str:
    """Say on what, and when."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    packages = ", ".join(f"{name.removeprefix('langgraph-')} {version(name)}" for name in PACKAGES)
    day = f"{datetime.now(UTC):%Y-%m-%d}"
    return (
        f"{day}, {os.cpu_count()} cores, {memory:.0f} GB, {platform.system()}, Python {platform.python_version()}, "
        f"SQLite {sqlite3.sqlite_version}; {packages}"
    )


def measured(name: str, arguments: Sequence[str]) -> str:
    """Run a benchmark in a process of its own, and give its part of the page."""
    print(f"{name} …", file=sys.stderr, flush=True)
    command = [sys.executable, "-W", "ignore", "-m", f"benchmarks.{name}", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    told = done.stdout.strip()
    told = told if "|---" in told else f"```text\n{told}\n```"
    shown = " ".join("DATA.json" if word.startswith("/") else word for word in arguments)
    return f"Measured {machine()}.\n\n    python -m benchmarks.{name} {shown}\n\n{told}"


def put(page: str, name: str, text: str) -> str:
    """Put the part of a section between its marks."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    if begin not in page:
        raise SystemExit(f"{RESULTS.name} has no place for {name}: write {begin} and {end} into it")
    return re.sub(f"{begin}.*?{end}", lambda _: f"{begin}\n\n{text}\n\n{end}", page, flags=re.DOTALL)


def points_of(page: str, schema: str) -> dict[str, list[tuple[int, float, float]]]:
    """Read the table of the page: for each saver the turns of a thread, its MB on disk, and ms of its last supersteps."""
    found: dict[str, list[tuple[int, float, float]]] = {saver: [] for saver in COLOURS}
    row = re.compile(rf"(?m)^\| ([\w-]+) · {schema} N=(\d+) \| [\d.]+ \| ([\d.]+) \| [\d.]+ → ([\d.]+) ")
    for saver, turns, size, step in row.findall(page):
        found[saver].append((int(turns), float(size), float(step)))
    return found


def plot() -> None:
    """Draw how storage and steps grow with a thread: bytes on disk, and the time of its last steps."""
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    mpl.rcParams.update({"svg.hashsalt": "graph-agent", "font.size": 9, "svg.fonttype": "none"})
    PLOTS.mkdir(exist_ok=True)
    for schema in ("plain", "delta"):
        figure, panels = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
        for panel, field, title in ((panels[0], 1, "MB on disk"), (panels[1], 2, "ms a superstep, last quarter")):
            for saver, points in points_of(RESULTS.read_text(), schema).items():
                line = [(one[0], one[field]) for one in sorted(points)]
                style = "--" if saver.startswith("official") else "-"
                panel.plot(*zip(*line, strict=True), style, marker="o", markersize=3, color=COLOURS[saver], label=saver)
            panel.set(xscale="log", yscale="log", xlabel="turns of the thread (4 supersteps each)", title=title)
            panel.grid(visible=True, alpha=0.3)
        panels[0].legend(frameon=False)
        figure.savefig(PLOTS / f"{schema}.svg", metadata={"Date": None}, facecolor="white")
        plt.close(figure)


def main() -> None:
    """Measure what is named, or everything that needs no data."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []])
    parser.add_argument("--data", type=Path, help="conversations in LoCoMo's format, for slicing")
    given = parser.parse_args()
    for name in given.sections or [name for name in SECTIONS if name != "slicing" or given.data]:
        arguments = [str(given.data), *SECTIONS[name]] if name == "slicing" else SECTIONS[name]
        told = measured(name, arguments)
        RESULTS.write_text(put(RESULTS.read_text(), name, told))  # the page may have been edited meanwhile
        if name == "storage":
            plot()


if __name__ == "__main__":
    main()
