"""Dependencies between jobs: edges, and the effect of a job's end on its dependants.

An edge leads from a parent to a child. While it is open or held the child is blocked; when the last of its
edges is met the child waits like any other job. Stores keep edges as long as their child.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from forebay.domain.job import Job, JobId, OnFailure
from forebay.domain.job_states import JobState
from forebay.domain.ulid import ulid_created_at
from forebay.errors import InvalidJob

# Edges that one transaction resolves; the rest waits in the dependency outbox.
PROPAGATION_BATCH: Final = 500
_PARENT: Final = re.compile(r"\A(cancelled with )?.*(?=, which it depends on)", re.DOTALL)


class EdgeState(StrEnum):
    """State of an edge."""

    OPEN = "open"  # the parent has not ended
    MET = "met"  # it has completed, or its failure is ignored
    HELD = "held"  # it has failed, and the child waits until it is revived
    FAILED = "failed"  # it has failed, and has taken the child with it


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """Stored edge. A child's edges are numbered in the order in which it named its parents."""

    child: JobId
    position: int
    parent: JobId
    on_failure: OnFailure
    state: EdgeState


def by_parent(edge: Edge) -> tuple[JobId, JobId, int]:
    """Return the sort key of edges in lists by parent."""
    return edge.parent, edge.child, edge.position


class DependencyEvent(StrEnum):
    """Event of a job with dependants: what happened to it, or what shall happen to its dependants because
    of it."""

    COMPLETED = "completed"
    DEAD = "dead"
    CANCELLED = "cancelled"
    DELETED = "deleted"  # it was removed, and had not completed
    REVIVED = "revived"
    CANCEL = "cancel"  # all its dependants are to be cancelled, whatever their `on_failure`
    REVIVE = "revive"  # dependants that ended because of it are to be revived with it


class EdgeTransition(NamedTuple):
    """Next state of an edge because of an event, and of its child if that is blocked."""

    edge: EdgeState
    child: JobState | None = None


UNMET_STATES: Final = (EdgeState.OPEN, EdgeState.HELD)
# After these the next job of its sequence may run.
END_EVENTS: Final = (
    DependencyEvent.COMPLETED,
    DependencyEvent.DEAD,
    DependencyEvent.CANCELLED,
    DependencyEvent.DELETED,
)
# States of the edges that an event affects.
AFFECTED_STATES: Final[dict[DependencyEvent, tuple[EdgeState, ...]]] = {
    DependencyEvent.COMPLETED: (EdgeState.OPEN,),
    DependencyEvent.DEAD: (EdgeState.OPEN,),
    DependencyEvent.CANCELLED: (EdgeState.OPEN,),
    DependencyEvent.DELETED: UNMET_STATES,
    DependencyEvent.CANCEL: UNMET_STATES,
    DependencyEvent.REVIVED: (EdgeState.HELD, EdgeState.FAILED),
    DependencyEvent.REVIVE: (EdgeState.HELD, EdgeState.FAILED),
}
_CANCELLED: Final = EdgeTransition(EdgeState.FAILED, JobState.CANCELLED)
_FAILURES: Final = {
    OnFailure.CANCEL: _CANCELLED,
    OnFailure.FAIL: EdgeTransition(EdgeState.FAILED, JobState.DEAD),
    OnFailure.IGNORE: EdgeTransition(EdgeState.MET),
    OnFailure.HOLD: EdgeTransition(EdgeState.HELD),
}


def edge_transition(event: DependencyEvent, on_failure: OnFailure) -> EdgeTransition:
    """Return the transition of an edge that an event affects."""
    if event is DependencyEvent.COMPLETED:
        return EdgeTransition(EdgeState.MET)
    if event in (DependencyEvent.REVIVED, DependencyEvent.REVIVE):
        return EdgeTransition(EdgeState.OPEN)
    if event is DependencyEvent.CANCEL:
        return _CANCELLED
    if event is DependencyEvent.DELETED and on_failure is OnFailure.HOLD:
        return _CANCELLED  # a removed job cannot be revived
    return _FAILURES[on_failure]


def parent_reason(event: DependencyEvent, parent: JobId) -> str:
    """Return the reason of a child that ended because of a parent."""
    if event is DependencyEvent.CANCEL:
        return f"cancelled with {parent}, which it depends on"
    event_text = "was deleted" if event is DependencyEvent.DELETED else f"is {event}"
    return f"{parent}, which it depends on, {event_text}"


def redact_parent(reason: str) -> str:
    """Return a reason without the id of a parent, if `parent_reason` has built it."""
    return _PARENT.sub(r"\1a job", reason)


def starting_state(state: JobState, on_failure: OnFailure) -> EdgeState:
    """Return the state of a new edge whose parent is in this state. An edge that ends its child is still
    open: the outbox resolves it."""
    if state is JobState.COMPLETED:
        return EdgeState.MET
    if state in (JobState.DEAD, JobState.CANCELLED) and on_failure in (OnFailure.IGNORE, OnFailure.HOLD):
        return _FAILURES[on_failure].edge
    return EdgeState.OPEN


def due_on_release(job: Job, now: int) -> int:
    """Return when a blocked job is due that is released now. One without a delay is due now, even if the
    clock was set back since it was stored, revived or updated."""
    has_delay = job.run_at > max(job.created_at, job.updated_at)
    return max(job.run_at, now) if has_delay else now


def reopen_edge_state(state: JobState | None, *, with_parent: bool) -> EdgeState:
    """Return the new state of a failed edge of a revived child, by the present state of its parent; None for
    a removed one.

    A caller that revives this very child wants it to run without failed parents. A child that is revived with
    a parent waits for its other parents to be revived, too. A removed parent counts as met: it cannot be
    revived, and may even have completed before.
    """
    if state is None or state is JobState.COMPLETED:
        return EdgeState.MET
    if state in (JobState.DEAD, JobState.CANCELLED):
        return EdgeState.HELD if with_parent else EdgeState.MET
    return EdgeState.OPEN


def is_past_retention(parent: JobId, keep_ms: int, now: int) -> bool:
    """Return whether a job of this id may have been pruned by now, so that its end is unknown."""
    try:
        created_at = ulid_created_at(parent)
    except InvalidJob:
        return False
    return keep_ms > 0 and created_at + keep_ms <= now


def missing_parent(task: str, parent: JobId, allow_missing: bool) -> InvalidJob:
    """Return the refusal of a job with an unknown parent."""
    remedy = (
        "its id is not older than what the queue keeps"
        if allow_missing
        else "if it may have been forgotten, say allow_missing=True"
    )
    return InvalidJob(f"{task} depends on {parent}, and there is no such job; {remedy}", field="depends_on")


# Graphs
