"""Jobs that wait for other jobs: edges between them, and what the end of a job means for those behind it.

An edge leads from a parent to a child. While it is open or held the child is blocked; when the last of its
edges is met the child waits like any other job. Stores keep edges as long as their child.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from forebay.domain.job import Dependency, Job, JobId, NewJob, OnFailure, QueueName
from forebay.domain.lifecycle import JobState
from forebay.domain.queue import Queue
from forebay.domain.ulid import ulid_created_at
from forebay.errors import InvalidJob

# What one transaction settles of what the ends of jobs mean for others; the rest waits on a list.
PROPAGATION_BATCH: Final = 500
_PARENT: Final = re.compile(r"\A(cancelled with )?.*(?=, which it depends on)", re.DOTALL)
MAX_WORKFLOW: Final = 10_000
_SHOWN_IN_CYCLE: Final = 10
T = TypeVar("T")


class EdgeState(StrEnum):
    """How an edge stands."""

    OPEN = "open"  # the parent has not ended
    MET = "met"  # it has completed, or its failure is ignored
    HELD = "held"  # it has failed, and the child waits until it is revived
    FAILED = "failed"  # it has failed, and has taken the child with it


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """A stored edge. A child's edges are numbered in the order in which it named its parents."""

    child: JobId
    position: int
    parent: JobId
    on_failure: OnFailure
    state: EdgeState


def by_parent(edge: Edge) -> tuple[JobId, JobId, int]:
    """The order in which the edges from jobs are listed."""
    return edge.parent, edge.child, edge.position


class DependencyEvent(StrEnum):
    """What has happened to a job that others depend on, or what shall happen to these because of it."""

    COMPLETED = "completed"
    DEAD = "dead"
    CANCELLED = "cancelled"
    DELETED = "deleted"  # it is gone, and had not completed
    REVIVED = "revived"
    CANCEL = "cancel"  # all that depends on it is to be cancelled, whatever the edges say
    REVIVE = "revive"  # what ended because of it is to be revived with it


class EdgeTransition(NamedTuple):
    """What an aftermath makes of an edge, and of its child if that is blocked."""

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
# The edges that an aftermath concerns.
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
    """What becomes of an edge that an aftermath concerns."""
    if event is DependencyEvent.COMPLETED:
        return EdgeTransition(EdgeState.MET)
    if event in (DependencyEvent.REVIVED, DependencyEvent.REVIVE):
        return EdgeTransition(EdgeState.OPEN)
    if event is DependencyEvent.CANCEL:
        return _CANCELLED
    if event is DependencyEvent.DELETED and on_failure is OnFailure.HOLD:
        return _CANCELLED  # nobody can revive what is gone
    return _FAILURES[on_failure]


def parent_reason(event: DependencyEvent, parent: JobId) -> str:
    """The reason of a child that ended because of a parent."""
    if event is DependencyEvent.CANCEL:
        return f"cancelled with {parent}, which it depends on"
    words = "was deleted" if event is DependencyEvent.DELETED else f"is {event}"
    return f"{parent}, which it depends on, {words}"


def redact_parent(reason: str) -> str:
    """Any reason; one that `parent_reason` has given names nobody."""
    return _PARENT.sub(r"\1a job", reason)


def starting_state(state: JobState, on_failure: OnFailure) -> EdgeState:
    """How a new edge stands whose parent is in this state. One that ends its child is open still: that end is
    on the list of what has to be done."""
    if state is JobState.COMPLETED:
        return EdgeState.MET
    if state in (JobState.DEAD, JobState.CANCELLED) and on_failure in (OnFailure.IGNORE, OnFailure.HOLD):
        return _FAILURES[on_failure].edge
    return EdgeState.OPEN


def due_on_release(job: Job, now: int) -> int:
    """When a blocked job is due that is released now. One without a delay has no time to wait for: it is due
    now, even if the clock was set back since it was stored, revived or amended."""
    has_delay = job.run_at > max(job.created_at, job.updated_at)
    return max(job.run_at, now) if has_delay else now


def reopen_edge_state(state: JobState | None, *, with_parent: bool) -> EdgeState:
    """How the edge of a revived child stands that had failed, by the state of its parent now; None if that is
    gone.

    Whoever asks for this very child wants it to run without parents that have failed; one that is revived
    with a parent waits for the others until somebody revives them too. A parent that is gone counts as met:
    nobody can revive it, and it may even have completed before it was forgotten.
    """
    if state is None or state is JobState.COMPLETED:
        return EdgeState.MET
    if state in (JobState.DEAD, JobState.CANCELLED):
        return EdgeState.HELD if with_parent else EdgeState.MET
    return EdgeState.OPEN


def is_past_retention(parent: JobId, keep_ms: int, now: int) -> bool:
    """Whether a job of this id would have been forgotten by now, so that nobody can tell how it ended."""
    try:
        made_at = ulid_created_at(parent)
    except InvalidJob:
        return False
    return keep_ms > 0 and made_at + keep_ms <= now


def missing_parent(task: str, parent: JobId, allow_missing: bool) -> InvalidJob:
    """The refusal of a job whose parent nobody knows."""
    way_out = (
        "its id is not older than what the queue keeps"
        if allow_missing
        else "if it may have been forgotten, say allow_missing=True"
    )
    return InvalidJob(f"{task} depends on {parent}, and there is no such job; {way_out}", field="depends_on")


def missing_batch_parent(task: str, back: int) -> InvalidJob:
    """The refusal of a job whose parent would stand before the first of its insert, or was refused."""
    return InvalidJob(
        f"{task} depends on the job {back} places before it, which was not stored", field="depends_on"
    )


# Graphs


def sort_parents_first(parents: Mapping[T, Sequence[T]], describe: Callable[[T], str] = str) -> list[T]:
    """The nodes of a graph, each after its parents, else in the order given (Kahn); raises InvalidJob that
    names a cycle. Parents that are no nodes count as met."""
    left = {node: sum(parent in parents for parent in of) for node, of in parents.items()}
    children: dict[T, list[T]] = {node: [] for node in parents}
    for node, of in parents.items():
        for parent in of:
            if parent in children:
                children[parent].append(node)
    ordered = [node for node, count in left.items() if not count]
    for node in ordered:  # grows while it is gone through
        for child in children[node]:
            left[child] -= 1
            if not left[child]:
                ordered.append(child)
    if len(ordered) < len(left):
        stuck = {node: parents[node] for node, count in left.items() if count}
        raise InvalidJob(f"jobs depend on each other: {_describe_cycle(stuck, describe)}", field="depends_on")
    return ordered


def _describe_cycle(stuck: Mapping[T, Sequence[T]], describe: Callable[[T], str]) -> str:
    """A cycle in words, in the direction in which its jobs would run, from the one that was given first."""
    path = [next(iter(stuck))]
    # Each of these has a parent among them, so the way back never ends, and meets itself.
    while (parent := next(one for one in stuck[path[-1]] if one in stuck)) not in path:
        path.append(parent)
    cycle = path[path.index(parent) :][::-1]
    start = cycle.index(next(node for node in stuck if node in cycle))
    round_trip = [*cycle[start:], *cycle[: start + 1]]
    if len(round_trip) > _SHOWN_IN_CYCLE:
        half = _SHOWN_IN_CYCLE // 2
        shown = [*map(describe, round_trip[:half]), "...", *map(describe, round_trip[-half:])]
    else:
        shown = list(map(describe, round_trip))
    return " -> ".join(shown)


def sort_topologically(jobs: Sequence[NewJob]) -> tuple[list[NewJob], list[int]]:
    """Jobs as a store takes them, parents first and named by their places, and where each one asked for went.

    Jobs that name each other by ids that their caller brought may come in any order; raises InvalidJob that
    names a cycle. Places that are counted already stay as they are, and so do those jobs.
    """
    if not any(job.depends_on for job in jobs):
        return list(jobs), list(range(len(jobs)))
    by_id = {job.id: at for at, job in enumerate(jobs) if job.id is not None}
    parents: dict[int | JobId, list[int | JobId]] = {
        at: [_resolve_parent(need.parent, at, by_id) for need in job.depends_on]
        for at, job in enumerate(jobs)
    }
    order = [at for at in sort_parents_first(parents, partial(_describe_job, jobs)) if isinstance(at, int)]
    went: dict[int | JobId, int] = {at: place for place, at in enumerate(order)}
    placed = [_with_parent_offsets(jobs[at], parents[at], went, went[at]) for at in order]
    return placed, [went[at] for at in range(len(jobs))]


def _describe_job(jobs: Sequence[NewJob], at: int | JobId) -> str:
    job = jobs[int(at)]
    return job.id or f"{job.task} ({int(at) + 1})"


def _resolve_parent(parent: JobId | int, at: int, by_id: Mapping[JobId, int]) -> int | JobId:
    return at - parent if isinstance(parent, int) else by_id.get(parent, parent)


def _with_parent_offsets(
    job: NewJob, parents: Iterable[int | JobId], went: Mapping[int | JobId, int], position: int
) -> NewJob:
    if not job.depends_on:
        return job
    needs = [
        replace(need, parent=position - went[parent]) if parent in went else need
        for need, parent in zip(job.depends_on, parents, strict=True)
    ]
    return replace(job, depends_on=tuple(needs))


def inherit_priorities(jobs: Sequence[NewJob], queues: Mapping[QueueName, Queue]) -> list[NewJob]:
    """Jobs of one insert, each with the highest priority among those that wait for it, within what its queue
    allows: else a job would wait for one that waits behind all others."""
    raised = list(jobs)
    for at in range(len(raised) - 1, -1, -1):
        child = raised[at]
        wanted = _queue_or_default(queues, child.queue).priority_of(child.priority)
        for need in child.depends_on:
            if isinstance(need.parent, int) and need.parent <= at:
                raised[at - need.parent] = _raise_priority(raised[at - need.parent], wanted, queues)
    return raised


def _raise_priority(job: NewJob, wanted: int, queues: Mapping[QueueName, Queue]) -> NewJob:
    queue = _queue_or_default(queues, job.queue)
    wanted = min(wanted, queue.settings.max_priority)
    return replace(job, priority=wanted) if wanted > queue.priority_of(job.priority) else job


def _queue_or_default(queues: Mapping[QueueName, Queue], name: QueueName) -> Queue:
    return queues.get(name) or Queue(name=name)


def dependencies_of(
    parents: Iterable[JobId | int], on_failure: OnFailure = OnFailure.CANCEL
) -> tuple[Dependency, ...]:
    """The same need for each of these."""
    return tuple(Dependency(parent, on_failure) for parent in parents)
