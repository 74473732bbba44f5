"""What nodes that ask a model have in common: the question made from the view, and the record of the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from graph_agent.artifacts import beginning, wanted, with_texts
from graph_agent.context import Composed
from graph_agent.errors import BudgetSpentError
from graph_agent.kit import Kit, Where
from graph_agent.models import calibrated, estimate
from graph_agent.patch import Patch, clean, hashed
from graph_agent.state import Decision, current_step

View = Mapping[str, Any]


async def question(node: str, view: View, kit: Kit, where: Where) -> Composed:
    """Put together what a node asks, within what is left of the budget."""
    view = await _whole(view, kit, where)
    scale = calibrated(decision["tokens"] for decision in view.get("decisions", ()) if "tokens" in decision)
    shrink = (view.get("halt") or {}).get("shrink", 1.0)
    budget = kit.budget_of(view)
    compose = partial(
        kit.composer.compose,
        view,
        kit.prompts[node],
        thread=where.thread,
        max_artifact_bytes=budget.max_artifact_bytes_in_context,
        shrink=shrink / scale if kit.composer.context.tokens else shrink,
    )
    composed = await asyncio.to_thread(compose) if kit.composer.similar else compose()
    verdict = budget.exhausted(view.get("usage", {}), llm_tokens=round(estimate(composed.messages) * scale))
    if verdict.yes and budget.max_llm_tokens is not None and verdict.why.startswith("llm_tokens"):
        raise BudgetSpentError(verdict.why)
    return composed


async def _whole(view: View, kit: Kit, where: Where) -> View:
    """Give the artifacts that may be shown the text that is kept beside the state."""
    room = kit.budget_of(view).max_artifact_bytes_in_context
    texts: dict[str, str] = {}
    for artifact in wanted(view, room):
        data = await kit.effects.books.abody(where.thread, artifact["hash"], 0, room)
        texts[artifact["id"]] = beginning(data, artifact["bytes"])
    return with_texts(view, texts)


def about(node: str, view: View, where: Where) -> dict[str, Any]:
    """Tell the model's side which question this is, for traces and scripts."""
    before = sum(decision.get("node") == node for decision in view.get("decisions", ()))
    return {"node": node, "call": before, "thread": where.thread}


def decided(  # noqa: PLR0913  one argument for each thing that a decision records
    node: str,
    *,
    view: View,
    kit: Kit,
    where: Where,
    asked: Composed | None,
    chose: str,
    why: str = "",
    tokens: Mapping[str, int] | None = None,
    repairs: list[dict[str, str]] | None = None,
) -> Patch:
    """Give the patch that records a decision, and its cost; `asked` None is a decision by rule."""
    step = current_step(view.get("plan", ()))
    record: Decision = {
        "id": f"d-{hashed(where.checkpoint, node, str(len(view.get('decisions', ()))))}",
        "node": node,
        "chose": clean(chose),
        "why": clean(why),
        "model": kit.model.name if asked else "(rule)",
        "step": step["id"] if step else "",
        "at": kit.now(),
    }
    patch = Patch()
    if asked is not None:
        record["saw"] = {**asked.saw, "checkpoint": where.checkpoint}
        record["tokens"] = dict(tokens or {})
        patch = patch.set("prompts", {asked.saw["prompt"]: asked.prompt})
        patch = patch.count("llm_tokens", sum((tokens or {}).get(name, 0) for name in ("input", "output")))
        patch = patch.count("llm_calls")
    if repairs:
        record["repairs"] = [{name: clean(text) for name, text in repair.items()} for repair in repairs]
    return patch.add("decisions", record)
