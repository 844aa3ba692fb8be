"""Gradual reviver: maintenance task that advances gradual revives."""

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

# Pause after a run that found no gradual revive: a query costs a connection.
IDLE_SECONDS: Final = 10.0

logger: logging.Logger = logging.getLogger(__name__)


class GradualReviver:
    """Advances gradual revives; the store refuses the second of two runs that come to the same conclusion.

    The reader stays open from run to run while a gradual revive is under way. It is closed when none is, or
    when other processes have had all runs for a while. There is nearly always none, and a worker that has had
    one run must not hold a connection for ever.
    """

    name = "gradual_revive"
    every_ms = 2_000

    def __init__(self, reader: Callable[[], Reader], clock: Clock) -> None:
        self._new_reader = reader
        self._clock = clock
        self._ready_at = 0.0
        self._reader: Reader | None = None
        self._used_at = 0.0

    @property
    def is_ready(self) -> bool:
        """Whether a run is due: true once per period, as with alerts. A consumer asks after each of its
        claims."""
        now = self._clock.monotonic()
        if now < self._ready_at:
            return False
        if now >= self._used_at + IDLE_SECONDS:
            self.close()
        self._ready_at = now + self.every_ms / 2_000
        return True

    def run(self, store: Store) -> bool:
        """Advance each gradual revive by at most one batch; the rest waits for the next run. Errors are only
        logged: a gradual revive must not stop a worker."""
        is_running = False
        try:
            if self._reader is None:
                self._reader = self._new_reader()
            self._used_at = self._clock.monotonic()
            is_running = advance_gradual_revives(store, self._reader)
        except Exception as exc:
            is_known = isinstance(exc, StoreError)
            logger.warning("gradual revives go on at a later run: %s", exc, exc_info=not is_known)
        if not is_running:
            self.close()
            self._ready_at = self._clock.monotonic() + IDLE_SECONDS
        return False

    def close(self) -> None:
        """Close the reader; the next run opens another if it needs one."""
        reader, self._reader = self._reader, None
        if reader is not None:
            with suppress(StoreError):
                reader.close()
