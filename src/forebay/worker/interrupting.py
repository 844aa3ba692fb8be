"""Making running jobs stop: they ran too long, somebody cancelled them, or the worker stops."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from math import inf
from typing import Final

from forebay.clock import Clock
from forebay.domain.outcome import Interrupted
from forebay.stores.protocol import Cancel
from forebay.telemetry.logs import job_fields
from forebay.worker.executors.protocol import Executors
from forebay.worker.inbox import Inbox
from forebay.worker.invoke import JobInterrupted, JobTimeout, WorkerStops
from forebay.worker.recycling import MAX_ABANDONED
from forebay.worker.slots import Assignment, Kind, Slots

ASK_AGAIN_SECONDS: Final = 1.0
STUCK_SECONDS: Final = 5.0
# How long a task may put things in order after its time limit, before its attempt is settled without it.
GRACE_SECONDS: Final = 0.5

logger: logging.Logger = logging.getLogger(__name__)


class Interrupting:
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
        self._soft: list[tuple[Assignment, float]] = []

    def cancel(self, cancels: Iterable[Cancel]) -> None:
        """Somebody wants jobs of ours stopped: what runs is asked, what does not run is not started."""
        wanted = {cancel.job_id: cancel.reason for cancel in cancels}
        if not wanted:
            return
        for one in self._unconcluded():
            reason = wanted.get(one.job.id)
            if reason is None or one.context.is_cancelled:
                continue
            one.context.tell_cancelled(reason)
            if one.take():
                # The store turns it into a cancelled job.
                self._inbox.put(one, Interrupted(started=False))
            else:
                self._stop(one, JobInterrupted(reason))

    def stop_all(self) -> None:
        """Ask everything that runs, also what has been asked before and did not listen."""
        for one in self._unconcluded():
            self._stop(one, WorkerStops("the worker stops"))

    def look(self) -> None:
        """Stop what runs too long, after a warning where there is a soft limit. Ask again where nobody has
        heard, say which jobs do not listen, and give up those whose time is over."""
        now = self._clock.monotonic()
        self._warn(now)
        for one in self._unconcluded():
            limit = one.job.timeout_ms
            if one.stop is not None:
                self._look_again(one, now)
            elif one.started_at is not None and limit is not None and one.started_at + limit / 1_000 <= now:
                self._stop(one, _too_long(one))
                one.abandon_at = now + GRACE_SECONDS
        if self._slots.abandoned:
            self._tidy()

    def next_at(self) -> float:
        """When to look again."""
        now = self._clock.monotonic()
        soft = min((_soft_at(one, limit, now) for one, limit in self._soft), default=inf)
        return min(soft, min((self._due_at(one, now) for one in self._unconcluded()), default=inf))

    def _unconcluded(self) -> Iterator[Assignment]:
        """Attempts whose code may still run. The others were abandoned, or have ended and wait for the store:
        a request to stop would never be heard, and they would count as stuck."""
        # By the ticket and not by `ended_at`, which is set before the result is encoded.
        return (one for one in self._slots if not one.is_concluded)

    def _warn(self, now: float) -> None:
        """Tell what has passed its soft limit. Only attempts that have one are looked at, so that others cost
        nothing; one that has ended is dropped, so that the list is no longer than there are slots."""
        self._soft += self._inbox.watched()
        if not self._soft:
            return
        waiting = []
        for one, limit in self._soft:
            if one.ended_at is not None or one.abandoned_at is not None:
                continue
            if now < _soft_at(one, limit, now):
                waiting.append((one, limit))
                continue
            one.context.tell_overdue()
            fields = job_fields(one.job)
            logger.warning(
                "job %s, attempt %s, is overdue: it runs longer than %g s", *one.lease, limit, extra=fields
            )
        self._soft = waiting

    def _look_again(self, one: Assignment, now: float) -> None:
        """At one that was asked to stop before."""
        if one.abandon_at == inf and now >= _limit_at(one, now):  # it was cancelled before
            one.abandon_at = now + GRACE_SECONDS
        if now < one.abandon_at or _is_killed_in_time(one) or not self._abandon(one, now):
            self._insist(one, now)

    def _due_at(self, one: Assignment, now: float) -> float:
        if one.stop is None:
            return _limit_at(one, now)
        if one.stopped_by is None:
            ask_at = one.asked_at + one.asks * ASK_AGAIN_SECONDS
        else:
            ask_at = inf if one.is_stuck else one.asked_at + STUCK_SECONDS
        if _is_killed_in_time(one):
            return inf if one.stopped_by is not None else ask_at
        return min(ask_at, one.abandon_at if one.abandon_at < inf else _limit_at(one, now))

    def _insist(self, one: Assignment, now: float) -> None:
        # An executor drops a request that comes before the job has taken its seat or after it has left it.
        if one.stopped_by is None and now >= one.asked_at + one.asks * ASK_AGAIN_SECONDS:
            self._stop(one, one.stop or JobInterrupted("asked to stop"))
        if not (one.is_stuck or _is_killed_in_time(one)) and now >= one.asked_at + STUCK_SECONDS:
            one.is_stuck = True
            logger.error(
                "job %s, attempt %s, is still running after it was stopped: %s",
                *one.lease,
                one.stop,
                extra=job_fields(one.job),
            )

    def _abandon(self, one: Assignment, now: float) -> bool:
        """Settle an attempt that has not ended when its grace is over; false if it has just ended.

        Its code may end at this very moment. Whoever takes the ticket in `Assignment.conclude` tells the
        outcome; the other side drops its own. So there is one, and the slot is given back once.
        """
        # A job that was cancelled before, and did not hear of it, is cancelled now.
        is_cancelled = one.context.is_cancelled and isinstance(one.stop, JobInterrupted)
        reason = one.stop if is_cancelled and one.stop is not None else _too_long(one)
        outcome = self._executors.executor(one.job.task).abandon(one, reason)
        if outcome is None:  # it has just ended, or has not taken its seat yet
            one.abandon_at = now + ASK_AGAIN_SECONDS
            return False
        self._slots.abandon(one, now)
        # For the code that still runs: its words and steps go nowhere from now on.
        one.context.tell_lost(f"{reason}, and its attempt was settled without it")
        self._inbox.put(one, outcome)
        logger.error(
            "job %s, attempt %s, %s and did not stop: its attempt is settled, its %s is abandoned",
            *one.lease,
            _too_long(one),
            "coroutine" if one.kind is Kind.COROUTINES else "thread",
            extra=job_fields(one.job),
        )
        return True

    def _tidy(self) -> None:
        """Count what has come back, and have others take the places of the rest, as many as may be."""
        for one in self._slots.abandoned:
            if one.ended_at is not None:
                self._slots.returned(one)
                logger.info("abandoned code of job %s, attempt %s, has ended", *one.lease)
        replaced = sum(not one.slots_taken for one in self._slots.abandoned)
        for one in self._slots.abandoned:
            if one.slots_taken and replaced < self._max_abandoned:
                replaced += self._replace(one)

    def _replace(self, one: Assignment) -> bool:
        if self._executors.executor(one.job.task).replace(one):
            self._slots.vacate(one)
            return True
        self._slots.occupy(one)
        return False

    def _stop(self, one: Assignment, reason: BaseException) -> None:
        if one.stop is None:
            one.stop = reason
            one.asked_at = self._clock.monotonic()
        one.asks += 1
        if one.started_at is not None:
            self._executors.executor(one.job.task).interrupt(one, reason)


def _is_killed_in_time(one: Assignment) -> bool:
    """Whether its executor ends it by force when its grace is over, so that it never gets stuck."""
    return one.kind is Kind.ISOLATED


def _limit_at(one: Assignment, now: float) -> float:
    limit = one.job.timeout_ms
    # What has not started yet may start at once, and nobody would say so.
    return inf if limit is None else (now if one.started_at is None else one.started_at) + limit / 1_000


def _too_long(one: Assignment) -> JobTimeout:
    return JobTimeout(f"ran longer than {(one.job.timeout_ms or 0) / 1_000:g} s")


def _soft_at(one: Assignment, limit: float, now: float) -> float:
    # It is announced just before it starts.
    return (now if one.started_at is None else one.started_at) + limit
