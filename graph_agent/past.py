"""The doors to what a thread was and did: its history, its effects and large results; fork, replay, undo."""

from __future__ import annotations

import uuid
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from checkpointers import Entry, Saver
from graph_agent.answers import gathered
from graph_agent.driving import Driver
from graph_agent.errors import SetupError
from graph_agent.forking import Reuse, fork
from graph_agent.history import Timeline, cost
from graph_agent.kit import Kit
from graph_agent.patch import Patch
from graph_agent.reading import Cost, Prices, cost_of
from graph_agent.run import Run
from graph_agent.undoing import Undo, Undoer, told

T = TypeVar("T")


class Past:
    """Mixed into the agent."""

    saver: Any
    kit: Kit
    _driver: Driver

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        raise NotImplementedError

    async def aresume(self, thread: str | Run, **options: Any) -> Run:
        """Go on with a thread."""
        raise NotImplementedError

    async def afork(
        self,
        address: str,
        *,
        thread: str | None = None,
        update: Mapping[str, Any] | Patch | None = None,
        node: str | None = None,
        effects: Reuse = "reuse",
    ) -> Run:
        """Make a new thread of a step of another; see `fork`."""
        name = named(thread)
        async with self._driver.turns.take(name):
            await fork(self._driver, address, thread=name, update=written(update), node=node, effects=effects)
            return await self._driver.stands(name)

    async def areplay(
        self, address: str, *, thread: str | None = None, effects: Reuse = "reuse", **options: Any
    ) -> Run:
        """Make a new thread of a step of another and go on with it; see `replay`."""
        forked = await self.afork(address, thread=thread, effects=effects)
        return await self.aresume(forked, **options)

    async def aundo(
        self,
        thread: str,
        *,
        to: str,
        dry_run: bool = False,
        supersede: bool = False,
        by: str = "user",
        **options: Any,
    ) -> Undo:
        """Take back what a thread did after a step; see `undo`."""
        answers, name = gathered(**options), str(thread)
        if dry_run:
            return Undo(name, to, await Undoer(self._driver, name, answers, by=by).undo(to, dry_run=True))
        async with self._driver.turns.take(name):
            run, _ = await self._driver.ready(name)
            resting = self._driver.resting(run, supersede=supersede, by=by)
            effects = await Undoer(self._driver, name, answers, by=by).undo(to, dry_run=False)
            await self._driver.note(run, {**resting, **told(effects, run.state)})
        return Undo(name, to, effects)

    async def aeffects(self, thread: str) -> list[Entry]:
        """Give the ledger of a thread; see `effects`."""
        return await self.kit.effects.books.aentries(str(thread))

    async def aartifact(self, thread: str | Run, artifact: str) -> str:
        """Give a result whole; see `artifact`."""
        run = thread if isinstance(thread, Run) else await self._driver.stands(str(thread))
        record = next((one for one in run.state.get("artifacts", ()) if one["id"] == artifact), None)
        if record is None:
            known = ", ".join(one["id"] for one in run.state.get("artifacts", ())) or "none"
            raise SetupError(f"thread {run.thread!r} has no artifact {artifact!r}; it has {known}", artifact=artifact)
        if record.get("beside"):
            return (await self.kit.effects.books.abody(run.thread, record["hash"])).decode()
        results = {call["id"]: call.get("result", "") for call in run.state.get("calls", ())}
        return str(record.get("text") or results.get(record.get("source", ""), ""))

    def fork(
        self,
        address: str,
        *,
        thread: str | None = None,
        update: Mapping[str, Any] | Patch | None = None,
        node: str | None = None,
        effects: Reuse = "reuse",
    ) -> Run:
        """Make a new thread of a step of another, `"ada@3"`; it waits to be resumed. Open questions are asked anew.

        Args:
            address: the thread and the step.
            thread: the name of the new thread.
            update: changes of the state to begin with; a plan may be a list of titles.
            node: after which node to go on with the changes, where that is not clear.
            effects: what becomes of calls whose effect the old thread has made: `"reuse"` gives them the result that
                was recorded then, `"ask"` asks a person, `"run"` makes them again, as any call under the review policy.
        """
        return self._wait(self.afork(address, thread=thread, update=update, node=node, effects=effects))

    def replay(self, address: str, *, thread: str | None = None, effects: Reuse = "reuse", **options: Any) -> Run:
        """Go on from a step, `"ada@3"`, in a new thread; `effects` as for `fork`, the rest as for `resume`."""
        return self._wait(self.areplay(address, thread=thread, effects=effects, **options))

    def undo(self, thread: str, *, to: str, dry_run: bool = False, **options: Any) -> Undo:
        """Take back what a thread did to the world after a step, newest first, each effect once.

        Each tool's `compensate` is called, under the review policy. It stops at the first that waits for a person or
        fails; called again, with answers, it goes on from there. Effects that cannot be taken back are named.

        Args:
            thread: its name.
            to: the step, `"ada@3"`: what was done in it or before it stays.
            dry_run: only say what would be done, with the reviews, which may all be answered at once.
            options: `approve` and `reject` take ids of reviews; `done`, `not_done` and `abandon` those of compensations
                in doubt; `supersede=True` gives up what an unfinished thread is doing; `by` says who wants it.
        """
        return self._wait(self.aundo(thread, to=to, dry_run=dry_run, **options))

    def effects(self, thread: str) -> list[Entry]:
        """Give the ledger of a thread: each effect with its key, status, arguments, result, attempts and times."""
        return self._wait(self.aeffects(thread))

    def artifact(self, thread: str | Run, artifact: str) -> str:
        """Give a result whole, by the id of its artifact: large ones stand beside the state."""
        return self._wait(self.aartifact(thread, artifact))

    def cost(self, thread: str, prices: Prices | None = None) -> Cost | None:
        """Say what a thread cost so far, in tokens and by `prices` in money, without loading the rest of its state.

        A saver of others loads all of it. `prices` are for a million tokens in and out of each model, as
        `{"gpt-5-mini": (0.25, 2.0)}`. None is of a thread that keeps no such records.
        """
        if isinstance(self.saver, Saver):
            return cost(self.saver, str(thread), prices)
        return cost_of(self._wait(self._driver.stands(str(thread))).state, prices or {})

    def history(self, thread: str) -> Timeline:
        """Give the timeline of a thread."""
        return Timeline(self.saver, str(thread), ledger=self.kit.effects.ledger)


def named(thread: Any) -> str:
    """Give the name of a thread, any text or number; a new one if there is none."""
    if thread is None:
        return f"t-{uuid.uuid4().hex[:12]}"
    if not str(thread):
        raise SetupError("a thread needs a name; without thread= it gets one")
    return str(thread)


def written(update: Mapping[str, Any] | Patch | None) -> dict[str, Any]:
    """Give the changes as records; a plan may be written as titles, and then replaces the one there is."""
    changes = dict(update.changes if isinstance(update, Patch) else update or {})
    plan = changes.get("plan", ())
    if any(isinstance(step, str) or "id" not in step for step in plan):
        changes["plan"] = Patch().replace_plan(plan).changes["plan"]
    return changes
