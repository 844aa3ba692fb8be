"""Error reports of jobs to Sentry.

    sentry_sdk.init(...)
    report(app)

Each attempt has a scope of its own, so the data of one job are not mixed with the error of another. A failed
attempt is reported with the job's id, task, queue, attempt and correlation id. Signals that a task raises to
run later, or not at all, are no errors. A job that dies without an exception of its own is reported as a
message, such as one that took too long or whose worker was killed too often.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import sentry_sdk
from sentry_sdk import Scope

from forebay.app.app import Forebay
from forebay.app.job_context import JobContext
from forebay.domain.job import Job
from forebay.domain.outcome import AttemptError
from forebay.errors import JobCancelled, JobSignal, LeaseLost

_NO_ERRORS: Final = (JobSignal, JobCancelled, LeaseLost)


def report(app: Forebay) -> None:
    """Report the failures of all jobs that this app runs. Without `sentry_sdk.init` nothing is sent."""
    app.middleware(_capture_errors)
    app.on_error(_capture_dead_job)


@contextmanager
def _capture_errors(context: JobContext) -> Iterator[None]:
    with sentry_sdk.isolation_scope() as scope:
        _describe(scope, context.job)
        try:
            yield
        except _NO_ERRORS:
            raise
        except Exception as exc:
            sentry_sdk.capture_exception(exc)
            raise


def _capture_dead_job(job: Job | None, error: AttemptError) -> None:
    if error.traceback:  # a task has raised it, and it was reported there
        return
    with sentry_sdk.isolation_scope() as scope:
        if job is not None:
            _describe(scope, job)
        sentry_sdk.capture_message(f"{error.type}: {error.message}", level="error")


def _describe(scope: Scope, job: Job) -> None:
    scope.set_transaction_name(job.task, source="task")
    scope.set_tag("forebay.task", job.task)
    scope.set_tag("forebay.queue", job.queue)
    scope.set_tag("forebay.job_id", job.id)
    if job.correlation_id is not None:
        scope.set_tag("forebay.correlation_id", job.correlation_id)
    # Not the arguments: they may be secrets, and the store may have them encrypted.
    scope.set_context("job", {"id": job.id, "task": job.task, "queue": job.queue, "attempt": job.attempt})
