"""Nothing that a thread says runs or garbles anything: names of threads, channels, nodes, keys, ids, metadata, errors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Interrupt
from rich.console import Console

from checkpointers import CheckpointerError, History, export_html, import_thread
from tests.checkpointers.graphs import config
from tests.checkpointers.test_real_threads import Texts

ESCAPES = "\x1b[31mred\x1b]0;title\x07\x1b[2J\x9b31m\x00\x08\x7f\r"
TURNED = "photo\u202egnp.exe \u2066hidden\u2069 \u200b\ufeff\U000e0041"
SCRIPT = "</style></title></pre><script>alert(1)</script><img src=x onerror=alert(1)>"
MARKDOWN = "```\n# heading\n![x](https://example.org/x.png) [link](javascript:alert(1))\n````"
RIGHT = "שלום עולם مرحبا"
WICKED = [ESCAPES, TURNED, SCRIPT, MARKDOWN, RIGHT, "'; import os; os.abort() #", '"""\nimport os\n"""', "\\u001b[31m"]
ALL = "\n".join(WICKED)
UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b\u200e\u200f\ufeff\ud800-\udfff\U000e0041]"
)


def hostile(text: str, thread: str = "t") -> History:
    """Make a thread that says a text at every place where something can be said."""
    saver, place = InMemorySaver(), config(thread, checkpoint_ns="")
    parents: list[Any] = [place]
    for number, parent in ((1, 0), (2, 1), (3, 1)):
        value = {text: text, "list": [{"id": f"{text}{n}", text: [text] * number} for n in range(number)]}
        checkpoint: Any = {
            "v": 1, "id": f"{number:032d}", "ts": f"2026-11-18T00:00:0{number}+00:00",
            "channel_values": {f"c{text}": value, "n": number, "text": text * number},
            "channel_versions": {f"c{text}": number, "n": number, "text": number},
            "versions_seen": {f"node {text}": {"n": number}, "other": {"n": number}},
        }  # fmt: skip
        metadata: Any = {"source": "loop", "step": number, "parents": {}, text: text, "forked_from": text}
        stored = saver.put(parents[parent], checkpoint, metadata, checkpoint["channel_versions"])
        parents.append(stored)
        saver.put_writes(stored, [("__error__", repr(ValueError(text))), (f"c{text}", text)], f"task {text}")
        saver.put_writes(stored, [("__interrupt__", [Interrupt({text: text})])], "another task")
    return History(saver, thread)


def lines(history: History) -> dict[str, str]:
    """Give every text that a history gives for a terminal."""
    diff, found = history.diff(1, 3), history.grep(re.compile("[a-z]{3}"), limit=100)
    told: dict[str, Any] = {
        "history": repr(history), "log": "\n".join(map(str, history.log())), "diff": diff, "diff repr": repr(diff),
        "steps": "\n".join(repr(step) for step in history), "grep": found,
        "blame": "\n".join(map(str, history.blame("n") + history.blame("text"))), "compare": history.compare(history[2]),
    }  # fmt: skip
    return {name: str(text) for name, text in told.items()}


def check(history: History) -> None:
    """See that nothing unseen, nothing of another element and no raw fence leaves in any form."""
    for name, text in lines(history).items():
        assert not UNSEEN.search(text), (name, UNSEEN.search(text))
    for thing in (history, *history, history.diff(1, 2)):
        Texts(thing._repr_html_())
        assert not UNSEEN.search(thing._repr_html_())
        console = Console(file=StringIO(), width=100)
        console.print(thing)
        assert not UNSEEN.search(console.file.getvalue())
    page = export_html(history)
    Texts(page)
    assert not UNSEEN.search(page)
    for form in ("json", "markdown", "python"):
        assert not UNSEEN.search(history.export(form)), form
    check_exports(history)


def check_exports(history: History) -> None:
    """See that JSON and Python say what was there, and that Markdown has the fences that it has itself."""
    names: dict[str, Any] = {}
    code = history.export("python", redact=False)
    compile(code, "state", "exec")
    exec(code, names)
    assert names["state"] == dict(history[-1].values)
    again = InMemorySaver()
    import_thread(again, json.loads(history.export("json", redact=False)))
    assert [dict(step.values) for step in History(again, history.thread)] == [dict(step.values) for step in history]
    outside, fence = [], ""
    for line in history.export("markdown").split("\n"):
        if fence:
            fence = "" if line == fence else fence
        elif line.startswith("```"):
            fence = line
            assert set(line) == {"`"}
        else:
            outside.append(line)
    assert fence == ""
    for line in outside:
        assert re.fullmatch(r"(# Thread|## )?\s?(`[^`]*`\s?)*[a-z0-9 :-]*", line), line


@pytest.mark.slow
@pytest.mark.parametrize("text", [*WICKED, ALL], ids=lambda text: repr(text)[:20])
def test_wicked_texts_at_every_place(text: str) -> None:
    """Text of anybody's as the name of a thread, a channel, a node, a key, an id, a task, in metadata, errors, questions."""
    check(hostile(text, f"thread {text}"))


@pytest.mark.slow
@settings(max_examples=20)
@given(st.text(st.characters(categories=["Cc", "Cf", "Zl", "Zp", "Lo", "Po", "Sm"]), max_size=12))
def test_any_text_at_every_place(text: str) -> None:
    """Law: whatever the text."""
    check(hostile(text))


ERRORS: list[Callable[[History], Any]] = [
    lambda history: history.at(f"{ALL}@3"), lambda history: history.at(ALL), lambda history: history.blame(ALL),
    lambda history: history.blame(f"text.{ESCAPES}"), lambda history: history[99], lambda history: history.export(ALL),
    lambda history: History(history._timeline._saver, ALL), lambda history: import_thread(InMemorySaver(), {"format": ALL}),
    lambda history: history.blame("c"), lambda history: history.at("zzz"),
]  # fmt: skip


@pytest.mark.parametrize("ask", ERRORS, ids=range(len(ERRORS)))
def test_errors_say_it_harmlessly(ask: Callable[[History], Any]) -> None:
    """An error that names what was asked for, or what there is, is one that a terminal can show."""
    with pytest.raises(CheckpointerError) as caught:
        ask(hostile(ALL, f"thread {ALL}"))
    assert not UNSEEN.search(str(caught.value))


@pytest.mark.slow
def test_ten_million_characters() -> None:
    """What is huge is cut where it is looked at, and whole where it is handed on."""
    text = f"{ALL}{'word ' * 2_000_000}{ALL}"
    history = hostile("x")
    saver = history._timeline._saver
    checkpoint = {**history[-1].stored.checkpoint, "id": f"{9:032d}"}
    checkpoint |= {"channel_values": {"text": text, text[:99]: 1}, "channel_versions": {"text": 9}}
    saver.put(history[-1].config, checkpoint, {"source": "loop", "step": 9, "parents": {}, "huge": text}, {"text": 9})
    history = History(saver, "t")
    step = history[-1]
    console = Console(file=StringIO(), width=100)
    for thing in (history, step, history.diff(1, -1)):
        console.print(thing)
        html = thing._repr_html_()
        Texts(html)
        assert not UNSEEN.search(html)
        assert len(html) < 300_000
    assert not UNSEEN.search(console.file.getvalue())
    assert len(console.file.getvalue()) < 200_000
    for name, told in lines(history).items():
        assert len(told) < 100_000, name
        assert not UNSEEN.search(told), name
    assert len(export_html(history)) < 6_000_000
    assert len(history.export("markdown")) < 100_000
    whole = json.loads(history.export("json", redact=False))
    assert whole["steps"][-1]["metadata"]["huge"] == step.metadata["huge"]
    assert len(step.metadata["huge"]) > 10_000_000
