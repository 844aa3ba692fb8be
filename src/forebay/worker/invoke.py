"""Run one job: find its task, decode, call. Everything that can happen becomes an `Outcome` here."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable
from typing import Any

from forebay.app.codec import decode_call, encode_result
from forebay.app.context import enter
from forebay.app.registry import Registry
from forebay.app.task import Task
from forebay.domain.history import MAX_TRACEBACK
from forebay.domain.outcome import (
    AttemptError,
    Cancelled,
    Completed,
    Discarded,
    Failed,
    Interrupted,
    Outcome,
    Snoozed,
)
from forebay.errors import (
    Cancel,
    CorruptPayload,
    Discard,
    NewerPayload,
    PayloadError,
    PermanentError,
    Retry,
    Snooze,
    UnknownTask,
)
from forebay.worker.slots import Assignment

# What this program cannot read now it may read after its deploy, and another worker may read it at once.
HOLD_MS = 30_000


class JobTimeout(BaseException):
    """The attempt ran longer than its timeout. Not an Exception, so that `except Exception` lets it pass."""


class JobInterrupted(BaseException):
    """The attempt shall stop: it was cancelled, or its worker stops."""


class Invoke:
    """Runs assignments of one program's tasks."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def is_async(self, name: str) -> bool:
        return name in self._registry and self._registry[name].is_async

    def here(self, assignment: Assignment) -> Outcome:
        """Run a blocking task on this thread."""
        try:
            task, args, kwargs = self._prepared(assignment)
            enter(assignment.context)
            return _completed(task.func(*args, **kwargs))
        except BaseException as exc:
            return self._outcome(assignment, exc)

    async def awaited(self, assignment: Assignment) -> Outcome:
        """Run a coroutine task on this event loop."""
        try:
            task, args, kwargs = self._prepared(assignment)
            enter(assignment.context)
            func: Callable[..., Awaitable[Any]] = task.func
            return _completed(await func(*args, **kwargs))
        except BaseException as exc:
            return self._outcome(assignment, exc)

    def _prepared(self, assignment: Assignment) -> tuple[Task[..., Any], tuple[Any, ...], dict[str, Any]]:
        job = assignment.job
        task = self._registry[job.task]
        args, kwargs = decode_call(job.payload)
        args, kwargs = task.fitted(args, kwargs)
        return task, args, kwargs

    def _outcome(self, assignment: Assignment, exc: BaseException) -> Outcome:
        if assignment.stopped_by is not None and _is_stop(exc):
            return stopped(assignment)
        if isinstance(exc, (UnknownTask, NewerPayload)):
            return Snoozed(HOLD_MS)
        if isinstance(exc, Snooze):
            return Snoozed(max(0, round(exc.delay * 1_000)))
        if isinstance(exc, Cancel):
            return Cancelled(str(exc) or "cancelled by its own task")
        error = attempt_error(exc)
        if isinstance(exc, Retry):
            return Failed(error, None if exc.after is None else max(0, round(exc.after * 1_000)))
        if isinstance(exc, (Discard, PermanentError, CorruptPayload)) or self._is_permanent(assignment, exc):
            return Discarded(error)
        return Failed(error)

    def _is_permanent(self, assignment: Assignment, exc: BaseException) -> bool:
        name = assignment.job.task
        return name in self._registry and isinstance(exc, self._registry[name].no_retry_for)


def _completed(value: Any) -> Outcome:
    try:
        return Completed(encode_result(value))
    except PayloadError as exc:
        return Failed(attempt_error(exc))


def stopped(assignment: Assignment) -> Outcome:
    """The outcome of an attempt that was made to stop."""
    if isinstance(assignment.stopped_by, JobTimeout):
        return Failed(AttemptError(type="Timeout", message=str(assignment.stopped_by)))
    reason = assignment.context.cancel_reason
    return Interrupted() if reason is None else Cancelled(reason)


def _is_stop(exc: BaseException) -> bool:
    # By name, because a worker without coroutine tasks never loads asyncio.
    return isinstance(exc, (JobTimeout, JobInterrupted)) or type(exc).__name__ == "CancelledError"


def attempt_error(exc: BaseException) -> AttemptError:
    """What is kept of an exception; one that cannot even be shown is still recorded."""
    try:
        message = str(exc)
        lines = traceback.format_exception(exc)
    except Exception:
        message, lines = "(its message cannot be shown)", []
    return AttemptError(
        type=type(exc).__qualname__,
        message=_writable(message),
        traceback=_writable("".join(lines))[-MAX_TRACEBACK:],
    )


def _writable(text: str) -> str:
    return text.encode("utf-8", errors="backslashreplace").decode()
