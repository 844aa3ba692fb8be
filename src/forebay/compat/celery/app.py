"""Celery's common calls on a Forebay store, for programs that move from Celery.

    from forebay.compat.celery import Celery  # instead of: from celery import Celery

    app = Celery("shop", broker="sqlite:///jobs.db")

    @app.task(bind=True, max_retries=5)
    def send(self, to): ...

    send.delay("ada@example.com").get(timeout=10)

Start a worker with the Forebay app: `queue = app.forebay`, and `forebay worker shop:queue`. Celery features
that are not offered are refused by name, with the alternative; nothing is silently ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any, Final, NoReturn, overload

from forebay.app.app import Forebay
from forebay.compat.celery.app_registry import APPS as _APPS
from forebay.compat.celery.options import CeleryConf, is_known, refusal_message, refuse, translate_options
from forebay.compat.celery.result import AsyncResult
from forebay.compat.celery.retries import MaxRetriesExceededError
from forebay.compat.celery.task import Task, name_of
from forebay.compat.celery.task_request import TaskRequest
from forebay.deferred_interrupts import uninterrupted
from forebay.errors import ConfigError

__all__ = ["AsyncResult", "Celery", "MaxRetriesExceededError", "Task", "TaskRequest", "shared_task"]


class Celery:
    """An app with Celery's calls. `broker` is the URL of the store, or a Forebay app. `forebay` is that app,
    for workers and for everything else."""

    def __init__(
        self, main: str | None = None, *, broker: str | Forebay = "sqlite:///forebay.db", **settings: Any
    ) -> None:
        self.main = main
        self.conf: CeleryConf = CeleryConf()
        self.conf.update(settings)
        self.tasks: dict[str, Task] = {}
        self._forebay = broker if isinstance(broker, Forebay) else Forebay(broker)
        self._unregistered: list[Task] = []
        self._finish_lock = Lock()
        self._is_used = False
        for function, options in _SHARED:
            self.task(function, **options)
        _APPS.append(self)

    @property
    def forebay(self) -> Forebay:
        """The Forebay app with all registered tasks; from its first use on settings are fixed."""
        self.finish()
        return self._forebay

    def finish(self) -> None:
        """Register all tasks with the Forebay app."""
        with uninterrupted, self._finish_lock:  # two threads may be the first to use the app
            self._is_used = self.conf.is_used = True
            while self._unregistered:
                self._unregistered.pop(0).register(self._forebay)

    @overload
    def task(self, func: Callable[..., Any], /, **options: Any) -> Task: ...

    @overload
    def task(self, /, **options: Any) -> Callable[[Callable[..., Any]], Task]: ...

    def task(self, func: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Make a function a task, with or without options."""
        if func is None:
            return lambda function: self.task(function, **options)
        task = Task(self, func, **options)
        if task.name in self.tasks:
            return self.tasks[task.name]  # the first one stays, as in Celery
        self.tasks[task.name] = task
        self._unregistered.append(task)
        if self._is_used:
            self.finish()
        return task

    def send_task(
        self,
        name: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> AsyncResult:
        """Enqueue a job by its task's name, also of a task that this program does not have."""
        chosen = translate_options(options)
        chosen.setdefault("queue", self.conf.queue_of(name))
        return AsyncResult(self.forebay.enqueue(name, args, kwargs, **chosen))

    def AsyncResult(self, task_id: str) -> AsyncResult:
        return AsyncResult(self.forebay.job(task_id))

    def close(self) -> None:
        self._forebay.close()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        refuse(name, "app")


# A `shared_task` belongs to no app: Celery keeps such tasks for every app of the process, and so does this.
_SHARED: Final[list[tuple[Callable[..., Any], dict[str, Any]]]] = []


class SharedTask:
    """A task of the app that was created last."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._task()(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._task(), name)

    def _task(self) -> Task:
        if not _APPS:
            raise ConfigError(
                f"{self._name} is a shared task, and there is no app yet: make a Celery(...) first"
            )
        task: Task = _APPS[-1].tasks[self._name]
        return task


def shared_task(func: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function a task of every app of this process."""
    if func is None:
        return lambda function: shared_task(function, **options)
    _SHARED.append((func, options))
    for app in _APPS:
        app.task(func, **options)
    return SharedTask(options.get("name") or name_of(func, None))


def __getattr__(name: str) -> Any:
    """Refuse names of Celery's package that are not offered, also in `from ... import`."""
    if name.startswith("__") or not is_known(name):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # No AttributeError: for an import Python would say that it cannot import the name, without the remedy.
    raise ConfigError(refusal_message(name, "the name"))
