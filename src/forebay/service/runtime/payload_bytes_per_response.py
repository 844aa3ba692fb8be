"""Payload bytes per response: how many a claim or a read may return, and reads within that budget.

A claim is bounded in jobs, but one job may have a megabyte. So the store leaves out payloads above an equal
share of the budget, and these are read afterwards, a few at a time. Claimed jobs beyond the budget are handed
back. A caller that reads jobs by id asks again for those beyond the budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from forebay.domain.job import Job, JobId
from forebay.domain.job_validation import MAX_ENCRYPTION_OVERHEAD, MAX_PAYLOAD
from forebay.stores.contract.reader import Reader

CLAIM_BYTES: Final = 4 * 1_048_576
# Most payloads are smaller, and a separate read costs a round trip. The largest claims then have 20 MiB.
MIN_PAYLOAD_LIMIT: Final = 1_024
READ_BATCH: Final = CLAIM_BYTES // (MAX_PAYLOAD + MAX_ENCRYPTION_OVERHEAD)
# Jobs per read: each may have a large payload and a large result. 1,000 small ones take 125 reads.
JOBS_PER_READ: Final = 8


def payload_limit(room: int) -> int:
    """Return the largest payload that a claim of this many jobs includes."""
    return max(MIN_PAYLOAD_LIMIT, CLAIM_BYTES // max(1, room))


def read_payloads(
    reader: Reader, jobs: Sequence[Job], budget: int = CLAIM_BYTES
) -> tuple[list[Job], list[Job]]:
    """Return the claimed jobs with their payloads, as many as the budget allows and at least one; and the
    other jobs."""
    ready: list[Job] = []
    used = 0
    found: dict[JobId, Job] = {}
    for index, job in enumerate(jobs):
        if index % READ_BATCH == 0:
            found = _load_payloads(reader, jobs[index : index + READ_BATCH])
        complete = found.get(job.id, job)
        used += len(complete.payload)
        if ready and used > budget:
            return ready, list(jobs[index:])
        ready.append(complete)
    return ready, []


def read_jobs(reader: Reader, ids: Sequence[JobId], budget: int = CLAIM_BYTES) -> list[Job | None]:
    """Return the first of these jobs with payloads and results, as many as the budget allows and at least
    one."""
    found: list[Job | None] = []
    used = 0
    while len(found) < len(ids) and used < budget:
        part = reader.jobs(ids[len(found) : len(found) + JOBS_PER_READ])
        used += sum(len(job.payload) + len(job.result or b"") for job in part if job is not None)
        found += part
    return found


def _load_payloads(reader: Reader, jobs: Sequence[Job]) -> dict[JobId, Job]:
    """Return the jobs whose payload was left out, with it."""
    missing = {job.id: job for job in jobs if not job.payload}
    found = reader.jobs(list(missing)) if missing else ()
    return {job.id: replace(missing[job.id], payload=job.payload) for job in found if job is not None}
