"""reflect: is the plan still right? By rule while nothing unexpected happens; by asking the model when it does."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import BaseModel, Field

from graph_agent.kit import Kit, Where
from graph_agent.nodes.act import ActView
from graph_agent.nodes.deciding import about, decided, question
from graph_agent.nodes.road import Node
from graph_agent.patch import Patch
from graph_agent.state import current_step

FAILURES_IN_A_ROW: Final = 3
TURNS_ON_A_STEP: Final = 12


class ReflectView(ActView, total=False):
    """What reflecting sees: all that acting sees, and what failed."""

    failures: list[dict[str, Any]]


class Reflection(BaseModel):
    """How the plan is going."""

    verdict: Literal["continue", "replan", "stop"]
    why: str = Field("", description="the reason, in a sentence")


async def reflect(view: ReflectView, kit: Kit, where: Where) -> Patch:
    """Go on, plan anew, or give up."""
    against = [fact for fact in view.get("facts", ()) if fact.get("contradicts") and not fact.get("settled")]
    if against:
        settled = Patch().add("facts", *({"id": fact["id"], "settled": True} for fact in against))
        why = "; ".join(fact["text"] for fact in against)
        record = decided("reflect", view=view, kit=kit, where=where, asked=None, chose="replan", why=why)
        return (settled | record).set("phase", "planning")
    reason = _unexpected(view)
    if not reason:
        return Patch().set("phase", "executing" if current_step(view.get("plan", ())) else "reflecting")
    asked = await question("reflect", view, kit, where)
    found = await kit.model.structured(asked.messages, Reflection, about=about("reflect", view, where))
    record = decided(
        "reflect", view=view, kit=kit, where=where, asked=asked, chose=found.value.verdict,
        why=f"{found.value.why} ({reason})", tokens=found.tokens, repairs=found.repairs,
    )  # fmt: skip
    if found.value.verdict == "stop":
        left = [step for step in view.get("plan", ()) if step.get("status") == "open"]
        dropped = Patch().add("plan", *({"id": step["id"], "status": "dropped"} for step in left))
        return (dropped | record).set("phase", "reflecting")
    return record.set("phase", "planning" if found.value.verdict == "replan" else "executing")


def _unexpected(view: ReflectView) -> str:
    """Say what calls for a second thought, if anything does."""
    step = current_step(view.get("plan", ()))
    if step is None:
        return ""
    calls = [call for call in view.get("calls", ()) if call.get("step") == step["id"]]
    last = calls[-FAILURES_IN_A_ROW:]
    if len(last) == FAILURES_IN_A_ROW and all(call.get("status") == "failed" for call in last):
        return f"the last {FAILURES_IN_A_ROW} calls failed"
    turns = sum(d.get("node") == "act" and d.get("step") == step["id"] for d in view.get("decisions", ()))
    if turns and turns % TURNS_ON_A_STEP == 0:
        return f"{turns} turns on one step"
    return ""


REFLECT = Node("reflect", reflect, ReflectView, works_in="reflecting", decides=True)
