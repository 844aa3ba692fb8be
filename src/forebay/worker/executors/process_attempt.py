"""One attempt in an isolated process, watched until it has an outcome, by itself or by force."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from math import inf
from queue import SimpleQueue
from socket import socket, socketpair
from threading import Lock, Thread
from typing import Final

from forebay.app.durable_steps import PendingStep
from forebay.app.job_context import ProgressSink
from forebay.domain.outcome import AttemptError, Failed, Outcome
from forebay.errors import StoreUnavailable
from forebay.worker.assigned_job import Assignment
from forebay.worker.executors.child_process import ChildGone, ChildProcess
from forebay.worker.executors.messages import (
    AttemptEnded,
    ChildBroken,
    ChildReady,
    ContextUpdate,
    LoadSteps,
    ProgressReported,
    ProtocolError,
    SaveStep,
    StepReply,
    StopAttempt,
    outcome_of,
)
from forebay.worker.executors.process_memory import out_of_memory, resident_bytes
from forebay.worker.task_invoker import Invoker, JobTimeout, WorkerStopping

TICK_SECONDS: Final = 0.2
# Shorter than the worker waits for interrupted jobs, so that the outcome is still written.
STOP_GRACE_SECONDS: Final = 2.0


class ProcessSlot:
    """One thread with its process, and the attempt that runs there now. Requests to stop it hold the lock."""

    def __init__(self) -> None:
        self.lock: Lock = Lock()
        self.assignment: Assignment | None = None
        self.process: ChildProcess | None = None
        self.failed_starts = 0
        self._stop_requests: list[BaseException] = []
        self.wake_receiver: socket
        self.wake_receiver, self._wake_sender = socketpair()
        for end in (self.wake_receiver, self._wake_sender):
            end.setblocking(False)

    def assign(self, assignment: Assignment) -> None:
        with self.lock:
            self._stop_requests.clear()
            self.assignment = assignment
            assignment.slot = self

    def release(self) -> None:
        """Clear the slot: from here on its attempt cannot be asked to stop."""
        with self.lock:
            if self.assignment is not None:
                self.assignment.slot = None
            self.assignment = None

    def request_stop(self, assignment: Assignment, reason: BaseException) -> None:
        # Under the lock, because the thread may just be leaving this job for the next one.
        with self.lock:
            if self.assignment is not assignment:
                return
            if assignment.stopped_by is None:
                assignment.stopped_by = reason
            self._stop_requests.append(reason)
        self.wake()

    def take_stop_requests(self) -> list[BaseException]:
        """Return the requests since the last call."""
        with self.lock:
            requests, self._stop_requests = self._stop_requests, []
        return requests

    def wake(self) -> None:
        """Wake the thread. If the socket is full, a wake-up is pending already."""
        with suppress(OSError):
            self._wake_sender.send(b"!")

    def close(self) -> None:
        self.wake_receiver.close()
        self._wake_sender.close()


class ProcessAttempt:
    """One attempt that a process was told to run. Used by the slot's own thread.

    Nothing here waits for the coordinator, which may be held up by a store. The time limit and the grace of a
    job that was asked to stop are kept by this thread alone.
    """

    def __init__(
        self,
        slot: ProcessSlot,
        process: ChildProcess,
        assignment: Assignment,
        *,
        invoke: Invoker,
        now: Callable[[], float],
        is_closing: Callable[[], bool],
        grace: float,
        memory_limit: int | None,
    ) -> None:
        self._slot = slot
        self._process = process
        self._assignment = assignment
        self._invoke = invoke
        self._now = now
        self._is_closing = is_closing
        self._grace = grace
        self._memory_limit = memory_limit
        self._run_number = process.jobs
        self._sent_update = ContextUpdate()
        self._replies: SimpleQueue[StepReply] = SimpleQueue()
        self._pending_steps: list[tuple[int, PendingStep]] = []
        limit, started_at = assignment.job.timeout_ms, assignment.started_at or now()
        self._timeout_at = inf if limit is None else started_at + limit / 1_000
        self._kill_at = inf

    def wait_for_outcome(self) -> Outcome:
        try:
            while True:
                for message in self._process.listen(self._poll_seconds(), self._slot.wake_receiver):
                    # A thread that an earlier job has left behind may still report.
                    if isinstance(message, (ChildReady, ChildBroken)) or message.run != self._run_number:
                        continue
                    if isinstance(message, AttemptEnded):
                        return self._accept_outcome(message)
                    self._handle(message)
                if (forced := self._kill_if_over_limit()) is not None:
                    return forced
                self._send_updates()
        except ChildGone:
            return self._outcome_of_death(self._process.end())
        except ProtocolError as exc:
            self._process.end()
            return self._outcome_of_death(f"the isolated process sent an invalid message: {exc}")

    def _poll_seconds(self) -> float:
        return min(TICK_SECONDS, min(self._timeout_at, self._kill_at) - self._now())

    def _accept_outcome(self, message: AttemptEnded) -> Outcome:
        outcome = outcome_of(message)
        self._process.must_not_be_reused |= message.must_not_be_reused
        self._process.resident = message.resident
        return outcome

    def _handle(self, message: ProgressReported | SaveStep | LoadSteps) -> None:
        """Pass the task's progress on to the buffer of all tasks."""
        context = self._assignment.context
        sink = context.progress_sink
        if isinstance(message, ProgressReported) and sink is not None:
            for item in (message.progress, message.line):
                if item is not None:
                    sink.add(context, item)
        elif isinstance(message, SaveStep):
            self._save_step(message, sink)
        elif isinstance(message, LoadSteps):
            # On a thread of its own: a store call may take long, and this thread has a time limit to watch.
            loader = Thread(
                target=self._load_steps, args=[message.number, sink], name="forebay-recall", daemon=True
            )
            loader.start()

    def _save_step(self, message: SaveStep, sink: ProgressSink | None) -> None:
        if sink is None:
            self._enqueue_reply(StepReply(message.number))
            return
        # The answer comes on another thread, perhaps before `save_step` has returned; it only wakes this one.
        pending = sink.save_step(self._assignment.context, message.step, self._slot.wake)
        self._pending_steps.append((message.number, pending))

    def _load_steps(self, number: int, sink: ProgressSink | None) -> None:
        try:
            steps = {} if sink is None else dict(sink.steps(self._assignment.context))
            self._enqueue_reply(StepReply(number, steps=steps))
        except StoreUnavailable as exc:
            self._enqueue_reply(StepReply(number, unavailable=str(exc)))
        except Exception as exc:
            # Whatever it is, the task waits for a reply, and raises it.
            self._enqueue_reply(StepReply(number, error=f"{type(exc).__name__}: {exc}"))

    def _enqueue_reply(self, reply: StepReply) -> None:
        """Enqueue a reply, from any thread; the slot's own thread sends it."""
        self._replies.put(reply)
        self._slot.wake()

    def _send_updates(self) -> None:
        """Send the state of the context, replies, and requests to stop."""
        requests = self._slot.take_stop_requests()
        self._send_context_update()
        while not self._replies.empty():
            self._process.post(self._replies.get())
        for pending in self._pending_steps[:]:
            if pending[1].wait(0):
                self._pending_steps.remove(pending)
                self._process.post(StepReply(pending[0], refused=pending[1].refusal))
        now = self._now()
        for reason in requests:
            if isinstance(reason, JobTimeout):
                self._timeout_at = now
                continue
            is_hurried = isinstance(reason, WorkerStopping)
            grace = min(STOP_GRACE_SECONDS, self._grace) if is_hurried else self._grace
            self._kill_at = min(self._kill_at, now + grace)
            self._process.post(StopAttempt(self._assignment.lease, str(reason)))

    def _send_context_update(self) -> None:
        context = self._assignment.context
        renewals = context.renewals
        update = ContextUpdate(
            cancel_reason=context.cancel_reason,
            is_overdue=context.is_past_soft_timeout,
            renewed_at=renewals.renewed_at,
            failures=renewals.failures,
            lost_because=renewals.lost_because,
        )
        if update != self._sent_update:
            self._sent_update = update
            self._process.post(update)

    def _kill_if_over_limit(self) -> Outcome | None:
        """Return the outcome of an attempt that has used up its time or its memory; the process is dead
        then."""
        now = self._now()
        if now >= self._timeout_at:
            limit = (self._assignment.job.timeout_ms or 0) / 1_000
            return self._kill(JobTimeout(f"ran longer than {limit:g} s"))
        if now >= self._kill_at or self._is_closing():
            return self._kill(WorkerStopping("the worker stops"))
        if self._memory_limit is not None and self._has_grown(self._memory_limit):
            self._process.end()
            return Failed(out_of_memory(self._memory_limit))
        return None

    def _kill(self, reason: BaseException) -> Outcome:
        with self._slot.lock:  # first: a request that comes while it dies is too late
            if self._assignment.stopped_by is None:
                self._assignment.stopped_by = reason
        self._process.end()
        return self._invoke.stopped_outcome(self._assignment)

    def _has_grown(self, memory: int) -> bool:
        """Return whether it has taken more memory than allowed. Where address space can be limited, that
        limit comes first, and the task gets a MemoryError."""
        before, resident = self._process.resident, resident_bytes(self._process.pid)
        return before is not None and resident is not None and resident > before + memory

    def _outcome_of_death(self, description: str) -> Outcome:
        if self._assignment.stopped_by is not None:
            return self._invoke.stopped_outcome(self._assignment)
        return Failed(process_died_error(description))


def process_died_error(description: str) -> AttemptError:
    return AttemptError(type="ProcessDied", message=description)
