"""Function that RQ's `@job` has given `delay` and `enqueue`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from forebay.compat.rq.job import Job


class DecoratedFunction:
    """A function that can be enqueued. A direct call runs it in the calling thread."""

    def __init__(
        self, enqueue: Callable[..., Job], function: Callable[..., Any], options: Mapping[str, Any]
    ) -> None:
        self._enqueue = enqueue
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
        return self._enqueue(self.__wrapped__, **{**self._options, **own}, args=args, kwargs=kwargs)

    delay = enqueue
