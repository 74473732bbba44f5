"""Threads of `create_agent` and of deepagents, as they are, on the official SQLite saver: every verb, against the graph.

What is true is what `graph.get_state_history` says; the history never sees the graph.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonpatch
import pytest
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware, TodoListMiddleware
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.sqlite import SqliteSaver as OfficialSaver
from langgraph.types import Command

from checkpointers import History, Saver, import_thread
from checkpointers.drawing import export_html
from checkpointers.plain import as_json
from checkpointers.timeline import Told
from tests.checkpointers.graphs import config
from tests.checkpointers.test_exporting import told
from tests.checkpointers.wild import difference, same

Snapshots = dict[str, Any]


class Scripted(GenericFakeChatModel):
    """A model that says its lines, whatever the tools."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


def lines(*said: Any) -> Scripted:
    """Make a model of texts and of calls: `("send", {"to": "ada"})`, several in a list."""

    def line(place: int, one: Any) -> AIMessage:
        if isinstance(one, str):
            return AIMessage(one, id=f"ai-{place}")
        made = [
            {"name": name, "args": args, "id": f"call-{place}-{n}", "type": "tool_call"}
            for n, (name, args) in enumerate(one if isinstance(one, list) else [one])
        ]
        return AIMessage("", tool_calls=made, id=f"ai-{place}")

    return Scripted(messages=iter([line(place, one) for place, one in enumerate(said)]))


def weather(city: str) -> str:
    """Say how the weather is."""
    return f"rain in {city}"


def send(to: str, body: str) -> str:
    """Send a message to somebody."""
    return f"sent to {to}"


def plain_agent(saver: Any, *, more: str = "it rains again") -> Any:
    """Make an agent of LangChain that asks a person before it sends."""
    model = lines(
        [("weather", {"city": "Oslo"}), ("weather", {"city": "Bergen"})], ("send", {"to": "ada", "body": "rain"}),
        "ada knows", more,
    )  # fmt: skip
    ask = HumanInTheLoopMiddleware(interrupt_on={"send": True})
    return create_agent(model, [weather, send], middleware=[ask], checkpointer=saver)


def deep_agent(saver: Any, *, more: str = "it rains again") -> Any:
    """Make a deep agent that plans, and writes and edits a file."""
    model = lines(
        ("write_todos", {"todos": [{"content": "look", "status": "in_progress"}]}),
        ("write_file", {"file_path": "/notes.md", "content": "rain in Oslo"}),
        ("edit_file", {"file_path": "/notes.md", "old_string": "Oslo", "new_string": "Bergen"}),
        "it is in the notes", more,
    )  # fmt: skip
    return create_deep_agent(model, [weather], middleware=[TodoListMiddleware()], checkpointer=saver)


def run(graph: Any, thread: str) -> None:
    """Have a conversation of two questions; who is asked says yes."""
    graph.invoke({"messages": [HumanMessage("how is the weather", id="h-0")]}, config(thread))
    if graph.get_state(config(thread)).interrupts:
        graph.invoke(Command(resume={"decisions": [{"type": "approve"}]}), config(thread))
    graph.invoke({"messages": [HumanMessage("and now", id="h-1")]}, config(thread))


@pytest.fixture(params=[plain_agent, deep_agent])
def thread(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Any, Any, History]]:
    """Give a thread with a branch: the graph, its saver, the history."""
    with OfficialSaver.from_conn_string(str(tmp_path / "theirs.db")) as saver:
        graph = request.param(saver)
        run(graph, "t")
        old = next(one for one in graph.get_state_history(config()) if one.next and one.metadata["step"] > 3)
        graph.update_state(old.config, {"messages": [HumanMessage("changed by hand", id="h-9")]})
        yield graph, saver, History(saver, "t")


def truth(graph: Any, thread: str = "t") -> Snapshots:
    """Give what the graph says of every step, oldest first, by checkpoint id."""
    found = [*graph.get_state_history(config(thread))]
    return {one.config["configurable"]["checkpoint_id"]: one for one in reversed(found)}


def parent_of(snapshot: Any) -> str | None:
    return snapshot.parent_config["configurable"]["checkpoint_id"] if snapshot.parent_config else None


def settled(graph: Any, values: Any) -> dict[str, Any]:
    """Give stored values as the graph has them: what a DeltaChannel was told is put together by its reducer."""
    return {
        name: graph.channels[name].reducer(value.seed or graph.channels[name].typ(), list(value.writes))
        if isinstance(value, Told)
        else value
        for name, value in values.items()
    }


def test_log_and_show(thread: Any) -> None:
    """Ids, parents, times, sources, nodes, questions and values are those that the graph gives."""
    graph, _, history = thread
    known = truth(graph)
    assert [step.id for step in history] == list(known)
    assert [line.step.id for line in history.log()] == list(known)
    assert {line.lane for line in history.log()} == {0, 1}
    for step in history:
        snapshot = known[step.id]
        parent = known.get(parent_of(snapshot) or "")
        assert (history[step.parent].id if step.parent else None) == parent_of(snapshot)
        assert (step.at.isoformat(), step.source) == (snapshot.created_at, snapshot.metadata["source"])
        assert [asked.id for asked in step.interrupts] == [asked.id for asked in snapshot.interrupts]
        ran = {task.name for task in parent.tasks} if parent and step.source == "loop" else set()
        assert set(step.nodes) == ran, step
        values = settled(graph, step.values)
        shown = {name: value for name, value in snapshot.values.items() if value or name in values}
        assert all(same(values[name], value) for name, value in shown.items()), step
        before = parent.values if parent else {}
        wrote = {name for name, value in shown.items() if not same(value, before.get(name))}
        assert wrote <= set(step.wrote), step
    assert {"waiting"} & {step.status for step in history} or "files" in history[-1].values
    assert "waiting" not in {one.status for one in History(thread[1], "t", newest=2)}


def test_diff(thread: Any) -> None:
    """Between any two steps: the patch makes the one of the other; there are changes where the graph's values differ."""
    graph, _, history = thread
    known = truth(graph)
    count = len(history)
    pairs = [(n, n + 1) for n in range(1, count)] + [(1, count), (count, 2), (count // 2, count)]
    for before, after in pairs:
        diff = history.diff(before, after)
        patched = jsonpatch.apply_patch(as_json(history[before].values), json.loads(json.dumps(diff.json_patch())))
        assert patched == as_json(history[after].values)
        assert sum(one.added + one.removed + one.changed + one.moved for one in diff.stat.values()) == len(diff)
        old, new = (known[history[number].id].values for number in (before, after))
        differing = {name for name in {*old, *new} if (old.get(name) or new.get(name))
                     and not same(old.get(name), new.get(name))}  # fmt: skip
        assert differing <= set(diff.stat), (before, after)
        assert bool(diff) or not differing


def test_blame_bisect_and_grep(thread: Any) -> None:
    """Who set a channel last, since when there is an answer, where a text first stood: as looking at all states says."""
    graph, _, history = thread
    known = truth(graph)
    chain, at = [], history[-1].id
    while at:
        chain.append(known[at])
        at = parent_of(known[at])
    chain.reverse()
    numbers = {step.id: step.number for step in history}
    where = [numbers[one.config["configurable"]["checkpoint_id"]] for one in chain]
    seen = [one.values.get("messages", []) for one in chain]
    changed = [n for n, old, new in zip(where, [[], *seen], seen, strict=False) if old != new]
    blamed = history.blame("messages")
    assert [one.step for one in blamed][::-1] == changed
    for one in blamed:
        parent = known[parent_of(known[history[one.step].id])]
        assert set(one.nodes) <= {task.name for task in parent.tasks}
    assert (blamed[0].source, blamed[0].nodes) == ("update", ())
    for size in range(1, max(map(len, seen)) + 2):
        first = next((n for n, messages in zip(where, seen, strict=True) if len(messages) >= size), None)
        found = history.bisect(lambda step, n=size: len(settled(graph, step.values).get("messages", [])) >= n)
        assert (found.number if found else None) == first
    for text in ("rain in", "how is", "changed by hand", "Bergen"):
        first = next(
            numbers[own] for own, one in known.items() if any(text in str(m) for m in one.values.get("messages", []))
        )
        assert history.grep(text, where="state")[0].step == first
    assert not history.grep("never said")


def test_compare(thread: Any) -> None:
    """Two conversations part where the graph's states do; two branches where the one was changed."""
    graph, saver, history = thread
    branch = next(step for step in history if step.source == "update")
    found = history.compare(history[branch.number - 1])
    assert (found.shared, found.parted.a) == (branch.parent, branch)
    again = plain_agent(saver, more="the sun") if "files" not in graph.channels else deep_agent(saver, more="the sun")
    run(again, "u")
    old = [one for one in truth(graph).values() if one.metadata["source"] != "update"]
    other = History(saver, "u")
    found = history[branch.number - 1], other[-1]
    parted = other.compare(history[branch.number - 1]).pairs
    assert len(parted) == len(old) == len(other)
    last = next(one for one in reversed(parted) if not one.same)
    assert "the sun" in str(last.a.values)
    assert "it rains again" in str(last.b.values)
    assert found[0].status == found[1].status == "done"


def test_exports(thread: Any, saver: Saver) -> None:
    """As JSON it is taken in by ours, step for step, and goes on there; as Python it is the state; as text all is told."""
    graph, official, history = thread
    name = import_thread(saver, history.export("json", redact=False), thread="taken")
    ours = History(saver, name)
    assert difference(told(ours), told(history)) is None
    make = plain_agent if "files" not in graph.channels else deep_agent
    mine = make(saver)
    values = [one.values for one in mine.get_state_history(config(name))]
    assert difference(values, [one.values for one in graph.get_state_history(config())]) is None
    going_on = lines("and on")
    again = create_agent(going_on, [weather, send], checkpointer=saver) if make is plain_agent else create_deep_agent(
        going_on, [weather], middleware=[TodoListMiddleware()], checkpointer=saver)  # fmt: skip
    state = again.invoke({"messages": [HumanMessage("go on", id="h-5")]}, config(name))
    assert "and on" in [message.content for message in state["messages"]]
    assert same(History(saver, name)[len(history)].values, ours[-1].values)
    for number in (1, len(history) // 2, -1):
        names: dict[str, Any] = {}
        exec(history.export("python", step=number, redact=False), names)
        assert difference(names["state"], dict(history[number].values)) is None
    text = history.export("markdown")
    assert [line.split()[1] for line in text.splitlines() if line.startswith("## ")] == [f"`{s}`" for s in history]
    page = Texts(export_html(history)).text
    for known in ("rain in", "how is the weather", "changed by hand"):
        assert known in text
        assert known in page
    assert all(str(step) in page for step in history)
    assert official.get_tuple(config()) is not None


class Texts(HTMLParser):
    """The texts of a page, which has no script."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[str] = []
        self.feed(html)
        self.close()

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag not in ("script", "link", "img", "iframe", "object")
        assert not [name for name, _ in attrs if name.startswith("on") or name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_it_shows_itself(thread: Any) -> None:
    """The picture has both branches; every step and a diff are drawn."""
    _, _, history = thread
    text = Texts(history._repr_html_()).text
    assert "branches 2" in text
    for step in history:
        assert str(step) in Texts(step._repr_html_()).text
    assert "rain in" in Texts(history.diff(1, -1)._repr_html_()).text
