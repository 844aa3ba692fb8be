"""Errors of `TaskQueue` under the names its users know; each is a Forebay error as well.

JobError
  RetryableError       raised by a function: try again, whatever its class would mean otherwise
  PermanentError       raised by a function: no further attempt makes sense
  JobNotFoundError     no job has this id
  JobFailedError       the job whose result was asked for has failed for good
  JobCancelledError    the job whose result was asked for was cancelled
  JobRefusedError      the queue is full or closed, and nothing was stored; a ValueError too
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from forebay.errors import (
    ForebayError,
    JobCancelled,
    JobFailed,
    JobNotFound,
    QueueClosed,
    QueueFull,
    RateLimited,
)
from forebay.errors import PermanentError as Permanent
from forebay.errors import RetryableError as Retryable


class JobError(ForebayError):
    """Root of the errors about jobs."""


class RetryableError(JobError, Retryable):
    """Raised by a function: tried again while retries remain, also where its class would end the job."""


class PermanentError(JobError, Permanent):
    """Raised by a function: no further attempt makes sense."""


class JobNotFoundError(JobError, JobNotFound):
    """No job has this id."""


class JobFailedError(JobError, JobFailed):
    """The job will not be tried again, so it has no result."""


class JobCancelledError(JobError, JobCancelled):
    """The job was cancelled, so it has no result."""


class JobRefusedError(JobError, ValueError):
    """The queue is full or closed: the job was not stored."""


_NAMES: Final[dict[type[ForebayError], type[JobError]]] = {
    JobNotFound: JobNotFoundError,
    JobFailed: JobFailedError,
    JobCancelled: JobCancelledError,
    QueueFull: JobRefusedError,
    RateLimited: JobRefusedError,
    QueueClosed: JobRefusedError,
}


@contextmanager
def rename_errors() -> Iterator[None]:
    """Translate Forebay's errors that leave the block to the names of this module."""
    try:
        yield
    except tuple(_NAMES) as exc:
        raise _NAMES[type(exc)](str(exc)) from exc
