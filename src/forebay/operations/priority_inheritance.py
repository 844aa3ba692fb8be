"""Jobs that depend on others, on their way to the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from forebay.domain.dependencies import EdgeState, inherit_priorities
from forebay.domain.job import JobId, JobUpdate, NewJob, QueueName
from forebay.domain.lifecycle import WAITING
from forebay.domain.queue import Queue
from forebay.errors import InvalidJob

if TYPE_CHECKING:
    from forebay.stores.contract.reader import Reader
    from forebay.stores.contract.store import Store

MAX_RAISED: Final = 100
MayRaise = Callable[[QueueName], bool]


def has_dependencies(jobs: Sequence[NewJob]) -> bool:
    """Whether one of these depends on another job."""
    return any(job.depends_on for job in jobs)


def inherit_priorities_in_batch(reader: Reader, jobs: Sequence[NewJob]) -> Sequence[NewJob]:
    """The same jobs, each with the highest priority among those of them that wait for it."""
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
    """Give stored jobs that wait the priority of new ones that wait for them, up to a hundred of them: a walk
    through a graph of any size would hold up whoever enqueues. With `may_raise` only those of queues for
    which it says so; the walk ends at the others."""
    wanted = _highest_of(
        (need.parent, job.priority)
        for job in jobs
        for need in job.depends_on
        if job.priority is not None and not isinstance(need.parent, int)
    )
    left = MAX_RAISED
    while wanted and left > 0:
        ids = list(wanted)[:left]
        left -= len(ids)
        lower = _find_lower(reader, ids, wanted, may_raise)
        raised = [
            job_id for job_id, priority in lower.items() if _raise_priority(store, job_id, priority, actor)
        ]
        edges = [edge for edge in reader.parents(raised) if edge.state is EdgeState.OPEN]
        wanted = _highest_of((edge.parent, wanted[edge.child]) for edge in edges)


def _highest_of(priorities: Iterable[tuple[JobId, int]]) -> dict[JobId, int]:
    """What is asked for each job, of several the highest."""
    wanted: dict[JobId, int] = {}
    for job_id, priority in priorities:
        wanted[job_id] = max(priority, wanted.get(job_id, priority))
    return wanted


def _find_lower(
    reader: Reader, ids: list[JobId], wanted: dict[JobId, int], may_raise: MayRaise | None
) -> dict[JobId, int]:
    """Those that wait with a lower priority, and which one they shall have."""
    found = [job for job in reader.jobs(ids) if job is not None and job.state in WAITING]
    if may_raise is not None:
        found = [job for job in found if may_raise(job.queue)]
    queues = {queue.name: queue for queue in reader.queues(sorted({job.queue for job in found}))}
    shall = {job.id: min(wanted[job.id], _max_priority_of(queues, job.queue)) for job in found}
    return {job.id: shall[job.id] for job in found if job.priority < shall[job.id]}


def _max_priority_of(queues: dict[QueueName, Queue], name: QueueName) -> int:
    return (queues.get(name) or Queue(name=name)).settings.max_priority


def _raise_priority(store: Store, job_id: JobId, priority: int, actor: str) -> bool:
    try:
        return store.update_job(job_id, JobUpdate(priority=priority), actor=actor).applied
    except InvalidJob:  # the queue's range has just changed
        return False
