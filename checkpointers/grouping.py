"""Group commit: what a task wrote waits a moment for the checkpoint that is made of it, and they commit together.

A superstep of one task is then one commit instead of two. Nothing is acknowledged before it is stored: `put_writes`
returns when its rows are committed, by itself or with others. Parallel tasks do not wait for each other: whoever
waits in vain commits at once, with all that wait on the same thread. Where many threads share one interpreter a
checkpoint may follow late now and then; a node is not given up for that, only when most of its waits are in vain.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from checkpointers.operations.rows import SPECIAL_INDEX, NewWrites

WINDOW_SECONDS: Final = 0.01
TRUST: Final = 2
MOST_TRUST: Final = 8
LONGEST_PAUSE: Final = 1_024
MOST_HABITS: Final = 1_024
Habit = tuple[str, tuple[str, ...]]


@dataclass(slots=True)
class Patience:
    """How many waits in vain a habit may still have, how many turns it sits out, and how many it did the last time."""

    trust: int = TRUST
    sits_out: int = 0
    pause: int = 4


class Waiting:
    """Writes that are not committed yet; `taken` by whoever is about to.

    One caller waits, once: a bare lock that is held until they are settled takes a tenth of what an event takes.
    """

    __slots__ = ("_error", "_heard", "_unsettled", "habit", "new", "taken")

    def __init__(self, new: NewWrites) -> None:
        """Begin to wait with these."""
        self.new, self.taken, self.habit = new, False, _habit(new)
        self._error: BaseException | None = None
        self._heard = False
        self._unsettled = threading.Lock()
        self._unsettled.acquire()

    def was_taken(self, seconds: float) -> bool:
        """Wait for somebody who commits these too; how long that commit then takes does not count."""
        self._heard = self._unsettled.acquire(timeout=seconds)
        return self._heard or self.taken

    def settle(self, error: BaseException | None = None) -> None:
        """Tell the waiting caller how it went."""
        self._error = error
        self._unsettled.release()

    def result(self) -> None:
        """Wait until they are settled, and raise what went wrong, if anything did."""
        if not self._heard:
            self._heard = self._unsettled.acquire()
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
        finally:
            del error  # else it would keep itself, and with it what was open when it came, until garbage is collected


class Groups:
    """Who waits on which thread, and for whom it has been worth it to wait."""

    def __init__(self) -> None:
        """Start with nobody waiting; everybody is given a first chance."""
        self._lock = threading.Lock()
        self._waiting: dict[str, list[Waiting]] = {}
        self._habits: dict[Habit, Patience] = {}
        self._delta: set[str] = set()

    def join(self, waiting: Waiting) -> None:
        """Wait among the others of the thread."""
        with self._lock:
            self._waiting.setdefault(waiting.new.place.thread, []).append(waiting)

    def take(self, thread: str) -> list[Waiting]:
        """Take everybody who waits on a thread: the caller commits them."""
        with self._lock:
            taken = self._waiting.pop(thread, [])
            for waiting in taken:
                waiting.taken = True
            return taken

    def worth_waiting(self, waiting: Waiting) -> bool:
        """Tell whether a checkpoint is likely to follow at once; special writes are never kept waiting."""
        channels = waiting.habit[1]
        if not waiting.new.of_run or any(channel in SPECIAL_INDEX or channel in self._delta for channel in channels):
            return False
        with self._lock:
            found = self._habits.get(waiting.habit)
            if found is None or not found.sits_out:
                return True
            found.sits_out -= 1
            return False

    def see(self, metadata: Mapping[str, Any]) -> None:
        """Learn which channels are DeltaChannels: LangGraph puts no checkpoint before their writes are stored."""
        self._delta.update(metadata.get("counters_since_delta_snapshot") or ())

    def learn(self, waiting: Waiting, *, joined: bool) -> None:
        """Remember how the wait went: after too many in vain, the next ones are longer and longer apart."""
        with self._lock:
            if len(self._habits) > MOST_HABITS:
                self._habits.clear()
            found = self._habits.get(waiting.habit)
            if found is None:
                found = self._habits[waiting.habit] = Patience()
            if joined:
                found.trust, found.pause = min(MOST_TRUST, found.trust + 1), 4
            elif found.trust > 1:
                found.trust -= 1
            else:
                found.pause = found.sits_out = min(LONGEST_PAUSE, 4 * found.pause)


def _habit(new: NewWrites) -> Habit:
    """Tell apart tasks that behave alike: nodes write the same channels each time."""
    return new.place.ns.partition(":")[0], tuple(sorted({channel for channel, _ in new.writes}))
