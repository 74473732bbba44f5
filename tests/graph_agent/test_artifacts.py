"""Large results: verbatim beside the state, their beginning in it; later steps do not carry them."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from checkpointers import Keyring, Saver, SqliteSaver
from checkpointers.testing import FaultyDatabase
from graph_agent import Agent, Budget, Context, Patch, ReviewPolicy, Tool, tool
from graph_agent.errors import SetupError
from graph_agent.testing import calls, lookup
from tests.conftest import reopen
from tests.graph_agent.conftest import Make, call_of, scripted

READ = calls(("read", {"what": "x"}))
FREELY = ReviewPolicy(required_for=())
INLINE = 2_048
FIFTY = 50 << 20


def reading(text: str, risk: str = "read_only") -> Tool:
    @tool(risk=risk)
    def read(what: str) -> str:
        """Read something."""
        return text

    return read


def large(run: Any) -> list[dict[str, Any]]:
    return [one for one in run.state["artifacts"] if one.get("beside")]


def shown(agent: Agent, number: int, node: str = "act") -> str:
    """Give what the model was sent at a question of a node."""
    sent = [messages for name, messages in agent.kit.model.chat.asked if name == node][number]
    return "\n".join(str(message.content) for message in sent)


# --- What is large ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("risk", ["read_only", "write_local"])
@pytest.mark.parametrize(
    ("text", "beside"),
    [
        ("x" * (INLINE - 1), False),
        ("x" * INLINE, False),
        ("x" * (INLINE + 1), True),
        ("ä" * (INLINE // 2), False),
        ("ä" * (INLINE // 2) + "x", True),
        ("", False),
    ],
    ids=["2047", "2048", "2049", "2048 of two", "2049 of two", "empty"],
)
def test_the_limit(make: Make, text: str, beside: bool, risk: str) -> None:
    """A result up to the limit is in the state; one byte more, and it stands beside it, whole."""
    agent = make(READ, "done", tools=[reading(text, risk)])
    run = agent.run("go", thread="t")
    (artifact,) = run.state["artifacts"]
    assert (bool(artifact.get("beside")), len(agent.saver.ledger.bodies("t"))) == (beside, int(beside))
    assert agent.artifact("t", artifact["id"]) == text
    assert agent.artifact(run, artifact["id"]) == text
    size, name = len(text.encode()), hashlib.sha256(text.encode()).hexdigest()
    assert (artifact["bytes"], artifact["hash"], artifact["step"]) == (size, name, run.plan[0]["id"])
    result = call_of(run, "read")["result"]
    assert (result == text) == (not beside)
    assert len(result.encode()) <= INLINE


def test_what_a_person_says_of_a_doubt_is_a_result_too(make: Make) -> None:
    """A long one stands beside the state as any other, whole."""

    @tool(risk="write_local", deadline=0.02)
    async def pay(what: str) -> str:
        """Pay something."""
        await asyncio.sleep(30)
        return what

    agent = make(calls(("pay", {"what": "rent"})), "done", tools=[pay])
    (review,) = agent.run("go", thread="t").reviews
    said = "it was paid, " * 1_000
    run = agent.resume("t", done={review.id: said})
    (artifact,) = run.state["artifacts"]
    assert (artifact["beside"], artifact["bytes"]) == (True, len(said))
    assert agent.artifact("t", artifact["id"]) == said
    assert len(run.state["calls"][0]["result"]) < 2_048


def test_the_limit_can_be_set(make: Make) -> None:
    """`Context(inline=…)` says what is large."""
    for number, (inline, beside) in enumerate([(10, True), (11, False), (9_999, False)]):
        run = make(READ, "done", tools=[reading("x" * 11)], context=Context(inline=inline)).run(
            "go", thread=str(number)
        )
        assert bool(large(run)) == beside


@pytest.mark.slow
@pytest.mark.parametrize("shift", range(4))
@pytest.mark.parametrize("sign", ["ä", "€", "𝄞"])
def test_a_beginning_ends_between_characters(make: Make, sign: str, shift: int) -> None:
    """A character is not cut in its middle, wherever the cut falls, and what is missing is said in bytes."""
    text = "x" * shift + sign * 3_000
    agent = make(READ, "done", tools=[reading(text)])
    run = agent.run("go", thread="t")
    result = call_of(run, "read")["result"]
    (artifact,) = large(run)
    beginning = result[: result.rindex(sign) + 1]
    assert text.startswith(beginning)
    assert f"{len(text.encode()) - len(beginning.encode())} bytes" in result.replace(",", "")
    assert artifact["id"] in result
    assert "\ufffd" not in result
    assert agent.artifact("t", artifact["id"]) == text


def test_text_that_no_database_keeps(make: Make) -> None:
    """NULs and lone surrogates become visible marks, in a large result as in a small one."""
    run = (agent := make(READ, "done", tools=[reading("a\x00\ud800" * 1_000)])).run("go", thread="t")
    (artifact,) = large(run)
    assert agent.artifact("t", artifact["id"]) == "a\u2400?" * 1_000


def test_an_unknown_artifact(make: Make) -> None:
    """The error names those there are."""
    agent = make(READ, "done", tools=[reading("x" * 3_000)])
    run = agent.run("go", thread="t")
    with pytest.raises(SetupError, match=f"no artifact 'a-x'; it has {run.state['artifacts'][0]['id']}"):
        agent.artifact("t", "a-x")


def test_the_same_text_twice_is_kept_once(make: Make) -> None:
    """Two calls of one text, of two tools, in two steps: one body, as many artifacts as calls."""
    text = "same" * 2_000
    effect = tool(risk="write_local", name="write")(lambda what: text)
    agent = make(
        READ, calls(("write", {"what": "y"}), ("read", {"what": "z"})), "done", READ, "done", plan=["one", "two"],
        tools=[reading(text), effect],
    )  # fmt: skip
    run = agent.run("go", thread="t")
    assert (run.status, len(large(run)), len(agent.saver.ledger.bodies("t"))) == ("done", 4, 1)
    assert {agent.artifact(run, one["id"]) for one in large(run)} == {text}


def test_what_a_tool_wrote_itself(make: Make) -> None:
    """A large artifact in a tool's own patch stands beside the state too; a short one in it."""

    @tool(risk="write_local")
    def read(what: str) -> Any:
        """Read something."""
        page = {"id": "a-page", "type": "page", "text": "ö" * 5_000}
        return "read", Patch().add("artifacts", page, {"id": "a-note", "type": "note", "text": "short"})

    agent = make(READ, "again", "done", tools=[read])
    run = agent.run("go", thread="t")
    (artifact,) = large(run)
    assert (artifact["id"], artifact["bytes"], "text" in artifact) == ("a-page", 10_000, False)
    assert artifact["trust"] == "tool"
    assert agent.artifact("t", "a-page") == "ö" * 5_000
    assert agent.artifact("t", "a-note") == "short"
    assert "ö" * 1_500 in shown(agent, 1)


def test_encrypted(tmp_path: Any) -> None:
    """With an encrypted saver nothing of a large result, its hash or an effect's arguments is readable in the file."""
    secret, keys = "the large secret " * 1_000, Keyring({"a": bytes(range(32))})
    with SqliteSaver.open(tmp_path / "sealed.db", keys=keys) as saver:
        agent = Agent(scripted(READ, "done"), tools=[reading(secret, "write_local")], saver=saver, review=FREELY)
        run = agent.run("go", thread="t")
        (artifact,) = large(run)
        assert agent.artifact("t", artifact["id"]) == secret
    raw = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"large secret" not in raw
    assert artifact["hash"].encode() not in raw
    assert bytes.fromhex(artifact["hash"]) not in raw
    with SqliteSaver.open(tmp_path / "sealed.db", keys=keys) as saver:
        again = Agent(scripted(READ), tools=[reading(secret)], saver=saver)
        assert again.artifact("t", artifact["id"]) == secret


# --- What the model is shown -----------------------------------------------------------------------------------------


def test_what_the_model_is_shown(make: Make) -> None:
    """In the step that read it, as much as artifacts may take; in the next, only that it is there; exactly recorded."""
    text = "".join(f"{line:06}\n" for line in range(3_000))
    agent = make(READ, "one is done", "two is done", plan=["one", "two"], tools=[reading(text)])
    run = agent.run("go", thread="t")
    (artifact,) = large(run)
    here, next_step = shown(agent, 1), shown(agent, 2)
    assert text[:5_000] in here
    assert text[:9_000] not in here
    assert f"{artifact['id']}, tool, {len(text)} bytes" in here
    assert text[:2_000] not in next_step
    told = [moment.saw for moment in agent.history("t") if moment.saw is not None]
    assert len(told) >= 4
    assert all(one.exact for one in told)
    assert any(text[:5_000] in str(one) for one in told)
    again = make().history("t")
    assert all(moment.saw.exact for moment in again if moment.saw is not None)


@pytest.mark.parametrize("limit", [0, 1_499, 1_501, 20_000])
def test_how_much_the_model_is_shown(make: Make, limit: int) -> None:
    """The budget says how many bytes of artifacts; too few for more than the working notes have, and none is read."""
    text = "".join(f"{line:06}\n" for line in range(3_000))
    agent = make(READ, "done", tools=[reading(text)], budget=Budget(max_artifact_bytes_in_context=limit))
    run = agent.run("go", thread="t")
    assert run.status == "done"
    assert text[:1_000] in shown(agent, 1)
    assert (text[:15_000] in shown(agent, 1)) == (limit == 20_000)
    assert all(moment.saw.exact for moment in agent.history("t") if moment.saw is not None)


def test_the_newest_comes_first(make: Make) -> None:
    """Where there is no room for all of a step, the newest is shown, and the others by their beginning."""
    texts = {name: "".join(f"{name}{line:06}\n" for line in range(1_000)) for name in "abc"}
    search = lookup(texts, name="read")
    asked = calls(*(("read", {"query": name}) for name in "abc"))
    agent = make(asked, "done", tools=[search])
    agent.run("go", thread="t")
    here = shown(agent, 1)
    assert texts["c"][:6_000] in here
    assert texts["a"][:3_000] not in here
    assert all(moment.saw.exact for moment in agent.history("t") if moment.saw is not None)


# --- What it costs ---------------------------------------------------------------------------------------------------


class Meter:
    """Counts what crosses to the database: bytes that are written, and rows and bytes that are read."""

    def __init__(self, real: Saver) -> None:
        self.written = self.read = 0
        self.saver = type(real)(FaultyDatabase(real.database, self._sent))

    def _sent(self, _: int, request: Any) -> None:
        self.written += _size(request)


def _size(value: Any) -> int:
    """Count the bytes in a request, which is a tuple of its parts."""
    if isinstance(value, str | bytes):
        return len(value)
    return sum(map(_size, value)) if isinstance(value, Sequence) else 0


def _cost(url: str, text: str) -> tuple[list[int], list[int], int]:
    """Give what each question of later steps wrote, how many rows each read, and the bytes of all that was read."""
    with reopen(url) as real:
        meter = Meter(real)
        marks: list[int] = []
        rows = _Rows(real)

        def mark(_: Any) -> str:
            marks.append(meter.written)
            rows.mark()
            return "done"

        plan = ["read", *(f"step {n}" for n in range(8))]
        agent = Agent(
            scripted(READ, *[mark] * 9, plan=plan), tools=[reading(text, "write_local")], saver=meter.saver,
            review=FREELY, budget=Budget(max_steps=None),
        )  # fmt: skip
        run = agent.run("go", thread=f"t {len(text)}")
        assert run.status == "done"
        (artifact,) = run.state["artifacts"]
        assert len(agent.artifact(run, artifact["id"])) == len(text)
        if len(text) > INLINE:
            assert max(len(str(value)) for value in run.state.values()) < 200_000
    return [after - before for before, after in pairwise(marks[1:])], rows.each[2:], marks[0]


class _Rows:
    """Counts the rows that a database gives."""

    def __init__(self, real: Saver) -> None:
        self.count, self.each, self._last = 0, list[int](), 0
        database, run, read = real.database, real.database.run, real.database.read
        database.run = lambda operation: run(lambda: self._watched(operation()))  # type: ignore[method-assign]
        database.read = lambda operation: read(lambda: self._watched(operation()))  # type: ignore[method-assign]

    def mark(self) -> None:
        self.each.append(self.count - self._last)
        self._last = self.count

    def _watched(self, statements: Any) -> Any:
        answer = None
        try:
            request = next(statements)
            while True:
                try:
                    answer = yield request
                except BaseException as error:
                    request = statements.throw(error)
                else:
                    self.count += len(answer)
                    request = statements.send(answer)
        except StopIteration as end:
            return end.value


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_fifty_megabytes_do_not_slow_later_steps(url: str, backend: str) -> None:
    """Later steps write as many bytes and read as many rows after 50 MB as after a small result; none grows."""
    small_written, small_rows, _ = _cost(url, "y" * 10_000)
    written, rows, before = _cost(url, Random(1).randbytes(FIFTY // 2).hex())
    assert before > FIFTY / 4  # the body was written when the tool had returned; it is compressed
    assert max(written) < 40_000
    assert max(written) <= max(small_written) + 2_000
    assert max(rows) <= max(small_rows) + 2
