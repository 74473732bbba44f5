"""A slice shows what matters, within its budget, says why, and counts what it leaves out."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from graph_agent.slicing import Choice, Index, Item, Selection, Tier, select, utf8_bytes
from graph_agent.slicing.cutting import NO_MARK, cut, shares

WORDS = ("adopt", "adopted", "agency", "green", "build", "Ada", "the", "Zürich", "read_file", "2023", "", "?", "\ud800")
texts = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)
queries = st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join)
budgets = st.integers(0, 400)


def words_of(text: str) -> int:
    """Measure as a tokenizer might: in pieces, not in characters."""
    return len(text.split())


sizes = st.sampled_from([utf8_bytes, len, words_of])


@st.composite
def many_items(draw, tiers=tuple(Tier)) -> list[Item]:
    ids = draw(st.lists(st.integers(0, 30).map(str), unique=True, max_size=12))
    labels = st.sampled_from(["", "Ada: ", "build status: "])
    return [
        Item(
            id=key,
            text=draw(labels) + draw(texts) * draw(st.sampled_from([1, 1, 1, 20])),
            kind=draw(st.sampled_from(["goal", "constraint", "fact", "artifact"])),
            tier=draw(st.sampled_from(tiers)),
            source=draw(st.sampled_from(["", "notes.md", "session 1, 8 May 2023"])),
            position=draw(st.integers(0, 9)),
        )
        for key in ids
    ]


def similar(ids: list[str]) -> dict[str, float]:
    return {key: math.cos(int(key)) for key in ids}


def facts(*texts: str, source: str = "") -> list[Item]:
    return [Item(f"f{n}", text, "fact", source=source, position=n) for n, text in enumerate(texts)]


def shown(selection: Selection) -> list[str]:
    return [choice.item.id for choice in selection.chosen]


def why(selection: Selection, key: str) -> str:
    return next(choice.reason for choice in selection.chosen if choice.item.id == key)


@given(many_items(), queries, budgets, sizes, st.booleans())
def test_every_slice_keeps_the_laws(items, query, budget, size, meaning) -> None:
    similarity = similar([item.id for item in items]) if meaning else None
    slice_ = select(items, query, budget, size=size, similarity=similarity)
    left, by_id = slice_.left_out, {item.id: item for item in items}
    assert slice_.size == sum(size(choice.text) for choice in slice_.chosen) <= slice_.budget == budget
    assert sorted([*shown(slice_), *left.ids]) == sorted(by_id)
    assert left.count == len(left.ids) == sum(left.why.values())
    assert left.size == sum(size(by_id[key].text) for key in left.ids)
    assert all(choice.reason for choice in slice_.chosen)
    for choice in slice_.chosen:
        assert choice.text == choice.item.text or ("bytes cut]" in choice.text and "cut to fit" in choice.reason)
        assert choice.text == choice.item.text or choice.item.tier is not Tier.RELEVANT
    order = [(choice.item.tier, choice.item.position, choice.item.id) for choice in slice_.chosen]
    assert order == sorted(order)


@given(many_items(), queries, budgets, st.randoms(use_true_random=False))
def test_the_order_of_the_items_does_not_matter(items, query, budget, random) -> None:
    mixed = random.sample(items, len(items))
    assert select(mixed, query, budget) == select(items, query, budget)


@given(many_items(), queries, budgets)
def test_choosing_again_from_what_was_chosen_chooses_the_same(items, query, budget) -> None:
    once = select(items, query, budget)
    assume(NO_MARK not in once.left_out.why)
    again = select([choice.item for choice in once.chosen], query, budget)
    assert shown(again) == shown(once)
    assert again.left_out.count == 0


@given(st.lists(st.tuples(many_items(), queries), min_size=1, max_size=5), budgets, st.booleans())
def test_a_kept_index_changes_nothing(steps, budget, meaning) -> None:
    index = Index()
    for items, query in steps:
        similarity = similar([item.id for item in items]) if meaning else None
        kept = select(items, query, budget, index=index, similarity=similarity)
        assert kept == select(items, query, budget, similarity=similarity)
        assert len(index) == sum(item.tier is Tier.RELEVANT for item in items)


@given(many_items(tiers=[Tier.RELEVANT]), many_items(tiers=[Tier.RELEVANT]), queries)
def test_an_index_forgets_completely(first, second, query) -> None:
    index = Index(first)
    index.update(second)
    assert index.scores(query) == Index(second).scores(query)
    index.update([])
    assert index.scores(query) == {}
    index.update(first)
    assert index.scores(query) == Index(first).scores(query)


@given(many_items(tiers=[Tier.ALWAYS]), st.integers(0, 400))
def test_what_is_always_shown_is_cut_before_it_is_dropped(items, extra) -> None:
    room_for_marks = 2 * sum(min(utf8_bytes(item.text), 40) for item in items) + 80
    slice_ = select(items, "", room_for_marks + extra)
    assert slice_.left_out.count == 0


@given(texts, st.integers(0, 200), sizes)
def test_a_cut_text_fits_and_says_how_much_is_missing(text, room, size) -> None:
    short = cut(text, room, size=size)
    if short is None:
        assert size(text) > room
    else:
        assert size(short) <= room
        kept, mark, rest = short.rpartition("… [")
        assert short is text or (mark and text.startswith(kept))
        assert short is text or int(rest.split()[0]) == utf8_bytes(text) - utf8_bytes(kept)


@given(st.lists(st.integers(0, 100)), st.integers(0, 500))
def test_shares_are_fair(wishes, room) -> None:
    given_ = shares(wishes, room)
    assert sum(given_) <= room
    assert all(0 <= share <= wish for share, wish in zip(given_, wishes, strict=True))
    wanting = [share for share, wish in zip(given_, wishes, strict=True) if share < wish]
    assert not wanting or (max(given_) - min(wanting) <= 1 and room - sum(given_) < 1)


def test_matches_come_first_and_name_the_words_of_the_query() -> None:
    items = facts("The dog barked.", "She visited two adoption agencies.", "Nothing happened here.")
    slice_ = select(items, "Which agency did she adopt from?", 40)
    assert shown(slice_) == ["f1"]
    assert why(slice_, "f1") == "matches 'agency', 'adopt' (rank 1)"
    assert slice_.left_out.why == {"no room left after better matches": 2}
    elsewhere = [dataclasses.replace(item, source=item.id) for item in items]
    assert select(elsewhere, "agency", 40).left_out.why == {"no room left, and no match": 2}


def test_a_rare_word_counts_more_than_a_common_one() -> None:
    items = facts(*["the build is red"] * 5, "the linker is red")
    scores = Index(items).scores("build linker")
    assert max(scores, key=scores.__getitem__) == "f5"


def test_the_answer_next_to_the_question_is_shown() -> None:
    items = [*facts("Hello.", "Do you like pottery?", "I love it!", source="chat"), Item("x", "I love it!", "fact")]
    slice_ = select(items, "pottery", 30)
    assert shown(slice_) == ["f1", "f2"]
    assert why(slice_, "f2") == "next to fact f1 which matches 'pottery' (rank 2)"
    assert slice_.left_out.ids == ("f0", "x")


def test_what_bears_the_name_in_the_query_is_preferred() -> None:
    items = facts("Ada: I paint, says Bob.", "Bob: I paint, says Ada.", "Bob: fine.")
    scores = Index([dataclasses.replace(item, source=item.id) for item in items]).scores("What does Bob paint?")
    assert scores["f1"] > scores["f0"]


def test_the_source_may_match() -> None:
    items = [Item("a", "It went well.", "fact", source="8 May 2023"), Item("b", "It went well.", "fact", source="June")]
    slice_ = select(items, "What happened in June?", 15)
    assert shown(slice_) == ["b"]
    assert why(slice_, "b") == "its source matches 'june' (rank 1)"


@pytest.mark.parametrize("query", ["", "what was that?", "zebra"])
def test_without_a_match_the_newest_come_first(query) -> None:
    slice_ = select(facts("one", "two", "three", "four"), query, 9)
    assert shown(slice_) == ["f2", "f3"]
    assert {choice.reason for choice in slice_.chosen} == {"recent"}


def test_of_equals_the_newer_wins_then_the_id() -> None:
    same = [Item("b", "red", "fact", position=1), Item("a", "red", "fact", position=1), Item("c", "red", "fact")]
    assert shown(select(same, "red", 3)) == ["a"]
    assert shown(select(same, "red", 6)) == ["a", "b"]


def test_what_is_too_large_makes_way() -> None:
    items = facts("green " * 50, "green", "green " * 3)
    slice_ = select(items, "green", 30)
    assert shown(slice_) == ["f1", "f2"]
    assert slice_.left_out.why == {"larger than all the room there was": 1}


def test_meaning_finds_what_words_do_not() -> None:
    items = facts("The kitten slept.", "Stocks fell.", "Rain again.")
    slice_ = select(items, "cat", 20, similarity={"f0": 0.8, "f1": 0.1, "f2": 0.2, "gone": 1.0})
    assert shown(slice_) == ["f0"]
    assert why(slice_, "f0") == "similar in meaning (rank 1)"


def test_similarities_that_are_no_numbers_are_ignored() -> None:
    items = facts("one", "two")
    assert select(items, "one", 3, similarity={"f1": math.nan}) == select(items, "one", 3)


def test_tiers_fill_in_their_order() -> None:
    items = [
        Item("fact", "adopt a plan", "fact"),
        Item("log", "exit 1", "artifact", Tier.STEP),
        Item("goal", "ship it", "goal", Tier.ALWAYS),
    ]
    slice_ = select(items, "adopt", 18)
    assert [(choice.item.id, choice.reason) for choice in slice_.chosen] == [
        ("goal", "always: goal"),
        ("log", "artifact of the current step"),
    ]
    assert shown(select(items, "adopt", 100)) == ["goal", "log", "fact"]


def test_a_long_goal_leaves_room_for_the_constraints() -> None:
    items = [Item("g", "g" * 500, "goal", Tier.ALWAYS), Item("c", "never push", "constraint", Tier.ALWAYS)]
    goal, constraint = sorted(select(items, "", 200).chosen, key=lambda choice: choice.item.id, reverse=True)
    assert constraint.text == "never push"
    assert goal.text.endswith(" bytes cut]")
    assert goal.reason == "always: goal, cut to fit"
    assert utf8_bytes(goal.text) == 190


def test_a_large_artifact_leaves_room_for_facts() -> None:
    items = [Item("big", "x" * 9_000, "artifact", Tier.STEP), *facts(*["the build is green"] * 100)]
    slice_ = select(items, "build", 1_000)
    assert 700 < utf8_bytes(slice_.chosen[0].text) <= 750
    assert len(slice_.chosen) > 10


def test_old_artifacts_go_before_all_are_crumbs() -> None:
    items = [Item(f"a{n}", "x" * 500, "artifact", Tier.STEP, position=n) for n in range(50)]
    slice_ = select(items, "", 1_000)
    assert all(utf8_bytes(choice.text) >= 180 for choice in slice_.chosen)
    assert slice_.chosen[-1].item.id == "a49"
    assert slice_.left_out.count == 50 - len(slice_.chosen)


def test_an_id_names_one_item() -> None:
    with pytest.raises(ValueError, match="two items have the same id"):
        select([Item("a", "x", "fact"), Item("a", "y", "fact")], "", 10)
    with pytest.raises(ValueError, match="two items have the same id"):
        Index([Item("a", "x", "fact"), Item("a", "y", "fact")])


def test_a_choice_is_a_value() -> None:
    item = Item("a", "x", "fact")
    assert Choice(item, "x", "recent") == Choice(item, "x", "recent")
    assert select([], "anything", 10) == Selection((), select([], "", 0).left_out, 0, 10)
