"""Any value as JSON, to be looked at or patched, and any text without what garbles a screen; pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final

from checkpointers.paths import fields_of, is_list

# Controls, ANSI's escape among them; marks that turn the direction of text; what is not to be seen; half characters.
_ODD: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def as_json(value: Any) -> Any:
    """Give a value as JSON has it: an object as its fields and its "$type", what has no parts as text."""
    if value is None or isinstance(value, bool | int | str):
        return value if type(value) in (type(None), bool, int, str) else _named(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$type": "float", "text": str(value)}
    if isinstance(value, Mapping):
        return _pairs(value)
    if is_list(value):
        return [as_json(item) for item in value]
    fields = fields_of(value)
    return _named(value) if fields is None else {"$type": type(value).__name__, **_pairs(fields)}


def _pairs(value: Mapping[Any, Any]) -> dict[str, Any]:
    """Give keys as texts; where two have the same one, as they would be written in code."""
    texts = {str(key) for key in value}
    name = str if len(texts) == len(value) else repr
    return {name(key): as_json(item) for key, item in value.items()}


def _named(value: Any) -> dict[str, str]:
    return {"$type": type(value).__name__, "text": text_of(value)}


def text_of(value: Any) -> str:
    """Give the text of what has no parts; sets in one order, bytes as what they say."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode(errors="replace")
    if isinstance(value, set | frozenset):
        return "{" + ", ".join(sorted(map(repr, value))) + "}"
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001  somebody else's code
        return f"(a {type(value).__name__} that cannot be shown: {type(error).__name__})"


def visible(text: str) -> str:
    """Write what garbles a screen, or is not to be seen, by its number, as JSON would; lines and tabs stay."""
    return _ODD.sub(lambda found: json.dumps(found[0])[1:-1], text)
