"""Addresses of databases, taken apart."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote, urlsplit

from checkpointers.errors import UnknownSchemeError

_USERS: Final = re.compile(r"((?:^|/)[^:/?#@\s]*):(?!//).*@")
_GIVEN: Final = re.compile(r"(?i)(\b\w*(?:pass|passwd|password|pwd|secret|token|key)=)('[^']*'|[^&\s]*)")


def shown(url: str) -> str:
    """Give an address as it may be told: without its password, wherever that stands."""
    return _GIVEN.sub(r"\1***", _USERS.sub(r"\1:***@", url))


def scheme_of(url: str) -> str:
    """Give the scheme of an address."""
    if not isinstance(url, str):
        raise UnknownSchemeError(f"{url!r:.80} is no address, which is a text like sqlite:///name.db")
    scheme, separator, _ = url.partition("://")
    if not separator:
        name = shown(url).removeprefix("sqlite:")
        raise UnknownSchemeError(f"{shown(url)!r} is no address; for a file write sqlite:///{name}")
    return scheme


def file_of(url: str) -> str:
    """Give the path of `scheme:///path`; a fourth slash makes it absolute."""
    parts = urlsplit(url.partition("+")[2] or url)
    if parts.netloc:
        msg = f"{shown(url)!r} names a host; a file needs three slashes, as in {parts.scheme}:///path/to/file.db"
        raise UnknownSchemeError(msg)
    if parts.query:
        msg = f"{shown(url)!r} has options, which are arguments here (read_only=True); a ? of a name is written %3F"
        raise UnknownSchemeError(msg)
    path = unquote(url.partition(":///")[2])
    if not path:
        msg = f"{shown(url)!r} names no file; write {parts.scheme}:///name.db"
        raise UnknownSchemeError(msg)
    return path
