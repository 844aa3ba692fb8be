"""Execution of one job: find its task, decode, call. Everything that can happen becomes an `Outcome` here."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from forebay.app.current_job import set_current_job
from forebay.app.execution_policy import ExecutionPolicy
from forebay.app.job_context import JobContext, reported_cost, undecodable_input
from forebay.app.middleware import wrap_call
from forebay.app.registry import Registry
from forebay.app.task import Task
from forebay.domain.durations_and_instants import duration_ms
from forebay.domain.job import DAY_MS
from forebay.domain.job_history import MAX_MESSAGE, MAX_TRACEBACK
from forebay.domain.lane import capability_lane, payload_lane, task_lane
from forebay.domain.outcome import (
    AttemptError,
    Cancelled,
    Completed,
    Discarded,
    Failed,
    Interrupted,
    Lost,
    Outcome,
    Parked,
    Snoozed,
)
from forebay.domain.storable_text import escape_unencodable
from forebay.errors import (
    Cancel,
    Discard,
    NewerPayload,
    PayloadError,
    PermanentError,
    Retry,
    RetryableError,
    Snooze,
    UnknownTask,
)
from forebay.payload.codec import VERSION, decode_call, encode_result
from forebay.telemetry.log_fields import job_fields
from forebay.worker.assigned_job import Assignment

LONGEST_DELAY_MS: Final = 366 * DAY_MS
SIGNATURE_CHANGED: Final = (
    "the function may have changed since the job was enqueued: it takes other arguments now"
)

logger: logging.Logger = logging.getLogger(__name__)


class JobTimeout(BaseException):
    """The attempt ran longer than its timeout. Not an Exception, so that `except Exception` lets it pass."""


class JobInterrupted(BaseException):
    """The attempt shall stop: its job was cancelled, or its worker stops."""


class WorkerStopping(JobInterrupted):
    """The attempt shall stop because its worker stops, which does not wait long."""


class TaskInvocation(NamedTuple):
    """A task with the arguments of one job; `func` is the function to call, with its middleware."""

    task: Task[..., Any]
    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Invoker:
    """Runs assignments of one program's tasks. `add_soft_limit` is called for those with a soft limit, in
    seconds."""

    def __init__(
        self, registry: Registry, add_soft_limit: Callable[[Assignment, float], None] | None = None
    ) -> None:
        self._registry = registry
        self._add_soft_limit = add_soft_limit

    def is_async(self, name: str) -> bool:
        return name in self._registry and self._registry[name].is_async

    def announce(self, assignment: Assignment) -> None:
        """Announce that this job begins. To be called where no interrupt can be heard: an interrupt at the
        wrong moment would leave the lock of the wake signal locked for ever."""
        set_current_job(assignment.context)
        name = assignment.job.task
        if self._add_soft_limit is not None and name in self._registry:
            seconds = self._registry[name].execution_policy.soft_timeout
            if seconds is not None:
                self._add_soft_limit(assignment, seconds)

    def prepare(self, assignment: Assignment) -> TaskInvocation:
        """Build the call of this job. May run code of the program (a dataclass that checks its fields) and
        raise anything; `make_outcome` turns that into an outcome."""
        task = self._registry[assignment.job.task]
        assignment.context.client = task.client
        args, kwargs = decode_call(assignment.job.payload)
        try:
            task.check_fit(args, kwargs)
        except PayloadError as exc:
            raise PayloadError(f"{exc}; {SIGNATURE_CHANGED}", field="args") from exc
        args, kwargs = task.coerce_arguments(args, kwargs)
        layers = self._registry.middleware
        if not layers:
            return TaskInvocation(task, task.func, args, kwargs)
        func = wrap_call(task.func, tuple(layers), assignment.context, is_async=task.is_async)
        return TaskInvocation(task, func, args, kwargs)

    def make_outcome(
        self, assignment: Assignment, call: TaskInvocation | None, value: Any, raised: BaseException | None
    ) -> Outcome:
        """Return the outcome of a call: it returned a value, or raised, perhaps before there was a call at
        all."""
        outcome = self._make_outcome(assignment, call, value, raised)
        cost = reported_cost(assignment.context)
        # A parked or lost attempt has not run to its end here, so its cost says nothing.
        if cost is None or isinstance(outcome, (Parked, Lost)):
            return outcome
        return replace(outcome, cost=cost)

    def _make_outcome(
        self, assignment: Assignment, call: TaskInvocation | None, value: Any, raised: BaseException | None
    ) -> Outcome:
        if raised is not None:
            return self._outcome_of_error(assignment, raised, call)
        if isinstance(assignment.stopped_by, JobTimeout):
            # It returned after its time was over, whatever it did about that.
            return self.stopped_outcome(assignment)
        return _outcome_of_value(value, assignment.context)

    async def run_coroutine(self, assignment: Assignment) -> Outcome:
        """Run a coroutine task on this event loop."""
        self.announce(assignment)
        call: TaskInvocation | None = None
        try:
            call = self.prepare(assignment)
            func: Callable[..., Awaitable[Any]] = call.func
            value = await func(*call.args, **call.kwargs)
        except BaseException as exc:
            return self.make_outcome(assignment, call, None, exc)
        return self.make_outcome(assignment, call, value, None)

    def stopped_outcome(self, assignment: Assignment) -> Outcome:
        """Return the outcome of an attempt that is known only by the reason for its stop."""
        name = assignment.job.task
        return _outcome_of_stop(
            assignment, self._registry[name].execution_policy if name in self._registry else ExecutionPolicy()
        )

    def _outcome_of_unprepared(self, assignment: Assignment, exc: BaseException) -> Outcome:
        """Return the outcome of a job whose task could not even be called."""
        # A job that this program cannot read now may be readable after its deploy, and for another worker at
        # once.
        if isinstance(exc, (UnknownTask, NewerPayload)):
            return _parked_outcome(assignment, exc)
        error = attempt_error(exc)
        is_final = isinstance(exc, PayloadError) and not isinstance(exc, RetryableError)
        return Discarded(error) if is_final else Failed(error)

    def _outcome_of_error(
        self, assignment: Assignment, exc: BaseException, call: TaskInvocation | None
    ) -> Outcome:
        try:
            if assignment.stopped_by is not None and _is_stop(exc):
                return self.stopped_outcome(assignment)
            if call is None:
                return self._outcome_of_unprepared(assignment, exc)
            unread = undecodable_input(assignment.context)
            if unread is not None and exc is unread:
                return replace(_parked_outcome(assignment, unread), started=True)
            return _outcome_of_exception(exc, call.task.execution_policy.no_retry_for)
        # The task's request makes no sense, a snooze of "soon" for example.
        except BaseException as wrong:
            return Failed(attempt_error(wrong))


def _parked_outcome(assignment: Assignment, exc: UnknownTask | NewerPayload) -> Parked:
    logger.warning("job %s is parked: %s", assignment.job.id, exc, extra=job_fields(assignment.job))
    return Parked(_lane_for(assignment.job.task, exc), str(exc))


def _lane_for(task: str, exc: UnknownTask | NewerPayload) -> str:
    """Return the lane in which a job waits for a program that can run it."""
    if isinstance(exc, UnknownTask):
        return task_lane(task)
    return payload_lane(VERSION + 1) if exc.requires is None else capability_lane(exc.requires)


def _outcome_of_exception(exc: BaseException, no_retry_for: tuple[type[BaseException], ...]) -> Outcome:
    if isinstance(exc, Snooze):
        return Snoozed(_delay_ms("delay", exc.delay))
    if isinstance(exc, Cancel):
        return Cancelled(escape_unencodable(str(exc)) or "cancelled by its own task")
    error = attempt_error(exc)
    if isinstance(exc, Retry):
        return Failed(error, None if exc.after is None else _delay_ms("after", exc.after))
    if isinstance(exc, (Discard, PermanentError)):
        return Discarded(error)
    if isinstance(exc, no_retry_for) and not isinstance(exc, RetryableError):
        return Discarded(error)
    return Failed(error)


def _delay_ms(field: str, delay: float) -> int:
    return min(max(0, duration_ms(field, delay)), LONGEST_DELAY_MS)


def _outcome_of_value(value: Any, context: JobContext) -> Outcome:
    if context.is_completed_in_tx:
        return Completed(is_in_caller_tx=True)
    try:
        return Completed(encode_result(value), context.follow_ups)
    except Exception as exc:  # it cannot be stored
        return Failed(attempt_error(exc))


def _outcome_of_stop(assignment: Assignment, policy: ExecutionPolicy) -> Outcome:
    """Return the outcome of an attempt that was made to stop."""
    if assignment.stopped_by is None:
        return Failed(AttemptError(type="Unknown", message="the attempt ended for an unknown reason"))
    if isinstance(assignment.stopped_by, JobTimeout):
        error = AttemptError(type="Timeout", message=str(assignment.stopped_by))
        return Failed(error) if policy.retry_on_timeout else Discarded(error)
    reason = assignment.context.cancel_reason
    return Interrupted() if reason is None else Cancelled(reason)


def _is_stop(exc: BaseException) -> bool:
    # By name, because a worker without coroutine tasks never loads asyncio.
    return isinstance(exc, (JobTimeout, JobInterrupted)) or type(exc).__name__ == "CancelledError"


def attempt_error(exc: BaseException) -> AttemptError:
    """Return the stored form of an exception; one that cannot even be formatted is still recorded."""
    try:
        message = str(exc)
        lines = traceback.format_exception(exc)
    except BaseException:  # code of the task, which may raise anything
        message, lines = "(its message cannot be shown)", []
    return AttemptError(
        type=type(exc).__qualname__,
        message=escape_unencodable(message[:MAX_MESSAGE]),
        traceback=escape_unencodable("".join(lines))[-MAX_TRACEBACK:],
    )
