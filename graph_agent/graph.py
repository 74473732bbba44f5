"""The graph, which reads like a drawing.

plan → act → review* → tool* → observe → reflect → act | plan | answer
any of them, when it fails → recover → the same node again, or the end
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, get_type_hints

from langgraph.graph import END, START, StateGraph
from langgraph.types import Send
from typing_extensions import TypedDict

from graph_agent.errors import SetupError
from graph_agent.kit import Kit
from graph_agent.nodes.act import ACT
from graph_agent.nodes.answer import ANSWER
from graph_agent.nodes.observe import OBSERVE
from graph_agent.nodes.plan import PLAN
from graph_agent.nodes.recover import RECOVER
from graph_agent.nodes.reflect import REFLECT
from graph_agent.nodes.review import REVIEW
from graph_agent.nodes.road import STANDING, Node, travel
from graph_agent.nodes.tool import TOOL
from graph_agent.state import AgentState, current_step, outstanding

NODES: Final = (PLAN, ACT, REVIEW, TOOL, OBSERVE, REFLECT, ANSWER, RECOVER)
Route = Callable[[dict[str, Any]], Any]


def build_graph(
    kit: Kit, *, state: type[Any] = AgentState, extra: Sequence[tuple[str, Node]] = (), checkpointer: Any = None
) -> Any:
    """Build and compile the graph; `extra` are nodes of one's own, each before one of the agent's."""
    missing = sorted(AgentState.__annotations__.keys() - kit.checker.keys)
    if missing:
        msg = f"{state.__name__} lacks {missing[0]!r}; write it as class {state.__name__}(AgentState, total=False)"
        raise SetupError(msg, missing=missing)
    builder: Any = StateGraph(state)  # Any: its node protocols do not know functions made by functions
    via, hints = _via(extra), get_type_hints(state, include_extras=True)
    for node in (*NODES, *(node for _, node in extra)):
        builder.add_node(node.name, travel(node, kit), input_schema=_view(node, hints, kit))

    def edges(source: str, route: Route, *targets: str) -> None:
        entered = {target: via.get(target, target) for target in targets}
        builder.add_conditional_edges(source, _onward(route, entered), [*entered.values(), "recover", END])

    standing = [*(node.name for node in NODES if node.works_in), *(node.name for _, node in extra), "recover", END]
    builder.add_conditional_edges(START, partial(enter, first=via.get("plan", "plan")), standing)
    edges("plan", _always("act"), "act")
    edges("act", dispatch, "review", "tool", "observe", "reflect")
    edges("observe", after_observe, "reflect")
    edges("reflect", after_reflect, "act", "plan", "answer")
    edges("answer", _always(END))
    builder.add_conditional_edges("recover", _onward(after_recover, {}), standing)
    for target, node in extra:
        builder.add_conditional_edges(node.name, _onward(_always(target), {}), [target, "recover", END])
    return builder.compile(checkpointer=checkpointer)


def enter(state: Mapping[str, Any], *, first: str = "plan") -> str:
    """Begin at the beginning, or where the thread stopped."""
    halt = state.get("halt") or {"kind": ""}
    if halt["kind"] == "failure":
        return "recover"
    return str(halt["node"]) if halt["kind"] in ("stopped", "failed", "retry", "resumed") else first


def dispatch(state: Mapping[str, Any]) -> Any:
    """Give every call a task of its own, so that none of them can touch another."""
    standing = {key: state[key] for key in STANDING if key in state}
    calls = outstanding(state.get("calls", ()))
    sends = [Send("review" if c["status"] == "waiting" else "tool", {**standing, "call": c}) for c in calls]
    if sends:
        return sends
    return "observe" if any(not call.get("seen") for call in state.get("calls", ())) else "reflect"


def after_observe(state: Mapping[str, Any]) -> str:
    """Go on once every call has an outcome; the last one to have it leads on."""
    return END if outstanding(state.get("calls", ())) else "reflect"


def after_reflect(state: Mapping[str, Any]) -> str:
    """Plan anew, do the next step, or answer."""
    if state.get("phase") == "planning":
        return "plan"
    return "act" if current_step(state.get("plan", ())) else "answer"


def after_recover(state: Mapping[str, Any]) -> str:
    """Try the node again that failed."""
    return str(state["halt"]["node"])


def _always(target: str) -> Route:
    return lambda _: target


def _onward(route: Route, entered: Mapping[str, str]) -> Route:
    """Take the drawn way, unless the node failed or the run was stopped."""

    def onward(state: dict[str, Any]) -> Any:
        kind = (state.get("halt") or {}).get("kind")
        if kind == "failure":
            return "recover"
        following = route(state) if kind not in ("stopped", "failed") else END
        return entered.get(following, following) if isinstance(following, str) else following

    return onward


def _via(extra: Sequence[tuple[str, Node]]) -> dict[str, str]:
    """Say through which node of the user's a node is entered: the first, where one stands before another."""
    names, via = {node.name for node in NODES}, dict[str, str]()
    for target, node in extra:
        if target not in names - {"review", "tool", "recover"} or node.name in names:
            msg = f"{node.name!r} cannot stand before {target!r}: it needs a new name and a node that it comes before"
            raise SetupError(msg, node=node.name)
        if target in via:
            msg = f"{via[target]!r} stands before {target!r} already; put {node.name!r} before {via[target]!r}"
            raise SetupError(msg, node=node.name)
        names.add(node.name)
        via[target] = node.name
    return {target: _outermost(via, target) for target in via}


def _outermost(via: Mapping[str, str], target: str) -> str:
    return _outermost(via, via[target]) if target in via else target


def _view(node: Node, hints: Mapping[str, Any], kit: Kit) -> Any:
    """Give the channels that LangGraph hands to a node: its view, and where the agent stands."""
    if node.view is TOOL.view:
        return dict
    keys = dict.fromkeys((*STANDING, *node.reads(kit)))
    unknown = [key for key in keys if key not in hints]
    if unknown:
        raise SetupError(f"the view of {node.name!r} has {unknown[0]!r}, which is no key of the state", node=node.name)
    return TypedDict(f"{node.name.title()}View", {key: hints[key] for key in keys}, total=False)  # type: ignore[operator]
