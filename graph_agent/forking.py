"""Forking: a past step becomes the first of a new thread; nothing of the old one is rewritten."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, Literal

from langgraph.errors import InvalidUpdateError

from checkpointers import History, Ledger
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
        await _inherit(ledger, source, thread, state=found.checkpoint["channel_values"], effects=effects)
    metadata = {**found.metadata, "source": "fork", "parents": {}, "forked_from": f"{source}@{step.number}"}
    place = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    checkpoint = {**found.checkpoint, "ts": driver.kit.now()}
    stored = await saver.aput(place, checkpoint, metadata, checkpoint["channel_versions"])
    await _keep_finished(saver, stored, found.pending_writes or [], dropped=bool(update))
    await driver.ready(thread)
    if update:
        await _update(driver, thread, update, node)


async def _keep_finished(saver: Any, stored: Any, writes: list[Any], *, dropped: bool) -> None:
    """Keep what finished tasks of the step wrote, so that they are not run again; an update makes them stale."""
    tasks: dict[str, list[tuple[str, Any]]] = {}
    for task, channel, value in writes:
        tasks.setdefault(task, []).append((channel, value))
    for task, own in tasks.items():
        if not dropped and not RESERVED & {channel for channel, _ in own}:
            await saver.aput_writes(stored, own, task)


async def _inherit(ledger: Ledger, source: str, thread: str, *, state: Mapping[str, Any], effects: Reuse) -> None:
    """Give a fork the bodies that its state refers to, and what its source did: nothing is done again unasked."""
    entries = await ledger.aentries(source) if effects != "run" else []
    taken = [entry for entry in entries if entry.status in INHERITED and "of" not in entry.record]
    bodies = {one["hash"] for one in state.get("artifacts", ()) if one.get("beside")}
    bodies |= {call["body"]["hash"] for call in state.get("calls", ()) if call.get("body")}
    for name in sorted(bodies | {entry.record["body"]["hash"] for entry in taken if entry.record.get("body")}):
        await ledger.akeep(thread, await ledger.abody(source, name))
    for entry in taken:
        status = "ask" if effects == "ask" and entry.status == "done" else entry.status
        key = thread + entry.key.removeprefix(source)
        await ledger.aclaim(thread, key, {**entry.record, "from": entry.record.get("from", source)}, status=status)


async def _update(driver: Driver, thread: str, update: Mapping[str, Any], node: str | None) -> None:
    config = driver.config(thread)
    try:
        await driver.graph.aupdate_state(config, dict(update), as_node=node)
    except InvalidUpdateError as error:
        msg = f"after which node should the fork go on? pass node=…: {error}"
        raise SetupError(msg, thread=thread) from error
