"""The proof of effects, bounded; `make crash` does all of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.checkpointers.test_proofs import proved

EVERY = os.environ.get("PROOF_EFFECTS_EVERY", "60")
ROOT = Path(__file__).parents[2]


def told(line: str, name: str) -> int:
    """Read a count off the line of a proof."""
    return int(line.partition(f"{name} ")[2].partition(",")[0])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgres", "official"])
def test_killed_at_boundaries_of_effects(kind: str, postgres_server: str) -> None:
    """SIGKILL before and after what is said to the database and every effect: each is made once, who must be is asked."""
    lines = proved("effects", "--only", kind, "--every", EVERY, url=postgres_server, root=ROOT)
    assert len(lines) == 2
    for line in lines:
        assert "lost 0, duplicated 0, wrong 0" in line
        assert told(line, "tried") > 8
        assert told(line, "in doubt and asked") > 0
        where = dict(one.split() for one in line.partition("before+after: ")[2].split(", "))
        before, after = zip(*(map(int, one.split("+")) for name, one in where.items() if name != "effect"), strict=True)
        assert min(sum(before), sum(after)) > 0
