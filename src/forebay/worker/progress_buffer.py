"""What running jobs say about themselves, on its way to the store."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from math import inf
from typing import Final

from msgspec.structs import replace

from forebay.app.context import JobContext
from forebay.app.progress import PendingStep
from forebay.clock import Clock
from forebay.domain.lease import Lease
from forebay.domain.progress import MAX_LINES, LogLine, Progress, ProgressUpdate, StepResult
from forebay.interrupts import uninterrupted
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.values import LeaseRefusal
from forebay.worker.slots import Assignment

EVERY_SECONDS: Final = 1.0
# An exchange with a note whose row is locked may wait 4 s for the lock (twice `lock_timeout`), and all that
# the worker has to settle with it. So the pauses between two attempts grow.
FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 5.0


class AttemptBuffer:
    """The words of one attempt. The first three are filled by any thread and emptied by the coordinator; the
    others are the coordinator's own: what it has offered to the store and not heard about."""

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
        self.has_ended: bool = False  # what is left goes with the settlement, and not before
        self.pause: float = 0.0
        self.paused_until: float = -inf
        self.sent_at: float = -inf
        self.sent: Progress | None = None
        self.offered: Progress | None = None
        self.lines_taken: int = 0
        self.offered_lines: list[LogLine] = []
        self.offered_steps: list[tuple[StepResult, PendingStep]] = []

    def due_at(self) -> float:
        """From when on it may be written; a step at once, since somebody waits for it. A job that its task
        has completed in a transaction of its own is locked until that ends, so its words wait for its end."""
        if self.has_ended:
            return inf
        if self.steps or self.offered_steps:
            return self.paused_until
        return (
            inf if self.context.is_completed_in_tx else max(self.paused_until, self.sent_at + EVERY_SECONDS)
        )

    def build_update(self, lease: Lease) -> ProgressUpdate | None:
        """All that the store does not know yet, with what it may not have got the last time."""
        lines, steps = self.lines, self.steps
        # Numbered here, where there is one thread: the store knows by the number what it has got already.
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
        answered, self.offered_steps = self.offered_steps, []
        for _, pending in answered:
            pending.answer(refused)

    def postpone(self, now: float) -> None:
        """Another transaction holds the row: offer all of it again after a pause."""
        self.pause = min(LONGEST_PAUSE_SECONDS, max(FIRST_PAUSE_SECONDS, self.pause * 2))
        self.paused_until = now + self.pause

    def end(self, reason: str) -> None:
        """Nobody will write any more of it. Whoever waits, or comes too late, hears that.

        First the flag, then the look; `ProgressBuffer.keep` adds first and then looks at the flag. So a step
        is seen
        by one of the two, and being answered twice does it no harm.
        """
        self.is_over = True
        waiting = [*self.offered_steps, *(self.steps.popleft() for _ in range(len(self.steps)))]
        for _, pending in waiting:
            pending.answer(reason)


class ProgressBuffer:
    """Collects words from any thread and hands them to the coordinator: latest progress, last lines, at most
    one write a second for each attempt, except for steps. Jobs that say nothing cost nothing.

    There is no lock. Every change is one operation on a dict or a deque. A speaker first adds and then looks
    whether its attempt is listed as one with news; the coordinator takes it off that list first and then
    empties it. So no word is left behind; no interrupt comes between the two.
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
        """Keep this with the job, soon."""
        if (
            context.is_lease_lost
        ):  # a thread that a job has left behind would have the store asked without end
            return
        with uninterrupted:
            lease, said = self._buffer_of(context)
            if isinstance(item, Progress):
                said.progress = item
            else:
                said.lines.append(item)
            if lease not in self._dirty:
                self._dirty[lease] = said
                self._notify()

    def save_step(
        self, context: JobContext, step: StepResult, on_saved: Callable[[], object] | None = None
    ) -> PendingStep:
        """Store a step; the answer comes when it is committed, or refused."""
        with uninterrupted:
            lease, said = self._buffer_of(context)
            pending = PendingStep(on_saved)
            said.steps.append((step, pending))
            self._dirty[lease] = said
            self._notify()  # always: it may be listed already, for later
            if said.is_over or self._is_closed:
                pending.answer("the attempt is over")
        return pending

    def steps(self, context: JobContext) -> Mapping[str, bytes]:
        """What earlier attempts have done; read with a handle for this one look, since handles belong to one
        thread and this one may be interrupted."""
        if self._open_reader is None:
            return {}
        with uninterrupted, closing(self._open_reader()) as reader:
            return {step.name: step.result for step in reader.progress(context.id).steps}

    def _buffer_of(self, context: JobContext) -> tuple[Lease, AttemptBuffer]:
        lease = Lease(context.id, context.attempt)
        return lease, self._buffers.get(lease) or self._buffers.setdefault(lease, AttemptBuffer(context))

    # The coordinator

    def take_updates(self, ended: Iterable[Assignment]) -> list[ProgressUpdate]:
        """What is to be written now; all that is left of attempts that have ended."""
        if not self._buffers:
            return []
        now = self._now()
        due = [lease for lease, said in list(self._dirty.items()) if said.due_at() <= now]
        ending = {one.lease for one in ended}
        for lease in (*due, *ending):
            self._dirty.pop(lease, None)
            if lease in self._buffers:
                self._offered[lease] = said = self._buffers[lease]
                said.has_ended = said.has_ended or lease in ending
        for lease, said in list(self._offered.items()):
            # Offered in vain before, and locked since: all that this worker has to settle would wait for it.
            if lease not in ending and said.due_at() == inf:
                self._dirty[lease] = self._offered.pop(lease)
        notes = [(lease, said.build_update(lease)) for lease, said in self._offered.items()]
        self._offered = {lease: self._offered[lease] for lease, note in notes if note is not None}
        return [note for _, note in notes if note is not None]

    def confirm(self, refused_updates: Iterable[LeaseRefusal], busy: Collection[Lease] = ()) -> None:
        """The store has answered what was taken: it keeps all but these, whose leases are lost. What is busy
        has no answer yet and is offered again later; the store knows it if it was kept after all.

        Without an answer nothing is lost: the next `take` offers it again, with what has come since. If only
        the answer was lost, the store knows these lines by their numbers.
        """
        refused = {refusal.lease: refusal.reason for refusal in refused_updates}
        offered, self._offered = self._offered, {}
        now = self._now()
        for lease, said in offered.items():
            if lease in busy:
                said.postpone(now)
                self._dirty[lease] = said
                continue
            reason = refused.get(lease)
            if reason is not None:
                said.context.mark_lease_lost(reason)  # first: whoever hears the answer may ask the context
            said.confirm(reason, now)
            if reason is not None:
                self._forget(lease)

    def forget(self, ended: Iterable[Assignment]) -> None:
        """These attempts have ended and are settled."""
        if self._buffers:
            for one in ended:
                self._forget(one.lease)

    def _forget(self, lease: Lease) -> None:
        said = self._buffers.pop(lease, None)
        self._dirty.pop(lease, None)
        if said is not None:
            said.end("the attempt is over")

    def next_at(self) -> float:
        """When there will be something to write."""
        return min((said.due_at() for said in list(self._dirty.values())), default=inf)

    def close(self) -> None:
        """The worker has ended: nobody waits any longer."""
        self._is_closed = True
        for said in list(self._buffers.values()):
            said.end("the worker has stopped")
