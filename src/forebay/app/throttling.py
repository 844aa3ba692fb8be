"""How limits stand: what each of them lets through, which jobs wait for it, and which workers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import msgspec

from forebay.domain.gate import is_limit_gate, scope_behind
from forebay.domain.job import QueueName, WorkerId
from forebay.domain.limits import GLOBAL, Limit, Usage, limit_scope
from forebay.domain.query import Counts, HeldJobs
from forebay.domain.worker import Pulse, WorkerInfo
from forebay.stores.protocol import Reader

By = Mapping[QueueName, int]
LimitState = Literal["open", "busy", "spent"]


class Throttle(msgspec.Struct, frozen=True, kw_only=True):
    """A limit with its usage: so many jobs wait because of it alone or among others, and these workers could
    claim some of them and do not."""

    usage: Usage
    waiting: int = 0
    throttled: tuple[WorkerId, ...] = ()

    @property
    def state(self) -> LimitState:
        """`busy` while as many run as may, `spent` while its rate has no token; of a limit by key `busy`
        while jobs of some value wait. Else `open`."""
        if self.usage.is_busy or (self.usage.limit.kind is not None and self.waiting):
            return "busy"
        return "spent" if self.usage.is_spent else "open"


def throttles(reader: Reader) -> list[Throttle]:
    """How all limits stand, by scope."""
    usages = reader.usages()
    if not usages:
        return []
    behind = _behind(reader.held())
    pending, now = reader.counts(), reader.now()
    able = [one for one in reader.workers() if one.pulse(now) is not Pulse.DEAD]
    return [_throttle(usage, _waiting(usage, behind, pending), able) for usage in usages]


def _throttle(usage: Usage, waiting: By, workers: Sequence[WorkerInfo]) -> Throttle:
    throttled = tuple(one.id for one in workers if _claims_from(one, waiting))
    return Throttle(usage=usage, waiting=sum(waiting.values()), throttled=throttled)


def _claims_from(worker: WorkerInfo, queues: Collection[QueueName]) -> bool:
    return any(queue in queues and queue not in worker.paused for queue in worker.queues)


def _behind(held: Sequence[HeldJobs]) -> Mapping[str, By]:
    """How many jobs wait behind the gates of each limit of a task or a key, by queue."""
    found: defaultdict[str, defaultdict[QueueName, int]] = defaultdict(lambda: defaultdict(int))
    for one in held:
        if is_limit_gate(one.gate):
            found[limit_scope(scope_behind(one.gate))][one.queue] += one.jobs
    return found


def _waiting(usage: Usage, behind: Mapping[str, By], counts: Mapping[QueueName, Counts]) -> By:
    """The jobs that wait for a limit, by queue. Where it is for whole queues they stay in the order."""
    limit = usage.limit
    if limit.is_narrow:
        return behind.get(limit.scope, {})
    if not (usage.is_busy or usage.is_spent):
        return {}
    return {queue: one.pending for queue, one in counts.items() if one.pending and _is_for(limit, queue)}


def _is_for(limit: Limit, queue: QueueName) -> bool:
    return limit.scope == GLOBAL or limit.queue == queue
