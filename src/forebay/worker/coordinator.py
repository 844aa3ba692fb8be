"""Coordinator: the one thread of a worker that talks to the store. It settles, claims, dispatches and
waits."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from math import inf
from typing import Final

from forebay.app.worker_hooks_and_error_listeners import Hooks
from forebay.clock import Clock
from forebay.domain.job import Job
from forebay.domain.lease import Lease
from forebay.domain.outcome import Interrupted, Outcome
from forebay.domain.progress import ProgressUpdate
from forebay.domain.settlement import OutcomeKind, Settlement, decide
from forebay.domain.worker import SHOWN_JOBS, WorkerInfo
from forebay.errors import StoreError, StoreUnavailable
from forebay.maintenance.lease_sweeper import LEASE_MS
from forebay.operations.maintenance_task import MaintenanceTask, notify_connected, run_due_tasks
from forebay.operations.settlement_isolation import FallbackSettlements, settle_and_claim_isolating
from forebay.stores.contract.claims_and_results import LeaseRefusal, QueueClaim, SettleAndClaimResult
from forebay.stores.contract.store import Store
from forebay.telemetry.log_fields import job_fields
from forebay.telemetry.observers import SettledAttempt
from forebay.worker.assigned_job import Assignment
from forebay.worker.caller_transactions import EndedAttempts, next_check_at, split_settleable
from forebay.worker.coordinator_inbox import LONGEST_SLEEP_SECONDS, Inbox
from forebay.worker.coordinator_watchdog import Watchdog
from forebay.worker.debug_log import log_claims, log_ends
from forebay.worker.deferred_settlements import DeferredSettlements
from forebay.worker.executors.executor_protocol import Executors
from forebay.worker.idle_polling import IdlePolling
from forebay.worker.interruption_policy import InterruptionPolicy
from forebay.worker.metrics_reporter import MetricsReporter
from forebay.worker.prefetch import PrefetchPolicy
from forebay.worker.process_recycler import MAX_ABANDONED
from forebay.worker.progress_buffer import ProgressBuffer
from forebay.worker.queue_selector import QueueSelector
from forebay.worker.queue_weights_and_pauses import QueueWeightRefresher, QueueWeights
from forebay.worker.slots import Slots
from forebay.worker.task_invoker import attempt_error

START_WITHIN_SECONDS: Final = 1.0
POLL_SECONDS: Final = LONGEST_SLEEP_SECONDS
MAINTENANCE_SECONDS: Final = 1.0
MAINTENANCE_DELAY_SECONDS: Final = 0.125
MAINTENANCE_LATE_SECONDS: Final = 0.25
CANCEL_POLL_SECONDS: Final = 1.0
EARLY_CANCEL_POLL_SECONDS: Final = 0.1
LONGEST_RETRY_SECONDS: Final = LONGEST_SLEEP_SECONDS

logger: logging.Logger = logging.getLogger(__name__)


class Coordinator:
    """Runs ticks. A tick never waits; the loop around it does."""

    def __init__(  # noqa: PLR0913 - all its parts, by name
        self,
        *,
        worker: WorkerInfo,
        store: Store,
        slots: Slots,
        inbox: Inbox,
        executors: Executors,
        maintenance_tasks: Sequence[MaintenanceTask],
        clock: Clock,
        roll: Callable[[], float],
        queue_weights: QueueWeights | None = None,
        watchdog: Watchdog | None = None,
        progress_buffer: ProgressBuffer | None = None,
        hooks: Hooks | None = None,
        weight_refresher: QueueWeightRefresher | None = None,
        polls_when_idle: bool = False,
        records_metrics: bool = True,
        max_abandoned: int = MAX_ABANDONED,
    ) -> None:
        self._worker = worker.id
        self._store = store
        self._slots = slots
        self._inbox = inbox
        self._executors = executors
        self._maintenance_tasks = maintenance_tasks
        self._clock = clock
        self._roll = roll
        self._prefetch = PrefetchPolicy()
        self._progress_buffer = progress_buffer or ProgressBuffer(clock, inbox.notify)
        self.hooks: Hooks = hooks or Hooks()
        self.queue_weights: QueueWeights = queue_weights or QueueWeights(
            dict.fromkeys(worker.queues, 1), slots, inbox
        )
        self._weight_refresher = weight_refresher
        self._watchdog = watchdog or Watchdog(clock)
        self._metrics = MetricsReporter(
            worker.id, clock, is_on=records_metrics, observers=self.hooks.observers
        )
        self._queue_selector = QueueSelector(
            self.queue_weights, executors.queue_kinds, executors.known_lanes, slots, self._prefetch, clock
        )
        self._interruption_policy = InterruptionPolicy(
            slots, inbox, executors, clock, max_abandoned=max_abandoned
        )
        self._idle_polling = IdlePolling(is_needed=polls_when_idle)
        self._unsettled: list[tuple[Assignment, Outcome]] = []
        self._deferred = DeferredSettlements(slots, clock)
        self._is_in_doubt = False
        self._was_unavailable = False
        self._due_at = inf
        self._maintenance_at = self._last_roundtrip_at = clock.monotonic()
        self._maintenance_deadline = self._maintenance_at + MAINTENANCE_LATE_SECONDS
        self._maintenance_due_at: dict[str, float] = {}  # when a task may be due again
        self._retry_seconds = self._retry_at = 0.0
        self.is_claiming = True

    @property
    def is_idle(self) -> bool:
        """Whether no lease is held, nothing waits to be settled, and no lease can be held unknowingly."""
        waiting = self._unsettled or len(self._deferred)
        return not len(self._slots) and not waiting and not self._is_in_doubt

    @property
    def is_cut_off(self) -> bool:
        """Whether the last call to the store was not answered."""
        return self._is_in_doubt

    @property
    def unwritten(self) -> int:
        """Number of ended attempts whose results are not stored yet."""
        return (
            sum(assignment.started_at is not None for assignment, _ in self._unsettled)
            + self._deferred.unwritten
        )

    def tick(self) -> float:
        """Settle, claim and dispatch; return for how many seconds there is nothing to do."""
        self._watchdog.mark_progress()
        try:
            # First the steps that need no store: time passes during an outage too.
            self._interruption_policy.cancel(self._inbox.take_cancels())
            self._interruption_policy.check()
            self._unsettled += self._inbox.drain()
            self._unsettled += self._return_unstarted()
            return self._tick_with_store()
        except StoreUnavailable as exc:
            if self._clock.monotonic() >= self._retry_at:  # not for each job that ends meanwhile
                logger.warning("the store is not available: %s", exc)
            if not self._was_unavailable:  # once for each outage
                self.hooks.report(None, attempt_error(exc))
            self._was_unavailable = True
        except StoreError:
            raise  # this will not pass by itself: a crash, which the worker reports
        except Exception as exc:
            # An error of our own in one tick must not end the work of this process. Half-done work is found
            # again by naming the known leases.
            logger.exception("a tick of the coordinator failed")
            self.hooks.report(None, attempt_error(exc))
        return self._back_off()

    def _tick_with_store(self) -> float:
        was_in_doubt = self._is_in_doubt
        if self._weight_refresher is not None:
            self._weight_refresher.refresh_if_due()
        requested_at = self._clock.monotonic()
        answer = self._settle_and_claim()
        self._watchdog.mark_progress()
        self._record_next_due(requested_at, answer.next_due_ms)
        try:
            # After the round trip: attempts that have ended here are settled before a sweep looks for ended
            # leases.
            self._run_maintenance(answer.jobs)
        finally:
            # Last, and whatever the maintenance tasks have raised, since these jobs are ours now. A task may
            # hold the interpreter from its first line on and stop this thread wherever it is. In the middle
            # of a transaction that would lock a SQLite file for all processes, and here most ticks are over.
            self._dispatch(answer.jobs, requested_at)
        self._recover_leases(answer.recovered)
        self._interruption_policy.cancel(answer.cancels)
        if deferred := self._deferred.due():
            # With their last updates, which were left out too if another transaction holds the job.
            self._settle(
                deferred,
                self._unsettled,
                updates=self._progress_buffer.take_updates(assignment for assignment, _ in deferred),
            )
        self._metrics.record(self._store)
        self._retry_seconds = self._retry_at = 0.0
        if answer.jobs:
            self._idle_polling.begin()
        if self.is_claiming and (was_in_doubt or self._queue_selector.has_more(len(answer.jobs))):
            return 0.0
        return self._sleep_seconds()

    # Settle and claim

    def _settle_and_claim(self) -> SettleAndClaimResult:
        ended, still_open = split_settleable(self._store, self._worker, self._unsettled)
        # While leases are in doubt nothing new is claimed before the present ones are known.
        may_claim = self.is_claiming and not self._is_in_doubt
        claims, room = (
            self._queue_selector.next_claims(assignment for assignment, _ in ended) if may_claim else ([], 0)
        )
        updates = self._progress_buffer.take_updates(assignment for assignment, _ in ended)
        if not (ended or claims or updates or self._is_in_doubt or self._is_cancel_poll_due()):
            return SettleAndClaimResult()
        if ended or self._inbox.has_wakeup:
            self._idle_polling.begin()
        self._inbox.clear_wake()  # before the claim: what happens from here on is worth another one
        # After a lost answer the store may hold leases for this worker that it does not know of.
        known = self._slots.leases() if self._is_in_doubt else None
        return self._settle(ended, still_open, claims, room, known, updates)

    def _settle(
        self,
        ended: EndedAttempts,
        still_open: EndedAttempts,
        claims: Sequence[QueueClaim] = (),
        room: int = 0,
        known: Sequence[Lease] | None = None,
        updates: Sequence[ProgressUpdate] = (),
    ) -> SettleAndClaimResult:
        """Make the round trip, and end the assignments whose settlement the store has answered. Those in
        `still_open` are left for another tick."""
        settlements = [decide(assignment.job, outcome, self._roll()) for assignment, outcome in ended]
        fallback = FallbackSettlements(lambda lease: _job_of(lease, ended), self._roll)
        answer = settle_and_claim_isolating(
            self._store, self._worker, settlements, claims, room, known, updates, fallback=fallback
        )
        if self._was_unavailable:
            # The first answer after an outage. Other workers could not renew their leases either, and come
            # first.
            self._was_unavailable = False
            notify_connected(self._maintenance_tasks)
        self._is_in_doubt = False
        self._last_roundtrip_at = self._clock.monotonic()
        self._unsettled = still_open
        if answer.busy or len(self._deferred):
            ended = self._deferred.defer_busy(ended, answer.busy)
            settlements = _without(settlements, answer.busy)
        self._progress_buffer.confirm(answer.refused_updates, answer.busy)
        self._progress_buffer.forget(assignment for assignment, _ in ended)
        self._record_ended(ended)
        substituted = fallback.substitute(settlements)
        self._count(ended, substituted, answer.refused)
        self._log_refused(answer.refused, ended)
        self.hooks.report_dead((assignment.job for assignment, _ in ended), substituted, answer)
        return answer

    def _is_cancel_poll_due(self) -> bool:
        """Return whether to poll only for cancel requests. While all slots are taken nothing else delivers
        them, except the renewal, much later."""
        return len(self._slots) > 0 and self._clock.monotonic() >= self._cancel_poll_at

    @property
    def _cancel_poll_at(self) -> float:
        """Time of the next poll; soon after a wake-up, since that may have been about a cancel request."""
        return self._last_roundtrip_at + (
            EARLY_CANCEL_POLL_SECONDS if self._inbox.has_wakeup else CANCEL_POLL_SECONDS
        )

    def _record_ended(self, ended: Sequence[tuple[Assignment, Outcome]]) -> None:
        latest = [
            assignment.job.id for assignment, _ in ended[-SHOWN_JOBS:] if assignment.started_at is not None
        ]
        if latest:
            self._slots.recent = (*self._slots.recent, *latest)[-SHOWN_JOBS:]
        for assignment, _ in ended:
            self._slots.end(assignment)
            if (seconds := assignment.seconds) is not None:
                self._prefetch.record_duration(assignment.job.task, seconds)

    def _count(
        self,
        ended: Sequence[tuple[Assignment, Outcome]],
        settlements: Sequence[Settlement],
        refused: Iterable[LeaseRefusal],
    ) -> None:
        """Count settled attempts for the worker's status and for the metrics. Refused ones count at the
        worker that has the lease."""
        lost = {refusal.lease for refusal in refused}
        slots, counted = self._slots, []
        for (assignment, _), settlement in zip(ended, settlements, strict=True):
            if lost and assignment.lease in lost:
                continue
            if settlement.outcome is OutcomeKind.COMPLETED:
                slots.completed += 1
            elif settlement.outcome in (OutcomeKind.FAILED, OutcomeKind.DISCARDED):
                slots.failed += 1
            counted.append((assignment.job, settlement, assignment.seconds))
        self._metrics.on_settled(
            counted, [assignment.job for assignment, _ in ended if assignment.lease in lost] if lost else ()
        )
        log_ends(counted)

    def on_swept(self, settled: Sequence[SettledAttempt]) -> None:
        """Count attempts of workers that are gone, settled by a maintenance task of this worker: no other
        worker counts them."""
        if settled:
            self._metrics.on_swept(settled, (settled[0][0].lease_expires_at or 0) - LEASE_MS)

    def _return_unstarted(self) -> list[tuple[Assignment, Outcome]]:
        """Return jobs to the queue that could not be started in time: another worker may have a free slot."""
        now = self._clock.monotonic()
        late = _return_outcomes(
            assignment for assignment in self._slots if assignment.claimed_at + START_WITHIN_SECONDS <= now
        )
        if late:
            self._prefetch.reset()
        return late

    def return_unstarted(self) -> None:
        """Return jobs to the queue that were claimed and not started; no failure is counted."""
        self._unsettled += _return_outcomes(self._slots)

    def _log_refused(
        self, refused: Iterable[LeaseRefusal], ended: Sequence[tuple[Assignment, Outcome]]
    ) -> None:
        # A refused settlement is not an error. The lease ran out, the sweep gave the job to another worker,
        # and that attempt counts. This one is dropped and logged.
        for refusal in refused:
            # A log line must not end a tick: a store may name a lease that none of these had.
            fields = next(
                (job_fields(assignment.job) for assignment, _ in ended if assignment.lease == refusal.lease),
                None,
            )
            logger.warning("lease lost: job %s, attempt %s: %s", *refusal.lease, refusal.reason, extra=fields)

    def _back_off(self) -> float:
        """Keep every settlement, however long, and return the pause before the next try: the store does not
        answer."""
        self._is_in_doubt = True
        now = self._clock.monotonic()
        # A tick that comes before, because a job has ended, does not make the wait longer.
        if now >= self._retry_at:
            self._retry_seconds = min(LONGEST_RETRY_SECONDS, max(0.1, self._retry_seconds * 2))
            self._retry_at = now + self._retry_seconds * (0.5 + self._roll() / 2)
        return max(0.0, min(self._retry_at, self._interruption_policy.next_check_at()) - now)

    # Dispatch

    def _dispatch(self, jobs: Sequence[Job], leased_at: float) -> None:
        log_claims(self._queue_selector, jobs)
        self._queue_selector.record_claimed(jobs)
        self._metrics.on_claimed(self._start(jobs, leased_at), leased_at)

    def _recover_leases(self, jobs: Sequence[Job]) -> None:
        """Take over leases that the store holds for this worker and that it did not know of: the answer to a
        claim was lost.

        They have not been renewed, so that is done before anything is started. If it fails they stay unknown,
        and the next round trip brings them again.
        """
        if not jobs:
            return
        requested_at = self._clock.monotonic()
        answer = self._store.renew(self._worker, [Lease(job.id, job.attempt) for job in jobs])
        lost = {refusal.lease for refusal in answer.refused}
        held = [job for job in jobs if Lease(job.id, job.attempt) not in lost]
        self._metrics.on_recovered(self._start(held, requested_at), requested_at)
        if not self.is_claiming:
            self.return_unstarted()

    def _start(self, jobs: Sequence[Job], leased_at: float) -> Sequence[Job]:
        """Start jobs, and return those started: not those whose leases are held here already."""
        now = self._clock.monotonic()
        by_task = {task: self._executors.executor(task) for task in {job.task for job in jobs}}
        executors = [by_task[job.task] for job in jobs]
        assignments = [
            Assignment(job, now, leased_at=leased_at, kind=executor.kind)
            for job, executor in zip(jobs, executors, strict=True)
        ]
        duplicates = self._slots.find_duplicates(assignments)
        if duplicates:
            self._continue_reclaimed(duplicates, leased_at)
            leases = {assignment.lease for assignment in duplicates}
            return self._start(
                [assignment.job for assignment in assignments if assignment.lease not in leases], leased_at
            )
        for assignment in assignments:
            assignment.context.progress_sink = self._progress_buffer
        self._slots.add(assignments)
        paused = self.queue_weights.paused_queues()  # read after they are in their slots: see QueueWeights
        for assignment, executor in zip(assignments, executors, strict=True):
            if assignment.job.queue in paused:
                if assignment.acquire():
                    self._inbox.put(assignment, Interrupted(started=False))
            elif self.is_claiming:
                executor.submit(assignment)
        return jobs

    def _continue_reclaimed(self, reclaimed: Sequence[Assignment], leased_at: float) -> None:
        """Continue attempts that the store has given to this worker a second time.

        After a failover a store may not know of a claim that it has answered. The attempt runs here, or its
        outcome is on its way. It takes over the new lease, and is not started a second time.
        """
        for assignment in reclaimed:
            logger.warning("job %s, attempt %s, was given again; it goes on", *assignment.lease)
            held = self._slots.renew(assignment, leased_at)
            if held.abandoned_at is None:  # else its code no longer counts
                held.context.mark_lease_regained(self._clock.now_ms())

    def flush_metrics(self) -> None:
        """Write the latest metrics, because there will be no other tick. Not during an outage: the stop of a
        worker does not wait for metrics."""
        if not self._was_unavailable:
            self._metrics.record_all(self._store)

    def interrupt_all(self) -> None:
        """Interrupt everything that still runs: the drain time is over."""
        self._interruption_policy.stop_all()

    # Wait

    def _run_maintenance(self, claimed: Sequence[Job]) -> None:
        now = self._clock.monotonic()
        if now < self._maintenance_at:
            return
        is_late, has_more = now >= self._maintenance_deadline, False
        # The next time is set first: a task that fails must not have its turn again before other workers
        # claim. By chance it is a little longer than the interval: a task that is requested too early is
        # requested in vain.
        self._maintenance_at = now + MAINTENANCE_SECONDS * (1.25 - self._roll() / 4)
        for task in self._maintenance_tasks:
            if now < self._maintenance_due_at.get(task.name, 0.0):
                continue
            if not is_late and self._has_waiting_jobs(claimed):
                self._maintenance_at = now + MAINTENANCE_DELAY_SECONDS
                return
            if run_due_tasks(self._store, [task]):
                has_more = True
            else:
                self._maintenance_due_at[task.name] = now + task.every_ms / 1_000
        if has_more:
            self._maintenance_at = now
        else:
            self._maintenance_deadline = self._maintenance_at + MAINTENANCE_LATE_SECONDS

    def _has_waiting_jobs(self, claimed: Sequence[Job]) -> bool:
        """Return whether there are jobs to start, or a wake-up about jobs to claim.

        Maintenance takes longer than everything else between an enqueue and its start, and can wait. But not
        for ever, since some workers always have jobs to start.
        """
        return bool(claimed) or (self._inbox.has_wakeup and self._queue_selector.has_room)

    def _add_jitter(self, seconds: float) -> float:
        """Shorten a pause by chance: workers that were started together should not poll together for ever."""
        return seconds * (0.75 + self._roll() / 4)

    def _record_next_due(self, called_at: float, next_due_ms: int | None) -> None:
        """Keep the time at which the next job is due until it has passed.

        An answer speaks of one group of queues alone, and there may be several ticks before the sleep. A time
        that is no longer true costs one claim too many.
        """
        if self._due_at <= called_at:
            self._due_at = inf
        if next_due_ms is not None:
            self._due_at = min(self._due_at, self._clock.monotonic() + next_due_ms / 1_000)

    def _sleep_seconds(self) -> float:
        now = self._clock.monotonic()
        # Wake-ups may get lost, so there is always an end to the sleep.
        wake_times = [
            now + self._add_jitter(POLL_SECONDS),
            self._due_at,
            self._maintenance_at,
            self._interruption_policy.next_check_at(),
            self._progress_buffer.next_at(),
            self._deferred.next_at,
            next_check_at(self._unsettled, now),
        ]
        if self._queue_selector.has_room:
            wake_times.append(now + self._idle_polling.next_pause())
        if len(self._slots) and self._inbox.has_wakeup:
            wake_times.append(self._cancel_poll_at)
        # Only jobs that can still be handed back: another check of the others would change nothing.
        waiting = [assignment.claimed_at for assignment in self._slots if assignment.is_waiting]
        if waiting:
            wake_times.append(min(waiting) + START_WITHIN_SECONDS)
        return max(0.0, min(wake_times) - now)


def _job_of(lease: Lease, ended: Iterable[tuple[Assignment, Outcome]]) -> Job:
    return next(assignment.job for assignment, _ in ended if assignment.lease == lease)


def _without(settlements: Sequence[Settlement], busy: Collection[Lease]) -> list[Settlement]:
    """Return the settlements without those of these leases."""
    return [
        settlement for settlement in settlements if Lease(settlement.job_id, settlement.attempt) not in busy
    ]


def _return_outcomes(assignments: Iterable[Assignment]) -> list[tuple[Assignment, Outcome]]:
    """Return the outcomes that put jobs back into their queue: of those claimed and not started."""
    return [
        (assignment, Interrupted(started=False))
        for assignment in assignments
        if assignment.started_at is None and assignment.acquire()
    ]
