"""Remove each guard, one at a time, and see that a test notices: `python -m tests.proofs.mutants [NAME…]`.

Each works on a copy of the repository, never on the repository itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
COPIED = ("checkpointers", "graph_agent", "tests", "pyproject.toml", "docs", "README.md")


@dataclass(frozen=True)
class Mutant:
    """A guard: where it stands, what is taken away, and which tests should notice."""

    name: str
    file: str
    old: str
    new: str
    tests: str


OPS = "checkpointers/operations"
T = "tests/checkpointers"
MUTANTS = (
    Mutant("the digest of a row", "checkpointers/sealing.py", "if digest.digest() != blob[:SEAL_BYTES]:", "if False:", f"{T}/test_fsck.py"),
    Mutant("the place in a seal", "checkpointers/sealing.py", "digest = blake2b(place, digest_size=SEAL_BYTES)", "digest = blake2b(b'', digest_size=SEAL_BYTES)", f"{T}/test_fsck.py"),
    Mutant("the tally of writes", f"{OPS}/common.py", "if len(written) < counted:", "if False:", f"{T}/test_damage.py {T}/test_fsck.py"),
    Mutant("the prime of a tally", "checkpointers/tally.py", "if tally < 0 or tally % PRIME:", "if False:", f"{T}/test_damage.py {T}/test_fsck.py"),
    Mutant("the marks of parents", "checkpointers/lineage.py", "        elif goal.stored:\n", "        elif False:\n", f"{T}/test_damage.py {T}/test_fsck.py"),
    Mutant("the count of checkpoints", f"{OPS}/common.py", "if len(steps) < thread.standing.checkpoints:", "if False:", f"{T}/test_damage.py {T}/test_fsck.py"),
    Mutant("rows without a thread", f"{OPS}/common.py", "if not (yield from any_rows(CONTENTS, key)):", "if True:", f"{T}/test_damage.py {T}/test_fsck.py"),
    Mutant("the head of a namespace", f"{OPS}/common.py", "if rows[0][-1] != rows[0][STEP]:", "if False:", f"{T}/test_damage.py {T}/test_fsck.py"),
    Mutant("the seal of a name", f"{OPS}/common.py", "return digest(decoded(name)) == bytes(print_) and sealed in (None, name_seal(key, name))", "return True", f"{T}/test_damage.py {T}/test_fsck.py"),
    Mutant("the stamp of a lease", f"{OPS}/whole.py", "after.stamp = thread.standing.stamp + 1", "after.stamp = thread.standing.stamp", f"{T}/test_lease.py {T}/test_concurrency.py"),
    Mutant("the token of a write", f"{OPS}/guard.py", "return holder is not None and holder.token == token", "return True", f"{T}/test_lease.py"),
    Mutant("writes of those who hold nothing", f"{OPS}/guard.py", "return holder is None or holder.expired", "return True", f"{T}/test_lease.py"),
    Mutant("a renewal in time", f"{OPS}/leases.py", "AND token = ? AND until >= cp_clock() RETURNING", "AND token = ? RETURNING", f"{T}/test_lease.py"),
    Mutant("the heartbeat", "checkpointers/lease.py", "alive, pause = self._renew(lease), lease.ttl / BEATS", "alive, pause = True, lease.ttl / BEATS", f"{T}/test_lease.py"),
    Mutant("a holder who is asked first", f"{OPS}/leases.py", "if holder is not None and not holder.expired and not ask.force and not mine:", "if False:", f"{T}/test_lease.py"),
    Mutant("what stood when a lease began", f"{OPS}/leases.py", "yield from take_back(thread, note)", "pass", f"{T}/test_rollback.py"),
    Mutant("the token of a note", f"{OPS}/noting.py", "if thread.holder is not None and token == thread.holder.token:", "if True:", f"{T}/test_rollback.py"),
    Mutant("what a note refers to", f"{OPS}/remove.py", "chain(found.noted, *found.writes.values())", "chain(*found.writes.values())", f"{T}/test_rollback.py"),
    Mutant("the head that a run loaded", f"{OPS}/write.py", 'if new.line == "free" or not _moved(standing, new):', "if True:", f"{T}/test_lease.py {T}/test_concurrency.py"),
    Mutant("threads in clear", "checkpointers/vaults.py", "if self.keyring is not None and not self.migrating:", "if False:", f"{T}/test_encryption.py"),
    Mutant("the place of a key", "checkpointers/vaults.py", 'return b"k" + thread.to_bytes(8, "big")', 'return b"k"', f"{T}/test_encryption.py"),
    Mutant("metadata that is hidden", f"{OPS}/write.py", "memory.vault.hide(metadata_place(memory.key, ns, id_), pack_metadata(new.metadata))", "pack_metadata(new.metadata)", f"{T}/test_encryption.py"),
    Mutant("types that are not listed", "checkpointers/strict.py", "if kind is None or kind.code != code or kind.method != method:", "if kind is None:", f"{T}/test_strict_types.py"),
    Mutant("the list of types, when writing", "checkpointers/strict.py", "            if kind is None or kind.type is not cls:\n                return _odd(obj)", "            if kind is None:\n                kind = __import__('checkpointers.kinds').kinds.kind_of(cls, listed=True)", f"{T}/test_strict_types.py"),
    Mutant("serializers that build anything", "checkpointers/options.py", 'if getattr(inner, "_allowed_msgpack_modules", None) is True or', "if", f"{T}/test_strict.py"),
    Mutant("the policy of a tenant", "checkpointers/tenancy.py", "FORCE ROW LEVEL SECURITY", "ENABLE ROW LEVEL SECURITY", f"{T}/test_tenancy.py"),
)  # fmt: skip


def noticed(mutant: Mutant) -> str:
    """Remove a guard in a copy, run the tests, and give the one that noticed; nothing if none did."""
    with tempfile.TemporaryDirectory() as folder:
        for name in COPIED:
            source = ROOT / name
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, Path(folder, name))
        target = Path(folder, mutant.file)
        text = target.read_text()
        if mutant.old not in text:
            return "(the guard is not there any more)"
        target.write_text(text.replace(mutant.old, mutant.new))
        command = [sys.executable, "-m", "pytest", *mutant.tests.split(), "-x", "-q", "--tb=no", "-p", "no:randomly"]
        command += ["-p", "no:cacheprovider", "--timeout", "120"]
        done = subprocess.run(
            command, cwd=folder, env={**os.environ, "PYTHONPATH": folder}, capture_output=True, text=True, check=False
        )
        failed = [line.split()[1] for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return failed[0].partition("::")[2] if failed else ""


def main(names: list[str]) -> None:
    """Print what noticed each."""
    start, survived, chosen = time.monotonic(), [], [m for m in MUTANTS if not names or m.name in names]
    for mutant in chosen:
        test = noticed(mutant)
        gone = test.startswith("(")
        if not test or gone:
            survived.append(mutant.name)
        print(f"  {mutant.name}: {test or 'NOBODY NOTICED'}", flush=True)
    print(f"mutants: tried {len(chosen)}, survived {len(survived)}, seconds {time.monotonic() - start:.0f}")
    sys.exit(bool(survived))


if __name__ == "__main__":
    main(sys.argv[1:])
