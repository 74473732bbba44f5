"""What a saver read lately, ready to be made into values again while its thread stands as it did; bounded in bytes.

Nothing here is truth. What is kept holds for one row of its thread, and every write gives a thread another row: whoever
finds that it has another one forgets, and reads the database again. Nothing kept is handed out itself, so that nobody
can change it: values are decoded anew each time.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Final

from checkpointers.statements import Row

OVERHEAD: Final = 2_048


@dataclass(slots=True)
class Kept:
    """What was read of a thread while its row was this one, by what was asked for; and about what all of it weighs.

    What was asked for last stands last; with each goes what it weighs alone.
    """

    row: Row
    bytes: int
    found: OrderedDict[Hashable, tuple[Any, int]] = field(default_factory=OrderedDict)


class Recent:
    """What was read lately of each thread: what was asked for least recently goes first when it outgrows the budget."""

    def __init__(self, budget: int) -> None:
        """Hold at most about `budget` bytes; with none, nothing."""
        self._budget = budget
        self._lock = threading.RLock()  # what is collected meanwhile may read something, too
        self._threads: OrderedDict[int, Kept] = OrderedDict()
        self._bytes = 0

    def of(self, thread: int, asked: Hashable) -> tuple[Row, Any] | None:
        """Give what was found when this was asked, and the row that the thread had."""
        with self._lock:
            kept = self._threads.get(thread)
            if kept is None or asked not in kept.found:
                return None
            self._threads.move_to_end(thread)
            kept.found.move_to_end(asked)
            return kept.row, kept.found[asked][0]

    def keep(self, thread: int, row: Row, asked: Hashable, found: Any, *, size: int) -> None:
        """Keep what was found, of so many bytes, when this was asked of a thread that has this row.

        What does not fit at all pushes nobody out.
        """
        with self._lock:
            if OVERHEAD + size > self._budget:
                return
            if thread in self._threads and self._threads[thread].row != row:
                self._drop(thread)
            kept = self._threads.get(thread)
            if kept is None:
                weight = OVERHEAD + sum(len(value) for value in row if isinstance(value, bytes))
                kept = self._threads[thread] = Kept(row, weight)
                self._bytes += weight
            self._let_go(kept, asked)
            kept.found[asked] = (found, OVERHEAD + size)
            kept.bytes += OVERHEAD + size
            self._bytes += OVERHEAD + size
            self._threads.move_to_end(thread)
            while self._bytes > self._budget:
                oldest, kept = next(iter(self._threads.items()))
                if len(kept.found) > 1:
                    self._let_go(kept, next(iter(kept.found)))
                else:
                    self._drop(oldest)

    def forget(self, thread: int | None = None) -> None:
        """Forget one thread, or all."""
        with self._lock:
            for key in [thread] if thread is not None else list(self._threads):
                self._drop(key)

    def _drop(self, thread: int) -> None:
        kept = self._threads.pop(thread, None)
        if kept is not None:
            self._bytes -= kept.bytes

    def _let_go(self, kept: Kept, asked: Hashable) -> None:
        _, size = kept.found.pop(asked, (None, 0))
        kept.bytes -= size
        self._bytes -= size
