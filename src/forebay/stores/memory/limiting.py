"""Limits: saved, removed, and what they leave for a claim."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import partial

from msgspec.structs import replace

from forebay.domain.changes import limit_changes
from forebay.domain.gate import lane_gate, limit_gate
from forebay.domain.history import Changes, Event, EventKind
from forebay.domain.job import Job, QueueName
from forebay.domain.lifecycle import JobState
from forebay.domain.limits import Bucket, Limit, Usage, limit_scope, narrow_scopes, queue_scope, usage_of
from forebay.domain.share import is_fair_gate, share_behind
from forebay.stores.limiting import MOST_BACK, Gauge, Kept, Tally
from forebay.stores.memory.order import Record
from forebay.stores.memory.sharing import MemoryLanes, join_lane, waiting_behind
from forebay.stores.memory.state import State
from forebay.stores.protocol import Want


def save(state: State, limit: Limit, actor: str) -> None:
    old, bucket = state.limits.get(limit.scope, (None, Bucket(0, state.now)))
    state.write(state.limits, limit.scope, Kept(limit, limit.changed_from(old, bucket, state.now)))
    for scope, bucket in list(state.buckets.items()):
        if limit_scope(scope) == limit.scope:
            state.write(state.buckets, scope, limit.changed_from(old, bucket, state.now))
    _tell(state, limit.scope, actor, "saved", limit_changes(old, limit))


def drop(state: State, scope: str, actor: str) -> bool:
    kept = state.limits.get(scope)
    if kept is None:
        return False
    state.write(state.limits, scope, None)
    for one in [one for one in state.buckets if limit_scope(one) == scope]:
        state.write(state.buckets, one, None)
    _tell(state, scope, actor, "removed", limit_changes(kept.limit, None))
    return True


def tally(state: State) -> Tally:
    """What all limits leave now."""
    limits = [kept.limit for kept in state.limits.values()]
    broad = [_gauge(state, limit, limit.scope) for limit in limits if not limit.is_narrow]
    narrow = [limit for limit in limits if limit.is_narrow]
    ends = _ends_by_scope(state) if narrow else {}
    return Tally(broad, state.now, narrow, partial(_narrow_gauge, state, ends))


def usages(state: State) -> list[Usage]:
    """How all limits stand."""
    ends = _ends_by_scope(state)
    return [
        usage_of(*state.limits[scope], _running_under(state, state.limits[scope].limit, ends), state.now)
        for scope in sorted(state.limits)
    ]


def _running_under(state: State, limit: Limit, ends: dict[str, list[int]]) -> int:
    if limit.is_narrow:
        return sum(len(found) for scope, found in ends.items() if limit_scope(scope) == limit.scope)
    return sum(1 for _ in _running(state, limit.queue))


def keep(state: State, limits: Tally, wants: Sequence[Want], *, freed: Counter[QueueName]) -> None:
    """Write what claims have taken. Where places were freed that nobody took, others may want them: `freed`
    is how many more jobs of each queue have ended than begun."""
    for gauge in limits.changed:
        if gauge.scope in state.limits:
            state.write(state.limits, gauge.scope, Kept(gauge.limit, gauge.bucket))
        else:
            state.write(state.buckets, gauge.scope, gauge.bucket)
    if state.limits:
        wanted = {want.queue for want in wants}
        is_left = any(jobs > 0 and queue_scope(queue) in state.limits for queue, jobs in freed.items())
        is_left = is_left or sum(freed.values()) > 0 or not state.opened <= wanted or limits.has_refund
        state.has_news = state.has_news or is_left


def put_aside(state: State, record: Record, scope: str, limits: Tally) -> None:
    """A job that this scope has no room for waits behind its gate; one that had its turn as a job of a share
    waits in the lane of that share."""
    gauge, queue, gate = limits.gauge(scope), record.job.queue, record.job.gate
    if gate is not None and is_fair_gate(gate):
        share = share_behind(gate)
        join_lane(state, queue, scope, share)
        gate = lane_gate(scope, share)
    else:
        gate = limit_gate(scope)
    state.put(record._replace(job=replace(record.job, gate=gate, updated_at=state.now)))
    if gauge is not None:
        state.write(state.closed, (queue, scope), gauge.look_at(state.now, 0))


def bring_back(state: State, queue: QueueName, limits: Tally) -> None:
    """Open gates that it is time to look behind, as far as there is room."""
    left = MOST_BACK
    for scope in [scope for (name, scope), at in state.closed.items() if name == queue and at <= state.now]:
        gauge = limits.gauge(scope)
        room = None if gauge is None else gauge.room(state.now)
        most = left if room is None else min(room, left)
        back = _bring_back(state, queue, scope, most)
        left -= min(left, back)
        is_used = bool(waiting_behind(state, queue, limit_gate(scope))) or any(
            lane[:2] == (queue, scope) for lane in state.lanes
        )
        at = state.now if gauge is None else gauge.look_at(state.now, min(back, most))
        state.write(state.closed, (queue, scope), at if is_used else None)


def _bring_back(state: State, queue: QueueName, scope: str, most: int) -> int:
    """Bring back as many jobs with a share as without: the claim that follows compares them."""
    back = waiting_behind(state, queue, limit_gate(scope))[:most]
    for record in back:
        state.put(record._replace(job=replace(record.job, gate=None, updated_at=state.now)))
    return len(back) + MemoryLanes(state, queue, scope).bring_back(most)


def free(state: State, job: Job) -> None:
    """The attempt has ended: whoever claims next looks behind the gates of its scopes."""
    scopes = {scope for _, scope in narrow_scopes(job.task, job.limit_keys)}
    for queue, scope in list(state.closed):
        if scope in scopes:
            state.write(state.closed, (queue, scope), 0)
            state.opened.add(queue)


def note_waits(state: State, limits: Tally, wants: Sequence[Want]) -> None:
    """When somebody should look behind the gates of these queues again."""
    queues = {want.queue for want in wants}
    looks = [at for (queue, _), at in state.closed.items() if queue in queues]
    limits.wait(min(looks) - state.now if looks else None)


def _gauge(state: State, limit: Limit, scope: str) -> Gauge:
    full = limit.full(state.now)
    bucket = state.limits[scope].bucket if scope in state.limits else state.buckets.get(scope, full)
    is_counted = limit.concurrency is not None and not limit.is_narrow
    running = _running(state, limit.queue) if is_counted else ()
    return Gauge(Kept(limit, bucket), sum(1 for _ in running), scope=scope)


def _narrow_gauge(state: State, ends: dict[str, list[int]], limit: Limit, scope: str) -> Gauge:
    gauge, found = _gauge(state, limit, scope), ends.get(scope, [])
    gauge.running, gauge.ends_at = len(found), min(found, default=None)
    return gauge


def _ends_by_scope(state: State) -> dict[str, list[int]]:
    """When the leases end that count under tasks and keys."""
    ends: dict[str, list[int]] = defaultdict(list)
    for job in _running(state, None):
        for _, scope in narrow_scopes(job.task, job.limit_keys):
            ends[scope].append(job.lease_expires_at or 0)
    return ends


def _running(state: State, queue: QueueName | None) -> Iterator[Job]:
    """The jobs of a queue, or of all, with a lease that has not ended."""
    for name in state.queues if queue is None else [queue]:
        for record in state.among(name, [JobState.RUNNING]):
            if (record.job.lease_expires_at or 0) > state.now:
                yield record.job


def _tell(state: State, scope: str, actor: str, what: str, changes: Changes) -> None:
    for queue, one in list(state.closed):
        if limit_scope(one) == scope:
            state.write(state.closed, (queue, one), 0)
    state.record(Event(kind=EventKind.LIMIT, actor=actor, detail=f"{what} {scope}", changes=changes))
    state.has_news = True
