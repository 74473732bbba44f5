"""The pictures of the documents, made of what is really shown: `python -m tests.screens`; needs Chromium."""

from __future__ import annotations

import html
import io
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.text import Text

from checkpointers import SqliteSaver
from graph_agent import Agent, tool
from graph_agent.errors import ToolError
from graph_agent.testing import ScriptedModel, calls

ROOT = Path(__file__).parents[1]
SCREENS = ROOT / "docs" / "screens"
WIDE, COLUMNS = 1_120, 118
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-device-scale-factor=1",
         "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync")  # fmt: skip
SESSION = (
    "threads", "log build build-2 --graph", "show build@8", "diff build@6 build@8 --stat", "blame build usage.llm_calls.act",
    "bisect build 'grep -q security'", "ledger build", "shwo build@8",
)  # fmt: skip


@tool(risk="read_only")
def changes(since: str) -> str:
    """List what changed since a version."""
    return f"14 changes since {since}: two features, eleven fixes, one security fix"


@tool(risk="read_only")
def test_report(build: int) -> str:
    """Fetch the report of a build's tests."""
    raise ToolError(f"the server has no report of build {build}")


def withdraw(version: str) -> str:
    """Take a release back."""
    return f"withdrew {version}"


@tool(risk="external_action", once_per=("version",), compensate=withdraw)
def publish(version: str) -> str:
    """Publish a release."""
    return f"published {version}"


def release(saver: Any) -> Agent:
    """Make the agent of the pictures: it looks, fails once, asks, publishes."""
    act = [
        calls(("changes", {"since": "2.3.1"}), ("test_report", {"build": 4812})),
        "14 changes, one of them a security fix; the report is not there yet.",
        calls(("publish", {"version": "2.4.0"})),
        "2.4.0 is out.",
    ]
    model = ScriptedModel(
        plan=[["Find out what changed", "Publish the release"]],
        act=act,
        answer=["2.4.0 is published, with 14 changes."],
    )
    return Agent(model, tools=[changes, test_report, publish], saver=saver)


def scenes(folder: Path) -> Iterator[tuple[str, str]]:
    """Give the name and the HTML of everything that shows itself."""
    with SqliteSaver.open(folder / "agent.db") as saver:
        agent = release(saver)
        run = agent.run("Publish release 2.4.0", thread="build", constraints=["only if the tests are green"])
        yield "run-waiting", run._repr_html_()
        yield "review", run.reviews[0]._repr_html_()
        run = agent.resume("build", approve=run.reviews[0].id, by="ada")
        yield "run-done", run._repr_html_()
        agent.fork("build@6", thread="build-2")
        agent.resume("build-2")
        history = agent.history("build")
        yield "diff", history.diff(6, 8)._repr_html_()
        yield "step", history[8]._repr_html_()
        agent.graph.update_state(history[6].config, {"constraints": ["wait for the report"]}, as_node="observe")
        agent.resume("build")
        history = agent.history("build")
        yield "timeline", history._repr_html_()
        saw = next(step.saw for step in list(history)[::-1] if step.saw)
        yield "slice", saw._repr_html_()
        yield "agent", agent._repr_html_()


def typed(folder: Path) -> str:
    """Give a session in a terminal as HTML: what a person types, and what comes back, colours and all."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for command in SESSION:
        console.print(Text.assemble(("$ ", "bold green"), f"graph-agent {command}"))
        console.print(Text.from_ansi(_in_a_terminal(f"{sys.executable} -W ignore -m graph_agent {command}", folder)))
    return console.export_html(inline_styles=True, code_format="<pre class='t'>{code}</pre>")


def _in_a_terminal(command: str, folder: Path) -> str:
    told = bytearray()
    main, end = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color", "PYTHONPATH": str(ROOT)}
    runner = subprocess.Popen(  # noqa: S602  a command as it is typed
        command, shell=True, cwd=folder, stdin=subprocess.DEVNULL, stdout=end,
        stderr=end, env={**environment, "PAGER": "cat"},
    )  # fmt: skip
    os.close(end)
    try:
        while piece := os.read(main, 65_536):
            told += piece
    except OSError:  # the other end is closed: that is how a terminal says it
        pass
    runner.wait()
    os.close(main)
    return told.decode().replace("\r\n", "\n").rstrip("\n")


def shoot(name: str, body: str, folder: Path, *, dark: bool) -> None:
    """Take a picture of a page, as high as what is on it."""
    back, ink = ("#111418", "#e6e6e6") if dark else ("#ffffff", "#16181d")
    style = (
        f"body{{margin:14px;background:{back};color:{ink};font:14px system-ui}}.t{{font:13px/1.35 monospace;margin:0}}"
    )
    page = folder / f"{name}.html"
    page.write_text(f"<!doctype html><meta charset=utf-8><style>{style}</style>{body}")
    picture = SCREENS / f"{name}.png"
    command = [which("chromium") or "chromium", *FLAGS, f"--user-data-dir={folder}/profile",
               f"--blink-settings=preferredColorScheme={0 if dark else 1}", f"--screenshot={picture}",
               f"--window-size={WIDE},{_height(page, folder, dark=dark)}", page.as_uri()]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def _height(page: Path, folder: Path, *, dark: bool) -> int:
    probe = page.with_suffix(".probe.html")
    script = "<script>document.title=document.documentElement.scrollHeight+''</script>"
    probe.write_text(f"{page.read_text()}{script}")
    command = [which("chromium") or "chromium", *FLAGS, f"--user-data-dir={folder}/profile",
               f"--blink-settings=preferredColorScheme={0 if dark else 1}", f"--window-size={WIDE},200", "--dump-dom", probe.as_uri()]  # fmt: skip
    dom = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    return int(html.unescape(dom.partition("<title>")[2].partition("<")[0])) + 4


def main() -> None:
    """Take all pictures."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        for scene, body in scenes(folder):
            for dark in (False, True):
                shoot(f"{scene}-{'dark' if dark else 'light'}", body, folder, dark=dark)
        shoot("terminal", typed(folder), folder, dark=True)


if __name__ == "__main__":
    main()
