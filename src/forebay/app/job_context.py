"""Context of a running attempt: its job, cancellation and lease signals, progress, steps, follow-ups."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from time import sleep
from typing import TYPE_CHECKING, Any, Final, NamedTuple, ParamSpec, Protocol, TypeVar, overload

from msgspec.structs import replace

from forebay.app.durable_steps import PendingStep, decode_step, encode_step
from forebay.app.parent_results import parent_results
from forebay.app.progress_and_log_line_checks import make_log_line, make_progress
from forebay.clock import SystemClock
from forebay.deferred_interrupts import uninterrupted
from forebay.domain.job import MAX_COST, Job, JobId, NewJob, WorkerId
from forebay.domain.job_validation import check_integer
from forebay.domain.outcome import Completed
from forebay.domain.progress import (
    MAX_STEPS,
    LogLine,
    Progress,
    StepResult,
    check_step_bytes,
    check_step_name,
)
from forebay.domain.settlement import Settlement, decide
from forebay.errors import Cancel, ConfigError, InvalidJob, LeaseLost, NewerPayload, StoreUnavailable
from forebay.payload.codec import encode_result

if TYPE_CHECKING:
    from asyncio import Lock
    from logging import Logger, LoggerAdapter

    from forebay.app.client import Client

P = ParamSpec("P")
R = TypeVar("R")

HEARTBEAT_SECONDS: Final = 1.0
# Interval at which a thread that waits for its step checks for interrupts; pause between tries at an outage.
INTERRUPT_CHECK_SECONDS: Final = 0.05
STORE_RETRY_SECONDS: Final = 0.5
MAX_FOLLOW_UPS: Final = 1_000

_CLOCK: Final = SystemClock()


class FencingToken(NamedTuple):
    """Fencing token for effects outside of the store: of one job, the greater attempt is the newer one."""

    attempt: int
    worker: WorkerId


class RenewalStatus(NamedTuple):
    """Status of lease renewals. `renewed_at` is the time of the last success, in milliseconds since 1970, by
    this machine's clock. `failures` counts the failures in a row since then. `lost_because` is the reason if
    the lease is lost."""

    renewed_at: int | None = None
    failures: int = 0
    lost_because: str | None = None


NOT_RENEWED: Final = RenewalStatus()


class ProgressSink(Protocol):
    """Sink for progress and log lines: the progress buffer of a worker, or the channel of an isolated
    process.

    May be called from any thread, and be interrupted anywhere.
    """

    def add(self, context: JobContext, item: Progress | LogLine) -> None:
        """Store this with the job, soon: the latest progress, the last log lines."""
        ...

    def save_step(
        self, context: JobContext, step: StepResult, on_saved: Callable[[], object] | None = None
    ) -> PendingStep:
        """Store a step under the attempt's lease. `on_saved` is called, on any thread, with the answer."""
        ...

    def steps(self, context: JobContext) -> Mapping[str, bytes]:
        """Return the step results of earlier attempts, by name. May raise StoreUnavailable."""
        ...


class _AttemptState:
    """State that an attempt has changed through its context. Created on first use: most attempts have
    none."""

    __slots__ = (
        "cost",
        "follow_ups",
        "heartbeat_at",
        "is_completed_in_tx",
        "progress",
        "running_steps",
        "step_sizes",
        "steps",
        "steps_lock",
        "undecodable",
    )

    def __init__(self, attempt: int) -> None:
        self.progress = Progress(attempt=attempt)
        self.heartbeat_at = -HEARTBEAT_SECONDS
        self.steps: dict[str, bytes] | None = None  # None until those of earlier attempts are loaded
        self.steps_lock: Lock | None = None  # held by the coroutine that loads them
        self.running_steps = 0
        self.step_sizes: dict[str, int] = {}  # bytes of each result, also of one on its way to the store
        self.follow_ups: list[NewJob] = []
        self.is_completed_in_tx = False
        self.cost: int | None = None
        self.undecodable: NewerPayload | None = None  # why a step or a result cannot be read here

    def set_earlier_steps(self, steps: dict[str, bytes]) -> None:
        # A thread of this job may have been faster, and have finished a step since.
        if self.steps is None:
            self.steps = steps


class JobContext:
    """The context of one attempt: its job, its signals (cancel, soft time-out, lease), its reports.

    `progress_sink` takes its progress, log lines and steps; without one they are dropped. `client` is that of
    its task, for caller transactions.
    """

    __slots__ = (
        "_attempt_state",
        "_cancel_reason",
        "_is_past_soft_timeout",
        "_renewals",
        "client",
        "job",
        "progress_sink",
    )

    def __init__(self, job: Job, progress_sink: ProgressSink | None = None) -> None:
        self.job: Job = job
        self.progress_sink: ProgressSink | None = progress_sink
        self.client: Client | None = None
        self._attempt_state: _AttemptState | None = None
        self._cancel_reason: str | None = None
        self._is_past_soft_timeout = False
        self._renewals = NOT_RENEWED

    @property
    def id(self) -> JobId:
        """The id of the job, the same at each attempt."""
        return self.job.id

    @property
    def attempt(self) -> int:
        """The number of this attempt. It grows with each claim, also of a job that was returned unstarted, so
        it tells attempts apart. `run_number` counts runs."""
        return self.job.attempt

    @property
    def run_number(self) -> int:
        """The number of this run. It is 1 in the first run, also after claims that were returned unstarted. A
        retry, and a run after a snooze, has a higher number."""
        return self.job.run_number

    @property
    def fencing_token(self) -> FencingToken:
        """The fencing token of this attempt: its number and its worker."""
        return FencingToken(self.job.attempt, self.job.worker or WorkerId(""))

    @property
    def is_cancelled(self) -> bool:
        """True if this job was cancelled and should stop."""
        return self._cancel_reason is not None

    @property
    def is_lease_lost(self) -> bool:
        """True if the lease is lost: another attempt may be running, and the result of this one will be
        refused."""
        return self._renewals.lost_because is not None

    @property
    def is_lease_in_doubt(self) -> bool:
        """True if the store has not answered the last renewal. The lease may still be held: continue, and be
        careful with effects that must not happen twice."""
        return self._renewals.failures > 0

    @property
    def is_past_soft_timeout(self) -> bool:
        """True if this attempt has run longer than its task's `soft_timeout` and should come to an end."""
        return self._is_past_soft_timeout

    @property
    def claimed_at(self) -> int | None:
        """Time at which this attempt was claimed, in milliseconds since 1970, by the store's clock."""
        return self.job.started_at

    @property
    def renewals(self) -> RenewalStatus:
        """Status of the renewals of this attempt's lease."""
        return self._renewals

    @property
    def cancel_reason(self) -> str | None:
        """The reason of a cancellation; None if the job was not cancelled."""
        return self._cancel_reason

    @property
    def logger(self) -> LoggerAdapter[Logger]:
        """A logger whose records have the job's id, task, queue, attempt and correlation id."""
        # An import, and `getLogger`, take locks that the whole process shares.
        with uninterrupted:
            from logging import LoggerAdapter, getLogger  # noqa: PLC0415 - programs that only enqueue need none

            from forebay.telemetry.log_fields import job_fields  # noqa: PLC0415 - it needs logging as well

            return LoggerAdapter(getLogger("forebay.task"), job_fields(self.job))

    # Report

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Report the progress of this attempt. The latest report is stored with the job, at most once a
        second."""
        own = self._state()
        own.progress = make_progress(self.job, done, total, message)
        own.heartbeat_at = _CLOCK.monotonic()
        if self.progress_sink is not None:
            self.progress_sink.add(self, own.progress)

    def log(self, text: str, level: str = "INFO") -> None:
        """Store a log line with the job; the last 200 lines of all attempts are kept."""
        if self.progress_sink is not None:
            self.progress_sink.add(self, make_log_line(self.job, text, level))

    def heartbeat(self) -> None:
        """Report that this attempt is alive, and check for signals: raise LeaseLost if its lease is lost, and
        Cancel, which ends the job as cancelled, if it was cancelled. Call it often."""
        self._check_lease()
        if self._cancel_reason is not None:
            raise Cancel(self._cancel_reason)
        own, now = self._state(), _CLOCK.monotonic()
        if self.progress_sink is not None and now >= own.heartbeat_at + HEARTBEAT_SECONDS:
            own.heartbeat_at = now
            own.progress = replace(own.progress)  # a new object, to be written with a new time
            self.progress_sink.add(self, own.progress)

    def set_cost(self, tokens: int) -> None:
        """Set the cost of this attempt, in tokens of its rates, if it is known only now.

        At its end the difference to the job's `cost` is charged or given back. The last call counts.
        """
        check_integer("cost", tokens, 0, MAX_COST)
        self._state().cost = tokens

    def follow_up(self, job: NewJob) -> None:
        """Enqueue a job, made by `task.job(...)`, with the completion of this one: both happen or neither. If
        this attempt does not complete, nothing is enqueued."""
        if not isinstance(job, NewJob):
            raise InvalidJob(f"a follow-up must be a job made by task.job(...), not {job!r:.60}", field="job")
        if self.is_completed_in_tx:
            raise InvalidJob("this job is completed already: add follow-ups before complete_tx", field="job")
        follow_ups = self._state().follow_ups
        if len(follow_ups) >= MAX_FOLLOW_UPS:
            raise InvalidJob(
                f"a job can have {MAX_FOLLOW_UPS:,} follow-ups; let one of them enqueue the rest",
                field="job",
            )
        follow_ups.append(job if job.parent_id is not None else replace(job, parent_id=self.id))

    @property
    def follow_ups(self) -> tuple[NewJob, ...]:
        """Jobs to be enqueued when this attempt completes."""
        return () if self._attempt_state is None else tuple(self._attempt_state.follow_ups)

    # Complete

    def parent_results(self) -> list[Any]:
        """Return the results of the jobs that this one depends on, in the order of its dependencies.

        A failed job whose failure is ignored is represented by the JobFailed or JobCancelled that reading its
        result would raise; a deleted one by JobNotFound.
        """
        with self._record_undecodable():
            return parent_results(self._require_client(), self.id)

    async def parent_results_async(self) -> list[Any]:
        """`parent_results` for coroutines."""
        client = self._require_client()
        with self._record_undecodable():
            return await client.run_in_thread(parent_results, client, self.id)

    def _require_client(self) -> Client:
        if self.client is None:
            raise ConfigError("no worker runs this job, so there is no store to read")
        return self.client

    def complete_tx(self, connection: object, result: Any = None) -> None:
        """Complete this job in your own open transaction on the store's database. With its commit the job is
        completed, with this result and its follow-ups. Other effects of the transaction happen exactly once.

        Commit right after this. Raises LeaseLost if the lease is lost: roll back then. If the task returns
        after a rollback, the attempt has failed. The return value of the task is ignored.
        """
        client, settlement = self._require_open_attempt(), self._completion(result)
        with uninterrupted, self._complete_in_tx():
            client.complete_tx(connection, self.fencing_token.worker, settlement)

    async def complete_tx_async(self, connection: object, result: Any = None) -> None:
        """`complete_tx` with a connection that lives on this event loop."""
        client = self._require_open_attempt()
        with self._complete_in_tx():
            await client.complete_tx_async(connection, self.fencing_token.worker, self._completion(result))

    @contextmanager
    def _complete_in_tx(self) -> Iterator[None]:
        """Mark the attempt as completed around the statement that completes it in the caller's transaction.

        The mark is set before the statement: an interrupt may come right after it. Without the mark the
        worker would not know of the open transaction, and its settlement would wait for the lock of the
        lease.

        It is cleared only for an error of the statement itself, after which the savepoint is rolled back.
        After an interrupt it stays set: a worker that finds the lease still held settles as usual.
        """
        own = self._state()
        was_completed, own.is_completed_in_tx = own.is_completed_in_tx, True
        try:
            yield
        except Exception:
            own.is_completed_in_tx = was_completed
            raise

    @property
    def is_completed_in_tx(self) -> bool:
        """True if this attempt has completed its job in a caller transaction, committed or not."""
        return self._attempt_state is not None and self._attempt_state.is_completed_in_tx

    def _require_open_attempt(self) -> Client:
        if self.client is None:
            raise ConfigError("no worker runs this job, so there is nothing to complete")
        self._check_lease()
        return self.client

    def _completion(self, result: Any) -> Settlement:
        return decide(self.job, Completed(encode_result(result), self.follow_ups), 0.0)

    # Steps

    def step(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a step of the job once, and return its stored result.

        If this or an earlier attempt has stored the step, `fn` is not called. Otherwise `fn` is called, and
        this method returns when its result is stored; it raises LeaseLost if the store refuses that. Results
        are decoded from the store, in the class that the annotation of `fn` names.
        """
        if inspect.iscoroutinefunction(fn):
            raise ConfigError(f"step {name!r:.60} is a coroutine function: await step_async instead")
        steps = self._load_steps(name)
        if name not in steps:
            with self._guard_step(name, steps):
                data = encode_step(name, fn(*args, **kwargs))
                self._save_step(name, data)
                steps.setdefault(name, data)
        with self._record_undecodable():
            result: R = decode_step(name, fn, steps[name])
        return result

    @overload
    async def step_async(
        self, name: str, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...

    @overload
    async def step_async(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    async def step_async(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """`step` for coroutine tasks, without blocking the loop; `fn` may be a coroutine function."""
        steps = await self._load_steps_async(name)
        if name not in steps:
            with self._guard_step(name, steps):
                value = fn(*args, **kwargs)
                data = encode_step(name, await value if inspect.isawaitable(value) else value)
                await self._save_step_async(name, data)
                # Of two calls with one name at the same time, the first stored result wins.
                steps.setdefault(name, data)
        with self._record_undecodable():
            return decode_step(name, fn, steps[name])

    def _load_steps(self, name: str) -> dict[str, bytes]:
        """Return the step results so far; those of earlier attempts are loaded once."""
        check_step_name(name)
        own = self._state()
        while own.steps is None:
            try:
                own.steps = self._load_earlier_steps()
            except StoreUnavailable:  # an outage of the store must not fail the task
                sleep(STORE_RETRY_SECONDS)
        return own.steps

    async def _load_steps_async(self, name: str) -> dict[str, bytes]:
        if self.attempt == 1:
            return self._load_steps(name)
        from asyncio import Lock, sleep, to_thread  # noqa: PLC0415 - most programs have no event loop

        check_step_name(name)
        own = self._state()
        own.steps_lock = own.steps_lock or Lock()
        async with own.steps_lock:  # hundreds of coroutines may start steps; one of them loads the results
            while own.steps is None:
                try:
                    own.set_earlier_steps(await to_thread(self._load_earlier_steps))
                except StoreUnavailable:
                    await sleep(STORE_RETRY_SECONDS)
        return own.steps

    def _load_earlier_steps(self) -> dict[str, bytes]:
        if self.attempt == 1 or self.progress_sink is None:
            return {}
        return dict(self.progress_sink.steps(self))

    def _check_step_bytes(self, name: str, data: bytes) -> None:
        """Raise PayloadError, before the store would, if the job's step results get too many bytes."""
        own = self._state()
        sizes = {earlier: len(result) for earlier, result in (own.steps or {}).items()} | own.step_sizes
        sizes.setdefault(name, len(data))
        check_step_bytes(name, sum(sizes.values()))
        own.step_sizes = sizes

    def _save_step(self, name: str, data: bytes) -> None:
        self._check_step_bytes(name, data)
        if self.progress_sink is None:
            return
        pending = self.progress_sink.save_step(self, StepResult(name=name, result=data, attempt=self.attempt))
        # In slices: a pending interrupt is raised between two of them.
        while not pending.wait(INTERRUPT_CHECK_SECONDS):
            pass
        pending.check()

    async def _save_step_async(self, name: str, data: bytes) -> None:
        from asyncio import get_running_loop  # noqa: PLC0415 - most programs have no event loop

        self._check_step_bytes(name, data)
        if self.progress_sink is None:
            return
        loop = get_running_loop()
        answered = loop.create_future()

        def wake() -> None:
            if not answered.done():  # else the waiting coroutine was cancelled
                answered.set_result(None)

        step = StepResult(name=name, result=data, attempt=self.attempt)
        pending = self.progress_sink.save_step(self, step, lambda: loop.call_soon_threadsafe(wake))
        await answered
        pending.check()

    @contextmanager
    def _guard_step(self, name: str, steps: dict[str, bytes]) -> Iterator[None]:
        """Refuse a step before its work, and not after it, if its result could not be stored."""
        self._check_lease()
        if self.is_completed_in_tx:
            raise ConfigError(f"step {name!r:.60} comes too late: complete_tx was called")
        own = self._state()
        if len(steps) + own.running_steps >= MAX_STEPS:
            raise ConfigError(f"step {name!r:.60} is one too many: a job can have {MAX_STEPS:,} steps")
        own.running_steps += 1  # coroutines may run many at a time
        try:
            yield
        finally:
            own.running_steps -= 1

    @contextmanager
    def _record_undecodable(self) -> Iterator[None]:
        """Record data of other attempts and jobs that this program is too old to read. A newer worker may
        read it: if this ends the attempt, the job is parked, like a job with such arguments."""
        try:
            yield
        except NewerPayload as exc:
            self._state().undecodable = exc
            raise

    def _check_lease(self) -> None:
        if self._renewals.lost_because is not None:
            raise LeaseLost(
                f"the lease of job {self.id}, attempt {self.attempt}, is lost: "
                f"{self._renewals.lost_because}; "
                "the result of this attempt will be refused, so stop"
            )

    def _state(self) -> _AttemptState:
        if self._attempt_state is None:
            self._attempt_state = _AttemptState(self.attempt)
        return self._attempt_state

    # Signals from the worker

    def mark_cancelled(self, reason: str) -> None:
        self._cancel_reason = reason

    def mark_past_soft_timeout(self) -> None:
        self._is_past_soft_timeout = True

    def mark_renewed(self, at: int) -> None:
        # A lost lease stays lost: the answer to a renewal may come after the attempt was abandoned.
        self._renewals = RenewalStatus(renewed_at=at, lost_because=self._renewals.lost_because)

    def mark_lease_regained(self, at: int) -> None:
        """Record that the store has given this attempt the same lease again."""
        self._renewals = RenewalStatus(renewed_at=at)

    def mark_lease_in_doubt(self) -> None:
        self._renewals = self._renewals._replace(failures=self._renewals.failures + 1)

    def mark_lease_lost(self, reason: str = "its renewal was refused") -> None:
        self._renewals = self._renewals._replace(failures=0, lost_because=reason)


def reported_cost(context: JobContext) -> int | None:
    """Return the cost that a task has set for its attempt; None if it has set none."""
    own = context._attempt_state
    return None if own is None else own.cost


def undecodable_input(context: JobContext) -> NewerPayload | None:
    """Return why a step or a parent's result could not be read by this program; None if all could."""
    own = context._attempt_state
    return None if own is None else own.undecodable
