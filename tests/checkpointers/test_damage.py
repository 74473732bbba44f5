"""What is damaged is never read as something else: the bounded form of `python -m tests.proofs.corrupt`."""

from __future__ import annotations

import random

import pytest

from tests.proofs import corrupt

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.slow
def test_damage_is_never_silent(postgres_url: str) -> None:
    """F14: rows and bits of a file, rows of Postgres; a damaged thread is an error, the others read as before."""
    seed = random.randrange(1 << 32)
    for result in (*corrupt.sqlite(80, seed), corrupt.postgres(postgres_url, 20, seed)):
        assert result.tried > 15
        assert (result.silent, result.untyped, result.others) == ([], [], []), seed


def test_every_way_to_damage_is_tried() -> None:
    """The corruption is real: most of what is done to a row is noticed."""
    rows, _ = corrupt.sqlite(24, 1)
    assert rows.outcomes.get("no effect", 0) < rows.tried / 2
