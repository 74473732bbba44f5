"""What every command needs: its options, the database, the agent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from checkpointers.errors import CheckpointerError, UnknownThreadError
from checkpointers.places import file_of, shown
from graph_agent import settings
from graph_agent.cli.codes import NoSuchDatabaseError
from graph_agent.cli.completing import threads as known_threads
from graph_agent.cli.paper import say
from graph_agent.settings import APP, DB, MODEL, agent_named, database

if TYPE_CHECKING:
    from checkpointers import History, Saver
    from checkpointers.reader import Reader
    from checkpointers.step import Step
    from graph_agent.agent import Agent
    from graph_agent.history import Timeline

DEFAULT_DB: Final = settings.DEFAULT_DB
OURS: Final = ("sqlite:", "postgresql:", "postgres:")
FILES: Final = ("sqlite:", "langgraph+sqlite:")
PATIENCE: Final = 10.0
AT_THE_END: Final = ExitStack()  # what is read is closed when the command is over


Db = Annotated[
    str,
    typer.Option("--db", envvar=DB, help="The database: an address such as sqlite:///agent.db, or a file."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, or one for each line.")]
App = Annotated[str, typer.Option("--app", envvar=APP, help="Where the agent is: module:name.")]
Model = Annotated[str, typer.Option("--model", envvar=MODEL, help="Without --app: openai:NAME, and no tools.")]
Thread = Annotated[str, typer.Argument(help="The name of a thread.", autocompletion=known_threads)]
AnyThread = Annotated[str | None, typer.Argument(help="Only this thread.", autocompletion=known_threads)]
Address = Annotated[
    str,
    typer.Argument(
        help="A step: THREAD@N, THREAD@-1, or THREAD@ and the beginning of an id.", autocompletion=known_threads
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it; without this it only says what it would do.")]
Price = Annotated[
    list[str] | None,
    typer.Option(help="MODEL=IN,OUT: what a million tokens in and out of a model cost; several times for several."),
]
Limit = Annotated[int | None, typer.Option("--limit", "-n", min=0, help="At most so many.")]


def existing(db: str) -> str:
    """Give the address of a database that is there: nothing is created by asking for it."""
    url = database(db)
    if url.startswith(FILES) and not (path := Path(file_of(url))).is_file():
        there = "it is a folder" if path.is_dir() else "there is no such file"
        raise NoSuchDatabaseError(shown(file_of(url)), there)
    if url.removeprefix("langgraph+").startswith("postgres"):
        _look_for(url.removeprefix("langgraph+"))
    return url


def _look_for(url: str) -> None:
    """Ask a server once whether it has the database: a pool would try again until its patience is over."""
    try:
        import psycopg
    except ImportError:  # which the saver explains
        return
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.Error as error:
        if "does not exist" in str(error):
            raise NoSuchDatabaseError("postgres", error) from error


def is_ours(db: str) -> bool:
    """Tell whether a database is read without its saver."""
    return database(db).startswith(OURS)


def reader(db: str) -> Reader:
    """Open a database to list what is in it."""
    from checkpointers.reader import open_reader

    url = existing(db)
    if not is_ours(db):
        raise _of_others(db)
    return open_reader(url, timeout=PATIENCE)


def _of_others(db: str) -> CheckpointerError:
    return CheckpointerError(f"{shown(db)} is a database of other savers; take it over first: graph-agent adopt")


def saver(db: str) -> Any:
    """Open the saver of a database to read it."""
    from checkpointers import open_saver

    url = existing(db)
    known = {"read_only": True} if url.startswith((*OURS, "langgraph+")) else {}
    found: Any = open_saver(url, **known, **({"timeout": PATIENCE} if is_ours(db) else {}))
    _leave(found)
    return found


def _leave(saver: Any) -> None:
    """Let a saver be closed when the command ends."""
    if hasattr(saver, "close"):
        AT_THE_END.callback(saver.close)


def ours(db: str, *, write: bool = True, create: bool = False) -> Saver:
    """Open a saver of ours to change what is in it."""
    from checkpointers import Saver, open_saver

    own: dict[str, Any] = {"read_only": not write, "timeout": PATIENCE} if is_ours(db) else {}
    found = open_saver(database(db) if create else existing(db), **own)
    if not isinstance(found, Saver):
        _leave(found)
        raise _of_others(db)
    return found


def names(db: str, saver: Any = None, limit: int | None = None) -> list[str]:
    """Name the threads of a database; of a saver of others, it has to load their states for that."""
    if is_ours(db):
        with reader(db) as found:
            return [one.thread for one in found.threads(limit=limit)]
    listed = (saver or globals()["saver"](db)).list(None)
    return list(dict.fromkeys(one.config["configurable"]["thread_id"] for one in listed))


def unknown(thread: str, db: str) -> UnknownThreadError:
    """Make the error for a thread that is not there, with the names that are nearest."""
    from difflib import get_close_matches

    known = names(db, limit=1_000)
    near = get_close_matches(thread, known) or known[:3]
    there = f"there {'is' if len(near) == 1 else 'are'} {', '.join(map(repr, near)) or 'none'}"
    return UnknownThreadError(thread, hint=f"{there}; graph-agent threads lists them")


def history(db: str, thread: str, *, agents: bool = False, source: Any = None) -> Any:
    """Give the history of a thread; `agents`, with the agent's reading of it."""
    try:
        return _kind(agents=agents)(source or saver(db), thread)
    except UnknownThreadError as error:
        raise unknown(thread, db) from error


def _kind(*, agents: bool) -> type[History]:
    from checkpointers import History

    if agents:
        from graph_agent.history import Timeline

        return Timeline
    return History


def timeline(db: str, thread: str) -> Timeline:
    """Give the history of an agent's thread."""
    found: Timeline = history(db, thread, agents=True)
    return found


def places(db: str, *addresses: str, agents: bool = False) -> list[tuple[Any, Any]]:
    """Give the steps at addresses, each with the history that it is of.

    `THREAD` is its newest step, also where its name has an `@` in it; `@3` and `3` are of the first one's thread.
    """
    opened, known, found = saver(db), dict[str, Any](), list[tuple[Any, Any]]()
    for address in addresses:
        of, mark, _ = address.rpartition("@")
        if found and not of and (mark or address.lstrip("-").isdigit()):
            of, step = found[0][0].thread, f"@{address.lstrip('@')}"
        elif of and address not in known and not _is_thread(opened, address):
            step = address
        else:
            of, step = address, "@-1"
        known[of] = known.get(of) or history(db, of, agents=agents, source=opened)
        found.append((known[of], known[of].at(step)))
    return found


def _is_thread(opened: Any, name: str) -> bool:
    try:
        _kind(agents=False)(opened, name, newest=1)
    except UnknownThreadError:
        return False
    return True


def steps(db: str, *addresses: str, agents: bool = False) -> tuple[Step, ...]:
    """Give the steps at addresses."""
    return tuple(step for _, step in places(db, *addresses, agents=agents))


@contextmanager
def agent(app: str, model: str = "", db: str = "", *, create: bool = False) -> Iterator[Agent]:
    """Give the agent that `module:name` names, where a function makes it; or one of a model and a database."""
    from checkpointers import Saver
    from graph_agent.agent import Agent

    if app or not model:
        agent, made = agent_named(app)
        try:
            yield agent
        finally:
            if made and isinstance(agent.saver, Saver):
                agent.saver.close()
        return

    with ours(db or DEFAULT_DB, create=create) as opened:
        yield Agent(model, saver=opened)


def prices(given: list[str]) -> dict[str, tuple[float, float]]:
    """Read prices as they are written in the shell."""
    found: dict[str, tuple[float, float]] = {}
    for one in given:
        name, _, told = one.rpartition("=")
        pair = told.split(",")
        try:
            price_in, price_out = map(float, pair)
        except ValueError:
            raise ValueError(f"--price {one!r} is no price; write MODEL=IN,OUT, as gpt-5-mini=0.25,2") from None
        found[name] = (price_in, price_out)
    return found


def money(cost: float) -> str:
    """Write what something cost; nothing if nothing is known to."""
    return f"{cost:.6g}" if cost else ""


def say_unpriced(models: Sequence[str]) -> None:
    """Say which models have no price, and how to give them one."""
    if models:
        say(f"no cost is counted of {', '.join(models)}: pass --price {models[0]}=IN,OUT")
