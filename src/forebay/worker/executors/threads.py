"""Blocking tasks on long-lived threads."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from queue import SimpleQueue
from threading import Lock, Thread, get_ident
from time import monotonic
from typing import Final

from forebay.domain.outcome import Outcome
from forebay.worker.inbox import Inbox
from forebay.worker.invoke import Invoke, JobInterrupted, JobTimeout, stopped
from forebay.worker.slots import Assignment

_STOPS: Final = (JobTimeout, JobInterrupted)


class Seat:
    """One thread, and what it runs now. The lock is held by whoever interrupts it or leaves it."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.thread = get_ident()
        self.assignment: Assignment | None = None


class ThreadExecutor:
    """A fixed number of threads on one queue; no future and no timer per job."""

    def __init__(self, threads: int, invoke: Invoke, inbox: Inbox) -> None:
        self._invoke = invoke
        self._inbox = inbox
        self._waiting: SimpleQueue[Assignment | None] = SimpleQueue()
        self._threads = [
            Thread(target=self._work, name=f"forebay-task-{number}", daemon=True) for number in range(threads)
        ]

    def start(self) -> None:
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
                    assignment.stopped_by = reason
                    _raise_in(seat.thread, type(reason))

    def close(self) -> None:
        for _ in self._threads:
            self._waiting.put(None)

    def _work(self) -> None:
        seat = Seat()
        while (assignment := self._waiting.get()) is not None:
            if assignment.take():  # else it was handed back before it was started
                self._inbox.put(assignment, self._run(seat, assignment))

    def _run(self, seat: Seat, assignment: Assignment) -> Outcome:
        seat.assignment = assignment
        assignment.started_at = monotonic()
        assignment.seat = seat
        outcome: Outcome | None = None
        with suppress(*_STOPS):  # raised when the call was over, or while its error was written down
            outcome = self._invoke.here(assignment)
        _leave(seat)
        assignment.ended_at = monotonic()
        return stopped(assignment) if outcome is None else outcome


def _leave(seat: Seat) -> None:
    """Say that the seat is free; from then on nobody raises anything in this thread."""
    while True:
        try:
            with seat.lock:
                seat.assignment = None
                _raise_in(seat.thread, None)  # takes back what was raised and has not arrived yet
        except _STOPS:
            continue  # it has arrived right here: leave again
        return


def _raise_in(thread: int, kind: type[BaseException] | None) -> None:
    what = ctypes.py_object() if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), what)
