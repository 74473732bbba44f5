"""Names of threads for the shell's completion: from the rows of the database, and nothing if there is none."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any, Final

MOST: Final = 50


def threads(ctx: Any, incomplete: str) -> list[str]:
    """Name threads that begin like this, the most recently written first; a name that no shell can type is left out."""
    from checkpointers.errors import CheckpointerError
    from checkpointers.show.text import visible
    from graph_agent.cli import desk

    db = ctx.params.get("db") or os.environ.get("GRAPH_AGENT_DB") or desk.DEFAULT_DB
    with suppress(CheckpointerError, OSError, ValueError), desk.reader(db) as found:
        names = [one.thread for one in found.threads(limit=1_000)]
        plain = [one for one in names if one.startswith(incomplete) and visible(one) == one and one.split() == [one]]
        return plain[:MOST]
    return []
