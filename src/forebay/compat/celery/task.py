"""Task of the Celery facade: a function with Celery's calls."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import wraps
from typing import Any, NoReturn, Protocol

from forebay.app.app import Forebay
from forebay.app.job_options import TaskOptions
from forebay.app.task import Task as OurTask
from forebay.compat.celery.options import (
    CeleryConf,
    check_always,
    check_max_retries,
    expires_at,
    invert_priority,
    make_aware,
    refuse,
    translate_options,
)
from forebay.compat.celery.result import AsyncResult
from forebay.compat.celery.retries import AutoRetry
from forebay.compat.celery.task_request import TaskRequest, current_request, run_as_job, run_directly
from forebay.errors import ConfigError


class TaskOwner(Protocol):
    """The app of a task."""

    main: str | None
    conf: CeleryConf

    @property
    def forebay(self) -> Forebay: ...

    def finish(self) -> None: ...

    def AsyncResult(self, task_id: str) -> AsyncResult: ...


def name_of(func: Callable[..., Any], main: str | None) -> str:
    module = main if func.__module__ == "__main__" and main else func.__module__
    return f"{module}.{func.__name__}"


class Task:
    """A function with Celery's calls. A direct call runs it in the calling thread."""

    def __init__(  # noqa: PLR0913 - what Celery's users say about a task
        self,
        app: TaskOwner,
        func: Callable[..., Any],
        *,
        name: str | None = None,
        bind: bool = False,
        max_retries: int = 3,
        default_retry_delay: float = 180,
        autoretry_for: Sequence[type[BaseException]] = (),
        dont_autoretry_for: Sequence[type[BaseException]] = (),
        retry_kwargs: Mapping[str, Any] | None = None,
        retry_backoff: bool | float = False,
        retry_backoff_max: float = 600,
        retry_jitter: bool = True,
        queue: str | None = None,
        priority: int | None = None,
        time_limit: float | None = None,
        expires: float | datetime | None = None,
        ignore_result: bool | None = None,
        **others: Any,
    ) -> None:
        check_always(others, "the task option")
        self.app = app
        self.name: str = name or name_of(func, app.main)
        self.max_retries: int = check_max_retries(max_retries)
        self.default_retry_delay = default_retry_delay
        self.queue: str | None = queue
        self.priority: int | None = priority
        self.time_limit: float | None = time_limit
        self.expires: float | datetime | None = expires
        self.ignore_result = ignore_result
        self.auto_retry: AutoRetry = AutoRetry.create(
            autoretry_for, dont_autoretry_for, retry_kwargs, retry_backoff, retry_backoff_max, retry_jitter
        )
        self.run = func
        self._is_bound = bind
        self._ours: OurTask[..., Any] | None = None
        self.__wrapped__ = func
        self.__name__: str = func.__name__
        self.__doc__, self.__module__ = func.__doc__, func.__module__

    # Enqueue

    def delay(self, /, *args: Any, **kwargs: Any) -> AsyncResult:
        """Enqueue a job with these arguments."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> AsyncResult:
        """Enqueue a job, with options of this call: countdown, eta, expires, queue, priority, task_id,
        time_limit."""
        chosen = translate_options(options)
        return AsyncResult(
            self._require_registered().using(**chosen).enqueue(*(args or ()), **(kwargs or {}))
        )

    def AsyncResult(self, task_id: str) -> AsyncResult:
        return self.app.AsyncResult(task_id)

    # Run

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        with run_directly(args, kwargs):
            return self._call(args, kwargs)

    @property
    def request(self) -> TaskRequest:
        """The running attempt."""
        return current_request()

    def retry(
        self,
        *,
        exc: BaseException | None = None,
        countdown: float | None = None,
        eta: datetime | None = None,
        max_retries: int | None = None,
        **others: Any,
    ) -> NoReturn:
        """End this attempt and ask for another one; raise `exc` instead if there were enough attempts."""
        for name in others:
            refuse(name, "the option of retry()")
        if eta is not None:
            now = datetime.fromtimestamp(self.app.forebay.clock.now_ms() / 1_000, UTC)
            countdown = max(0.0, (make_aware(eta) - now).total_seconds())
        allowed = self.max_retries if max_retries is None else check_max_retries(max_retries)
        after = self.default_retry_delay if countdown is None else countdown
        AutoRetry.raise_retry(current_request(), self.name, exc, after=after, max_retries=allowed)

    def register(self, app: Forebay) -> None:
        """Register the task with Forebay. Only `retry` and `autoretry_for` bring retries, as in Celery."""
        options: TaskOptions = {"queue": self.queue or self.app.conf.queue_of(self.name)}
        options["retries"] = max(self.max_retries, self.auto_retry.max_retries or 0)
        limit = self.time_limit if self.time_limit is not None else self.app.conf.task_time_limit
        options["timeout"] = limit
        if self.priority is not None:
            options["priority"] = invert_priority(self.priority)
        if self.expires is not None:
            options["expires"] = expires_at(self.expires)
        make = app.task(name=self.name, no_retry_for=(Exception,), retry_on_timeout=False, **options)
        self._ours = make(self._make_runner())

    def _make_runner(self) -> Callable[..., Any]:
        @wraps(self.run)
        def run(*args: Any, **kwargs: Any) -> Any:
            with run_as_job(self.name, args, kwargs):
                value = self.auto_retry.run(self, lambda: self._call(args, kwargs))
            is_dropped = (
                self.app.conf.task_ignore_result if self.ignore_result is None else self.ignore_result
            )
            return None if is_dropped else value

        if self._is_bound:
            _, *parameters = inspect.signature(self.run).parameters.values()
            # The first argument is the task itself, which no job contains.
            run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    def _call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return self.run(self, *args, **kwargs) if self._is_bound else self.run(*args, **kwargs)

    def _require_registered(self) -> OurTask[..., Any]:
        self.app.finish()
        if self._ours is None:
            raise ConfigError(f"{self.name} is not a task of its app any more")
        return self._ours

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        refuse(name, "task")

    def __repr__(self) -> str:
        return f"<@task: {self.name}>"
