"""What a task knows of its attempt while it runs under Celery's calls, and how it asks for another one."""

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
    """A task that may be tried again."""

    name: str
    max_retries: int
    default_retry_delay: float


class MaxRetriesExceededError(Exception):
    """A task has asked for another attempt, and has had enough of them."""


class TaskRequest(NamedTuple):
    """What Celery's `self.request` tells; of a task that is called like a function nearly nothing."""

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


# Which attempt this code runs for. A task that another one calls like a function is none.
_request: ContextVar[TaskRequest | None] = ContextVar("forebay_celery_request", default=None)


def current_request() -> TaskRequest:
    return _request.get() or TaskRequest()


@contextmanager
def run_directly(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[None]:
    """What runs while the block lasts was called like a function."""
    token = _request.set(TaskRequest(args=args, kwargs=kwargs))
    try:
        yield
    finally:
        _request.reset(token)


@contextmanager
def run_as_job(task: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[None]:
    """What runs while the block lasts is an attempt at the current job."""
    job = current_job().job
    token = _request.set(TaskRequest(job.id, task, args, kwargs, job.failures, False, job.policy.max_retries))
    try:
        yield
    finally:
        _request.reset(token)


class AutoRetry(NamedTuple):
    """Which errors bring another attempt by themselves, and when."""

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
        said = dict(retry_kwargs or {})
        most, countdown = said.pop("max_retries", None), said.pop("countdown", None)
        if said:
            raise ConfigError(f"retry_kwargs may say max_retries and countdown, not {', '.join(said)}")
        factor = int(max(1.0, float(backoff))) if backoff else 0
        return cls(tuple(errors), tuple(excluded), most, countdown, factor, int(backoff_max), jitter)

    def run(self, task: RetriableTask, call: Callable[[], R]) -> R:
        """Run it; an error that is listed asks for another attempt."""
        try:
            return call()
        except (JobSignal, MaxRetriesExceededError):
            raise
        except self.excluded:
            raise
        except self.errors as exc:
            most = task.max_retries if self.max_retries is None else self.max_retries
            self.raise_retry(current_request(), task.name, exc, after=self._delay(task), max_retries=most)

    def _delay(self, task: RetriableTask) -> float:
        if not self.backoff:
            return task.default_retry_delay if self.countdown is None else self.countdown
        grown = min(self.backoff_max, self.backoff * 2 ** min(current_request().retries, _MAX_DOUBLINGS))
        return randint(0, grown) if self.jitter else grown  # noqa: S311 - nobody's secret

    @staticmethod
    def raise_retry(
        request: TaskRequest, task: str, exc: BaseException | None, *, after: float, max_retries: int
    ) -> NoReturn:
        """Raise what ends this attempt: another one is to come, or there were enough."""
        if request.called_directly:
            raise exc or Retry(f"{task} was called like a function, so nobody tries it again")
        if request.retries >= max_retries:
            raise exc or MaxRetriesExceededError(f"{task}[{request.id}] was tried {max_retries + 1} times")
        if request.retries >= request.max_retries:
            raise ConfigError(
                f"{task}[{request.id}] may be retried {request.max_retries} times, as it was enqueued "
                f"or imported; say max_retries={max_retries} on the task, and import with --app"
            )
        raise Retry(f"{type(exc).__name__}: {exc}" if exc else "", after=after) from exc


_MAX_DOUBLINGS: Final = 30
