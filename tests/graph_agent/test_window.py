"""A window of a conversation fits its budget, keeps calls and results together, and tells what it leaves out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph_agent.slicing import Window, utf8_bytes, window

LONG = 2_000


def user(key: str, text: str = "Do it") -> dict[str, Any]:
    return {"id": key, "role": "user", "content": text}


def says(key: str, text: str = "Done") -> dict[str, Any]:
    return {"id": key, "role": "assistant", "content": text}


def calls(key: str, *names: str, text: str = "") -> dict[str, Any]:
    asked = [{"id": f"{key}.{n}", "name": name, "args": {"path": "a.py"}} for n, name in enumerate(names)]
    return {"id": key, "role": "assistant", "content": text, "tool_calls": asked}


def result(key: str, call: str, text: str = "ok") -> dict[str, Any]:
    return {"id": key, "role": "tool", "content": text, "tool_call_id": call}


def system(text: str = "You are careful.") -> dict[str, Any]:
    return {"id": "system", "role": "system", "content": text}


def ids(seen: Window) -> list[str]:
    return [message["id"] for message in seen.messages]


def weight(message: dict[str, Any]) -> int:
    """Count content, and of calls, name and arguments, written out here for themselves."""
    return utf8_bytes(message["content"]) + sum(
        len(call["name"]) + len('{"path": "a.py"}') for call in message.get("tool_calls", ())
    )


contents = st.sampled_from(["", "Fix the build", "ü" * 30, "word " * 60, "x" * LONG])
names = st.lists(st.sampled_from(["read_file", "search"]), min_size=1, max_size=3)


@st.composite
def conversations(draw) -> list[dict[str, Any]]:
    """Make conversations with orphans, unfinished calls, results in any order and system messages anywhere."""
    messages: list[dict[str, Any]] = []
    for n in range(draw(st.integers(0, 14))):
        kind = draw(st.sampled_from(["user", "user", "says", "calls", "calls", "orphan", "system"]))
        if kind == "calls":
            asked = calls(f"m{n}", *draw(names), text=draw(contents))
            messages.append(asked)
            answered = draw(st.permutations(asked["tool_calls"]))
            keep = draw(st.integers(0, len(answered))) if draw(st.booleans()) else len(answered)
            messages += [result(f"r{call['id']}", call["id"], draw(contents)) for call in answered[:keep]]
        elif kind == "orphan":
            messages.append(result(f"m{n}", draw(st.sampled_from(["nowhere", "m0.0"])), draw(contents)))
        elif kind == "system":
            messages.append({**system(draw(contents)), "id": f"m{n}"})
        else:
            messages.append({"user": user, "says": says}[kind](f"m{n}", draw(contents)))
    return messages


@given(conversations(), st.integers(200, 6_000), st.integers(1, 6))
def test_every_window_keeps_the_laws(messages, budget, keep_turns) -> None:
    seen = window(messages, budget, keep_turns=keep_turns)
    originals = {message["id"]: message for message in messages}
    own = [key for key in ids(seen) if key != "earlier"]
    assert seen.size == sum(map(weight, seen.messages)) <= budget
    assert sorted([*own, *seen.left_out.ids]) == sorted(originals)
    assert seen.left_out.size == sum(weight(originals[key]) for key in seen.left_out.ids)
    assert seen.left_out.count == sum(seen.left_out.why.values())
    assert bool(seen.messages) == bool(messages)
    for message in seen.messages:
        if message["id"] in seen.cut:
            assert message["content"].endswith(" bytes cut]")
            assert {**message, "content": ""} == {**originals[message["id"]], "content": ""}
        elif message["id"] != "earlier":
            assert message == originals[message["id"]]


@given(conversations(), st.integers(0, 6_000))
def test_calls_and_results_are_never_torn_apart(messages, budget) -> None:
    shown = list(window(messages, budget).messages)
    while shown:
        message = shown.pop(0)
        assert message["role"] != "tool", "a result that does not follow its call"
        wanted = {call["id"] for call in message.get("tool_calls", ())}
        while wanted and shown and shown[0]["role"] == "tool":
            wanted.remove(shown.pop(0)["tool_call_id"])
        assert not wanted or not [rest for rest in shown if rest["role"] != "system"], (
            "an unfinished call, not the last"
        )


@given(conversations(), st.integers(0, 6_000))
def test_a_window_is_never_empty_and_always_the_same(messages, budget) -> None:
    seen = window(messages, budget)
    assert bool(seen.messages) == bool(messages)
    assert window(messages, budget) == seen


@given(conversations())
def test_with_room_enough_only_the_broken_goes(messages) -> None:
    seen = window(messages, 10**9, keep_turns=100)
    assert seen.cut == ()
    assert set(seen.left_out.why) <= {"a result without its call", "a call that never got all its results"}


def test_a_short_conversation_stays_as_it_is() -> None:
    talk = [system(), user("u1"), calls("c1", "search"), result("r1", "c1.0"), says("a1"), user("u2")]
    seen = window(talk, 1_000)
    assert list(seen.messages) == talk
    assert seen.left_out.count == 0


def test_older_turns_are_summed_up() -> None:
    talk = [
        system(),
        user("u1", "Fix the build on the main branch of the old repository"),
        calls("c1", "read_file", "read_file", "search"),
        *[result(f"r{n}", f"c1.{n}") for n in range(3)],
        says("a1"),
        user("u2", "Tell Ada"),
        says("a2"),
        user("u3"),
    ]
    seen = window(talk, 10_000, keep_turns=1)
    assert ids(seen) == ["system", "earlier", "u3"]
    assert seen.messages[1]["content"] == (
        "[earlier: 8 messages, 3 calls (read_file \u00d72, search): Fix the build on the main branch of…; Tell Ada]"
    )
    assert seen.left_out.why == {"in an older turn": 8}


def test_a_summary_of_a_model_takes_the_place_of_ours() -> None:
    seen = window([user("u1"), says("a1"), user("u2")], 1_000, keep_turns=1, summary="They fixed it.")
    assert seen.messages[0]["content"] == "[earlier: 2 messages: They fixed it.]"


def test_the_newest_turns_that_fit_stay_whole() -> None:
    talk = [message for n in range(5) for message in (user(f"u{n}"), says(f"a{n}", "y" * 300))]
    seen = window(talk, 1_000)
    assert ids(seen) == ["earlier", "u3", "a3", "u4", "a4"]
    assert seen.cut == ()


def test_a_message_too_large_alone_is_cut_visibly() -> None:
    talk = [user("u1"), calls("c1", "read_file"), result("r1", "c1.0", "x" * 90_000), says("a1"), user("u2")]
    seen = window(talk, 2_000)
    assert ids(seen) == ["u1", "c1", "r1", "a1", "u2"]
    assert seen.cut == ("r1",)
    assert seen.messages[2]["content"].endswith(" bytes cut]")


def test_in_a_long_turn_the_oldest_calls_go_first() -> None:
    steps = [m for n in range(40) for m in (calls(f"c{n}", "read_file"), result(f"r{n}", f"c{n}.0", "z" * 100))]
    seen = window([user("u1", "Read everything"), *steps], 1_000)
    assert ids(seen)[:2] == ["u1", "earlier"]
    assert ids(seen)[-2:] == ["c39", "r39"]
    assert "read_file \u00d73" in "".join(m["content"] for m in seen.messages if m["id"] == "earlier")


def test_a_call_that_is_running_stays_and_an_abandoned_one_goes() -> None:
    running = [user("u1"), calls("c1", "search", "search"), result("r1", "c1.1")]
    assert ids(window(running, 1_000)) == ["u1", "c1", "r1"]
    seen = window([*running, user("u2")], 1_000)
    assert ids(seen) == ["u1", "earlier", "u2"]
    assert seen.left_out.why == {"a call that never got all its results": 2}


def test_a_result_without_a_call_and_a_second_result_go() -> None:
    talk = [user("u1"), calls("c1", "search"), result("r1", "c1.0"), result("r2", "c1.0"), result("r3", "lost")]
    seen = window(talk, 1_000)
    assert seen.left_out.ids == ("r2", "r3")
    assert seen.left_out.why == {"a result without its call": 2}


def test_a_call_id_used_again_belongs_to_the_newest_call() -> None:
    first, second = calls("c1", "search"), calls("c2", "search")
    second["tool_calls"][0]["id"] = "c1.0"
    seen = window([user("u1"), first, second, result("r1", "c1.0"), says("a1")], 1_000)
    assert seen.left_out.ids == ("c1",)


def test_late_results_are_brought_to_their_call() -> None:
    talk = [calls("c1", "search"), system(), user("u1"), result("r1", "c1.0"), says("a1")]
    assert ids(window(talk, 1_000)) == ["c1", "r1", "system", "u1", "a1"]


def test_long_instructions_leave_half_of_the_room() -> None:
    seen = window([system("s" * 5_000), user("u1", "u" * 5_000)], 1_000)
    assert ids(seen) == ["system", "u1"]
    assert seen.cut == ("system", "u1")
    assert utf8_bytes(seen.messages[0]["content"]) == 500


def test_a_call_larger_than_the_budget_goes_and_the_question_stays() -> None:
    huge = calls("c1", "write_file")
    huge["tool_calls"][0]["args"] = {"body": "x" * 9_000}
    seen = window([user("u1", "Write it"), huge, result("r1", "c1.0")], 1_000)
    assert ids(seen) == ["u1", "earlier"]


def test_no_turn_kept_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="keep at least the last turn"):
        window([user("u1")], 100, keep_turns=0)
