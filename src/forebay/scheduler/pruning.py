"""Duty: final jobs past their retention are forgotten."""

from __future__ import annotations

import msgspec

from forebay.stores.protocol import BATCH, Store


class Pruning(msgspec.Struct, frozen=True, kw_only=True):
    """Small batches all day instead of a quiet hour at night: claims go on beside it."""

    name: str = "prune"
    every_ms: int = 10_000
    is_ready: bool = True
    batch: int = BATCH

    def run(self, store: Store) -> bool:
        return store.prune(self.batch) >= self.batch
