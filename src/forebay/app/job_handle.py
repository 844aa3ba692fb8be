"""Handle of an enqueued job: state, result, waiting, cancellation."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Protocol, TypeVar, overload

from forebay.app.poll_backoff import PollBackoff
from forebay.domain.durations_and_instants import Duration
from forebay.domain.job import Job, JobId
from forebay.domain.job_states import JobState
from forebay.errors import ForebayError, JobCancelled, JobFailed, JobNotFound, WaitTimeout
from forebay.payload.codec import decode_result

if TYPE_CHECKING:
    from forebay.domain.dependencies import Edge
    from forebay.domain.job_history import Timeline
    from forebay.domain.progress import JobProgress, LogLine, Progress
    from forebay.stores.contract.claims_and_results import ActionResult, InsertResult

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

STILL_RUNNING = (
    "it was asked to stop and has not: its task does not check for cancellation, or its worker does not "
    "answer; it ends with its task, its timeout or its worker"
)


class JobClient(Protocol):
    """The calls of a client that a handle makes."""

    def job(self, job_id: JobId) -> Job | None: ...

    def history(self, job_id: JobId) -> Timeline | None: ...

    def progress(self, job_id: JobId) -> JobProgress: ...

    def parents(self, ids: Sequence[JobId]) -> list[Edge]: ...

    def dependants(self, ids: Sequence[JobId], *, limit: int = 1_000) -> list[Edge]: ...

    def waiting_reason(self, job: Job) -> str | None: ...

    def cancel(
        self, ids: Sequence[JobId], reason: str = "cancelled", *, dependants: bool = False
    ) -> list[ActionResult]: ...

    def coerce_result(self, task: str, value: Any) -> Any: ...

    async def job_async(self, job_id: JobId) -> Job | None: ...

    async def run_in_thread(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...


def decode_final_result(job: Job, coerce_result: Callable[[str, Any], Any]) -> Any:
    """Return the result of a final job; raise JobFailed or JobCancelled if it has none."""
    if job.state is JobState.CANCELLED:
        raise JobCancelled(f"job {job.id} was cancelled: {job.reason}")
    if job.state is JobState.DEAD:
        raise JobFailed(f"job {job.id} failed for good: {job.reason}")
    return coerce_result(job.task, None if job.result is None else decode_result(job.result))


class JobHandle(Generic[R]):
    """A reference to one job, to read it, wait for it and cancel it. Two handles of one job are equal.

    `is_new` is false if a unique or idempotency key was taken: the handle is then that of its holder. `error`
    is the reason why a job was refused; only an `enqueue_many` that is not atomic sets it.
    """

    __slots__ = ("_client", "_id", "error", "is_new")  # a bulk insert creates thousands

    def __init__(self, client: JobClient, result: InsertResult) -> None:
        self._client = client
        self._id = result.id
        self.is_new: bool = result.is_new
        self.error: ForebayError | None = result.error

    @property
    def id(self) -> JobId:
        """The job's id; raises the reason if the job was refused and has none."""
        if self._id is None:
            raise self.error or JobNotFound("this job was not stored")
        return self._id

    def refresh(self) -> Job:
        """Return the job's record as it is now; raise JobNotFound if it was deleted."""
        return self._require(self._client.job(self.id))

    async def refresh_async(self) -> Job:
        """`refresh` for coroutines. Reads at the same time share one query."""
        return self._require(await self._client.job_async(self.id))

    def _require(self, job: Job | None) -> Job:
        if job is None:
            raise JobNotFound(f"there is no job {self.id}")
        return job

    def wait(self, timeout: Duration | None = None) -> Job:
        """Wait until the job is final; raise WaitTimeout after `timeout` seconds. 0 means one check."""
        backoff = PollBackoff(timeout)
        while not (job := self.refresh()).is_final:
            try:
                pause = backoff.next_pause(job)
            except WaitTimeout as exc:
                raise self._explain_timeout(exc, job, backoff) from None
            time.sleep(pause)
        return job

    async def wait_async(self, timeout: Duration | None = None) -> Job:
        """`wait` for coroutines. All waits of a client share one thread."""
        from asyncio import sleep  # noqa: PLC0415 - most programs have no event loop, and loading it takes 25 ms

        backoff = PollBackoff(timeout)
        while not (job := await self.refresh_async()).is_final:
            try:
                pause = backoff.next_pause(job)
            except WaitTimeout as exc:
                raise await self._client.run_in_thread(self._explain_timeout, exc, job, backoff) from None
            await sleep(pause)
        return job

    def _explain_timeout(self, exc: WaitTimeout, job: Job, backoff: PollBackoff) -> WaitTimeout:
        """Return the time-out with the reason, if the queue of the job gives one. Not after a single check: a
        caller that polls by itself would ask for the reason each time."""
        reason = None
        if not backoff.is_single_poll:
            with suppress(ForebayError):  # an API key may not be allowed to read workers
                reason = self._client.waiting_reason(job)
        return exc if reason is None else WaitTimeout(f"{exc}; {reason}", job_id=exc.job_id, state=exc.state)

    def result(self, timeout: Duration | None = None) -> R:
        """Wait for the job and return its result; raise JobFailed or JobCancelled instead."""
        return self._coerce_final_result(self.wait(timeout))

    async def result_async(self, timeout: Duration | None = None) -> R:
        """`result` for coroutines."""
        return self._coerce_final_result(await self.wait_async(timeout))

    def _coerce_final_result(self, job: Job) -> R:
        result: R = decode_final_result(job, self._client.coerce_result)
        return result

    @overload
    def cancel(
        self, reason: str = "cancelled", *, wait: Literal[False] = False, dependants: bool = False
    ) -> bool: ...

    @overload
    def cancel(
        self,
        reason: str = "cancelled",
        *,
        wait: Literal[True],
        timeout: Duration | None = None,
        dependants: bool = False,
    ) -> JobState: ...

    def cancel(
        self,
        reason: str = "cancelled",
        *,
        wait: bool = False,
        timeout: Duration | None = None,
        dependants: bool = False,
    ) -> bool | JobState:
        """Cancel a waiting job, or ask a running one to stop; return false if it is final or deleted. With
        `dependants` all jobs that depend on it are cancelled too.

        With `wait`, return the state of the job once it runs no more. A task that does not check for
        cancellation may still complete. Raises WaitTimeout if the job still runs after `timeout` seconds.
        """
        backoff = PollBackoff(timeout)
        applied = self._client.cancel([self.id], reason, dependants=dependants)[0].applied
        if not wait:
            return applied
        while (job := self.refresh()).state is JobState.RUNNING:
            time.sleep(backoff.next_pause(job, STILL_RUNNING))
        return job.state

    @overload
    async def cancel_async(
        self, reason: str = "cancelled", *, wait: Literal[False] = False, dependants: bool = False
    ) -> bool: ...

    @overload
    async def cancel_async(
        self,
        reason: str = "cancelled",
        *,
        wait: Literal[True],
        timeout: Duration | None = None,
        dependants: bool = False,
    ) -> JobState: ...

    async def cancel_async(
        self,
        reason: str = "cancelled",
        *,
        wait: bool = False,
        timeout: Duration | None = None,
        dependants: bool = False,
    ) -> bool | JobState:
        """`cancel` for coroutines."""
        backoff = PollBackoff(timeout)
        call = partial(self._client.cancel, [self.id], reason, dependants=dependants)
        applied = (await self._client.run_in_thread(call))[0].applied
        if not wait:
            return applied
        from asyncio import sleep  # noqa: PLC0415 - as above

        while (job := await self.refresh_async()).state is JobState.RUNNING:
            await sleep(backoff.next_pause(job, STILL_RUNNING))
        return job.state

    def parents(self) -> list[Edge]:
        """Return the edges to the jobs that this one depends on, in the order of its dependencies."""
        return self._client.parents([self.id])

    async def parents_async(self) -> list[Edge]:
        """`parents` for coroutines."""
        return await self._client.run_in_thread(self.parents)

    def dependants(self, limit: int = 1_000) -> list[Edge]:
        """Return the edges to the jobs that depend on this one."""
        return self._client.dependants([self.id], limit=limit)

    async def dependants_async(self, limit: int = 1_000) -> list[Edge]:
        """`dependants` for coroutines."""
        return await self._client.run_in_thread(self.dependants, limit)

    def progress(self) -> Progress | None:
        """Return the progress that the last attempt has reported; None without a report."""
        return self._client.progress(self.id).progress

    async def progress_async(self) -> Progress | None:
        """`progress` for coroutines."""
        return await self._client.run_in_thread(self.progress)

    def log_lines(self) -> list[LogLine]:
        """Return the last log lines that attempts have stored with the job, oldest first."""
        return list(self._client.progress(self.id).lines)

    async def log_lines_async(self) -> list[LogLine]:
        """`log_lines` for coroutines."""
        return await self._client.run_in_thread(self.log_lines)

    def history(self) -> Timeline:
        """Return the timeline of the job: failed and lost attempts, actions of operators."""
        timeline = self._client.history(self.id)
        if timeline is None:
            raise JobNotFound(f"there is no job {self.id}")
        return timeline

    async def history_async(self) -> Timeline:
        """`history` for coroutines."""
        return await self._client.run_in_thread(self.history)

    def __eq__(self, other: object) -> bool:
        # Refused jobs have no id, but are different jobs.
        return other is self or (
            isinstance(other, JobHandle) and self._id is not None and other._id == self._id
        )

    def __hash__(self) -> int:
        return hash(self._id)

    def __repr__(self) -> str:
        return f"<JobHandle {self._id}>"
