"""The tally of a checkpoint: how many rows of writes are on it, and how many of each special kind, in one number.

Writes come after their checkpoint, so its seal cannot cover them; its tally counts them, and a row that is gone is
missed. A tally only ever has something added, by the database, so it needs no reading first. It is a multiple of an odd
prime, so what a flipped bit makes of it is none.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from checkpointers.records import FAILED, INTERRUPTED, RESUMED
from checkpointers.sealing import BrokenSealError

PRIME: Final = 251
_ROWS: Final = 20
_WIDTH: Final = 11
_KINDS: Final = (INTERRUPTED, FAILED, RESUMED)


@lru_cache(maxsize=64)
def tally_of(kinds: int) -> int:
    """Give what one row with these kinds of writes adds."""
    return PRIME * (1 + sum(1 << _ROWS + _WIDTH * place for place, kind in enumerate(_KINDS) if kinds & kind))


def rows_in(tally: int) -> int:
    """Give how many rows were counted."""
    return _counted(tally) & ((1 << _ROWS) - 1)


@lru_cache(maxsize=64)
def kinds_in(tally: int) -> int:
    """Give which special kinds are among them."""
    counted = _counted(tally) >> _ROWS
    return sum(kind for place, kind in enumerate(_KINDS) if counted >> _WIDTH * place & ((1 << _WIDTH) - 1))


def _counted(tally: int) -> int:
    if tally < 0 or tally % PRIME:
        msg = "its tally is not one"
        raise BrokenSealError(msg)
    return tally // PRIME
