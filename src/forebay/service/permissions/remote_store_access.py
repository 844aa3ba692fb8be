"""One remote store call, with the permissions of its caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from forebay.domain.dependencies import redact_parent
from forebay.domain.job import Job, JobId, QueueName, WorkerId
from forebay.domain.job_views import JobSummary
from forebay.domain.progress import JobProgress
from forebay.payload.codec import mask_call, mask_result
from forebay.payload.masking import mask_text
from forebay.service.permissions.authorized_request import AuthorizedRequest
from forebay.stores.contract.claims_and_results import PendingCancel


class StoreAccess(AuthorizedRequest):
    """Authorized request for one store call."""

    def check_queues(self, operation: str, queues: Iterable[str]) -> None:
        """Raise Forbidden unless the caller may do this to each of these queues."""
        for queue in dict.fromkeys(queues):
            self.caller.check(operation, queue)

    async def load_jobs(self, ids: Iterable[JobId]) -> dict[JobId, Job]:
        """Return the existing ones of these jobs."""
        wanted = list(dict.fromkeys(ids))
        found = await self.service.pool.jobs(wanted, with_payload=False) if wanted else ()
        return {job.id: job for job in found if job is not None}

    async def find_forbidden(self, operation: str, ids: Iterable[JobId]) -> set[JobId]:
        """Return the jobs that the caller may not do this to."""
        if self.caller.may(operation):
            return set()
        jobs = (await self.load_jobs(ids)).values()
        return {job.id for job in jobs if not self.caller.may(operation, job.queue)}

    async def check_workers(self, ids: Iterable[WorkerId]) -> None:
        """Raise Forbidden for a worker on queues that the caller may not claim from."""
        if not self.caller.may("claim"):
            names = list(ids)
            for worker in await self.service.pool.read(lambda reader: reader.workers(names)):
                self.check_queues("claim", worker.queues)

    async def filter_cancels(self, found: Sequence[PendingCancel]) -> tuple[PendingCancel, ...]:
        """Return the pending cancels of jobs that the caller may claim."""
        forbidden = await self.find_forbidden("claim", (cancel.job_id for cancel in found))
        return tuple(cancel for cancel in found if cancel.job_id not in forbidden)

    async def redact_jobs(self, jobs: Sequence[Job | None]) -> list[Job | None]:
        """Return jobs as the caller may see them.

        A job of a hidden queue becomes None, and its id is removed from others. Secrets stay only in queues
        that the caller may claim from.
        """
        seen = [job if job is not None and self.caller.may_see(job.queue) else None for job in jobs]
        hidden = await self.find_hidden(job.parent_id for job in seen if job is not None)
        size = sum(len(job.payload) + len(job.result or b"") for job in seen if job is not None)
        return await self.service.pool.converter.run(size, self._redact_all, seen, hidden)

    async def find_hidden(self, ids: Iterable[JobId | None]) -> set[JobId]:
        """Return the referenced jobs in queues that the caller does not see. A deleted job counts as hidden,
        because its queue is not known."""
        if self.caller.may("job"):
            return set()
        referenced = {job_id for job_id in ids if job_id is not None}
        jobs = await self.load_jobs(referenced)
        return {
            job_id
            for job_id in referenced
            if job_id not in jobs or not self.caller.may_see(jobs[job_id].queue)
        }

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

    def redact_progress(self, queue: QueueName, progress: JobProgress) -> JobProgress:
        """Return the progress of a job of this queue, masked for a caller that may only view."""
        return progress if self.caller.may_read(queue) else mask_progress(progress)

    def redact_summaries(self, found: Sequence[JobSummary]) -> list[JobSummary]:
        """Return summaries as the caller may see them: a reason may name a job of a hidden queue."""
        return [replace(summary, reason=redact_reason(summary.reason)) for summary in found]

    def set_actor(self, call_args: Any) -> None:
        """Set the actor to the caller, whatever the request names."""
        if self.caller.key is not None:
            call_args.actor = self.actor


def mask_progress(stored: JobProgress) -> JobProgress:
    """Return progress with masks in place of what looks secret in texts and in step results."""
    progress = stored.progress
    return JobProgress(
        progress=progress and replace(progress, message=mask_text(progress.message)),
        lines=tuple(replace(line, text=mask_text(line.text)) for line in stored.lines),
        steps=tuple(replace(step, result=mask_result(step.result)) for step in stored.steps),
    )


def redact_reason(reason: str | None) -> str | None:
    return None if reason is None else redact_parent(reason)


# Rule of a store call: raises Forbidden or restricts the arguments, and returns a filter of the result.
ResultFilter = Callable[[Any], Awaitable[Any]]
StoreCallRule = Callable[[StoreAccess, Any], Awaitable[ResultFilter | None]]
