"""Decorator `@job` of RQ: adds `delay` and `enqueue` to a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from forebay.app.app import Forebay
from forebay.compat.rq.decorated_function import DecoratedFunction
from forebay.compat.rq.options import take_options
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
        self._queue = queue if isinstance(queue, Queue) else Queue(queue, connection)
        self._options = {**options, "job_timeout": timeout}
        take_options(dict(self._options))  # raise here, and not with the first job

    def __call__(self, function: Callable[..., Any]) -> DecoratedFunction:
        self._queue.learn(function)
        return DecoratedFunction(self._queue.enqueue, function, self._options)
