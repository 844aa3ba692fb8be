"""`Forebay`: the main object of a program, with its tasks and its store."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar, Unpack, overload

from forebay.app.client import Client
from forebay.app.execution_policy import ExecutionPolicy, make_execution_policy
from forebay.app.job_handle import JobHandle
from forebay.app.job_options import CallOptions, TaskOptions, check_names, merge_options
from forebay.app.job_template import make_template
from forebay.app.named_job_builder import JobBuilder
from forebay.app.queue_settings_and_drain_time import QueueAdmin
from forebay.app.registry import Registry
from forebay.app.schedule_decorators import ScheduleDecorators
from forebay.app.task import Task
from forebay.app.worker_hooks_and_error_listeners import Hook, Hooks, Listener, register
from forebay.clock import Clock, SystemClock
from forebay.domain.durations_and_instants import Duration
from forebay.domain.job import DEFAULT_QUEUE, JobId, NewJob, QueueName
from forebay.domain.job_validation import MAX_PAYLOAD
from forebay.errors import ConfigError
from forebay.payload.codec import check_limit

if TYPE_CHECKING:
    from pathlib import Path

    from forebay.app.alerts import Alerts
    from forebay.app.chain_and_group import Step
    from forebay.app.consumer import Consumer
    from forebay.app.dead_letters import DeadLetters
    from forebay.app.limits import Limits
    from forebay.app.middleware import Middleware
    from forebay.app.workflow import Workflow
    from forebay.domain.allowed_alert_addresses_and_secrets import DeliveryPolicy
    from forebay.domain.job_query import JobQuery, Page
    from forebay.domain.job_views import JobSummary
    from forebay.domain.queue_counts import Counts
    from forebay.payload.blob_stores import Blobs
    from forebay.payload.encryption_keys import EncryptionKeys
    from forebay.stores.contract.claims_and_results import OnConflict
    from forebay.stores.contract.engine import Engine
    from forebay.worker.worker import Worker

F = TypeVar("F", bound=Hook)
AnyListener = TypeVar("AnyListener", bound=Listener)
Layer = TypeVar("Layer", bound="Middleware")
P = ParamSpec("P")
R = TypeVar("R")


class Forebay(ScheduleDecorators, QueueAdmin):
    """The tasks of a program and the store of their jobs.

    The store is opened when it is first needed. The object may be used from any thread, by coroutines, and
    after a fork.

        app = Forebay("sqlite:///jobs.db")

        @app.task(queue="mail", retries=5, timeout=30)
        def send(to: str, subject: str) -> str: ...

        job = send.enqueue("ada@example.com", subject="Hi")

    `defaults` are options for all jobs; their task and their call may override them. `max_payload` is the
    largest size of one job's arguments, in bytes.

    With `encryption_keys` (by id, the newest first) arguments, results and steps are encrypted in the store.
    With `require_encryption` unencrypted ones are refused. `blob_store` is a folder, or an object of your
    own, for those of more than 256 KiB.

    Alerts are delivered to public addresses and to the networks that `allow_webhooks_to` names.
    `secrets_folder` contains their secrets written as `file:PATH`. `api_key` is for a store behind a service
    (`https://`). `actor` is the name of this program in the audit log, by default `app@HOST`.
    """

    def __init__(  # noqa: PLR0913 - all but the URL are given by name
        self,
        url: str = "sqlite:///forebay.db",
        *,
        defaults: TaskOptions | None = None,
        max_payload: int = MAX_PAYLOAD,
        encryption_keys: EncryptionKeys | Mapping[str, bytes | str] | str | None = None,
        blob_store: Blobs | Path | str | None = None,
        allow_webhooks_to: str | Iterable[str] = (),
        secrets_folder: str | None = None,
        require_encryption: bool = False,
        api_key: str | None = None,
        actor: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        from forebay.stores.factory import open_engine  # noqa: PLC0415 - a tenth of the import's time

        self.defaults: CallOptions = _check_defaults(defaults)
        check_limit(max_payload)
        self.max_payload = max_payload
        self.engine: Engine = open_engine(url, clock=clock, key=api_key)
        if encryption_keys is not None or blob_store is not None or require_encryption:
            from forebay.payload.engine_wrapper import wrap_engine  # noqa: PLC0415 - programs without them never load it

            self.engine = wrap_engine(
                self.engine, encryption_keys, blob_store, requires_encryption=require_encryption
            )
        self.delivery_policy: DeliveryPolicy | None = None
        if allow_webhooks_to or secrets_folder is not None:
            from forebay.domain.allowed_alert_addresses_and_secrets import parse_policy  # noqa: PLC0415 - as above

            self.delivery_policy = parse_policy(allow_webhooks_to, secrets_folder)
        self._url, self._api_key = url, api_key  # for the supervisor of a worker process; both may be secrets
        self.clock: Clock = clock or SystemClock()
        self.registry: Registry = Registry()
        self.client: Client = Client(self.engine, self.clock, self.registry.coerce_result, actor=actor)
        self._job_builder = JobBuilder(self.registry, self.defaults, max_payload, self.client.now_ms)

    @overload
    def task(self, func: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...

    @overload
    def task(self, func: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(
        self,
        *,
        name: str | None = None,
        aliases: Sequence[str] = (),
        no_retry_for: tuple[type[BaseException], ...] = (),
        soft_timeout: Duration | None = None,
        retry_on_timeout: bool = True,
        isolated: bool = False,
        memory_limit: int | str | None = None,
        grace: Duration | None = None,
        **options: Unpack[TaskOptions],
    ) -> TaskMaker: ...

    # One parameter for each option. mypy does not match Unpack against keyword arguments of any name.
    def task(  # type: ignore[misc]  # noqa: PLR0913, PLR0917
        self,
        func: Callable[..., Any] | None = None,
        /,
        name: str | None = None,
        aliases: Sequence[str] = (),
        no_retry_for: tuple[type[BaseException], ...] = (),
        soft_timeout: Duration | None = None,
        retry_on_timeout: bool = True,
        isolated: bool = False,
        memory_limit: int | str | None = None,
        grace: Duration | None = None,
        **options: Any,
    ) -> Any:
        """Make a function a task, with or without options. Its name is its module and its own name.

        In a program that is run as `python jobs.py` the module is called `jobs`, not `__main__`.

        `aliases` are former names: jobs that were enqueued under one of them run this task too.

        Exceptions listed in `no_retry_for` send a job to the dead letters at once, and so does a timeout with
        `retry_on_timeout=False`. After `soft_timeout` a running job is warned
        (`current_job().is_past_soft_timeout`).

        `isolated=True` runs each job in a process of its own, which can be killed. `memory_limit` bounds the
        memory of that process, in bytes or as a text like "512MB". It is killed `grace` (5 s) after it was
        asked to stop.
        """
        task_options: Any = options
        check_names(task_options, TaskOptions, _TASK_SETTINGS)
        policy = make_execution_policy(
            no_retry_for, soft_timeout, retry_on_timeout, isolated, memory_limit, grace
        )
        maker = TaskMaker(self, name, _check_aliases(aliases), policy, task_options)
        return maker if func is None else maker(func)

    # Hooks

    def on_start(self, hook: F) -> F:
        """Call this function, or coroutine function, at the start of a worker, before its first job, and in
        isolated processes too. If it raises, the worker does not start."""
        return register(self.registry.hooks.on_start, hook)

    def on_stop(self, hook: F) -> F:
        """Call this function, or coroutine function, after a worker has settled its last job."""
        return register(self.registry.hooks.on_stop, hook)

    def on_error(self, listener: AnyListener) -> AnyListener:
        """Call `listener(job, error)` for each new dead letter, and with None as the job for an error of the
        worker itself. It runs on the worker's own thread, so it must be fast."""
        return register(self.registry.hooks.on_error, listener)

    def middleware(self, layer: Layer) -> Layer:
        """Wrap all task calls: `layer(context)` returns a context manager that is entered before the call and
        left after it. The first one added is the outermost."""
        return register(self.registry.middleware, layer)

    # Enqueue

    def enqueue(
        self,
        task: str | NewJob,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> JobHandle[Any]:
        """Enqueue a task by its name, also one that this program does not import; or store a NewJob.

            app.enqueue("mail.send", ["ada@example.com"], {"subject": "Hi"}, queue="mail", priority=9)
            app.enqueue(send.job("ada@example.com"))

        A task that is registered here brings its options, and arguments that do not fit it are refused.
        """
        job, on_conflict = self._job_builder.build_request(task, args, kwargs, options)
        [handle] = self.client.enqueue([job], on_conflict=on_conflict)
        return handle

    async def enqueue_async(
        self,
        task: str | NewJob,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> JobHandle[Any]:
        """`enqueue` for coroutines."""
        job, on_conflict = self._job_builder.build_request(task, args, kwargs, options)
        [handle] = await self.client.enqueue_async([job], on_conflict=on_conflict)
        return handle

    def enqueue_many(
        self, jobs: Sequence[NewJob], *, atomic: bool = True, on_conflict: OnConflict = "return"
    ) -> list[JobHandle[Any]]:
        """Store many jobs, made by `task.job(...)`, all or none. The handles come in the same order.

        With `atomic=False` refused jobs are left out; their handles have the error.
        """
        return self.client.enqueue(
            self._job_builder.check_sizes(jobs), on_conflict=on_conflict, atomic=atomic
        )

    async def enqueue_many_async(
        self, jobs: Sequence[NewJob], *, atomic: bool = True, on_conflict: OnConflict = "return"
    ) -> list[JobHandle[Any]]:
        """`enqueue_many` for coroutines."""
        checked = self._job_builder.check_sizes(jobs)
        return await self.client.enqueue_async(checked, on_conflict=on_conflict, atomic=atomic)

    def enqueue_tx(
        self, connection: object, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return"
    ) -> list[JobHandle[Any]]:
        """Store jobs in your own open transaction, so that they commit with its other effects.

            with connection:  # a sqlite3.Connection to the database that holds the jobs
                connection.execute("insert into orders ...")
                app.enqueue_tx(connection, [send.job("ada@example.com")])

        The jobs exist from your commit on.
        """
        return self.client.enqueue_tx(
            connection, self._job_builder.check_sizes(jobs), on_conflict=on_conflict
        )

    async def enqueue_tx_async(
        self, connection: object, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return"
    ) -> list[JobHandle[Any]]:
        """`enqueue_tx` with a connection on this event loop: of psycopg, asyncpg or SQLAlchemy."""
        checked = self._job_builder.check_sizes(jobs)
        return await self.client.enqueue_tx_async(connection, checked, on_conflict=on_conflict)

    def workflow(self, *steps: Step) -> Workflow:
        """Create a workflow: jobs that depend on each other, stored in one call.

            flow = app.workflow(chain(load.job(), group(*(clean.job(n) for n in range(9))), report.job()))
            done = flow.enqueue()

        The steps given here run in parallel; `add` adds further ones.
        """
        from forebay.app.workflow import Workflow  # noqa: PLC0415 - programs without workflows never load it

        flow = Workflow(self.client, self._job_builder.check_sizes)
        for step in steps:
            flow.add(step)
        return flow

    # Read

    def job(self, job_id: str) -> JobHandle[Any]:
        """Return a handle for a job that was enqueued elsewhere; does not check that it exists."""
        from forebay.stores.contract.claims_and_results import InsertResult  # noqa: PLC0415 - a tenth of the import's time

        return JobHandle(self.client, InsertResult(id=JobId(job_id), is_new=False))

    def counts(self, *queues: str) -> dict[QueueName, Counts]:
        """Return the number of jobs by queue and state; of all queues if none is named."""
        return self.client.counts([QueueName(name) for name in queues])

    async def counts_async(self, *queues: str) -> dict[QueueName, Counts]:
        """`counts` for coroutines."""
        return await self.client.run_in_thread(self.counts, *queues)

    def peek(self, queue: str | None = None, limit: int = 10) -> list[JobSummary]:
        """Return the jobs that would run next, in order, without claiming them."""
        name = QueueName(queue or self.default_queue)
        return self.client.read(lambda reader: reader.peek(name, limit))

    async def peek_async(self, queue: str | None = None, limit: int = 10) -> list[JobSummary]:
        """`peek` for coroutines."""
        return await self.client.run_in_thread(self.peek, queue, limit)

    def search(self, query: JobQuery | None = None, *, limit: int = 100, after: str | None = None) -> Page:
        """Return one page of matching jobs, newest first; `page.after` is the start of the next page."""
        from forebay.domain.job_query import JobQuery  # noqa: PLC0415 - as above

        return self.client.search(query or JobQuery(), limit=limit, after=after)

    async def search_async(
        self, query: JobQuery | None = None, *, limit: int = 100, after: str | None = None
    ) -> Page:
        """`search` for coroutines."""
        return await self.client.run_in_thread(self.search, query, limit=limit, after=after)

    @property
    def dead_letters(self) -> DeadLetters:
        """The dead letters: `failure_groups`, and `revive`, `purge` and `revive_gradually` for many of
        them."""
        from forebay.app.dead_letters import DeadLetters  # noqa: PLC0415 - most programs never use it

        return DeadLetters(self.client, self.engine)

    @property
    def limits(self) -> Limits:
        """Bounds on concurrent jobs and on the rate of starts: `set`, `remove` and `list`."""
        from forebay.app.limits import Limits  # noqa: PLC0415 - most programs set none

        return Limits(self.client)

    @property
    def alerts(self) -> Alerts:
        """The alerts of the store, their rules and their channels."""
        from forebay.app.alerts import Alerts  # noqa: PLC0415 - most programs never use it

        return Alerts(self.client, self.clock, actor=self.client.actor)

    @property
    def default_queue(self) -> QueueName:
        """The queue of tasks that name none."""
        return QueueName(self.defaults.get("queue", DEFAULT_QUEUE))

    def queues(self) -> list[str]:
        """Return the queues that the app's tasks name."""
        return sorted({self.registry[name].queue for name in self.registry}) or [self.default_queue]

    # Run

    @contextmanager
    def run_worker(
        self,
        *,
        threads: int = 4,
        coroutines: int = 100,
        isolated: int | None = None,
        queues: Sequence[str] | Mapping[str, int | None] | None = None,
        strict: bool = False,
        metrics: bool = True,
        max_abandoned: int = 16,
    ) -> Iterator[Worker]:
        """Run a worker inside this program while the block lasts; shut it down in order at the end.

        `queues` is a list, or a dict of weights: {"mail": 3, "reports": 1} gives mail three jobs for each one
        of reports. In a list, or with None, queues have the weights of their settings. With `strict` a queue
        gets only the slots that the queues named before it leave. Without `metrics` the worker writes no
        metrics.

        A thread whose job does not stop at its time limit is abandoned and replaced. With more than
        `max_abandoned` of them no further thread is replaced, and the worker is not healthy.
        """
        from forebay.worker.worker import Worker  # noqa: PLC0415 - programs that only enqueue never load it

        if isinstance(queues, str):
            raise ConfigError(f"queues must be a list of names: write queues=[{queues!r}]")
        worker = Worker(
            self.engine,
            self.registry,
            queues=queues or self.queues(),
            threads=threads,
            coroutines=coroutines,
            isolated=isolated,
            clock=self.clock,
            strict=strict,
            metrics=metrics,
            max_abandoned=max_abandoned,
            policy=self.delivery_policy,
        )
        worker.start()
        try:
            yield worker
        finally:
            worker.stop()

    def consumer(self) -> Consumer:
        """Return a consumer, to claim and settle jobs from a loop of your own. It runs due maintenance tasks
        after each claim."""
        from functools import partial  # noqa: PLC0415 - like the next three, needed by consumers only
        from random import random  # noqa: PLC0415

        from forebay.app.consumer import Consumer  # noqa: PLC0415
        from forebay.maintenance.standard_tasks import standard_tasks  # noqa: PLC0415

        engine, clock, hooks = self.engine, self.clock, Hooks(self.registry.hooks.observers)
        policy = self.delivery_policy
        tasks = partial(standard_tasks, clock=clock, roll=random, hooks=hooks, engine=engine, policy=policy)
        own: dict[str, Any] = {} if engine.features.runs_maintenance else {"maintenance_tasks": tasks}
        own |= {"default_queue": self.default_queue, "observers": hooks.observers, "clock": clock}
        return Consumer(engine, **own, metrics=True)

    def sweep(self) -> int:
        """Return jobs of dead workers, and jobs with ended leases, to their queues; return how many moved.

        Workers and consumers sweep every second, and pause after a step of the store's clock. This call has
        no such guard: right after a step forward it takes jobs from live workers, and those jobs run again.
        """
        from random import random  # noqa: PLC0415 - like the next three, programs that only enqueue need none

        from forebay.operations.lease_sweep import sweep  # noqa: PLC0415
        from forebay.stores.contract.claims_and_results import BATCH  # noqa: PLC0415
        from forebay.stores.id_generator import new_worker_id  # noqa: PLC0415

        sweeper, moved = new_worker_id(), 0
        # One batch each time this thread holds the store, so that other threads can enqueue in between.
        while swept := self.client.write(lambda store: sweep(store, sweeper, random)):
            moved += swept
            if swept < BATCH:
                break
        return moved

    async def sweep_async(self) -> int:
        """`sweep` for coroutines."""
        return await self.client.run_in_thread(self.sweep)

    # End

    def close(self) -> None:
        """Close the store; stored jobs stay."""
        self.client.close()

    async def close_async(self) -> None:
        """`close` for coroutines."""
        from asyncio import to_thread  # noqa: PLC0415 - most programs have no event loop

        # Not on the store thread: `close` joins that thread, which cannot join itself.
        await to_thread(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close_async()

    def __repr__(self) -> str:
        # Without the URL: it may contain a password, and this text ends up in logs.
        tasks = {self.registry[name].name for name in self.registry}
        return f"<Forebay on {self.engine.features.name}, {len(tasks)} tasks>"


# Options of `app.task` besides `TaskOptions`.
_TASK_SETTINGS: Final = (
    "name",
    "aliases",
    "no_retry_for",
    "soft_timeout",
    "retry_on_timeout",
    "isolated",
    "memory_limit",
    "grace",
)


class TaskMaker:
    """Decorator that makes functions tasks of one app, with the options given to `app.task`."""

    def __init__(
        self,
        app: Forebay,
        name: str | None,
        aliases: tuple[str, ...],
        policy: ExecutionPolicy,
        options: CallOptions,
    ) -> None:
        self._app = app
        self._name = name
        self._aliases = aliases
        self._policy = policy
        self._options = options

    @overload
    def __call__(self, func: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...

    @overload
    def __call__(self, func: Callable[P, R], /) -> Task[P, R]: ...

    def __call__(self, func: Callable[..., Any], /) -> Any:
        name = self._name or _name_of(func)
        app, options = self._app, merge_options(self._options, self._app.defaults)
        task = Task[..., Any](
            func,
            name,
            app.client,
            options,
            self._policy,
            aliases=self._aliases,
            max_payload=app.max_payload,
        )
        app.registry.add(task)
        return task


def _check_defaults(defaults: TaskOptions | None) -> CallOptions:
    """Return the defaults for all tasks; raise InvalidJob or ConfigError for one that no task can have."""
    if defaults is not None and not isinstance(defaults, Mapping):
        raise ConfigError(f"defaults must be a dict of options, not {defaults!r:.60}")
    unchecked: Any = dict(defaults or {})
    check_names(unchecked, TaskOptions)
    make_template("defaults", unchecked)
    options: CallOptions = unchecked
    return options


def _check_aliases(aliases: Sequence[str]) -> tuple[str, ...]:
    # A str is a sequence of strings too: "send" would become four names.
    if isinstance(aliases, str) or not isinstance(aliases, Iterable):
        raise ConfigError(f"aliases must be a list of names: write aliases=[{aliases!r:.60}]")
    names = tuple(dict.fromkeys(aliases))
    for alias in names:
        make_template(alias, {})  # raises InvalidJob for a wrong task name
    return names


def _name_of(func: Callable[..., Any]) -> str:
    name = getattr(func, "__qualname__", None)
    if name is None:
        raise ConfigError(f"{func!r:.60} has no name of its own; give it one with app.task(name=...)")
    return f"{_module_of(func)}.{name}"


def _module_of(func: Callable[..., Any]) -> str:
    """Return the module's name, also of one that is run as a program: a worker imports it under that name."""
    if func.__module__ != "__main__":
        return func.__module__
    main = sys.modules["__main__"]
    spec, file = main.__spec__, getattr(main, "__file__", None)
    if spec is not None:
        return spec.name
    return "__main__" if file is None else os.path.splitext(os.path.basename(file))[0]
