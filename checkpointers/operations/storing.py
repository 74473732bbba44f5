"""Storing values: which elements of a value are new, what their numbers are, what refers to them.

The road of a value: taken apart with a fingerprint of each element; compared with the last value of its channel
(almost always a prefix of it); what is left is looked up among the known elements of the channel; only what is
still unknown is serialized, and after a restart compared with what is stored before it is stored again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from checkpointers.codec import (
    DICT,
    LIST,
    LONG_RUNS,
    RECIPE,
    SNAPSHOT,
    Parts,
    Ref,
    extend,
    is_recipe,
    numbers,
    pack_recipe,
    reference,
    resolve,
    spans,
)
from checkpointers.compression import squeeze, unsqueeze
from checkpointers.errors import UnstorableValueError
from checkpointers.memory import Imprint, Recipe, Slot, ThreadMemory
from checkpointers.operations.common import SELECT_ELEMENTS, Tools, absent, checked
from checkpointers.records import Base, Record
from checkpointers.sealing import element_place
from checkpointers.segments import SEAL, MissingElementError, Stack, seal, start_of
from checkpointers.standing import Thread
from checkpointers.statements import Many, Statements

if TYPE_CHECKING:
    from langgraph.checkpoint.base import DeltaChannelHistory

TAIL: Final = 2
LOOSE: Final = 512  # squeezed alone, fewer bytes take longer to read than as they are; their segment squeezes them
RECIPES_PER_BASE: Final = 64
RECIPE_GAIN: Final = 3


@dataclass(slots=True)
class Elements:
    """The new elements that one write is going to store, as payloads by channel and number.

    Where they are `of_tasks`, that there are none is said too: a server learns one statement for all such writes.
    """

    of_tasks: bool = False
    payloads: dict[int, dict[int, bytes]] = field(default_factory=dict)
    rows: list[tuple[int, int, bytes]] = field(default_factory=list)
    sealed: list[tuple[int, int, bytes]] = field(default_factory=list)
    replaced: list[tuple[int, int, int]] = field(default_factory=list)
    freed: int = 0

    def add(self, channel: int, number: int, payload: bytes) -> None:
        """Add an element."""
        self.payloads.setdefault(channel, {})[number] = payload

    @property
    def bytes(self) -> int:
        """Give by how much this grows the thread."""
        return sum(len(body) for rows in (self.rows, self.sealed) for _, _, body in rows) - self.freed


def finish(memory: ThreadMemory, new: Elements) -> Statements[None]:
    """Turn the new elements into rows, joining every segment that they complete."""
    new.rows, new.sealed, new.replaced, new.freed = [], [], [], 0
    thread, vault = memory.key, memory.vault
    for channel, payloads in new.payloads.items():
        complete = {start_of(number) for number in payloads if number % SEAL == SEAL - 1}
        for start in sorted(complete):
            segment, stored = yield from _segment(memory, channel, start, payloads)
            if len(segment) == SEAL:
                new.freed += stored
                body = seal([segment[start + index] for index in range(SEAL)])
                new.sealed.append((channel, start, vault.seal(element_place(thread, channel, start), body)))
                new.replaced.append((channel, start + 1, start + SEAL - 1))
        done = {start for key, start, _ in new.sealed if key == channel}
        loose = [number for number in payloads if start_of(number) not in done]
        new.rows += [
            (channel, number, vault.seal(element_place(thread, channel, number), squeeze(payloads[number], LOOSE)))
            for number in loose
        ]


def _segment(
    memory: ThreadMemory, channel: int, start: int, fresh: dict[int, bytes]
) -> Statements[tuple[dict[int, bytes], int]]:
    """Gather the elements of a segment: the new ones, and those stored before, with the bytes that these take."""
    stored = 0
    found = {number: payload for number, payload in fresh.items() if start_of(number) == start}
    if len(found) < SEAL and memory.exists:
        rows = yield Many(SELECT_ELEMENTS, [(memory.key, channel, start, start + SEAL - 1)])
        with checked(memory.name, "elements"):
            place, opened = element_place, memory.vault.open
            found |= {number: unsqueeze(opened(place(memory.key, channel, number), body)) for _, number, body in rows}
        stored = sum(len(body) for _, _, body in rows)
    return found, stored


def store_value(
    tools: Tools, memory: ThreadMemory, new: Elements, *, ns: str, channel: str, value: Any, parent: Ref | None
) -> Statements[Ref]:
    """Give the reference of a channel's value, with its new elements added to `new`."""
    last = memory.last.get((ns, channel))
    parts = tools.codec.split(channel, value, last.prints if last else None)
    if isinstance(parts, bytes):
        memory.last.pop((ns, channel), None)
        return parts
    if last is not None and _appended(parts, last):
        runs, done = list(last.runs), len(last.prints)
    else:
        yield from _recognize(tools, memory, channel=channel, parts=parts, parent=parent, last=last)
        runs, done = [], 0
    _number(tools, memory, new, channel=channel, parts=parts, runs=runs, done=done)
    stands = tuple(runs)
    if last is not None and last.runs == stands and last.kind == parts.kind:
        ref = last.ref
    elif len(runs) > LONG_RUNS:
        ref = _store_recipe(tools, memory, new, slot=(ns, channel), kind=parts.kind, runs=runs)
    else:
        ref = reference(parts.kind, runs)
    memory.imprint(ns, channel, Imprint(parts.prints, parts.kind, stands, ref, parts.bytes))
    return ref


def _store_recipe(tools: Tools, memory: ThreadMemory, new: Elements, *, slot: Slot, kind: int, runs: list[int]) -> Ref:
    """Store many runs beside the elements, as what differs from an earlier recipe while that is little."""
    key = recipes_of(tools.names.keys[slot[1]])
    number = memory.counts.get(key, 0)
    memory.counts[key] = number + 1
    base, payload = memory.recipes.get(slot), pack_recipe(runs)
    if base is not None and base.uses < RECIPES_PER_BASE:
        difference = pack_recipe(runs, base.payload)
        if RECIPE_GAIN * len(difference) < len(payload):
            base.uses += 1
            new.add(key, number, difference)
            return [RECIPE | kind, base.number, number]
    new.add(key, number, payload)
    memory.recipes[slot] = Recipe(number, payload)
    return [RECIPE | kind, number, number]


def store_write(tools: Tools, memory: ThreadMemory, new: Elements, *, channel: str, value: Any) -> Ref:
    """Give the reference of a value that a task wrote; the checkpoint made from it will find its elements known."""
    parts = tools.codec.split(channel, value)
    if isinstance(parts, bytes):
        return parts
    runs: list[int] = []
    _number(tools, memory, new, channel=channel, parts=parts, runs=runs, done=0)
    return reference(parts.kind, runs)


def store_told(tools: Tools, memory: ThreadMemory, new: Elements, *, channel: str, told: DeltaChannelHistory) -> Base:
    """Give what stands for what a DeltaChannel was told by ancestors that are not stored."""

    def ref(value: Any) -> Ref:
        return store_write(tools, memory, new, channel=channel, value=value)

    seed = ref(told["seed"]) if "seed" in told else None
    return Base(seed, [(task, ref(value)) for task, _, value in told["writes"]])


def _appended(parts: Parts, last: Imprint) -> bool:
    """Tell whether a value is the last one with something at its end; most are."""
    return last.kind == parts.kind and parts.prints.begins_with(last.prints)


def _number(
    tools: Tools, memory: ThreadMemory, new: Elements, *, channel: str, parts: Parts, runs: list[int], done: int
) -> None:
    known = memory.known_of(channel)
    key = tools.names.keys[channel]
    for index, print_ in enumerate(parts.prints.since(done), done):
        number = known.numbers.get(print_)
        if number is None:
            number = memory.counts.get(key, 0)
            new.add(key, number, tools.codec.payload(channel, parts.chunks[index]))
            memory.counts[key] = number + 1
            known.add(print_, number)
        extend(runs, number)


def _recognize(
    tools: Tools, memory: ThreadMemory, *, channel: str, parts: Parts, parent: Ref | None, last: Imprint | None
) -> Statements[None]:
    """Find elements that are stored but not remembered: after a restart, or on a fork from an older checkpoint."""
    known = memory.known_of(channel)
    strange = [(index, print_) for index, print_ in enumerate(parts.prints) if print_ not in known.numbers]
    if not strange or (last is not None and parent == last.ref):
        return
    key = tools.names.keys[channel]
    if parent is not None and is_recipe(parent) and memory.exists:
        parent = (yield from resolved(memory.as_thread(), {(key, tuple(parent))}))[key, tuple(parent)]
    ranges = _worth_reading(memory, key, parts, parent)
    if not ranges:
        return
    stack = memory.as_thread().stack(key)
    rows = yield Many(SELECT_ELEMENTS, [(memory.key, key, start_of(a), b) for a, b in ranges])
    for _, number, body in rows:
        stack.take(number, body)
    stored = {payload: number for number, payload in stack.items()}
    for index, print_ in strange:
        number = stored.get(tools.codec.payload(channel, parts.chunks[index]))
        if number is not None:
            known.add(print_, number)


def learn(tools: Tools, memory: ThreadMemory, record: Record, values: Mapping[str, Any]) -> None:
    """Remember a checkpoint just read as what is stored last, so that going on from it need not recognize it."""
    memory.remember(record)
    for channel, value in values.items():
        ref = record.refs.get(channel)
        if type(ref) is not list or ref[0] not in (LIST, DICT):
            continue
        try:
            parts = tools.codec.split(channel, value)
        except UnstorableValueError:
            continue
        # What was taken apart otherwise than it is now is left to be recognized.
        if isinstance(parts, Parts) and len(parts.prints) == sum(ref[2::2]):
            memory.known_of(channel).add_all(parts.prints, numbers(ref[1:]))
            memory.imprint(record.ns, channel, Imprint(parts.prints, ref[0], tuple(ref[1:]), ref, parts.bytes))


def recipes_of(key: int) -> int:
    """Give the channel key under which the recipes of a channel are stored."""
    return -key


def resolved(of: Thread, wanted: set[tuple[int, Any]]) -> Statements[dict[tuple[int, Any], Ref]]:
    """Read the recipes of references, in one request, and give each with its runs in place."""
    ranges = sorted({(recipes_of(key), number) for key, ref in wanted for number in ref[1:]})
    params = [(of.key, key, start_of(number), number) for key, number in ranges]
    stacks: dict[int, Stack] = {}
    rows = yield Many(SELECT_ELEMENTS, params)
    for channel, number, body in rows:
        if channel not in stacks:
            stacks[channel] = of.stack(channel)
        stacks[channel].take(number, body)
    try:
        with checked(of.name, "a recipe"):
            return {(key, ref): resolve(ref, stacks.get(recipes_of(key), Stack())) for key, ref in wanted}
    except MissingElementError as error:
        raise absent(error, thread=of.name, step=None, channel="(recipes)") from error


def _worth_reading(memory: ThreadMemory, key: int, parts: Parts, parent: Ref | None) -> list[tuple[int, int]]:
    count = memory.counts.get(key, 0)
    if not memory.exists or not count:
        return []
    if parent is not None:
        return [(first, first + length - 1) for first, length in spans(parent)]
    if parts.kind & SNAPSHOT:
        return [(max(0, count - TAIL * len(parts.prints)), count - 1)]
    return []
