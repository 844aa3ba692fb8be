"""Status of a worker, as it is written with heartbeats and returned to the program."""

from __future__ import annotations

from math import inf

import msgspec
from msgspec.structs import replace

from forebay.clock import Clock
from forebay.domain.job import QueueName
from forebay.domain.worker import SHOWN_JOBS, WorkerInfo, WorkerState
from forebay.worker.coordinator_watchdog import Watchdog
from forebay.worker.lease_renewal_health import RenewalHealth
from forebay.worker.process_recycler import ThreadHealth
from forebay.worker.process_usage import CpuLoad, resident_memory
from forebay.worker.queue_weights_and_pauses import QueueWeights
from forebay.worker.slots import Slots


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
