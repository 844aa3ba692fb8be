"""Tasks: functions that jobs run, with their default options and a typed enqueue."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, Protocol, TypeVar, Unpack

from msgspec.structs import replace

from forebay.app.client import Client
from forebay.app.execution_policy import ExecutionPolicy, check_timeout_order
from forebay.app.job_handle import JobHandle
from forebay.app.job_options import CallOptions, KeyFrom, merge_options
from forebay.app.job_template import JobTemplate, make_template
from forebay.app.signature_check import SignatureCheck
from forebay.domain.job import DEFAULT_QUEUE, NewJob
from forebay.domain.job_validation import MAX_PAYLOAD
from forebay.errors import ConfigError
from forebay.payload.codec import encode_call
from forebay.payload.coercion import Coercion

if TYPE_CHECKING:
    from forebay.stores.contract.claims_and_results import OnConflict

P = ParamSpec("P")
R = TypeVar("R")

_CELERY_METHODS: Final = frozenset({"apply_async", "delay"})


class ConfiguredTask(Generic[P, R]):
    """A task with the options of one call."""

    def __init__(self, task: Task[P, R], options: CallOptions) -> None:
        self._task = task
        self._options = options
        self._template: JobTemplate = make_template(task.name, options)

    @property
    def timeout_ms(self) -> int | None:
        """Milliseconds that an attempt may run; None without a limit."""
        return self._template.job.timeout_ms

    @property
    def on_conflict(self) -> OnConflict:
        """Effect of a taken key on this call: "return" or "raise"."""
        return self._template.on_conflict

    def using(self, **options: Unpack[CallOptions]) -> ConfiguredTask[P, R]:
        """Return the same task with some options replaced."""
        return ConfiguredTask(self._task, merge_options(options, self._options))

    # The slashes leave the name `self` to the function's own arguments.

    def job(self, /, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """Build the job that this call would enqueue, for `enqueue_many`."""
        self._task.check_fit(args, kwargs)
        payload = encode_call(args, kwargs, limit=self._task.max_payload)
        job = self._template.build(payload, self._task.client.now_ms)
        return (
            self._task.apply_argument_keys(job, self._template, args, kwargs)
            if self._template.depends_on_arguments
            else job
        )

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Enqueue the task with these arguments; return when the job is stored."""
        [handle] = self._task.client.enqueue(
            [self.job(*args, **kwargs)], on_conflict=self._template.on_conflict
        )
        return handle

    async def enqueue_async(self, /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """`enqueue` for coroutines."""
        job = self.job(*args, **kwargs)
        [handle] = await self._task.client.enqueue_async([job], on_conflict=self._template.on_conflict)
        return handle

    def enqueue_tx(self, connection: object, /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """`enqueue` in your own open transaction: the job exists from its commit on."""
        job = self.job(*args, **kwargs)
        client, on_conflict = self._task.client, self._template.on_conflict
        [handle] = client.enqueue_tx(connection, [job], on_conflict=on_conflict)
        return handle

    async def enqueue_tx_async(
        self, connection: object, /, *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle[R]:
        """`enqueue_tx` with a connection that lives on this event loop."""
        job = self.job(*args, **kwargs)
        client, on_conflict = self._task.client, self._template.on_conflict
        [handle] = await client.enqueue_tx_async(connection, [job], on_conflict=on_conflict)
        return handle


class TaskConfigurator(Protocol[P, R]):
    """The signature of a task's `using`."""

    def __call__(self, **options: Unpack[CallOptions]) -> ConfiguredTask[P, R]:
        """Return the same task with some options replaced."""
        ...


class Task(Generic[P, R]):
    """A registered function. Calling it runs it in place; `enqueue` lets a worker run it."""

    def __init__(
        self,
        func: Callable[P, Any],
        name: str,
        client: Client,
        options: CallOptions,
        execution_policy: ExecutionPolicy,
        *,
        aliases: tuple[str, ...] = (),
        max_payload: int = MAX_PAYLOAD,
    ) -> None:
        # First: it copies the function's own attributes, and one may have the name of an attribute below.
        update_wrapper(self, func)
        self.func = func
        self.name = name
        self.aliases = aliases
        self.client = client
        self.options = options
        self.max_payload = max_payload
        self.execution_policy = execution_policy
        self.is_async: bool = inspect.iscoroutinefunction(func)
        self.queue: str = options.get("queue", DEFAULT_QUEUE)
        self.check_fit: Callable[[tuple[Any, ...], dict[str, Any]], None] = SignatureCheck(func, name).check
        self._coercion = Coercion(func)
        self._configured = ConfiguredTask(self, options)
        check_timeout_order(execution_policy.soft_timeout, self._configured.timeout_ms)
        # Annotated one by one: some type checkers infer no type otherwise.
        self.using: TaskConfigurator[P, R] = self._configured.using
        self.job: Callable[P, NewJob] = self._configured.job
        self.enqueue: Callable[P, JobHandle[R]] = self._configured.enqueue
        self.enqueue_async: Callable[P, Coroutine[Any, Any, JobHandle[R]]] = self._configured.enqueue_async
        self.enqueue_tx: Callable[Concatenate[object, P], JobHandle[R]] = self._configured.enqueue_tx
        self.enqueue_tx_async: Callable[Concatenate[object, P], Coroutine[Any, Any, JobHandle[R]]] = (
            self._configured.enqueue_tx_async
        )

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        return self.func(*args, **kwargs)

    if not TYPE_CHECKING:  # to type checkers every name would exist

        def __getattr__(self, name: str) -> Any:
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in _CELERY_METHODS:
                message += "; write task.enqueue(...), or import Celery from forebay.compat.celery"
            raise AttributeError(message, name=name, obj=self)

    def coerce_arguments(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return stored arguments in the classes that the function's annotations name."""
        return self._coercion.coerce_arguments(args, kwargs)

    def apply_argument_keys(
        self, job: NewJob, template: JobTemplate, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> NewJob:
        """Return a job with the limit keys and the sequence that its arguments give. Explicit keys win."""
        from_arguments = {
            kind: self._key("limit_by", source, args, kwargs) for kind, source in template.limit_by.items()
        }
        job = replace(job, limit_keys={**from_arguments, **job.limit_keys})
        source = template.sequence_by
        if source is None:
            return job
        # With the name of the argument, so that account 7 does not wait for order 7.
        kind = "" if callable(source) else f"{source}:"
        return replace(job, sequence=kind + self._key("sequence_by", source, args, kwargs))

    def _key(self, option: str, source: KeyFrom, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        if callable(source):
            return str(source(*args, **kwargs))
        bound = inspect.signature(self.func).bind(*args, **kwargs)
        bound.apply_defaults()
        if source not in bound.arguments:
            raise ConfigError(f"task {self.name} has no argument {source!r}, which {option} names")
        return str(bound.arguments[source])

    def coerce_result(self, value: Any) -> Any:
        """Return a stored result in the class of the function's annotation; raise PayloadError if it does not
        fit."""
        return self._coercion.coerce_result(value)
