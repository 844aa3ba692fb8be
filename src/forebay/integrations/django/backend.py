"""The backend that Django's tasks are enqueued through."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from threading import RLock
from typing import Any, Final
from urllib.parse import quote

from django.db import close_old_connections, connections
from django.utils import timezone
from django.utils.module_loading import autodiscover_modules

from forebay.app.app import Forebay
from forebay.app.context import JobContext
from forebay.app.current import current_job
from forebay.domain.history import Timeline
from forebay.domain.job import Job, JobId
from forebay.domain.outcome import AttemptError
from forebay.errors import ConfigError, ForebayError
from forebay.integrations.django.results import as_result, enqueued_at, task_of
from forebay.integrations.django.tasks_api import (
    backends,
    base,
    exceptions,
    invalid_task,
    normalize_json,
    signals,
    task_backends,
)

OPTIONS: Final = frozenset({"url", "database", "defaults", "key", "encryption_keys", "blobs"})

# Django makes a backend for each thread, and its tests another database under the same alias. So the stores
# are kept here, by their addresses, with the tasks of each alias.
_apps: dict[tuple[str, str, str], Forebay] = {}
_tasks: dict[str, dict[str, Any]] = {}
_lock = RLock()


class ForebayBackend(backends.BaseTaskBackend):  # type: ignore[misc]
    """Stores tasks as jobs. Options:

    - `url` of the store, or `database`: the alias of one of DATABASES that holds the jobs. Then a task that
      is enqueued in a transaction of that database comes true with its commit, and not before.
    - `defaults` for all jobs, such as {"retries": 5, "timeout": 60}; `key`, `encryption_keys` and `blobs` as
      `Forebay` takes them.

    A function becomes known to workers where its module is imported: they import `tasks` of every installed
    app when they start.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        if unknown := set(self.options) - OPTIONS:
            raise ConfigError(
                f"TASKS[{alias!r}] has options that Forebay does not know: {', '.join(sorted(unknown))}"
            )
        self._database: str | None = self.options.get("database")
        if (self.options.get("url") is None) == (self._database is None):
            raise ConfigError(f"TASKS[{alias!r}] needs one of the options 'url' and 'database'")

    @property
    def app(self) -> Forebay:
        """The store of this backend, with the tasks that are known so far."""
        url = self.options["url"] if self._database is None else _url_of(self._database)
        key = self.alias, repr(sorted(self.options.items())), url
        with _lock:
            if key not in _apps:
                _apps[key] = self._new_app(url)
            return _apps[key]

    def _new_app(self, url: str) -> Forebay:
        chosen = {name: value for name, value in self.options.items() if name not in ("url", "database")}
        app = Forebay(url, **chosen)
        app.middleware(_fresh_connections)
        app.on_error(self._finished_badly)
        for name, task in _tasks.get(self.alias, {}).items():
            app.task(name=name)(self._runner(task))
        return app

    # Enqueue

    def validate_task(self, task: Any) -> None:
        """Refuse what cannot run, and let workers of this program know the rest."""
        super().validate_task(task)
        self._known(task)

    def _known(self, task: Any) -> Any:
        name = task.module_path
        with _lock:
            app = self.app
            if name not in app.registry:
                try:
                    app.task(name=name)(self._runner(task))
                except ForebayError as exc:
                    raise invalid_task(str(exc)) from exc
            _tasks.setdefault(self.alias, {})[name] = task
        return app.registry[name]

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Store a job; in the open transaction of the database that holds the jobs, if there is one."""
        self.validate_task(task)
        args, kwargs = normalize_json(list(args)), normalize_json(dict(kwargs))
        call = self._known(task).using(queue=task.queue_name, priority=task.priority)
        if task.run_after is not None:
            call = call.using(run_at=task.run_after)
        if self._database is not None and connections[self._database].in_atomic_block:
            handle = call.enqueue_within(connections[self._database], *args, **kwargs)
        else:
            handle = call.enqueue(*args, **kwargs)
        result = base.TaskResult(
            task=task,
            id=handle.id,
            status=base.TaskResultStatus.READY,
            enqueued_at=enqueued_at(handle.id),
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=args,
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        signals.task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """How a job stands, also one that another program has enqueued."""
        timeline = self.app.client.history(JobId(result_id))
        if timeline is None:
            raise exceptions.TaskResultDoesNotExist(result_id)
        return as_result(task_of(timeline.job, self.alias), timeline)

    # Run

    def _runner(self, task: Any) -> Callable[..., Any]:
        """What a worker calls: the function of the task, with the signals around it."""
        func = task.func

        if inspect.iscoroutinefunction(func):

            @wraps(func)
            async def run_async(*args: Any, **kwargs: Any) -> Any:
                context = self._started()
                given = (context, *args) if task.takes_context else args
                return self._finished(context, await func(*given, **kwargs))

            run: Callable[..., Any] = run_async
        else:

            @wraps(func)
            def run_here(*args: Any, **kwargs: Any) -> Any:
                context = self._started()
                given = (context, *args) if task.takes_context else args
                return self._finished(context, func(*given, **kwargs))

            run = run_here
        if task.takes_context:
            # Callers do not give it, so it is not among the arguments that a call is checked against.
            parameters = list(inspect.signature(func).parameters.values())[1:]
            run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    def _started(self) -> Any:
        job = current_job().job
        before = self.app.client.history(job.id) if job.attempt > 1 else None
        timeline = Timeline(job=job, attempts=before.attempts if before is not None else (), events=())
        result = as_result(task_of(job, self.alias), timeline)
        signals.task_started.send(type(self), task_result=result)
        return base.TaskContext(task_result=result)

    def _finished(self, context: Any, value: Any) -> Any:
        result, returned = context.task_result, normalize_json(value)
        object.__setattr__(result, "finished_at", timezone.now())
        object.__setattr__(result, "status", base.TaskResultStatus.SUCCESSFUL)
        object.__setattr__(result, "_return_value", returned)
        signals.task_finished.send(type(self), task_result=result)
        return returned

    def _finished_badly(self, job: Job | None, _: AttemptError) -> None:
        if job is not None:
            signals.task_finished.send(type(self), task_result=self.get_result(job.id))


@contextmanager
def _fresh_connections(_: JobContext) -> Iterator[None]:
    """As Django does around a request: connections that are too old or broken are not used again."""
    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()


def _url_of(alias: str) -> str:
    """The address of one of Django's databases, as a store."""
    if alias not in connections:
        raise ConfigError(f"DATABASES has no {alias!r}, which the option 'database' of TASKS names")
    found = connections[alias].settings_dict
    engine = found["ENGINE"].rpartition(".")[2]
    if engine == "sqlite3":
        return f"sqlite:///{os.path.abspath(found['NAME'])}"
    if engine in ("postgresql", "postgis"):
        user = ":".join(quote(str(found[part]), safe="") for part in ("USER", "PASSWORD") if found.get(part))
        host = f"{found.get('HOST') or ''}{':' if found.get('PORT') else ''}{found.get('PORT') or ''}"
        return f"postgresql://{user}{'@' if user else ''}{host}/{quote(str(found['NAME']), safe='')}"
    raise ConfigError(
        f"the database {alias!r} is of the kind {engine}: jobs can be kept in SQLite and PostgreSQL; "
        "give the option 'url' instead"
    )


def django_app(alias: str = "default") -> Forebay:
    """The `Forebay` object behind one of TASKS, with the tasks of all installed apps."""
    backend = task_backends[alias]
    if not isinstance(backend, ForebayBackend):
        raise ConfigError(f"TASKS[{alias!r}] is not one of Forebay's: {type(backend).__module__}")
    autodiscover_modules("tasks")
    return backend.app
