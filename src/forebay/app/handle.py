"""A job in the hand of whoever enqueued it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from forebay.app.codec import decode_result
from forebay.domain.history import Timeline
from forebay.domain.job import Job, JobId
from forebay.domain.lifecycle import JobState
from forebay.errors import ForebayError, JobCancelled, JobFailed, JobNotFound
from forebay.stores.protocol import Receipt, Verdict

R = TypeVar("R")

FIRST_LOOK_SECONDS = 0.005
LONGEST_LOOK_SECONDS = 0.25


class Desk(Protocol):
    """What a handle asks: the client it came from."""

    def job(self, job_id: JobId) -> Job | None: ...

    def history(self, job_id: JobId) -> Timeline | None: ...

    def cancel(self, ids: Sequence[JobId], reason: str = "cancelled") -> list[Verdict]: ...

    def returned(self, task: str, value: Any) -> Any: ...


class JobHandle(Generic[R]):
    """Ask about a job, wait for it, cancel it. Two handles of one job are equal.

    `is_new` is false when a unique or once key was taken: the handle is then its holder's. `error` says
    why a job was refused, which happens only in an `enqueue_many` that is not atomic.
    """

    def __init__(self, client: Desk, receipt: Receipt) -> None:
        self._client = client
        self._id = receipt.id
        self.is_new: bool = receipt.is_new
        self.error: ForebayError | None = receipt.error

    @property
    def id(self) -> JobId:
        if self._id is None:
            raise self.error or JobNotFound("this job was not stored")
        return self._id

    def refresh(self) -> Job:
        """The job's record as it is now; raises JobNotFound once it is forgotten."""
        job = self._client.job(self.id)
        if job is None:
            raise JobNotFound(f"there is no job {self.id}")
        return job

    def wait(self, timeout: float | None = None) -> Job:
        """Wait until the job is final; raises TimeoutError after `timeout` seconds, 0 meaning one look."""
        ends = None if timeout is None else time.monotonic() + timeout
        pause = FIRST_LOOK_SECONDS
        while True:
            job = self.refresh()
            if job.is_final:
                return job
            left = pause if ends is None else min(pause, ends - time.monotonic())
            if left <= 0:
                raise TimeoutError(f"job {self.id} is {job.state} after {timeout} s")
            time.sleep(left)
            pause = min(pause * 2, LONGEST_LOOK_SECONDS)

    def result(self, timeout: float | None = None) -> R:
        """Wait for the job and give what its task returned; raises JobFailed or JobCancelled instead."""
        job = self.wait(timeout)
        if job.state is JobState.CANCELLED:
            raise JobCancelled(f"job {job.id} was cancelled: {job.reason}")
        if job.state is JobState.DEAD:
            raise JobFailed(f"job {job.id} failed for good: {job.reason}")
        value = None if job.result is None else decode_result(job.result)
        fitted: R = self._client.returned(job.task, value)
        return fitted

    def cancel(self, reason: str = "cancelled") -> bool:
        """Cancel the job if it waits, ask it to stop if it runs; false if it is final or gone."""
        [verdict] = self._client.cancel([self.id], reason)
        return verdict.done

    def history(self) -> Timeline:
        """All that is known about the job: its bad attempts, what operators did to it."""
        timeline = self._client.history(self.id)
        if timeline is None:
            raise JobNotFound(f"there is no job {self.id}")
        return timeline

    def __eq__(self, other: object) -> bool:
        # Jobs that were refused have no id, and are not one job for that.
        return other is self or (
            isinstance(other, JobHandle) and self._id is not None and other._id == self._id
        )

    def __hash__(self) -> int:
        return hash(self._id)

    def __repr__(self) -> str:
        return f"<JobHandle {self._id}>"
