"""Health of lease renewal: failures, calls that hang, and since when."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Final

import msgspec

from forebay.clock import Clock
from forebay.domain.lease import Lease
from forebay.worker.assigned_job import Assignment

HANGS_SECONDS: Final = 5.0

logger: logging.Logger = logging.getLogger(__name__)


class RenewalHealth(msgspec.Struct, frozen=True, kw_only=True):
    """State of a worker's renewals.

    `failures` counts those in a row; each five seconds of a call that hangs count as one. `hangs_for` is how
    many seconds the present call has lasted, None when there is none. `succeeded_at` is the last success, in
    milliseconds since 1970.
    """

    failures: int = 0
    hangs_for: float | None = None
    succeeded_at: int | None = None


class RenewalMonitor:
    """Failure counters for two threads: one calls the store and may hang there, the other watches it.

    The counting thread holds the lock, and the watcher checks under the same lock whether the call still
    lasts. So a call that has just succeeded is never counted as hanging afterwards.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._due: Sequence[Assignment] = ()
        self._call_started_at: float | None = None
        self._hangs_counted = 0
        self._failures = 0
        self._succeeded_at: int | None = None

    @property
    def renewals(self) -> RenewalHealth:
        with self._lock:
            seconds = (
                None if self._call_started_at is None else self._clock.monotonic() - self._call_started_at
            )
            return RenewalHealth(failures=self._failures, hangs_for=seconds, succeeded_at=self._succeeded_at)

    @contextmanager
    def track_call(self, due: Sequence[Assignment] = ()) -> Iterator[dict[Lease, str]]:
        """Watch a store call that renews the leases `due`. The caller adds those that were refused, with the
        reason."""
        lost: dict[Lease, str] = {}
        with self._lock:
            self._due, self._call_started_at, self._hangs_counted = due, self._clock.monotonic(), 0
        try:
            yield lost
        except BaseException:
            with self._lock:
                self._call_started_at = None
                if not self._hangs_counted:
                    self._record_failure()
            raise
        with self._lock:
            self._call_started_at = None
            self._failures = 0
            self._succeeded_at = self._clock.now_ms()
            for assignment in due:
                if assignment.lease in lost:
                    assignment.context.mark_lease_lost(lost[assignment.lease])
                else:
                    assignment.context.mark_renewed(self._succeeded_at)

    def check_hanging(self) -> None:
        """Count a call that hangs as a failure, and mark the leases that it should renew as in doubt."""
        with self._lock:
            if self._call_started_at is None:
                return
            seconds = self._clock.monotonic() - self._call_started_at
            if seconds < HANGS_SECONDS * (self._hangs_counted + 1):
                return
            self._hangs_counted += 1
            self._record_failure()
            failures = self._failures
        logger.warning("the store has not answered a renewal for %.0f s (%s in a row)", seconds, failures)

    def _record_failure(self) -> None:
        self._failures += 1
        for assignment in self._due:
            assignment.context.mark_lease_in_doubt()
