"""The hot path: leases given, renewed, taken over and ended."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from forebay.domain.history import EventKind
from forebay.domain.job import Job, UniqueUntil, WorkerId
from forebay.domain.lane import task_lane
from forebay.domain.lifecycle import JobState
from forebay.domain.queue import Queue, QueueState
from forebay.stores.contract.values import (
    MAX_PROMOTED_PER_CALL,
    QueueClaim,
)
from forebay.stores.memory import fairness
from forebay.stores.memory import limits as limits_module
from forebay.stores.memory.job_heap import StoredJob, claim_order, is_in_time
from forebay.stores.memory.leases import _lease_end, _lease_ms
from forebay.stores.memory.maintenance import expire, promote_queue
from forebay.stores.memory.state import State
from forebay.stores.shared.limits import LimitBudget


def _claim_all(
    state: State, worker: WorkerId, claims: Sequence[QueueClaim], room: int, budget: LimitBudget
) -> list[Job]:
    jobs: list[Job] = []
    if claims:
        expire(state, MAX_PROMOTED_PER_CALL)
    for want in claims:
        promote_queue(state, want.queue, MAX_PROMOTED_PER_CALL)
        # Even for a queue that gives nothing: a gate that stays due would have us asked again at once.
        limits_module.unpark_due(state, want.queue, budget)
        most = budget.room(want.queue, min(want.limit, room - len(jobs)))
        taken = _claim(state, worker, want, most, budget)
        budget.record_started(want.queue, len(taken), most)
        jobs += taken
    return jobs


def _claim(state: State, worker: WorkerId, request: QueueClaim, limit: int, budget: LimitBudget) -> list[Job]:
    queue = state.queues.get(request.queue)
    if queue is None or queue.state not in (QueueState.ACTIVE, QueueState.DRAINING):
        return []
    jobs: list[Job] = []
    gates = [None, *filter(request.accepts_lane, state.lanes_of(queue.name))]
    held = 0
    while (
        len(jobs) < limit
        and (record := _pick_next(state, queue, [*gates, *fairness.next_lanes(state, queue)])) is not None
    ):
        task = record.job.task
        scopes = budget.scopes_for(task, record.job.limit_keys)
        is_strange = not request.accepts_lane(task_lane(task))
        full = None if is_strange else budget.first_full_scope(scopes)
        if not is_strange and full is None:
            job = _start(state, record, worker, request.lease_ms)
            fairness.record_claimed(state, queue, record.job.lane)
            budget.start(scopes, _lease_end(job), job.cost)
            jobs.append(job)
            if budget.is_rate_exhausted(job.queue, len(jobs)):
                break
        elif held == request.max_parked:
            budget.add_wait(0)  # enough for now; the next call goes on
            break
        elif full is not None:
            held += 1
            limits_module.park(state, record, full, budget)
        else:
            held += 1
            _park(state, record, task_lane(task), worker)
    limit = request.largest_payload
    return [job if len(job.payload) <= limit else replace(job, payload=b"") for job in jobs]


def _park(state: State, record: StoredJob, lane: str, worker: WorkerId) -> None:
    job = replace(record.job, lane=lane, updated_at=state.now)
    state.put(record._replace(job=job))
    state.record_job_event(EventKind.PARKED, job, actor=worker, detail=lane)


def _pick_next(state: State, queue: Queue, lanes: Sequence[str | None]) -> StoredJob | None:
    classes = [state.ready_heap(queue.name, capped, gate) for gate in lanes for capped in (False, True)]
    heads = [order.first(lambda record: is_in_time(record.job, state.now)) for order in classes]
    scoring = queue.settings.scoring
    return min(
        (head for head in heads if head is not None),
        key=lambda head: claim_order(scoring, head.job, state.now),
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
