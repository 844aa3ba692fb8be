"""Queues with jobs that no worker will claim."""

from __future__ import annotations

from typing import Final, NamedTuple

from forebay.domain.job import Job, QueueName
from forebay.domain.job_states import JobState
from forebay.domain.queue import QueueState
from forebay.domain.worker import HeartbeatStatus
from forebay.stores.contract.reader import Reader

# Programs of one deployment start one after the other: a shorter wait is no reason for a warning.
MIN_WAIT_MS: Final = 30_000
_CLAIMABLE_STATES: Final = (QueueState.ACTIVE, QueueState.DRAINING)
_WAITING_STATES: Final = (JobState.PENDING, JobState.SCHEDULED, JobState.RETRYING)


class UnservedQueue(NamedTuple):
    """A queue that no live worker serves, and the number of its pending jobs."""

    name: QueueName
    pending: int


def unserved_queues(reader: Reader, min_wait_ms: int = MIN_WAIT_MS) -> list[UnservedQueue]:
    """Return the queues whose next job has waited for `min_wait_ms` while no live worker serves them.

    Consumers are in no list of workers: a queue with running jobs counts as served.
    """
    counts = reader.counts()
    waiting = {name: count.pending for name, count in counts.items() if count.pending and not count.running}
    names = sorted(set(waiting) - _served_queues(reader)) if waiting else []
    if not names:
        return []
    now = reader.now()
    return [
        UnservedQueue(queue.name, waiting[queue.name])
        for queue in reader.queues(names)
        if queue.state in _CLAIMABLE_STATES and _has_waited(reader, queue.name, now - min_wait_ms)
    ]


def waiting_reason(reader: Reader, job: Job) -> str | None:
    """Return why a waiting job is not claimed, if its queue is the reason."""
    if job.state not in _WAITING_STATES:
        return None
    if any(queue.state is QueueState.PAUSED for queue in reader.queues([job.queue])):
        return f"queue {job.queue} is paused"
    counts = reader.counts([job.queue]).get(job.queue)
    if (counts is not None and counts.running) or job.queue in _served_queues(reader):
        return None
    return f"no worker serves queue {job.queue}"


def _served_queues(reader: Reader) -> set[QueueName]:
    now = reader.now()
    workers = (
        worker for worker in reader.workers() if worker.heartbeat_status(now) is not HeartbeatStatus.DEAD
    )
    return {name for worker in workers for name in worker.queues}


def _has_waited(reader: Reader, name: QueueName, since: int) -> bool:
    return any(max(job.created_at, job.run_at) <= since for job in reader.peek(name, 1))
