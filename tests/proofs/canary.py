"""Plant a canary in every kind of value and look for it everywhere: `python -m tests.proofs.canary [sqlite|postgres]`.

Three databases each: one in clear, in which the search must find every place it planted (else it could find nothing
anywhere); one that is encrypted from its first row, searched after runs, after removals and after closing; one that was
in clear and was rotated. Searched are the values of every column of every table, and the bytes of every file: the
SQLite file, its log and shared memory; the data folder of Postgres with its log of writes and its server log. As text
in three encodings, hex, base64 at each offset, and inside whatever can be decompressed.

Readable by design, and therefore not planted: namespaces, names of nodes and channels, ids of checkpoints and tasks,
owners of leases, numbers and times.
"""

from __future__ import annotations

import base64
import secrets
import sys
import tempfile
import time
import warnings
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypedDict

import psycopg
import zstandard
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.channels import DeltaChannel
from langgraph.graph import StateGraph, add_messages
from langgraph.types import Command, interrupt

from checkpointers import Keep, Keyring, PostgresSaver, Saver, SqliteSaver
from checkpointers.compression import unsqueeze
from checkpointers.statements import Statement, Statements
from checkpointers.strict import StrictSerializer
from checkpointers.testing import LocalPostgres
from tests.checkpointers.graphs import extend

PLACES = (
    "top-level text", "digits", "number", "list element", "nested value", "key of a nested value", "human message",
    "keyword of a message", "dataclass field", "bytes", "long text", "DeltaChannel", "channel write", "interrupt",
    "resume value", "error text", "metadata value", "metadata key", "config configurable", "tag", "thread id",
    "task path", "unknown key of a checkpoint", "text of a write that waits", "value of a subgraph",
    "key of an effect", "record of an effect", "status of an effect", "body", "part of a body",
)  # fmt: skip
TABLES = (
    "cp_names", "cp_threads", "cp_leases", "cp_keys", "cp_checkpoints", "cp_heads", "cp_writes", "cp_elements",
    "cp_effects", "cp_bodies", "cp_schema",
)  # fmt: skip
SEALED_OFFSETS = (0, 8, 16, 40)
LONGEST = 1 << 18


@dataclass
class Bird:
    """A type of one's own, listed when the saver is opened."""

    song: str


class Aviary(TypedDict, total=False):
    top: str
    digits: str
    number: int
    nested: dict[str, Any]
    items: list[Any]
    messages: Annotated[list[Any], add_messages]
    bird: Any
    raw: bytes
    long: str
    answers: list[str]
    log: Annotated[list[Any], DeltaChannel(extend, snapshot_frequency=50)]


class Canary:
    """Texts that stand nowhere else: one stem, and a number for each place."""

    def __init__(self) -> None:
        """Choose a stem."""
        letters = "bcdfghjkmnpqrstvwxz"
        self.stem = "Kanari" + "".join(secrets.choice(letters) for _ in range(8))
        self.digits = "".join(secrets.choice("123456789") for _ in range(18))
        self.number = secrets.randbits(62) | 1 << 61

    def at(self, place: str) -> str:
        """Give the text of a place."""
        return self.digits if place == "digits" else f"{self.stem}{PLACES.index(place):02}"

    def needles(self) -> dict[str, bytes]:
        """Give what to look for, whatever place it is of."""
        found = {"number": self.number.to_bytes(8, "big"), "number, backwards": self.number.to_bytes(8, "little")}
        for text in (self.stem, self.digits):
            raw = text.encode()
            found |= {f"{text} {name}": text.encode(name) for name in ("utf-8", "utf-16-le", "utf-16-be")}
            found |= {f"{text} hex": raw.hex().encode(), f"{text} HEX": raw.hex().upper().encode()}
            for offset in range(3):
                whole = base64.b64encode(b"\0" * offset + raw)
                found[f"{text} base64 {offset}"] = whole[-(-offset * 8 // 6) + (offset > 0) : len(whole) // 4 * 4 - 4]
        return found

    def places_in(self, data: bytes) -> set[str]:
        """Give the places whose text is here, as it was planted."""
        if not any(one in data for one in (self.stem.encode(), self.digits.encode(), self.number.to_bytes(8, "big"))):
            return set()
        found = {place for place in PLACES if place != "number" and self.at(place).encode() in data}
        return found | ({"number"} if self.number.to_bytes(8, "big") in data else set())


@dataclass
class Found:
    """What came of a search."""

    places: int = len(PLACES)
    unseen: list[str] = field(default_factory=list)
    clear: list[str] = field(default_factory=list)
    after_rotation: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    files: int = 0
    bytes: int = 0

    def __str__(self) -> str:
        return (
            f"places {self.places}, seen in a plain database {self.places - len(self.unseen)}, clear {len(self.clear)},"
            f" clear after rotation {len(self.after_rotation)}, left in Postgres' own log and statistics {len(self.left)},"
            f" files {self.files}, bytes {self.bytes:,}"
        )


def aviary(saver: Saver, canary: Canary) -> Any:
    """Make a graph whose every step says something secret."""

    def sing(state: Any) -> dict[str, Any]:
        at = canary.at
        return {
            "top": at("top-level text"), "digits": at("digits"), "number": canary.number,
            "nested": {"deep": [{"er": at("nested value")}], at("key of a nested value"): 1},
            "items": [at("list element"), {"a": at("list element")}],
            "messages": [
                HumanMessage(at("human message"), id="h"),
                AIMessage("…", id="a", additional_kwargs={"note": at("keyword of a message")}),
            ],
            "bird": Bird(at("dataclass field")), "raw": at("bytes").encode(),
            "long": f"{'the same again and again, ' * 30}{at('long text')}{' and again' * 30}",
            "log": [at("DeltaChannel"), "and more"],
        }  # fmt: skip

    def ask(state: Any) -> dict[str, Any]:
        return {"answers": [interrupt({"ask": canary.at("interrupt")})]}

    def fail(state: Any) -> dict[str, Any]:
        raise ValueError(canary.at("error text"))

    inner = StateGraph(Aviary)
    inner.add_node("inside", lambda state: {"items": [canary.at("value of a subgraph")]})
    inner.add_edge("__start__", "inside")
    builder = StateGraph(Aviary)
    for name, node in (("sing", sing), ("inner", inner.compile(checkpointer=True)), ("ask", ask), ("fail", fail)):
        builder.add_node(name, node)
    for edge in (("__start__", "sing"), ("sing", "inner"), ("inner", "ask"), ("ask", "fail")):
        builder.add_edge(*edge)
    return builder.compile(checkpointer=saver)


def plant(saver: Saver, canary: Canary, thread: str = "") -> str:
    """Put a canary in every place of a thread; give its name."""
    at, app = canary.at, aviary(saver, canary)
    thread = f"{canary.at('thread id')} {thread}"
    config: Any = {
        "configurable": {"thread_id": thread, "note": at("config configurable")},
        "metadata": {"who": at("metadata value"), at("metadata key"): 1},
    }
    app.invoke({"number": canary.number}, config)
    try:
        app.invoke(Command(resume={"said": at("resume value")}), config)
    except ValueError:
        pass
    else:
        raise AssertionError("the graph did not fail")
    head = saver.get_tuple(config)
    assert head is not None
    saver.put_writes(head.config, [("items", [at("channel write")])], "a task", at("task path"))
    waiting: Any = {"configurable": {**head.config["configurable"], "checkpoint_id": "nobody stored it"}}
    saver.put_writes(waiting, [("top", at("text of a write that waits"))], "another task")
    for _ in range(2):  # the second is a duplicate, which a server may write into its log
        saver.put(head.config, {**head.checkpoint, "id": "again", "odd": at("unknown key of a checkpoint")}, head.metadata, {})  # fmt: skip
    saver.tag(thread, at("tag"))
    entry, _ = saver.ledger.claim(thread, at("key of an effect"), {"to": "ada"})
    record = {"said": at("record of an effect")}
    saver.ledger.change(entry, status=at("status of an effect"), record=record, bodies=[at("body").encode()])
    saver.ledger.keep(thread, b"again and again, " * 20_000 + at("part of a body").encode())
    return thread


def tend(saver: Saver, canary: Canary) -> None:
    """Do what a saver does with threads: copy, prune, retain, recover, hold, delete."""
    one, two, three = (plant(saver, canary, name) for name in ("one", "two", "three"))
    saver.copy_thread(one, f"{one} copy")
    saver.prune([one])
    saver.retain(Keep(last=2), threads=[two])
    saver.recover(two, into=f"{two} saved")
    with saver.lease(two):
        saver.tag(two, canary.at("tag"), "held")
    saver.delete_thread(three)
    saver.delete_for_runs(["nobody's"])
    saver.vacuum()


@dataclass(frozen=True)
class Site:
    """Where the databases are, where the server has its files, and since when they matter."""

    url: str
    folder: Path | None
    since: float


class Search:
    """Looks into the tables of a saver, and into the files below it."""

    def __init__(self, canary: Canary) -> None:
        """Look for this one."""
        self.canary, self.needles = canary, canary.needles()
        self.hits: dict[str, set[str]] = {}
        self.places: set[str] = set()
        self.files = self.bytes = 0

    def look(self, data: bytes, where: str) -> None:
        """Look into some bytes, and into what they become when they are decompressed."""
        for number, raw in enumerate((data, *decompressed(data))):
            self.places |= self.canary.places_in(raw)
            for what, needle in self.needles.items():
                if needle in raw:
                    self.hits.setdefault(where, set()).add(f"{what}{', compressed' if number else ''}")

    def table(self, saver: Saver, name: str) -> None:
        """Look into every value of a table."""
        for row in rows_of(saver, name):
            for value in row:
                if isinstance(value, str | bytes | memoryview):
                    raw = value.encode("utf-8", "replace") if isinstance(value, str) else bytes(value)
                    self.look(raw, name)
                    for offset in SEALED_OFFSETS:
                        with suppress(Exception):
                            self.look(unsqueeze(raw[offset:]), name)
                elif value == self.canary.number:
                    self.hits.setdefault(name, set()).add("number")

    def file(self, path: Path, where: str) -> None:
        """Look into a file, if it is still there."""
        with suppress(FileNotFoundError):
            data = path.read_bytes()
            self.files, self.bytes = self.files + 1, self.bytes + len(data)
            self.look(data, where)

    def everywhere(self, saver: Saver, at: Site) -> None:
        """Look into all tables, and all files that the database has."""
        self.tables(saver)
        self.all_files(saver, at)

    def tables(self, saver: Saver) -> None:
        """Look into all tables."""
        for name in TABLES:
            self.table(saver, name)

    def all_files(self, saver: Saver, at: Site) -> None:
        """Bring everything to the disk, as far as a database lets itself be told, and look into all files."""
        relations = {}
        if saver.database.dialect == "postgres":
            with psycopg.connect(at.url, autocommit=True) as connection:
                connection.execute("CHECKPOINT")
            relations = relations_of(at.url)
        for path, where in files_of(saver, at.folder, at.since, relations):
            self.file(path, where)


def decompressed(data: bytes) -> Iterator[bytes]:
    """Give whatever some bytes have in them that can be decompressed."""
    at = data.find(b"\x28\xb5\x2f\xfd")
    while at >= 0:
        with suppress(zstandard.ZstdError):
            yield zstandard.ZstdDecompressor().decompressobj().decompress(data[at : at + LONGEST])
        at = data.find(b"\x28\xb5\x2f\xfd", at + 1)
    for head in (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"):
        at = data.find(head)
        while at >= 0:
            with suppress(zlib.error):
                yield zlib.decompressobj().decompress(data[at : at + LONGEST], LONGEST)
            at = data.find(head, at + 1)


def rows_of(saver: Saver, table: str) -> list[Any]:
    def asked() -> Statements[Any]:
        return (yield Statement(f"SELECT * FROM {table}"))

    return list(saver.database.read(asked))


def relations_of(url: str) -> dict[str, str]:
    """Give the names of the relations of a database by the names of their files, and under "" its own."""
    with psycopg.connect(url) as connection:
        named = connection.execute("SELECT pg_relation_filenode(oid)::text, relname FROM pg_class").fetchall()
        own = connection.execute("SELECT oid::text FROM pg_database WHERE datname = current_database()").fetchall()
    return {"": own[0][0], **{number: name for number, name in named if number}}


def files_of(saver: Saver, folder: Path | None, since: float, relations: dict[str, str]) -> Iterator[tuple[Path, str]]:
    """Give every file that may have something of a database in it, and what it is."""
    if saver.database.dialect == "sqlite":
        path = Path(saver.database.place)
        yield from ((one, f"file {one.name.removeprefix(path.stem)}") for one in path.parent.glob(f"{path.name}*"))
    elif folder is not None:
        recent = [path for path in folder.parent.rglob("*") if path.is_file() and path.stat().st_mtime >= since - 1]
        for path in recent:
            inside = path.relative_to(folder).parts if path.is_relative_to(folder) else ("server log",)
            if inside[0] in ("global", "pg_wal", "pg_stat", "pg_stat_tmp", "server log"):
                yield path, inside[0]
            elif inside[:2] == ("base", relations[""]):
                number = path.name.partition(".")[0].partition("_")[0]
                yield path, f"base, {relations.get(number, 'a table that is gone')}"


def data_folder(url: str) -> Path | None:
    """Say where a server has its files, if they are here and may be read."""
    if url.startswith("sqlite"):
        return None
    with psycopg.connect(url, autocommit=True) as connection:
        (said,) = connection.execute("SHOW data_directory").fetchone() or ("",)
    folder = Path(said)
    with suppress(OSError):
        return folder if (folder / "PG_VERSION").read_bytes() else None
    return None


def opened(url: str, name: str, **options: Any) -> Saver:
    """Open one of three databases at one address; SQLite as it is built where it does not wipe what it frees."""
    serde = StrictSerializer([Bird])
    if not url.startswith("sqlite"):
        return PostgresSaver.open(url, schema=f"canary_{name}", pool_size=2, serde=serde, **options)
    saver = SqliteSaver.open(f"{url.removeprefix('sqlite:///')}.{name}", serde=serde, **options)
    saver.database._writer.execute("PRAGMA secure_delete=OFF")
    return saver


def look_everywhere(url: str) -> Found:
    """Plant and search: in a plain database, in an encrypted one, in one that was rotated."""
    at, found = Site(url, data_folder(url), time.time()), Found()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        in_clear(at, found)
        encrypted(at, found)
        rotated(at, found)
    return found


def in_clear(at: Site, found: Found) -> None:
    """See that the search finds what is there to be found."""
    search = Search(canary := Canary())
    with opened(at.url, "plain") as saver:
        plant(saver, canary)
        search.everywhere(saver, at)
        postgres = saver.database.dialect == "postgres"
    wanted = ["file"] if not postgres else ["base", "pg_wal"] if at.folder else []
    found.unseen = sorted(set(PLACES) - search.places)
    found.unseen += [where for where in wanted if not any(hit.startswith(where) for hit in search.hits)]


def encrypted(at: Site, found: Found) -> None:
    """Search a database that was encrypted from its first row, after everything that is done with it."""
    search, keys = Search(canary := Canary()), Keyring.generate("first")
    with opened(at.url, "sealed", keys=keys) as saver:
        plant(saver, canary)
        search.tables(saver)
        tend(saver, canary)
        search.everywhere(saver, at)
        saver.vaults.keyring = keys.with_new("second")
        saver.rotate()
        saver.vacuum(full=True)
        search.everywhere(saver, at)
    search.all_files(saver, at)
    found.clear = told(search)
    found.files, found.bytes = search.files, search.bytes


def rotated(at: Site, found: Found) -> None:
    """Search a database that was in clear. What Postgres keeps elsewhere is told apart: nobody else can remove it.

    Its log of writes has every row that was ever written, until its files are used again or archived; its statistics,
    which any ANALYZE makes, have samples of columns.
    """
    search = Search(canary := Canary())
    with opened(at.url, "rotated") as saver:
        plant(saver, canary)
        tend(saver, canary)
    with opened(at.url, "rotated", keys=Keyring.generate("first"), migrating=True) as saver:
        saver.rotate()
        search.everywhere(saver, at)
    hits = told(search)
    found.left = [hit for hit in hits if hit.startswith(("pg_wal", "base, pg_statistic"))]
    found.after_rotation = [hit for hit in hits if hit not in found.left]


def told(search: Search) -> list[str]:
    """Say what was found, and where."""
    return sorted(f"{where}: {what}" for where, hits in search.hits.items() for what in hits)


def main() -> int:
    """Look into both databases, or the one that is named."""
    wanted, failed = sys.argv[1:] or ["sqlite", "postgres"], False
    for backend in wanted:
        start = time.perf_counter()
        if backend == "sqlite":
            with tempfile.TemporaryDirectory() as folder:
                found = look_everywhere(f"sqlite:///{folder}/canary.db")
        else:
            with LocalPostgres() as server:
                found = look_everywhere(server.url)
        print(f"canary {backend}: {found}, seconds {time.perf_counter() - start:.1f}")
        for what in ("unseen", "clear", "after_rotation", "left"):
            for line in getattr(found, what):
                print(f"  {what}: {line}")
        failed |= bool(found.unseen or found.clear or found.after_rotation)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
