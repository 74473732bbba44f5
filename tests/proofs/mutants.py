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


A = "tests/graph_agent"
OPS = "checkpointers/operations"
T = "tests/checkpointers"
CLAIMED = "        claim = await kit.effects.claim(where.thread, key, effect_of(call, where), Means.of(one, call))\n"
EFFECT_FIRST = f"""        made = await kit.tools.call(one.name, call["args"], deadline=None, key=key)
{CLAIMED}        if claim.rule == "run":
            return await _made(made, task, kit, where, claim=claim, attempt=1)
"""
LEDGER = f"{T}/test_ledger.py {T}/test_bodies.py"
MUTANTS = (
    Mutant("the claim before the effect", "graph_agent/nodes/tool.py", "if one is None or not one.has_effect:", "if True:", f"{A}/test_ledger.py"),
    Mutant("the order of claim and effect", "graph_agent/nodes/tool.py", CLAIMED, EFFECT_FIRST, f"{A}/test_ledger.py"),
    Mutant("the commit of a claim", "graph_agent/ledger.py", "entry, fresh = await self.books.aclaim(thread, key, first)", "entry, fresh = Entry(thread, key, 1, 1, 'claimed', 0, datetime.now(UTC), first), True", f"{A}/test_ledger.py"),
    Mutant("the record after it", "graph_agent/nodes/tool.py", 'await kit.effects.record(claim, "done", {**_told(changed), "seconds": seconds}, bodies=bodies)', "pass", f"{A}/test_ledger.py"),
    Mutant("the recorded result", "graph_agent/ledger.py", '"done": ("recorded", ', '"done": ("run", ', f"{A}/test_ledger.py"),
    Mutant("what is in doubt", "graph_agent/ledger.py", 'return "ask", f"it was done', 'return "run", f"it was done', f"{A}/test_ledger.py"),
    Mutant("what may still run", "graph_agent/ledger.py", 'return "ask", RUNNING', 'return "run", RUNNING', f"{A}/test_ledger.py"),
    Mutant("a deadline that is no failure", "graph_agent/nodes/tool.py", "isinstance(error, MayStillRunError | PassedDeadlineError)", "False", f"{A}/test_ledger.py {A}/test_tools.py"),
    Mutant("the token of a record", f"{OPS}/ledger.py", "standing = yield from entitled(tools, memory, entry.thread, told.token)", "standing = yield from entitled(tools, memory, entry.thread, memory.holder.token if memory.holder else None)", f"{A}/test_ledger.py"),
    Mutant("the attempt of a verdict", "graph_agent/ledger.py", ' and said.get("attempt") == attempt', "", f"{A}/test_ledger.py"),
    Mutant("the name of a doubt", "graph_agent/nodes/doubt.py", "KIND, str(claim.attempt), str(number))", "KIND)", f"{A}/test_ledger.py"),
    Mutant("the review of an answer", "graph_agent/answers.py", "review = open_.get(key)", "review = open_.get(key) or next(iter(open_.values()), None)", f"{A}/test_ledger.py {A}/test_reviews.py"),
    Mutant("the fence before a tool", "graph_agent/nodes/tool.py", "    kit.fence(where.thread)", "    pass", f"{A}/test_lease.py"),
    Mutant("waiting for the step", "graph_agent/nodes/tool.py", "    await kit.settled(where)", "    pass", f"{A}/test_ledger.py"),
    Mutant("the goals in a key", "graph_agent/ledger.py", """ if turn == 1 else f"{call.get('step', '')}~{turn}\"""", "", f"{A}/test_ledger.py"),
    Mutant("the order of a set", "graph_agent/arguments.py", "return sorted(inner, key=canonical)", "return inner", f"{A}/test_effects.py"),
    Mutant("the arguments of a call that is once", "graph_agent/tools.py", "hashed(call, canonical(said), length=32)", "hashed(call, length=32)", f"{A}/test_effects.py"),
    Mutant("a new key after an undo", "graph_agent/ledger.py", 'if entry.status == "undone":', "if False:", f"{A}/test_undo.py"),
    Mutant("the key of a doubt that a fork took over", "graph_agent/ledger.py", 'not in ("failed", "asking")', "not in ()", f"{A}/test_forks.py"),
    Mutant("the doubt of a key that is never answered", "graph_agent/nodes/tool.py", "isinstance(error, PassedDeadlineError) and _takes_key(call, kit) and not again.yes", "False", f"{A}/test_effects.py"),
    Mutant("what still reads", "graph_agent/nodes/tool.py", "    if kit.effects.running(_slot(call, where)):", "    if False:", f"{A}/test_tools.py"),
    Mutant("the refusal without a ledger", "graph_agent/agent.py", "if keeper is None and risky:", "if False:", f"{A}/test_ledger.py"),
    Mutant("the books of a fork", "graph_agent/forking.py", 'await ledger.aentries(source) if effects != "run" else []', "[]", f"{A}/test_ledger.py"),
    Mutant("the claim of an undo", "graph_agent/undoing.py", 'if entry.status == "undone":', "if False:", f"{A}/test_ledger.py"),
    Mutant("the mark of an object", "checkpointers/fingerprint.py", "return [_MARK, kind.__module__,", "return [kind.__module__,", f"{T}/test_storage.py"),
    Mutant("the mark of a message", "checkpointers/fingerprint.py", "return _NEVER + ormsgpack.packb((kind", "return ormsgpack.packb((kind", f"{T}/test_storage.py"),
    Mutant("bytes that may change", "checkpointers/codec.py", 'form = b"b" if type(value) is bytearray else b"w"', 'form = b"w"', f"{T}/test_storage.py"),
    Mutant("models that write otherwise", "checkpointers/fingerprint.py", " and not _is_written_otherwise(schema)", "", f"{T}/test_looks.py"),
    Mutant("a dump of ones own", "checkpointers/fingerprint.py", " and kind.model_dump is BaseModel.model_dump", "", f"{T}/test_looks.py"),
    Mutant("what msgpack sees of a dict", "checkpointers/fingerprint.py", "dict(dict.items(value))", "dict(value)", f"{T}/test_looks.py"),
    Mutant("enums of one text", "checkpointers/fingerprint.py", "if not issubclass(kind, Enum):", "if True:", f"{T}/test_looks.py"),
    Mutant("bytes that may change elsewhere", "checkpointers/fingerprint.py", "if not _BINARY.search(packed):", "if True:", f"{T}/test_looks.py"),
    Mutant("a serializer that is not ours", "checkpointers/fingerprint.py", "if not self._native:", "if False:", f"{T}/test_looks.py"),
    Mutant("groups of a serializer that is not ours", "checkpointers/fingerprint.py", "if objects is None or not self._native:", "if objects is None:", f"{T}/test_looks.py"),
    Mutant("what an encrypting one writes into", "checkpointers/codec.py", "inner = serde.serde if isinstance(serde, encrypted) else serde", "inner = serde", f"{T}/test_looks.py"),
    Mutant("keys inside objects", "checkpointers/strict.py", "                check_keys(parts)\n", "                pass\n", f"{T}/test_looks.py"),
    Mutant("keys that a class restores", "checkpointers/strict.py", "or not self._restores(kind, parts[2], data)", "", f"{T}/test_looks.py"),
    Mutant("sets of what cannot be in sets", "checkpointers/strict.py", " or (kind.type in _HASHING and local.nested)", "", f"{T}/test_looks.py"),
    Mutant("a tag that is empty", "checkpointers/codec.py", "for code, tag in enumerate(_TAGS) if tag}", "for code, tag in enumerate(_TAGS)}", f"{T}/test_looks.py"),
    Mutant("an element that is all prefix", "checkpointers/segments.py", "if prefix in payloads:", "if False:", f"{T}/test_looks.py"),
    Mutant("a zone that only a file knew", "checkpointers/kinds.py", "    if not _is_zone(zone.key):\n        raise", "    if False:\n        raise", f"{T}/test_looks.py"),
    Mutant("what removed steps told, adopted", "checkpointers/adopting.py", "inherited.of(found)", "{}", f"{T}/test_adopt.py"),
    Mutant("what was removed since", "checkpointers/adopting.py", "steps[known[-1] + 1 :] if known else steps", "[step for step in steps if step.place not in there]", f"{T}/test_adopt.py"),
    Mutant("threads that went on in both", "checkpointers/adopting.py", "if new and own:", "if False:", f"{T}/test_adopt.py"),
    Mutant("what removed steps told, exported", "checkpointers/exporting.py", " | _told_before(step, speller, timeline) for", "  for", f"{T}/test_exporting.py"),
    Mutant("what no other saver keeps", "checkpointers/importing.py", "    if any(step.told for step in steps):", "    if False:", f"{T}/test_exporting.py"),
    Mutant("memories of subgraphs", "checkpointers/retention.py", "    _keep_memories(reasons, by_step)\n", "", f"{T}/test_retention.py"),
    Mutant("memories near a step", "checkpointers/retention.py", " or line.id < root.id", " or line.step < root.step", f"{T}/test_retention.py"),
    Mutant("what stays of a checkpoint put again", "checkpointers/operations/write.py", "    if before.bases and (parent", "    if False and (parent", f"{T}/test_told.py"),
    Mutant("a fork that is meant", "checkpointers/session.py", "after._heads.pop(slot, None)", "pass", f"{T}/test_concurrency.py"),
    Mutant("writes that go along", "checkpointers/saver.py", " and (writes.at_head is None or writes.place == new.place)", "", f"{T}/test_concurrency.py"),
    Mutant("the classes of a group", "checkpointers/fingerprint.py", "if last is not None and last.kinds == kinds:", "if last is not None:", f"{T}/test_storage.py"),
    Mutant("the look of a group", "checkpointers/fingerprint.py", "if packed is not None and packed == last.packed:", "if packed is not None:", f"{T}/test_storage.py"),
    Mutant("the extras of a group", "checkpointers/fingerprint.py", "return None if any(map(_EXTRAS, items)) else list(map(_FIELDS, items))", "return list(map(_FIELDS, items))", f"{T}/test_storage.py"),
    Mutant("the checkpoint that was asked for", f"{OPS}/common.py", "if found and rows and _is_asked(thread, place, rows[0]):", "if found and rows:", f"{T}/test_storage.py {T}/test_damage.py"),
    Mutant("what is not on the shelf", f"{OPS}/shelves.py", "[run for run in left if not stack.has(*run)]", "[]", f"{T}/test_storage.py"),
    Mutant("the row of what is kept", f"{OPS}/read.py", "if rows and told_by(rows[0]) == row:", "if rows:", f"{T}/test_recent.py"),
    Mutant("a look that is thrown away", "checkpointers/saver.py", "keeps = 0 if self.database.looks_again else self._budget // 4", "keeps = self._budget // 4", f"{T}/test_recent.py"),
    Mutant("the shelf of a page that is tried", f"{OPS}/listing.py", "        shelf = at.shelf.copy()\n", "        shelf = at.shelf\n", f"{T}/test_recent.py"),
    Mutant("what a listing lets go", f"{OPS}/listing.py", "shelf.only(tools, found[-1].record.refs.items()) if found else Shelf()", "shelf", f"{T}/test_recent.py"),
    Mutant("a shelf without a channel", f"{OPS}/shelves.py", "needed.keys() & self.stacks.keys()", "needed", f"{T}/test_recent.py"),
    Mutant("what a sheet weighs", f"{OPS}/read.py", "return len(self.metadata) + weight_of(self.record, len(self.writes))", "return 0", f"{T}/test_recent.py"),
    Mutant("only a run takes note", "checkpointers/saver.py", "if place.id or not session.is_of_run(config):", "if place.id:", f"{T}/test_recent.py"),
    Mutant("who waits for a checkpoint", "checkpointers/grouping.py", "if not waiting.new.of_run or any(", "if any(", f"{T}/test_concurrency.py"),
    Mutant("the parent that is remembered", "checkpointers/memory.py", " and record.id == id_ else", " else", f"{T}/test_graphs.py {T}/test_storage.py"),
    Mutant("writes that came late", "checkpointers/memory.py", "if len(self.written) > WRITTEN_KEPT:", "if False:", f"{T}/test_concurrency.py"),
    Mutant("a transaction left behind", "checkpointers/sqlite_commits.py", "        if connection.in_transaction:\n            connection", "        if False:\n            connection", f"{T}/test_commits.py"),
    Mutant("whose transaction it is", "checkpointers/sqlite_commits.py", "if connection.turn is mine and", "if", f"{T}/test_commits.py"),
    Mutant("a transaction that failed", "checkpointers/sqlite_commits.py", '            connection.execute("ROLLBACK")\n        raise', "            pass\n        raise", f"{T}/test_commits.py {T}/test_failures.py"),
    Mutant("the row of the way", f"{OPS}/told.py", "kept is None or kept[0] != told_by(thread.row)", "kept is None", f"{T}/test_told.py"),
    Mutant("the top of a stretch", f"{OPS}/told.py", "self.lowest - 1 <= step <= self.top", "self.lowest - 1 <= step", f"{T}/test_told.py"),
    Mutant("what is left of a way", f"{OPS}/told.py", "rest = Stretch(0, records[-1].step) if len(rows) == limit else", "rest =", f"{T}/test_told.py"),
    Mutant("what was written before a checkpoint", f"{OPS}/write.py", "Written(None if tally or before.step else set())", "Written(set())", f"{T}/test_told.py"),
    Mutant("stretches that meet", f"{OPS}/told.py", "under.top if under else 0", "0", f"{T}/test_told.py"),
    Mutant("a listing of a thread that moved", f"{OPS}/listing.py", "if whole and not at.moved:", "if whole:", f"{T}/test_recent.py"),
    Mutant("what does not fit at all", "checkpointers/recent.py", "if OVERHEAD + size > self._budget:", "if False:", f"{T}/test_recent.py"),
    Mutant("an error that keeps itself", "checkpointers/grouping.py", "            del error  #", "            pass  #", f"{T}/test_concurrency.py"),
    Mutant("damage on the word of a memory", f"{OPS}/write.py", "        if not looks:\n", "        if True:\n", f"{T}/test_recent.py"),
    Mutant("the collector of a forked process", "checkpointers/resting.py", "    if _resting:\n", "    if False:\n", f"{T}/test_recent.py"),
    Mutant("the shelf of another row", f"{OPS}/listing.py", "if now and told_by(now[0]) == told_by(thread.row):", "if True:", f"{T}/test_recent.py"),
    Mutant("the names in a bundle", "checkpointers/codec.py", "        if list(values) != bundle.names:\n", "        if False:\n", f"{T}/test_recent.py"),
    Mutant("the digest of a row", "checkpointers/sealing.py", "if _digest(place, raw) != blob[:SEAL_BYTES]:", "if False:", f"{T}/test_fsck.py"),
    Mutant("the place in a seal", "checkpointers/sealing.py", "blake2b(place + raw, digest_size=SEAL_BYTES)", "blake2b(raw, digest_size=SEAL_BYTES)", f"{T}/test_fsck.py"),
    Mutant("the tally of writes", f"{OPS}/common.py", "if len(written) < counted:", "if False:", f"{T}/test_damage.py {T}/test_fsck.py"),
    Mutant("the prime of a tally", "checkpointers/tally.py", "if tally < 0 or tally % PRIME:", "if False:", f"{T}/test_damage.py {T}/test_fsck.py"),
    Mutant("the marks of parents", "checkpointers/lineage.py", "        elif goal.stored:\n", "        elif False:\n", f"{T}/test_damage.py {T}/test_fsck.py"),
    Mutant("the count of checkpoints", f"{OPS}/common.py", "if len(steps) < thread.standing.checkpoints:", "if False:", f"{T}/test_damage.py {T}/test_fsck.py"),
    Mutant("rows without a thread", f"{OPS}/common.py", "if not (yield from any_rows(CONTENTS, key)):", "if True:", f"{T}/test_damage.py {T}/test_fsck.py"),
    Mutant("the head of a namespace", f"{OPS}/common.py", "if rows[0][-1] != rows[0][STEP]:", "if False:", f"{T}/test_damage.py {T}/test_fsck.py"),
    Mutant("the form of a reference", "checkpointers/codec.py", "    if not sound:\n", "    if False:\n", f"{T}/test_damage.py"),
    Mutant("the types in a row", "checkpointers/codec.py", "    if not isinstance(stored, kind):\n", "    if False:\n", f"{T}/test_damage.py"),
    Mutant("the seal of a name", f"{OPS}/names.py", "return bool(digest(decoded(name)) == print_ and sealed == name_seal(key, name))", "return True", f"{T}/test_damage.py {T}/test_fsck.py"),
    Mutant("the stamp of a lease", f"{OPS}/whole.py", "after.stamp = thread.standing.stamp + 1", "after.stamp = thread.standing.stamp", f"{T}/test_lease.py {T}/test_concurrency.py"),
    Mutant("the token of a write", f"{OPS}/guard.py", "return holder is not None and holder.token == token", "return True", f"{T}/test_lease.py"),
    Mutant("writes of those who hold nothing", f"{OPS}/guard.py", "return holder is None or holder.expired", "return True", f"{T}/test_lease.py"),
    Mutant("a renewal in time", f"{OPS}/leases.py", "AND token = ? AND until >= cp_clock() RETURNING", "AND token = ? RETURNING", f"{T}/test_lease.py"),
    Mutant("the heartbeat", "checkpointers/lease.py", "alive, pause = self._renew(lease), lease.ttl / BEATS", "alive, pause = True, lease.ttl / BEATS", f"{T}/test_lease.py"),
    Mutant("a holder who is asked first", f"{OPS}/leases.py", "if holder is not None and not holder.expired and not ask.force and not mine:", "if False:", f"{T}/test_lease.py"),
    Mutant("a holder that ran out and goes on", f"{OPS}/guard.py", "        memory.holder = replace(memory.holder, expired=False)\n", "        pass\n", f"{T}/test_lease.py"),
    Mutant("what stood when a lease began", f"{OPS}/leases.py", "yield from take_back(thread, note)", "pass", f"{T}/test_rollback.py"),
    Mutant("the token of a note", f"{OPS}/noting.py", "if thread.holder is not None and note.token == thread.holder.token:", "if True:", f"{T}/test_rollback.py"),
    Mutant("the form of a note", f"{OPS}/noting.py", "tuple(as_a(kind, one) for kind, one in zip(_ROW, row, strict=True))", "tuple(row)", f"{T}/test_rollback.py"),
    Mutant("a parent that is no id", f"{OPS}/remove.py", "root if isinstance(root, str) else None", "root", f"{T}/test_retention.py"),
    Mutant("what a note refers to", f"{OPS}/collecting.py", "chain(found.noted, *found.writes.values())", "chain(*found.writes.values())", f"{T}/test_rollback.py"),
    Mutant("the head that a run loaded", f"{OPS}/write.py", 'if new.line == "free" or not _moved(standing, new):', "if True:", f"{T}/test_lease.py {T}/test_concurrency.py"),
    Mutant("writes of a run that was overtaken", f"{OPS}/write.py", "            if _astray(standing, writes):\n                raise HeadMovedError", "            if False:\n                raise HeadMovedError", f"{T}/test_concurrency.py"),
    Mutant("damage that lies beside", f"{OPS}/shelves.py", "stacks[channel].take(number, body)", "stacks[channel].add(number, body)", f"{T}/test_fsck.py"),
    Mutant("a recipe that lies beside", f"{OPS}/storing.py", "stacks[channel].take(number, body)", "stacks[channel].add(number, body)", f"{T}/test_fsck.py"),
    Mutant("a neighbour of what is recognized", f"{OPS}/storing.py", "        stack.take(number, body)", "        stack.add(number, body)", f"{T}/test_fsck.py"),
    Mutant("what a row's damage says", "checkpointers/segments.py", "            self._damage[number] = error", "            pass", f"{T}/test_fsck.py"),
    Mutant("names that others stored", f"{OPS}/names.py", '    elif named and answer == "duplicate":', "    elif False:", f"{T}/test_names.py"),
    Mutant("a name that was stored meanwhile", "checkpointers/records.py", " if (key := self.keys[text]) not in self.texts]", " if (key := self.keys[text])]", f"{T}/test_names.py"),
    Mutant("a key that was taken", "checkpointers/records.py", "if key is None or self.texts.get(key, text) != text:", "if key is None:", f"{T}/test_names.py"),
    Mutant("a name that is only meant", "checkpointers/records.py", "missing.union(self._reserved.keys() & texts)", "missing", f"{T}/test_names.py"),
    Mutant("keys of damaged names", "checkpointers/records.py", "if key not in self.spoilt)", "if True)", f"{T}/test_names.py"),
    Mutant("versions that were only moved", "checkpointers/authors.py", "    read = _read(name, step.seen.get(name, {}), step.seen.get(_BUMPS) or {})", "    read = set(step.seen.get(name, ()))", f"{T}/test_history.py"),
    Mutant("what came by command", "checkpointers/authors.py", "set(tasks) - {_BY_COMMAND}", "set(tasks)", f"{T}/test_history.py"),
    Mutant("the pool of a forgotten saver", "checkpointers/postgres_server.py", "    weakref.finalize(owner, let_go)", "    weakref.finalize(owner, bool)", f"{T}/test_failures.py"),
    Mutant("a database of refused options", "checkpointers/saver.py", "            database.close()\n            raise", "            raise", f"{T}/test_failures.py"),
    Mutant("a saver that a command refuses", "graph_agent/cli/desk.py", "        _leave(found)\n        raise", "        raise", f"{A}/test_cli_errors.py"),
    Mutant("a run that many tasks ask", "checkpointers/session.py", "(lines_of(config) if config else None) or ", "", f"{T}/test_concurrency.py"),
    Mutant("a commit for many that fails for one", "checkpointers/sqlite_commits.py", "if isinstance(error, sqlite3.IntegrityError):", "if False:", f"{T}/test_commits.py"),
    Mutant("an answer that another committed", "checkpointers/sqlite_commits.py", "            waiting.answer = answer\n", "            pass\n", f"{T}/test_commits.py"),
    Mutant("a connection that is read from", "checkpointers/sqlite_file.py", "if connection not in self._lent:", "if True:", f"{T}/test_failures.py"),
    Mutant("retention beside damage", "checkpointers/upkeep.py", "                refusals.append(error)", "                raise", f"{T}/test_damage.py"),
    Mutant("threads in clear", "checkpointers/vaults.py", "if self.keyring is not None and not self.migrating:", "if False:", f"{T}/test_encryption.py"),
    Mutant("the place of a key", "checkpointers/vaults.py", 'return b"k" + thread.to_bytes(8, "big")', 'return b"k"', f"{T}/test_encryption.py"),
    Mutant("metadata that is hidden", f"{OPS}/write.py", "memory.vault.hide(metadata_place(memory.key, key_of(record.ns), key_of(record.id)), metadata)", "metadata", f"{T}/test_encryption.py"),
    Mutant("types that are not listed", "checkpointers/strict.py", "if kind is None or kind.code != code or kind.method != method:", "if kind is None:", f"{T}/test_strict_types.py"),
    Mutant("the list of types, when writing", "checkpointers/strict.py", "            if kind is None or kind.type is not cls:\n                return _odd(obj)", "            if kind is None:\n                kind = __import__('checkpointers.kinds').kinds.kind_of(cls, listed=True)", f"{T}/test_strict_types.py"),
    Mutant("serializers that build anything", "checkpointers/options.py", 'if getattr(inner, "_allowed_msgpack_modules", None) is True or', "if", f"{T}/test_strict.py"),
    Mutant("an effect that is claimed once", "checkpointers/effects.py", "    id_ = vault.name(encoded(entry.key))\n", "    id_ = vault.name(encoded(entry.key) + mark)\n", LEDGER),
    Mutant("the mark of a claim", f"{OPS}/ledger.py", "return found, found.mark == told.mark", "return found, False", LEDGER),
    Mutant("the mark of a change", f"{OPS}/ledger.py", "found.mark not in (entry.mark, mark):", "found.mark != entry.mark:", LEDGER),
    Mutant("the revision of a change", f"{OPS}/guard.py", "if growth.holds is not None:", "if False:", LEDGER),
    Mutant("who may claim", f"{OPS}/ledger.py", "standing = yield from entitled(tools, memory, thread, told.token)", "standing = yield from entitled(tools, memory, thread, memory.holder.token if memory.holder else None)", LEDGER),
    Mutant("who may change", f"{OPS}/ledger.py", "standing = yield from entitled(tools, memory, entry.thread, told.token)", "standing = yield from entitled(tools, memory, entry.thread, memory.holder.token if memory.holder else None)", LEDGER),
    Mutant("who may keep", f"{OPS}/bodies.py", "standing = yield from entitled(tools, memory, thread, token)", "standing = yield from entitled(tools, memory, thread, memory.holder.token if memory.holder else None)", LEDGER),
    Mutant("the count of effects, at a claim", f"{OPS}/ledger.py", "        _agree(memory.key, standing, rows)\n    memory.audited", "    memory.audited", LEDGER),
    Mutant("the count of effects, at a look", f"{OPS}/ledger.py", "            _agree(thread.key, thread.standing, rows)\n    return found", "            pass\n    return found", LEDGER),
    Mutant("the thread of an effect", f"{OPS}/ledger.py", "if of == key and isinstance(id_, bytes)]", "if isinstance(id_, bytes)]", LEDGER),
    Mutant("the thread of an effect that fsck counts", f"{OPS}/checking.py", "for of, *row in found if of == check.thread.key]", "for _, *row in found]", LEDGER),
    Mutant("the name of a listed thread", f"{OPS}/common.py", "if thread_number(name, tools.tenant) != key:", "if False:", f"{T}/test_damage.py"),
    Mutant("the form of labels", "checkpointers/standing.py", "if labels and ({*map(type, tags)} - _TEXTS or {*map(type, pins)} - _WHOLE):", "if False:", f"{T}/test_damage.py"),
    Mutant("the words of a serializer", "checkpointers/fingerprint.py", "if isinstance(part, str) and not _accepted(part, str.encode):", "if isinstance(part, str):", f"{T}/test_strict.py"),
    Mutant("the row that was asked for", f"{OPS}/common.py", "    if found != asked:", "    if False:", f"{T}/test_damage.py"),
    Mutant("the count of effects, when all are read", f"{OPS}/ledger.py", "if len(found) < thread.standing.effects:", "if False:", LEDGER),
    Mutant("the fold of effects", "checkpointers/standing.py", "    return reduce(xor, (int.from_bytes(half) for id_ in ids for half in (id_[:FOLDED], id_[FOLDED:])), 0)", "    return 0", LEDGER),
    Mutant("the place of an effect", "checkpointers/sealing.py", 'return _EFFECT(b"x", thread, number, revision) + id_', 'return b"x"', LEDGER),
    Mutant("the place of a part", "checkpointers/sealing.py", 'return _BODY(b"b", thread, number) + hash_', 'return b"b"', LEDGER),
    Mutant("the hash of a body", f"{OPS}/bodies.py", "if end - begin == cover.size and hash_of(data) != hash_:", "if False:", LEDGER),
    Mutant("the length of a part", f"{OPS}/bodies.py", "if len(data) != min(cover.size, (last + 1) * CHUNK) - first * CHUNK:", "if False:", LEDGER),
    Mutant("the count of bodies", f"{OPS}/bodies.py", "if len(found) < thread.standing.bodies:", "if False:", LEDGER),
    Mutant("records of plain data", "checkpointers/effects.py", "        own: dict[str, Any] = ormsgpack.unpackb(_pack(value))", "        own: dict[str, Any] = unpacked(packed(value))", LEDGER),
    Mutant("prints that only a key makes", "checkpointers/cipher.py", "return blake2b(raw, key=self._names, digest_size=NAME_BYTES).digest()", "return blake2b(raw, digest_size=NAME_BYTES).digest()", LEDGER),
    Mutant("a ledger that outlives its history", f"{OPS}/remove.py", " or _in_use(thread, unwritten_since):", ":", LEDGER),
    Mutant("a claim since a plan", f"{OPS}/remove.py", "bool(thread.standing.effects) and thread.standing.updated_at > unwritten_since", "bool(thread.standing.effects) and not unwritten_since", LEDGER),
    Mutant("a ledger that outlives its lease", f"{OPS}/leases.py", '("cp_checkpoints", "cp_writes", "cp_effects", "cp_bodies")', '("cp_checkpoints", "cp_writes")', LEDGER),
    Mutant("the age of a claim", "checkpointers/upkeep.py", "if stands.effects else None", "if False else None", LEDGER),
    Mutant("bodies that the ledger names", f"{OPS}/collecting.py", "            old -= hashes_in(_text_of(entry))", "            pass", LEDGER),
    Mutant("bodies that metadata names", f"{OPS}/collecting.py", "            old -= hashes_in(raw)", "            pass", LEDGER),
    Mutant("bodies that elements name", f"{OPS}/collecting.py", "            old -= yield from _mentioned(thread, channel, first, runs)", "            yield from _mentioned(thread, channel, first, runs)", LEDGER),
    Mutant("bodies of a step to come", f"{OPS}/collecting.py", "if cover.step < thread.standing.head}", "}", LEDGER),
    Mutant("old bodies that are wanted again", f"{OPS}/bodies.py", "elif (cover := cover_of(thread, rows[0])).step < standing.head:", "elif False:", LEDGER),
    Mutant("texts that are hidden", f"{OPS}/collecting.py", " or not tools.codec.searchable:", ":", LEDGER),
    Mutant("copies that are whole", f"{OPS}/whole.py", "    moved.check(thread)\n", "", LEDGER),
    Mutant("a thread that begins under a lock", f"{OPS}/whole.py", "if held or thread is None:", "if True:", f"{T}/test_concurrency.py"),
    Mutant("the place of what is deleted", f"{OPS}/whole.py", "if (yield from lock(key)) or (yield Statement(BEGIN, (key, *row))):", "if (yield from lock(key)) or True:", f"{T}/test_concurrency.py"),
    Mutant("the thread that a plan was for", "checkpointers/retention.py", "same = all(then.get(step, id_) == id_ for step, id_ in now.items())", "same = True", f"{T}/test_retention.py"),
    Mutant("what a plan keeps", "checkpointers/retention.py", "kept = all(step in now for step in decided.kept)", "kept = True", f"{T}/test_retention.py"),
    Mutant("an expired thread that grew", "checkpointers/retention.py", " and not (decided.expired and grown)", "", f"{T}/test_retention.py"),
    Mutant("pins since a plan", "checkpointers/retention.py", " and not set(pins) & set(decided.dropped)", "", f"{T}/test_retention.py"),
    Mutant("a snapshot where something seems missing", "checkpointers/upkeep.py", "return self.database.snapshot(operation)", "return self.database.read(operation)", f"{T}/test_concurrency.py"),
    Mutant("a snapshot to check", "checkpointers/care.py", "self.database.snapshot(partial(", "self.database.read(partial(", f"{T}/test_concurrency.py"),
    Mutant("a thread when its turn comes", f"{OPS}/listing.py", "        if at.step == _HIGHEST and not at.begun:\n            at = (yield from _begun(tools, query, at, size)) or (yield from _next_thread(tools, query, at))\n            continue\n        if at.step == _HIGHEST:\n            counted, rows = at.begun", "        if at.step == _HIGHEST:\n            counted, rows = at.begun or (yield Together(_beginning(thread.key, query, at, size)))", f"{T}/test_recent.py"),
    Mutant("late steps that are gone", f"{OPS}/remove.py", "if any(is_past(step, record) for record in kept)]", "if False]", f"{T}/test_told.py"),
    Mutant("what a channel is told first on a step that goes", "checkpointers/lineage.py", "*(name for name in told if name not in target.versions)", "", f"{T}/test_told.py"),
    Mutant("a step put again", f"{OPS}/write.py", "            if not before.step:  # one that", "            if True:  # one that", f"{T}/test_told.py"),
    Mutant("children that were relinked", f"{OPS}/rows.py", "record.relinked or record.trail", "record.trail", f"{T}/test_told.py"),
    Mutant("trails past a late step", "checkpointers/lineage.py", "        if step is not None and any(step < one < record.step for one in late):\n            step = None\n", "", f"{T}/test_told.py"),
    Mutant("a file that went", "checkpointers/sqlite_file.py", "if self._file is not None and self._file != _identity(self._path):", "if False:", f"{T}/test_refusals.py"),
    Mutant("a connection that forgot", "checkpointers/postgres_server.py", "            connection.close()\n            raise\n", "            raise\n", f"{T}/test_refusals.py"),
    Mutant("tables that are not up to date", "checkpointers/database.py", "if read_only and version < known[-1]:", "if False:", LEDGER),
    Mutant("what is missing of what is gathered", "checkpointers/gathering.py", "if found is None or found.is_whole else", "if True else", f"{T}/test_concurrency.py"),
    Mutant("a head that was dropped", "checkpointers/timeline.py", "        self._see_listed(end or self.stands_at)\n", "", f"{T}/test_history.py"),
    Mutant("a head of another life", "checkpointers/timeline.py", "if listed is None or listed.id != info.id:", "if listed is None:", f"{T}/test_history.py"),
    Mutant("the source of a recovery", f"{OPS}/repair.py", "    yield from lock(tools.key(name))\n    yield from checking", "    yield from checking", f"{T}/test_concurrency.py"),
    Mutant("the seal of a claim", f"{OPS}/guard.py", "{ROW_SEAL_BYTES}) = ?", "0) <> ?", f"{T}/test_ledger.py"),
    Mutant("the mark of an entry that is to change", f"{OPS}/ledger.py", "if found is None or found.mark not in (entry.mark, mark):", "if found is None:", f"{T}/test_ledger.py"),
    Mutant("the status of an effect", "checkpointers/ledger.py", '        see_text("the status of an effect", status)\n', "", f"{T}/test_ledger.py"),
    Mutant("what a worker may wait for", "checkpointers/underway.py", "if turn is None or number < turn", "", f"{T}/test_failures.py"),
    Mutant("what is under way", "checkpointers/underway.py", "            wait(calls)\n", "", f"{T}/test_failures.py"),
    Mutant("the last steps of a run that was cancelled", "checkpointers/underway.py", "for _ in range(LAST_STEPS)", "for _ in range(0)", f"{T}/test_failures.py"),
    Mutant("where a run stood that was left", "checkpointers/session.py", '_keep(_alive.setdefault(getattr(run, "stream_writer", None), {}), id(run), known)', "pass", f"{T}/test_concurrency.py"),
    Mutant("the head beside a newer branch", "checkpointers/retention.py", "(not line.beside, line.step)", "line.step", f"{T}/test_retention.py"),
    Mutant("what is put again is looked at again", f"{OPS}/write.py", "        if known:", "        if known and not before.step:", f"{T}/test_concurrency.py"),
    Mutant("bytes that became a text", "checkpointers/sqlite_file.py", "        connection.text_factory = _text\n", "", f"{T}/test_damage.py"),
    Mutant("the ledger of a thread that is adopted", "checkpointers/adopting.py", "effects += _take_ledger(source, into, thread)", "pass", f"{T}/test_adopt.py"),
    Mutant("parents before their children", "checkpointers/adopting.py", "in _parents_first(of)]", "in sorted(of, key=itemgetter(1))]", f"{T}/test_adopt.py"),
    Mutant("a branch that is adopted beside", "checkpointers/adopting.py", "beside=step.beside", "beside=False", f"{T}/test_adopt.py"),
    Mutant("threads that retention cannot read", "checkpointers/threads.py", 'if info.status == "damaged" and not info.checkpoints:', "if False:", f"{T}/test_damage.py"),
    Mutant("a commit whose answer was lost", "checkpointers/postgres_server.py", "if number is not None and was_committed(connection, number, timeout=self._timeout):", "if False:", f"{T}/test_failures.py"),
    Mutant("what became of a transaction", "checkpointers/postgres_commits.py", 'return bool(became == "committed")', "return True", f"{T}/test_failures.py"),
    Mutant("another life of a thread", f"{OPS}/shelves.py", "if [began for (began,) in rows] != [thread.standing.created_at]:", "if False:", f"{T}/test_storage.py"),
    Mutant("blank rows", "checkpointers/postgres_words.py", "WHERE place <= ?", "WHERE place < ? + 2", f"{T}/test_storage.py"),
    Mutant("blank rows of a type", "checkpointers/postgres_words.py", 'b"" if kind == "bytea" else value', "None", f"{T}/test_storage.py"),
    Mutant("what is learned when a saver is opened", f"{OPS}/common.py", "NO_THREAD: Final = -(1 << 62)", "NO_THREAD: Final = -1", f"{T}/test_storage.py"),
    Mutant("a step that brings nothing", f"{OPS}/guard.py", "if elements.rows or elements.of_tasks:", "if elements.rows:", f"{T}/test_storage.py"),
    Mutant("what is squeezed alone", f"{OPS}/storing.py", "squeeze(payloads[number], LOOSE)", "squeeze(payloads[number])", f"{T}/test_storage.py"),
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
        return _noticed_in(folder, mutant, "-m", "not slow", "-k", "not postgres") or _noticed_in(folder, mutant)


def _noticed_in(folder: str, mutant: Mutant, *chosen: str) -> str:
    """Run the tests of a mutant: at first the quick ones that need no server; most are noticed there."""
    command = [sys.executable, "-m", "pytest", *mutant.tests.split(), *chosen, "-x", "-q", "--tb=no"]
    command += ["-p", "no:randomly", "-p", "no:cacheprovider", "--timeout", "120"]
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
