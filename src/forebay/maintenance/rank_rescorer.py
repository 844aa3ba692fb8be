"""Rescorer: maintenance task that updates ranks that time or new settings have changed."""

from __future__ import annotations

import msgspec

from forebay.stores.contract.claims_and_results import BATCH
from forebay.stores.contract.store import Store


class Rescorer(msgspec.Struct, frozen=True, kw_only=True):
    """Rescores jobs. Each job is rescored a fixed number of times in its life, so most runs find none."""

    name: str = "rescore"
    every_ms: int = 1_000
    is_ready: bool = True
    batch: int = BATCH

    def run(self, store: Store) -> bool:
        return store.rescore(self.batch) > 0
