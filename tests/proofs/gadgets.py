"""`python -m tests.proofs.gadgets`: stored bytes that would do something if they were let."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.checkpointers.gadgets import run


def main() -> int:
    """Print the counts; fail if anything was executed, or came out as anything but a value or a typed error."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        found = run(Path(folder))
    seconds = time.perf_counter() - start
    print(
        f"gadgets: payloads {found['payloads']}, executed {found['executed']}, "
        f"typed errors {found['typed']}, read as plain data {found['read']}, seconds {seconds:.1f}"
    )
    for line in found["untyped"] + found["events"]:
        print(" ", line)
    return int(bool(found["executed"] or found["untyped"]))


if __name__ == "__main__":
    sys.exit(main())
