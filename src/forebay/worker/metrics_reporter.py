"""The figures of a worker on their way to the store."""

from __future__ import annotations

from collections.abc import Sequence

from forebay.clock import Clock
from forebay.domain.job import Job, WorkerId
from forebay.operations.metrics_recorder import MetricsRecorder
from forebay.stores.contract.store import Store
from forebay.telemetry.observers import Observers, SettledAttempt


class MetricsReporter:
    """Counts what the coordinator sees, and tells the program's own observers. One that is not on does
    only the latter."""

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
        """These were claimed some time ago, which was not known."""
        if self._recorder is not None:
            self._recorder.count_claimed(jobs, now, is_new=False)
        self._observers.on_claimed(jobs)

    def on_settled(self, ends: Sequence[SettledAttempt], lost: Sequence[Job] = ()) -> None:
        """These attempts were settled, and those were refused, because their leases were lost."""
        if self._recorder is not None:
            self._recorder.count_ended(ends)
        self._observers.on_settled(ends)
        self._observers.on_lease_lost(lost)

    def on_swept(self, ends: Sequence[SettledAttempt], store_ms: int) -> None:
        """These attempts of others were settled, at about this time of the store."""
        if self._recorder is not None:
            self._recorder.count_swept(ends, store_ms)
        self._observers.on_settled(ends)

    def record(self, store: Store) -> None:
        """Write what is over, if there is something."""
        if self._recorder is not None:
            self._recorder.record(store)

    def record_all(self, store: Store) -> None:
        """Write everything, because the worker ends."""
        if self._recorder is not None:
            self._recorder.record_all(store)
