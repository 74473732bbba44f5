"""Checkpoints carried from one saver to another: what their tasks wrote, with the paths of those, and what differs.

The order in which those of parallel tasks are told hangs on the paths, and no public method of a saver tells them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from checkpointers.operations.common import place_of
from checkpointers.operations.read import paths_on
from checkpointers.operations.rows import SPECIAL_INDEX
from checkpointers.saver import Saver

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

Written = Sequence[tuple[str, str, Any]]
_PATHS: Final = (
    "SELECT task_path FROM writes WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
    " ORDER BY task_path, task_id, idx"
)


def put_written(into: BaseCheckpointSaver[Any], config: RunnableConfig, written: Written, paths: Sequence[str]) -> None:
    """Put what tasks wrote on a checkpoint, in the order in which it was told."""
    tasks: dict[tuple[str, str], list[tuple[str, Any]]] = {}
    ordinary: dict[str, str] = {}  # a task's own writes are numbered together, whatever paths they have
    for path, (task, channel, value) in zip(paths, written, strict=True):
        own = path if channel in SPECIAL_INDEX else ordinary.setdefault(task, path)
        tasks.setdefault((task, own), []).append((channel, value))
    for (task, path), writes in tasks.items():
        into.put_writes(config, writes, task, path)


def paths_of(source: BaseCheckpointSaver[Any], config: RunnableConfig, written: Written) -> list[str]:
    """Give the path of the task of each pending write.

    Where they cannot be asked for, or others wrote since the checkpoint was read, the order that was given is kept.
    """
    place = place_of(config)
    if isinstance(source, Saver):
        paths = source._read(lambda: paths_on(source._tools(), place))  # noqa: SLF001
    elif (
        getattr(source, "_has_task_path", True)
        and (rows := rows_of(source, _PATHS, [place.thread, place.ns, str(place.id)])) is not None
    ):
        paths = [path for (path,) in rows]
    else:
        of_all = getattr(source, "writes", None)
        stored = of_all.get((place.thread, place.ns, place.id), {}) if isinstance(of_all, Mapping) else {}
        paths = [path for path, *_ in sorted((entry[3], *place) for place, entry in stored.items())]
    return paths if len(paths) == len(written) else paths_as_given(written)


def paths_as_given(written: Written) -> list[str]:
    """Make paths that keep tasks in the order of their first writes."""
    first: dict[str, str] = {}
    return [first.setdefault(task, f"{number:06}") for number, (task, *_) in enumerate(written)]


def rows_of(source: Any, sql: str, params: Sequence[str] = ()) -> list[tuple[Any, ...]] | None:
    """Ask an official saver's own tables; None if it is some other saver."""
    if hasattr(source, "loop"):  # it answers only there
        return None
    if not hasattr(source, "conn") or not hasattr(source, "_cursor" if hasattr(source, "pipe") else "cursor"):
        return None
    if hasattr(source, "pipe"):
        with source._cursor() as cursor:  # noqa: SLF001  the public methods load every state
            cursor.execute(sql.replace("?", "%s").replace("FROM writes", "FROM checkpoint_writes"), params)
            return [tuple(row.values()) for row in cursor.fetchall()]
    with source.cursor(transaction=False) as cursor:
        return [tuple(row) for row in cursor.execute(sql, params).fetchall()]


def differences(was: CheckpointTuple, now: CheckpointTuple, pack: Callable[[Any], bytes]) -> Iterator[str]:
    """Say in what a checkpoint that was carried differs from what it was, as a serializer writes both."""
    for channel in sorted({*was.checkpoint["channel_values"], *now.checkpoint["channel_values"]}):
        old, new = (t.checkpoint["channel_values"].get(channel, _MISSING) for t in (was, now))
        if not _same(old, new, pack):
            yield f"channel {channel!r} differs"
    for name in ("channel_versions", "versions_seen"):
        if was.checkpoint[name] != now.checkpoint[name]:
            yield f"{name} differ"
    if not _same(dict(was.metadata), dict(now.metadata), pack):
        yield "metadata differ"
    written, kept = (sorted(t.pending_writes or [], key=_OF_A_TASK) for t in (was, now))
    if [write[:2] for write in written] != [write[:2] for write in kept]:
        yield "pending writes differ"
    elif not all(_same(a[2], b[2], pack) for a, b in zip(written, kept, strict=True)):
        yield "a pending write's value differs"


_MISSING = object()
# In which order those of several tasks are told is each saver's own.
_OF_A_TASK: Final[Callable[[Any], tuple[str, str]]] = itemgetter(0, 1)


def _same(old: Any, new: Any, pack: Callable[[Any], bytes]) -> bool:
    if _MISSING in (old, new):
        return old is new
    try:
        return bool(old == new) or pack(old) == pack(new)
    except Exception:  # noqa: BLE001  values without a truth of equality are compared by what they look like
        return pack(old) == pack(new)
