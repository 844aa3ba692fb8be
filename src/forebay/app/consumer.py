"""Consumers: claim and settle jobs from a loop of the caller's own."""

from __future__ import annotations

import atexit
import logging
import os
import random
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any, Final
from weakref import WeakSet

from forebay.app.progress_and_log_line_checks import make_log_line, make_progress
from forebay.clock import Clock, SystemClock
from forebay.deferred_interrupts import uninterrupted
from forebay.domain.durations_and_instants import Duration, duration_within
from forebay.domain.job import DAY_MS, DEFAULT_QUEUE, MIN_LEASE_MS, Job, JobId, QueueName, WorkerId
from forebay.domain.job_states import JobState
from forebay.domain.job_validation import check_integer, check_queue_name
from forebay.domain.lease import Lease
from forebay.domain.outcome import (
    AttemptError,
    Cancelled,
    Completed,
    Discarded,
    Failed,
    Interrupted,
    Outcome,
    Snoozed,
)
from forebay.domain.progress import ProgressUpdate
from forebay.domain.retry_policy import MAX_DELAY_MS
from forebay.domain.settlement import Settlement, decide
from forebay.errors import StoreBusy, StoreError, StoreUnavailable
from forebay.operations.maintenance_task import MaintenanceTask, close_tasks, notify_connected, run_due_tasks
from forebay.operations.metrics_recorder import MetricsRecorder
from forebay.operations.settlement_isolation import (
    FallbackSettlements,
    check_not_busy,
    match_kept_outcomes,
    select_newly_settled,
    settle_and_claim_isolating,
)
from forebay.payload.codec import decode_call, encode_result
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.id_generator import new_worker_id
from forebay.telemetry.observers import Observers, SettledAttempt

MAX_CLAIM: Final = 10_000
EXIT_SECONDS: Final = 1.0  # how long the end of a program waits for a consumer in use, to write its metrics
SWEEP_LEASE_MS: Final = 30_000  # as in maintenance.sweeper, which is above this layer

logger: logging.Logger = logging.getLogger(__name__)


class Consumer:
    """Claims and settles jobs. Each call is one round trip to the store.

    A job must be settled, or its lease renewed, before the lease ends. Otherwise another worker claims the
    job, and later calls of this consumer about it are refused (False). Due maintenance tasks run after each
    claim. So jobs become due and leases of dead workers are taken over also where no worker runs.

    `maintenance_tasks` builds these tasks. It takes the sweeper's id (`sweeper`) and a function that is
    called with lost attempts (`on_settled`). With `metrics` claims and settlements are counted like those of
    a worker: the run time of a job lasts from its claim to its settlement. Metrics are written by the first
    call after ten seconds, and at the close.

    May be used from several threads. After a fork the child's consumer is a new one, with its own id and
    handles. Jobs that the parent has claimed stay with the parent.
    """

    def __init__(
        self,
        engine: Engine,
        maintenance_tasks: Callable[..., Sequence[MaintenanceTask]] = lambda **_: (),
        *,
        default_queue: QueueName = DEFAULT_QUEUE,
        observers: Observers | None = None,
        metrics: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._engine = engine
        self._clock = clock or SystemClock()
        self._has_metrics = metrics
        self._observers = observers or Observers()
        self._new_maintenance_tasks = maintenance_tasks
        self._default_queue = default_queue
        self._store: Store | None = None
        self._reader: Reader | None = None
        self._is_closed = False
        self._reset()
        _consumers.add(self)

    def _reset(self) -> None:
        # A worker id belongs to one process: two processes with one id would settle each other's attempts.
        # The sweeper among the maintenance tasks has its own id too.
        self.id: WorkerId = new_worker_id()
        self._maintenance_tasks = self._new_maintenance_tasks(
            sweeper=new_worker_id(), on_settled=self._count_lost
        )
        self._metrics = MetricsRecorder(self.id, self._clock) if self._has_metrics else None
        self._was_unavailable = False
        self._lost: list[SettledAttempt] = []
        self._lock = Lock()
        self._store = self._reader = None

    def claim(self, limit: int = 1, *, queue: str | None = None, lease: Duration | None = None) -> list[Job]:
        """Claim up to `limit` jobs of a queue, in the order they should run."""
        check_integer("limit", limit, 1, MAX_CLAIM)
        name = QueueName(queue or self._default_queue)
        check_queue_name(name)
        request = QueueClaim(name, limit, _lease_ms(lease))
        with uninterrupted, self._lock:
            store = self._open_store()
            try:
                answer = store.settle_and_claim(self.id, claims=[request], room=limit)
            except StoreUnavailable as exc:
                self._was_unavailable = self._was_unavailable or _is_unavailable(exc)
                raise
            self._record_claimed([name], answer.jobs)
            lost = self._run_maintenance(store)
        # Observers run without the lock: they may call this consumer, or wait for a thread that does.
        self._observers.on_claimed(answer.jobs)
        self._observers.on_settled(lost)
        return list(answer.jobs)

    def _count_claimed(self, queues: Collection[QueueName], jobs: Sequence[Job]) -> None:
        """Count a claim of these queues, for callers that claim by another path."""
        self._record_claimed(queues, jobs)
        self._observers.on_claimed(jobs)

    def _record_claimed(self, queues: Collection[QueueName], jobs: Sequence[Job]) -> None:
        if self._metrics is not None:
            self._metrics.count_claimed(jobs, self._clock.monotonic())
            self._metrics.set_consumers(dict.fromkeys(queues, 1))

    def _count_settled(self, ends: Sequence[tuple[Job, Settlement]]) -> None:
        """Count settlements that were written by another path."""
        if self._metrics is not None:
            self._metrics.count_settled(ends)

    def _count_lost(self, ends: Sequence[SettledAttempt]) -> None:
        """Count attempts that a sweep of this consumer has settled as lost. Called with the lock held."""
        self._lost.extend(ends)
        if self._metrics is not None and ends:
            self._metrics.count_swept(ends, (ends[0][0].lease_expires_at or 0) - SWEEP_LEASE_MS)

    def run_maintenance(self) -> None:
        """Run due maintenance tasks, as each claim does, for callers that claim by another path."""
        with uninterrupted, self._lock:
            lost = self._run_maintenance(self._open_store())
        self._observers.on_settled(lost)

    def _run_maintenance(self, store: Store) -> list[SettledAttempt]:
        """Run due maintenance tasks; return the lost attempts, to be reported once the lock is released."""
        # Claimed jobs must reach the caller before their leases end; a maintenance task can wait for the next
        # claim.
        if self._metrics is not None:
            self._metrics.record(store)
        if self._was_unavailable:
            self._was_unavailable = False
            notify_connected(self._maintenance_tasks)
        try:
            run_due_tasks(store, self._maintenance_tasks)
        except StoreError as exc:
            self._was_unavailable = _is_unavailable(exc)
            logger.warning("consumer %s postpones maintenance to the next claim: %s", self.id, exc)
        lost, self._lost = self._lost, []
        return lost

    def renew(self, jobs: Iterable[Job], *, lease: Duration | None = None) -> list[bool]:
        """Renew leases; False for a lease that is lost."""
        claimed = list(jobs)
        leases = [Lease(job.id, job.attempt) for job in claimed]
        lease_ms = _lease_ms(lease)
        with uninterrupted, self._lock:
            store = self._open_store()
            answer = store.renew(self.id, leases, lease_ms)
            if self._metrics is not None:
                self._metrics.set_consumers({job.queue: 1 for job in claimed})
                self._metrics.record(store)
        renewed = set(answer.renewed)
        return [lease in renewed for lease in leases]

    def check_leases(self, jobs: Iterable[Job]) -> list[bool]:
        """Return whether this consumer still has the leases of jobs that it has claimed. Changes nothing.

        The answer is about the past when it arrives: only a settlement that is not refused is proof.
        """
        claimed = list(jobs)
        with uninterrupted, self._lock:
            reader = self._open_reader()
            records = reader.jobs([job.id for job in claimed])
            # The clock last: a lease that ends between the two reads is reported as lost.
            now = reader.now()
        return [self._has_lease(job, record, now) for job, record in zip(claimed, records, strict=True)]

    def _has_lease(self, job: Job, record: Job | None, now: int) -> bool:
        return (
            record is not None
            and record.state is JobState.RUNNING
            and (record.attempt, record.worker) == (job.attempt, self.id)
            and (record.lease_expires_at or 0) > now
        )

    def complete(self, job: Job, result: Any = None) -> bool:
        """Settle a job as completed."""
        return self.settle([(job, Completed(encode_result(result)))])[0]

    def complete_tx(self, connection: object, job: Job, result: Any = None) -> None:
        """Complete a job in your own open transaction on the store's database, with the commit of that.

        Raises LeaseLost if the lease is lost: roll back then.
        """
        end = _completion(job, result)
        with uninterrupted:
            self._engine.complete_tx(connection, self.id, end)
            self._count_settled([(job, end)])

    async def complete_tx_async(self, connection: object, job: Job, result: Any = None) -> None:
        """`complete_tx` with a connection that lives on this event loop."""
        end = _completion(job, result)
        await self._engine.complete_tx_async(connection, self.id, end)
        self._count_settled([(job, end)])

    def fail(self, job: Job, error: BaseException | str, *, after: Duration | None = None) -> bool:
        """Settle the attempt as failed. It is retried by the job's policy, or after `after`."""
        after_ms = None if after is None else duration_within("after", after, 0, MAX_DELAY_MS)
        return self.settle([(job, Failed(_error(error), after_ms))])[0]

    def discard(self, job: Job, reason: BaseException | str) -> bool:
        """Move the job to the dead letters: no further attempt makes sense."""
        return self.settle([(job, Discarded(_error(reason)))])[0]

    def snooze(self, job: Job, delay: Duration) -> bool:
        """Run the job later; not a failure."""
        return self.settle([(job, Snoozed(duration_within("delay", delay, 0, MAX_DELAY_MS)))])[0]

    def release(self, job: Job) -> bool:
        """Return the job to its queue unstarted; no attempt is counted."""
        return self.settle([(job, Interrupted(started=False))])[0]

    def settle(self, outcomes: Sequence[tuple[Job, Outcome]]) -> list[bool]:
        """Settle many leases at once; False for lost ones, and for an outcome that contradicts an earlier
        one.

        Raises StoreBusy if another transaction holds one of the jobs. The rest is settled then, and all of
        them can be settled again.
        """
        jobs = {Lease(job.id, job.attempt): job for job, _ in outcomes}
        fallback = FallbackSettlements(lambda lease: jobs[lease], _roll)
        settlements = [decide(job, outcome, _roll()) for job, outcome in outcomes]
        with uninterrupted, self._lock:
            store = self._open_store()
            answer = settle_and_claim_isolating(store, self.id, settlements, fallback=fallback)
            ends = fallback.substitute(settlements)
            if self._metrics is not None:
                self._metrics.count_settled(select_newly_settled(jobs, ends, answer))
                self._metrics.record(store)
        settled = match_kept_outcomes(answer, [(_lease(job), type(outcome)) for job, outcome in outcomes])
        self._notify_observers([job for job, _ in outcomes], ends, settled, answer.busy)
        check_not_busy(answer)
        return settled

    def _notify_observers(
        self,
        jobs: Sequence[Job],
        ends: Sequence[Settlement],
        settled: Sequence[bool],
        busy: Collection[Lease],
    ) -> None:
        # The run time of a job is unknown here: the program may have claimed many at once.
        self._observers.on_settled(
            (job, end, None) for job, end, is_settled in zip(jobs, ends, settled, strict=True) if is_settled
        )
        self._observers.on_lease_lost(
            [
                job
                for job, is_settled in zip(jobs, settled, strict=True)
                if not is_settled and _lease(job) not in busy
            ]
        )

    def progress(self, job: Job, done: float, total: float | None = None, message: str = "") -> bool:
        """Report the progress of a claimed job; False if its lease is lost."""
        return self._save_update(
            ProgressUpdate(lease=_lease(job), progress=make_progress(job, done, total, message))
        )

    def log(self, job: Job, text: str, level: str = "INFO") -> bool:
        """Store a log line with a claimed job; False if its lease is lost."""
        return self._save_update(ProgressUpdate(lease=_lease(job), lines=(make_log_line(job, text, level),)))

    def _save_update(self, update: ProgressUpdate) -> bool:
        with uninterrupted, self._lock:
            return not self._open_store().settle_and_claim(self.id, updates=[update]).refused_updates

    # Any job, claimed here or not

    def cancel(self, job: Job | str, reason: str = "cancelled") -> bool:
        """Cancel a job. See `cancel_many`."""
        return self.cancel_many([job], reason)[0]

    def cancel_many(self, jobs: Iterable[Job | str], reason: str = "cancelled") -> list[bool]:
        """Cancel jobs, given as claimed or by id; False for those that are final, deleted or lost.

        Jobs that this consumer has claimed are settled as cancelled. Of the rest, waiting jobs are cancelled,
        and running ones are asked to stop.
        """
        requested = list(jobs)
        claimed = [job for job in requested if isinstance(job, Job) and self._is_claimed_here(job)]
        rest = [_id(job) for job in requested if not (isinstance(job, Job) and self._is_claimed_here(job))]
        settled = self._cancel_claimed(claimed, reason)
        applied = {job.id for job, is_settled in zip(claimed, settled, strict=True) if is_settled}
        if rest:
            with uninterrupted, self._lock:
                results = self._open_store().cancel(rest, reason, actor=self.id)
            applied |= {result.job_id for result in results if result.applied}
        return [_id(job) in applied for job in requested]

    def _is_claimed_here(self, job: Job) -> bool:
        return job.state is JobState.RUNNING and job.worker == self.id

    def _cancel_claimed(self, jobs: Sequence[Job], reason: str) -> list[bool]:
        return self.settle([(job, Cancelled(reason)) for job in jobs]) if jobs else []

    def revive(self, job: Job | str) -> bool:
        """Revive a dead or cancelled job. See `revive_many`."""
        return self.revive_many([job])[0]

    def revive_many(self, jobs: Iterable[Job | str]) -> list[bool]:
        """Revive dead and cancelled jobs with fresh retries; False for other jobs, and where a key is
        taken."""
        ids = [_id(job) for job in jobs]
        with uninterrupted, self._lock:
            results = self._open_store().revive(ids, actor=self.id)
        return [result.applied for result in results]

    def close(self) -> None:
        """Close the store for good. Unsettled leases run out. Closing twice is fine."""
        with uninterrupted, self._lock:
            # Set under the lock that every other call takes, so that none of them opens the store again.
            self._is_closed = True
            self._write_metrics()
            handles = (self._store, self._reader)
            self._store = self._reader = None
            close_tasks(self._maintenance_tasks)
            for handle in handles:
                if handle is not None:
                    handle.close()

    def _write_metrics(self) -> None:
        """Write all metrics at the end. Not to a store that is unavailable: a stop does not wait for
        metrics."""
        if self._metrics is not None and self._store is not None and not self._was_unavailable:
            self._metrics.record_all(self._store)

    @uninterrupted
    def _at_exit(self) -> None:
        """Write the metrics of a consumer that the program has not closed, unless a thread uses it."""
        if self._lock.acquire(timeout=EXIT_SECONDS):
            try:
                with suppress(Exception):
                    self._write_metrics()
            finally:
                self._lock.release()

    def _open_store(self) -> Store:
        self._check_open()
        if self._store is None:
            self._store = self._engine.store()
        return self._store

    def _open_reader(self) -> Reader:
        self._check_open()
        if self._reader is None:
            self._reader = self._engine.reader()
        return self._reader

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreError("this consumer is closed; ask the app for another one")

    def after_fork(self) -> None:
        """Drop the handles in the child without closing them, which would disturb the parent.

        On SQLite the next call then reports that an open file cannot be used after a fork.
        """
        if self._store is not None or self._reader is not None:
            # Maintenance tasks have their own handles, which must not be closed here either.
            _abandoned_handles.append((self._store, self._reader, self._maintenance_tasks))
        self._reset()


# One registration for all, because fork hooks cannot be unregistered. The child has one thread when it runs,
# so no other thread uses a consumer and no lock is needed.
_consumers: Final[WeakSet[Consumer]] = WeakSet()
_abandoned_handles: Final[list[tuple[Store | None, Reader | None, Sequence[MaintenanceTask]]]] = []


def _after_fork() -> None:
    for consumer in list(_consumers):
        consumer.after_fork()


@atexit.register
def _at_exit() -> None:
    for consumer in list(_consumers):
        consumer._at_exit()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_after_fork)


def arguments(job: Job) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a claimed job, decoded."""
    return decode_call(job.payload)


def _is_unavailable(error: StoreError) -> bool:
    """Return whether the store did not answer. A busy store does: another transaction holds a job or a
    key."""
    return isinstance(error, StoreUnavailable) and not isinstance(error, StoreBusy)


def _completion(job: Job, result: Any) -> Settlement:
    return decide(job, Completed(encode_result(result)), 0.0)


def _lease(job: Job) -> Lease:
    return Lease(job.id, job.attempt)


def _id(job: Job | str) -> JobId:
    return job.id if isinstance(job, Job) else JobId(job)


def _lease_ms(lease: Duration | None) -> int | None:
    return None if lease is None else duration_within("lease", lease, MIN_LEASE_MS, DAY_MS)


def _error(error: BaseException | str) -> AttemptError:
    if isinstance(error, str):
        return AttemptError(type="Failed", message=error)
    return AttemptError(type=type(error).__qualname__, message=str(error))


def _roll() -> float:
    return random.random()  # noqa: S311 - spreads retries, guards nothing
