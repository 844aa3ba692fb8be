"""Limits: saved, removed, and what they leave for a claim."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import partial

from msgspec.structs import replace

from forebay.domain.changes import limit_changes
from forebay.domain.fairness import fairness_key_of, is_fairness_lane
from forebay.domain.history import Changes, Event, EventKind
from forebay.domain.job import Job, QueueName
from forebay.domain.lane import limit_fairness_lane, limit_lane
from forebay.domain.lifecycle import JobState
from forebay.domain.limits import Bucket, Limit, LimitUsage, limit_scope, narrow_scopes, queue_scope, usage_of
from forebay.stores.contract.values import QueueClaim
from forebay.stores.memory.fairness import MemoryFairUnpark, jobs_in_lane, join_limit_lane
from forebay.stores.memory.job_heap import StoredJob
from forebay.stores.memory.state import State
from forebay.stores.shared.limits import MAX_UNPARKED, LimitBudget, LimitCounter, StoredLimit


def save(state: State, limit: Limit, actor: str) -> None:
    old, bucket = state.limits.get(limit.scope, (None, Bucket(0, state.now)))
    state.write(state.limits, limit.scope, StoredLimit(limit, limit.convert_bucket(old, bucket, state.now)))
    for scope, bucket in list(state.rate_buckets.items()):
        if limit_scope(scope) == limit.scope:
            state.write(state.rate_buckets, scope, limit.convert_bucket(old, bucket, state.now))
    _record_change(state, limit.scope, actor, "saved", limit_changes(old, limit))


def drop(state: State, scope: str, actor: str) -> bool:
    kept = state.limits.get(scope)
    if kept is None:
        return False
    state.write(state.limits, scope, None)
    for one in [one for one in state.rate_buckets if limit_scope(one) == scope]:
        state.write(state.rate_buckets, one, None)
    _record_change(state, scope, actor, "removed", limit_changes(kept.limit, None))
    return True


def load_budget(state: State) -> LimitBudget:
    """What all limits leave now."""
    limits = [kept.limit for kept in state.limits.values()]
    broad = [_build_counter(state, limit, limit.scope) for limit in limits if not limit.is_narrow]
    narrow = [limit for limit in limits if limit.is_narrow]
    ends = _lease_ends_by_scope(state) if narrow else {}
    return LimitBudget(broad, state.now, narrow, partial(_build_narrow_counter, state, ends))


def limit_usages(state: State) -> list[LimitUsage]:
    """How all limits stand."""
    ends = _lease_ends_by_scope(state)
    return [
        usage_of(*state.limits[scope], _count_running(state, state.limits[scope].limit, ends), state.now)
        for scope in sorted(state.limits)
    ]


def _count_running(state: State, limit: Limit, ends: dict[str, list[int]]) -> int:
    if limit.is_narrow:
        return sum(len(found) for scope, found in ends.items() if limit_scope(scope) == limit.scope)
    return sum(1 for _ in _iter_running(state, limit.queue))


def save_budget(
    state: State, budget: LimitBudget, claims: Sequence[QueueClaim], *, released: Counter[QueueName]
) -> None:
    """Write what claims have taken. Where places were freed that nobody took, others may want them:
    `released`
    is how many more jobs of each queue have ended than begun."""
    for gauge in budget.changed_counters:
        if gauge.scope in state.limits:
            state.write(state.limits, gauge.scope, StoredLimit(gauge.limit, gauge.bucket))
        else:
            state.write(state.rate_buckets, gauge.scope, gauge.bucket)
    if state.limits:
        wanted = {want.queue for want in claims}
        is_left = any(jobs > 0 and queue_scope(queue) in state.limits for queue, jobs in released.items())
        is_left = (
            is_left or sum(released.values()) > 0 or not state.released_queues <= wanted or budget.has_refund
        )
        state.needs_wakeup = state.needs_wakeup or is_left


def park(state: State, record: StoredJob, scope: str, budget: LimitBudget) -> None:
    """A job that this scope has no room for waits behind its gate; one that had its turn as a job of a share
    waits in the lane of that share."""
    gauge, queue, gate = budget.find_counter(scope), record.job.queue, record.job.lane
    if gate is not None and is_fairness_lane(gate):
        share = fairness_key_of(gate)
        join_limit_lane(state, queue, scope, share)
        gate = limit_fairness_lane(scope, share)
    else:
        gate = limit_lane(scope)
    state.put(record._replace(job=replace(record.job, lane=gate, updated_at=state.now)))
    if gauge is not None:
        state.write(state.limit_lanes, (queue, scope), gauge.recheck_at(state.now, 0))


def unpark_due(state: State, queue: QueueName, budget: LimitBudget) -> None:
    """Open gates that it is time to look behind, as far as there is room."""
    left = MAX_UNPARKED
    for scope in [
        scope for (name, scope), at in state.limit_lanes.items() if name == queue and at <= state.now
    ]:
        gauge = budget.find_counter(scope)
        room = None if gauge is None else gauge.room(state.now)
        most = left if room is None else min(room, left)
        back = _unpark(state, queue, scope, most)
        left -= min(left, back)
        is_used = bool(jobs_in_lane(state, queue, limit_lane(scope))) or any(
            lane[:2] == (queue, scope) for lane in state.limit_fairness_keys
        )
        at = state.now if gauge is None else gauge.recheck_at(state.now, min(back, most))
        state.write(state.limit_lanes, (queue, scope), at if is_used else None)


def _unpark(state: State, queue: QueueName, scope: str, limit: int) -> int:
    """Bring back as many jobs with a share as without: the claim that follows compares them."""
    back = jobs_in_lane(state, queue, limit_lane(scope))[:limit]
    for record in back:
        state.put(record._replace(job=replace(record.job, lane=None, updated_at=state.now)))
    return len(back) + MemoryFairUnpark(state, queue, scope).unpark(limit)


def release_slots(state: State, job: Job) -> None:
    """The attempt has ended: whoever claims next looks behind the gates of its scopes."""
    scopes = {scope for _, scope in narrow_scopes(job.task, job.limit_keys)}
    for queue, scope in list(state.limit_lanes):
        if scope in scopes:
            state.write(state.limit_lanes, (queue, scope), 0)
            state.released_queues.add(queue)


def record_waits(state: State, budget: LimitBudget, claims: Sequence[QueueClaim]) -> None:
    """When somebody should look behind the gates of these queues again."""
    queues = {want.queue for want in claims}
    looks = [at for (queue, _), at in state.limit_lanes.items() if queue in queues]
    budget.add_wait(min(looks) - state.now if looks else None)


def _build_counter(state: State, limit: Limit, scope: str) -> LimitCounter:
    full = limit.full_bucket(state.now)
    bucket = state.limits[scope].bucket if scope in state.limits else state.rate_buckets.get(scope, full)
    is_counted = limit.concurrency is not None and not limit.is_narrow
    running = _iter_running(state, limit.queue) if is_counted else ()
    return LimitCounter(StoredLimit(limit, bucket), sum(1 for _ in running), scope=scope)


def _build_narrow_counter(state: State, ends: dict[str, list[int]], limit: Limit, scope: str) -> LimitCounter:
    gauge, found = _build_counter(state, limit, scope), ends.get(scope, [])
    gauge.running, gauge.ends_at = len(found), min(found, default=None)
    return gauge


def _lease_ends_by_scope(state: State) -> dict[str, list[int]]:
    """When the leases end that count under tasks and keys."""
    ends: dict[str, list[int]] = defaultdict(list)
    for job in _iter_running(state, None):
        for _, scope in narrow_scopes(job.task, job.limit_keys):
            ends[scope].append(job.lease_expires_at or 0)
    return ends


def _iter_running(state: State, queue: QueueName | None) -> Iterator[Job]:
    """The jobs of a queue, or of all, with a lease that has not ended."""
    for name in state.queues if queue is None else [queue]:
        for record in state.jobs_in_states(name, [JobState.RUNNING]):
            if (record.job.lease_expires_at or 0) > state.now:
                yield record.job


def _record_change(state: State, scope: str, actor: str, action: str, changes: Changes) -> None:
    for queue, one in list(state.limit_lanes):
        if limit_scope(one) == scope:
            state.write(state.limit_lanes, (queue, one), 0)
    state.record(
        Event(kind=EventKind.LIMIT_CHANGED, actor=actor, detail=f"{action} {scope}", changes=changes)
    )
    state.needs_wakeup = True
