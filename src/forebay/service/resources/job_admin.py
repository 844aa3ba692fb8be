"""Administration of jobs: bulk actions, delete, revive and replay."""

from __future__ import annotations

from functools import partial

from forebay.domain.job import Job, JobId, NewJob, QueueName
from forebay.domain.job_history import Event, EventKind
from forebay.domain.job_states import LIVE, JobState
from forebay.errors import InvalidJob, JobNotFound
from forebay.operations import bulk_actions
from forebay.payload.codec import check_new_payload, check_queue, encode_tagged_call
from forebay.service.resources.bulk_actions import DELETABLE, REVIVABLE, BulkAction, run_bulk
from forebay.service.resources.producer_jobs import action_response
from forebay.service.runtime.claim_waiters import ClaimWaiters
from forebay.service.runtime.codec_threads import BODY_SIZE
from forebay.service.runtime.store_pool import StorePool
from forebay.service.schema.base import length
from forebay.service.schema.job_admin import BulkRequest, BulkResponse, ReplayRequest, ReviveRequest
from forebay.service.schema.payloads import check_not_masked
from forebay.service.schema.producer_jobs import ActionResponse, EnqueueResponse
from forebay.stores.contract.claims_and_results import ActionResult, InsertResult
from forebay.stores.contract.revive_options import ReviveOptions
from forebay.stores.contract.store import Store


class JobAdminResource:
    """Actions of operators on jobs, one by one or by a filter."""

    def __init__(self, pool: StorePool, claim_waiters: ClaimWaiters) -> None:
        self._pool = pool
        self._claim_waiters = claim_waiters

    async def bulk(self, request: BulkRequest, actor: str = "") -> BulkResponse:
        """Cancel, revive or delete all matching jobs, or count them."""
        if request.where.is_empty and not request.all:
            raise InvalidJob("a filter without conditions means all jobs: confirm it with all", field="where")
        actions: dict[str, tuple[BulkAction, frozenset[JobState]]] = {
            "cancel": (partial(bulk_actions.cancel_matching, reason=request.reason, actor=actor), LIVE),
            "revive": (
                partial(
                    bulk_actions.revive_matching,
                    options=ReviveOptions(
                        queue=None if request.queue is None else QueueName(request.queue),
                        delay_ms=length(request.delay_seconds) or 0,
                        reset=request.reset,
                        actor=actor,
                    ),
                ),
                REVIVABLE,
            ),
            "delete": (partial(bulk_actions.purge, actor=actor), DELETABLE),
        }
        action, allowed = actions[request.action]
        query = request.where.query()
        return await run_bulk(
            self._pool, self._claim_waiters, action, allowed, query, dry_run=request.dry_run
        )

    async def delete(self, job_id: str, actor: str = "") -> ActionResponse:
        """Delete a job that is not running."""
        [result] = await self._pool.write(lambda store: store.delete([JobId(job_id)], actor=actor))
        return action_response(result)

    async def revive(self, job_id: str, request: ReviveRequest, actor: str = "") -> ActionResponse:
        """Revive a dead or cancelled job."""

        def revive(store: Store) -> ActionResult:
            [result] = store.revive(
                [JobId(job_id)],
                queue=None if request.queue is None else QueueName(request.queue),
                delay_ms=length(request.delay_seconds) or 0,
                reset=request.reset,
                actor=actor,
                dependants=request.dependants,
            )
            return result

        result = await self._pool.write(revive)
        self._claim_waiters.wake()
        return action_response(result)

    async def replay(self, job_id: str, request: ReplayRequest, actor: str = "") -> EnqueueResponse:
        """Enqueue a copy of an earlier job, whatever its state is."""
        [original] = await self._pool.jobs([JobId(job_id)])
        if original is None:
            raise JobNotFound(f"there is no job {job_id}")
        job = await self._pool.converter.run(BODY_SIZE.get(), _copy_job, original, request)

        def insert(store: Store) -> InsertResult:
            [receipt] = store.insert([job], create_queues=False)
            # An insert writes no audit event, so this one follows in a call of its own.
            event = Event(
                kind=EventKind.REPLAYED,
                job_id=receipt.id,
                queue=job.queue,
                actor=actor or None,
                detail=f"like {original.id}",
            )
            store.record_events([event])
            return receipt

        receipt = await self._pool.write(insert)
        self._claim_waiters.wake({job.queue})
        return EnqueueResponse(
            id=receipt.id or "", queue=job.queue, state=receipt.state, is_duplicate=not receipt.is_new
        )


def _copy_job(job: Job, request: ReplayRequest) -> NewJob:
    """Return a new job like `job`, without its keys and times."""
    payload = job.payload
    if request.args is not None or request.kwargs is not None:
        if request.args is None or request.kwargs is None:
            raise InvalidJob("give both args and kwargs, or neither to keep those of the job", field="args")
        check_not_masked(request.args, request.kwargs)
        payload = encode_tagged_call(request.args, request.kwargs)
    check_new_payload(payload, None)
    check_queue(payload, request.queue or job.queue)
    return NewJob(
        task=job.task,
        payload=payload,
        queue=QueueName(request.queue or job.queue),
        priority=job.priority if request.priority is None else request.priority,
        delay_ms=length(request.delay_seconds) or 0,
        timeout_ms=job.timeout_ms,
        lease_ms=job.lease_ms,
        extension_ms=job.extension_ms,
        policy=job.policy,
        metadata=job.metadata,
        tags=job.tags,
        correlation_id=job.correlation_id,
        parent_id=job.id,
        limit_keys=job.limit_keys,
        cost=job.cost,
    )
