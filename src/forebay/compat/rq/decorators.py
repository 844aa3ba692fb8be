"""Decorator `@job` of RQ: adds `delay` and `enqueue` to a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from forebay.app.app import Forebay
from forebay.compat.rq.job import Job
from forebay.compat.rq.options import take_options

if TYPE_CHECKING:
    from forebay.compat.rq.queue import Queue


class job:
    """Decorator that adds `delay` and `enqueue` to a function: these let a worker call it."""

    def __init__(
        self,
        queue: Queue | str,
        connection: Forebay | str | None = None,
        *,
        timeout: int | str | None = None,
        **options: Any,
    ) -> None:
        from forebay.compat.rq.queue import Queue  # noqa: PLC0415 - it imports this module

        self._queue = queue if isinstance(queue, Queue) else Queue(queue, connection)
        self._options = {**options, "job_timeout": timeout}
        take_options(dict(self._options))  # raise here, and not with the first job

    def __call__(self, function: Callable[..., Any]) -> DecoratedFunction:
        self._queue.learn(function)
        return DecoratedFunction(self._queue, function, self._options)


class DecoratedFunction:
    """A function that can be enqueued. A direct call runs it in the calling thread."""

    def __init__(self, queue: Queue, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        self._queue = queue
        self._options = options
        self.__wrapped__ = function
        self.__name__: str = function.__name__
        self.__qualname__: str = function.__qualname__
        self.__module__, self.__doc__ = function.__module__, function.__doc__

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(*args, **kwargs)

    def enqueue(self, /, *args: Any, **kwargs: Any) -> Job:
        """Enqueue a call; `depends_on`, `job_id` and `at_front` are options of this call."""
        named = ("depends_on", "job_id", "at_front")
        own = {name: kwargs.pop(name) for name in named if name in kwargs}
        return self._queue.enqueue(self.__wrapped__, **{**self._options, **own}, args=args, kwargs=kwargs)

    delay = enqueue
