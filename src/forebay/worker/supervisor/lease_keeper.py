"""What a supervisor does with the store: keep the leases of its workers, and hand back those of dead ones."""

from __future__ import annotations

import logging
import random
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from math import inf
from threading import Event, Thread
from typing import Final

import msgspec
from msgspec.structs import replace

from forebay.clock import Clock
from forebay.domain.history import EventKind
from forebay.domain.job import Job, JobId, WorkerId
from forebay.domain.lease import Lease, renewal_ms
from forebay.domain.lifecycle import JobState
from forebay.domain.outcome import AttemptError, Interrupted, Lost
from forebay.domain.settlement import Settlement, decide
from forebay.domain.worker import Command, CommandKind, WorkerState
from forebay.errors import Forbidden, StoreBusy, StoreError, StoreUnavailable
from forebay.maintenance.sweeper import REASON
from forebay.operations.settlements import FallbackSettlements, settle_and_claim_isolating
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.store import Store
from forebay.stores.contract.values import BATCH, LeaseRefusal, LeaseStatus, SettleAndClaimResult
from forebay.stores.ids import new_worker_id
from forebay.worker.lease_table import STOPPED, LeaseEntry
from forebay.worker.supervisor.channel import (
    CancelsRequested,
    CommandSent,
    JobMarkedDead,
    LeasesRenewed,
    RenewalFailed,
    WorkerAccepted,
)
from forebay.worker.supervisor.child import WorkerProcess
from forebay.worker.supervisor.wakeup_relay import WakeupRelay

TICK_SECONDS: Final = 0.25
SLOWEST_SECONDS: Final = 2.0
COMMANDS_SECONDS: Final = 1.0
SLOW_SECONDS: Final = 2.0
GIVEN_BACK: Final = "the worker was silent, and the job had not begun"
HANDED_BACK: Final = Interrupted(started=False)
# Between others a busy worker goes to and fro, and its usual beat will do.
_REPORTED_STATES: Final = frozenset(
    {WorkerState.STARTING, WorkerState.UNRESPONSIVE, WorkerState.PAUSED, WorkerState.STOPPING}
)

logger: logging.Logger = logging.getLogger(__name__)


class ExitedChild(msgspec.Struct, frozen=True):
    """A worker process that is gone, and how."""

    child: WorkerProcess
    reason: str


class LeaseKeeper:
    """A thread with a store handle of its own: a store that hangs must not keep the supervisor from hearing
    signals and deaths.

    Leases are renewed by job id and attempt, as they stand on a child's page; never all of a worker: a claim
    whose answer was lost would be renewed for a day and run by nobody.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        clock: Clock,
        supervisor: int,
        children: Callable[[], Sequence[WorkerProcess]],
        is_paused: Callable[[], bool],
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._supervisor = supervisor
        self._children = children
        self._is_paused = is_paused
        self._sweeper = new_worker_id()
        self._former_sweepers: list[WorkerId] = []
        self._store: Store | None = None
        self._wakeup_relay = WakeupRelay(engine, children, self._request_command_poll)
        self._newcomers: deque[WorkerProcess] = deque()
        self._exited: deque[ExitedChild] = deque()
        self._answers: deque[tuple[str, str]] = deque()
        self._recovered_jobs: dict[Lease, Job] = {}
        self._dead_jobs: deque[JobMarkedDead] = deque()  # dead jobs that no worker process was told of yet
        self._failures = 0
        self._commands_at = 0.0
        self._called_at: float | None = None
        self._trouble_at = clock.monotonic()
        self.failure: StoreError | None = None  # why there is no store, and will not be
        self._stop = Event()
        self._wake_event = Event()
        self._thread = Thread(target=self._run, name="forebay-keeper", daemon=True)

    # From the main thread

    def start(self) -> None:
        self._thread.start()

    def welcome(self, child: WorkerProcess) -> None:
        """A worker would like to begin."""
        self._newcomers.append(child)
        self._wake_event.set()

    def release_exited(self, child: WorkerProcess, reason: str) -> None:
        """A worker process is gone: what it held goes back, at once."""
        self._exited.append(ExitedChild(child, reason))
        self._wake_event.set()

    def answer(self, command_id: str, text: str) -> None:
        self._answers.append((command_id, text))
        self._wake_event.set()

    @property
    def is_idle(self) -> bool:
        """Whether all that is gone has been buried and all answers have been given."""
        return not self._exited and not self._answers

    def answers_since(self, now: float) -> float:
        """Since when the store has answered without trouble; a child that waits for it is not to blame."""
        called_at = self._called_at
        return now if called_at is not None and now - called_at > SLOW_SECONDS else self._trouble_at

    def stop(self, seconds: float) -> None:
        """Finish what there is to do, within this time. Stopping twice, or before the start, is fine."""
        self._stop.set()
        self._wake_event.set()
        if self._thread.is_alive():
            self._thread.join(seconds)
        else:
            self._close()

    # On its own thread

    def _run(self) -> None:
        pause = TICK_SECONDS
        while self.failure is None and not (self._stop.is_set() and self.is_idle):
            self._wake_event.wait(pause)
            self._wake_event.clear()
            pause = TICK_SECONDS if self.tick() else min(pause * 2, SLOWEST_SECONDS)
        self._close()

    def _close(self) -> None:
        for news in self._dead_jobs:
            logger.warning("job %s is dead, and no worker process was left to call on_error", news.job_id)
        self._dead_jobs.clear()
        self._wakeup_relay.close()
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def tick(self) -> bool:
        """Do all there is to do now; false if something went wrong, and should wait a little."""
        # Answers come first: nobody waits for one of a worker that is off the list.
        parts = (
            self._answer_all,
            self._release_all_exited,
            self._welcome_all,
            self._renew_all,
            self._serve_commands,
            self._announce_dead_jobs,
        )
        try:
            went_well = [self._run_part(part) for part in parts]
        except StoreUnavailable as exc:
            self._failures += 1
            logger.warning("the store is not available (%s in a row): %s", self._failures, exc)
            return False
        self._failures = 0
        return all(went_well)

    def _run_part(self, part: Callable[[Store], None]) -> bool:
        self._called_at = began = self._clock.monotonic()
        try:
            part(self._open_store())
            return True
        except StoreBusy as exc:
            # The store answers: the other parts, renewals among them, do not need what the transaction holds.
            logger.info("a part of the supervisor's work waits for another transaction: %s", exc)
            return False
        except StoreUnavailable:
            self._trouble_at = self._clock.monotonic()
            raise
        except Exception:
            # A fault of our own in one part must not cost the workers their leases.
            if self.failure is None:
                logger.exception("a part of the supervisor's work went wrong")
            return False
        finally:
            self._called_at = None
            if self._clock.monotonic() - began > SLOW_SECONDS:
                self._trouble_at = self._clock.monotonic()

    def _open_store(self) -> Store:
        if self._store is None:
            try:
                self._store = self._engine.store()
                self._wakeup_relay.start()
            except StoreUnavailable:
                raise
            except StoreError as exc:
                self.failure = exc  # a damaged file, a newer schema: waiting does not help
                raise
        return self._store

    # Beginnings

    def _welcome_all(self, store: Store) -> None:
        while self._newcomers:
            child = self._newcomers[0]
            if child.is_gone:
                self._newcomers.popleft()
                continue
            # First the beat: from the first claim on, engines that can tell when we die shall do so.
            self._send_heartbeat(store, child)
            self._newcomers.popleft()
            child.lease_table.mark_renewed(self._clock.monotonic())
            child.is_up = True
            child.channel.send(WorkerAccepted(is_paused=self._is_paused()))

    # Leases

    def _renew_all(self, store: Store) -> None:
        for child in self._children():
            if child.is_up:
                # Taken first: a supervisor that is stopped in between must not say that it renewed just now.
                now = self._clock.monotonic()
                with suppress(StoreBusy):  # tried again with the next tick; the other children do not wait
                    self._renew(store, child)
                    self._send_heartbeat(store, child)
                    child.lease_table.mark_renewed(now)
                    self._return_unstarted(store, child)

    def _renew(self, store: Store, child: WorkerProcess) -> None:
        now = self._clock.monotonic()
        entries = child.lease_table.entries()
        # By the time of the lease too: one that was lost may be given again after a failover.
        child.renew_at = {
            (one.lease, one.leased_at): child.renew_at.get(
                (one.lease, one.leased_at), one.leased_at + _renewal_seconds(one)
            )
            for one in entries
        }
        due = [one for one in entries if now >= child.renew_at[one.lease, one.leased_at]]
        if not due or child.info is None:
            return
        leases = tuple(one.lease for one in due)
        try:
            answer = store.renew(child.info.id, leases)
        except StoreUnavailable:
            doubt = RenewalFailed(leases=leases, failures=self._failures + 1)
            child.channel.send(doubt, may_be_missed=True)
            raise
        lost = {refusal.lease for refusal in answer.refused}
        child.renew_at.update(
            ((one.lease, one.leased_at), inf if one.lease in lost else now + _renewal_seconds(one))
            for one in due
        )
        self._send_renewal(
            child,
            LeasesRenewed(at=self._clock.now_ms(), since=now, renewed=answer.renewed, refused=answer.refused),
        )
        if answer.cancels:
            child.channel.send(CancelsRequested(cancels=answer.cancels))

    def _send_renewal(self, child: WorkerProcess, renewal: LeasesRenewed) -> None:
        child.channel.send(renewal, may_be_missed=not renewal.refused)

    def _send_heartbeat(self, store: Store, child: WorkerProcess) -> None:
        """Say that a child is alive, now and then, and at once when it begins or ceases to listen."""
        info = child.info
        if info is None:
            return
        state = WorkerState.UNRESPONSIVE if child.is_silent else info.state
        shown = (state if state in _REPORTED_STATES else None, info.paused)
        now = self._clock.monotonic()
        if now < child.heartbeat_at and shown == child.reported_state:
            return
        store.heartbeat(replace(info, state=state, supervisor=self._supervisor))
        child.heartbeat_at = now + info.heartbeat_ms / 1_000
        child.reported_state = shown

    # What a silent child has not started

    def _return_unstarted(self, store: Store, child: WorkerProcess) -> None:
        """A child that is silent starts nothing that it has not started yet, and others may have it.

        It may wake up at any moment, so first the wish is written on its page, and only what has not
        begun a while later goes back: `worker.page` tells why no job begins here after that. It is settled
        under the child's own id, so the fence refuses whatever the child may say of it later.
        """
        if not child.is_silent or child.worker is None:
            child.return_requested_at.clear()
            return
        now = self._clock.monotonic()
        waiting = [one for one in child.lease_table.entries() if one.started_at is None]
        for one in waiting:
            if one.lease not in child.return_requested_at:
                child.lease_table.request_return(one)
                child.return_requested_at[one.lease] = now
        ripe = [one for one in waiting if child.return_requested_at[one.lease] <= now - TICK_SECONDS]
        self._return_jobs(store, child, [one for one in ripe if not child.lease_table.is_started(one)])

    def _return_jobs(self, store: Store, child: WorkerProcess, entries: Sequence[LeaseEntry]) -> None:
        if not entries or child.worker is None:
            return
        attempts = {one.lease.job_id: one.lease.attempt for one in entries}
        jobs = [job for job in self._load_jobs(tuple(attempts)) if job.attempt == attempts[job.id]]
        answer = store.settle_and_claim(
            child.worker,
            [decide(job, HANDED_BACK, random.random()) for job in jobs],  # noqa: S311 - jitter
        )
        child.return_requested_at.update((one.lease, inf) for one in entries)
        lost = tuple(LeaseRefusal(lease=one.lease, reason=GIVEN_BACK) for one in entries)
        self._send_renewal(
            child, LeasesRenewed(at=self._clock.now_ms(), since=self._clock.monotonic(), refused=lost)
        )
        if answer.cancels:
            child.channel.send(CancelsRequested(cancels=answer.cancels))
        logger.warning(
            "worker process %s is silent; %s jobs that it has not started go back", child.pid, len(jobs)
        )

    def _load_jobs(self, ids: Sequence[JobId]) -> list[Job]:
        reader = self._engine.reader()
        try:
            return [job for job in reader.jobs(ids) if job is not None]
        finally:
            reader.close()

    # The dead

    def _release_all_exited(self, store: Store) -> None:
        for _ in range(len(self._exited)):
            is_buried = False
            with suppress(StoreBusy):  # a transaction holds one of its jobs, or its row
                is_buried = self._release_one_exited(store, self._exited[0])
            if is_buried:
                self._exited.popleft().child.close()
            else:
                self._exited.rotate(-1)  # with the next tick again; others need not wait for that

    def _release_one_exited(self, store: Store, exited: ExitedChild) -> bool:
        """Take over what a dead worker held, and settle it as lost. Each step may be repeated. False if there
        is more to come: it died in a transaction that completes a job, and the server has not noticed yet."""
        worker = exited.child.worker
        if worker is None or not exited.child.is_up:
            return True
        while True:
            swept = self._sweep(store, worker)
            # Kept until they are settled: the sweep does not give them again.
            self._recovered_jobs.update((Lease(job.id, job.attempt), job) for job in swept)
            self._settle_recovered(store, exited)
            if len(swept) < BATCH:
                break
        leases = [one.lease for one in exited.child.lease_table.entries()]
        # Not even one that is held: it was locked when we swept, and has become free since.
        if leases and set(store.lease_status(worker, leases)) != {LeaseStatus.OVER}:
            return False
        store.remove_worker(worker)
        return True

    def _sweep(self, store: Store, worker: WorkerId) -> list[Job]:
        """Take over from a dead worker, and from ourselves what we took over in a call whose answer was lost:
        that is held under an id which nobody uses any more."""
        try:
            swept = store.sweep(self._sweeper, BATCH, only_dead=True, dead=[worker, *self._former_sweepers])
        except StoreBusy:
            raise  # nothing was taken over
        except StoreUnavailable:
            self._former_sweepers.append(self._sweeper)
            self._sweeper = new_worker_id()
            raise
        except Forbidden:
            # A service whose key is for some queues alone: it sweeps by itself when the leases have ended.
            return []
        if len(swept) < BATCH:
            self._former_sweepers.clear()
        return swept

    def _settle_recovered(self, store: Store, exited: ExitedChild) -> None:
        if not self._recovered_jobs:
            return
        started = {one.lease: one.started_at is not None for one in exited.child.lease_table.entries()}
        settlements = [
            decide(job, self._lost_outcome(lease, started, exited), random.random())  # noqa: S311 - jitter
            for lease, job in self._recovered_jobs.items()
        ]
        instead = FallbackSettlements(lambda lease: self._recovered_jobs[lease], random.random)
        answer = settle_and_claim_isolating(store, self._sweeper, settlements, fallback=instead)
        self._dead_jobs.extend(_find_dead_jobs(instead.substitute(settlements), answer))
        # What another transaction holds is offered again with the next worker that dies, or is swept again.
        self._recovered_jobs = {lease: self._recovered_jobs[lease] for lease in answer.busy}

    def _lost_outcome(self, lease: Lease, started: dict[Lease, bool], exited: ExitedChild) -> Lost:
        reason = f"worker process {exited.child.pid} {exited.reason}"
        if lease in started:
            return Lost(reason, started=started[lease])
        # Without a line it was not begun: a claim whose answer did not arrive. Unless it was not this
        # worker's at all: the engine knows of other dead ones, and of those we do not know what they did.
        if exited.child.worker in self._find_holders(lease):
            return Lost(reason, started=False)
        return Lost(REASON)

    def _find_holders(self, lease: Lease) -> set[str]:
        """Who has held this attempt until it was swept from them."""
        reader = self._engine.reader()
        try:
            timeline = reader.history(lease.job_id)
        finally:
            reader.close()
        events = () if timeline is None else timeline.events
        return {one.detail for one in events if one.kind is EventKind.SWEPT and one.attempt == lease.attempt}

    def _announce_dead_jobs(self, store: Store) -> None:
        """Let one worker process call the error listeners for jobs that are dead now. The supervisor cannot:
        it does not load the program. Without a process the news waits for the next one.

        At most once: a process that dies before it has called them takes the news along.
        """
        while self._dead_jobs and (child := self._find_listener()) is not None:
            child.channel.send(self._dead_jobs.popleft())

    def _find_listener(self) -> WorkerProcess | None:
        able = (one for one in self._children() if one.is_up and one.is_connected and not one.is_gone)
        return next((one for one in able if not one.is_silent and one.lease_table.ticked_at != STOPPED), None)

    # Commands

    def _answer_all(self, store: Store) -> None:
        """Pass on what the children have answered."""
        while self._answers:
            store.answer_command(*self._answers[0])
            self._answers.popleft()

    def _request_command_poll(self) -> None:
        """Somebody may have sent a command: look with the next tick. From any thread."""
        self._commands_at = 0.0

    def _serve_commands(self, store: Store) -> None:
        """Pass commands on to the children."""
        now = self._clock.monotonic()
        children = {
            child.worker: child for child in self._children() if child.is_up and child.worker is not None
        }
        if now < self._commands_at or not children:
            return
        self._commands_at = now + COMMANDS_SECONDS
        for command in store.take_commands(list(children)):
            self._forward_command(children[command.worker], command)

    def _forward_command(self, child: WorkerProcess, command: Command) -> None:
        if child.is_silent and command.kind is CommandKind.STACKS:
            # The handler of this signal, unlike that of SIGUSR1, runs whatever holds the interpreter.
            child.send_signal(signal.SIGUSR2)
            self._answers.append((command.id, "it is silent; its stacks are in its log"))
        elif child.is_silent and command.kind is CommandKind.HALT:
            child.is_leaving = True
            child.kill()
            self._answers.append((command.id, "it was silent and has been killed"))
        else:
            # A worker that hangs reads this when it comes back, perhaps when nobody waits for it any more.
            left = (command.expires_at - (command.delivered_at or command.sent_at)) / 1_000
            child.channel.send(CommandSent(command=command, until=self._clock.monotonic() + left))


def _renewal_seconds(entry: LeaseEntry) -> float:
    return renewal_ms(entry.lease_seconds * 1_000) / 1_000


def _find_dead_jobs(ends: Sequence[Settlement], answer: SettleAndClaimResult) -> Iterator[JobMarkedDead]:
    """Those that are in the dead letters now; a refused settlement is another holder's, a busy one waits."""
    unwritten = {*(refusal.lease for refusal in answer.refused), *answer.busy}
    for end in ends:
        if end.state is JobState.DEAD and Lease(end.job_id, end.attempt) not in unwritten:
            yield JobMarkedDead(
                job_id=end.job_id,
                attempt=end.attempt,
                failures=end.failures,
                crashes=end.crashes,
                reason=end.reason,
                error=end.error or AttemptError(type="Dead", message=end.reason or ""),
            )
