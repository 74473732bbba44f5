"""What a diff says is all that changed, and nothing else; every path it prints can be read again."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage

from checkpointers.diffing import Change, Diff, compare, same, told
from checkpointers.errors import HistoryError
from checkpointers.paths import ABSENT, Part, look, parse, written
from tests.checkpointers.wild import difference

texts = st.sampled_from(["", "a", "b", "a.b", "0", "7", '"', "x[0]", "é", "\x00 \n"]) | st.text(max_size=4)
leaves = st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | texts


def lists(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Give lists with ids, without, and with some that are not of their own."""
    ids = st.sampled_from(["p", "q", "r", "a.b", "0", 1, 2])
    # Twice the same id now and then: then they are matched by position.
    items = st.fixed_dictionaries({"id": ids}, optional={"text": texts, "parts": inner})
    return st.lists(inner, max_size=4) | st.lists(
        items, max_size=5, unique_by=lambda item: (str(item["id"]), "text" in item and item["text"] == "a")
    )


json_like = st.recursive(leaves, lambda inner: lists(inner) | st.dictionaries(texts, inner, max_size=4), max_leaves=20)


def applied(value: Any, changes: list[tuple[tuple[Part, ...], Change]]) -> Any:
    """Do to a value what changes say."""
    whole = [change for parts, change in changes if not parts]
    if whole:
        return whole[0].after
    inside: dict[Part, list[tuple[tuple[Part, ...], Change]]] = {}
    for parts, change in changes:
        inside.setdefault(parts[0], []).append((parts[1:], change))
    if isinstance(value, dict):
        return _applied_to_dict(value, inside)
    return _applied_to_list(value, inside)


Inside = dict[Part, list[tuple[tuple[Part, ...], Change]]]


def _applied_to_dict(value: dict[str, Any], inside: Inside) -> dict[str, Any]:
    result = dict(value)
    for key, some in inside.items():
        if some[0][0] == () and some[0][1].kind == "removed":
            del result[str(key)]
        else:
            result[str(key)] = applied(value.get(str(key)), some)
    return result


def _applied_to_list(value: list[Any], inside: Inside) -> list[Any]:
    result = list(enumerate(value))
    places: list[tuple[int, Any]] = []
    for part, some in inside.items():
        at = (
            part
            if isinstance(part, int)
            else next((n for n, item in enumerate(value) if str(item["id"]) == part), None)
        )
        own = {change.kind: change for parts, change in some if not parts}
        rest = [(parts, change) for parts, change in some if parts or change.kind == "changed"]
        if "added" in own:
            places.append(
                (own["added"].index if own["added"].index is not None else len(value) + 9, own["added"].after)
            )
            continue
        new = applied(value[at], rest) if rest else value[at]
        if "moved" in own:
            assert own["moved"].before == at
            places.append((own["moved"].after, new))
        kept = "removed" not in own and "moved" not in own
        result = [(n, new if n == at else item) for n, item in result if n != at or kept]
    final = [item for _, item in result]
    for index, item in sorted(places, key=lambda place: place[0]):
        final.insert(index, item)
    return final


@given(json_like, json_like)
def test_applying_a_diff_gives_the_other(a: Any, b: Any) -> None:
    """Law: what a diff says, done to the one, gives the other; it says nothing only if they are the same."""
    changes = list(compare({"x": a}, {"x": b}))
    result = applied({"x": copy.deepcopy(a)}, [(parse(change.path), change) for change in changes])
    assert difference(_sorted(result["x"]), _sorted(b)) is None
    assert (not changes) == (difference(_sorted(a), _sorted(b)) is None)


def _sorted(value: Any) -> Any:
    """Put keys in one order, which a diff does not tell, and take signed zeros for one."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_sorted(item) for item in value]
    return 0.0 if isinstance(value, float) and value == 0 else value


@given(json_like, json_like)
def test_the_path_of_a_change_leads_to_it(a: Any, b: Any) -> None:
    """Law: at the path of a change stands what it says, before and after."""
    for change in compare({"x": a}, {"x": b}):
        if change.kind != "moved":
            parts = parse(change.path)
            before, after = (look({"x": value}, parts) for value in (a, b))
            assert same(before, ABSENT if change.kind == "added" else change.before), change
            assert same(after, ABSENT if change.kind == "removed" else change.after), change


@given(st.lists(texts | st.integers(-99, 99), min_size=1, max_size=5))
def test_paths_are_read_as_they_are_written(parts: list[Part]) -> None:
    """Law: a path says the same to who writes it and to who reads it."""
    if isinstance(parts[0], int):
        parts[0] = str(parts[0])
    assert parse(written(parts)) == tuple(parts)


@pytest.mark.parametrize("path", ["", ".", "a.", ".a", "a..b", "a[", "a[]", "a[b]", "a]", 'a["b', "a[0]b", 'a"b'])
def test_what_is_no_path_is_refused(path: str) -> None:
    """A path that means nothing is an error with an example."""
    with pytest.raises(HistoryError, match="is no path; write it like"):
        parse(path)


@dataclass
class Fact:
    id: str
    text: str


class Bag:
    def __init__(self, size: int) -> None:
        self.size = size
        self._hidden = size


class Array:
    """As arrays do, it answers a comparison with no truth."""

    def __init__(self, *numbers: int) -> None:
        self._numbers = numbers

    def __eq__(self, other: object) -> Any:
        raise ValueError("ambiguous")

    __hash__ = object.__hash__


def paths(a: Any, b: Any) -> list[str]:
    return [f"{change.kind} {change.path}" for change in compare({"x": a}, {"x": b})]


def test_objects() -> None:
    """Data objects are compared by their fields, others as a whole; arrays and NaN do not trip it."""
    assert paths(Fact("a", "old"), Fact("a", "new")) == ["changed x.text"]
    assert paths([Fact("a", "1"), Fact("b", "2")], [Fact("b", "3"), Fact("a", "1")]) == [
        "changed x.b.text",
        "moved x.a",
    ]
    assert paths(AIMessage("one", id="m"), AIMessage("two", id="m")) == ["changed x.content"]
    assert paths(Bag(1), Bag(1)) == []
    assert paths(Bag(1), Bag(2)) == ["changed x.size"]
    assert paths(Array(1, 2), Array(1, 2)) == []
    assert paths(Array(1, 2), Array(1, 3)) == ["changed x"]
    assert paths(float("nan"), float("nan")) == []
    assert paths({1, 2}, {2, 1}) == []
    assert paths({"a": {1}}, {"a": {2}}) == ["changed x.a"]
    assert paths((1, 2), (1, 3)) == ["changed x[1]"]
    assert paths((1, 2), [1, 2]) == ["changed x"]
    assert paths(1, True) == ["changed x"]
    assert paths({1: "a", "1": "b"}, {1: "a", "1": "c"}) == ["changed x"]
    assert look({"x": {7: "seven"}}, parse("x.7")) == "seven"


def test_words() -> None:
    """A diff is true if there is a change, can be gone through, and reads in lines; long values are shortened."""
    none = Diff("t@1", "t@2", tuple(compare({"a": 1}, {"a": 1})))
    assert not none
    assert str(none) == "t@1 → t@2: 0 changes"
    some = Diff("t@1", "t@2", tuple(compare({"a": 1, "b": "x" * 500}, {"a": 2, "c": [{"id": "p"}]})))
    assert [change.kind for change in some] == ["changed", "removed", "added"]
    lines = str(some).splitlines()
    assert lines[0] == "t@1 → t@2: 3 changes"
    assert lines[1] == "  ~ a  1 → 2"
    assert len(lines[2]) < 90
    assert lines[3] == "  + c  [{'id': 'p'}]"


def test_a_blamed_list_says_what_differs_in_it() -> None:
    """Of two long lists the changes are told, not the beginnings of both; and how many more there are."""
    items = [{"id": n, "text": "old"} for n in range(9)]
    assert told("changed", items, [*items, {"id": 9}]) == "+ 9  {'id': 9}"
    assert told("changed", {"a": 1}, {"a": 2}) == "~ a  1 → 2"
    assert told("changed", items, []).count("- ") == 3
    assert told("changed", items, []).endswith("; … 6 more")
    assert told("changed", [1], "a") == "[1] → 'a'"
    assert told("changed", {1: "a", "1": "b"}, {1: "a", "1": "c"}) == "{1: 'a', '1': 'b'} → {1: 'a', '1': 'c'}"


def test_moves_are_as_few_as_can_be() -> None:
    """Bringing the last item to the front moves one, not all."""
    items = [{"id": n} for n in range(9)]
    assert paths(items, [items[-1], *items[:-1]]) == ["moved x.8"]


def test_who_finds_an_item_looks_no_further() -> None:
    """Of a long list no more is looked at than up to the item of the id; an item without one is found by its place."""

    class Unseen(dict[str, Any]):
        def get(self, key: str, default: Any = None) -> Any:
            raise AssertionError(key)

    assert look([{"id": "a"}, {"id": "b", "n": 1}, Unseen()], ["b", "n"]) == 1
    assert look([{"id": "a"}, 7], ["1"]) == 7
    assert look([{"id": "a"}, {"id": "b"}], ["1"]) is ABSENT
