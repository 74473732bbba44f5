"""What a timeline, a step of it and a slice show of themselves: phases, decisions, tools, failures, tokens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from checkpointers.drawing import history_card, marks_of, state_block, step_card
from checkpointers.paths import ABSENT
from checkpointers.show.cards import Block, Card, Chip, Rows, Values, Words, cut, some
from checkpointers.show.strip import DRAWN, Mark
from checkpointers.show.text import amount
from checkpointers.threads import StepInfo

if TYPE_CHECKING:
    from graph_agent.history import Moment, Shown, Steps, Timeline

TIPS: Final = 12
LISTED: Final = 40
MESSAGES: Final = 40


def marks(timeline: Steps) -> list[Mark]:
    """Make the marks of a thread from its newest states alone: each decision knows the checkpoint it was made from."""
    known = told_of(timeline)
    return marks_of(timeline, lambda info: known.get(info.id, {}))


def told_of(timeline: Steps) -> dict[str, dict[str, Any]]:
    """Give, by checkpoint, what was decided, what failed, what it cost, and the phase."""
    known: dict[str, dict[str, Any]] = defaultdict(dict)
    for tip in _tips(timeline):
        chain = _chain(timeline, tip)
        after = {info.parent_id: info.id for info in chain if info.parent_id}
        for channel in ("decisions", "failures"):
            for record in _records(timeline.value_of(tip, channel)):
                source = _source(record)
                if source in after:
                    _add(known[after[source]], record)
    _add_phases(timeline, known)
    return known


def _tips(timeline: Steps) -> list[StepInfo]:
    """Give the newest step of each branch, the head first."""
    infos = list(timeline.infos.values())[-DRAWN:]
    parents = {info.parent_id for info in infos}
    return [info for info in reversed(infos) if info.id not in parents][:TIPS]


def _chain(timeline: Steps, info: StepInfo | None) -> list[StepInfo]:
    chain: dict[str, StepInfo] = {}
    while info is not None and info.id not in chain:
        chain[info.id] = info
        info = timeline.parent(info)
    return list(chain.values())


def _records(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _source(record: Mapping[str, Any]) -> Any:
    place = record.get("saw") or record.get("snapshot")
    return place.get("checkpoint") if isinstance(place, Mapping) else None


def _add(known: dict[str, Any], record: Mapping[str, Any]) -> None:
    if "error" in record:
        error = record["error"] if isinstance(record["error"], Mapping) else {}
        known |= {"kind": "failure", "told": f"{error.get('type', '')}: {error.get('message', '')}"}
        return
    tokens = record.get("tokens") or {}
    known["tokens"] = int(sum(tokens.get(name) or 0 for name in ("input", "output")))
    known.setdefault("told", str(record.get("chose", "")))


def _add_phases(timeline: Steps, known: dict[str, dict[str, Any]]) -> None:
    """Read the phase where it was written, and carry it on along each branch."""
    phases: dict[str | None, str] = {}
    for info in list(timeline.infos.values())[-DRAWN:]:
        parent = timeline.parent(info)
        version = info.versions.get("phase")
        carried = phases.get(info.parent_id)
        if carried is None or parent is None or version != parent.versions.get("phase"):
            value = timeline.value_of(info, "phase") if version is not None else ABSENT
            carried = value if isinstance(value, str) else ""
        phases[info.id] = carried
        known[info.id]["phase"] = "waiting" if info.status == "waiting" else carried


def timeline_card(timeline: Timeline) -> Card:
    """Show the thread of an agent."""
    return history_card(timeline, marks(timeline._timeline), kind="thread")  # noqa: SLF001  what it is made of


def moment_card(moment: Moment) -> Card:
    """Show a step of an agent: what was decided and why, what it changed, what the model had seen."""
    patch = moment.patch
    card, decisions, saw = step_card(moment, patch), moment.decisions, moment.saw
    failures = patch.get("failures") or ()
    rest = {
        key: value for key, value in patch.items() if key not in ("decisions", "failures") and value not in ([], {})
    }
    troubles: list[Block] = [block for block in card.blocks if getattr(block, "label", "") in ("asks", "failed")]
    return Card(card.title, card.kind, card.status, card.facts, some(
        *troubles, *(_decision(one) for one in decisions[:TIPS]), *(_failure(one) for one in failures[:TIPS]),
        Values("wrote", rest) if rest else None if decisions else Words("", "nothing of the state changed"),
        shown_card(saw) if saw else None, state_block(moment.values),
    ), card.note)  # fmt: skip


def _decision(decision: Mapping[str, Any]) -> Rows:
    tokens = decision.get("tokens") or {}
    cost = f"{tokens.get('input', 0):,} in, {tokens.get('output', 0):,} out" if tokens else ""
    rows = [
        ("chose", decision.get("chose", "")),
        ("why", decision.get("why", "")),
        ("by", decision.get("model", "")),
        ("tokens", cost),
    ]
    return Rows(f"decision of {decision.get('node', '')}", ("", ""), [row for row in rows if row[1]])


def _failure(failure: Mapping[str, Any]) -> Words:
    error = failure.get("error") or {}
    return Words("failed", f"{error.get('type', '')}: {error.get('message', '')}", tone="bad")


def shown_card(shown: Shown) -> Card:
    """Show a slice: each item with its reason, what was left out, and the messages as the model had them."""
    size = sum(len(str(message["content"]).encode(errors="replace")) for message in shown.messages)
    items, hidden = cut(shown.items, LISTED)
    messages, more = cut(shown.messages, MESSAGES)
    facts = (
        ("items", f"{len(shown.items):,}"),
        ("messages", f"{len(shown.messages):,}"),
        ("size", amount(size, "byte")),
        ("budget", f"{shown.budget:,}" if shown.budget else None),  # beside the prompt and headings; bytes, or tokens
    )
    left = [(kind, count) for kind, count in shown.left_out.items()]
    return Card("what the model was shown", "slice", "exact" if shown.exact else "not exact", facts, some(
        Rows("in it", ("kind", "item", "why"), items, hidden, "item", folded=len(items) > TIPS) if items else None,
        Rows(f"left out: {amount(shown.left_out_bytes, 'byte')}", ("kind", "items"), left) if left else None,
        Rows("messages", ("role", "text"), [_message(one) for one in messages], more, "message"),
    ))  # fmt: skip


def _message(message: Mapping[str, Any]) -> tuple[Any, ...]:
    content, calls = message.get("content", ""), message.get("tool_calls")
    text = content if isinstance(content, str) else str(content)
    return Chip(str(message.get("role", ""))), text or ({"calls": calls} if calls else "")


def new_bytes(timeline: Steps, infos: Iterable[StepInfo]) -> list[int]:
    """Give how many bytes of text each step added or changed, as JSON has them; it loads what was written."""
    return [sum(_grown(timeline, info, channel) for channel in _rewrote(timeline, info)) for info in infos]


def _rewrote(timeline: Steps, info: StepInfo) -> Sequence[str]:
    parent = timeline.parent(info)
    before = parent.versions if parent else {}
    return [
        name
        for name, version in info.versions.items()
        if before.get(name) != version and ":" not in name and not name.startswith("__")
    ]


def _grown(timeline: Steps, info: StepInfo, channel: str) -> int:
    parent, after = timeline.parent(info), timeline.value_of(info, channel)
    before = timeline.value_of(parent, channel) if parent else ABSENT
    if isinstance(after, list):
        old = before if isinstance(before, list) else []
        return sum(_weight(one) for place, one in enumerate(after) if place >= len(old) or old[place] != one)
    return 0 if after is ABSENT or after == before else _weight(after)


def _weight(value: Any) -> int:
    import json  # noqa: PLC0415  only for plots

    return len(json.dumps(value, default=repr, ensure_ascii=False).encode(errors="replace"))
