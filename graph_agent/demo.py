"""A small job that is killed in the middle and loses nothing: `make demo`.

The agent frees disk space in a folder made for it. It asks before it deletes; of two deletions one is on record and the
other is made but not yet on record when the process is killed with SIGKILL; another process takes the thread up by its
name, finds a deletion that was claimed and never recorded, and asks the tool's probe what became of it.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Final

from graph_agent.agent import Agent
from graph_agent.events import Asked, Event, Finished, Started
from graph_agent.models import Model
from graph_agent.nodes.act import DONE
from graph_agent.patch import Patch
from graph_agent.run import Run
from graph_agent.testing import ScriptedModel, calls
from graph_agent.tools import NOT_DONE, NotDone, tool

GOAL: Final = "I'm out of disk space. Fix it."
SIZES: Final = {"cache.bin": 900_000, "old.log": 400_000, "thesis.txt": 2_000}
THREAD: Final = "disk"


def furnish(folder: Path) -> None:
    """Make the files that take the room."""
    (folder / "files").mkdir()
    for file, size in SIZES.items():
        (folder / "files" / file).write_bytes(b"x" * size)


def agent_for(folder: Path, model: Any, *, saver: Any = None, dies: bool = False) -> Agent:
    """Make the agent; `dies` makes the second deletion the end of the process, before it could say that it is done."""
    files, log = folder / "files", folder / "deleted.log"
    log.touch()

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
        last = dies and name != "cache.bin"
        while last and "cache.bin" not in log.read_text():
            time.sleep(0.01)
        (files / name).unlink()
        with log.open("a") as lines:
            lines.write(f"{name}\n")
        if last:
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGKILL)
        return f"deleted {name}"

    return Agent(model, tools=[measure, delete], saver=saver or f"sqlite:///{folder}/agent.db", lease_ttl=3.0)


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
    """Take the model of `GRAPH_AGENT_MODEL`, say `openai:gpt-5-mini`, else the script; say which."""
    name = os.environ.get("GRAPH_AGENT_MODEL")
    chosen = Model(name).chat if name else script()
    print(f"model: {name or 'a script (set GRAPH_AGENT_MODEL=openai:NAME for a real one)'}")
    return chosen


def tell(event: Event) -> None:
    """Say in a line what happens."""
    if isinstance(event, Started) and event.tool and event.node == "tool":
        print(f"  · {event.tool} {dict(event.args)}", flush=True)
    elif isinstance(event, Finished) and event.node in ("plan", "act") and event.patch.get("decisions"):
        last = event.patch["decisions"][-1]
        print(f"  {event.node}: {last['why'] if last['chose'] == DONE else last['chose']}", flush=True)
    elif isinstance(event, Asked):
        print(f"  ? {event.review.description}: {event.review.reason}", flush=True)


def begin(folder: Path) -> None:
    """Plan, measure, and ask."""
    agent = agent_for(folder, model_for())
    for event in agent.stream(GOAL, thread=THREAD, constraints=["never delete anybody's work"]):
        tell(event)
    agent.saver.close()


def answer(folder: Path, *, dies: bool) -> None:
    """Approve what is asked, as the person at the keyboard; then go on, unless it is the time to die.

    A process that died has its thread until its lease is over: that is waited for.
    """
    agent = agent_for(folder, script() if not os.environ.get("GRAPH_AGENT_MODEL") else model_for(), dies=dies)
    run = agent.state(THREAD)
    approved = [review.id for review in run.reviews]
    for event in agent.stream_resume(THREAD, approve=approved, by="you", if_busy="enqueue"):
        tell(event)
    show(agent, agent.state(THREAD))
    agent.saver.close()


def show(agent: Agent, run: Run) -> None:
    """Show how it ended, and what is on record of it."""
    print(f"\n{run}\n\nwhat happened:")
    for moment in agent.history(THREAD):
        chose = "; ".join(one["chose"] for one in moment.decisions) if moment.nodes else moment.source
        print(f"  {moment!s:9} {', '.join(moment.nodes):14} {chose[:80]}")
    print("\nwhat it did to the world, by the ledger:")
    rules = {call["id"]: call.get("rule", "") for call in run.state["calls"]}
    for effect in agent.effects(THREAD):
        done, rule = effect.record, rules[effect.record["call"]]
        print(f"  {effect.status}: {done['tool']} {done['args']}, attempt {done['attempt']}{rule and f': {rule}'}")
    print("\nwhere the answer comes from:", agent.history(THREAD).blame("answer")[0], sep="\n  ")


def main() -> int:
    """Run the parts, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--yes", action="store_true", help="approve without asking")
    parser.add_argument("--part", choices=["begin", "die", "end"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # the parts write in their order, into a pipe too
    if given.part:
        begin(given.folder) if given.part == "begin" else answer(given.folder, dies=given.part == "die")
        return 0
    with tempfile.TemporaryDirectory(prefix="graph-agent-demo-") as name:
        return play(Path(name), ask=not given.yes and sys.stdin.isatty())


def play(folder: Path, *, ask: bool) -> int:
    """Play the demo in a folder."""
    furnish(folder)
    print(f'"{GOAL}"')
    part(folder, "begin")
    if ask and input("\ndelete them? [y/N] ").strip().lower() not in ("y", "yes"):
        print("nothing was deleted; the thread waits.")
        return 0
    died = part(folder, "die")
    print(
        f"\nthe process died ({signal.Signals(-died).name if died < 0 else died}); another one takes the thread up:\n"
    )
    part(folder, "end")
    done = (folder / "deleted.log").read_text().split()
    left = [file.name for file in folder.glob("files/*")]
    print(f"\ndeleted, each once: {', '.join(done)}; left: {', '.join(left)}")
    return 0 if sorted(done) == ["cache.bin", "old.log"] else 1


def part(folder: Path, name: str) -> int:
    """Run one part in a new process."""
    command = [sys.executable, "-m", "graph_agent.demo", "--part", name, "--folder", str(folder)]
    return subprocess.run(command, check=False, stdin=subprocess.DEVNULL).returncode  # noqa: S603  our own module


if __name__ == "__main__":
    sys.exit(main())
