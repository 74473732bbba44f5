"""Commands that list what rows say of themselves: threads, log, du, ledger, fsck. No state is loaded, no LangGraph."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from graph_agent.cli import codes, desk, paper
from graph_agent.cli.desk import AnyThread, Db, Json, Limit, Price, Thread
from graph_agent.cli.rows import Row, of_others, rows_of

if TYPE_CHECKING:
    from checkpointers.logs import Line
    from checkpointers.reader import Reader
    from graph_agent.reading import Cost

Standing = Literal["running", "waiting", "failed", "pending", "done", "damaged", "shredded"]
GOAL = "goal"


def threads(
    db: Db = desk.DEFAULT_DB,
    status: Annotated[Standing | None, typer.Option(help="Only those that stand so.")] = None,
    since: Annotated[str | None, typer.Option(help="Only those written since: 2d, 6h.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only those with this tag.")] = None,
    goal: Annotated[str | None, typer.Option(help="Only those whose goal has this text in it.")] = None,
    cost: Annotated[bool, typer.Option("--cost", help="Say what each cost, by its records of that.")] = False,
    price: Price = None,
    limit: Limit = None, as_json: Json = False,
) -> None:  # fmt: skip
    """List threads, the most recently written first; loads no state, with --cost no more of it than that."""
    if not desk.is_ours(db):
        options = {
            "--status": status,
            "--since": since,
            "--tag": tag,
            "--goal": goal,
            "--cost": cost or None,
            "--price": price,
        }
        _threads_of_others(db, [name for name, value in options.items() if value is not None], limit, as_json=as_json)
        return
    with desk.reader(db) as reader:
        every = reader.threads(since=since, tag=tag, limit=None if status or goal is not None else limit)
    told = [(one, "running" if one.holder else one.status, str(one.metadata.get(GOAL, ""))) for one in every]
    found = [
        (one, standing, about)
        for one, standing, about in told
        if status in (None, standing) and (goal or "").casefold() in about.casefold()
    ][:limit]
    costs = _costs(db, [one.thread for one, *_ in found], price or []) if cost or price else {}
    if as_json:
        paper.stream({**_thread(one, standing), **_figures(costs.get(one.thread))} for one, standing, _ in found)
        return
    money = ("TOKENS", "COST") if cost or price else ()
    paper.table(("THREAD", "STATUS", "STEP", "ASKS", "ERRORS", "WRITTEN", "SIZE", *money, "HELD BY", "GOAL"), (
        (one.thread, standing, one.step, one.questions or "", one.errors or "", f"{paper.ago(one.updated_at)} ago",
         paper.size(one.bytes), *(_told(costs.get(one.thread)) if money else ()), one.holder or "", about)
        for one, standing, about in found
    ))  # fmt: skip
    desk.say_unpriced(sorted({name for one in costs.values() if one for name in one.unpriced}))


def _costs(db: str, names: list[str], price: list[str]) -> dict[str, Cost | None]:
    from graph_agent.history import cost

    prices, saver = desk.prices(price), desk.saver(db)
    return {name: cost(saver, name, prices) for name in names}


def _figures(cost: Cost | None) -> dict[str, Any]:
    return {"tokens": cost.tokens, "cost": cost.money, "unpriced": cost.unpriced} if cost else {}


def _told(cost: Cost | None) -> tuple[str, str]:
    return (f"{cost.tokens:,}", desk.money(cost.money)) if cost else ("", "")


def _threads_of_others(db: str, chosen: list[str], limit: int | None, *, as_json: bool) -> None:
    """List the threads of another saver, which has to load its states for that, and knows no more of them."""
    if chosen:
        words = "other savers keep no such facts of threads; graph-agent adopt takes a database of theirs over"
        raise typer.BadParameter(f"{', '.join(chosen)}: {words}")
    counts: dict[str, int] = {}
    for found in desk.saver(db).list(None):
        name = found.config["configurable"]["thread_id"]
        counts[name] = counts.get(name, 0) + 1
    counts = dict(islice(counts.items(), limit))
    if as_json:
        paper.stream({"thread": name, "checkpoints": count} for name, count in counts.items())
    else:
        paper.table(("THREAD", "STEPS"), counts.items())


def _thread(one: Any, standing: str) -> dict[str, Any]:
    names = "thread step checkpoints bytes created_at updated_at tags pins holder questions errors"
    return {
        **{name: getattr(one, name) for name in names.split()},
        "status": standing,
        "metadata": paper.told(one.metadata),
    }


def log(
    thread: Thread,
    others: Annotated[list[str] | None, typer.Argument(help="Forks of it, to be laid out beside it.")] = None,
    db: Db = desk.DEFAULT_DB, limit: Limit = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only steps with failures.")] = False,
    graph: Annotated[bool, typer.Option("--graph", help="Draw forks as lanes, oldest first.")] = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """List the steps of a thread, the newest first; with --graph its forks as lanes, those into other threads too."""
    from checkpointers.logs import log as laid_out

    threads: Any = [_rows(db, name) for name in (thread, *(others or ()))]
    lines = laid_out(threads)
    if failed:
        lines = _failed(lines, db)
    lines = lines[max(0, len(lines) - limit) :] if limit is not None else lines
    if as_json:
        paper.stream(_logged(one) for one in reversed(lines))
    elif graph:
        for one in lines:
            print(paper.line(one))
    else:
        paper.table(("STEP", "AT", "SOURCE", "STATUS", "NODES", "FROM"), (
            (one.step, f"{one.step.at:%Y-%m-%d %H:%M:%S}", one.step.source, one.standing, ", ".join(one.step.nodes),
             one.branched_from or "") for one in reversed(lines)
        ))  # fmt: skip


def _rows(db: str, thread: str) -> Sequence[Row]:
    if not desk.is_ours(db):
        return of_others(desk.history(db, thread))
    with desk.reader(db) as reader:
        found = rows_of(thread, reader.steps(thread), reader.tasks(thread))
    if not found:
        raise desk.unknown(thread, db)
    return found


def _failed(lines: list[Line], db: str) -> list[Line]:
    """Keep the steps with failures; where an agent wrote to its record of them, that is looked at."""
    kept: list[Line] = []
    known: dict[str, Any] = {}
    for one in lines:
        row: Any = one.step
        if not row.failed and row.rewrote("failures"):
            known[row.thread] = known.get(row.thread) or desk.timeline(db, row.thread)
            row = known[row.thread].at(str(row))
        kept += [one] * bool(row.failed)
    return kept


def _logged(one: Line) -> dict[str, Any]:
    row: Any = one.step
    return {**row.record(), "lane": one.lane, "branched_from": one.branched_from}


def du(thread: AnyThread = None, db: Db = desk.DEFAULT_DB, as_json: Json = False) -> None:
    """Say where the bytes are: by thread and channel, the largest first."""
    with desk.reader(db) as reader:
        found = reader.usage(thread)
        if thread is not None and not found:
            raise desk.unknown(thread, db)
    if as_json:
        names = ("thread", "channel", "rows", "bytes")
        paper.stream({name: getattr(one, name) for name in names} for one in found)
        return
    rows = ((one.thread, one.channel, one.rows, paper.size(one.bytes)) for one in found)
    paper.table(("THREAD", "CHANNEL", "ROWS", "SIZE"), rows)


def ledger(thread: Thread, db: Db = desk.DEFAULT_DB, as_json: Json = False) -> None:
    """List what a thread did to the world; what came of it, and what is in doubt."""
    with desk.reader(db) as reader:
        found = reader.ledger.entries(thread)
        if not found:
            _known(reader, thread, db)
    if as_json:
        names = ("key", "number", "status", "step", "at", "record")
        paper.stream({name: getattr(one, name) for name in names} for one in found)
        return
    rows = (
        (one.number, "in doubt" if one.status == "claimed" else one.status, one.record.get("tool", ""),
         one.record.get("args", ""), f"{one.at:%Y-%m-%d %H:%M:%S}", str(one.record.get("result", ""))[:80])
        for one in found
    )  # fmt: skip
    paper.table(("N", "STATUS", "TOOL", "ARGUMENTS", "AT", "RESULT"), rows)


def _known(reader: Reader, thread: str, db: str) -> None:
    if not reader.usage(thread):
        raise desk.unknown(thread, db)


def fsck(thread: AnyThread = None, db: Db = desk.DEFAULT_DB, as_json: Json = False) -> None:
    """Check every row against its seal and the others; changes nothing."""
    with desk.reader(db) as reader:
        found = reader.fsck(thread)
        if thread is not None and not found:
            _known(reader, thread, db)
    if as_json:
        names = ("thread", "step", "what", "sound")
        paper.stream({name: getattr(one, name) for name in names} for one in found)
    else:
        for one in found:
            print(paper.line(one))
        paper.say(f"{len(found)} finding{'s' * (len(found) != 1)}")
    if found:
        raise typer.Exit(codes.DAMAGED)
