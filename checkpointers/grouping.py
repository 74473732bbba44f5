"""Group commit: what a task wrote waits a moment for the checkpoint that is made of it, and they commit together.

A superstep of one task is then one commit instead of two. Nothing is acknowledged before it is stored: `put_writes`
returns when its rows are committed, by itself or with others. Parallel tasks do not wait for each other: whoever
waits in vain commits at once, with all that wait on the same thread.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from checkpointers.operations.rows import SPECIAL_INDEX, NewWrites

WINDOW_SECONDS: Final = 0.004
LONGEST_PATIENCE: Final = 1_024
Habit = tuple[str, tuple[str, ...]]


@dataclass(slots=True, eq=False)
class Waiting:
    """Writes that are not committed yet."""

    new: NewWrites
    done: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None

    def settle(self, error: BaseException | None = None) -> None:
        """Tell the waiting caller how it went."""
        self.error = error
        self.done.set()

    def result(self) -> None:
        """Raise what went wrong, if anything did."""
        if self.error is not None:
            raise self.error


class Groups:
    """Who waits on which thread, and for whom it has been worth it to wait."""

    def __init__(self) -> None:
        """Start with nobody waiting; everybody is given a first chance."""
        self._lock = threading.Lock()
        self._waiting: dict[str, list[Waiting]] = {}
        self._skip: dict[Habit, tuple[int, int]] = {}
        self._delta: set[str] = set()

    def join(self, waiting: Waiting) -> None:
        """Wait among the others of the thread."""
        with self._lock:
            self._waiting.setdefault(waiting.new.place.thread, []).append(waiting)

    def take(self, thread: str) -> list[Waiting]:
        """Take everybody who waits on a thread: the caller commits them."""
        with self._lock:
            return self._waiting.pop(thread, [])

    def worth_waiting(self, new: NewWrites) -> bool:
        """Tell whether a checkpoint is likely to follow at once; special writes are never kept waiting."""
        if any(channel in SPECIAL_INDEX or channel in self._delta for channel, _ in new.writes):
            return False
        with self._lock:
            left, last = self._skip.get(_habit(new), (0, 0))
            if left:
                self._skip[_habit(new)] = left - 1, last
            return not left

    def see(self, metadata: Mapping[str, Any]) -> None:
        """Learn which channels are DeltaChannels: LangGraph puts no checkpoint before their writes are stored."""
        self._delta.update(metadata.get("counters_since_delta_snapshot") or ())

    def learn(self, new: NewWrites, *, joined: bool) -> None:
        """Remember how the wait went: after one in vain, the next ones are longer and longer apart."""
        with self._lock:
            if len(self._skip) > LONGEST_PATIENCE:
                self._skip.clear()
            if joined:
                self._skip.pop(_habit(new), None)
            else:
                pause = min(LONGEST_PATIENCE, 4 * self._skip.get(_habit(new), (0, 4))[1])
                self._skip[_habit(new)] = pause, pause


def _habit(new: NewWrites) -> Habit:
    """Tell apart tasks that behave alike: nodes write the same channels each time."""
    return new.place.ns.partition(":")[0], tuple(sorted({channel for channel, _ in new.writes}))
