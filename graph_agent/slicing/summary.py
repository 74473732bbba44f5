"""What is told of messages that are not shown, in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

_TOPIC_WORDS: Final = 8


def sum_up(gone: Sequence[Mapping[str, Any]], written: str | None = None) -> str:
    """Tell what is not shown: how much, which tools were called, and `written`, or what each turn began with."""
    told = [_counted(len(gone), "message")]
    calls = Counter(call["name"] for message in gone for call in message.get("tool_calls") or ())
    if calls:
        names = ", ".join(name if count == 1 else f"{name} ×{count}" for name, count in calls.items())  # noqa: RUF001
        told.append(f"{_counted(calls.total(), 'call')} ({names})")
    topics = [_first_words(message["content"]) for message in gone if message["role"] == "user"]
    told[-1] += ": " if written or topics else ""
    return f"[earlier: {', '.join(told)}{written or '; '.join(topics)}]"


def _first_words(text: str) -> str:
    words = text.split(maxsplit=_TOPIC_WORDS)
    return " ".join(words[:_TOPIC_WORDS])[:80] + ("…" if len(words) > _TOPIC_WORDS else "")


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
