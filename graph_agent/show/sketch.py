"""A graph as a picture: layers from left to right; ways that skip some run above, ways back below; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from checkpointers.show.cards import Picture
from checkpointers.show.markup import NOTHING, Html, joined, tag, way
from checkpointers.show.text import clipped
from graph_agent.show.graphs import ENDS, Edges, Shape, layers_of

WIDE: Final = 84.0
HIGH: Final = 30.0
ACROSS: Final = 34.0
DOWN: Final = 46.0
ARC: Final = 15.0
LEFT: Final = 10.0
NODES: Final = 60
LETTERS: Final = 13
Spot = tuple[float, float]


def sketched(shape: Shape) -> Picture:
    """Draw a graph."""
    names = shape.nodes[:NODES]
    layer = layers_of(shape)
    edges = [edge for edge in shape.edges if set(edge) <= set(names)]
    over, under = _arcs(edges, layer)
    rows = _rows(names, layer)
    top = 14 + ARC * len(over)
    floor = top + DOWN * max(rows.values(), default=0) + HIGH
    spots = {name: (LEFT + layer[name] * (WIDE + ACROSS), top + rows[name] * DOWN) for name in names}
    ways = (_way(edge, spots, over=over.get(edge, 0), under=under.get(edge, 0), floor=floor) for edge in edges)
    bottom = floor + 16 + ARC * len(under)
    width = max((x for x, _ in spots.values()), default=0) + WIDE + LEFT
    height = bottom + (HIGH + 10 if shape.apart else 0)
    inside = (*ways, *(_box(name, *spots[name]) for name in names), _apart(shape.apart, bottom))
    svg = tag("svg", tag("title", "the graph"), *inside, width=width, height=height, role="img",
              viewbox=f"0 0 {width:g} {height:g}")  # fmt: skip
    more = [f"{len(shape.nodes) - NODES} more nodes"] if len(shape.nodes) > NODES else []
    return Picture(svg, _lines(edges, layer), tuple((NOTHING, word) for word in (*shape.told, *more)))


def _rows(names: Sequence[str], layer: Mapping[str, int]) -> dict[str, int]:
    """Put the nodes of a layer below one another."""
    seen: dict[int, int] = {}
    rows = {}
    for name in names:
        rows[name] = seen.get(layer[name], 0)
        seen[layer[name]] = rows[name] + 1
    return rows


def _arcs(edges: Edges, layer: Mapping[str, int]) -> tuple[dict[tuple[str, str], int], dict[tuple[str, str], int]]:
    """Number the ways that skip layers, and those that lead back; the longest is outermost."""
    far = {edge: layer[edge[1]] - layer[edge[0]] for edge in edges}
    skips = sorted((edge for edge in edges if far[edge] > 1), key=far.__getitem__)
    backs = sorted((edge for edge in edges if far[edge] < 1), key=lambda edge: -far[edge])
    return {edge: n for n, edge in enumerate(skips, 1)}, {edge: n for n, edge in enumerate(backs, 1)}


def _way(edge: tuple[str, str], spots: Mapping[str, Spot], *, over: int, under: int, floor: float) -> Html:
    (x0, y0), (x1, y1) = spots[edge[0]], spots[edge[1]]
    name = tag("title", f"{ENDS.get(edge[0], edge[0])} → {ENDS.get(edge[1], edge[1])}")
    if over:
        top = min(y for _, y in spots.values()) - 12 - ARC * (over - 1)
        a, b = x0 + WIDE * 0.7, x1 + WIDE * 0.3
        return tag("g", name, _arc((a, y0), (b, y1 - 6), top, "e"), _arrow(b, y1, "l-4 -7h8z"))
    if under:
        a, b = x0 + WIDE * 0.35, x1 + WIDE * 0.65
        return tag("g", name, _arc((a, y0 + HIGH), (b, y1 + HIGH + 6), floor + 12 + ARC * (under - 1), "e dash"),
                   _arrow(b, y1 + HIGH, "l-4 7h8z"))  # fmt: skip
    x0, y0, y1 = x0 + WIDE, y0 + HIGH / 2, y1 + HIGH / 2
    middle = (x0 + x1) / 2
    line = tag("path", d=way("M", x0, y0, "C", middle, y0, middle, y1, x1 - 6, y1), cls="e")
    return tag("g", name, line, _arrow(x1, y1, "l-7 -4v8z"))


def _arc(begin: Spot, end: Spot, y: float, look: str) -> Html:
    """Draw a way that leaves its layer, goes along at a height, and comes back."""
    (a, y0), (b, y1) = begin, end
    turn = 14 if b > a else -14
    d = way("M", a, y0, "C", a, y, a, y, a + turn, y, "H", b - turn, "C", b, y, b, y, b, y1)
    return tag("path", d=d, cls=look)


def _arrow(x: float, y: float, shape: str) -> Html:
    return tag("path", d=way("M", x, y) + shape, cls="a")


def _box(name: str, x: float, y: float) -> Html:
    end = name in ENDS
    rect = tag("rect", x=x, y=y, width=WIDE, height=HIGH, rx=HIGH / 2 if end else 6, cls="end" if end else "box")
    word = tag("text", clipped(ENDS.get(name, name), LETTERS), x=x + WIDE / 2, y=y + 19, text_anchor="middle", cls="t")
    return tag("g", tag("title", clipped(ENDS.get(name, name), 200)), rect, word)


def _apart(names: Iterable[str], y: float) -> Html:
    boxes = []
    for place, name in enumerate(names):
        x = LEFT + place * (WIDE + ACROSS)
        rect = tag("rect", x=x, y=y, width=WIDE, height=HIGH, rx=6, cls="box dash")
        boxes += [rect, tag("text", clipped(name, LETTERS), x=x + WIDE / 2, y=y + 19, text_anchor="middle", cls="t")]
    return joined(*boxes)


def _lines(edges: Edges, layer: Mapping[str, int]) -> tuple[str, ...]:
    """Draw it in words: each node with what follows it."""
    following: dict[str, list[str]] = {}
    for source, target in edges:
        following.setdefault(source, []).append(ENDS.get(target, target))
    names = sorted(following, key=lambda name: layer[name])
    return tuple(f"{clipped(ENDS.get(name, name), 30)} → {clipped(', '.join(following[name]), 100)}" for name in names)
