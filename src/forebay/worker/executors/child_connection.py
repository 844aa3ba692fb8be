"""Connection of an isolated process to its worker, and the progress that the task reports over it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from itertools import count
from socket import socket
from threading import Lock, get_ident, main_thread
from typing import Final

from forebay.app.durable_steps import PendingStep
from forebay.app.job_context import JobContext
from forebay.domain.lease import Lease
from forebay.domain.progress import LogLine, Progress, StepResult
from forebay.errors import StoreError, StoreUnavailable
from forebay.worker.executors.messages import (
    FromChild,
    LoadSteps,
    ProgressReported,
    SaveStep,
    StepReply,
    encode_frame,
)

SLICE_SECONDS: Final = 0.05
NO_RUN: Final = -1
# Ignored by processes that do not handle it, and hardly used by programs.
INTERRUPT: Final = signal.SIGURG


class ChildConnection:
    """Sends complete messages. While the main thread sends, an interrupt waits: it would cut a message in
    two."""

    def __init__(self, connection: socket) -> None:
        self._connection = connection
        self._lock = Lock()
        self._owner = os.getpid()
        self._main = main_thread().ident
        self.is_busy: bool = False

    @property
    def is_main_thread(self) -> bool:
        """Whether this is the main thread, the target of interrupts."""
        return get_ident() == self._main

    def send(self, message: FromChild) -> None:
        if os.getpid() != self._owner:
            os._exit(0)  # a copy that the task has forked must not send
        frame = encode_frame(message)
        if not self.is_main_thread:
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


class ChildProgressSink:
    """Sends a task's progress to the worker, which stores it. Messages carry the number of the run: a thread
    that an earlier job has left behind may still report, and is ignored."""

    def __init__(self, connection: ChildConnection, catch_up: Callable[[], None]) -> None:
        self._connection = connection
        self._catch_up = catch_up
        self._numbers = count()
        self._runs: dict[Lease, int] = {}
        self._pending: dict[int, PendingStep] = {}
        self._replies: dict[int, StepReply] = {}

    def begin(self, run: int, context: JobContext) -> None:
        self._runs = {_lease(context): run}

    def end(self) -> None:
        """End the attempt, and refuse steps that still wait."""
        self._runs = {}
        for number in list(self._pending):
            self.deliver(StepReply(number, refused="the attempt is over"))
        self._replies.clear()

    def add(self, context: JobContext, item: Progress | LogLine) -> None:
        run = self._run_number(context)
        if run == NO_RUN:
            return
        self._send(
            ProgressReported(run, progress=item)
            if isinstance(item, Progress)
            else ProgressReported(run, line=item)
        )

    def save_step(
        self, context: JobContext, step: StepResult, on_saved: Callable[[], object] | None = None
    ) -> PendingStep:
        number, pending = next(self._numbers), PendingStep(on_saved)
        self._pending[number] = pending
        run = self._run_number(context)
        if run == NO_RUN:
            self.deliver(StepReply(number, refused="the attempt is over"))
        else:
            self._send(SaveStep(run, number, step))
        return pending

    def steps(self, context: JobContext) -> Mapping[str, bytes]:
        run = self._run_number(context)
        if run == NO_RUN:
            return {}
        number, pending = next(self._numbers), PendingStep()
        self._pending[number] = pending
        self._send(LoadSteps(run, number))
        while not pending.wait(SLICE_SECONDS):  # in slices: an interrupt is heard between two of them
            pass
        reply = self._replies.pop(number, StepReply(number))
        if reply.unavailable is not None:
            raise StoreUnavailable(reply.unavailable)
        if reply.error is not None:
            raise StoreError(f"the steps of earlier attempts cannot be read: {reply.error}")
        return reply.steps

    def deliver(self, reply: StepReply) -> None:
        """Pass a reply to the thread that waits for it. From the thread that reads."""
        pending = self._pending.pop(reply.number, None)
        if pending is not None:
            self._replies[reply.number] = reply
            pending.answer(reply.refused)

    def _run_number(self, context: JobContext) -> int:
        return self._runs.get(_lease(context), NO_RUN)

    def _send(self, message: ProgressReported | SaveStep | LoadSteps) -> None:
        self._connection.send(message)
        if self._connection.is_main_thread:
            self._catch_up()


def _lease(context: JobContext) -> Lease:
    return Lease(context.id, context.attempt)
