"""Large texts stand beside the state by the hash of their content; the state has their beginning, and says where.

What a model is shown of one is read when it is asked: no more of it than it may be shown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from graph_agent.context import NOTE_BYTES
from graph_agent.patch import Patch
from graph_agent.slicing import utf8_bytes
from graph_agent.slicing.cutting import cut_mark
from graph_agent.state import Artifact, current_step

SUMMARY: Final = 300
EXCERPT: Final = 1_400  # with its mark and the artifact's name it stays within NOTE_BYTES, so a note shows it whole
View = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Kept:
    """A text as the state has it: whole, or its beginning, with the hash and size of the body that is kept beside."""

    text: str
    body: dict[str, Any] | None = None
    data: bytes = b""

    @property
    def bodies(self) -> list[bytes]:
        """Give what is to be kept."""
        return [self.data] if self.body else []


def kept(text: str, name: str, *, limit: int) -> Kept:
    """Take a text whole if it is short enough, else its beginning."""
    if utf8_bytes(text) <= limit:
        return Kept(text)
    data = text.encode()
    body = {"hash": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    return Kept(f"{beginning(data[:EXCERPT], len(data))} (artifact {name})", body, data)


def beside(patch: Patch, *, limit: int) -> tuple[Patch, list[bytes]]:
    """Take the long texts of the artifacts in a patch out of it, to be kept beside the state."""
    artifacts, bodies = [], []
    for artifact in patch.changes.get("artifacts", ()):
        short = kept(artifact.get("text") or "", artifact["id"], limit=limit)
        if short.body:
            rest = {name: value for name, value in artifact.items() if name != "text"}
            artifact = {"summary": short.text[:SUMMARY], **rest, **short.body, "beside": True}  # noqa: PLW2901
        artifacts.append(artifact)
        bodies += short.bodies
    return (patch.set("artifacts", artifacts) if bodies else patch), bodies


def referred(*, artifacts: Sequence[View] = (), calls: Sequence[View] = ()) -> set[str]:
    """Name the bodies that artifacts, and calls with what their tools wrote, refer to."""
    own = [one for call in calls for one in (call.get("patch") or {}).get("changes", {}).get("artifacts", ())]
    names = {one["hash"] for one in (*artifacts, *own) if one.get("beside")}
    return names | {call["body"]["hash"] for call in calls if call.get("body")}


def beginning(data: bytes, whole: int) -> str:
    """Give the text that a body begins with, and how much of it is missing."""
    text = data.decode("utf-8", "ignore")
    missing = whole - utf8_bytes(text)
    return text + cut_mark(missing) if missing else text


def wanted(view: View, room: int) -> list[Artifact]:
    """Name the artifacts beside the state that a model may be shown: those of the current step that there is room for.

    The newest come first in line; less of one than the working notes have already would tell nothing.
    """
    step = (current_step(view.get("plan", ())) or {"id": ""})["id"]
    found: list[Artifact] = []
    for artifact in reversed(view.get("artifacts", ())):
        if room <= NOTE_BYTES:
            break
        if artifact.get("beside") and artifact.get("step", "") == step:
            found.append(artifact)
            room -= artifact.get("bytes", 0)
    return found


def with_texts(view: View, texts: Mapping[str, str]) -> View:
    """Give a view in which these artifacts have their text."""
    if not texts:
        return view
    artifacts: Sequence[Any] = view["artifacts"]
    return {**view, "artifacts": [{**a, "text": texts[a["id"]]} if a["id"] in texts else a for a in artifacts]}
