"""Lease manager: the supervisor's thread for the store. It renews leases of living workers and releases those
of dead ones."""

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
from forebay.domain.job import Job, JobId, WorkerId
from forebay.domain.job_history import EventKind
from forebay.domain.job_states import JobState
from forebay.domain.lease import Lease, renewal_ms
from forebay.domain.outcome import AttemptError, Interrupted, Lost
from forebay.domain.settlement import Settlement, decide
from forebay.domain.worker import WorkerState
from forebay.domain.worker_command import Command, CommandKind
from forebay.errors import Forbidden, StoreBusy, StoreError, StoreUnavailable
from forebay.maintenance.lease_sweeper import REASON
from forebay.operations.settlement_isolation import FallbackSettlements, settle_and_claim_isolating
from forebay.stores.contract.claims_and_results import BATCH, LeaseRefusal, LeaseStatus, SettleAndClaimResult
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.store import Store
from forebay.stores.id_generator import new_worker_id
from forebay.worker.lease_table import STOPPED, LeaseEntry
from forebay.worker.supervisor.messages import (
    CancelsRequested,
    CommandSent,
    JobMarkedDead,
    LeasesRenewed,
    RenewalFailed,
    WorkerAccepted,
)
from forebay.worker.supervisor.wakeup_relay import WakeupRelay
from forebay.worker.supervisor.worker_process import WorkerProcess

TICK_SECONDS: Final = 0.25
SLOWEST_SECONDS: Final = 2.0
COMMANDS_SECONDS: Final = 1.0
SLOW_SECONDS: Final = 2.0
GIVEN_BACK: Final = "the worker was silent, and the job had not begun"
HANDED_BACK: Final = Interrupted(started=False)
# Between the other states a busy worker changes often, and its regular heartbeat will do.
_REPORTED_STATES: Final = frozenset(
    {WorkerState.STARTING, WorkerState.UNRESPONSIVE, WorkerState.PAUSED, WorkerState.STOPPING}
)

logger: logging.Logger = logging.getLogger(__name__)


class ExitedChild(msgspec.Struct, frozen=True):
    """A worker process that is gone, and how it ended."""

    child: WorkerProcess
    reason: str


class LeaseManager:
    """A thread with a store handle of its own: a store that hangs must not keep the supervisor from handling
    signals and deaths.

    Leases are renewed by job id and attempt, as they stand in a child's lease table, and never all of a
    worker. A claim whose answer was lost would be renewed for a day and never run.
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
        self._dead_jobs: deque[JobMarkedDead] = deque()  # not yet sent to a worker process
        self._failures = 0
        self._commands_at = 0.0
        self._called_at: float | None = None
        self._trouble_at = clock.monotonic()
        self.failure: StoreError | None = None  # why there is no store, and will not be
        self._stop = Event()
        self._wake_event = Event()
        self._thread = Thread(target=self._run, name="forebay-leases", daemon=True)

    # From the main thread

    def start(self) -> None:
        self._thread.start()

    def welcome(self, child: WorkerProcess) -> None:
        """Accept a worker that is ready to begin."""
        self._newcomers.append(child)
        self._wake_event.set()

    def release_exited(self, child: WorkerProcess, reason: str) -> None:
        """Release the leases of a worker process that is gone, at once."""
        self._exited.append(ExitedChild(child, reason))
        self._wake_event.set()

    def answer(self, command_id: str, text: str) -> None:
        self._answers.append((command_id, text))
        self._wake_event.set()

    @property
    def is_idle(self) -> bool:
        """Whether all exited processes are released and all answers stored."""
        return not self._exited and not self._answers

    def answers_since(self, now: float) -> float:
        """Return the time since which the store has answered without trouble; a child that waits for it is
        not to blame."""
        called_at = self._called_at
        return now if called_at is not None and now - called_at > SLOW_SECONDS else self._trouble_at

    def stop(self, seconds: float) -> None:
        """Finish the remaining work, within this time. Stopping twice, or before the start, is fine."""
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
        for message in self._dead_jobs:
            logger.warning("job %s is dead, and no worker process was left to call on_error", message.job_id)
        self._dead_jobs.clear()
        self._wakeup_relay.close()
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def tick(self) -> bool:
        """Do all work that is due; return false if a part failed and should wait a little."""
        # Answers come first: an answer of a worker that is not registered any more has no reader.
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
        self._called_at = started_at = self._clock.monotonic()
        try:
            part(self._open_store())
            return True
        except StoreBusy as exc:
            # The store answers. The other parts, renewals among them, do not need the rows that the
            # transaction holds.
            logger.info("a part of the supervisor's work waits for another transaction: %s", exc)
            return False
        except StoreUnavailable:
            self._trouble_at = self._clock.monotonic()
            raise
        except Exception:
            # An error of our own in one part must not cost the workers their leases.
            if self.failure is None:
                logger.exception("a part of the supervisor's work failed")
            return False
        finally:
            self._called_at = None
            if self._clock.monotonic() - started_at > SLOW_SECONDS:
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
            # First the heartbeat: from the first claim on, engines that can detect the supervisor's death
            # shall do so.
            self._send_heartbeat(store, child)
            self._newcomers.popleft()
            child.lease_table.mark_renewed(self._clock.monotonic())
            child.is_up = True
            child.channel.send(WorkerAccepted(is_paused=self._is_paused()))

    # Leases

    def _renew_all(self, store: Store) -> None:
        for child in self._children():
            if child.is_up:
                # Read first: a supervisor that is stopped in between must not report that it renewed just
                # now.
                now = self._clock.monotonic()
                with suppress(StoreBusy):  # tried again with the next tick; the other children do not wait
                    self._renew(store, child)
                    self._send_heartbeat(store, child)
                    child.lease_table.mark_renewed(now)
                    self._return_unstarted(store, child)

    def _renew(self, store: Store, child: WorkerProcess) -> None:
        now = self._clock.monotonic()
        entries = child.lease_table.entries()
        # By the time of the lease too: a lost lease may be given again after a failover.
        child.renew_at = {
            (entry.lease, entry.leased_at): child.renew_at.get(
                (entry.lease, entry.leased_at), entry.leased_at + _renewal_seconds(entry)
            )
            for entry in entries
        }
        due = [entry for entry in entries if now >= child.renew_at[entry.lease, entry.leased_at]]
        if not due or child.info is None:
            return
        leases = tuple(entry.lease for entry in due)
        try:
            answer = store.renew(child.info.id, leases)
        except StoreUnavailable:
            doubt = RenewalFailed(leases=leases, failures=self._failures + 1)
            child.channel.send(doubt, may_be_missed=True)
            raise
        lost = {refusal.lease for refusal in answer.refused}
        child.renew_at.update(
            ((entry.lease, entry.leased_at), inf if entry.lease in lost else now + _renewal_seconds(entry))
            for entry in due
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
        """Write a child's heartbeat when it is due, and at once when the child starts or becomes
        unresponsive."""
        info = child.info
        if info is None:
            return
        state = WorkerState.UNRESPONSIVE if child.is_silent else info.state
        reported = (state if state in _REPORTED_STATES else None, info.paused)
        now = self._clock.monotonic()
        if now < child.heartbeat_at and reported == child.reported_state:
            return
        store.heartbeat(replace(info, state=state, supervisor=self._supervisor))
        child.heartbeat_at = now + info.heartbeat_ms / 1_000
        child.reported_state = reported

    # Jobs that a silent child has not started

    def _return_unstarted(self, store: Store, child: WorkerProcess) -> None:
        """Hand back jobs that a silent child has not started, so that other workers may run them.

        It may wake up at any moment. So their return is first requested in its lease table, and only jobs
        that have not begun a while later go back: `worker.lease_table` tells why none begins here after that.
        They are settled under the child's own id, so the fencing token refuses whatever the child reports of
        them later.
        """
        if not child.is_silent or child.worker is None:
            child.return_requested_at.clear()
            return
        now = self._clock.monotonic()
        waiting = [entry for entry in child.lease_table.entries() if entry.started_at is None]
        for entry in waiting:
            if entry.lease not in child.return_requested_at:
                child.lease_table.request_return(entry)
                child.return_requested_at[entry.lease] = now
        returnable = [
            entry for entry in waiting if child.return_requested_at[entry.lease] <= now - TICK_SECONDS
        ]
        self._return_jobs(
            store, child, [entry for entry in returnable if not child.lease_table.is_started(entry)]
        )

    def _return_jobs(self, store: Store, child: WorkerProcess, entries: Sequence[LeaseEntry]) -> None:
        if not entries or child.worker is None:
            return
        attempts = {entry.lease.job_id: entry.lease.attempt for entry in entries}
        jobs = [job for job in self._load_jobs(tuple(attempts)) if job.attempt == attempts[job.id]]
        answer = store.settle_and_claim(
            child.worker,
            [decide(job, HANDED_BACK, random.random()) for job in jobs],  # noqa: S311 - jitter
        )
        child.return_requested_at.update((entry.lease, inf) for entry in entries)
        refusals = tuple(LeaseRefusal(lease=entry.lease, reason=GIVEN_BACK) for entry in entries)
        self._send_renewal(
            child, LeasesRenewed(at=self._clock.now_ms(), since=self._clock.monotonic(), refused=refusals)
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

    # Dead workers

    def _release_all_exited(self, store: Store) -> None:
        for _ in range(len(self._exited)):
            is_released = False
            with suppress(StoreBusy):  # a transaction holds one of its jobs, or its row
                is_released = self._release_one_exited(store, self._exited[0])
            if is_released:
                self._exited.popleft().child.close()
            else:
                self._exited.rotate(-1)  # again with the next tick; the others need not wait for that

    def _release_one_exited(self, store: Store, exited: ExitedChild) -> bool:
        """Take over a dead worker's leases, and settle them as lost. Each step may be repeated.

        Return false if there is more to come: it died in a transaction that completes a job, and the server
        has not noticed yet.
        """
        worker = exited.child.worker
        if worker is None or not exited.child.is_up:
            return True
        while True:
            swept = self._sweep(store, worker)
            # Kept until they are settled: the sweep does not return them again.
            self._recovered_jobs.update((Lease(job.id, job.attempt), job) for job in swept)
            self._settle_recovered(store, exited)
            if len(swept) < BATCH:
                break
        leases = [entry.lease for entry in exited.child.lease_table.entries()]
        # Also a lease that is held blocks it: it was locked during the sweep, and has become free since.
        if leases and set(store.lease_status(worker, leases)) != {LeaseStatus.OVER}:
            return False
        store.remove_worker(worker)
        return True

    def _sweep(self, store: Store, worker: WorkerId) -> list[Job]:
        """Take over leases of a dead worker, and those that this supervisor took over in a call whose answer
        was lost. The latter are held under a former sweeper id."""
        try:
            swept = store.sweep(self._sweeper, BATCH, only_dead=True, dead=[worker, *self._former_sweepers])
        except StoreBusy:
            raise  # nothing was taken over
        except StoreUnavailable:
            self._former_sweepers.append(self._sweeper)
            self._sweeper = new_worker_id()
            raise
        except Forbidden:
            # A service with a key for some queues alone sweeps by itself when the leases have ended.
            return []
        if len(swept) < BATCH:
            self._former_sweepers.clear()
        return swept

    def _settle_recovered(self, store: Store, exited: ExitedChild) -> None:
        if not self._recovered_jobs:
            return
        started = {entry.lease: entry.started_at is not None for entry in exited.child.lease_table.entries()}
        settlements = [
            decide(job, self._lost_outcome(lease, started, exited), random.random())  # noqa: S311 - jitter
            for lease, job in self._recovered_jobs.items()
        ]
        fallback = FallbackSettlements(lambda lease: self._recovered_jobs[lease], random.random)
        answer = settle_and_claim_isolating(store, self._sweeper, settlements, fallback=fallback)
        self._dead_jobs.extend(_find_dead_jobs(fallback.substitute(settlements), answer))
        # Jobs that another transaction holds are offered again with the next worker that dies, or are swept
        # again.
        self._recovered_jobs = {lease: self._recovered_jobs[lease] for lease in answer.busy}

    def _lost_outcome(self, lease: Lease, started: dict[Lease, bool], exited: ExitedChild) -> Lost:
        reason = f"worker process {exited.child.pid} {exited.reason}"
        if lease in started:
            return Lost(reason, started=started[lease])
        # Without a row the job was not begun: the answer to its claim did not arrive. Unless it was not this
        # worker's at all: the engine also finds other dead workers, and it is unknown which jobs they had
        # begun.
        if exited.child.worker in self._find_holders(lease):
            return Lost(reason, started=False)
        return Lost(REASON)

    def _find_holders(self, lease: Lease) -> set[str]:
        """Return the workers that held this attempt until it was swept from them."""
        reader = self._engine.reader()
        try:
            timeline = reader.history(lease.job_id)
        finally:
            reader.close()
        events = () if timeline is None else timeline.events
        return {
            event.detail
            for event in events
            if event.kind is EventKind.SWEPT and event.attempt == lease.attempt
        }

    def _announce_dead_jobs(self, store: Store) -> None:
        """Let one worker process call the error listeners for jobs that are dead now. The supervisor does not
        load the program. Without a process the message waits for the next one.

        At most once: a process that dies before it has called them takes the message along.
        """
        while self._dead_jobs and (child := self._find_listener()) is not None:
            child.channel.send(self._dead_jobs.popleft())

    def _find_listener(self) -> WorkerProcess | None:
        candidates = (
            child for child in self._children() if child.is_up and child.is_connected and not child.is_gone
        )
        return next(
            (child for child in candidates if not child.is_silent and child.lease_table.ticked_at != STOPPED),
            None,
        )

    # Commands

    def _answer_all(self, store: Store) -> None:
        """Store the answers of the children."""
        while self._answers:
            store.answer_command(*self._answers[0])
            self._answers.popleft()

    def _request_command_poll(self) -> None:
        """Poll for commands with the next tick. From any thread."""
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
            # The handler of this signal, unlike that of SIGUSR1, runs even if a task holds the interpreter.
            child.send_signal(signal.SIGUSR2)
            self._answers.append((command.id, "it is silent; its stacks are in its log"))
        elif child.is_silent and command.kind is CommandKind.HALT:
            child.is_leaving = True
            child.kill()
            self._answers.append((command.id, "it was silent and has been killed"))
        else:
            # A worker that hangs reads this when it comes back, perhaps after the command has expired.
            seconds_left = (command.expires_at - (command.delivered_at or command.sent_at)) / 1_000
            child.channel.send(CommandSent(command=command, until=self._clock.monotonic() + seconds_left))


def _renewal_seconds(entry: LeaseEntry) -> float:
    return renewal_ms(entry.lease_seconds * 1_000) / 1_000


def _find_dead_jobs(
    settlements: Sequence[Settlement], answer: SettleAndClaimResult
) -> Iterator[JobMarkedDead]:
    """Yield the jobs that are dead letters now. A refused settlement belongs to another holder, a busy one
    waits."""
    unwritten = {*(refusal.lease for refusal in answer.refused), *answer.busy}
    for settlement in settlements:
        if (
            settlement.state is JobState.DEAD
            and Lease(settlement.job_id, settlement.attempt) not in unwritten
        ):
            yield JobMarkedDead(
                job_id=settlement.job_id,
                attempt=settlement.attempt,
                failures=settlement.failures,
                crashes=settlement.crashes,
                reason=settlement.reason,
                error=settlement.error or AttemptError(type="Dead", message=settlement.reason or ""),
            )
