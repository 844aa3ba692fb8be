"""Isolated executor: tasks in processes of their own, which can be killed. For CPU-bound and for untrusted
tasks."""

from __future__ import annotations

import logging
from queue import SimpleQueue
from threading import Event, Thread, current_thread
from typing import Final

from forebay.app.registry import Registry
from forebay.clock import Clock
from forebay.domain.outcome import AttemptError, Failed, Interrupted, Outcome
from forebay.telemetry.log_fields import job_fields
from forebay.worker.assigned_job import Assignment, ExecutorKind
from forebay.worker.coordinator_inbox import Inbox
from forebay.worker.executors.child_process import ChildGone, ChildProcess
from forebay.worker.executors.messages import (
    ChildBroken,
    ChildReady,
    ProtocolError,
    RunAttempt,
    Shutdown,
    StartChild,
)
from forebay.worker.executors.process_attempt import (
    TICK_SECONDS,
    ProcessAttempt,
    ProcessSlot,
    process_died_error,
)
from forebay.worker.executors.task_module_origin import ProgramOrigin, TaskModule, find_task_module
from forebay.worker.task_invoker import Invoker, attempt_error

START_SECONDS: Final = 60.0
CLOSE_SECONDS: Final = 1.5
MAX_JOBS: Final = 1_000
MAX_AGE_SECONDS: Final = 3_600.0
MAX_GROWTH: Final = 256 * 2**20
LONGEST_PAUSE_SECONDS: Final = 10.0

logger: logging.Logger = logging.getLogger(__name__)


class ChildNotStarted(Exception):
    """There is no process to run the job in."""

    def __init__(self, error: AttemptError) -> None:
        super().__init__(error.message)
        self.error = error


class IsolatedExecutor:
    """A fixed number of threads on one queue, each with at most one process. A process is started with the
    first job, used again, and replaced when it has grown old or large.

    The thread that uses a process starts it, because the process dies with that thread.
    """

    kind = ExecutorKind.ISOLATED

    def __init__(
        self,
        size: int,
        registry: Registry,
        invoke: Invoker,
        inbox: Inbox,
        clock: Clock,
        *,
        origin: ProgramOrigin,
    ) -> None:
        self._registry = registry
        self._invoke = invoke
        self._inbox = inbox
        self._now = clock.monotonic
        self._origin = origin
        self._waiting: SimpleQueue[Assignment | None] = SimpleQueue()
        self._closing = Event()
        self._process_slots = [ProcessSlot() for _ in range(size)]
        self._threads = [
            Thread(target=self._work, args=[slot], name=f"forebay-isolated-{number}", daemon=True)
            for number, slot in enumerate(self._process_slots)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def submit(self, assignment: Assignment) -> None:
        self._waiting.put(assignment)

    def interrupt(self, assignment: Assignment, reason: BaseException) -> None:
        """Ask the task to stop. A time limit does not ask but kills, and so does the end of the grace."""
        slot = assignment.slot
        if isinstance(slot, ProcessSlot):
            slot.request_stop(assignment, reason)

    def abandon(self, assignment: Assignment, reason: BaseException) -> Outcome | None:
        """Return None: the process is killed instead, and that is the outcome."""
        return None

    def replace(self, assignment: Assignment) -> bool:
        return False

    def close(self) -> None:
        """Let the processes run their hooks and end, for a moment; then kill them."""
        self._closing.set()
        for slot in self._process_slots:
            self._waiting.put(None)
            slot.wake()
        until = self._now() + CLOSE_SECONDS + TICK_SECONDS
        for thread in self._threads:
            if thread.is_alive() and thread is not current_thread():
                thread.join(max(0.0, until - self._now()))

    def _work(self, slot: ProcessSlot) -> None:
        try:
            while (assignment := self._waiting.get()) is not None and not self._closing.is_set():
                if assignment.acquire():  # else it was handed back before it was started
                    self._inbox.put(assignment, self._attempt(slot, assignment))
                    self._replace_worn(slot)
        finally:
            self._dismiss(slot)
            slot.close()

    def _attempt(self, slot: ProcessSlot, assignment: Assignment) -> Outcome:
        try:
            return self._run(slot, assignment)
        except ChildNotStarted as exc:
            slot.failed_starts += 1
            logger.error("an isolated process could not be started: %s", exc)
            return Failed(exc.error)
        except Exception as exc:
            # An error of our own must not end this thread, with which its process would die, and the slot.
            fields = job_fields(assignment.job)
            logger.exception("job %s, attempt %s, could not be run", *assignment.lease, extra=fields)
            self._kill(slot)
            return Failed(attempt_error(exc))
        finally:
            slot.release()

    def _run(self, slot: ProcessSlot, assignment: Assignment) -> Outcome:
        task = self._registry[assignment.job.task]
        location = TaskModule(assignment.job.task, find_task_module(task).module)
        if not self._is_in_time(assignment):
            return Interrupted(started=False)
        process = self._ensure_process(slot, assignment, location)
        if process is None or not self._is_in_time(assignment):
            return Interrupted(started=False)
        slot.assign(assignment)
        if not assignment.mark_started(self._now()):
            return Interrupted(started=False)  # the supervisor has returned it meanwhile
        self._invoke.announce(assignment)
        memory = task.execution_policy.memory_limit
        process.jobs += 1
        process.post(RunAttempt(process.jobs, assignment.job, location, memory))
        attempt = ProcessAttempt(
            slot,
            process,
            assignment,
            invoke=self._invoke,
            now=self._now,
            is_closing=self._closing.is_set,
            grace=task.execution_policy.grace,
            memory_limit=memory,
        )
        try:
            return attempt.wait_for_outcome()
        finally:
            slot.release()
            assignment.ended_at = self._now()

    def _is_in_time(self, assignment: Assignment) -> bool:
        """Return whether enough is left of its lease; otherwise another worker may have the job already."""
        return self._now() <= assignment.start_by

    # Processes

    def _ensure_process(
        self, slot: ProcessSlot, assignment: Assignment, location: TaskModule
    ) -> ChildProcess | None:
        """Return a process that is ready; None if the job shall not begin any more. Raises
        ChildNotStarted."""
        if slot.process is not None and not slot.process.has_ended():
            return slot.process
        self._kill(slot)  # a process that had died since the last job harms none
        try:
            slot.process = process = ChildProcess(self._now())
        except OSError as exc:
            raise ChildNotStarted(process_died_error(f"no isolated process could be started: {exc}")) from exc
        process.post(StartChild(self._origin, location))
        until = process.started_at + START_SECONDS
        try:
            while not process.is_ready:
                if assignment.stop_reason is not None or self._closing.is_set():
                    self._kill(slot)
                    return None
                if self._now() >= until:
                    raise ChildNotStarted(
                        process_died_error(f"the isolated process was not ready after {START_SECONDS:g} s")
                    )
                self._receive_ready(slot, process)
        except ChildNotStarted:
            self._kill(slot)
            raise
        slot.failed_starts = 0
        return process

    def _receive_ready(self, slot: ProcessSlot, process: ChildProcess) -> None:
        try:
            for message in process.listen(TICK_SECONDS, slot.wake_receiver):
                if isinstance(message, ChildBroken):
                    raise ChildNotStarted(message.error)
                if isinstance(message, ChildReady):
                    process.resident = process.resident_at_first = message.resident
                    process.is_ready = True
        except ChildGone as exc:
            raise ChildNotStarted(process_died_error(f"{process.end()} before it was ready")) from exc
        except ProtocolError as exc:
            raise ChildNotStarted(
                process_died_error(f"the isolated process sent an invalid message: {exc}")
            ) from exc

    def _replace_worn(self, slot: ProcessSlot) -> None:
        """Dismiss a process that is dead, old or large; after a failed start, wait. No job is held meanwhile:
        submitted ones are taken by other threads or handed back."""
        process = slot.process
        if process is not None and (process.has_ended() or self._is_worn(process)):
            self._dismiss(slot)
        if slot.failed_starts:
            self._closing.wait(min(LONGEST_PAUSE_SECONDS, 0.25 * 2.0**slot.failed_starts))

    def _is_worn(self, process: ChildProcess) -> bool:
        grown = (process.resident or 0) - (process.resident_at_first or 0)
        return (
            process.must_not_be_reused
            or process.jobs >= MAX_JOBS
            or self._now() - process.started_at >= MAX_AGE_SECONDS
            or grown > MAX_GROWTH
        )

    def _dismiss(self, slot: ProcessSlot) -> None:
        """Let it run its hooks and end; one that takes long is killed."""
        process = slot.process
        if process is not None and process.is_ready and not process.has_ended():
            process.post(Shutdown())
            until = self._now() + CLOSE_SECONDS
            try:
                while (left := until - self._now()) > 0:
                    process.listen(left, slot.wake_receiver)
            except (ChildGone, ProtocolError):
                pass
        self._kill(slot)

    def _kill(self, slot: ProcessSlot) -> None:
        process, slot.process = slot.process, None
        if process is not None:
            process.end()
