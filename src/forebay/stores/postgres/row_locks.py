"""Holding jobs still while an operator does something to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic, sleep
from typing import Final

import psycopg

from forebay.domain.job import Job, JobId
from forebay.domain.lifecycle import JobState, is_final
from forebay.stores.contract.values import ActionResult
from forebay.stores.postgres.connection import RetryTransaction
from forebay.stores.postgres.rows import job_from_row
from forebay.stores.postgres.transaction import Transaction
from forebay.stores.shared.rows import Row

MAX_LOOKUPS: Final = 20
# As long as a lock is waited for elsewhere (`lock_timeout`).
LOCK_WAIT_SECONDS: Final = 2.0
FIRST_PAUSE_SECONDS: Final = 0.001
LONGEST_PAUSE_SECONDS: Final = 0.05
BUSY: Final = "another transaction holds it: try again once that is committed or rolled back"


def lock_jobs(tx: Transaction, ids: Iterable[JobId]) -> tuple[Mapping[JobId, Job], Mapping[JobId, Job]]:
    """Jobs as they are now; live ones are held by the lock of their narrow row until the transaction ends.
    Second come jobs that another transaction holds, which are left alone.

    The narrow row says what state a job is in, so who holds it keeps everybody else from moving the job. It
    is looked for where the job was seen; if it has moved on meanwhile, we look again. After the lock the job
    is read once more: it may have moved away and come back in between.

    No lock is waited for (SKIP LOCKED): a caller's transaction that completes a job may stay open for hours,
    and the other jobs of the batch must not fail because of it. Such a job is known by the lock of its number
    (`ids_busy`), and given up at once. Transactions of Forebay's own are short: a row that one of these holds
    is tried again for as long as a lock is waited for elsewhere. Nobody waits for a lock here, so two callers
    do not wait for each other, in whichever order they lock.
    """
    held: dict[JobId, Job] = {}
    busy: dict[JobId, Job] = {}
    left = sorted(set(ids))
    moves, until, pause = 0, monotonic() + LOCK_WAIT_SECONDS, FIRST_PAUSE_SECONDS
    while left and moves < MAX_LOOKUPS:
        seen, locked = _try_lock(tx, left, held)
        left = [job_id for job_id in left if job_id in seen and job_id not in held]
        if locked:
            is_over = monotonic() >= until
            taken = (
                locked.keys() if is_over else {row[0] for row in tx.all("ids_busy", {"ids": sorted(locked)})}
            )
            busy.update((job_id, locked[job_id]) for job_id in taken)
            left = [job_id for job_id in left if job_id not in busy]
            if left:
                sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        else:
            moves += 1
    if left:
        raise RetryTransaction
    return held, busy


def _try_lock(
    tx: Transaction, ids: Sequence[JobId], locked_jobs: dict[JobId, Job]
) -> tuple[Mapping[JobId, Job], dict[JobId, Job]]:
    """Hold those of these jobs that can be held now. Answers all that are there, and those among them that
    stand where they stood and that another transaction holds."""
    seen = _load_jobs(tx, ids)
    locked_jobs.update((job.id, job) for job in seen.values() if is_final(job.state))
    live = [job for job in seen.values() if job.id not in locked_jobs]
    locks = [_lock(tx, job) for job in live]  # all sent before the first is waited for
    found = _load_jobs(tx, [job.id for job in live])
    locked: dict[JobId, Job] = {}
    for job, lock in zip(live, locks, strict=True):
        is_held = lock.fetchone() is not None
        if job.id in found and _row_location(found[job.id]) == _row_location(job):
            (locked_jobs if is_held else locked)[job.id] = found[job.id]
    return seen, locked


def _load_jobs(tx: Transaction, ids: Sequence[JobId]) -> dict[JobId, Job]:
    """Jobs by id, in the order of their ids."""
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
    """What names the narrow row of a waiting job."""
    return {"id": job.id, "queue": job.queue, "age_capped": job.age_capped, "rank": job.rank, "seq": job.seq}


def lock_failed(tx: Transaction, ids: Sequence[JobId]) -> None:
    """Hold jobs that are dead or cancelled, which `lock_jobs` does not: nobody revives them before the
    transaction ends. If one is not there any more, all is done again."""
    if ids:
        answers = [tx.run(name, {"ids": sorted(ids)}) for name in ("dead_lock", "cancelled_lock")]
        if sum(len(answer.fetchall()) for answer in answers) < len(ids):
            raise RetryTransaction


def busy_result(job: Job) -> ActionResult:
    """The answer about a job that another transaction holds."""
    return ActionResult(job_id=job.id, applied=False, state=job.state, reason=BUSY, is_busy=True)


def apply_to_jobs(
    tx: Transaction, ids: Sequence[JobId], act: Callable[[Sequence[Job]], Sequence[ActionResult]]
) -> list[ActionResult]:
    """Do something to jobs that are there, all of which are held; a verdict for each id, in the order asked.
    Those that another transaction
    holds are left alone and answered as busy. What is named twice has its second turn after all others."""
    places: dict[JobId, int] = {}
    again: list[int] = []
    for place, job_id in enumerate(ids):
        if places.setdefault(job_id, place) != place:
            again.append(place)
    held, busy = lock_jobs(tx, places)
    answers = {job_id: busy_result(job) for job_id, job in busy.items()}
    for verdict in act([held[job_id] for job_id in places if job_id in held]):
        answers[verdict.job_id] = verdict
    verdicts = [
        answers.get(job_id) or ActionResult(job_id=job_id, applied=False, state=None) for job_id in ids
    ]
    if again:
        for place, verdict in zip(
            again, apply_to_jobs(tx, [ids[place] for place in again], act), strict=True
        ):
            verdicts[place] = verdict
    return verdicts
