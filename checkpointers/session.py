"""What a run knows of itself: which threads it holds, and where it saw them stand. Context variables carry it.

LangGraph copies the context of a run into its workers and tasks, so a write can tell in whose name it is made without a
word of the caller. What a run loaded is shared by all that runs in its context.

Not so what parallel tasks wrote: that is stored from a callback of their futures, outside of every context. Such a call
is known by its run: LangGraph hands the same object to all calls of one, and its first loads the thread in its context.
Nor what a server asks for: it takes each step of a stream in a new task, whose context knows nothing of the one before.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

if TYPE_CHECKING:
    from checkpointers.lease import Lease

Line = Literal["free", "head", "branch"]
Slot = tuple[int, str]
K = TypeVar("K")
V = TypeVar("V")
KEPT: Final = 256
RUN: Final = "__pregel_runtime"

_lock = threading.Lock()
_runs: WeakValueDictionary[int, Lines] = WeakValueDictionary()
# A run cannot be referred to weakly, but what it writes its stream with can: as long as that lives, the run may go on.
_alive: WeakKeyDictionary[Any, dict[int, Lines]] = WeakKeyDictionary()
_live: dict[Slot, list[Lease]] = {}
_held: ContextVar[Mapping[Slot, Lease]] = ContextVar("checkpointers_held")
_lines: ContextVar[Lines] = ContextVar("checkpointers_lines")


class Lines:
    """Where a run believes that threads stand, and which checkpoints it stored on a branch beside them.

    Anything else is free: going on from a checkpoint that was loaded by its id, when it was no longer the head, is
    meant to fork.
    """

    def __init__(self, heads: Mapping[Slot, str | None] | None = None) -> None:
        """Start with what another run believes."""
        self._heads: dict[Slot, str | None] = dict(heads or {})
        self._branch: dict[tuple[Slot, str | None], None] = {}
        self.counts_in_text = False  # the versions of channels, where a thread came from other savers

    def loaded(self, slot: Slot, checkpoint: str | None, *, head: bool) -> Lines:
        """Give what a run knows that begins by loading this; others who share a context go on with what they know."""
        after = Lines(self._heads)
        if head:
            after.stored(slot, checkpoint, beside=False)
        else:
            after._heads.pop(slot, None)  # from a child of what it loads it may go on, too
        return after

    def stored(self, slot: Slot, checkpoint: str | None, *, beside: bool) -> None:
        """Remember a checkpoint that was just stored: the thread stands there now, or it is beside."""
        if beside:
            _keep(self._branch, (slot, checkpoint), None)
        else:
            _keep(self._heads, slot, checkpoint)

    def of(self, slot: Slot, checkpoint: str | None) -> Line:
        """Say where a checkpoint stands."""
        if slot in self._heads and self._heads[slot] == checkpoint:
            return "head"
        return "branch" if (slot, checkpoint) in self._branch else "free"


def _keep(entries: dict[K, V], key: K, value: V) -> None:
    """Keep an entry as the newest; plain dicts, for these are copied whenever a run begins."""
    entries.pop(key, None)
    entries[key] = value
    while len(entries) > KEPT:
        del entries[next(iter(entries))]


def lines(config: Mapping[str, Any] | None = None) -> Lines:
    """Give what the run of a config knows, whichever task of a server asks it for its next step; else this context."""
    found = (lines_of(config) if config else None) or _lines.get(None)
    if found is None:
        found = Lines()
        _lines.set(found)
    return found


def saw(
    slot: Slot, checkpoint: str | None, *, head: bool, config: Mapping[str, Any], versions: Iterable[Any] = ()
) -> None:
    """Begin anew in this context, and in the run of a config, with a checkpoint that was loaded, of such versions."""
    known = lines().loaded(slot, checkpoint, head=head)
    known.counts_in_text = any(isinstance(version, str) for version in versions)
    _lines.set(known)
    if (run := config["configurable"].get(RUN)) is not None:
        _runs[id(run)] = known
        with _lock, suppress(TypeError):
            _keep(_alive.setdefault(getattr(run, "stream_writer", None), {}), id(run), known)


def is_of_run(config: Mapping[str, Any]) -> bool:
    """Tell whether a run of a graph makes a call: it goes on from what it loads, and puts what its tasks wrote."""
    return RUN in config["configurable"]


def lines_of(config: Mapping[str, Any]) -> Lines | None:
    """Give what the run of a config knows, wherever it is asked; None for a call that is of no run."""
    return _runs.get(id(config["configurable"].get(RUN)))


def held(slot: Slot) -> Lease | None:
    """Give the lease that this context has on a thread."""
    return _held.get({}).get(slot)


def writer(slot: Slot, config: Mapping[str, Any] | None) -> Lease | None:
    """Give the lease under which a run makes a call: that of its context, or of the context that its first call had."""
    lease, run = held(slot), config["configurable"].get(RUN) if config else None
    if run is None:
        return lease
    if lease is not None:
        lease.runs[id(run)] = run
        return lease
    with _lock:
        return next((one for one in _live.get(slot, ()) if id(run) in one.runs), None)


def hold(slot: Slot, lease: Lease) -> None:
    """Remember that this context has a lease."""
    _held.set({**_held.get({}), slot: lease})
    with _lock:
        _live.setdefault(slot, []).append(lease)


def let_go(slot: Slot, lease: Lease) -> None:
    """Remember that a lease is over."""
    _held.set({key: other for key, other in _held.get({}).items() if other is not lease})
    with _lock:
        left = [other for other in _live.get(slot, ()) if other is not lease]
        if left:
            _live[slot] = left
        else:
            _live.pop(slot, None)
