"""What is remembered about a job besides its record: its bad attempts and the rare events."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final, TypeAlias

import msgspec

from forebay.domain.job import DAY_MS, Job, JobId, QueueName, WorkerId
from forebay.domain.outcome import AttemptError
from forebay.domain.progress import JobProgress
from forebay.domain.settlement import OutcomeKind
from forebay.domain.text import without_nul

MAX_EVENTS: Final = 100
MAX_TRACEBACK: Final = 16_384
MAX_MESSAGE: Final = 4_096
MAX_STORED_ERRORS: Final = 10
AUDIT_RETENTION_MS: Final = 90 * DAY_MS

# By name: what was before, and what is after.
Changes: TypeAlias = dict[str, tuple[Any, Any]]


class EventKind(StrEnum):
    """The rare things worth a row. Starts and successes are on the job itself."""

    SWEPT = "swept"  # a lease was taken over because it ran out or its worker died
    REFUSED = "refused"  # a write came from somebody who no longer held the lease
    CANCEL = "cancel"  # it was cancelled, or asked to stop
    FORCE_CANCELLED = "forced"  # an operator took the lease away
    REVIVED = "revived"  # a dead or cancelled job was put back
    REPLAYED = "replayed"  # an operator has enqueued it after an earlier job; `detail` names that one
    UPDATED = "amended"  # priority, time or queue of a waiting job was changed
    DELETED = "deleted"  # somebody removed it
    EXPIRED = "expired"  # it was not started in the time it was given
    DROPPED = "dropped"  # its queue was dropped by force
    PARKED = "held"  # it waits behind a gate: a worker of its queue could not run it
    PARENT_FAILED = (
        "parent"  # it was cancelled, or went to the dead letters, because of a job that it depended on
    )
    FOLLOW_UP_SKIPPED = "unfollowed"  # a follow-up was not stored because its unique key was taken
    QUEUE_CHANGED = "queue"  # a queue was created, configured, paused, resumed, drained or dropped
    LIMIT_CHANGED = "limit"  # a limit was set or removed; `detail` says which
    SCHEDULE_CHANGED = "schedule"  # a schedule was saved, paused, resumed or removed; `detail` names it
    API_KEY_CHANGED = (
        "key"  # an API key was created, rotated or revoked, or a session began or ended; `detail` names it
    )
    ALERT_CHANGED = (
        "alert"  # a rule or a channel was saved or removed, or an alert acknowledged; `detail` names it
    )
    GRADUAL_REVIVE = (
        "ramp"  # a revival in batches was started, paused, resumed, stopped, or has come to its end
    )
    WORKER_COMMAND = "command"  # somebody asked a worker to do something; `detail` names both
    EVENTS_OMITTED = "more"  # stands for all further events of a job; `detail` counts them
    COMMENT = "note"  # somebody has written something down


# Actions of operators: these stand in the audit log. The other kinds say what became of jobs.
ACTIONS: Final = frozenset(
    {
        EventKind.CANCEL,
        EventKind.FORCE_CANCELLED,
        EventKind.REVIVED,
        EventKind.REPLAYED,
        EventKind.UPDATED,
        EventKind.DELETED,
        EventKind.QUEUE_CHANGED,
        EventKind.LIMIT_CHANGED,
        EventKind.SCHEDULE_CHANGED,
        EventKind.WORKER_COMMAND,
        EventKind.API_KEY_CHANGED,
        EventKind.ALERT_CHANGED,
        EventKind.GRADUAL_REVIVE,
    }
)


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One rare thing that happened. `actor` is a worker id or what an operator is called; what follows a #
    in it is the request by which they did it. `changes` says what an operator has changed."""

    kind: EventKind
    occurred_at: int = 0
    job_id: JobId | None = None
    queue: QueueName | None = None
    attempt: int | None = None
    actor: str | None = None
    detail: str = ""
    changes: Changes = {}

    @property
    def actor_name(self) -> str:
        """The actor without the request."""
        return (self.actor or "").partition("#")[0]

    @property
    def request_id(self) -> str:
        """The id of the request by which the actor did it, if it came with one."""
        return (self.actor or "").partition("#")[2]

    @property
    def is_action(self) -> bool:
        """Whether the event is a line of the audit log, which is kept whatever becomes of the job."""
        return self.kind in ACTIONS

    @property
    def is_history(self) -> bool:
        """Whether the event is kept beside the jobs. A deletion is about a job whose history is gone."""
        return not self.is_action or (self.job_id is not None and self.kind is not EventKind.DELETED)


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that failed, was discarded or was lost."""

    job_id: JobId
    attempt: int
    outcome: OutcomeKind
    worker: WorkerId | None
    started_at: int | None
    ended_at: int
    error: AttemptError


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known about one job, oldest first."""

    job: Job
    attempts: tuple[Attempt, ...]
    events: tuple[Event, ...]
    progress: JobProgress = JobProgress()


def truncate_error(error: AttemptError) -> AttemptError:
    """The error as it is stored: without NUL, and no longer than a page can show."""
    return AttemptError(
        type=without_nul(error.type)[:MAX_MESSAGE],
        message=without_nul(error.message)[:MAX_MESSAGE],
        traceback=without_nul(error.traceback)[-MAX_TRACEBACK:],
    )
