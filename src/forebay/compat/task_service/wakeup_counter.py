"""Counter of the wake-ups of queues."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Condition

from forebay.deferred_interrupts import uninterrupted, wait_for
from forebay.errors import StoreError
from forebay.stores.contract.wakeups import Wakeups

logger: logging.Logger = logging.getLogger(__name__)


class WakeupCounter:
    """Counts the store's wake-ups, from the first wait on."""

    def __init__(self, wakeups: Callable[[], Wakeups]) -> None:
        self._new_wakeups = wakeups
        self._wakeups: Wakeups | None = None
        self._change = Condition()
        self._is_warned = False
        self.is_closed: bool = False
        self.count: int = 0

    def wait(self, seen_count: int, seconds: float) -> None:
        """Wait until there is a wake-up that was not seen, or until the time is over."""
        with uninterrupted, self._change:
            if self._wakeups is None and not self.is_closed:
                self._listen()
        wait_for(self._change, lambda: self.count != seen_count or self.is_closed, seconds)

    def _listen(self) -> None:
        """Start to listen for wake-ups. Without them callers poll, and each wait tries to listen again."""
        try:
            wakeups = self._new_wakeups()
            wakeups.start(self._on_wakeup)
        except StoreError as exc:
            if not self._is_warned:
                logger.warning("there are no wake-ups for new tasks now, so they are polled: %s", exc)
            self._is_warned = True
        else:
            self._wakeups = wakeups

    def _on_wakeup(self) -> None:
        with uninterrupted, self._change:
            self.count += 1
            self._change.notify_all()

    def close(self) -> None:
        with uninterrupted:
            with self._change:
                self.is_closed = True
                wakeups, self._wakeups = self._wakeups, None
                self._change.notify_all()
            # Not under the lock: the listener may be waiting for it.
            if wakeups is not None:
                wakeups.close()
