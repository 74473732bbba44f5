"""What a saver does, each operation written once as statements; no connection, no clock, no chance here."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from checkpointers.operations import checking as checking
    from checkpointers.operations import remove as remove
    from checkpointers.operations import repair as repair
    from checkpointers.operations import whole as whole


def __getattr__(name: str) -> Any:
    """Load what is not loaded when it is first used: who only lists pays for nothing that removes or repairs."""
    if name.startswith("_"):
        raise AttributeError(name)
    return import_module(f"{__name__}.{name}")
