"""Progress, log lines and steps of running jobs, buffered for the store."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from math import inf
from typing import Final

from msgspec.structs import replace

from forebay.app.durable_steps import PendingStep
from forebay.app.job_context import JobContext
from forebay.clock import Clock
from forebay.deferred_interrupts import uninterrupted
from forebay.domain.lease import Lease
from forebay.domain.progress import MAX_LINES, LogLine, Progress, ProgressUpdate, StepResult
from forebay.stores.contract.claims_and_results import LeaseRefusal
from forebay.stores.contract.reader import Reader
from forebay.worker.assigned_job import Assignment

EVERY_SECONDS: Final = 1.0
# A round trip with an update whose row is locked may wait 4 s for the lock (twice `lock_timeout`), with
# everything that the worker has to settle in it. So the pauses between two tries grow.
FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 5.0


class AttemptBuffer:
    """Updates of one attempt.

    `progress`, `lines` and `steps` are filled by any thread and emptied by the coordinator. The others belong
    to the coordinator: what it has offered to the store without an answer yet.
    """

    __slots__ = (
        "context",
        "has_ended",
        "is_over",
        "lines",
        "lines_taken",
        "offered",
        "offered_lines",
        "offered_steps",
        "pause",
        "paused_until",
        "progress",
        "sent",
        "sent_at",
        "steps",
    )

    def __init__(self, context: JobContext) -> None:
        self.context: JobContext = context
        self.progress: Progress | None = None
        self.lines: deque[LogLine] = deque(maxlen=MAX_LINES)
        self.steps: deque[tuple[StepResult, PendingStep]] = deque()
        self.is_over: bool = False
        self.has_ended: bool = False  # the rest goes with the settlement, and not before
        self.pause: float = 0.0
        self.paused_until: float = -inf
        self.sent_at: float = -inf
        self.sent: Progress | None = None
        self.offered: Progress | None = None
        self.lines_taken: int = 0
        self.offered_lines: list[LogLine] = []
        self.offered_steps: list[tuple[StepResult, PendingStep]] = []

    def due_at(self) -> float:
        """Return the time from which it may be written; a step at once, since the task waits for it.

        A job that its task has completed in a caller transaction is locked until that ends, so its updates
        wait for it.
        """
        if self.has_ended:
            return inf
        if self.steps or self.offered_steps:
            return self.paused_until
        return (
            inf if self.context.is_completed_in_tx else max(self.paused_until, self.sent_at + EVERY_SECONDS)
        )

    def build_update(self, lease: Lease) -> ProgressUpdate | None:
        """Return everything that the store does not know yet, including updates that it may not have received
        the last time."""
        lines, steps = self.lines, self.steps
        # Numbered here, on the only thread that does: by the number the store knows a line that it already
        # has.
        for _ in range(len(lines)):
            self.lines_taken += 1
            self.offered_lines.append(replace(lines.popleft(), number=self.lines_taken))
        self.offered_steps += [steps.popleft() for _ in range(len(steps))]
        del self.offered_lines[:-MAX_LINES]
        self.offered = None if self.progress is self.sent else self.progress
        if not (self.offered or self.offered_lines or self.offered_steps):
            return None
        return ProgressUpdate(
            lease=lease,
            progress=self.offered,
            lines=tuple(self.offered_lines),
            steps=tuple(step for step, _ in self.offered_steps),
            queue=self.context.job.queue,
        )

    def confirm(self, refused: str | None, now: float) -> None:
        self.sent_at = now
        self.pause, self.paused_until = 0.0, -inf
        self.sent = self.offered or self.sent
        self.offered_lines = []
        confirmed, self.offered_steps = self.offered_steps, []
        for _, pending in confirmed:
            pending.answer(refused)

    def postpone(self, now: float) -> None:
        """Offer everything again after a pause: another transaction holds the row."""
        self.pause = min(LONGEST_PAUSE_SECONDS, max(FIRST_PAUSE_SECONDS, self.pause * 2))
        self.paused_until = now + self.pause

    def end(self, reason: str) -> None:
        """Refuse all waiting steps, and those that come later: nothing more is written.

        The flag is set first and the queue is read second; `ProgressBuffer.save_step` adds first and then
        reads the flag. So one of the two sees a step, and a second answer to it does no harm.
        """
        self.is_over = True
        waiting = [*self.offered_steps, *(self.steps.popleft() for _ in range(len(self.steps)))]
        for _, pending in waiting:
            pending.answer(reason)


class ProgressBuffer:
    """Collects updates from any thread and hands them to the coordinator: latest progress, last lines.

    There is at most one write a second for each attempt, except for steps. Jobs without updates cost nothing.

    There is no lock. Every change is one operation on a dict or a deque. A task thread first adds its update
    and then checks whether its attempt is listed in `_dirty`; the coordinator removes it from there first and
    then empties it. So no update is left behind; no interrupt comes between the two.
    """

    def __init__(
        self, clock: Clock, notify: Callable[[], None], open_reader: Callable[[], Reader] | None = None
    ) -> None:
        self._now = clock.monotonic
        self._notify = notify
        self._open_reader = open_reader
        self._buffers: dict[Lease, AttemptBuffer] = {}
        self._dirty: dict[Lease, AttemptBuffer] = {}
        self._offered: dict[Lease, AttemptBuffer] = {}
        self._is_closed = False

    # Any thread

    def add(self, context: JobContext, item: Progress | LogLine) -> None:
        """Store this with the job, soon."""
        if context.is_lease_lost:
            return  # else a thread that a job has left behind would cause store calls without end
        with uninterrupted:
            lease, buffer = self._buffer_of(context)
            if isinstance(item, Progress):
                buffer.progress = item
            else:
                buffer.lines.append(item)
            if lease not in self._dirty:
                self._dirty[lease] = buffer
                self._notify()

    def save_step(
        self, context: JobContext, step: StepResult, on_saved: Callable[[], object] | None = None
    ) -> PendingStep:
        """Store a step; the returned object is answered when it is committed, or refused."""
        with uninterrupted:
            lease, buffer = self._buffer_of(context)
            pending = PendingStep(on_saved)
            buffer.steps.append((step, pending))
            self._dirty[lease] = buffer
            self._notify()  # always: it may be listed already, for later
            if buffer.is_over or self._is_closed:
                pending.answer("the attempt is over")
        return pending

    def steps(self, context: JobContext) -> Mapping[str, bytes]:
        """Return the steps of earlier attempts.

        They are read with a handle that is opened for this call: a handle belongs to one thread, and this
        thread may be interrupted.
        """
        if self._open_reader is None:
            return {}
        with uninterrupted, closing(self._open_reader()) as reader:
            return {step.name: step.result for step in reader.progress(context.id).steps}

    def _buffer_of(self, context: JobContext) -> tuple[Lease, AttemptBuffer]:
        lease = Lease(context.id, context.attempt)
        return lease, self._buffers.get(lease) or self._buffers.setdefault(lease, AttemptBuffer(context))

    # The coordinator

    def take_updates(self, ended: Iterable[Assignment]) -> list[ProgressUpdate]:
        """Return the updates to write now, with all that is left of attempts that have ended."""
        if not self._buffers:
            return []
        now = self._now()
        due = [lease for lease, buffer in list(self._dirty.items()) if buffer.due_at() <= now]
        ended_leases = {assignment.lease for assignment in ended}
        for lease in (*due, *ended_leases):
            self._dirty.pop(lease, None)
            if lease in self._buffers:
                self._offered[lease] = buffer = self._buffers[lease]
                buffer.has_ended = buffer.has_ended or lease in ended_leases
        for lease, buffer in list(self._offered.items()):
            # Offered in vain before, and locked since: every settlement of this worker would wait for it.
            if lease not in ended_leases and buffer.due_at() == inf:
                self._dirty[lease] = self._offered.pop(lease)
        updates = [(lease, buffer.build_update(lease)) for lease, buffer in self._offered.items()]
        self._offered = {lease: self._offered[lease] for lease, update in updates if update is not None}
        return [update for _, update in updates if update is not None]

    def confirm(self, refused_updates: Iterable[LeaseRefusal], busy: Collection[Lease] = ()) -> None:
        """Process the store's answer: it has stored all updates but the refused ones, whose leases are lost.
        Busy ones have no answer yet and are offered again later; the store recognises those that it has
        stored after all.

        Without an answer nothing is lost: the next `take_updates` offers them again, with later ones. If only
        the answer was lost, the store recognises the lines by their numbers.
        """
        refused = {refusal.lease: refusal.reason for refusal in refused_updates}
        offered, self._offered = self._offered, {}
        now = self._now()
        for lease, buffer in offered.items():
            if lease in busy:
                buffer.postpone(now)
                self._dirty[lease] = buffer
                continue
            reason = refused.get(lease)
            if reason is not None:
                buffer.context.mark_lease_lost(reason)  # first: a task that hears the answer may read it
            buffer.confirm(reason, now)
            if reason is not None:
                self._forget(lease)

    def forget(self, ended: Iterable[Assignment]) -> None:
        """Drop the buffers of attempts that have ended and are settled."""
        if self._buffers:
            for assignment in ended:
                self._forget(assignment.lease)

    def _forget(self, lease: Lease) -> None:
        buffer = self._buffers.pop(lease, None)
        self._dirty.pop(lease, None)
        if buffer is not None:
            buffer.end("the attempt is over")

    def next_at(self) -> float:
        """Return the time from which there is something to write."""
        return min((buffer.due_at() for buffer in list(self._dirty.values())), default=inf)

    def close(self) -> None:
        """Refuse everything that waits, because the worker has ended."""
        self._is_closed = True
        for buffer in list(self._buffers.values()):
            buffer.end("the worker has stopped")
