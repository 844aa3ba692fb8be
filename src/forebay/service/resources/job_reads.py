"""Reads of jobs: one job, its dependency graph, the next jobs of a queue, search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from forebay.domain.dependencies import Edge
from forebay.domain.job import Job, JobId, QueueName
from forebay.domain.job_query import JobQuery, Page
from forebay.errors import JobNotFound, QueueNotFound
from forebay.operations.job_search import count_jobs, search_jobs
from forebay.service.runtime.store_pool import StorePool
from forebay.service.schema.base import at
from forebay.service.schema.job_filter import SearchRequest
from forebay.service.schema.job_views import (
    GraphView,
    JobList,
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
    """Reads of jobs that change nothing."""

    def __init__(self, pool: StorePool) -> None:
        self._pool = pool

    async def job(self, job_id: str, can_see: QueueFilter | None = None) -> JobView:
        """Return a job with its attempts and dependants; raises JobNotFound. With `can_see`, it names no job
        of a hidden queue."""
        key = JobId(job_id)

        def load(reader: Reader) -> JobView:
            timeline = reader.history(key)
            if timeline is None:
                raise JobNotFound(f"there is no job {job_id}")
            parents = reader.parents([key])
            dependants = reader.dependants([key], limit=DEPENDANTS_SHOWN)
            view = job_view(timeline, parents, dependants)
            return view if can_see is None else redact_job(view, _find_hidden(reader, view, can_see))

        return await self._pool.read(load)

    async def graph(self, job_id: str, limit: int, can_see: QueueFilter | None = None) -> GraphView:
        """Return the jobs connected with one by dependencies, nearest first; raises JobNotFound. With
        `can_see`, the walk passes through no job of a hidden queue."""
        found = await self._pool.read(lambda reader: _walk_graph(reader, JobId(job_id), limit, can_see))
        if not found.jobs:
            raise JobNotFound(f"there is no job {job_id}")
        return found

    async def peek(self, queue: str, limit: int) -> PeekResponse:
        """Return the next jobs of a queue to be claimed; raises QueueNotFound."""
        name = QueueName(queue)
        found = await self._pool.read(
            lambda reader: reader.peek(name, limit) if reader.queues([name]) else None
        )
        if found is None:
            raise QueueNotFound(f"there is no queue {queue}")
        return PeekResponse(jobs=[job_list_item(job) for job in found])

    async def search(self, request: SearchRequest) -> JobList:
        """Return matching jobs, newest first."""
        return await list_matching(self._pool, request.where.query(), request)


def _find_hidden(reader: Reader, view: JobView, can_see: QueueFilter) -> set[str]:
    """Return the jobs that a view names in hidden queues. A deleted job counts as hidden, because its queue
    is not known."""
    named = {edge.id for edge in (*view.depends_on, *view.dependants)}
    others = sorted(named | {view.parent_id or view.id} - {view.id})
    found = reader.jobs([JobId(job_id) for job_id in others], with_payload=False)
    return {
        job_id for job_id, job in zip(others, found, strict=True) if job is None or not can_see(job.queue)
    }


def _walk_graph(reader: Reader, root: JobId, limit: int, can_see: QueueFilter | None) -> GraphView:
    jobs: dict[JobId, Job] = {}
    edges: dict[tuple[JobId, int], Edge] = {}
    visited, level, is_cut = {root}, [root], False
    while level and len(jobs) < limit:
        found = reader.jobs(level[: limit - len(jobs)], with_payload=False)
        visible = {
            job.id: job for job in found if job is not None and (can_see is None or can_see(job.queue))
        }
        jobs |= visible
        dependants = reader.dependants(list(visible), limit=DEPENDANTS_SHOWN) if visible else []
        connected = [*reader.parents(list(visible)), *dependants] if visible else []
        is_cut = is_cut or len(level) > len(found) or len(dependants) == DEPENDANTS_SHOWN
        edges |= {(edge.child, edge.position): edge for edge in connected}
        neighbours = dict.fromkeys(job_id for edge in connected for job_id in (edge.parent, edge.child))
        level = [job_id for job_id in neighbours if job_id not in visited]
        visited.update(level)
    inner = [edge for edge in edges.values() if edge.parent in jobs and edge.child in jobs]
    return graph_view(map(summary_of, jobs.values()), inner, is_complete=not (level or is_cut))


async def list_matching(pool: StorePool, query: JobQuery, request: SearchRequest) -> JobList:
    """Return a page of the jobs that match `query`, with their number if `request` asks for it."""

    def load(reader: Reader) -> tuple[Page, tuple[int, bool] | None]:
        page = search_jobs(reader, query, request.limit, request.after)
        return page, count_jobs(reader, query) if request.with_total else None

    page, total = await pool.read(load)
    return JobList(
        jobs=[job_list_item(job) for job in page.jobs],
        after=page.after,
        has_more=page.after is not None,
        scanned_back_to=at(page.scanned_back_to),
        total=None if total is None else total[0],
        total_is_exact=None if total is None else total[1],
    )
