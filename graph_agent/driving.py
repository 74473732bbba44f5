"""Driving a thread, in its turn: begin, go on, answer, look. Async; the sync doors are in `agent`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Any, Final

from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl
from langgraph.types import Command

from checkpointers.lease import IfBusy
from checkpointers.retention import duration
from graph_agent._portal import apart
from graph_agent.answers import expired
from graph_agent.errors import (
    ExpiredThreadError,
    FinishedThreadError,
    OpenThreadError,
    UnknownThreadError,
    WaitingThreadError,
)
from graph_agent.events import Asked, Ended, Event, Finished, event_of
from graph_agent.kit import Kit
from graph_agent.ledger import KIND
from graph_agent.migrations import Migrations, check_graph, fingerprint
from graph_agent.patch import clean, hashed
from graph_agent.policies import Budget
from graph_agent.run import Run, run_of
from graph_agent.savers import Turns
from graph_agent.state import outstanding, upsert

ENDLESS: Final = 10**9
GOAL: Final = 200
Prepare = Callable[[bool], Awaitable[tuple[Run, Any]]]


class Driver:
    """The graph of an agent, and the threads it drives."""

    def __init__(
        self,
        graph: Any,
        kit: Kit,
        turns: Turns,
        *,
        migrations: Migrations | None,
        checkpoint: str,
        max_age: str | float | timedelta | None,
    ) -> None:
        """Take a compiled graph, and the turns of its saver."""
        self.graph, self.kit, self.turns, self.migrations = graph, kit, turns, migrations or Migrations()
        self._checkpoint, self._max_age = checkpoint, duration(max_age) if max_age is not None else None
        self._metadata = {"graph": fingerprint(graph), "schema_version": self.migrations.version}

    def config(self, thread: str) -> dict[str, Any]:
        """Give the config of a thread; its metadata is stored with every checkpoint."""
        return {"configurable": {"thread_id": thread}, "metadata": self._metadata, "recursion_limit": ENDLESS}

    async def look(self, thread: str) -> Run:
        """Give where a thread stands, whoever runs it."""
        running = await self.turns.taken(thread)
        run = await self.stands(thread, running=running)
        if run.status == "crashed" and await self.turns.taken(thread):
            return await self.stands(thread, running=True)  # it was taken up between the two looks
        return run

    async def stands(self, thread: str, *, running: bool = False) -> Run:
        """Give where a thread stands, to whoever's turn it is."""
        return run_of(thread, await self.graph.aget_state(self.config(thread)), running=running)

    def events(self, thread: str, prepare: Prepare, *, if_busy: IfBusy) -> AsyncGenerator[Event]:
        """Run a thread as its only writer, and tell what happens until it stands.

        What `prepare` finds and gives is an input, an answer, nothing, or `...` if there is nothing to do; it is told
        whether another run was stopped.
        """
        return apart(self._turn(thread, prepare, if_busy))

    async def _turn(self, thread: str, prepare: Prepare, if_busy: IfBusy) -> AsyncGenerator[Event]:
        asked: list[Asked] = []
        async with self.turns.take(thread, if_busy) as stopped:
            run, given = await prepare(stopped)
            if given is not ...:
                async with aclosing(self._steps(run, given)) as steps:
                    async for event in steps:
                        yield event
                run = await self.stands(thread)
                asked = [Asked(thread, review) for review in run.reviews]
        for review in asked:
            yield review
        yield Ended(thread, run)

    async def _steps(self, run: Run, given: Any) -> AsyncGenerator[Event]:
        # LangGraph tells of tasks that ended before a crash again, though they do not run again.
        over, config = run.finished if given is None else (), self._running(run, given)
        while given is not ...:
            control = RunControl()
            async with aclosing(self._segment(run.thread, given, control, config)) as segment:
                async for task, event in segment:
                    if task not in over:
                        yield event
            given = None if control.drain_requested else ...

    def _running(self, run: Run, given: Any) -> dict[str, Any]:
        """Give the config of a run; what it is about is said beside every checkpoint, for who lists threads."""
        goal = given.get("goal") if isinstance(given, Mapping) else None
        config = self.config(run.thread)
        config["metadata"] = {**config["metadata"], "goal": str(goal or run.state.get("goal", ""))[:GOAL]}
        return config

    async def _segment(
        self, thread: str, given: Any, control: RunControl, config: dict[str, Any]
    ) -> AsyncGenerator[tuple[str, Event]]:
        """Run until the thread stands, or until it is time for a checkpoint."""
        durability = {"step": "sync", "async": "async"}.get(self._checkpoint, "exit")
        steps = self.graph.astream(
            given, config, stream_mode="tasks", version="v2", durability=durability, control=control
        )
        try:
            async with aclosing(steps) as stream:
                async for part in stream:
                    event = event_of(thread, part["data"])
                    if event is not None:
                        yield part["data"]["id"], event
                    if durability == "exit" and isinstance(event, Finished) and self._is_due(event):
                        control.request_drain("checkpoint")
        except GraphDrained:
            return

    def _is_due(self, event: Finished) -> bool:
        """Tell whether a checkpoint is due: after a turn of the loop, or when the phase changed."""
        return event.node == "reflect" if self._checkpoint == "iteration" else "phase" in event.patch

    def heard(self, run: Run, request: str) -> bool:
        """Tell whether a thread was given its goal by this very call before."""
        return any(message["id"] == _said_by(request) for message in run.state.get("messages", ()))

    async def beginning(self, goal: str, run: Run, *, supersede: bool, by: str, request: str = "") -> dict[str, Any]:
        """Give the input of a new goal; a thread that is not at rest takes it only if told to give up what it does."""
        if run.status in ("waiting", "crashed") and not supersede:
            self._refuse(run)
        said = _said_by(request) if request else f"m-{hashed(goal, str(len(run.state.get('messages', ()))))}"
        return {
            "schema_version": self.migrations.version,
            "goal": clean(goal), "turn": await self._goals(run), "phase": "planning", "halt": None, "answer": "",
            "messages": [{"id": said, "role": "user", "content": clean(goal), "at": self.kit.now()}],
            **self._given_up(run, by),
            "plan": [{"id": step["id"], "status": "dropped"} for step in run.state.get("plan", ())],
        }  # fmt: skip

    async def _goals(self, run: Run) -> int:
        """Count the goals of a thread; one that was rolled back counts too if anything was done for it."""
        ledger = self.kit.effects.ledger
        entries = await ledger.aentries(run.thread) if ledger is not None else ()
        done_for = max((entry.record.get("turn", 1) for entry in entries), default=0)
        return int(max(run.state.get("turn", 0), done_for)) + 1

    def _given_up(self, run: Run, by: str) -> dict[str, Any]:
        """Take in what tasks of an unfinished step have ended with, and give up what is outstanding."""
        ended = [result for result in run.finished.values() if result]
        told = [call for result in ended for call in result.get("calls", ())]
        calls = upsert(run.state.get("calls", ()), told)
        left = outstanding(calls)
        news = [call for call in calls if call["id"] in {one["id"] for one in told} and call not in left]
        return {
            "calls": [*news, *(self._not_run(call, by) for call in left)],
            "failures": [failure for result in ended for failure in result.get("failures", ())],
            "questions": [
                {"id": q["id"], "status": "superseded"} for q in run.state.get("questions", ()) if q["status"] == "open"
            ],
        }

    def resting(self, run: Run, *, supersede: bool, by: str) -> dict[str, Any]:
        """Give what brings a thread to rest: what it was doing is given up, if that is wanted."""
        if run.status == "done":
            return {}
        if run.status in ("waiting", "crashed") and not supersede:
            self._refuse(run)
        halt = {"kind": "stopped", "node": "reflect", "reason": f"{by} took effects back"}
        return {**self._given_up(run, by), "phase": "stopped", "halt": halt}

    async def note(self, run: Run, changes: Mapping[str, Any]) -> None:
        """Write something into a thread that is at rest, or comes to rest by it."""
        if changes:
            self.kit.checker.check("note", changes)
            await self.graph.aupdate_state(self._running(run, changes), dict(changes), as_node="answer")

    def _not_run(self, call: Mapping[str, Any], by: str) -> dict[str, Any]:
        """Record that a call is not made any more, and who said so, in the place of an answer if it waits for one."""
        begun = call["status"] != "waiting" or call.get("review", {}).get("kind") == KIND
        told = "given up: new input; nobody knows whether it was made" if begun else "not run: new input"
        given_up = {**call, "status": "superseded", "seen": True, "result": told, "by": by}
        if "review" in call and "answer" not in call["review"]:
            given_up["review"] = {**call["review"], "answer": "supersede", "by": by, "at": self.kit.now()}
        return given_up

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

    def going_on(self, run: Run, answers: Mapping[str, Any], *, update: Mapping[str, Any]) -> Any:
        """Give what makes a thread go on, with what is written besides; `...` where it can only wait."""
        more: dict[str, Any] = {"update": dict(update)} if update else {}
        if run.status == "waiting":
            late = expired(run, self.kit.clock())
            return Command(resume={**late, **answers}, **more) if answers or late else ...
        if answers:
            raise OpenThreadError(f"thread {run.thread!r} is {run.status} and waits for nobody", thread=run.thread)
        if run.status == "done":
            raise FinishedThreadError(
                f"thread {run.thread!r} is done; give it new input with run(…, thread={run.thread!r}), or fork it",
                thread=run.thread,
            )  # fmt: skip
        halt = run.state.get("halt") or {}
        if run.status in ("stopped", "failed") and halt.get("kind") in ("stopped", "failed"):
            return {"halt": {"kind": "resumed", "node": halt["node"]}, **update}
        return Command(**more) if more else None

    async def ready(self, thread: str, *, new: bool = False) -> tuple[Run, dict[str, Any]]:
        """Look at a thread that is to go on, in its turn: it must exist or may be new, be young enough, fit this code.

        Old state is brought up to date in a step of its own; where that would lose calls that are under way, the
        changes are given back, to be written as it goes on.
        """
        snapshot = await self.graph.aget_state(self.config(thread))
        if snapshot.metadata is None and new:
            return run_of(thread, snapshot), {}
        if snapshot.metadata is None:
            raise UnknownThreadError(f"there is no thread {thread!r}; begin it with run(goal, thread=…)", thread=thread)
        self._check_age(thread, snapshot.created_at)
        if snapshot.metadata.get("graph") != self._metadata["graph"]:
            found = await self.graph.checkpointer.aget_tuple(self.config(thread))
            check_graph(self.graph, thread, found.checkpoint)
        changes = self.migrations.pending(thread, snapshot.values)
        self.kit.checker.check("migration", changes)
        run = run_of(thread, snapshot)
        if not changes or any(task.name in ("review", "tool") for task in snapshot.tasks):
            return run, changes
        config = self._running(run, changes)
        config["metadata"] = {**config["metadata"], "migration": changes["schema_version"]}
        await self.graph.aupdate_state(config, dict(changes))
        return await self.stands(thread), {}

    def _check_age(self, thread: str, created_at: str | None) -> None:
        if self._max_age is None or created_at is None:
            return
        age = timedelta(seconds=self.kit.clock() - datetime.fromisoformat(created_at).timestamp())
        if age > self._max_age:
            raise ExpiredThreadError(
                f"thread {thread!r} was last written {age} ago, over the {self._max_age} it may be resumed; fork it",
                thread=thread, age=age.total_seconds(),
            )  # fmt: skip

    def budget(self, given: Budget | None, state: Mapping[str, Any], *, begins: bool) -> dict[str, Any] | None:
        """Give the budget to write: a new one, the agent's for a new thread, or none; with the deadline of the run."""
        old = state.get("budget") or {}
        record = given.record() if given else (None if old else self.kit.budget.record())
        seconds = self.kit.deadline.run
        if seconds is None:
            return record
        since = self.kit.clock() if begins else old.get("deadline_from", self.kit.clock())
        ends = {"deadline_from": since, "deadline_at": since + seconds}
        return {**(record or {}), **{name: at for name, at in ends.items() if old.get(name) != at}} or None


def _said_by(request: str) -> str:
    """Give the id of the message that a call with this name leaves."""
    return f"m-request-{hashed(request, length=16)}"
