"""Holding jobs still while an operator does something to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import psycopg

from forebay.domain.job import Job, JobId
from forebay.domain.lifecycle import JobState, is_final
from forebay.stores.postgres.connection import TryAgain
from forebay.stores.postgres.rows import job_from_row
from forebay.stores.postgres.transaction import Transaction
from forebay.stores.protocol import Verdict
from forebay.stores.rows import Row

LOOKS: Final = 20


def held_job(tx: Transaction, job_id: JobId) -> Job | None:
    """One job as it is now, held like several."""
    return held_jobs(tx, [job_id]).get(job_id)


def held_jobs(tx: Transaction, ids: Iterable[JobId]) -> Mapping[JobId, Job]:
    """Jobs as they are now; live ones are held by the lock of their narrow row until the transaction ends.

    The narrow row says what state a job is in, so who holds it keeps everybody else from moving the job. It
    is looked for where the job was seen; if it has moved on meanwhile, we look again. After the lock the job
    is read once more: it may have moved away and come back in between.

    They are locked in the order of their ids, as everybody does who locks more than one: so two callers do
    not wait for each other. Only for what has moved on they might; then the server ends one of the two, and
    its transaction is made again.
    """
    held: dict[JobId, Job] = {}
    left = sorted(set(ids))
    for _ in range(LOOKS):
        seen = _found(tx, left)
        held.update((job.id, job) for job in seen.values() if is_final(job.state))
        live = [job for job in seen.values() if job.id not in held]
        locks = [_lock(tx, job) for job in live]  # all sent before the first is waited for
        found = _found(tx, [job.id for job in live])
        for job, lock in zip(live, locks, strict=True):
            if lock.fetchone() is not None and job.id in found and _stands(found[job.id]) == _stands(job):
                held[job.id] = found[job.id]
        left = [job_id for job_id in left if job_id in seen and job_id not in held]
        if not left:
            return held
    raise TryAgain


def _found(tx: Transaction, ids: Sequence[JobId]) -> dict[JobId, Job]:
    """Jobs by id, in the order of their ids."""
    jobs = map(job_from_row, tx.all("job", {"ids": ids})) if ids else ()
    return {job.id: job for job in sorted(jobs, key=lambda job: job.id)}


def _stands(job: Job) -> tuple[object, ...]:
    return (job.state, job.queue, job.gate, job.capped, job.rank, job.seq)


def _lock(tx: Transaction, job: Job) -> psycopg.Cursor[Row]:
    if job.state is JobState.RUNNING:
        place = "leases"
    elif job.state is JobState.BLOCKED:
        place = "blocked"
    elif job.state is not JobState.PENDING:
        place = "due"
    else:
        place = "ready" if job.gate is None else "gated"
    return tx.run(f"{place}_lock", narrow(job))


def narrow(job: Job) -> dict[str, object]:
    """What names the narrow row of a waiting job."""
    return {"id": job.id, "queue": job.queue, "capped": job.capped, "rank": job.rank, "seq": job.seq}


def hold_failed(tx: Transaction, ids: Sequence[JobId]) -> None:
    """Hold jobs that are dead or cancelled, which `held_jobs` does not: nobody revives them before the
    transaction ends. If one is not there any more, all is done again."""
    if ids:
        answers = [tx.run(name, {"ids": sorted(ids)}) for name in ("dead_hold", "cancelled_hold")]
        if sum(len(answer.fetchall()) for answer in answers) < len(ids):
            raise TryAgain


def judged(
    tx: Transaction, ids: Sequence[JobId], act: Callable[[Sequence[Job]], Sequence[Verdict]]
) -> list[Verdict]:
    """Do something to jobs that are there, all of which are held; a verdict for each id, in the order asked.
    What is named twice has its second turn after all others."""
    places: dict[JobId, int] = {}
    again: list[int] = []
    for place, job_id in enumerate(ids):
        if places.setdefault(job_id, place) != place:
            again.append(place)
    held = held_jobs(tx, places)
    answers = {
        verdict.job_id: verdict for verdict in act([held[job_id] for job_id in places if job_id in held])
    }
    verdicts = [answers.get(job_id) or Verdict(job_id=job_id, done=False, state=None) for job_id in ids]
    if again:
        for place, verdict in zip(again, judged(tx, [ids[place] for place in again], act), strict=True):
            verdicts[place] = verdict
    return verdicts
