"""What Celery gives for a job that was asked for."""

from __future__ import annotations

from typing import Any, Final, NoReturn

from forebay.app.handle import JobHandle
from forebay.domain.job import JobId
from forebay.domain.lifecycle import JobState
from forebay.errors import JobCancelled, JobFailed, JobNotFound
from forebay.facades.celery_words import refuse

_STATES: Final = {
    JobState.RUNNING: "STARTED",
    JobState.RETRYING: "RETRY",
    JobState.COMPLETED: "SUCCESS",
    JobState.DEAD: "FAILURE",
    JobState.CANCELLED: "REVOKED",
}


class AsyncResult:
    """What Celery gives for a job; `handle` is ours, which can do more."""

    def __init__(self, handle: JobHandle[Any]) -> None:
        self.handle = handle

    @property
    def id(self) -> JobId:
        return self.handle.id

    task_id = id

    def get(self, timeout: float | None = None, propagate: bool = True) -> Any:
        """Wait for the result. Raises JobFailed, with the error's own words, or JobCancelled; without
        `propagate` it answers with that exception. After `timeout` seconds it raises a TimeoutError."""
        try:
            return self.handle.result(timeout)
        except (JobFailed, JobCancelled) as exc:
            if propagate:
                raise
            return exc

    wait = get

    @property
    def state(self) -> str:
        """PENDING, STARTED, RETRY, SUCCESS, FAILURE or REVOKED; PENDING also for ids that nobody knows."""
        try:
            return _STATES.get(self.handle.refresh().state, "PENDING")
        except JobNotFound:
            return "PENDING"

    status = state

    @property
    def result(self) -> Any:
        """What the task has returned, or why it failed; None if it has not ended."""
        return self.get(propagate=False) if self.ready() else None

    def ready(self) -> bool:
        return self.state in ("SUCCESS", "FAILURE", "REVOKED")

    def successful(self) -> bool:
        return self.state == "SUCCESS"

    def failed(self) -> bool:
        return self.state == "FAILURE"

    def revoke(self, terminate: bool = False) -> None:
        """Cancel it if it waits; with `terminate`, ask it to stop if it runs."""
        if terminate or self.state != "STARTED":
            self.handle.cancel("revoked")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        refuse(name, "AsyncResult")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncResult) and other.handle == self.handle

    def __hash__(self) -> int:
        return hash(self.handle)

    def __repr__(self) -> str:
        return f"<AsyncResult: {self.id}>"
