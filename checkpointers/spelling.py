"""Values as JSON that says all of them, and back: the serializer's own msgpack, spelled out.

What JSON has stands as it is. The rest is an object of one key: {"$bytes": base64}, {"$float": "nan"},
{"$map": [[key, value], …]} for keys that are no plain texts, {"$object": [code, …]} for what the serializer makes an
object of; {"$stored": [tag, base64]} is what another serializer wrote.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any, Final

import ormsgpack

from checkpointers.errors import CheckpointerError, HistoryError
from checkpointers.redacting import REDACTED, is_secret, redacted_text
from checkpointers.unpacking import unpacked

if TYPE_CHECKING:
    from langgraph.checkpoint.serde.base import SerializerProtocol

_PACK: Final = ormsgpack.OPT_NON_STR_KEYS
_RAW: Final = ("bytes", "bytearray")


class _Object:
    """An object as it stands in msgpack: its code and what it is made of."""

    def __init__(self, code: int, data: bytes) -> None:
        self.code, self.data = code, data


def spelled(value: Any, serde: SerializerProtocol) -> Any:
    """Give a value as JSON."""
    tag, data = serde.dumps_typed(value)
    if tag == "null":
        return None
    return respelled(data) if tag == "msgpack" else {"$stored": [tag, b64encode(data).decode()]}


def respelled(data: bytes) -> Any:
    """Give what was written as msgpack as JSON."""
    return _json(unpacked(data, _Object))


def _json(tree: Any) -> Any:
    if isinstance(tree, float) and not math.isfinite(tree):
        return {"$float": str(tree)}
    if isinstance(tree, bytes):
        return {"$bytes": b64encode(tree).decode()}
    if isinstance(tree, _Object):
        return {"$object": [tree.code, _json(unpacked(tree.data, _Object))]}
    if isinstance(tree, list | tuple):
        return [_json(item) for item in tree]
    if isinstance(tree, dict):
        plain = all(type(key) is str and not key.startswith("$") for key in tree)
        pairs = [[_json(key), _json(item)] for key, item in tree.items()]
        return dict(pairs) if plain else {"$map": pairs}
    return tree


def read(spelling: Any, serde: SerializerProtocol) -> Any:
    """Make the value of its JSON, as strictly as the serializer is."""
    try:
        if isinstance(spelling, dict) and "$stored" in spelling:
            tag, data = spelling["$stored"]
            if tag not in _RAW:
                raise HistoryError(f"a value was written by another serializer, as {tag!r}; it is not read")
            return serde.loads_typed((tag, b64decode(data)))
        return serde.loads_typed(("msgpack", ormsgpack.packb(_tree(spelling), _ext, _PACK)))
    except CheckpointerError:
        raise
    except RecursionError as error:
        raise HistoryError("a value is nested too deeply to be read") from error
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise HistoryError(f"this is no value as it is exported: {spelling!r:.200}") from error


def _ext(thing: _Object) -> ormsgpack.Ext:
    return ormsgpack.Ext(thing.code, thing.data)


def _tree(spelling: Any, *, key: bool = False) -> Any:
    if isinstance(spelling, list):
        items = [_tree(item, key=key) for item in spelling]
        return tuple(items) if key else items
    if not isinstance(spelling, dict):
        return spelling
    if len(spelling) == 1 and next(iter(spelling)).startswith("$"):
        return _special(*next(iter(spelling.items())))
    return {name: _tree(item) for name, item in spelling.items()}


def _special(name: str, inside: Any) -> Any:
    if name == "$bytes":
        return b64decode(inside)
    if name == "$float":
        return float(inside)
    if name == "$map":
        return {_tree(own, key=True): _tree(item) for own, item in inside}
    if name != "$object":
        raise ValueError(name)
    code, tree = inside
    return _Object(code, ormsgpack.packb(_tree(tree), _ext, _PACK))


def cleaned(spelling: Any, *, secret: bool = False) -> Any:
    """Take secrets out of a spelled value; a secret object goes as a whole, so that the others can be read again."""
    if isinstance(spelling, list):
        return [cleaned(item, secret=secret) for item in spelling]
    if isinstance(spelling, dict):
        return _cleaned(spelling, secret=secret)
    if spelling is None or isinstance(spelling, bool):
        return spelling
    if secret:
        return REDACTED
    return redacted_text(spelling) if isinstance(spelling, str) else spelling


def _cleaned(spelling: dict[str, Any], *, secret: bool) -> Any:
    kind = next(iter(spelling), "")
    inside: Any = spelling.get(kind)
    if kind == "$map":
        pairs = [[cleaned(key), cleaned(item, secret=secret or is_secret(str(key)))] for key, item in inside]
        return {"$map": pairs}
    if kind == "$object":
        name = inside[1][1] if isinstance(inside[1], list) and len(inside[1]) > 1 else ""
        hidden = secret or str(name).startswith("Secret")
        return REDACTED if hidden else {"$object": [inside[0], cleaned(inside[1])]}
    if kind in ("$bytes", "$stored"):
        data = b64decode(inside if kind == "$bytes" else inside[1])
        text = data.decode("latin-1")
        known = kind == "$bytes" or inside[0] in _RAW
        return REDACTED if secret or not known or redacted_text(text) != text else spelling
    if kind == "$float":
        return REDACTED if secret else spelling
    return {redacted_text(key): cleaned(item, secret=secret or is_secret(key)) for key, item in spelling.items()}
