"""Interruption policy: which running jobs to interrupt and when, for time limits, cancellation and stops.

Attempts that do not stop are abandoned: they are settled without their task.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from math import inf
from typing import Final

from forebay.clock import Clock
from forebay.domain.outcome import Interrupted
from forebay.stores.contract.claims_and_results import PendingCancel
from forebay.telemetry.log_fields import job_fields
from forebay.worker.assigned_job import Assignment, ExecutorKind
from forebay.worker.coordinator_inbox import Inbox
from forebay.worker.executors.executor_protocol import Executors
from forebay.worker.process_recycler import MAX_ABANDONED
from forebay.worker.slots import Slots
from forebay.worker.task_invoker import JobInterrupted, JobTimeout, WorkerStopping

REPEAT_STOP_SECONDS: Final = 1.0
STUCK_SECONDS: Final = 5.0
# How long a task may clean up after its time limit, before its attempt is settled without it.
GRACE_SECONDS: Final = 0.5

logger: logging.Logger = logging.getLogger(__name__)


class InterruptionPolicy:
    """Decides which jobs to interrupt. Used by the coordinator alone; the executors raise the interrupts."""

    def __init__(
        self,
        slots: Slots,
        inbox: Inbox,
        executors: Executors,
        clock: Clock,
        *,
        max_abandoned: int = MAX_ABANDONED,
    ) -> None:
        self._slots = slots
        self._inbox = inbox
        self._executors = executors
        self._clock = clock
        self._max_abandoned = max_abandoned
        self._soft_limits: list[tuple[Assignment, float]] = []

    def cancel(self, cancels: Iterable[PendingCancel]) -> None:
        """Stop these jobs: running ones are interrupted, the others are not started."""
        reasons = {cancel.job_id: cancel.reason for cancel in cancels}
        if not reasons:
            return
        for assignment in self._iter_unconcluded():
            reason = reasons.get(assignment.job.id)
            if reason is None or assignment.context.is_cancelled:
                continue
            assignment.context.mark_cancelled(reason)
            if assignment.acquire():
                # The store turns it into a cancelled job.
                self._inbox.put(assignment, Interrupted(started=False))
            else:
                self._stop(assignment, JobInterrupted(reason))

    def stop_all(self) -> None:
        """Interrupt all running jobs, also those that were interrupted before and still run."""
        for assignment in self._iter_unconcluded():
            self._stop(assignment, WorkerStopping("the worker stops"))

    def check(self) -> None:
        """Stop jobs that run too long, after a warning where there is a soft limit. Repeat unheard requests,
        log jobs that do not stop, and abandon those whose grace is over."""
        now = self._clock.monotonic()
        self._warn(now)
        for assignment in self._iter_unconcluded():
            limit = assignment.job.timeout_ms
            if assignment.stop_reason is not None:
                self._check_stopping(assignment, now)
            elif (
                assignment.started_at is not None
                and limit is not None
                and assignment.started_at + limit / 1_000 <= now
            ):
                self._stop(assignment, _timeout_error(assignment))
                assignment.abandon_at = now + GRACE_SECONDS
        if self._slots.abandoned:
            self._replace_abandoned()

    def next_check_at(self) -> float:
        """Return the time of the next check."""
        now = self._clock.monotonic()
        soft = min((_soft_at(assignment, limit, now) for assignment, limit in self._soft_limits), default=inf)
        return min(
            soft,
            min(
                (self._check_due_at(assignment, now) for assignment in self._iter_unconcluded()), default=inf
            ),
        )

    def _iter_unconcluded(self) -> Iterator[Assignment]:
        """Yield attempts whose code may still run. The others were abandoned, or have ended and wait for the
        store: a request to stop would never be heard, and they would count as stuck."""
        # By ownership of the outcome and not by `ended_at`, which is set before the result is encoded.
        return (assignment for assignment in self._slots if not assignment.is_concluded)

    def _warn(self, now: float) -> None:
        """Mark attempts that have passed their soft limit. Only attempts that have one are checked, so that
        others cost nothing. One that has ended is dropped, so the list is no longer than there are slots."""
        self._soft_limits += self._inbox.take_soft_limits()
        if not self._soft_limits:
            return
        waiting = []
        for assignment, limit in self._soft_limits:
            if assignment.ended_at is not None or assignment.abandoned_at is not None:
                continue
            if now < _soft_at(assignment, limit, now):
                waiting.append((assignment, limit))
                continue
            assignment.context.mark_past_soft_timeout()
            fields = job_fields(assignment.job)
            logger.warning(
                "job %s, attempt %s, is overdue: it runs longer than %g s",
                *assignment.lease,
                limit,
                extra=fields,
            )
        self._soft_limits = waiting

    def _check_stopping(self, assignment: Assignment, now: float) -> None:
        """Check an attempt that was asked to stop before."""
        if assignment.abandon_at == inf and now >= _limit_at(assignment, now):  # it was cancelled before
            assignment.abandon_at = now + GRACE_SECONDS
        if (
            now < assignment.abandon_at
            or _is_killed_in_time(assignment)
            or not self._abandon(assignment, now)
        ):
            self._repeat_stop(assignment, now)

    def _check_due_at(self, assignment: Assignment, now: float) -> float:
        if assignment.stop_reason is None:
            return _limit_at(assignment, now)
        if assignment.stopped_by is None:
            next_request_at = assignment.stop_requested_at + assignment.stop_requests * REPEAT_STOP_SECONDS
        else:
            next_request_at = inf if assignment.is_stuck else assignment.stop_requested_at + STUCK_SECONDS
        if _is_killed_in_time(assignment):
            return inf if assignment.stopped_by is not None else next_request_at
        return min(
            next_request_at,
            assignment.abandon_at if assignment.abandon_at < inf else _limit_at(assignment, now),
        )

    def _repeat_stop(self, assignment: Assignment, now: float) -> None:
        # An executor drops a request that comes before the job occupies its slot or after it has left it.
        if (
            assignment.stopped_by is None
            and now >= assignment.stop_requested_at + assignment.stop_requests * REPEAT_STOP_SECONDS
        ):
            self._stop(assignment, assignment.stop_reason or JobInterrupted("asked to stop"))
        if (
            not (assignment.is_stuck or _is_killed_in_time(assignment))
            and now >= assignment.stop_requested_at + STUCK_SECONDS
        ):
            assignment.is_stuck = True
            logger.error(
                "job %s, attempt %s, is still running after it was stopped: %s",
                *assignment.lease,
                assignment.stop_reason,
                extra=job_fields(assignment.job),
            )

    def _abandon(self, assignment: Assignment, now: float) -> bool:
        """Settle an attempt that has not ended when its grace is over; return false if it has just ended.

        Its code may end at this very moment. The side that acquires ownership in `Assignment.conclude`
        reports the outcome; the other side drops its own. So there is one outcome, and the slot is released
        once.
        """
        # A job that was cancelled before, and did not hear of it, is cancelled now.
        is_cancelled = assignment.context.is_cancelled and isinstance(assignment.stop_reason, JobInterrupted)
        reason = (
            assignment.stop_reason
            if is_cancelled and assignment.stop_reason is not None
            else _timeout_error(assignment)
        )
        outcome = self._executors.executor(assignment.job.task).abandon(assignment, reason)
        if outcome is None:  # it has just ended, or does not occupy its slot yet
            assignment.abandon_at = now + REPEAT_STOP_SECONDS
            return False
        self._slots.abandon(assignment, now)
        # For the code that still runs: its progress and steps are dropped from now on.
        assignment.context.mark_lease_lost(f"{reason}, and its attempt was settled without it")
        self._inbox.put(assignment, outcome)
        logger.error(
            "job %s, attempt %s, %s and did not stop: its attempt is settled, its %s is abandoned",
            *assignment.lease,
            _timeout_error(assignment),
            "coroutine" if assignment.kind is ExecutorKind.COROUTINES else "thread",
            extra=job_fields(assignment.job),
        )
        return True

    def _replace_abandoned(self) -> None:
        """Release abandoned attempts that have ended, and replace the threads of the others, up to the
        limit."""
        for assignment in self._slots.abandoned:
            if assignment.ended_at is not None:
                self._slots.release_abandoned(assignment)
                logger.info("abandoned code of job %s, attempt %s, has ended", *assignment.lease)
        replaced = sum(not assignment.slots_taken for assignment in self._slots.abandoned)
        for assignment in self._slots.abandoned:
            if assignment.slots_taken and replaced < self._max_abandoned:
                replaced += self._replace(assignment)

    def _replace(self, assignment: Assignment) -> bool:
        if self._executors.executor(assignment.job.task).replace(assignment):
            self._slots.vacate(assignment)
            return True
        self._slots.occupy(assignment)
        return False

    def _stop(self, assignment: Assignment, reason: BaseException) -> None:
        if assignment.stop_reason is None:
            assignment.stop_reason = reason
            assignment.stop_requested_at = self._clock.monotonic()
        assignment.stop_requests += 1
        if assignment.started_at is not None:
            self._executors.executor(assignment.job.task).interrupt(assignment, reason)


def _is_killed_in_time(assignment: Assignment) -> bool:
    """Return whether the executor kills the process when the grace is over, so that the job never gets
    stuck."""
    return assignment.kind is ExecutorKind.ISOLATED


def _limit_at(assignment: Assignment, now: float) -> float:
    limit = assignment.job.timeout_ms
    # A job that has not started yet may start at any moment, without notice.
    return (
        inf
        if limit is None
        else (now if assignment.started_at is None else assignment.started_at) + limit / 1_000
    )


def _timeout_error(assignment: Assignment) -> JobTimeout:
    return JobTimeout(f"ran longer than {(assignment.job.timeout_ms or 0) / 1_000:g} s")


def _soft_at(assignment: Assignment, limit: float, now: float) -> float:
    # The limit is announced just before the start.
    return (now if assignment.started_at is None else assignment.started_at) + limit
