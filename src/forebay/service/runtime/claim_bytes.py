"""Bytes of an answer: how much the payloads of jobs that are claimed or read together may have.

A claim is bounded in jobs, and one job may have a megabyte. So the store leaves out payloads above an equal
share of the budget, and these are read afterwards, a few at a time. Jobs beyond the budget are handed back.
A caller that reads jobs by their ids asks again for those beyond the budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from forebay.domain.job import MAX_ENCRYPTION_OVERHEAD, MAX_PAYLOAD, Job, JobId
from forebay.stores.contract.reader import Reader

CLAIM_BYTES: Final = 4 * 1_048_576
# Most payloads are smaller, and to read one apart takes a round trip. With the largest claims it is 20 MiB.
MIN_PAYLOAD_LIMIT: Final = 1_024
READ_BATCH: Final = CLAIM_BYTES // (MAX_PAYLOAD + MAX_ENCRYPTION_OVERHEAD)
# Whole jobs that one look of the store brings: each may have a payload and a result. 1,000 small ones take
# 125 looks.
LOOKED_AT_TOGETHER: Final = 8


def payload_limit(room: int) -> int:
    """The largest payload that comes with a claim of this many jobs."""
    return max(MIN_PAYLOAD_LIMIT, CLAIM_BYTES // max(1, room))


def read_payloads(
    reader: Reader, jobs: Sequence[Job], budget: int = CLAIM_BYTES
) -> tuple[list[Job], list[Job]]:
    """Claimed jobs with the payloads that were left out, as many as the budget allows and at least one; and
    the others."""
    ready: list[Job] = []
    used = 0
    found: dict[JobId, Job] = {}
    for place, job in enumerate(jobs):
        if place % READ_BATCH == 0:
            found = _load_payloads(reader, jobs[place : place + READ_BATCH])
        whole = found.get(job.id, job)
        used += len(whole.payload)
        if ready and used > budget:
            return ready, list(jobs[place:])
        ready.append(whole)
    return ready, []


def read_jobs(reader: Reader, ids: Sequence[JobId], budget: int = CLAIM_BYTES) -> list[Job | None]:
    """The first of these jobs with payloads and results, as many as the budget allows and at least one."""
    found: list[Job | None] = []
    used = 0
    while len(found) < len(ids) and used < budget:
        part = reader.jobs(ids[len(found) : len(found) + LOOKED_AT_TOGETHER])
        used += sum(len(job.payload) + len(job.result or b"") for job in part if job is not None)
        found += part
    return found


def _load_payloads(reader: Reader, jobs: Sequence[Job]) -> dict[JobId, Job]:
    """Those of these jobs whose payload was left out, or is empty."""
    missing = {job.id: job for job in jobs if not job.payload}
    found = reader.jobs(list(missing)) if missing else ()
    return {job.id: replace(missing[job.id], payload=job.payload) for job in found if job is not None}
