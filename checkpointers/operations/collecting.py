"""What of a thread nothing needs any more: elements that nothing refers to, bodies that nothing names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

import ormsgpack

from checkpointers.codec import Ref, covers, is_recipe, joined, spans
from checkpointers.compression import unsqueeze
from checkpointers.effects import Entry, body_id
from checkpointers.lineage import refs_of
from checkpointers.operations.bodies import covers_of
from checkpointers.operations.common import SELECT_ELEMENTS, STEP, Tools, checked, metadata_of
from checkpointers.operations.ledger import stored_entries
from checkpointers.operations.storing import recipes_of, resolved
from checkpointers.standing import Thread
from checkpointers.statements import Many, Statement, Statements

if TYPE_CHECKING:
    from checkpointers.operations.remove import Contents

READ_AT_A_TIME: Final = 256
LENGTH: Final = 64
_HEX: Final = re.compile(rb"[0-9a-f]{64,}")
Runs = Sequence[tuple[int, int]]


def used_elements(tools: Tools, found: Contents) -> Statements[dict[int, list[tuple[int, int]]]]:
    """Give the runs of elements that anything refers to, by channel, sorted and joined; recipes are elements too."""
    refs = [(tools.names.keys[channel], ref) for channel, ref in _refs(found)]
    long = {(key, tuple(ref)) for key, ref in refs if is_recipe(ref)}
    recipes = (yield from resolved(found.thread, long)) if long else {}
    runs: dict[int, set[tuple[int, int]]] = {}
    for key, ref in refs:
        if is_recipe(ref):
            runs.setdefault(recipes_of(key), set()).update((number, 1) for number in ref[1:])
        runs.setdefault(key, set()).update(spans(recipes[key, tuple(ref)] if is_recipe(ref) else ref))
    return {channel: joined(spans_) for channel, spans_ in runs.items()}


def _refs(found: Contents) -> Iterable[tuple[str, Ref]]:
    for record in found.records:
        yield from refs_of(record)
    for task in chain(found.noted, *found.writes.values()):
        for write in task.writes:
            yield write.channel, write.ref


def gaps_between(used: Iterable[tuple[int, int]], lowest: int, highest: int) -> list[tuple[int, int]]:
    """Give what is between these runs, from the lowest number to the highest."""
    gaps, free = [], lowest
    for first, last in used:
        if first > free:
            gaps.append((free, first - 1))
        free = max(free, last + 1)
    if free <= highest:
        gaps.append((free, highest))
    return gaps


def hashes_in(raw: bytes) -> set[str]:
    """Give every text in these bytes that may be the hash of a body."""
    return {
        found[0][start : start + LENGTH].decode()
        for found in _HEX.finditer(raw)
        for start in range(len(found[0]) - LENGTH + 1)
    }


def unused_bodies(
    tools: Tools, found: Contents, used: dict[int, list[tuple[int, int]]]
) -> Statements[dict[bytes, int]]:
    """Give the bodies that nothing of a thread needs that stays, by the print they stand under, with their bytes.

    A body is needed while its hash stands as text in anything that is kept: the values and writes of checkpoints, their
    metadata, the ledger. Their stored bytes are searched, which needs no help from the graph and cannot miss what a
    rule about its state would; it costs one reading of what is kept, and only threads pay it that have old bodies. One
    that was kept since the thread came to where it stands may be of a checkpoint that is still to be stored: it stays.
    So does every body of a saver whose serializer hides texts in other bytes.
    """
    thread = found.thread
    if not thread.standing.bodies or not tools.codec.searchable:
        return {}
    covered = yield from covers_of(thread)
    old = {cover.hash.hex() for cover in covered if cover.step < thread.standing.head}
    if old:
        for entry in (yield from stored_entries(thread)):
            old -= hashes_in(_text_of(entry))
        for raw in _texts_of(found):
            old -= hashes_in(raw)
    for channel, runs in used.items():
        for first in _starts(runs) if old and channel > 0 else ():
            old -= yield from _mentioned(thread, channel, first, runs)
    ids = {body_id(thread.vault, hash_) for hash_ in old}
    sizes = yield Statement(
        "SELECT hash, sum(length(body)) FROM cp_bodies WHERE thread = ? GROUP BY hash", (thread.key,)
    )
    return {id_: int(size or 0) for id_, size in sizes if id_ in ids}


def _text_of(entry: Entry) -> bytes:
    return ormsgpack.packb([entry.status, entry.record]) + entry.key.encode("utf-8", "replace")


def _texts_of(found: Contents) -> Iterator[bytes]:
    """Give the bytes of what is kept besides elements; values that stand in place are shorter than a hash."""
    kept = {record.step for record in found.records}
    for row in found.rows:
        if row[STEP] in kept:
            raw = metadata_of(found.thread, row)
            with checked(found.thread.name, "the checkpoint's metadata", row[STEP]):
                text = unsqueeze(raw)
            yield text
    yield from (record.extra for record in found.records if record.extra)


def _starts(runs: Runs) -> list[int]:
    """Give where to read from, in steps that sealed rows fit into."""
    every = READ_AT_A_TIME
    return sorted({start for first, last in runs for start in range(first - first % every, last + 1, every)})


def _mentioned(thread: Thread, channel: int, first: int, runs: Runs) -> Statements[set[str]]:
    """Give the hashes in some elements of a channel, of those that are needed."""
    stack = thread.stack(channel)
    rows = yield Many(SELECT_ELEMENTS, [(thread.key, channel, first, first + READ_AT_A_TIME - 1)])
    with checked(thread.name, "an element"):
        for _, number, body in rows:
            stack.add(number, body)
    needed = (payload for number, payload in stack.items() if covers(runs, number))
    return set[str]().union(*map(hashes_in, needed))
