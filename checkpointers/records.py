"""A stored checkpoint without its values, and the stored writes of a task: plain data, packed and unpacked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from itertools import count
from threading import Lock
from typing import Any, Final

from checkpointers.codec import Ref, as_a, as_ref, packed, unpacked
from checkpointers.keys import is_in_full, key_of, text_of

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
KNOWN_KEYS: Final = frozenset(
    {"v", "ts", "id", "channel_values", "channel_versions", "versions_seen", "updated_channels"}
)
MARK_BYTES: Final = 8
INTERRUPTED: Final = 1
NEAR: Final = 64  # so many steps apart, commits of a graph and of its subgraphs may be in another order
FAILED: Final = 2
RESUMED: Final = 4
KIND_OF: Final = {"__interrupt__": INTERRUPTED, "__error__": FAILED, "__resume__": RESUMED}

Versions = dict[str, Any]


@dataclass(slots=True)
class Write:
    """One write of a task: its index, channel and reference, and the path the task had."""

    idx: int
    channel: str
    ref: Ref
    path: str


@dataclass(slots=True)
class TaskWrites:
    """All writes that one task left on one checkpoint."""

    task: str
    writes: list[Write]

    @property
    def kinds(self) -> int:
        """Tell which special writes are among them, as bits that a listing can read."""
        kinds = 0
        for write in self.writes:
            kinds |= KIND_OF.get(write.channel, 0)
        return kinds


@dataclass(slots=True)
class Base:
    """What a DeltaChannel needs of deleted ancestors: their seed and their writes, by reference."""

    seed: Ref | None
    writes: list[tuple[str, Ref]]


@dataclass(slots=True)
class Record:
    """A checkpoint as stored: references in place of values.

    `trail` names, for a channel without a value here, the step of the nearest ancestor that may hold a value of it or
    writes to it; without an entry that is the parent. `mark` stands for what the checkpoint was when it was stored,
    `chain` is its parent's.
    """

    id: str
    ns: str
    parent: str | None
    step: int = 0
    at: int = 0
    v: int = 1
    ts: str = ""
    versions: Versions = field(default_factory=dict)
    refs: dict[str, Ref] = field(default_factory=dict)
    seen: dict[str, Versions] = field(default_factory=dict)
    updated: list[str] | None = None
    bases: dict[str, Base] = field(default_factory=dict)
    trail: dict[str, int] = field(default_factory=dict)
    extra: bytes | None = None
    has_updated: bool = True
    chain: bytes = b""
    mark: bytes = b""
    relinked: bool = False


class Names:
    """Channel and node names as small integers, shared by the whole database; grows, never changes.

    A name has its key from when somebody here is about to store it, and is told by its key once it is stored.
    """

    def __init__(self) -> None:
        """Start with nothing known; operations learn what they need."""
        self.keys: dict[str, int] = {}
        self.texts: dict[int, str] = {}
        self.spoilt: dict[int, bytes] = {}  # keys of rows that cannot be read, with the digests of their names
        self.highest = 0
        self._reserved: dict[str, int] = {}
        self._lock = Lock()

    def learn(self, rows: Iterable[tuple[int, str]]) -> None:
        """Remember names that are stored."""
        found = dict(rows)
        with self._lock:
            self.texts |= found
            self.keys |= {text: key for key, text in found.items()}
            self.highest = max(self.highest, *found) if found else self.highest
            for text in self._reserved.keys() & found.values():
                del self._reserved[text]

    def missing(self, texts: Iterable[str]) -> list[str]:
        """Give the names that are not stored, as far as is known here."""
        missing = set(texts).difference(self.keys)
        return sorted(missing.union(self._reserved.keys() & texts) if self._reserved else missing)

    def reserve(self, texts: Sequence[str]) -> list[tuple[int, str]]:
        """Give those of these names that are not stored yet, each with the key that it has for all who ask here."""
        with self._lock:
            free = (key for key in count(self.highest + 1) if key not in self.spoilt)
            for text in texts:
                key = self.keys.get(text)
                if key is None or self.texts.get(key, text) != text:
                    self.highest = self.keys[text] = self._reserved[text] = next(free)
            return [(key, text) for text in texts if (key := self.keys[text]) not in self.texts]


def pack_record(record: Record, names: Names) -> bytes:
    """Pack what is not in columns of its own."""
    key = names.keys
    long_ids = not all(is_in_full(key_of(text)) for text in (record.id, record.parent or "", record.ns))
    return packed(
        [
            record.v,
            _packed_time(record.ts),
            _keyed(record.versions, key),
            _keyed(record.refs, key),
            {key[node]: _keyed(versions, key) for node, versions in record.seen.items()},
            [key[name] for name in record.updated] if record.updated is not None else record.has_updated,
            {key[name]: [base.seed, base.writes] for name, base in record.bases.items()},
            record.extra,
            [record.id, record.parent, record.ns] if long_ids else None,
            _keyed(record.trail, key),
            record.chain,
            record.mark if record.relinked else None,
        ]
    )


def unpack_record(row: Mapping[str, Any], body: bytes, names: Names) -> Record:
    """Unpack a row of the checkpoints table, opened; raises `KeyError` for a name not learned yet."""
    v, ts, versions, refs, seen, updated, bases, extra, long_ids, trail, chain, first_mark = unpacked(body)
    text = names.texts
    id_, parent, ns = long_ids or (text_of(row["id"]), row["parent"] and text_of(row["parent"]), text_of(row["ns"]))
    return Record(
        id=as_a(str, id_),
        parent=parent and as_a(str, parent),
        ns=as_a(str, ns),
        step=row["step"],
        at=row["at"],
        v=v,
        ts=_unpacked_time(ts),
        versions=_named(versions, text),
        refs={text[name]: as_ref(ref) for name, ref in refs.items()},
        seen={text[node]: _named(mapping, text) for node, mapping in seen.items()},
        updated=[text[name] for name in updated] if isinstance(updated, list) else None,
        has_updated=updated is not False,
        bases={text[name]: _base(*base) for name, base in bases.items()},
        trail={text[name]: as_a(int, step) for name, step in trail.items()},
        extra=None if extra is None else as_a(bytes, extra),
        chain=as_a(bytes, chain),
        mark=mark_of(body) if first_mark is None else as_a(bytes, first_mark),
        relinked=first_mark is not None,
    )


def _base(seed: Any, writes: Any) -> Base:
    return Base(None if seed is None else as_ref(seed), [(as_a(str, task), as_ref(ref)) for task, ref in writes])


def mark_of(body: bytes) -> bytes:
    """Give what stands for a checkpoint in the records of its children, wherever and however it is stored."""
    return blake2b(body, digest_size=MARK_BYTES).digest()


def pack_writes(task: TaskWrites, names: Names) -> bytes:
    """Pack the writes of a task."""
    path = task.writes[0].path if task.writes else ""
    rows = [
        [write.idx, names.keys[write.channel], write.ref, *([write.path] if write.path != path else ())]
        for write in task.writes
    ]
    long_task = None if is_in_full(key_of(task.task)) else task.task
    return packed([path, rows, long_task])


def unpack_writes(task_key: bytes, body: bytes, names: Names) -> TaskWrites:
    """Unpack the writes of a task; raises `KeyError` for a name not learned yet."""
    path, rows, long_task = unpacked(body)
    writes = [
        Write(as_a(int, idx), names.texts[channel], as_ref(ref), as_a(str, own[0] if own else path))
        for idx, channel, ref, *own in rows
    ]
    return TaskWrites(as_a(str, long_task or text_of(task_key) or ""), writes)


def in_order(tasks: Iterable[TaskWrites]) -> list[tuple[str, Write]]:
    """Give the writes of one checkpoint in the order in which live execution applies them."""
    flat = [(write.path, task.task, write) for task in tasks for write in task.writes]
    flat.sort(key=lambda entry: (entry[0], entry[1], entry[2].idx))
    return [(task, write) for _, task, write in flat]


def _keyed(mapping: Mapping[str, Any], key: Mapping[str, int]) -> dict[int, Any]:
    return dict(zip(map(key.__getitem__, mapping), mapping.values(), strict=True))


def _named(mapping: Mapping[int, Any], text: Mapping[int, str]) -> dict[str, Any]:
    return {text[name]: value for name, value in mapping.items()}


def _packed_time(ts: str) -> int | str:
    """Keep a timestamp in 8 bytes where that gives the same text back."""
    if not isinstance(ts, str):
        msg = f"its ts is {ts!r:.60}, which is no text"
        raise TypeError(msg)
    try:
        micros = (datetime.fromisoformat(ts) - EPOCH) // MICROSECOND
    except (ValueError, TypeError):  # no time, or one without a zone
        return ts
    return micros if _unpacked_time(micros) == ts else ts


def _unpacked_time(ts: int | str) -> str:
    return ts if isinstance(ts, str) else (EPOCH + ts * MICROSECOND).isoformat()
