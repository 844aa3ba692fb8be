"""Middleware around task calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import wraps
from typing import Any, TypeAlias

from forebay.app.job_context import JobContext

# Takes the context of a job; returns a context manager that is entered before the call and left after it.
Middleware: TypeAlias = Callable[[JobContext], AbstractContextManager[Any]]


def wrap_call(
    func: Callable[..., Any], layers: Sequence[Middleware], context: JobContext, *, is_async: bool
) -> Callable[..., Any]:
    """Wrap the function in these layers, the first outermost. They see its exceptions, and may replace
    them."""

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
