"""Thread executor: blocking tasks on long-lived threads."""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from _thread import start_new_thread
from contextvars import Context
from itertools import count
from queue import SimpleQueue
from threading import Thread, get_ident, local
from time import sleep
from typing import Any, Final
from weakref import WeakSet

from forebay.app.current_job import has_context_leak
from forebay.clock import Clock
from forebay.deferred_interrupts import set_interruptible
from forebay.domain.outcome import Interrupted, Outcome
from forebay.telemetry.logging_interrupts import defer_interrupts_in_logging
from forebay.worker.assigned_job import Assignment, ExecutorKind
from forebay.worker.coordinator_inbox import Inbox
from forebay.worker.executors.interruptible_thread import InterruptibleThread
from forebay.worker.task_invoker import Invoker, TaskInvocation

# A task that forks returns in both processes. In the copy there is no coordinator to report to. A thread that
# waited for the next job there would keep it alive for ever, with the locks that both share.
_executors: Final[WeakSet[ThreadExecutor]] = WeakSet()

_CALLS_ON_ALL: Final = sys.version_info < (3, 13)
RAISING_SECONDS: Final = 0.000_1  # an interrupt takes some microseconds to raise

logger: logging.Logger = logging.getLogger(__name__)


def _mark_copies() -> None:
    for executor in _executors:
        executor.is_copy = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mark_copies)


class ThreadSlot:
    """One thread, and the assignment that it runs now.

    There is no lock: the thread may be interrupted anywhere, also between taking a lock and the `try` that
    gives it back. (From Python 3.14 on `with lock` has this gap too.) Instead each side writes first and then
    reads. `interrupt` adds to `raising` and then reads `assignment`; the thread clears `assignment` and then
    reads `raising`. So either `interrupt` sees that the job is over, or the thread sees that an interrupt is
    being raised and waits until it has been. The thread takes nothing, so it can leave nothing taken.
    """

    __slots__ = ("assignment", "interruptible_thread", "is_in_hook", "raising", "thread")

    def __init__(self) -> None:
        self.thread: int = get_ident()
        self.assignment: Assignment | None = None
        self.raising: list[None] = []
        self.interruptible_thread: InterruptibleThread = InterruptibleThread(_raise_in)
        self.is_in_hook: bool = False  # see `_repeat_swallowed_interrupts`

    def interrupt(self, assignment: Assignment, reason: BaseException) -> None:
        """Raise in the thread while it runs this assignment. To be called by another thread."""
        self.raising.append(None)
        try:
            # The thread may be leaving this job for the next one, which must not be hit.
            if self.assignment is assignment:
                if assignment.stopped_by is None:
                    assignment.stopped_by = reason
                self.interruptible_thread.interrupt(type(reason))  # deferred while it is in code of ours
        finally:
            self.raising.pop()

    def repeat(self, assignment: Assignment, reason: BaseException) -> None:
        """Interrupt again, as soon as the thread has left the hook."""
        while self.is_in_hook:
            sleep(RAISING_SECONDS)
        self.interrupt(assignment, reason)


class _CurrentSlot(local):
    slot: ThreadSlot | None = None


_current: Final = _CurrentSlot()


def _repeat_swallowed_interrupts() -> None:
    """Raise an interrupt again that hit a finalizer or a callback of the garbage collector.

    Python reports such an exception to `sys.unraisablehook` and goes on, so the task would never see it.
    Another thread raises it again, once this one has left the hook: an exception there is lost as well.
    """
    previous = sys.unraisablehook
    if getattr(previous, "repeats_interrupts", False):
        return

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        slot = _current.slot
        assignment = None if slot is None else slot.assignment
        reason = None if assignment is None else assignment.stopped_by
        if slot is None or assignment is None or reason is None or unraisable.exc_type is not type(reason):
            previous(unraisable)
            return
        slot.is_in_hook = True
        start_new_thread(slot.repeat, (assignment, reason))  # a `Thread` would wait here until it runs
        # CPython does not check between this line and the end of the hook.
        slot.is_in_hook = False

    hook.repeats_interrupts = True  # type: ignore[attr-defined]
    sys.unraisablehook = hook


class ThreadExecutor:
    """A fixed number of threads on one queue; no future and no timer per job.

    A thread cannot be killed. One whose attempt was settled without it is abandoned: another thread replaces
    it, and it ends as soon as its call returns.
    """

    kind = ExecutorKind.CALLS

    def __init__(self, threads: int, invoke: Invoker, inbox: Inbox, clock: Clock) -> None:
        self._invoke = invoke
        self._inbox = inbox
        self._now = clock.monotonic
        self.is_copy = False  # created by a fork
        self._waiting: SimpleQueue[Assignment | None] = SimpleQueue()
        self._size = threads
        self._missing = threads  # threads that are to be started
        self._numbers = count()

    def start(self) -> None:
        _executors.add(self)
        defer_interrupts_in_logging()
        _repeat_swallowed_interrupts()
        while self._missing:
            self._start_thread()

    def submit(self, assignment: Assignment) -> None:
        if self._missing:
            self._start_missing()
        self._waiting.put(assignment)

    def interrupt(self, assignment: Assignment, reason: BaseException) -> None:
        """Raise at the thread's next bytecode. Code that waits in C is interrupted when it returns."""
        slot = assignment.slot
        if isinstance(slot, ThreadSlot):
            slot.interrupt(assignment, reason)

    def abandon(self, assignment: Assignment, reason: BaseException) -> Outcome | None:
        """Return the outcome of an attempt that is settled without its thread; None if the thread has one
        itself."""
        if not isinstance(assignment.slot, ThreadSlot) or not assignment.give_up(reason):
            return None
        return self._invoke.stopped_outcome(assignment)

    def replace(self, assignment: Assignment) -> bool:
        """Replace an abandoned thread; always true. If it has returned just now, it stays and no other is
        started."""
        if assignment.acquire_slot():
            self._missing += 1
            self._start_missing()
        return True

    def close(self) -> None:
        for _ in range(self._size):
            self._waiting.put(None)

    def _start_missing(self) -> None:
        try:
            while self._missing:
                self._start_thread()
        except RuntimeError as exc:  # no memory, or no more threads for this user: it may pass
            logger.error("%s threads for tasks cannot be started now: %s", self._missing, exc)

    def _start_thread(self) -> None:
        Thread(target=self._work, name=f"forebay-task-{next(self._numbers)}", daemon=True).start()
        self._missing -= 1

    def _work(self) -> None:
        _current.slot = slot = ThreadSlot()
        set_interruptible(slot.interruptible_thread)
        # Context variables that a job sets (fields for its logs, a decimal precision) must not reach the next
        # job. Few jobs set any, so a context is left only after one that did: the check costs 60 ns a job, a
        # new context for each would cost 150.
        while Context().run(self._work_until_touched, slot):
            pass

    def _work_until_touched(self, slot: ThreadSlot) -> bool:
        """Run jobs until one leaves something behind in the context; false when there are no more."""
        while (assignment := self._waiting.get()) is not None:
            if assignment.acquire():  # else it was handed back before it was started
                outcome = self._run(slot, assignment)
                is_counted = assignment.conclude()
                if is_counted:
                    self._inbox.put(assignment, outcome)
                if self.is_copy:
                    os._exit(0)
                if not is_counted and not self._reclaim_slot(assignment):
                    return False
                if has_context_leak():
                    return True
        return False

    def _reclaim_slot(self, assignment: Assignment) -> bool:
        """Return whether this thread, which comes back from an abandoned call, is still needed."""
        stays = assignment.acquire_slot()
        self._inbox.notify()  # the coordinator counts abandoned threads, and may have one to replace
        return stays

    def _run(self, slot: ThreadSlot, assignment: Assignment) -> Outcome:
        now = self._now()
        # With too little left of its lease another worker may have the job already.
        if now > assignment.start_by or not assignment.mark_started(now):
            return Interrupted(started=False)
        self._invoke.announce(assignment)
        call: TaskInvocation | None = None
        value: Any = None
        raised: BaseException | None = None
        # An interrupt is raised between the two lines that write `slot.assignment` and heard inside one of
        # these two blocks. CPython checks when a function begins, after a call and when a loop goes round;
        # between the blocks there is nothing of that kind, so it cannot slip out there. So only two things
        # are cut short: building the arguments, which is code of the program's own too, and the call itself.
        # tests/worker/executors/test_interrupts.py tries.
        try:
            slot.assignment = assignment
            assignment.slot = slot
            call = self._invoke.prepare(assignment)
            value = call.func(*call.args, **call.kwargs)
        except BaseException as exc:
            raised = exc
        slot.assignment = None  # from here on no interrupt begins
        # In this order: if nothing is being raised now, an earlier interrupt has set its reason.
        if slot.raising or assignment.stopped_by is not None:
            # At most two are on their way: one that has been raised, and one that had begun to be when the
            # line above was reached. The inner block catches the first, and the outer one the other, which
            # may come as the loop goes round.
            try:
                while True:
                    try:
                        while slot.raising:  # one that had begun before is finished first
                            sleep(RAISING_SECONDS)
                        _raise_in(slot.thread, None)  # takes back an interrupt that has not arrived yet
                        break
                    except BaseException:  # noqa: S112 - it has arrived, and the call is over
                        continue
            except BaseException:  # noqa: S110 - so has the other one
                pass
            slot.interruptible_thread.start_over()  # a deferred interrupt is not for the next job
        assignment.ended_at = self._now()
        try:
            return self._invoke.make_outcome(assignment, call, value, raised)
        finally:
            raised = None  # its traceback holds this frame, and the task's objects


class _InterruptMarker(BaseException):
    """Raised by a thread in itself."""


def _raise_in(thread: int | ctypes.c_ulong, kind: type[BaseException] | None) -> bool:
    """Raise in this thread; false if there is none."""
    raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
    target = ctypes.c_ulong(thread) if isinstance(thread, int) else thread
    is_there = bool(raise_in(target, ctypes.py_object() if kind is None else ctypes.py_object(kind)))
    if not (is_there and _CALLS_ON_ALL):
        return is_there
    # Before 3.13 this makes all threads check, until one has heard something. While the target sleeps in C
    # none does: all others check at every step. One that is traced or profiled goes round in circles, because
    # it checks before a step and then begins that step anew. So this thread raises something in itself, and
    # that ends the request. The target misses nothing: it is in C or waits for the interpreter's lock, and a
    # thread that gets the lock back checks for interrupts.
    try:
        raise_in(ctypes.c_ulong(get_ident()), ctypes.py_object(_InterruptMarker))
        while True:
            pass
    except _InterruptMarker:
        pass
    except BaseException:  # a signal came first
        raise_in(ctypes.c_ulong(get_ident()), ctypes.py_object())
        raise
    return True
