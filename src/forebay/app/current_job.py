"""The job that is running, for the code that it runs."""

from __future__ import annotations

from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.app.context import JobContext

_current: ContextVar[JobContext] = ContextVar("forebay_job")


def current_job() -> JobContext:
    """The context of the job that this code runs for; raises LookupError outside of one."""
    try:
        return _current.get()
    except LookupError:
        raise LookupError("no job is running here; current_job() works inside a task") from None


def set_current_job(context: JobContext) -> None:
    """Make this the current job of this thread or coroutine, until the next one."""
    _current.set(context)


def has_context_leak() -> bool:
    """Whether code of a job has set a context variable here, besides the current job. A variable that was set
    cannot be unset, so whoever runs the next job does that in a new, empty context."""
    return len(copy_context()) > 1
