"""Standalone scheduler: fires schedules when they are due, and sleeps in between."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from random import random
from socket import gethostname
from threading import Event, Thread
from typing import Final

from forebay.app.due_schedules import FIRE_BATCH, fire_due
from forebay.app.schedules import save_declared
from forebay.clock import Clock, SystemClock
from forebay.domain.schedule import ScheduleDefinition
from forebay.errors import ConfigError, StoreUnavailable
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.store import Store
from forebay.stores.contract.wakeups import Wakeups

LONGEST_SLEEP_SECONDS: Final = 60.0
# A wake-up comes with every new job; after one the scheduler queries the store, and then pauses at least this
# long.
MIN_PAUSE_SECONDS: Final = 0.1
OUTAGE_SECONDS: Final = 1.0

logger: logging.Logger = logging.getLogger(__name__)


class Scheduler:
    """Fires due schedules in a thread of its own. Workers do so too, once a second. So a scheduler is needed
    only where seconds matter, or where no worker runs. The store lets each run be fired once.

    It sleeps until the next run, at most `longest` seconds, and a saved schedule wakes it. While the store is
    unavailable it tries again, and then catches up.
    """

    def __init__(
        self,
        engine: Engine,
        declared: Iterable[ScheduleDefinition] = (),
        *,
        longest: float = LONGEST_SLEEP_SECONDS,
        batch: int = FIRE_BATCH,
        clock: Clock | None = None,
        roll: Callable[[], float] = random,
    ) -> None:
        if not 0 < longest <= 3_600:  # noqa: PLR2004 - an hour; also refuses NaN
            raise ConfigError(f"a scheduler sleeps for more than 0 and at most 3,600 seconds, not {longest}")
        if batch < 1:
            raise ConfigError(f"a scheduler fires at least one schedule at a time, not {batch}")
        self._engine = engine
        self._declared = tuple(declared)
        self._longest = longest
        self._batch = batch
        self._clock = clock or SystemClock()
        self._roll = roll
        self._waiting: dict[str, int] = {}  # for other transactions: see `fire_due`
        self._is_woken = Event()
        self._is_stopped = Event()
        self._thread: Thread | None = None
        self._wakeups: Wakeups | None = None
        self.fired: int = 0

    def start(self) -> None:
        """Open the store, save the declared schedules, and start the thread; raise errors of the store."""
        store, reader = self._engine.store(), self._engine.reader()
        try:
            save_declared(store, reader, self._declared, self._roll, actor=f"scheduler@{gethostname()}")
        finally:
            reader.close()
        self._wakeups = self._engine.wakeups()
        self._wakeups.start(self._is_woken.set)
        self._thread = Thread(target=self._run, args=(store,), name="forebay-scheduler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the present tick; due runs stay due. Stopping twice, or before the start, is fine."""
        self._is_stopped.set()
        self._is_woken.set()
        if self._thread is not None:
            self._thread.join()
        if self._wakeups is not None:
            self._wakeups.close()

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _run(self, store: Store) -> None:
        try:
            while not self._is_stopped.is_set():
                self._is_woken.clear()
                pause = self._tick_safely(store)
                # In this order: a stop before `clear` is seen here, and a later one sets the event again.
                if not self._is_stopped.wait(min(pause, MIN_PAUSE_SECONDS)):
                    self._is_woken.wait(max(0.0, pause - MIN_PAUSE_SECONDS))
        finally:
            store.close()

    def _tick_safely(self, store: Store) -> float:
        try:
            return self.tick(store)
        except StoreUnavailable as exc:
            logger.warning("schedules are not fired while the store is unavailable: %s", exc)
            return OUTAGE_SECONDS

    def tick(self, store: Store) -> float:
        """Fire all that is due, in batches; return how many seconds to sleep. The duration of the tick itself
        counts as slept."""
        started_at = self._clock.monotonic()
        has_more = True
        while has_more and not self._is_stopped.is_set():
            jobs, has_more = fire_due(store, self._roll, self._batch, self._waiting)
            self.fired += jobs
        due = store.due_schedules(1)
        seconds = self._clock.monotonic() - started_at
        if seconds > self._longest:
            logger.warning("the scheduler falls behind: a tick took %.1f s of %g s", seconds, self._longest)
        if due.schedules:
            return 0.0
        next_due = self._longest if due.next_due_ms is None else due.next_due_ms / 1_000
        return max(0.0, min(self._longest - seconds, next_due))
