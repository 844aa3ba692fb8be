"""What producers ask for: jobs, and what came of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from msgspec.structs import astuple

from forebay.app.busy_retry import retry_busy_async
from forebay.app.handle import JobHandle, PollBackoff
from forebay.domain.job import Job, JobId, NewJob, QueueName
from forebay.domain.lifecycle import JobState
from forebay.errors import (
    DuplicateJob,
    ForebayError,
    JobCancelled,
    JobFailed,
    JobNotFound,
    QueueNotFound,
    RateLimited,
    StoreBusy,
    StoreUnavailable,
    WaitTimeout,
)
from forebay.operations.priority_inheritance import MayRaise, has_dependencies
from forebay.payload.codec import is_same_call
from forebay.payload.masking import mask
from forebay.service.problems import problem_of
from forebay.service.resources.job_reads import JobReads, QueueFilter
from forebay.service.runtime.claim_waiters import ClaimWaiters
from forebay.service.runtime.converter import BODY_SIZE
from forebay.service.runtime.request_stats import RequestStats
from forebay.service.runtime.store_pool import StorePool
from forebay.service.runtime.write_batcher import WriteBatcher
from forebay.service.schema.base import seconds
from forebay.service.schema.job_views import JobView
from forebay.service.schema.jobs import (
    ActionResponse,
    CancelRequest,
    EnqueueBatchResponse,
    EnqueueManyRequest,
    EnqueueRequest,
    EnqueueResponse,
    RejectedJob,
    ResultResponse,
    UpdateJobRequest,
    new_job,
    new_jobs,
)
from forebay.service.schema.payloads import value_of
from forebay.stores.contract.store import Store
from forebay.stores.contract.values import ActionResult, InsertResult

COMPARE_BATCH: Final = 8  # jobs whose payloads, of up to a megabyte, are in memory at a time


class JobResource:
    """Enqueue, look, wait, amend and cancel. Queues are not created by the way: a name that is misspelt would
    be a queue that nobody works on, so it is refused with QueueNotFound."""

    def __init__(
        self, pool: StorePool, claim_waiters: ClaimWaiters, job_reads: JobReads, requests: RequestStats
    ) -> None:
        self._pool = pool
        self._claim_waiters = claim_waiters
        self._job_reads = job_reads
        self._requests = requests
        self._insert_batcher: WriteBatcher[NewJob, InsertResult] = WriteBatcher(self._insert_batch)
        self._poll_batcher: WriteBatcher[JobId, Job | None] = WriteBatcher(pool.poll_jobs)

    async def enqueue(
        self, request: EnqueueRequest, *, with_position: bool = False, may_raise: MayRaise | None = None
    ) -> EnqueueResponse:
        """Store one job. Requests that come together are stored together, and answered one by one.
        Jobs that it waits for get its priority, in queues that `may_raise` allows."""
        job = await self._pool.converter.run(BODY_SIZE.get(), new_job, request)
        try:
            receipt = await self._insert_one(job, may_raise)
        except StoreBusy as exc:
            # On the loop, so that no other request waits for the transaction that holds its key.
            receipt = await retry_busy_async(lambda: self._insert_one(job, may_raise), exc)
        [receipt] = await self._reject_key_conflicts([job], [receipt])
        if receipt.error is not None:
            self._requests.record_rate_limits(receipt.error)
            raise receipt.error
        answer = _enqueue_response(job, receipt, 0)
        self._claim_waiters.wake({job.queue})
        return await self._with_position(answer) if with_position else answer

    async def _insert_one(self, job: NewJob, may_raise: MayRaise | None) -> InsertResult:
        if has_dependencies([job]):
            [receipt] = await self._insert([job], atomic=True, may_raise=may_raise)
        else:
            receipt = await self._insert_batcher(job)
        if isinstance(receipt.error, StoreBusy):
            raise receipt.error
        return receipt

    async def enqueue_many(
        self, request: EnqueueManyRequest, *, may_raise: MayRaise | None = None
    ) -> EnqueueBatchResponse:
        """Store jobs together, in the order given; `may_raise` as for one."""
        receipts: Sequence[InsertResult | ForebayError]
        if request.atomic:
            jobs = await self._pool.converter.run(BODY_SIZE.get(), new_jobs, request.jobs)
            try:
                stored = await self._insert(jobs, atomic=True, may_raise=may_raise)
            except StoreBusy as exc:
                stored = await retry_busy_async(
                    lambda: self._insert(jobs, atomic=True, may_raise=may_raise), exc
                )
            receipts = await self._reject_key_conflicts(jobs, stored)
            made: list[NewJob | None] = [*jobs]
        else:
            made, receipts = await self._insert_valid(request.jobs, may_raise)
        answer = EnqueueBatchResponse(accepted=[], rejected=[])
        errors: list[ForebayError] = []
        for index, (job, receipt) in enumerate(zip(made, receipts, strict=True)):
            error = receipt if isinstance(receipt, ForebayError) else receipt.error
            if error is not None:
                errors.append(error)
                answer.rejected.append(RejectedJob(index=index, problem=problem_of(error)))
            elif job is not None and isinstance(receipt, InsertResult):
                answer.accepted.append(_enqueue_response(job, receipt, index))
        self._requests.record_rate_limits(*errors)
        self._claim_waiters.wake({job.queue for job in made if job is not None})
        return answer

    async def _insert_valid(
        self, requests: Sequence[EnqueueRequest], may_raise: MayRaise | None
    ) -> tuple[list[NewJob | None], list[InsertResult | ForebayError]]:
        """Store the jobs that can be; an error in the place of each of the others."""
        made = await self._pool.converter.run(BODY_SIZE.get(), _build_jobs, requests)
        jobs = [one for one in made if isinstance(one, NewJob)]
        if len(jobs) < len(made) and has_dependencies(jobs):
            # They name each other by their places, and one of these is empty.
            error = next(one for one in made if isinstance(one, ForebayError))
            raise error
        inserted = await self._insert(jobs, atomic=False, may_raise=may_raise) if jobs else ()
        stored = iter(await self._reject_key_conflicts(jobs, inserted))
        answers = [one if isinstance(one, ForebayError) else next(stored) for one in made]
        return [one if isinstance(one, NewJob) else None for one in made], answers

    async def _insert_batch(self, jobs: list[NewJob]) -> Sequence[InsertResult]:
        return await self._insert(jobs, atomic=False)

    async def _insert(
        self, jobs: Sequence[NewJob], *, atomic: bool, may_raise: MayRaise | None = None
    ) -> Sequence[InsertResult]:
        def insert(store: Store) -> list[InsertResult]:
            return store.insert(jobs, atomic=atomic, create_queues=False)

        try:
            if has_dependencies(jobs):
                return await self._insert_graph(jobs, atomic=atomic, may_raise=may_raise)
            return await self._pool.write(insert)
        except RateLimited as exc:  # of jobs that are stored together or not at all
            self._requests.record_rate_limits(exc)
            raise

    async def _insert_graph(
        self, jobs: Sequence[NewJob], *, atomic: bool, may_raise: MayRaise | None
    ) -> Sequence[InsertResult]:
        await self._check_queues_exist(sorted({job.queue for job in jobs}))
        handles = await self._pool.use(
            lambda client: client.enqueue_graph(jobs, atomic=atomic, may_raise=may_raise)
        )
        stored = [handle.id for handle in handles if handle.error is None]
        found = await self._pool.jobs(stored, with_payload=False)
        states = {job.id: job.state for job in found if job is not None}
        return [_insert_result(handle, states) for handle in handles]

    async def _check_queues_exist(self, names: Sequence[QueueName]) -> None:
        known = {queue.name for queue in await self._pool.read(lambda reader: reader.queues(names))}
        for name in names:
            if name not in known:
                raise QueueNotFound(f"there is no queue {name}")

    async def _reject_key_conflicts(
        self, jobs: Sequence[NewJob], receipts: Sequence[InsertResult]
    ) -> Sequence[InsertResult]:
        """Refuse what came with the idempotency key of another job: its producer would take it for stored."""
        compared = list(receipts)
        repeated = [
            (place, receipt.id)
            for place, (job, receipt) in enumerate(zip(jobs, receipts, strict=True))
            if receipt.id is not None and not receipt.is_new and job.idempotency_key is not None
        ]
        for first in range(0, len(repeated), COMPARE_BATCH):
            part = repeated[first : first + COMPARE_BATCH]
            places = [place for place, _ in part]
            found = await self._pool.jobs([job_id for _, job_id in part])
            holders = {job.id: job for job in found if job is not None}
            some = [jobs[place] for place in places], [receipts[place] for place in places]
            size = sum(len(job.payload) for job in holders.values())
            answers = await self._pool.converter.run(size, _refuse_conflicts, *some, holders)
            for place, answer in zip(places, answers, strict=True):
                compared[place] = answer
        return compared

    async def _with_position(self, answer: EnqueueResponse) -> EnqueueResponse:
        found = await self._pool.read(lambda reader: reader.position(JobId(answer.id)))
        if found is None:
            return answer
        return EnqueueResponse(
            id=answer.id,
            queue=answer.queue,
            state=answer.state,
            is_duplicate=answer.is_duplicate,
            position=found.ahead,
            position_is_exact=found.is_exact,
            starts_in_seconds=seconds(found.starts_in_ms),
        )

    # What came of it

    async def wait(self, job_id: str, timeout_seconds: float, can_see: QueueFilter | None = None) -> JobView:
        """The job when it is final, or as it is when the time is up, to somebody who `can_see` so much."""
        with suppress(WaitTimeout):  # the answer says how it stands
            patience = PollBackoff(min(timeout_seconds, self._claim_waiters.longest_wait))
            await self._claim_waiters.run_unless_stopped(self._wait_until_final(JobId(job_id), patience))
        return await self._job_reads.job(job_id, can_see)

    async def _wait_until_final(self, job_id: JobId, patience: PollBackoff) -> None:
        """Come back when a job is final or gone; however many wait, one look is for all."""
        while (job := await self._poll_batcher(job_id)) is not None and not job.is_final:
            await asyncio.sleep(patience.next_pause(job))

    async def watch(self, job_id: str, can_see: QueueFilter | None = None) -> AsyncGenerator[JobView, None]:
        """The job as it is, and again whenever something has happened to it, until it is final. Raises
        StoreUnavailable when this server stops: another one goes on where this one has ended."""
        [seen] = await self._pool.poll_jobs([JobId(job_id)])
        if seen is None:
            raise JobNotFound(f"there is no job {job_id}")
        while True:
            # What happens between the two looks is shown now, and once more.
            shown = await self._job_reads.job(job_id, can_see)
            yield shown
            if shown.is_final:
                return
            changed = await self._claim_waiters.run_unless_stopped(self._wait_for_change(seen))
            if changed is None:
                raise StoreUnavailable(f"this server stops; job {job_id} can be watched at another one")
            seen = changed

    async def _wait_for_change(self, known: Job) -> Job:
        """A job when it is not what it was; raises JobNotFound."""
        patience = PollBackoff(None)
        while (job := await self._poll_batcher(known.id)) is not None:
            if astuple(job) != astuple(known):  # records are equal when they speak of the same job
                return job
            await asyncio.sleep(patience.next_pause(known))
        raise JobNotFound(f"there is no job {known.id}")

    async def result(self, job_id: str, can_read: QueueFilter | None = None) -> ResultResponse:
        """What a completed job has returned, masked in a queue that `can_read` excludes. Raises WaitTimeout
        for
        one that has not ended, JobFailed or JobCancelled for one that has ended without a result."""
        [job] = await self._pool.jobs([JobId(job_id)])
        if job is None:
            raise JobNotFound(f"there is no job {job_id}")
        if job.state is JobState.DEAD:
            raise JobFailed(f"job {job_id} failed for good: {job.reason}")
        if job.state is JobState.CANCELLED:
            raise JobCancelled(f"job {job_id} was cancelled: {job.reason}")
        if job.state is not JobState.COMPLETED:
            raise WaitTimeout(f"job {job_id} is {job.state}", job_id=job_id, state=job.state.value)
        result = await self._pool.converter.run(len(job.result or b""), value_of, job.result)
        return ResultResponse(
            id=job.id, result=result if can_read is None or can_read(job.queue) else mask(result)
        )

    async def cancel(self, job_id: str, request: CancelRequest, actor: str = "") -> ActionResponse:
        """Cancel a job that waits; ask one that runs to stop. Raises IllegalTransition for a final one."""

        def cancel(store: Store) -> ActionResult:
            [result] = store.cancel(
                [JobId(job_id)],
                request.reason,
                actor=actor,
                force=request.force,
                dependants=request.dependants,
            )
            return result

        return action_response(await self._pool.write(cancel))

    async def update_job(self, job_id: str, request: UpdateJobRequest, actor: str = "") -> ActionResponse:
        """Change a job that waits."""
        now_ms = await self._pool.read(lambda reader: reader.now())
        change = request.to_job_update(now_ms)
        if change.queue is not None:
            await self._check_queues_exist([change.queue])
        result = await self._pool.write(lambda store: store.update_job(JobId(job_id), change, actor=actor))
        self._claim_waiters.wake()
        return action_response(result)


def _build_jobs(requests: Sequence[EnqueueRequest]) -> list[NewJob | ForebayError]:
    return [_build_job(request, index) for index, request in enumerate(requests)]


def _build_job(request: EnqueueRequest, index: int) -> NewJob | ForebayError:
    try:
        return new_job(request, index)
    except ForebayError as exc:
        return exc


def _enqueue_response(job: NewJob, receipt: InsertResult, index: int) -> EnqueueResponse:
    return EnqueueResponse(
        id=receipt.id or "",
        queue=job.queue,
        state=receipt.state,
        is_duplicate=not receipt.is_new,
        index=index,
    )


def _insert_result(handle: JobHandle[object], states: Mapping[JobId, JobState]) -> InsertResult:
    if handle.error is not None:
        return InsertResult(id=None, is_new=False, error=handle.error)
    return InsertResult(id=handle.id, is_new=handle.is_new, state=states.get(handle.id))


def _is_key_conflict(job: NewJob, holder: Job) -> bool:
    """Whether the key of this job is held by one that does something else."""
    if job.idempotency_key is None or job.idempotency_key != holder.idempotency_key:
        return False
    return job.task != holder.task or not is_same_call(job.payload, holder.payload)


def _refuse_conflicts(
    jobs: Sequence[NewJob], receipts: Sequence[InsertResult], holders: Mapping[JobId, Job]
) -> list[InsertResult]:
    found = list(receipts)
    for place, (job, receipt) in enumerate(zip(jobs, receipts, strict=True)):
        holder = None if receipt.id is None or receipt.is_new else holders.get(receipt.id)
        if holder is not None and _is_key_conflict(job, holder):
            found[place] = _conflict_result(holder)
    return found


def _conflict_result(holder: Job) -> InsertResult:
    words = (
        f"job {holder.id} of queue {holder.queue} has this idempotency key, with another task or arguments"
    )
    return InsertResult(id=None, is_new=False, error=DuplicateJob(words, holder=holder.id))


def action_response(result: ActionResult) -> ActionResponse:
    """Return the answer for one job; raises the error of a refused action."""
    result.check()
    return ActionResponse(id=result.job_id, applied=result.applied, state=result.state, reason=result.reason)
