"""Back-pressure: how fast a queue takes new jobs, and how soon one that is full has room again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from forebay.domain.job import NewJob
from forebay.domain.limits import Bucket, Limit, queue_scope
from forebay.domain.queue import Queue
from forebay.errors import QueueFull, RateLimited

# A pace is that of the last minute, or of so many jobs if these took less.
PACE_MS: Final = 60_000
PACE_JOBS: Final = 1_000
# No bucket takes longer than this to fill, so one that was not used for twice as long can be forgotten.
FULL_AFTER_MS: Final = 3_600_000


class Pace(NamedTuple):
    """So many jobs of a queue were completed in so much time."""

    jobs: int
    ms: int

    def wait_ms(self, jobs: int) -> int | None:
        """How long it takes to work off so many; None if nothing was completed lately."""
        return jobs * self.ms // self.jobs if self.jobs else None


def pace_of(jobs: int, first_at: int | None, now: int) -> Pace:
    """The pace of a queue whose last `jobs` were completed from `first_at` on, up to PACE_JOBS of them."""
    is_fast = jobs >= PACE_JOBS and first_at is not None
    return Pace(jobs, max(1, now - (first_at or 0)) if is_fast else PACE_MS)


class Rate(NamedTuple):
    """How fast a queue takes jobs: of everybody, or of one client. `scope` names its bucket."""

    scope: str
    limit: Limit
    client: str | None = None


def is_rate(scope: str) -> bool:
    """Whether a bucket is that of a rate at which a queue takes jobs."""
    return scope.startswith(("enqueue:", "client:"))


def rates_of(queue: Queue, client: str | None) -> Iterator[Rate]:
    """The rates that hold for a new job of this client. All who do not say who they are count as one."""
    settings, scope = queue.settings, queue_scope(queue.name)
    if settings.enqueue_rate is not None:
        limit = Limit(scope=scope, rate=settings.enqueue_rate, burst=settings.enqueue_burst)
        yield Rate(f"enqueue:{queue.name}", limit)
    if settings.client_rate is not None:
        limit = Limit(scope=scope, rate=settings.client_rate, burst=settings.client_burst)
        yield Rate(f"client:{queue.name}:{client or ''}", limit, client or "")


class Turnstile:
    """The rates of one insert: what is left in their buckets, and what its jobs take.

    `load` answers what is stored of a bucket. Whoever uses this sees to it that nobody else does at the same
    time, and writes `taken` in the end.
    """

    def __init__(self, now: int, load: Callable[[str], Bucket | None], together: Sequence[NewJob]) -> None:
        self._now = now
        self._load = load
        self._together = together  # jobs that are accepted all or not at all; none if each counts alone
        self._found: dict[str, Bucket] = {}
        self.taken: dict[str, Bucket] = {}

    def enter(self, queue: Queue, job: NewJob) -> None:
        """Take a token of each of its rates for a new job, or raise RateLimited."""
        left: dict[str, Bucket] = {}
        for rate in rates_of(queue, job.client):
            bucket = self.taken.get(rate.scope) or self._bucket(rate)
            if not rate.limit.tokens(bucket, self._now):
                raise self._refusal(rate, queue)
            left[rate.scope] = rate.limit.spent(bucket, 1, self._now)
        self.taken.update(left)

    def _bucket(self, rate: Rate) -> Bucket:
        if rate.scope not in self._found:
            self._found[rate.scope] = self._usable(rate.limit, self._load(rate.scope))
        return self._found[rate.scope]

    def _usable(self, limit: Limit, stored: Bucket | None) -> Bucket:
        # A refusal writes nothing, so a bucket of a time that is still to come does not fill. Where the clock
        # was set back further than it takes to fill it, nobody shall wait that long.
        if stored is None or stored.at > self._now + limit.most_at_once * limit.per_ms // (limit.rate or 1):
            return limit.full(self._now)
        return stored

    def _refusal(self, rate: Rate, queue: Queue) -> RateLimited:
        """What all of them take, and not only those up to this one, says when it is worth to ask again."""
        if not self._together:
            bucket = self.taken.get(rate.scope) or self._bucket(rate)
            return rate_limited(queue.name, rate.client, rate.limit, rate.limit.wait_ms(bucket, self._now))
        wanted = sum(
            job.queue == queue.name and rate.client in (None, job.client or "") for job in self._together
        )
        return rate_limited(
            queue.name, rate.client, rate.limit, wait_for(rate.limit, self._bucket(rate), wanted, self._now)
        )


def wait_for(limit: Limit, bucket: Bucket, jobs: int, now: int) -> int | None:
    """After how long so many jobs may come together; None if there are never so many tokens."""
    if jobs > limit.most_at_once:
        return None
    return limit.wait_ms(limit.spent(bucket, jobs - 1, now), now)


def rate_limited(queue: str, client: str | None, limit: Limit, wait_ms: int | None) -> RateLimited:
    """The error of a job that comes too soon; without a wait, of a batch that is too large."""
    whose = "" if client is None else f" of client {client!r}" if client else " of clients without a name"
    takes = f"{limit.rate} jobs a second{whose}, {limit.most_at_once} at once"
    return RateLimited(
        f"queue {queue} takes {takes}: {_advice(wait_ms)}",
        queue=queue,
        client=client,
        limit=limit.rate or 0,
        retry_after=None if wait_ms is None else wait_ms / 1_000,
    )


def queue_full(queue: str, limit: int, wait_ms: int | None) -> QueueFull:
    """The error of a job that has no room; `wait_ms` is when the pace of the queue promises some."""
    return QueueFull(
        f"queue {queue} is full: {limit} pending jobs are allowed",
        queue=queue,
        limit=limit,
        retry_after=None if wait_ms is None else wait_ms / 1_000,
    )


def room_after(
    pace: Callable[[], Pace], queue: str, now: int, *, length: int, limit: int, together: Sequence[NewJob]
) -> int | None:
    """After how long a queue of this length should have room for one job, or for all that come together and
    are to run now; None where nobody can tell, or where they are more than it ever takes."""
    wanted = max(1, sum(job.queue == queue and _counts_now(job, now) for job in together))
    return None if wanted > limit else pace().wait_ms(max(0, length - limit) + wanted)


def _counts_now(job: NewJob, now: int) -> bool:
    """Whether it needs room in its queue as it comes; one that waits for a time or for others does not."""
    return not job.depends_on and (now + job.delay_ms if job.run_at is None else job.run_at) <= now


def _advice(wait_ms: int | None) -> str:
    return "ask for fewer in one call" if wait_ms is None else f"try again in {wait_ms / 1_000:g} s"
