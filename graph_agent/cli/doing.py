"""Commands that drive an agent: run, resume, fork, replay, undo, tools, demo. `--app` or `--model` says which."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

import typer

from graph_agent.cli import codes, desk, paper
from graph_agent.cli.answering import By, ended
from graph_agent.cli.desk import Address, App, Db, Json, Model, Thread, Yes

Ids = Annotated[list[str] | None, typer.Option(help="The id of a review; may be given several times.")]
Pairs = Annotated[list[str] | None, typer.Option(help="ID=TEXT; may be given several times.")]
Edits = Annotated[list[str] | None, typer.Option(help="ID=ARGUMENTS as JSON; may be given several times.")]
Effects = Annotated[str, typer.Option(help="What was done before: reuse its results, ask, or run it again.")]
Busy = Annotated[
    Literal["reject", "enqueue", "interrupt", "rollback"],
    typer.Option(help="Another run has the thread: give up, wait, stop it, or take back what it stored too."),
]
New = Annotated[str | None, typer.Option("--thread", help="The name of the new thread.")]


def run(
    goal: Annotated[str, typer.Argument(help="What to reach.")], app: App = "", model: Model = "",
    db: Db = desk.DEFAULT_DB,
    thread: Annotated[str | None, typer.Option("--thread", "-t", help="The name to resume it by.")] = None,
    if_busy: Busy = "reject", as_json: Json = False,
) -> None:  # fmt: skip
    """Work on a goal until it is reached, a person is needed, or a limit.

    An agent of --app brings its own database; that of --db is for --model, and is made if it is not there.
    """
    from graph_agent.past import named

    name = named(thread)
    with desk.agent(app, model, db, create=True) as agent, _going_on(name):
        if thread is None:
            paper.say(f"thread: {name}")
        ended(agent.run(goal, thread=name, if_busy=if_busy), as_json=as_json)


@contextmanager
def _going_on(thread: str) -> Iterator[None]:
    """Say how to go on to whoever stops a run."""
    try:
        yield
    except KeyboardInterrupt:
        paper.say(f"stopped; nothing is lost, go on with: graph-agent resume {thread}")
        raise


def resume(
    thread: Thread, app: App = "", model: Model = "", db: Db = desk.DEFAULT_DB, approve: Ids = None,
    reject: Pairs = None, edit: Edits = None, respond: Pairs = None, done: Pairs = None, not_done: Ids = None,
    abandon: Ids = None, by: By = "user", if_busy: Busy = "reject", as_json: Json = False,
) -> None:  # fmt: skip
    """Go on with a thread, with answers to its reviews or without."""
    from graph_agent.cli.reviewing import arguments_of

    answers: dict[str, Any] = {"approve": approve or (), "not_done": not_done or (), "abandon": abandon or ()}
    answers |= {name: _pairs(given) for name, given in (("reject", reject), ("respond", respond), ("done", done))}
    answers["edit"] = {key: arguments_of(text) for key, text in _pairs(edit).items()}
    with desk.agent(app, model, db) as agent, _going_on(thread):
        ended(agent.resume(thread, by=by, if_busy=if_busy, **answers), as_json=as_json)


def _pairs(given: list[str] | None) -> dict[str, str]:
    return {key: text for key, _, text in (one.partition("=") for one in given or ())}


def fork(
    address: Address, app: App = "", model: Model = "", db: Db = desk.DEFAULT_DB, thread: New = None,
    effects: Effects = "reuse", as_json: Json = False,
) -> None:  # fmt: skip
    """Make a new thread of a step of another; it waits to be resumed."""
    options: dict[str, Any] = {"effects": effects}
    with desk.agent(app, model, db) as agent:
        made = agent.fork(address, thread=thread, **options)
    if as_json:
        paper.emit({"thread": made.thread, "status": made.status})
    else:
        print(paper.line(made.thread))


def replay(
    address: Address, app: App = "", model: Model = "", db: Db = desk.DEFAULT_DB, thread: New = None,
    effects: Effects = "reuse", as_json: Json = False,
) -> None:  # fmt: skip
    """Make a new thread of a step of another, and go on with it."""
    options: dict[str, Any] = {"effects": effects}
    with desk.agent(app, model, db) as agent:
        ended(agent.replay(address, thread=thread, **options), as_json=as_json)


def undo(
    address: Annotated[str, typer.Argument(help="The step to go back to: THREAD@N; what was done after it goes.")],
    app: App = "", model: Model = "", db: Db = desk.DEFAULT_DB, yes: Yes = False, approve: Ids = None,
    reject: Ids = None, by: By = "user", as_json: Json = False,
) -> None:  # fmt: skip
    """Take back what a thread did after a step, newest first; without --yes it only says what that is."""
    answers = {"approve": approve or (), "reject": reject or ()}
    thread = address.rpartition("@")[0]
    if not thread:
        raise typer.BadParameter(f"to which step? write {address.strip('@') or 'THREAD'}@N; graph-agent log lists them")
    with desk.agent(app, model, db) as agent:
        told = agent.undo(thread, to=address, dry_run=not yes, by=by, **answers)
    names = ("key", "tool", "args", "step", "state", "why")
    rows = [{name: getattr(one, name) for name in names} for one in told.effects]
    reviews = [one.review.id if one.review else "" for one in told.effects]
    if as_json:
        paper.stream({**row, "review": one or None} for row, one in zip(rows, reviews, strict=True))
    else:
        columns = ("STATE", "TOOL", "ARGUMENTS", "STEP", "WHY", "REVIEW")
        paper.table(columns, ((row["state"], row["tool"], row["args"], row["step"], row["why"], one)
                              for row, one in zip(rows, reviews, strict=True)))  # fmt: skip
    if not yes:
        paper.say("nothing was changed; pass --yes to do it")
    elif asked := [one for one in reviews if one]:
        paper.say(f"it waits for an answer: graph-agent undo {address} --yes --approve {asked[0]}, or --reject")
    stands = {"waiting": codes.WAITING, "failed": codes.FAILED}
    raise typer.Exit(stands.get(told.status, codes.OK))


def tools(app: App = "", model: Model = "", db: Db = desk.DEFAULT_DB, as_json: Json = False) -> None:
    """List the tools of an agent, each with its risk; and how its effects are settled and taken back."""
    with desk.agent(app, model, db) as agent:
        found = list(agent.kit.tools)
    rows = [{"tool": one.name, "risk": one.risk, "once_per": one.once_per, "takes_key": one.takes_key,
             "probe": one.probe is not None, "compensate": one.compensate is not None} for one in found]  # fmt: skip
    if as_json:
        paper.stream(rows)
        return
    marks = ("takes_key", "probe", "compensate")
    shown = ((row["tool"], row["risk"], ", ".join(mark for mark in marks if row[mark])) for row in rows)
    paper.table(("TOOL", "RISK", "HAS"), shown)


def demo(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Approve without asking.")] = False,
    keep: Annotated[str, typer.Option("--keep", help="Play in this new folder, and leave it there.")] = "",
) -> None:
    """Show an agent that is killed in the middle, and does nothing twice."""
    from graph_agent.demo import main

    raise typer.Exit(main([*(["--yes"] if yes else []), *(["--keep", keep] if keep else [])]))
