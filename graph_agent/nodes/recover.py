"""recover: after a node failed, try it again when the time has come, show the model less, or end in an error."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

from graph_agent.kit import Kit, Where
from graph_agent.nodes.road import Node
from graph_agent.patch import Patch


class RecoverView(TypedDict, total=False):
    """What recovering sees: what failed."""

    halt: dict[str, Any]
    failures: list[dict[str, Any]]


async def recover(view: RecoverView, kit: Kit, where: Where) -> Patch:
    """Do what was decided when the node failed; a restart in the middle of the wait goes on waiting."""
    del where
    halt = view["halt"]
    record = next(one for one in view["failures"] if one["id"] == halt["failure"])
    if record.get("retry_at") is None:
        return Patch().set("halt", {**halt, "kind": "failed"}).set("phase", "error")
    await kit.wait_until(record["retry_at"])
    return Patch().set("halt", {**halt, "kind": "retry"})


RECOVER = Node("recover", recover, RecoverView, timed=False)
