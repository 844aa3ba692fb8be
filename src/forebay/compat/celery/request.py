"""Celery's `self.request` and retries: an attempt as its task sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from random import randint
from typing import Any, Final, NamedTuple, NoReturn, Protocol, TypeVar

from forebay.app.current_job import current_job
from forebay.compat.unsupported import Unsupported
from forebay.errors import ConfigError, JobSignal, Retry

R = TypeVar("R")


class RetriableTask(Protocol):
    """Task that may be retried."""

    name: str
    max_retries: int
    default_retry_delay: float


class MaxRetriesExceededError(Exception):
    """A task asked for another attempt after its last one."""


class TaskRequest(NamedTuple):
    """Celery's `self.request`; nearly empty for a task that is called like a function."""

    id: str | None = None
    task: str | None = None
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}
    retries: int = 0
    called_directly: bool = True
    max_retries: int = 0

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise Unsupported(f"request.{name} of Celery is not offered here: ask forebay's current_job()")


# The attempt that this code runs for. None for a task that another one calls like a function.
_request: ContextVar[TaskRequest | None] = ContextVar("forebay_celery_request", default=None)


def current_request() -> TaskRequest:
    return _request.get() or TaskRequest()


@contextmanager
def run_directly(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[None]:
    """Mark the code of the block as called like a function."""
    token = _request.set(TaskRequest(args=args, kwargs=kwargs))
    try:
        yield
    finally:
        _request.reset(token)


@contextmanager
def run_as_job(task: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[None]:
    """Mark the code of the block as an attempt at the current job."""
    job = current_job().job
    token = _request.set(TaskRequest(job.id, task, args, kwargs, job.failures, False, job.policy.max_retries))
    try:
        yield
    finally:
        _request.reset(token)


class AutoRetry(NamedTuple):
    """Errors that are retried automatically, and the delay of each retry."""

    errors: tuple[type[BaseException], ...] = ()
    excluded: tuple[type[BaseException], ...] = ()
    max_retries: int | None = None
    countdown: float | None = None
    backoff: int = 0
    backoff_max: int = 600
    jitter: bool = True

    @classmethod
    def create(
        cls,
        errors: Sequence[type[BaseException]],
        excluded: Sequence[type[BaseException]],
        retry_kwargs: Mapping[str, Any] | None,
        backoff: bool | float,
        backoff_max: float,
        jitter: bool,
    ) -> AutoRetry:
        options = dict(retry_kwargs or {})
        max_retries, countdown = options.pop("max_retries", None), options.pop("countdown", None)
        if options:
            raise ConfigError(f"retry_kwargs may say max_retries and countdown, not {', '.join(options)}")
        factor = int(max(1.0, float(backoff))) if backoff else 0
        return cls(tuple(errors), tuple(excluded), max_retries, countdown, factor, int(backoff_max), jitter)

    def run(self, task: RetriableTask, call: Callable[[], R]) -> R:
        """Run a call; a listed error asks for another attempt."""
        try:
            return call()
        except (JobSignal, MaxRetriesExceededError):
            raise
        except self.excluded:
            raise
        except self.errors as exc:
            allowed = task.max_retries if self.max_retries is None else self.max_retries
            self.raise_retry(current_request(), task.name, exc, after=self._delay(task), max_retries=allowed)

    def _delay(self, task: RetriableTask) -> float:
        if not self.backoff:
            return task.default_retry_delay if self.countdown is None else self.countdown
        grown = min(self.backoff_max, self.backoff * 2 ** min(current_request().retries, _MAX_DOUBLINGS))
        return randint(0, grown) if self.jitter else grown  # noqa: S311 - no secret depends on it

    @staticmethod
    def raise_retry(
        request: TaskRequest, task: str, exc: BaseException | None, *, after: float, max_retries: int
    ) -> NoReturn:
        """Raise the signal that ends this attempt: retry, or the error if there were enough attempts."""
        if request.called_directly:
            raise exc or Retry(f"{task} was called like a function, so it is not retried")
        if request.retries >= max_retries:
            raise exc or MaxRetriesExceededError(f"{task}[{request.id}] was tried {max_retries + 1} times")
        if request.retries >= request.max_retries:
            raise ConfigError(
                f"{task}[{request.id}] may be retried {request.max_retries} times, as it was enqueued "
                f"or imported; say max_retries={max_retries} on the task, and import with --app"
            )
        raise Retry(f"{type(exc).__name__}: {exc}" if exc else "", after=after) from exc


_MAX_DOUBLINGS: Final = 30
