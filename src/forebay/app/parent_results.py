"""Results of the jobs that a job depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from forebay.app.job_handle import decode_final_result
from forebay.domain.job import Job, JobId
from forebay.errors import JobCancelled, JobFailed, JobNotFound

if TYPE_CHECKING:
    from forebay.app.client import Client

_PAGE: Final = 1_000


def parent_results(client: Client, job_id: JobId) -> list[Any]:
    """Return the results of a job's parents in the order of its dependencies; see
    `JobContext.parent_results`."""
    parents = [edge.parent for edge in client.parents([job_id])]
    jobs: list[Job | None] = []
    for first in range(0, len(parents), _PAGE):
        jobs += client.jobs(parents[first : first + _PAGE])
    return [_parent_result(client, parent, job) for parent, job in zip(parents, jobs, strict=True)]


def _parent_result(client: Client, parent: JobId, job: Job | None) -> Any:
    if job is None:
        return JobNotFound(f"job {parent} was deleted, and its result with it")
    try:
        return decode_final_result(job, client.coerce_result)
    except (JobFailed, JobCancelled) as failed:
        return failed
