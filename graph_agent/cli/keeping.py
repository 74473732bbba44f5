"""Commands that thin out what is stored: retain, prune, copy, delete. First they say, then they do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from graph_agent.cli import desk, paper
from graph_agent.cli.desk import Db, Json, Thread, Yes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from checkpointers import Saver
    from checkpointers.retention import Plan
    from checkpointers.statements import Statements

Threads = Annotated[list[str], typer.Argument(help="The names of threads.")]
Count = Annotated[int | None, typer.Option(min=0, help="The newest of each of so many of them.")]
NEWEST = "the newest of its namespace"


def retain(
    db: Db = desk.DEFAULT_DB,
    last: Annotated[int | None, typer.Option(min=0, help="Keep so many of the newest steps.")] = None,
    within: Annotated[str | None, typer.Option(help="Keep what is younger: 30d.")] = None,
    hourly: Count = None, daily: Count = None, weekly: Count = None, monthly: Count = None,
    max_age: Annotated[str | None, typer.Option(help="Threads not written to for longer go whole: 90d.")] = None,
    thread: Annotated[list[str] | None, typer.Option(help="Only these threads.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only threads with this tag.")] = None,
    yes: Yes = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Keep of each thread what a policy wants; without --yes it says what goes, and why the rest stays."""
    from checkpointers import Keep
    from graph_agent.errors import SetupError

    given = {"last": last, "within": within, "hourly": hourly, "daily": daily, "weekly": weekly, "monthly": monthly,
             "max_age": max_age}  # fmt: skip
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if not options:
        raise SetupError("keep what? pass --last N or --within 30d, or both; --help has more")
    with desk.ours(db, write=yes) as saver:
        there = {one.thread for one in saver.threads()}
        if missing := next((one for one in thread or () if one not in there), None):
            raise desk.unknown(missing, db)
        plans = saver.retain(Keep(**options), threads=thread or None, tag=tag, dry_run=not yes)
    _told(plans, yes=yes, as_json=as_json)


def _told(plans: Iterable[Plan], *, yes: bool, as_json: bool) -> None:
    """Say what goes, and of each kept step why it stays."""
    plans = list(plans)
    if as_json:
        paper.stream({"thread": one.thread, "dropped": list(one.dropped), "kept": _kept(one.kept), "frees": one.frees,
                      "done": yes} for one in plans)  # fmt: skip
    else:
        for one in plans:
            for text in str(one).splitlines():
                print(paper.line(text))
    if not plans:
        paper.say("nothing goes")
    elif not yes:
        paper.say("nothing was changed; pass --yes to do it")


def _kept(kept: Mapping[int, Any]) -> dict[str, list[str]]:
    return {str(step): list(reasons) for step, reasons in sorted(kept.items())}


def prune(
    threads: Threads, db: Db = desk.DEFAULT_DB,
    strategy: Annotated[
        Literal["keep_latest", "delete"], typer.Option(help="Keep the newest step, or nothing of the thread.")
    ] = "keep_latest",
    yes: Yes = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Keep only the newest step of threads; as LangGraph's prune does; without --yes it says what goes."""
    with desk.ours(db, write=yes) as saver:
        plans = [_planned(saver, thread, db, delete=strategy == "delete") for thread in threads]
        if yes:
            saver.prune(threads, strategy=strategy)
    _told(plans, yes=yes, as_json=as_json)


def _planned(saver: Saver, thread: str, db: str, *, delete: bool) -> Plan:
    from checkpointers.operations import remove
    from checkpointers.retention import Plan

    def planned() -> Statements[Plan | None]:
        tools = saver._tools()  # noqa: SLF001  prune itself tells nothing
        found = yield from remove.contents(tools, thread)
        if found is None:
            return None
        every = [record.step for record in found.records]
        dropped = every if delete else remove.keep_latest(found)
        frees = yield from remove.would_free(tools, found, dropped)
        return Plan(thread, {step: [NEWEST] for step in every if step not in dropped}, dropped, frees=frees)

    plan: Plan | None = saver._read(planned)  # noqa: SLF001  the same
    if plan is None:
        raise desk.unknown(thread, db)
    return plan


def copy(
    source: Thread, target: Annotated[str, typer.Argument(help="A name that is free.")], db: Db = desk.DEFAULT_DB,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be copied.")] = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Copy a whole thread, with its history and its ledger; the source stays as it is."""
    from checkpointers.errors import ThreadExistsError

    with desk.ours(db, write=not dry_run) as saver:
        found = {one.thread: one for one in saver.threads()}
        if source not in found:
            raise desk.unknown(source, db)
        if target in found:
            raise ThreadExistsError(target)
        if not dry_run:
            saver.copy_thread(source, target)
    if dry_run:
        paper.say(
            f"{source}: {found[source].checkpoints} steps, {paper.size(found[source].bytes)}; nothing was changed"
        )
    paper.answer(target, as_json=as_json, thread=target, done=not dry_run)


def delete(thread: Thread, db: Db = desk.DEFAULT_DB, yes: Yes = False, as_json: Json = False) -> None:
    """Remove a thread and everything in it; without --yes it says what that is."""
    with desk.ours(db, write=yes) as saver:
        found = next((one for one in saver.threads() if one.thread == thread), None)
        if found is None:
            raise desk.unknown(thread, db)
        if yes:
            saver.delete_thread(thread)
    if as_json:
        names = ("thread", "status", "checkpoints", "bytes")
        paper.emit({**{name: getattr(found, name) for name in names}, "done": yes})
    else:
        paper.say(f"{thread}: {found.checkpoints} steps, {paper.size(found.bytes)}, {found.status}")
    if not yes:
        paper.say("nothing was changed; pass --yes to delete it")
