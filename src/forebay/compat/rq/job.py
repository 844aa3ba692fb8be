"""RQ's `Job`: the handle of an enqueued job."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final, NoReturn

from forebay.app.current_job import current_job
from forebay.app.job_handle import JobHandle
from forebay.compat.rq.options import refuse
from forebay.domain.job import Job as Record
from forebay.domain.job import JobId
from forebay.domain.job_states import JobState
from forebay.domain.json_values import Json
from forebay.payload.codec import decode_call


class JobStatus(StrEnum):
    """RQ's job states. CREATED and STOPPED exist for programs that name them: no job has them here."""

    CREATED = "created"
    QUEUED = "queued"
    FINISHED = "finished"
    FAILED = "failed"
    STARTED = "started"
    DEFERRED = "deferred"
    SCHEDULED = "scheduled"
    STOPPED = "stopped"
    CANCELED = "canceled"


_STATES: Final = {
    JobState.SCHEDULED: JobStatus.SCHEDULED,
    JobState.BLOCKED: JobStatus.DEFERRED,
    JobState.PENDING: JobStatus.QUEUED,
    JobState.RUNNING: JobStatus.STARTED,
    JobState.RETRYING: JobStatus.SCHEDULED,
    JobState.COMPLETED: JobStatus.FINISHED,
    JobState.DEAD: JobStatus.FAILED,
    JobState.CANCELLED: JobStatus.CANCELED,
}


class Job:
    """A job with RQ's calls. `handle` is Forebay's handle, with more methods. Each call reads the store."""

    def __init__(self, handle: JobHandle[Any]) -> None:
        self.handle = handle

    @property
    def id(self) -> JobId:
        return self.handle.id

    def get_id(self) -> JobId:
        return self.handle.id

    @property
    def record(self) -> Record:
        """The job's present record."""
        return self.handle.refresh()

    def get_status(self) -> JobStatus:
        """Return queued, scheduled (also between attempts), deferred, started, finished, failed, canceled."""
        return _STATES[self.record.state]

    @property
    def is_queued(self) -> bool:
        return self.get_status() == "queued"

    @property
    def is_scheduled(self) -> bool:
        return self.get_status() == "scheduled"

    @property
    def is_deferred(self) -> bool:
        return self.get_status() == "deferred"

    @property
    def is_started(self) -> bool:
        return self.get_status() == "started"

    @property
    def is_finished(self) -> bool:
        return self.get_status() == "finished"

    @property
    def is_failed(self) -> bool:
        return self.get_status() == "failed"

    @property
    def is_canceled(self) -> bool:
        return self.get_status() == "canceled"

    def return_value(self) -> Any:
        """Return the return value of the function; None if it has not finished."""
        return self.handle.result(0) if self.is_finished else None

    @property
    def result(self) -> Any:
        return self.return_value()

    @property
    def exc_info(self) -> str | None:
        """The traceback of the last failed attempt."""
        errors = self.record.errors
        return errors[-1].traceback if errors else None

    @property
    def meta(self) -> dict[str, Json]:
        return self.record.metadata

    @property
    def func_name(self) -> str:
        return self.record.task

    @property
    def args(self) -> tuple[Any, ...]:
        return decode_call(self.record.payload)[0]

    @property
    def kwargs(self) -> dict[str, Any]:
        return decode_call(self.record.payload)[1]

    @property
    def origin(self) -> str:
        return self.record.queue

    def cancel(self) -> None:
        """Cancel a waiting job, ask a running one to stop."""
        self.handle.cancel()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        refuse(name, "job")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other.handle == self.handle

    def __hash__(self) -> int:
        return hash(self.handle)

    def __repr__(self) -> str:
        return f"<Job {self.id}>"


def get_current_job() -> Job | None:
    """Return the job that this code runs for; None outside of a job."""
    from forebay.stores.contract.claims_and_results import InsertResult  # noqa: PLC0415 - as in `Forebay.job`

    try:
        context = current_job()
    except LookupError:
        return None
    if context.client is None:
        return None
    return Job(JobHandle(context.client, InsertResult(id=context.id, is_new=False)))
