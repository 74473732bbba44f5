"""`python -m tests.proofs.fuzz [seconds] [seed]`: damaged bytes for everything that decodes stored ones.

Values, segments, compressed bytes, recipes; the rows of threads, checkpoints, writes, ledger and bodies, behind a seal
that holds; keyrings and wrapped keys. With atheris, if it is installed, inputs are led by coverage; else they are
mutations of real payloads from a seed.
Only errors of ours may come out; nothing is imported, opened or run, and memory stays within a bound.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import random
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ATHERIS: Any = importlib.import_module("atheris") if importlib.util.find_spec("atheris") else None
with ATHERIS.instrument_imports(include=["checkpointers"]) if ATHERIS else contextlib.nullcontext():
    from checkpointers.codec import RECIPE, pack_recipe, packed, resolve, unpacked, unpacked_dict
    from checkpointers.compression import squeeze, unsqueeze
    from checkpointers.effects import Cover, Entry, opened_chunk, opened_cover, opened_entry, sealed_cover, sealed_entry
    from checkpointers.errors import CheckpointerError
    from checkpointers.keyring import Keyring, _parsed
    from checkpointers.operations.common import checked
    from checkpointers.records import (
        Base,
        Names,
        Record,
        TaskWrites,
        Write,
        pack_record,
        pack_writes,
        unpack_record,
        unpack_writes,
    )
    from checkpointers.sealing import SEAL_BYTES, Digests
    from checkpointers.segments import MissingElementError, Segment, Stack, seal
    from checkpointers.standing import Standing, pack_standing, unpack_standing
    from checkpointers.strict import StrictSerializer, inspect_value
    from tests.checkpointers.gadgets import SAMPLES, TYPES, Watch, payloads, warm_up

TAGS = ("msgpack", "msgpack", "msgpack", "msgpack", "json", "pickle", "null", "bytes", "bytearray", "other")
LIMIT = 1 << 20
SPARE = 2 << 30
MARKS = bytes((0x80, 0x81, 0x8F, 0x90, 0x91, 0x94, 0xC0, 0xC1, 0xC4, 0xC7, 0xC9, 0xD4, 0xDB, 0xDD, 0xDF, 0xFF, 0x00))
_serde = StrictSerializer(TYPES, max_bytes=LIMIT)


def _loads(data: bytes) -> None:
    _serde.loads_typed((TAGS[data[0] % len(TAGS)], data[1:]))


def _inspects(data: bytes) -> None:
    repr(inspect_value(TAGS[data[0] % len(TAGS)], data[1:]))


def _segment(data: bytes) -> None:
    segment = Segment(data)
    for index in (0, 1, 63):
        segment.payload(index)


class Trusting(Digests):
    """Takes any bytes for what was sealed: that a digest holds says nothing of what it seals."""

    def open(self, place: bytes, blob: bytes) -> bytes:
        """Give them."""
        del place
        return blob


VAULT = Trusting()
COLUMNS = {"id": b"t1", "parent": b"t0", "ns": b"t", "step": 3, "at": 5}
STANDING = (7, 3, 3, b"t1", 0, 0, 3, 100, 1, 2)
NAMES = Names()
NAMES.learn((number, f"name {number}") for number in range(-128, 129))
LONG = list(range(200))
RING = Keyring({"one": b"1" * 32, "two": b"2" * 32})


def _recipe(data: bytes) -> None:
    stack = Stack()
    stack.add(0, squeeze(pack_recipe([0, 200])))
    with checked("t", "a recipe"), suppress(MissingElementError):
        stack.add(1, data[1:])
        resolve([RECIPE, data[0] & 1, 1], stack)


def _row(data: bytes) -> None:
    """Read the content of a row: which sort of row, the first byte says."""
    where, raw = data[0] % 7, data[1:]
    with checked("t", "the row"), suppress(KeyError):  # a name that is not learned yet
        match where:
            case 0:
                unpack_record(COLUMNS, raw, NAMES)
            case 1:
                unpack_writes(b"ttask", raw, NAMES)
            case 2:
                unpack_standing(1, VAULT, (*STANDING, raw))
            case 3:
                opened_entry(1, "t", VAULT, (b"i" * 16, 1, 1, raw))
            case 4:
                opened_cover(1, VAULT, (b"h" * 16, 0, raw))
            case 5:
                opened_chunk(1, VAULT, (b"h" * 16, 1, raw))
            case _:
                unpacked_dict(raw)


def _keys(data: bytes) -> None:
    _parsed(data.decode("utf-8", "replace"))
    with checked("t", "the key"):
        RING.unwrap(data, b"place")


TARGETS: tuple[Callable[[bytes], Any], ...] = (
    _loads, _loads, _inspects, unpacked, _segment, unsqueeze, _row, _row, _recipe, _keys,
)  # fmt: skip
OURS = (_loads, _inspects, _row, _recipe, _keys)


def seeds() -> list[bytes]:
    """Give real payloads, each after two bytes: which decoder it is for, and its tag."""
    found = [bytes((where, 0)) + _serde.dumps_typed(value)[1] for value in SAMPLES.values() for where in (0, 2)]
    with TemporaryDirectory() as folder:
        found += [b"\0\0" + gadget.data for gadget in payloads(Path(folder)) if len(gadget.data) < 2_000]
    elements = [_serde.dumps_typed([value])[1] for value in list(SAMPLES.values())[:64]]
    records = [packed(value) for value in ({"a": 1}, [1, [2, "x"]], {"v": ["t" * 50] * 40, 3: None})]
    found += [b"\x03" + record for record in records]
    found += [b"\x06" + row for row in rows()]
    found += [
        b"\x08\1" + squeeze(pack_recipe(LONG)),
        b"\x08\0" + squeeze(pack_recipe(LONG, pack_recipe([0, 200]))),
        b"\x09" + RING.wrap(b"k" * 32, b"place"),
        b"\x09one: MTEx",
    ]
    found += [b"\x04" + unsqueeze(seal(elements)), b"\x05" + seal(elements), b"\x05" + squeeze(b"x" * 20_000)]
    return found


def rows() -> list[bytes]:
    """Give the content of a row of each sort, after the byte that names the sort."""
    versions: dict[str, Any] = {"name 1": 3, "name 2": "3.5"}
    record = Record(
        id="1", ns="", parent="0", ts="2026-01-02T03:04:05+00:00", versions=versions, refs={"name 1": b"\x02", "name 2": [0, 1, 9]},
        seen={"name 3": versions}, updated=["name 1"], bases={"name 4": Base(3, [("task", [8, 1, 2])])},
        trail={"name 5": 2}, extra=b"x", chain=b"c" * 8,
    )  # fmt: skip
    writes = TaskWrites("task", [Write(0, "name 1", 4, "path"), Write(1, "name 2", [0, 1, 2], "other")])
    standing = Standing("t", 7, 3, 3, b"t1", tags=["a"], pins=[2], counts={1: 5}, effects=2, fold=9, bodies=1, late=[4])
    entry = Entry(
        "t", "key", 1, 1, "done", 3, datetime(2026, 1, 2, tzinfo=UTC), {"said": [1, {"a": None}]}, mark=b"mark"
    )
    found = [
        pack_record(record, NAMES), pack_writes(writes, NAMES), pack_standing(1, VAULT, standing)[-1][SEAL_BYTES:],
        sealed_entry(1, VAULT, entry)[-1][SEAL_BYTES:], sealed_cover(1, VAULT, Cover(b"h" * 32, 70_000, 3))[-1][SEAL_BYTES:],
        b"h" * 32 + squeeze(b"body" * 200), packed({"source": "loop", "parents": {"": "1"}}),
    ]  # fmt: skip
    return [bytes((sort,)) + raw for sort, raw in enumerate(found)]


def mutated(chance: random.Random, corpus: list[bytes]) -> bytes:
    """Damage a payload: bits, marks of msgpack, cuts, repeats, parts of another."""
    data = bytearray(chance.choice(corpus))
    for _ in range(chance.choice((1, 1, 1, 2, 4, 16))):
        at = chance.randrange(2, len(data)) if len(data) > 2 else len(data)
        match chance.randrange(7):
            case 0:
                data[at : at + 1] = bytes((chance.randrange(256),))
            case 1:
                data[at : at + 1] = bytes((chance.choice(MARKS),))
            case 2:
                del data[at : at + chance.choice((1, 2, 8, 1_000))]
            case 3:
                data[at:at] = bytes((chance.choice(MARKS),)) * chance.choice((1, 3, 300, 1_500))
            case 4:
                data[at : at + 4] = chance.choice((b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0", b"\0\1\0\0"))
            case 5:
                other = chance.choice(corpus)
                data[at:at] = other[chance.randrange(len(other) + 1) :]
            case _:
                data[at:at] = data[at : at + 64] * chance.choice((1, 8))
    return bytes(data[:LIMIT])


class Fuzz:
    """Counts what came out of the decoders."""

    def __init__(self) -> None:
        """Meet every type once, so that what is imported later is the payloads' doing."""
        self.runs, self.crashes, self.imports = 0, Counter[str](), Counter[str]()
        warm_up(_serde)
        self._watch = Watch()

    def one(self, data: bytes) -> None:
        """Decode one input."""
        if len(data) < 2:
            return
        self.runs += 1
        target = TARGETS[data[0] % len(TARGETS)]
        with self._watch as seen:
            try:
                target(data[1:])
            except CheckpointerError:
                pass
            except ValueError as error:
                if target in OURS or type(error) is not ValueError:
                    self.crashes[f"{target.__name__}: {error!r:.100}"] += 1
            except (Exception, SystemExit) as error:
                self.crashes[f"{target.__name__}: {type(error).__name__}: {error!s:.60}"] += 1
        self.imports.update(seen)

    def report(self, start: float, seed: int, how: str) -> int:
        """Print the counts."""
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        print(
            f"fuzz: runs {self.runs:,}, crashes {self.crashes.total()}, imports {self.imports.total()}, "
            f"seconds {time.perf_counter() - start:.1f}, seed {seed} ({how}, memory {memory} MB)"
        )
        for what, count in (self.crashes + self.imports).most_common(20):
            print(f"  {count} x {what}")
        return int(bool(self.crashes or self.imports))


def bounded() -> None:
    """Let this process take no more memory than it needs and some; an allocation over it is a `MemoryError`."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    size = pages * resource.getpagesize() + SPARE
    resource.setrlimit(resource.RLIMIT_AS, (size, size))


def plain(seconds: float, seed: int) -> int:
    """Mutate real payloads."""
    chance, corpus, fuzz, start = random.Random(seed), seeds(), Fuzz(), time.perf_counter()
    bounded()
    while time.perf_counter() - start < seconds:
        for _ in range(200):
            fuzz.one(mutated(chance, corpus))
    return fuzz.report(start, seed, "own mutations")


def led(seconds: float, seed: int) -> int:
    """Let atheris choose the inputs; it ends the process, so it has one of its own."""
    with TemporaryDirectory() as folder:
        for number, data in enumerate(seeds()):
            (Path(folder) / f"{number:05}").write_bytes(data)
        read, write = os.pipe()
        if (child := os.fork()) == 0:
            os.close(read)
            fuzz, start = Fuzz(), time.perf_counter()
            last = [start]

            def one(data: bytes) -> None:
                fuzz.one(data)
                if (now := time.perf_counter()) - last[0] > 0.5 or now - start > seconds:
                    last[0] = now
                    os.write(write, f"{fuzz.runs} ".encode())
                if now - start > seconds:
                    code = fuzz.report(start, seed, "atheris")
                    sys.stdout.flush()
                    os._exit(code)

            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            ATHERIS.Setup([sys.argv[0], f"-seed={seed}", f"-max_len={1 << 14}", "-rss_limit_mb=2048", folder], one)
            ATHERIS.Fuzz()
        os.close(write)
        beats = os.fdopen(read).read().split()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code not in (0, 1):
        print(f"fuzz: the decoder's process died ({code}) after {beats[-1:] or 'no'} runs, seed {seed}")
    return code


def main() -> int:
    """Fuzz for as many seconds as asked, 60 by default."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    if ATHERIS:
        return led(seconds, seed)
    if "child" in sys.argv:
        return plain(seconds, seed)
    # A decoder that takes its process down must not take the count down with it.
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.proofs.fuzz", str(seconds), str(seed), "child"], check=False
    )
    if done.returncode not in (0, 1):
        print(f"fuzz: the decoder's process died ({done.returncode}), seed {seed}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
