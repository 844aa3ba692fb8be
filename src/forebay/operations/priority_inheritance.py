"""Priority inheritance: parents get at least the priority of the jobs that depend on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from forebay.domain.dependencies import EdgeState
from forebay.domain.dependency_graph import inherit_priorities
from forebay.domain.job import JobId, NewJob, QueueName
from forebay.domain.job_states import WAITING
from forebay.domain.job_update import JobUpdate
from forebay.domain.queue import Queue
from forebay.errors import InvalidJob

if TYPE_CHECKING:
    from forebay.stores.contract.reader import Reader
    from forebay.stores.contract.store import Store

MAX_RAISED: Final = 100
MayRaise = Callable[[QueueName], bool]


def has_dependencies(jobs: Sequence[NewJob]) -> bool:
    """Return whether one of these jobs depends on another job."""
    return any(job.depends_on for job in jobs)


def inherit_priorities_in_batch(reader: Reader, jobs: Sequence[NewJob]) -> Sequence[NewJob]:
    """Return the same jobs, each with the highest priority among those of them that depend on it."""
    if all(job.priority is None for job in jobs):
        return jobs
    names = sorted({job.queue for job in jobs})
    return inherit_priorities(jobs, {queue.name: queue for queue in reader.queues(names)})


def raise_ancestors(
    store: Store,
    reader: Reader,
    jobs: Sequence[NewJob],
    may_raise: MayRaise | None = None,
    *,
    actor: str = "",
) -> None:
    """Raise waiting stored ancestors of new jobs to the priority of these, up to a hundred of them.

    The bound is for the enqueueing caller, who waits for this walk through a graph of any size. With
    `may_raise` only ancestors in queues for which it returns true are raised; the walk ends at the rest.
    """
    required = _highest_of(
        (dependency.parent, job.priority)
        for job in jobs
        for dependency in job.depends_on
        if job.priority is not None and not isinstance(dependency.parent, int)
    )
    left = MAX_RAISED
    while required and left > 0:
        ids = list(required)[:left]
        left -= len(ids)
        lower = _find_lower(reader, ids, required, may_raise)
        raised = [
            job_id for job_id, priority in lower.items() if _raise_priority(store, job_id, priority, actor)
        ]
        edges = [edge for edge in reader.parents(raised) if edge.state is EdgeState.OPEN]
        required = _highest_of((edge.parent, required[edge.child]) for edge in edges)


def _highest_of(priorities: Iterable[tuple[JobId, int]]) -> dict[JobId, int]:
    """Return the highest required priority of each job."""
    highest: dict[JobId, int] = {}
    for job_id, priority in priorities:
        highest[job_id] = max(priority, highest.get(job_id, priority))
    return highest


def _find_lower(
    reader: Reader, ids: list[JobId], required: dict[JobId, int], may_raise: MayRaise | None
) -> dict[JobId, int]:
    """Return the waiting jobs with a lower priority than required, with their new priority."""
    jobs = [job for job in reader.jobs(ids) if job is not None and job.state in WAITING]
    if may_raise is not None:
        jobs = [job for job in jobs if may_raise(job.queue)]
    queues = {queue.name: queue for queue in reader.queues(sorted({job.queue for job in jobs}))}
    targets = {job.id: min(required[job.id], _max_priority_of(queues, job.queue)) for job in jobs}
    return {job.id: targets[job.id] for job in jobs if job.priority < targets[job.id]}


def _max_priority_of(queues: dict[QueueName, Queue], name: QueueName) -> int:
    return (queues.get(name) or Queue(name=name)).settings.max_priority


def _raise_priority(store: Store, job_id: JobId, priority: int, actor: str) -> bool:
    try:
        return store.update_job(job_id, JobUpdate(priority=priority), actor=actor).applied
    except InvalidJob:  # the queue's range has just changed
        return False
