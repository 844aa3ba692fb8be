"""The hot path: leases given, renewed, taken over and ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Literal

from msgspec.structs import replace

from forebay.domain.gate import park_detail, task_lane
from forebay.domain.history import MAX_STORED_ERRORS, Attempt, EventKind, truncate_error
from forebay.domain.job import Job, JobId, PastError, UniqueUntil, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.lifecycle import JobState, check_transition, is_final
from forebay.domain.note import JobProgress, ProgressUpdate, normalize_update
from forebay.domain.outcome import AttemptError
from forebay.domain.queue import Queue, QueueState, stagger_task_name
from forebay.domain.settlement import OutcomeKind, Settlement, is_ready_early, is_same_end
from forebay.stores.limiting import LimitBudget
from forebay.stores.memory import limiting, sharing
from forebay.stores.memory.duties import expire, promote_queue
from forebay.stores.memory.following import propagate
from forebay.stores.memory.inserting import copy_metadata, insert_follow_up
from forebay.stores.memory.order import StoredJob, claim_order, is_in_time
from forebay.stores.memory.state import State, check_writable
from forebay.stores.protocol import (
    MAX_PROMOTED_PER_CALL,
    LeaseRefusal,
    LeaseStatus,
    PendingCancel,
    QueueClaim,
    RenewResult,
    SettleAndClaimResult,
    remaining_claims,
)

SettleReply = Literal["settled", "repeated"] | LeaseRefusal


def settle_and_claim(
    state: State,
    worker: WorkerId,
    settlements: Sequence[Settlement],
    claims: Sequence[QueueClaim],
    room: int,
    known: Sequence[Lease] | None,
    updates: Sequence[ProgressUpdate],
) -> SettleAndClaimResult:
    # Notes come first: a job that is settled in the same call is still running for them.
    unnoted = tuple(_save_updates(state, worker, updates))
    answers = [(end, _settle(state, worker, end)) for end in settlements]
    settled = [end for end, answer in answers if answer == "settled"]
    limits = limiting.load_budget(state)
    for end in settled:
        if end.charge is not None:
            limits.charge(end.charge.scopes, end.charge.tokens)
    jobs = _claim_all(state, worker, claims, room, limits)
    if propagate(state) and len(jobs) < room:
        jobs += _claim_all(state, worker, remaining_claims(claims, jobs), room - len(jobs), limits)
    freed = Counter(state.jobs[end.job_id].job.queue for end in settled)
    freed.subtract(job.queue for job in jobs)
    limiting.save_budget(state, limits, claims, released=freed)
    limiting.record_waits(state, limits, claims)
    return SettleAndClaimResult(
        settled=tuple(end.job_id for end in settled),
        repeated=tuple(end.job_id for end, answer in answers if answer == "repeated"),
        refused=tuple(answer for _, answer in answers if isinstance(answer, LeaseRefusal)),
        jobs=tuple(map(copy_for_caller, jobs)),
        recovered=() if known is None else _unknown_leases(state, worker, {*known, *map(_lease, jobs)}),
        cancels=_pending_cancels(state, worker),
        next_due_ms=limits.next_wait(_next_due_ms(state, claims)),
        refused_updates=unnoted,
    )


def renew(state: State, worker: WorkerId, leases: Sequence[Lease], lease_ms: int | None) -> RenewResult:
    answers = [(lease, _renew_one(state, worker, lease, lease_ms)) for lease in leases]
    return RenewResult(
        renewed=tuple(lease for lease, reason in answers if reason is None),
        refused=tuple(
            LeaseRefusal(lease=lease, reason=reason) for lease, reason in answers if reason is not None
        ),
        cancels=_pending_cancels(state, worker),
    )


def lease_status(state: State, worker: WorkerId, leases: Sequence[Lease]) -> list[LeaseStatus]:
    reasons = [_refusal(state.jobs.get(lease.job_id), lease.attempt, worker) for lease in leases]
    return [LeaseStatus.OVER if reason else LeaseStatus.HELD for reason in reasons]


def sweep(
    state: State,
    sweeper: WorkerId,
    limit: int,
    lease_ms: int,
    *,
    only_dead: bool,
    dead: Collection[WorkerId],
    ended_by: int | None = None,
) -> list[Job]:
    last = state.now if ended_by is None else min(state.now, ended_by)
    running = [record for held in state.leases.values() for record in held.values()]
    ended = [record for record in running if _lease_end(record.job) <= last and not only_dead]
    # Workers live and die with the store here, so nobody is dead before the others but those named.
    orphaned = [record for record in running if record.job.worker in dead and record.job.worker != sweeper]
    found = {
        record.job.id: record
        for record in [*sorted(ended, key=_lease_end_key), *sorted(orphaned, key=_lease_end_key)]
    }
    return [_take_over(state, record, sweeper, lease_ms) for record in islice(found.values(), limit)]


def copy_for_caller(job: Job) -> Job:
    """The job as callers get it: its metadata is theirs to change."""
    return replace(job, metadata=copy_metadata(job.metadata))


def _save_updates(
    state: State, worker: WorkerId, updates: Sequence[ProgressUpdate]
) -> Iterator[LeaseRefusal]:
    for note in updates:
        job_id, attempt = note.lease
        reason = _refusal(state.jobs.get(job_id), attempt, worker)
        if reason is None:
            _save_progress(state, job_id, normalize_update(note, state.now))
        else:
            yield LeaseRefusal(lease=note.lease, reason=reason)


def _save_progress(state: State, job_id: JobId, update: JobProgress) -> None:
    check_writable(*(step.name for step in update.steps))
    state.write(state.progress, job_id, state.progress.get(job_id, JobProgress()).merge(update))


def _settle(state: State, worker: WorkerId, settlement: Settlement) -> SettleReply:
    record = state.jobs.get(settlement.job_id)
    reason = _refusal(record, settlement.attempt, worker)
    if record is not None and reason is None:
        _end_lease(state, record, worker, settlement)
        stored: list[JobId | None] = []
        limiting.release_slots(state, record.job)
        for new in settlement.follow_ups:
            stored.append(insert_follow_up(state, record.job, worker, new, stored))
        return "settled"
    if record is not None and _is_repeated(state, record.job, settlement, worker):
        return "repeated"
    if record is not None:
        detail = f"{settlement.outcome}: {reason}"
        state.record_job_event(
            EventKind.REFUSED, record.job, actor=worker, attempt=settlement.attempt, detail=detail
        )
    return LeaseRefusal(lease=Lease(settlement.job_id, settlement.attempt), reason=reason or "")


def _refusal(record: StoredJob | None, attempt: int, worker: WorkerId) -> str | None:
    if record is None:
        return "gone"
    if record.job.attempt != attempt:
        return "other attempt"
    if record.job.state is not JobState.RUNNING:
        return "other state"
    return None if record.job.worker == worker else "other worker"


def _is_repeated(state: State, job: Job, settlement: Settlement, worker: WorkerId) -> bool:
    """Whether this worker has already ended this very attempt, and in the same way."""
    attempt, bad_attempts = settlement.attempt, state.attempts.get(job.id, ())
    # The worker that settled it, not the one that ran it: a holder whose lease was swept has ended nothing.
    rows = [bad.outcome for bad, by in bad_attempts if (bad.attempt, by) == (attempt, worker)]
    is_newest = (job.attempt, job.worker) == (attempt, worker) and job.state is not JobState.RUNNING
    is_early = is_ready_early(settlement, job.run_at, job.started_at, job.updated_at)
    return is_same_end(
        settlement.outcome, next(iter(rows), None), job.state if is_newest else None, is_early=is_early
    )


def _end_lease(state: State, record: StoredJob, worker: WorkerId, settlement: Settlement) -> None:
    check_transition(record.job.state, settlement.state)
    if settlement.error is not None:
        record = _record_error(state, record, worker, settlement.outcome, truncate_error(settlement.error))
    unstarted = settlement.unstarted or record.job.unstarted
    job = replace(record.job, failures=settlement.failures, crashes=settlement.crashes, unstarted=unstarted)
    if is_final(settlement.state):
        reason = (
            "cancelled"
            if settlement.state is JobState.CANCELLED and settlement.reason is None
            else settlement.reason
        )
        state.put_final(job, settlement.state, reason, settlement.result)
    elif job.cancel_reason is not None:
        state.put_final(job, JobState.CANCELLED, job.cancel_reason)
    else:
        _return_to_queue(state, job, settlement)


def _return_to_queue(state: State, job: Job, settlement: Settlement) -> None:
    delay = 0 if settlement.state is JobState.PENDING else settlement.delay_ms
    job = replace(
        job,
        state=settlement.state,
        run_at=state.now + delay,
        lane=settlement.lane,
        lease_expires_at=None,
        updated_at=state.now,
    )
    if settlement.lane is not None:
        detail = park_detail(settlement.lane, settlement.reason)
        state.record_job_event(EventKind.PARKED, job, actor=job.worker, attempt=job.attempt, detail=detail)
    if settlement.state is JobState.PENDING:
        state.put_pending(job)
    else:
        state.put(StoredJob(job))


def _record_error(
    state: State, record: StoredJob, worker: WorkerId, outcome: OutcomeKind, error: AttemptError
) -> StoredJob:
    job = record.job
    check_writable(error.type, error.message, error.traceback)
    bad = Attempt(
        job_id=job.id,
        attempt=job.attempt,
        outcome=outcome,
        worker=record.swept_from or worker,
        started_at=job.started_at,
        ended_at=state.now,
        error=error,
    )
    state.write(state.attempts, job.id, (*state.attempts.get(job.id, ()), (bad, worker)))
    past = PastError(
        attempt=job.attempt,
        at=state.now,
        type=error.type,
        message=error.message,
        traceback=error.traceback,
    )
    return record._replace(job=replace(job, errors=(*job.errors, past)[-MAX_STORED_ERRORS:]))


def _claim_all(
    state: State, worker: WorkerId, claims: Sequence[QueueClaim], room: int, budget: LimitBudget
) -> list[Job]:
    jobs: list[Job] = []
    if claims:
        expire(state, MAX_PROMOTED_PER_CALL)
    for want in claims:
        promote_queue(state, want.queue, MAX_PROMOTED_PER_CALL)
        # Even for a queue that gives nothing: a gate that stays due would have us asked again at once.
        limiting.unpark_due(state, want.queue, budget)
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
        and (record := _pick_next(state, queue, [*gates, *sharing.next_lanes(state, queue)])) is not None
    ):
        task = record.job.task
        scopes = budget.scopes_for(task, record.job.limit_keys)
        is_strange = not request.accepts_lane(task_lane(task))
        full = None if is_strange else budget.first_full_scope(scopes)
        if not is_strange and full is None:
            job = _start(state, record, worker, request.lease_ms)
            sharing.record_claimed(state, queue, record.job.lane)
            budget.start(scopes, _lease_end(job), job.cost)
            jobs.append(job)
            if budget.is_rate_exhausted(job.queue, len(jobs)):
                break
        elif held == request.max_parked:
            budget.add_wait(0)  # enough for now; the next call goes on
            break
        elif full is not None:
            held += 1
            limiting.park(state, record, full, budget)
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


def _lease_ms(state: State, job: Job, requested_ms: int | None) -> int:
    return requested_ms or job.lease_ms or state.queues[job.queue].settings.lease_ms


def _renew_one(state: State, worker: WorkerId, lease: Lease, lease_ms: int | None) -> str | None:
    record = state.jobs.get(lease.job_id)
    reason = _refusal(record, lease.attempt, worker)
    if record is None or reason is not None:
        return reason
    job = record.job
    limit = (job.started_at or 0) + job.extension_ms
    if state.now >= limit:
        return "extension over"
    end = min(state.now + _lease_ms(state, job, lease_ms), limit)
    state.put(record._replace(job=replace(job, lease_expires_at=max(_lease_end(job), end))))
    return None


def _take_over(state: State, record: StoredJob, sweeper: WorkerId, lease_ms: int) -> Job:
    old = record.job
    job = replace(old, worker=sweeper, lease_expires_at=state.now + lease_ms, updated_at=state.now)
    state.put(record._replace(job=job, swept_from=record.swept_from or old.worker))
    state.record_job_event(EventKind.SWEPT, job, actor=sweeper, attempt=job.attempt, detail=old.worker or "")
    return copy_for_caller(job)


def _lease_end(job: Job) -> int:
    return job.lease_expires_at or 0


def _lease_end_key(record: StoredJob) -> tuple[int, int]:
    return _lease_end(record.job), record.job.seq


def _lease(job: Job) -> Lease:
    return Lease(job.id, job.attempt)


def _jobs_of_worker(state: State, worker: WorkerId) -> list[Job]:
    held = state.leases.get(worker, {})
    return [held[job_id].job for job_id in sorted(held)]


def _pending_cancels(state: State, worker: WorkerId) -> tuple[PendingCancel, ...]:
    return tuple(
        PendingCancel(job.id, job.cancel_reason)
        for job in _jobs_of_worker(state, worker)
        if job.cancel_reason is not None
    )


def _unknown_leases(state: State, worker: WorkerId, known: set[Lease]) -> tuple[Job, ...]:
    return tuple(copy_for_caller(job) for job in _jobs_of_worker(state, worker) if _lease(job) not in known)


def _next_due_ms(state: State, claims: Sequence[QueueClaim]) -> int | None:
    heads = [(want.queue, state.delayed_heap(want.queue).first()) for want in claims]
    times = [
        max(head.job.run_at, state.maintenance.get(stagger_task_name(queue), 0))
        for queue, head in heads
        if head is not None
    ]
    return max(0, min(times) - state.now) if times else None
