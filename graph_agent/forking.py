"""Forking: a past step becomes the first of a new thread; nothing of the old one is rewritten."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, Literal

from langgraph.errors import InvalidUpdateError

from checkpointers import History, Ledger
from graph_agent.artifacts import referred
from graph_agent.driving import Driver
from graph_agent.errors import SetupError, ThreadError
from graph_agent.migrations import check_graph

Reuse = Literal["reuse", "ask", "run"]
REUSES: Final = ("reuse", "ask", "run")
INHERITED: Final = ("done", "claimed", "abandoned", "ask")
RESERVED = frozenset({"__interrupt__", "__resume__", "__error__"})


async def fork(
    driver: Driver, address: str, *, thread: str, update: Mapping[str, Any] | None, node: str | None, effects: Reuse
) -> None:
    """Copy a step of a thread into a new thread, with what its finished tasks wrote; open questions are asked again."""
    if effects not in REUSES:
        raise SetupError(f"effects={effects!r} is none of {', '.join(map(repr, REUSES))}")
    saver = driver.graph.checkpointer
    source, _, _ = address.rpartition("@")
    source = source or address
    step = await asyncio.to_thread(lambda: History(saver, source).at(address if "@" in address else f"{address}@-1"))
    if await saver.aget_tuple(driver.config(thread)) is not None:
        raise ThreadError(f"thread {thread!r} exists; a fork needs a new one", thread=thread)
    found = await saver.aget_tuple(step.config)
    check_graph(driver.graph, source, found.checkpoint)
    if update:
        driver.kit.checker.check("fork", update)
    if (ledger := driver.kit.effects.ledger) is not None:
        await _inherit(ledger, source, thread, needs=_bodies(found), effects=effects)
    metadata = {**found.metadata, "source": "fork", "parents": {}, "forked_from": f"{source}@{step.number}"}
    place = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    checkpoint = {**found.checkpoint, "ts": driver.kit.now()}
    stored = await saver.aput(place, checkpoint, metadata, checkpoint["channel_versions"])
    again = set() if effects == "reuse" else _with_effects(driver, found.checkpoint["channel_values"])
    await _keep_finished(saver, stored, found.pending_writes or [], dropped=bool(update), again=again)
    await driver.ready(thread)
    if update:
        await _update(driver, thread, update, node)


def _with_effects(driver: Driver, values: Mapping[str, Any]) -> set[str]:
    """Name the calls that have an effect."""
    tools = {tool.name for tool in driver.kit.tools if tool.has_effect}
    return {call["id"] for call in values.get("calls", ()) if call["tool"] in tools}


async def _keep_finished(saver: Any, stored: Any, writes: list[Any], *, dropped: bool, again: set[str]) -> None:
    """Keep what finished tasks of the step wrote, so that they are not run again; an update makes them stale.

    Not that of the calls in `again`: they are asked about, or made, once more.
    """
    tasks: dict[str, list[tuple[str, Any]]] = {}
    for task, channel, value in writes:
        tasks.setdefault(task, []).append((channel, value))
    for task, own in tasks.items():
        made = {record["id"] for channel, value in own if channel == "calls" for record in value}
        if not dropped and not made & again and not RESERVED & {channel for channel, _ in own}:
            await saver.aput_writes(stored, own, task)


def _bodies(found: Any) -> set[str]:
    """Name the bodies that a step refers to, with what its finished tasks wrote."""
    values = found.checkpoint["channel_values"]
    names = referred(artifacts=values.get("artifacts", ()), calls=values.get("calls", ()))
    for _, channel, value in found.pending_writes or ():
        if channel in ("artifacts", "calls"):
            names |= referred(**{channel: value})
    return names


async def _inherit(ledger: Ledger, source: str, thread: str, *, needs: set[str], effects: Reuse) -> None:
    """Give a fork the bodies that its state refers to, and what its source did: nothing is done again unasked.

    What is in doubt is settled by the key that it was begun under, so that comes along.
    """
    entries = await ledger.aentries(source) if effects != "run" else []
    taken = [entry for entry in entries if entry.status in INHERITED and "of" not in entry.record]
    books = {thread + entry.key.removeprefix(source): entry for entry in taken}
    status = {key: "ask" if (effects, one.status) == ("ask", "done") else one.status for key, one in books.items()}
    left = {entry.key: entry.status for entry in await ledger.aentries(thread)}  # of a fork that was cut off
    if not left.items() <= status.items():
        raise ThreadError(f"thread {thread!r} has a ledger of its own; a fork needs a new name", thread=thread)
    for name in sorted(needs | referred(calls=[entry.record for entry in taken])):
        await ledger.akeep(thread, await ledger.abody(source, name))
    for key, entry in books.items():
        await ledger.aclaim(thread, key, {"from": source, "key": entry.key, **entry.record}, status=status[key])


async def _update(driver: Driver, thread: str, update: Mapping[str, Any], node: str | None) -> None:
    config = driver.config(thread)
    try:
        await driver.graph.aupdate_state(config, dict(update), as_node=node)
    except InvalidUpdateError as error:
        msg = f"after which node should the fork go on? pass node=…: {error}"
        raise SetupError(msg, thread=thread) from error
