"""Channel versions: numbers that only grow. Ours are integers; a thread from the official savers keeps its form."""

from __future__ import annotations

from typing import Any, Final

_DIGITS: Final = 32


def next_version(current: Any, *, as_text: bool = False) -> Any:
    """Give a version greater than `current`, of its own kind; the first one as text, if those beside it are."""
    if current is None:
        return next_version("0") if as_text else 1
    if isinstance(current, str):
        whole = int(current.partition(".")[0])
        return f"{whole + 1:0{_DIGITS}}.{0:016}"
    return int(current) + 1
