"""How good and how fast slices are: `python -m benchmarks.slicing DATA.json --budget 2000 8000`.

DATA.json is in the format of LoCoMo (long conversations with questions, and for each question the turns that answer
it). Each turn is a fact, shown with its speaker and the caption of its picture; its session and date are its source.
Each question is a step. The score is the share of the answering turns that were chosen, averaged over the questions of
categories 1 to 4. `--embeddings module:factory` fuses the similarity that an embeddings model of LangChain's shape sees.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from graph_agent.slicing import Index, Item, select

Similarities = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Conversation:
    """Facts, and questions with the ids of the facts that answer them."""

    name: str
    facts: list[Item]
    questions: list[tuple[str, set[str]]]


def conversations(path: Path) -> list[Conversation]:
    """Read a file of LoCoMo's format."""
    return [conversation(record) for record in json.loads(path.read_text())]


def conversation(record: Mapping[str, Any]) -> Conversation:
    """Read one conversation; evidence that names no turn is skipped, and so is a question left without any."""
    facts = list(turns(record["conversation"]))
    known = {fact.id for fact in facts}
    questions = []
    for asked in record["qa"]:
        evidence = set(re.findall(r"D\d+:\d+", " ".join(map(str, asked.get("evidence", []))))) & known
        if asked["category"] in {1, 2, 3, 4} and evidence:
            questions.append((asked["question"], evidence))
    return Conversation(str(record.get("sample_id", "")), facts, questions)


def turns(sessions: Mapping[str, Any]) -> Iterator[Item]:
    """Make each turn a fact, numbered through all sessions."""
    position = 0
    for number in sorted(int(name.split("_")[1]) for name in sessions if re.fullmatch(r"session_\d+", name)):
        date = str(sessions.get(f"session_{number}_date_time", "")).split(" on ")[-1]
        for turn in sessions[f"session_{number}"]:
            text = f"{turn['speaker']}: {turn['text']}"
            if caption := turn.get("blip_caption"):
                text += f" [image: {caption}]"
            yield Item(turn["dia_id"], text, "turn", source=f"session {number}, {date}", position=position)
            position += 1


def similarities(talk: Conversation, model: Any) -> Similarities:
    """Let an embeddings model compare each question with each fact."""
    vectors = [unit(vector) for vector in model.embed_documents([fact.text for fact in talk.facts])]
    found = {}
    for question, _ in talk.questions:
        asked = unit(model.embed_query(question))
        cosines = [sum(a * b for a, b in zip(asked, vector, strict=True)) for vector in vectors]
        found[question] = {fact.id: cosine for fact, cosine in zip(talk.facts, cosines, strict=True)}
    return found


def unit(vector: Sequence[float]) -> list[float]:
    """Bring a vector to length one."""
    length = sum(x * x for x in vector) ** 0.5 or 1.0
    return [x / length for x in vector]


def recall(
    talk: Conversation, *, budget: int, newest: bool = False, near: Mapping[str, Similarities] | None = None
) -> list[float]:
    """Tell for each question which share of its evidence a slice shows."""
    index, found = Index(), []
    for question, evidence in talk.questions:
        similarity = near[talk.name][question] if near else None
        slice_ = select(talk.facts, "" if newest else question, budget, index=index, similarity=similarity)
        found.append(len({choice.item.id for choice in slice_.chosen} & evidence) / len(evidence))
    return found


def row(name: str, talks: Sequence[Conversation], measure: Callable[[Conversation], list[float]]) -> str:
    """Write one line of the table: over all questions, then by conversation."""
    found = [measure(talk) for talk in talks]
    overall = statistics.mean([share for shares in found for share in shares])
    return f"{name:<28}{overall:>8.3f}   " + "".join(f"{statistics.mean(shares):>9.3f}" for shares in found)


def speed(talks: Sequence[Conversation], count: int, rounds: int = 60) -> tuple[float, float]:
    """Time ranking and the whole selection in µs (medians), items made anew and one fact added before each, the index kept."""
    pool = [fact for talk in talks for fact in talk.facts]
    facts = [
        Item(
            f"{n}",
            pool[n % len(pool)].text,
            "turn",
            source=f"{n // len(pool)} {pool[n % len(pool)].source}",
            position=n,
        )
        for n in range(count + rounds)
    ]
    questions = [question for talk in talks for question, _ in talk.questions]
    index, ranking, selecting = Index(facts[:count]), [], []
    for n in range(rounds):
        shown = [replace(fact) for fact in facts[n + 1 : count + n + 1]]
        question = questions[n * len(questions) // rounds]
        start = time.perf_counter()
        index.update(shown)
        index.rank(question)
        ranked = time.perf_counter()
        select(shown, question, 8_000, index=index)
        ranking.append((ranked - start) * 1e6)
        selecting.append((time.perf_counter() - ranked) * 1e6)
    return statistics.median(ranking), statistics.median(selecting)


def load(factory: str) -> Any:
    """Make the embeddings model that `module:factory` names."""
    module, _, name = factory.partition(":")
    return getattr(importlib.import_module(module), name)()


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--budget", type=int, nargs="+", default=[2_000, 8_000])
    parser.add_argument("--embeddings", metavar="module:factory")
    options = parser.parse_args()
    talks = conversations(options.data)
    near = {}
    if options.embeddings:
        model = load(options.embeddings)
        near = {talk.name: similarities(talk, model) for talk in talks}
    print(f"{'evidence shown':<28}{'all':>8}   " + "".join(f"{talk.name:>9}" for talk in talks))
    for budget in options.budget:
        print(row(f"{budget:,} bytes, newest first", talks, partial(recall, budget=budget, newest=True)))
        print(row(f"{budget:,} bytes, words", talks, partial(recall, budget=budget)))
        if near:
            print(row(f"{budget:,} bytes, with meaning", talks, partial(recall, budget=budget, near=near)))
    for count in (700, 10_000):
        ranking, selecting = speed(talks, count)
        print(
            f"{count:>6,} items, index kept: updated and ranked in {ranking:,.0f} µs, selected in {selecting:,.0f} µs"
        )


if __name__ == "__main__":
    main()
