"""LangGraph's own conformance suite: 8 capabilities, 81 checks, on both databases, through both halves of the saver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate

from checkpointers import Saver
from tests.conftest import reopen

CAPABILITIES = {
    "put", "put_writes", "get_tuple", "list", "delete_thread", "delete_for_runs", "copy_thread", "prune",
}  # fmt: skip


class SyncHalf(BaseCheckpointSaver[Any]):
    """The suite only calls async methods: this calls the sync twin of each, so that the sync half is judged too."""

    def __init__(self, saver: Saver) -> None:
        super().__init__(serde=saver.serde)
        self._saver = saver

    async def aget_tuple(self, config):
        return self._saver.get_tuple(config)

    async def alist(self, config, *, filter=None, before=None, limit=None):  # noqa: A002
        for found in self._saver.list(config, filter=filter, before=before, limit=limit):
            yield found

    async def aput(self, *arguments):
        return self._saver.put(*arguments)

    async def aput_writes(self, config, writes, task_id, task_path=""):
        self._saver.put_writes(config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id):
        self._saver.delete_thread(thread_id)

    async def adelete_for_runs(self, run_ids):
        self._saver.delete_for_runs(run_ids)

    async def acopy_thread(self, source_thread_id, target_thread_id):
        self._saver.copy_thread(source_thread_id, target_thread_id)

    async def aprune(self, thread_ids, *, strategy="keep_latest"):
        self._saver.prune(thread_ids, strategy=strategy)


@pytest.mark.parametrize("half", ["async", "sync"])
def test_conformance_suite(url: str, half: str) -> None:
    """Every capability is detected and every check passes."""

    @checkpointer_test(name=f"{url} {half}")
    async def factory() -> AsyncIterator[BaseCheckpointSaver[Any]]:
        with reopen(url) as saver:
            yield saver if half == "async" else SyncHalf(saver)

    report = asyncio.run(validate(factory))
    failures = [failure for result in report.results.values() for failure in result.failures]
    assert failures == []
    assert {name for name, result in report.results.items() if result.detected and result.passed} == CAPABILITIES
    assert sum(result.tests_passed for result in report.results.values()) == 81
