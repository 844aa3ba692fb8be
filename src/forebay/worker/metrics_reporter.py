"""Metrics of a worker on their way to the store and to observers."""

from __future__ import annotations

from collections.abc import Sequence

from forebay.clock import Clock
from forebay.domain.job import Job, WorkerId
from forebay.operations.metrics_recorder import MetricsRecorder
from forebay.stores.contract.store import Store
from forebay.telemetry.observers import Observers, SettledAttempt


class MetricsReporter:
    """Counts the coordinator's events and passes them to the program's observers. With `is_on` false it only
    does the latter."""

    def __init__(
        self, worker: WorkerId, clock: Clock, *, is_on: bool = True, observers: Observers | None = None
    ) -> None:
        self._observers = observers or Observers()
        self._recorder = MetricsRecorder(worker, clock) if is_on else None

    def on_claimed(self, jobs: Sequence[Job], now: float) -> None:
        if self._recorder is not None:
            self._recorder.count_claimed(jobs, now)
        self._observers.on_claimed(jobs)

    def on_recovered(self, jobs: Sequence[Job], now: float) -> None:
        """Count jobs that were claimed some time ago, in a claim whose answer was lost."""
        if self._recorder is not None:
            self._recorder.count_claimed(jobs, now, is_new=False)
        self._observers.on_claimed(jobs)

    def on_settled(self, ends: Sequence[SettledAttempt], lost: Sequence[Job] = ()) -> None:
        """Count settled attempts, and those whose settlement was refused because the lease was lost."""
        if self._recorder is not None:
            self._recorder.count_ended(ends)
        self._observers.on_settled(ends)
        self._observers.on_lease_lost(lost)

    def on_swept(self, ends: Sequence[SettledAttempt], store_ms: int) -> None:
        """Count settled attempts of other workers; `store_ms` is about the store's time of the settlement."""
        if self._recorder is not None:
            self._recorder.count_swept(ends, store_ms)
        self._observers.on_settled(ends)

    def record(self, store: Store) -> None:
        """Write the metrics of intervals that are over, if there are any."""
        if self._recorder is not None:
            self._recorder.record(store)

    def record_all(self, store: Store) -> None:
        """Write all metrics, because the worker ends."""
        if self._recorder is not None:
            self._recorder.record_all(store)
