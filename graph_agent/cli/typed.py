"""Values as they are typed: what needs no check is not given to what checks, which takes long to load."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup


class _Typed:
    """Checks numbers and choices as Typer does; texts, and what was not given, need none."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Give the parameters, that of the help too."""
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for one in found:
            if not isinstance(one.get_runtime_param, AsTyped):
                one.get_runtime_param = AsTyped(one.get_runtime_param)
        return found


class Typed(_Typed, TyperCommand):
    """A command that loads no more than its values need."""


class TypedGroup(_Typed, TyperGroup):
    """Such commands."""


class AsTyped:
    """Stands for how a parameter reads its value, and finds that out when it has to."""

    def __init__(self, checked: Any) -> None:
        """Keep what finds it out."""
        self._checked = checked

    def __call__(self) -> AsTyped:
        """Give what reads a value."""
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Read a value."""
        several = param.multiple or param.nargs != 1
        if value is None and not several:
            return None
        if isinstance(value, str) and not several and param.type_descriptor.annotation is str:
            return value
        if not value and several and not param.required:
            return ()
        return self._checked().coerce(value, param=param, ctx=ctx)
