"""`Forebay`: the one object that a program holds in its hand."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack, overload

from forebay.app.by_name import ByName
from forebay.app.client import Client
from forebay.app.codec import check_limit
from forebay.app.conduct import Conduct, conduct
from forebay.app.handle import JobHandle
from forebay.app.options import CallOptions, TaskOptions, check_names, draft, over
from forebay.app.registry import Registry
from forebay.app.task import Task
from forebay.app.times import Length
from forebay.clock import Clock, SystemClock
from forebay.domain.job import DEFAULT_QUEUE, MAX_PAYLOAD, JobId, JobSummary, NewJob, QueueName
from forebay.domain.query import Counts, JobQuery, Page
from forebay.errors import ConfigError
from forebay.stores.protocol import BATCH, OnConflict, Receipt

if TYPE_CHECKING:
    from forebay.app.consumer import Consumer
    from forebay.app.duty import Duty

P = ParamSpec("P")
R = TypeVar("R")


class Forebay:
    """Tasks and the store their jobs live in.

    The store is opened when it is first needed. The object may be used from any thread, by coroutines, and
    after a fork.

        app = Forebay("sqlite:///jobs.db")

        @app.task(queue="mail", retries=5, timeout=30)
        def send(to: str, subject: str) -> str: ...

        job = send.enqueue("ada@example.com", subject="Hi")

    `defaults` are options for all jobs, unless their task or their call says otherwise. `max_payload` is the
    most bytes that the arguments of one job may take.
    """

    def __init__(
        self,
        url: str = "sqlite:///forebay.db",
        *,
        defaults: TaskOptions | None = None,
        max_payload: int = MAX_PAYLOAD,
        clock: Clock | None = None,
    ) -> None:
        from forebay.stores.opening import open_engine  # noqa: PLC0415 - a tenth of the import's time

        self.defaults = _checked_defaults(defaults)
        check_limit(max_payload)
        self.max_payload = max_payload
        self.engine = open_engine(url, clock=clock)
        self.clock = clock or SystemClock()
        self.registry = Registry()
        self.client = Client(self.engine, self.clock, self.registry.returned)
        self._by_name = ByName(self.registry, self.defaults, max_payload, self.client.now_ms)

    @overload
    def task(self, func: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...

    @overload
    def task(self, func: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(
        self,
        *,
        name: str | None = None,
        no_retry_for: tuple[type[BaseException], ...] = (),
        soft_timeout: Length | None = None,
        retry_on_timeout: bool = True,
        **options: Unpack[TaskOptions],
    ) -> TaskMaker: ...

    def task(  # type: ignore[misc]  # mypy does not match Unpack against keyword arguments of any name
        self,
        func: Callable[..., Any] | None = None,
        /,
        name: str | None = None,
        no_retry_for: tuple[type[BaseException], ...] = (),
        soft_timeout: Length | None = None,
        retry_on_timeout: bool = True,
        **options: Any,
    ) -> Any:
        """Make a function a task; with or without options. Its name is its module and its own name.

        In a program that is run as `python jobs.py` the module is called `jobs`, not `__main__`.

        Exceptions listed in `no_retry_for` send a job to the dead letters at once, and so does a timeout with
        `retry_on_timeout=False`. After `soft_timeout` a running job is told (`current_job().is_overdue`).
        """
        chosen: Any = options
        check_names(chosen, TaskOptions)
        manner = conduct(no_retry_for, soft_timeout, retry_on_timeout)
        maker = TaskMaker(self, name, manner, chosen)
        return maker if func is None else maker(func)

    # Enqueue

    def enqueue(
        self,
        task: str | NewJob,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> JobHandle[Any]:
        """Ask for a task by its name, also one that this program does not know; or store a job that is made.

            app.enqueue("mail.send", ["ada@example.com"], {"subject": "Hi"}, queue="mail", priority=9)
            app.enqueue(send.job("ada@example.com"))

        A task that is known here brings its options, and arguments that do not fit it are refused.
        """
        job, on_conflict = self._by_name.order(task, args, kwargs, options)
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
        job, on_conflict = self._by_name.order(task, args, kwargs, options)
        [handle] = await self.client.enqueue_async([job], on_conflict=on_conflict)
        return handle

    def enqueue_many(
        self, jobs: Sequence[NewJob], *, atomic: bool = True, on_conflict: OnConflict = "return"
    ) -> list[JobHandle[Any]]:
        """Store many jobs at once, all or none; made by `task.job(...)`. The handles come in the same order.

        With `atomic=False` the jobs that can be stored are; the handles of the others hold the error.
        """
        return self.client.enqueue(self._by_name.checked(jobs), on_conflict=on_conflict, atomic=atomic)

    async def enqueue_many_async(
        self, jobs: Sequence[NewJob], *, atomic: bool = True, on_conflict: OnConflict = "return"
    ) -> list[JobHandle[Any]]:
        """`enqueue_many` for coroutines."""
        checked = self._by_name.checked(jobs)
        return await self.client.enqueue_async(checked, on_conflict=on_conflict, atomic=atomic)

    def enqueue_within(
        self, connection: object, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return"
    ) -> list[JobHandle[Any]]:
        """Store jobs in your own open transaction, so that they come true with what else it does.

        with connection:  # a sqlite3.Connection to the database that holds the jobs
            connection.execute("insert into orders ...")
            app.enqueue_within(connection, [send.job("ada@example.com")])
        """
        return self.client.enqueue_within(connection, self._by_name.checked(jobs), on_conflict=on_conflict)

    # Look

    def job(self, job_id: str) -> JobHandle[Any]:
        """A handle for a job that was enqueued elsewhere; asks nobody whether there is one."""
        return JobHandle(self.client, Receipt(id=JobId(job_id), is_new=False))

    def counts(self, *queues: str) -> dict[QueueName, Counts]:
        """How many jobs are in which state, by queue; of all queues if none is named."""
        return self.client.counts([QueueName(name) for name in queues])

    async def counts_async(self, *queues: str) -> dict[QueueName, Counts]:
        """`counts` for coroutines."""
        return await self.client.offloaded(self.counts, *queues)

    def peek(self, queue: str | None = None, limit: int = 10) -> list[JobSummary]:
        """The jobs that would be run next, in order, without taking them."""
        name = QueueName(queue or self.default_queue)
        return self.client.read(lambda reader: reader.peek(name, limit))

    async def peek_async(self, queue: str | None = None, limit: int = 10) -> list[JobSummary]:
        """`peek` for coroutines."""
        return await self.client.offloaded(self.peek, queue, limit)

    def search(self, query: JobQuery | None = None, *, limit: int = 100, after: str | None = None) -> Page:
        """Jobs that fit, newest first; `page.after` is where the next page begins."""
        return self.client.search(query or JobQuery(), limit=limit, after=after)

    async def search_async(
        self, query: JobQuery | None = None, *, limit: int = 100, after: str | None = None
    ) -> Page:
        """`search` for coroutines."""
        return await self.client.offloaded(self.search, query, limit=limit, after=after)

    @property
    def default_queue(self) -> QueueName:
        """The queue of jobs whose task names none."""
        return QueueName(self.defaults.get("queue", DEFAULT_QUEUE))

    def queues(self) -> list[str]:
        """The queues that the app's tasks name."""
        return sorted({self.registry[name].queue for name in self.registry}) or [self.default_queue]

    # Work

    @contextmanager
    def working(
        self, *, threads: int = 4, coroutines: int = 100, queues: Sequence[str] | None = None
    ) -> Iterator[None]:
        """Run a worker inside this program while the block lasts; it is stopped in order at its end."""
        from forebay.worker.worker import Worker  # noqa: PLC0415 - programs that only enqueue never load it

        if isinstance(queues, str):
            raise ConfigError(f"queues must be a list of names: write queues=[{queues!r}]")
        worker = Worker(
            self.engine,
            self.registry,
            queues=queues or self.queues(),
            threads=threads,
            coroutines=coroutines,
            clock=self.clock,
        )
        worker.start()
        try:
            yield
        finally:
            worker.stop()

    def consumer(self) -> Consumer:
        """Claim and settle jobs from a loop of your own; runs due duties after each claim."""
        from random import random  # noqa: PLC0415 - like the next two, consumers alone need it

        from forebay.app.consumer import Consumer, new_worker  # noqa: PLC0415
        from forebay.scheduler.standard import standard_duties  # noqa: PLC0415

        def duties() -> Sequence[Duty]:
            return standard_duties(sweeper=new_worker(), clock=self.clock, roll=random)

        return Consumer(self.engine, duties, default_queue=self.default_queue)

    def sweep(self) -> int:
        """Put back at once the jobs of workers that died or whose leases have ended; answers how many moved.

        Workers and consumers do this by themselves every second.
        """
        from random import random  # noqa: PLC0415 - like the next two, loaded by nobody who only enqueues

        from forebay.app.bulk import sweep  # noqa: PLC0415
        from forebay.app.consumer import new_worker  # noqa: PLC0415

        sweeper, moved = new_worker(), 0
        # One batch each time the store is ours, so that others may enqueue in between.
        while found := self.client.write(lambda store: sweep(store, sweeper, random)):
            moved += found
            if found < BATCH:
                break
        return moved

    async def sweep_async(self) -> int:
        """`sweep` for coroutines."""
        return await self.client.offloaded(self.sweep)

    # End

    def close(self) -> None:
        """Let go of the store; stored jobs stay stored."""
        self.client.close()

    async def close_async(self) -> None:
        """`close` for coroutines."""
        from asyncio import to_thread  # noqa: PLC0415 - most programs have no event loop

        # Not on the store thread: it is waited for, and cannot wait for itself.
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
        # Not the address: it may hold a password, and this ends up in logs.
        return f"<Forebay on {self.engine.features.name}, {len(self.registry)} tasks>"


class TaskMaker:
    """Makes functions tasks of one app, with the options given to `app.task`."""

    def __init__(
        self,
        app: Forebay,
        name: str | None,
        conduct: Conduct,
        options: CallOptions,
    ) -> None:
        self._app = app
        self._name = name
        self._conduct = conduct
        self._options = options

    @overload
    def __call__(self, func: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...

    @overload
    def __call__(self, func: Callable[P, R], /) -> Task[P, R]: ...

    def __call__(self, func: Callable[..., Any], /) -> Any:
        name = self._name or _name_of(func)
        app, options = self._app, over(self._options, self._app.defaults)
        task = Task[..., Any](func, name, app.client, options, self._conduct, max_payload=app.max_payload)
        app.registry.add(task)
        return task


def _checked_defaults(defaults: TaskOptions | None) -> CallOptions:
    """Defaults that every task can have; raises InvalidJob or ConfigError before there is any."""
    if defaults is not None and not isinstance(defaults, Mapping):
        raise ConfigError(f"defaults must be a dict of options, not {defaults!r:.60}")
    chosen: Any = dict(defaults or {})
    check_names(chosen, TaskOptions)
    draft("defaults", chosen)
    options: CallOptions = chosen
    return options


def _name_of(func: Callable[..., Any]) -> str:
    name = getattr(func, "__qualname__", None)
    if name is None:
        raise ConfigError(f"{func!r:.60} has no name of its own; give it one with app.task(name=...)")
    return f"{_module_of(func)}.{name}"


def _module_of(func: Callable[..., Any]) -> str:
    """The module's name, also where it is run as a program: a worker will import it under that name."""
    if func.__module__ != "__main__":
        return func.__module__
    main = sys.modules["__main__"]
    spec, file = main.__spec__, getattr(main, "__file__", None)
    if spec is not None:
        return spec.name
    return "__main__" if file is None else os.path.splitext(os.path.basename(file))[0]
