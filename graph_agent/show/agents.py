"""What an agent shows of itself: its graph, its model, its tools with their risks, where its threads are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from checkpointers.show.cards import Card, Chip, Rows, cut, some
from checkpointers.show.text import clipped
from graph_agent.show.graphs import shape_of
from graph_agent.show.sketch import sketched

if TYPE_CHECKING:
    from graph_agent.agent import Agent
    from graph_agent.tools import Tool

LISTED: Final = 40
# What a node decides while it runs, LangGraph does not see: a call is sent to its node, and leads on from there.
SENT: Final = (("act", "review"), ("act", "tool"), ("review", "tool"), ("review", "observe"), ("tool", "observe"))


def agent_card(agent: Agent) -> Card:
    """Show an agent."""
    tools, hidden = cut(list(agent.kit.tools), LISTED)
    saver = agent.saver
    facts = (("model", agent.kit.model.name), ("saver", type(saver).__name__), ("threads", threads_of(agent)))
    rows = [_tool(tool) for tool in tools]
    return Card("agent", "", "", facts, some(
        sketched(shape_of(agent.graph, SENT)),
        Rows("tools", ("tool", "risk", "the same effect if", "if in doubt", "to undo"), rows, hidden, "tool"),
    ))  # fmt: skip


def threads_of(agent: Agent) -> str:
    """Count the threads, where that does not mean to read them all."""
    if not hasattr(agent.saver, "threads"):
        return "not counted by this saver"
    try:
        return f"{len(agent.saver.threads()):,}"
    except Exception as error:  # noqa: BLE001  an agent whose database is gone can still be looked at
        return f"not to be read: {clipped(f'{type(error).__name__}: {error}', 100)}"


def _tool(tool: Tool) -> tuple[Any, ...]:
    if not tool.has_effect:
        return tool.name, Chip(tool.risk), "", "", ""
    same = "it is the same call" if tool.once_per == "call" else "same " + (", ".join(tool.once_per) or "arguments")
    doubt = "its probe is asked" if tool.probe else "same key is sent again" if tool.takes_key else "a person is asked"
    undo = (
        getattr(tool.compensate, "name", None) or getattr(tool.compensate, "__name__", "")
        if tool.compensate
        else "cannot be undone"
    )
    return tool.name, Chip(tool.risk), same, doubt, undo
