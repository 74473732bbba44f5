"""Graphs that the tests run: a loop, a review, a subgraph, DeltaChannels, parallel branches."""

from __future__ import annotations

import operator
from types import SimpleNamespace
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage
from langgraph.channels import DeltaChannel
from langgraph.graph import StateGraph, add_messages
from langgraph.types import Send, interrupt

from checkpointers.session import RUN


def extend(state: list[Any], writes: list[list[Any]]) -> list[Any]:
    return [*state, *(item for write in writes for item in write)]


class State(TypedDict, total=False):
    n: int
    until: int
    static: str
    log: Annotated[list[Any], operator.add]
    messages: Annotated[list[Any], add_messages]
    answers: Annotated[list[str], operator.add]


class DeltaState(TypedDict, total=False):
    n: int
    until: int
    log: Annotated[list[Any], DeltaChannel(extend, snapshot_frequency=4)]
    other: Annotated[list[Any], DeltaChannel(extend, snapshot_frequency=1000)]


def config(thread: str = "t", **more: Any) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread, **more}, "recursion_limit": 100_000}


def of_a_run(thread: str = "t") -> dict[str, Any]:
    """Give the config by which a run of a graph loads a thread, to go on from there."""
    return config(thread, **{RUN: SimpleNamespace()})


def loop(saver: Any, schema: Any = State) -> Any:
    """Count up to `until`, writing something of every kind."""

    def work(state: Any) -> dict[str, Any]:
        n = state.get("n", 0)
        entry = {"id": n, "text": f"entry {n} " * 8}
        if schema is DeltaState:
            return {"n": n + 1, "log": [entry], "other": [n]}
        return {"n": n + 1, "log": [entry], "messages": [AIMessage(f"message {n} " * 8, id=f"m{n}")]}

    builder = StateGraph(schema)
    builder.add_node("work", work)
    builder.add_edge("__start__", "work")
    builder.add_conditional_edges("work", lambda s: "work" if s["n"] < s["until"] else "__end__", ["work", "__end__"])
    return builder.compile(checkpointer=saver)


def review(saver: Any) -> Any:
    """Two parallel questions to a person, asked before anything is done, and a sibling that asks nothing."""

    def ask(state: Any) -> dict[str, Any]:
        return {"answers": [interrupt({"ask": state["n"]})]}

    def work(state: Any) -> dict[str, Any]:
        return {"log": [{"did": state["n"]}]}

    builder = StateGraph(State)
    builder.add_node("ask", ask)
    builder.add_node("work", work)
    builder.add_conditional_edges(
        "__start__", lambda _: [Send("ask", {"n": 1}), Send("ask", {"n": 2}), Send("work", {"n": 3})], ["ask", "work"]
    )
    return builder.compile(checkpointer=saver)


def nested(saver: Any, *, persistent: bool = False) -> Any:
    """Call a subgraph that asks a question in the middle."""
    inner = StateGraph(State)
    inner.add_node("first", lambda s: {"log": ["inner first"]})
    inner.add_node("ask", lambda s: {"answers": [interrupt("inner?")]})
    inner.add_edge("__start__", "first")
    inner.add_edge("first", "ask")
    outer = StateGraph(State)
    outer.add_node("before", lambda s: {"log": ["before"]})
    outer.add_node("inner", inner.compile(checkpointer=True if persistent else None))
    outer.add_node("after", lambda s: {"log": ["after"]})
    outer.add_edge("__start__", "before")
    outer.add_edge("before", "inner")
    outer.add_edge("inner", "after")
    return outer.compile(checkpointer=saver)
