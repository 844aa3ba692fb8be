"""`Trial`: an app on an empty store, with time and workers under the control of a test."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from math import ceil
from time import sleep
from types import TracebackType
from typing import Any, Final, ParamSpec, Self, TypeVar

from forebay.app.app import Forebay
from forebay.app.due_schedules import fire_due
from forebay.app.schedules import save_declared
from forebay.app.task import Task
from forebay.clock import Clock, SystemClock
from forebay.domain.durations_and_instants import Duration, duration_ms
from forebay.domain.job import Job, JobId
from forebay.domain.job_states import LIVE, JobState
from forebay.domain.queue import QueueState
from forebay.errors import ConfigError, StoreUnavailable
from forebay.operations.lease_sweep import sweep
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.store import Store
from forebay.stores.factory import open_engine
from forebay.stores.id_generator import new_worker_id
from forebay.testing.effects import Crash, Effects
from forebay.testing.enqueued_jobs import describe_jobs, find_matching, load_jobs, task_name
from forebay.testing.fault_injection import FaultyStore, Killed, PlannedFaults, inject_faults
from forebay.testing.manual_clock import ManualClock
from forebay.testing.scratch_store import ScratchStore
from forebay.testing.trial_worker import TrialWorker, WorkerStep, run_coroutine

P = ParamSpec("P")
R = TypeVar("R")

# Store engines without a clock of their own: they use the one they are given.
_ACCEPT_CLOCK: Final = ("memory", "sqlite")
# Time cannot be moved on a server, so leases of a worker that will be killed are short.
_DYING_LEASE_MS: Final = 1_000
_RECHECK_MS: Final = 1_000
_UNCLAIMABLE: Final = (QueueState.PAUSED, QueueState.DROPPED)


class Trial:
    """Gives an app an empty store and a clock that stands still, until the block ends. Jobs run when the test
    says so, in its own thread, by the coordinator that all workers use.

        with Trial(app) as trial:
            order.enqueue(7)
            trial.drain()
            trial.assert_enqueued(send_mail, {"to": "ada@example.com"})

    With `inline`, jobs run as soon as they are enqueued. The store at `url` must hold no jobs, schedules or
    workers, and is left without any. A server has a time of its own: there `clock` cannot be used, and
    `pass_time` waits. Time limits of tasks are not enforced, isolated tasks run here too, and nothing is
    encrypted.
    """

    def __init__(
        self,
        app: Forebay,
        url: str = "memory://",
        *,
        clock: ManualClock | None = None,
        inline: bool = False,
    ) -> None:
        self.app = app
        self.faults: PlannedFaults = PlannedFaults()
        self._url, self._inline = url, inline
        self._manual_clock = clock or ManualClock(SystemClock().now_ms())
        self._effects = Effects(self._on_step)
        self._is_begun = False
        self._crash_after: WorkerStep | str | None = None
        self._is_dead = False
        self._steps: dict[str, None] = {}  # reached by a worker, in order
        self._before: tuple[Engine, Clock] | None = None
        self._engine: Engine
        self._store: Store
        self._scratch_store: ScratchStore
        self._waiting: frozenset[JobId] = frozenset()
        self._waiting_since = 0

    # Begin and end

    def start(self) -> None:
        """Take over the app."""
        if self._before is not None:
            raise ConfigError("this trial has begun already")
        self._engine = open_engine(self._url, clock=self._manual_clock)
        lent = ScratchStore(self._engine, self._url)
        lent.check_empty()
        takes_clock = self._engine.features.name in _ACCEPT_CLOCK
        clock: Clock = self._manual_clock if takes_clock else SystemClock()
        engine = inject_faults(self._engine, lambda store: FaultyStore(store, self.faults, lent.record_call))
        # Before the app is changed: a store that cannot be opened leaves it as it is.
        self._store, self._scratch_store = engine.store(), lent
        self._before = self.app.engine, self.app.clock
        self.app.engine, self.app.clock = engine, clock
        self.app.client.switch_store(engine, clock, self._inline_drain if self._inline else None)

    def stop(self) -> None:
        """Restore the app; stopping twice is fine."""
        if self._before is None:
            return
        before, self._before = self._before, None
        try:
            if self._is_begun:
                self.app.registry.hooks.stop(run_coroutine)
        finally:
            self.app.engine, self.app.clock = before
            self.app.client.switch_store(*before)
            self._store.close()
            self._scratch_store.restore()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # Time

    @property
    def clock(self) -> ManualClock:
        """The clock of the app and of its store."""
        if self._engine.features.name not in _ACCEPT_CLOCK:
            raise ConfigError(
                f"{self._engine.features.name} has a clock of its own; use pass_time, which waits"
            )
        return self._manual_clock

    def pass_time(self, length: Duration, *, raises: bool = True) -> int:
        """Let time pass (seconds, or a timedelta), and run what becomes due, each job at its time. Return the
        number of attempts. Raises as `drain` does."""
        until = self._now() + duration_ms("length", length)
        attempts, self._waiting = self.drain(raises=raises), frozenset()
        while (at := self._find_next_time()) is not None and at <= until:
            self._wait_until(at)
            attempts += self.drain(raises=raises)
        self._wait_until(until)
        # On a server time goes on during the search.
        return attempts + self.drain(raises=raises)

    def _now(self) -> int:
        return self.app.client.read(lambda reader: reader.now())

    def _wait_until(self, at: int) -> None:
        self._sleep((at - self._now()) / 1_000)

    def _sleep(self, seconds: float) -> None:
        if self._engine.features.name in _ACCEPT_CLOCK:
            # Whole milliseconds, the resolution of the clock: a shorter pause would never pass.
            self._manual_clock.advance(ms=max(0, ceil(seconds * 1_000)))
        else:
            sleep(max(0.0, seconds))

    def _find_next_time(self) -> int | None:
        """Return the next time at which a job may be due; nothing is due now."""
        jobs, now = load_jobs(self.app, *LIVE), self._now()
        ends = [at for job in jobs for at in (_due_at(job), job.expires_at) if at is not None and at > now]
        due = self._store.due_schedules(1)
        if due.next_due_ms is not None:
            ends.append(max(now + 1, due.now + due.next_due_ms))
        if held := self._find_waiting(jobs, now):
            ends.append(self._next_check_at(held, now))
        return min(ends, default=None)

    def _find_waiting(self, jobs: Sequence[Job], now: int) -> frozenset[JobId]:
        """Return the waiting jobs that are due and may run by time alone. A job that waits for another one,
        or in a paused queue, waits for something that only the test can do."""
        due = [job for job in jobs if job.state is not JobState.BLOCKED and _due_at(job) <= now]
        names = sorted({job.queue for job in due})
        queues = self.app.client.read(lambda reader: reader.queues(names)) if names else []
        closed = {queue.name for queue in queues if queue.state in _UNCLAIMABLE}
        return frozenset(job.id for job in due if job.queue not in closed)

    def _next_check_at(self, waiting: frozenset[JobId], now: int) -> int:
        # How long a limit holds the job is unknown. The pause grows with the time without changes. So a week
        # costs about two hundred looks, and a rate is still met nearly on time.
        if waiting != self._waiting:
            self._waiting, self._waiting_since = waiting, now
        return now + max(_RECHECK_MS, (now - self._waiting_since) // 16)

    # Work

    def drain(self, *, raises: bool = True) -> int:
        """Run all that is due, and what it enqueues, in this thread. Return the number of attempts. A task
        that fails is settled as by any worker. At the end the first exception is raised again, unless it was
        a signal (`Retry`, `Snooze`, `Discard`, `Cancel`) or `raises` is False.

        If a planned fault kills the worker, this ends at once. The worker's jobs stay leased until their
        leases end.
        """
        attempts, raised = self._run_due()
        if raises and raised is not None:
            raise raised
        return attempts

    def _inline_drain(self) -> None:
        self.drain()

    def _run_due(self) -> tuple[int, BaseException | None]:
        attempts, raised = 0, None
        self._begin()
        try:
            while True:
                self._run_maintenance()
                with self._open_worker() as worker:
                    attempted = worker.work()
                attempts, raised = attempts + attempted, raised or worker.raised
                if not attempted:
                    break
        except Killed:
            pass
        return attempts, raised

    def _begin(self) -> None:
        """Do what a worker does when it starts."""
        if self._before is None:
            raise ConfigError("this trial has not begun, or is over: use it as a context manager")
        if not self._is_begun:
            self._is_begun = True
            self.app.registry.hooks.start(run_coroutine)
            definitions = self.app.registry.schedules.values()
            with closing(self._engine.reader()) as reader:
                save_declared(self._store, reader, definitions, random.random, actor="trial")

    @contextmanager
    def _open_worker(self) -> Iterator[TrialWorker]:
        self._is_dead = False
        queues = sorted({*self.app.queues(), *self.app.counts()})
        is_to_die = self._crash_after is not None and self._engine.features.name not in _ACCEPT_CLOCK
        lease_ms = _DYING_LEASE_MS if is_to_die else None
        worker = TrialWorker(self.app, queues, self._on_step, self._sleep, lease_ms)
        try:
            yield worker
        except Killed:
            self._is_dead = True
            raise
        finally:
            worker.close()

    def _run_maintenance(self) -> None:
        """Run all maintenance tasks without waiting for their periods. A task that fails now runs in the next
        round."""
        if self._engine.features.runs_maintenance:
            return
        store, sweeper = self._store, new_worker_id()
        with suppress(StoreUnavailable):
            while sweep(store, sweeper, random.random):
                pass
            while fire_due(store, random.random)[1]:
                pass
            while store.promote():
                pass

    # Crash

    def crash(self, after: WorkerStep | str) -> Job:
        """Run what is due until a worker reaches this step with a job, and kill it there; return the job.

        Steps are `claimed`, `started`, `ran` and `settled`, the name of a watched effect, or the name of a
        step of the job (`current_job().step`). Nothing is settled or handed back: go on with `recover`, or
        let the lease's time pass. Raises AssertionError if no worker reaches that step.
        """
        crashes = len(self._effects.crashes)
        self._crash_after = after
        try:
            attempts, _ = self._run_due()
        finally:
            self._crash_after = None
        if len(self._effects.crashes) == crashes:
            came = ", ".join(self._steps) or "none"
            raise AssertionError(
                f"no worker came to the step {str(after)!r} in {attempts} attempts; steps so far: {came}"
            )
        return self._effects.crashes[-1].job

    def recover(self, *, raises: bool = True) -> int:
        """Let time pass until the leases of dead workers have ended and their jobs are due again, and run
        them. Return the number of attempts. Raises as `drain` does."""
        held = {job.id: job for job in load_jobs(self.app, JobState.RUNNING)}
        attempts = self._pass_time_until(
            max((job.lease_expires_at or 0 for job in held.values()), default=0), raises
        )
        # From the second crash on a job waits before its next attempt.
        waiting = [
            job.run_at
            for job in self.app.client.jobs(list(held))
            if job is not None and job.state is JobState.RETRYING and job.attempt == held[job.id].attempt
        ]
        return attempts + self._pass_time_until(max(waiting, default=0), raises)

    def _pass_time_until(self, at: int, raises: bool) -> int:
        return self.pass_time(timedelta(milliseconds=max(0, at - self._now())), raises=raises)

    def _on_step(self, step: WorkerStep | str, job: Job) -> None:
        if self._is_dead:
            raise Killed  # the worker is dead, even if its task caught the exception that killed it
        self._steps[str(step)] = None
        if step == self._crash_after:
            self._is_dead = True
            self._effects.crashes.append(Crash(step, job))
            raise Killed

    # Look

    def effect(self, func: Callable[P, R], name: str | None = None) -> Callable[P, R]:
        """Return the function, watched: each call counts as an effect of the job that makes it.

        monkeypatch.setattr(bank, "charge", trial.effect(bank.charge))
        """
        return self._effects.watch(func, name or str(getattr(func, "__name__", func)))

    def assert_effects_once(self, *names: str) -> None:
        """Assert that no job has repeated a watched effect, told apart by name and arguments, and that those
        named have happened at all."""
        self._effects.assert_once(names)

    def jobs(self, *states: JobState) -> list[Job]:
        """Return all jobs, or those in these states, the oldest first."""
        return load_jobs(self.app, *states)

    def assert_enqueued(
        self,
        task: Task[..., Any] | str,
        arguments: Mapping[str, Any] | None = None,
        *,
        queue: str | None = None,
        states: tuple[JobState, ...] = (),
        count: int | None = None,
    ) -> list[Job]:
        """Assert that jobs of a task were enqueued with at least these arguments, by the names of its
        parameters: `count` jobs, or at least one. Return them, the oldest first.

            trial.assert_enqueued(send_mail, {"to": "ada@example.com"}, queue="mail", count=1)
        """
        found = find_matching(self.app, task, arguments, queue, states)
        if found if count is None else len(found) == count:
            return found
        given = "" if arguments is None else f" with {dict(arguments)!r:.300}"
        where = "" if queue is None else f" in {queue}"
        wanted = "" if count is None else f" {count} times, but {len(found)} times"
        what = f"{task_name(task)}{given}{where} was not enqueued{wanted}"
        raise AssertionError(f"{what}; {describe_jobs(self.app, self.jobs(*states))}")

    def assert_not_enqueued(
        self,
        task: Task[..., Any] | str,
        arguments: Mapping[str, Any] | None = None,
        *,
        queue: str | None = None,
        states: tuple[JobState, ...] = (),
    ) -> None:
        """Assert that no such job was enqueued."""
        self.assert_enqueued(task, arguments, queue=queue, states=states, count=0)


def _due_at(job: Job) -> int:
    return job.run_at if job.lease_expires_at is None else job.lease_expires_at
