"""Back-pressure: the error of a full queue, and the time until it has room again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from forebay.domain.job import NewJob
from forebay.domain.throughput import Throughput
from forebay.errors import QueueFull


def queue_full_error(queue: str, limit: int, wait_ms: int | None) -> QueueFull:
    """Return the error of a full queue; `wait_ms` is the expected time until it has room."""
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
    """Return the expected time until a queue of this length has room for one job, or for the due jobs of a
    batch. None if it is unknown, or if they are more than the queue ever takes."""
    wanted = max(1, sum(job.queue == queue and _counts_now(job, now) for job in batch))
    return None if wanted > limit else throughput().wait_ms(max(0, length - limit) + wanted)


def _counts_now(job: NewJob, now: int) -> bool:
    """Return whether a job needs room in its queue at once; one that is delayed or has parents does not."""
    return not job.depends_on and (now + job.delay_ms if job.run_at is None else job.run_at) <= now
