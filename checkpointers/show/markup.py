"""HTML and SVG by construction: what is not made by `tag` is text, and is escaped."""

from __future__ import annotations

from html import escape
from typing import Final

from checkpointers.show.text import visible

_EMPTY: Final = frozenset({"path", "rect", "line", "circle", "polygon"})
_CASED: Final = {"viewbox": "viewBox", "cls": "class"}


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


NOTHING: Final = Html()


def safe(text: str) -> Html:
    """Make markup of any text: nothing in it is read as markup, nothing in it is unseen."""
    return text if isinstance(text, Html) else Html(escape(visible(text)))


def tag(name: str, /, *inside: str, **attributes: object) -> Html:
    """Make an element; an attribute that is None or False is left out."""
    words = "".join(_attribute(key, value) for key, value in attributes.items() if value not in (None, False))
    if name in _EMPTY:
        return Html(f"<{name}{words}/>")
    return Html(f"<{name}{words}>{''.join(map(safe, inside))}</{name}>")


def _attribute(key: str, value: object) -> str:
    name = _CASED.get(key, key.replace("_", "-"))
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return f" {name}" if value is True else f' {name}="{safe(str(text))}"'


def joined(*parts: str) -> Html:
    """Put parts side by side."""
    return Html("".join(map(safe, parts)))


def spaced(*parts: str) -> Html:
    """Put parts side by side with a space between, which is all that parts them where there is no style."""
    return Html(" ".join(safe(part) for part in parts if part))


def way(*parts: str | float) -> str:
    """Write the way of a pen: letters and numbers."""
    return " ".join(part if isinstance(part, str) else f"{part:g}" for part in parts)
