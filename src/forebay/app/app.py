"""`Forebay`: the one object that a program holds in its hand."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, Unpack, overload

from forebay.app.client import Client
from forebay.app.consumer import Consumer
from forebay.app.handle import JobHandle
from forebay.app.options import CallOptions, TaskOptions, check_names
from forebay.app.registry import Registry
from forebay.app.task import Task
from forebay.clock import Clock, SystemClock
from forebay.domain.job import DEFAULT_QUEUE, JobId, NewJob, WorkerId
from forebay.errors import ConfigError
from forebay.stores.ids import new_id
from forebay.stores.opening import open_engine
from forebay.stores.protocol import OnConflict, Receipt

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
    """

    def __init__(self, url: str = "sqlite:///forebay.db", *, clock: Clock | None = None) -> None:
        self.engine = open_engine(url, clock=clock)
        self.clock = clock or SystemClock()
        self.registry = Registry()
        self.client = Client(self.engine, self.clock, self.registry.returned)

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
        **options: Unpack[TaskOptions],
    ) -> TaskMaker: ...

    def task(  # type: ignore[misc]  # mypy does not match Unpack against keyword arguments of any name
        self,
        func: Callable[..., Any] | None = None,
        /,
        name: str | None = None,
        no_retry_for: tuple[type[BaseException], ...] = (),
        **options: Any,
    ) -> Any:
        """Make a function a task; with or without options. Its name is its module and its own name.

        In a program that is run as `python jobs.py` the module is called `jobs`, not `__main__`.

        Exceptions listed in `no_retry_for` send a job to the dead letters at once.
        """
        chosen: Any = options
        check_names(chosen, TaskOptions)
        maker = TaskMaker(self, name, no_retry_for, chosen)
        return maker if func is None else maker(func)

    def enqueue_many(
        self, jobs: Sequence[NewJob], *, atomic: bool = True, on_conflict: OnConflict = "return"
    ) -> list[JobHandle[Any]]:
        """Store many jobs at once, all or none; made by `task.job(...)`. The handles come in the same order.

        With `atomic=False` the jobs that can be stored are; the handles of the others hold the error.
        """
        return self.client.enqueue(jobs, on_conflict=on_conflict, atomic=atomic)

    def enqueue_within(
        self, connection: object, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return"
    ) -> list[JobHandle[Any]]:
        """Store jobs in your own open transaction, so that they come true with what else it does.

        with connection:  # a sqlite3.Connection to the database that holds the jobs
            connection.execute("insert into orders ...")
            app.enqueue_within(connection, [send.job("ada@example.com")])
        """
        return self.client.enqueue_within(connection, jobs, on_conflict=on_conflict)

    async def enqueue_many_async(
        self, jobs: Sequence[NewJob], *, atomic: bool = True, on_conflict: OnConflict = "return"
    ) -> list[JobHandle[Any]]:
        """`enqueue_many` for coroutines."""
        return await self.client.enqueue_async(jobs, on_conflict=on_conflict, atomic=atomic)

    def job(self, job_id: str) -> JobHandle[Any]:
        """A handle for a job that was enqueued elsewhere."""
        return JobHandle(self.client, Receipt(id=JobId(job_id), is_new=False))

    def queues(self) -> list[str]:
        """The queues that the app's tasks name."""
        return sorted({self.registry[name].queue for name in self.registry}) or [DEFAULT_QUEUE]

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
        from forebay.scheduler.standard import standard_duties  # noqa: PLC0415 - consumers alone need it

        sweeper = WorkerId(new_id())
        return Consumer(self.engine, standard_duties(sweeper=sweeper, clock=self.clock, roll=random.random))

    def close(self) -> None:
        """Let go of the store; stored jobs stay stored."""
        self.client.close()

    def __enter__(self) -> Forebay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class TaskMaker:
    """Makes functions tasks of one app, with the options given to `app.task`."""

    def __init__(
        self,
        app: Forebay,
        name: str | None,
        no_retry_for: tuple[type[BaseException], ...],
        options: CallOptions,
    ) -> None:
        self._app = app
        self._name = name
        self._no_retry_for = no_retry_for
        self._options = options

    @overload
    def __call__(self, func: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...

    @overload
    def __call__(self, func: Callable[P, R], /) -> Task[P, R]: ...

    def __call__(self, func: Callable[..., Any], /) -> Any:
        name = self._name or _name_of(func)
        task = Task[..., Any](func, name, self._app.client, self._options, self._no_retry_for)
        self._app.registry.add(task)
        return task


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
