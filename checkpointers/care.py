"""What keeps a database sound and secret: check it, save what is sound, change its keys, throw one away."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from checkpointers import operations
from checkpointers.database import now
from checkpointers.errors import CheckpointerError, IntegrityError, KeyringError, ThreadExistsError
from checkpointers.operations.common import place_of
from checkpointers.records import Names
from checkpointers.upkeep import Upkeep

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

    from checkpointers.operations.checking import Finding
    from checkpointers.operations.common import Tools
    from checkpointers.operations.inspecting import Raw
    from checkpointers.operations.repair import Rotation
    from checkpointers.vaults import Vaults


class Care(Upkeep):
    """Mixed into every saver; each method stands on one operation."""

    vaults: Vaults

    def fsck(self, thread: str | None = None) -> list[Finding]:
        """Check every row of one thread, or of all, against its seal and against the others; changes nothing.

        Each finding names the thread, the step if it is known, what is wrong, and the newest step that is sound.
        """
        tools, thread = self._own_tools(), None if thread is None else str(thread)
        unnamed = self._read(lambda: operations.checking.names(tools))
        findings = unnamed if thread is None else []
        for key, name in self._read(lambda: operations.checking.stored_threads(tools, thread)):
            check = self.database.snapshot(partial(operations.checking.thread, tools, key, name))
            if check is not None:
                heads = check.heads()
                findings += [replace(found, sound=heads[0] if heads else None) for found in check.findings]
        return findings

    def _own_tools(self) -> Tools:
        """Give tools that have learned nothing yet: what is remembered of the names may not be what is stored."""
        return replace(self._tools(), names=Names())

    def recover(self, thread: str, *, into: str) -> int:
        """Copy all that is sound of a damaged thread into a new one; give the step at which that stands.

        It is 0 if no step is sound, but something of its ledger or of its bodies is.
        """
        self._under_way.settle(thread)
        step = self._change(into, lambda: operations.repair.recover(self._own_tools(), thread, into, now()))
        if step is None:
            raise ThreadExistsError(into)
        return step

    def rotate(self, *, batch: int = 100) -> Rotation:
        """Wrap the keys of all threads under the newest master key, so many in a transaction; `migrating`, encrypt too.

        May be stopped at any time and called again. A master key that `by_key` does not name any more opens nothing. A
        thread that is damaged stays as it is and stops no other; the error about it comes at the end.
        """
        if self.vaults.keyring is None:
            msg = "there is no key to rotate to; open the saver with keys=Keyring(…)"
            raise KeyringError(msg)
        tools = self._tools()
        rewrapped, refusals, last = 0, list[CheckpointerError](), -1
        while (done := self.database.exclusive(partial(operations.repair.rewrap, tools, batch, last))).last is not None:
            rewrapped, last = rewrapped + done.rewrapped, done.last
            refusals += [done.refusal] if done.refusal else []
        encrypted = self._encrypt(tools, batch, refusals) if self.vaults.migrating else 0
        self._memory.forget()
        if refusals:
            raise refusals[0]
        return operations.repair.Rotation(rewrapped, encrypted, self.database.read(operations.repair.masters))

    def _encrypt(self, tools: Tools, batch: int, refusals: list[CheckpointerError]) -> int:
        """Encrypt every thread that is not; rebuild the tables, so that nothing of them is left in clear."""
        encrypted, last = 0, -1
        while plain := self.database.read(partial(operations.repair.unencrypted, batch, last)):
            for last in plain:
                try:
                    encrypted += self.database.exclusive(partial(operations.repair.encrypt, tools, last))
                except (IntegrityError, KeyringError) as error:
                    refusals.append(error)
        self.database.vacuum(full=True)
        return encrypted

    def shred(self, thread: str) -> None:
        """Throw the key of a thread away: what is stored of it, here and in every copy, says nothing any more."""
        name = str(thread)
        token = self._token(name)
        if not self._change(name, lambda: operations.repair.shred(self._tools(), name, token)):
            msg = f"thread {name!r} has no key of its own: it is not encrypted, or not there"
            raise KeyringError(msg)
        self.vaults.forget(self._tools().key(name))
        self.database.vacuum(full=False)

    def inspect(self, config: RunnableConfig) -> Raw | None:
        """Look at a checkpoint without validating or building anything: damaged, newer or unknown parts are shown."""
        from checkpointers.operations import inspecting  # noqa: PLC0415  it loads LangGraph

        return self._read(lambda: inspecting.raw(self._tools(), place_of(config)))

    async def ainspect(self, config: RunnableConfig) -> Raw | None:
        """Async `inspect`."""
        return await self.database.elsewhere(lambda: self.inspect(config))

    async def afsck(self, thread: str | None = None) -> list[Finding]:
        """Async `fsck`."""
        return await self.database.elsewhere(lambda: self.fsck(thread))

    async def arecover(self, thread: str, *, into: str) -> int:
        """Async `recover`."""
        return await self.database.elsewhere(lambda: self.recover(thread, into=into))

    async def arotate(self, *, batch: int = 100) -> Rotation:
        """Async `rotate`."""
        return await self.database.elsewhere(lambda: self.rotate(batch=batch))

    async def ashred(self, thread: str) -> None:
        """Async `shred`."""
        await self.database.elsewhere(lambda: self.shred(thread))
