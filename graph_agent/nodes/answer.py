"""answer: what the user is told in the end."""

from __future__ import annotations

from graph_agent.kit import Kit, Where
from graph_agent.nodes.act import ActView
from graph_agent.nodes.deciding import about, decided, question
from graph_agent.nodes.road import Node
from graph_agent.patch import Patch, hashed


async def answer(view: ActView, kit: Kit, where: Where) -> Patch:
    """Say the result: that of the step, if there was only one; else put together from what is known."""
    live = [step for step in view.get("plan", ()) if step.get("status") != "dropped"]
    if len(live) == 1 and live[0].get("result"):
        text = live[0]["result"]
        record = decided("answer", view=view, kit=kit, where=where, asked=None, chose=text, why="the plan had one step")
    else:
        asked = await question("answer", view, kit, where)
        reply = await kit.model.reply(asked.messages, about=about("answer", view, where))
        text = reply.text
        record = decided("answer", view=view, kit=kit, where=where, asked=asked, chose=text, tokens=reply.tokens,
                         repairs=reply.repairs)  # fmt: skip
    said = Patch().say(text, at=kit.now(), name=f"m-{hashed(where.checkpoint, 'answer')}")
    return (said | record).set("answer", text).set("phase", "done")


ANSWER = Node("answer", answer, ActView, works_in="reflecting", decides=True)
