"""observe: results become facts and artifacts, each with its source, its trust and its step. Nothing else does that."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final, cast

from typing_extensions import TypedDict

from graph_agent.kit import Kit, Where
from graph_agent.nodes.act import ASK_USER, REPLAN
from graph_agent.nodes.road import Node
from graph_agent.patch import Patch, canonical, hashed
from graph_agent.slicing import utf8_bytes
from graph_agent.state import Call, outstanding

SUMMARY: Final = 300


class ObserveView(TypedDict, total=False):
    """What observing sees: calls and their results."""

    calls: list[dict[str, Any]]
    plan: list[dict[str, Any]]


async def observe(view: ObserveView, kit: Kit, where: Where) -> Patch:
    """Take in every result that was not taken in before."""
    del kit, where
    patch = Patch()
    calls = view.get("calls", [])
    for call in calls:
        if call.get("status") not in ("waiting", "approved", "retrying") and not call.get("seen"):
            patch = patch | _taken(cast("Call", call))
    if outstanding(calls):
        return patch
    return patch.set("phase", "reflecting")


def _taken(call: Call) -> Patch:
    """Take in one result: a working note that answers the call, an artifact, a fact."""
    note = {"id": f"n-{call['id']}-result", "role": "tool", "content": "", "tool_call_id": call["id"],
            "step": call.get("step", "")}  # fmt: skip
    patch = Patch().add("notes", note).add("calls", {"id": call["id"], "seen": True})
    if call["tool"] == ASK_USER:
        return patch | _heard(call)
    if call["tool"] == REPLAN:
        reason = call["args"].get("reason", "")
        return patch.fact(reason, source="act", step=call["step"], contradicts=call["step"] or "plan")
    if call.get("status") in ("done", "answered"):
        patch = patch | _learned(call)
    return patch | _written(call)


def _heard(call: Call) -> Patch:
    """Take in what the user said: part of the conversation, and a fact from the user."""
    if call.get("status") != "answered":
        return Patch()
    at = call.get("review", {}).get("at", "")
    asked = {"id": f"m-{call['id']}", "role": "assistant", "content": call["args"]["question"], "at": at}
    said = {"id": f"m-{call['id']}-answer", "role": "user", "content": call["result"], "at": at}
    text = f"{call['args']['question']} {call['result']}"
    return Patch().add("messages", asked, said).fact(text, source="user", trust="user", step=call["step"])


def _learned(call: Call) -> Patch:
    result = call.get("result", "")
    by_user = call.get("status") == "answered"
    trust = "user" if by_user else "tool"
    what = f"{call['tool']}({canonical(call['args'])})"
    whole = {"bytes": utf8_bytes(result), "hash": hashlib.sha256(result.encode()).hexdigest()}
    artifact = {
        "id": f"a-{call['id']}", "type": call["tool"], "summary": f"{what} → {_first(result)}",
        **({**call["body"], "beside": True} if "body" in call else whole), "source": call["id"],
        "trust": trust, "step": call["step"],
    }  # fmt: skip
    fact = {"id": f"f-{hashed(call['id'])}", "text": f"{what} → {_first(result)}", "source": call["tool"],
            "trust": trust, "step": call["step"]}  # fmt: skip
    return Patch().add("artifacts", artifact).add("facts", fact)


def _written(call: Call) -> Patch:
    """Take in what the tool itself wrote; what it says came from a tool, whatever it claims."""
    own = call.get("patch")
    if not own:
        return Patch()
    changes: dict[str, Any] = dict(own["changes"])
    for key, labelled in (("facts", _labelled), ("artifacts", _labelled), ("messages", _spoken), ("notes", _noted)):
        if key in changes:
            changes[key] = [labelled(record, call) for record in changes[key]]
    return Patch(changes, own["counts"])


def _spoken(record: Mapping[str, Any], call: Call) -> dict[str, Any]:
    """Say who speaks: a tool never does in the user's name."""
    said = f"({call['tool']}) {record['content']}" if "content" in record else None
    return {**record, "role": "assistant", **({"content": said} if said else {})}


def _noted(record: Mapping[str, Any], call: Call) -> dict[str, Any]:
    return {**_spoken(record, call), "step": record.get("step") or call["step"]}


def _labelled(record: Mapping[str, Any], call: Call) -> dict[str, Any]:
    trust = record.get("trust", "tool")
    given = "untrusted" if trust == "untrusted" else "tool"
    source = record.get("source") or call["tool"]
    return {**record, "trust": given, "step": record.get("step") or call["step"],
            "source": call["tool"] if source in ("agent", "user") else source}  # fmt: skip


def _first(text: str) -> str:
    return text if len(text) <= SUMMARY else f"{text[:SUMMARY]}…"


OBSERVE = Node("observe", observe, ObserveView, works_in="executing")
