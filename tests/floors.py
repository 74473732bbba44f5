"""The oldest versions that `pyproject.toml` says are enough, as pip takes them: `make oldest` runs the tests with these."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
OWN_DISTRIBUTIONS = {"binary": "psycopg-binary"}  # an extra that is a distribution of the same version


def floors() -> Iterator[str]:
    """Name the floor of everything that the packages need, with all that is optional for users."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    optional = project["optional-dependencies"]
    for text in (*project["dependencies"], *optional["postgres"], *optional["crypto"]):
        wanted = Requirement(text)
        (floor,) = (one.version for one in wanted.specifier)
        for name in (wanted.name, *(OWN_DISTRIBUTIONS[one] for one in wanted.extras if one in OWN_DISTRIBUTIONS)):
            yield f"{name}=={floor}"


if __name__ == "__main__":
    print(*floors())
