"""The agent's reading of a timeline: what it saw, what it wrote, what it decided."""

from __future__ import annotations

from typing import Any

from checkpointers import History
from graph_agent.context import again, digest_of
from graph_agent.slicing import Message


class Timeline(History):
    """The steps of an agent's thread; each knows what the model was shown and what was written."""

    def decisions(self, number: int) -> list[dict[str, Any]]:
        """Give the decisions that were made in a step."""
        step = self[number]
        before = {one["id"] for one in (self[step.parent].values.get("decisions", ()) if step.parent else ())}
        return [one for one in step.values.get("decisions", ()) if one["id"] not in before]

    def context(self, number: int) -> list[Message]:
        """Give the exact messages that the model was sent for the decision of a step; empty if it was not asked."""
        asked = [one for one in self.decisions(number) if one.get("saw")]
        if not asked:
            return []
        saw = asked[0]["saw"]
        view = self.at(saw["checkpoint"]).values
        template = self[number].values.get("prompts", {}).get(saw["prompt"], "")
        messages = again(view, saw, template)
        if digest_of(messages) != saw["digest"]:
            note = {"id": "changed", "role": "system", "content": "(put together otherwise than it was then)"}
            return [note, *messages]
        return messages
