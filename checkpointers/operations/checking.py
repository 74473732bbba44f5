"""Checking: every row of a thread against its seal and against the others, and what of it is sound. Never writes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from checkpointers.codec import HIGHEST, Ref, covers, is_recipe, joined, spans, unpacked
from checkpointers.effects import BODIES, EFFECTS, Entry
from checkpointers.errors import IntegrityError, KeyringError
from checkpointers.keys import decoded, key_of
from checkpointers.lineage import refs_of
from checkpointers.operations.bodies import parts_of, see_body
from checkpointers.operations.common import (
    CONTENTS,
    ELEMENT_COLUMNS,
    FLAGS,
    ID,
    NS,
    ROOT,
    SELECT_ALL_WRITES,
    SELECT_CHECKPOINT,
    STEP,
    TALLY,
    Tools,
    any_rows,
    checked,
    metadata_of,
    open_thread,
    records_of,
    select_thread,
    told_metadata,
    wrapped_key,
    writes_of,
)
from checkpointers.operations.ledger import ALL_EFFECTS, entry_of
from checkpointers.operations.names import ALL_NAMES, name_is_sound
from checkpointers.operations.noting import noted_rows
from checkpointers.operations.storing import recipes_of, resolved
from checkpointers.records import Record, TaskWrites
from checkpointers.sealing import Digests
from checkpointers.segments import MissingElementError
from checkpointers.standing import Standing, Thread, fold_of
from checkpointers.statements import Row, Statement, Statements
from checkpointers.status import BESIDE
from checkpointers.tally import tally_of

AT_A_TIME: Final = 500
BESIDES: Final = (*CONTENTS, "cp_heads", "cp_keys")


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it was written; `sound` is the newest step that recover() would give."""

    thread: str
    step: int | None
    what: str
    sound: int | None = None


@dataclass(slots=True)
class Checkup:
    """A thread as far as it can be read, and what is wrong with it."""

    thread: Thread
    findings: list[Finding] = field(default_factory=list)
    refusal: KeyringError | None = None
    rows: dict[int, Row] = field(default_factory=dict)
    records: dict[int, Record] = field(default_factory=dict)
    metadata: dict[int, bytes] = field(default_factory=dict)
    written: list[tuple[Row, TaskWrites]] = field(default_factory=list)
    elements: list[Row] = field(default_factory=list)
    numbers: dict[int, list[int]] = field(default_factory=dict)
    tasks: dict[tuple[bytes, bytes], list[TaskWrites]] = field(default_factory=dict)
    by_id: dict[tuple[str, str], Record] = field(default_factory=dict)
    sound: set[int] = field(default_factory=set)
    effects: list[Entry] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    def found(self, what: str, step: int | None = None) -> None:
        """Add a finding."""
        self.findings.append(Finding(self.thread.name, step, what))

    def on(self, record: Record) -> list[TaskWrites]:
        """Give the writes on a checkpoint that can be read."""
        return self.tasks.get((key_of(record.ns), key_of(record.id)), [])

    def deltas(self) -> set[str]:
        """Name the channels that are rebuilt from what they were told, as far as metadata and records say so."""
        told = [unpacked(raw).get("counters_since_delta_snapshot") for raw in self.metadata.values()]
        named = {name for names in told if isinstance(names, dict) for name in names}
        return named.union(*(record.bases for record in self.records.values()))

    def heads(self) -> list[int]:
        """Give the sound steps of the root namespace, those of the thread's own line first, the newest first."""
        roots = [step for step in self.sound if self.records[step].ns == ROOT]
        return sorted(roots, key=lambda step: (not self.rows[step][FLAGS] & BESIDE, step), reverse=True)


def stored_threads(tools: Tools, name: str | None) -> Statements[list[tuple[int, str | None]]]:
    """Give the keys of all threads of which there is a row anywhere, or of one, with the name if it is known."""
    if name is not None:
        return [(tools.key(name), name)]
    keys = set[int]()
    for table in ("cp_threads", *BESIDES):
        keys.update(row[0] for row in (yield Statement(f"SELECT DISTINCT thread FROM {table}")))
    return [(key, None) for key in sorted(keys, key=_in_line)]


def _in_line(key: Any) -> tuple[bool, Any]:
    """Sort keys of threads, and what a damaged row has in the place of one after them."""
    sound = isinstance(key, int)
    return not sound, key if sound else repr(key)


def names(tools: Tools) -> Statements[list[Finding]]:
    """Check the names that all threads share, and learn those that are sound."""
    findings = []
    for row in (yield ALL_NAMES):
        if name_is_sound(row):
            tools.names.learn([(row[0], decoded(row[1]))])
        else:
            findings.append(Finding("", None, f"the row of name {row[0]} is not what was written"))
    return findings


def thread(tools: Tools, key: int, name: str | None) -> Statements[Checkup | None]:
    """Check one thread; None if nothing is stored of it."""
    rows = yield select_thread(key)
    if not rows and not (yield from any_rows(BESIDES, key)):
        return None
    check = yield from _opened(tools, key, name, rows)
    if isinstance(check, KeyringError):
        said = name or f"#{key}"
        return Checkup(Thread(key, said, Digests(), Standing(said)), [Finding(said, None, str(check))], check)
    yield from _checkpoints(tools, check)
    yield from _writes(tools, check)
    yield from _elements(tools, check)
    yield from _key(tools, check)
    yield from _note(tools, check)
    yield from _effects(check)
    yield from _bodies(check)
    yield from _judge(tools, check)
    if rows and check.thread.standing.stamp:
        yield from _agree(check)
    return check


def _opened(tools: Tools, key: int, name: str | None, rows: Any) -> Statements[Checkup | KeyringError]:
    """Open the thread's row, or what can be used in its place; or say why nothing of the thread can be read."""
    wrong = "its own row is missing"
    if rows:
        try:
            return Checkup(open_thread(tools, rows[0], name))
        except KeyringError as error:
            return error
        except (IntegrityError, UnicodeError) as error:
            wrong = _told(error)
    wrapped, said = (yield from wrapped_key(key)), name or f"#{key}"
    try:
        check = Checkup(Thread(key, said, tools.vaults.of(key, said, wrapped), Standing(said)))
    except KeyringError as error:
        return error
    check.found(wrong)
    return check


def _key(tools: Tools, check: Checkup) -> Statements[None]:
    """See that a thread's key is wrapped under the master key that is named beside it: rotations go by that name."""
    for master, wrapped in (yield Statement("SELECT master, key FROM cp_keys WHERE thread = ?", (check.thread.key,))):
        if tools.vaults.master_of(wrapped) != master:
            check.found("its key is not wrapped under the master key that is named beside it")


def _note(tools: Tools, check: Checkup) -> Statements[None]:
    """See that what a rollback would put back can be read."""
    try:
        yield from writes_of(tools, check.thread, (yield from noted_rows(check.thread)))
    except (IntegrityError, UnicodeError) as error:
        check.found(_told(error))


def _checkpoints(tools: Tools, check: Checkup) -> Statements[None]:
    rows = yield Statement(f"{SELECT_CHECKPOINT} WHERE thread = ? ORDER BY step", (check.thread.key,))
    for row in rows:
        try:
            (record,) = yield from records_of(tools, check.thread, [row])
            told_metadata(check.thread, row)
            metadata = metadata_of(check.thread, row)
        except (IntegrityError, TypeError, UnicodeError) as error:
            check.found(_told(error), _step(row))
        else:
            check.rows[record.step], check.records[record.step] = row, record
            check.metadata[record.step] = metadata
            check.by_id[record.ns, record.id] = record


def _told(error: Exception) -> str:
    return error.what if isinstance(error, IntegrityError) else str(error)


def _step(row: Row) -> int | None:
    return row[STEP] if isinstance(row[STEP], int) else None


def _writes(tools: Tools, check: Checkup) -> Statements[None]:
    rows = yield Statement(SELECT_ALL_WRITES, (check.thread.key,))
    steps = {(row[NS], row[ID]): step for step, row in check.rows.items()}
    for row in rows:
        try:
            (task,) = yield from writes_of(tools, check.thread, [row])
        except (IntegrityError, UnicodeError) as error:
            check.found(_told(error), _step_of(steps, row))
        else:
            check.written.append((row, task))


def _step_of(steps: dict[tuple[bytes, bytes], int], row: Row) -> int | None:
    return steps.get((row[0], row[1])) if isinstance(row[0], bytes) and isinstance(row[1], bytes) else None


def _elements(tools: Tools, check: Checkup) -> Statements[None]:
    """Open every row of elements; keep which numbers there are."""
    after = (-HIGHEST, -HIGHEST)
    while True:
        rows = yield Statement(
            f"SELECT {', '.join(ELEMENT_COLUMNS)} FROM cp_elements WHERE thread = ? AND (channel, n) > (?, ?)"
            f" ORDER BY channel, n LIMIT {AT_A_TIME}",
            (check.thread.key, *after),
        )
        for row in rows:
            try:
                with checked(check.thread.name, f"element {row[1]} of channel {_channel(tools, row[0])}"):
                    stack = check.thread.stack(row[0])
                    stack.add(row[1], row[2])
            except (IntegrityError, ValueError) as error:
                check.found(_told(error))
            else:
                check.elements.append(row)
                check.numbers.setdefault(row[0], []).extend(number for number, _ in stack.items())
        if len(rows) < AT_A_TIME:
            return
        after = (rows[-1][0], rows[-1][1])


def _effects(check: Checkup) -> Statements[None]:
    """Open every entry of the ledger, and compare those that a search comes to with what the thread's row says."""
    stands, found = check.thread.standing, (yield Statement(ALL_EFFECTS, (check.thread.key,)))
    rows = [row for of, *row in found if of == check.thread.key]
    for row in rows:
        try:
            check.effects.append(entry_of(check.thread, row))
        except (IntegrityError, ValueError) as error:
            check.found(_told(error))
    counted = (len(rows), fold_of(row[0] for row in rows if isinstance(row[0], bytes)))
    if stands.stamp and counted != (stands.effects, stands.fold):
        check.found(f"{EFFECTS} there should be {stands.effects} entries in its ledger, and the very ones it counted")


def _bodies(check: Checkup) -> Statements[None]:
    """Put every body together, one at a time."""
    ids = yield Statement("SELECT DISTINCT hash FROM cp_bodies WHERE thread = ? ORDER BY hash", (check.thread.key,))
    for (id_,) in ids:
        try:
            see_body(check.thread, (yield from parts_of(check.thread, id_)))
        except (IntegrityError, ValueError) as error:
            check.found(_told(error))
        else:
            check.bodies.append(id_)
    if check.thread.standing.stamp and len(ids) != check.thread.standing.bodies:
        check.found(f"{BODIES} there should be {check.thread.standing.bodies} of them, {len(ids)} are there")


def _channel(tools: Tools, key: Any) -> str:
    return repr(tools.names.texts.get(abs(key), key)) if isinstance(key, int) else repr(key)


def _judge(tools: Tools, check: Checkup) -> Statements[None]:
    """Tell which checkpoints have all that they need."""
    runs = {channel: joined((n, 1) for n in sorted(numbers)) for channel, numbers in check.numbers.items()}
    for row, task in check.written:
        check.tasks.setdefault((row[0], row[1]), []).append(task)
    deltas, gaps = check.deltas(), dict[int, set[str]]()
    for step, record in check.records.items():
        tasks = check.on(record)
        refs = [*refs_of(record), *((write.channel, write.ref) for task in tasks for write in task.writes)]
        missing = gaps[step] = yield from _missing(tools, check.thread, refs, runs)
        if check.rows[step][TALLY] != sum(tally_of(task.kinds) for task in tasks):
            check.found(f"{len(tasks)} rows of writes on it can be read, which is not what its tally says", step)
            missing |= deltas
        elif missing:
            check.found(f"channel {min(missing)!r} refers to rows that are not there", step)
        else:
            check.sound.add(step)
    _descend(check, deltas, gaps)


def _missing(
    tools: Tools, thread: Thread, refs: Iterable[tuple[str, Ref]], runs: dict[int, list[tuple[int, int]]]
) -> Statements[set[str]]:
    """Name the channels of which something is not there."""
    missing = set()
    for channel, ref in refs:
        key = tools.names.keys[channel]
        told = ref
        if is_recipe(ref):
            try:
                told = (yield from resolved(thread, {(key, tuple(ref))}))[key, tuple(ref)]
            except (IntegrityError, MissingElementError, ValueError):
                missing.add(channel)
                continue
            if not all(covers(runs.get(recipes_of(key), []), number) for number in ref[1:]):
                missing.add(channel)
        if not all(covers(runs.get(key, []), first, count) for first, count in spans(told)):
            missing.add(channel)
    return missing


def _descend(check: Checkup, deltas: set[str], gaps: dict[int, set[str]]) -> None:
    """See that each checkpoint was made from the one that is said to be its parent, and that this is there.

    A DeltaChannel without a value of its own is as sound as the ancestors that it is rebuilt from.
    """
    whole: dict[int, set[str]] = {}
    for step, record in check.records.items():
        above = check.by_id.get((record.ns, record.parent or ""))
        before: set[str] = set() if record.chain else deltas
        if above is None and record.chain:
            check.found("the checkpoint that it was made from cannot be read", step)
        elif above is not None and record.chain and above.mark != record.chain:  # none: stored before its parent
            check.found("its parent is not the one that it was made from", step)
            check.sound.discard(step)
        elif above is not None:
            before = whole.get(above.step, set())
        kept = {name for name in deltas if name in record.refs or name in record.bases or name in before}
        whole[step] = kept - gaps[step]
        if step in check.sound and not record.versions.keys() & deltas <= kept:
            check.found("what a DeltaChannel of it is rebuilt from is damaged", step)
            check.sound.discard(step)


def _agree(check: Checkup) -> Statements[None]:
    """Compare what the thread's row, and those of its namespaces, say with what is there."""
    stands = check.thread.standing
    if len(check.rows) != stands.checkpoints:
        check.found(f"there should be {stands.checkpoints} checkpoints, {len(check.rows)} can be read")
    head = check.rows.get(stands.head)
    if stands.head and (head is None or bytes(head[ID]) != stands.head_id):
        check.found("the checkpoint that it stands at cannot be read", stands.head)
    tops: dict[bytes, int] = {}
    for row in check.rows.values():
        ns = key_of(check.records[row[STEP]].ns)
        if ns != key_of(ROOT):
            tops[ns] = max(tops.get(ns, 0), row[STEP])
    said = yield Statement("SELECT ns, step FROM cp_heads WHERE thread = ?", (check.thread.key,))
    if {row[0]: row[1] for row in said} != tops:
        check.found("its namespaces do not stand where they are said to")
    for channel, numbers in check.numbers.items():
        if numbers and max(numbers) >= stands.counts.get(channel, 0):
            check.found(f"channel key {channel} has more elements than were counted")
