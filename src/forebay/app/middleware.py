"""The one kind of wrapper around a task call, and two things made with it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, Final, TypeAlias

from forebay.app.context import JobContext
from forebay.app.current_job import current_job
from forebay.errors import ConfigError
from forebay.telemetry.logs import JsonFormatter, job_fields

# Takes the context of a job and gives what is entered before its call and left after it.
Middleware: TypeAlias = Callable[[JobContext], AbstractContextManager[Any]]

_NO_JOB: Final = dict.fromkeys(("job_id", "task", "queue", "attempt", "worker_id", "correlation_id"))
FORMAT: Final = "%(asctime)s %(levelname)s %(name)s%(in_job)s %(message)s"


def wrap_call(
    func: Callable[..., Any], layers: Sequence[Middleware], context: JobContext, *, is_async: bool
) -> Callable[..., Any]:
    """The function within these layers, the first outermost. They see what it raises, and may replace it."""

    @wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        with ExitStack() as stack:
            for layer in layers:
                stack.enter_context(layer(context))
            return func(*args, **kwargs)

    @wraps(func)
    async def call_async(*args: Any, **kwargs: Any) -> Any:
        with ExitStack() as stack:
            for layer in layers:
                stack.enter_context(layer(context))
            return await func(*args, **kwargs)

    return call_async if is_async else call


# Lines of this level and above are kept with the job that runs here.
_capture_level: ContextVar[int] = ContextVar("forebay_kept_from")


def capture_logs(level: int | str = logging.INFO) -> Middleware:
    """Middleware: what a task logs through `logging`, from this level on, is kept with its job too.

    What the loggers themselves let through is kept: set their levels as for any other handler.
    """
    least = logging.getLevelNamesMapping().get(level.upper()) if isinstance(level, str) else level
    if isinstance(least, bool) or not isinstance(least, int):
        raise ConfigError(f"level must be one of logging's, by name or number, not {level!r:.60}")

    @contextmanager
    def keeping(_: JobContext) -> Iterator[None]:
        if _JOB_LOG_HANDLER not in logging.root.handlers:
            # Not by addHandler, which takes a lock of logging's that an interrupt of this thread would leave
            # locked. And not before a job runs: the program's own basicConfig does nothing once there is one.
            logging.root.handlers.append(_JOB_LOG_HANDLER)
        before = _capture_level.set(least)
        try:
            yield
        finally:
            _capture_level.reset(before)

    return keeping


class _JobLogHandler(logging.Handler):
    """One handler for all jobs: the context variable says which job a line belongs to."""

    def handle(self, record: logging.LogRecord) -> bool:
        # Without the handler's lock: a task thread may be interrupted anywhere, and nothing here needs one.
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
    """For a handler: adds `job_id`, `task`, `queue`, `attempt`, `worker_id` and `correlation_id` to lines
    that are logged in a job, None to others; and `in_job`, the first of that in brackets, for a format."""

    def __init__(self) -> None:
        super().__init__()
        self.worker_id: str | None = None  # whose lines all others are, where a program has one worker

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record through, those of a job with its fields."""
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
    """For a program of ours that runs jobs: its lines say in which job they were logged."""
    fields = JobLogFilter()
    for handler in logging.root.handlers:
        handler.addFilter(fields)
        if not isinstance(handler.formatter, JsonFormatter):
            handler.setFormatter(logging.Formatter(FORMAT))
    return fields
