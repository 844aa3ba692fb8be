"""Backend for Django's tasks, which stores them as jobs."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import wraps
from threading import RLock
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from django.db import close_old_connections, connections
from django.utils import timezone
from django.utils.module_loading import autodiscover_modules

from forebay.app.app import Forebay
from forebay.app.current_job import current_job
from forebay.app.job_context import JobContext
from forebay.deferred_interrupts import uninterrupted
from forebay.domain.job import Job, JobId
from forebay.domain.job_history import Attempt, Timeline
from forebay.domain.outcome import AttemptError
from forebay.domain.settlement import OutcomeKind
from forebay.errors import ConfigError, ForebayError, StoreError
from forebay.integrations.django.results import as_result, enqueue_time, task_of
from forebay.integrations.django.tasks_api import (
    backends,
    base,
    exceptions,
    invalid_task,
    normalize_json,
    signals,
    task_backends,
)

logger: logging.Logger = logging.getLogger(__name__)

# Options that Django passes to libpq unchanged, and that a connection of Forebay needs too.
_FOR_LIBPQ: Final = frozenset(
    {
        *("service", "passfile", "sslmode", "sslcert", "sslkey", "sslrootcert", "sslcrl", "sslpassword"),
        *("channel_binding", "gssencmode", "krbsrvname", "requirepeer", "hostaddr"),
        *("target_session_attrs", "load_balance_hosts"),
    }
)
OPTIONS: Final = frozenset(
    {
        "url", "database", "defaults", "api_key", "encryption_keys", "blob_store", "require_encryption",
        "allow_webhooks_to", "secrets_folder",
    }
)  # fmt: skip

# Django creates a backend for each thread, and its tests another database under the same alias. So the stores
# are kept here, by their addresses, with the tasks of each alias.
_apps: dict[tuple[str, str, str], Forebay] = {}
_tasks: dict[str, dict[str, Any]] = {}
_lock = RLock()

if TYPE_CHECKING:  # Django has no types

    class _Backend:
        """The part of Django's class that is used here."""

        alias: str
        options: dict[str, Any]

        def __init__(self, alias: str, params: Mapping[str, Any]) -> None: ...

        def validate_task(self, task: Any) -> None: ...
else:
    _Backend = backends.BaseTaskBackend


class ForebayBackend(_Backend):
    """Stores tasks as jobs. Options:

    - `url` of the store, or `database`: the alias of one of DATABASES that holds the jobs. Then a task that
      is enqueued in a transaction of that database becomes visible with its commit, and not before.
    - `defaults` for all jobs, such as {"retries": 5, "timeout": 60}
    - `api_key`, `encryption_keys`, `blob_store`, `require_encryption`, `allow_webhooks_to` and
      `secrets_folder` as in `Forebay`

    A function is known to workers where its module is imported: they import `tasks` of every installed app
    when they start.
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
        self.database: str | None = self.options.get("database")
        if (self.options.get("url") is None) == (self.database is None):
            raise ConfigError(f"TASKS[{alias!r}] needs one of the options 'url' and 'database'")

    @property
    def app(self) -> Forebay:
        """The store of this backend, with the tasks that are known so far."""
        url = self.options["url"] if self.database is None else url_of(self.database)
        key = self.alias, repr(sorted(self.options.items())), url
        with uninterrupted, _lock:
            if key not in _apps:
                _apps[key] = self._new_app(url)
            return _apps[key]

    def _new_app(self, url: str) -> Forebay:
        chosen = {name: value for name, value in self.options.items() if name not in ("url", "database")}
        app = Forebay(url, **chosen)
        app.middleware(_refresh_connections)
        app.on_error(self._on_dead)
        for name, task in _tasks.get(self.alias, {}).items():
            app.task(name=name)(self._wrap_function(task))
        return app

    # Enqueue

    def validate_task(self, task: Any) -> None:
        """Refuse a task that cannot run, and register the others for workers of this program."""
        super().validate_task(task)
        self._register(task)

    def _register(self, task: Any) -> Any:
        name = task.module_path
        with uninterrupted, _lock:
            app = self.app
            if name not in app.registry:
                try:
                    app.task(name=name)(self._wrap_function(task))
                except ForebayError as exc:
                    raise invalid_task(str(exc)) from exc
            _tasks.setdefault(self.alias, {})[name] = task
        return app.registry[name]

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Store a job; in the open transaction of the database that holds the jobs, if there is one."""
        self.validate_task(task)
        args, kwargs = normalize_json(list(args)), normalize_json(dict(kwargs))
        configured = self._register(task).using(queue=task.queue_name, priority=task.priority)
        if task.run_after is not None:
            configured = configured.using(run_at=task.run_after)
        connection = None if self.database is None else connections[self.database]
        if connection is not None and (connection.in_atomic_block or not connection.get_autocommit()):
            handle = configured.enqueue_tx(connection, *args, **kwargs)
        else:
            handle = configured.enqueue(*args, **kwargs)
        result = base.TaskResult(
            task=task,
            id=handle.id,
            status=base.TaskResultStatus.READY,
            enqueued_at=enqueue_time(handle.id),
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=args,
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        self._send_signal(signals.task_enqueued, result)
        return result

    def get_result(self, result_id: str) -> Any:
        """Return the result of a job, also of one that another program has enqueued."""
        timeline = self.app.client.history(JobId(result_id))
        if timeline is None:
            raise exceptions.TaskResultDoesNotExist(result_id)
        return as_result(task_of(timeline.job, self.alias), timeline)

    # Run

    def _wrap_function(self, task: Any) -> Callable[..., Any]:
        """Return the function that a worker calls: that of the task, with the signals around it."""
        func = task.func

        if inspect.iscoroutinefunction(func):

            @wraps(func)
            async def run_async(*args: Any, **kwargs: Any) -> Any:
                # Off the loop: signal receivers may use the database, and other jobs run on the loop too.
                context = await asyncio.to_thread(self._on_started)
                given = (context, *args) if task.takes_context else args
                value = await func(*given, **kwargs)
                return await asyncio.to_thread(self._on_finished, context, value)

            run: Callable[..., Any] = run_async
        else:

            @wraps(func)
            def run_here(*args: Any, **kwargs: Any) -> Any:
                context = self._on_started()
                given = (context, *args) if task.takes_context else args
                return self._on_finished(context, func(*given, **kwargs))

            run = run_here
        if task.takes_context:
            # Callers do not pass it, so it is not among the arguments that a call is checked against.
            parameters = list(inspect.signature(func).parameters.values())[1:]
            run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    def _on_started(self) -> Any:
        job = current_job().job
        earlier: Timeline | None = None
        if job.attempt > 1:
            with suppress(StoreError):  # then the earlier attempts are left out; no attempt fails for that
                earlier = self.app.client.history(job.id)
        timeline = Timeline(job=job, attempts=earlier.attempts if earlier is not None else (), events=())
        result = as_result(task_of(job, self.alias), timeline)
        self._send_signal(signals.task_started, result)
        return base.TaskContext(task_result=result)

    def _on_finished(self, context: Any, value: Any) -> Any:
        result, returned = context.task_result, normalize_json(value)
        object.__setattr__(result, "finished_at", timezone.now())
        object.__setattr__(result, "status", base.TaskResultStatus.SUCCESSFUL)
        object.__setattr__(result, "_return_value", returned)
        self._send_signal(signals.task_finished, result)
        return returned

    def _on_dead(self, job: Job | None, error: AttemptError) -> None:
        """Send the signal of a dead job. It runs on the worker's settling thread, so nothing is read: the
        last error is the one in the signal."""
        if job is None:
            return
        last = Attempt(
            job_id=job.id,
            attempt=job.attempt,
            outcome=OutcomeKind.FAILED,
            worker=job.worker,
            started_at=job.started_at,
            ended_at=job.finished_at or job.updated_at,
            error=error,
        )
        with _refresh_connections():
            result = as_result(task_of(job, self.alias), Timeline(job=job, attempts=(last,), events=()))
            object.__setattr__(result, "finished_at", timezone.now())
            # Django's log of a failed task, and tools that listen there, take the error from sys.exc_info().
            try:
                raise _make_exception(error)
            except Exception:
                self._send_signal(signals.task_finished, result)

    def _send_signal(self, signal: Any, result: Any) -> None:
        """Send a signal. A receiver that fails must not make a finished job run again, or be stored twice."""
        for receiver, response in signal.send_robust(type(self), task_result=result):
            if isinstance(response, Exception):
                logger.error("%r has failed for the task %s", receiver, result.id, exc_info=response)


def _make_exception(error: AttemptError) -> Exception:
    """Return the error of an attempt as an exception. The attempt may have run in another process, so its
    traceback is a note of it."""
    kind: type[Exception] = type(error.type, (Exception,), {"__module__": "builtins"})
    exception = kind(error.message)
    if error.traceback:
        exception.add_note(error.traceback)
    return exception


@contextmanager
def _refresh_connections(_: JobContext | None = None) -> Iterator[None]:
    """Close old and broken connections around a job, as Django does around a request."""
    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()


def close_handles() -> None:
    """Close the connections of all stores; the next call of each opens them again."""
    with uninterrupted, _lock:
        apps = list(_apps.values())
    for app in apps:
        app.client.close_handles()


def url_of(alias: str) -> str:
    """Return the address of one of Django's databases, as a store."""
    if alias not in connections:
        raise ConfigError(f"DATABASES has no {alias!r}, which the option 'database' of TASKS names")
    settings = connections[alias].settings_dict
    engine = settings["ENGINE"].rpartition(".")[2]
    if engine == "sqlite3":
        return _sqlite_url(alias, str(settings["NAME"]))
    if engine in ("postgresql", "postgis"):
        given = {name: settings.get(name.upper()) for name in ("user", "password", "host", "port")}
        options = {name: value for name, value in settings.get("OPTIONS", {}).items() if name in _FOR_LIBPQ}
        chosen = {name: str(value) for name, value in {**given, **options}.items() if value}
        return f"postgresql:///{quote(str(settings['NAME']), safe='')}?{urlencode(chosen, quote_via=quote)}"
    raise ConfigError(
        f"the database {alias!r} is of the kind {engine}: jobs can be kept in SQLite and PostgreSQL; "
        "give the option 'url' instead"
    )


def _sqlite_url(alias: str, name: str) -> str:
    if ":memory:" in name or "mode=memory" in name:
        raise ConfigError(
            f"the database {alias!r} is in the memory of one connection, where no job can be kept; "
            f"for tests give DATABASES[{alias!r}]['TEST']['NAME'] a file"
        )
    return f"sqlite:///{quote(os.path.abspath(name))}"


def django_app(alias: str = "default") -> Forebay:
    """Return the `Forebay` object behind one of TASKS, with the tasks of all installed apps."""
    backend = task_backends[alias]
    if not isinstance(backend, ForebayBackend):
        raise ConfigError(f"TASKS[{alias!r}] is not one of Forebay's: {type(backend).__module__}")
    autodiscover_modules("tasks")
    return backend.app
