"""The store contract: protocols of engine, store and reader, and the values they exchange.

The promised names are importable from here. Each engine implements the protocols; no file here imports one.
"""

from __future__ import annotations

from forebay.stores.contract.claims_and_results import (
    ActionResult,
    InsertResult,
    LeaseRefusal,
    LeaseStatus,
    OnConflict,
    PendingCancel,
    QueueClaim,
    RenewResult,
    SettleAndClaimResult,
)
from forebay.stores.contract.engine import Engine, Features
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.revive_options import ReviveOptions
from forebay.stores.contract.store import Store
from forebay.stores.contract.wakeups import Wakeups

__all__ = [
    "ActionResult",
    "Engine",
    "Features",
    "InsertResult",
    "LeaseRefusal",
    "LeaseStatus",
    "OnConflict",
    "PendingCancel",
    "QueueClaim",
    "Reader",
    "RenewResult",
    "ReviveOptions",
    "SettleAndClaimResult",
    "Store",
    "Wakeups",
]
