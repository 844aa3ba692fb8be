"""How limits stand: what each of them lets through, which jobs wait for it, and which workers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import msgspec

from forebay.domain.job import QueueName, WorkerId
from forebay.domain.lane import is_limit_lane, limit_scope_of
from forebay.domain.limits import GLOBAL, Limit, LimitUsage, limit_scope
from forebay.domain.query import Counts, LaneCount
from forebay.domain.worker import HeartbeatStatus, WorkerInfo
from forebay.stores.contract.reader import Reader

JobsByQueue = Mapping[QueueName, int]
LimitState = Literal["open", "at_limit", "out_of_tokens"]


class LimitStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A limit with its usage: so many jobs wait because of it alone or among others, and these workers could
    claim some of them and do not."""

    usage: LimitUsage
    waiting: int = 0
    waiting_workers: tuple[WorkerId, ...] = ()

    @property
    def state(self) -> LimitState:
        """`at_limit` while as many jobs run as may, `out_of_tokens` while the rate has no token, else `open`.

        A limit by key is `at_limit` while jobs of some value wait."""
        if self.usage.is_at_limit or (self.usage.limit.kind is not None and self.waiting):
            return "at_limit"
        return "out_of_tokens" if self.usage.is_out_of_tokens else "open"


def limit_statuses(reader: Reader) -> list[LimitStatus]:
    """How all limits stand, by scope."""
    usages = reader.limit_usages()
    if not usages:
        return []
    behind = _count_waiting_by_scope(reader.lanes())
    pending, now = reader.counts(), reader.now()
    able = [one for one in reader.workers() if one.heartbeat_status(now) is not HeartbeatStatus.DEAD]
    return [_build_status(usage, _waiting_for(usage, behind, pending), able) for usage in usages]


def _build_status(usage: LimitUsage, by_queue: JobsByQueue, workers: Sequence[WorkerInfo]) -> LimitStatus:
    throttled = tuple(one.id for one in workers if _claims_from(one, by_queue))
    return LimitStatus(usage=usage, waiting=sum(by_queue.values()), waiting_workers=throttled)


def _claims_from(worker: WorkerInfo, queues: Collection[QueueName]) -> bool:
    return any(queue in queues and queue not in worker.paused for queue in worker.queues)


def _count_waiting_by_scope(lanes: Sequence[LaneCount]) -> Mapping[str, JobsByQueue]:
    """How many jobs wait behind the gates of each limit of a task or a key, by queue."""
    found: defaultdict[str, defaultdict[QueueName, int]] = defaultdict(lambda: defaultdict(int))
    for one in lanes:
        if is_limit_lane(one.lane):
            found[limit_scope(limit_scope_of(one.lane))][one.queue] += one.jobs
    return found


def _waiting_for(
    usage: LimitUsage, by_scope: Mapping[str, JobsByQueue], counts: Mapping[QueueName, Counts]
) -> JobsByQueue:
    """The jobs that wait for a limit, by queue. Where it is for whole queues they stay in the order."""
    limit = usage.limit
    if limit.is_narrow:
        return by_scope.get(limit.scope, {})
    if not (usage.is_at_limit or usage.is_out_of_tokens):
        return {}
    return {queue: one.pending for queue, one in counts.items() if one.pending and _applies_to(limit, queue)}


def _applies_to(limit: Limit, queue: QueueName) -> bool:
    return limit.scope == GLOBAL or limit.queue == queue
