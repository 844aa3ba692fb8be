"""What anybody may look at without changing it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from forebay.domain.dependencies import Edge
from forebay.domain.job import Job, JobId, QueueName
from forebay.errors import JobNotFound, QueueNotFound
from forebay.service.runtime.store_pool import StorePool
from forebay.service.schema.job_views import (
    GraphView,
    JobView,
    PeekResponse,
    graph_view,
    job_list_item,
    job_view,
    redact_job,
)
from forebay.stores.contract.reader import Reader
from forebay.stores.shared.query_filter import summary_of

DEPENDANTS_SHOWN: Final = 1_000
QueueFilter = Callable[[QueueName], bool]


class JobReads:
    """Jobs as they are."""

    def __init__(self, pool: StorePool) -> None:
        self._pool = pool

    async def job(self, job_id: str, can_see: QueueFilter | None = None) -> JobView:
        """A job with its attempts and what depends on it; raises JobNotFound. With `can_see` nothing in it
        names
        a job of a queue that it does not."""
        wanted = JobId(job_id)

        def look(reader: Reader) -> JobView:
            timeline = reader.history(wanted)
            if timeline is None:
                raise JobNotFound(f"there is no job {job_id}")
            parents = reader.parents([wanted])
            dependants = reader.dependants([wanted], limit=DEPENDANTS_SHOWN)
            shape = job_view(timeline, parents, dependants)
            return shape if can_see is None else redact_job(shape, _find_hidden(reader, shape, can_see))

        return await self._pool.read(look)

    async def graph(self, job_id: str, limit: int, can_see: QueueFilter | None = None) -> GraphView:
        """The jobs around one that wait for each other, nearest first; raises JobNotFound. With `can_see` the
        walk goes through no job of a queue that it does not."""
        found = await self._pool.read(lambda reader: _walk_graph(reader, JobId(job_id), limit, can_see))
        if not found.jobs:
            raise JobNotFound(f"there is no job {job_id}")
        return found

    async def peek(self, queue: str, limit: int) -> PeekResponse:
        """The jobs of a queue that would be claimed next; raises QueueNotFound."""
        name = QueueName(queue)
        found = await self._pool.read(
            lambda reader: reader.peek(name, limit) if reader.queues([name]) else None
        )
        if found is None:
            raise QueueNotFound(f"there is no queue {queue}")
        return PeekResponse(jobs=[job_list_item(job) for job in found])


def _find_hidden(reader: Reader, view: JobView, can_see: QueueFilter) -> set[str]:
    """Of the jobs that one names those in queues that somebody does not see. Of one that is gone nobody can
    say where it was."""
    named = {one.id for one in (*view.depends_on, *view.dependants)}
    others = sorted(named | {view.parent_id or view.id} - {view.id})
    found = reader.jobs([JobId(one) for one in others], with_payload=False)
    return {one for one, job in zip(others, found, strict=True) if job is None or not can_see(job.queue)}


def _walk_graph(reader: Reader, root: JobId, limit: int, can_see: QueueFilter | None) -> GraphView:
    jobs: dict[JobId, Job] = {}
    edges: dict[tuple[JobId, int], Edge] = {}
    asked, level, is_cut = {root}, [root], False
    while level and len(jobs) < limit:
        found = reader.jobs(level[: limit - len(jobs)], with_payload=False)
        here = {job.id: job for job in found if job is not None and (can_see is None or can_see(job.queue))}
        jobs |= here
        down = reader.dependants(list(here), limit=DEPENDANTS_SHOWN) if here else []
        ties = [*reader.parents(list(here)), *down] if here else []
        is_cut = is_cut or len(level) > len(found) or len(down) == DEPENDANTS_SHOWN
        edges |= {(edge.child, edge.position): edge for edge in ties}
        ends = dict.fromkeys(end for edge in ties for end in (edge.parent, edge.child))
        level = [end for end in ends if end not in asked]
        asked.update(level)
    known = [edge for edge in edges.values() if edge.parent in jobs and edge.child in jobs]
    return graph_view(map(summary_of, jobs.values()), known, is_complete=not (level or is_cut))
