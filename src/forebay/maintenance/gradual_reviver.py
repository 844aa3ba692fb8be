"""Duty: revivals in batches go on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from forebay.clock import Clock
from forebay.errors import StoreError
from forebay.operations.gradual_revive import advance_gradual_revives
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store

# Where no ramp was running nobody looks again so soon: a look costs a connection.
IDLE_SECONDS: Final = 10.0

logger: logging.Logger = logging.getLogger(__name__)


class GradualReviver:
    """Whoever comes first takes the turn; one who comes to the same conclusion a moment later is refused by
    the store. The reader is held from turn to turn while a ramp is running, and let go of when none is, or
    when others have had all turns for a while: nearly always there is no ramp, and a worker that has had one
    turn shall not hold a connection for ever."""

    name = "ramp"
    every_ms = 2_000

    def __init__(self, reader: Callable[[], Reader], clock: Clock) -> None:
        self._new_reader = reader
        self._clock = clock
        self._ready_at = 0.0
        self._reader: Reader | None = None
        self._used_at = 0.0

    @property
    def is_ready(self) -> bool:
        """Only now and then, as with alerts: a consumer asks after each of its claims."""
        now = self._clock.monotonic()
        if now < self._ready_at:
            return False
        if now >= self._used_at + IDLE_SECONDS:
            self.close()
        self._ready_at = now + self.every_ms / 2_000
        return True

    def run(self, store: Store) -> bool:
        """One turn, and what is left waits for the next. Whatever goes wrong costs a line in the log: a ramp
        is not worth a job."""
        is_running = False
        try:
            if self._reader is None:
                self._reader = self._new_reader()
            self._used_at = self._clock.monotonic()
            is_running = advance_gradual_revives(store, self._reader)
        except Exception as exc:
            is_known = isinstance(exc, StoreError)
            logger.warning("ramps are left to a later turn: %s", exc, exc_info=not is_known)
        if not is_running:
            self.close()
            self._ready_at = self._clock.monotonic() + IDLE_SECONDS
        return False

    def close(self) -> None:
        """Let go of the reader; the next turn, if there is one, opens another."""
        reader, self._reader = self._reader, None
        if reader is not None:
            with suppress(StoreError):
                reader.close()
