"""Commands that change what is stored: retain, copy, delete, recover, adopt, vacuum. First they say, then they do."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from graph_agent.cli import desk
from graph_agent.cli.desk import Db, Json, Thread, Yes


def retain(
    db: Db = desk.DEFAULT_DB,
    last: Annotated[int | None, typer.Option(help="Keep so many of the newest steps.")] = None,
    within: Annotated[str | None, typer.Option(help="Keep what is younger: 30d.")] = None,
    thread: Annotated[list[str] | None, typer.Option(help="Only these threads.")] = None,
    yes: Yes = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Keep of each thread what a policy wants; without --yes it says what goes, and why the rest stays."""
    from checkpointers import Keep
    from graph_agent.errors import SetupError

    if last is None and within is None:
        raise SetupError("keep what? pass --last N or --within 30d, or both")
    options: dict[str, Any] = {**({"last": last} if last else {}), **({"within": within} if within else {})}
    with desk.ours(db, write=yes) as saver:
        plans = saver.retain(Keep(**options), threads=thread or None, dry_run=not yes)
    if as_json:
        desk.stream({"thread": one.thread, "dropped": list(one.dropped), "kept": one.kept, "frees": one.frees}
                    for one in plans)  # fmt: skip
        return
    for one in plans:
        print(desk.clean(one))
    if not yes:
        desk.say("nothing was changed; pass --yes to do it")


def copy(source: Thread, target: Annotated[str, typer.Argument(help="A name that is free.")],
         db: Db = desk.DEFAULT_DB) -> None:  # fmt: skip
    """Copy a whole thread, with its history and its ledger."""
    with desk.ours(db) as saver:
        saver.copy_thread(source, target)


def delete(thread: Thread, db: Db = desk.DEFAULT_DB, yes: Yes = False) -> None:
    """Remove a thread and everything in it; without --yes it says what that is."""
    from checkpointers.errors import UnknownThreadError

    with desk.ours(db, write=yes) as saver:
        found = next((one for one in saver.threads() if one.thread == thread), None)
        if found is None:
            raise UnknownThreadError(thread)
        desk.say(f"{thread}: {found.checkpoints} steps, {desk.size(found.bytes)}, {found.status}")
        if yes:
            saver.delete_thread(thread)
        else:
            desk.say("nothing was changed; pass --yes to delete it")


def recover(thread: Thread, into: Annotated[str, typer.Option(help="The name of the new thread.")],
            db: Db = desk.DEFAULT_DB) -> None:  # fmt: skip
    """Copy all that is sound of a damaged thread into a new one."""
    with desk.ours(db) as saver:
        print(f"{desk.clean(into)}@{saver.recover(thread, into=into)}")


def adopt(source: Annotated[str, typer.Argument(help="The database of the official saver.")],
          db: Db = desk.DEFAULT_DB) -> None:  # fmt: skip
    """Take over the threads of a database of LangGraph's own saver; that one stays as it is."""
    from checkpointers import adopt as take_over

    url = desk.address_of(source)
    given = desk.saver(url if url.startswith("langgraph+") else f"langgraph+{url}")
    with desk.ours(db, create=True) as saver:
        print(desk.clean(take_over(given, saver)))


def vacuum(
    db: Db = desk.DEFAULT_DB, full: Annotated[bool, typer.Option("--full", help="Rebuild the file.")] = False
) -> None:
    """Give unused space back to the disk."""
    with desk.ours(db) as saver:
        print(desk.size(saver.vacuum(full=full)))


def doctor(db: Db = desk.DEFAULT_DB, as_json: Json = False) -> None:
    """Say what this installation and this database are, and whether they fit."""
    import platform
    import sqlite3
    from importlib.metadata import PackageNotFoundError, version

    def installed(name: str) -> str:
        try:
            return version(name)
        except PackageNotFoundError:
            return "not installed"

    names = ("graph-agent", "langgraph", "langgraph-checkpoint", "langchain-core", "psycopg", "cryptography")
    facts = {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
    facts |= {name: installed(name) for name in names}
    try:
        with desk.reader(db) as reader:
            found = reader.threads()
            held = sum(one.holder is not None for one in found)
            facts |= {"database": reader.database.place, "size": desk.size(reader.database.size())}
            facts |= {"threads": str(len(found)), "held": str(held)}
    except Exception as error:  # noqa: BLE001  what is wrong is what is asked
        facts["database"] = f"{db}: {error}"
    if as_json:
        desk.emit(facts)
    else:
        desk.table(("WHAT", "IS"), facts.items())
