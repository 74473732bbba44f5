"""The agent thread that every storage figure is about: four supersteps an iteration, as a working agent makes them.

An iteration adds two messages (the tool's is 1.5 kB), two facts, half an artifact (4 kB of text) and one ledger
entry; the plan changes rarely, a risk flag is raised rarely; a static channel holds 60 kB. The text is made of words with the frequencies of a natural language, the same for every saver.
"""

from __future__ import annotations

import operator
import random
from itertools import accumulate
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.channels import DeltaChannel
from langgraph.graph import StateGraph, add_messages
from langgraph.graph.state import CompiledStateGraph

STATIC_BYTES = 60_000
TOOL_BYTES = 1_500
ARTIFACT_BYTES = 4_000
_letters = random.Random(1)  # noqa: S311  the same words every time
_WORDS = ["".join(_letters.choices("abcdefghijklmnopqrstuvwxyz", k=_letters.randint(2, 9))) for _ in range(3_000)]
# Words are as frequent as in any language: the n-th has 1/n of the first one's share. All text is cut from one corpus,
# so that making it costs the measured programs nothing.
_WEIGHTS = list(accumulate(1 / rank for rank in range(1, len(_WORDS) + 1)))
_CORPUS = " ".join(_letters.choices(_WORDS, cum_weights=_WEIGHTS, k=600_000))
_STRIDE = 7_919


def text(size: int, seed: int) -> str:
    """Give `size` bytes of words that depend on the seed alone."""
    start = seed * _STRIDE % (len(_CORPUS) - STATIC_BYTES)
    return _CORPUS[start : start + size]


def _extend(state: list[Any], writes: list[list[Any]]) -> list[Any]:
    return [*state, *(item for write in writes for item in write)]


def _merge(state: list[Any], writes: list[list[Any]]) -> list[Any]:
    merged = {message.id: message for message in state}
    merged.update({message.id: message for write in writes for message in write})
    return list(merged.values())


class Plain(TypedDict, total=False):
    """Ordinary reducers, as most graphs have."""

    static: str
    plan: list[dict[str, Any]]
    turn: int
    until: int
    messages: Annotated[list[Any], add_messages]
    facts: Annotated[list[dict[str, Any]], operator.add]
    artifacts: Annotated[list[dict[str, Any]], operator.add]
    ledger: Annotated[list[dict[str, Any]], operator.add]
    flags: Annotated[list[dict[str, Any]], operator.add]


class Delta(TypedDict, total=False):
    """DeltaChannels for whatever grows."""

    static: str
    plan: list[dict[str, Any]]
    turn: int
    until: int
    messages: Annotated[list[Any], DeltaChannel(_merge)]
    facts: Annotated[list[dict[str, Any]], DeltaChannel(_extend)]
    artifacts: Annotated[list[dict[str, Any]], DeltaChannel(_extend)]
    ledger: Annotated[list[dict[str, Any]], DeltaChannel(_extend)]
    flags: Annotated[list[dict[str, Any]], DeltaChannel(_extend)]


def _act(state: Any) -> dict[str, Any]:
    turn = state.get("turn", 0)
    call = {"name": "search", "args": {"query": text(40, turn)}, "id": f"call-{turn}"}
    return {"messages": [AIMessage(content=text(120, turn + 1), id=f"ai-{turn}", tool_calls=[call])]}


def _tool(state: Any) -> dict[str, Any]:
    turn = state.get("turn", 0)
    reply = ToolMessage(content=text(TOOL_BYTES, turn + 2), id=f"tool-{turn}", tool_call_id=f"call-{turn}")
    return {"messages": [reply], "ledger": [{"key": f"t:{turn}", "tool": "search", "hash": f"{turn:032x}", "ok": True}]}


def _observe(state: Any) -> dict[str, Any]:
    turn = state.get("turn", 0)
    facts = [{"id": f"f{turn}-{i}", "text": text(90, turn * 7 + i), "source": "search", "step": turn} for i in (0, 1)]
    artifact = {"id": f"a{turn}", "type": "page", "text": text(ARTIFACT_BYTES, turn * 11)}
    return {"facts": facts, **({"artifacts": [artifact]} if turn % 2 else {})}


def _reflect(state: Any) -> dict[str, Any]:
    turn = state.get("turn", 0) + 1
    steps = [{"id": f"s{i}", "text": text(60, i), "done": i < turn // 50} for i in range(8)]
    flag = {"id": f"r{turn}", "text": text(40, turn)}
    return {"turn": turn, **({"plan": steps, "flags": [flag]} if turn % 50 == 1 else {})}


def graph(schema: type[Any], checkpointer: Any) -> CompiledStateGraph[Any]:
    """Build the loop over a schema."""
    builder = StateGraph(schema)
    for name, node in (("act", _act), ("tool", _tool), ("observe", _observe), ("reflect", _reflect)):
        builder.add_node(name, node)
    builder.add_edge("__start__", "act")
    builder.add_edge("act", "tool")
    builder.add_edge("tool", "observe")
    builder.add_edge("observe", "reflect")
    builder.add_conditional_edges(
        "reflect", lambda s: "act" if s["turn"] < s["until"] else "__end__", ["act", "__end__"]
    )
    return builder.compile(checkpointer=checkpointer)


def first_input(until: int) -> dict[str, Any]:
    """Give what starts a thread."""
    goal = HumanMessage(content=text(200, 5), id="goal")
    return {"static": text(STATIC_BYTES, 3), "until": until, "turn": 0, "messages": [goal]}
