"""Questions to a person: review list, show, approve, edit, reject, respond. To look needs no agent, to answer does."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from graph_agent.cli import desk, paper
from graph_agent.cli.answering import By, ended, record_of
from graph_agent.cli.desk import AnyThread, App, Db, Json, Model, Thread
from graph_agent.errors import InvalidAnswerError, UnknownReviewError

if TYPE_CHECKING:
    from graph_agent.run import Review

Id = Annotated[str, typer.Argument(help="The id of a review.")]
Ids = Annotated[list[str], typer.Argument(help="The ids of reviews.")]
LIKE: Final = 'write them as \'{"name": "value"}\''


def open_reviews(thread: str | None, db: str) -> Iterator[Review]:
    """Give what is asked now, of one thread or of all that wait, as their newest steps have it stored."""
    from graph_agent.run import review_of

    opened = desk.saver(db)
    for name in [thread] if thread is not None else _waiting(db, opened):
        head = desk.history(db, name, source=opened)[-1]
        answered = {task for task, channel, _ in head.pending if channel not in ("__interrupt__", "__resume__")}
        for task, channel, asked in head.pending:
            if channel == "__interrupt__" and task not in answered:
                yield from (review_of(name, one) for one in asked)


def _waiting(db: str, opened: Any) -> list[str]:
    if not desk.is_ours(db):
        return desk.names(db, opened)
    with desk.reader(db) as reader:
        return [one.thread for one in reader.threads(status="waiting")]


def list_(thread: AnyThread = None, db: Db = desk.DEFAULT_DB, as_json: Json = False) -> None:
    """List what a person is asked about a thread, or about all."""
    found = open_reviews(thread, db)
    if as_json:
        paper.stream(record_of(one) for one in found)
        return
    rows = ((one.id, one.thread, one.kind, one.description, one.reason) for one in found)
    paper.table(("REVIEW", "THREAD", "KIND", "CALL", "REASON"), rows)


def show(
    thread: Thread, review: Annotated[str | None, typer.Argument(help="The id of a review; else all.")] = None,
    db: Db = desk.DEFAULT_DB, as_json: Json = False,
) -> None:  # fmt: skip
    """Show what a person decides about: the call with its arguments, whole, and why it is asked."""
    found = [one for one in open_reviews(thread, db) if review in (None, one.id)]
    if review is not None and not found:
        known = ", ".join(one.id for one in open_reviews(thread, db)) or "nothing"
        raise UnknownReviewError(f"{thread!r} is not asked {review!r} now; it is asked {known}", review=review)
    if as_json:
        paper.stream(record_of(one) for one in found)
        return
    for one in found:
        facts = {"review": one.id, "thread": one.thread, "kind": one.kind, "tool": one.tool, "risk": one.risk,
                 "reason": one.reason, "plan step": one.step, "call": "" if one.tool else one.description}  # fmt: skip
        for name, value in facts.items():
            if value:
                print(f"{name}: {paper.line(value)}")
        for name, value in one.args.items():
            print(f"  {paper.line(name)} = {paper.line(json.dumps(paper.told(value), ensure_ascii=False))}")


def _answer(thread: str, place: tuple[str, str, str], *, by: str, as_json: bool, **answers: Any) -> None:
    with desk.agent(*place) as agent:
        ended(agent.resume(thread, by=by, **answers), as_json=as_json)


def approve(
    thread: Thread, reviews: Ids, app: App = "", model: Model = "", db: Db = desk.DEFAULT_DB, by: By = "user",
    as_json: Json = False,
) -> None:  # fmt: skip
    """Let calls happen, and go on."""
    _answer(thread, (app, model, db), by=by, as_json=as_json, approve=reviews)


def edit(
    thread: Thread, review: Id, arguments: Annotated[str, typer.Argument(help="The arguments as JSON; - is stdin.")],
    app: App = "", model: Model = "", db: Db = desk.DEFAULT_DB, by: By = "user", as_json: Json = False,
) -> None:  # fmt: skip
    """Let a call happen with other arguments, and go on."""
    given = arguments_of(sys.stdin.read() if arguments == "-" else arguments)
    _answer(thread, (app, model, db), by=by, as_json=as_json, edit={review: given})


def arguments_of(text: str) -> dict[str, Any]:
    """Read the arguments of a call."""
    try:
        given = json.loads(text)
    except ValueError as error:
        raise InvalidAnswerError(f"the arguments are no JSON ({error}); {LIKE}") from error
    if not isinstance(given, dict):
        raise InvalidAnswerError(f"the arguments are no JSON object; {LIKE}")
    return given


def reject(
    thread: Thread, reviews: Ids,
    because: Annotated[str, typer.Option(help="Why; the agent is told.")] = "",
    app: App = "", model: Model = "", db: Db = desk.DEFAULT_DB, by: By = "user", as_json: Json = False,
) -> None:  # fmt: skip
    """Forbid calls, and go on."""
    _answer(thread, (app, model, db), by=by, as_json=as_json, reject=dict.fromkeys(reviews, because))


def respond(
    thread: Thread, review: Id, text: Annotated[str, typer.Argument(help="What to answer in the call's place.")],
    app: App = "", model: Model = "", db: Db = desk.DEFAULT_DB, by: By = "user", as_json: Json = False,
) -> None:  # fmt: skip
    """Answer a question, or a call in its place, and go on."""
    _answer(thread, (app, model, db), by=by, as_json=as_json, respond={review: text})
