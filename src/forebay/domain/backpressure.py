"""Back-pressure: how fast a queue takes new jobs, and how soon one that is full has room again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from forebay.domain.job import NewJob
from forebay.domain.limits import Bucket, Limit, queue_scope
from forebay.domain.queue import Queue
from forebay.errors import QueueFull, RateLimited

# A pace is that of the last minute, or of so many jobs if these took less.
THROUGHPUT_WINDOW_MS: Final = 60_000
THROUGHPUT_JOBS: Final = 1_000
# No bucket takes longer than this to fill, so one that was not used for twice as long can be forgotten.
FULL_AFTER_MS: Final = 3_600_000


class Throughput(NamedTuple):
    """So many jobs of a queue were completed in so much time."""

    jobs: int
    ms: int

    def wait_ms(self, jobs: int) -> int | None:
        """How long it takes to work off so many; None if nothing was completed lately."""
        return jobs * self.ms // self.jobs if self.jobs else None


def throughput_of(jobs: int, first_at: int | None, now: int) -> Throughput:
    """The pace of a queue whose last `jobs` were completed from `first_at` on, up to THROUGHPUT_JOBS of
    them."""
    is_fast = jobs >= THROUGHPUT_JOBS and first_at is not None
    return Throughput(jobs, max(1, now - (first_at or 0)) if is_fast else THROUGHPUT_WINDOW_MS)


class EnqueueRate(NamedTuple):
    """How fast a queue takes jobs: of everybody, or of one client. `scope` names its bucket."""

    scope: str
    limit: Limit
    client: str | None = None


def is_rate(scope: str) -> bool:
    """Whether a bucket is that of a rate at which a queue takes jobs."""
    return scope.startswith(("enqueue:", "client:"))


def rates_of(queue: Queue, client: str | None) -> Iterator[EnqueueRate]:
    """The rates that hold for a new job of this client. All who do not say who they are count as one."""
    settings, scope = queue.settings, queue_scope(queue.name)
    if settings.enqueue_rate is not None:
        limit = Limit(scope=scope, rate=settings.enqueue_rate, burst=settings.enqueue_burst)
        yield EnqueueRate(f"enqueue:{queue.name}", limit)
    if settings.client_rate is not None:
        limit = Limit(scope=scope, rate=settings.client_rate, burst=settings.client_burst)
        yield EnqueueRate(f"client:{queue.name}:{client or ''}", limit, client or "")


class EnqueueRateLimiter:
    """The rates of one insert: what is left in their buckets, and what its jobs take.

    `load` answers what is stored of a bucket. Whoever uses this sees to it that nobody else does at the same
    time, and writes `taken` in the end.
    """

    def __init__(self, now: int, load: Callable[[str], Bucket | None], batch: Sequence[NewJob]) -> None:
        self._now = now
        self._load = load
        self._batch = batch  # jobs that are accepted all or not at all; none if each counts alone
        self._loaded_buckets: dict[str, Bucket] = {}
        self.changed_buckets: dict[str, Bucket] = {}

    def take_tokens(self, queue: Queue, job: NewJob) -> None:
        """Take a token of each of its rates for a new job, or raise RateLimited."""
        left: dict[str, Bucket] = {}
        for rate in rates_of(queue, job.client):
            bucket = self.changed_buckets.get(rate.scope) or self._load_bucket(rate)
            if not rate.limit.tokens(bucket, self._now):
                raise self._refusal(rate, queue)
            left[rate.scope] = rate.limit.spend(bucket, 1, self._now)
        self.changed_buckets.update(left)

    def _load_bucket(self, rate: EnqueueRate) -> Bucket:
        if rate.scope not in self._loaded_buckets:
            self._loaded_buckets[rate.scope] = self._usable_bucket(rate.limit, self._load(rate.scope))
        return self._loaded_buckets[rate.scope]

    def _usable_bucket(self, limit: Limit, stored: Bucket | None) -> Bucket:
        # A refusal writes nothing, so a bucket of a time that is still to come does not fill. Where the clock
        # was set back further than it takes to fill it, nobody shall wait that long.
        if stored is None or stored.refilled_at > self._now + limit.burst_size * limit.per_ms // (
            limit.rate or 1
        ):
            return limit.full_bucket(self._now)
        return stored

    def _refusal(self, rate: EnqueueRate, queue: Queue) -> RateLimited:
        """What all of them take, and not only those up to this one, says when it is worth to ask again."""
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
    """After how long so many jobs may come together; None if there are never so many tokens."""
    if jobs > limit.burst_size:
        return None
    return limit.wait_ms(limit.spend(bucket, jobs - 1, now), now)


def rate_limited_error(queue: str, client: str | None, limit: Limit, wait_ms: int | None) -> RateLimited:
    """The error of a job that comes too soon; without a wait, of a batch that is too large."""
    whose = "" if client is None else f" of client {client!r}" if client else " of clients without a name"
    takes = f"{limit.rate} jobs a second{whose}, {limit.burst_size} at once"
    return RateLimited(
        f"queue {queue} takes {takes}: {_retry_text(wait_ms)}",
        queue=queue,
        client=client,
        limit=limit.rate or 0,
        retry_after=None if wait_ms is None else wait_ms / 1_000,
    )


def queue_full_error(queue: str, limit: int, wait_ms: int | None) -> QueueFull:
    """The error of a job that has no room; `wait_ms` is when the pace of the queue promises some."""
    return QueueFull(
        f"queue {queue} is full: {limit} pending jobs are allowed",
        queue=queue,
        limit=limit,
        retry_after=None if wait_ms is None else wait_ms / 1_000,
    )


def time_until_room(
    throughput: Callable[[], Throughput],
    queue: str,
    now: int,
    *,
    length: int,
    limit: int,
    batch: Sequence[NewJob],
) -> int | None:
    """After how long a queue of this length should have room for one job, or for all that come together and
    are to run now; None where nobody can tell, or where they are more than it ever takes."""
    wanted = max(1, sum(job.queue == queue and _counts_now(job, now) for job in batch))
    return None if wanted > limit else throughput().wait_ms(max(0, length - limit) + wanted)


def _counts_now(job: NewJob, now: int) -> bool:
    """Whether it needs room in its queue as it comes; one that waits for a time or for others does not."""
    return not job.depends_on and (now + job.delay_ms if job.run_at is None else job.run_at) <= now


def _retry_text(wait_ms: int | None) -> str:
    return "ask for fewer in one call" if wait_ms is None else f"try again in {wait_ms / 1_000:g} s"
