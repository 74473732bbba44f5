"""The elements that are read of a thread, each once, and the values that are made of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from checkpointers.codec import RECIPE, Bundle, Ref, is_recipe, joined, spans
from checkpointers.errors import IntegrityError, StrictReadingError, UnreadableValueError
from checkpointers.errors import at as where
from checkpointers.operations.common import SELECT_BEGINNING, SELECT_ELEMENTS, Tools, absent, see_asked
from checkpointers.operations.storing import resolved
from checkpointers.segments import MissingElementError, Stack, start_of
from checkpointers.standing import Thread
from checkpointers.statements import Many, Row, Rows, Statement, Statements, Together

NOTHING: Final = Stack()
AHEAD: Final = 2  # what is written on a checkpoint mostly comes next: read with the state, it need not be asked for


@dataclass(frozen=True, slots=True)
class Wanted:
    """A reference and where it was found, so that an error can name it."""

    thread: str
    step: int | None
    channel: str
    ref: Ref


@dataclass(frozen=True, slots=True)
class Shelf:
    """The elements that were read of a thread, by channel, and the runs of the references that have recipes."""

    stacks: dict[int, Stack] = field(default_factory=dict)
    recipes: dict[tuple[int, Any], Ref] = field(default_factory=dict)

    def take(self, thread: Thread, rows: Rows) -> None:
        """Add rows of elements, of channels that were asked for."""
        see_asked(thread, {channel for channel, _, _ in rows} - self.stacks.keys(), set())
        for channel, number, body in rows:
            self.stacks[channel].take(number, body)

    def of(self, channel: int, ref: Ref) -> tuple[Ref, Stack]:
        """Give a reference with its runs in place, and the elements of its channel."""
        return self.recipes[channel, tuple(ref)] if is_recipe(ref) else ref, self.stacks.get(channel, NOTHING)

    def copy(self) -> Shelf:
        """Give another one with the same sound elements: one that is tried on may be thrown away."""
        return Shelf({key: stack.copy() for key, stack in self.stacks.items()}, dict(self.recipes))

    @property
    def weight(self) -> int:
        """Give about how many bytes this takes."""
        return sum(stack.weight for stack in self.stacks.values())

    def holds(self, tools: Tools, wanted: Iterable[tuple[str, Ref]]) -> bool:
        """Tell whether every element is here, and sound, that these references need; none is decoded for that."""
        keys = tools.names.keys
        each = {(channel, tuple(ref) if isinstance(ref, list) else ref): ref for channel, ref in wanted}
        needed = self._needed((keys[channel], ref) for (channel, _), ref in each.items())
        return all(self.stacks.get(key, NOTHING).holds(*run) for key, runs in needed.items() for run in joined(runs))

    def only(self, tools: Tools, wanted: Iterable[tuple[str, Ref]]) -> Shelf:
        """Give another one that has what these references need."""
        other, keys = Shelf(), tools.names.keys
        each = [(keys[channel], ref) for channel, ref in wanted]
        for key, ref in each:
            if is_recipe(ref):
                other.recipes[key, tuple(ref)] = self.of(key, ref)[0]
        needed = self._needed(each)
        for key in needed.keys() & self.stacks.keys():
            other.stacks[key] = self.stacks[key].only(joined(needed[key]))
        return other

    def _needed(self, wanted: Iterable[tuple[int, Any]]) -> dict[int, list[tuple[int, int]]]:
        """Give the runs of elements that references need, by the keys of their channels."""
        needed = dict[int, list[tuple[int, int]]]()
        for key, ref in wanted:
            needed.setdefault(key, []).extend(spans(self.of(key, ref)[0]))
        return needed


def fetch(tools: Tools, thread: Thread, wanted: Iterable[tuple[str, Ref]]) -> Statements[Shelf]:
    """Read every element that references of channels need, each once."""
    shelf = Shelf()
    yield from fill(tools, thread, shelf, wanted)
    return shelf


def fill(tools: Tools, thread: Thread, shelf: Shelf, wanted: Iterable[tuple[str, Ref]]) -> Statements[None]:
    """Read what these references need and is not on the shelf, each element once."""
    elements = yield from needs(tools, thread, shelf, wanted)
    if elements is not None:
        found, life = yield Together((elements, life_of(thread)))
        see_life(thread, life)
        shelf.take(thread, found)


def life_of(thread: Thread) -> Statement:
    """Ask when a thread began that is being read."""
    return Statement(SELECT_BEGINNING, (thread.key,))


def see_life(thread: Thread, rows: Rows) -> None:
    """See that elements are of the same life of a thread as its checkpoint: another one's stand in the same places."""
    if [began for (began,) in rows] != [thread.standing.created_at]:
        raise IntegrityError(thread.name, None, "it was removed while it was read")


def needs(tools: Tools, thread: Thread, shelf: Shelf, wanted: Iterable[tuple[str, Ref]]) -> Statements[Many | None]:
    """Ask for the elements that these references need and are not on the shelf; recipes are read at once."""
    keys = tools.names.keys
    refs = {
        (keys[channel], ref if type(ref) is int else tuple(ref)) for channel, ref in wanted if type(ref) is not bytes
    }
    long = {(key, ref) for key, ref in refs if type(ref) is tuple and ref[0] & RECIPE} - shelf.recipes.keys()
    if long:
        shelf.recipes.update((yield from resolved(thread, long)))
    ranges: dict[int, list[tuple[int, int]]] = {}
    for key, ref in refs:
        ranges.setdefault(key, []).extend(spans(shelf.recipes.get((key, ref), ref)))
    params: list[Row] = []
    for key, runs in ranges.items():
        stack, left = shelf.stacks.get(key), joined(runs)
        if stack is None:
            shelf.stacks[key] = thread.stack(key)
        else:
            left = [run for run in left if not stack.has(*run)]
        params += [(thread.key, key, start_of(first), last + AHEAD) for first, last in left]
    return Many(SELECT_ELEMENTS, params) if params else None


def decoded(
    tools: Tools, thread: Thread, step: int, wanted: Mapping[Any, tuple[str, Ref]], shelf: Shelf
) -> tuple[dict[Any, Any], Bundle | None]:
    """Make the values of references to channels, in one go where that can be; and give what they were decoded from."""
    keys = tools.names.keys
    try:
        bundle = tools.codec.bundle({name: shelf.of(keys[channel], ref) for name, (channel, ref) in wanted.items()})
        if bundle is not None:
            return tools.codec.unbundle(bundle), bundle
    except Exception:  # noqa: BLE001, S110  met again below, one by one, where its channel is known
        pass
    return {name: join(tools, Wanted(thread.name, step, *one), shelf) for name, one in wanted.items()}, None


def join(tools: Tools, want: Wanted, shelf: Shelf) -> Any:
    """Put one value together; an error names its place."""
    ref, stack = shelf.of(tools.names.keys[want.channel], want.ref)
    try:
        return tools.codec.join(ref, stack)
    except MissingElementError as error:
        raise absent(error, thread=want.thread, step=want.step, channel=want.channel) from error
    except StrictReadingError as error:
        error.where = f"channel {want.channel!r} of {where(want.thread, want.step)}"
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise UnreadableValueError(thread=want.thread, step=want.step, channel=want.channel, reason=reason) from error
