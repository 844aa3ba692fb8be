"""Duty: revivals in batches go on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import msgspec

from forebay.app.ramping import advance_ramps
from forebay.stores.protocol import Reader, Store


class Ramping(msgspec.Struct, frozen=True, kw_only=True):
    """Whoever comes first takes the turn; one who comes to the same conclusion a moment later is refused by
    the store. The reader is let go of after each turn: nearly always there is no ramp, and a worker that
    has had one turn shall not hold a connection for ever."""

    reader: Callable[[], Reader]
    name: str = "ramp"
    every_ms: int = 2_000
    is_ready: bool = True

    def run(self, store: Store) -> bool:
        with closing(self.reader()) as reader:
            return advance_ramps(store, reader)
