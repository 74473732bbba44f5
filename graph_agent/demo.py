"""A small job that is killed in the middle and loses nothing: `make demo`.

The agent frees disk space in a folder made for it. It asks before it deletes; of two deletions one is on record and the
other is made but not yet on record when the process is killed with SIGKILL; another process takes the thread up by its
name, finds a deletion that was claimed and never recorded, and asks the tool's probe what became of it. What happened
is then read from the database with the commands that anybody would use.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Final

from checkpointers import SqliteSaver
from checkpointers.reader import open_reader
from graph_agent.agent import Agent
from graph_agent.events import Asked, Event, Finished
from graph_agent.models import Model
from graph_agent.nodes.act import DONE
from graph_agent.patch import Patch
from graph_agent.run import Run
from graph_agent.settings import KEYS, MODEL, database, model_name
from graph_agent.testing import ScriptedModel, calls
from graph_agent.tools import NOT_DONE, NotDone, tool

GOAL: Final = "I'm out of disk space. Fix it."
RULE: Final = "never delete anybody's work"
SIZES: Final = {"cache.bin": 900_000, "old.log": 400_000, "thesis.txt": 2_000}
THREAD: Final = "disk"
DB: Final = "agent.db"
LEASE: Final = 3.0
PATIENCE: Final = 10.0
ROUNDS: Final = 6
LINES: Final = 16


def furnish(folder: Path) -> None:
    """Make the files that take the room."""
    (folder / "files").mkdir(parents=True)
    for file, size in SIZES.items():
        (folder / "files" / file).write_bytes(b"x" * size)


def agent_for(folder: Path, model: Any, *, saver: Any = None, dies: bool = False) -> Agent:
    """Make the agent; `dies` makes a deletion the end of the process, before it could say that it is done."""
    files = folder / "files"

    @tool(risk="read_only")
    def measure() -> tuple[str, Patch]:
        """Measure the files of the folder, the largest first."""
        found = sorted(files.glob("*"), key=lambda file: -file.stat().st_size)
        text = "\n".join(f"{file.name} {file.stat().st_size:,} bytes" for file in found)
        return text, Patch().flag("thesis.txt looks like somebody's work", name="precious")

    def looked(key: str, args: dict[str, Any]) -> str | NotDone:
        """Find out whether a deletion that was cut off was made."""
        del key
        return NOT_DONE if (files / args["name"]).exists() else f"deleted {args['name']}"

    @tool(risk="irreversible", once_per=("name",), probe=looked)
    def delete(name: str) -> str:
        """Delete a file of the folder for good."""
        last = dies and _is_the_first(folder)
        if last:
            _wait_for_the_other(folder)
        (files / name).unlink()
        with (folder / "deleted.log").open("a") as lines:
            lines.write(f"{name}\n")
        if last:
            os.kill(os.getpid(), signal.SIGKILL)
        return f"deleted {name}"

    kept = saver or SqliteSaver.open(folder / DB)
    return Agent(model, tools=[measure, delete], saver=kept, lease_ttl=LEASE)


def _is_the_first(folder: Path) -> bool:
    """Let the first deletion that comes be the one that is cut off; give whether this is it."""
    try:
        (folder / "dying").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _wait_for_the_other(folder: Path) -> None:
    """Wait until another deletion is on record, if there is another one."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with open_reader(database(str(folder / DB))) as reader:
            found = reader.ledger.entries(THREAD)
        if any(one.status == "done" for one in found) or (len(found) == 1 and until - time.monotonic() < PATIENCE - 1):
            return
        time.sleep(0.01)


def script() -> ScriptedModel:
    """Give the model of the demo, which knows its lines."""
    return ScriptedModel(
        plan=[["Find the large files", "Delete what nobody needs"]],
        act=[
            calls(("measure", {})),
            "cache.bin and old.log take nearly all of it.",
            calls(("delete", {"name": "cache.bin"}), ("delete", {"name": "old.log"})),
            "Both are gone.",
        ],
        answer=["I deleted cache.bin and old.log: 1.3 MB are free again. thesis.txt was not touched."],
    )


def model_for() -> Any:
    """Take the model that is set from outside, else the script."""
    name = model_name()
    return Model(name).chat if name else script()


def tell(event: Event) -> None:
    """Say in a line what happens."""
    if isinstance(event, Finished) and event.node == "tool":
        for call in event.patch.get("calls", ()):
            rule = call.get("rule", "")
            first, *more = str(call.get("result") or call["status"]).splitlines()
            print(f"  · {first}{(more and ' …') or ''}{rule and f': {rule}'}", flush=True)
    elif isinstance(event, Finished) and event.node in ("plan", "act") and event.patch.get("decisions"):
        last = event.patch["decisions"][-1]
        print(f"  {event.node}: {last['why'] if last['chose'] == DONE else last['chose']}", flush=True)
    elif isinstance(event, Asked):
        print(f"  ? {event.review.description}: {event.review.reason}", flush=True)


def begin(folder: Path) -> None:
    """Plan, measure, and ask."""
    agent = agent_for(folder, model_for())
    for event in agent.stream(GOAL, thread=THREAD, constraints=[RULE]):
        tell(event)
    agent.saver.close()


def go_on(folder: Path, *, dies: bool) -> None:
    """Approve what is asked, as the person at the keyboard, and go on, unless it is the time to die.

    A process that died has its thread until its lease is over: that is waited for.
    """
    agent = agent_for(folder, model_for(), dies=dies)
    approved = [review.id for review in agent.state(THREAD).reviews]
    for event in agent.stream_resume(THREAD, approve=approved, by="you", if_busy="enqueue"):
        tell(event)
    agent.saver.close()


def stands(folder: Path) -> Run:
    """Give where the thread stands."""
    agent = agent_for(folder, script())
    run = agent.state(THREAD)
    agent.saver.close()
    return run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts, each in a process of its own."""
    parser = argparse.ArgumentParser(prog="demo", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--yes", action="store_true", help="approve without asking")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="play in this new folder, and leave it there")
    parser.add_argument("--part", choices=["begin", "die", "end"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # the parts write in their order, into a pipe too
    if given.part and not given.folder:
        parser.error("a part is played in a --folder")
    if given.part:
        begin(given.folder) if given.part == "begin" else go_on(given.folder, dies=given.part == "die")
        return 0
    if given.keep and (problem := _unfit(given.keep)):
        parser.error(f"{given.keep} {problem}; name a folder that is not there yet")
    kept = nullcontext(str(given.keep)) if given.keep else tempfile.TemporaryDirectory(prefix="graph-agent-demo-")
    with kept as name:
        done = play(Path(name), ask=not given.yes and sys.stdin.isatty())
    where = (
        f"--db {given.keep / DB}: all of it is still there"
        if given.keep
        else "--keep FOLDER leaves all of it to look at"
    )
    print(f"\n({where})")
    return done


def _unfit(folder: Path) -> str:
    """Say why the demo cannot be played in a folder, if it cannot."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return "is not empty" if any(folder.iterdir()) else ""
    except OSError as error:
        return f"cannot be used ({error.strerror})"


def play(folder: Path, *, ask: bool) -> int:
    """Play the demo in a folder; it went well if the thread ended and nothing was deleted twice."""
    furnish(folder)
    print(f"model: {_model_told()}")
    print(f'\n"{GOAL}"', f"(and: {RULE})")
    if part(folder, "begin"):
        print("\nit could not begin; what is wrong is said above", file=sys.stderr)
        return 1
    run, killed = stands(folder), 0
    for _ in range(ROUNDS):
        if not run.reviews:
            break
        if ask and input("\ngo ahead? [y/N] ").strip().lower() not in ("y", "yes"):
            print(f"nothing more is done; the thread waits: {run}")
            return 0
        if not ask:
            print("  (approved: nobody sits at a terminal, or --yes)")
        killed = killed or _killed(folder)
        part(folder, "end")
        run = stands(folder)
    print(f"\n{run}\n\nanswer: {run.answer}")
    told(folder, run)
    done = (folder / "deleted.log").read_text().split() if (folder / "deleted.log").exists() else []
    left = sorted(file.name for file in folder.glob("files/*"))
    print(f"\ndeleted, each once: {', '.join(sorted(done))}; left: {', '.join(left)}")
    return 0 if run.status == "done" and len(done) == len(set(done)) == len(SIZES) - len(left) else 1


def _model_told() -> str:
    """Say which model plays, and how to have another."""
    name, keys = model_name(), [key for key in KEYS if os.environ.get(key)]
    if not name:
        return "a script (OPENAI_API_KEY, OPENAI_BASE_URL or GRAPH_AGENT_MODEL set another)"
    return name if os.environ.get(MODEL) else f"{name}, since {keys[0]} is set (without it, a script)"


def _killed(folder: Path) -> int:
    """Go on until the process dies, and say so."""
    died = part(folder, "die")
    how = signal.Signals(-died).name if died < 0 else f"exit {died}"
    print(f"\n  the process died ({how}); another one takes the thread up when its lease of {LEASE:g} s is over:\n")
    return died


def part(folder: Path, name: str) -> int:
    """Run one part in a new process."""
    command = [sys.executable, "-m", "graph_agent.demo", "--part", name, "--folder", str(folder)]
    return subprocess.run(command, check=False, stdin=subprocess.DEVNULL).returncode  # noqa: S603  our own module


def told(folder: Path, run: Run) -> None:
    """Show what is on record of it, with the commands that anybody would use."""
    chosen = next((one for one in run.state.get("decisions", ()) if "delete" in one["chose"]), None)
    step = next((f"{THREAD}@{one}" for one in _steps_of(folder, chosen)), f"{THREAD}@-1")
    for words in (["log", THREAD], ["ledger", THREAD], ["blame", THREAD, "answer"], ["context", step]):
        command = [sys.executable, "-m", "graph_agent", *words, "--db", str(folder / DB)]
        print(f"\n$ graph-agent {' '.join(words)}")
        done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603  our own module
        lines = _in_columns((done.stdout or done.stderr).splitlines())
        print(*(f"  {line[:150]}" for line in lines[:LINES]), sep="\n")
        if len(lines) > LINES:
            print(f"  … {len(lines) - LINES} more lines")


def _in_columns(lines: list[str]) -> list[str]:
    """Line up what a pipe is given with tabs."""
    rows = [line.split("\t") for line in lines]
    wide = [max(len(row[place]) for row in rows if place < len(row)) for place in range(max(map(len, rows), default=0))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, wide, strict=False)).rstrip() for row in rows]


def _steps_of(folder: Path, decision: Any) -> list[int]:
    """Give the step in which something was decided."""
    agent = agent_for(folder, script())
    found = [step.number for step in agent.history(THREAD) if decision in step.decisions]
    agent.saver.close()
    return found


if __name__ == "__main__":
    sys.exit(main())
