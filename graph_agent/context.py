"""What a model is sent: a prompt, a window of what was said and called, a slice of the state; and how to show it again.

A decision does not keep the text it was made from, which is in the state already, but where each part came from. The
same messages can be put together again at any time from the checkpoint that the decision names; a digest proves it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, Final

from graph_agent.patch import canonical, hashed
from graph_agent.policies import Context
from graph_agent.prompts import rendered
from graph_agent.slicing import Choice, Index, Item, Message, Selection, Tier, Window, select, utf8_bytes, window
from graph_agent.slicing.cutting import cut, cut_mark
from graph_agent.state import PlanStep, Saw, current_step

SLICE_SHARE: Final = 0.5
NOTE_BYTES: Final = 1_500
OVER: Final = "no room left for artifacts"
INDEXES_KEPT: Final = 32
HEADINGS: Final = {
    "goal": "Goal", "constraint": "Constraints", "plan": "Plan", "plan_step": "Current step",
    "question": "Open questions", "risk_flag": "Risk flags", "artifact": "Artifacts of this step", "fact": "Facts",
}  # fmt: skip
View = Mapping[str, Any]
Similar = Callable[[str, Sequence[Item]], Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Composed:
    """The messages for a model, and the record of what they were made of."""

    messages: list[Message]
    saw: Saw
    prompt: str
    selection: Selection
    window: Window


@dataclass(slots=True)
class Composer:
    """Puts together what a model is sent; keeps an index between calls, which only saves time."""

    context: Context
    similar: Similar | None = None
    indexes: OrderedDict[str, Index] = field(default_factory=OrderedDict)
    lock: Lock = field(default_factory=Lock)

    def compose(
        self, view: View, template: str, *, thread: str, max_artifact_bytes: int, shrink: float = 1.0
    ) -> Composed:
        """Put the messages together; `shrink` makes them fewer after a model refused them as too long."""
        budget = round((self.context.tokens or self.context.bytes) * shrink)
        said, whole = _said(view), items_of(view)
        shown = window(said, round(budget * (1 - SLICE_SHARE)), keep_turns=self.context.turns, size=self._size)
        query = _query(view)
        items = _limited(whole, max_artifact_bytes)
        similarity = self.similar(query, items) if self.similar else None
        room = max(0, budget - shown.size)
        with self.lock:
            chosen = select(items, query, room, size=self._size, index=self._index(thread), similarity=similarity)
        texts = {item.id: item.text for item in whole}
        over = {OVER: len(whole) - len(items)} if len(items) < len(whole) else {}
        lost = self._artifacts_size(whole) - self._artifacts_size(items)
        saw: Saw = {
            "prompt": hashed(template),
            "items": [[c.item.kind, c.item.id, c.reason, _kept(c.text, texts[c.item.id])] for c in chosen.chosen],
            "window": _record(shown, said),
            "summary": next((str(m["content"]) for m in shown.messages if m["id"] == "earlier"), ""),
            "left_out": {**chosen.left_out.why, **over},
            "left_out_bytes": chosen.left_out.size + shown.left_out.size + lost,
            "budget": budget,
        }
        messages = _assembled(view, saw, template, items=whole, said=said)
        return Composed(messages, {**saw, "digest": digest_of(messages)}, template, chosen, shown)

    def _size(self, text: str) -> int:
        """Measure in the unit of the budget; a token is taken for four bytes, and `shrink` corrects that."""
        return -(-utf8_bytes(text) // 4) if self.context.tokens else utf8_bytes(text)

    def _artifacts_size(self, items: Iterable[Item]) -> int:
        return sum(self._size(item.text) for item in items if item.kind == "artifact")

    def _index(self, thread: str) -> Index:
        """Give the index of a thread's facts; the thread not asked for longest loses its own."""
        index = self.indexes.setdefault(thread, Index())
        self.indexes.move_to_end(thread)
        if len(self.indexes) > INDEXES_KEPT:
            self.indexes.popitem(last=False)
        return index


def again(view: View, saw: Saw, template: str) -> list[Message]:
    """Put the messages of a past decision together again, from the state it was made from."""
    return _assembled(view, saw, template, items=items_of(view), said=_said(view))


def _assembled(view: View, saw: Saw, template: str, *, items: Iterable[Item], said: Iterable[Message]) -> list[Message]:
    """Put the parts in order, what never changes first, the situation last; texts are cut here, from the whole."""
    known = {(item.kind, item.id): item for item in items}
    chosen = [
        Choice(known[kind, key], _cut(known[kind, key].text, kept), reason)
        for kind, key, reason, kept in saw.get("items", [])
        if (kind, key) in known
    ]
    spoken = {message["id"]: message for message in said}
    spoken["earlier"] = {"id": "earlier", "role": "user", "content": saw.get("summary", "")}
    shown = [
        {**spoken[key], "role": role, "content": _cut(spoken[key]["content"], kept)}
        for key, role, kept in saw.get("window", [])
        if key in spoken
    ]
    situation = _situation(chosen, saw.get("left_out", {}))
    prompt: Message = {"id": "prompt", "role": "system", "content": rendered(template, view)}
    return [prompt, *shown, {"id": "situation", "role": "user", "content": situation}]


def digest_of(messages: Sequence[Message]) -> str:
    """Give what tells whether messages are exactly those."""
    spoken = [[m["role"], m["content"], m.get("tool_calls"), m.get("tool_call_id")] for m in messages]
    return hashed(canonical(spoken), length=16)


def items_of(view: View) -> list[Item]:
    """Give everything of a view that may be shown."""
    step = current_step(view.get("plan", ())) or {"id": ""}
    always = [*_goal(view), *_plan(view.get("plan", ()), step)]
    always += [
        Item(q["id"], q["text"], "question", Tier.ALWAYS)
        for q in view.get("questions", ())
        if q.get("status") == "open"
    ]
    always += [
        Item(f["id"], f["text"], "risk_flag", Tier.ALWAYS) for f in view.get("risk_flags", ()) if f.get("raised")
    ]
    facts = [
        Item(fact["id"], _labelled(fact), "fact", Tier.RELEVANT, fact.get("source", ""), position)
        for position, fact in enumerate(view.get("facts", ()))
    ]
    return list(_distinct([*always, *_artifacts(view, step["id"]), *facts]))


def _distinct(items: Iterable[Item]) -> Iterator[Item]:
    """Give each item an id of its own: a fact may be called "plan" without standing in the plan's way."""
    taken: set[str] = set()
    for item in items:
        yield replace(item, id=f"{item.kind}:{item.id}") if item.id in taken else item
        taken.add(item.id)


def _goal(view: View) -> list[Item]:
    goal = [Item("goal", view.get("goal", ""), "goal", Tier.ALWAYS)] if view.get("goal") else []
    limits = view.get("constraints", ())
    return [*goal, *(Item(f"constraint-{n}", text, "constraint", Tier.ALWAYS) for n, text in enumerate(limits))]


def _plan(plan: Sequence[PlanStep], current: PlanStep) -> list[Item]:
    live = [step for step in plan if step.get("status") != "dropped"]
    lines = [f"{_mark(step, current)} {step.get('title', '')}{_result(step)}" for step in live]
    shown = [Item("plan", "\n".join(lines), "plan", Tier.ALWAYS)] if lines else []
    if current.get("title"):
        detail = f": {current['detail']}" if current.get("detail") else ""
        shown.append(Item(current["id"], f"{current['title']}{detail}", "plan_step", Tier.ALWAYS))
    return shown


def _mark(step: PlanStep, current: PlanStep) -> str:
    if step.get("status") == "done":
        return "[x]"
    return "[>]" if step["id"] == current["id"] else "[ ]"


def _result(step: PlanStep) -> str:
    return f" → {step['result'][:200]}" if step.get("result") else ""


def _artifacts(view: View, step: str) -> list[Item]:
    """Give the artifacts of the current step; a short one is whole among the working notes already."""
    results = {call["id"]: call.get("result", "") for call in view.get("calls", ())}
    items = []
    for position, artifact in enumerate(view.get("artifacts", ())):
        text = artifact.get("text") or results.get(artifact.get("source", ""), "")
        if artifact.get("step", "") == step and utf8_bytes(text) > NOTE_BYTES:
            size = f", {artifact['bytes']} bytes" if artifact.get("beside") else ""
            label = f"[{artifact['id']}, {artifact.get('trust', 'untrusted')}{size}] "
            items.append(Item(artifact["id"], label + text, "artifact", Tier.STEP, position=position))
    return items


def _limited(items: Sequence[Item], room: int) -> list[Item]:
    """Hold artifacts to the bytes they may take, the newest first in line, one that does not fit cut.

    Less of it than the working notes have already would tell nothing.
    """
    kept = []
    for item in reversed(items):
        text: str | None = item.text
        if item.kind == "artifact":
            text = cut(item.text, room) if room > NOTE_BYTES else None
            room -= utf8_bytes(text or "")
        if text is not None:
            kept.append(item if text is item.text else replace(item, text=text))
    return kept[::-1]


def _labelled(fact: Mapping[str, Any]) -> str:
    trust = fact.get("trust", "agent")
    label = f" ({trust}: {fact.get('source', '')})" if trust in ("tool", "untrusted") else ""
    return f"{fact['text']}{label}"


def _query(view: View) -> str:
    step = current_step(view.get("plan", ()))
    return f"{step.get('title', '')} {step.get('detail', '')}" if step else view.get("goal", "")


def _said(view: View) -> list[Message]:
    """Give the conversation, then the working notes of the current step; of the whole plan once it is done."""
    plan = view.get("plan", ())
    step = current_step(plan)
    following = {step["id"]} if step else {step["id"] for step in plan if step.get("status") != "dropped"}
    following.add("")  # a note of no step is of all
    results = {call["id"]: _outcome(call) for call in view.get("calls", ())}
    notes = [
        {**_plain(note), "content": _told(results[note["tool_call_id"]], note["tool_call_id"])}
        if note.get("tool_call_id") in results
        else _plain(note)
        for note in view.get("notes", ())
        if note.get("step", "") in following
    ]
    return [*map(_plain, view.get("messages", ())), *notes]


def _outcome(call: Mapping[str, Any]) -> str:
    """Give a result, and how it came about if the call was not simply made."""
    rule = f"\n({call['rule']})" if call.get("rule") else ""
    return f"{call.get('result', '')}{rule}"


def _told(result: str, call: str) -> str:
    """Give a result as the notes have it: whole if it is short, else its beginning."""
    if utf8_bytes(result) <= NOTE_BYTES:
        return result
    return f"{cut(result, NOTE_BYTES)} (artifact a-{call})"


def _plain(record: Mapping[str, Any]) -> Message:
    return {key: record[key] for key in ("id", "role", "content", "tool_calls", "tool_call_id") if key in record}


def _situation(chosen: Sequence[Choice], left_out: Mapping[str, int]) -> str:
    parts = []
    for kind, heading in HEADINGS.items():
        texts = [choice.text for choice in chosen if choice.item.kind == kind]
        if texts:
            lines = texts if kind in ("goal", "plan", "plan_step", "artifact") else [f"- {text}" for text in texts]
            parts.append(f"## {heading}\n" + "\n".join(lines))
    if left_out:
        parts.append("## Left out\n" + "\n".join(f"- {count}: {why}" for why, count in left_out.items()))
    return "\n\n".join(parts) or "(nothing is known yet)"


def _record(shown: Window, said: Sequence[Message]) -> list[list[Any]]:
    whole = {message["id"]: message for message in said}
    return [
        [m["id"], m["role"], _kept(m["content"], whole[m["id"]]["content"]) if m["id"] in whole else None]
        for m in shown.messages
    ]


def _kept(shown: str, whole: str) -> int | None:
    """Give how many characters of a text are shown before the mark, None for all."""
    return None if shown == whole else shown.rindex("… [")


def _cut(text: str, kept: int | None) -> str:
    return text if kept is None else text[:kept] + cut_mark(utf8_bytes(text) - utf8_bytes(text[:kept]))
