"""What a caller of the store may touch, by the roles of its key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from forebay.domain.dependencies import redact_parent
from forebay.domain.job import Job, JobId, JobSummary, QueueName, WorkerId
from forebay.domain.progress import JobProgress
from forebay.payload.codec import mask_call, mask_result
from forebay.payload.masking import mask_text
from forebay.service.permissions.authorized_request import AuthorizedRequest
from forebay.stores.contract.values import PendingCancel


class StoreAccess(AuthorizedRequest):
    """One call of the store."""

    def check_queues(self, operation: str, queues: Iterable[str]) -> None:
        """Raise Forbidden unless they may do this to each of these queues."""
        for queue in dict.fromkeys(queues):
            self.caller.check(operation, queue)

    async def load_jobs(self, ids: Iterable[JobId]) -> dict[JobId, Job]:
        """Those of these jobs that there are."""
        wanted = list(dict.fromkeys(ids))
        found = await self.service.pool.jobs(wanted, with_payload=False) if wanted else ()
        return {job.id: job for job in found if job is not None}

    async def find_forbidden(self, operation: str, ids: Iterable[JobId]) -> set[JobId]:
        """Which of these jobs are none of theirs."""
        if self.caller.may(operation):
            return set()
        jobs = (await self.load_jobs(ids)).values()
        return {job.id for job in jobs if not self.caller.may(operation, job.queue)}

    async def check_workers(self, ids: Iterable[WorkerId]) -> None:
        """Raise Forbidden for a worker that works on queues they may not claim from."""
        if not self.caller.may("claim"):
            wanted = list(ids)
            for worker in await self.service.pool.read(lambda reader: reader.workers(wanted)):
                self.check_queues("claim", worker.queues)

    async def filter_cancels(self, found: Sequence[PendingCancel]) -> tuple[PendingCancel, ...]:
        """Of wishes that jobs shall stop, those for theirs."""
        beyond = await self.find_forbidden("claim", (one.job_id for one in found))
        return tuple(one for one in found if one.job_id not in beyond)

    async def redact_jobs(self, jobs: Sequence[Job | None]) -> list[Job | None]:
        """Jobs as they may be seen: none of a hidden queue, nor the name of one there; secrets only by who
        might claim it."""
        seen = [job if job is not None and self.caller.may_see(job.queue) else None for job in jobs]
        hidden = await self.find_hidden(job.parent_id for job in seen if job is not None)
        size = sum(len(job.payload) + len(job.result or b"") for job in seen if job is not None)
        return await self.service.pool.converter.run(size, self._redact_all, seen, hidden)

    async def find_hidden(self, ids: Iterable[JobId | None]) -> set[JobId]:
        """Of jobs that others name, those in queues that the caller does not see. Of one that is gone nobody
        can say where it was."""
        if self.caller.may("job"):
            return set()
        named = {job_id for job_id in ids if job_id is not None}
        found = await self.load_jobs(named)
        return {one for one in named if one not in found or not self.caller.may_see(found[one].queue)}

    def _redact_all(self, jobs: Sequence[Job | None], hidden: Collection[JobId]) -> list[Job | None]:
        return [None if job is None else self._redact_job(job, hidden) for job in jobs]

    def _redact_job(self, job: Job, hidden: Collection[JobId]) -> Job:
        if not self.caller.may("claim", job.queue):
            job = replace(job, payload=mask_call(job.payload))
        if job.result is not None and not self.caller.may_read(job.queue):
            job = replace(job, result=mask_result(job.result))
        if self.caller.may("job"):
            return job
        return replace(
            job,
            parent_id=None if job.parent_id in hidden else job.parent_id,
            cancel_reason=redact_reason(job.cancel_reason),
            reason=redact_reason(job.reason),
        )

    def redact_progress(self, queue: QueueName, notes: JobProgress) -> JobProgress:
        """Return the notes of a job of this queue, masked for a caller that only looks."""
        return notes if self.caller.may_read(queue) else mask_progress(notes)

    def redact_summaries(self, found: Sequence[JobSummary]) -> list[JobSummary]:
        """Lines of a list as they may be seen: a job may have ended because of one of a hidden queue."""
        return [replace(line, reason=redact_reason(line.reason)) for line in found]

    def set_actor(self, call_args: Any) -> None:
        """Who has shown a key is who does it, whatever they say."""
        if self.caller.key is not None:
            call_args.actor = self.actor


def mask_progress(notes: JobProgress) -> JobProgress:
    """Return notes with masks in place of what looks secret in texts and in the results of steps."""
    progress = notes.progress
    return JobProgress(
        progress=progress and replace(progress, message=mask_text(progress.message)),
        lines=tuple(replace(line, text=mask_text(line.text)) for line in notes.lines),
        steps=tuple(replace(step, result=mask_result(step.result)) for step in notes.steps),
    )


def redact_reason(reason: str | None) -> str | None:
    return None if reason is None else redact_parent(reason)


# What a call needs: raises Forbidden, or changes the call, and answers how to narrow what comes of it.
ResultFilter = Callable[[Any], Awaitable[Any]]
StoreCallRule = Callable[[StoreAccess, Any], Awaitable[ResultFilter | None]]
