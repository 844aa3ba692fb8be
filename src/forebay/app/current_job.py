"""Context variable that holds the running job of a thread or coroutine."""

from __future__ import annotations

from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.app.job_context import JobContext

_current: ContextVar[JobContext] = ContextVar("forebay_job")


def current_job() -> JobContext:
    """Return the context of the job that this code runs for; raise LookupError outside of a job."""
    try:
        return _current.get()
    except LookupError:
        raise LookupError("no job is running here; current_job() works inside a task") from None


def set_current_job(context: JobContext) -> None:
    """Make `context` the current job of this thread or coroutine, until the next call."""
    _current.set(context)


def has_context_leak() -> bool:
    """Return whether a job has set a context variable here, besides the current job.

    A variable that was set cannot be unset. The caller must run the next job in a new, empty context.
    """
    return len(copy_context()) > 1
