"""Retries of Celery's: the errors that a task retries by itself, and the delay and the end of its retries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import randint
from typing import Any, Final, NamedTuple, NoReturn, Protocol, TypeVar

from forebay.compat.celery.task_request import TaskRequest, current_request
from forebay.errors import ConfigError, JobSignal, Retry

R = TypeVar("R")


class RetriableTask(Protocol):
    """Task that may be retried."""

    name: str
    max_retries: int
    default_retry_delay: float


class MaxRetriesExceededError(Exception):
    """A task asked for another attempt after its last one."""


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
