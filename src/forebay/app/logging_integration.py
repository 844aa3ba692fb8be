"""Logs of jobs: log lines stored with a job, and job fields in log records."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from forebay.app.current_job import current_job
from forebay.app.job_context import JobContext
from forebay.app.middleware import Middleware
from forebay.errors import ConfigError
from forebay.telemetry.log_fields import job_fields
from forebay.telemetry.log_setup import JsonFormatter

_NO_JOB: Final = dict.fromkeys(("job_id", "task", "queue", "attempt", "worker_id", "correlation_id"))
FORMAT: Final = "%(asctime)s %(levelname)s %(name)s%(in_job)s %(message)s"
# Log records of this level and above are stored with the job that runs here.
_capture_level: ContextVar[int] = ContextVar("forebay_kept_from")


def capture_logs(level: int | str = logging.INFO) -> Middleware:
    """Build a middleware that stores log records of a task, from this level on, with its job.

    The loggers filter first: set their levels as for any other handler.
    """
    min_level = logging.getLevelNamesMapping().get(level.upper()) if isinstance(level, str) else level
    if isinstance(min_level, bool) or not isinstance(min_level, int):
        raise ConfigError(f"level must be one of logging's, by name or number, not {level!r:.60}")

    @contextmanager
    def capture(_: JobContext) -> Iterator[None]:
        if _JOB_LOG_HANDLER not in logging.root.handlers:
            # `addHandler` takes a lock of logging's that an interrupt of this thread would leave locked. And
            # not before a job runs: the program's own basicConfig does nothing once there is a handler.
            logging.root.handlers.append(_JOB_LOG_HANDLER)
        before = _capture_level.set(min_level)
        try:
            yield
        finally:
            _capture_level.reset(before)

    return capture


class _JobLogHandler(logging.Handler):
    """One handler for all jobs: the context variable names the job of a record."""

    def handle(self, record: logging.LogRecord) -> bool:
        # Without the handler's lock: a task thread may be interrupted anywhere, and no shared state is
        # written.
        self.emit(record)
        return True

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= _capture_level.get(logging.CRITICAL + 1_000):
            try:
                current_job().log(self.format(record), record.levelname)
            except Exception:
                self.handleError(record)


_JOB_LOG_HANDLER: Final = _JobLogHandler()


class JobLogFilter(logging.Filter):
    """Filter for a handler that adds `job_id`, `task`, `queue`, `attempt`, `worker_id` and `correlation_id`.

    The fields are None on records that were logged outside of a job. `in_job` has task, id and attempt in
    brackets, for a format.
    """

    def __init__(self) -> None:
        super().__init__()
        self.worker_id: str | None = None  # for records outside of a job, if the program has one worker

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record through; a record of a job gets its fields."""
        try:
            job = current_job().job
        except LookupError:
            fields: dict[str, Any] = {**_NO_JOB, "worker_id": self.worker_id}
            record.in_job = ""
        else:
            fields = job_fields(job)
            record.in_job = f" [{job.task} {job.id} #{job.attempt}]"
        for name, value in fields.items():
            if not hasattr(record, name):  # the job's own logger has set them
                setattr(record, name, value)
        return True


def add_job_fields_to_logs() -> JobLogFilter:
    """Put the job's name into every log line of this program; return the filter."""
    fields = JobLogFilter()
    for handler in logging.root.handlers:
        handler.addFilter(fields)
        if not isinstance(handler.formatter, JsonFormatter):
            handler.setFormatter(logging.Formatter(FORMAT))
    return fields
