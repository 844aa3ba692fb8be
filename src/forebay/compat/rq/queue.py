"""RQ's `Queue`: enqueues calls of functions, and lets workers run them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import wraps
from threading import Lock
from typing import Any, Final, NoReturn

from forebay.app.app import Forebay
from forebay.app.current_job import current_job
from forebay.app.task import Task
from forebay.compat.rq.decorated_function import DecoratedFunction
from forebay.compat.rq.job import Job
from forebay.compat.rq.options import (
    INTERVALS,
    check_timedelta,
    make_aware,
    parse_seconds,
    refuse,
    take_options,
)
from forebay.deferred_interrupts import uninterrupted
from forebay.domain.job import DAY_MS, QueueName
from forebay.domain.queue import QueueSettings
from forebay.errors import ConfigError, JobSignal, PermanentError
from forebay.errors import Retry as Again

DEFAULT_TIMEOUT: Final = 180
_register_lock: Final = Lock()


class Queue:
    """A queue with RQ's calls. `connection` is a Forebay app, or the URL of its store."""

    def __init__(
        self,
        name: str = "default",
        connection: Forebay | str | None = None,
        *,
        default_timeout: int | str = DEFAULT_TIMEOUT,
        **others: Any,
    ) -> None:
        for other in others:
            refuse(other, "the option of Queue()")
        if not isinstance(connection, (Forebay, str)):
            raise ConfigError(
                "connection must be an app of Forebay, or the address of a store such as sqlite:///jobs.db; "
                f"not {connection!r:.60}"
            )
        self.name = name
        self.app: Forebay = Forebay(connection) if isinstance(connection, str) else connection
        self._default_timeout = default_timeout
        self._retention_ms: int | None = None

    def learn(self, *functions: Callable[..., Any]) -> None:
        """Let workers of this app run these functions."""
        for function in functions:
            self._get_or_register(function)

    def enqueue(self, f: Callable[..., Any] | str, /, *args: Any, **kwargs: Any) -> Job:
        """Enqueue a call of a function, with RQ's options among its keyword arguments. With `args` or
        `kwargs` these contain the arguments instead."""
        return self._enqueue(f, args, kwargs, {})

    def enqueue_call(
        self,
        func: Callable[..., Any] | str,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        timeout: int | str | None = None,
        **options: Any,
    ) -> Job:
        """Enqueue a call of a function, with the arguments apart from the options."""
        given = {**options, "job_timeout": timeout, "args": args or (), "kwargs": kwargs or {}}
        return self._enqueue(func, (), given, {})

    def enqueue_at(
        self, datetime: datetime, f: Callable[..., Any] | str, /, *args: Any, **kwargs: Any
    ) -> Job:
        """Enqueue for a time; without a zone it is local."""
        return self._enqueue(f, args, kwargs, {"run_at": make_aware(datetime)})

    def enqueue_in(
        self, time_delta: timedelta, f: Callable[..., Any] | str, /, *args: Any, **kwargs: Any
    ) -> Job:
        """Enqueue with a delay."""
        return self._enqueue(f, args, kwargs, {"delay": check_timedelta(time_delta)})

    def fetch_job(self, job_id: str) -> Job | None:
        """Return the job of this id; None if there is none."""
        job_if_known = Job(self.app.job(job_id))
        return None if self.app.client.job(job_if_known.id) is None else job_if_known

    @property
    def count(self) -> int:
        """The number of due jobs that wait."""
        counts = self.app.counts(self.name).get(QueueName(self.name))
        return 0 if counts is None else counts.pending

    def __len__(self) -> int:
        return self.count

    def _enqueue(
        self,
        f: Callable[..., Any] | str,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        when: Mapping[str, Any],
    ) -> Job:
        given = dict(kwargs)
        given.setdefault("job_timeout", self._default_timeout)
        if given["job_timeout"] is None:
            given["job_timeout"] = self._default_timeout
        options, result_ttl = take_options(given)
        self._check_result_ttl(result_ttl)
        if "args" in given or "kwargs" in given:
            if args:
                raise ConfigError("give the arguments themselves, or args and kwargs; not both")
            args, given = tuple(given.get("args") or ()), dict(given.get("kwargs") or {})
        name = f if isinstance(f, str) else self._get_or_register(f).name
        return Job(self.app.enqueue(name, args, given, queue=self.name, **when, **options))

    def _check_result_ttl(self, result_ttl: int | None) -> None:
        """Raise ConfigError unless the queue keeps finished jobs for that long."""
        if result_ttl is None:
            return
        if result_ttl == 0:
            raise ConfigError("result_ttl 0 is not offered here: let the function return None")
        retention_ms = self._load_retention_ms()
        if retention_ms and (result_ttl < 0 or result_ttl * 1_000 > retention_ms):
            raise ConfigError(
                f"the queue {self.name} keeps jobs that have ended for {retention_ms / DAY_MS:g} days, and "
                f"result_ttl asks for more: forebay queues configure {self.name} keep_finished=..."
            )

    def _load_retention_ms(self) -> int:
        if self._retention_ms is None:
            queues = self.app.client.read(lambda reader: reader.queues([QueueName(self.name)]))
            self._retention_ms = (queues[0].settings if queues else QueueSettings()).keep_finished_ms
        return self._retention_ms

    def _get_or_register(self, function: Callable[..., Any]) -> Task[..., Any]:
        function = (
            getattr(function, "__wrapped__", function)
            if isinstance(function, DecoratedFunction)
            else function
        )
        name = _path_of(function)
        with uninterrupted, _register_lock:  # two threads may be the first to enqueue a function
            if name not in self.app.registry:
                self.app.task(name=name, queue=self.name, retries=0, retry_on_timeout=True)(
                    _make_runner(function)
                )
        return self.app.registry[name]

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        refuse(name, "queue")

    def __repr__(self) -> str:
        return f"Queue({self.name!r})"


def _path_of(function: Callable[..., Any]) -> str:
    name = getattr(function, "__qualname__", None)
    if name is None or "." in name or function.__module__ == "__main__":
        raise ConfigError(
            f"{function!r:.60} cannot be named: give a function at the top of a module that workers import, "
            "as RQ wants it too"
        )
    if inspect.iscoroutinefunction(function):
        raise ConfigError(
            f"{name} is a coroutine function: make it a task of forebay, whose workers await it"
        )
    return f"{function.__module__}.{name}"


def _make_runner(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with retries after the delays that its job lists one by one."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (JobSignal, PermanentError):
            raise
        except Exception as exc:
            record = current_job().job
            intervals = record.metadata.get(INTERVALS)
            if not isinstance(intervals, list) or record.failures >= record.policy.max_retries:
                raise
            after = intervals[min(record.failures, len(intervals) - 1)]
            raise Again(f"{type(exc).__name__}: {exc}", after=parse_seconds(str(after), "interval")) from exc

    return run
