"""What becomes of a call whose effect was claimed before: the record, what a person said of it, or a question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from langgraph.types import Send

from graph_agent.artifacts import kept
from graph_agent.kit import Kit, Where
from graph_agent.ledger import KIND, Claim
from graph_agent.nodes.road import Goto
from graph_agent.patch import Patch, clean, hashed

ABANDONED: Final = "nobody knows whether this was done, and it is not to be tried again"


def effect_of(call: Mapping[str, Any], where: Where) -> dict[str, Any]:
    """Give what the ledger notes of a call before its effect."""
    fields = {name: call[name] for name in ("tool", "args", "risk", "step", "turn") if name in call}
    return {**fields, "call": call["id"], "checkpoint": where.checkpoint}


def asked(claim: Claim, task: Mapping[str, Any], kit: Kit, where: Where, *, why: str = "") -> tuple[Patch, Goto]:
    """Leave it to a person, with all that is known; the reviews of this call that are over stay on record."""
    call, why = task["call"], why or claim.why
    before = call.get("review")
    number = sum(1 for _ in reviews_of(call))
    review: dict[str, Any] = {
        "id": f"r-{hashed(where.thread, call['id'], call['hash'], KIND, str(claim.attempt), str(number))}",
        "kind": KIND,
        "reason": why,
        "attempt": claim.attempt,
        "begun_at": claim.entry.record["at"],
        "asked_at": kit.now(),
        **({"earlier": before} if before else {}),
    }
    if kit.review.expires_after is not None:
        review["expires_at"] = kit.clock() + kit.review.expires_after
    changed = {"id": call["id"], "status": "waiting", "review": review, "retry_at": 0.0}
    patch = Patch().add("calls", changed).set("phase", "waiting")
    return patch, Send("review", {**task, "phase": "waiting", "call": {**call, **changed}})


def reviews_of(call: Mapping[str, Any]) -> Any:
    """Give the reviews of a call, the newest first."""
    review = call.get("review")
    while review:
        yield review
        review = review.get("earlier")


async def settled(claim: Claim, task: Mapping[str, Any], kit: Kit) -> tuple[Patch, Goto]:
    """Take over what was recorded, or what a person said."""
    call, said = task["call"], task["call"].get("review") or {}
    if claim.rule == "settled":
        told = clean(said.get("message") or claim.entry.record.get("result") or "(done)")
        short = kept(told, f"a-{call['id']}", limit=kit.inline)
        facts = {
            "status": "done",
            "result": short.text,
            "by": said["by"],
            **({"body": short.body} if short.body else {}),
        }
        claim = await kit.effects.record(claim, "done", facts, bodies=short.bodies)
    elif claim.rule == "abandoned":
        claim = await kit.effects.record(claim, "abandoned", {"by": said["by"]})
        changed = {"id": call["id"], "status": "rejected", "result": ABANDONED, "rule": claim.why, "by": said["by"]}
        return Patch().add("calls", changed), "observe"
    record = claim.entry.record
    changed = {"id": call["id"], "status": record.get("status", "done"), "result": record["result"], "retry_at": 0.0}
    changed |= {name: record[name] for name in ("body", "by") if name in record}
    if "patch" in record:  # a call that repeats another counts nothing twice
        counts = record["patch"]["counts"] if record["call"] == call["id"] else {}
        changed["patch"] = {**record["patch"], "counts": counts}
    return Patch().add("calls", {**changed, "rule": claim.why}), "observe"
