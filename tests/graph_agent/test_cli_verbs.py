"""What a command says in JSON is what the Python method of its name gives; and what each command does."""

# ruff: noqa: F401, F811  fixtures of another module

from __future__ import annotations

import inspect
import json
import re
import stat
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver as OfficialSqliteSaver

from checkpointers import History, Keep, SqliteSaver, import_thread
from checkpointers.errors import HistoryError
from checkpointers.patching import applied
from checkpointers.plain import as_json
from graph_agent import Agent, tool
from graph_agent.cli.main import PANELS, REVIEW, name_of
from graph_agent.history import Timeline, cost
from graph_agent.reading import Cost, cost_of
from graph_agent.testing import ScriptedModel, calls
from tests.checkpointers.graphs import config, loop, review
from tests.graph_agent.openai_server import OpenAIServer, answer, structured
from tests.graph_agent.test_cli import Shell, rows, shell, waiting

Home = Callable[..., Any]


def same(one: Any, other: Any) -> bool:
    """Compare what a command printed with values, as JSON has them."""
    return one == json.loads(json.dumps(as_json(other)))


@pytest.fixture
def home(shell: Shell, waiting: str, tmp_path: Path) -> Home:
    """Run a thread to its end, fork it; give what a command prints as JSON: a list, or the data of a document."""
    assert shell("review", "approve", "ada", waiting)[0] == 0
    assert shell("fork", "ada@4", "--thread", "ada-2")[0] == 0

    def told(*command: str) -> Any:
        code, out, err = shell(*command, "--json")
        assert code == 0, err
        found = [json.loads(line) for line in out.splitlines()]
        return found[0]["data"] if len(found) == 1 and "data" in found[0] else found

    return told


@pytest.fixture
def saver(tmp_path: Path) -> Any:
    """Open what the commands work on."""
    with SqliteSaver.open(tmp_path / "agent.db") as opened:
        yield opened


def test_threads(home: Home, saver: SqliteSaver) -> None:
    listed = saver.threads()
    names = ("thread", "status", "step", "checkpoints", "bytes", "holder")
    assert [[row[name] for name in names] for row in home("threads")] == [
        [getattr(one, name) for name in names] for one in listed
    ]
    assert [row["thread"] for row in home("threads", "--status", "done")] == ["ada"]
    assert [row["thread"] for row in home("threads", "--goal", "TELL A", "-n", "1")] == [listed[0].thread]
    assert home("threads", "--goal", "nobody asked") == []
    with saver.lease("ada"):
        assert [row["thread"] for row in home("threads", "--status", "running")] == ["ada"]
        assert home("threads", "--status", "done") == []


def test_what_threads_cost(home: Home, saver: SqliteSaver, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told by two channels of each thread; a thread that is no agent's costs nothing that is known."""
    loop(saver).invoke({"until": 2, "n": 0}, config("plain"))
    prices = {"scripted": (0.25, 2.0)}
    stats = Timeline(saver, "ada").stats(prices)
    found = {row["thread"]: row for row in home("threads", "--price", "scripted=0.25,2")}
    assert (found["ada"]["tokens"], found["ada"]["cost"]) == (stats.tokens, stats.total.cost)
    assert stats.total.cost > 0
    assert "cost" not in found["plain"]
    assert all("cost" not in row for row in home("threads"))
    told = shell("threads", "--cost")
    assert f"{stats.tokens:,}" in told[1]
    assert "pass --price scripted=IN,OUT" in told[2]

    loaded: list[str] = []
    channel = saver.get_channel
    monkeypatch.setattr(
        saver, "get_channel", lambda place, name, *rest: loaded.append(name) or channel(place, name, *rest)
    )
    monkeypatch.setattr(saver, "get_tuple", None)
    assert cost(saver, "ada", prices) == Cost(stats.tokens, stats.total.cost, [])
    assert loaded == ["decisions", "usage"]


def test_what_a_thread_of_another_saver_cost() -> None:
    """Told by its state, which such a saver loads as a whole."""
    agent = Agent(ScriptedModel(plan=[["say it"]], act=["said"], answer=["said"]), saver=InMemorySaver())
    agent.run("say it", thread="t")
    found = agent.cost("t", {"scripted": (0.25, 2.0)})
    assert found == cost_of(agent.state("t").state, {"scripted": (0.25, 2.0)})
    assert found.money > 0
    assert agent.cost("nobody") is None


def test_log(home: Home, saver: SqliteSaver, shell: Shell) -> None:
    lines = History(saver, "ada").log(History(saver, "ada-2"))
    found = list(reversed(home("log", "ada", "ada-2")))
    assert [(row["address"], row["lane"], row["branched_from"], row["parent"]) for row in found] == [
        (str(one.step), one.lane, one.branched_from, one.step.parent) for one in lines
    ]
    assert [(row["nodes"], row["sent"]) for row in found] == [(list(one.step.nodes), False) for one in lines]
    assert any("tool" in one.step.nodes for one in lines)
    drawn = shell("log", "ada", "ada-2", "--graph")[1].splitlines()
    assert drawn[:4] == [str(one) for one in lines[:4]]
    assert drawn[-1].endswith("from ada@4")
    assert home("log", "ada", "-n", "0") == []


def test_log_of_failures(shell: Shell, tmp_path: Path) -> None:
    """What an agent keeps a record of and goes on from is a failure too, though no row says so."""

    @tool(risk="read_only")
    def look(what: str) -> str:
        raise RuntimeError(what)

    script = ScriptedModel(plan=[["look"]], act=[calls(("look", {"what": "x"})), "gone"], answer=["gone"])
    with SqliteSaver.open(tmp_path / "agent.db") as saver:
        Agent(script, tools=[look], saver=saver).run("look", thread="t")
        numbers = [line.step.number for line in Timeline(saver, "t").log(failed=True)]
    found = [json.loads(line)["number"] for line in shell("log", "t", "--failed", "--json")[1].splitlines()]
    assert list(reversed(found)) == numbers
    assert numbers


def test_show(home: Home, saver: SqliteSaver, shell: Shell) -> None:
    step = History(saver, "ada")[4]
    assert same(home("show", "ada@4")["values"], step.wrote)
    assert same(home("show", f"ada@{step.id}", "--full")["values"], step.values)
    assert same(home("show", "ada@4")["interrupts"], [one.value for one in step.interrupts])
    assert "? r-" in shell("show", "ada@4")[1]


def test_diff(home: Home, saver: SqliteSaver, shell: Shell) -> None:
    history, other = History(saver, "ada"), History(saver, "ada-2")
    found = history.diff(history[2], other[1])
    names = ("path", "kind", "before", "after", "index")
    assert same(home("diff", "ada@2", "ada-2@1"), [{name: getattr(one, name) for name in names} for one in found])
    assert {row["channel"]: row["added"] for row in home("diff", "ada@2", "@6", "--stat")} == {
        name: one.added for name, one in history.diff(2, 6).stat.items()
    }
    patch = json.loads(shell("diff", "ada@6", "ada-2@1", "--json-patch")[1])
    assert patch == history.diff(history[6], other[1]).json_patch()
    assert applied(as_json(history[6].values), patch) == as_json(other[1].values)


def test_blame_and_bisect(home: Home, saver: SqliteSaver) -> None:
    history = History(saver, "ada")
    found = home("blame", "ada", "phase")
    assert [[one["step"], one["nodes"], one["before"], one["after"]] for one in found] == [
        [one.step, list(one.nodes), one.before, one.after] for one in history.blame("phase")
    ]
    first = history.bisect(lambda step: "sent to ada" in str(step.values["calls"]))
    assert home("bisect", "ada", "grep -q 'sent to ada'")["number"] == first.number
    assert home("bisect", "ada", "! grep -q 'sent to ada'", "--fails")["number"] == first.number


@pytest.mark.parametrize(
    ("command", "said"),
    [("no-such-command", "not found"), ("./app.txt", "denied"), ("kill -9 $$", "-9"), ("exit 200", "200")],
)
def test_a_command_that_cannot_run_is_no_answer(
    home: Home, shell: Shell, tmp_path: Path, command: str, said: str
) -> None:
    (tmp_path / "app.txt").write_text("x")
    code, out, told = shell("bisect", "ada", command)
    assert (code, out, said in told, "neither yes nor no" in told) == (1, "", True, True)
    assert shell("bisect", "ada", command, "--fails")[0] == 1
    code, out, told = shell("bisect", "ada", "echo asked >&2; echo out; grep -q 'sent to'")
    assert (code, out.count("\n"), "asked" in told) == (0, 1, True)


def test_blame_goes_the_way_to_the_step(home: Home, saver: SqliteSaver, shell: Shell) -> None:
    """What came later, or on another branch, did not make the value that stands there."""
    history = History(saver, "ada")
    found = [one["step"] for one in home("blame", "ada@5", "phase")]
    assert found == [one.step for one in history.blame("phase", step=5)]
    assert found[0] <= 5 < history.blame("phase")[0].step
    assert shell("blame", "ada@99", "phase")[0] == 3


def test_a_branch_has_its_own_blame(saver: SqliteSaver, shell: Shell) -> None:
    graph = loop(saver)
    graph.invoke({"until": 3, "n": 0}, config())
    graph.invoke(None, graph.update_state(History(saver, "t")[3].config, {"n": 2}))
    history = History(saver, "t")
    assert history.blame("n", step=5)[0].step <= 5 < history.blame("n")[0].step
    assert json.loads(shell("blame", "t@5", "n", "--json")[1])["data"][0]["step"] == 5


def test_the_name_of_a_thread_may_look_like_an_address(saver: SqliteSaver, shell: Shell) -> None:
    """Where the whole text is a thread, it is meant, never the one whose name is before the @."""
    for name, until in (("ada", 1), ("ada@example.org", 2), ("ada@2", 3)):
        loop(saver).invoke({"until": until, "n": 0}, config(name))
    for name, last in (("ada@example.org", 4), ("ada@2", 5), ("ada@example.org@3", 3)):
        thread = name.removesuffix("@3")
        assert shell("show", name)[1].startswith(f"{thread}@{last}  "), name
        blamed = json.loads(shell("blame", name, "n", "--json")[1])["data"]
        assert [one["step"] for one in blamed] == [o.step for o in History(saver, thread).blame("n", step=last)]
        assert json.loads(shell("export", name)[1])["thread"] == thread
    assert "ada@example.org" in shell("diff", "ada@example.org@1", "@3")[1]
    code, _, told = shell("show", "ada@example.com")
    assert (code, "thread 'ada'" in told) == (3, True)


def test_grep(home: Home, saver: SqliteSaver, shell: Shell) -> None:
    history = History(saver, "ada")
    for options, wanted, where in (
        (("SENT TO", "-i"), re.compile("sent to", re.IGNORECASE), ("state", "writes", "metadata")),
        (("sent|tell", "-E"), re.compile("sent|tell"), ("state", "writes", "metadata")),
        (("tell", "--where", "writes", "--where", "metadata"), "tell", ("writes", "metadata")),
    ):
        found = [(one["step"], one["where"], one["path"], one["line"]) for one in home("grep", *options[:1], "ada", *options[1:])]  # fmt: skip
        assert found == [(one.step, one.where, one.path, one.line) for one in history.grep(wanted, where=where)]
        assert found
    assert {one["thread"] for one in home("grep", "tell")} == {"ada", "ada-2"}
    code, out, told = shell("grep", "tell", "-n", "1")
    assert (code, out.count("\n"), "more" in told) == (0, 1, True)
    assert shell("grep", "sent.to")[0] == 3
    assert shell("grep", "[", "-E")[0] == 2


def test_compare(home: Home, saver: SqliteSaver) -> None:
    ran, other = History(saver, "ada"), History(saver, "ada-2")
    found, said = ran.compare(other), home("compare", "ada", "ada-2")
    assert [(one["a"], one["b"], one["same"]) for one in said["pairs"]] == [
        (str(pair.a) if pair.a else None, str(pair.b) if pair.b else None, pair.same) for pair in found
    ]
    assert said["parted"] == [str(found.parted.a), None]
    assert (said["shared"], said["totals"]) == (found.shared, [dict(one) for one in found.totals])
    assert home("compare", "ada@6", "ada@8")["shared"] == 6


def test_readings_of_an_agent(home: Home, saver: SqliteSaver, shell: Shell) -> None:
    timeline = Timeline(saver, "ada")
    assert same(home("stats", "ada"), asdict(timeline.stats()))
    priced = asdict(timeline.stats({"scripted": (0.25, 2.0)}))
    assert same(home("stats", "ada", "--price", "scripted=0.25,2"), priced)
    assert priced["total"]["cost"] > 0
    assert shell("stats", "ada", "--price", "scripted=2")[0] == 1
    assert same(home("context", "ada@4"), asdict(timeline.context(4)))
    assert [row["key"] for row in home("ledger", "ada")] == [one.key for one in saver.ledger.entries("ada")]
    loop(saver).invoke({"until": 2, "n": 0}, config())
    code, _, told = shell("stats", "t")
    assert (code, "no agent's thread" in told) == (1, True)
    code, _, told = shell("context", "t@2")
    assert (code, "no agent's thread" in told) == (1, True)


def test_bytes(home: Home, saver: SqliteSaver) -> None:
    assert home("du", "ada") == [asdict(one) for one in saver.usage("ada")]
    assert home("fsck") == saver.fsck() == []


def test_thinning_out(home: Home, saver: SqliteSaver, shell: Shell) -> None:
    """A dry run says of each kept step why it stays, and is what is then done."""
    (plan,) = saver.retain(Keep(last=2), threads="ada", dry_run=True)
    (said,) = home("retain", "--last", "2", "--thread", "ada")
    assert {int(step): reasons for step, reasons in said["kept"].items()} == {
        step: list(reasons) for step, reasons in plan.kept.items()
    }
    assert (said["dropped"], said["frees"], said["done"]) == (list(plan.dropped), plan.frees, False)
    (said,) = home("prune", "ada")
    assert (list(said["kept"]), len(saver.steps("ada"))) == (["11"], 11)
    assert home("prune", "ada", "--yes")[0]["dropped"] == said["dropped"]
    assert [step.number for step in saver.steps("ada")] == [11]
    assert shell("prune", "nobody")[0] == shell("retain", "--last", "1", "--thread", "nobody")[0] == 3
    home("prune", "ada", "--strategy", "delete", "--yes")
    assert [one.thread for one in saver.threads()] == ["ada-2"]


def test_what_comes_of_a_command_as_json(home: Home, saver: SqliteSaver, tmp_path: Path) -> None:
    """What is copied, removed, recovered or given back is said to a program too."""
    assert home("copy", "ada", "eva", "--dry-run") == {"thread": "eva", "done": False}
    assert "eva" not in {one.thread for one in saver.threads()}
    assert home("copy", "ada", "eva") == {"thread": "eva", "done": True}
    (there,) = (one for one in saver.threads() if one.thread == "eva")
    said = {"thread": "eva", "status": "done", "checkpoints": 11, "bytes": there.bytes}
    assert home("delete", "eva") == {**said, "done": False}
    assert home("delete", "eva", "--yes") == {**said, "done": True}
    assert [one.thread for one in saver.threads() if one.thread == "eva"] == []
    assert home("recover", "ada", "--into", "eva") == {"thread": "eva", "step": 11}
    assert home("vacuum")["bytes"] >= 0
    with OfficialSqliteSaver.from_conn_string(str(tmp_path / "theirs.db")) as official:
        loop(official).invoke({"until": 3, "n": 0}, config())
    assert home("adopt", "theirs.db") == {"threads": 1, "checkpoints": 5, "already": 0, "effects": 0}


def test_every_command_that_says_something_says_it_as_json() -> None:
    """Only what is a document already, or a show, has no --json."""
    every = [command for commands in PANELS.values() for command in commands] + list(REVIEW)
    assert {name_of(one) for one in every if "as_json" not in inspect.signature(one).parameters} == {"export", "demo"}


def test_handing_on(home: Home, saver: SqliteSaver, shell: Shell, tmp_path: Path) -> None:
    """Exports are what the method gives, in a file for its owner alone; an import gives the same states."""
    history = History(saver, "ada")
    for form in ("json", "markdown", "python"):
        assert shell("export", "ada@3", "--to", form)[1] == history.export(form, step=3).removesuffix("\n") + "\n"
    page = shell("export", "ada", "--to", "html")[1]
    assert page.startswith("<!doctype html>")
    assert page == Timeline(saver, "ada").export("html")
    with pytest.raises(HistoryError, match="there are json, markdown, html, python"):
        history.export("pdf")
    file = tmp_path / "ada.json"
    assert shell("export", "ada", "--out", str(file), "--no-redact")[:2] == (0, "")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text() == history.export(redact=False)
    code, _, told = shell("export", "ada", "--out", str(file))
    assert (code, "--force" in told) == (4, True)
    file.chmod(0o644)
    assert shell("export", "ada", "--out", str(file), "--force")[0] == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert home("import", str(file), "--thread", "eva") == {"thread": "eva"}
    assert same(as_json(History(saver, "eva")[11].values), history[11].values)
    assert shell("import", str(file))[0] == 4
    assert shell("import", "cli_app.py")[0] == 1
    assert shell("import", "nowhere.json")[0] == 3


def test_a_file_that_is_written_over(home: Home, saver: SqliteSaver, shell: Shell, tmp_path: Path) -> None:
    """It is for its owner alone whatever lay beside it, follows no link, and leaves nothing where it cannot be."""
    folder = tmp_path / "out"
    folder.mkdir()
    other, out = tmp_path / "other", folder / "ada.json"
    other.write_text("mine")
    (folder / "ada.json.part").symlink_to(other)
    out.symlink_to(other)
    assert shell("export", "ada", "--out", str(out))[0] == 4
    assert shell("export", "ada", "--out", str(out), "--force")[0] == 0
    assert (other.read_text(), out.is_symlink(), stat.S_IMODE(out.stat().st_mode)) == ("mine", False, 0o600)
    (folder / "ada.json.part").unlink()
    (folder / "ada.json.part").write_text("left over")
    (folder / "ada.json.part").chmod(0o644)
    assert shell("export", "ada", "--out", str(out), "--force")[0] == 0
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    (folder / "full").mkdir()
    for options in ((), ("--force",)):
        assert shell("export", "ada", "--out", str(folder / "full"), *options)[0] in (1, 4)
    assert shell("export", "ada", "--out", str(folder / "nowhere" / "ada.json"))[0] == 3
    assert sorted(one.name for one in folder.iterdir()) == ["ada.json", "ada.json.part", "full"]
    assert json.loads(out.read_text())["thread"] == "ada"


def test_what_cannot_be_imported_makes_nothing(home: Home, saver: SqliteSaver, shell: Shell, tmp_path: Path) -> None:
    """Neither a thread nor a database; it says which file it was, and what is wrong with it."""
    whole = History(saver, "ada").export()
    wrong: dict[str, Any] = {}
    for name, change in {
        "thread": lambda d: d.pop("thread"), "no name": lambda d: d.update(thread=None), "ns": lambda d: d.pop("ns"),
        "no steps": lambda d: d.update(steps=[]), "steps": lambda d: d.update(steps={}),
        "writes": lambda d: d["steps"][3].pop("writes"), "parent": lambda d: d["steps"][3].update(parent="x"),
        "id": lambda d: d["steps"][3].pop("id"), "texts": lambda d: d.update(steps=["x"]),
        "version": lambda d: d.update(version=99),
    }.items():  # fmt: skip
        wrong[name] = json.loads(whole)
        change(wrong[name])
    file = tmp_path / "wrong.json"
    for text in (*(json.dumps(one).encode() for one in wrong.values()), b"[]", b"{", b'"\xff"'):
        file.write_bytes(text)
        code, out, told = shell("import", "wrong.json", "--db", "new.db")
        assert (code, out, told.startswith("graph-agent: wrong.json: ")) == (1, "", True), told
        assert not (tmp_path / "new.db").exists()
    for document in wrong.values():
        with pytest.raises(HistoryError):
            import_thread(saver, document, thread="eva")
    with pytest.raises(HistoryError, match="no JSON"):
        import_thread(saver, "{")
    assert [one.thread for one in saver.threads()] == ["ada-2", "ada"]


def test_a_secret_is_left_out_unless_it_is_wanted(shell: Shell, tmp_path: Path) -> None:
    with SqliteSaver.open(tmp_path / "agent.db") as saver:
        loop(saver).invoke({"until": 1, "n": 0, "static": "sk-hunter2hunter2hunter2hunter2"}, config())
    for form in ("json", "markdown", "html", "python"):
        assert "hunter2" not in shell("export", "t", "--to", form)[1], form
        assert "hunter2" in shell("export", "t", "--to", form, "--no-redact")[1], form


APPROVED = """
from graph_agent import Agent, tool
from graph_agent.testing import ScriptedModel, calls

@tool(risk="external_action")
def send(to: str) -> str:
    return f"sent to {to}"

def agent():
    acts = [calls(("send", {"to": "ada"}), ("send", {"to": "bob"}), ("send", {"to": "eva"})), "sent"]
    return Agent(ScriptedModel(plan=[["tell"]], act=acts, answer=["all sent"]), tools=[send], saver="sqlite:///agent.db")
"""


def test_reviews(shell: Shell, tmp_path: Path) -> None:
    """They are listed from the database alone, also half answered, and answered one by one."""
    (tmp_path / "cli_app.py").write_text(APPROVED)
    assert shell("run", "tell all", "--thread", "t", "--app", "cli_app:agent")[0] == 5

    def asked() -> list[dict[str, Any]]:
        found = [json.loads(line) for line in shell("review", "list", "--json", "--db", "agent.db")[1].splitlines()]
        with SqliteSaver.open("agent.db") as saver:
            script = ScriptedModel(plan=[], act=[], answer=[])
            open_ = Agent(script, tools=[], saver=saver).state("t").reviews
        assert [(one["id"], one["args"], one["reason"]) for one in found] == [(o.id, o.args, o.reason) for o in open_]
        return found

    ada, bob, eva = (one["id"] for one in asked())
    assert rows(shell("review", "t")[1])[1][0] == ada
    assert 'to = "bob"' in shell("review", "show", "t", bob)[1]
    assert shell("review", "show", "t", "r-nobody")[0] == 3
    assert shell("review", "edit", "t", bob, '{"to": "bo"}', "--by", "me")[0] == 5
    assert [one["id"] for one in asked()] == [ada, eva]
    assert shell("review", "edit", "t", ada, "{to}")[0] == shell("review", "edit", "t", ada, "[]")[0] == 4
    assert shell("review", "reject", "t", ada, "--because", "not today")[0] == 5
    assert shell("review", "approve", "t", ada)[0] == 4
    assert shell("review", "respond", "t", eva, "she knows already")[:2] == (0, "sent\n")
    assert shell("review", "approve", "t", eva)[0] == 4
    assert asked() == []
    found = json.loads(shell("show", "t@-1", "--full", "--json")[1])["data"]["values"]["calls"]
    assert [call["args"]["to"] for call in found] == ["ada", "bo", "eva"]
    assert "not today" in str(found[0])
    assert "she knows already" in str(found[2])


def test_reviews_of_any_graph(shell: Shell, tmp_path: Path) -> None:
    """An interrupt of somebody's own graph is a question too."""
    with SqliteSaver.open(tmp_path / "agent.db") as saver:
        review(saver).invoke({}, config())
    found = [json.loads(line) for line in shell("review", "list", "--json")[1].splitlines()]
    assert [(one["thread"], one["kind"]) for one in found] == [("t", "interrupt")] * 2


def test_an_agent_of_a_model_alone(shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without an app, a model and a database are enough; without either it says what is missing."""
    monkeypatch.delenv("GRAPH_AGENT_APP")
    monkeypatch.delenv("GRAPH_AGENT_MODEL", raising=False)
    code, _, told = shell("run", "x")
    assert (code, "--app" in told, "--model" in told) == (1, True, True)
    assert not (tmp_path / "agent.db").exists()
    with OpenAIServer([structured({"steps": [{"title": "say"}]}), answer("four")]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("GRAPH_AGENT_MODEL", "openai:test")
        assert shell("run", "2 + 2?", "-t", "sum", "--db", "own.db")[:2] == (0, "four\n")
    assert rows(shell("threads", "--db", "own.db")[1])[1][:2] == ["sum", "done"]
    assert shell("resume", "sum", "--db", "own.db")[0] == 4
    assert shell("resume", "sum", "--db", "missing.db")[0] == 3
    assert not (tmp_path / "missing.db").exists()
    assert shell("run", "x", "--model", "nobody:knows", "--db", "own.db")[0] == 1


def test_migrations_are_planned_first(shell: Shell, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database of an older release is told what it lacks; only --yes changes it."""
    from checkpointers import database, postgres_server, sqlite_file
    from tests.conftest import reopen

    every = database.migrations
    for module in (database, postgres_server, sqlite_file):
        monkeypatch.setattr(module, "migrations", lambda dialect: every(dialect)[:1])
    reopen(url).close()
    monkeypatch.undo()
    code, _, told = shell("threads", "--db", url)
    assert (code, "graph-agent migrate" in told) == (1, True)
    for options in ((), ("--plan",), ("--plan", "--yes")):
        found = json.loads(shell("migrate", "--db", url, "--json", *options)[1])["data"]
        assert (found["version"], [one["state"] for one in found["migrations"]]) == (2, ["there", "missing"])
    assert json.loads(shell("migrate", "--db", url, "--json", "--yes")[1])["data"]["version"] == 3
    assert rows(shell("migrate", "--db", url)[1])[1:] == [["002", "there"], ["003", "there"]]
    assert shell("threads", "--db", url)[0] == 0
