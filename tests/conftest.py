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
settings.register_profile("large", settings.get_profile("default"), max_examples=1_000)
settings.load_profile("default")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell that runs something in the background says so
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """Give the address of a server: `TEST_POSTGRES_URL`, or one started here. Never skipped."""
    if url := os.environ.get("TEST_POSTGRES_URL"):
        yield url
        return
    with LocalPostgres() as server:
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
