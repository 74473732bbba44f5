"""A thread handed on and taken in: equal step for step; without its secrets; nothing in it garbles or runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from hypothesis import given
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import StateGraph
from langgraph.types import Command, Send, interrupt
from rich.console import Console

from checkpointers import (
    BlockedTypeError,
    CheckpointerError,
    History,
    HistoryError,
    Keep,
    Saver,
    SqliteSaver,
    StorageError,
    ThreadExistsError,
    export_html,
    import_thread,
    open_saver,
)
from checkpointers.redacting import REDACTED, is_hidden, is_secret, redacted, redacted_text
from checkpointers.spelling import read, spelled
from checkpointers.strict import StrictSerializer
from checkpointers.testing import FaultyDatabase, faulty, kill_at
from tests.checkpointers.crash import FINE, in_child
from tests.checkpointers.graphs import DeltaState, State, config, extend, loop, review
from tests.checkpointers.test_history import any_saver, forked  # noqa: F401  a fixture
from tests.checkpointers.test_storage import put
from tests.checkpointers.wild import TYPES, difference, values
from tests.conftest import reopen


def told(history: History) -> list[Any]:
    """Give all that a history says of each step."""
    return [
        [step.id, step.parent, step.source, step.status, step.nodes, dict(step.values), dict(step.metadata),
         step.at, step.stored.checkpoint["channel_versions"], step.stored.checkpoint["versions_seen"], step.pending]
        for step in history
    ]  # fmt: skip


def test_a_thread_comes_back_step_for_step(any_saver: Any, saver: Saver) -> None:  # noqa: F811
    """Exported from any saver, imported into ours and into another: equal, and it goes on."""
    forked(any_saver)
    loop(any_saver, DeltaState).invoke({"until": 6, "n": 0}, config("d"))
    review(any_saver).invoke({}, config("r"))
    for thread in ("t", "d", "r"):
        history = History(any_saver, thread)
        data = history.export("json", redact=False)
        forks = thread == "t" and isinstance(any_saver, Saver)
        if forks:  # whose versions are numbers: another saver would mix the branches up
            with pytest.raises(HistoryError, match="on two branches"):
                import_thread(InMemorySaver(), data)
        for into in [saver] if forks else [saver, InMemorySaver()]:
            assert import_thread(into, data, thread=f"{thread}2") == f"{thread}2"
            again = History(into, f"{thread}2")
            assert difference(told(again), told(history)) is None
    with pytest.raises(ThreadExistsError):
        import_thread(saver, data, thread="r2")
    asked = History(saver, "r2")[-1].interrupts
    assert (
        review(saver).invoke(Command(resume={one.id: "yes" for one in asked}), config("r2"))["answers"] == ["yes"] * 2
    )
    log = loop(saver, DeltaState).invoke({"until": 8}, config("d2"))["log"]
    assert [one["id"] for one in log] == list(range(8))


def test_what_removed_steps_told_is_exported(saver: Saver) -> None:
    """A thread of DeltaChannels that was pruned is the same thread when it is imported, and no other saver takes it."""
    app = loop(saver, DeltaState)
    app.invoke({"until": 30, "n": 0}, config())
    saver.retain(Keep(last=3, pinned=[20]))
    history = History(saver, "t")
    data = history.export("json", redact=False)
    import_thread(saver, data, thread="again")
    again = [step[:1] + step[2:] for step in told(History(saver, "again"))]  # whose parents have other numbers
    assert difference(again, [step[:1] + step[2:] for step in told(history)]) is None
    with pytest.raises(HistoryError, match="removed before it was exported"):
        import_thread(InMemorySaver(), data)
    for thread in ("t", "again"):
        app.invoke({"until": 33}, config(thread))
        assert app.get_state(config(thread)).values["other"] == list(range(33))
    assert saver.fsck() == []


class Log(TypedDict, total=False):
    log: Annotated[list[Any], DeltaChannel(extend, snapshot_frequency=1000)]


def parallel(saver: Any) -> Any:
    """Three tasks at a time, the first of which asks a person."""
    builder = StateGraph(Log)
    builder.add_node("a", lambda _: {"log": [f"a {interrupt('?')}"]})
    builder.add_node("b", lambda _: {"log": ["b"]})
    builder.add_node("c", lambda _: {"log": ["c"]})
    for node in "abc":
        builder.add_edge("__start__", node)
    return builder.compile(checkpointer=saver)


def test_parallel_tasks_stay_in_order(any_saver: Any, saver: Saver) -> None:  # noqa: F811
    """What one of them writes only after the import comes where it would have come, and is stored as it was told."""
    parallel(any_saver).invoke({"log": ["in"]}, config())
    document = json.loads(History(any_saver, "t").export("json", redact=False))
    theirs = [] if isinstance(any_saver, Saver) else [("theirs", InMemorySaver())]  # our versions are numbers
    for name, into in [("ours", saver), *theirs]:
        import_thread(into, document, thread=name)
        told = parallel(into).invoke(Command(resume="yes"), config(name))
        assert told == {"log": ["in", "a yes", "b", "c"]}
        assert parallel(into).get_state(config(name)).values == told
    for step in document["steps"]:  # as releases before wrote it
        step.pop("paths", None)
    import_thread(saver, document, thread="old")
    assert difference(History(saver, "old")[-1].interrupts, History(saver, "ours")[2].interrupts) is None


def test_what_else_a_checkpoint_keeps_comes_along(saver: Saver) -> None:
    """Whatever LangGraph or another keeps beside the known keys is spelled as values are, without its secrets."""
    more = {"pending_sends": [Send("n", {"a": 1})], "set": {1}, "map": {1: 2}, "bytes": b"x", "nan": float("nan")}
    checkpoint = {**empty_checkpoint(), **more, "password": "hunter2"}
    saver.put(config(checkpoint_ns=""), checkpoint, {"source": "update", "step": 1, "parents": {}}, {})
    history = History(saver, "t")
    import_thread(saver, history.export("json", redact=False), thread="again")
    stored, again = (saver.get_tuple(config(thread)).checkpoint for thread in ("t", "again"))
    assert difference(again, stored) is None
    assert "hunter2" not in history.export("json")


ALTERED: list[tuple[str, Callable[[Any], Any]]] = [
    ("seen", lambda step: step.update(seen={"work": "x"})),
    ("versions", lambda step: step.update(versions="x")),
    ("writes", lambda step: step["writes"].append(["task"])),
    ("a task", lambda step: step["writes"].append([5, "n", 1])),
    ("paths", lambda step: step.update(paths=[5] * len(step["writes"]))),
    ("a path too few", lambda step: step["paths"].pop()),
    ("id", lambda step: step.update(id="")),
    ("parent", lambda step: step.update(parent=5)),
    ("state", lambda step: step["patch"].append({"op": "add", "path": "/x", "value": deep(100_000)})),
    ("metadata", lambda step: step.update(metadata={"x": deep(300)})),
    ("a value", lambda step: step.update(metadata={"x": {"$float": "q"}})),
    ("a number", lambda step: step.update(metadata={"x": 2**70})),
    ("told", lambda step: step.update(told={"n": {"writes": [["task"]]}})),
]


def deep(levels: int) -> Any:
    """Give a value in so many lists."""
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(("what", "alter"), ALTERED, ids=[what for what, _ in ALTERED])
def test_an_altered_document_is_refused_in_words(saver: Saver, what: str, alter: Callable[[Any], Any]) -> None:
    """The error is one of ours and names the step, whatever was altered; nothing is stored."""
    loop(saver).invoke({"until": 3, "n": 0}, config())
    document = json.loads(History(saver, "t").export("json"))
    alter(document["steps"][3])
    with pytest.raises(CheckpointerError, match="t@4 of the document"):
        import_thread(saver, document, thread=what)
    assert [info.thread for info in saver.threads()] == ["t"]
    for text in ("[" * 100_000, '{"format": ' * 5_000):
        with pytest.raises(HistoryError, match="this is no JSON"):
            import_thread(saver, text)


@dataclass
class Mine:
    """A type of one's own."""

    a: int


def test_a_type_that_is_not_listed_stops_an_import_before_it_begins(url: str, saver: Saver) -> None:
    """What can be decoded of a document is, before anything is stored; with the type listed it is imported."""
    with reopen(url, types=[Mine]) as own:
        put(own, {"x": Mine(2)}, after=put(own, {"x": 1}), version=2)
        data = History(own, "t").export("json")
        with pytest.raises(BlockedTypeError, match="t@2 of the document"):
            import_thread(saver, data, thread="again")
        assert [info.thread for info in saver.threads()] == ["t"]
        import_thread(own, data, thread="again")
        assert History(own, "again")[-1].values["x"] == Mine(2)


def remembering(saver: Any) -> Any:
    """Call a subgraph that counts what it remembers."""
    inner = StateGraph(State)
    inner.add_node("count", lambda state: {"log": [len(state.get("log", []))]})
    inner.add_edge("__start__", "count")
    counting = inner.compile(checkpointer=True)
    outer = StateGraph(State)
    outer.add_node("sub", lambda _: {"n": len(counting.invoke({})["log"])})
    outer.add_edge("__start__", "sub")
    return outer.compile(checkpointer=saver)


def test_what_a_subgraph_remembers_is_imported_into_its_thread(any_saver: Any, saver: Saver) -> None:  # noqa: F811
    """It is a document of its own, put after that of the thread; into another thread, or before it, it is not."""
    for _ in range(3):
        remembering(any_saver).invoke({}, config())
    remembering(any_saver).invoke({}, config("other"))
    outer, inner, other = (
        History(any_saver, thread, ns=ns).export("json", redact=False)
        for thread, ns in (("t", ""), ("t", "sub"), ("other", ""))
    )
    for into in [saver] if isinstance(any_saver, Saver) else [saver, InMemorySaver()]:
        for data in (outer, inner):
            import_thread(into, data, thread="again")
            with pytest.raises(ThreadExistsError):
                import_thread(into, data, thread="again")
        found, was = (told(History(of, thread, ns="sub")) for of, thread in ((into, "again"), (any_saver, "t")))
        assert difference([step[2:] for step in found], [step[2:] for step in was]) is None  # but for the numbers
        assert remembering(into).invoke({}, config("again"))["n"] == 4
        import_thread(into, other, thread="other2")
        with pytest.raises(ThreadExistsError):
            import_thread(into, inner, thread="other2")
        import_thread(into, inner, thread="alone")
        with pytest.raises(ThreadExistsError):
            import_thread(into, outer, thread="alone")
    assert saver.fsck() == []


def whole(saver: Any) -> tuple[Any, str]:
    """Make a thread with writes of every kind on its last step, and export it."""
    parallel(saver).invoke({"log": ["in"]}, config())
    parallel(saver).invoke(Command(resume="yes"), config())
    parallel(saver).invoke({"log": ["more"]}, config())
    history = History(saver, "t")
    return told(history), history.export("json", redact=False)


def test_an_import_that_fails_leaves_nothing(saver: Saver, tmp_path: Path) -> None:
    """What only the database refuses, and a database that fails at any request: the name stays free."""
    steps, data = whole(saver)
    document = json.loads(data)
    document["steps"][-1]["versions"]["log"] = 2**70
    with open_saver(f"langgraph+sqlite:///{tmp_path}/official.db") as official:
        for into in (saver, official):
            with pytest.raises(CheckpointerError, match="64-bit"):
                import_thread(into, document, thread="again")
            assert into.get_tuple(config("again")) is None
    failed = 0
    for number in range(1, 60, 3):
        try:
            import_thread(type(saver)(faulty(saver.database, "fail", number)), data, thread="again")
        except (OSError, StorageError):
            failed += 1
            assert [info.thread for info in saver.threads()] == ["t"]
        else:
            assert difference(told(History(saver, "again")), steps) is None
            saver.delete_thread("again")
    assert failed > 3
    assert saver.fsck() == []


def test_an_import_that_was_killed_goes_on(url: str, saver: Saver) -> None:
    """Killed before any of its requests, it is completed by the same document; what is whole, or is other, is refused."""
    steps, data = whole(saver)

    def killed(number: int) -> None:
        real = reopen(url)
        import_thread(type(real)(FaultyDatabase(real.database, kill_at(number))), data, thread="again")

    parts = set()
    for number in range(1, 100):
        if in_child(lambda number=number: killed(number)) == FINE:
            break
        parts.add(len(saver.steps("again")))
        import_thread(saver, data, thread="again")
        assert difference(told(History(saver, "again")), steps) is None
        with pytest.raises(ThreadExistsError):
            import_thread(saver, data, thread="again")
        saver.delete_thread("again")
    assert parts == set(range(len(steps) + 1))
    import_thread(saver, json.loads(data) | {"steps": json.loads(data)["steps"][:3]}, thread="other")
    saver.put_writes(History(saver, "other")[-1].config, [("log", ["own"])], "a task of its own")
    with pytest.raises(ThreadExistsError):
        import_thread(saver, data, thread="other")
    assert saver.fsck() == []


def test_an_export_has_no_ledger_and_says_so(saver: Saver) -> None:
    """What may be made again is not imported unless that is known: a claim, and what was claimed where the states end."""
    first = put(saver, {"x": 1})
    entry, _ = saver.ledger.claim("t", "pay", {})
    assert json.loads(History(saver, "t").export())["unsettled"] == 1
    second = put(saver, {"x": 2}, after=first, version=2)
    claimed = History(saver, "t").export()
    saver.ledger.change(entry, status="done", record={})
    assert "unsettled" not in json.loads(History(saver, "t").export())
    saver.ledger.change(saver.ledger.claim("t", "send", {})[0], status="done", record={})
    done = History(saver, "t").export()
    for data in (claimed, done):
        with pytest.raises(HistoryError, match=r"has effects \(1\) .* adopt\(\).* without_ledger=True"):
            import_thread(saver, data, thread="again")
        import_thread(saver, data, thread="again", without_ledger=True)
        assert saver.ledger.entries("again") == []
        saver.delete_thread("again")
    put(saver, {"x": 3}, after=second, version=3)
    import_thread(saver, History(saver, "t").export(), thread="again")


def test_a_thread_without_a_name_is_imported_without_one(saver: Saver) -> None:
    """The empty text is a name, of a thread that is exported and of one that is asked for."""
    put(saver, {"x": 1}, after=config("", checkpoint_ns=""))
    data = History(saver, "").export("json")
    saver.delete_thread("")
    for thread in (None, ""):
        assert import_thread(saver, data, thread=thread) == ""
        assert History(saver, "")[-1].values == {"x": 1}
        saver.delete_thread("")


def test_an_import_goes_on_in_any_saver(any_saver: Any, saver: Saver) -> None:  # noqa: F811
    """What is there is compared with the document as that saver gives it; a step of another content is refused."""
    steps, data = whole(saver)
    document = json.loads(data)
    import_thread(any_saver, document | {"steps": document["steps"][:3]}, thread="again")
    other = json.loads(data)
    other["steps"][0]["metadata"]["step"] = 99
    with pytest.raises(ThreadExistsError):
        import_thread(any_saver, other, thread="again")
    import_thread(any_saver, document, thread="again")
    assert difference(told(History(any_saver, "again")), steps) is None
    with pytest.raises(ThreadExistsError):
        import_thread(any_saver, document, thread="again")


@given(values)
def test_any_value_is_spelled_and_read(value: Any) -> None:
    """Law: a value as JSON is the value."""
    serde = StrictSerializer(TYPES)
    stored = serde.loads_typed(serde.dumps_typed(value))
    spelling = json.loads(json.dumps(spelled(value, serde), allow_nan=False))
    assert difference(read(spelling, serde), stored) is None


def test_what_is_no_export_is_refused(saver: Saver) -> None:
    """Another document, another serializer's bytes, a type that is not listed: refused."""
    for data in ("{}", "[]", {"format": "checkpointers.thread", "version": 1, "thread": "t", "ns": "", "steps": [{}]}):
        with pytest.raises(HistoryError, match="no thread that was exported"):
            import_thread(saver, data)
    with pytest.raises(HistoryError, match="another serializer, as 'pickle'"):
        read({"$stored": ["pickle", "gASVAA=="]}, saver.serde)
    with pytest.raises(HistoryError, match="no value as it is exported"):
        read({"$nothing": 1}, saver.serde)
    gadget = {"$object": [0, ["os", "system", "true"]]}
    with pytest.raises(CheckpointerError, match="os.system"):
        read(gadget, saver.serde)


SECRETS = {
    "password": "hunter2 hunter2",
    "nested": {
        "apiKey": "abcdef-ghij",
        "headers": [{"Authorization": "Bearer abcdefghijklmn"}],
        "access_token": 123456,
    },
    "text": "use sk-proj-abcdefghijklmnop1234 or ghp_abcdefghijklmnopqrstuvwx, postgres://ada:lovelace@host/db",
    "json": '{"password": "two words", "user": "ada"} token=qwertyuiop',
}


def test_secrets_are_taken_out() -> None:
    """By name and by look, in every form, unless asked not to; what is no secret stays."""
    saver = InMemorySaver()
    put(saver, {**SECRETS, "usage": {"llm_tokens": 7, "token_count": 8}})
    history = History(saver, "t")
    hidden = ("hunter2", "abcdef", "123456", "ghp_abc", "lovelace", "two words", "qwertyuiop")
    for form in ("json", "markdown", "python"):
        clean, whole = history.export(form), history.export(form, redact=False)
        assert [word for word in hidden if word in clean] == [], form
        assert [word for word in hidden if word not in whole] == [], form
        assert REDACTED in clean
        assert "ada" in clean
        assert '"llm_tokens": 7' in clean.replace("'", '"')
    assert redacted({"tokens": "a b", "secret": {"x": [1, None]}}) == {
        "tokens": "a b",
        "secret": {"x": [REDACTED, None]},
    }
    assert [name for name in ("token", "csrfToken", "API_KEY", "X-Api-Key", "tokens", "key", "tokenizer") if is_secret(name)] == [
        "token", "csrfToken", "API_KEY", "X-Api-Key",
    ]  # fmt: skip
    assert redacted_text("the token is a word; keys: 3") == "the token is a word; keys: 3"


def test_no_door_shows_secrets() -> None:
    """Pages, notebooks and rich consoles leave out what exports leave out; who asks for values gets them."""
    saver = InMemorySaver()
    first = put(saver, {"note": "ada", "headers": {"cookie": "old abcdef"}})
    more = {"long": [{"about": "x" * 300, "password": "hunter2 hunter2", "n": n} for n in range(9)]}
    put(saver, {**SECRETS, **more, "note": "ada", "headers": {"cookie": "new abcdef"}}, after=first, version=2)
    history = History(saver, "t")
    hidden = ("hunter2", "abcdef", "123456", "ghp_abc", "lovelace", "two words", "qwertyuiop")
    console = Console(file=StringIO(), width=200)
    drawn = [export_html(history)]
    for thing in (history, history[2], history.diff(1, 2)):
        drawn.append(thing._repr_html_())
        console.print(thing)
    for text in (*drawn, console.file.getvalue()):
        assert [word for word in hidden if word in text] == []
    assert REDACTED in console.file.getvalue()
    assert all(REDACTED in text for text in (drawn[0], drawn[2], drawn[3]))
    whole = export_html(history, redact=False)
    assert [word for word in hidden if word not in whole] == []
    assert "hunter2" in str(history[2].values)
    assert "abcdef" in str(history.diff(1, 2))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"a": "the \\"token\\": \\"x y\\" of"}', '{"a": "the \\"token\\": \\"[redacted]\\" of"}'),
        ("call('login', {'password': 'x\\'y', 'n': 1})", "call('login', {'password': '[redacted]', 'n': 1})"),
        ('{"secret": {"x": 1}}', '{"secret": {"x": 1}}'),
        ("API_KEY=abc OTHER=def", "API_KEY=[redacted] OTHER=def"),
        ('"password": "cut o', '"password": "[redacted]"'),
        ("a basic understanding, no bearer certificate", "a basic understanding, no bearer certificate"),
        ("send Basic dXNlcjpwYXNz, bearer abcdefgh1", "send Basic [redacted], bearer [redacted]"),
        ("Authorization: bearer abcdefghij", "Authorization: bearer [redacted]"),
        ("tokens: 412, token_count=3, monkey: banana, key: x", "tokens: 412, token_count=3, monkey: banana, key: x"),
    ],
)
def test_secrets_in_texts(text: str, told: str) -> None:
    """What is given to a name of a secret goes, quotes stay, also of a text in a text; other names keep theirs."""
    assert redacted_text(text) == told


@pytest.mark.slow
@pytest.mark.parametrize(
    "part",
    [
        "sk-a_",
        "a-b-",
        "token=",
        '"token": "',
        "x: 'y: z\\\" ",
        "://a:",
        "-----BEGIN PRIVATE KEY----- ",
        "token ",
        "\\",
        ": ",
        "basic ",
        ": basic ",
    ],
)
def test_looking_for_secrets_is_linear(part: str) -> None:
    """Many of what looks like the beginning of a secret is gone through; with its square nobody would wait."""
    assert len(redacted_text("token" + part * (300_000 // len(part)))) > 5


@pytest.mark.parametrize("path", [
    "token", "auth.token[0]", "password[1][2]", "connection.password.old", 'facts["api.key"]', "api.key",
    'calls["a.b"].token', "calls." + "x" * 200 + ".password", f"{'messages.' * 30}args.password.x",
    'tokens["pass\\"word"].password',
])  # fmt: skip
def test_a_name_on_the_way_hides(path: str) -> None:
    """However long the way is and however it is written; an index is no part of a name."""
    assert is_hidden(path, "x")
    assert not is_hidden(path, None)


def test_what_only_looks_like_a_way_to_a_secret() -> None:
    """Names that count secrets, or stand beside them, hide nothing."""
    assert not any(
        is_hidden(path, "x") for path in ("usage.tokens[0]", "facts.tokenizer", "monkeys[1].banana", "[0]", "")
    )
    assert [is_hidden(part * 100_000, "x") for part in ('["', "[", '["\\', "a.")] == [False] * 4


def test_secrets_at_the_end_of_long_ways() -> None:
    """Nothing of them is in an export or in a notebook's diff."""
    saver = InMemorySaver()

    def call(secret: str) -> dict[str, Any]:
        args = {"connection": {"settings": {"password": secret, "tokens": 1}}}
        return {"facts": [{"id": "3f2b6c1e-aaaa-bbbb-cccc-123456789012", "additional_kwargs": {
            "tool_calls": [{"id": "call_0123456789abcdef0123456789", "args": args}],
        }}]}  # fmt: skip

    first = put(saver, call("hunter2"))
    put(saver, call("hunter3"), after=first, version=2)
    history = History(saver, "t")
    drawn = [history.export(form) for form in ("json", "markdown", "python")]
    for text in (*drawn, history.diff(1, 2)._repr_html_(), export_html(history)):
        assert "hunter" not in text
    assert "hunter" in history.export("markdown", redact=False)


def test_hostile_texts_are_shown_not_sent() -> None:
    """Controls, turned text, fences: none leaves as it is, in any form."""
    saver = InMemorySaver()
    text = "\x1b[31m\u202eevil\x00\u200b ```\n# not a heading\n````` end\x9b"
    put(saver, {"x": text, "list": [text]})
    for form in ("json", "markdown", "python"):
        out = History(saver, "t").export(form)
        assert not [c for c in "\x1b\u202e\x00\u200b\x9b" if c in out], form
        out.encode()
    lines = History(saver, "t").export("markdown").splitlines()
    assert lines.count("``````") == 2
    assert "# not a heading" not in lines
    assert json.loads(History(saver, "t").export())["steps"][0]["state"]["x"] == text


def test_python_makes_the_state_again(any_saver: Any) -> None:  # noqa: F811
    """The code runs and gives what the step has."""
    forked(any_saver)
    history = History(any_saver, "t")
    for number in (1, 4, -1):
        names: dict[str, Any] = {}
        exec(history.export("python", step=number, redact=False), names)
        assert difference(names["state"], dict(history[number].values)) is None
    with pytest.raises(HistoryError, match="there is no export as 'xml'"):
        history.export("xml")


def test_markdown_says_what_each_step_changed() -> None:
    """A heading for each step, a line for each change."""
    with SqliteSaver.open(":memory:") as saver:
        loop(saver).invoke({"until": 2, "n": 0}, config())
        lines = History(saver, "t").export("markdown").splitlines()
    assert [line.split(" ")[1] for line in lines if line.startswith("## ")] == [f"`t@{n}`" for n in range(1, 5)]
    assert "changed n: 1" in lines
