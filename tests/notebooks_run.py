"""Runs the notebooks as a reader would; `python -m tests.notebooks_run [01 02 …]` writes what they show back to them.

Every notebook gets a kernel of this very interpreter, with an empty home, and no network but this machine's own. A notebook
that says the same as before, but for times and names that are made anew, is left as it is stored.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import nbformat
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from traitlets.config import Config

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / "notebooks"
SECONDS: Final = 60
PASSED_ON: Final = ("PATH", "LANG", "LC_ALL", "TEST_POSTGRES_URL")
# An audit hook stays for the life of the process, whatever the notebook does.
KERNEL: Final = """
import ipaddress, sys

def guard(event, args):
    if event in ("socket.connect", "socket.sendto") and isinstance(args[1], tuple):
        host = args[1][0]
        if host != "localhost" and not ipaddress.ip_address(host).is_loopback:
            raise PermissionError(f"a notebook asked for the network: {host}")
    if event == "socket.getaddrinfo" and args[0] not in (None, "", "localhost", "127.0.0.1", "::1"):
        raise PermissionError(f"a notebook asked for the network: {args[0]}")

sys.addaudithook(guard)
from ipykernel.kernelapp import launch_new_instance
launch_new_instance()
"""
CHANGES: Final = (
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\b[dmnx]-[0-9a-f]{10}\b", "ID"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:\+00:00|Z)?|\b\d\d:\d\d:\d\d\b", "TIME"),
    (r"\b\d+(?:\.\d+)?e-\d+|\b\d+\.\d+", "NUMBER"),
    (r"\b(?:\d+|NUMBER) ?(?:ms|s|min)\b", "SPAN"),
    (r" *\b[\d,]+ bytes\b", " SIZE"),
    (r"(?<=>)[^<>]*…", "…"),  # a text that was cut, where the numbers before the cut had room
)


class Kernels(AsyncKernelManager):
    """Starts kernels of this interpreter, whatever kernels are installed."""

    kernel_spec = KernelSpec(
        argv=[sys.executable, "-c", KERNEL, "-f", "{connection_file}"], display_name="Python 3", language="python",
        metadata={"supported_encryption": ["curve"]},
    )  # fmt: skip


def notebooks(wanted: Sequence[str] = ()) -> list[Path]:
    """Give the notebooks whose names begin so; all of them by default."""
    return [path for path in sorted(FOLDER.glob("*.ipynb")) if not wanted or path.name.startswith(tuple(wanted))]


def executed(path: Path, environment: Mapping[str, str] | None = None) -> Any:
    """Run a notebook top to bottom, with a temporary folder as its home; raises what a cell raises."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.update(outputs=[], execution_count=None)
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)  # root's Postgres works as another user, below it
        client = NotebookClient(
            notebook, timeout=SECONDS, kernel_manager_class=Kernels, record_timing=False, coalesce_streams=True,
            resources={"metadata": {"path": folder}},
            config=Config({
                "KernelManager": {"transport_encryption": "required", "connection_file": f"{folder}/kernel.json"}
            }),
        )  # fmt: skip
        paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        home = {"HOME": folder, "IPYTHONDIR": f"{folder}/ipython", "TMPDIR": folder, "PYTHONPATH": paths}
        client.execute(env={**passed, **home, **(environment or {})})
    return notebook


def steady(value: Any) -> Any:
    """Give an output without what is another one each time: times, and names that are made up."""
    if isinstance(value, str):
        for pattern, instead in CHANGES:
            value = re.sub(pattern, instead, value)
        return value
    if isinstance(value, Mapping):
        return {key: "…" if key == "image/png" else steady(part) for key, part in value.items()}
    return [steady(part) for part in value] if isinstance(value, list) else value


def written(path: Path, fresh: Any) -> int:
    """Store what a run showed if any cell shows something else than before, and give how many do."""
    stored = nbformat.read(path, as_version=4)
    cells = [(old, new) for old, new in zip(stored.cells, fresh.cells, strict=True) if old.cell_type == "code"]
    changed = sum(steady(told(old)) != steady(told(new)) for old, new in cells)
    for number, (old, new) in enumerate(cells, 1):
        old.update(outputs=told(new if changed else old), execution_count=number)
        for output in old.outputs:
            if output.output_type == "execute_result":
                output.execution_count = number
    for cell in stored.cells:
        cell.metadata = {}
    stored.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    nbformat.write(stored, path)
    return changed


def told(cell: Any) -> list[Any]:
    """Give what a cell shows; the live line of a run is empty when the run ends."""
    shown = [one for one in cell.outputs if one.get("data", {"text/plain": "…"}) != {"text/plain": ""}]
    return [nbformat.from_dict({k: v for k, v in output.items() if k != "execution_count"}) for output in shown]


def main(wanted: Sequence[str]) -> None:
    """Run notebooks and write their outputs back."""
    for path in notebooks(wanted):
        print(f"{path.name}: {written(path, executed(path))} outputs changed")


if __name__ == "__main__":
    main(sys.argv[1:])
