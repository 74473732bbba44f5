"""Kill a process before each request it makes of a database, then recover: `python -m tests.checkpointers.crash URL N`.

This process imports everything once and forks for each point, so a point costs a tenth of a second.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable

from checkpointers import ThreadExistsError
from checkpointers.testing import FaultyDatabase, kill_at
from tests.checkpointers.graphs import DeltaState, config, loop
from tests.conftest import reopen
from tests.proofs.lives import live

STEPS = 6
KILLED, FINE = "killed", "fine"


def in_child(work: Callable[[], None]) -> str:
    """Run in a forked process; anything but success or the intended SIGKILL is an error here."""
    return KILLED if live(work).end() is None else FINE


def work(url: str, thread: str, number: int) -> None:
    """Run a thread from where it stands, then prune, copy and delete; die before the N-th request."""
    real = reopen(url)
    saver = type(real)(FaultyDatabase(real.database, kill_at(number)))
    app = loop(saver, DeltaState)
    begun = app.get_state(config(thread)).values.get("n") is not None
    app.invoke(None if begun else {"until": STEPS, "n": 0}, config(thread), durability="sync")
    saver.prune([thread])
    try:
        saver.copy_thread(thread, f"{thread} copy")
    except ThreadExistsError:
        assert loop(saver, DeltaState).get_state(config(f"{thread} copy")).values["other"] == list(range(STEPS))
    saver.delete_thread(f"{thread} copy")
    real.close()


def check(url: str, thread: str) -> None:
    """See that the thread is what it would have been without any crash."""
    with reopen(url) as saver:
        state = loop(saver, DeltaState).get_state(config(thread))
        assert [e["id"] for e in state.values["log"]] == list(range(STEPS)), state.values
        assert state.values["other"] == list(range(STEPS)), state.values
        assert state.next == ()
        names = {info.thread: info for info in saver.threads()}
        assert f"{thread} copy" not in names
        assert (names[thread].status, names[thread].checkpoints) == ("done", 1)
        assert names[thread].bytes == sum(usage.bytes for usage in saver.usage(thread))


def main(url: str, most: int) -> None:
    """Try every crash point, each followed by a second crash during recovery."""
    warnings.simplefilter("ignore")
    in_child(lambda: reopen(url).close())
    tried, reached = 0, False
    while tried < most and not reached:
        tried += 1
        reached = try_point(url, tried) == FINE
    print(f"crash points: tried {tried}, each twice, lost 0, wrong 0, last one reached: {reached}")


def try_point(url: str, number: int) -> str:
    """Die before request N, die again while recovering, recover, and check; tell whether the first life died."""
    thread = f"crash {number}"
    first = in_child(lambda: work(url, thread, number))
    in_child(lambda: work(url, thread, 1 + number % 11))
    assert in_child(lambda: work(url, thread, 0)) == FINE
    assert in_child(lambda: check(url, thread)) == FINE
    return first


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
