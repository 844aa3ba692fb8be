"""Limits: saved, removed, and what they leave for a claim."""

from __future__ import annotations

from forebay.domain.history import Event, EventKind
from forebay.domain.lifecycle import JobState
from forebay.domain.limits import Bucket, Limit
from forebay.stores.limiting import Gauge, Kept, Tally
from forebay.stores.memory.state import State


def save(state: State, limit: Limit, actor: str) -> None:
    old, bucket = state.limits.get(limit.scope, (None, Bucket(0, state.now)))
    state.write(state.limits, limit.scope, Kept(limit, limit.changed_from(old, bucket, state.now)))
    _tell(state, actor, f"saved {limit.scope}")


def drop(state: State, scope: str, actor: str) -> bool:
    if scope not in state.limits:
        return False
    state.write(state.limits, scope, None)
    _tell(state, actor, f"removed {scope}")
    return True


def tally(state: State) -> Tally:
    """What all limits leave now."""
    return Tally([Gauge(kept, _running(state, kept.limit)) for kept in state.limits.values()], state.now)


def keep(state: State, limits: Tally, *, freed: int) -> None:
    """Write what claims have taken. Where places were freed that nobody took, others may want them."""
    for kept in limits.changed:
        state.write(state.limits, kept.limit.scope, kept)
    if freed > 0 and state.limits:
        state.has_news = True


def _running(state: State, limit: Limit) -> int:
    if limit.concurrency is None:
        return 0
    queues = state.queues if limit.queue is None else [limit.queue]
    running = (record.job for name in queues for record in state.among(name, [JobState.RUNNING]))
    return sum((job.lease_expires_at or 0) > state.now for job in running)


def _tell(state: State, actor: str, detail: str) -> None:
    state.record(Event(kind=EventKind.LIMIT, actor=actor, detail=detail))
    state.has_news = True
