"""The one thread of a worker that talks to the store: do duties, settle, claim, dispatch, wait."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from math import inf
from typing import Final

from forebay.app.duty import Duty, run_due, tell_connected
from forebay.app.hooks import Hooks
from forebay.app.settling import Instead, exchange_all
from forebay.clock import Clock
from forebay.domain.job import Job
from forebay.domain.lease import Lease
from forebay.domain.note import Note
from forebay.domain.outcome import Interrupted, Outcome
from forebay.domain.settlement import Ending, Settlement, decide
from forebay.domain.worker import SHOWN_JOBS, WorkerInfo
from forebay.errors import StoreError, StoreUnavailable
from forebay.scheduler.sweeping import LEASE_MS
from forebay.stores.protocol import Exchange, Refusal, Store, Want
from forebay.telemetry.logs import job_fields
from forebay.telemetry.observing import End
from forebay.worker.asking import Asking
from forebay.worker.executors.protocol import Executors
from forebay.worker.inbox import LONGEST_SLEEP_SECONDS, Inbox
from forebay.worker.interrupting import Interrupting
from forebay.worker.invoke import attempt_error
from forebay.worker.joining import Endings, look_at, looked_at
from forebay.worker.lingering import Lingering
from forebay.worker.measuring import Measuring
from forebay.worker.narrating import tell_asked, tell_ended
from forebay.worker.noting import Noting
from forebay.worker.pace import Pace
from forebay.worker.put_off import PutOff
from forebay.worker.recycling import MAX_ABANDONED
from forebay.worker.slots import Assignment, Slots
from forebay.worker.steering import Steering
from forebay.worker.watchdog import Watchdog
from forebay.worker.weighing import Weighing

START_WITHIN_SECONDS: Final = 1.0
POLL_SECONDS: Final = LONGEST_SLEEP_SECONDS
DUTY_SECONDS: Final = 1.0
PUT_OFF_SECONDS: Final = 0.125
LATE_SECONDS: Final = 0.25
LOOK_SECONDS: Final = 1.0
SOON_SECONDS: Final = 0.1
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
        duties: Sequence[Duty],
        clock: Clock,
        roll: Callable[[], float],
        steering: Steering | None = None,
        watchdog: Watchdog | None = None,
        noting: Noting | None = None,
        hooks: Hooks | None = None,
        weighing: Weighing | None = None,
        is_lingering: bool = False,
        is_measuring: bool = True,
        max_abandoned: int = MAX_ABANDONED,
    ) -> None:
        self._worker = worker.id
        self._store = store
        self._slots = slots
        self._inbox = inbox
        self._executors = executors
        self._duties = duties
        self._clock = clock
        self._roll = roll
        self._pace = Pace()
        self._noting = noting or Noting(clock, inbox.ring)
        self.hooks: Hooks = hooks or Hooks()
        self.steering: Steering = steering or Steering(dict.fromkeys(worker.queues, 1), slots, inbox)
        self._weighing = weighing
        self._watchdog = watchdog or Watchdog(clock)
        self._measuring = Measuring(worker.id, clock, is_on=is_measuring, observers=self.hooks.observers)
        self._asking = Asking(self.steering, executors.sorts, executors.gates, slots, self._pace, clock)
        self._interrupting = Interrupting(slots, inbox, executors, clock, max_abandoned=max_abandoned)
        self._lingering = Lingering(is_needed=is_lingering)
        self._unsettled: list[tuple[Assignment, Outcome]] = []
        self._put_off = PutOff(slots, clock)
        self._in_doubt = False
        self._was_away = False
        self._due_at = inf
        self._duties_at = self._looked_at = clock.monotonic()
        self._duties_by = self._duties_at + LATE_SECONDS
        self._ask_at: dict[str, float] = {}  # when a duty may be due again, as far as we know
        self._retry_seconds = self._retry_at = 0.0
        self.is_claiming = True

    @property
    def is_idle(self) -> bool:
        """Whether nothing is held, nothing waits to be settled, and nothing is held without our knowing."""
        waiting = self._unsettled or len(self._put_off)
        return not len(self._slots) and not waiting and not self._in_doubt

    @property
    def is_cut_off(self) -> bool:
        """Whether the store did not answer the last time it was asked."""
        return self._in_doubt

    @property
    def unwritten(self) -> int:
        """How many attempts have ended whose results the store has not taken."""
        return sum(one.started_at is not None for one, _ in self._unsettled) + self._put_off.unwritten

    def turn(self) -> float:
        """Settle, claim, dispatch; answers how many seconds there is nothing to do."""
        self._watchdog.moved()
        try:
            # First what needs no store: time runs out while it is away too.
            self._interrupting.cancel(self._inbox.cancels())
            self._interrupting.look()
            self._unsettled += self._inbox.drain()
            self._unsettled += self._late()
            return self._with_store()
        except StoreUnavailable as exc:
            if self._clock.monotonic() >= self._retry_at:  # not for each job that ends meanwhile
                logger.warning("the store is not available: %s", exc)
            if not self._was_away:  # once for each outage
                self.hooks.report(None, attempt_error(exc))
            self._was_away = True
        except StoreError:
            raise  # this will not pass by itself: a crash, which the worker reports
        except Exception as exc:
            # A fault of our own in one turn must not end the work of this process. What it left half done is
            # found again by naming the leases we know.
            logger.exception("a turn of the coordinator went wrong")
            self.hooks.report(None, attempt_error(exc))
        return self._away()

    def _with_store(self) -> float:
        was_in_doubt = self._in_doubt
        if self._weighing is not None:
            self._weighing.look()
        asked_at = self._clock.monotonic()
        answer = self._exchange()
        self._watchdog.moved()
        self._note_due(asked_at, answer.next_due_ms)
        try:
            # After the exchange: what has ended here is settled before a sweep looks for ended leases.
            self._run_duties(answer.jobs)
        finally:
            # Last, and whatever the duties have met, since these jobs are ours now. A task may hold the
            # interpreter from its first line on and stop this thread wherever it is; in the middle of a
            # transaction that would lock a SQLite file for everybody, and here most turns are over.
            self._dispatch(answer.jobs, asked_at)
        self._adopt(answer.adopted)
        self._interrupting.cancel(answer.cancels)
        if again := self._put_off.due():
            # With their last words, which were left undone too if another transaction holds the job.
            self._settle(again, self._unsettled, notes=self._noting.take(one for one, _ in again))
        self._measuring.record(self._store)
        self._retry_seconds = self._retry_at = 0.0
        if answer.jobs:
            self._lingering.begin()
        if self.is_claiming and (was_in_doubt or self._asking.has_more(len(answer.jobs))):
            return 0.0
        return self._pause()

    # Settle and claim

    def _exchange(self) -> Exchange:
        endings, still_open = looked_at(self._store, self._worker, self._unsettled)
        # In doubt we ask for nothing new before we know what we have.
        is_asking = self.is_claiming and not self._in_doubt
        wants, room = self._asking.wants(one for one, _ in endings) if is_asking else ([], 0)
        notes = self._noting.take(one for one, _ in endings)
        if not (endings or wants or notes or self._in_doubt or self._is_look_due()):
            return Exchange()
        if endings or self._inbox.is_poked:
            self._lingering.begin()
        self._inbox.unpoke()  # before the look: what happens from here on is worth another one
        # After a lost answer the store may hold leases for us that we do not know of.
        known = self._slots.leases() if self._in_doubt else None
        return self._settle(endings, still_open, wants, room, known, notes)

    def _settle(
        self,
        endings: Endings,
        still_open: Endings,
        wants: Sequence[Want] = (),
        room: int = 0,
        known: Sequence[Lease] | None = None,
        notes: Sequence[Note] = (),
    ) -> Exchange:
        """Exchange, and end the assignments whose settlement the store has answered. What is `still_open` is
        left for another turn."""
        settlements = [decide(one.job, outcome, self._roll()) for one, outcome in endings]
        instead = Instead(lambda lease: _job_of(lease, endings), self._roll)
        answer = exchange_all(
            self._store, self._worker, settlements, wants, room, known, notes, fallback=instead
        )
        if self._was_away:
            # The first answer after an outage. Others could not renew their leases either, and come first.
            self._was_away = False
            tell_connected(self._duties)
        self._in_doubt = False
        self._looked_at = self._clock.monotonic()
        self._unsettled = still_open
        if answer.busy or len(self._put_off):
            endings = self._put_off.keep(endings, answer.busy)
            settlements = _without(settlements, answer.busy)
        self._noting.kept(answer.unnoted, answer.busy)
        self._noting.forget(one for one, _ in endings)
        self._note(endings)
        ends = instead.ends(settlements)
        self._count(endings, ends, answer.refused)
        self._report(answer.refused, endings)
        self.hooks.report_dead((one.job for one, _ in endings), ends, answer)
        return answer

    def _is_look_due(self) -> bool:
        """Whether to ask only for wishes to cancel: nobody else delivers them while all slots are taken,
        except the renewal, much later."""
        return len(self._slots) > 0 and self._clock.monotonic() >= self._look_at

    @property
    def _look_at(self) -> float:
        """After a wake-up soon, since that may have been about a wish to cancel."""
        return self._looked_at + (SOON_SECONDS if self._inbox.is_poked else LOOK_SECONDS)

    def _note(self, endings: Sequence[tuple[Assignment, Outcome]]) -> None:
        latest = [one.job.id for one, _ in endings[-SHOWN_JOBS:] if one.started_at is not None]
        if latest:
            self._slots.recent = (*self._slots.recent, *latest)[-SHOWN_JOBS:]
        for one, _ in endings:
            self._slots.end(one)
            if (seconds := one.seconds) is not None:
                self._pace.note(one.job.task, seconds)

    def _count(
        self,
        endings: Sequence[tuple[Assignment, Outcome]],
        ends: Sequence[Settlement],
        refused: Iterable[Refusal],
    ) -> None:
        """For the worker's own figures, and for the metrics; what was refused is somebody else's."""
        lost = {refusal.lease for refusal in refused}
        slots, counted = self._slots, []
        for (one, _), end in zip(endings, ends, strict=True):
            if lost and one.lease in lost:
                continue
            if end.ending is Ending.COMPLETED:
                slots.completed += 1
            elif end.ending in (Ending.FAILED, Ending.DISCARDED):
                slots.failed += 1
            counted.append((one.job, end, one.seconds))
        self._measuring.ended(counted, [one.job for one, _ in endings if one.lease in lost] if lost else ())
        tell_ended(counted)

    def swept(self, ends: Sequence[End]) -> None:
        """A duty of ours has settled attempts of workers that are gone: nobody else will count them."""
        if ends:
            self._measuring.swept(ends, (ends[0][0].lease_expires_at or 0) - LEASE_MS)

    def _late(self) -> list[tuple[Assignment, Outcome]]:
        """What could not be started in time goes back: somebody else may have a free slot."""
        now = self._clock.monotonic()
        late = _taken_back(one for one in self._slots if one.claimed_at + START_WITHIN_SECONDS <= now)
        if late:
            self._pace.start_again()
        return late

    def hand_back(self) -> None:
        """Give back what was claimed and not started; no failure is counted."""
        self._unsettled += _taken_back(self._slots)

    def _report(self, refused: Iterable[Refusal], endings: Sequence[tuple[Assignment, Outcome]]) -> None:
        # A refused settlement is not an error. The lease ran out, the sweep gave the job to somebody else,
        # and their attempt is the one that counts. We drop ours and say so.
        for one in refused:
            # No turn ends for a line in the log: a store may name a lease that none of these had.
            fields = next((job_fields(end.job) for end, _ in endings if end.lease == one.lease), None)
            logger.warning("lease lost: job %s, attempt %s: %s", *one.lease, one.reason, extra=fields)

    def _away(self) -> float:
        """The store does not answer: keep every settlement, however long, and try again."""
        self._in_doubt = True
        now = self._clock.monotonic()
        # A turn that comes before, because a job has ended, does not make the wait longer.
        if now >= self._retry_at:
            self._retry_seconds = min(LONGEST_RETRY_SECONDS, max(0.1, self._retry_seconds * 2))
            self._retry_at = now + self._retry_seconds * (0.5 + self._roll() / 2)
        return max(0.0, min(self._retry_at, self._interrupting.next_at()) - now)

    # Dispatch

    def _dispatch(self, jobs: Sequence[Job], leased_at: float) -> None:
        tell_asked(self._asking, jobs)
        self._asking.given(jobs)
        self._measuring.claimed(self._start(jobs, leased_at), leased_at)

    def _adopt(self, jobs: Sequence[Job]) -> None:
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
        self._measuring.adopted(self._start(ours, asked_at), asked_at)
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
        again = self._slots.held(assignments)
        if again:
            self._go_on(again, leased_at)
            leases = {one.lease for one in again}
            return self._start([one.job for one in assignments if one.lease not in leases], leased_at)
        for one in assignments:
            one.context.voice = self._noting
        self._slots.add(assignments)
        paused = self.steering.paused()  # looked at after they are in their slots: see Steering
        for one, executor in zip(assignments, executors, strict=True):
            if one.job.queue in paused:
                if one.take():
                    self._inbox.put(one, Interrupted(started=False))
            elif self.is_claiming:
                executor.submit(one)
        return jobs

    def _go_on(self, again: Sequence[Assignment], leased_at: float) -> None:
        """After a failover a store may not know of a claim that it has answered, and give the same attempt to
        the same worker again. That attempt runs here, or its outcome is on its way: it has the lease that was
        given now, and is not started a second time."""
        for one in again:
            logger.warning("job %s, attempt %s, was given again; it goes on", *one.lease)
            held = self._slots.renew(one, leased_at)
            if held.abandoned_at is None:  # its code counts no more, whatever becomes of the lease
                held.context.tell_regained(self._clock.now_ms())

    def last_figures(self) -> None:
        """Write what was counted since the last time: there will be no other turn. Not to a store that is
        away: nobody waits longer for a worker to stop because of figures."""
        if not self._was_away:
            self._measuring.record_all(self._store)

    def interrupt_all(self) -> None:
        """The time to drain is over: ask everything that still runs to stop."""
        self._interrupting.stop_all()

    # Wait

    def _run_duties(self, claimed: Sequence[Job]) -> None:
        now = self._clock.monotonic()
        if now < self._duties_at:
            return
        is_late, has_more = now >= self._duties_by, False
        # The next time is set first: a duty that goes wrong must not have its turn again before others claim.
        # By chance a little more than their pace: whoever asks for one too early asks in vain.
        self._duties_at = now + DUTY_SECONDS * (1.25 - self._roll() / 4)
        for duty in self._duties:
            if now < self._ask_at.get(duty.name, 0.0):
                continue
            if not is_late and self._is_somebody_waiting(claimed):
                self._duties_at = now + PUT_OFF_SECONDS
                return
            if run_due(self._store, [duty]):
                has_more = True
            else:
                self._ask_at[duty.name] = now + duty.every_ms / 1_000
        if has_more:
            self._duties_at = now
        else:
            self._duties_by = self._duties_at + LATE_SECONDS

    def _is_somebody_waiting(self, claimed: Sequence[Job]) -> bool:
        """Whether there are jobs to be started, or word of some to be claimed. Duties take longer than all
        else between an enqueue and its start, and have time; but not for ever, since some workers always have
        jobs to start."""
        return bool(claimed) or (self._inbox.is_poked and self._asking.has_room)

    def _jittered(self, seconds: float) -> float:
        """A little less, by chance: workers that were started together should not ask together for ever."""
        return seconds * (0.75 + self._roll() / 4)

    def _note_due(self, asked_at: float, next_due_ms: int | None) -> None:
        """Keep when the next job is due until that time has passed: an answer speaks of one lane alone, and
        there may be several turns before the sleep. What is not true any more costs one look too many."""
        if self._due_at <= asked_at:
            self._due_at = inf
        if next_due_ms is not None:
            self._due_at = min(self._due_at, self._clock.monotonic() + next_due_ms / 1_000)

    def _pause(self) -> float:
        now = self._clock.monotonic()
        # Wake-ups may get lost, so there is always an end to the sleep.
        ends = [
            now + self._jittered(POLL_SECONDS),
            self._due_at,
            self._duties_at,
            self._interrupting.next_at(),
            self._noting.next_at(),
            self._put_off.next_at,
            look_at(self._unsettled, now),
        ]
        if self._asking.has_room:
            ends.append(now + self._lingering.next_pause())
        if len(self._slots) and self._inbox.is_poked:
            ends.append(self._look_at)
        # Only what can still be handed back: another look at what is taken would change nothing.
        waiting = [one.claimed_at for one in self._slots if one.is_waiting]
        if waiting:
            ends.append(min(waiting) + START_WITHIN_SECONDS)
        return max(0.0, min(ends) - now)


def _job_of(lease: Lease, endings: Iterable[tuple[Assignment, Outcome]]) -> Job:
    return next(one.job for one, _ in endings if one.lease == lease)


def _without(settlements: Sequence[Settlement], busy: Collection[Lease]) -> list[Settlement]:
    """Leave out the settlements of these leases."""
    return [end for end in settlements if Lease(end.job_id, end.attempt) not in busy]


def _taken_back(assignments: Iterable[Assignment]) -> list[tuple[Assignment, Outcome]]:
    """What was claimed and not started, as handed back."""
    return [(one, Interrupted(started=False)) for one in assignments if one.started_at is None and one.take()]
