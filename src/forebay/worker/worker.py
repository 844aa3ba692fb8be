"""Worker: its parts, its start and its stop."""

from __future__ import annotations

import atexit
import logging
import os
import random
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from math import inf
from threading import Event, Thread
from typing import TYPE_CHECKING

from forebay.app.registry import Registry
from forebay.app.schedules import save_declared
from forebay.clock import Clock, SystemClock
from forebay.deferred_interrupts import uninterrupted
from forebay.domain.job import DEFAULT_QUEUE, QueueName, WorkerId
from forebay.domain.outcome import AttemptError
from forebay.domain.worker import (
    DEFAULT_HEARTBEAT_MS,
    MAX_HEARTBEAT_MS,
    MIN_HEARTBEAT_MS,
    WorkerInfo,
    WorkerState,
)
from forebay.errors import ConfigError, StoreError
from forebay.maintenance.standard_tasks import standard_tasks
from forebay.operations.maintenance_task import MaintenanceTask, close_tasks
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.store import Store
from forebay.stores.contract.wakeups import Wakeups
from forebay.stores.id_generator import new_worker_id
from forebay.telemetry.observers import SettledAttempt
from forebay.telemetry.store_call_durations import log_durations
from forebay.worker.command_execution import Control
from forebay.worker.coordinator import Coordinator
from forebay.worker.coordinator_inbox import Inbox
from forebay.worker.coordinator_watchdog import Watchdog
from forebay.worker.dead_job_reporter import DeadJobReporter
from forebay.worker.executors.executor_set import ExecutorSet
from forebay.worker.health_log import HealthLog
from forebay.worker.lease_renewal import LeaseRenewal
from forebay.worker.lease_renewal_health import RenewalHealth
from forebay.worker.process_recycler import MAX_ABANDONED, ProcessLimits, Recycler, ThreadHealth
from forebay.worker.process_usage import resident_memory
from forebay.worker.progress_buffer import ProgressBuffer
from forebay.worker.queue_weights_and_pauses import QueueWeightRefresher, QueueWeights, parse_queue_weights
from forebay.worker.signal_pause import SignalPause
from forebay.worker.slots import Slots
from forebay.worker.status import StatusReporter, WorkerStatus
from forebay.worker.stop_timeouts import CLOSING_SECONDS, DRAIN_SECONDS, INTERRUPT_SECONDS
from forebay.worker.supervisor.standby_renewal import StandbyRenewal
from forebay.worker.supervisor.supervised_renewal import SupervisedRenewal, SupervisorLink, WorkerCallbacks
from forebay.worker.task_invoker import attempt_error

if TYPE_CHECKING:
    from forebay.domain.allowed_alert_addresses_and_secrets import DeliveryPolicy

logger: logging.Logger = logging.getLogger(__name__)


def usable_cores() -> int:
    """Return how many cores this process may use, where the system tells; else how many there are."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed is not None else os.cpu_count() or 1


class Worker:
    """Runs jobs of some queues until it is stopped. All its parts are created here."""

    def __init__(  # noqa: PLR0913 - each is an option of its own
        self,
        engine: Engine,
        registry: Registry,
        *,
        queues: Sequence[str] | Mapping[str, int | None] = (DEFAULT_QUEUE,),
        threads: int = 4,
        coroutines: int = 100,
        isolated: int | None = None,
        clock: Clock | None = None,
        strict: bool = False,
        heartbeat: float = DEFAULT_HEARTBEAT_MS / 1_000,
        program: str | None = None,
        metrics: bool = True,
        max_abandoned: int = MAX_ABANDONED,
        policy: DeliveryPolicy | None = None,
    ) -> None:
        weights = parse_queue_weights(queues)
        _check_options(threads, coroutines, isolated, heartbeat)
        self.id: WorkerId = new_worker_id()
        self._engine = engine
        self._info = WorkerInfo(
            id=self.id,
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=tuple(weights),
            heartbeat_ms=round(heartbeat * 1_000),
        )
        self._clock = clock or SystemClock()
        self._records_metrics, self._policy = metrics, policy
        self._inbox = Inbox()
        self._slots = Slots(threads, coroutines, isolated or usable_cores())
        self._queue_weights = QueueWeights(weights, self._slots, self._inbox, strict=strict)
        self._watchdog = Watchdog(self._clock)
        self._thread_health = ThreadHealth(self._slots, max_abandoned)
        self._status_reporter = StatusReporter(
            self._info, self._slots, self._queue_weights, self._watchdog, self._clock, self._thread_health
        )
        self._health_log = HealthLog(self._clock, self._status_reporter.info, self._depths)
        self.control: Control = Control(self, self._slots)
        self.drain_seconds = DRAIN_SECONDS
        self._hooks, self._schedules = registry.hooks, registry.schedules
        self._progress_buffer = ProgressBuffer(self._clock, self._inbox.notify, engine.reader)
        self._executors = ExecutorSet(registry, self._slots, self._inbox, self._clock, program=program)
        self._dead_job_reporter = DeadJobReporter(engine, self._hooks, self._inbox.notify)
        self._renewal: LeaseRenewal | SupervisedRenewal = self._create_renewal()
        self._wakeups: Wakeups | None = engine.wakeups()
        # When it stops by itself, so that another process can replace it.
        self.limits: ProcessLimits = ProcessLimits()
        self._recycler: Recycler
        self._is_started = False
        # Called by the coordinator's thread, as the last thing it does.
        self.on_stopped: Callable[[], None] = lambda: None
        self._stopping = Event()
        self._thread: Thread | None = None
        self._crash: BaseException | None = None
        self._was_silent = False
        self.unwritten: str | None = None  # what a stop could not write, as text
        self._drain_ends: list[float] = []  # all requested times; the earliest counts
        self._coordinator: Coordinator
        self._store: Store | None = None
        self._maintenance_tasks: Sequence[MaintenanceTask] = ()

    def _create_renewal(self) -> LeaseRenewal:
        return LeaseRenewal(
            engine=self._engine,
            worker=self._info,
            slots=self._slots,
            clock=self._clock,
            on_cancels=self._inbox.add_cancels,
            report=self._status_reporter.info,
            control=self.control,
            on_watch=self._check_watchdog,
        )

    def attach_supervisor(self, link: SupervisorLink) -> None:
        """Let a supervisor renew the leases and receive wake-ups for all its workers. Before the start."""
        signal_pause = SignalPause(self)
        self._wakeups = None
        self._renewal = SupervisedRenewal(
            link,
            slots=self._slots,
            clock=self._clock,
            on_cancels=self._inbox.add_cancels,
            report=self._status_reporter.info,
            callbacks=WorkerCallbacks(
                carry_out=self.control.carry_out,
                request_stop=self.request_stop,
                stop_now=self.stop_now,
                pause=signal_pause.pause,
                resume=signal_pause.resume,
                wake=self._inbox.wake,
                report=self._dead_job_reporter.add,
            ),
            standby=StandbyRenewal(
                engine=self._engine,
                lease_table=link.lease_table,
                slots=self._slots,
                clock=self._clock,
                on_cancels=self._inbox.add_cancels,
                report=self._status_reporter.info,
                supervisor=os.getppid(),
            ),
        )

    def start(self) -> None:
        """Open the store, send the first heartbeat, and begin."""
        if self._is_started:
            raise ConfigError("this worker was started before; make another one")
        self._executors.check()
        self._is_started = True
        try:
            self._begin()
        except BaseException:
            self._close()
            raise

    def _begin(self) -> None:
        # Nothing replaces a worker without a supervisor, so it goes on with the slots that it has.
        thread_health = self._thread_health if isinstance(self._renewal, SupervisedRenewal) else None
        self._recycler = Recycler(self.limits, self._slots, self._clock, resident_memory, thread_health)
        self._renewal.start()
        # Before the store is opened: a hook may fork, and nothing is claimed if one fails.
        self._hooks.start(self._executors.run)
        try:
            self._begin_to_claim()
        except BaseException:
            self._call_stop_hooks()  # what they have opened is theirs to close
            raise

    def _begin_to_claim(self) -> None:
        self._store = store = log_durations(self._engine.store(), self._clock)
        self._save_schedules(store)
        self._maintenance_tasks = self._create_maintenance_tasks()
        self._coordinator = Coordinator(
            worker=self._info,
            store=self._store,
            slots=self._slots,
            inbox=self._inbox,
            executors=self._executors,
            maintenance_tasks=self._maintenance_tasks,
            clock=self._clock,
            roll=random.random,
            queue_weights=self._queue_weights,
            watchdog=self._watchdog,
            progress_buffer=self._progress_buffer,
            hooks=self._hooks,
            weight_refresher=QueueWeightRefresher(self._queue_weights, self._engine.reader, self._clock),
            polls_when_idle=self._engine.features.coalesces_wakeups,
            records_metrics=self._records_metrics,
            max_abandoned=self._thread_health.max_abandoned,
        )
        self._executors.start()
        if self._wakeups is not None:
            self._wakeups.start(self._on_wakeup)
        thread = Thread(target=self._run, name="forebay-coordinator", daemon=True)
        thread.start()
        self._thread = thread
        # Daemon threads do not keep a program alive; a program that forgets to stop its worker lets jobs end
        # here.
        atexit.register(self.stop)

    def _create_maintenance_tasks(self) -> Sequence[MaintenanceTask]:
        features = self._engine.features
        if features.runs_maintenance:
            return ()
        return standard_tasks(
            sweeper=new_worker_id(),
            clock=self._clock,
            roll=random.random,
            hooks=self._hooks,
            notices_death=features.notices_death,
            has_metrics=self._records_metrics,
            engine=self._engine,
            on_settled=self._on_swept,
            policy=self._policy,
        )

    def _on_swept(self, settled: Sequence[SettledAttempt]) -> None:
        self._coordinator.on_swept(settled)  # the coordinator is created after its maintenance tasks

    def _save_schedules(self, store: Store) -> None:
        """Save the schedules that the program declares."""
        if self._schedules:
            reader = self._engine.reader()
            try:
                actor = f"worker@{self._info.host}"
                save_declared(store, reader, self._schedules.values(), random.random, actor=actor)
            finally:
                reader.close()

    def _on_wakeup(self) -> None:
        """Wake the coordinator: a job or a command may have come."""
        self._inbox.wake()
        self._renewal.request_command_poll()

    def stop(self, drain: float | None = None) -> None:
        """Stop in order: claim nothing more, let running jobs end for `drain` seconds, interrupt them, hand
        back the rest. Stopping twice, or before the start, is fine. Raises the exception that has crashed the
        worker."""
        if self._thread is None:
            return
        self.request_stop(drain)
        self._thread.join()
        atexit.unregister(self.stop)
        if self._crash is not None:
            crash, self._crash = self._crash, None
            raise crash

    @uninterrupted
    def request_stop(self, drain: float | None = None) -> None:
        """Begin to stop as `stop` does, and return at once.

        Called again, it stops at the earliest time that was requested. A call without a time keeps the
        earlier one, or takes the worker's own drain time.
        """
        if drain is None and not self._stopping.is_set():
            drain = self.drain_seconds
        if drain is not None:
            self._drain_ends.append(self._clock.monotonic() + drain)
        self._stopping.set()
        self._set_phase(WorkerState.STOPPING)
        self._inbox.wake()

    @uninterrupted
    def stop_now(self) -> None:
        """Begin to stop, or continue to, and let nothing drain.

        Not from a signal handler: the thread that the handler has interrupted may hold the locks that this
        takes.
        """
        self._drain_ends.append(self._clock.monotonic())
        self._stopping.set()
        self._set_phase(WorkerState.STOPPING)
        self._inbox.wake()

    @property
    def _drain_until(self) -> float:
        return min(self._drain_ends, default=inf)

    @uninterrupted
    def pause(self, queue: str | None = None) -> None:
        """Stop claiming, from one queue or from all, until `resume`. Running jobs go on. Jobs that were
        claimed and not started are handed back, and none of them starts after this call. From any thread."""
        self._queue_weights.pause(queue)
        self._renewal.request_heartbeat()

    @uninterrupted
    def resume(self, queue: str | None = None) -> None:
        """Claim again, at once. From any thread."""
        self._queue_weights.resume(queue)
        self._renewal.request_heartbeat()

    def status(self) -> WorkerStatus:
        """Return the worker's state and the number of pending jobs. From any thread."""
        return WorkerStatus(
            info=self._status_reporter.info(),
            renewals=self.renewals,
            depths=self._depths(),
            is_healthy=self._is_healthy,
        )

    @property
    def _is_healthy(self) -> bool:
        if self._crash is not None or self._watchdog.is_silent:
            return False
        return self._renewal.is_heartbeat_fresh and self._thread_health.reason() is None

    @uninterrupted
    def _depths(self) -> dict[QueueName, int] | None:
        try:
            with closing(self._engine.reader()) as reader:
                counts = reader.counts(self._info.queues)
        except StoreError:
            return None
        return {name: counts[name].pending if name in counts else 0 for name in self._info.queues}

    @property
    def info(self) -> WorkerInfo:
        """The content of its heartbeats."""
        return self._status_reporter.info()

    @property
    def is_hopeless(self) -> bool:
        """Whether its loop hangs and will not go on."""
        return self._watchdog.is_hopeless

    def _set_phase(self, phase: WorkerState) -> None:
        if self._status_reporter.phase is not WorkerState.STOPPED:
            self._status_reporter.phase = phase
        self._status_reporter.stop_by = self._drain_until + INTERRUPT_SECONDS + CLOSING_SECONDS
        self._renewal.request_heartbeat()

    def _check_watchdog(self) -> None:
        trouble = self._watchdog.check()
        if trouble is not None:
            logger.error("worker %s: %s", self.id, trouble)
            self._hooks.report(None, AttemptError(type="WorkerStuck", message=trouble))
        if self._watchdog.is_silent is not self._was_silent:
            self._was_silent = not self._was_silent
            self._renewal.request_heartbeat()

    def abandon(self) -> None:
        """Do not wait for it at the end of the program either; its threads end with that."""
        atexit.unregister(self.stop)

    @property
    def is_over(self) -> bool:
        """Whether it has ended, by itself or because it was stopped; or was never started."""
        if self._thread is None or not self._thread.is_alive():
            return True
        return self._status_reporter.phase is WorkerState.STOPPED  # the last step of its thread

    @property
    def renewals(self) -> RenewalHealth:
        """Health of its lease renewal."""
        return self._renewal.renewals

    def _run(self) -> None:
        try:
            self._set_phase(WorkerState.WORKING)
            if self._stopping.is_set():  # checked afterwards: it may have been set meanwhile
                self._set_phase(WorkerState.STOPPING)
            while not self._stopping.is_set():
                pause = self._coordinator.tick()
                self._dead_job_reporter.report()
                self._health_log.log_if_due()
                self._watchdog.mark_idle()
                self._renewal.mark_tick()
                retirement = self._recycler.due()
                if retirement is not None:
                    self.retire(retirement.reason, retirement.drain)
                    break
                self._inbox.wait(pause)
            self._drain()
            self._coordinator.flush_metrics()
        except BaseException as exc:
            logger.exception("the coordinator has crashed")
            self._crash = exc
            self._hooks.report(None, attempt_error(exc))
        finally:
            self._watchdog.mark_idle()
            self._renewal.mark_last_tick()
            self._call_stop_hooks()
            self._close()
            self._status_reporter.phase = WorkerState.STOPPED
            self.on_stopped()

    def retire(self, reason: str, drain: float, replace_after: float = 0.0) -> None:
        """Begin to stop, as `request_stop` does, and let a supervisor start another process."""
        logger.info("worker %s retires, because %s", self.id, reason)
        self._renewal.announce_retirement(reason, replace_after)
        self.request_stop(drain)

    def _call_stop_hooks(self) -> None:
        try:
            self._hooks.stop(self._executors.run)
        except BaseException as exc:  # `stop` raises it, unless there was an earlier error
            self._crash = self._crash or exc

    def _drain(self) -> None:
        coordinator = self._coordinator
        coordinator.is_claiming = False
        coordinator.return_unstarted()
        if self._run_until_idle(lambda: self._drain_until):
            return
        coordinator.interrupt_all()
        until = self._clock.monotonic() + INTERRUPT_SECONDS
        if not self._run_until_idle(lambda: until):
            self._log_unfinished()

    def _log_unfinished(self) -> None:
        """Log what a stop leaves behind: jobs that run on, and results that are not stored."""
        running = sum(assignment.is_running for assignment in self._slots)
        if running:
            logger.error("%s jobs did not stop; their leases will run out and the sweep decides", running)
        is_cut_off, unwritten = self._coordinator.is_cut_off, self._coordinator.unwritten
        if is_cut_off or unwritten:
            self.unwritten = _describe_unwritten(unwritten, is_cut_off=is_cut_off)
            logger.error("worker %s: %s", self.id, self.unwritten)

    def _run_until_idle(self, until: Callable[[], float]) -> bool:
        """Tick until nothing is held any more; leases are renewed meanwhile. The time may be shortened
        meanwhile."""
        while True:
            pause = self._coordinator.tick()
            self._dead_job_reporter.report()
            self._renewal.mark_tick()
            seconds_left = until() - self._clock.monotonic()
            if self._coordinator.is_idle or seconds_left <= 0:
                return self._coordinator.is_idle
            self._watchdog.mark_idle()
            self._inbox.wait(min(pause, seconds_left))

    def _close(self) -> None:
        """Close all parts, whatever error one of them raises."""
        parts = [self._progress_buffer.close, self._executors.close, self._renewal.stop]
        parts.append(lambda: close_tasks(self._maintenance_tasks))
        if self._wakeups is not None:
            parts.insert(0, self._wakeups.close)
        if self._store is not None:
            parts.append(self._store.close)
        for close in parts:
            try:
                close()
            except Exception:
                # One part that cannot be closed must not leave the threads and handles of the others behind.
                # The error that has ended the worker is reported, not this one.
                logger.exception("a part of the worker could not be closed")


def _describe_unwritten(results: int, *, is_cut_off: bool) -> str:
    if not results:
        return "the store does not answer; jobs that it holds for this worker run again when their leases end"
    subject, jobs, requirement = (
        ("1 result", "this job", "it needs")
        if results == 1
        else (f"{results} results", "these jobs", "they need")
    )
    reason = "the store does not answer" if is_cut_off else f"another transaction holds what {requirement}"
    return f"{subject} could not be written, because {reason}; {jobs} will run again when the lease has ended"


def _check_options(threads: int, coroutines: int, isolated: int | None, heartbeat: float) -> None:
    """Raise ConfigError for invalid options."""
    if threads < 1 or coroutines < 1:
        raise ConfigError("a worker needs at least one thread and one coroutine")
    if isolated is not None and isolated < 1:
        raise ConfigError(f"a worker needs room for at least one isolated process, not {isolated}")
    if not MIN_HEARTBEAT_MS <= heartbeat * 1_000 <= MAX_HEARTBEAT_MS:  # also refuses NaN
        minimum, maximum = MIN_HEARTBEAT_MS // 1_000, MAX_HEARTBEAT_MS // 1_000
        raise ConfigError(
            f"heartbeat must be a number of seconds from {minimum} to {maximum}, not {heartbeat}"
        )
