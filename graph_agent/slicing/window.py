"""What of a conversation the model is shown: the last turns, calls whole with their results, the rest summed up."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from graph_agent.slicing.cutting import NO_MARK, Counting, LeftOut, Size, cut, shares, utf8_bytes
from graph_agent.slicing.summary import sum_up

Message = Mapping[str, Any]

SUMMARY_ID: Final = "earlier"
OLDER: Final = "in an older turn"
NO_ROOM: Final = "no room left after newer ones"
NO_CALL: Final = "a result without its call"
NO_RESULT: Final = "a call that never got all its results"

_ENDS: Final = 2  # a turn's question and what came last: these are cut before either goes


@dataclass(frozen=True, slots=True)
class Window:
    """The messages to show, each with the id of its original, and what is not shown.

    `cut` names the messages that are shown in part. The summary of what is not shown has the id `"earlier"`.
    """

    messages: tuple[Message, ...]
    left_out: LeftOut
    cut: tuple[str, ...]
    size: int
    budget: int


@dataclass(frozen=True, slots=True)
class _Block:
    """Messages that are shown together or not at all: a call and its results, or one other message."""

    places: tuple[int, ...]
    messages: tuple[Message, ...]
    weight: int


def window(
    messages: Sequence[Message],
    budget: int,
    *,
    keep_turns: int = 5,
    size: Size = utf8_bytes,
    summary: str | None = None,
) -> Window:
    """Trim a conversation to a budget, counting of each message its content and the names and arguments of its calls.

    System messages stay. Of the last `keep_turns` turns, the newest that fit stay, the very last always. What goes is
    told in one short message: by `summary`, if a model wrote one, else by counts and the first words of each turn. A
    call with results missing stays only while nothing came after it: it is running. A result goes without its call,
    for a model refuses either alone. A message that takes more than half of a tight room is cut with a visible mark.
    """
    if keep_turns < 1:
        raise ValueError(f"keep_turns={keep_turns} would show nothing; keep at least the last turn")
    trim = _Trim(messages, budget, size)
    trim.system()
    turns = _turns(trim.blocks())
    trim.recent([block for turn in turns[:-keep_turns] for block in turn], turns[-keep_turns:])
    return trim.done(summary)


class _Trim:
    """A conversation that is being trimmed."""

    def __init__(self, messages: Sequence[Message], budget: int, size: Size) -> None:
        self.messages = messages
        self.budget = budget
        self.size = size
        self.room = budget
        self.shown: list[tuple[int, Message]] = []
        self.cut: list[int] = []
        self.gone: dict[int, str] = {}

    def system(self) -> None:
        """Show the system messages, cut only where they take more than half and the others need it."""
        own = [place for place, message in enumerate(self.messages) if _is_system(message)]
        others = sum(self._weight(message) for message in self.messages if not _is_system(message))
        limit = max(self.budget // 2, self.budget - others)
        fitted = self._fitted([self.messages[place] for place in own], limit)
        for place, message in zip(own, fitted, strict=True):
            if message is None:
                self.gone[place] = NO_MARK
            else:
                self._show(place, place, message)

    def blocks(self) -> list[_Block]:
        """Put calls and their results together; what has lost its other half goes."""
        gathered: dict[int, list[int]] = {}
        waiting: dict[str, int] = {}
        broken: set[int] = set()
        for place, message in enumerate(self.messages):
            home = waiting.pop(str(message.get("tool_call_id")), None) if message["role"] == "tool" else place
            if home is None:
                self.gone[place] = NO_CALL
            elif not _is_system(message):
                gathered.setdefault(home, []).append(place)
                for call in message.get("tool_calls") or ():
                    if (holder := waiting.get(call["id"], place)) != place:
                        broken.add(holder)
                    waiting[call["id"]] = place
        broken |= {home for home in waiting.values() if home != max(gathered)}
        for home in broken:
            self.gone |= dict.fromkeys(gathered[home], NO_RESULT)
        return [
            self._block(tuple(places), [self.messages[place] for place in places])
            for home, places in gathered.items()
            if home not in broken
        ]

    def recent(self, older: Iterable[_Block], turns: list[list[_Block]]) -> None:
        """Show the last turns, or as many of them as fit when room is kept for the summary of the others."""
        self._drop(older, OLDER)
        if self.gone or _total(turns) > self.room:
            turns = self._tightened(turns, self.room - self.room // 8)
        for block in (block for turn in turns for block in turn):
            for place, message in zip(block.places, block.messages, strict=True):
                self._show(block.places[0], place, message)

    def done(self, summary: str | None) -> Window:
        """Put everything in order, the summary where the first missing message stood, but before a running call."""
        left = Counting()
        for place, why in sorted(self.gone.items()):
            left.add(self.messages[place]["id"], self._weight(self.messages[place]), why)
        if self.gone:
            self._add_summary(summary)
        shown = tuple(message for _, message in sorted(self.shown, key=lambda pair: pair[0]))
        shortened = tuple(self.messages[place]["id"] for place in sorted(self.cut))
        return Window(shown, left.done(), shortened, self.budget - self.room, self.budget)

    def _tightened(self, turns: list[list[_Block]], room: int) -> list[list[_Block]]:
        if _total(turns) > room:
            turns = [[self._capped(block, room // 2) for block in turn] for turn in turns]
        while len(turns) > 1 and _total(turns) > room:
            self._drop(turns[0], NO_ROOM)
            turns = turns[1:]
        return [self._squeezed(turn, room) for turn in turns]

    def _squeezed(self, turn: list[_Block], room: int) -> list[_Block]:
        """Make the only turn fit: its oldest calls go before its question, and the two last blocks are cut evenly."""
        while turn:
            if len(turn) <= _ENDS or _total([turn]) <= room:
                fitted = self._cut_evenly(turn, room)
                if fitted:
                    return fitted
            oldest = 1 if len(turn) > 1 and turn[0].messages[0]["role"] == "user" else 0
            self._drop(turn[oldest : oldest + 1], NO_ROOM)
            turn = turn[:oldest] + turn[oldest + 1 :]
        return []

    def _cut_evenly(self, turn: list[_Block], room: int) -> list[_Block] | None:
        fitted = iter(self._fitted([message for block in turn for message in block.messages], room))
        cut_turn = []
        for block in turn:
            messages = [message for _, message in zip(block.messages, fitted, strict=False) if message is not None]
            if len(messages) < len(block.messages):
                return None
            cut_turn.append(self._block(block.places, messages))
        return cut_turn

    def _fitted(self, messages: Sequence[Message], room: int) -> list[Message | None]:
        """Cut contents to equal shares of the room that the calls' arguments leave; arguments cannot be cut."""
        contents = [self.size(message["content"]) for message in messages]
        free = room - sum(map(self._weight, messages)) + sum(contents)
        return [self._cut(message, share) for message, share in zip(messages, shares(contents, free), strict=True)]

    def _capped(self, block: _Block, most: int) -> _Block:
        return self._block(block.places, [self._cut(message, most) or message for message in block.messages])

    def _block(self, places: tuple[int, ...], messages: Sequence[Message]) -> _Block:
        return _Block(places, tuple(messages), sum(map(self._weight, messages)))

    def _cut(self, message: Message, room: int) -> Message | None:
        content = cut(message["content"], room, size=self.size)
        if content is None or content is message["content"]:
            return None if content is None else message
        return {**message, "content": content}

    def _add_summary(self, summary: str | None) -> None:
        text = sum_up([self.messages[place] for place in sorted(self.gone)], summary)
        content = cut(text, min(self.room, self.budget // 4), size=self.size)
        if content is None and not self.shown:
            content = cut(text, self.room, size=self.size) or "…"
        if content is not None:
            last_call = max(
                (order for order, message in self.shown if message.get("tool_calls")), default=min(self.gone)
            )
            place = min(last_call, *self.gone)
            self.shown.insert(0, (place, {"id": SUMMARY_ID, "role": "user", "content": content}))
            self.room -= self.size(content)

    def _show(self, order: int, place: int, message: Message) -> None:
        self.shown.append((order, message))
        self.room -= self._weight(message)
        if message is not self.messages[place]:
            self.cut.append(place)

    def _drop(self, blocks: Iterable[_Block], why: str) -> None:
        self.gone |= {place: why for block in blocks for place in block.places}

    def _weight(self, message: Message) -> int:
        calls = message.get("tool_calls") or ()
        return self.size(message["content"]) + sum(
            self.size(call["name"]) + self.size(_written(call)) for call in calls
        )


def _total(turns: Iterable[Iterable[_Block]]) -> int:
    return sum(block.weight for turn in turns for block in turn)


def _written(call: Mapping[str, Any]) -> str:
    return json.dumps(call.get("args", {}), ensure_ascii=False, default=str)


def _is_system(message: Message) -> bool:
    return message["role"] in {"system", "developer"}


def _turns(blocks: Iterable[_Block]) -> list[list[_Block]]:
    """Divide at each user message; what stands before the first is a turn of its own."""
    turns: list[list[_Block]] = []
    for block in blocks:
        if not turns or block.messages[0]["role"] == "user":
            turns.append([])
        turns[-1].append(block)
    return turns
