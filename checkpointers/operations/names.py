"""Names of channels and nodes: stored once for the whole database, with the first write that needs them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from checkpointers.errors import DAMAGE, IntegrityError
from checkpointers.keys import decoded, digest, encoded, see_text
from checkpointers.records import Names
from checkpointers.sealing import name_seal
from checkpointers.statements import Insert, Row, Rows, Statement, Statements

NAME_COLUMNS: Final = ("name_key", "name", "digest", "seal")
ALL_NAMES: Final = Statement(f"SELECT {', '.join(NAME_COLUMNS)} FROM cp_names")


def naming(names: Names, texts: Iterable[str]) -> Statements[list[tuple[int, str]]]:
    """Give those of these names that are not stored yet, with the keys that they get: the next that are free."""
    missing = names.missing(texts)
    for text in missing:
        see_text("the name of a channel or a node", text)
    if missing and not names.highest:
        yield from learn_names(names)
        missing = names.missing(missing)
    for text in missing if names.spoilt else ():
        if digest(text) in names.spoilt.values():
            raise IntegrityError("", None, f"the row of the name {text!r} is not what was written")
    return names.reserve(missing)


def new_names(named: Sequence[tuple[int, str]]) -> list[Insert]:
    """Make the change that stores names; it fails if somebody else was quicker with a key or with a name."""
    rows = [(key, raw := encoded(text), digest(text), name_seal(key, raw)) for key, text in named]
    return [Insert("cp_names", NAME_COLUMNS, rows, shared=True)] if rows else []


def named_with(names: Names, named: Sequence[tuple[int, str]], answer: str) -> Statements[None]:
    """Remember names that were stored with a write; if it came too late, look what others have stored."""
    if named and answer == "done":
        names.learn(named)
    elif named and answer == "duplicate":
        yield from learn_names(names)


def learn_names(names: Names) -> Statements[None]:
    """Learn all names that are stored."""
    take_names(names, (yield ALL_NAMES))


def take_names(names: Names, rows: Rows) -> None:
    """Learn the names in these rows, which are all that are stored."""
    sound = [row for row in rows if name_is_sound(row)]
    names.learn((row[0], decoded(row[1])) for row in sound)
    names.spoilt = {row[0]: row[2] for row in rows if row not in sound}


def name_is_sound(row: Row) -> bool:
    """Tell whether a row of names is what was written; threads that have no use for it do not mind."""
    try:
        key, name, print_, sealed = row
        return bool(digest(decoded(name)) == print_ and sealed == name_seal(key, name))
    except DAMAGE:
        return False
