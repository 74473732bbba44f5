"""How a thread stands: its own row, opened; and who holds it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from functools import reduce
from operator import attrgetter, xor
from typing import Any, Final

import ormsgpack

from checkpointers.codec import as_a, packed, unpacked_dict
from checkpointers.keys import decoded, encoded
from checkpointers.sealing import Vault, element_place, thread_place
from checkpointers.segments import Stack

Labels = tuple[Sequence[str], Sequence[int]]
STANDING_COLUMNS: Final = (
    "stamp", "steps", "head", "head_id", "flags", "kinds", "checkpoints", "bytes", "created_at", "updated_at", "body",
)  # fmt: skip
_TEXTS: Final = {str}
_WHOLE: Final = {int}
_NO_LABELS: Final[Labels] = ((), ())
_OTHER_FORM: Final = "what it counts and how it is labelled has another form"
NO_METADATA: Final = packed({})
FOLDED: Final = 8


@dataclass(slots=True)
class Standing:
    """What the row of a thread says; `head` 0 means that the root namespace has no checkpoint.

    `effects` and `fold` are the tally of the ledger: how many entries, and their ids folded into one number. `late` are
    the steps on which a DeltaChannel was written when there was a child already that thought there was nothing for it.
    """

    name: str
    stamp: int = 0
    steps: int = 0
    head: int = 0
    head_id: bytes = b""
    flags: int = 0
    kinds: int = 0
    checkpoints: int = 0
    size: int = 0
    created_at: int = 0
    updated_at: int = 0
    metadata: bytes = NO_METADATA
    counts: dict[int, int] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)
    pins: list[int] = field(default_factory=list)
    effects: int = 0
    fold: int = 0
    bodies: int = 0
    late: Sequence[int] = ()

    def copy(self) -> Standing:
        """Give another one that says the same."""
        return Standing(*_values(self))


_values: Final = attrgetter(*(field.name for field in fields(Standing)))


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a thread: by which token, under which name, since when and until when, in microseconds."""

    token: bytes
    owner: str
    since: int
    until: int
    epoch: int
    expired: bool


@dataclass(frozen=True, slots=True)
class Thread:
    """A stored thread: its number, its name, what opens its rows, how it stands, who holds it, its row as read."""

    key: int
    name: str
    vault: Vault
    standing: Standing
    holder: Holder | None = None
    row: Sequence[Any] = ()

    def stack(self, channel: int) -> Stack:
        """Start a stack of elements of a channel, which opens what is added to it."""
        opened, place, key = self.vault.open, element_place, self.key
        return Stack(lambda number, body: opened(place(key, channel, number), body))


def holder_of(row: Sequence[Any]) -> Holder:
    """Make a holder of the columns of a lease, and whether it is over."""
    token, owner, *times, expired = row
    since, until, epoch = (as_a(int, time) for time in times)
    return Holder(as_a(bytes, token), as_a(bytes, owner).decode("utf-8", "replace"), since, until, epoch, bool(expired))


def fold_of(ids: Iterable[bytes]) -> int:
    """Fold the ids of entries into one number: any of them gone, or another in its place, gives another one."""
    return reduce(xor, (int.from_bytes(half) for id_ in ids for half in (id_[:FOLDED], id_[FOLDED:])), 0)


def pack_standing(key: int, vault: Vault, standing: Standing, counts: dict[int, int] | None = None) -> tuple[Any, ...]:
    """Make the columns of a thread's row; `counts` of the elements may be ahead of those it was read with."""
    numbers = (
        standing.stamp, standing.steps, standing.head, standing.flags, standing.kinds, standing.checkpoints,
        standing.size, standing.created_at, standing.updated_at,
    )  # fmt: skip
    labels = [standing.tags, standing.pins] if standing.tags or standing.pins else None
    told = packed(standing.counts if counts is None else counts)
    rare = [standing.effects, standing.fold, standing.bodies, *([[*standing.late]] if standing.late else ())]
    kept = rare if any(rare) else None
    raw = ormsgpack.packb([encoded(standing.name), standing.metadata, told, labels, kept])
    body = vault.seal(thread_place(key, numbers, standing.head_id), raw)
    return (*numbers[:3], standing.head_id, *numbers[3:], body)


def unpack_standing(key: int, vault: Vault, row: Sequence[Any]) -> Standing:
    """Open the columns of a thread's row; raises `BrokenSealError`, or a type's error for a column damaged that far."""
    name, metadata, (tags, pins), counts, later = unpack_told(key, vault, row)
    effects, fold, bodies, *rest = later or (0, 0, 0)
    late = as_a(list, rest[0]) if rest else ()
    told = unpacked_dict(counts)
    if {*map(type, (*told, *told.values(), effects, fold, bodies, *late))} - _WHOLE:
        raise ValueError(_OTHER_FORM)
    stamp, steps, head, head_id, flags, kinds, checkpoints, size, created, updated, _ = row
    return Standing(
        name, stamp, steps, head, head_id, flags, kinds, checkpoints, size, created, updated,
        metadata, told, list(tags), list(pins), effects, fold, bodies, tuple(late),
    )  # fmt: skip


def unpack_told(key: int, vault: Vault, row: Sequence[Any]) -> tuple[str, bytes, Labels, Any, Any]:
    """Open what a listing tells of a thread: its name, metadata, tags and pins; the rest is for who writes it."""
    stamp, steps, head, head_id, flags, kinds, checkpoints, size, created, updated, body = row
    numbers = (stamp, steps, head, flags, kinds, checkpoints, size, created, updated)
    raw = vault.open(thread_place(key, numbers, head_id), body)
    name, metadata, counts, labels, *later = ormsgpack.unpackb(raw)  # rows of version 2 have nothing later
    tags, pins = labels or _NO_LABELS
    if labels and ({*map(type, tags)} - _TEXTS or {*map(type, pins)} - _WHOLE):
        raise ValueError(_OTHER_FORM)
    return decoded(as_a(bytes, name)), as_a(bytes, metadata), (tags, pins), counts, later[0] if later else None
