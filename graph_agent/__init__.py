"""An agent that does not lose its work: a LangGraph graph over typed state, resumable by thread id."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "graph_agent.agent": "Agent",
    "graph_agent.errors": "GraphAgentError ToolError RunFailedError",
    "graph_agent.graph": "build_graph",
    "graph_agent.migrations": "Migrations",
    "graph_agent.nodes.road": "Node",
    "graph_agent.patch": "Patch",
    "graph_agent.policies": "Budget Context Deadline Retry ReviewPolicy",
    "graph_agent.run": "Review Run",
    "graph_agent.state": "AgentState latest merge tally upsert",
    "graph_agent.toolbox": "Toolbox",
    "graph_agent.tools": "NOT_DONE Tool tool",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
__all__ = sorted(_HOME_OF)  # noqa: PLE0605  one list of names, not two

if TYPE_CHECKING:
    from graph_agent.agent import Agent as Agent
    from graph_agent.errors import GraphAgentError as GraphAgentError
    from graph_agent.errors import RunFailedError as RunFailedError
    from graph_agent.errors import ToolError as ToolError
    from graph_agent.graph import build_graph as build_graph
    from graph_agent.migrations import Migrations as Migrations
    from graph_agent.nodes.road import Node as Node
    from graph_agent.patch import Patch as Patch
    from graph_agent.policies import Budget as Budget
    from graph_agent.policies import Context as Context
    from graph_agent.policies import Deadline as Deadline
    from graph_agent.policies import Retry as Retry
    from graph_agent.policies import ReviewPolicy as ReviewPolicy
    from graph_agent.run import Review as Review
    from graph_agent.run import Run as Run
    from graph_agent.state import AgentState as AgentState
    from graph_agent.state import latest as latest
    from graph_agent.state import merge as merge
    from graph_agent.state import tally as tally
    from graph_agent.state import upsert as upsert
    from graph_agent.toolbox import Toolbox as Toolbox
    from graph_agent.tools import NOT_DONE as NOT_DONE
    from graph_agent.tools import Tool as Tool
    from graph_agent.tools import tool as tool


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used."""
    if name in _HOME_OF:
        return getattr(import_module(_HOME_OF[name]), name)
    raise AttributeError(f"module 'graph_agent' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names."""
    return __all__
