"""Old threads in new code: state is upcast step by step, on resume and on fork; what cannot go on is refused.

A migration never rewrites what is stored: it is one more step of the thread, written like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from graph_agent.errors import ChangedGraphError
from graph_agent.patch import canonical, hashed
from graph_agent.state import SCHEMA_VERSION

Upcast = Callable[[Mapping[str, Any]], Mapping[str, Any]]
BRANCH = "branch:to:"


class Migrations:
    """How state of each version becomes state of the next: `Migrations({1: f})` makes version 2 of version 1."""

    def __init__(self, upcasts: Mapping[int, Upcast] | None = None, *, version: int | None = None) -> None:
        """Take the upcasts by the version they start from; the version of the code is the last they lead to."""
        self.upcasts = dict(upcasts or {})
        self.version = version or max((SCHEMA_VERSION, *(start + 1 for start in self.upcasts)))

    def pending(self, thread: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Give the changes that bring a state up to date, empty if it is; refuse one from the future or with a gap."""
        # A thread that was begun by the bare graph, or whose first input was not taken in yet, has no version.
        found = values.get("schema_version") or self.version
        if found > self.version:
            raise ChangedGraphError(
                f"thread {thread!r} has state of version {found}, this code knows {self.version}; resume it with the"
                " newer code (its history can be read all the same)", thread=thread, found=found, known=self.version,
            )  # fmt: skip
        changes: dict[str, Any] = {}
        for version in range(found, self.version):
            upcast = self.upcasts.get(version)
            if upcast is None:
                raise ChangedGraphError(
                    f"thread {thread!r} has state of version {found}, and no migration leads from {version} to"
                    f" {version + 1}; register one with Migrations({{{version}: upcast}})", thread=thread, found=found,
                )  # fmt: skip
            changes.update(upcast({**values, **changes}))
        return {**changes, "schema_version": self.version} if found < self.version else {}


def fingerprint(graph: Any) -> str:
    """Give what tells one version of a graph from another: its nodes and its state keys."""
    keys = sorted(key for key in graph.channels if not key.startswith(("branch:", "__")))
    return hashed(canonical([sorted(graph.nodes), keys]), length=12)


def lost_nodes(graph: Any, checkpoint: Mapping[str, Any]) -> list[str]:
    """Give the nodes that a checkpoint is about to run and the graph does not have; it would end as if finished."""
    values = checkpoint.get("channel_values", {})
    triggered = [key.removeprefix(BRANCH) for key in values if key.startswith(BRANCH)]
    sent = [send.node for send in values.get("__pregel_tasks") or ()]
    stopped = [halt["node"] for halt in [values.get("halt")] if halt and halt.get("node")]
    return [name for name in dict.fromkeys([*triggered, *sent, *stopped]) if name not in graph.nodes]


def check_graph(graph: Any, thread: str, checkpoint: Mapping[str, Any]) -> None:
    """Refuse a thread that stands at a node which is gone."""
    lost = lost_nodes(graph, checkpoint)
    if lost:
        raise ChangedGraphError(
            f"thread {thread!r} stands at node {lost[0]!r}, which this graph does not have (it has"
            f" {', '.join(name for name in graph.nodes if not name.startswith('__'))}); name the node so again, or fork"
            " the thread from an earlier step", thread=thread, node=lost[0],
        )  # fmt: skip
