"""What a run, a review, an undo and an event show of themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from checkpointers.show.cards import Block, Card, Chip, Code, Meter, Rows, Values, Words, cut, some
from checkpointers.show.text import amount, lasted, short
from graph_agent.state import total

if TYPE_CHECKING:
    from graph_agent.run import Review, Run
    from graph_agent.undoing import Undo

LISTED: Final = 12
REVIEWS: Final = 20


def run_card(run: Run) -> Card:
    """Show where a thread stands: what it is for, how far it is, what it asks, what it says."""
    goal = run.state.get("goal", "")
    reviews, more = cut(run.reviews, REVIEWS)
    return Card(run.thread, "run", run.status, _used(run), some(
        Words("goal", goal) if goal else None,
        *(review_card(review) for review in reviews),
        Words("", f"{amount(more, 'more review')}: run.reviews") if more else None,
        Words("answer", run.answer, tone="good") if run.answer is not None else None,
        Words(*_why(run)) if run.reason else None,
        _plan(run.plan), _failures(run), _budget(run), _knows(run.state),
    ))  # fmt: skip


def _used(run: Run) -> tuple[tuple[str, Any], ...]:
    usage = run.usage
    counts = [
        (word, usage.get(name))
        for name, word in (
            ("llm_tokens", "tokens"),
            ("llm_calls", "model calls"),
            ("tool_calls", "tool calls"),
            ("steps", "steps"),
        )
    ]
    seconds = usage.get("wall_time")
    told = [(word, f"{count:,.0f}") for word, count in counts if count]
    return (("phase", run.phase), *told, ("worked", lasted(seconds) if seconds else None))


def _why(run: Run) -> tuple[str, str, bool, Any]:
    bad = run.status in ("failed", "crashed")
    return (
        "why it stopped" if bad or run.status == "stopped" else "last trouble",
        run.reason,
        False,
        "bad" if bad else "wait",
    )


def _plan(plan: Sequence[Mapping[str, Any]]) -> Rows | None:
    if not plan:
        return None
    done = sum(step.get("status") == "done" for step in plan)
    shown, hidden = cut(plan, 2 * LISTED)
    rows = [(Chip(str(step.get("status", "open"))), step.get("title", ""), step.get("result", "")) for step in shown]
    return Rows(f"plan: {done} of {len(plan)} done", ("", "step", "result"), rows, hidden, "step")


def _failures(run: Run) -> Rows | None:
    if not run.failures:
        return None
    shown, hidden = cut(run.failures[::-1], LISTED)
    rows = [
        (
            str(one.get("at", ""))[:19].replace("T", " "),
            one.get("tool") or one.get("node", ""),
            one.get("attempt", ""),
            _error(one),
        )
        for one in shown
    ]
    return Rows(
        f"failures: {len(run.failures):,}",
        ("at", "where", "try", "error"),
        rows,
        hidden,
        "failure",
        run.status == "done",
    )


def _error(failure: Mapping[str, Any]) -> str:
    error = failure.get("error") or {}
    return f"{error.get('type', '')}: {error.get('message', '')}" if isinstance(error, Mapping) else str(error)


def _budget(run: Run) -> Meter | None:
    """Show the limit that is nearest to being reached."""
    budget, usage = run.state.get("budget") or {}, run.state.get("usage") or {}
    names = {
        "max_steps": "steps",
        "max_wall_time": "wall_time",
        "max_llm_tokens": "llm_tokens",
        "max_tool_calls": "tool_calls",
    }
    spent = [
        (total(usage, name), budget[key], name.replace("_", " ")) for key, name in names.items() if budget.get(key)
    ]
    used, limit, unit = max(spent, key=lambda one: one[0] / one[1], default=(0, 0, ""))
    return Meter("budget", used, limit, unit) if limit else None


def _knows(state: Mapping[str, Any]) -> Values | None:
    kept = {key: value for key, value in state.items() if value not in (None, [], {}, "")}
    return Values("state", kept, folded=True) if kept else None


def review_card(review: Review, door: str = "") -> Card:
    """Show what a person is asked, with every argument, and how to answer."""
    facts = (
        ("risk", Chip(review.risk) if review.risk else None), ("because", review.reason), ("id", Code(review.id)),
        ("until", _until(review.expires_at)),
    )  # fmt: skip
    said = "" if review.tool else review.description
    return Card(review.tool or review.kind, "review", "waiting", facts, some(
        Words("", said, tone="wait") if said else None,
        Values("arguments", dict(review.args), exact=True) if review.args else None,
        Rows("", ("", ""), [("to answer", Code(_answer(review, door)))]),
    ))  # fmt: skip


def _until(expires: float | None) -> str | None:
    return None if expires is None else f"{datetime.fromtimestamp(expires, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _answer(review: Review, door: str) -> str:
    ways = {"tool_approval": "approve"}.get(review.kind)
    given = f'{ways}="{review.id}"' if ways else f'respond={{"{review.id}": …}}'
    if "doubt" in review.kind:
        given = f'done={{"{review.id}": …}}'
    return f"{door or f'agent.resume({review.thread!r}'}, {given})"


def undo_card(undo: Undo) -> Card:
    """Show what is or was taken back."""
    shown, hidden = cut(undo.effects, 2 * LISTED)
    rows = [(Chip(one.state), one.tool, f"@{one.step}", one.why, dict(one.args)) for one in shown]
    reviews, more = cut(undo.reviews, REVIEWS)
    table = Rows("effects, newest first", ("", "tool", "after", "why", "arguments"), rows, hidden, "effect")
    return Card(f"{undo.thread} to {undo.to}", "undo", undo.status, (("effects", f"{len(undo.effects):,}"),), some(
        table if rows else Words("", "nothing was done that could be taken back"),
        *(review_card(review, f"agent.undo({undo.thread!r}, to={undo.to!r}") for review in reviews),
        Words("", f"{amount(more, 'more review')}: undo.reviews") if more else None,
    ))  # fmt: skip


def event_card(event: Any) -> Card:
    """Show one thing that happened."""
    kind = type(event).__name__.lower()
    if hasattr(event, "run"):
        return run_card(event.run)
    if hasattr(event, "review"):
        return review_card(event.review)
    blocks: list[Block | None] = [Values("arguments", dict(event.args))] if getattr(event, "args", None) else []
    if getattr(event, "patch", None):
        blocks.append(Values("wrote", dict(event.patch)))
    if getattr(event, "error", ""):
        blocks.append(Words("failed", event.error, tone="bad"))
    name = getattr(event, "tool", "") or event.node
    return Card(
        name, kind, "failed" if getattr(event, "error", "") else "", (("thread", short(event.thread)),), some(*blocks)
    )
