"""Answers to reviews: which one each is for, whether it fits, and whether it comes too late."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from graph_agent.errors import (
    ExpiredReviewError,
    InvalidAnswerError,
    OpenThreadError,
    SettledReviewError,
    ToolError,
    UnknownReviewError,
)
from graph_agent.nodes.doubt import reviews_of
from graph_agent.nodes.review import ANSWERS, OF_DOUBT, said, schema_of
from graph_agent.patch import canonical
from graph_agent.run import Review, Run
from graph_agent.toolbox import Toolbox

Answer = dict[str, Any]
TAKES: Final = {
    "question": "a question takes an answer: respond={id: text}",
    "in_doubt": "what is in doubt takes done={id: result}, not_done=id (it is begun again) or abandon=id",
}
Ids = str | Review | Iterable[str | Review]


def gathered(
    *,
    approve: Ids = (),
    reject: Ids | Mapping[str, str] = (),
    edit: Mapping[str, Mapping[str, Any]] | None = None,
    respond: Mapping[str, str] | None = None,
    done: Ids | Mapping[str, str] = (),
    not_done: Ids = (),
    abandon: Ids = (),
) -> dict[str, Answer]:
    """Put the answers of a call together, by the id of the review; two for one review are refused."""
    for name, given in (("edit", edit), ("respond", respond)):
        if not isinstance(given or {}, Mapping):
            raise InvalidAnswerError(f"{name}={given!r} names no review; write {name}={{review.id: …}}")
    answers: list[tuple[str, Answer]] = [(key, {"type": "approve"}) for key in _ids("approve", approve)]
    for kind, told in (("reject", reject), ("done", done)):
        messages = told if isinstance(told, Mapping) else dict.fromkeys(_ids(kind, told), "")
        answers += [(key, {"type": kind, **({"message": text} if text else {})}) for key, text in messages.items()]
    for kind, named in (("not_done", not_done), ("abandon", abandon)):
        answers += [(key, {"type": kind}) for key in _ids(kind, named)]
    edits = {key: {"name": "", "args": dict(args)} for key, args in (edit or {}).items()}
    answers += [(key, {"type": "edit", "edited_action": edited}) for key, edited in edits.items()]
    answers += [(key, {"type": "respond", "message": text}) for key, text in (respond or {}).items()]
    found: dict[str, Answer] = {}
    for key, answer in answers:
        if key in found:
            both = f"{found[key]['type']} and {answer['type']}"
            raise InvalidAnswerError(f"review {key} was given two answers at once, {both}; give one", review=key)
        found[key] = answer
    return found


def _ids(name: str, given: Ids) -> list[str]:
    """Take an id, a review, or several of them."""
    if isinstance(given, str | Review):
        given = [given]
    if not isinstance(given, Iterable):
        raise InvalidAnswerError(f"{name}={given!r} names no review; write {name}=review.id")
    return [one.id if isinstance(one, Review) else str(one) for one in given]


def fitted(answers: Mapping[str, Answer], run: Run, tools: Toolbox, *, by: str, now: float) -> dict[str, Answer]:
    """Give the answers by interrupt; those given before, in the same words, are left out: they are one answer."""
    if answers and run.status == "running":
        raise OpenThreadError(f"thread {run.thread!r} is running; wait until it asks", thread=run.thread)
    open_ = {review.id: review for review in run.reviews}
    fitting: dict[str, Answer] = {}
    for key, answer in answers.items():
        review = open_.get(key)
        if review is None:
            _repeated(key, answer, run, tools)
            continue
        if review.is_late(now):
            raise ExpiredReviewError(
                f"review {key} of {review.description} expired; resume the thread without it, and it may ask anew",
                review=key, expired_at=review.expires_at,
            )  # fmt: skip
        fitting[review.interrupt] = _checked({**answer, "by": by}, review, tools)
    return fitting


def expired(run: Run, now: float) -> dict[str, Answer]:
    """Give the answers to the reviews that nobody answered in time."""
    return {review.interrupt: {"type": "expire", "by": "(deadline)"} for review in run.reviews if review.is_late(now)}


def _checked(answer: Answer, review: Review, tools: Toolbox) -> Answer:
    if review.kind not in ANSWERS:
        return answer
    try:
        fitting: Answer = TypeAdapter(schema_of(review.kind, review.tool, tools)).validate_python(answer)
    except ValidationError as error:
        first = error.errors()[0]
        why = TAKES.get(review.kind, first["msg"]) if first["type"] == "union_tag_invalid" else first["msg"]
        raise InvalidAnswerError(f"review {review.id}: {why}", review=review.id) from error
    return fitting


def _repeated(key: str, answer: Answer, run: Run, tools: Toolbox) -> None:
    """Let an answer pass that was given before; refuse a different one, with who, when and what."""
    for call in run.state.get("calls", ()):
        settled = next((one for one in reviews_of(call) if one["id"] == key), None)
        if settled is None:
            continue
        if "answer" not in settled:
            raise OpenThreadError(
                f"review {key} was answered, and thread {run.thread!r} crashed before it acted on that; resume it"
                " without an answer", thread=run.thread, review=key,
            )  # fmt: skip
        if settled["answer"] == answer["type"] and _says_the_same(answer, call, settled, tools):
            return
        raise SettledReviewError(
            f"review {key} was settled: {settled['answer']} by {settled.get('by')} at {settled.get('at')};"
            " to change it, fork the thread from the step before",
            review=key, by=settled.get("by"), at=settled.get("at"), answer=settled["answer"],
        )  # fmt: skip
    known = ", ".join(f"{review.id} ({review.description})" for review in run.reviews) or "none"
    raise UnknownReviewError(f"thread {run.thread!r} has no review {key!r}; open are: {known}", review=key)


def _says_the_same(answer: Answer, call: Mapping[str, Any], settled: Mapping[str, Any], tools: Toolbox) -> bool:
    if answer["type"] in OF_DOUBT:
        return answer.get("message") == settled.get("message")
    if answer["type"] == "edit":
        args = answer["edited_action"]["args"]
        with suppress(ToolError):
            args = tools.get(call["tool"]).checked(args)
        return canonical(args) == canonical(call.get("args"))
    return answer["type"] == "approve" or said(answer) == call.get("result")
