"""The figures of a worker on their way to the store."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from forebay.clock import Clock
from forebay.domain.job import Job, WorkerId
from forebay.domain.metrics import TEN_SECONDS, MetricRow
from forebay.errors import StoreError
from forebay.stores.protocol import Store
from forebay.telemetry.gathering import Gathering
from forebay.telemetry.observing import End, Observers

# Whoever rolls rows up looks back for two minutes, and puts those of all workers together after five. A row
# that came later would not be rolled up; one that was written, and is offered again after that because its
# answer was lost, would count twice.
GIVE_UP_MS: Final = 90_000
AGAIN_SECONDS: Final = 5.0

logger: logging.Logger = logging.getLogger(__name__)


class Measuring:
    """Gathers what the coordinator sees, and writes what is over, a few rows every ten seconds. Figures are
    never worth a job: a store that does not take them is asked again later, and for a while only. One that is
    not on does nothing but tell the program's own observers."""

    def __init__(
        self, worker: WorkerId, clock: Clock, *, is_on: bool = True, observers: Observers | None = None
    ) -> None:
        self._clock = clock
        self._observers = observers or Observers()
        self._is_on = is_on
        self._gathering = Gathering(worker)
        self._unwritten: list[MetricRow] = []
        self._again_at = 0.0

    def claimed(self, jobs: Sequence[Job], now: float) -> None:
        if self._is_on:
            self._gathering.claimed(jobs, now)
        self._observers.claimed(jobs)

    def adopted(self, jobs: Sequence[Job], now: float) -> None:
        """These were claimed some time ago, which was not known."""
        if self._is_on:
            self._gathering.claimed(jobs, now, is_new=False)
        self._observers.claimed(jobs)

    def ended(self, ends: Sequence[End], lost: Sequence[Job] = ()) -> None:
        """These attempts were settled, and those were refused, because their leases were lost."""
        if self._is_on and ends:
            self._gathering.ended(ends, self._clock.monotonic())
        self._observers.ended(ends)
        self._observers.lost(lost)

    def swept(self, ends: Sequence[End], store_ms: int) -> None:
        """These attempts of others were settled, at about this time of the store."""
        if self._is_on:
            self._gathering.learn(store_ms, self._clock.monotonic())
        self.ended(ends)

    def record(self, store: Store) -> None:
        """Write what is over, if there is something."""
        if not self._is_on:
            return
        now = self._clock.monotonic()
        self._unwritten += self._gathering.take(now)
        if self._unwritten and now >= self._again_at:
            self._write(store, now)

    def record_all(self, store: Store) -> None:
        """Write everything, because the worker ends."""
        if not self._is_on:
            return
        self._unwritten += self._gathering.take_all()
        self._write(store, self._clock.monotonic())

    def _write(self, store: Store, now: float) -> None:
        self._again_at = now + AGAIN_SECONDS
        # By the span that a row is of: nobody may have looked for a while after it was over.
        given_up = self._gathering.store_ms(now) - TEN_SECONDS - GIVE_UP_MS
        self._unwritten = [row for row in self._unwritten if row.start > given_up]
        try:
            store.record_metrics(self._unwritten)
        except Exception as exc:
            logger.warning("metrics are not written now: %s", exc, exc_info=not isinstance(exc, StoreError))
        else:
            self._unwritten = []
