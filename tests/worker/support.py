"""Waiting for what other threads do, and assignments for tests of one part."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial
from threading import Event
from time import monotonic
from typing import Any, Final, TypeVar

from forebay.clock import SystemClock
from forebay.domain.outcome import Outcome
from forebay.payload.codec import encode_call
from forebay.worker.assigned_job import Assignment
from forebay.worker.coordinator_inbox import Inbox
from forebay.worker.task_invoker import Invoker, TaskInvocation
from tests.domain.sample_jobs import a_job

T = TypeVar("T")

# No test takes this long unless something is broken; the machine may be busy with other tests.
DEADLINE: Final = 120.0
_NEVER: Final = Event()


def eventually(look: Callable[[], T], seconds: float = DEADLINE) -> T:
    """The first answer that is true; an assertion fails if none has come in time. It looks less often as time
    goes by: two hundred looks a second slow down what they wait for."""
    ends, pause = monotonic() + seconds, 0.005
    while not (answer := look()):
        assert monotonic() < ends, "it did not happen in time"
        _NEVER.wait(pause)
        pause = min(pause * 1.2, 0.03)
    return answer


@contextmanager
def waiting_in_c() -> Iterator[tuple[Callable[[], object], Callable[[], object]]]:
    """A wait in C, where no interrupt is heard, and what ends it."""
    read_end, write_end = os.pipe()

    def wait() -> None:
        os.read(read_end, 1)
        os.close(read_end)

    end = partial(os.write, write_end, b".")
    try:
        yield wait, end
    finally:
        with suppress(BrokenPipeError):  # it has ended, and nothing waits any more
            end()
        os.close(write_end)


@contextmanager
def no_thread_stays() -> Iterator[None]:
    """Fails if a thread of ours outlives the block."""
    before = set(threading.enumerate())
    yield
    eventually(lambda: not [one for one in threading.enumerate() if one not in before])


def an_assignment(task: str = "send", *args: Any, **changes: Any) -> Assignment:
    """A job that was claimed just now, with these arguments."""
    job = a_job(**{"task": task, "payload": encode_call(args, {}), **changes})
    return Assignment(job, SystemClock().monotonic())


class Collected(Inbox):
    """An inbox of a test: what was put, by job and attempt, and how often."""

    def __init__(self) -> None:
        super().__init__()
        self.outcomes: dict[tuple[str, int], Outcome] = {}
        self.puts = 0

    def put(self, assignment: Assignment, outcome: Outcome) -> None:
        self.outcomes[assignment.lease] = outcome
        self.puts += 1

    def of(self, assignment: Assignment, seconds: float = DEADLINE) -> Outcome:
        eventually(lambda: assignment.lease in self.outcomes, seconds)
        return self.outcomes[assignment.lease]


def called(invoke: Invoker, assignment: Assignment) -> Outcome:
    """What becomes of a blocking task that is called right here, in a context of its own."""
    return copy_context().run(_called, invoke, assignment)


def _called(invoke: Invoker, assignment: Assignment) -> Outcome:
    invoke.announce(assignment)
    call: TaskInvocation | None = None
    try:
        call = invoke.prepare(assignment)
        value = call.func(*call.args, **call.kwargs)
    except BaseException as exc:
        return invoke.make_outcome(assignment, call, None, exc)
    return invoke.make_outcome(assignment, call, value, None)
