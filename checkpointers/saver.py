"""The face that LangGraph sees: each method and its async twin, over the same operation."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack, cast

from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_serializable_checkpoint_metadata,
)

from checkpointers import session
from checkpointers.care import Care
from checkpointers.codec import Codec
from checkpointers.database import now
from checkpointers.errors import CheckpointerError, ForkedWarning, UnstorableValueError, at
from checkpointers.grouping import WINDOW_SECONDS, Groups, Waiting
from checkpointers.keys import see_text
from checkpointers.lease import Desk, IfBusy, Lease
from checkpointers.ledger import Ledger
from checkpointers.memory import Memory, ThreadMemory
from checkpointers.operations import read, rows, told, write
from checkpointers.operations.common import ROOT, Place, Tools, config_of, place_of, rehearse
from checkpointers.operations.write import OnConflict
from checkpointers.options import Options, one_of, serializer
from checkpointers.paging import Listing, delta_of, query_of, tuple_of
from checkpointers.recent import Recent
from checkpointers.records import Names
from checkpointers.underway import UnderWay
from checkpointers.vaults import Vaults
from checkpointers.versions import next_version

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

    from checkpointers.database import Database

T = TypeVar("T")
DEFAULT_MEMORY: Final = 64 << 20
_FORKED: Final = (
    "{} was stored beside the head of its thread, which another writer had moved on; both branches are kept"
)


class Saver(Care, BaseCheckpointSaver[Any]):
    """A LangGraph checkpointer that stores only what is new; sync and async, for many threads and loops."""

    def __init__(self, database: Database, **options: Unpack[Options]) -> None:
        """Use a database; `SqliteSaver.open` and `PostgresSaver.open` make one."""
        if not hasattr(database, "exclusive"):
            msg = f"a saver is made with {type(self).__name__}.open(…), not from a {type(database).__name__}"
            raise CheckpointerError(msg)
        if unknown := options.keys() - Options.__annotations__.keys():
            known = ", ".join(Options.__annotations__)
            raise CheckpointerError(f"a saver has no option {min(unknown)!r}; it has {known}")
        super().__init__(serde=serializer(options.get("serde"), options.get("types", ())))
        self.database = database
        self.on_conflict: OnConflict = one_of("on_conflict", options.get("on_conflict", "error"), OnConflict)
        self.vaults = Vaults(
            options.get("keys"), migrating=options.get("migrating", False), readable=options.get("readable", ())
        )
        self._budget = options.get("memory_bytes", DEFAULT_MEMORY)
        self._memory, self._recent = Memory(self._budget), Recent(0)
        self._names = Names()
        self._codec: Codec | None = None
        self._groups, self._under_way = Groups(), UnderWay(database)
        self._desk = Desk(database, self._memory, self._tools)

    @classmethod
    def _on(cls, database: Database, **options: Unpack[Options]) -> Self:
        """Use a database that was opened for this; it is closed again if the options are refused."""
        try:
            saver = cls(database, **options)
            with suppress(CheckpointerError):  # it is said where somebody asks in earnest
                database.read(lambda: rehearse(saver._tools()))
        except BaseException:
            database.close()
            raise
        return saver

    # The contract of LangGraph.

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Read the checkpoint that a config names, or the one that its thread stands at."""
        place = place_of(config)
        session.writer(self._slot(place.thread), config)
        found = self._get(place, config)
        self._saw(place, found, config)
        return tuple_of(found, config if place.id else None) if found else None

    def _get(self, place: Place, config: RunnableConfig) -> read.Loaded | None:
        """Read a checkpoint; a run that loads where its thread stands goes on from there: what is stored is learned."""
        if place.id or not session.is_of_run(config):
            return self._read(lambda: read.get(self._tools(), place), place.thread)
        if place.ns == ROOT:  # a subgraph's own checkpoints follow upon it
            self._under_way.settle(place.thread)
        with self._memory.spare(place.thread) as memory:
            return self._read(lambda: read.get(self._tools(), place, memory))

    def _saw(self, place: Place, found: read.Loaded | None, config: RunnableConfig) -> None:
        """Remember in this context where it saw a thread stand, so that a write notices when that is no longer so."""
        if place.ns == ROOT and not (found is None and place.id):
            id_ = found.record.id if found else None
            versions = found.record.versions.values() if found else ()
            is_head = found is None or found.is_head
            session.saw(self._slot(place.thread), id_, head=is_head, config=config, versions=versions)

    def _slot(self, thread: str) -> session.Slot:
        return self.database.number, thread

    def get_channel(self, config: RunnableConfig, channel: str, default: Any = None) -> Any:
        """Read one channel of the checkpoint that a config names, or of the latest, without the rest of the state."""
        place = place_of(config)
        return self._read(lambda: read.channel(self._tools(), place, channel, default), place.thread)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002  LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """List checkpoints, newest first, in pages: nothing is held while the caller looks at one."""
        listing = Listing(self._tools(), query_of(config, filter, before), limit)
        while listing.more():
            yield from listing.took(self._read(listing.page, listing.thread))

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint with its new elements, in one commit."""
        lines = session.lines(config)
        return self._put(self._new_checkpoint(lines, config, checkpoint, metadata, new_versions), lines)

    def _new_checkpoint(
        self,
        lines: session.Lines,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> write.NewCheckpoint:
        place = place_of(config)
        write.see_form(checkpoint, metadata)
        return write.NewCheckpoint(
            place,
            checkpoint,
            get_serializable_checkpoint_metadata(config, metadata),
            new_versions,
            self._token(place.thread, config),
            lines.of(self._slot(place.thread), place.id),
            self.on_conflict,
        )

    def _token(self, thread: str, config: RunnableConfig | None = None) -> bytes | None:
        """Give the token of the lease under which this context, or the run of a config, writes a thread."""
        lease = session.writer(self._slot(thread), config)
        if lease is None:
            return None
        lease.check()
        return lease.token

    def _put(self, new: write.NewCheckpoint, lines: session.Lines) -> RunnableConfig:
        place, id_ = new.place, new.checkpoint["id"]
        self._groups.see(new.metadata)
        with self._memory.hold(place.thread) as memory:
            waiting = self._groups.take(place.thread)
            joined = [one for one in waiting if _goes_with(one.new, new)]
            self._commit(memory, [one for one in waiting if not _goes_with(one.new, new)])
            try:
                stored = self.database.run(
                    lambda: write.put(self._tools(), memory, new, [w.new for w in joined], now())
                )
            except BaseException as error:
                _say_where(error, place.thread)
                self._commit(memory, joined)
                raise
            self._recent.forget(memory.key)
            for one in joined:
                one.settle()
            if place.ns == ROOT:  # still held: a write of this run would take its own step for another's
                lines.stored(self._slot(place.thread), id_, beside=stored.beside)
        if stored.beside and new.line == "head":
            warnings.warn(ForkedWarning(_FORKED.format(at(place.thread, stored.step))), stacklevel=3)
        return cast("RunnableConfig", config_of(place.thread, place.ns, id_))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote on a checkpoint, in one commit, with its checkpoint if that follows at once."""
        self._put_writes(self._new_writes(config, writes, task_id, task_path))

    def _new_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task: str, path: str
    ) -> rows.NewWrites:
        place = place_of(config)
        if place.id is None:
            msg = f"writes are of a checkpoint, and the config of thread {place.thread!r} names none (checkpoint_id)"
            raise CheckpointerError(msg)
        see_text("the path of a task", path)
        token, lines = self._token(place.thread, config), session.lines_of(config)
        new = rows.NewWrites(place, writes, task, path, token, of_run=session.is_of_run(config))
        if token is not None or lines is None or place.ns != ROOT or self.on_conflict == "fork":
            return new
        slot = self._slot(place.thread)
        return new._replace(at_head=lambda: lines.of(slot, place.id) == "head")

    def _put_writes(self, new: rows.NewWrites) -> None:
        waiting = Waiting(new)
        self._groups.join(waiting)
        if self._groups.worth_waiting(waiting):
            self._groups.learn(waiting, joined=waiting.was_taken(WINDOW_SECONDS))
        if not waiting.taken:
            with self._memory.hold(new.place.thread) as memory:
                self._commit(memory, self._groups.take(new.place.thread))
        waiting.result()

    def _commit(self, memory: ThreadMemory, group: Sequence[Waiting]) -> None:
        """Commit what waits, each under its own lease; one that cannot be stored keeps no other from it."""
        if not group:
            return
        token = group[0].new.token
        self._commit(memory, [waiting for waiting in group if waiting.new.token != token])
        group = [waiting for waiting in group if waiting.new.token == token]
        try:
            self.database.run(lambda: write.put_writes(self._tools(), memory, [w.new for w in group], now()))
        except BaseException as error:  # noqa: BLE001  whoever waits is told, whatever it is
            _say_where(error, group[0].new.place.thread)
            if len(group) < 2 or not isinstance(error, CheckpointerError):  # noqa: PLR2004  alone or together
                for waiting in group:
                    waiting.settle(error)
                return
            for waiting in group:
                self._commit(memory, [waiting])
        else:
            self._recent.forget(memory.key)
            for waiting in group:
                waiting.settle()

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Give what each DeltaChannel was told on the way to a checkpoint."""
        if not channels:
            return {}
        place = place_of(config)
        found = self._read(lambda: told.history_of(self._tools(), place, channels), place.thread)
        return {name: delta_of(writes, seed) for name, (writes, seed) in found.items()}

    def get_next_version(self, current: Any, channel: None) -> Any:
        """Count up: in integers, or in the form of the official savers where a thread came from them."""
        del channel
        return next_version(current, as_text=current is None and session.lines().counts_in_text)

    # The async twins: the same calls on a worker thread, so that no event loop waits for a disk.

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Async `get_tuple`."""
        place = place_of(config)
        session.writer(self._slot(place.thread), config)
        if place.ns == ROOT and session.is_of_run(config):
            await self._under_way.run_out(place.thread)
        found = await self.database.elsewhere(lambda: self._get(place, config))
        self._saw(place, found, config)
        return tuple_of(found, config if place.id else None) if found else None

    async def aget_channel(self, config: RunnableConfig, channel: str, default: Any = None) -> Any:
        """Async `get_channel`."""
        return await self.database.elsewhere(lambda: self.get_channel(config, channel, default))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002  LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Async `list`."""
        listing = Listing(self._tools(), query_of(config, filter, before), limit)
        while listing.more():
            page = await self.database.elsewhere(partial(self._read, listing.page, listing.thread))
            for found in listing.took(page):
                yield found

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Async `put`."""
        lines = session.lines(config)
        new = self._new_checkpoint(lines, config, checkpoint, metadata, new_versions)
        return await self._under_way.handed_over(new.place.thread, lambda: self._put(new, lines))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Async `put_writes`."""
        new = self._new_writes(config, writes, task_id, task_path)
        await self._under_way.handed_over(new.place.thread, lambda: self._put_writes(new))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Async `get_delta_channel_history`."""
        return await self.database.elsewhere(lambda: self.get_delta_channel_history(config=config, channels=channels))

    # One writer.

    def lease(
        self,
        thread: str,
        *,
        ttl: float = 30.0,
        owner: str | None = None,
        if_busy: IfBusy = "reject",
        timeout: float | None = None,
    ) -> Lease:
        """Hold a thread as its only writer, inside a `with` or `async with` block; it need not exist yet.

        If somebody else holds it: "reject" raises `ThreadBusyError`, "enqueue" waits (for `timeout` seconds),
        "interrupt" takes it over, "rollback" takes it over and takes back what the other one stored under its lease:
        its checkpoints, and its writes on those that the thread stood at. A holder that was taken over fails at its
        next write with `LeaseLostError`; the lease of one that died is over after `ttl` seconds by the clock of the
        database.
        """
        return Lease(self._desk, str(thread), ttl=ttl, owner=owner, if_busy=if_busy, timeout=timeout)

    @property
    def ledger(self) -> Ledger:
        """Give what is kept in threads beside their state: the ledger of effects, and bodies."""
        return Ledger(self.database, self._memory, self._tools, token=self._token, read=self._read)

    # Life.

    def setup(self) -> _Ready:
        """Do nothing: opening did it. May be awaited, as the official async savers' is."""
        return _Ready()

    def close(self) -> None:
        """Close the database; what was acknowledged is stored."""
        self.database.close()

    def __enter__(self) -> Self:
        """Use as a context manager, or as an async one."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    async def __aenter__(self) -> Self:
        """Use as an async context manager."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def _tools(self) -> Tools:
        if self._codec is None or self._codec.serde is not self.serde:
            keeps = 0 if self.database.looks_again else self._budget // 4
            self._codec, self._recent = Codec(self.serde), Recent(keeps)
        return Tools(self._codec, self._names, self.vaults, self.database.tenant, self._recent)


def _goes_with(writes: rows.NewWrites, new: write.NewCheckpoint) -> bool:
    """Tell whether a checkpoint takes writes along; those that ask where their thread stands, to its own parent."""
    return writes.token == new.token and (writes.at_head is None or writes.place == new.place)


def _say_where(error: BaseException, thread: str) -> None:
    if isinstance(error, UnstorableValueError):
        error.thread = thread


class _Ready:
    def __await__(self) -> Iterator[None]:
        return iter(())
