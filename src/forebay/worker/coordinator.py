"""The one thread of a worker that talks to the store: do duties, settle, claim, dispatch, wait."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from math import inf
from typing import Final

from forebay.app.hooks import Hooks
from forebay.clock import Clock
from forebay.domain.job import Job
from forebay.domain.lease import Lease
from forebay.domain.outcome import Interrupted, Outcome
from forebay.domain.progress import ProgressUpdate
from forebay.domain.settlement import OutcomeKind, Settlement, decide
from forebay.domain.worker import SHOWN_JOBS, WorkerInfo
from forebay.errors import StoreError, StoreUnavailable
from forebay.maintenance.sweeper import LEASE_MS
from forebay.operations.maintenance_task import MaintenanceTask, notify_connected, run_due_tasks
from forebay.operations.settlements import FallbackSettlements, settle_and_claim_isolating
from forebay.stores.contract.store import Store
from forebay.stores.contract.values import LeaseRefusal, QueueClaim, SettleAndClaimResult
from forebay.telemetry.logs import job_fields
from forebay.telemetry.observers import SettledAttempt
from forebay.worker.caller_transactions import EndedAttempts, next_check_at, split_settleable
from forebay.worker.debug_log import log_claims, log_ends
from forebay.worker.deferred_settlements import DeferredSettlements
from forebay.worker.executors.protocol import Executors
from forebay.worker.idle_polling import IdlePolling
from forebay.worker.inbox import LONGEST_SLEEP_SECONDS, Inbox
from forebay.worker.interrupter import Interrupter
from forebay.worker.invoker import attempt_error
from forebay.worker.metrics_reporter import MetricsReporter
from forebay.worker.prefetch import PrefetchPolicy
from forebay.worker.progress_buffer import ProgressBuffer
from forebay.worker.queue_selector import QueueSelector
from forebay.worker.queue_weights import QueueWeightRefresher, QueueWeights
from forebay.worker.recycler import MAX_ABANDONED
from forebay.worker.slots import Assignment, Slots
from forebay.worker.watchdog import Watchdog

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
    """Plays turns. A turn never waits; the loop around it does."""

    def __init__(  # noqa: PLR0913 - all the parts it plays with, by name
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
        self._interrupter = Interrupter(slots, inbox, executors, clock, max_abandoned=max_abandoned)
        self._idle_polling = IdlePolling(is_needed=polls_when_idle)
        self._unsettled: list[tuple[Assignment, Outcome]] = []
        self._deferred = DeferredSettlements(slots, clock)
        self._is_in_doubt = False
        self._was_unavailable = False
        self._due_at = inf
        self._maintenance_at = self._last_roundtrip_at = clock.monotonic()
        self._maintenance_deadline = self._maintenance_at + MAINTENANCE_LATE_SECONDS
        self._maintenance_due_at: dict[str, float] = {}  # when a duty may be due again, as far as we know
        self._retry_seconds = self._retry_at = 0.0
        self.is_claiming = True

    @property
    def is_idle(self) -> bool:
        """Whether nothing is held, nothing waits to be settled, and nothing is held without our knowing."""
        waiting = self._unsettled or len(self._deferred)
        return not len(self._slots) and not waiting and not self._is_in_doubt

    @property
    def is_cut_off(self) -> bool:
        """Whether the store did not answer the last time it was asked."""
        return self._is_in_doubt

    @property
    def unwritten(self) -> int:
        """How many attempts have ended whose results the store has not taken."""
        return sum(one.started_at is not None for one, _ in self._unsettled) + self._deferred.unwritten

    def tick(self) -> float:
        """Settle, claim, dispatch; answers how many seconds there is nothing to do."""
        self._watchdog.mark_progress()
        try:
            # First what needs no store: time runs out while it is away too.
            self._interrupter.cancel(self._inbox.take_cancels())
            self._interrupter.check()
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
            # A fault of our own in one turn must not end the work of this process. What it left half done is
            # found again by naming the leases we know.
            logger.exception("a turn of the coordinator went wrong")
            self.hooks.report(None, attempt_error(exc))
        return self._back_off()

    def _tick_with_store(self) -> float:
        was_in_doubt = self._is_in_doubt
        if self._weight_refresher is not None:
            self._weight_refresher.refresh_if_due()
        asked_at = self._clock.monotonic()
        answer = self._settle_and_claim()
        self._watchdog.mark_progress()
        self._record_next_due(asked_at, answer.next_due_ms)
        try:
            # After the exchange: what has ended here is settled before a sweep looks for ended leases.
            self._run_maintenance(answer.jobs)
        finally:
            # Last, and whatever the duties have met, since these jobs are ours now. A task may hold the
            # interpreter from its first line on and stop this thread wherever it is; in the middle of a
            # transaction that would lock a SQLite file for everybody, and here most turns are over.
            self._dispatch(answer.jobs, asked_at)
        self._recover_leases(answer.recovered)
        self._interrupter.cancel(answer.cancels)
        if again := self._deferred.due():
            # With their last words, which were left undone too if another transaction holds the job.
            self._settle(
                again, self._unsettled, updates=self._progress_buffer.take_updates(one for one, _ in again)
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
        endings, still_open = split_settleable(self._store, self._worker, self._unsettled)
        # In doubt we ask for nothing new before we know what we have.
        is_asking = self.is_claiming and not self._is_in_doubt
        wants, room = self._queue_selector.next_claims(one for one, _ in endings) if is_asking else ([], 0)
        notes = self._progress_buffer.take_updates(one for one, _ in endings)
        if not (endings or wants or notes or self._is_in_doubt or self._is_cancel_poll_due()):
            return SettleAndClaimResult()
        if endings or self._inbox.has_wakeup:
            self._idle_polling.begin()
        self._inbox.clear_wake()  # before the look: what happens from here on is worth another one
        # After a lost answer the store may hold leases for us that we do not know of.
        known = self._slots.leases() if self._is_in_doubt else None
        return self._settle(endings, still_open, wants, room, known, notes)

    def _settle(
        self,
        ended: EndedAttempts,
        still_open: EndedAttempts,
        claims: Sequence[QueueClaim] = (),
        room: int = 0,
        known: Sequence[Lease] | None = None,
        updates: Sequence[ProgressUpdate] = (),
    ) -> SettleAndClaimResult:
        """Exchange, and end the assignments whose settlement the store has answered. What is `still_open` is
        left for another turn."""
        settlements = [decide(one.job, outcome, self._roll()) for one, outcome in ended]
        instead = FallbackSettlements(lambda lease: _job_of(lease, ended), self._roll)
        answer = settle_and_claim_isolating(
            self._store, self._worker, settlements, claims, room, known, updates, fallback=instead
        )
        if self._was_unavailable:
            # The first answer after an outage. Others could not renew their leases either, and come first.
            self._was_unavailable = False
            notify_connected(self._maintenance_tasks)
        self._is_in_doubt = False
        self._last_roundtrip_at = self._clock.monotonic()
        self._unsettled = still_open
        if answer.busy or len(self._deferred):
            ended = self._deferred.defer_busy(ended, answer.busy)
            settlements = _without(settlements, answer.busy)
        self._progress_buffer.confirm(answer.refused_updates, answer.busy)
        self._progress_buffer.forget(one for one, _ in ended)
        self._record_ended(ended)
        ends = instead.substitute(settlements)
        self._count(ended, ends, answer.refused)
        self._log_refused(answer.refused, ended)
        self.hooks.report_dead((one.job for one, _ in ended), ends, answer)
        return answer

    def _is_cancel_poll_due(self) -> bool:
        """Whether to ask only for wishes to cancel: nobody else delivers them while all slots are taken,
        except the renewal, much later."""
        return len(self._slots) > 0 and self._clock.monotonic() >= self._cancel_poll_at

    @property
    def _cancel_poll_at(self) -> float:
        """After a wake-up soon, since that may have been about a wish to cancel."""
        return self._last_roundtrip_at + (
            EARLY_CANCEL_POLL_SECONDS if self._inbox.has_wakeup else CANCEL_POLL_SECONDS
        )

    def _record_ended(self, ended: Sequence[tuple[Assignment, Outcome]]) -> None:
        latest = [one.job.id for one, _ in ended[-SHOWN_JOBS:] if one.started_at is not None]
        if latest:
            self._slots.recent = (*self._slots.recent, *latest)[-SHOWN_JOBS:]
        for one, _ in ended:
            self._slots.end(one)
            if (seconds := one.seconds) is not None:
                self._prefetch.record_duration(one.job.task, seconds)

    def _count(
        self,
        ended: Sequence[tuple[Assignment, Outcome]],
        settlements: Sequence[Settlement],
        refused: Iterable[LeaseRefusal],
    ) -> None:
        """For the worker's own figures, and for the metrics; what was refused is somebody else's."""
        lost = {refusal.lease for refusal in refused}
        slots, counted = self._slots, []
        for (one, _), end in zip(ended, settlements, strict=True):
            if lost and one.lease in lost:
                continue
            if end.outcome is OutcomeKind.COMPLETED:
                slots.completed += 1
            elif end.outcome in (OutcomeKind.FAILED, OutcomeKind.DISCARDED):
                slots.failed += 1
            counted.append((one.job, end, one.seconds))
        self._metrics.on_settled(counted, [one.job for one, _ in ended if one.lease in lost] if lost else ())
        log_ends(counted)

    def on_swept(self, ends: Sequence[SettledAttempt]) -> None:
        """A duty of ours has settled attempts of workers that are gone: nobody else will count them."""
        if ends:
            self._metrics.on_swept(ends, (ends[0][0].lease_expires_at or 0) - LEASE_MS)

    def _return_unstarted(self) -> list[tuple[Assignment, Outcome]]:
        """What could not be started in time goes back: somebody else may have a free slot."""
        now = self._clock.monotonic()
        late = _hand_back(one for one in self._slots if one.claimed_at + START_WITHIN_SECONDS <= now)
        if late:
            self._prefetch.reset()
        return late

    def hand_back(self) -> None:
        """Give back what was claimed and not started; no failure is counted."""
        self._unsettled += _hand_back(self._slots)

    def _log_refused(
        self, refused: Iterable[LeaseRefusal], ended: Sequence[tuple[Assignment, Outcome]]
    ) -> None:
        # A refused settlement is not an error. The lease ran out, the sweep gave the job to somebody else,
        # and their attempt is the one that counts. We drop ours and say so.
        for one in refused:
            # No turn ends for a line in the log: a store may name a lease that none of these had.
            fields = next((job_fields(end.job) for end, _ in ended if end.lease == one.lease), None)
            logger.warning("lease lost: job %s, attempt %s: %s", *one.lease, one.reason, extra=fields)

    def _back_off(self) -> float:
        """The store does not answer: keep every settlement, however long, and try again."""
        self._is_in_doubt = True
        now = self._clock.monotonic()
        # A turn that comes before, because a job has ended, does not make the wait longer.
        if now >= self._retry_at:
            self._retry_seconds = min(LONGEST_RETRY_SECONDS, max(0.1, self._retry_seconds * 2))
            self._retry_at = now + self._retry_seconds * (0.5 + self._roll() / 2)
        return max(0.0, min(self._retry_at, self._interrupter.next_check_at()) - now)

    # Dispatch

    def _dispatch(self, jobs: Sequence[Job], leased_at: float) -> None:
        log_claims(self._queue_selector, jobs)
        self._queue_selector.record_claimed(jobs)
        self._metrics.on_claimed(self._start(jobs, leased_at), leased_at)

    def _recover_leases(self, jobs: Sequence[Job]) -> None:
        """Take on what the store holds under our name and we did not know of: a claim whose answer was lost.

        Nobody has renewed these leases, so that is done before anything is started. If it fails they stay
        unknown, and the next exchange brings them again.
        """
        if not jobs:
            return
        asked_at = self._clock.monotonic()
        answer = self._store.renew(self._worker, [Lease(job.id, job.attempt) for job in jobs])
        lost = {refusal.lease for refusal in answer.refused}
        ours = [job for job in jobs if Lease(job.id, job.attempt) not in lost]
        self._metrics.on_recovered(self._start(ours, asked_at), asked_at)
        if not self.is_claiming:
            self.hand_back()

    def _start(self, jobs: Sequence[Job], leased_at: float) -> Sequence[Job]:
        """Start these, and answer which: not those whose leases are held here already."""
        now = self._clock.monotonic()
        by_task = {task: self._executors.executor(task) for task in {job.task for job in jobs}}
        executors = [by_task[job.task] for job in jobs]
        assignments = [
            Assignment(job, now, leased_at=leased_at, kind=executor.kind)
            for job, executor in zip(jobs, executors, strict=True)
        ]
        again = self._slots.find_duplicates(assignments)
        if again:
            self._continue_reclaimed(again, leased_at)
            leases = {one.lease for one in again}
            return self._start([one.job for one in assignments if one.lease not in leases], leased_at)
        for assignment in assignments:
            assignment.context.progress_sink = self._progress_buffer
        self._slots.add(assignments)
        paused = self.queue_weights.paused_queues()  # looked at after they are in their slots: see Steering
        for assignment, executor in zip(assignments, executors, strict=True):
            if assignment.job.queue in paused:
                if assignment.acquire():
                    self._inbox.put(assignment, Interrupted(started=False))
            elif self.is_claiming:
                executor.submit(assignment)
        return jobs

    def _continue_reclaimed(self, reclaimed: Sequence[Assignment], leased_at: float) -> None:
        """After a failover a store may not know of a claim that it has answered, and give the same attempt to
        the same worker again. That attempt runs here, or its outcome is on its way: it has the lease that was
        given now, and is not started a second time."""
        for one in reclaimed:
            logger.warning("job %s, attempt %s, was given again; it goes on", *one.lease)
            held = self._slots.renew(one, leased_at)
            if held.abandoned_at is None:  # its code counts no more, whatever becomes of the lease
                held.context.mark_lease_regained(self._clock.now_ms())

    def flush_metrics(self) -> None:
        """Write what was counted since the last time: there will be no other turn. Not to a store that is
        away: nobody waits longer for a worker to stop because of figures."""
        if not self._was_unavailable:
            self._metrics.record_all(self._store)

    def interrupt_all(self) -> None:
        """The time to drain is over: ask everything that still runs to stop."""
        self._interrupter.stop_all()

    # Wait

    def _run_maintenance(self, claimed: Sequence[Job]) -> None:
        now = self._clock.monotonic()
        if now < self._maintenance_at:
            return
        is_late, has_more = now >= self._maintenance_deadline, False
        # The next time is set first: a duty that goes wrong must not have its turn again before others claim.
        # By chance a little more than their pace: whoever asks for one too early asks in vain.
        self._maintenance_at = now + MAINTENANCE_SECONDS * (1.25 - self._roll() / 4)
        for duty in self._maintenance_tasks:
            if now < self._maintenance_due_at.get(duty.name, 0.0):
                continue
            if not is_late and self._has_waiting_jobs(claimed):
                self._maintenance_at = now + MAINTENANCE_DELAY_SECONDS
                return
            if run_due_tasks(self._store, [duty]):
                has_more = True
            else:
                self._maintenance_due_at[duty.name] = now + duty.every_ms / 1_000
        if has_more:
            self._maintenance_at = now
        else:
            self._maintenance_deadline = self._maintenance_at + MAINTENANCE_LATE_SECONDS

    def _has_waiting_jobs(self, claimed: Sequence[Job]) -> bool:
        """Whether there are jobs to be started, or word of some to be claimed. Duties take longer than all
        else between an enqueue and its start, and have time; but not for ever, since some workers always have
        jobs to start."""
        return bool(claimed) or (self._inbox.has_wakeup and self._queue_selector.has_room)

    def _add_jitter(self, seconds: float) -> float:
        """A little less, by chance: workers that were started together should not ask together for ever."""
        return seconds * (0.75 + self._roll() / 4)

    def _record_next_due(self, asked_at: float, next_due_ms: int | None) -> None:
        """Keep when the next job is due until that time has passed: an answer speaks of one lane alone, and
        there may be several turns before the sleep. What is not true any more costs one look too many."""
        if self._due_at <= asked_at:
            self._due_at = inf
        if next_due_ms is not None:
            self._due_at = min(self._due_at, self._clock.monotonic() + next_due_ms / 1_000)

    def _sleep_seconds(self) -> float:
        now = self._clock.monotonic()
        # Wake-ups may get lost, so there is always an end to the sleep.
        ends = [
            now + self._add_jitter(POLL_SECONDS),
            self._due_at,
            self._maintenance_at,
            self._interrupter.next_check_at(),
            self._progress_buffer.next_at(),
            self._deferred.next_at,
            next_check_at(self._unsettled, now),
        ]
        if self._queue_selector.has_room:
            ends.append(now + self._idle_polling.next_pause())
        if len(self._slots) and self._inbox.has_wakeup:
            ends.append(self._cancel_poll_at)
        # Only what can still be handed back: another look at what is taken would change nothing.
        waiting = [one.claimed_at for one in self._slots if one.is_waiting]
        if waiting:
            ends.append(min(waiting) + START_WITHIN_SECONDS)
        return max(0.0, min(ends) - now)


def _job_of(lease: Lease, ended: Iterable[tuple[Assignment, Outcome]]) -> Job:
    return next(one.job for one, _ in ended if one.lease == lease)


def _without(settlements: Sequence[Settlement], busy: Collection[Lease]) -> list[Settlement]:
    """Leave out the settlements of these leases."""
    return [end for end in settlements if Lease(end.job_id, end.attempt) not in busy]


def _hand_back(assignments: Iterable[Assignment]) -> list[tuple[Assignment, Outcome]]:
    """What was claimed and not started, as handed back."""
    return [
        (assignment, Interrupted(started=False))
        for assignment in assignments
        if assignment.started_at is None and assignment.acquire()
    ]
