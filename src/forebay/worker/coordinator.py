"""The one thread of a worker that talks to the store: settle, claim, dispatch, do duties, wait."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from forebay.app.duty import Duty, run_due
from forebay.app.settling import as_failed, exchange_all
from forebay.clock import Clock
from forebay.domain.job import Job, JobId, QueueName
from forebay.domain.outcome import Interrupted, Outcome
from forebay.domain.query import WorkerInfo
from forebay.domain.settlement import Settlement, decide
from forebay.errors import StoreRefused, StoreUnavailable
from forebay.stores.protocol import Cancel, Exchange, Refusal, Store, Want
from forebay.worker.executors.protocol import Executor
from forebay.worker.inbox import Inbox
from forebay.worker.invoke import JobInterrupted, JobTimeout
from forebay.worker.pace import Pace
from forebay.worker.slots import Assignment, Slots

START_WITHIN_SECONDS: Final = 1.0
POLL_SECONDS: Final = 5.0
DUTY_SECONDS: Final = 1.0
LONGEST_RETRY_SECONDS: Final = 5.0

logger = logging.getLogger(__name__)

Choose = Callable[[str], Executor]


class Coordinator:
    """Plays turns. A turn never waits; the loop around it does."""

    def __init__(
        self,
        *,
        worker: WorkerInfo,
        store: Store,
        slots: Slots,
        inbox: Inbox,
        choose: Choose,
        duties: Sequence[Duty],
        clock: Clock,
        roll: Callable[[], float],
    ) -> None:
        self._worker = worker.id
        self._store = store
        self._queues = list(worker.queues)
        self._slots = slots
        self._inbox = inbox
        self._choose = choose
        self._duties = duties
        self._clock = clock
        self._roll = roll
        self._pace = Pace()
        self._last_tasks: set[str] = set()
        self._unsettled: list[tuple[Assignment, Outcome]] = []
        self._in_doubt = False
        self._duties_at = clock.monotonic()
        self._retry_seconds = 0.0
        self.is_claiming = True

    @property
    def is_idle(self) -> bool:
        """Whether nothing is held and nothing waits to be settled."""
        return not len(self._slots) and not self._unsettled

    def turn(self) -> float:
        """Settle, claim, dispatch; answers how many seconds there is nothing to do."""
        self._unsettled += self._inbox.drain()
        self._unsettled += self._late()
        try:
            answer = self._exchange()
            self._run_duties()
        except StoreUnavailable as exc:
            return self._away(exc)
        self._retry_seconds = 0.0
        self._dispatch(answer.jobs)
        self._tell(answer.cancels)
        self._interrupt_overdue()
        return self._pause(answer)

    # Settle and claim

    def _exchange(self) -> Exchange:
        endings = self._unsettled
        settlements = [decide(one.job, outcome, self._roll()) for one, outcome in endings]
        room = self._room(len(endings)) if self.is_claiming else 0
        wants = [Want(queue, room) for queue in self._turn_of_queues()] if room > 0 else []
        if not settlements and not wants and not self._in_doubt:
            return Exchange()
        jobs = {one.job.id: one.job for one, _ in endings}

        def instead(settlement: Settlement, error: StoreRefused) -> Settlement:
            return as_failed(jobs[settlement.job_id], settlement, error, self._roll())

        # After a lost answer the store may hold leases for us that we do not know of.
        known = self._slots.leases() if self._in_doubt else None
        answer = exchange_all(self._store, self._worker, settlements, wants, room, known, fallback=instead)
        self._in_doubt = False
        self._unsettled = []
        self._note(endings)
        self._report(answer.refused)
        return answer

    def _turn_of_queues(self) -> list[QueueName]:
        # Each queue is first in its turn, so that none waits behind the others for ever.
        self._queues.append(self._queues.pop(0))
        return list(self._queues)

    def _room(self, ending: int) -> int:
        free = self._slots.size - len(self._slots) + ending
        return max(0, free + self._pace.surplus(self._last_tasks, self._slots.size))

    def _note(self, endings: Iterable[tuple[Assignment, Outcome]]) -> None:
        for one, _ in endings:
            self._slots.end(one)
            if one.started_at is not None and one.ended_at is not None:
                self._pace.note(one.job.task, one.ended_at - one.started_at)

    def _late(self) -> list[tuple[Assignment, Outcome]]:
        """What could not be started in time goes back: somebody else may have a free slot."""
        began = self._clock.monotonic() - START_WITHIN_SECONDS
        late = _taken_back(one for one in self._slots if one.claimed_at < began)
        if late:
            self._pace.start_again()
        return late

    def hand_back(self) -> None:
        """Give back what was claimed and not started; no failure is counted."""
        self._unsettled += _taken_back(self._slots)

    def _report(self, refused: Iterable[Refusal]) -> None:
        # A refused settlement is not an error. The lease ran out, the sweep gave the job to somebody else,
        # and their attempt is the one that counts. We drop ours and say so.
        for one in refused:
            logger.warning("lease lost: job %s, attempt %s: %s", *one.lease, one.reason)

    def _away(self, exc: StoreUnavailable) -> float:
        """The store does not answer: keep every settlement, however long, and try again."""
        self._in_doubt = True
        self._retry_seconds = min(LONGEST_RETRY_SECONDS, max(0.1, self._retry_seconds * 2))
        logger.warning("the store is not available, trying again in %.1f s: %s", self._retry_seconds, exc)
        return self._retry_seconds * (0.5 + self._roll() / 2)

    # Dispatch

    def _dispatch(self, jobs: Sequence[Job]) -> None:
        if not jobs:
            return
        now = self._clock.monotonic()
        assignments = [Assignment(job, now) for job in jobs]
        self._slots.add(assignments)
        self._last_tasks = {job.task for job in jobs}
        for one in assignments:
            self._choose(one.job.task).submit(one)

    def _tell(self, cancels: Iterable[Cancel]) -> None:
        for cancel in cancels:
            self.cancel(cancel.job_id, cancel.reason)

    def cancel(self, job_id: JobId, reason: str) -> None:
        """Somebody wants a job of ours stopped: once it runs it is asked, before that it is not started."""
        one = self._slots.find(job_id)
        if one is None or one.context.is_cancelled:
            return
        one.context.tell_cancelled(reason)
        if one.take():
            self._inbox.put(one, Interrupted())  # the store turns it into a cancelled job
        else:
            self._choose(one.job.task).interrupt(one, JobInterrupted(reason))

    def interrupt_all(self) -> None:
        """The time to drain is over: ask everything that still runs to stop."""
        for one in self._slots:
            self._choose(one.job.task).interrupt(one, JobInterrupted("the worker stops"))

    def _interrupt_overdue(self) -> None:
        now = self._clock.monotonic()
        for one in self._slots:
            limit = one.job.timeout_ms
            if limit is None or one.started_at is None or one.stopped_by is not None:
                continue
            if now - one.started_at >= limit / 1_000:
                reason = JobTimeout(f"ran longer than {limit / 1_000:g} s")
                self._choose(one.job.task).interrupt(one, reason)

    # Wait

    def _run_duties(self) -> None:
        now = self._clock.monotonic()
        if now >= self._duties_at:
            has_more = run_due(self._store, self._duties)
            self._duties_at = now if has_more else now + DUTY_SECONDS

    def _pause(self, answer: Exchange) -> float:
        if answer.settled and self.is_claiming and len(self._slots) < self._slots.size and answer.jobs:
            return 0.0
        now = self._clock.monotonic()
        ends = [now + POLL_SECONDS, self._duties_at]
        if answer.next_due_ms is not None:
            ends.append(now + answer.next_due_ms / 1_000)
        for one in self._slots:
            if one.started_at is None:
                ends.append(one.claimed_at + START_WITHIN_SECONDS)
            elif one.job.timeout_ms is not None and one.stopped_by is None:
                ends.append(one.started_at + one.job.timeout_ms / 1_000)
        return max(0.0, min(ends) - now)


def _taken_back(assignments: Iterable[Assignment]) -> list[tuple[Assignment, Outcome]]:
    """What was claimed and not started, as handed back."""
    return [(one, Interrupted()) for one in assignments if one.started_at is None and one.take()]
