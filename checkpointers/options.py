"""What every saver can be opened with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, get_args

from checkpointers.errors import CheckpointerError
from checkpointers.operations.write import OnConflict
from checkpointers.strict import StrictSerializer

if TYPE_CHECKING:
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from checkpointers.keyring import Keyring


T = TypeVar("T")


class Options(TypedDict, total=False):
    """What every saver can be opened with.

    `types`: your own types that states may hold; nothing else is built when a state is read · `serde`: another
    serializer, which decides about types itself · `memory_bytes`: how much it may remember of the threads that it
    writes, and a quarter of that of what it read lately · `keys`: a keyring, which encrypts · `migrating`: also read
    threads that are not encrypted yet · `readable`: keys of metadata whose values stay readable without a key, for
    `saver.readable()` and for SQL · `on_conflict`: what happens to a run whose thread somebody else moved on: "error",
    or "fork" to keep both branches.
    """

    types: Iterable[type]
    serde: SerializerProtocol | None
    memory_bytes: int
    keys: Keyring | None
    migrating: bool
    readable: Iterable[str]
    on_conflict: OnConflict


def one_of(name: str, value: T, words: Any) -> T:
    """Give an argument that is one of a few words; another would silently be taken for one of them."""
    if value not in get_args(words):
        known = " or ".join(map(repr, get_args(words)))
        raise CheckpointerError(f"{name} is {known}, not {value!r:.80}")
    return value


def serializer(serde: SerializerProtocol | None, types: Iterable[type]) -> SerializerProtocol:
    """Give the serializer: a strict one, or the caller's own unless that builds whatever a stored name says."""
    if serde is None:
        return StrictSerializer(types)
    if tuple(types):
        msg = "types belong to the saver's own serializer; give them to yours, or leave serde out"
        raise CheckpointerError(msg)
    inner = getattr(serde, "serde", serde)  # of one that encrypts
    if getattr(inner, "_allowed_msgpack_modules", None) is True or getattr(inner, "pickle_fallback", False):
        msg = (
            f"this {type(serde).__name__} builds whatever a stored row names, so who can write a row can run code here;"
            " leave serde out and list your own types: types=[…]"
        )
        raise CheckpointerError(msg)
    return serde
