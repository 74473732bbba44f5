"""Commands that look: threads, log, show, diff, blame, bisect, context, du, ledger, fsck. They change nothing."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from graph_agent.cli import desk
from graph_agent.cli.desk import Address, Db, Json, Thread

if TYPE_CHECKING:
    from checkpointers.step import Step
    from checkpointers.threads import StepInfo

Standing = Literal["waiting", "failed", "pending", "done"]
Status = Annotated[Standing | None, typer.Option(help="Only those that stand so.")]
Since = Annotated[str | None, typer.Option(help="Only those written since: 2d, 6h, 2026-11-01.")]
Limit = Annotated[int | None, typer.Option("--limit", "-n", help="At most so many.")]
Goal = "goal"


def threads(
    db: Db = desk.DEFAULT_DB, status: Status = None, since: Since = None,
    tag: Annotated[str | None, typer.Option(help="Only those with this tag.")] = None,
    limit: Limit = None, as_json: Json = False,
) -> None:  # fmt: skip
    """List threads, the most recently written first, without loading a state."""
    if not desk.is_ours(db):
        _threads_of_others(db, as_json=as_json)
        return
    with desk.reader(db) as reader:
        found = reader.threads(status=status, since=since, tag=tag, limit=limit)
    if as_json:
        desk.stream(_thread(one) for one in found)
        return
    columns = ("THREAD", "STATUS", "STEP", "WRITTEN", "SIZE", "HELD BY", "GOAL")
    desk.table(columns, (
        (one.thread, "running" if one.holder else one.status, one.step, f"{desk.ago(one.updated_at)} ago",
         desk.size(one.bytes), one.holder or "", one.metadata.get(Goal, ""))
        for one in found
    ))  # fmt: skip


def _threads_of_others(db: str, *, as_json: bool) -> None:
    """List the threads of another saver, which has to load its states for that."""
    counts: dict[str, int] = {}
    for found in desk.saver(db).list(None):
        name = found.config["configurable"]["thread_id"]
        counts[name] = counts.get(name, 0) + 1
    if as_json:
        desk.stream({"thread": name, "checkpoints": count} for name, count in counts.items())
    else:
        desk.table(("THREAD", "STEPS"), counts.items())


def _thread(one: Any) -> dict[str, Any]:
    names = ("thread", "status", "step", "checkpoints", "bytes", "created_at", "updated_at", "tags", "pins", "holder")
    return {**{name: getattr(one, name) for name in names}, "metadata": one.metadata}


def log(
    thread: Thread, db: Db = desk.DEFAULT_DB, limit: Limit = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only steps with failures.")] = False, as_json: Json = False,
) -> None:  # fmt: skip
    """List the steps of a thread, the newest first."""
    if not desk.is_ours(db):
        infos = list(desk.history(db, thread)[0]._timeline.infos.values())  # noqa: SLF001  of savers of others
    else:
        with desk.reader(db) as reader:
            infos = reader.steps(thread)
        if not infos:
            _unknown(thread, db)
    by_id = {info.id: info for info in infos}
    shown = [info for info in reversed(infos) if not failed or info.status == "failed"][:limit]
    rows = [_logged(thread, info, by_id.get(info.parent_id or "")) for info in shown]
    if as_json:
        desk.stream(rows)
        return
    desk.table(("STEP", "AT", "SOURCE", "STATUS", "NODES", "FROM"), (
        (row["address"], f"{row['at']:%Y-%m-%d %H:%M:%S}", row["source"], row["status"], ", ".join(row["nodes"]),
         f"@{row['parent']}" if row["parent"] is not None and row["parent"] != row["number"] - 1 else "")
        for row in rows
    ))  # fmt: skip


def _logged(thread: str, info: StepInfo, parent: StepInfo | None) -> dict[str, Any]:
    from checkpointers.authors import nodes_of

    nodes = nodes_of(info, parent, ())
    return {
        "address": f"{thread}@{info.number}", "number": info.number, "id": info.id, "at": info.at,
        "source": info.source, "status": info.status, "nodes": list(nodes),
        "parent": parent.number if parent else None,
    }  # fmt: skip


def _unknown(thread: str, db: str) -> None:
    """Raise for a thread that is not there, with the names that are nearest."""
    from difflib import get_close_matches

    from checkpointers.errors import CheckpointerError, UnknownThreadError

    with desk.reader(db) as reader:
        names = [one.thread for one in reader.threads(limit=1_000)]
    error: CheckpointerError = UnknownThreadError(thread)
    near = get_close_matches(thread, names) or names[:3]
    error.args = (f"{error}; there {'is' if len(near) == 1 else 'are'} {', '.join(map(repr, near)) or 'none'}",)
    raise error


def show(
    address: Address, db: Db = desk.DEFAULT_DB,
    full: Annotated[bool, typer.Option("--full", help="The whole state, not only what the step wrote.")] = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Show a step: who made it, and what it wrote."""
    history, at = desk.history(db, address)
    step = history.at(at)
    values = dict(step.values if full else step.wrote)
    if as_json:
        desk.emit({**_step(step), "values": values})
        return
    print(desk.clean(f"{step}  {step.at:%Y-%m-%d %H:%M:%S}  {step.source}  {step.status}  {', '.join(step.nodes)}"))
    for name, value in values.items():
        print(desk.clean(f"{name}:"), _told(value, full=full), sep="\n" if full else " ")
    for asked in step.interrupts:
        print(desk.clean(f"asked: {getattr(asked, 'value', asked)}"))
    for error in step.errors:
        print(desk.clean(f"failed: {error}"))


def _step(step: Step) -> dict[str, Any]:
    about = {"address": str(step), "number": step.number, "id": step.id, "at": step.at, "source": step.source}
    return {**about, "status": step.status, "nodes": list(step.nodes), "parent": step.parent}


def _told(value: Any, *, full: bool) -> str:
    from reprlib import Repr

    short = Repr()
    short.maxstring = short.maxother = 10_000 if full else 160
    short.maxlist = short.maxdict = 1_000 if full else 5
    return desk.clean(short.repr(value))


def diff(
    before: Address, after: Address, db: Db = desk.DEFAULT_DB,
    stat: Annotated[bool, typer.Option("--stat", help="Only how many changes each channel has.")] = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Say what changed between two steps; items of lists are matched by their ids."""
    first, at = desk.history(db, before)
    old, new = first.at(at), first.at(after) if "@" in after else first.at(f"@{after}")
    found = first.diff(old, new)
    if as_json:
        names = ("path", "kind", "before", "after", "index")
        desk.emit([{name: getattr(change, name) for name in names} for change in found])
    elif stat:
        counts = {name: one.added + one.removed + one.changed + one.moved for name, one in found.stat.items()}
        desk.table(("CHANNEL", "CHANGES"), sorted(counts.items(), key=lambda one: -one[1]))
    else:
        print(desk.clean(found))


def blame(
    address: Address, path: Annotated[str, typer.Argument(help="A path into the state, as facts.build.text.")],
    db: Db = desk.DEFAULT_DB, as_json: Json = False,
) -> None:  # fmt: skip
    """Say which steps set a value, the newest first."""
    found = desk.history(db, address)[0].blame(path)
    if as_json:
        names = ("step", "nodes", "source", "at", "kind", "before", "after")
        desk.emit([{name: getattr(one, name) for name in names} for one in found])
    else:
        print("\n".join(desk.clean(one) for one in found))


def bisect(
    thread: Thread, command: Annotated[str, typer.Argument(help="A shell command; it succeeds where it is true.")],
    db: Db = desk.DEFAULT_DB, as_json: Json = False,
) -> None:  # fmt: skip
    """Find the first step for which a command succeeds; it is given the state as JSON on its standard input."""
    import json

    def holds(step: Step) -> bool:
        state = json.dumps(dict(step.values), default=repr)
        done = subprocess.run(command, shell=True, input=state, text=True, capture_output=True, check=False)  # noqa: S602
        desk.say(f"{step}: {'yes' if done.returncode == 0 else 'no'}")
        return done.returncode == 0

    step = desk.history(db, thread)[0].bisect(holds)
    if as_json:
        desk.emit(_step(step) if step else None)
    elif step is None:
        desk.say(f"it is true for no step of {thread}")
        raise typer.Exit(desk.NOT_FOUND)
    else:
        print(step)


def context(address: Address, db: Db = desk.DEFAULT_DB, as_json: Json = False) -> None:
    """Show the exact messages that the model saw in a step of an agent, and what was left out and why."""
    from graph_agent.errors import SetupError
    from graph_agent.history import Timeline

    thread, _, number = (address if "@" in address else f"{address}@-1").rpartition("@")
    step: Any = Timeline(desk.saver(db), thread).at(f"{thread}@{number}")
    saw = step.saw
    if saw is None:
        raise SetupError(f"the model was not asked in {step}; it was in the steps of plan, act, reflect and answer")
    if as_json:
        names = ("messages", "items", "left_out", "left_out_bytes", "budget", "exact")
        desk.emit({name: getattr(saw, name) for name in names})
        return
    print(desk.clean(saw))
    for kind, key, reason in saw.items:
        desk.say(f"in: {kind} {key}: {reason}")
    for why, count in saw.left_out.items():
        desk.say(f"out: {count} {why}")


def du(thread: Annotated[str | None, typer.Argument(help="Only of this thread.")] = None, db: Db = desk.DEFAULT_DB,
       as_json: Json = False) -> None:  # fmt: skip
    """Say where the bytes are: by thread and channel, the largest first."""
    with desk.reader(db) as reader:
        found = reader.usage(thread)
    if as_json:
        names = ("thread", "channel", "rows", "bytes")
        desk.stream({name: getattr(one, name) for name in names} for one in found)
        return
    rows = ((one.thread, one.channel, one.rows, desk.size(one.bytes)) for one in found)
    desk.table(("THREAD", "CHANNEL", "ROWS", "SIZE"), rows)


def ledger(thread: Thread, db: Db = desk.DEFAULT_DB, as_json: Json = False) -> None:
    """List the effects of a thread: what was done to the world, what came of it, what is in doubt."""
    with desk.reader(db) as reader:
        found = reader.ledger.entries(thread)
    if as_json:
        names = ("key", "number", "status", "step", "at", "record")
        desk.stream({name: getattr(one, name) for name in names} for one in found)
        return
    rows = (
        (one.number, "in doubt" if one.status == "claimed" else one.status, one.record.get("tool", ""),
         one.record.get("args", ""), f"{one.at:%Y-%m-%d %H:%M:%S}", str(one.record.get("result", ""))[:80])
        for one in found
    )  # fmt: skip
    desk.table(("N", "STATUS", "TOOL", "ARGUMENTS", "AT", "RESULT"), rows)


def fsck(thread: Annotated[str | None, typer.Argument(help="Only this thread.")] = None, db: Db = desk.DEFAULT_DB,
         as_json: Json = False) -> None:  # fmt: skip
    """Check every row against its seal and against the others; changes nothing."""
    with desk.reader(db) as reader:
        found = reader.fsck(thread)
    if as_json:
        names = ("thread", "step", "what", "sound")
        desk.stream({name: getattr(one, name) for name in names} for one in found)
    else:
        for one in found:
            print(desk.clean(one))
        desk.say(f"{len(found)} finding{'s' * (len(found) != 1)}")
    if found:
        raise typer.Exit(desk.DAMAGED)
