"""Shares: whose turn it is, in a queue and behind a limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from forebay.domain.fairness import (
    FairnessKey,
    fairness_key_of,
    fairness_lane,
    is_fairness_lane,
    joining_virtual_time,
    virtual_time_step,
)
from forebay.domain.job import QueueName
from forebay.domain.lane import limit_fairness_lane
from forebay.domain.lifecycle import JobState
from forebay.domain.queue import Queue
from forebay.stores.memory.job_heap import StoredJob, is_in_time
from forebay.stores.memory.state import State
from forebay.stores.shared.fairness import FairUnpark


def next_lanes(state: State, queue: Queue) -> list[str]:
    """The gate of the share that is next, if one has something to run; others are forgotten."""
    waiting = sorted(
        (turn, share) for (name, share), turn in state.fairness_keys.items() if name == queue.name
    )
    for _, share in waiting:
        gate = fairness_lane(share)
        orders = [state.ready_heap(queue.name, capped, gate) for capped in (False, True)]
        if any(order.first(lambda record: is_in_time(record.job, state.now)) for order in orders):
            return [gate]
        if not any(order.first() for order in orders):
            _remove_idle(state, queue.name, share)
    return []


def _remove_idle(state: State, queue: QueueName, key: str) -> None:
    """Forget a share that has nothing to run. Its lanes behind limits keep its turn."""
    for lane, (turn, _) in list(state.limit_fairness_keys.items()):
        if (lane[0], lane[2]) == (queue, key):
            state.write(state.limit_fairness_keys, lane, (turn, state.fairness_keys[queue, key]))
    state.write(state.fairness_keys, (queue, key), None)


def record_claimed(state: State, queue: Queue, lane: str | None) -> None:
    """A job was taken from behind this gate: if it was one of a share, others are next."""
    if lane is not None and is_fairness_lane(lane):
        key = queue.name, fairness_key_of(lane)
        by = virtual_time_step(queue.settings.fairness_weights, key[1])
        state.write(state.fairness_keys, key, state.fairness_keys[key] + by)


def join_limit_lane(state: State, queue: QueueName, scope: str, key: str) -> None:
    """A job of this share waits at the limit of a scope."""
    if (queue, scope, key) not in state.limit_fairness_keys:
        turns = [turn for lane, (turn, _) in state.limit_fairness_keys.items() if lane[:2] == (queue, scope)]
        weights = state.queues[queue].settings.fairness_weights
        turn = joining_virtual_time(weights, key, min(turns, default=None))
        state.write(state.limit_fairness_keys, (queue, scope, key), (turn, state.fairness_keys[queue, key]))


def jobs_in_lane(state: State, queue: QueueName, lane: str) -> list[StoredJob]:
    """The jobs behind the gate of a limit, in their order."""
    waiting = [
        record for record in state.jobs_in_states(queue, [JobState.PENDING]) if record.job.lane == lane
    ]
    return sorted(waiting, key=lambda record: (record.job.age_capped, record.job.rank, record.job.seq))


class MemoryFairUnpark(FairUnpark[StoredJob]):
    """The shares with jobs behind one limit of a queue."""

    def __init__(self, state: State, queue: QueueName, scope: str) -> None:
        super().__init__(state.queues[queue].settings.fairness_weights if queue in state.queues else {})
        self._state = state
        self._queue = queue
        self._scope = scope

    def _load_keys(self, limit: int) -> list[FairnessKey]:
        lanes = self._state.limit_fairness_keys.items()
        found = [
            FairnessKey(lane[2], turn) for lane, (turn, _) in lanes if lane[:2] == (self._queue, self._scope)
        ]
        return sorted(found, key=lambda share: (share.virtual_time, share.name))[:limit]

    def _load_candidates(self, counts: Mapping[str, int]) -> Mapping[str, Sequence[StoredJob]]:
        return {share: self._jobs_of_key(share)[:jobs] for share, jobs in counts.items()}

    def _jobs_of_key(self, key: str) -> list[StoredJob]:
        return jobs_in_lane(self._state, self._queue, limit_fairness_lane(self._scope, key))

    def _remove_idle(self, keys: Sequence[str]) -> None:
        for share in keys:
            if not self._jobs_of_key(share):
                self._state.write(self._state.limit_fairness_keys, (self._queue, self._scope, share), None)

    def _unpark(self, candidates: Sequence[tuple[str, StoredJob]]) -> None:
        for share, record in candidates:
            job = replace(record.job, lane=fairness_lane(share), updated_at=self._state.now)
            self._state.put(record._replace(job=job))
            self._state.join_fairness(self._queue, share)

    def _advance(self, steps: Mapping[str, int]) -> None:
        for share, change in steps.items():
            key = self._queue, self._scope, share
            turn, resume = self._state.limit_fairness_keys[key]
            self._state.write(self._state.limit_fairness_keys, key, (turn + change, resume))
