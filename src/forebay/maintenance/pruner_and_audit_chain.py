"""Pruner: maintenance task that deletes final jobs past their retention and extends the audit log's chain."""

from __future__ import annotations

import msgspec

from forebay.stores.contract.claims_and_results import BATCH
from forebay.stores.contract.store import Store


class Pruner(msgspec.Struct, frozen=True, kw_only=True):
    """Prunes in small batches all day, without a quiet hour at night: claims go on concurrently."""

    name: str = "prune"
    every_ms: int = 10_000
    is_ready: bool = True
    batch: int = BATCH

    def run(self, store: Store) -> bool:
        has_more = store.prune(self.batch) >= self.batch
        # Part of this task, since a task of its own would cost every worker one more query.
        return store.chain_audit(self.batch) >= self.batch or has_more
