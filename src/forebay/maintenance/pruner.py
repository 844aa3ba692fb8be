"""Duty: final jobs past their retention are forgotten, and the chain of the audit log goes on."""

from __future__ import annotations

import msgspec

from forebay.stores.contract.store import Store
from forebay.stores.contract.values import BATCH


class Pruner(msgspec.Struct, frozen=True, kw_only=True):
    """Small batches all day instead of a quiet hour at night: claims go on beside it."""

    name: str = "prune"
    every_ms: int = 10_000
    is_ready: bool = True
    batch: int = BATCH

    def run(self, store: Store) -> bool:
        has_more = store.prune(self.batch) >= self.batch
        # In this duty, since a turn of its own would cost every worker a question more.
        return store.chain_audit(self.batch) >= self.batch or has_more
