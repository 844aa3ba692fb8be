"""Making running jobs stop: they ran too long, somebody cancelled them, or the worker stops."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from math import inf
from typing import Final

from forebay.clock import Clock
from forebay.domain.outcome import Interrupted
from forebay.stores.contract.values import PendingCancel
from forebay.telemetry.logs import job_fields
from forebay.worker.executors.protocol import Executors
from forebay.worker.inbox import Inbox
from forebay.worker.invoker import JobInterrupted, JobTimeout, WorkerStopping
from forebay.worker.recycler import MAX_ABANDONED
from forebay.worker.slots import Assignment, ExecutorKind, Slots

ASK_AGAIN_SECONDS: Final = 1.0
STUCK_SECONDS: Final = 5.0
# How long a task may put things in order after its time limit, before its attempt is settled without it.
GRACE_SECONDS: Final = 0.5

logger: logging.Logger = logging.getLogger(__name__)


class Interrupter:
    """Used by the coordinator alone; executors do the raising."""

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
        """Somebody wants jobs of ours stopped: what runs is asked, what does not run is not started."""
        wanted = {cancel.job_id: cancel.reason for cancel in cancels}
        if not wanted:
            return
        for assignment in self._unconcluded():
            reason = wanted.get(assignment.job.id)
            if reason is None or assignment.context.is_cancelled:
                continue
            assignment.context.mark_cancelled(reason)
            if assignment.acquire():
                # The store turns it into a cancelled job.
                self._inbox.put(assignment, Interrupted(started=False))
            else:
                self._stop(assignment, JobInterrupted(reason))

    def stop_all(self) -> None:
        """Ask everything that runs, also what has been asked before and did not listen."""
        for one in self._unconcluded():
            self._stop(one, WorkerStopping("the worker stops"))

    def check(self) -> None:
        """Stop what runs too long, after a warning where there is a soft limit. Ask again where nobody has
        heard, say which jobs do not listen, and give up those whose time is over."""
        now = self._clock.monotonic()
        self._warn(now)
        for one in self._unconcluded():
            limit = one.job.timeout_ms
            if one.stop_reason is not None:
                self._check_stopping(one, now)
            elif one.started_at is not None and limit is not None and one.started_at + limit / 1_000 <= now:
                self._stop(one, _timeout_error(one))
                one.abandon_at = now + GRACE_SECONDS
        if self._slots.abandoned:
            self._replace_abandoned()

    def next_check_at(self) -> float:
        """When to look again."""
        now = self._clock.monotonic()
        soft = min((_soft_at(one, limit, now) for one, limit in self._soft_limits), default=inf)
        return min(soft, min((self._check_due_at(one, now) for one in self._unconcluded()), default=inf))

    def _unconcluded(self) -> Iterator[Assignment]:
        """Attempts whose code may still run. The others were abandoned, or have ended and wait for the store:
        a request to stop would never be heard, and they would count as stuck."""
        # By the ticket and not by `ended_at`, which is set before the result is encoded.
        return (one for one in self._slots if not one.is_concluded)

    def _warn(self, now: float) -> None:
        """Tell what has passed its soft limit. Only attempts that have one are looked at, so that others cost
        nothing; one that has ended is dropped, so that the list is no longer than there are slots."""
        self._soft_limits += self._inbox.take_soft_limits()
        if not self._soft_limits:
            return
        waiting = []
        for one, limit in self._soft_limits:
            if one.ended_at is not None or one.abandoned_at is not None:
                continue
            if now < _soft_at(one, limit, now):
                waiting.append((one, limit))
                continue
            one.context.mark_past_soft_timeout()
            fields = job_fields(one.job)
            logger.warning(
                "job %s, attempt %s, is overdue: it runs longer than %g s", *one.lease, limit, extra=fields
            )
        self._soft_limits = waiting

    def _check_stopping(self, assignment: Assignment, now: float) -> None:
        """At one that was asked to stop before."""
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
            ask_at = assignment.stop_requested_at + assignment.stop_requests * ASK_AGAIN_SECONDS
        else:
            ask_at = inf if assignment.is_stuck else assignment.stop_requested_at + STUCK_SECONDS
        if _is_killed_in_time(assignment):
            return inf if assignment.stopped_by is not None else ask_at
        return min(
            ask_at, assignment.abandon_at if assignment.abandon_at < inf else _limit_at(assignment, now)
        )

    def _repeat_stop(self, assignment: Assignment, now: float) -> None:
        # An executor drops a request that comes before the job has taken its seat or after it has left it.
        if (
            assignment.stopped_by is None
            and now >= assignment.stop_requested_at + assignment.stop_requests * ASK_AGAIN_SECONDS
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
        """Settle an attempt that has not ended when its grace is over; false if it has just ended.

        Its code may end at this very moment. Whoever takes the ticket in `Assignment.conclude` tells the
        outcome; the other side drops its own. So there is one, and the slot is given back once.
        """
        # A job that was cancelled before, and did not hear of it, is cancelled now.
        is_cancelled = assignment.context.is_cancelled and isinstance(assignment.stop_reason, JobInterrupted)
        reason = (
            assignment.stop_reason
            if is_cancelled and assignment.stop_reason is not None
            else _timeout_error(assignment)
        )
        outcome = self._executors.executor(assignment.job.task).abandon(assignment, reason)
        if outcome is None:  # it has just ended, or has not taken its seat yet
            assignment.abandon_at = now + ASK_AGAIN_SECONDS
            return False
        self._slots.abandon(assignment, now)
        # For the code that still runs: its words and steps go nowhere from now on.
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
        """Count what has come back, and have others take the places of the rest, as many as may be."""
        for one in self._slots.abandoned:
            if one.ended_at is not None:
                self._slots.release_abandoned(one)
                logger.info("abandoned code of job %s, attempt %s, has ended", *one.lease)
        replaced = sum(not one.slots_taken for one in self._slots.abandoned)
        for one in self._slots.abandoned:
            if one.slots_taken and replaced < self._max_abandoned:
                replaced += self._replace(one)

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
    """Whether its executor ends it by force when its grace is over, so that it never gets stuck."""
    return assignment.kind is ExecutorKind.ISOLATED


def _limit_at(assignment: Assignment, now: float) -> float:
    limit = assignment.job.timeout_ms
    # What has not started yet may start at once, and nobody would say so.
    return (
        inf
        if limit is None
        else (now if assignment.started_at is None else assignment.started_at) + limit / 1_000
    )


def _timeout_error(assignment: Assignment) -> JobTimeout:
    return JobTimeout(f"ran longer than {(assignment.job.timeout_ms or 0) / 1_000:g} s")


def _soft_at(assignment: Assignment, limit: float, now: float) -> float:
    # It is announced just before it starts.
    return (now if assignment.started_at is None else assignment.started_at) + limit
