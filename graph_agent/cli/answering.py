"""What a run says when it stands, and with which code; shared by all that goes on with a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from graph_agent.cli import codes, paper

if TYPE_CHECKING:
    from graph_agent.run import Review, Run

By = Annotated[str, typer.Option("--by", help="Who says so.")]
CODES = {"done": codes.OK, "waiting": codes.WAITING, "stopped": codes.SPENT}
ASKED = ("id", "thread", "kind", "tool", "args", "risk", "reason", "step", "description", "expires_at")


def ended(run: Run, *, as_json: bool) -> None:
    """Tell where a run stands, and exit with the code that says so."""
    if as_json:
        paper.emit({"thread": run.thread, "status": run.status, "answer": run.answer, "reason": run.reason,
                    "usage": run.usage, "reviews": [record_of(one) for one in run.reviews]})  # fmt: skip
    elif run.status == "done":
        print(paper.clean(run.answer))
    else:
        paper.say(str(run))
        for one in run.reviews:
            print("\t".join(map(paper.line, (one.id, one.description, one.reason))))
    raise typer.Exit(CODES.get(run.status, codes.FAILED))


def record_of(one: Review) -> dict[str, Any]:
    """Give a review as JSON has it."""
    return {name: paper.told(getattr(one, name)) for name in ASKED}
