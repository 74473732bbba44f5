"""Faults below SQLite: the process dies, or the disk refuses, at the N-th write or flush (F23)."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from checkpointers import SqliteSaver
from tests.checkpointers.graphs import config, loop

ROOT = Path(__file__).parents[2]
STEPS = 8
LIFE = f"""
import sys, warnings
warnings.simplefilter("ignore")
from checkpointers import SqliteSaver, StorageError
from tests.checkpointers.graphs import config, loop
for attempt in range(20):
    try:
        saver = SqliteSaver.open(sys.argv[1])
        app = loop(saver)
        given = None if app.get_state(config()).values else {{"until": {STEPS}, "n": 0}}
        for part in app.stream(given, config(), durability="sync", stream_mode="updates"):
            print(part["work"]["n"], flush=True)
        break
    except StorageError as error:
        assert sys.argv[1] in str(error), error
        print("refused", type(error).__name__, flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace, which injects the faults")
@pytest.mark.parametrize("fault", ["signal=SIGKILL", "error=EIO", "error=ENOSPC"])
@pytest.mark.parametrize("where", ["pwrite64:3", "pwrite64:25", "pwrite64:60", "fdatasync:1", "fdatasync:9"])
def test_a_fault_at_a_system_call(tmp_path: Path, fault: str, where: str) -> None:
    """What was acknowledged is readable, the database is sound, and the run reaches its end."""
    path = tmp_path / "t.db"
    call, _, number = where.partition(":")
    inject = ["strace", "-f", "--seccomp-bpf", "-o", "/dev/null", "-e", f"trace={call}", "-e"]
    command = [sys.executable, "-c", LIFE, str(path)]
    faulty = [*inject, f"inject={call}:{fault}:when={number}", *command]
    first = subprocess.run(faulty, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    told = [int(line) for line in first.stdout.split() if line.isdigit()]
    assert "Traceback" not in first.stderr, first.stderr[-2_000:]
    with SqliteSaver.open(str(path)) as saver:
        stored = loop(saver).get_state(config()).values.get("n", 0)
        assert stored >= max(told[:-1], default=0), (told, stored)
    second = subprocess.run([*command], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert second.returncode == 0, second.stderr[-2_000:]
    with SqliteSaver.open(str(path)) as saver:
        values = loop(saver).get_state(config()).values
        assert [entry["id"] for entry in values["log"]] == list(range(STEPS))
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
