"""Schedule enqueuer: maintenance task that enqueues the jobs of due schedule runs."""

from __future__ import annotations

from collections.abc import Callable
from random import random

import msgspec

from forebay.app.due_schedules import FIRE_BATCH, fire_due
from forebay.stores.contract.store import Store


class ScheduleEnqueuer(msgspec.Struct, frozen=True, kw_only=True):
    """Fires due schedules; the store refuses a run that another process has fired already."""

    name: str = "fire"
    every_ms: int = 1_000
    is_ready: bool = True
    batch: int = FIRE_BATCH
    roll: Callable[[], float] = random
    waiting: dict[str, int] = msgspec.field(default_factory=dict)  # see `fire_due`

    def run(self, store: Store) -> bool:
        return fire_due(store, self.roll, self.batch, self.waiting)[1]
