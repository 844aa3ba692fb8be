"""Status of a worker, as it is written with heartbeats and returned to the program."""

from __future__ import annotations

import time
from math import inf
from typing import Final

import msgspec
from msgspec.structs import replace

from forebay.clock import Clock
from forebay.domain.job import QueueName
from forebay.domain.worker import SHOWN_JOBS, WorkerInfo, WorkerState
from forebay.worker.coordinator_watchdog import Watchdog
from forebay.worker.executors.process_memory import peak_resident_bytes, resident_bytes
from forebay.worker.lease_renewal_health import RenewalHealth
from forebay.worker.process_recycler import ThreadHealth
from forebay.worker.queue_weights import QueueWeights
from forebay.worker.slots import Slots

LOAD_SECONDS: Final = 1.0


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """State of a worker by its own account.

    `depths` are the pending jobs of its queues, None while the store is unavailable. `is_healthy` is false
    when its heartbeats fail, its loop hangs or has crashed, or more threads are abandoned than it may
    replace.
    """

    info: WorkerInfo
    renewals: RenewalHealth
    depths: dict[QueueName, int] | None = None
    is_healthy: bool = True


class StatusReporter:
    """Collects the status of a worker. Created by the worker, called from any thread."""

    def __init__(
        self,
        worker: WorkerInfo,
        slots: Slots,
        queue_weights: QueueWeights,
        watchdog: Watchdog,
        clock: Clock,
        thread_health: ThreadHealth | None = None,
    ) -> None:
        self._worker = worker
        self.thread_health: ThreadHealth = thread_health or ThreadHealth(slots)
        self._slots = slots
        self._queue_weights = queue_weights
        self._watchdog = watchdog
        self._clock = clock
        self._cpu_load = CpuLoad(clock)
        self.stop_by = inf  # monotonic time at which a stop should be over
        self.phase = WorkerState.STARTING  # WORKING except while it starts or stops

    def info(self) -> WorkerInfo:
        """Return the content of a heartbeat."""
        running = [assignment.job.id for assignment in self._slots if assignment.is_running]
        return replace(
            self._worker,
            state=self._state(is_working=bool(running)),
            paused=tuple(sorted(self._queue_weights.paused_queues())),
            running=tuple(running[:SHOWN_JOBS]),
            recent=self._slots.recent,
            slots=sum(self._slots.sizes.values()),
            is_overdue=self._clock.monotonic() > self.stop_by,
            stuck=sum(assignment.is_stuck for assignment in self._slots),
            abandoned=self._slots.abandoned_now,
            is_worn=self.thread_health.reason() is not None,
            completed=self._slots.completed,
            failed=self._slots.failed,
            memory=resident_memory(),
            cpu=self._cpu_load.sample(),
        )

    def _state(self, *, is_working: bool) -> WorkerState:
        if self.phase is WorkerState.STOPPED:
            return self.phase
        if self._watchdog.is_silent:
            return WorkerState.UNRESPONSIVE
        if self.phase is not WorkerState.WORKING:
            return self.phase
        if self._queue_weights.is_paused:
            return WorkerState.PAUSED
        return WorkerState.WORKING if is_working else WorkerState.IDLE


class CpuLoad:
    """Share of one core that this process uses, between two samples at least a second apart."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = clock.monotonic(), cpu_seconds()
        self._ratio: float | None = None

    def sample(self) -> float | None:
        """Return the latest share; None in the first second."""
        now, used = self._clock.monotonic(), cpu_seconds()
        sampled_at, used_before = self._last
        if now - sampled_at >= LOAD_SECONDS:
            self._last = now, used
            self._ratio = round((used - used_before) / (now - sampled_at), 3)
        return self._ratio


def cpu_seconds() -> float:
    """Return the CPU time of this process so far."""
    return time.process_time()


def resident_memory() -> int:
    """Return the resident bytes of this process.

    Where the system does not tell them, return their peak, and 0 where it does not tell that either.
    """
    now = resident_bytes()
    return peak_resident_bytes() if now is None else now
