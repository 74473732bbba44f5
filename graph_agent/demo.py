"""A small job that is killed in the middle and loses nothing: `make demo`.

The agent frees disk space in a folder made for it. It asks before it deletes; of two deletions one is on record and the
other is made but not yet on record when the process is killed with SIGKILL; another process takes the thread up by its
name, finds a deletion that was claimed and never recorded, and asks the tool's probe what became of it. What happened
is then read from the database with the commands that anybody would use.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Final

from graph_agent.events import Asked, Event, Finished
from graph_agent.job import (
    DB,
    GOAL,
    LEASE,
    RULE,
    SIZES,
    THREAD,
    agent_for,
    deleted,
    furnish,
    model_for,
    on_record,
    script,
)
from graph_agent.nodes.act import DONE
from graph_agent.run import Run
from graph_agent.settings import KEYS, MODEL, model_name

ROUNDS: Final = 6
LINES: Final = 18
TRIES: Final = 3
INTERRUPTED: Final = 130
QUESTION: Final = "question"
NOBODY: Final = "Nobody is here who could say. Decide by yourself, within the constraints."


def tell(event: Event) -> None:
    """Say in a line what happens."""
    if isinstance(event, Finished) and event.node == "tool":
        for call in event.patch.get("calls", ()):
            result = ", ".join(str(call.get("result") or call["status"]).splitlines())
            print(f"  · {result}", *([f"({call['rule']})"] if call.get("rule") else []), flush=True)
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


def go_on(folder: Path, *, dies: bool, words: str) -> None:
    """Approve what is asked, or answer it with words, as the person at the keyboard, and go on; or die on the way.

    A process that died has its thread until its lease is over: that is waited for.
    """
    agent = agent_for(folder, model_for(), dies=dies)
    asked = agent.state(THREAD).reviews
    answers: dict[str, Any] = {
        "approve": [one.id for one in asked if one.kind != QUESTION],
        "respond": {one.id: words for one in asked if one.kind == QUESTION},
    }
    for event in agent.stream_resume(THREAD, **answers, by="you", if_busy="enqueue"):
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
    parser.add_argument("--words", default=NOBODY, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if isinstance(sys.stdout, TextIOWrapper):
        # The parts write in their order, into a pipe too, and on a terminal that knows few letters.
        sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")
    if given.part and not given.folder:
        parser.error("a part is played in a --folder")
    if given.part:
        if given.part == "begin":
            begin(given.folder)
        else:
            go_on(given.folder, dies=given.part == "die", words=given.words)
        return 0
    if given.keep and (problem := _unfit(given.keep)):
        parser.error(f"{given.keep} {problem}; name a folder that is not there yet")
    kept = nullcontext(str(given.keep)) if given.keep else tempfile.TemporaryDirectory(prefix="graph-agent-demo-")
    try:
        with kept as name:
            done = play(Path(name), ask=not given.yes and sys.stdin.isatty())
    except KeyboardInterrupt:
        print("\n\ninterrupted; whatever ran was killed", file=sys.stderr)
        done = INTERRUPTED
    if given.keep:
        print(f"\n(all of it is still there: graph-agent log {THREAD} --db {given.keep / DB})")
    elif done != INTERRUPTED:
        print("\n(its folder is gone; graph-agent demo --keep FOLDER leaves it there, to look around)")
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
    print(f'\nyou: "{GOAL}" (and: {RULE})\n')
    if part(folder, "begin"):
        print("\nit could not begin; what is wrong is said above", file=sys.stderr)
        return 1
    run, killed = stands(folder), False
    for _ in range(ROUNDS):
        if not run.reviews:
            break
        print(f"\nIts process has ended; the thread {THREAD!r} waits in a database, for as long as it takes.")
        if not killed and any(review.kind != QUESTION for review in run.reviews):
            print("The next process goes on, and is killed in the middle, on purpose.")
        words = _answered(run) if ask else NOBODY
        if not words:
            print(f"nothing more is done; the thread waits: {run}")
            return 0
        print(*(["(nobody sits at a terminal, or --yes: go ahead)"] if not ask else []), "", sep="\n")
        killed = killed or _killed(folder, words)
        if killed:
            part(folder, "end", words)
        run = stands(folder)
    print(f"\n{THREAD}: done. {run.answer}" if run.status == "done" else f"\n{run}")
    told(folder, run)
    done, left = deleted(folder), sorted(file.name for file in folder.glob("files/*"))
    print(f"\ndeleted, each once: {', '.join(sorted(done))}; left: {', '.join(left)}")
    return 0 if run.status == "done" and len(done) == len(set(done)) == len(SIZES) - len(left) else 1


def _model_told() -> str:
    """Say which model plays, and how to have another."""
    name, keys = model_name(), [key for key in KEYS if os.environ.get(key)]
    if not name:
        return "a script (OPENAI_API_KEY, OPENAI_BASE_URL or GRAPH_AGENT_MODEL set another)"
    return name if os.environ.get(MODEL) else f"{name}, since {keys[0]} is set (without it, a script)"


def _answered(run: Run) -> str:
    """Ask the person at the keyboard; what is no answer is asked again, and silence is a no."""
    try:
        if any(review.kind == QUESTION for review in run.reviews):
            return input("your answer: ").strip()
        for _ in range(TRIES):
            said = input("go ahead? [y/N] ").strip().lower()
            if said in ("y", "yes", "n", "no", ""):
                return NOBODY if said.startswith("y") else ""
    except EOFError:
        print()
    return ""


def _killed(folder: Path, words: str) -> bool:
    """Go on until the process dies, and say what it left behind; give whether it was killed."""
    died = part(folder, "die", words)
    if died >= 0:
        return False
    done = [name for name, status in on_record(folder).items() if status == "done"]
    print(f"\nKilled (SIGKILL). Deleted: {', '.join(sorted(deleted(folder)))}. On record: {', '.join(done) or 'none'}.")
    print(f"A third process takes the thread up by its name, when the lease of the dead one is over ({LEASE:g} s):\n")
    return True


def part(folder: Path, name: str, words: str = NOBODY) -> int:
    """Run one part in a new process, out of reach of the keyboard: who is interrupted here kills it."""
    command = [sys.executable, "-m", "graph_agent.demo", "--part", name, "--folder", str(folder), f"--words={words}"]
    done = subprocess.run(command, check=False, stdin=subprocess.DEVNULL, start_new_session=True)  # noqa: S603  ours
    return done.returncode


def told(folder: Path, run: Run) -> None:
    """Show what is on record of it, with the commands that anybody would use."""
    chosen = next((one for one in run.state.get("decisions", ()) if "delete" in one["chose"]), None)
    step = next((f"{THREAD}@{one}" for one in _steps_of(folder, chosen)), f"{THREAD}@-1")
    print("\nWhat happened, read from that database by anybody, at any later time:")
    _show(folder, "log", THREAD)
    _show(folder, "ledger", THREAD)
    _show(folder, "blame", THREAD, "answer")
    _show(folder, "context", step, last=True)


def _show(folder: Path, *words: str, last: bool = False) -> None:
    """Run a command on the demo's database and print what it says: its first lines, or its last."""
    command = [sys.executable, "-m", "graph_agent", *words, "--db", str(folder / DB)]
    print(f"\n$ graph-agent {' '.join(words)}")
    done = subprocess.run(command, check=False, capture_output=True, text=True, errors="replace")  # noqa: S603  ours
    lines = [f"  {line[:150]}" for line in _in_columns((done.stdout or done.stderr).splitlines())]
    more = [f"  … {len(lines) - LINES} more lines"] if len(lines) > LINES else []
    print(*([*more, *lines[-LINES:]] if last else [*lines[:LINES], *more]), sep="\n")


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
