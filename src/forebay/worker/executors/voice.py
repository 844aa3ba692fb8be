"""In an isolated process: the connection to the worker, and the words of the task that go over it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from itertools import count
from socket import socket
from threading import Lock, get_ident, main_thread
from typing import Final

from forebay.app.context import JobContext
from forebay.app.saying import Pending
from forebay.domain.lease import Lease
from forebay.domain.note import LogLine, Progress, Step
from forebay.errors import StoreError, StoreUnavailable
from forebay.worker.executors.wire import Answer, FromChild, Keep, Recall, Said, framed

SLICE_SECONDS: Final = 0.05
NOBODY: Final = -1
# Ignored where nobody listens, and used by hardly anybody.
INTERRUPT: Final = signal.SIGURG


class Line:
    """Sends whole messages. While the main thread does, an interrupt waits: it would cut one in two."""

    def __init__(self, connection: socket) -> None:
        self._connection = connection
        self._lock = Lock()
        self._owner = os.getpid()
        self._main = main_thread().ident
        self.is_busy: bool = False

    @property
    def is_mine(self) -> bool:
        """Whether this is the main thread, the one that interrupts are for."""
        return get_ident() == self._main

    def send(self, message: FromChild) -> None:
        if os.getpid() != self._owner:
            os._exit(0)  # a copy that the task has forked has nothing to say here
        frame = framed(message)
        if not self.is_mine:
            self._send(frame)
            return
        self.is_busy = True
        try:
            self._send(frame)
        finally:
            self.is_busy = False

    def _send(self, frame: bytes) -> None:
        with self._lock:
            self._connection.sendall(frame)


class LineVoice:
    """What a task says goes to the worker, which stores it. The number of the run goes along: a thread that
    an earlier job has left behind may still talk, and nobody listens to it."""

    def __init__(self, line: Line, catch_up: Callable[[], None]) -> None:
        self._line = line
        self._catch_up = catch_up
        self._numbers = count()
        self._runs: dict[Lease, int] = {}
        self._pending: dict[int, Pending] = {}
        self._recalled: dict[int, Answer] = {}

    def begin(self, run: int, context: JobContext) -> None:
        self._runs = {_lease(context): run}

    def end(self) -> None:
        """The attempt is over, and whoever it has left waiting hears that."""
        self._runs = {}
        for number in list(self._pending):
            self.hear(Answer(number, refused="the attempt is over"))
        self._recalled.clear()

    def say(self, context: JobContext, what: Progress | LogLine) -> None:
        run = self._run(context)
        if run == NOBODY:
            return
        self._send(Said(run, progress=what) if isinstance(what, Progress) else Said(run, line=what))

    def keep(self, context: JobContext, step: Step, tell: Callable[[], object] | None = None) -> Pending:
        number, pending = next(self._numbers), Pending(tell)
        self._pending[number] = pending
        run = self._run(context)
        if run == NOBODY:
            self.hear(Answer(number, refused="the attempt is over"))
        else:
            self._send(Keep(run, number, step))
        return pending

    def steps(self, context: JobContext) -> Mapping[str, bytes]:
        run = self._run(context)
        if run == NOBODY:
            return {}
        number, pending = next(self._numbers), Pending()
        self._pending[number] = pending
        self._send(Recall(run, number))
        while not pending.wait(SLICE_SECONDS):  # in slices: an interrupt is heard between two of them
            pass
        answer = self._recalled.pop(number, Answer(number))
        if answer.unavailable is not None:
            raise StoreUnavailable(answer.unavailable)
        if answer.error is not None:
            raise StoreError(f"the steps of earlier attempts cannot be read: {answer.error}")
        return answer.steps

    def hear(self, answer: Answer) -> None:
        """From the thread that reads."""
        pending = self._pending.pop(answer.number, None)
        if pending is not None:
            self._recalled[answer.number] = answer
            pending.answer(answer.refused)

    def _run(self, context: JobContext) -> int:
        return self._runs.get(_lease(context), NOBODY)

    def _send(self, message: Said | Keep | Recall) -> None:
        self._line.send(message)
        if self._line.is_mine:
            self._catch_up()


def _lease(context: JobContext) -> Lease:
    return Lease(context.id, context.attempt)
