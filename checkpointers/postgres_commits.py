"""What became of a transaction on Postgres whose answer was lost with the connection: the server knows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import psycopg

PAUSE: Final = 0.1


def own_number(connection: psycopg.Connection[Any]) -> int | None:
    """Give the number of the transaction that is under way; None while it changed nothing."""
    ((number,),) = connection.execute("SELECT txid_current_if_assigned()").fetchall()
    return None if number is None else int(number)


def was_committed(connection: psycopg.Connection[Any], number: int, *, timeout: float) -> bool:
    """Tell whether a transaction came to its end; one whose connection was lost may still need a moment for that."""
    give_up = time.monotonic() + timeout
    while True:
        ((became,),) = connection.execute("SELECT txid_status(%s)", (number,)).fetchall()
        if became != "in progress" or time.monotonic() > give_up:
            return bool(became == "committed")
        time.sleep(PAUSE)
