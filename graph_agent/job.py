"""The agent of the demo: it frees disk space in a folder made for it, and may be told to die in the middle.

It asks before it deletes. Told to die, it makes one deletion and is gone before that could be put on record, after the
other one was: whoever goes on finds a claim without a result.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any, Final

from checkpointers import SqliteSaver
from checkpointers.reader import open_reader
from graph_agent.agent import Agent
from graph_agent.models import Model
from graph_agent.patch import Patch
from graph_agent.settings import database, model_name
from graph_agent.testing import ScriptedModel, calls
from graph_agent.tools import NOT_DONE, NotDone, tool

GOAL: Final = "I'm out of disk space. Fix it."
RULE: Final = "never delete anybody's work"
SIZES: Final = {"cache.bin": 900_000, "old.log": 400_000, "thesis.txt": 2_000}
THREAD: Final = "disk"
DB: Final = "agent.db"
LEASE: Final = 3.0
PATIENCE: Final = 10.0
MOMENT: Final = 0.2


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
    """Wait until another deletion is on record, and a moment more, so that it is told of; if there is another one."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        found = on_record(folder)
        if "done" in found.values() or (len(found) == 1 and until - time.monotonic() < PATIENCE - 1):
            break
        time.sleep(0.01)
    time.sleep(MOMENT)


def on_record(folder: Path) -> dict[str, str]:
    """Give what the ledger says of each file."""
    with open_reader(database(str(folder / DB))) as reader:
        return {one.record["args"]["name"]: one.status for one in reader.ledger.entries(THREAD)}


def deleted(folder: Path) -> list[str]:
    """Give the files that were deleted, in that order, as often as it was done."""
    log = folder / "deleted.log"
    return log.read_text().split() if log.exists() else []


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
