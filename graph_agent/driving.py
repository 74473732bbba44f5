"""Driving a thread: begin, go on, answer, look. Async; the sync doors are in `agent`."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Any, Final

from langgraph.errors import GraphDrained, InvalidUpdateError
from langgraph.runtime import RunControl
from langgraph.types import Command

from graph_agent.answers import expired, superseded
from graph_agent.errors import (
    ExpiredThreadError,
    FinishedThreadError,
    OpenThreadError,
    UnknownThreadError,
    WaitingThreadError,
)
from graph_agent.events import Asked, Ended, Event, Finished, event_of
from graph_agent.kit import Kit
from graph_agent.migrations import Migrations, check_graph, fingerprint
from graph_agent.patch import clean, hashed
from graph_agent.policies import Budget
from graph_agent.run import Run, run_of
from graph_agent.state import outstanding

ENDLESS: Final = 10**9


class Driver:
    """The graph of an agent, and the threads it drives in this process."""

    def __init__(
        self, graph: Any, kit: Kit, *, migrations: Migrations, checkpoint: str, max_age: timedelta | None
    ) -> None:
        """Take a compiled graph."""
        self.graph, self.kit, self.migrations = graph, kit, migrations
        self._checkpoint, self._max_age = checkpoint, max_age
        self._active: set[str] = set()
        self._lock = threading.Lock()
        self._metadata = {"graph": fingerprint(graph), "schema_version": migrations.version}

    def config(self, thread: str, **more: Any) -> dict[str, Any]:
        """Give the config of a thread; its metadata is stored with every checkpoint."""
        return {
            "configurable": {"thread_id": thread, **more}, "metadata": self._metadata, "recursion_limit": ENDLESS,
        }  # fmt: skip

    async def look(self, thread: str) -> Run:
        """Give where a thread stands."""
        return run_of(thread, await self.graph.aget_state(self.config(thread)), running=thread in self._active)

    async def events(self, thread: str, given: Any) -> AsyncIterator[Event]:
        """Run a thread from an input, an answer or nothing, and tell what happens until it stands."""
        self._begin(thread)
        try:
            over = await self._over(thread) if given is None else frozenset()
            while given is not ...:
                control = RunControl()
                async with aclosing(self._segment(thread, given, control)) as segment:
                    async for task, event in segment:
                        if task not in over:
                            yield event
                given = None if control.drain_requested else ...
        finally:
            self._active.discard(thread)
        run = await self.look(thread)
        for review in run.reviews:
            yield Asked(thread, review)
        yield Ended(thread, run)

    async def _over(self, thread: str) -> frozenset[str]:
        """Give the tasks that ended before a crash: LangGraph tells of them again, though they do not run again."""
        snapshot = await self.graph.aget_state(self.config(thread))
        return frozenset(task.id for task in snapshot.tasks if task.result is not None)

    async def _segment(self, thread: str, given: Any, control: RunControl) -> AsyncGenerator[tuple[str, Event]]:
        """Run until the thread stands, or until it is time for a checkpoint."""
        durability = "sync" if self._checkpoint == "step" else "exit"
        steps = self.graph.astream(
            given, self.config(thread), stream_mode="tasks", version="v2", durability=durability, control=control
        )
        try:
            async with aclosing(steps) as stream:
                async for part in stream:
                    event = event_of(thread, part["data"])
                    if event is not None:
                        yield part["data"]["id"], event
                    if self._checkpoint != "step" and isinstance(event, Finished) and self._is_due(event):
                        control.request_drain("checkpoint")
        except GraphDrained:
            return

    def _is_due(self, event: Finished) -> bool:
        """Tell whether a checkpoint is due: after a turn of the loop, or when the phase changed."""
        return event.node == "reflect" if self._checkpoint == "iteration" else "phase" in event.patch

    def _begin(self, thread: str) -> None:
        with self._lock:
            if thread in self._active:
                msg = f"thread {thread!r} is running in this process; wait for it, or use another thread"
                raise OpenThreadError(msg, thread=thread)
            self._active.add(thread)

    async def beginning(self, goal: str, run: Run, *, supersede: bool, by: str) -> dict[str, Any]:
        """Give the input of a new goal; a thread that is not at rest takes it only if told to give up what it does."""
        if run.status in ("waiting", "crashed", "running") and not supersede:
            self._refuse(run)
        if run.status == "waiting":
            await self._drain(run.thread, Command(resume=superseded(run, by)))
            run = await self.look(run.thread)
        state = run.state
        calls = [
            {"id": call["id"], "status": "superseded", "seen": True, "result": "not run: new input", "by": by}
            for call in outstanding(state.get("calls", ()))
        ]
        left = [step["id"] for step in state.get("plan", ()) if step.get("status") == "open"]
        said = {"id": f"m-{hashed(goal, str(len(state.get('messages', ()))))}", "role": "user", "content": clean(goal)}
        return {
            "schema_version": self.migrations.version, "goal": clean(goal), "phase": "planning", "halt": None,
            "messages": [{**said, "at": self.kit.now()}], "calls": calls, "answer": "",
            "plan": [{"id": key, "status": "dropped"} for key in left],
        }  # fmt: skip

    async def _drain(self, thread: str, given: Any) -> None:
        async for _ in self.events(thread, given):
            pass

    def _refuse(self, run: Run) -> None:
        if run.status == "waiting":
            asked = "; ".join(f"{review.id}: {review.description}" for review in run.reviews)
            raise WaitingThreadError(
                f"thread {run.thread!r} waits for a person ({asked}); answer with resume(), or pass supersede=True",
                thread=run.thread, reviews=[review.id for review in run.reviews],
            )  # fmt: skip
        raise OpenThreadError(
            f"thread {run.thread!r} is {run.status}: its work is not finished; resume() it, or pass supersede=True",
            thread=run.thread, status=run.status,
        )  # fmt: skip

    async def going_on(self, run: Run, answers: Mapping[str, Any], *, budget: Mapping[str, Any] | None) -> Any:
        """Give what makes a thread go on; None where there is nothing for LangGraph to be told, `...` for nothing."""
        if run.status == "waiting":
            late = expired(run, self.kit.clock())
            return Command(resume={**late, **answers}) if answers or late else ...
        if answers:
            raise OpenThreadError(f"thread {run.thread!r} is {run.status} and waits for nobody", thread=run.thread)
        if run.status == "done":
            raise FinishedThreadError(
                f"thread {run.thread!r} is done; give it new input with run(…, thread={run.thread!r}), or fork it",
                thread=run.thread,
            )  # fmt: skip
        halt = run.state.get("halt") or {}
        if run.status in ("stopped", "failed") and halt.get("kind") in ("stopped", "failed"):
            resumed = {"kind": "resumed", "node": halt["node"]}
            return {"halt": resumed, **({"budget": dict(budget)} if budget else {})}
        if budget:
            await self.graph.aupdate_state(self.config(run.thread), {"budget": dict(budget)}, as_node="__start__")
        return None

    async def ready(self, thread: str) -> Run:
        """Look at a thread that is to go on: it must exist, be young enough, fit this code; bring it up to date."""
        snapshot = await self.graph.aget_state(self.config(thread))
        if snapshot.metadata is None:
            raise UnknownThreadError(f"there is no thread {thread!r}; begin it with run(goal, thread=…)", thread=thread)
        self._check_age(thread, snapshot.created_at)
        found = await self.graph.checkpointer.aget_tuple(self.config(thread))
        check_graph(self.graph, thread, found.checkpoint)
        changes = self.migrations.pending(thread, snapshot.values)
        if changes:
            await self.migrate(thread, changes)
        return await self.look(thread) if changes else run_of(thread, snapshot, running=thread in self._active)

    async def migrate(self, thread: str, changes: Mapping[str, Any]) -> None:
        """Write the changes of a migration as a step of its own, which says that it is one."""
        self.kit.checker.check("migration", changes)
        config = self.config(thread)
        config["metadata"] = {**config["metadata"], "migration": changes["schema_version"]}
        snapshot = await self.graph.aget_state(config)
        try:
            await self.graph.aupdate_state(config, dict(changes))
        except InvalidUpdateError:
            await self.graph.aupdate_state(config, dict(changes), as_node=_last(snapshot))

    def _check_age(self, thread: str, created_at: str | None) -> None:
        if self._max_age is None or created_at is None:
            return
        age = timedelta(seconds=self.kit.clock() - datetime.fromisoformat(created_at).timestamp())
        if age > self._max_age:
            raise ExpiredThreadError(
                f"thread {thread!r} was last written {age} ago, over the {self._max_age} it may be resumed; fork it",
                thread=thread, age=age.total_seconds(),
            )  # fmt: skip

    def budget(self, given: Budget | None, state: Mapping[str, Any]) -> dict[str, Any] | None:
        """Give the budget to write: a new one, the agent's for a new thread, or none; with the deadline of the run."""
        record = given.record() if given else (None if state.get("budget") else self.kit.budget.record())
        seconds = self.kit.deadline.run
        if seconds is None:
            return record
        return {**(record or {}), "deadline_at": self.kit.clock() + seconds}


def _last(snapshot: Any) -> str:
    return next(iter(snapshot.next), "__start__")
