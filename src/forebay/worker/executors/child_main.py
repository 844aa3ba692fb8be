"""Main module of an isolated process: it loads the program, runs one job after the other on its main thread,
and is killed."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from queue import SimpleQueue
from socket import socket
from threading import Thread, main_thread
from time import monotonic
from types import FrameType
from typing import Any, Final

from msgspec.structs import replace

from forebay.app.job_serialization import job_from_dict
from forebay.app.logging_integration import add_job_fields_to_logs
from forebay.deferred_interrupts import set_interruptible
from forebay.domain.job import Job
from forebay.domain.outcome import Discarded, Failed, Outcome
from forebay.telemetry.logging_interrupts import defer_interrupts_in_logging
from forebay.worker.assigned_job import Assignment
from forebay.worker.executors.app_loader import AppLoader
from forebay.worker.executors.child_connection import INTERRUPT, ChildConnection
from forebay.worker.executors.child_progress import ChildProgressSink
from forebay.worker.executors.messages import (
    ChildBroken,
    ChildReady,
    ContextUpdate,
    FrameReader,
    RunAttempt,
    Shutdown,
    StartChild,
    StepReply,
    StopAttempt,
    ToChild,
    make_ended,
    to_child,
)
from forebay.worker.executors.process_memory import limit_address_space, out_of_memory, resident_bytes
from forebay.worker.executors.task_module_origin import ProcessIdentity
from forebay.worker.parent_death import die_with
from forebay.worker.task_invoker import Invoker, JobInterrupted, TaskInvocation, attempt_error

BUFFER: Final = 2**16
ORPHANED: Final = 1


def main() -> None:
    connection = socket(fileno=int(sys.argv[2]))
    connection.set_inheritable(False)
    die_with(int(sys.argv[3]))
    ProcessIdentity.is_isolated = True
    with suppress(RuntimeError, OSError, ValueError):  # there is no standard error
        # Python's own handler waits for the interpreter's lock, so no other thread changes what it reads.
        signal.signal(signal.SIGUSR1, lambda *_: faulthandler.dump_traceback(all_threads=True))
        faulthandler.register(signal.SIGUSR2, all_threads=True)
    # Signals to the worker's process group are for the worker. They are handled and dropped, not ignored:
    # ignored signals stay ignored in programs that a task starts, and then those cannot be told to end.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    sys.exit(ChildMain(connection).work())


class RunningAttempt:
    """The attempt that runs now, for the thread that reads and for the signal handler."""

    def __init__(self) -> None:
        self.assignment: Assignment | None = None
        self.stop_request: StopAttempt | None = None
        self.update: ContextUpdate | None = None
        self.cancel: Callable[[], object] | None = None  # stops a coroutine

    def take_reason(self) -> JobInterrupted | None:
        """Return why the attempt that runs now shall be interrupted; once for each."""
        assignment, request = self.assignment, self.stop_request
        if (
            assignment is None
            or request is None
            or request.lease != assignment.lease
            or assignment.stopped_by is not None
        ):
            return None
        assignment.stopped_by = reason = JobInterrupted(request.reason)
        return reason


class MainThread:
    """The thread that runs jobs. The signal handler raises nothing in regions of `deferred_interrupts`. The
    handler runs on this very thread, so there is nothing to synchronise."""

    def __init__(self, catch_up: Callable[[], None]) -> None:
        self._catch_up = catch_up
        self.is_hidden: bool = False
        self.depth: int = 0

    def hold(self) -> None:
        self.is_hidden = True

    def listen(self) -> None:
        self.is_hidden = False
        self._catch_up()

    def check(self) -> None:
        self.is_hidden = False
        try:
            self._catch_up()
        finally:
            self.is_hidden = True

    def listen_later(self) -> None:
        self.is_hidden = False


class ChildMain:
    """Two threads: the main thread runs jobs, the other reads the worker's messages."""

    def __init__(self, connection: socket) -> None:
        self._connection = connection
        self._worker_connection = ChildConnection(connection)
        self._progress_sink = ChildProgressSink(self._worker_connection, self._catch_up)
        self._jobs: SimpleQueue[RunAttempt | None] = SimpleQueue()
        self._current = RunningAttempt()
        self._main_thread = MainThread(self._catch_up)
        self._frames = FrameReader()
        self._pieces: list[bytes] = []

    def work(self) -> int:
        message = self._receive_start()
        set_interruptible(self._main_thread)
        defer_interrupts_in_logging()
        signal.signal(INTERRUPT, self._on_interrupt)
        if message.origin.logs is not None:
            message.origin.logs.set_up()
            add_job_fields_to_logs()
        Thread(target=self._listen, name="forebay-worker-line", daemon=True).start()
        loader = AppLoader(message.origin)
        try:
            app = loader.app(message.place)
            app.registry.hooks.start()
        except BaseException as exc:  # the program's own code, which may raise anything
            self._worker_connection.send(ChildBroken(attempt_error(exc)))
            return 1
        self._worker_connection.send(ChildReady(resident_bytes()))
        while (run := self._jobs.get()) is not None:
            self._run(run, loader)
        app.registry.hooks.stop()
        return 0

    # The thread that reads

    def _receive_start(self) -> StartChild:
        """Return the first message; the worker sends nothing else before this process is ready."""
        while not self._pieces:
            self._pieces += self._frames.feed(self._receive())
        message = to_child(self._pieces.pop(0))
        assert isinstance(message, StartChild)  # noqa: S101 - there is one worker, of our own version
        return message

    def _receive(self) -> bytes:
        piece = self._connection.recv(BUFFER)
        if not piece:
            # The worker is gone. Kill all processes that the task has started, too.
            os.killpg(0, signal.SIGKILL)
        return piece

    def _listen(self) -> None:
        try:
            while True:
                for body in self._pieces or self._frames.feed(self._receive()):
                    self._handle(to_child(body))
                self._pieces = []
        except BaseException:
            # Without this thread the worker could not reach this process any more, and would not notice.
            os._exit(ORPHANED)

    def _handle(self, message: ToChild) -> None:
        if isinstance(message, RunAttempt):
            self._current.update = None
            self._jobs.put(message)
        elif isinstance(message, Shutdown):
            self._jobs.put(None)
        elif isinstance(message, StepReply):
            self._progress_sink.deliver(message)
        elif isinstance(message, ContextUpdate):
            # The update is stored first and applied second; the main thread first sets its assignment and
            # then applies the stored update. So an update that comes while a job passes from one thread to
            # the other is applied by one of the two.
            self._current.update = message
            self._update_context()
        elif isinstance(message, StopAttempt):
            self._current.stop_request = message
            cancel = self._current.cancel
            if cancel is not None:
                with suppress(RuntimeError):  # its event loop has just been closed
                    cancel()
            else:
                # A signal and no asynchronous exception: it also ends a sleep, or a wait for a socket.
                signal.pthread_kill(main_thread().ident or 0, INTERRUPT)

    def _update_context(self) -> None:
        assignment, update = self._current.assignment, self._current.update
        if assignment is None or update is None:
            return
        context = assignment.context
        if update.cancel_reason is not None:
            context.mark_cancelled(update.cancel_reason)
        if update.is_overdue:
            context.mark_past_soft_timeout()
        if update.lost_because is not None:
            context.mark_lease_lost(update.lost_because)
        elif update.renewed_at is not None and not update.failures:
            context.mark_lease_regained(update.renewed_at)  # the worker knows which leases are lost
        for _ in range(update.failures - context.renewals.failures):
            context.mark_lease_in_doubt()

    # The main thread

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:
        if not self._worker_connection.is_busy:
            self._catch_up()

    def _catch_up(self) -> None:
        """Raise a requested interrupt, if the call that it is meant for still runs and is not in a region."""
        if self._main_thread.is_hidden:
            return
        if self._current.cancel is None and (reason := self._current.take_reason()) is not None:
            raise reason

    def _run(self, run: RunAttempt, loader: AppLoader) -> None:
        job = job_from_dict(Job, run.job)
        try:
            invoke = Invoker(loader.app(run.place).registry)
        except BaseException as exc:  # the program's own code, which may raise anything
            self._report(run, Failed(attempt_error(exc)), must_not_be_reused=True)
            return
        assignment = Assignment(job, monotonic())
        assignment.context.progress_sink = self._progress_sink
        self._progress_sink.begin(run.number, assignment.context)
        must_not_be_reused = False
        try:
            # Context variables that a job sets must not reach the next one.
            outcome = Context().run(self._outcome, invoke, assignment, run.memory)
        except BaseException as exc:  # a coroutine that has stopped its event loop, for example
            outcome, must_not_be_reused = Failed(attempt_error(exc)), True
        self._progress_sink.end()
        is_over = run.memory is not None and _is_memory_error(outcome)
        if is_over and isinstance(outcome, (Failed, Discarded)):
            outcome = replace(outcome, error=out_of_memory(run.memory or 0, outcome.error.traceback))
        self._report(run, outcome, must_not_be_reused=must_not_be_reused or is_over)

    def _report(self, run: RunAttempt, outcome: Outcome, *, must_not_be_reused: bool) -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # it belongs to the task, and may be closed
                stream.flush()
        try:
            self._worker_connection.send(
                make_ended(run.number, outcome, resident_bytes(), must_not_be_reused)
            )
        except OSError:
            os._exit(ORPHANED)  # the task has closed our connection
        except Exception as exc:
            # It is too large, or has a text that cannot be encoded; nothing of it was sent.
            self._worker_connection.send(
                make_ended(run.number, Failed(attempt_error(exc)), resident_bytes(), must_not_be_reused)
            )

    def _outcome(self, invoke: Invoker, assignment: Assignment, memory: int | None) -> Outcome:
        invoke.announce(assignment)
        if invoke.is_async(assignment.job.task):
            import asyncio  # noqa: PLC0415 - most programs have no coroutine tasks

            return asyncio.run(self._run_coroutine(invoke, assignment, memory))
        call: TaskInvocation | None = None
        value: Any = None
        raised: BaseException | None = None
        with limit_address_space(memory):
            # An interrupt is raised by the signal handler, on this very thread, and only while there is an
            # assignment. Python runs handlers when a function begins, after a call and when a loop goes
            # round; between the end of this block and the line after it there is nothing of that kind.
            try:
                self._current.assignment = assignment
                self._update_context()
                self._catch_up()  # requested before the job was taken
                call = invoke.prepare(assignment)
                value = call.func(*call.args, **call.kwargs)
            except BaseException as exc:
                raised = exc
            self._current.assignment = None
        return invoke.make_outcome(assignment, call, value, raised)

    async def _run_coroutine(self, invoke: Invoker, assignment: Assignment, memory: int | None) -> Outcome:
        import asyncio  # noqa: PLC0415 - as above

        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        current = self._current

        def stop() -> None:
            if task is not None and current.take_reason() is not None:
                task.cancel()

        current.cancel = lambda: loop.call_soon_threadsafe(stop)
        current.assignment = assignment
        self._update_context()
        loop.call_soon(stop)  # requested before the job was taken
        try:
            with limit_address_space(memory):
                return await invoke.run_coroutine(assignment)
        finally:
            current.assignment = None
            current.cancel = None


def _is_memory_error(outcome: Outcome) -> bool:
    """Return whether the outcome is a memory error. By name, since libraries have errors of their own for it,
    derived from Python's."""
    return isinstance(outcome, (Failed, Discarded)) and outcome.error.type.endswith("MemoryError")
