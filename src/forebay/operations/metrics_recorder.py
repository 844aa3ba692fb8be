"""Metrics of one claimant (a worker, a consumer, a server): collected in memory, written every ten
seconds."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Final

from forebay.clock import Clock
from forebay.deferred_interrupts import uninterrupted
from forebay.domain.job import Job, QueueName, WorkerId
from forebay.domain.metrics import TEN_SECONDS, MetricRow
from forebay.domain.settlement import OutcomeKind, Settlement
from forebay.errors import StoreError
from forebay.stores.contract.store import Store
from forebay.telemetry.metrics_collector import LATE_MS, MetricsCollector
from forebay.telemetry.observers import SettledAttempt

RETRY_SECONDS: Final = 5.0

logger: logging.Logger = logging.getLogger(__name__)


class MetricsRecorder:
    """Collects claims and settlements of one claimant and writes the rows of each finished span.

    A job costs no call of the store: rows are written once in ten seconds. Metrics never cost a job: after an
    error they are written later, and dropped when they are too old.

    Claims, settlements and sweeps may come from several threads. A lock covers the collection in memory and
    no call of the store. `record` and `record_all` are for one thread at a time.
    """

    def __init__(self, worker: WorkerId, clock: Clock) -> None:
        self._clock = clock
        self._collector = MetricsCollector(worker)
        self._lock = Lock()
        self._unwritten: list[MetricRow] = []
        self._retry_at = 0.0

    def count_claimed(self, jobs: Sequence[Job], now: float, *, is_new: bool = True) -> None:
        """Count jobs that were claimed at this time of the monotonic clock, or earlier if not `is_new`."""
        if jobs:
            with uninterrupted, self._lock:
                self._collector.on_claimed(jobs, now, is_new=is_new)

    def count_ended(self, ends: Sequence[SettledAttempt]) -> None:
        """Count settled attempts whose run times are known or unknown."""
        if ends:
            with uninterrupted, self._lock:
                self._collector.on_settled(ends, self._clock.monotonic())

    def count_settled(self, ends: Sequence[tuple[Job, Settlement]]) -> None:
        """Count settled attempts without a measured run time: they ran from claim to settlement."""
        if not ends:
            return
        now = self._clock.monotonic()
        with uninterrupted, self._lock:
            # A server may settle jobs before its first claim: another server has claimed them.
            self._collector.set_store_time(self._clock.now_ms(), now)
            store_ms = self._collector.store_ms(now)
            self._collector.on_settled(
                [(job, end, _run_seconds(job, end, store_ms)) for job, end in ends], now
            )

    def count_swept(self, ends: Sequence[SettledAttempt], store_ms: int) -> None:
        """Count attempts of other claimants that were settled as lost at about this time of the store's
        clock."""
        with uninterrupted, self._lock:
            self._collector.set_store_time(store_ms, self._clock.monotonic())
        self.count_ended(ends)

    def set_consumers(self, consumers: Mapping[QueueName, int]) -> None:
        """Set the number of active consumers of each queue."""
        now = self._clock.monotonic()
        with uninterrupted, self._lock:
            self._collector.set_store_time(self._clock.now_ms(), now)
            self._collector.set_consumers(consumers, now)

    def record(self, store: Store) -> None:
        """Write the rows of finished spans, if there are any."""
        now = self._clock.monotonic()
        with uninterrupted, self._lock:
            self._unwritten += self._collector.take_rows(now)
        if self._unwritten and now >= self._retry_at:
            self._write(store, now)

    def record_all(self, store: Store) -> None:
        """Write all rows at the end."""
        with uninterrupted, self._lock:
            self._unwritten += self._collector.take_all_rows()
        self._write(store, self._clock.monotonic())

    def _write(self, store: Store, now: float) -> None:
        self._retry_at = now + RETRY_SECONDS
        # By the start of the span: the claimant may have been idle for a while after its end.
        oldest = self._collector.store_ms(now) - TEN_SECONDS - LATE_MS
        self._unwritten = [row for row in self._unwritten if row.starts_at > oldest]
        try:
            store.record_metrics(self._unwritten)
        except Exception as exc:
            logger.warning("metrics are not written now: %s", exc, exc_info=not isinstance(exc, StoreError))
        else:
            self._unwritten = []


def _run_seconds(job: Job, end: Settlement, store_ms: int) -> float | None:
    # A job that was returned unstarted has not run.
    if job.started_at is None or end.outcome is OutcomeKind.INTERRUPTED:
        return None
    return max(0, store_ms - job.started_at) / 1_000
