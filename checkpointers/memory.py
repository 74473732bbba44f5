"""What a process remembers of the threads it writes: enough to store only what is new, bounded in bytes.

Nothing here is truth. A memory holds for one stamp of its thread; whoever finds the stamp changed (another
process wrote) forgets it and reads the database again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from checkpointers.codec import Ref, numbers
from checkpointers.fingerprint import Prints
from checkpointers.records import Record
from checkpointers.sealing import Digests, Vault
from checkpointers.standing import Holder, Standing, Thread

NAMESPACES_KEPT: Final = 8
WRITTEN_KEPT: Final = 64
SLACK_BYTES: Final = 4 << 20
MAX_THREADS: Final = 4_096
Slot = tuple[str, str]
_SIZE: Final = attrgetter("size")
_BESIDE: Final = attrgetter("beside")


@dataclass(slots=True)
class Imprint:
    """The fingerprints of a channel's value when it was last stored, and the reference that was given to it.

    What is kept of many threads is in tuples where it can be: the collector of garbage looks at those once.
    """

    prints: Prints
    kind: int
    runs: tuple[int, ...]
    ref: Ref
    bytes: int
    beside: int = 0  # what it keeps of them that the known elements do not: how whole groups look


@dataclass(slots=True)
class Recipe:
    """The recipe that the next ones of a channel are told against."""

    number: int
    payload: bytes
    uses: int = 0


@dataclass(slots=True)
class Known:
    """The elements of one channel that this process has seen stored, by fingerprint."""

    numbers: dict[bytes, int] = field(default_factory=dict)
    size: int = 0

    def add(self, print_: bytes, number: int) -> None:
        """Remember an element."""
        if print_ not in self.numbers:
            self.size += len(print_)
        self.numbers[print_] = number

    def add_all(self, prints: Iterable[bytes], numbers: Iterable[int]) -> None:
        """Remember many elements at once."""
        found = dict(zip(prints, numbers, strict=True))
        self.size += sum(map(len, found.keys() - self.numbers.keys() if self.numbers else found))
        self.numbers |= found


@dataclass(slots=True)
class Written:
    """The writes that were stored on a checkpoint: their channels, None if those before are not known; their tally."""

    channels: set[str] | None = None
    tally: int = 0


@dataclass(slots=True)
class ThreadMemory:
    """What is remembered of one thread: nothing without a `standing`, and that the thread is new with stamp 0."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    key: int = 0
    vault: Vault = field(default_factory=Digests)
    new_key: tuple[bytes, bytes] | None = None
    standing: Standing | None = None
    holder: Holder | None = None
    counts: dict[int, int] = field(default_factory=dict)
    known: dict[str, Known] = field(default_factory=dict)
    last: dict[Slot, Imprint] = field(default_factory=dict)
    recipes: dict[Slot, Recipe] = field(default_factory=dict)
    written: dict[Slot, Written] = field(default_factory=dict)
    records: dict[str, Record] = field(default_factory=dict)
    weight: int = 0
    audited: bool = False

    def forget(self) -> None:
        """Start over: the database is asked again."""
        self.standing = self.holder = self.new_key = None
        self.audited = False
        for mapping in (self.counts, self.known, self.last, self.recipes, self.written, self.records):
            mapping.clear()

    @property
    def name(self) -> str:
        """Give the name of the thread."""
        return self.standing.name if self.standing is not None else ""

    @property
    def exists(self) -> bool:
        """Tell whether the thread is stored, as far as is known."""
        return self.standing is not None and self.standing.stamp > 0

    def as_thread(self) -> Thread:
        """Give the thread that this is the memory of."""
        return Thread(self.key, self.name, self.vault, self.standing or Standing(""), self.holder)

    def remember(self, record: Record) -> None:
        """Keep the record last stored in a namespace, as the likely parent of the next."""
        before = self.records.pop(record.ns, None)
        self.records[record.ns] = record
        if before is not None and before.id != record.id:
            self.written.pop((before.ns, before.id), None)
        if len(self.records) > NAMESPACES_KEPT:
            oldest = self.records.pop(next(iter(self.records)))
            self.written.pop((oldest.ns, oldest.id), None)
        if len(self.written) > WRITTEN_KEPT:  # some came after all that was made of their checkpoints
            stand = {(ns, one.id) for ns, one in self.records.items()}
            self.written = {slot: known for slot, known in self.written.items() if slot in stand}

    def parent(self, ns: str, id_: str) -> Record | None:
        """Give the record that was last stored in a namespace, if it is this one."""
        record = self.records.get(ns)
        return record if record is not None and record.id == id_ else None

    def known_of(self, channel: str) -> Known:
        """Give the elements of a channel that are known."""
        known = self.known.get(channel)
        if known is None:
            known = self.known[channel] = Known()
        return known

    def imprint(self, ns: str, channel: str, imprint: Imprint) -> None:
        """Note the value just stored, and drop elements that no remembered value has."""
        imprint.beside = imprint.bytes if imprint.prints.groups else 0
        self.last[ns, channel] = imprint
        known = self.known.get(channel)
        if known is not None and known.size > SLACK_BYTES + 4 * imprint.bytes:
            self.known[channel] = self._in_use(channel)

    def _in_use(self, channel: str) -> Known:
        known = Known()
        for (_, name), imprint in self.last.items():
            if name == channel:
                known.add_all(imprint.prints, numbers(imprint.runs))
        return known

    @property
    def bytes(self) -> int:
        """Give about how much this memory weighs."""
        beside: int = sum(map(_BESIDE, self.last.values()))
        known: int = sum(map(_SIZE, self.known.values()))
        return beside + known


class Memory:
    """The memories of one saver: the least recently used go first when they outgrow the budget."""

    def __init__(self, budget: int) -> None:
        """Hold at most about `budget` bytes of fingerprints."""
        self._budget = budget
        self._lock = threading.Lock()
        self._threads: OrderedDict[str, ThreadMemory] = OrderedDict()
        self._bytes = 0

    @contextmanager
    def hold(self, thread: str) -> Iterator[ThreadMemory]:
        """Give the memory of a thread to one writer of this process at a time."""
        with self._lock:
            memory = self._threads.get(thread)
            if memory is None:
                memory = self._threads[thread] = ThreadMemory()
            else:
                self._threads.move_to_end(thread)
        with memory.lock:
            try:
                yield memory
            finally:
                self._weigh(thread, memory)

    @contextmanager
    def spare(self, thread: str) -> Iterator[ThreadMemory | None]:
        """Give a reader the memory of a thread that nobody writes here, once: who reads often may never write.

        What a reader makes known comes last in line: it pushes nobody out who writes.
        """
        with self._lock:
            fresh = thread not in self._threads and self._bytes < self._budget and len(self._threads) < MAX_THREADS
            memory = ThreadMemory() if fresh else None
            if memory is not None:
                memory.lock.acquire()
                self._threads[thread] = memory
                self._threads.move_to_end(thread, last=False)
        try:
            yield memory
        except BaseException:
            if memory is not None:
                memory.forget()
            raise
        finally:
            if memory is not None:
                self._weigh(thread, memory)
                memory.lock.release()

    def forget(self, thread: str | None = None) -> None:
        """Forget one thread, or all."""
        with self._lock:
            entries = list(self._threads.items())
        for name, memory in entries:
            if thread in (None, name):
                with memory.lock:
                    memory.forget()
                    self._weigh(name, memory)

    def _weigh(self, thread: str, memory: ThreadMemory) -> None:
        """Count what a memory weighs now, and let the oldest go when all together weigh too much."""
        with self._lock:
            if self._threads.get(thread) is memory:
                before, memory.weight = memory.weight, memory.bytes
                self._bytes += memory.weight - before
            while len(self._threads) > 1 and (self._bytes > self._budget or len(self._threads) > MAX_THREADS):
                _, oldest = self._threads.popitem(last=False)
                self._bytes -= oldest.weight
