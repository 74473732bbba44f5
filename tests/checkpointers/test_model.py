"""One state machine drives ours on both databases with InMemorySaver as the oracle: divergences 0.

The oracle never forgets. What ours pruned is left out of the comparison; what ours kept must read exactly as in the
oracle, DeltaChannel histories included, for ever after. Differences by design: a thread's newest checkpoint is the
last one stored (ids are made in order here, so both agree), and the parent of a kept checkpoint is its nearest kept
ancestor.
"""

from __future__ import annotations

import copy
import itertools
import os
import tempfile
import uuid
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from checkpointers import PostgresSaver, SqliteSaver
from tests.checkpointers.wild import TYPES, difference, facts, messages, values

THREADS = ["a", "b", "\x00 odd \U0001f600" * 300]
SPACES = ["", "child:1"]
CHANNELS = ["value", "items", "table", "messages"]
EXAMPLES = int(os.environ.get("MODEL_EXAMPLES", "25"))


class Comparison(RuleBasedStateMachine):
    """Each rule does the same thing to all savers; each check compares all answers."""

    server: str

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.schema = f"m{uuid.uuid4().hex}"
        self.oracle = InMemorySaver()
        self.ours = {
            "sqlite": SqliteSaver.open(Path(self.folder.name) / "m.db", types=TYPES),
            "postgres": PostgresSaver.open(self.server, schema=self.schema, pool_size=2, types=TYPES),
        }
        # Processes that only read: what they keep of a thread must never outlive its next change.
        self.reading = {
            **self.ours,
            "another on sqlite": SqliteSaver.open(Path(self.folder.name) / "m.db", types=TYPES),
            "another on postgres": PostgresSaver.open(self.server, schema=self.schema, pool_size=2, types=TYPES),
        }
        self.live: dict[tuple[str, str], list[str]] = {}
        self.parents: set[tuple[str, str, str]] = set()
        self.sparse: set[tuple[str, str, str]] = set()
        self.runs: dict[tuple[str, str, str], str] = {}
        self.counter = itertools.count(1)

    def teardown(self) -> None:
        for saver in self.reading.values():
            saver.close()
        with psycopg.connect(self.server, autocommit=True) as connection:
            connection.execute(f'DROP SCHEMA "{self.schema}" CASCADE')
        self.folder.cleanup()

    def everywhere(self, call: Any) -> None:
        for saver in [self.oracle, *self.ours.values()]:
            call(saver)

    def place(self, data: Any, *, stored: bool = True) -> tuple[str, str, str | None]:
        if stored:
            thread, ns = data.draw(st.sampled_from(sorted(k for k, ids in self.live.items() if ids)))
            return thread, ns, data.draw(st.sampled_from(self.live[thread, ns]))
        thread, ns = data.draw(st.sampled_from(THREADS)), data.draw(st.sampled_from(SPACES))
        ids = self.live.get((thread, ns), [])
        newest = ids[-1:] * 3
        return thread, ns, data.draw(st.sampled_from([None, *ids, *newest])) if ids else None

    def changed(self, data: Any, channel: str, old: Any) -> Any:
        """Change a value as nodes do: append, replace, remove, touch in place, or make a new one."""
        if channel == "value":
            return data.draw(values)
        if channel == "table":
            table = dict(old) if isinstance(old, dict) else {}
            for key in data.draw(st.lists(st.integers(0, 8), max_size=3)):
                table[f"k{key}"] = data.draw(values)
            if table and data.draw(st.booleans()):
                table.pop(data.draw(st.sampled_from(sorted(table))))
            return table
        items = list(old) if isinstance(old, list) else []
        kind = messages if channel == "messages" else st.one_of(facts, values)
        how = data.draw(st.sampled_from(["append", "append", "append", "touch", "drop", "insert"]))
        if how == "touch" and items and hasattr(items[0], "content"):
            items[0].content = data.draw(st.text("xyz", max_size=9))
        elif how == "drop":
            return items[1:]
        elif how == "insert":
            return [data.draw(kind), *items]
        return items + data.draw(st.lists(kind, max_size=3))

    @rule(data=st.data())
    def put(self, data: Any) -> None:
        thread, ns, parent = self.place(data, stored=False)
        config = {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": parent}}
        before = self.oracle.get_tuple(config) if parent else None
        old = copy.deepcopy(before.checkpoint["channel_values"]) if before else {}
        versions = dict(before.checkpoint["channel_versions"]) if before else {}
        new_versions, written = {}, dict(old)
        for channel in data.draw(st.lists(st.sampled_from(CHANNELS), unique=True)):
            new_versions[channel] = f"{next(self.counter):032}.0"
            written[channel] = self.changed(data, channel, old.get(channel))
        if data.draw(st.integers(0, 5)) == 0 and written:
            gone = data.draw(st.sampled_from(sorted(written)))
            new_versions[gone] = f"{next(self.counter):032}.0"
            del written[gone]
        # As LangGraph does: a channel that nobody wrote keeps its version, and a branch from an old checkpoint whose
        # writes another child has used starts with a snapshot.
        if parent and (thread, ns, parent) in self.sparse:
            new_versions["sparse"] = f"{next(self.counter):032}.0"
            if (thread, ns, parent) in self.parents:
                written["sparse"] = _DeltaSnapshot(["branched", "x" * 60])
        if parent:
            self.parents.add((thread, ns, parent))
        new_versions["delta"] = f"{next(self.counter):032}.0"
        written.pop("delta", None)
        if "sparse" not in new_versions:
            written.pop("sparse", None)
        if data.draw(st.integers(0, 4)) == 0:
            written["delta"] = _DeltaSnapshot(data.draw(st.lists(facts, max_size=3)))
        run = data.draw(st.sampled_from(["r1", "r2", "r3"]))
        checkpoint = {
            "v": 4, "id": str(uuid6()), "ts": "2026-11-18T01:02:03.000004+00:00", "channel_values": written,
            "channel_versions": versions | new_versions, "versions_seen": {"n": dict(versions)},
            "updated_channels": data.draw(st.none() | st.just(sorted(new_versions))),
        }  # fmt: skip
        metadata = {"source": "loop", "step": next(self.counter), "parents": {}, "run_id": run}
        self.everywhere(lambda saver: saver.put(config, checkpoint, metadata, new_versions))
        self.live.setdefault((thread, ns), []).append(checkpoint["id"])
        self.runs[thread, ns, checkpoint["id"]] = run

    @precondition(lambda self: any(self.live.values()))
    @rule(data=st.data(), task=st.integers(0, 2), path=st.sampled_from(["", "~a", "~b"]))
    def put_writes(self, data: Any, task: int, path: str) -> None:
        thread, ns, checkpoint = self.place(data)
        config = {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": checkpoint}}
        ordinary = st.tuples(st.sampled_from([*CHANNELS, "delta"]), values)
        delta = st.tuples(st.just("delta"), st.lists(facts, max_size=2))
        special = st.tuples(st.sampled_from(["__error__", "__interrupt__", "__resume__", "__scheduled__"]), values)
        kinds = data.draw(st.sampled_from([ordinary | delta, delta, special]))
        if (thread, ns, checkpoint) not in self.parents and data.draw(st.integers(0, 3)) == 0:
            kinds = st.tuples(st.just("sparse"), st.lists(facts, max_size=2))
            self.sparse.add((thread, ns, checkpoint))
        writes = data.draw(st.lists(kinds, min_size=1, max_size=3, unique_by=lambda w: w[0]))
        self.everywhere(lambda saver: saver.put_writes(config, writes, str(uuid.UUID(int=task)), path))

    @precondition(lambda self: any(self.live.values()))
    @rule(data=st.data())
    def prune(self, data: Any) -> None:
        thread, _, _ = self.place(data)
        for saver in self.ours.values():
            saver.prune([thread])
        for key in [key for key in self.live if key[0] == thread]:
            self.live[key] = self.live[key][-1:]

    @precondition(lambda self: any(self.live.values()))
    @rule(run=st.sampled_from(["r1", "r2", "r3"]))
    def delete_run(self, run: str) -> None:
        for saver in self.ours.values():
            saver.delete_for_runs([run])
        for (thread, ns), ids in self.live.items():
            self.live[thread, ns] = [one for one in ids if self.runs[thread, ns, one] != run]

    @precondition(lambda self: any(self.live.values()))
    @rule(data=st.data())
    def copy(self, data: Any) -> None:
        source, _, _ = self.place(data)
        target = f"copy {next(self.counter)}"
        for saver in self.ours.values():
            saver.copy_thread(source, target)
        for ns, entries in self.oracle.storage[source].items():
            self.oracle.storage[target][ns] = copy.copy(entries)
        for kept in (self.oracle.writes, self.oracle.blobs):
            for key in [key for key in kept if key[0] == source]:
                kept[(target, *key[1:])] = copy.copy(kept[key])
        for (thread, ns), ids in list(self.live.items()):
            if thread == source:
                self.live[target, ns] = list(ids)
                self.runs.update({(target, ns, one): self.runs[thread, ns, one] for one in ids})
                for known in (self.parents, self.sparse):
                    known.update({(target, ns, one) for one in ids if (thread, ns, one) in known})

    @precondition(lambda self: any(self.live.values()))
    @rule(data=st.data())
    def delete(self, data: Any) -> None:
        thread, _, _ = self.place(data)
        self.everywhere(lambda saver: saver.delete_thread(thread))
        for key in [key for key in self.live if key[0] == thread]:
            del self.live[key]
        for known in (self.parents, self.sparse):
            known -= {entry for entry in known if entry[0] == thread}

    @rule()
    def reopen(self) -> None:
        """Forget everything that a process remembers."""
        for saver in self.ours.values():
            saver._memory.forget()
            saver._names.keys.clear()
            saver._names.texts.clear()

    @rule(
        filter=st.sampled_from(
            [None, {"run_id": "r1"}, {"source": "loop"}, {"nothing": None}, {"step": 3}, {"step": 1.0}]
        ),
        limit=st.integers(0, 4),
    )
    def listing(self, filter: Any, limit: int) -> None:  # noqa: A002
        for (thread, ns), ids in self.live.items():
            config = {"configurable": {"thread_id": thread, "checkpoint_ns": ns}}
            before = {"configurable": {"checkpoint_id": ids[-1]}} if ids and limit % 2 else None
            wanted = [
                t.checkpoint for t in self.oracle.list(config, filter=filter, before=before)
                if t.checkpoint["id"] in ids
            ][:limit]  # fmt: skip
            for name, saver in self.reading.items():
                found = [t.checkpoint for t in saver.list(config, filter=filter, before=before, limit=limit)]
                assert [one["id"] for one in found] == [one["id"] for one in wanted], name
                for one, expected in zip(found, wanted, strict=True):
                    assert difference(_sorted(one), _sorted(expected)) is None, name

    @invariant()
    def agree(self) -> None:
        """Every live checkpoint reads the same everywhere; so do heads and delta histories."""
        for (thread, ns), ids in self.live.items():
            config = {"configurable": {"thread_id": thread, "checkpoint_ns": ns}}
            for name, saver in self.reading.items():
                newest = saver.get_tuple(config)
                assert (newest.checkpoint["id"] if newest else None) == (ids[-1] if ids else None), name
            for one in ids[-3:]:
                self.compare(thread, ns, one)

    def compare(self, thread: str, ns: str, one: str) -> None:
        config = {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": one}}
        expected = self.oracle.get_tuple(config)
        assert expected is not None
        history = self.oracle.get_delta_channel_history(config=config, channels=["delta", "sparse"])
        for name, saver in self.reading.items():
            found = saver.get_tuple(config)
            assert found is not None, name
            assert difference(_sorted(found.checkpoint), _sorted(expected.checkpoint)) is None, name
            assert found.metadata == expected.metadata, name
            assert difference(found.pending_writes, expected.pending_writes) is None, name
            told = saver.get_delta_channel_history(config=config, channels=["delta", "sparse"])
            for channel in ("delta", "sparse"):
                if channel not in expected.checkpoint["channel_values"]:
                    assert difference(told[channel], dict(history[channel])) is None, (name, channel)
            parent = found.parent_config["configurable"]["checkpoint_id"] if found.parent_config else None
            assert parent == self.living_ancestor(thread, ns, expected), name

    def living_ancestor(self, thread: str, ns: str, found: Any) -> str | None:
        while found is not None and found.parent_config is not None:
            parent = found.parent_config["configurable"]["checkpoint_id"]
            if parent in self.live[thread, ns]:
                return parent
            found = self.oracle.get_tuple(found.parent_config)
        return None


def _sorted(checkpoint: Any) -> list[Any]:
    """Leave out the order in which LangGraph's own dicts were built: it means nothing."""
    return [
        (key, sorted(value.items(), key=lambda entry: entry[0]) if isinstance(value, dict) else value)
        for key, value in sorted(checkpoint.items())
    ]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_same_as_the_oracle(postgres_server: str) -> None:
    """Puts, writes, forks, prunes, copies and deletes with wild values: no divergence."""

    class Run(Comparison):
        server = postgres_server

    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(Run, settings=settings(max_examples=EXAMPLES, stateful_step_count=25, deadline=None))
