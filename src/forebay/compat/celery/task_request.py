"""Celery's `self.request`: an attempt as its task sees it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, NoReturn

from forebay.app.current_job import current_job
from forebay.compat.unsupported import Unsupported


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
