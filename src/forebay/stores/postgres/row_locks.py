"""Row locks on jobs for actions of operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic, sleep
from typing import Final

import psycopg

from forebay.domain.job import Job, JobId
from forebay.domain.job_states import JobState, is_final
from forebay.stores.contract.claims_and_results import ActionResult
from forebay.stores.postgres.connection import RetryTransaction
from forebay.stores.postgres.rows import job_from_row
from forebay.stores.postgres.transaction import Transaction
from forebay.stores.shared.rows import Row

MAX_LOOKUPS: Final = 20
# The lock timeout of all other statements.
LOCK_WAIT_SECONDS: Final = 2.0
FIRST_PAUSE_SECONDS: Final = 0.001
LONGEST_PAUSE_SECONDS: Final = 0.05
BUSY: Final = "another transaction holds it: try again once that is committed or rolled back"


def lock_jobs(tx: Transaction, ids: Iterable[JobId]) -> tuple[Mapping[JobId, Job], Mapping[JobId, Job]]:
    """Lock jobs until the transaction ends and return them; the second value has jobs that are busy.

    A live job is locked by its narrow row. The narrow row tells the state of a job, so its lock keeps other
    transactions from moving the job. The row is searched in the table where the job was read; if the job has
    moved meanwhile, it is read again. After the lock the job is read once more: it may have moved away and
    back in between.

    No lock is waited for (SKIP LOCKED): a caller transaction that completes a job may stay open for hours,
    and the other jobs of the batch must not fail because of it. Such a job has an advisory lock (`ids_busy`)
    and is busy at once. Transactions of Forebay are short: a row locked by one of these is tried again for
    the usual lock timeout. Since no lock is waited for, two callers cannot deadlock in any order of locks.
    """
    locked_jobs: dict[JobId, Job] = {}
    busy: dict[JobId, Job] = {}
    remaining = sorted(set(ids))
    lookups, until, pause = 0, monotonic() + LOCK_WAIT_SECONDS, FIRST_PAUSE_SECONDS
    while remaining and lookups < MAX_LOOKUPS:
        seen, unavailable = _try_lock(tx, remaining, locked_jobs)
        remaining = [job_id for job_id in remaining if job_id in seen and job_id not in locked_jobs]
        if unavailable:
            is_late = monotonic() >= until
            busy_ids = (
                unavailable.keys()
                if is_late
                else {row[0] for row in tx.all("ids_busy", {"ids": sorted(unavailable)})}
            )
            busy.update((job_id, unavailable[job_id]) for job_id in busy_ids)
            remaining = [job_id for job_id in remaining if job_id not in busy]
            if remaining:
                sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        else:
            lookups += 1
    if remaining:
        raise RetryTransaction
    return locked_jobs, busy


def _try_lock(
    tx: Transaction, ids: Sequence[JobId], locked_jobs: dict[JobId, Job]
) -> tuple[Mapping[JobId, Job], dict[JobId, Job]]:
    """Lock those of these jobs that are available now.

    Return all that exist, and those that have not moved and that another transaction has locked.
    """
    seen = _load_jobs(tx, ids)
    locked_jobs.update((job.id, job) for job in seen.values() if is_final(job.state))
    live = [job for job in seen.values() if job.id not in locked_jobs]
    locks = [_lock(tx, job) for job in live]  # all sent before the first result is read
    after_lock = _load_jobs(tx, [job.id for job in live])
    unavailable: dict[JobId, Job] = {}
    for job, lock in zip(live, locks, strict=True):
        is_locked = lock.fetchone() is not None
        if job.id in after_lock and _row_location(after_lock[job.id]) == _row_location(job):
            (locked_jobs if is_locked else unavailable)[job.id] = after_lock[job.id]
    return seen, unavailable


def _load_jobs(tx: Transaction, ids: Sequence[JobId]) -> dict[JobId, Job]:
    """Return jobs by id, in the order of their ids."""
    jobs = map(job_from_row, tx.all("job", {"ids": ids})) if ids else ()
    return {job.id: job for job in sorted(jobs, key=lambda job: job.id)}


def _row_location(job: Job) -> tuple[object, ...]:
    return (job.state, job.queue, job.lane, job.age_capped, job.rank, job.seq)


def _lock(tx: Transaction, job: Job) -> psycopg.Cursor[Row]:
    if job.state is JobState.RUNNING:
        return tx.run("leases_lock", row_key(job))
    if job.state is JobState.BLOCKED:
        return tx.run("blocked_lock", row_key(job))
    if job.state is not JobState.PENDING:
        return tx.run("delayed_lock", row_key(job))
    return tx.run("ready_lock" if job.lane is None else "lane_jobs_lock", row_key(job))


def row_key(job: Job) -> dict[str, object]:
    """Return the parameters that identify the narrow row of a waiting job."""
    return {"id": job.id, "queue": job.queue, "age_capped": job.age_capped, "rank": job.rank, "seq": job.seq}


def lock_failed(tx: Transaction, ids: Sequence[JobId]) -> None:
    """Lock dead or cancelled jobs, which `lock_jobs` does not, so that no other transaction revives them.

    If one is gone, the transaction is retried.
    """
    if ids:
        answers = [tx.run(name, {"ids": sorted(ids)}) for name in ("dead_lock", "cancelled_lock")]
        if sum(len(answer.fetchall()) for answer in answers) < len(ids):
            raise RetryTransaction


def busy_result(job: Job) -> ActionResult:
    """Return the result for a job that another transaction has locked."""
    return ActionResult(job_id=job.id, applied=False, state=job.state, reason=BUSY, is_busy=True)


def apply_to_jobs(
    tx: Transaction, ids: Sequence[JobId], act: Callable[[Sequence[Job]], Sequence[ActionResult]]
) -> list[ActionResult]:
    """Lock jobs and apply an action to them; return a result for each id, in the order given.

    Jobs that another transaction has locked are busy and left alone. An id given twice is applied again after
    all others.
    """
    first_index: dict[JobId, int] = {}
    repeated: list[int] = []
    for index, job_id in enumerate(ids):
        if first_index.setdefault(job_id, index) != index:
            repeated.append(index)
    locked, busy = lock_jobs(tx, first_index)
    by_id = {job_id: busy_result(job) for job_id, job in busy.items()}
    for result in act([locked[job_id] for job_id in first_index if job_id in locked]):
        by_id[result.job_id] = result
    results = [by_id.get(job_id) or ActionResult(job_id=job_id, applied=False, state=None) for job_id in ids]
    if repeated:
        for index, result in zip(
            repeated, apply_to_jobs(tx, [ids[index] for index in repeated], act), strict=True
        ):
            results[index] = result
    return results
