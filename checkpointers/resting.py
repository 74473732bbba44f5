"""Python's collector of garbage at rest while much is decoded.

What is made then is thousands of objects, none of them garbage; each of the looks for some that they set off goes over
all that is alive, and takes longer than making them.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from threading import get_ident
from typing import Final, TypeVar

A = TypeVar("A")
T = TypeVar("T")

_resting: Final[set[int]] = set()  # threads that turned it off


def at_rest(call: Callable[[A], T], argument: A) -> T:
    """Call something while nobody looks for garbage; where nobody does anyway, that stays so."""
    if not gc.isenabled():
        return call(argument)
    _resting.add(get_ident())
    gc.disable()
    try:
        return call(argument)
    finally:
        gc.enable()
        _resting.discard(get_ident())


def _wake_up() -> None:
    """Turn it on again in a process that was forked meanwhile: nobody else is left there to do it."""
    if _resting:
        _resting.clear()
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_wake_up)
