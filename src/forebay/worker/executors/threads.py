"""Blocking tasks on long-lived threads."""

from __future__ import annotations

import ctypes
import os
import sys
from contextvars import Context
from queue import SimpleQueue
from threading import Lock, Thread, get_ident
from typing import Any, Final
from weakref import WeakSet

from forebay.app.current import is_touched
from forebay.clock import Clock
from forebay.domain.outcome import Interrupted, Outcome
from forebay.interrupts import be_interruptible
from forebay.telemetry.logs import defer_interrupts_in_logging
from forebay.worker.executors.hiding import TaskThread
from forebay.worker.inbox import Inbox
from forebay.worker.invoke import Call, Invoke
from forebay.worker.slots import Assignment, Kind

# A task that forks comes back in both processes. In the copy there is no coordinator to report to, and a
# thread that waited for the next job there would keep it alive for ever, with the locks that both share.
_started: Final[WeakSet[ThreadExecutor]] = WeakSet()

_CALLS_ON_ALL: Final = sys.version_info < (3, 13)


def _note_fork() -> None:
    for executor in _started:
        executor.is_copy = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


class Seat:
    """One thread, and what it runs now. Whoever interrupts it holds the lock."""

    def __init__(self) -> None:
        self.lock: Lock = Lock()
        self.thread: int = get_ident()
        self.assignment: Assignment | None = None
        self.hiding = TaskThread(_raise_in)


class ThreadExecutor:
    """A fixed number of threads on one queue; no future and no timer per job."""

    kind = Kind.CALLS

    def __init__(self, threads: int, invoke: Invoke, inbox: Inbox, clock: Clock) -> None:
        self._invoke = invoke
        self._inbox = inbox
        self._now = clock.monotonic
        self.is_copy = False  # made by a fork
        self._waiting: SimpleQueue[Assignment | None] = SimpleQueue()
        self._threads = [
            Thread(target=self._work, name=f"forebay-task-{number}", daemon=True) for number in range(threads)
        ]

    def start(self) -> None:
        _started.add(self)
        defer_interrupts_in_logging()
        for thread in self._threads:
            thread.start()

    def submit(self, assignment: Assignment) -> None:
        self._waiting.put(assignment)

    def interrupt(self, assignment: Assignment, reason: BaseException) -> None:
        """Raise at the thread's next bytecode. Code that waits in C hears of it when it comes back."""
        seat = assignment.seat
        if isinstance(seat, Seat):
            with seat.lock:
                # Under the lock, because the thread may just be leaving this job for the next one, which
                # must not be hit.
                if seat.assignment is assignment:
                    if assignment.stopped_by is None:
                        assignment.stopped_by = reason
                    seat.hiding.interrupt(type(reason))  # not while it is in code of ours

    def close(self) -> None:
        for _ in self._threads:
            self._waiting.put(None)

    def _work(self) -> None:
        seat = Seat()
        be_interruptible(seat.hiding)
        # What a job sets in context variables (fields for its logs, a decimal precision) is its own affair:
        # the next job must not see it. Few do, so a context is left only after one that did: the look costs
        # 60 ns a job, a new context for each would cost 150.
        while Context().run(self._work_until_touched, seat):
            pass

    def _work_until_touched(self, seat: Seat) -> bool:
        """Run jobs until one leaves something behind in the context; false when there are no more."""
        while (assignment := self._waiting.get()) is not None:
            if assignment.take():  # else it was handed back before it was started
                self._inbox.put(assignment, self._run(seat, assignment))
                if self.is_copy:
                    os._exit(0)
                if is_touched():
                    return True
        return False

    def _run(self, seat: Seat, assignment: Assignment) -> Outcome:
        now = self._now()
        # With too little left of its lease somebody else may have the job already.
        if now > assignment.start_by or not assignment.began(now):
            return Interrupted(started=False)
        self._invoke.announce(assignment)
        call: Call | None = None
        value: Any = None
        raised: BaseException | None = None
        # An interrupt is raised between the two lines that write `seat.assignment` and heard inside one of
        # these two blocks. CPython listens when a function begins, after a call and when a loop goes round;
        # between the blocks there is nothing of that kind, so it cannot slip out there, and nothing but the
        # making of the arguments, which is code of the program's own too, and the call itself is cut short.
        # tests/worker/executors/test_interrupts.py tries.
        try:
            seat.assignment = assignment
            assignment.seat = seat
            call = self._invoke.prepared(assignment)
            value = call.func(*call.args, **call.kwargs)
        except BaseException as exc:
            raised = exc
        seat.assignment = None  # from here on no interrupt begins
        try:
            with seat.lock:  # one that had begun before is finished now
                if assignment.stopped_by is not None:
                    _raise_in(seat.thread, None)  # takes back what was raised and has not arrived yet
        except BaseException:  # noqa: S110 - it has arrived after all, and the call is over
            pass
        seat.hiding.start_over()  # what was deferred and not raised is not for what follows
        assignment.ended_at = self._now()
        try:
            return self._invoke.ended(assignment, call, value, raised)
        finally:
            raised = None  # its traceback holds this frame, and what the task had in its hands


class _Heard(BaseException):
    """Raised by a thread in itself."""


def _raise_in(thread: int | ctypes.c_ulong, kind: type[BaseException] | None) -> bool:
    """Raise in this thread; false if there is none."""
    raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
    target = ctypes.c_ulong(thread) if isinstance(thread, int) else thread
    is_there = bool(raise_in(target, ctypes.py_object() if kind is None else ctypes.py_object(kind)))
    if not (is_there and _CALLS_ON_ALL):
        return is_there
    # Before 3.13 this calls on all threads to listen, until one has heard something. While the one that is
    # meant sleeps in C nobody does: all others listen at every step, and one that is traced or profiled
    # goes round in circles, because it listens before a step and then begins that step anew. So we hear
    # something ourselves, and that ends the call. The other thread misses nothing: it is in C or waits for
    # the interpreter, and whoever gets that back looks for what was raised meanwhile.
    try:
        raise_in(ctypes.c_ulong(get_ident()), ctypes.py_object(_Heard))
        while True:
            pass
    except _Heard:
        pass
    except BaseException:  # a signal came first
        raise_in(ctypes.c_ulong(get_ident()), ctypes.py_object())
        raise
    return True
