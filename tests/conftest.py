"""Databases for the tests: real files, and a real Postgres server of the tests' own."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, settings

from checkpointers import PostgresSaver, Saver, SqliteSaver
from checkpointers.testing import LocalPostgres
from tests.checkpointers.wild import TYPES

settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
settings.register_profile("fast", settings.get_profile("default"), max_examples=10)
settings.register_profile("large", settings.get_profile("default"), max_examples=1_000)
settings.load_profile("default")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell that runs something in the background says so
    signal.signal(signal.SIGINT, signal.default_int_handler)


LONG = {
    "test_cli", "test_cli_errors", "test_cli_going_on", "test_cli_tail", "test_cli_terminal", "test_cli_verbs",
    "test_crashes", "test_demo", "test_documents", "test_failures", "test_lease", "test_notebooks", "test_openai_server",
    "test_real_threads", "test_server", "test_showing", "test_syscalls", "test_wheel",
}  # fmt: skip


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out of `make fast`, beside what is marked, Postgres and the modules that start processes, wait or take long."""
    for item in items:
        with_postgres = "postgres_server" in item.fixturenames or "postgres" in item.name.partition("[")[2]
        if with_postgres or item.path.stem in LONG:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """Give the address of a server: `TEST_POSTGRES_URL`, or one started here. Never skipped.

    It does not wait for the disk: servers and processes die in the tests, the machine does not.
    """
    if url := os.environ.get("TEST_POSTGRES_URL"):
        yield url
        return
    with LocalPostgres(flushes=False) as server:
        yield server.url


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """Give the address of an empty database that goes with the test."""
    name = f"t{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    yield postgres_server.rsplit("/", 1)[0] + f"/{name}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest) -> str:
    """Name each database in turn."""
    return request.param


@pytest.fixture
def url(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """Give the saver address of an empty database."""
    if backend == "sqlite":
        return f"sqlite:///{tmp_path}/test.db"
    return request.getfixturevalue("postgres_url")


@pytest.fixture
def saver(url: str) -> Iterator[Saver]:
    """Give an open saver on an empty database."""
    with reopen(url) as opened:
        yield opened


def reopen(url: str, **options: object) -> Saver:
    """Open a saver as another process would, one that knows the types of the tests."""
    if "serde" not in options:
        options.setdefault("types", TYPES)
    if url.startswith("sqlite"):
        return SqliteSaver.open(url.removeprefix("sqlite:///"), **options)
    return PostgresSaver.open(url, pool_size=4, **options)
