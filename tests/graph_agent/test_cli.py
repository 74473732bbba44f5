"""The shell's door: what each command prints and with which code, that looking changes nothing, and what it loads."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from langgraph.checkpoint.sqlite import SqliteSaver as OfficialSqliteSaver

from checkpointers import History, SqliteSaver
from graph_agent import Agent, tool
from graph_agent.cli import main
from graph_agent.cli.main import PANELS, name_of
from graph_agent.testing import ScriptedModel, calls
from tests.checkpointers.graphs import config, loop
from tests.graph_agent.cli_reference import APP, reference

ROOT = Path(__file__).parents[2]
HOSTILE = "\x1b[31mred\x1b]0;title\x07 \u202eevil\u2066 <script>alert(1)</script>\r\x08"
Shell = Callable[..., tuple[int, str, str]]


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    """Give what runs a command in a folder of its own: its code, what it printed, what it told."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GRAPH_AGENT_DB", raising=False)
    monkeypatch.setenv("GRAPH_AGENT_APP", "cli_app:agent")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "cli_app", raising=False)
    (tmp_path / "cli_app.py").write_text(APP)

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(list(arguments))
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def waiting(shell: Shell) -> str:
    """Run a thread up to its review; give the review's id."""
    code, out, _ = shell("run", "tell ada", "--thread", "ada", "--json")
    assert code == 5
    return json.loads(out)["data"]["reviews"][0]["id"]


def rows(out: str) -> list[list[str]]:
    return [line.split("\t") for line in out.splitlines()]


def test_from_the_goal_to_the_answer(shell: Shell, waiting: str) -> None:
    """Run, see what it asks, approve: the codes say where it stands, the answer is the data."""
    assert shell("review", "ada")[1].splitlines()[1].startswith(f"{waiting}\tada\ttool_approval")
    assert shell("resume", "ada", "--approve", waiting)[:2] == (0, "sent\n")
    code, _, told = shell("resume", "ada")
    assert (code, "is done" in told) == (4, True)
    assert shell("resume", "nobody")[0] == 3


def test_listing(shell: Shell, waiting: str) -> None:
    """Threads with their status and goal; steps with their nodes; filters; JSON for programs."""
    header, line = rows(shell("threads")[1])
    assert (header[0], line[0], line[1], line[-1]) == ("THREAD", "ada", "waiting", "tell ada")
    assert rows(shell("threads", "--status", "done")[1]) == [header]
    steps = rows(shell("log", "ada")[1])[1:]
    assert [step[0] for step in steps] == [f"ada@{n}" for n in (4, 3, 2, 1)]
    assert steps[0][3:5] == ["waiting", "act"]
    as_json = [json.loads(line) for line in shell("log", "ada", "--json", "--limit", "2")[1].splitlines()]
    assert [(row["number"], row["nodes"]) for row in as_json] == [(4, ["act"]), (3, ["plan"])]


def test_python_and_the_shell_say_the_same(shell: Shell, waiting: str, tmp_path: Path) -> None:
    """Show, diff, blame and bisect print what the methods of the same names give."""
    with SqliteSaver.open(tmp_path / "agent.db") as saver:
        history = History(saver, "ada")
        assert json.loads(shell("show", "ada@3", "--json")[1])["data"]["values"] == json.loads(
            json.dumps(history[3].wrote)
        )
        assert shell("diff", "ada@2", "ada@4")[1].splitlines()[0] == str(history.diff(2, 4)).splitlines()[0]
        assert len(json.loads(shell("diff", "ada@2", "4", "--json")[1])["data"]) == len(history.diff(2, 4))
        blamed = json.loads(shell("blame", "ada", "plan", "--json")[1])["data"]
        assert [one["step"] for one in blamed] == [one.step for one in history.blame("plan")] == [3, 2]
        code, out, told = shell("bisect", "ada", "grep -q saw_nothing")
        assert (code, out, "true for no step" in told) == (3, "", True)
        first = history.bisect(lambda step: "executing" in str(step.values.get("phase")))
        assert shell("bisect", "ada", "grep -q executing")[:2] == (0, f"{first}\n")


def test_what_the_model_saw(shell: Shell, waiting: str) -> None:
    """The exact messages, and why each item was in."""
    code, out, told = shell("context", "ada@4")
    assert code == 0
    assert "--- system" in out
    assert "tell ada" in out
    assert "in: goal goal" in told
    assert shell("context", "ada@1")[0] == 1


def test_effects(shell: Shell, waiting: str) -> None:
    """The ledger says what was done; undo says what it would take back, and asks before it does."""
    shell("resume", "ada", "--approve", waiting)
    (line,) = rows(shell("ledger", "ada")[1])[1:]
    assert line[1:3] == ["done", "send"]
    code, out, _ = shell("undo", "ada@2")
    assert (code, rows(out)[1][0]) == (0, "planned")
    code, out, _ = shell("undo", "ada@2", "--yes")
    assert (code, rows(out)[1][0]) == (5, "waiting")
    code, out, _ = shell("undo", "ada@2", "--yes", "--approve", rows(out)[1][-1])
    assert (code, rows(out)[1][0]) == (0, "undone")
    assert "undone" in [line[1] for line in rows(shell("ledger", "ada")[1])]
    assert rows(shell("tools")[1])[1] == ["send", "external_action", "compensate"]


def test_fork_and_replay(shell: Shell, waiting: str) -> None:
    """A step becomes a thread of its own."""
    assert shell("fork", "ada@3", "--thread", "ada-2")[:2] == (0, "ada-2\n")
    assert shell("replay", "ada@3", "--thread", "ada-3")[0] == 5
    assert {line[0] for line in rows(shell("threads")[1])[1:]} == {"ada", "ada-2", "ada-3"}


def test_nothing_is_changed_without_yes(shell: Shell, waiting: str) -> None:
    """What removes says first what goes, and needs to be told."""
    assert shell("delete", "ada")[0] == 0
    assert shell("retain", "--last", "1")[0] == 0
    assert len(rows(shell("log", "ada")[1])) == 5
    assert shell("retain", "--last", "1", "--yes")[0] == 0
    assert len(rows(shell("log", "ada")[1])) == 2
    assert shell("copy", "ada", "ada-2")[0] == 0
    assert shell("delete", "ada", "--yes")[0] == 0
    assert [line[0] for line in rows(shell("threads")[1])[1:]] == ["ada-2"]
    assert shell("fsck")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("log", "adda"), 3, "'ada'"),
        (("show", "ada@99"), 3, "steps 1 to 4"),
        (("blame", "ada", "plam"), 3, "plan"),
        (("threads", "--db", "missing.db"), 3, "missing.db"),
        (("threads", "--db", "cli_app.py"), 6, "cli_app.py"),
        (("threads", "--db", "nosuch://x"), 1, "nosuch"),
        (("run", "x", "--app", "cli_app"), 1, "--app module:name"),
        (("run", "x", "--app", "cli_app:nothing"), 1, "nothing"),
        (("retain",), 1, "--last"),
        (("retain", "--last", "1", "--db", "missing.db"), 3, "no such file"),
        (("delete", "x", "--yes", "--db", "missing.db"), 3, "no such file"),
        (("threads", "--status", "bad"), 2, "waiting"),
        (("threads", "--since", "yesterday"), 1, "30d"),
        (("threads", "--db", "postgresql://127.0.0.1:1/x?connect_timeout=1"), 1, "start the server"),
        (("nosuch",), 2, "nosuch"),
        (("log",), 2, "'thread'"),
    ],
)
def test_mistakes(shell: Shell, waiting: str, arguments: tuple[str, ...], code: int, said: str) -> None:
    """Each mistake has its own words and code, on one line of its own, and leaves no file behind."""
    before = set(Path.cwd().iterdir())
    got, out, told = shell(*arguments)
    assert (got, out) == (code, "")
    assert said in told
    assert "Traceback" not in told
    assert code == 2 or told.count("\n") == 1
    assert {file for file in set(Path.cwd().iterdir()) - before if file.suffix != ".pyc"} <= {
        Path.cwd() / "__pycache__"
    }


def test_databases_of_the_official_saver(shell: Shell, tmp_path: Path) -> None:
    """Its threads are read where they are, or the message says how; adopt takes them over."""
    with OfficialSqliteSaver.from_conn_string(str(tmp_path / "theirs.db")) as saver:
        loop(saver).invoke({"until": 3, "n": 0}, config())
    code, _, told = shell("log", "t", "--db", "theirs.db")
    assert (code, "langgraph+sqlite:///" in told) == (1, True)
    code, out, _ = shell("log", "t", "--db", "langgraph+sqlite:///theirs.db")
    assert (code, len(rows(out))) == (0, 6)
    assert rows(shell("threads", "--db", "langgraph+sqlite:///theirs.db")[1])[1] == ["t", "5"]
    assert shell("adopt", "theirs.db", "--db", "mine.db")[0] == 0
    assert rows(shell("log", "t", "--db", "mine.db")[1])[1][0] == "t@5"


def test_looking_changes_nothing(shell: Shell, waiting: str, tmp_path: Path) -> None:
    """Every command that looks leaves the bytes as they are, and works on a file that nobody may write."""
    with SqliteSaver.open(tmp_path / "agent.db") as saver:
        saver.vacuum()
    file = tmp_path / "agent.db"
    before = hashlib.sha256(file.read_bytes()).hexdigest()
    file.chmod(stat.S_IREAD)
    looks = [("threads",), ("log", "ada"), ("show", "ada@3"), ("diff", "ada@2", "ada@3"), ("blame", "ada", "plan"),
             ("context", "ada@4"), ("du",), ("ledger", "ada"), ("fsck",), ("doctor",)]  # fmt: skip
    assert [shell(*look)[0] for look in looks] == [0] * len(looks)
    assert hashlib.sha256(file.read_bytes()).hexdigest() == before


def test_hostile_texts_stay_texts(shell: Shell, tmp_path: Path) -> None:
    """Escapes, controls and marks that turn a line around are shown as what they are, everywhere."""

    @tool(risk="read_only")
    def look(what: str) -> str:
        return HOSTILE + what

    script = ScriptedModel(plan=[[HOSTILE]], act=[calls(("look", {"what": HOSTILE})), HOSTILE], answer=[HOSTILE])
    with SqliteSaver.open(tmp_path / "agent.db") as saver:
        Agent(script, tools=[look], saver=saver).run(f"go {HOSTILE}", thread=f"t{HOSTILE}")
    name = f"t{HOSTILE}"
    for command in (("threads",), ("log", name), ("show", f"{name}@-1", "--full"), ("diff", f"{name}@2", f"{name}@-1"),
                    ("context", f"{name}@4"), ("du",)):  # fmt: skip
        code, out, told = shell(*command)
        assert code == 0, told
        assert not set(out + told) & set("\x1b\x07\x08\r\u202e\u2066"), command
    as_json = [json.loads(line) for line in shell("threads", "--json")[1].splitlines()]
    assert [row["thread"] for row in as_json] == [name]


@pytest.mark.parametrize(
    "command",
    [
        ("--help",),
        ("threads",),
        ("log", "ada"),
        ("du",),
        ("ledger", "ada"),
        ("fsck", "--help"),
        ("log", "ada", "--graph"),
        ("threads", "--goal", "x", "--json"),
        ("tail", "-n", "3"),
        ("migrate", "--plan"),
        ("doctor",),
        ("log", "nobody"),
    ],
)
def test_what_only_lists_loads_no_langgraph(
    shell: Shell, waiting: str, command: tuple[str, ...], tmp_path: Path
) -> None:
    """A listing decodes no value, so nothing that could is imported: LangGraph costs more than the listing."""
    assert loaded(command, tmp_path, "langgraph", "langchain_core") == []


def loaded(command: tuple[str, ...], folder: Path, *modules: str) -> list[str]:
    """Run a command in a process of its own, and give which of these modules it loaded."""
    code = (
        "import sys; from graph_agent.cli import main; main(sys.argv[2:]);"
        "print(*(name for name in sys.argv[1].split() if name in sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, " ".join(modules), *command], cwd=folder, capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return done.stderr.splitlines()[-1].split()


@pytest.mark.parametrize("command", [("--help",), ("threads",), ("log", "ada"), ("log", "ada", "--graph", "--json")])
def test_what_is_asked_most_loads_little(shell: Shell, waiting: str, command: tuple[str, ...], tmp_path: Path) -> None:
    """Neither what checks values, nor an event loop, nor what writes is loaded: each takes as long as the answer."""
    writing = ("checkpointers.operations.whole", "checkpointers.operations.checking")
    assert loaded(command, tmp_path, "pydantic", "asyncio", "rich", *writing) == []


def test_values_are_checked_when_there_are_some(shell: Shell, waiting: str) -> None:
    """Numbers, choices, lists and what is missing are told as ever."""
    for wrong, said in ((("log", "ada", "-n", "x"), "integer"), (("log", "ada", "-n", "-1"), "equal to 0"), (("log",), "thread"),
                        (("threads", "--status", "bad"), "waiting"), (("prune",), "threads"),
                        (("grep", "x", "--where", "bad"), "writes")):  # fmt: skip
        code, out, told = shell(*wrong)
        assert (code, out) == (2, "")
        assert said in told.replace("THREADS", "threads")
    assert shell("log", "ada", "-n", "1")[1].count("\n") == 2
    assert shell("grep", "tell", "--where", "state", "--where", "writes")[0] == 0
    assert shell("log", "ada", "ada")[0] == 0


def test_every_command_is_documented(shell: Shell) -> None:
    """Each has a first line of help, and its page in the reference."""
    help_ = shell("--help")[1]
    assert all(name_of(command) in help_ for commands in PANELS.values() for command in commands)


def test_the_reference_says_what_the_commands_print() -> None:
    """`docs/cli.md` is what `python -m tests.graph_agent.cli_reference` writes: real help, real output."""
    assert (ROOT / "docs" / "cli.md").read_text() == reference()


def test_postgres(shell: Shell, postgres_url: str) -> None:
    """The same commands on a server."""
    from checkpointers import PostgresSaver

    with PostgresSaver.open(postgres_url) as saver:
        loop(saver).invoke({"until": 3, "n": 0}, config())
    assert rows(shell("threads", "--db", postgres_url)[1])[1][0] == "t"
    assert len(rows(shell("log", "t", "--db", postgres_url)[1])) == 6
    assert shell("show", "t@2", "--db", postgres_url)[0] == 0


def test_looking_creates_nothing_on_a_server(shell: Shell, postgres_url: str) -> None:
    """A database without our tables stays without them, and says so."""
    for command in (("threads",), ("show", "t@1")):
        code, _, told = shell(*command, "--db", postgres_url)
        assert (code, "no tables of this library" in told) == (1, True)
    with psycopg.connect(postgres_url) as connection:
        found = connection.execute("SELECT count(*) FROM pg_namespace WHERE nspname = 'checkpointers'").fetchone()
    assert found == (0,)
