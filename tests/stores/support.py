"""Builders that tests of stores share."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, Final

from forebay.domain.job import DEFAULT_QUEUE, Job, JobId, NewJob, QueueName, WorkerId
from forebay.domain.job_query import JobQuery
from forebay.domain.job_views import JobSummary
from forebay.domain.outcome import AttemptError, Completed, Failed
from forebay.domain.settlement import Settlement, decide
from forebay.domain.ulid import encode_ulid
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock

__all__ = [
    "OTHER_WORKER",
    "SWEEPER",
    "WORKER",
    "ManualClock",
    "claim",
    "complete",
    "counting_ids",
    "everything",
    "fail",
    "new_job",
]

WORKER: Final = WorkerId("w1")
OTHER_WORKER: Final = WorkerId("w2")
SWEEPER: Final = WorkerId("sweeper")


def new_job(**changes: Any) -> NewJob:
    """A small valid request, with some fields replaced."""
    return NewJob(**{"task": "t", "payload": b"{}", **changes})


def claim(store: Store, n: int = 1, queue: QueueName = DEFAULT_QUEUE, worker: WorkerId = WORKER) -> list[Job]:
    """Up to n jobs of one queue, under leases of the worker."""
    return list(store.settle_and_claim(worker, claims=[QueueClaim(queue, n)], room=n).jobs)


def complete(job: Job, result: bytes | None = b"1") -> Settlement:
    return decide(job, Completed(result), 0.0)


def fail(job: Job, message: str = "it broke", after_ms: int | None = None) -> Settlement:
    return decide(job, Failed(AttemptError(type="Boom", message=message), after_ms), 0.0)


def everything(reader: Reader, query: JobQuery | None = None, *, limit: int = 100) -> list[JobSummary]:
    """All jobs that fit, page by page."""
    page = reader.search(query or JobQuery(), limit=limit)
    jobs = list(page.jobs)
    while page.after is not None:
        page = reader.search(query or JobQuery(), limit=limit, after=page.after)
        jobs += page.jobs
    return jobs


def counting_ids() -> Callable[[], JobId]:
    """Makes the ids 1, 2, 3, ... as ULIDs."""
    numbers = count(1)
    return lambda: JobId(encode_ulid(next(numbers)))
