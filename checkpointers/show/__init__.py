"""How objects show themselves: a card of plain data, drawn as HTML for notebooks and for a rich console.

What a card says is text of anybody's: it is escaped and made visible where it is drawn, in one place for each form.
Nothing here is loaded before somebody looks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from checkpointers.show.cards import Card


class Shows:
    """Something that shows itself; all it says of itself is its card."""

    __slots__ = ()

    def _card(self) -> Card:
        raise NotImplementedError

    def _repr_html_(self) -> str:
        from checkpointers.show.drawn import html_of  # noqa: PLC0415  paid by who looks

        return html_of(self._card())

    def __rich__(self) -> Any:
        """Draw the card for a rich console."""
        from checkpointers.show.console import rich_of  # noqa: PLC0415  rich is there if somebody has a rich console

        return rich_of(self._card())
