"""History: what a thread knew at each step, what each step changed, who changed it; from stored rows alone."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args

from checkpointers.comparing import Comparison, compare_runs, diff_of
from checkpointers.diffing import Diff, Kind, kind_of, same, told
from checkpointers.errors import HistoryError, UnknownPathError, UnknownStepError
from checkpointers.exporting import as_document, as_markdown, as_python, as_text
from checkpointers.logs import Line, log
from checkpointers.news import news_of
from checkpointers.paths import ABSENT, Part, look, near, parse
from checkpointers.plain import visible
from checkpointers.searching import EVERYWHERE, Found, Place, Search, Where, pattern_of, places_of
from checkpointers.show import Shows
from checkpointers.step import Step
from checkpointers.threads import counted
from checkpointers.timeline import LOADED, Timeline, Told, internal

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver

    from checkpointers.show.cards import Card

SHOWN = 5
Form = Literal["json", "markdown", "html", "python"]


@dataclass(frozen=True, slots=True)
class Blame:
    """One time that a value was set: by which step and nodes, when, from what to what."""

    step: int
    nodes: tuple[str, ...]
    source: str
    at: datetime
    before: Any
    after: Any
    kind: Kind

    def __str__(self) -> str:
        """Say it in a line."""
        who = ", ".join(self.nodes) or self.source
        values = told(self.kind, self.before, self.after)
        return visible(f"@{self.step}  {self.at:%Y-%m-%d %H:%M:%S}  {who}  {self.kind}  {values}")


class History(Shows):
    """The steps of a thread, oldest first, from any LangGraph saver; up to the newest of when this was made.

    `history[3]` is the step with the number 3, `history[-1]` the newest. Nothing of it writes or needs the graph.
    """

    step_type: ClassVar[type[Step]] = Step
    timeline_type: Callable[[BaseCheckpointSaver[Any], str, str, int | None], Timeline] = Timeline

    def __init__(
        self, saver: BaseCheckpointSaver[Any], thread: str, *, ns: str = "", newest: int | None = None
    ) -> None:
        """Stand for the steps of a thread, or only the `newest`; `ns` is the namespace of a subgraph."""
        self._timeline = self.timeline_type(saver, str(thread), ns, newest)

    @property
    def thread(self) -> str:
        """The name of the thread."""
        return self._timeline.thread

    def __len__(self) -> int:
        """Count the steps."""
        return len(self._timeline.infos)

    def __iter__(self) -> Iterator[Step]:
        """Go through the steps, oldest first."""
        return (self.step_type(self._timeline, info) for info in self._timeline.infos.values())

    def __getitem__(self, number: int) -> Step:
        """Give a step by its number, or from the newest back."""
        return self.step_type(self._timeline, self._timeline.numbered(number))

    def __repr__(self) -> str:
        """Say whose history it is, and how long."""
        numbers = list(self._timeline.infos)
        return f"<History {self.thread!r}: {len(self)} steps, {numbers[0]} to {numbers[-1]}>"

    def _card(self) -> Card:
        from checkpointers.drawing import history_card  # noqa: PLC0415  loaded by who looks

        return history_card(self)

    def at(self, address: str | int) -> Step:
        """Give the step at an address: `THREAD@3`, `THREAD@-1`, `3`, or the beginning of a checkpoint's id."""
        thread, separator, rest = str(address).rpartition("@")
        if separator and thread not in ("", self.thread):
            msg = f"{address!r} is of thread {thread!r}; this is the history of {self.thread!r}"
            raise UnknownStepError(msg)
        if re.fullmatch(r"-?\d{1,10}", rest):
            try:
                return self[int(rest)]
            except UnknownStepError:  # digits alone may also begin an id
                if not self._like(rest):
                    raise
        found = [rest] if rest in self._timeline.by_id else self._like(rest)
        if len(found) == 1:
            return self.step_type(self._timeline, self._timeline.by_id[found[0]])
        known = f"begins {len(found)} ids: {', '.join(found[:SHOWN])}" if found else "begins no checkpoint's id"
        newest = f"{self.thread}@{self._timeline.head.number}"
        msg = visible(f"{rest!r} is no step of thread {self.thread!r}: it {known}; the newest step is {newest}")
        raise UnknownStepError(msg)

    def diff(self, before: int | Step, after: int | Step) -> Diff:
        """Say what changed between two steps, one of which may be another thread's; false if nothing did."""
        old, new = (step if isinstance(step, Step) else self[step] for step in (before, after))
        return diff_of(old, new)

    def compare(self, other: History | Step) -> Comparison:
        """Put this run and another side by side: where they part, step by step, and what each took.

        A step stands for the way that led to it: `history.compare(history[7])` compares two branches.
        """
        return compare_runs(self[-1], other if isinstance(other, Step) else other[-1])

    def log(self, *others: History, failed: bool = False) -> list[Line]:
        """Give the steps, oldest first, with their lanes: forks within the thread, and of it into other threads."""
        return log([self, *others], failed=failed)

    def grep(
        self, wanted: str | re.Pattern[str], *, where: Where | Sequence[Where] = EVERYWHERE, limit: int = 100
    ) -> Found:
        """Find a text or a pattern in states, writes and metadata: each value where it first appeared, line by line.

        An item of a list that has no id is the same as long as it says the same. Keys are not searched. Of more
        matches than `limit` only the number is told. With `newest` what stood before the first step that was read
        is told there; what is found says `since` which step that is.
        """
        counted("limit", limit, least=0)
        since = min(self._timeline.infos) if self._timeline.older else None
        search = Search(pattern_of(wanted), limit, places_of(where), since)
        states = bool({"state", "writes"} & set(search.where))
        history = self._gathered() if states else self
        news = news_of(self._timeline.gathered()) if states else None
        for step in history:
            search.look(step.number, "metadata", ((Place.of(key), value) for key, value in step.metadata.items()))
            if news is not None:
                search.look(step.number, "state", news.state(step))
                search.look(step.number, "writes", news.writes(step))
        return search.found()

    def blame(self, path: str, *, step: int = -1) -> list[Blame]:
        """Say which steps set the value at a path, the newest first, on the way from the first step to the head.

        With `step` it is the way to that one, which may be on another branch.

        A path is `facts.build.text`: keys, ids of list items, attributes; `log[0]` is an index, `facts["a.b"]` a key
        with a dot in it.
        """
        parts = parse(path)
        chain = (self[step] if step != -1 else self._at_head()).ancestry[::-1]
        written = [one for one in chain if one.rewrote(str(parts[0]))]
        if len(parts) > 1 and len(written) > LOADED:
            whole = self._gathered()
            shared = [blamed for one in written for blamed in _blamed(whole[one.number], parts)]
            found = [replace(one, before=deepcopy(one.before), after=deepcopy(one.after)) for one in shared]
        else:
            found = [blamed for one in written for blamed in _blamed(one, parts)]
        if not found and look(chain[0].values, parts) is ABSENT:
            raise UnknownPathError(path, f"thread {self.thread!r}", near(chain[0].values, parts))
        return found

    def _at_head(self) -> Step:
        return self.step_type(self._timeline, self._timeline.stands_at)

    def bisect(self, predicate: Callable[[Step], object]) -> Step | None:
        """Find the first step for which this is true, on the way to the head; None if it is never true.

        It must stay true once it is. Of n steps at most log2(n) + 1 are looked at. With `newest` it is an error if it
        was true before the first step that was read.
        """
        chain = [self.step_type(self._timeline, info) for info in self._timeline.way()]
        place = bisect_left(range(len(chain)), x=True, key=lambda index: bool(predicate(chain[index])))
        if place == 0 and chain[0].number not in self._timeline.infos:
            read = f"of thread {self.thread!r} only the newest {self._timeline.newest} steps were read"
            raise HistoryError(f"this is true at {chain[0]} already, and {read}; ask a History without newest=")
        return chain[place] if place < len(chain) else None

    def export(self, form: Form = "json", *, redact: bool = True, step: int = -1) -> str:
        """Hand the thread on: as "json", which `import_thread` takes, as "markdown" for a model, as "html" or "python".

        The page is one file with nothing from elsewhere; the Python code makes the state of one `step` again. Secrets
        are taken out, by the names of their keys and by what they look like, unless `redact` is false; what garbles a
        screen is written by its number.
        """
        if form == "markdown":
            return as_markdown(list(self._gathered()), thread=self.thread, redact=redact)
        if form == "html":
            from checkpointers.drawing import export_html  # noqa: PLC0415  loaded by who looks

            return export_html(self, redact=redact)
        if form == "python":
            return as_python(self[step], redact=redact)
        if form != "json":
            raise HistoryError(f"there is no export as {form!r}; there are {', '.join(get_args(Form))}")
        return as_text(as_document(list(self._gathered()), self._timeline.gathered(), redact=redact))

    def _gathered(self) -> Self:
        """Give this history read in one go, for a verb that hands nothing on of what its steps hold."""
        history = copy(self)
        history._timeline = self._timeline.gathered()  # noqa: SLF001  its own kind
        return history

    def _like(self, prefix: str) -> list[str]:
        return [own for own in self._timeline.by_id if prefix and own.startswith(prefix)]


def _blamed(step: Step, parts: tuple[Part, ...]) -> Iterator[Blame]:
    """Give the change that a step made to the value at a path, if it made one."""
    channel = str(parts[0])
    if internal(channel):
        return
    before, after = (_found(value, parts, step) for value in step.change_of(channel))
    if not same(before, after):
        kind = kind_of(before, after)
        old, new = (None if value is ABSENT else value for value in (before, after))
        yield Blame(step.number, step.writers(channel), step.source, step.at, old, new, kind)


def _found(value: Any, parts: tuple[Part, ...], step: Step) -> Any:
    if len(parts) > 1 and isinstance(value, Told):
        msg = (
            f"channel {parts[0]!r} is a DeltaChannel: its value on the way to {step} is not stored, only what it was"
            f" told; blame {parts[0]!r} as a whole, or see step.values"
        )
        raise HistoryError(msg)
    return value if value is ABSENT else look(value, parts[1:])
