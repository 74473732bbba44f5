"""LangGraph checkpoints that cannot be lost and hardly take room: savers for SQLite and Postgres, for any graph.

Every name is loaded when it is first used, so that what only lists or logs does not pay for what decodes.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from checkpointers.adopting import Adopted, adopt
    from checkpointers.comparing import Comparison
    from checkpointers.diffing import Change, Diff, Stat
    from checkpointers.drawing import export_html
    from checkpointers.effects import BodyInfo, Entry
    from checkpointers.errors import (
        AsyncSaverError,
        BlockedTypeError,
        BusyError,
        CheckpointerError,
        DamagedValueError,
        DiskFullError,
        EntryMovedError,
        ForkedWarning,
        HeadMovedError,
        HistoryError,
        IncompleteRecordError,
        IntegrityError,
        KeyringError,
        LeaseLostError,
        MissingBodyError,
        MissingDriverError,
        NotADatabaseError,
        ReadOnlyError,
        RebuildError,
        RefusedTypeError,
        SchemaError,
        ShreddedError,
        StorageError,
        StrictReadingError,
        TenancyWarning,
        ThreadBusyError,
        ThreadExistsError,
        TooLargeError,
        UnencryptedError,
        UnknownPathError,
        UnknownSchemeError,
        UnknownStepError,
        UnknownThreadError,
        UnreachableError,
        UnreadableValueError,
        UnstorableValueError,
    )
    from checkpointers.history import Blame, History
    from checkpointers.importing import import_thread
    from checkpointers.keyring import Keyring
    from checkpointers.lease import Lease
    from checkpointers.ledger import Ledger
    from checkpointers.logs import Line
    from checkpointers.operations.checking import Finding
    from checkpointers.operations.inspecting import Raw
    from checkpointers.operations.repair import Rotation
    from checkpointers.postgres import PostgresSaver
    from checkpointers.registry import open_saver
    from checkpointers.retention import Keep, Plan
    from checkpointers.saver import Saver
    from checkpointers.searching import Found, Match
    from checkpointers.sqlite import SqliteSaver
    from checkpointers.standing import Holder
    from checkpointers.step import Step
    from checkpointers.strict import Degraded, StrictSerializer
    from checkpointers.threads import Readable, StepInfo, ThreadInfo, Usage
    from checkpointers.timeline import Told

_HOMES = {
    "adopting": "adopt Adopted",
    "comparing": "Comparison",
    "diffing": "Change Diff Stat",
    "drawing": "export_html",
    "effects": "BodyInfo Entry",
    "errors": (
        "AsyncSaverError BlockedTypeError BusyError CheckpointerError DamagedValueError DiskFullError"
        " EntryMovedError ForkedWarning HeadMovedError HistoryError IncompleteRecordError IntegrityError KeyringError"
        " LeaseLostError MissingBodyError MissingDriverError NotADatabaseError ReadOnlyError RebuildError"
        " RefusedTypeError SchemaError ShreddedError StorageError StrictReadingError TenancyWarning ThreadBusyError"
        " ThreadExistsError TooLargeError UnencryptedError UnknownPathError UnknownSchemeError"
        " UnknownStepError UnknownThreadError UnreachableError UnreadableValueError UnstorableValueError"
    ),
    "history": "Blame History",
    "importing": "import_thread",
    "keyring": "Keyring",
    "lease": "Lease",
    "ledger": "Ledger",
    "logs": "Line",
    "operations.checking": "Finding",
    "operations.inspecting": "Raw",
    "operations.repair": "Rotation",
    "postgres": "PostgresSaver",
    "registry": "open_saver",
    "retention": "Keep Plan",
    "saver": "Saver",
    "searching": "Found Match",
    "sqlite": "SqliteSaver",
    "standing": "Holder",
    "step": "Step",
    "strict": "Degraded StrictSerializer",
    "threads": "Readable StepInfo ThreadInfo Usage",
    "timeline": "Told",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "Adopted",
    "AsyncSaverError",
    "Blame",
    "BlockedTypeError",
    "BodyInfo",
    "BusyError",
    "Change",
    "CheckpointerError",
    "Comparison",
    "DamagedValueError",
    "Degraded",
    "Diff",
    "DiskFullError",
    "Entry",
    "EntryMovedError",
    "Finding",
    "ForkedWarning",
    "Found",
    "HeadMovedError",
    "History",
    "HistoryError",
    "Holder",
    "IncompleteRecordError",
    "IntegrityError",
    "Keep",
    "Keyring",
    "KeyringError",
    "Lease",
    "LeaseLostError",
    "Ledger",
    "Line",
    "Match",
    "MissingBodyError",
    "MissingDriverError",
    "NotADatabaseError",
    "Plan",
    "PostgresSaver",
    "Raw",
    "ReadOnlyError",
    "Readable",
    "RebuildError",
    "RefusedTypeError",
    "Rotation",
    "Saver",
    "SchemaError",
    "ShreddedError",
    "SqliteSaver",
    "Stat",
    "Step",
    "StepInfo",
    "StorageError",
    "StrictReadingError",
    "StrictSerializer",
    "TenancyWarning",
    "ThreadBusyError",
    "ThreadExistsError",
    "ThreadInfo",
    "Told",
    "TooLargeError",
    "UnencryptedError",
    "UnknownPathError",
    "UnknownSchemeError",
    "UnknownStepError",
    "UnknownThreadError",
    "UnreachableError",
    "UnreadableValueError",
    "UnstorableValueError",
    "Usage",
    "adopt",
    "export_html",
    "import_thread",
    "open_saver",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its module."""
    home = _HOME_OF.get(name)
    if home is None:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Offer the public names to completion before they are loaded."""
    return sorted({*globals(), *__all__})
