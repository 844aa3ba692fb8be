"""The eight states of a job and the transitions between them."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from forebay.errors import ConfigError, IllegalTransition


class JobState(StrEnum):
    """State of a job; `docs/internals/states.md` draws the transitions."""

    SCHEDULED = "scheduled"
    BLOCKED = "blocked"
    PENDING = "pending"
    RUNNING = "running"
    RETRYING = "retrying"
    COMPLETED = "completed"
    DEAD = "dead"
    CANCELLED = "cancelled"


class Status(StrEnum):
    """Coarse status, for callers that need no more."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


FINAL: Final = frozenset({JobState.COMPLETED, JobState.DEAD, JobState.CANCELLED})
WAITING: Final = frozenset({JobState.SCHEDULED, JobState.BLOCKED, JobState.PENDING, JobState.RETRYING})
LIVE: Final = WAITING | {JobState.RUNNING}

TRANSITIONS: Final[dict[JobState, frozenset[JobState]]] = {
    JobState.SCHEDULED: frozenset({JobState.PENDING, JobState.CANCELLED, JobState.DEAD}),
    JobState.BLOCKED: frozenset(
        {JobState.PENDING, JobState.SCHEDULED, JobState.CANCELLED, JobState.DEAD},
    ),
    JobState.PENDING: frozenset({JobState.RUNNING, JobState.CANCELLED, JobState.DEAD}),
    JobState.RUNNING: frozenset(
        {
            JobState.COMPLETED,
            JobState.CANCELLED,
            JobState.DEAD,
            JobState.RETRYING,
            JobState.SCHEDULED,
            JobState.PENDING,
        },
    ),
    JobState.RETRYING: frozenset({JobState.PENDING, JobState.CANCELLED, JobState.DEAD}),
    JobState.COMPLETED: frozenset(),
    JobState.DEAD: frozenset({JobState.PENDING, JobState.SCHEDULED, JobState.BLOCKED}),
    JobState.CANCELLED: frozenset({JobState.PENDING, JobState.SCHEDULED, JobState.BLOCKED}),
}

_STATUS: Final = {
    JobState.SCHEDULED: Status.PENDING,
    JobState.BLOCKED: Status.PENDING,
    JobState.PENDING: Status.PENDING,
    JobState.RUNNING: Status.RUNNING,
    JobState.RETRYING: Status.FAILED,
    JobState.COMPLETED: Status.COMPLETED,
    JobState.DEAD: Status.FAILED,
    JobState.CANCELLED: Status.CANCELLED,
}

# Names of our states in other queues; accepted wherever a person types one.
_ALIASES: Final = {
    "delayed": JobState.SCHEDULED,
    "waiting": JobState.BLOCKED,
    "queued": JobState.PENDING,
    "active": JobState.RUNNING,
    "in_progress": JobState.RUNNING,
    "processing": JobState.RUNNING,
    "retryable": JobState.RETRYING,
    "retry_scheduled": JobState.RETRYING,
    "dead_letter": JobState.DEAD,
    "discarded": JobState.DEAD,
}


def is_final(state: JobState) -> bool:
    """Return whether the job has ended: completed, dead or cancelled."""
    return state in FINAL


def status_of(state: JobState) -> Status:
    """Return the coarse status of a state."""
    return _STATUS[state]


def check_transition(old: JobState, new: JobState) -> None:
    """Raise IllegalTransition unless the table allows the transition."""
    if new not in TRANSITIONS[old]:
        raise IllegalTransition(f"a {old} job cannot become {new}")


def parse_state(text: str) -> JobState:
    """Return the state for a word of ours or of another queue, in any case."""
    word = text.strip().lower()
    if word in _ALIASES:
        return _ALIASES[word]
    try:
        return JobState(word)
    except ValueError:
        known = ", ".join(JobState)
        raise ConfigError(f"{text!r} is not a job state; the states are {known}") from None
