"""What anybody may look at without changing it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from forebay.domain.job import Job, JobId, QueueName
from forebay.domain.workflow import Edge
from forebay.errors import JobNotFound, QueueNotFound
from forebay.service.operations.desk import Desk
from forebay.service.schema.looking import (
    GraphShape,
    JobShape,
    PeekAnswer,
    graph_shape,
    job_line,
    job_shape,
    without,
)
from forebay.stores.matching import summary_of
from forebay.stores.protocol import Reader

DEPENDANTS_SHOWN: Final = 1_000
Sees = Callable[[QueueName], bool]


class Looking:
    """Jobs as they are."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def job(self, job_id: str, sees: Sees | None = None) -> JobShape:
        """A job with its attempts and what depends on it; raises JobNotFound. With `sees` nothing in it names
        a job of a queue that it does not."""
        wanted = JobId(job_id)

        def look(reader: Reader) -> JobShape:
            timeline = reader.history(wanted)
            if timeline is None:
                raise JobNotFound(f"there is no job {job_id}")
            parents = reader.parents([wanted])
            dependants = reader.dependants([wanted], limit=DEPENDANTS_SHOWN)
            shape = job_shape(timeline, parents, dependants)
            return shape if sees is None else without(shape, _hidden(reader, shape, sees))

        return await self._desk.read(look)

    async def graph(self, job_id: str, limit: int, sees: Sees | None = None) -> GraphShape:
        """The jobs around one that wait for each other, nearest first; raises JobNotFound. With `sees` the
        walk goes through no job of a queue that it does not."""
        found = await self._desk.read(lambda reader: _walk(reader, JobId(job_id), limit, sees))
        if not found.jobs:
            raise JobNotFound(f"there is no job {job_id}")
        return found

    async def peek(self, queue: str, limit: int) -> PeekAnswer:
        """The jobs of a queue that would be claimed next; raises QueueNotFound."""
        name = QueueName(queue)
        found = await self._desk.read(
            lambda reader: reader.peek(name, limit) if reader.queues([name]) else None
        )
        if found is None:
            raise QueueNotFound(f"there is no queue {queue}")
        return PeekAnswer(jobs=[job_line(job) for job in found])


def _hidden(reader: Reader, shape: JobShape, sees: Sees) -> set[str]:
    """Of the jobs that one names those in queues that somebody does not see. Of one that is gone nobody can
    say where it was."""
    named = {one.id for one in (*shape.depends_on, *shape.dependants)}
    others = sorted(named | {shape.parent_id or shape.id} - {shape.id})
    found = reader.jobs([JobId(one) for one in others], with_payload=False)
    return {one for one, job in zip(others, found, strict=True) if job is None or not sees(job.queue)}


def _walk(reader: Reader, root: JobId, limit: int, sees: Sees | None) -> GraphShape:
    jobs: dict[JobId, Job] = {}
    edges: dict[tuple[JobId, int], Edge] = {}
    asked, level, is_cut = {root}, [root], False
    while level and len(jobs) < limit:
        found = reader.jobs(level[: limit - len(jobs)], with_payload=False)
        here = {job.id: job for job in found if job is not None and (sees is None or sees(job.queue))}
        jobs |= here
        down = reader.dependants(list(here), limit=DEPENDANTS_SHOWN) if here else []
        ties = [*reader.parents(list(here)), *down] if here else []
        is_cut = is_cut or len(level) > len(found) or len(down) == DEPENDANTS_SHOWN
        edges |= {(edge.child, edge.number): edge for edge in ties}
        ends = dict.fromkeys(end for edge in ties for end in (edge.parent, edge.child))
        level = [end for end in ends if end not in asked]
        asked.update(level)
    known = [edge for edge in edges.values() if edge.parent in jobs and edge.child in jobs]
    return graph_shape(map(summary_of, jobs.values()), known, is_whole=not (level or is_cut))
