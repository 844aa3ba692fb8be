"""What a caller of the store may touch, by the roles of its key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from forebay.app.codec import masked_call
from forebay.domain.job import Job, JobId, WorkerId
from forebay.service.permitting.permit import Permit
from forebay.stores.protocol import Cancel


class Reach(Permit):
    """One call of the store."""

    def check(self, operation: str, queues: Iterable[str]) -> None:
        """Raise Forbidden unless they may do this to each of these queues."""
        for queue in dict.fromkeys(queues):
            self.caller.check(operation, queue)

    async def looked_at(self, ids: Iterable[JobId]) -> dict[JobId, Job]:
        """Those of these jobs that there are."""
        wanted = list(dict.fromkeys(ids))
        found = await self.service.desk.jobs(wanted) if wanted else ()
        return {job.id: job for job in found if job is not None}

    async def beyond(self, operation: str, ids: Iterable[JobId]) -> set[JobId]:
        """Which of these jobs are none of theirs."""
        if self.caller.may(operation):
            return set()
        jobs = (await self.looked_at(ids)).values()
        return {job.id for job in jobs if not self.caller.may(operation, job.queue)}

    async def check_workers(self, ids: Iterable[WorkerId]) -> None:
        """Raise Forbidden for a worker that works on queues they may not claim from."""
        if not self.caller.may("claim"):
            wanted = set(ids)
            for worker in await self.service.desk.read(lambda reader: reader.workers()):
                if worker.id in wanted:
                    self.check("claim", worker.queues)

    async def cancels(self, found: Sequence[Cancel]) -> tuple[Cancel, ...]:
        """Of wishes that jobs shall stop, those for theirs."""
        beyond = await self.beyond("claim", (one.job_id for one in found))
        return tuple(one for one in found if one.job_id not in beyond)

    def shown(self, job: Job | None) -> Job | None:
        """A job as it may be seen: none of a hidden queue, and secrets only by who might claim it."""
        if job is None or not self.caller.may_see(job.queue):
            return None
        if self.caller.may("claim", job.queue):
            return job
        return replace(job, payload=masked_call(job.payload))

    def sign(self, asked: Any) -> None:
        """Who has shown a key is who does it, whatever they say."""
        if self.caller.key is not None:
            asked.actor = self.actor
