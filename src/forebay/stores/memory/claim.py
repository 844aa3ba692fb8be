"""Claims: take pending jobs of queues, with a lease on each."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from forebay.domain.job import Job, UniqueUntil, WorkerId
from forebay.domain.job_history import EventKind
from forebay.domain.job_states import JobState
from forebay.domain.lane import task_lane
from forebay.domain.queue import Queue, QueueState
from forebay.stores.contract.claims_and_results import MAX_PROMOTED_PER_CALL, QueueClaim
from forebay.stores.memory import concurrency_and_rate_limits as limits_module
from forebay.stores.memory import fairness
from forebay.stores.memory.job_heap import StoredJob, claim_order, is_in_time
from forebay.stores.memory.leases import _lease_end, _lease_ms
from forebay.stores.memory.maintenance import expire, promote_queue
from forebay.stores.memory.state import State
from forebay.stores.shared.limit_counters import LimitBudget


def _claim_all(
    state: State, worker: WorkerId, claims: Sequence[QueueClaim], room: int, budget: LimitBudget
) -> list[Job]:
    jobs: list[Job] = []
    if claims:
        expire(state, MAX_PROMOTED_PER_CALL)
    for claim in claims:
        promote_queue(state, claim.queue, MAX_PROMOTED_PER_CALL)
        # Even for a queue that gives no jobs: a lane that stays due would make every wait 0.
        limits_module.unpark_due(state, claim.queue, budget)
        allowed = budget.room(claim.queue, min(claim.limit, room - len(jobs)))
        claimed = _claim(state, worker, claim, allowed, budget)
        budget.record_started(claim.queue, len(claimed), allowed)
        jobs += claimed
    return jobs


def _claim(state: State, worker: WorkerId, request: QueueClaim, limit: int, budget: LimitBudget) -> list[Job]:
    queue = state.queues.get(request.queue)
    if queue is None or queue.state not in (QueueState.ACTIVE, QueueState.DRAINING):
        return []
    jobs: list[Job] = []
    lanes = [None, *filter(request.accepts_lane, state.lanes_of(queue.name))]
    parked = 0
    while (
        len(jobs) < limit
        and (record := _pick_next(state, queue, [*lanes, *fairness.next_lanes(state, queue)])) is not None
    ):
        task = record.job.task
        scopes = budget.scopes_for(task, record.job.limit_keys)
        is_unknown_task = not request.accepts_lane(task_lane(task))
        full_scope = None if is_unknown_task else budget.first_full_scope(scopes)
        if not is_unknown_task and full_scope is None:
            job = _start(state, record, worker, request.lease_ms)
            fairness.record_claimed(state, queue, record.job.lane)
            budget.start(scopes, _lease_end(job), job.cost)
            jobs.append(job)
            if budget.is_rate_exhausted(job.queue, len(jobs)):
                break
        elif parked == request.max_parked:
            budget.add_wait(0)  # no more may be parked; the next call continues
            break
        elif full_scope is not None:
            parked += 1
            limits_module.park(state, record, full_scope, budget)
        else:
            parked += 1
            _park(state, record, task_lane(task), worker)
    largest = request.largest_payload
    return [job if len(job.payload) <= largest else replace(job, payload=b"") for job in jobs]


def _park(state: State, record: StoredJob, lane: str, worker: WorkerId) -> None:
    job = replace(record.job, lane=lane, updated_at=state.now)
    state.put(record._replace(job=job))
    state.record_job_event(EventKind.PARKED, job, actor=worker, detail=lane)


def _pick_next(state: State, queue: Queue, lanes: Sequence[str | None]) -> StoredJob | None:
    heaps = [state.ready_heap(queue.name, age_capped, lane) for lane in lanes for age_capped in (False, True)]
    candidates = [heap.first(lambda record: is_in_time(record.job, state.now)) for heap in heaps]
    scoring = queue.settings.scoring
    return min(
        (record for record in candidates if record is not None),
        key=lambda record: claim_order(scoring, record.job, state.now),
        default=None,
    )


def _start(state: State, record: StoredJob, worker: WorkerId, lease_ms: int | None) -> Job:
    job = replace(
        record.job,
        state=JobState.RUNNING,
        lane=None,
        attempt=record.job.attempt + 1,
        worker=worker,
        started_at=state.now,
        updated_at=state.now,
        lease_expires_at=state.now + _lease_ms(state, record.job, lease_ms),
    )
    if job.unique_until is UniqueUntil.STARTED:
        state.release_unique_key(job)
    state.put(StoredJob(job, rescore_at=record.rescore_at))
    return job
