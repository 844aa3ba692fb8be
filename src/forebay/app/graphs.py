"""Jobs that depend on others, on their way to the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from forebay.domain.job import Amendment, JobId, NewJob, QueueName
from forebay.domain.lifecycle import WAITING
from forebay.domain.queue import Queue
from forebay.domain.workflow import EdgeState, with_priorities
from forebay.errors import InvalidJob

if TYPE_CHECKING:
    from forebay.stores.protocol import Reader, Store

MOST_RAISED: Final = 100
MayRaise = Callable[[QueueName], bool]


def has_needs(jobs: Sequence[NewJob]) -> bool:
    """Whether one of these depends on another job."""
    return any(job.depends_on for job in jobs)


def inheriting(reader: Reader, jobs: Sequence[NewJob]) -> Sequence[NewJob]:
    """The same jobs, each with the highest priority among those of them that wait for it."""
    if all(job.priority is None for job in jobs):
        return jobs
    names = sorted({job.queue for job in jobs})
    return with_priorities(jobs, {queue.name: queue for queue in reader.queues(names)})


def raise_ancestors(
    store: Store, reader: Reader, jobs: Sequence[NewJob], may_raise: MayRaise | None = None
) -> None:
    """Give stored jobs that wait the priority of new ones that wait for them, up to a hundred of them: a walk
    through a graph of any size would hold up whoever enqueues. With `may_raise` only those of queues for
    which it says so; the walk ends at the others."""
    wanted: dict[JobId, int] = {}
    for job in jobs:
        for need in job.depends_on:
            if job.priority is not None and not isinstance(need.parent, int):
                wanted[need.parent] = max(job.priority, wanted.get(need.parent, job.priority))
    left = MOST_RAISED
    while wanted and left > 0:
        ids = list(wanted)[:left]
        left -= len(ids)
        raised = _raise(store, reader, ids, wanted, may_raise)
        edges = [edge for edge in reader.parents(raised) if edge.state is EdgeState.OPEN]
        wanted = {edge.parent: wanted[edge.child] for edge in edges}


def _raise(
    store: Store, reader: Reader, ids: list[JobId], wanted: dict[JobId, int], may_raise: MayRaise | None
) -> list[JobId]:
    """Raise those that wait with a lower priority; answers which that were."""
    raised: list[JobId] = []
    found = [job for job in reader.jobs(ids) if job is not None and job.state in WAITING]
    if may_raise is not None:
        found = [job for job in found if may_raise(job.queue)]
    queues = {queue.name: queue for queue in reader.queues(sorted({job.queue for job in found}))}
    for job in found:
        priority = min(wanted[job.id], _highest(queues, job.queue))
        if job.priority < priority and _amended(store, job.id, priority):
            raised.append(job.id)
    return raised


def _highest(queues: dict[QueueName, Queue], name: QueueName) -> int:
    return (queues.get(name) or Queue(name=name)).settings.max_priority


def _amended(store: Store, job_id: JobId, priority: int) -> bool:
    try:
        return store.amend(job_id, Amendment(priority=priority)).done
    except InvalidJob:  # the queue's range has just changed
        return False
