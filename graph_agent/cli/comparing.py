"""Commands that put two states, or two runs, side by side: diff, compare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from graph_agent.cli import desk, paper
from graph_agent.cli.desk import Address, Db, Json

if TYPE_CHECKING:
    from checkpointers.comparing import Pair
    from checkpointers.step import Step


def diff(
    before: Address,
    after: Annotated[str, typer.Argument(help="Another step, of the same thread or of another; @N for the same.")],
    db: Db = desk.DEFAULT_DB,
    stat: Annotated[bool, typer.Option("--stat", help="Only how many changes each channel has.")] = False,
    json_patch: Annotated[bool, typer.Option("--json-patch", help="As JSON Patch: it makes the second of the first.")]
    = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Say what changed between two steps; items of lists are matched by their ids."""
    import json

    from checkpointers.comparing import diff_of

    found = diff_of(*desk.steps(db, before, after))
    if json_patch:
        print(json.dumps(found.json_patch(), allow_nan=False))
    elif stat:
        rows = [(name, one.added, one.removed, one.changed, one.moved) for name, one in found.stat.items()]
        names = ("channel", "added", "removed", "changed", "moved")
        if as_json:
            paper.emit([dict(zip(names, row, strict=True)) for row in rows])
        else:
            paper.table([name.upper() for name in names], sorted(rows, key=lambda row: -sum(row[1:])))
    elif as_json:
        names = ("path", "kind", "before", "after", "index")
        paper.emit([paper.told({name: getattr(change, name) for name in names}) for change in found])
    else:
        print("\n".join(map(paper.line, str(found).splitlines())))


def compare(
    a: Address, b: Annotated[str, typer.Argument(help="Another run: THREAD, or THREAD@N for the way to that step.")],
    db: Db = desk.DEFAULT_DB, as_json: Json = False,
) -> None:  # fmt: skip
    """Put two runs side by side; where they part, step by step, and what each took."""
    from checkpointers.comparing import compare_runs

    found = compare_runs(*desk.steps(db, a, b))
    if as_json:
        parted = [str(one) if one else None for one in (found.parted.a, found.parted.b)] if found.parted else None
        paper.emit({"shared": found.shared, "parted": parted, "totals": [dict(one) for one in found.totals],
                    "pairs": [_pair(one) for one in found]})  # fmt: skip
        return
    print("\n".join(map(paper.line, str(found).splitlines())))
    if found.shared:
        paper.say(f"the first {found.shared} steps are the past of both")
    rows = ((one["a"] or "", _who(pair.a), "=" if one["same"] else "≠", one["b"] or "", _who(pair.b))
            for pair in found for one in (_pair(pair),))  # fmt: skip
    paper.table(("A", "NODES", "", "B", "NODES"), rows)


def _pair(pair: Pair) -> dict[str, Any]:
    return {"a": str(pair.a) if pair.a else None, "b": str(pair.b) if pair.b else None, "same": pair.same}


def _who(step: Step | None) -> str:
    return "" if step is None else ", ".join(step.nodes) or step.source
