"""How objects show themselves: everything said is text, whatever it says; and what is drawn is what happened."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from importlib.util import find_spec
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.sqlite import SqliteSaver as OfficialSaver
from langgraph.graph import END, START, StateGraph
from rich.console import Console

from checkpointers import History, Saver
from checkpointers.drawing import export_html
from checkpointers.lanes import lanes
from checkpointers.redacting import redacted_text
from checkpointers.show.cards import Card, Chip, Code, Edit, Rows, Values, Words
from checkpointers.show.console import rich_of
from checkpointers.show.drawn import html_of, page_of
from checkpointers.show.strip import Mark, picture_of
from checkpointers.show.text import brief, clipped, short, visible
from graph_agent import Agent, Patch, tool
from graph_agent.errors import MissingPackageError
from graph_agent.events import Ended, Event
from graph_agent.nodes.road import Node
from graph_agent.show.graphs import END as LAST
from graph_agent.show.graphs import layers_of, shape_of, shaped
from graph_agent.show.plotting import series
from graph_agent.show.sketch import sketched
from graph_agent.show.timelines import marks
from graph_agent.testing import FrozenClock, Tries, calls
from tests.graph_agent.conftest import scripted

ROOT = Path(__file__).parents[2]
TAGS = {
    "div",
    "span",
    "style",
    "b",
    "i",
    "table",
    "tr",
    "th",
    "td",
    "dl",
    "dt",
    "dd",
    "details",
    "summary",
    "pre",
    "code",
    "del",
    "ins",
    "svg",
    "g",
    "path",
    "rect",
    "circle",
    "text",
    "title",
    "html",
    "head",
    "meta",
    "body",
    "main",
    "p",
}
ATTRIBUTES = {
    "class",
    "style",
    "title",
    "width",
    "height",
    "viewbox",
    "role",
    "aria-hidden",
    "d",
    "x",
    "y",
    "rx",
    "cx",
    "cy",
    "r",
    "fill",
    "text-anchor",
    "transform",
    "charset",
    "http-equiv",
    "content",
    "name",
    "lang",
}
WICKED = [
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)><svg onload=alert(1)>",
    "</style></title></svg></pre><script src=https://example.org/x.js></script>",
    "<!-- --><![CDATA[ ]]> &lt;b&gt; &#60;i&#62; &amp;",
    "\x1b[31mred\x1b]0;title\x07\x1b[2J\x9b31m\x00\x08\x7f\r",
    "photo\u202egnp.exe \u2066hidden\u2069 \u200b\ufeff\U000e0041",
    "[red]not markup[/red] [link=https://example.org]x[/link]",
    "שלום עולם مرحبا 👩\u200d👩\u200d👧 e\u0301",
]
ALL = "\n".join(WICKED)
UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b\u200e\u200f\ufeff\ud800-\udfff\U000e0041]"
)


class Page(HTMLParser):
    """Reads HTML as a browser would, and refuses what does not belong there."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[str] = []
        self.shapes: list[str] = []
        self._open: list[str] = []
        html.encode()  # no halves of characters
        assert not UNSEEN.search(html)
        self.feed(html)
        self.close()
        assert self._open == []

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._check(tag, attrs)
        if tag != "meta":
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._check(tag, attrs)
        self.shapes.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "style":
            assert not re.search(r"@import|url\(|expression|http|<", data)
        else:
            self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    def unknown_decl(self, data: str) -> None:
        raise AssertionError(data)

    def _check(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS
        for name, value in attrs:
            assert name in ATTRIBUTES, (tag, name)
            if name in ("style", "fill", "d", "transform"):
                assert re.fullmatch(r"[\w .,:%()#-]*", value or ""), (name, value)
                assert "url" not in (value or "")


def wicked_agent(url: str, clock: FrozenClock) -> Agent:
    """Make an agent whose model, tools and people say wicked things."""

    @tool(risk="read_only")
    def search(query: str) -> str:
        """Look something up."""
        return f"{ALL}\n{query}"

    @tool(risk="external_action", once_per=("to",), compensate=lambda to: None)
    def send(to: str, body: str) -> str:
        """Send something."""
        return f"sent {ALL}"

    model = scripted(
        calls(("search", {"query": ALL})),
        Tries(RuntimeError(ALL), ConnectionError(ALL), calls(("send", {"to": "ada", "body": ALL + "x" * 3_000}))),
        f"the step is done: {ALL}",
        plan=[ALL],
        answer=[ALL],
    )
    return Agent(model, tools=[search, send], saver=url, clock=clock, sleep=clock.sleep, chance=lambda: 0.5)


@pytest.fixture
def things(url: str, clock: FrozenClock) -> Iterator[dict[str, Any]]:
    """Give one of each that shows itself, all of them wicked."""
    agent = wicked_agent(url, clock)
    events: list[Event] = list(agent.stream(ALL, thread="wicked <b>", constraints=[ALL]))
    if events[-1].run.status == "failed":
        events += list(agent.stream_resume("wicked <b>"))
    waiting = events[-1].run
    assert waiting.status == "waiting"
    done = agent.resume("wicked <b>", approve=waiting.reviews[0].id)
    assert done.status == "done"
    timeline = agent.history("wicked <b>")
    yield {
        "agent": agent, "waiting": waiting, "done": done, "review": waiting.reviews[0], "timeline": timeline,
        "history": History(agent.saver, "wicked <b>"), "diff": timeline.diff(2, timeline[-1].number),
        "undo": agent.undo("wicked <b>", to="wicked <b>@1", dry_run=True),
        **{f"step {step.number}": step for step in timeline},
        **{f"slice {step.number}": step.saw for step in timeline if step.saw},
        **{f"event {place}": event for place, event in enumerate(events)},
    }  # fmt: skip
    agent.saver.close()


def test_nothing_wicked_runs_or_garbles(things: Mapping[str, Any]) -> None:
    """Whatever a model, a tool or a person says: it is text in HTML, on a console and in a repr."""
    for name, thing in things.items():
        page = Page(thing._repr_html_())
        if name.startswith(("waiting", "review", "slice")):
            assert "<script>alert(1)</script>" in page.text, name
            assert "␛[31mred" in page.text, name
        console = Console(file=StringIO(), width=120, force_terminal=True, color_system="truecolor")
        console.print(thing)
        drawn = re.sub(r"\x1b\[[\d;]*m", "", console.file.getvalue())
        assert not UNSEEN.search(drawn.replace("\n", "")), name
        assert not UNSEEN.search(repr(thing).replace("\n", "")), name
        assert repr(thing).count("\n") < 10, name
        assert len(repr(thing)) < 12_000, name


def test_a_run_and_a_review_say_what_a_person_needs(things: Mapping[str, Any]) -> None:
    """What is asked stands there whole, hidden characters shown, with the line that answers it."""
    review, waiting = things["review"], things["waiting"]
    for thing in (review, waiting):
        text = Page(thing._repr_html_()).text
        assert f'approve="{review.id}"' in text
        assert visible(review.args["body"]) in text
        assert f"{len(review.args['body']):,} characters" in text
        assert "external_action" in text
    assert "plan: 0 of 1 done" in Page(waiting._repr_html_()).text
    done = Page(things["done"]._repr_html_()).text
    assert visible(ALL) in done
    assert "plan: 1 of 1 done" in done
    assert "failures: 2" in done


def test_who_approves_sees_the_exact_arguments(make: Callable[..., Agent]) -> None:
    """Words that look like secrets, secrets and nested parts stand there as they would be sent; elsewhere they do not."""

    @tool(risk="external_action")
    def send(to: list[str], body: str, token: str, options: dict[str, Any]) -> str:
        """Send something."""
        return "sent"

    args = {
        "to": [f"ada{number}" for number in range(9)], "token": "pay-1000000-to-mallory",
        "body": "A Basic Understanding1 of it. cookie: chocolate; key sk-abcdefghijklmnop1234",
        "options": {"a": {"password": "hunter2"}, "note": "n" * 300 + "end"},
    }  # fmt: skip
    run = make(calls(("send", args)), tools=[send]).run("go", thread="t")
    console = Console(file=StringIO(), width=4_000)
    console.print(run.reviews[0])
    for text in (Page(run.reviews[0]._repr_html_()).text, Page(run._repr_html_()).text, console.file.getvalue()):
        said = text.split("arguments", 1)[1]
        for part in (*args["to"], args["token"], args["body"], "hunter2", args["options"]["note"]):
            assert part in said, part
    state = Page(run._repr_html_()).text.rsplit("state", 1)[1]
    assert "hunter2" not in state
    assert "mallory" not in state


def test_a_slice_shows_each_item_with_its_reason(things: Mapping[str, Any]) -> None:
    """The messages, the items, why they are there."""
    slices = [thing for name, thing in things.items() if name.startswith("slice")]
    assert len(slices) >= 4
    for shown in slices:
        text = Page(shown._repr_html_()).text
        assert all(visible(str(message["content"]))[:60].split("\n")[0] in text for message in shown.messages)
        assert all(reason in text for _, _, reason in shown.items)
        assert "✓ exact" in text


def test_a_diff_shows_each_change(things: Mapping[str, Any]) -> None:
    """Every path and kind stands there."""
    diff = things["diff"]
    text = Page(diff._repr_html_()).text
    assert len(diff) > 5
    for change in diff:
        assert visible(change.path) in text
    for kind in {change.kind for change in diff}:
        assert f"{kind} {sum(change.kind == kind for change in diff):,}" in text


def test_an_agent_draws_itself(things: Mapping[str, Any]) -> None:
    """Its nodes, its tools with their risks, its model, where it keeps what, how many threads."""
    agent = things["agent"]
    page = Page(agent._repr_html_())
    for word in ("plan", "recover", "start", "end", "search", "read_only", "send", "external_action", "same to"):
        assert word in page.text, word
    assert f"threads {len(agent.saver.threads())}" in page.text
    assert "scripted" in page.text
    assert page.shapes.count("rect") >= len(agent.graph.get_graph().nodes)
    assert repr(agent) == f"<Agent scripted: 2 tools, {type(agent.saver).__name__}>"


def test_the_picture_is_what_happened(things: Mapping[str, Any]) -> None:
    """Nodes, phases, tokens and failures, told from few states, are those that each step has itself."""
    timeline = things["timeline"]
    drawn = {mark.number: mark for mark in marks(timeline._timeline)}
    assert list(drawn) == [step.number for step in timeline]
    for step in timeline:
        mark = drawn[step.number]
        assert timeline._timeline.nodes_of(step._info) == step.nodes
        assert mark.parent == step.parent
        assert mark.at == step.at
        tokens = [one.get("tokens", {}) for one in step.decisions]
        assert mark.tokens == sum(one.get("input", 0) + one.get("output", 0) for one in tokens)
        assert (mark.kind == "failure") == bool(step.patch.get("failures")), step
        assert mark.phase == ("waiting" if step.status == "waiting" else step.values.get("phase", "")), step
    assert {"input", "node", "tool", "review", "failure"} <= {mark.kind for mark in drawn.values()}


def test_a_plot_has_the_tokens_and_bytes_of_each_step(things: Mapping[str, Any]) -> None:
    """What is new costs bytes, what is not does not; without matplotlib the error says what to install."""
    timeline = things["timeline"]
    found = series(timeline)
    assert found["step"] == [step.number for step in timeline]
    assert [size > 0 for size in found["bytes"]] == [
        any(value != [] for value in step.wrote.values()) for step in timeline
    ]
    assert sum(found["tokens"]) == sum(mark.tokens for mark in marks(timeline._timeline)) > 0
    assert series(timeline, 3)["step"] == found["step"][-3:]
    if find_spec("matplotlib"):
        assert len(timeline.plot().axes) == 2
        assert timeline.plot()._repr_png_().startswith(b"\x89PNG")  # what a notebook shows, without pyplot
    else:
        with pytest.raises(MissingPackageError, match="a plot needs matplotlib: pip install matplotlib"):
            timeline.plot()


def test_a_page_is_one_file_without_secrets(make: Callable[..., Agent], tmp_path: Path) -> None:
    """A whole thread as one page: every step, nothing wicked, nothing from elsewhere, no password unless asked for."""

    @tool(risk="read_only")
    def login(user: str, password: str) -> str:
        """Log in."""
        return f"token for {user}: sk-live-0123456789abcdef; {ALL}"

    agent = make(calls(("login", {"user": "ada", "password": "hunter2\"'"})), "done", tools=[login])
    assert agent.run("log in", thread="t").status == "done"
    history = agent.history("t")
    page = export_html(history, tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page
    read = Page(page.removeprefix("<!doctype html>"))
    assert all(f"t@{step.number}" in read.text for step in history)
    assert "hunter2" not in page
    assert "0123456789abcdef" not in page
    whole = Page(export_html(history, redact=False).removeprefix("<!doctype html>")).text
    assert "hunter2" in whole
    assert "sk-live-0123456789abcdef" in whole
    for step in history:
        console = Console(file=StringIO(), width=120)
        console.print(step)
        for drawn in (step._repr_html_(), console.file.getvalue()):
            assert "hunter2" not in drawn
            assert "0123456789abcdef" not in drawn
    assert "hunter2" in str(history[4].values)
    cards = [step._card for step in history]
    small = Page(page_of("t", cards, room=10).removeprefix("<!doctype html>"))
    assert f"{len(cards) - 1} steps more, for which there was no room" in small.text


@pytest.mark.parametrize(
    "text",
    [
        '{"password":"hunter2"}', "{'api_key': 'hunter2'}", repr('send({"password": "hunter2"})'), "https://ada:hunter2@host/x",
        '{\\"token\\": \\"hunter2\\"}', '"passphrase": "hunter2', "Authorization: Bearer hunter2hunter2hunter2",
        "-----BEGIN RSA PRIVATE KEY-----\nhunter2", "eyJhunter2hunter2.hunter2hunter2.hunter2",
    ],
)  # fmt: skip
def test_secrets_are_left_out(text: str) -> None:
    """Keys that say so, and texts that look like one, also inside of texts."""
    assert "hunter2" not in redacted_text(text)
    assert redacted_text("the build is green, 412 tokens") == "the build is green, 412 tokens"


TEXTS = st.one_of(st.text(), st.sampled_from(WICKED), st.text(st.characters(categories=["Cc", "Cf", "Cs", "Zl"])))
DATA = st.recursive(
    st.one_of(TEXTS, st.integers(), st.floats(), st.booleans(), st.none(), st.binary(), st.datetimes()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(TEXTS, inner), st.tuples(inner, inner)),
    max_leaves=30,
)


@given(TEXTS, DATA, TEXTS)
def test_any_text_at_any_place_stays_text(text: str, value: Any, other: str) -> None:
    """A card of anything, anywhere, is well-formed HTML of few kinds of elements, and harmless on a console."""
    card = Card(text, text, text, ((text[:20], value), ("b", text)), (
        Words(text, other), Rows(text, (text, other), [(text, value), (Chip(text, text), Edit(text, other))], 3, text),
        Values(text, {text: value}, exact=True), Values(text, value), Card(text, blocks=(Rows("", ("", ""), [("", Code(text))]),)),
    ), text)  # fmt: skip
    page = Page(html_of(card))
    shown = visible(text[:200])
    if shown.strip() and len(text) < 100:
        assert " ".join(shown.split()) in " ".join(page.text.split())
    console = Console(file=StringIO(), width=100)
    console.print(rich_of(card))
    assert not UNSEEN.search(console.file.getvalue().replace("\n", ""))


def test_what_is_huge_is_cut_with_its_size() -> None:
    """Ten million characters, a hundred thousand items, a thousand levels: a glance, and exactly how much there is."""
    deep: Any = "bottom"
    for _ in range(50_000):
        deep = [deep]
    huge = {"text": "<é>" * 3_333_333, "many": list(range(100_000)), "deep": deep, "bytes": b"x" * 10_000_000}
    huge |= {"number": 10**5_000, "wide": {str(number): {"a": "b" * 500} for number in range(5_000)}}
    card = Card(
        "huge",
        blocks=(Values("", huge), Values("", huge, exact=True), Words("", huge["text"]), *[Values("", huge)] * 30),
    )
    html = html_of(card)
    page = Page(html)
    assert len(html) < 600_000
    for told in (
        "9,999,999 characters",
        "100,000 items",
        "99,976 more",
        "10,000,000 bytes",
        "5,000 keys",
        "4,976 more",
    ):
        assert told in page.text, told
    console = Console(file=StringIO(), width=100)
    console.print(rich_of(card))
    assert len(console.file.getvalue()) < 200_000


def test_lines_are_brief() -> None:
    """A repr has at most ten lines, says what is hidden, and never fails on what cannot be shown."""

    class Odd:
        def __repr__(self) -> str:
            raise ValueError("no")

    assert brief("\n".join(map(str, range(1_000)))) == "\n".join([*map(str, range(9)), "… 991 more lines"])
    assert brief("a\nb") == "a\nb"
    assert short([Odd()]) == "[<Odd>]"
    assert clipped("a\n b\x1b", 10) == "a b␛"
    assert clipped("x" * 11, 10) == "x" * 10 + "…"


def picture(count: int, told: str = "") -> str:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    kinds = ("input", "node", "tool", "review", "failure", "change")
    made = [
        Mark(n, n - 1 or None, start + timedelta(seconds=n + 9_000 * (n > count / 2)), kinds[n % 6], f"node{n % 7}{told}",
             told, ("planning", "executing")[n // 9 % 2], n % 3 * 1_234)
        for n in range(1, count + 1)
    ]  # fmt: skip
    return html_of(Card("t", blocks=(picture_of(made),)))


def test_a_thousand_steps_are_small() -> None:
    """A timeline of a thousand steps stays under 300 kB, whatever its steps say; the pause is told."""
    html = picture(1_000, ALL)
    assert len(html.encode()) < 300_000
    page = Page(html)
    assert page.text.count("@") >= 1_000
    assert "nothing happened for 2.5 h" in page.text
    assert "2,468" in page.text
    assert picture(5_000).count('class="x"') == picture(1_000).count('class="x"') == 1_000


def test_kinds_are_told_apart_without_colour() -> None:
    """Every kind has a form of its own."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    drawn = set()
    for kind in ("input", "node", "tool", "review", "failure", "change"):
        svg = picture_of([Mark(1, None, start, kind)]).signs[0][0]
        drawn.add(re.sub(r'class="([^"]*)"', lambda found: "o" if found[1] == "o" else "", svg))
    assert len(drawn) == 6


class Count(TypedDict, total=False):
    n: int
    text: str


def counter(saver: Any) -> Any:
    builder: Any = StateGraph(Count)
    builder.add_node("tools", lambda state: {"n": state.get("n", 0) + 1, "text": WICKED[state.get("n", 0) % 8]})
    builder.add_edge(START, "tools")
    builder.add_conditional_edges("tools", lambda state: END if state["n"] >= 8 else "tools")
    return builder.compile(checkpointer=saver)


def check_counter(saver: Any) -> None:
    counter(saver).invoke({"n": 0}, {"configurable": {"thread_id": "t"}})
    history = History(saver, "t")
    page = Page(history._repr_html_())
    assert "steps 10" in page.text
    assert page.text.count("tools") >= 8
    for step in history:
        assert f"t@{step.number}" in Page(step._repr_html_()).text
    assert "<script>alert(1)</script>" in Page(history[3]._repr_html_()).text
    assert "text" in Page(history.diff(3, 4)._repr_html_()).text
    assert "t@10" in Page(export_html(history).removeprefix("<!doctype html>")).text


def test_any_graph_with_our_savers(saver: Saver) -> None:
    """A history of somebody else's graph shows itself."""
    check_counter(saver)


def test_any_graph_with_the_official_saver(tmp_path: Path) -> None:
    """With a saver of another making too."""
    with OfficialSaver.from_conn_string(str(tmp_path / "official.db")) as saver:
        check_counter(saver)


def test_a_branch_is_drawn_in_a_lane_of_its_own(make: Callable[..., Agent]) -> None:
    """A thread that was changed at an earlier step has two lanes, and says so."""
    agent = make(
        calls(("search", {"query": "x"})), "done", tools=[tool(risk="read_only", name="search")(lambda query: "y")]
    )
    agent.run("look", thread="t")
    step = agent.history("t")[4]
    agent._wait(agent.graph.aupdate_state(step.config, {"constraints": ["be brief"]}))
    history = agent.history("t")
    text = Page(history._repr_html_()).text
    assert "branches 2" in text
    assert "changed or forked from outside" in text
    drawn = marks(history._timeline)
    assert {at.lane for at in lanes([(mark.number, mark.parent) for mark in drawn])} == {0, 1}
    assert sum(mark.tokens for mark in drawn) > 0


def test_a_closed_agent_still_shows_itself(make: Callable[..., Agent]) -> None:
    """Looking at an agent never fails for its database."""
    agent = make()
    agent.saver.close()
    assert "not to be read" in Page(agent._repr_html_()).text


NAMES = st.lists(st.text("abcdefgh", min_size=1, max_size=2), min_size=1, max_size=9, unique=True)


@given(NAMES, st.data())
def test_any_graph_is_drawn_or_told(names: list[str], data: Any) -> None:
    """Every node is drawn; every way is drawn or told, but for one to itself; ways forward lead to the right."""
    nodes = ["__start__", *names, LAST]
    some = st.tuples(st.sampled_from(nodes[:-1]), st.sampled_from(nodes[1:]))
    edges = list(dict.fromkeys(data.draw(st.lists(some, max_size=30))))
    shape = shaped(nodes, edges)
    assert {*shape.nodes, *shape.apart} == {*nodes}
    assert set(shape.edges) <= {*edges}
    told = " ".join(shape.told)
    for edge in edges:
        ends = {"__start__": "start", LAST: "end"}
        assert edge in shape.edges or edge[0] == edge[1] or any(f"{ends.get(one, one)}:" in told for one in edge), edge
    layer = layers_of(shape)
    assert set(layer) == set(shape.nodes)
    assert all(0 <= place < len(nodes) + 1 for place in layer.values())
    Page(html_of(Card("g", blocks=(sketched(shape),))))


def test_a_node_of_ones_own_is_drawn(make: Callable[..., Agent]) -> None:
    """A node before another stands between what leads there; a long chain is no trouble."""

    async def body(view: Any, kit: Any, where: Any) -> Patch:
        return Patch()

    class View(TypedDict, total=False):
        goal: str

    agent = make(nodes=[("act", Node("think", body, View))])
    shape = shape_of(agent.graph)
    assert ("plan", "think") in shape.edges
    assert ("think", "act") in shape.edges
    assert "recover" in shape.apart
    names = ["__start__", *(f"n{number}" for number in range(140)), LAST]
    layer = layers_of(shaped(names, list(pairwise(names))))
    assert layer["n139"] == 140
    many = shaped([*names, *(f"m{number}" for number in range(5_000))], [(f"m{n}", f"m{n + 1}") for n in range(4_999)])
    assert many.told == ("4,990 more nodes",)
    hub = shaped(
        ["__start__", "boss", *"abcdef", LAST],
        [("__start__", "boss"), *((("boss"), x) for x in "abcdef"), *((x, "boss") for x in "abcdef"), ("boss", LAST)],
    )
    assert hub.apart == ()


def test_nothing_is_loaded_before_somebody_looks() -> None:
    """Importing costs as little as before: neither what draws nor rich is loaded."""
    code = (
        "import sys, checkpointers, graph_agent; checkpointers.History; from checkpointers.diffing import Diff;"
        "print([m for m in sys.modules if m.startswith(('rich', 'checkpointers.drawing', 'checkpointers.show.', 'matplotlib'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_events_are_brief(things: Mapping[str, Any]) -> None:
    """An event says in a line what happens; the last has the run itself."""
    events = [thing for name, thing in things.items() if name.startswith("event")]
    assert isinstance(events[-1], Ended)
    assert all(str(event) and "\n" not in str(event) and "\x1b" not in str(event) for event in events)
    assert {str(event) for event in events} >= {"plan begins", "plan ends"}
    assert repr(events[-1].run)[:20] in repr(events[-1])
    assert "waiting" in Page(events[-1]._repr_html_()).text
    assert any(repr(event).startswith("Started(thread=") for event in events)
