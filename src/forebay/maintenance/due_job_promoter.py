"""Promoter: maintenance task that makes due jobs pending and cancels expired ones."""

from __future__ import annotations

import msgspec

from forebay.stores.contract.claims_and_results import BATCH
from forebay.stores.contract.store import Store


class Promoter(msgspec.Struct, frozen=True, kw_only=True):
    """Promotes in all queues. It matters for queues without claims: a claim promotes in its own queues."""

    name: str = "promote"
    every_ms: int = 1_000
    is_ready: bool = True
    batch: int = BATCH

    def run(self, store: Store) -> bool:
        return store.promote(self.batch) >= self.batch
