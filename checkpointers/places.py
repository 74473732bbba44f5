"""Addresses of databases, taken apart."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from checkpointers.errors import UnknownSchemeError


def scheme_of(url: str) -> str:
    """Give the scheme of an address."""
    scheme, separator, _ = url.partition("://")
    if not separator:
        msg = f"{url!r} is no address; for a file write sqlite:///{url}"
        raise UnknownSchemeError(msg)
    return scheme


def file_of(url: str) -> str:
    """Give the path of `scheme:///path`; a fourth slash makes it absolute."""
    parts = urlsplit(url.partition("+")[2] or url)
    if parts.netloc:
        msg = f"{url!r} names a host; a file needs three slashes, as in {parts.scheme}:///{parts.netloc}{parts.path}"
        raise UnknownSchemeError(msg)
    path = unquote(url.partition(":///")[2])
    if not path:
        msg = f"{url!r} names no file; write {parts.scheme}:///name.db"
        raise UnknownSchemeError(msg)
    return path
