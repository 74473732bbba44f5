"""Which nodes and ways of a graph are drawn, and in which layer each node stands; pure.

Ways that lead nearly everywhere, into or out of one node, would cover all others: such a node stands apart, and its
ways are told in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

START: Final = "__start__"
END: Final = "__end__"
ENDS: Final = {START: "start", END: "end"}
MANY: Final = 0.5
FEW: Final = 5
MOST: Final = 150
Edges = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Shape:
    """A graph to draw: its nodes, the ways that are drawn, and the nodes that stand apart."""

    nodes: tuple[str, ...]
    edges: Edges
    apart: tuple[str, ...]
    told: tuple[str, ...]


def shape_of(graph: Any, sent: Edges = ()) -> Shape:
    """Take the nodes and edges that LangGraph tells of a compiled graph, and those it cannot see."""
    found = graph.get_graph()
    names = [str(name) for name in found.nodes]
    more = [edge for edge in sent if edge[0] in names and edge[1] in names]
    return shaped(names, list(dict.fromkeys([*((edge.source, edge.target) for edge in found.edges), *more])))


def shaped(names: Sequence[str], edges: Edges) -> Shape:
    """Choose what to draw: each node keeps a way in and a way out, the ways of crowded nodes are left out."""
    names, left = _fewer(names)
    edges = [edge for edge in edges if edge[0] in names and edge[1] in names] if left else edges
    inner = [name for name in names if name not in ENDS]
    apart = tuple(name for name in inner if _stands_apart(name, inner, edges))
    crowded = [end for end in ENDS if sum(end in edge for edge in edges) >= FEW]
    ways = [(a, b) for a, b in edges if a != b and not {a, b} & set(apart)]
    drawn = [edge for edge in ways if not set(edge) & set(crowded)]
    drawn += _needed([name for name in names if name not in apart], drawn, ways)
    order = {name: place for place, name in enumerate(names)}
    nodes = tuple(name for name in names if name not in apart)
    told = _told(names, edges, drawn, apart) + ((f"{left:,} more nodes",) if left else ())
    return Shape(nodes, sorted(drawn, key=lambda one: (order[one[0]], order[one[1]])), apart, told)


def _fewer(names: Sequence[str]) -> tuple[Sequence[str], int]:
    """Take no more nodes than anybody can look at."""
    inner = [name for name in names if name not in ENDS]
    kept = {*inner[:MOST], *ENDS}
    return [name for name in names if name in kept], max(0, len(inner) - MOST)


def _stands_apart(name: str, inner: Sequence[str], edges: Edges) -> bool:
    """Tell whether a node is left for most of the others and entered from them, and they have ways without it."""
    ways = [(a, b) for a, b in edges if a in inner and b in inner and a != b]
    mutual = {a for a, b in ways if b == name and (name, a) in ways}
    others = {one for edge in ways if name not in edge for one in edge}
    known = {one for edge in ways for one in edge}
    return len(mutual) >= max(FEW - 1, MANY * len(known)) and others >= known - {name}


def _needed(names: Sequence[str], drawn: Edges, edges: Edges) -> list[tuple[str, str]]:
    """Give a way out and one in to those that would have none: out to the end if they can, in from the first."""
    order = {name: place for place, name in enumerate(names)}
    more: list[tuple[str, str]] = []
    ways = [edge for edge in edges if edge != (START, END)]
    for name in names:
        out = [edge for edge in ways if edge[0] == name]
        if name != END and out and not any(a == name for a, _ in drawn):
            more.append(min(out, key=lambda edge: (edge[1] != END, order[edge[1]])))
    for name in names:
        into = [edge for edge in ways if edge[1] == name]
        if name != START and into and not any(b == name for _, b in [*drawn, *more]):
            more.append(
                max(into, key=lambda edge: order[edge[0]])
                if name == END
                else min(into, key=lambda edge: order[edge[0]])
            )
    return more


def _told(names: Sequence[str], edges: Edges, drawn: Edges, apart: Sequence[str]) -> tuple[str, ...]:
    """Say in words which ways are not drawn."""
    words = []
    for name in (*apart, START, END):
        left = [
            edge
            for edge in edges
            if name in edge and edge not in drawn and (name in apart or not set(edge) & set(apart))
        ]
        sources = [a for a, b in left if b == name and a != name]
        targets = [b for a, b in left if a == name and b != name]
        label, others = ENDS.get(name, name), [one for one in names if one != name]
        if sources:
            words.append(f"into {label}: {_names(sources, others)}")
        if targets:
            words.append(f"from {label}: {_names(targets, others)}")
    return tuple(words)


def _names(some: Sequence[str], names: Sequence[str]) -> str:
    inner = {name for name in names if name not in ENDS}
    if len(some) > FEW and len(inner - set(some)) <= 3:  # noqa: PLR2004  nearly all
        missing = [name for name in names if name in inner - set(some)]
        return "any node" if len(missing) <= 1 else f"any node but {', '.join(missing)}"
    return ", ".join(ENDS.get(name, name) for name in some)


def layers_of(shape: Shape) -> dict[str, int]:
    """Give each node its layer: one further than all that lead to it, ways back left out."""
    back = _ways_back(shape)
    layer = dict.fromkeys(shape.nodes, 0)
    for _ in shape.nodes:
        moved = False
        for source, target in shape.edges:
            if (source, target) not in back and layer[target] <= layer[source]:
                layer[target] = layer[source] + 1
                moved = True
        if not moved:
            break
    if END in layer:
        layer[END] = (
            max(layer.values())
            if sum(v == max(layer.values()) for v in layer.values()) == 1
            else max(layer.values()) + 1
        )
    return layer


def _ways_back(shape: Shape) -> set[tuple[str, str]]:
    """Find the ways that lead back to where the work came through; without recursion, graphs may be long."""
    following: dict[str, list[str]] = {name: [b for a, b in shape.edges if a == name] for name in shape.nodes}
    back: set[tuple[str, str]] = set()
    done: set[str] = set()
    for root in shape.nodes:
        path: dict[str, Any] = {} if root in done else {root: iter(following[root])}
        while path:
            name = next(reversed(path))
            target = next(path[name], None)
            if target is None:
                done.add(name)
                del path[name]
            elif target in path:
                back.add((name, target))
            elif target not in done:
                path[target] = iter(following[target])
    return back
