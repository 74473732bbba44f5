"""plan: the goal becomes steps that can be checked."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from graph_agent.kit import Kit, Where
from graph_agent.nodes.deciding import about, decided, question
from graph_agent.nodes.road import Node
from graph_agent.patch import Patch, clean


class PlanView(TypedDict, total=False):
    """What planning sees: the goal, what is known, what was said; not how tools were called."""

    goal: str
    constraints: list[str]
    plan: list[dict[str, Any]]
    facts: list[dict[str, Any]]
    questions: list[dict[str, Any]]
    risk_flags: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    decisions: list[dict[str, Any]]
    usage: dict[str, Any]
    budget: dict[str, Any]
    halt: dict[str, Any]


class Step(BaseModel):
    """One step."""

    title: str = Field(min_length=1, description="what is done, in a few words")
    detail: str = Field("", description="what to look out for, and how to tell that it is done")


class Plan(BaseModel):
    """A plan: the fewest steps that reach the goal."""

    steps: list[Step] = Field(min_length=1, max_length=30)
    why: str = Field("", description="why these steps, in a sentence")


async def plan(view: PlanView, kit: Kit, where: Where) -> Patch:
    """Ask for a plan, and adopt it."""
    asked = await question("plan", view, kit, where)
    found = await kit.model.structured(asked.messages, Plan, about=about("plan", view, where))
    steps = [{"title": clean(step.title), "detail": clean(step.detail)} for step in found.value.steps]
    record = decided(
        "plan", view=view, kit=kit, where=where, asked=asked, chose="; ".join(step["title"] for step in steps),
        why=found.value.why, tokens=found.tokens, repairs=found.repairs,
    )  # fmt: skip
    return (Patch().replace_plan(steps) | record).set("phase", "executing")


PLAN = Node("plan", plan, PlanView, works_in="planning", decides=True)
