"""Commands that drive an agent: run, resume, review, fork, replay, undo, tools, demo. They need `--app module:name`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from graph_agent.cli import desk
from graph_agent.cli.desk import Address, App, Json, Thread, Yes

Ids = Annotated[list[str] | None, typer.Option(help="The id of a review; may be given several times.")]
Pairs = Annotated[list[str] | None, typer.Option(help="ID=TEXT; may be given several times.")]
By = Annotated[str, typer.Option("--by", help="Who says so.")]
Effects = Annotated[str, typer.Option(help="What was done before: reuse its results, ask, or run it again.")]
New = Annotated[str | None, typer.Option("--thread", help="The name of the new thread.")]


def _ended(run: Any, *, as_json: bool) -> None:
    """Tell where a run stands, and exit with the code that says so."""
    if as_json:
        desk.emit({"thread": run.thread, "status": run.status, "answer": run.answer, "reason": run.reason,
                   "usage": run.usage, "reviews": [_review(one) for one in run.reviews]})  # fmt: skip
    elif run.status == "done":
        print(desk.clean(run.answer))
    else:
        desk.say(str(run))
        for one in run.reviews:
            print(desk.clean(f"{one.id}\t{one.description}\t{one.reason}"))
    codes = {"done": desk.OK, "waiting": desk.WAITING, "stopped": desk.SPENT}
    raise typer.Exit(codes.get(run.status, desk.FAILED))


def _review(one: Any) -> dict[str, Any]:
    names = ("id", "thread", "kind", "tool", "args", "risk", "reason", "step", "description", "expires_at")
    return {name: getattr(one, name) for name in names}


def run(
    goal: Annotated[str, typer.Argument(help="What to reach.")], app: App = "",
    thread: Annotated[str | None, typer.Option("--thread", "-t", help="The name to resume it by.")] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Work on a goal until it is reached, a person is needed, or a limit."""
    _ended(desk.agent(app).run(goal, thread=thread), as_json=as_json)


def resume(
    thread: Thread, app: App = "", approve: Ids = None, reject: Pairs = None, respond: Pairs = None, done: Pairs = None,
    not_done: Ids = None, abandon: Ids = None, by: By = "user", as_json: Json = False,
) -> None:  # fmt: skip
    """Go on with a thread, with answers to its reviews or without."""
    answers: dict[str, Any] = {"approve": approve or (), "not_done": not_done or (), "abandon": abandon or ()}
    answers |= {name: _pairs(given) for name, given in (("reject", reject), ("respond", respond), ("done", done))}
    _ended(desk.agent(app).resume(thread, by=by, **answers), as_json=as_json)


def _pairs(given: list[str] | None) -> dict[str, str]:
    return {key: text for key, _, text in (one.partition("=") for one in given or ())}


def review(thread: Thread, app: App = "", as_json: Json = False) -> None:
    """List what a person is asked about a thread; answer with `resume`."""
    found = desk.agent(app).state(thread).reviews
    if as_json:
        desk.stream(_review(one) for one in found)
        return
    rows = ((one.id, one.kind, one.description, one.risk, one.reason) for one in found)
    desk.table(("REVIEW", "KIND", "CALL", "RISK", "REASON"), rows)


def fork(
    address: Address, app: App = "", thread: New = None, effects: Effects = "reuse", as_json: Json = False
) -> None:
    """Make a new thread of a step of another; it waits to be resumed."""
    options: dict[str, Any] = {"effects": effects}
    made = desk.agent(app).fork(address, thread=thread, **options)
    if as_json:
        desk.emit({"thread": made.thread, "status": made.status})
    else:
        print(desk.clean(made.thread))


def replay(
    address: Address, app: App = "", thread: New = None, effects: Effects = "reuse", as_json: Json = False
) -> None:
    """Make a new thread of a step of another, and go on with it."""
    options: dict[str, Any] = {"effects": effects}
    _ended(desk.agent(app).replay(address, thread=thread, **options), as_json=as_json)


def undo(
    address: Annotated[str, typer.Argument(help="The step to go back to: THREAD@N; what was done after it goes.")],
    app: App = "", yes: Yes = False, approve: Ids = None, reject: Ids = None, by: By = "user", as_json: Json = False,
) -> None:  # fmt: skip
    """Take back what a thread did after a step, newest first; without --yes it only says what that is."""
    answers = {"approve": approve or (), "reject": reject or ()}
    thread = address.rpartition("@")[0]
    told = desk.agent(app).undo(thread, to=address, dry_run=not yes, by=by, **answers)
    names = ("key", "tool", "args", "step", "state", "why")
    rows = [{name: getattr(one, name) for name in names} for one in told.effects]
    if as_json:
        desk.stream(rows)
    else:
        columns = ("STATE", "TOOL", "ARGUMENTS", "STEP", "WHY", "REVIEW")
        reviews = [one.review.id if one.review else "" for one in told.effects]
        desk.table(columns, ((row["state"], row["tool"], row["args"], row["step"], row["why"], one)
                             for row, one in zip(rows, reviews, strict=True)))  # fmt: skip
    codes = {"waiting": desk.WAITING, "failed": desk.FAILED}
    raise typer.Exit(codes.get(told.status, desk.OK))


def tools(app: App = "", as_json: Json = False) -> None:
    """List the tools of an agent, each with its risk and how its effects are settled and taken back."""
    found = list(desk.agent(app).kit.tools)
    rows = [{"tool": one.name, "risk": one.risk, "once_per": one.once_per, "takes_key": one.takes_key,
             "probe": one.probe is not None, "compensate": one.compensate is not None} for one in found]  # fmt: skip
    if as_json:
        desk.stream(rows)
        return
    marks = ("takes_key", "probe", "compensate")
    shown = ((row["tool"], row["risk"], ", ".join(mark for mark in marks if row[mark])) for row in rows)
    desk.table(("TOOL", "RISK", "HAS"), shown)


def demo() -> None:
    """Show an agent that is killed in the middle, and does nothing twice."""
    from graph_agent.demo import main

    main()
