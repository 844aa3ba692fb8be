"""Progress that a task in an isolated process reports, on its way to the worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Final

from forebay.app.durable_steps import PendingStep
from forebay.app.job_context import JobContext
from forebay.domain.lease import Lease
from forebay.domain.progress import LogLine, Progress, StepResult
from forebay.errors import StoreError, StoreUnavailable
from forebay.worker.executors.child_connection import ChildConnection
from forebay.worker.executors.messages import (
    LoadSteps,
    ProgressReported,
    SaveStep,
    StepReply,
)

SLICE_SECONDS: Final = 0.05
NO_RUN: Final = -1


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
