"""Every error of the savers, in one tree; each says what happened, where, and what to do next.

CheckpointerError
├── UnstorableValueError    a value that would not come back as it is
├── UnreadableValueError    a stored value that cannot be decoded
├── IntegrityError          what is stored is not what was written
│   └── IncompleteRecordError   something that is referred to is not stored
├── StrictReadingError      a stored value is not built
│   ├── BlockedTypeError    it names a type that is not listed
│   ├── RebuildError        its type does not take what is stored
│   ├── DamagedValueError   it is no value of this form
│   └── TooLargeError       it is over the limits
├── RefusedTypeError        a value that would not be read back is not written
├── KeyringError            the keys at hand do not open what is stored
│   ├── UnencryptedError    a thread is in clear where encrypted ones are expected
│   └── ShreddedError       the key of a thread was thrown away
├── ThreadBusyError         somebody else holds the thread
├── LeaseLostError          somebody else took the thread over
├── HeadMovedError          somebody else moved the thread on
├── EntryMovedError         an entry of the ledger was changed since it was read
├── MissingBodyError        no such body in the thread
├── ThreadExistsError       a copy would mix two threads
├── UnknownThreadError      no such thread
├── UnknownSchemeError      a saver address nobody serves
├── MissingDriverError      a saver address whose driver is not installed
├── HistoryError            a history cannot say that
│   ├── UnknownStepError    no such step in the thread
│   ├── UnknownPathError    no step ever had a value there
│   └── AsyncSaverError     the saver answers only in its own event loop
└── StorageError            the database said no
    ├── BusyError           somebody else held the database for too long
    ├── DiskFullError       no space to write
    ├── ReadOnlyError       the database may not be written
    ├── NotADatabaseError   the file is something else, or damaged
    ├── UnreachableError    the server cannot be reached
    └── SchemaError         the database's tables are of another version
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from checkpointers.effects import Entry

LONGEST_PATH = 120
#: What opening a row raises that is not as it was written.
DAMAGE: Final = (ValueError, TypeError, AttributeError, IndexError, OverflowError, struct.error)


def is_too_deep(error: BaseException) -> bool:
    """Tell whether an error is about how deep a value is nested; msgpack says so in words only."""
    return isinstance(error, RecursionError) or "ecursion limit" in str(error)


NO_TABLES: Final = "it has no tables of this library"


class CheckpointerError(Exception):
    """Something a saver cannot do."""


class UnstorableValueError(CheckpointerError, TypeError, ValueError):
    """A value that the serializer cannot keep as it is; nothing was written."""

    def __init__(self, *, channel: str, path: str, reason: str, thread: str = "") -> None:
        """Name the channel and the path inside its value; the saver adds the thread."""
        super().__init__(channel, path, reason)
        self.channel, self.path, self.reason, self.thread = channel, path, reason, thread

    def __str__(self) -> str:
        """Say what, where, and that nothing happened."""
        path = self.path if len(self.path) <= LONGEST_PATH else f"{self.path[:LONGEST_PATH]}…"
        where = f"channel {self.channel!r}" + (f" at {path.strip()}" if path else "")
        of = f" of thread {self.thread!r:.80}" if self.thread else ""
        return f"cannot store {where}{of}: {self.reason}; nothing was written"


class UnreadableValueError(CheckpointerError):
    """A stored value that its serializer refuses to decode."""

    def __init__(self, *, thread: str, step: int | None, channel: str, reason: str) -> None:
        """Name the place, as every error of reading does."""
        self.thread, self.step, self.channel, self.reason = thread, step, channel, reason
        super().__init__(f"cannot read channel {channel!r} of {at(thread, step)}: {reason}")


class IntegrityError(CheckpointerError):
    """What is stored is not what was written: a damaged, swapped or missing row."""

    def __init__(self, thread: str, step: int | None, what: str) -> None:
        """Name the place; the other threads stay readable."""
        self.thread, self.step, self.what = thread, step, what
        where = at(thread, step) if thread else "the database"
        super().__init__(
            f"{where}: {what}; it is damaged there, other threads are not affected: fsck() tells how far,"
            " recover() saves what is sound into a new thread"
        )


class IncompleteRecordError(IntegrityError):
    """Something that is referred to is not stored."""

    def __init__(self, *, thread: str, step: int | None, channel: str | None) -> None:
        """Name the place: a channel whose elements are missing, or the row of a checkpoint itself."""
        self.channel = channel
        what = (
            f"channel {channel!r} refers to rows that are not there" if channel else "a row that was stored is missing"
        )
        super().__init__(thread, step, what)


class StrictReadingError(CheckpointerError, ValueError):
    """A stored value that is not built, because it is not one that this program would have written."""

    where = ""

    def __str__(self) -> str:
        """Name the place, once it is known."""
        return f"{self.where}: {super().__str__()}" if self.where else super().__str__()


class BlockedTypeError(StrictReadingError):
    """A stored value names a type that is not listed; nothing of it was built."""

    def __init__(self, module: str, name: str) -> None:
        """Name the type as it is stored."""
        self.module, self.name = module, name
        super().__init__(
            f"{module}.{name} is not a listed type, so nothing was built; if it is yours: types=[{module}.{name}]"
        )


class RebuildError(StrictReadingError):
    """A listed type does not take the data that is stored for it."""

    def __init__(self, module: str, name: str, cause: object) -> None:
        """Name the type, and repeat what its constructor said."""
        self.module, self.name = module, name
        super().__init__(f"{module}.{name} does not take its stored data ({type(cause).__name__}: {cause!s:.300})")


class DamagedValueError(StrictReadingError):
    """Stored bytes that are no value of this form."""


class TooLargeError(StrictReadingError):
    """A value over the limits of size or nesting."""


class RefusedTypeError(CheckpointerError, TypeError):
    """A value of this type would not be read back, so it is not written."""


class KeyringError(CheckpointerError):
    """The keys at hand do not open what is stored."""


class UnencryptedError(KeyringError):
    """A thread is stored in clear, and this saver reads encrypted ones only."""

    def __init__(self, thread: str) -> None:
        """Say how to encrypt it."""
        self.thread = thread
        super().__init__(
            f"thread {thread!r} is not encrypted; if that is expected, open the saver with migrating=True and call"
            " rotate(), which encrypts it"
        )


class ShreddedError(KeyringError):
    """The key of a thread was thrown away."""

    def __init__(self, thread: str) -> None:
        """Say that nobody can read it, and how to be rid of what is left."""
        self.thread = thread
        super().__init__(f"the key of thread {thread!r} was thrown away; delete_thread() removes what is left of it")


class ThreadBusyError(CheckpointerError):
    """Somebody else holds the lease of the thread."""

    def __init__(self, thread: str, owner: str, since: datetime) -> None:
        """Say who, and since when."""
        self.thread, self.owner, self.since = thread, owner, since
        super().__init__(
            f"thread {thread!r} is held by {owner} since {since.isoformat(timespec='seconds')}; wait for it"
            " (if_busy='enqueue'), or take it over (if_busy='interrupt' or 'rollback')"
        )


class LeaseLostError(CheckpointerError):
    """The lease under which this was to be written is over: nothing was written."""

    def __init__(self, thread: str, owner: str | None) -> None:
        """Say who has the thread now."""
        self.thread, self.owner = thread, owner
        nobody = "nobody holds it now: it was released, or it ran out and somebody else had or wrote the thread since"
        now = f"{owner} holds it now" if owner else f"{nobody}, or the thread was deleted"
        super().__init__(f"the lease of thread {thread!r} is over: {now}; nothing was written, take the lease again")


class HeadMovedError(CheckpointerError):
    """Another writer moved the thread on since this run looked: nothing was written."""

    def __init__(self, thread: str, step: int) -> None:
        """Name where the thread stands now."""
        self.thread, self.step = thread, step
        super().__init__(
            f"somebody else moved the thread on to {at(thread, step)} while this ran; nothing of this step was written."
            " Run again from there, hold a lease (saver.lease), or keep both branches (on_conflict='fork')"
        )


class EntryMovedError(CheckpointerError):
    """An entry of the ledger was changed since it was read: nothing was written; `entry` is what stands there now."""

    def __init__(self, thread: str, key: str, entry: Entry | None) -> None:
        """Say what stands there, if anything does."""
        self.thread, self.key, self.entry = thread, key, entry
        now = f"is {entry.status!r} now, revision {entry.revision}" if entry else "is not there any more"
        super().__init__(f"the effect {key!r:.80} of thread {thread!r} {now}; nothing was written, look again")


class MissingBodyError(CheckpointerError, LookupError):
    """No body with this hash is kept in the thread."""

    def __init__(self, thread: str, hash: str) -> None:  # noqa: A002  it is called so wherever it is stored
        """Name the thread and the hash."""
        self.thread, self.hash = thread, hash
        super().__init__(f"thread {thread!r} keeps no body {hash!r:.80}; saver.ledger.bodies() lists those it keeps")


class ForkedWarning(UserWarning):
    """A run went on beside the head of its thread, because another writer had moved that."""


class ThreadExistsError(CheckpointerError):
    """The target of a copy already has checkpoints."""

    def __init__(self, thread: str) -> None:
        """Name the thread that is in the way."""
        self.thread = thread
        super().__init__(f"thread {thread!r} already exists; delete it first or copy to another name")


class UnknownThreadError(CheckpointerError, LookupError):
    """No thread of this name is stored."""

    def __init__(self, thread: str, hint: str = "saver.threads() lists those there are") -> None:
        """Name the thread that was asked for, and how to find those there are."""
        self.thread = thread
        super().__init__(f"there is no thread {thread!r}; {hint}")


class UnknownSchemeError(CheckpointerError, ValueError):
    """An address whose scheme no saver serves."""


class MissingDriverError(CheckpointerError, ImportError):
    """An address whose driver is not installed."""


class HistoryError(CheckpointerError):
    """Something a history cannot say."""


class UnknownStepError(HistoryError, LookupError):
    """The thread has no such step; the message says which it has."""


class UnknownPathError(HistoryError, LookupError):
    """No step on the way to the head has a value at this path; `matches` are paths that are like it."""

    def __init__(self, path: str, where: str, matches: Sequence[str]) -> None:
        """Name the path, where it was looked for, and what is like it."""
        self.path, self.matches = path, tuple(matches)
        shown = [match if match.isprintable() else repr(match) for match in matches]
        known = f"there is {', '.join(shown)}" if matches else "there is no value at all"
        super().__init__(f"nothing was ever at {path!r} of {where}; {known}")


class AsyncSaverError(HistoryError):
    """The saver answers only in its own event loop, which a history would block for ever."""

    def __init__(self, saver: str) -> None:
        """Say what to use in its place."""
        super().__init__(
            f"{saver} answers only in the event loop it was made in; open the same database with a sync saver"
            " (open_saver('langgraph+sqlite:///…'), open_saver('langgraph+postgresql://…')), or while its loop runs"
            " look from another thread: await asyncio.to_thread(lambda: History(saver, thread)[-1].values)"
        )


class StorageError(CheckpointerError):
    """The database refused; `place` says which one."""

    hint = "see the cause below"

    def __init__(self, place: str, cause: object, *, hint: str | None = None) -> None:
        """Join the place, the database's own words and what to do next."""
        self.place, self.cause = place, str(cause).strip()
        super().__init__(f"{place}: {self.cause}; {hint or self.hint}")


class BusyError(StorageError):
    """Another writer kept the database locked for longer than the busy timeout."""

    hint = "another process holds it; nothing was written, try again or open with a longer timeout"


class DiskFullError(StorageError):
    """There is no room for the write."""

    hint = "nothing of this call was written and what was acknowledged is intact; free some space and go on"


class ReadOnlyError(StorageError):
    """The database, its folder or its transaction is read-only."""

    hint = "nothing was written; make it writable to go on"


class NotADatabaseError(StorageError):
    """The file is not a database, or a damaged one."""

    hint = "check the path; restore the file from a backup if it should be a database"


class UnreachableError(StorageError):
    """The server does not answer, or went away and did not come back in time."""

    hint = "what was acknowledged is stored; start the server or check the address, then go on"


class SchemaError(StorageError):
    """The tables are of a version that this release does not know, or one that may not be brought up to date here."""

    hint = "install the release that wrote it, or a newer one"
    version = 0

    def of(self, version: int) -> SchemaError:
        """Say which version they are of."""
        self.version = version
        return self


def at(thread: str, step: int | None) -> str:
    """Give the one address form of the product, `THREAD@STEP`."""
    return f"{thread}@{step}" if step is not None else f"thread {thread!r}"


class TenancyWarning(UserWarning):
    """The role that a saver connected as is not bound by the rules that keep tenants apart."""
