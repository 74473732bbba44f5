"""What is damaged is never read as something else: the bounded form of `python -m tests.proofs.corrupt`."""

from __future__ import annotations

import random

import pytest

from checkpointers import IncompleteRecordError, IntegrityError, Saver
from tests.checkpointers.graphs import config, nested, review
from tests.checkpointers.test_fsck import ask
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


@pytest.mark.parametrize("more", [1, -1, 250])
def test_a_count_of_writes_that_is_off(saver: Saver, more: int) -> None:
    """Any number that nobody can have counted is damage, even where it would ask for no more rows than there are."""
    review(saver).invoke({"n": 0}, config())
    ask(saver, "UPDATE cp_checkpoints SET tally = tally + ? WHERE tally > 0", more)
    with pytest.raises(IntegrityError, match="its tally is not one"):
        saver.get_tuple(config())
    assert saver.fsck("t") != []


def test_the_head_of_a_subgraph_that_is_gone(saver: Saver) -> None:
    """A subgraph is not read as of its step before, because the row of its newest is gone."""
    nested(saver, persistent=True).invoke({"n": 0}, config())
    (ns,) = {step.ns for step in saver.steps("t", None) if step.ns}
    newest = max(step.number for step in saver.steps("t", None) if step.ns == ns)
    ask(saver, "DELETE FROM cp_checkpoints WHERE step = ?", newest)
    with pytest.raises(IncompleteRecordError):
        saver.get_tuple(config(checkpoint_ns=ns))
