"""History of a job besides its record: failed attempts and events."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final, TypeAlias

import msgspec

from forebay.domain.job import DAY_MS, Job, JobId, QueueName, WorkerId
from forebay.domain.outcome import AttemptError
from forebay.domain.progress import JobProgress
from forebay.domain.settlement import OutcomeKind
from forebay.domain.storable_text import without_nul

MAX_EVENTS: Final = 100
MAX_TRACEBACK: Final = 16_384
MAX_MESSAGE: Final = 4_096
MAX_STORED_ERRORS: Final = 10
AUDIT_RETENTION_MS: Final = 90 * DAY_MS

# Values before and after, by name.
Changes: TypeAlias = dict[str, tuple[Any, Any]]


class EventKind(StrEnum):
    """Kind of an event worth a row. Starts and successes are on the job itself."""

    SWEPT = "swept"  # a lease was taken over because it ran out or its worker died
    REFUSED = "refused"  # a write came from a worker that no longer held the lease
    CANCEL = "cancel"  # it was cancelled, or asked to stop
    FORCE_CANCELLED = "force_cancelled"  # an operator took the lease away
    REVIVED = "revived"  # a dead or cancelled job was revived
    REPLAYED = "replayed"  # an operator has enqueued it after an earlier job; `detail` names that one
    UPDATED = "updated"  # priority, time or queue of a waiting job was changed
    DELETED = "deleted"  # an operator removed it
    EXPIRED = "expired"  # it was not started in the time it was given
    DROPPED = "dropped"  # its queue was dropped by force
    PARKED = "parked"  # it was moved to a lane: a worker of its queue could not run it
    PARENT_FAILED = "parent_failed"  # it was cancelled, or went to the dead letters, because of a parent
    FOLLOW_UP_SKIPPED = "follow_up_skipped"  # a follow-up was not stored because its unique key was taken
    QUEUE_CHANGED = "queue_changed"  # a queue was created, configured, paused, resumed, drained or dropped
    LIMIT_CHANGED = "limit_changed"  # a limit was set or removed; `detail` says which
    SCHEDULE_CHANGED = "schedule_changed"  # a schedule was saved, paused, resumed or removed; see `detail`
    # An API key was created, rotated or revoked, or a session began or ended; `detail` names it.
    API_KEY_CHANGED = "api_key_changed"
    # A rule or a channel was saved or removed, or an alert acknowledged; `detail` names it.
    ALERT_CHANGED = "alert_changed"
    GRADUAL_REVIVE = "gradual_revive"  # a gradual revive was started, paused, resumed, stopped or completed
    WORKER_COMMAND = "worker_command"  # a command was sent to a worker; `detail` names both
    EVENTS_OMITTED = "events_omitted"  # stands for all further events of a job; `detail` counts them
    COMMENT = "comment"  # a remark of a program or an operator


# Actions of operators: these are in the audit log. The other kinds describe the life of jobs.
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
    """One event. `actor` is a worker id or the name of an operator; a # in it is followed by the id of the
    request. `changes` are the values that an operator has changed."""

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
        """Return the actor without the request."""
        return (self.actor or "").partition("#")[0]

    @property
    def request_id(self) -> str:
        """Return the id of the actor's request, if there was one."""
        return (self.actor or "").partition("#")[2]

    @property
    def is_action(self) -> bool:
        """Return whether the event is a line of the audit log, which outlives the job."""
        return self.kind in ACTIONS

    @property
    def is_history(self) -> bool:
        """Return whether the event is stored with the jobs. A deletion is about a job whose history is
        removed."""
        return not self.is_action or (self.job_id is not None and self.kind is not EventKind.DELETED)


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """Attempt that failed, was discarded or was lost."""

    job_id: JobId
    attempt: int
    outcome: OutcomeKind
    worker: WorkerId | None
    started_at: int | None
    ended_at: int
    error: AttemptError


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is known about one job, oldest first."""

    job: Job
    attempts: tuple[Attempt, ...]
    events: tuple[Event, ...]
    progress: JobProgress = JobProgress()


def truncate_error(error: AttemptError) -> AttemptError:
    """Return the error as it is stored: without NUL, and no longer than a page can show."""
    return AttemptError(
        type=without_nul(error.type)[:MAX_MESSAGE],
        message=without_nul(error.message)[:MAX_MESSAGE],
        traceback=without_nul(error.traceback)[-MAX_TRACEBACK:],
    )
