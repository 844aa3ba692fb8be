"""Jobs of producers: enqueue, wait, watch, result, cancel and update."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from msgspec.structs import astuple

from forebay.app.busy_retry import retry_busy_async
from forebay.app.job_handle import JobHandle
from forebay.app.poll_backoff import PollBackoff
from forebay.domain.job import Job, JobId, NewJob, QueueName
from forebay.domain.job_states import JobState
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
from forebay.service.problem_details import problem_of
from forebay.service.resources.job_reads import JobReads, QueueFilter
from forebay.service.runtime.claim_waiters import ClaimWaiters
from forebay.service.runtime.codec_threads import BODY_SIZE, LARGE
from forebay.service.runtime.request_stats import RequestStats
from forebay.service.runtime.store_pool import StorePool
from forebay.service.runtime.write_batcher import WriteBatcher
from forebay.service.schema.base import seconds
from forebay.service.schema.job_views import JobView
from forebay.service.schema.payloads import value_of
from forebay.service.schema.producer_jobs import (
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
from forebay.stores.contract.claims_and_results import ActionResult, InsertResult
from forebay.stores.contract.store import Store

COMPARE_BATCH: Final = 8  # jobs whose payloads, of up to a megabyte, are in memory at a time


class JobResource:
    """Jobs as their producers use them. An enqueue creates no queue: a mistyped name would be a queue without
    workers, so it raises QueueNotFound."""

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
        """Store one job. Concurrent requests are stored together and answered separately.

        Its parents inherit its priority, in queues that `may_raise` allows.
        """
        size = BODY_SIZE.get()
        job = new_job(request) if size <= LARGE else await self._pool.converter.run(size, new_job, request)
        try:
            receipt = await self._insert_one(job, may_raise)
        except StoreBusy as exc:
            # Retries pause on the event loop, so that no other request waits for the holder of the key.
            receipt = await retry_busy_async(lambda: self._insert_one(job, may_raise), exc)
        [receipt] = await self._reject_key_conflicts([job], [receipt])
        if receipt.error is not None:
            self._requests.record_rate_limits(receipt.error)
            raise receipt.error
        response = _enqueue_response(job, receipt, 0)
        self._claim_waiters.wake({job.queue})
        return await self._with_position(response) if with_position else response

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
        """Store jobs together, in order; `may_raise` as in `enqueue`."""
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
            built: list[NewJob | None] = [*jobs]
        else:
            built, receipts = await self._insert_valid(request.jobs, may_raise)
        response = EnqueueBatchResponse(accepted=[], rejected=[])
        errors: list[ForebayError] = []
        for index, (job, receipt) in enumerate(zip(built, receipts, strict=True)):
            error = receipt if isinstance(receipt, ForebayError) else receipt.error
            if error is not None:
                errors.append(error)
                response.rejected.append(RejectedJob(index=index, problem=problem_of(error)))
            elif job is not None and isinstance(receipt, InsertResult):
                response.accepted.append(_enqueue_response(job, receipt, index))
        self._requests.record_rate_limits(*errors)
        self._claim_waiters.wake({job.queue for job in built if job is not None})
        return response

    async def _insert_valid(
        self, requests: Sequence[EnqueueRequest], may_raise: MayRaise | None
    ) -> tuple[list[NewJob | None], list[InsertResult | ForebayError]]:
        """Store the valid jobs, and return an error in the place of each other one."""
        built = await self._pool.converter.run(BODY_SIZE.get(), _build_jobs, requests)
        jobs = [job for job in built if isinstance(job, NewJob)]
        if len(jobs) < len(built) and has_dependencies(jobs):
            # Dependencies name jobs by their index in the batch, and an invalid job has none.
            error = next(error for error in built if isinstance(error, ForebayError))
            raise error
        inserted = await self._insert(jobs, atomic=False, may_raise=may_raise) if jobs else ()
        stored = iter(await self._reject_key_conflicts(jobs, inserted))
        results = [entry if isinstance(entry, ForebayError) else next(stored) for entry in built]
        return [entry if isinstance(entry, NewJob) else None for entry in built], results

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
        except RateLimited as exc:  # of an atomic batch
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
        """Replace the receipt of a job whose idempotency key belongs to a different call, which its producer
        would take for stored."""
        checked = list(receipts)
        duplicates = [
            (index, receipt.id)
            for index, (job, receipt) in enumerate(zip(jobs, receipts, strict=True))
            if receipt.id is not None and not receipt.is_new and job.idempotency_key is not None
        ]
        for first in range(0, len(duplicates), COMPARE_BATCH):
            batch = duplicates[first : first + COMPARE_BATCH]
            indexes = [index for index, _ in batch]
            found = await self._pool.jobs([job_id for _, job_id in batch])
            holders = {job.id: job for job in found if job is not None}
            size = sum(len(job.payload) for job in holders.values())
            results = await self._pool.converter.run(
                size,
                _refuse_conflicts,
                [jobs[index] for index in indexes],
                [receipts[index] for index in indexes],
                holders,
            )
            for index, result in zip(indexes, results, strict=True):
                checked[index] = result
        return checked

    async def _with_position(self, response: EnqueueResponse) -> EnqueueResponse:
        position = await self._pool.read(lambda reader: reader.position(JobId(response.id)))
        if position is None:
            return response
        return EnqueueResponse(
            id=response.id,
            queue=response.queue,
            state=response.state,
            is_duplicate=response.is_duplicate,
            position=position.ahead,
            position_is_exact=position.is_exact,
            starts_in_seconds=seconds(position.starts_in_ms),
        )

    # Results

    async def wait(self, job_id: str, timeout_seconds: float, can_see: QueueFilter | None = None) -> JobView:
        """Return the job when it is final, or its state when the time is up, without jobs that `can_see`
        excludes."""
        with suppress(WaitTimeout):  # the answer has the state
            backoff = PollBackoff(min(timeout_seconds, self._claim_waiters.longest_wait))
            await self._claim_waiters.run_unless_stopped(self._wait_until_final(JobId(job_id), backoff))
        return await self._job_reads.job(job_id, can_see)

    async def _wait_until_final(self, job_id: JobId, backoff: PollBackoff) -> None:
        """Wait until a job is final or deleted. All waiting requests share one poll."""
        while (job := await self._poll_batcher(job_id)) is not None and not job.is_final:
            await asyncio.sleep(backoff.next_pause(job))

    async def watch(self, job_id: str, can_see: QueueFilter | None = None) -> AsyncGenerator[JobView, None]:
        """Yield the job now and after each change, until it is final. Raises StoreUnavailable when this
        server stops; the client continues at another one."""
        [known] = await self._pool.poll_jobs([JobId(job_id)])
        if known is None:
            raise JobNotFound(f"there is no job {job_id}")
        while True:
            # A change between the two reads is yielded now and once more.
            view = await self._job_reads.job(job_id, can_see)
            yield view
            if view.is_final:
                return
            changed = await self._claim_waiters.run_unless_stopped(self._wait_for_change(known))
            if changed is None:
                raise StoreUnavailable(f"this server stops; watch job {job_id} at another server")
            known = changed

    async def _wait_for_change(self, known: Job) -> Job:
        """Return the job once it differs from `known`; raises JobNotFound."""
        backoff = PollBackoff(None)
        while (job := await self._poll_batcher(known.id)) is not None:
            if astuple(job) != astuple(known):  # `==` compares only the ids of jobs
                return job
            await asyncio.sleep(backoff.next_pause(known))
        raise JobNotFound(f"there is no job {known.id}")

    async def result(self, job_id: str, can_read: QueueFilter | None = None) -> ResultResponse:
        """Return the result of a completed job, masked in a queue that `can_read` excludes.

        Raises WaitTimeout for a job that has not ended, JobFailed or JobCancelled for one that has ended
        without a result.
        """
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
        """Cancel a waiting job; ask a running one to stop. Raises IllegalTransition for a final one."""

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
        """Update a waiting job."""
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
    """Return whether the idempotency key of this job belongs to a different call."""
    if job.idempotency_key is None or job.idempotency_key != holder.idempotency_key:
        return False
    return job.task != holder.task or not is_same_call(job.payload, holder.payload)


def _refuse_conflicts(
    jobs: Sequence[NewJob], receipts: Sequence[InsertResult], holders: Mapping[JobId, Job]
) -> list[InsertResult]:
    results = list(receipts)
    for index, (job, receipt) in enumerate(zip(jobs, receipts, strict=True)):
        holder = None if receipt.id is None or receipt.is_new else holders.get(receipt.id)
        if holder is not None and _is_key_conflict(job, holder):
            results[index] = _conflict_result(holder)
    return results


def _conflict_result(holder: Job) -> InsertResult:
    message = (
        f"job {holder.id} of queue {holder.queue} has this idempotency key, with another task or arguments"
    )
    return InsertResult(id=None, is_new=False, error=DuplicateJob(message, holder=holder.id))


def action_response(result: ActionResult) -> ActionResponse:
    """Return the answer for one job; raises the error of a refused action."""
    result.check()
    return ActionResponse(id=result.job_id, applied=result.applied, state=result.state, reason=result.reason)
