"""Watching over one attempt in an isolated process until it has an outcome, by its own word or by force."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from math import inf
from queue import SimpleQueue
from socket import socket, socketpair
from threading import Lock, Thread
from typing import Final

from forebay.app.context import Voice
from forebay.app.saying import Pending
from forebay.domain.outcome import AttemptError, Failed, Outcome
from forebay.errors import StoreUnavailable
from forebay.worker.executors.memory import out_of_memory, resident
from forebay.worker.executors.process import Gone, Process
from forebay.worker.executors.wire import (
    Answer,
    Ask,
    Broken,
    Ended,
    Garbled,
    Keep,
    News,
    Ready,
    Recall,
    Said,
    outcome_of,
)
from forebay.worker.invoke import Invoke, JobTimeout, WorkerStops
from forebay.worker.slots import Assignment

TICK_SECONDS: Final = 0.2
# Shorter than the worker waits for what it has interrupted, so that the outcome is still written.
STOP_GRACE_SECONDS: Final = 2.0


class Seat:
    """One thread with its process, and what runs there now. Whoever asks it to stop holds the lock."""

    def __init__(self) -> None:
        self.lock: Lock = Lock()
        self.assignment: Assignment | None = None
        self.process: Process | None = None
        self.failed_starts = 0
        self._asked: list[BaseException] = []
        self.bell: socket
        self.bell, self._clapper = socketpair()
        for end in (self.bell, self._clapper):
            end.setblocking(False)

    def take(self, assignment: Assignment) -> None:
        with self.lock:
            self._asked.clear()
            self.assignment = assignment
            assignment.seat = self

    def leave(self) -> None:
        """From here on nobody can ask what has run here to stop."""
        with self.lock:
            if self.assignment is not None:
                self.assignment.seat = None
            self.assignment = None

    def ask(self, assignment: Assignment, reason: BaseException) -> None:
        # Under the lock, because the thread may just be leaving this job for the next one.
        with self.lock:
            if self.assignment is not assignment:
                return
            if assignment.stopped_by is None:
                assignment.stopped_by = reason
            self._asked.append(reason)
        self.ring()

    def asked(self) -> list[BaseException]:
        """What it was asked since the last look."""
        with self.lock:
            asked, self._asked = self._asked, []
        return asked

    def ring(self) -> None:
        """Have the thread look around. A bell that rings already needs no more."""
        with suppress(OSError):
            self._clapper.send(b"!")

    def close(self) -> None:
        self.bell.close()
        self._clapper.close()


class Attending:
    """One attempt that a process has been told to run. Used by the seat's own thread.

    Nothing here waits for the coordinator, which may be held up by a store: the time limit and the grace of a
    job that was asked to stop are kept by this thread alone.
    """

    def __init__(
        self,
        seat: Seat,
        process: Process,
        assignment: Assignment,
        *,
        invoke: Invoke,
        now: Callable[[], float],
        is_closing: Callable[[], bool],
        grace: float,
        memory: int | None,
    ) -> None:
        self._seat = seat
        self._process = process
        self._assignment = assignment
        self._invoke = invoke
        self._now = now
        self._is_closing = is_closing
        self._grace = grace
        self._memory = memory
        self._run = process.jobs
        self._told = News()
        self._answers: SimpleQueue[Answer] = SimpleQueue()
        self._kept: list[tuple[int, Pending]] = []
        limit, started_at = assignment.job.timeout_ms, assignment.started_at or now()
        self._timeout_at = inf if limit is None else started_at + limit / 1_000
        self._kill_at = inf

    def outcome(self) -> Outcome:
        try:
            while True:
                for message in self._process.listen(self._pause(), self._seat.bell):
                    # A thread that an earlier job has left behind may still talk.
                    if isinstance(message, (Ready, Broken)) or message.run != self._run:
                        continue
                    if isinstance(message, Ended):
                        return self._ended(message)
                    self._hear(message)
                if (forced := self._forced()) is not None:
                    return forced
                self._tell()
        except Gone:
            return self._died(self._process.end())
        except Garbled as exc:
            self._process.end()
            return self._died(f"the isolated process said what nobody understands: {exc}")

    def _pause(self) -> float:
        return min(TICK_SECONDS, min(self._timeout_at, self._kill_at) - self._now())

    def _ended(self, message: Ended) -> Outcome:
        outcome = outcome_of(message)
        self._process.is_spent |= message.is_spent
        self._process.resident = message.resident
        return outcome

    def _hear(self, message: Said | Keep | Recall) -> None:
        """What the task says on its way goes where the words of all tasks go."""
        context = self._assignment.context
        voice = context.voice
        if isinstance(message, Said) and voice is not None:
            for what in (message.progress, message.line):
                if what is not None:
                    voice.say(context, what)
        elif isinstance(message, Keep):
            self._keep(message, voice)
        elif isinstance(message, Recall):
            # On a thread of its own: a store may keep us waiting, and this one has a time limit to watch.
            recall = Thread(
                target=self._recall, args=[message.number, voice], name="forebay-recall", daemon=True
            )
            recall.start()

    def _keep(self, message: Keep, voice: Voice | None) -> None:
        if voice is None:
            self._answer(Answer(message.number))
            return
        # The answer comes on another thread, perhaps before `keep` has returned; that only rings the bell.
        pending = voice.keep(self._assignment.context, message.step, self._seat.ring)
        self._kept.append((message.number, pending))

    def _recall(self, number: int, voice: Voice | None) -> None:
        try:
            steps = {} if voice is None else dict(voice.steps(self._assignment.context))
            self._answer(Answer(number, steps=steps))
        except StoreUnavailable as exc:
            self._answer(Answer(number, unavailable=str(exc)))
        except Exception as exc:
            # Whatever it is, the task waits for an answer, and raises it.
            self._answer(Answer(number, error=f"{type(exc).__name__}: {exc}"))

    def _answer(self, answer: Answer) -> None:
        """From any thread; the seat's own one sends it."""
        self._answers.put(answer)
        self._seat.ring()

    def _tell(self) -> None:
        """Pass on what this attempt should know, and whether it shall stop."""
        asked = self._seat.asked()
        self._tell_news()
        while not self._answers.empty():
            self._process.post(self._answers.get())
        for kept in self._kept[:]:
            if kept[1].wait(0):
                self._kept.remove(kept)
                self._process.post(Answer(kept[0], refused=kept[1].refused))
        now = self._now()
        for reason in asked:
            if isinstance(reason, JobTimeout):
                self._timeout_at = now
                continue
            is_hurried = isinstance(reason, WorkerStops)
            grace = min(STOP_GRACE_SECONDS, self._grace) if is_hurried else self._grace
            self._kill_at = min(self._kill_at, now + grace)
            self._process.post(Ask(self._assignment.lease, str(reason)))

    def _tell_news(self) -> None:
        context = self._assignment.context
        renewals = context.renewals
        news = News(
            cancel_reason=context.cancel_reason,
            is_overdue=context.is_overdue,
            renewed_at=renewals.renewed_at,
            failures=renewals.failures,
            lost_because=renewals.lost_because,
        )
        if news != self._told:
            self._told = news
            self._process.post(news)

    def _forced(self) -> Outcome | None:
        """The outcome of an attempt that has used up its time or its memory; the process is dead then."""
        now = self._now()
        if now >= self._timeout_at:
            limit = (self._assignment.job.timeout_ms or 0) / 1_000
            return self._killed(JobTimeout(f"ran longer than {limit:g} s"))
        if now >= self._kill_at or self._is_closing():
            return self._killed(WorkerStops("the worker stops"))
        if self._memory is not None and self._has_grown(self._memory):
            self._process.end()
            return Failed(out_of_memory(self._memory))
        return None

    def _killed(self, reason: BaseException) -> Outcome:
        with self._seat.lock:  # first: who asks while it dies is too late
            if self._assignment.stopped_by is None:
                self._assignment.stopped_by = reason
        self._process.end()
        return self._invoke.stopped(self._assignment)

    def _has_grown(self, memory: int) -> bool:
        """Whether it has taken more than it may. Where address space can be limited that comes first, and the
        task hears of it as a MemoryError."""
        before, taken = self._process.resident, resident(self._process.pid)
        return before is not None and taken is not None and taken > before + memory

    def _died(self, how: str) -> Outcome:
        if self._assignment.stopped_by is not None:
            return self._invoke.stopped(self._assignment)
        return Failed(died(how))


def died(how: str) -> AttemptError:
    return AttemptError(type="ProcessDied", message=how)
