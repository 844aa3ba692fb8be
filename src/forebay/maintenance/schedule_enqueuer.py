"""Duty: runs of schedules that are due become jobs."""

from __future__ import annotations

from collections.abc import Callable
from random import random

import msgspec

from forebay.app.schedules import FIRE_BATCH, fire_due
from forebay.stores.contract.store import Store


class ScheduleEnqueuer(msgspec.Struct, frozen=True, kw_only=True):
    """Whoever comes first fires; who comes to the same conclusion a moment later is refused by the store."""

    name: str = "fire"
    every_ms: int = 1_000
    is_ready: bool = True
    batch: int = FIRE_BATCH
    roll: Callable[[], float] = random
    waiting: dict[str, int] = msgspec.field(default_factory=dict)  # see `fire_due`

    def run(self, store: Store) -> bool:
        return fire_due(store, self.roll, self.batch, self.waiting)[1]
