"""A plot of what each step cost: tokens asked and answered, bytes of new state."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from graph_agent.errors import MissingPackageError
from graph_agent.show.timelines import marks, new_bytes

if TYPE_CHECKING:
    from graph_agent.history import Timeline

NEWEST: Final = 200


def series(timeline: Timeline, newest: int = NEWEST) -> dict[str, list[int]]:
    """Give what is plotted, by step: its number, its tokens, the bytes that are new in it."""
    steps = timeline._timeline  # noqa: SLF001  what it is made of
    shown = marks(steps)[-newest:]
    sizes = new_bytes(steps, [steps.infos[mark.number] for mark in shown])
    return {"step": [mark.number for mark in shown], "tokens": [mark.tokens for mark in shown], "bytes": sizes}


def plot(timeline: Timeline, newest: int = NEWEST) -> Any:
    """Draw tokens and bytes of the newest steps, one above the other, and give the figure."""
    figure = _figure()
    found = series(timeline, newest)
    above, below = figure.subplots(2, 1, sharex=True)
    above.bar(found["step"], found["tokens"], color="#4c78a8")
    below.bar(found["step"], found["bytes"], color="#9aa5b1")
    above.set_ylabel("tokens")
    below.set_ylabel("new bytes")
    below.set_xlabel("step")
    above.set_title(f"thread {timeline.thread}"[:80].replace("$", r"\$"), loc="left", fontsize=10)
    return figure


def _figure() -> Any:
    """Give an empty figure that shows itself in any notebook; matplotlib's own does so only once pyplot was loaded."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415  only if somebody plots
    except ImportError as error:
        raise MissingPackageError("matplotlib", "a plot") from error

    class Plot(Figure):
        def _repr_png_(self) -> bytes:
            self.savefig(drawn := BytesIO(), format="png")
            return drawn.getvalue()

    return Plot(figsize=(9, 4), layout="constrained")
