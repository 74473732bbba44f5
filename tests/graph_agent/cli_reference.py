"""The reference of the shell's commands, made of what they print: `python -m tests.graph_agent.cli_reference` writes it."""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

from langgraph.checkpoint.sqlite import SqliteSaver as OfficialSqliteSaver

from graph_agent.cli import main
from graph_agent.cli.main import PANELS, REVIEW, name_of
from tests.checkpointers.graphs import config, loop

ROOT = Path(__file__).parents[2]
APP = """
from graph_agent import Agent, tool
from graph_agent.testing import ScriptedModel, calls

def recall(to: str) -> str:
    return f"recalled from {to}"

@tool(risk="external_action", compensate=recall)
def send(to: str) -> str:
    return f"sent to {to}"

@tool(risk="read_only")
def look(what: str) -> str:
    return f"saw {what}"

def agent():
    acts = [calls(("look", {"what": "x"}), ("send", {"to": "ada"})), "sent"]
    return Agent(ScriptedModel(plan=[["tell"]], act=acts, answer=["all sent"]), tools=[send, look], saver="sqlite:///agent.db")
"""
INTRO = """# The command line

`graph-agent VERB …` looks into databases of threads, and runs agents. `--db` says which database (an address, or a file;
else `GRAPH_AGENT_DB`, else `./agent.db`), `--app module:name` which agent (else `GRAPH_AGENT_APP`): an `Agent`, or a
function that makes one; `--model openai:NAME` (else `GRAPH_AGENT_MODEL`) makes one without tools, on `--db`. What looks
opens the database read-only: it creates nothing and changes nothing, and works on a database that is in use, or that may
only be read. Each command means what the Python method of its name does, and says the same.

Data goes to stdout, everything else to stderr. On a terminal tables line up; in a pipe they are lines with tabs, and
nothing is cut. Control characters, escapes, marks that turn text around, and in tables tabs and line ends, are shown as
what they are. What a terminal cannot show at once goes through `PAGER` (`less`; `--no-pager`, `PAGER=cat`: not). `NO_COLOR`
is heeded. A reader that goes away (`| head`) is no error. An error is one line that says what to do; `--debug` shows its
trace. `graph-agent --install-completion` completes commands and the names of threads.

Exit codes: 0 done · 1 failed · 2 wrong usage · 3 not found (a thread, a step, a file, nothing that matches) · 4 conflict
(held, settled, not at rest, taken) · 5 waits for a person · 6 damaged, or no database · 7 a limit is reached · 130
interrupted.

## JSON

With `--json` these print one document for each line: `threads`, `log`, `tail`, `grep`, `du`, `ledger`, `fsck`, `tools`,
`undo`, `retain`, `prune`, `review list`, `review show`. The others print one document, `{"schema": 1, "data": …}`; but
`diff --json-patch` is the bare patch. `schema` goes up when a name or a meaning changes, not when something is added. A
value that JSON does not know is `{"$type": …, "text": …}`, an object its fields with `"$type"`; times are ISO 8601.

| command | names |
|---|---|
| `threads` | `thread status step checkpoints bytes created_at updated_at tags pins holder questions errors metadata`; with `--cost` also `tokens cost unpriced` |
| `log`, `tail` | `address thread number id at source status parent nodes sent`; of `log` also `lane branched_from` |
| `show` | `address number id at source status parent nodes values interrupts errors` |
| `diff` | a list of `path kind before after index`; with `--stat` of `channel added removed changed moved` |
| `blame` | a list of `step nodes source at kind before after` |
| `bisect` | as `show` without values, or null |
| `grep` | `thread step where path line` |
| `compare` | `shared parted totals pairs`; a pair is `a b same` |
| `stats` | `total tokens llm_calls by_step by_node by_tool unpriced` |
| `context` | `decision messages items left_out why left_out_bytes budget exact`; of items `kind id text reason` |
| `ledger` | `key number status step at record` |
| `du` | `thread channel rows bytes` |
| `fsck` | `thread step what sound` |
| `run`, `resume`, `replay`, `review approve` … | `thread status answer reason usage reviews` |
| `review list`, `review show` | `id thread kind tool args risk reason step description expires_at` |
| `undo` | `key tool args step state why review` |
| `retain`, `prune` | `thread dropped kept frees done`; `kept` has the reasons for each step |
| `migrate` | `version migrations` |
| `fork`, `import`, `copy`, `recover` | `thread`; of `fork` also `status`, of `copy` also `done`, of `recover` also `step` |
| `delete` | `thread status checkpoints bytes done` |
| `adopt`, `vacuum` | `threads checkpoints already`; `bytes` |
| `doctor` | a name for each line of its table |

`log` and `threads` read rows alone, without LangGraph. The nodes that tasks were sent to (LangGraph's `Send`) are told by the ids
of the tasks; where that is not possible, as with savers of others, `log` shows `(sent)`, and `show` has the names.

![A session in a terminal: threads, a log with a fork in a lane of its own, what a step changed, blame, bisect, the ledger](screens/terminal.png)

## A session

"""


SESSION = (
    "run 'tell ada' --thread ada",
    "threads",
    "log ada",
    "review list",
    "review show ada REVIEW",
    "show ada@4",
    "review approve ada REVIEW --by me",
    "show ada@5",
    "diff ada@6 @7",
    "diff ada@4 @6 --stat",
    "diff ada@9 @10 --json-patch",
    "blame ada phase",
    "bisect ada 'grep -q \"sent to ada\"'",
    "bisect ada 'grep -q planning' --fails",
    "grep 'sent to' ada",
    "context ada@3",
    "stats ada --price scripted=25000,200000",
    "ledger ada",
    "fork ada@3 --thread ada-2",
    "resume ada-2",
    "review reject ada-2 AGAIN --because 'not today'",
    "log ada ada-2 --graph",
    "log ada --failed",
    "compare ada ada-2",
    "replay ada@9 --thread ada-3",
    "tail ada -n 2",
    "tail ada --until done --for 1 --json -n 1",
    "threads --status done --goal tell --limit 2",
    "threads --price scripted=25000,200000",
    "undo ada@2",
    "tools",
    "export ada --to markdown | head -n 12",
    "export ada@3 --to python | head -n 8",
    "export ada --to html --out ada.html",
    "export ada --out ada.json",
    "import ada.json --thread eva",
    "prune eva",
    "retain --last 3 --thread ada",
    "copy ada ada-4 --dry-run",
    "copy ada ada-4",
    "delete ada-4",
    "du ada | head -n 3",
    "fsck",
    "migrate --plan",
    "recover ada --into ada-5",
    "vacuum",
    "doctor",
    "adopt theirs.db --db mine.db",
    "show ada@99",
    "log adda",
    "threads --db app.py",
    "threads --db nowhere.db",
)
STEADY = (
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(\+00:00)?", "2026-11-18 12:00:00"),
    (r"\b\d+ (s|min) ago", "2 s ago"),
    (r"(\bseconds |\.seconds  |\bwall_time[.\w]*  |wall_time/\w+\", \"value\": )\d[\d.]*(e-\d+)?", r"\g<1>0.01"),
    (r"(\bwall_time[.\w]*  0\.01 → )\d[\d.]*(e-\d+)?", r"\g<1>0.01"),
    (r"(?m)^((?:all|step|node|tool)\t(?:[^\t]*\t){5})[\d.,]+", r"\g<1>0.01"),
    (r"\b[\d.]+ [kM]?B\b", "9.8 kB"),
    (r"\b[\d,]+ bytes\b", "9,800 bytes"),
    (r"\bd-[0-9a-f]{10}\b", "d-0123456789"),
    (r"\b[01]\.\d+(e-\d+)?\b|\b\d(\.\d+)?e-\d+\b", "0.01"),
    (r"\b\d+\.\d+\.\d+(rc\d+)?\b|\bnot installed\b", "1.2.3"),
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "0198a5e0-0000-6000-8000-000000000000"),
)


@contextmanager
def at_home(folder: str) -> Iterator[None]:
    """Be in a folder with an agent, as a person in a shell of 80 columns is."""
    own = {"GRAPH_AGENT_APP": "app:agent", "COLUMNS": "80", "TERM": "dumb"}
    kept, known, path = dict(os.environ), set(sys.modules), list(sys.path)
    for name in ("GRAPH_AGENT_DB", "GRAPH_AGENT_MODEL"):
        os.environ.pop(name, None)
    os.environ.update(own)
    sys.path.insert(0, folder)
    try:
        with chdir(folder):
            yield
    finally:
        os.environ.clear()
        os.environ.update(kept)
        sys.path[:] = path
        if "app" not in known:
            sys.modules.pop("app", None)


def ran(command: str) -> str:
    """Run a command; what it prints and then tells, with what changes from run to run made the same."""
    typed, _, first = command.partition(" | head -n ")
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        main(shlex.split(typed))
    lines = "".join([*out.getvalue().splitlines(keepends=True)[: int(first or 10_000)], err.getvalue()])
    for pattern, steady in STEADY:
        lines = re.sub(pattern, steady, lines)
    return aligned([line.split("\t") for line in lines.strip().splitlines()])


def aligned(rows: list[list[str]]) -> str:
    """Line the columns of a table up, as a terminal would; what is no table stays as it is."""
    width = max(map(len, rows), default=0)
    sizes = [max((len(row[n]) for row in rows if len(row) == width), default=0) for n in range(width)]
    return "\n".join("  ".join(cell.ljust(sizes[n] if len(row) == width else 0) for n, cell in enumerate(row)).rstrip()
                     for row in rows)  # fmt: skip


def helped(*command: str) -> str:
    """Give what a command says of itself."""
    return f"### {' '.join(command)}\n\n```text\n{ran(shlex.join([*command, '--help']))}\n```\n\n"


def reference() -> str:
    """Write the reference."""
    with TemporaryDirectory() as folder, at_home(folder):
        Path("app.py").write_text(APP)
        with OfficialSqliteSaver.from_conn_string("theirs.db") as saver:
            loop(saver).invoke({"until": 3, "n": 0}, config())
        parts, reviews = [INTRO], [""]
        for command in SESSION:
            typed = command.replace("REVIEW", reviews[0]).replace("AGAIN", reviews[-1])
            text = ran(typed)
            reviews = [*filter(None, reviews), *re.findall(r"\br-[0-9a-f]{10}", text)] or [""]
            fence = "````" if "```" in text else "```"
            parts.append(f"{fence}text\n$ graph-agent {typed}\n{text}\n{fence}\n\n")
        for panel, commands in PANELS.items():
            parts.append(f"## {panel}\n\n")
            parts += [helped(name_of(command)) for command in commands]
            parts += [helped("review", name_of(command)) for command in REVIEW if panel == "Do"]
    return "".join(parts).rstrip() + "\n"


if __name__ == "__main__":
    (ROOT / "docs" / "cli.md").write_text(reference())
