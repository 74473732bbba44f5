"""Secrets taken out of what is handed on: by the names of keys, and by what looks like a key; pure.

It is a net, not a wall: what nothing tells from an ordinary word passes.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, Final

REDACTED: Final = "[redacted]"
_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_SECRET: Final = frozenset(
    {"password", "passwords", "passwd", "pwd", "passphrase", "secret", "secrets", "authorization", "credential",
     "credentials", "apikey", "apikeys", "bearer", "cookie", "jwt"}
)  # fmt: skip
_PAIRS: Final = frozenset({("api", "key"), ("api", "keys"), ("private", "key"), ("access", "key"), ("secret", "key")})
_NAME: Final = r"[\w-]*(?:password|passwd|passphrase|secret|api[_-]?key|authorization|access[_-]?key|token)"
_LIKE: Final = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\b(?:sk|pk|rk)[-_](?:[\w]+[-_])*[A-Za-z0-9_-]{16,}|\bgh[pousr]_\w{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}"
    r"|\bxox[abprs]-[\w-]{10,}|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[\w-]{30,}|\bhf_[A-Za-z0-9]{20,}"
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*",
    re.DOTALL,
)
_BEARER: Final = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}")
_ACCOUNT: Final = re.compile(r"(?<=://)([^\s/@:]*):[^\s/@]+@")
_GIVEN: Final = re.compile(
    rf"""(?i)(\\?["']?\b{_NAME}\\?["']?\s*[=:]\s*)(?!\s)("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\\"(?:[^"\\])*\\"|[^\s"',;&}})\]]+)"""
)


def is_secret(key: str) -> bool:
    """Tell whether what has this name is a secret: "api_key", "accessToken"; not "tokens" or "token_count"."""
    words = [word.lower() for word in _WORDS.findall(key)]
    named = not _SECRET.isdisjoint(words) or not _PAIRS.isdisjoint(pairwise(words))
    return named or words[-1:] == ["token"]


def redacted_text(text: str) -> str:
    """Take out of a text what looks like a key, or is said to be one."""
    text = _LIKE.sub(REDACTED, text)
    text = _BEARER.sub(rf"\1 {REDACTED}", text)
    text = _ACCOUNT.sub(rf"\1:{REDACTED}@", text)
    return _GIVEN.sub(_given, text)


def _given(found: re.Match[str]) -> str:
    value = found[2]
    if REDACTED in value or value.lower() in ("bearer", "basic", "[redacted"):
        return found[0]
    quote = '\\"' if value.startswith('\\"') else value[0] if value[0] in "\"'" else ""
    return f"{found[1]}{quote}{REDACTED}{quote}"


def redacted(value: Any, *, secret: bool = False) -> Any:
    """Take secrets out of JSON; below a secret name everything is one."""
    if isinstance(value, dict):
        return {redacted_text(key): redacted(item, secret=secret or is_secret(key)) for key, item in value.items()}
    if isinstance(value, list):
        return [redacted(item, secret=secret) for item in value]
    if value is None or isinstance(value, bool):
        return value
    if secret:
        return REDACTED
    return redacted_text(value) if isinstance(value, str) else value
