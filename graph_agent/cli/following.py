"""Steps as they come: tail. It looks at the rows of the database a few times a second, and keeps next to nothing."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from graph_agent.cli import codes, desk, paper
from graph_agent.cli.desk import AnyThread, Db, Json
from graph_agent.cli.rows import Row, rows_of

if TYPE_CHECKING:
    from checkpointers.reader import Reader
    from checkpointers.threads import ThreadInfo

PAUSE: Final = 0.2
KEPT: Final = 10_000
BEFORE: Final = 16  # among so many steps before a new one is the one that it was made from, but for forks
OVERLAP: Final = timedelta(seconds=5)  # clocks of writers differ a little; what was seen is not told twice
LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)
Seen = tuple[int, str, datetime]
Standing = Literal["running", "waiting", "failed", "pending", "done"]


@dataclass
class Watch:
    """What was told already: of each of the threads that were written last, its newest step and how that stood.

    `held` are those of the last look that somebody was running.
    """

    reader: Reader
    thread: str | None
    seen: OrderedDict[str, Seen] = field(default_factory=OrderedDict)
    since: datetime = LONG_AGO
    began: datetime = LONG_AGO
    held: set[str] = field(default_factory=set)

    def threads(self) -> list[ThreadInfo]:
        """Give the threads that were written since the last look, the longest ago first."""
        since = self.since - OVERLAP if self.seen else None
        found = [one for one in self.reader.threads(since=since) if self.thread in (None, one.thread)]
        self.since = max([self.since, *(one.updated_at for one in found)])
        self.held = {one.thread for one in found if one.holder}
        return list(reversed(found))

    def begin(self, count: int) -> list[Row]:
        """Take note of where all threads stand; give the last steps."""
        found = self.threads()
        self.began = self.since
        self._note(found)
        last = found[len(found) - count :] if count else []
        rows = [row for one in last for row in self._rows(one, max(0, one.step - count))]
        return sorted(rows, key=lambda row: row.at)[-count:] if count else []

    def look(self) -> list[Row]:
        """Give what came since, in the order of each thread; a step that stands otherwise now comes again."""
        rows: list[Row] = []
        for one in self.threads():
            number, status, at = self.seen.get(one.thread) or self._unseen(one)
            if one.step < number or one.created_at > at:  # deleted since, and begun again
                number = 0
            if (one.step, one.status) == (number, status):
                continue
            rows += self._rows(one, number - 1 if number == one.step else number)
            self._note([one])
        return rows

    def _unseen(self, one: ThreadInfo) -> Seen:
        """Of a thread that was there before, but long ago, only the newest step is news."""
        return (0 if one.created_at > self.began else one.step - 1), "", one.updated_at

    def _rows(self, one: ThreadInfo, after: int) -> list[Row]:
        tasks = self.reader.tasks(one.thread)
        rows = rows_of(one.thread, self.reader.steps(one.thread, after=max(0, after - BEFORE)), tasks)
        if any(row.number > after and row.before is None and row.info.parent_id for row in rows):
            rows = rows_of(one.thread, self.reader.steps(one.thread), tasks)
        return [row for row in rows if row.number > after]

    def stands(self, thread: str, so: Standing) -> bool:
        """Tell whether a thread stood so at the last look."""
        if so == "running":
            return thread in self.held
        return thread in self.seen and self.seen[thread][1] == so

    def came(self, rows: list[Row], so: Standing) -> bool:
        """Tell whether one that is new stands so."""
        return bool(self.held) if so == "running" else any(row.status == so for row in rows)

    def _note(self, found: list[ThreadInfo]) -> None:
        for one in found:
            self.seen[one.thread] = (one.step, one.status, one.updated_at)
            self.seen.move_to_end(one.thread)
        while len(self.seen) > KEPT and next(iter(self.seen.values()))[2] < self.since - OVERLAP:
            self.seen.popitem(last=False)


def tail(
    thread: AnyThread = None, db: Db = desk.DEFAULT_DB,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for new steps; Ctrl-C ends it.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many of the last steps to begin with.")] = 10,
    until: Annotated[Standing | None, typer.Option(help="Follow until a thread stands so.")] = None,
    seconds: Annotated[float | None, typer.Option("--for", help="Follow for so many seconds.")] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Show the last steps; with -f new ones as other processes write them, a line for each."""
    end = None if seconds is None else time.monotonic() + seconds
    with desk.reader(db) as reader:
        if thread is not None and not follow and not reader.usage(thread):
            raise desk.unknown(thread, db)
        watch = Watch(reader, thread)
        rows = watch.begin(lines)
        _told(rows, as_json=as_json)
        if until is not None and thread is not None and watch.stands(thread, until):
            return
        while follow or until is not None or end is not None:
            if end is not None and time.monotonic() >= end:
                if until is not None:
                    raise typer.Exit(codes.NOT_FOUND)
                return
            time.sleep(PAUSE)
            rows = watch.look()
            _told(rows, as_json=as_json)
            if until is not None and watch.came(rows, until):
                return


def _told(rows: list[Row], *, as_json: bool) -> None:
    if as_json:
        paper.stream(row.record() for row in rows)
        return
    for row in rows:
        print("  ".join(paper.line(part) for part in _parts(row)), flush=True)


def _parts(row: Row) -> Iterator[str]:
    yield f"{row.at:%Y-%m-%d %H:%M:%S}"
    yield str(row)
    yield row.status
    yield ", ".join(row.nodes) or row.source
