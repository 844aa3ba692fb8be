"""Limits: save and remove them, count slots and tokens for claims, park and unpark jobs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import partial

from msgspec.structs import replace

from forebay.domain.concurrency_and_rate_limits import (
    Bucket,
    Limit,
    LimitUsage,
    limit_scope,
    narrow_scopes,
    queue_scope,
    usage_of,
)
from forebay.domain.fairness import fairness_key_of, is_fairness_lane
from forebay.domain.job import Job, QueueName
from forebay.domain.job_history import Changes, Event, EventKind
from forebay.domain.job_states import JobState
from forebay.domain.lane import limit_fairness_lane, limit_lane
from forebay.domain.operator_changes import limit_changes
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.memory.fairness import MemoryFairUnpark, jobs_in_lane, join_limit_lane
from forebay.stores.memory.job_heap import StoredJob
from forebay.stores.memory.state import State
from forebay.stores.shared.limit_counters import MAX_UNPARKED, LimitBudget, LimitCounter, StoredLimit


def save(state: State, limit: Limit, actor: str) -> None:
    old, bucket = state.limits.get(limit.scope, (None, Bucket(0, state.now)))
    state.write(state.limits, limit.scope, StoredLimit(limit, limit.convert_bucket(old, bucket, state.now)))
    for scope, bucket in list(state.rate_buckets.items()):
        if limit_scope(scope) == limit.scope:
            state.write(state.rate_buckets, scope, limit.convert_bucket(old, bucket, state.now))
    _record_change(state, limit.scope, actor, "saved", limit_changes(old, limit))


def drop(state: State, scope: str, actor: str) -> bool:
    stored = state.limits.get(scope)
    if stored is None:
        return False
    state.write(state.limits, scope, None)
    for key_scope in [key_scope for key_scope in state.rate_buckets if limit_scope(key_scope) == scope]:
        state.write(state.rate_buckets, key_scope, None)
    _record_change(state, scope, actor, "removed", limit_changes(stored.limit, None))
    return True


def load_budget(state: State) -> LimitBudget:
    """Return the budget that all limits leave now."""
    limits = [stored.limit for stored in state.limits.values()]
    broad = [_build_counter(state, limit, limit.scope) for limit in limits if not limit.is_narrow]
    narrow = [limit for limit in limits if limit.is_narrow]
    ends = _lease_ends_by_scope(state) if narrow else {}
    return LimitBudget(broad, state.now, narrow, partial(_build_narrow_counter, state, ends))


def limit_usages(state: State) -> list[LimitUsage]:
    """Return the usage of all limits."""
    ends = _lease_ends_by_scope(state)
    return [
        usage_of(*state.limits[scope], _count_running(state, state.limits[scope].limit, ends), state.now)
        for scope in sorted(state.limits)
    ]


def _count_running(state: State, limit: Limit, ends: dict[str, list[int]]) -> int:
    if limit.is_narrow:
        return sum(len(lease_ends) for scope, lease_ends in ends.items() if limit_scope(scope) == limit.scope)
    return sum(1 for _ in _iter_running(state, limit.queue))


def save_budget(
    state: State, budget: LimitBudget, claims: Sequence[QueueClaim], *, released: Counter[QueueName]
) -> None:
    """Write the changed token buckets. Send a wake-up where slots were released that no claim took.
    `released` is how many more jobs of each queue have ended than started."""
    for counter in budget.changed_counters:
        if counter.scope in state.limits:
            state.write(state.limits, counter.scope, StoredLimit(counter.limit, counter.bucket))
        else:
            state.write(state.rate_buckets, counter.scope, counter.bucket)
    if state.limits:
        claimed_queues = {claim.queue for claim in claims}
        has_free_slots = any(
            jobs > 0 and queue_scope(queue) in state.limits for queue, jobs in released.items()
        )
        has_free_slots = (
            has_free_slots
            or sum(released.values()) > 0
            or not state.released_queues <= claimed_queues
            or budget.has_refund
        )
        state.needs_wakeup = state.needs_wakeup or has_free_slots


def park(state: State, record: StoredJob, scope: str, budget: LimitBudget) -> None:
    """Park a job that this scope has no room for, in the lane of the limit. A job that was claimed by its
    fairness key goes to the lane of that key there."""
    counter, queue, lane = budget.find_counter(scope), record.job.queue, record.job.lane
    if lane is not None and is_fairness_lane(lane):
        key = fairness_key_of(lane)
        join_limit_lane(state, queue, scope, key)
        lane = limit_fairness_lane(scope, key)
    else:
        lane = limit_lane(scope)
    state.put(record._replace(job=replace(record.job, lane=lane, updated_at=state.now)))
    if counter is not None:
        state.write(state.limit_lanes, (queue, scope), counter.recheck_at(state.now, 0))


def unpark_due(state: State, queue: QueueName, budget: LimitBudget) -> None:
    """Unpark jobs from limit lanes that are due to be rechecked, as far as there is room."""
    left = MAX_UNPARKED
    for scope in [
        scope
        for (name, scope), recheck_at in state.limit_lanes.items()
        if name == queue and recheck_at <= state.now
    ]:
        counter = budget.find_counter(scope)
        room = None if counter is None else counter.room(state.now)
        limit = left if room is None else min(room, left)
        unparked = _unpark(state, queue, scope, limit)
        left -= min(left, unparked)
        is_used = bool(jobs_in_lane(state, queue, limit_lane(scope))) or any(
            lane[:2] == (queue, scope) for lane in state.limit_fairness_keys
        )
        recheck_at = state.now if counter is None else counter.recheck_at(state.now, min(unparked, limit))
        state.write(state.limit_lanes, (queue, scope), recheck_at if is_used else None)


def _unpark(state: State, queue: QueueName, scope: str, limit: int) -> int:
    """Unpark as many jobs with a fairness key as without: the claim that follows compares them."""
    unparked = jobs_in_lane(state, queue, limit_lane(scope))[:limit]
    for record in unparked:
        state.put(record._replace(job=replace(record.job, lane=None, updated_at=state.now)))
    return len(unparked) + MemoryFairUnpark(state, queue, scope).unpark(limit)


def release_slots(state: State, job: Job) -> None:
    """Release the slots of a job whose attempt has ended. The next claim rechecks the lanes of its scopes."""
    scopes = {scope for _, scope in narrow_scopes(job.task, job.limit_keys)}
    for queue, scope in list(state.limit_lanes):
        if scope in scopes:
            state.write(state.limit_lanes, (queue, scope), 0)
            state.released_queues.add(queue)


def record_waits(state: State, budget: LimitBudget, claims: Sequence[QueueClaim]) -> None:
    """Record when the lanes of these queues are to be rechecked."""
    queues = {claim.queue for claim in claims}
    recheck_times = [recheck_at for (queue, _), recheck_at in state.limit_lanes.items() if queue in queues]
    budget.add_wait(min(recheck_times) - state.now if recheck_times else None)


def _build_counter(state: State, limit: Limit, scope: str) -> LimitCounter:
    full = limit.full_bucket(state.now)
    bucket = state.limits[scope].bucket if scope in state.limits else state.rate_buckets.get(scope, full)
    is_counted = limit.concurrency is not None and not limit.is_narrow
    running = _iter_running(state, limit.queue) if is_counted else ()
    return LimitCounter(StoredLimit(limit, bucket), sum(1 for _ in running), scope=scope)


def _build_narrow_counter(state: State, ends: dict[str, list[int]], limit: Limit, scope: str) -> LimitCounter:
    counter, lease_ends = _build_counter(state, limit, scope), ends.get(scope, [])
    counter.running, counter.ends_at = len(lease_ends), min(lease_ends, default=None)
    return counter


def _lease_ends_by_scope(state: State) -> dict[str, list[int]]:
    """Return the ends of the leases that count under tasks and keys."""
    ends: dict[str, list[int]] = defaultdict(list)
    for job in _iter_running(state, None):
        for _, scope in narrow_scopes(job.task, job.limit_keys):
            ends[scope].append(job.lease_expires_at or 0)
    return ends


def _iter_running(state: State, queue: QueueName | None) -> Iterator[Job]:
    """Yield the running jobs of a queue, or of all, whose lease has not ended."""
    for name in state.queues if queue is None else [queue]:
        for record in state.jobs_in_states(name, [JobState.RUNNING]):
            if (record.job.lease_expires_at or 0) > state.now:
                yield record.job


def _record_change(state: State, scope: str, actor: str, action: str, changes: Changes) -> None:
    for queue, lane_scope in list(state.limit_lanes):
        if limit_scope(lane_scope) == scope:
            state.write(state.limit_lanes, (queue, lane_scope), 0)
    state.record(
        Event(kind=EventKind.LIMIT_CHANGED, actor=actor, detail=f"{action} {scope}", changes=changes)
    )
    state.needs_wakeup = True
