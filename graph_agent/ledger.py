"""Effects: each is claimed before it is made and recorded after; a claim without an outcome is in doubt.

The ledger's rows stand in the database of a saver of ours, so a claim is committed before the effect begins, under the
lease of the thread. What becomes of a claim that is met again is decided by `rule_of`, a table.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal
from weakref import WeakValueDictionary

from checkpointers import Entry, EntryMovedError, Ledger, Saver
from graph_agent.errors import SetupError
from graph_agent.running import Ended, MayStillRunError
from graph_agent.tools import Tool

Rule = Literal["run", "again", "recorded", "late", "probe", "settled", "abandoned", "ask"]
Record = Mapping[str, Any]
KIND: Final = "in_doubt"
RUNNING: Final = "it was not waited for any longer, and may still be running"
CUT_OFF: Final = "it was begun, and nobody knows what came of it"
LATE: Final = "it came to its end late, and this was its result"
_LATE: Final[dict[tuple[Hashable, str], Future[Ended]]] = {}  # of all agents of this process


@dataclass(frozen=True, slots=True)
class Claim:
    """An effect that was claimed, what is to be done about it, and why if that is not simply to make it."""

    entry: Entry
    rule: Rule
    why: str = ""

    @property
    def key(self) -> str:
        """Give the key that it was begun under: of what a fork took over, that of its source."""
        return str(self.entry.record.get("key", self.entry.key))

    @property
    def attempt(self) -> int:
        """Count how often it was begun."""
        return int(self.entry.record["attempt"])


@dataclass(frozen=True, slots=True)
class Means:
    """How an effect in doubt can be settled: by its key, by a probe, by what a person said."""

    takes_key: bool = False
    has_probe: bool = False
    review: Record | None = None

    @classmethod
    def of(cls, one: Tool, call: Record) -> Means:
        """Give those of a call."""
        return cls(one.takes_key, one.probe is not None, call.get("review"))

    def verdict(self, attempt: int) -> Record:
        """Give what a person said of this attempt; of an earlier one it does not count."""
        said = self.review or {}
        return said if said.get("kind") == KIND and said.get("attempt") == attempt and "answer" in said else {}


def rule_of(entry: Entry, means: Means, *, running: bool = False) -> tuple[Rule, str]:
    """Decide what becomes of an effect that was claimed before: the table of the documentation."""
    record, status, attempt = entry.record, entry.status, entry.record["attempt"]
    source = f" in thread {record['from']!r}" if "from" in record else ""
    known: dict[str, tuple[Rule, str]] = {
        "done": ("recorded", f"not run again: it was done{source} at {record['at']}, and this was recorded then"),
        "failed": ("run", f"begun again: attempt {attempt} failed"),
        "asking": ("run", "begun again: it had asked a person"),
        "undone": ("run", "begun again: it was taken back"),
        "rejected": ("run", ""),
    }
    if status in known:
        return known[status]
    said = means.verdict(attempt)
    if running and said.get("answer") not in ("done", "abandon"):
        return "ask", RUNNING
    if said:
        return _as_said(said, attempt)
    if status == "claimed" and means.takes_key:
        return "again", "run again under the same key: who carries it out knows what was done"
    if status == "claimed" and means.has_probe:
        return "probe", "its probe was asked"
    return "ask", f"it was done{source} at {record['at']}" if status == "ask" else CUT_OFF


def _as_said(said: Record, attempt: int) -> tuple[Rule, str]:
    told = f"{said.get('by', 'user')} said of attempt {attempt}"
    answers: dict[str, tuple[Rule, str]] = {
        "done": ("settled", f"{told} that it was done"),
        "not_done": ("run", f"begun again: {told} that it was not done"),
        "abandon": ("abandoned", f"{told} to leave it be"),
    }
    return answers[said["answer"]]


def key_of(thread: str, call: Record, one: Tool) -> str:
    """Name the effect of a call: the same for retries, resumes, and plans that keep the step."""
    turn = call.get("turn", 1)
    step = call.get("step", "") if turn == 1 else f"{call.get('step', '')}~{turn}"
    return f"{thread}:{step}:{one.name}:{one.identity(call['args'], call['id'])}"


def _key_again(entry: Entry) -> dict[str, str]:
    """Say under which key an effect is begun again, where that is not simply its own.

    Who carries it out knows the key of what was taken back, and would not make it again. What a fork took over in doubt
    and began again may have been made, so its key stays; what is known not to be made gets the fork's own.
    """
    record = entry.record
    if entry.status == "undone":
        return {"key": f"{entry.key}:{record['attempt'] + 1}"}
    if "key" not in record or ("from" in record and entry.status not in ("failed", "asking")):
        return {}
    return {"key": record["key"]}


def _home_of(keeper: Saver | None) -> Hashable:
    """Say whose books these are: two savers of this process on one database of one tenant have the same."""
    if keeper is None:
        return object()
    if ":memory:" in keeper.database.place:
        return keeper
    return os.getpid(), keeper.database.place, keeper.database.tenant


class Effects:
    """The ledger of an agent, and the bodies that it keeps beside the state; with a saver of others maybe none."""

    def __init__(self, keeper: Saver | None, *, clock: Callable[[], float]) -> None:
        """Keep the books in the database of a saver of ours."""
        self.ledger: Ledger | None = keeper.ledger if keeper is not None else None
        self._clock = clock
        self._alone: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()
        self._home = _home_of(keeper)

    @property
    def books(self) -> Ledger:
        """Give the ledger; raises where there is none."""
        if self.ledger is None:
            raise SetupError("there is no ledger of effects: pass ledger='sqlite:///effects.db', or use our savers")
        return self.ledger

    @asynccontextmanager
    async def alone(self, key: str) -> AsyncIterator[None]:
        """Let calls of one run that are the same effect wait for one another."""
        slot = (id(asyncio.get_running_loop()), key)
        async with self._alone.setdefault(slot, asyncio.Lock()):
            yield

    async def claim(self, thread: str, key: str, record: Record, means: Means) -> Claim:
        """Claim an effect, or tell what is to become of the claim that stands there."""
        first = {**record, "attempt": 1, "at": self.now()}
        while True:
            entry, fresh = await self.books.aclaim(thread, key, first)
            if fresh:
                return Claim(entry, "run")
            late = _LATE.get((self._home, Claim(entry, "run").key))
            rule, why = rule_of(entry, means, running=late is not None and not late.done())
            if entry.status == "claimed" and late is not None and late.done():
                rule, why = "late", LATE
            claim = Claim(entry, rule, why)
            try:
                return await self.begin_again(claim, record) if rule == "run" else claim
            except EntryMovedError:  # another process settled it since: look again
                continue

    async def begin_again(self, claim: Claim, record: Record, why: str = "") -> Claim:
        """Claim another attempt of an effect that is known not to be made."""
        fields = {**record, **_key_again(claim.entry), "attempt": claim.attempt + 1, "at": self.now()}
        entry = await self.books.achange(claim.entry, status="claimed", record=fields)
        _LATE.pop((self._home, claim.key), None)
        return Claim(entry, "run", why or claim.why)

    async def record(self, claim: Claim, status: str, facts: Record, *, bodies: Sequence[bytes] = ()) -> Claim:
        """Note what came of it, with the bodies that the facts refer to, in one commit."""
        fields = {**claim.entry.record, **facts, "at": self.now()}
        entry = await self.books.achange(claim.entry, status=status, record=fields, bodies=bodies)
        if (late := _LATE.get((self._home, claim.key))) is not None and late.done():
            del _LATE[self._home, claim.key]
        return Claim(entry, claim.rule, claim.why)

    def still_running(self, key: str, error: BaseException | None) -> None:
        """Remember a call that could not be stopped: it is not begun again as long as it runs."""
        if isinstance(error, MayStillRunError):
            _LATE[self._home, key] = error.ended

    def running(self, key: str) -> bool:
        """Tell whether a call that only reads, and could not be stopped, is still running."""
        late = _LATE.get((self._home, key))
        if late is not None and late.done():
            del _LATE[self._home, key]
            return False
        return late is not None

    def ended(self, claim: Claim) -> Any:
        """Give what a call returned that came to its end late, or raise what it raised."""
        result, error = _LATE[self._home, claim.key].result()
        if error is not None:
            raise error
        return result

    async def keep(self, thread: str, bodies: Sequence[bytes]) -> None:
        """Keep bodies beside the state, before the state refers to them."""
        for body in bodies:
            await self.books.akeep(thread, body)

    def now(self) -> str:
        """Give the time as it is written into records."""
        return datetime.fromtimestamp(self._clock(), UTC).isoformat()
