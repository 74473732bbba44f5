"""Secrets taken out of what is shown or handed on: by the names of keys, and by what looks like a key; pure.

One rule for exports, pages, notebooks and consoles. It is a net, not a wall: what nothing tells from an ordinary word
passes.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

REDACTED: Final = "[redacted]"
_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_SECRET: Final = frozenset(
    {"password", "passwords", "passwd", "pwd", "passphrase", "secret", "secrets", "authorization", "credential",
     "credentials", "apikey", "apikeys", "bearer", "cookie", "cookies", "jwt"}
)  # fmt: skip
_PAIRS: Final = frozenset({("api", "key"), ("api", "keys"), ("private", "key"), ("access", "key"), ("secret", "key")})
_LONGEST_NAME: Final = 100
# The parts of a path as `paths` writes it: a name, a name in brackets and quotes; what else is in brackets is an index.
_PARTS: Final = re.compile(r'\["(?:[^"\\]|\\.)*+"\]|[^.\[\]]+')
_LIKE: Final = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\b(?:sk|pk|rk)[-_][\w-]{16,}|\bgh[pousr]_\w{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}"
    r"|\bxox[abprs]-[\w-]{10,}|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[\w-]{30,}|\bhf_[A-Za-z0-9]{20,}"
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*",
    re.DOTALL,
)
# What follows either word is a key if it has a digit or a capital letter, or if a colon stands before the word.
_BEARER: Final = re.compile(r"(:\s*(?i:bearer|basic)|\b(?i:bearer|basic)(?=\s+[\w.~+/=-]*[A-Z\d]))\s+[\w.~+/=-]{8,}")
_ACCOUNT: Final = re.compile(r"(?<=://)([^\s/@:]*):[^\s/@]+@")
# A name that something is given to, and what that is: in quotes or not, those of a text in a text too; what is cut off
# ends with the text.
_NAME: Final = re.compile(r"""\b(?P<name>[A-Za-z][\w-]{0,99}+)\\*["']?\s*[=:]\s*""")
_VALUE: Final = re.compile(
    r"""(?P<one>["'])(?:(?!(?P=one))[^\\]|\\.)*(?:(?P=one)|\\?\Z)"""
    r"""|(?P<quote>\\+["'])(?:(?!(?P=quote)).)*(?:(?P=quote)|\Z)|[^\s"',;&}{\[\])\\]+""",
    re.DOTALL,
)
# A text that has none of these has no secret that is known; most texts have none, and this is looked at much faster.
_HINTS: Final = (
    "passw", "passphrase", "pwd", "secret", "authorization", "credential", "key", "bearer", "basic", "cookie", "jwt",
    "token", "sk-", "sk_", "pk-", "pk_", "rk-", "rk_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-",
    "xox", "akia", "asia", "aiza", "hf_", "eyj", "://",
)  # fmt: skip


@lru_cache(1_000)
def is_secret(key: object) -> bool:
    """Tell whether what has this name is a secret: "api_key", "accessToken"; not "tokens" or "token_count"."""
    if not isinstance(key, str):
        return False
    words = [word.lower() for word in _WORDS.findall(key[:_LONGEST_NAME])]
    named = not _SECRET.isdisjoint(words) or not _PAIRS.isdisjoint(pairwise(words))
    return named or words[-1:] == ["token"]


def is_hidden(path: object, value: Any) -> bool:
    """Tell whether what stands here is a secret by the name of a key on the way to it; None and truths are none."""
    if value is None or isinstance(value, bool) or not isinstance(path, str):
        return False
    return is_secret(path[:_LONGEST_NAME]) or any(is_secret(part[0][:_LONGEST_NAME]) for part in _PARTS.finditer(path))


def redacted_text(text: str) -> str:
    """Take out of a text what looks like a key, or is said to be one."""
    lowered = text.lower()
    if not any(hint in lowered for hint in _HINTS):
        return text
    text = _LIKE.sub(REDACTED, text)
    text = _BEARER.sub(rf"\1 {REDACTED}", text)
    text = _ACCOUNT.sub(rf"\1:{REDACTED}@", text)
    return _without_given(text)


def _without_given(text: str) -> str:
    """Take out what is given to names of secrets; what has another name may be a text that has such names in it."""
    pieces, end, place = list[str](), 0, 0
    while (found := _NAME.search(text, place)) is not None:
        place = found.end()
        value = _VALUE.match(text, place) if is_secret(found["name"]) else None
        if value is None or REDACTED in value[0] or value[0].lower() in ("bearer", "basic"):
            continue
        quote = value["one"] or value["quote"] or ""
        pieces += (text[end:place], f"{quote}{REDACTED}{quote}")
        end = place = value.end()
    return "".join([*pieces, text[end:]])


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
