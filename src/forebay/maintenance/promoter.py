"""Duty: what is due becomes pending, what has expired is cancelled."""

from __future__ import annotations

import msgspec

from forebay.stores.contract.store import Store
from forebay.stores.contract.values import BATCH


class Promoter(msgspec.Struct, frozen=True, kw_only=True):
    """For queues that nobody claims from: a claim promotes what is due in its own queues by itself."""

    name: str = "promote"
    every_ms: int = 1_000
    is_ready: bool = True
    batch: int = BATCH

    def run(self, store: Store) -> bool:
        return store.promote(self.batch) >= self.batch
