"""Status of limits: free slots and tokens, waiting jobs, waiting workers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import msgspec

from forebay.domain.concurrency_and_rate_limits import GLOBAL, Limit, LimitUsage, limit_scope
from forebay.domain.job import QueueName, WorkerId
from forebay.domain.lane import is_limit_lane, limit_scope_of
from forebay.domain.queue_counts import Counts, LaneCount
from forebay.domain.worker import HeartbeatStatus, WorkerInfo
from forebay.stores.contract.reader import Reader

JobsByQueue = Mapping[QueueName, int]
LimitState = Literal["open", "at_limit", "out_of_tokens"]


class LimitStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A limit with its usage. `waiting` jobs are held back by it, perhaps by other limits too. The waiting
    workers could claim some of them otherwise."""

    usage: LimitUsage
    waiting: int = 0
    waiting_workers: tuple[WorkerId, ...] = ()

    @property
    def state(self) -> LimitState:
        """`at_limit` while no slot is free, `out_of_tokens` while the rate has no token, else `open`.

        A limit by key is `at_limit` while jobs of some value wait.
        """
        if self.usage.is_at_limit or (self.usage.limit.kind is not None and self.waiting):
            return "at_limit"
        return "out_of_tokens" if self.usage.is_out_of_tokens else "open"


def limit_statuses(reader: Reader) -> list[LimitStatus]:
    """Return the status of all limits, by scope."""
    usages = reader.limit_usages()
    if not usages:
        return []
    in_lanes = _count_waiting_by_scope(reader.lanes())
    pending, now = reader.counts(), reader.now()
    live = [worker for worker in reader.workers() if worker.heartbeat_status(now) is not HeartbeatStatus.DEAD]
    return [_build_status(usage, _waiting_for(usage, in_lanes, pending), live) for usage in usages]


def _build_status(usage: LimitUsage, by_queue: JobsByQueue, workers: Sequence[WorkerInfo]) -> LimitStatus:
    waiting_workers = tuple(worker.id for worker in workers if _claims_from(worker, by_queue))
    return LimitStatus(usage=usage, waiting=sum(by_queue.values()), waiting_workers=waiting_workers)


def _claims_from(worker: WorkerInfo, queues: Collection[QueueName]) -> bool:
    return any(queue in queues and queue not in worker.paused for queue in worker.queues)


def _count_waiting_by_scope(lanes: Sequence[LaneCount]) -> Mapping[str, JobsByQueue]:
    """Return the number of jobs in the lanes of each limit of a task or a key, by queue."""
    counts: defaultdict[str, defaultdict[QueueName, int]] = defaultdict(lambda: defaultdict(int))
    for lane in lanes:
        if is_limit_lane(lane.lane):
            counts[limit_scope(limit_scope_of(lane.lane))][lane.queue] += lane.jobs
    return counts


def _waiting_for(
    usage: LimitUsage, by_scope: Mapping[str, JobsByQueue], counts: Mapping[QueueName, Counts]
) -> JobsByQueue:
    """Return the jobs that wait for a limit, by queue. A limit of whole queues has no lane: all pending jobs
    wait."""
    limit = usage.limit
    if limit.is_narrow:
        return by_scope.get(limit.scope, {})
    if not (usage.is_at_limit or usage.is_out_of_tokens):
        return {}
    return {
        queue: count.pending for queue, count in counts.items() if count.pending and _applies_to(limit, queue)
    }


def _applies_to(limit: Limit, queue: QueueName) -> bool:
    return limit.scope == GLOBAL or limit.queue == queue
