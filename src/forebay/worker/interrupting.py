"""Making running jobs stop: they ran too long, somebody cancelled them, or the worker stops."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from math import inf
from typing import Final

from forebay.clock import Clock
from forebay.domain.outcome import Interrupted
from forebay.stores.protocol import Cancel
from forebay.telemetry.logs import job_fields
from forebay.worker.executors.protocol import Executors
from forebay.worker.inbox import Inbox
from forebay.worker.invoke import JobInterrupted, JobTimeout, WorkerStops
from forebay.worker.slots import Assignment, Kind, Slots

ASK_AGAIN_SECONDS: Final = 1.0
STUCK_SECONDS: Final = 5.0

logger: logging.Logger = logging.getLogger(__name__)


class Interrupting:
    """Used by the coordinator alone; executors do the raising."""

    def __init__(self, slots: Slots, inbox: Inbox, executors: Executors, clock: Clock) -> None:
        self._slots = slots
        self._inbox = inbox
        self._executors = executors
        self._clock = clock
        self._soft: list[tuple[Assignment, float]] = []

    def cancel(self, cancels: Iterable[Cancel]) -> None:
        """Somebody wants jobs of ours stopped: what runs is asked, what does not run is not started."""
        wanted = {cancel.job_id: cancel.reason for cancel in cancels}
        if not wanted:
            return
        for one in self._slots:
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
        for one in self._slots:
            self._stop(one, WorkerStops("the worker stops"))

    def look(self) -> None:
        """Stop what runs too long, after a warning where there is a soft limit. Ask again where nobody has
        heard, and say which jobs do not listen."""
        now = self._clock.monotonic()
        self._warn(now)
        for one in self._slots:
            limit = one.job.timeout_ms
            if one.stop is not None:
                self._insist(one, now)
            elif one.started_at is not None and limit is not None and one.started_at + limit / 1_000 <= now:
                self._stop(one, JobTimeout(f"ran longer than {limit / 1_000:g} s"))

    def next_at(self) -> float:
        """When to look again."""
        now = self._clock.monotonic()
        soft = min((_soft_at(one, limit, now) for one, limit in self._soft), default=inf)
        return min(soft, min((self._due_at(one, now) for one in self._slots), default=inf))

    def _warn(self, now: float) -> None:
        """Tell what has passed its soft limit. Only attempts that have one are looked at, so that others cost
        nothing; one that has ended is dropped, so that the list is no longer than there are slots."""
        self._soft += self._inbox.watched()
        if not self._soft:
            return
        waiting = []
        for one, limit in self._soft:
            if one.ended_at is not None:
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

    def _due_at(self, one: Assignment, now: float) -> float:
        if one.stop is None:
            limit = one.job.timeout_ms
            # What has not started yet may start at once, and nobody would say so.
            started_at = now if one.started_at is None else one.started_at
            return inf if limit is None else started_at + limit / 1_000
        if one.stopped_by is None:
            return one.asked_at + one.asks * ASK_AGAIN_SECONDS
        return inf if one.is_stuck or _is_killed_in_time(one) else one.asked_at + STUCK_SECONDS

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


def _soft_at(one: Assignment, limit: float, now: float) -> float:
    # It is announced just before it starts.
    return (now if one.started_at is None else one.started_at) + limit
