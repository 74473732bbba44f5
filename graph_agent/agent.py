"""The agent as people hold it: sync doors and their async twins, for notebooks, scripts and servers."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from datetime import timedelta
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel

from checkpointers.lease import IfBusy
from checkpointers.show import Shows
from graph_agent import prompts as texts
from graph_agent._portal import PORTAL
from graph_agent.answers import fitted, gathered
from graph_agent.context import Composer
from graph_agent.driving import Driver
from graph_agent.embedding import Similarity
from graph_agent.errors import GraphAgentError, SetupError
from graph_agent.events import Ended, Event, Line
from graph_agent.graph import build_graph
from graph_agent.kit import Kit, Sleep
from graph_agent.ledger import Effects
from graph_agent.migrations import Migrations
from graph_agent.models import Model
from graph_agent.nodes.road import Node
from graph_agent.past import Past, named, written
from graph_agent.patch import Checker, Patch
from graph_agent.policies import Budget, Context, Deadline, Retry, ReviewPolicy
from graph_agent.run import Run
from graph_agent.savers import Turns, keeper_of, listed, loop_of, saver_of, stored
from graph_agent.state import AgentState
from graph_agent.toolbox import Toolbox

if TYPE_CHECKING:
    from checkpointers.show.cards import Card

T = TypeVar("T")


class Agent(Past, Shows):
    """An agent whose threads can always be resumed, and whose effects are made once.

    Args:
        model: `"openai:NAME"`, or any LangChain chat model.
        tools: what it can do: functions made with `@tool`, LangChain tools, a `Toolbox`.
        saver: any LangGraph saver or the address of one; what is not saved cannot be resumed.
        ledger: with a saver that is not ours, one of ours, or the address of an SQLite or Postgres database, for
            the ledger of effects and for large results; ours keep them themselves.
        budget: what a thread may use, over all its runs.
        review: which calls a person must see first.
        retry: how failures of the model and of harmless tools are tried again.
        deadline: how long a run, a node and a call may take.
        context: how much of the state the model is shown.
        embeddings: any LangChain embeddings, to judge facts by their meaning too.
        prompts: replacements for the prompts of `plan`, `act`, `reflect`, `answer`; `{key}` is a key of the state.
        state: `AgentState` with keys of your own, each with a reducer.
        nodes: nodes of your own, each with the name of the node that it comes before.
        migrations: how old state becomes new.
        max_age: how long after its last step a thread may be resumed, as `"30d"`.
        checkpoint: save after every `"step"`, or `"async"`: after every step too, but no step waits for that, only
            effects do. `"iteration"` or `"phase"` save less often, for `read_only` tools alone.
        lease_ttl: how many seconds after its process died a run still has its thread, with a saver of ours.
        clock: gives the time; for tests.
        sleep: lets time pass; for tests.
        chance: gives a number between 0 and 1; for tests.
    """

    def __init__(  # noqa: PLR0913  each is a thing people set; all but the first are named and optional
        self,
        model: str | BaseChatModel,
        *,
        tools: Iterable[Any] = (),
        saver: Any = "memory://",
        ledger: Any = None,
        budget: Budget | None = None,
        review: ReviewPolicy | None = None,
        retry: Retry | None = None,
        deadline: Deadline | None = None,
        context: Context | None = None,
        embeddings: Embeddings | None = None,
        prompts: Mapping[str, str] | None = None,
        state: type[Any] = AgentState,
        nodes: Sequence[tuple[str, Node]] = (),
        migrations: Migrations | None = None,
        max_age: str | float | timedelta | None = None,
        checkpoint: Literal["step", "async", "iteration", "phase"] = "step",
        lease_ttl: float = 30.0,
        clock: Callable[[], float] = time.time,
        sleep: Sleep | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Put an agent together; the class says of what."""
        checker = Checker(state)
        box = tools if isinstance(tools, Toolbox) else Toolbox(tools)
        self.saver = saver_of(saver)
        context, keeper = context or Context(), keeper_of(self.saver, ledger)
        _check_ledger(self.saver, keeper, box)
        turns = Turns(keeper or self.saver, ttl=lease_ttl)
        self.kit = Kit(
            model=Model(model), tools=box, composer=_composer(context, embeddings), checker=checker,
            prompts=texts.checked(prompts or {}, checker.keys), budget=budget or Budget(), retry=retry or Retry(),
            review=_known(review or ReviewPolicy(), box), deadline=deadline or Deadline(), clock=clock, chance=chance,
            fence=turns.check, effects=Effects(keeper, clock=clock), inline=context.inline,
            stored=lambda where: stored(self.saver, where), **({"sleep": sleep} if sleep else {}),
        )  # fmt: skip
        self.graph = build_graph(self.kit, state=state, extra=nodes, checkpointer=self.saver)
        self._driver = Driver(
            self.graph, self.kit, turns, migrations=migrations, checkpoint=_cadence(checkpoint, box), max_age=max_age,
        )  # fmt: skip

    # Async doors: each is what happens; the sync ones below only wait for it.

    async def arun(self, goal: str, *, thread: str | None = None, **options: Any) -> Run:
        """Work on a goal until it is reached, a person is needed, or a limit; see `run`."""
        return await _last(self.astream(goal, thread=thread, **options))

    async def astream(  # noqa: PLR0913  each is a thing that may be said with a goal
        self,
        goal: str,
        *,
        thread: str | None = None,
        constraints: str | Iterable[str] = (),
        budget: Budget | None = None,
        update: Mapping[str, Any] | Patch | None = None,
        supersede: bool = False,
        request: str = "",
        by: str = "user",
        if_busy: IfBusy = "reject",
    ) -> AsyncGenerator[Event]:
        """Work on a goal, and tell what happens."""
        if not str(goal or "").strip():
            raise SetupError("the goal is empty; say in words what the agent should reach")
        name = named(thread)

        async def begun(stopped: bool) -> tuple[Run, Any]:  # noqa: FBT001  as the driver calls it
            run, changes = await self._driver.ready(name, new=True)
            if request and self._driver.heard(run, request):
                return run, ...
            given = {
                **changes,
                **await self._driver.beginning(goal, run, supersede=supersede or stopped, by=by, request=request),
            }
            record = self._driver.budget(budget, run.state, begins=True)
            given |= {"budget": record} if record else {}
            limits = [constraints] if isinstance(constraints, str) else list(constraints)
            given |= {"constraints": limits} if limits else {}
            given |= written(update)
            self.kit.checker.check("(input)", given)
            return run, given

        async with aclosing(self._driver.events(name, begun, if_busy=if_busy)) as events:
            async for event in events:
                yield event

    async def aresume(self, thread: str | Run, **options: Any) -> Run:
        """Go on with a thread, with answers or without; see `resume`."""
        return await _last(self.astream_resume(thread, **options))

    async def astream_resume(
        self,
        thread: str | Run,
        *,
        budget: Budget | None = None,
        by: str = "user",
        if_busy: IfBusy = "reject",
        **answers: Any,
    ) -> AsyncGenerator[Event]:
        """Go on with a thread, and tell what happens; `answers` as `resume` takes them."""
        given = gathered(**answers)
        name = thread.thread if isinstance(thread, Run) else str(thread)

        async def gone_on(_: bool) -> tuple[Run, Any]:  # noqa: FBT001  as the driver calls it
            run, changes = await self._driver.ready(name)
            fitting = fitted(given, run, self.kit.tools, by=by, now=self.kit.clock())
            if given and not fitting:
                return run, ...
            record = self._driver.budget(budget, run.state, begins=False)
            update = {**changes, **({"budget": record} if record else {})}
            return run, self._driver.going_on(run, fitting, update=update)

        async with aclosing(self._driver.events(name, gone_on, if_busy=if_busy)) as events:
            async for event in events:
                yield event

    async def astate(self, thread: str) -> Run:
        """Give where a thread stands, without touching it."""
        return await self._driver.look(str(thread))

    # Sync doors: they work in a script and inside the running loop of a notebook.

    def run(self, goal: str, *, thread: str | None = None, progress: bool = True, **options: Any) -> Run:
        """Work on a goal until it is reached, a person is needed, or a limit.

        Args:
            goal: what to reach.
            thread: the name to resume it by; one is made up if there is none. A finished thread takes a new goal.
            progress: show one live line, where somebody is looking at a terminal.
            options: `constraints`; `budget` for this thread; `update` for state keys of your own; `supersede=True` to
                give up what an unfinished thread is doing or asking; `request` a name for this very call, which when
                it is made again begins nothing; `by` who says so; `if_busy`, what to do if
                another run has the thread: `"reject"` raises `OpenThreadError`, `"enqueue"` waits for it, `"interrupt"`
                stops it and gives up what it was doing, `"rollback"` also takes back what it stored.
        """
        return self._wait(_last(self.astream(goal, thread=thread, **options), self._line(progress)))

    def resume(self, thread: str | Run, *, progress: bool = True, **options: Any) -> Run:
        """Go on with a thread after a crash, a stop, or with the answers to its reviews.

        Args:
            thread: its name, or a run of it.
            progress: show one live line.
            options: `approve` and `reject` take ids of reviews, `reject` also `{id: why}`; `edit` takes
                `{id: arguments}`, `respond` `{id: text}`. A call in doubt takes `done` (`{id: result}` or ids),
                `not_done` (it is begun again) or `abandon`. `budget` replaces the thread's; `by` says who answers;
                `if_busy` as for `run`.
        """
        return self._wait(_last(self.astream_resume(thread, **options), self._line(progress)))

    def stream(self, goal: str, *, thread: str | None = None, **options: Any) -> Iterator[Event]:
        """Work on a goal, and tell what happens as it happens."""
        return self._told(self.astream(goal, thread=thread, **options))

    def stream_resume(self, thread: str | Run, **options: Any) -> Iterator[Event]:
        """Go on with a thread, and tell what happens as it happens."""
        return self._told(self.astream_resume(thread, **options))

    def state(self, thread: str) -> Run:
        """Give where a thread stands, without touching it."""
        return self._wait(self.astate(thread))

    def threads(self, **wanted: Any) -> list[Any]:
        """List threads, as `saver.threads` does, but one that a run has as `running`; `holder` says whose it is.

        What other savers cannot tell is left out.
        """
        if hasattr(self.saver, "threads"):
            return listed(self.saver, **wanted)
        found = self._wait(_names(self.saver))
        return list(dict.fromkeys(found))

    def __repr__(self) -> str:
        """Say what it is made of."""
        return f"<Agent {self.kit.model.name}: {len(list(self.kit.tools))} tools, {type(self.saver).__name__}>"

    def _card(self) -> Card:
        from graph_agent.show.agents import agent_card  # noqa: PLC0415  loaded by who looks

        return agent_card(self)

    def _line(self, progress: bool) -> Line | None:  # noqa: FBT001  handed on as it was given
        return Line(budget=self.kit.budget) if progress else None

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return PORTAL.call(work, loop=loop_of(self.saver))

    def _told(self, events: AsyncGenerator[Event]) -> Iterator[Event]:
        """Pass events on while the run goes on elsewhere; it is stopped when nobody listens any more."""
        queue: SimpleQueue[Event | BaseException | None] = SimpleQueue()

        async def pump() -> None:
            try:
                async with aclosing(events) as told:
                    async for event in told:
                        queue.put(event)
                queue.put(None)
            except BaseException as error:
                queue.put(error)
                raise

        stop = PORTAL.start(pump(), loop=loop_of(self.saver))
        try:
            while (event := queue.get()) is not None:
                if isinstance(event, BaseException):
                    raise event
                yield event
        finally:
            stop()


def _known(review: ReviewPolicy, tools: Toolbox) -> ReviewPolicy:
    """Refuse a policy about a tool that is none: with a slip of the pen nobody would be asked."""
    for name in (*review.tools, *review.never_for):
        if name not in tools:
            raise SetupError(f"the review policy names {name!r}, which is no tool of this agent", tool=name)
    return review


def _composer(context: Context, embeddings: Embeddings | None) -> Composer:
    return Composer(context, Similarity(embeddings) if embeddings else None)


def _check_ledger(saver: Any, keeper: Any, tools: Toolbox) -> None:
    """Refuse tools whose effects nobody would note."""
    risky = [tool.name for tool in tools if tool.has_effect]
    if keeper is None and risky:
        msg = (
            f"{risky[0]!r} has effects, and {type(saver).__name__} keeps no ledger of them: pass"
            " ledger='sqlite:///effects.db', or use saver='sqlite:///agent.db'"
        )
        raise SetupError(msg, tools=risky)


def _cadence(checkpoint: str, tools: Toolbox) -> str:
    """Refuse to save seldom where a crash would make an effect happen twice."""
    if checkpoint not in ("step", "async", "iteration", "phase"):
        raise SetupError(f"checkpoint={checkpoint!r} is none of 'step', 'async', 'iteration', 'phase'")
    risky = [tool.name for tool in tools if tool.has_effect]
    if checkpoint in ("iteration", "phase") and risky:
        msg = f"with checkpoint={checkpoint!r} a crash would run {risky[0]!r} twice; keep 'step', which is the default"
        raise SetupError(msg, tools=risky)
    return checkpoint


async def _last(events: AsyncGenerator[Event], line: Line | None = None) -> Run:
    run = None
    async with aclosing(events) as told:
        async for event in told:
            if line is not None:
                line.see(event)
            if isinstance(event, Ended):
                run = event.run
    if run is None:
        raise GraphAgentError("the run ended without a word")
    return run


async def _names(saver: Any) -> list[str]:
    return [found.config["configurable"]["thread_id"] async for found in saver.alist(None)]
