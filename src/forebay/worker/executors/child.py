"""An isolated process: loads the program, runs one job after the other on its main thread, and is killed."""

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

from forebay.app.middleware import name_jobs_in_logs
from forebay.app.records import from_dict
from forebay.domain.job import Job
from forebay.domain.outcome import Discarded, Failed, Outcome
from forebay.interrupts import be_interruptible
from forebay.telemetry.logs import defer_interrupts_in_logging
from forebay.worker.executors.finding import Finding
from forebay.worker.executors.memory import limited, out_of_memory, resident
from forebay.worker.executors.origin import Here
from forebay.worker.executors.voice import INTERRUPT, Line, LineVoice
from forebay.worker.executors.wire import (
    Answer,
    Ask,
    Broken,
    Bye,
    Frames,
    Hello,
    News,
    Ready,
    Run,
    ToChild,
    ended,
    to_child,
)
from forebay.worker.invoke import Call, Invoke, JobInterrupted, attempt_error
from forebay.worker.parentage import die_with
from forebay.worker.slots import Assignment

BUFFER: Final = 2**16
ORPHANED: Final = 1


def main() -> None:
    connection = socket(fileno=int(sys.argv[2]))
    connection.set_inheritable(False)
    die_with(int(sys.argv[3]))
    Here.is_isolated = True
    with suppress(RuntimeError, OSError, ValueError):  # there is no standard error
        # Python's own handler waits for the interpreter's lock, so no other thread changes what it reads.
        signal.signal(signal.SIGUSR1, lambda *_: faulthandler.dump_traceback(all_threads=True))
        faulthandler.register(signal.SIGUSR2, all_threads=True)
    # Signals to the worker's whole family are the worker's affair. Not ignored but heard and dropped: what
    # is ignored stays so in programs that a task starts, and then those cannot be told to end.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    sys.exit(Child(connection).work())


class Current:
    """The attempt that runs now, for the thread that reads and for the handler of interrupts."""

    def __init__(self) -> None:
        self.assignment: Assignment | None = None
        self.asked: Ask | None = None
        self.news: News | None = None
        self.cancel: Callable[[], object] | None = None  # how a coroutine is stopped

    def reason(self) -> JobInterrupted | None:
        """Why the attempt that runs now shall be interrupted; once for each."""
        one, asked = self.assignment, self.asked
        if one is None or asked is None or asked.lease != one.lease or one.stopped_by is not None:
            return None
        one.stopped_by = reason = JobInterrupted(asked.reason)
        return reason


class MainThread:
    """The thread that runs jobs. While it is in a region of `forebay.interrupts` the handler of the signal
    raises nothing; it runs on this very thread, so there is nobody else to agree with."""

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


class Child:
    """Two threads: this one runs jobs, the other reads what the worker says."""

    def __init__(self, connection: socket) -> None:
        self._connection = connection
        self._line = Line(connection)
        self._voice = LineVoice(self._line, self._catch_up)
        self._jobs: SimpleQueue[Run | None] = SimpleQueue()
        self._current = Current()
        self._hiding = MainThread(self._catch_up)
        self._frames = Frames()
        self._pieces: list[bytes] = []

    def work(self) -> int:
        hello = self._first()
        be_interruptible(self._hiding)
        defer_interrupts_in_logging()
        signal.signal(INTERRUPT, self._interrupted)
        if hello.origin.logs is not None:
            hello.origin.logs.set_up()
            name_jobs_in_logs()
        Thread(target=self._listen, name="forebay-worker-line", daemon=True).start()
        finding = Finding(hello.origin)
        try:
            app = finding.app(hello.place)
            app.registry.hooks.start()
        except BaseException as exc:  # the program's own code, which may raise anything
            self._line.send(Broken(attempt_error(exc)))
            return 1
        self._line.send(Ready(resident()))
        while (run := self._jobs.get()) is not None:
            self._run(run, finding)
        app.registry.hooks.stop()
        return 0

    # The thread that reads

    def _first(self) -> Hello:
        """The worker begins; it says nothing else before we are ready."""
        while not self._pieces:
            self._pieces += self._frames.feed(self._received())
        message = to_child(self._pieces.pop(0))
        assert isinstance(message, Hello)  # noqa: S101 - there is one worker, of our own version
        return message

    def _received(self) -> bytes:
        piece = self._connection.recv(BUFFER)
        if not piece:
            # The worker is gone. Whatever the task has started goes too.
            os.killpg(0, signal.SIGKILL)
        return piece

    def _listen(self) -> None:
        try:
            while True:
                for body in self._pieces or self._frames.feed(self._received()):
                    self._hear(to_child(body))
                self._pieces = []
        except BaseException:
            # Deaf, it could be told nothing more, and nobody would know.
            os._exit(ORPHANED)

    def _hear(self, message: ToChild) -> None:
        if isinstance(message, Run):
            self._current.news = None
            self._jobs.put(message)
        elif isinstance(message, Bye):
            self._jobs.put(None)
        elif isinstance(message, Answer):
            self._voice.hear(message)
        elif isinstance(message, News):
            # Written first and then told; the main thread first says what it runs and then looks for news. So
            # what comes while a job is on its way from one thread to the other is told by one of the two.
            self._current.news = message
            self._tell()
        elif isinstance(message, Ask):
            self._current.asked = message
            cancel = self._current.cancel
            if cancel is not None:
                with suppress(RuntimeError):  # its event loop has just been closed
                    cancel()
            else:
                # A signal and no asynchronous exception: it also ends a sleep, or a wait for a socket.
                signal.pthread_kill(main_thread().ident or 0, INTERRUPT)

    def _tell(self) -> None:
        one, news = self._current.assignment, self._current.news
        if one is None or news is None:
            return
        context = one.context
        if news.cancel_reason is not None:
            context.tell_cancelled(news.cancel_reason)
        if news.is_overdue:
            context.tell_overdue()
        if news.lost_because is not None:
            context.tell_lost(news.lost_because)
        elif news.renewed_at is not None and not news.failures:
            context.tell_regained(news.renewed_at)  # the worker knows what is lost
        for _ in range(news.failures - context.renewals.failures):
            context.tell_in_doubt()

    # The main thread

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        if not self._line.is_busy:
            self._catch_up()

    def _catch_up(self) -> None:
        """Raise what was asked for, if the call that it is meant for still runs and is not in a region."""
        if self._hiding.is_hidden:
            return
        if self._current.cancel is None and (reason := self._current.reason()) is not None:
            raise reason

    def _run(self, run: Run, finding: Finding) -> None:
        job = from_dict(Job, run.job)
        try:
            invoke = Invoke(finding.app(run.place).registry)
        except BaseException as exc:  # the program's own code, which may raise anything
            self._report(run, Failed(attempt_error(exc)), is_spent=True)
            return
        assignment = Assignment(job, monotonic())
        assignment.context.voice = self._voice
        self._voice.begin(run.number, assignment.context)
        is_spent = False
        try:
            # What a job sets in context variables is its own affair.
            outcome = Context().run(self._outcome, invoke, assignment, run.memory)
        except BaseException as exc:  # a coroutine that has stopped its event loop, for example
            outcome, is_spent = Failed(attempt_error(exc)), True
        self._voice.end()
        is_over = run.memory is not None and _wanted_memory(outcome)
        if is_over and isinstance(outcome, (Failed, Discarded)):
            outcome = replace(outcome, error=out_of_memory(run.memory or 0, outcome.error.traceback))
        self._report(run, outcome, is_spent=is_spent or is_over)

    def _report(self, run: Run, outcome: Outcome, *, is_spent: bool) -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # it is the task's own now, and may be closed
                stream.flush()
        try:
            self._line.send(ended(run.number, outcome, resident(), is_spent))
        except OSError:
            os._exit(ORPHANED)  # the task has closed what is ours
        except Exception as exc:
            # It is too large, or has a text that nobody can write; nothing of it was sent.
            self._line.send(ended(run.number, Failed(attempt_error(exc)), resident(), is_spent))

    def _outcome(self, invoke: Invoke, assignment: Assignment, memory: int | None) -> Outcome:
        invoke.announce(assignment)
        if invoke.is_async(assignment.job.task):
            import asyncio  # noqa: PLC0415 - most programs have no coroutine tasks

            return asyncio.run(self._awaited(invoke, assignment, memory))
        call: Call | None = None
        value: Any = None
        raised: BaseException | None = None
        with limited(memory):
            # An interrupt is raised by the handler of a signal, on this very thread, and only while there is
            # an assignment. Python runs handlers when a function begins, after a call and when a loop goes
            # round; between the end of this block and the line after it there is nothing of that kind.
            try:
                self._current.assignment = assignment
                self._tell()
                self._catch_up()  # asked before the job was taken
                call = invoke.prepared(assignment)
                value = call.func(*call.args, **call.kwargs)
            except BaseException as exc:
                raised = exc
            self._current.assignment = None
        return invoke.ended(assignment, call, value, raised)

    async def _awaited(self, invoke: Invoke, assignment: Assignment, memory: int | None) -> Outcome:
        import asyncio  # noqa: PLC0415 - as above

        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        current = self._current

        def stop() -> None:
            if task is not None and current.reason() is not None:
                task.cancel()

        current.cancel = lambda: loop.call_soon_threadsafe(stop)
        current.assignment = assignment
        self._tell()
        loop.call_soon(stop)  # asked before the job was taken
        try:
            with limited(memory):
                return await invoke.awaited(assignment)
        finally:
            current.assignment = None
            current.cancel = None


def _wanted_memory(outcome: Outcome) -> bool:
    """By name, since libraries have errors of their own for it, derived from Python's."""
    return isinstance(outcome, (Failed, Discarded)) and outcome.error.type.endswith("MemoryError")
