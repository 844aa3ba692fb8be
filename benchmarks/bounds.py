"""Limits for runs under fire, and whether they held: from what jobs have written down themselves and from the
history in the store, not from what the limits have counted.

An attempt counts for as long as it has a lease. So the check looks at attempts that have finished their job
in less time than a lease lasts: from their first line to their last they had one, whatever was stopped or
killed around them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from benchmarks.effects import Log
from forebay import Forebay
from forebay.domain.history import Timeline
from forebay.domain.job import JobId

AT_ONCE: Final = 12
AT_ONCE_OF_A_TENANT: Final = 2
TENANTS: Final = 20
RATE: Final = 150
BURST: Final = 30
# The store notes the start of an attempt a moment before or after its token, if it had to wait for a lock.
SLACK_MS: Final = 1_000

Span = tuple[int, int]


def set_limits(app: Forebay) -> None:
    app.limits.set("global", concurrency=AT_ONCE)
    app.limits.set("key:tenant", concurrency=AT_ONCE_OF_A_TENANT)
    app.limits.set("task:sleep", rate=RATE, burst=BURST)


def tenant_of(ms: int) -> str:
    return str(ms % TENANTS)


def check_limits(timelines: Sequence[Timeline], log: Log, lease_ms: int) -> Iterator[str]:
    """What is wrong with how many ran at once, and with how many began in a time."""
    spans = list(_spans(timelines, log, lease_ms))
    if (found := most_at_once(span for span, _ in spans)) > AT_ONCE:
        yield f"{found} jobs ran at once, and {AT_ONCE} may"
    by_tenant: dict[str, list[Span]] = defaultdict(list)
    for span, tenant in spans:
        by_tenant[tenant].append(span)
    for tenant, theirs in by_tenant.items():
        if (found := most_at_once(theirs)) > AT_ONCE_OF_A_TENANT:
            yield f"{found} jobs of tenant {tenant} ran at once, and {AT_ONCE_OF_A_TENANT} may"
    yield from _too_fast(sorted(_starts(timelines)))


def check_joins(
    joins: Mapping[JobId, Sequence[JobId]], timelines: Sequence[Timeline], log: Log
) -> Iterator[str]:
    """What is wrong with jobs that wait for others: none begins before all of these have finished."""
    finishers = {one.job.id: (one.job.id, one.job.attempt) for one in timelines}
    for join, parents in joins.items():
        began = min(at for (job_id, _), at in log.began.items() if job_id == join)
        if early := [one for one in parents if log.ended.get(finishers[one], began + 1) > began]:
            yield f"{join} began before {early} had finished"


def most_at_once(spans: Iterable[Span]) -> int:
    """How many of these overlap at most. One that ends when another begins does not."""
    steps = sorted(step for began, ended in spans for step in ((began, 1), (ended, -1)))
    most = now = 0
    for _, change in steps:
        now += change
        most = max(most, now)
    return most


def _spans(timelines: Iterable[Timeline], log: Log, lease_ms: int) -> Iterator[tuple[Span, str]]:
    for timeline in timelines:
        job = timeline.job
        token = (job.id, job.attempt)
        is_held = (job.finished_at or 0) - (job.started_at or 0) < lease_ms
        if is_held and token in log.began and token in log.ended:
            yield (log.began[token], log.ended[token]), job.limit_keys["tenant"]


def _starts(timelines: Iterable[Timeline]) -> Iterator[int]:
    """When attempts began by the store's clock. Those that were handed back are not known; they count too."""
    for timeline in timelines:
        yield from (row.started_at for row in timeline.attempts if row.started_at is not None)
        yield timeline.job.started_at or 0


def _too_fast(starts: Sequence[int]) -> Iterator[str]:
    """Play a bucket of the same rate; each start has to find a token in it."""
    tokens, last = float(BURST + RATE * SLACK_MS / 1_000), starts[0] if starts else 0
    for at in starts:
        tokens = min(BURST + RATE * SLACK_MS / 1_000, tokens + (at - last) * RATE / 1_000) - 1
        last = at
        if tokens < 0:
            yield f"more attempts began until {at} than {RATE} a second with {BURST} at once"
            return
