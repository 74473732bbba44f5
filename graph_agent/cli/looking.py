"""Commands that look into the states of a thread: show, blame, bisect, grep, context, stats. They change nothing."""

from __future__ import annotations

import re
import subprocess
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from checkpointers.places import shown
from graph_agent.cli import codes, desk, paper
from graph_agent.cli.desk import Address, AnyThread, Db, Json, Price, Thread

if TYPE_CHECKING:
    from checkpointers.step import Step

WIDE: Final = 10_000
CANNOT_RUN: Final = 126  # a shell's code for a command that it cannot run; the next is for one that is not there


class Place(StrEnum):
    """Where there is something to find."""

    STATE = "state"
    WRITES = "writes"
    METADATA = "metadata"


def show(
    address: Address, db: Db = desk.DEFAULT_DB,
    full: Annotated[bool, typer.Option("--full", help="The whole state, not only what the step changed.")] = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Show a step: who made it, and what it changed."""
    (step,) = desk.steps(db, address)
    values = step.values if full else step.wrote
    if as_json:
        trouble = {"interrupts": [getattr(one, "value", one) for one in step.interrupts], "errors": step.errors}
        paper.emit({**_step(step), "values": paper.told(values), **paper.told(trouble)})
        return
    who = ", ".join(step.nodes) or step.source
    print(paper.line(f"{step}  {step.at:%Y-%m-%d %H:%M:%S}  {who}  {step.status}"))
    for part in _whole(values) if full else _changes(step):
        print(part)
    for asked in step.interrupts:
        print(f"? {_asked(getattr(asked, 'value', asked))}")
    for error in step.errors:
        print(f"failed: {_told(error)}")


def _asked(value: Any) -> str:
    """Say what a person is asked: a review by its id, anything else as it is."""
    about = value.get("review") if isinstance(value, dict) else None
    if not isinstance(about, dict):
        return _told(value)
    return paper.line(f"{about.get('id', '')}  {value.get('description', '')}: {about.get('reason', '')}")


def _step(step: Step) -> dict[str, Any]:
    about = {"address": str(step), "number": step.number, "id": step.id, "at": step.at, "source": step.source}
    return {**about, "status": step.status, "nodes": list(step.nodes), "parent": step.parent}


def _changes(step: Step) -> list[str]:
    from checkpointers.diffing import compare

    found = list(compare(dict(step.before), dict(step.values)))
    return [paper.line(change) for change in found] or ["(nothing changed)"]


def _whole(values: Any) -> list[str]:
    return [f"{paper.line(name)}:\n  {_told(value, full=True)}" for name, value in values.items()]


def _told(value: Any, *, full: bool = False) -> str:
    from reprlib import Repr

    short = Repr()
    short.maxstring = short.maxother = WIDE if full else 160
    short.maxlist = short.maxdict = short.maxtuple = 1_000 if full else 6
    return paper.line(short.repr(value))


def blame(
    address: Address, path: Annotated[str, typer.Argument(help="A path into the state, as facts.build.text.")],
    db: Db = desk.DEFAULT_DB, as_json: Json = False,
) -> None:  # fmt: skip
    """Say which steps set a value, the newest first, on the way to the step."""
    ((history, step),) = desk.places(db, address)
    found = history.blame(path, step=step.number)
    if as_json:
        names = ("step", "nodes", "source", "kind", "before", "after")
        paper.emit([{**paper.told({name: getattr(one, name) for name in names}), "at": one.at} for one in found])
    else:
        print("\n".join(paper.line(one) for one in found))


def bisect(
    thread: Thread, command: Annotated[str, typer.Argument(help="A shell command; it succeeds where it is true.")],
    db: Db = desk.DEFAULT_DB,
    fails: Annotated[bool, typer.Option("--fails", help="Find the first for which it fails instead.")] = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Find the first step for which a command succeeds, or fails; it is given the state as JSON on stdin.

    What it prints is not shown, what it tells on stderr is. With a code of 126 or more, or killed, it has no answer.
    """
    import json

    from graph_agent.errors import SetupError

    def holds(step: Step) -> bool:
        state = json.dumps(paper.told(dict(step.values)))
        done = subprocess.run(command, shell=True, input=state, text=True, capture_output=True, check=False)  # noqa: S602
        if done.stderr:
            paper.say(done.stderr.rstrip("\n"))
        if done.returncode < 0 or done.returncode >= CANNOT_RUN:
            raise SetupError(f"the command ended with {done.returncode} at {step}, and told neither yes nor no")
        found = (done.returncode == 0) != fails
        paper.say(f"{step}: {'yes' if found else 'no'}")
        return found

    step = desk.history(db, thread).bisect(holds)
    if as_json:
        paper.emit(_step(step) if step else None)
    elif step is not None:
        print(paper.line(step))
    if step is None:
        paper.say(f"it is true for no step of {thread}")
        raise typer.Exit(codes.NOT_FOUND)


def grep(
    pattern: Annotated[str, typer.Argument(help="A text, or with -E a regular expression.")],
    thread: AnyThread = None, db: Db = desk.DEFAULT_DB,
    regex: Annotated[bool, typer.Option("--regex", "-E", help="The pattern is a regular expression.")] = False,
    any_case: Annotated[bool, typer.Option("--ignore-case", "-i", help="Capitals are small letters too.")] = False,
    where: Annotated[list[Place] | None, typer.Option(help="Only there; may be given several times.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many lines.")] = 100,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Find a text in states, writes and metadata; in all threads if none is named.

    Each value is told where it first appeared. Exits with 3 if there is none.
    """
    from checkpointers.searching import EVERYWHERE

    wanted = _pattern(pattern, regex=regex, any_case=any_case)
    places: Any = [one.value for one in where or ()]
    opened, left, more = desk.saver(db), limit, 0
    for name in [thread] if thread is not None else desk.names(db, opened):
        found = desk.history(db, name, source=opened).grep(wanted, where=places or EVERYWHERE, limit=left)
        left, more = left - len(found), more + found.left_out
        if as_json:
            paper.stream({"thread": name, "step": one.step, "where": one.where, "path": one.path, "line": one.line}
                         for one in found)  # fmt: skip
        else:
            for one in found:
                print(paper.line(f"{name}{one}"))
    if more:
        paper.say(f"… and {more} more; -n says how many")
    if left == limit and not more:
        paper.say(f"{pattern!r} is nowhere in {shown(db) if thread is None else thread}")
        raise typer.Exit(codes.NOT_FOUND)


def _pattern(text: str, *, regex: bool, any_case: bool) -> re.Pattern[str]:
    try:
        return re.compile(text if regex else re.escape(text), re.IGNORECASE if any_case else 0)
    except re.error as error:
        raise typer.BadParameter(f"{text!r} is no regular expression: {error}") from error


def context(address: Address, db: Db = desk.DEFAULT_DB, as_json: Json = False) -> None:
    """Show the exact messages that a model saw; and what was left out, and why."""
    from dataclasses import asdict

    from graph_agent.errors import SetupError

    ((timeline, step),) = desk.places(db, address, agents=True)
    found = timeline.context(step)
    if found is None:
        raise SetupError(_not_asked(step))
    if as_json:
        paper.emit(asdict(found))
        return
    print(paper.clean(found))
    for one in found.items:
        paper.say(f"in: {one.kind} {one.id}: {one.reason}")
    for one in found.left_out:
        paper.say(f"out: {one.kind} {one.id} ({paper.size(one.bytes)})")
    for why, count in found.why.items():
        paper.say(f"left out: {count} {why}")


def _not_asked(step: Step) -> str:
    if "decisions" not in step.stored.checkpoint["channel_values"]:
        none = f"{step} is of no agent's thread, or nothing was decided yet"
        return f"{none}; graph-agent show {step} --full has its state"
    return f"the model was not asked in {step}; it was in the steps of plan, act, reflect and answer"


def stats(
    thread: Thread, db: Db = desk.DEFAULT_DB, price: Price = None, as_json: Json = False,
) -> None:  # fmt: skip
    """Say what an agent's thread took, by plan step, node and tool; tokens, money, seconds, tries."""
    from dataclasses import asdict

    from graph_agent.errors import SetupError

    timeline = desk.timeline(db, thread)
    if "usage" not in timeline[-1].values:
        raise SetupError(f"{thread!r} is no agent's thread, and has no such records; compare counts the steps of any")
    found = timeline.stats(desk.prices(price or []))
    if as_json:
        paper.emit(asdict(found))
        return
    columns = ("tokens_in", "tokens_out", "llm_calls", "tool_calls", "seconds", "retries", "failures")
    rows = [("all", "", found.total)]
    groups = (("step", found.by_step), ("node", found.by_node), ("tool", found.by_tool))
    rows += [(kind, name or "(none)", one) for kind, group in groups for name, one in group.items()]
    told = (
        (kind, name, *(f"{round(getattr(one, column), 3):,}" for column in columns), desk.money(one.cost))
        for kind, name, one in rows
    )
    paper.table(("OF", "NAME", *("IN", "OUT", "ASKED", "CALLS", "SECONDS", "RETRIES", "FAILED", "COST")), told)
    paper.say(f"{found.tokens} tokens and {found.llm_calls} questions count for the budget")
    desk.say_unpriced(found.unpriced)
