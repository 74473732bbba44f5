"""Commands that keep a database sound: recover, adopt, migrate, vacuum, doctor."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from checkpointers.places import shown
from graph_agent.cli import desk, paper
from graph_agent.cli.desk import Db, Json, Thread, Yes
from graph_agent.settings import database


def recover(thread: Thread, into: Annotated[str, typer.Option(help="The name of the new thread.")],
            db: Db = desk.DEFAULT_DB, as_json: Json = False) -> None:  # fmt: skip
    """Copy all that is sound of a damaged thread into a new one."""
    with desk.ours(db) as saver:
        step = saver.recover(thread, into=into)
    paper.answer(f"{into}@{step}", as_json=as_json, thread=into, step=step)


def adopt(source: Annotated[str, typer.Argument(help="The database of the official saver.")],
          db: Db = desk.DEFAULT_DB, as_json: Json = False) -> None:  # fmt: skip
    """Take over the threads of LangGraph's own savers; their database stays as it is."""
    from checkpointers.adopting import adopt as take_over

    url = database(source)
    given = desk.saver(url if url.startswith("langgraph+") else f"langgraph+{url}")
    with desk.ours(db, create=True) as saver:
        taken = take_over(given, saver)
    threads = f"{taken.threads} thread{'s' * (taken.threads != 1)}"
    text = f"{threads}: {taken.checkpoints} checkpoints taken over, {taken.already} there already"
    paper.answer(text, as_json=as_json, **asdict(taken))


def migrate(
    db: Db = desk.DEFAULT_DB,
    plan: Annotated[bool, typer.Option("--plan", help="Only say which are missing, whatever else is said.")] = False,
    yes: Yes = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Bring the tables of a database up to date; without --yes it says which numbered migrations are missing."""
    from checkpointers import open_saver

    url = desk.existing(db)
    version, known = _version(db)
    missing = [number for number in known if number > version]
    done = bool(missing) and yes and not plan
    if done:
        open_saver(url, timeout=desk.PATIENCE).close()  # type: ignore[attr-defined]
    rows = [{"migration": n, "state": "there" if n <= version else "done now" if done else "missing"} for n in known]
    if as_json:
        paper.emit({"version": max(known) if done else version, "migrations": rows})
    else:
        paper.table(("MIGRATION", "STATE"), ((f"{row['migration']:03}", row["state"]) for row in rows))
    if missing and not done:
        paper.say("nothing was changed; pass --yes to do it, when no older release uses the database any more")


def _version(db: str) -> tuple[int, list[int]]:
    """Give the version of a database's tables, and those that this release knows."""
    from checkpointers.database import migrations
    from checkpointers.errors import SchemaError

    dialect = "sqlite" if database(db).startswith("sqlite:") else "postgres"
    known = [number for number, _ in migrations(dialect)]
    try:
        desk.reader(db).database.close()
    except SchemaError as error:
        if not error.version:
            raise
        return error.version, known
    return known[-1], known


def vacuum(
    db: Db = desk.DEFAULT_DB, full: Annotated[bool, typer.Option("--full", help="Rebuild the file.")] = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Give unused space back to the disk."""
    with desk.ours(db) as saver:
        freed = saver.vacuum(full=full)
    paper.answer(paper.size(freed), as_json=as_json, bytes=freed)


def doctor(db: Db = desk.DEFAULT_DB, as_json: Json = False) -> None:
    """Say what this installation and this database are, and whether they fit."""
    facts = _installed()
    try:
        with desk.reader(db) as reader:
            found = reader.threads()
            held = sum(one.holder is not None for one in found)
            facts |= {"database": reader.database.place, "size": paper.size(reader.database.size())}
            facts |= {"threads": str(len(found)), "held": str(held)}
    except Exception as error:  # noqa: BLE001  what is wrong is what is asked
        facts["database"] = f"{shown(db)}: {error}"
    if as_json:
        paper.emit(facts)
    else:
        paper.table(("WHAT", "IS"), facts.items())


def _installed() -> dict[str, Any]:
    import platform
    import sqlite3

    facts: dict[str, Any] = {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
    names = ("graph-agent", "langgraph", "langgraph-checkpoint", "langchain-core", "psycopg", "cryptography")
    return facts | {name: installed(name) for name in names}


def installed(package: str) -> str:
    """Give the version of a package."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
