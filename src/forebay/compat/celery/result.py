"""Celery's `AsyncResult`: the handle of an enqueued job."""

from __future__ import annotations

from typing import Any, Final, NoReturn

from forebay.app.job_handle import JobHandle
from forebay.compat.celery.app_registry import APPS
from forebay.compat.celery.options import refuse
from forebay.domain.job import JobId
from forebay.domain.job_states import JobState
from forebay.errors import ConfigError, JobCancelled, JobFailed, JobNotFound

_STATES: Final = {
    JobState.RUNNING: "STARTED",
    JobState.RETRYING: "RETRY",
    JobState.COMPLETED: "SUCCESS",
    JobState.DEAD: "FAILURE",
    JobState.CANCELLED: "REVOKED",
}


def _find_handle(task_id: str, app: Any) -> JobHandle[Any]:
    if app is None and not APPS:
        raise ConfigError(f"AsyncResult({task_id!r:.60}) belongs to no app yet: make a Celery(...) first")
    handle: JobHandle[Any] = (APPS[-1] if app is None else app).forebay.job(task_id)
    return handle


class AsyncResult:
    """Celery's result of a job. `handle` is Forebay's handle, with more methods."""

    def __init__(self, handle: JobHandle[Any] | str, app: Any = None) -> None:
        """Create the result of a job from its handle, or from its id as Celery's users look it up. An id
        belongs to `app`, or to the app that was created last."""
        self.handle: JobHandle[Any] = _find_handle(handle, app) if isinstance(handle, str) else handle

    @property
    def id(self) -> JobId:
        return self.handle.id

    task_id = id

    def get(self, timeout: float | None = None, propagate: bool = True) -> Any:
        """Wait for the result. Raises JobFailed with the text of the error, or JobCancelled; without
        `propagate` it returns that exception. After `timeout` seconds it raises a TimeoutError."""
        try:
            return self.handle.result(timeout)
        except (JobFailed, JobCancelled) as exc:
            if propagate:
                raise
            return exc

    wait = get

    @property
    def state(self) -> str:
        """PENDING, STARTED, RETRY, SUCCESS, FAILURE or REVOKED; PENDING also for unknown ids."""
        try:
            return _STATES.get(self.handle.refresh().state, "PENDING")
        except JobNotFound:
            return "PENDING"

    status = state

    @property
    def result(self) -> Any:
        """The return value of the task, or its error; None before the end."""
        return self.get(propagate=False) if self.ready() else None

    def ready(self) -> bool:
        return self.state in ("SUCCESS", "FAILURE", "REVOKED")

    def successful(self) -> bool:
        return self.state == "SUCCESS"

    def failed(self) -> bool:
        return self.state == "FAILURE"

    def revoke(self, terminate: bool = False) -> None:
        """Cancel a waiting job; with `terminate`, ask a running one to stop."""
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
