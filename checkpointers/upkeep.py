"""What a saver does besides the loop: remove, copy, list threads, keep to a policy, give space back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from checkpointers import operations
from checkpointers.database import now
from checkpointers.errors import (
    BusyError,
    CheckpointerError,
    HistoryError,
    IntegrityError,
    KeyringError,
    ShreddedError,
    ThreadExistsError,
    UnknownThreadError,
)
from checkpointers.operations import survey
from checkpointers.operations.common import find_thread
from checkpointers.retention import Keep, Plan, duration, moment, plan, still_holds
from checkpointers.standing import Standing
from checkpointers.status import Status
from checkpointers.threads import counted, see_read

if TYPE_CHECKING:
    from checkpointers.database import Database
    from checkpointers.memory import Memory
    from checkpointers.operations.common import Tools
    from checkpointers.operations.remove import Contents
    from checkpointers.recent import Recent
    from checkpointers.standing import Holder
    from checkpointers.statements import Operation, Statements
    from checkpointers.threads import Readable, StepInfo, ThreadInfo, Usage
    from checkpointers.underway import UnderWay

T = TypeVar("T")
DROPPED_AT_A_TIME = 500
TRIES = 5
STRATEGIES = ("keep_latest", "delete", "delete_all")


class Upkeep:
    """Mixed into every saver; each method stands on one operation."""

    database: Database
    _memory: Memory
    _recent: Recent
    _under_way: UnderWay

    def _tools(self) -> Tools:
        raise NotImplementedError

    def _token(self, thread: str) -> bytes | None:
        raise NotImplementedError

    def _read(self, operation: Operation[T], thread: str | None = None) -> T:
        """Read; if others removed something between two requests, as it stood at one moment: damage is real damage.

        Of a thread, after what was handed over to be stored in it.
        """
        if thread is not None:
            self._under_way.settle(thread)
        try:
            return self.database.read(operation)
        except IntegrityError:
            return self.database.snapshot(operation)

    def delete_thread(self, thread_id: str) -> None:
        """Remove a thread and everything in it; a thread that does not exist is already gone."""
        thread = str(thread_id)
        token = self._token(thread)
        self._change(thread, lambda: operations.whole.delete_thread(self._tools(), thread, token, now()))

    def delete_for_runs(self, run_ids: str | Sequence[str]) -> None:
        """Remove the checkpoints that these runs made; those made from them keep what they need."""
        runs = set(_each(run_ids))
        for thread in self._read(lambda: operations.remove.threads_of_runs(self._tools(), runs)):
            chosen = partial(operations.remove.of_runs, runs)
            self._change(thread, partial(operations.remove.drop, self._tools(), thread, chosen))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a whole thread, its history included, to a name that is free."""
        source, target = str(source_thread_id), str(target_thread_id)
        self._under_way.settle(source)
        answer = self.database.exclusive(lambda: operations.whole.copy_thread(self._tools(), source, target, now()))
        if answer == "missing":
            raise UnknownThreadError(source)
        if answer == "exists":
            raise ThreadExistsError(target)

    def prune(self, thread_ids: str | Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep only the newest checkpoint of each namespace, or nothing (`delete`, `delete_all`)."""
        if strategy not in STRATEGIES:
            msg = f"unknown strategy {strategy!r}; there are {', '.join(STRATEGIES)}"
            raise ValueError(msg)
        for thread in _each(thread_ids):
            if strategy == "keep_latest":
                latest = operations.remove.keep_latest
                self._change(thread, partial(operations.remove.drop, self._tools(), thread, latest))
            else:
                self.delete_thread(thread)

    def threads(
        self,
        *,
        status: Status | None = None,
        since: datetime | str | timedelta | float | None = None,
        metadata: Mapping[str, Any] | None = None,
        tag: str | None = None,
        limit: int | None = None,
    ) -> list[ThreadInfo]:
        """List threads, the most recently written first, without loading a state.

        `since` is a time, or how long ago: `"2d"`.
        """
        if limit is not None:
            counted("limit", limit, least=0)
        if status is not None and status not in get_args(Status):
            raise HistoryError(f"a thread is {', '.join(get_args(Status))}, but never {status!r:.40}")
        wanted = survey.Wanted(status, _since(since), metadata or {}, tag, limit)
        return self._read(lambda: survey.threads(self._tools(), wanted))

    def steps(self, thread: str, ns: str | None = "", *, newest: int | None = None, after: int = 0) -> list[StepInfo]:
        """List the steps of a thread, oldest first, without loading a state; `ns` None: those of its subgraphs too.

        `newest` reads so many rows only; before them stand the steps that these were made from. `after` a step: only
        those with a higher number, and whether others are missing is not looked at. Either the one or the other.
        """
        name = str(thread)
        counted("after", after, least=0)
        if newest is not None:
            counted("newest", newest, least=1)
            if after:
                raise HistoryError(
                    f"ask for either the newest steps or those after one: newest={newest}, after={after}"
                )
            return self._read(lambda: survey.newest_steps(self._tools(), name, ns, newest), name)
        return self._read(lambda: survey.steps(self._tools(), name, ns, after), name)

    def tasks(self, thread: str, ns: str = "") -> dict[str, list[str]]:
        """Give, for the checkpoints of a thread by their ids, the ids of the tasks that have written on each."""
        return self._read(lambda: survey.tasks(self._tools(), str(thread), ns), str(thread))

    def holder(self, thread: str) -> Holder | None:
        """Say who holds the lease of a thread now: `owner`, `since`, `until` (in microseconds), `epoch`."""
        found = self._read(lambda: find_thread(self._tools(), str(thread)))
        holder = found.holder if found is not None else None
        return None if holder is None or holder.expired else holder

    def usage(self, thread: str | None = None) -> list[Usage]:
        """Say where the bytes are, by thread and channel, the largest first."""
        return self._read(lambda: survey.usage(self._tools(), None if thread is None else str(thread)))

    def readable(self) -> list[Readable]:
        """Say what was left readable of encrypted threads, the newest first; it needs no key, and trusts no seal."""
        return self._read(survey.readable)

    def tag(self, thread: str, *tags: str) -> None:
        """Give a thread tags, by which `threads` and `retain` find it."""
        for tag in tags:
            _see_tag(tag)
        self._label(thread, add=tags)

    def untag(self, thread: str, *tags: str) -> None:
        """Take tags from a thread."""
        self._label(thread, remove=tags)

    def pin(self, thread: str, *steps: int) -> None:
        """Pin checkpoints: `retain` keeps them whatever its policy."""
        for step in steps:
            counted("a step to pin", step, least=0)
        self._label(thread, add=steps)

    def unpin(self, thread: str, *steps: int) -> None:
        """Unpin checkpoints."""
        self._label(thread, remove=steps)

    def retain(
        self,
        keep: Keep,
        *,
        threads: str | Iterable[str] | None = None,
        tag: str | None = None,
        dry_run: bool = False,
    ) -> list[Plan]:
        """Keep what a policy wants of one thread, several, those with a tag, or all; say why and what that frees.

        A transaction drops at most 500 checkpoints of one thread, so running agents wait for no more than that. Only
        threads where something goes are reported. A thread that is damaged stays as it is and stops no other; the error
        about it comes at the end.
        """
        known = {info.thread: info for info in self.threads(tag=tag)}
        plans, refusals = list[Plan](), list[CheckpointerError]()
        for thread in known if threads is None else _each(threads):
            try:
                if self._can_be_planned(thread, known.get(thread)):
                    decided = self._plan(keep, thread) if dry_run else self._retained(keep, thread)
                    plans += [decided] if decided.dropped else []
            except ShreddedError:  # nothing of it can be planned any more
                continue
            except (IntegrityError, KeyringError) as error:
                refusals.append(error)
        if refusals:
            raise refusals[0]
        return plans

    def _can_be_planned(self, thread: str, listed: ThreadInfo | None) -> bool:
        """Tell whether a thread is one of those that are listed; one that cannot be read by its name is an error."""
        if listed is None:
            self._read(lambda: find_thread(self._tools(), thread))
            return False
        see_read(listed)
        return bool(listed.checkpoints)

    def vacuum(self, *, full: bool = False) -> int:
        """Give unused space back to the disk; return how many bytes that was."""
        before = self.database.size()
        self.database.vacuum(full=full)
        return max(0, before - self.database.size())

    async def adelete_thread(self, thread_id: str) -> None:
        """Async `delete_thread`."""
        await self.database.elsewhere(lambda: self.delete_thread(thread_id))

    async def adelete_for_runs(self, run_ids: str | Sequence[str]) -> None:
        """Async `delete_for_runs`."""
        await self.database.elsewhere(lambda: self.delete_for_runs(run_ids))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Async `copy_thread`."""
        await self.database.elsewhere(lambda: self.copy_thread(source_thread_id, target_thread_id))

    async def aprune(self, thread_ids: str | Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Async `prune`."""
        await self.database.elsewhere(lambda: self.prune(thread_ids, strategy=strategy))

    async def athreads(self, **wanted: Any) -> list[ThreadInfo]:
        """Async `threads`."""
        return await self.database.elsewhere(lambda: self.threads(**wanted))

    async def asteps(
        self, thread: str, ns: str | None = "", *, newest: int | None = None, after: int = 0
    ) -> list[StepInfo]:
        """Async `steps`."""
        return await self.database.elsewhere(lambda: self.steps(thread, ns, newest=newest, after=after))

    async def atasks(self, thread: str, ns: str = "") -> dict[str, list[str]]:
        """Async `tasks`."""
        return await self.database.elsewhere(lambda: self.tasks(thread, ns))

    async def aholder(self, thread: str) -> Holder | None:
        """Async `holder`."""
        return await self.database.elsewhere(lambda: self.holder(thread))

    async def ausage(self, thread: str | None = None) -> list[Usage]:
        """Async `usage`."""
        return await self.database.elsewhere(lambda: self.usage(thread))

    async def areadable(self) -> list[Readable]:
        """Async `readable`."""
        return await self.database.elsewhere(self.readable)

    async def atag(self, thread: str, *tags: str) -> None:
        """Async `tag`."""
        await self.database.elsewhere(lambda: self.tag(thread, *tags))

    async def auntag(self, thread: str, *tags: str) -> None:
        """Async `untag`."""
        await self.database.elsewhere(lambda: self.untag(thread, *tags))

    async def apin(self, thread: str, *steps: int) -> None:
        """Async `pin`."""
        await self.database.elsewhere(lambda: self.pin(thread, *steps))

    async def aunpin(self, thread: str, *steps: int) -> None:
        """Async `unpin`."""
        await self.database.elsewhere(lambda: self.unpin(thread, *steps))

    async def aretain(self, keep: Keep, **options: Any) -> list[Plan]:
        """Async `retain`."""
        return await self.database.elsewhere(lambda: self.retain(keep, **options))

    async def avacuum(self, *, full: bool = False) -> int:
        """Async `vacuum`."""
        return await self.database.elsewhere(lambda: self.vacuum(full=full))

    def _change(self, thread: str, operation: Operation[T]) -> T:
        """Run an exclusive operation; what was remembered of the thread is no longer true."""
        key = self._tools().key(thread)
        self._under_way.settle(thread)
        try:
            return self.database.exclusive(operation)
        finally:
            self._memory.forget(thread)
            self._recent.forget(key)

    def _label(self, thread: str, *, add: Iterable[str | int] = (), remove: Iterable[str | int] = ()) -> None:
        if not self._change(str(thread), lambda: survey.label(self._tools(), str(thread), add=add, remove=remove)):
            raise UnknownThreadError(str(thread))

    def _retained(self, keep: Keep, thread: str) -> Plan:
        """Plan, and drop what goes; plan again where others took back meanwhile what was to be kept."""
        freed = 0
        for _ in range(TRIES):
            decided = self._plan(keep, thread)
            done, more = self._apply(keep, decided)
            freed += more
            if done:
                return replace(decided, frees=freed)
        raise BusyError(f"thread {thread!r}", "others take steps of it back again and again", hint="retain it again")

    def _plan(self, keep: Keep, thread: str) -> Plan:
        def planned() -> Statements[Plan]:
            found = yield from operations.remove.contents(self._tools(), thread)
            known = operations.remove.lines(found) if found else []
            stands = found.thread.standing if found else Standing(thread)
            written = moment(stands.updated_at) if stands.effects else None
            decided = plan(thread, keep, known, now=datetime.now(UTC), pins=stands.pins, written=written)
            since = _since(keep.max_age) if decided.expired else 0
            if found is None:
                return decided
            frees = yield from operations.remove.would_free(
                self._tools(), found, decided.dropped, unwritten_since=since
            )
            return replace(decided, frees=frees)

        return self._read(planned)

    def _apply(self, keep: Keep, decided: Plan) -> tuple[bool, int]:
        """Drop what was planned, the oldest first, so many at a time; tell whether all of it went, and what that freed.

        What was written since stays; where the thread is not the one any more that was planned for, the rest does too.
        """
        freed, since = 0, _since(keep.max_age) if decided.expired else 0
        for start in range(0, len(decided.dropped), DROPPED_AT_A_TIME):
            some = decided.dropped[start : start + DROPPED_AT_A_TIME]
            holds: list[bool] = []

            def chosen(found: Contents, some: Sequence[int] = some, holds: list[bool] = holds) -> Sequence[int]:
                lines = operations.remove.lines(found)
                holds[:] = [still_holds(decided, lines, found.thread.standing.pins)]
                return some if holds[0] else ()

            drop = partial(operations.remove.drop, self._tools(), decided.thread, chosen, unwritten_since=since)
            freed += self._change(decided.thread, drop)
            if not all(holds):
                return False, freed
        return True, freed


def _see_tag(tag: str) -> None:
    """See that a tag is a text; a number would be a step that is pinned, and some texts cannot be stored."""
    try:
        tag.encode()
    except (AttributeError, UnicodeEncodeError) as error:
        raise HistoryError(f"a tag is a text that has no lone surrogates, not {tag!r:.80}") from error


def _each(names: str | Iterable[str]) -> list[str]:
    """Give names as text; one alone is not the names of its letters."""
    if not isinstance(names, str | Iterable):
        raise CheckpointerError(f"give one name, or several in a list, not {names!r:.80}")
    return [names] if isinstance(names, str) else [str(name) for name in names]


def _since(since: datetime | str | timedelta | float | None) -> int:
    if since is None:
        return 0
    try:
        start = since if isinstance(since, datetime) else datetime.now(UTC) - duration(since)
        return int(start.timestamp() * 1_000_000)
    except (ValueError, OverflowError) as error:
        raise HistoryError(f"{since!r:.80} is no time, nor how long ago: {error}") from error
