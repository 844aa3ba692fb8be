"""Rates of new jobs of a queue, and the token buckets that bound them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from forebay.domain.concurrency_and_rate_limits import Bucket, Limit, queue_scope
from forebay.domain.job import NewJob
from forebay.domain.queue import Queue
from forebay.errors import RateLimited

# No bucket takes longer than this to fill, so one that was not used for twice as long can be removed.
FULL_AFTER_MS: Final = 3_600_000


class EnqueueRate(NamedTuple):
    """Rate of new jobs of a queue, in all or of one client. `scope` names its token bucket."""

    scope: str
    limit: Limit
    client: str | None = None


def is_rate(scope: str) -> bool:
    """Return whether a token bucket belongs to a rate of new jobs."""
    return scope.startswith(("enqueue:", "client:"))


def rates_of(queue: Queue, client: str | None) -> Iterator[EnqueueRate]:
    """Yield the rates for a new job of this client. All clients without a name count as one."""
    settings, scope = queue.settings, queue_scope(queue.name)
    if settings.enqueue_rate is not None:
        limit = Limit(scope=scope, rate=settings.enqueue_rate, burst=settings.enqueue_burst)
        yield EnqueueRate(f"enqueue:{queue.name}", limit)
    if settings.client_rate is not None:
        limit = Limit(scope=scope, rate=settings.client_rate, burst=settings.client_burst)
        yield EnqueueRate(f"client:{queue.name}:{client or ''}", limit, client or "")


class EnqueueRateLimiter:
    """Rates of one insert: what is left in their token buckets, and what its jobs take.

    `load` returns a stored bucket. The caller makes sure that no other transaction uses the buckets at the
    same time, and writes `changed_buckets` in the end.
    """

    def __init__(self, now: int, load: Callable[[str], Bucket | None], batch: Sequence[NewJob]) -> None:
        self._now = now
        self._load = load
        self._batch = batch  # jobs of an atomic insert; none if each counts alone
        self._loaded_buckets: dict[str, Bucket] = {}
        self.changed_buckets: dict[str, Bucket] = {}

    def take_tokens(self, queue: Queue, job: NewJob) -> None:
        """Take a token of each of its rates for a new job, or raise RateLimited."""
        changed: dict[str, Bucket] = {}
        for rate in rates_of(queue, job.client):
            bucket = self.changed_buckets.get(rate.scope) or self._load_bucket(rate)
            if not rate.limit.tokens(bucket, self._now):
                raise self._refusal(rate, queue)
            changed[rate.scope] = rate.limit.spend(bucket, 1, self._now)
        self.changed_buckets.update(changed)

    def _load_bucket(self, rate: EnqueueRate) -> Bucket:
        if rate.scope not in self._loaded_buckets:
            self._loaded_buckets[rate.scope] = self._usable_bucket(rate.limit, self._load(rate.scope))
        return self._loaded_buckets[rate.scope]

    def _usable_bucket(self, limit: Limit, stored: Bucket | None) -> Bucket:
        # A refusal writes nothing, so a bucket with a time in the future does not fill. If the clock was set
        # back further than it takes to fill the bucket, the wait would be too long.
        if stored is None or stored.refilled_at > self._now + limit.burst_size * limit.per_ms // (
            limit.rate or 1
        ):
            return limit.full_bucket(self._now)
        return stored

    def _refusal(self, rate: EnqueueRate, queue: Queue) -> RateLimited:
        """Return the error, with the wait until the whole batch has tokens, not only the jobs up to this
        one."""
        if not self._batch:
            bucket = self.changed_buckets.get(rate.scope) or self._load_bucket(rate)
            return rate_limited_error(
                queue.name, rate.client, rate.limit, rate.limit.wait_ms(bucket, self._now)
            )
        wanted = sum(
            job.queue == queue.name and rate.client in (None, job.client or "") for job in self._batch
        )
        return rate_limited_error(
            queue.name,
            rate.client,
            rate.limit,
            time_until_tokens(rate.limit, self._load_bucket(rate), wanted, self._now),
        )


def time_until_tokens(limit: Limit, bucket: Bucket, jobs: int, now: int) -> int | None:
    """Return the time until so many jobs may come together; None if there are never so many tokens."""
    if jobs > limit.burst_size:
        return None
    return limit.wait_ms(limit.spend(bucket, jobs - 1, now), now)


def rate_limited_error(queue: str, client: str | None, limit: Limit, wait_ms: int | None) -> RateLimited:
    """Return the error of a job that comes too soon; without a wait, of a batch that is too large."""
    clients = "" if client is None else f" of client {client!r}" if client else " of clients without a name"
    rate_text = f"{limit.rate} jobs a second{clients}, {limit.burst_size} at once"
    return RateLimited(
        f"queue {queue} takes {rate_text}: {_retry_text(wait_ms)}",
        queue=queue,
        client=client,
        limit=limit.rate or 0,
        retry_after=None if wait_ms is None else wait_ms / 1_000,
    )


def _retry_text(wait_ms: int | None) -> str:
    return "ask for fewer in one call" if wait_ms is None else f"try again in {wait_ms / 1_000:g} s"
