"""Fairness keys: which is served next, in a queue and at a limit."""

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
from forebay.domain.job_states import JobState
from forebay.domain.lane import limit_fairness_lane
from forebay.domain.queue import Queue
from forebay.stores.memory.job_heap import StoredJob, is_in_time
from forebay.stores.memory.state import State
from forebay.stores.shared.fairness import FairUnpark


def next_lanes(state: State, queue: Queue) -> list[str]:
    """Return the lane of the fairness key that is next, if one has a job to run. Remove keys without jobs."""
    waiting = sorted(
        (virtual_time, key) for (name, key), virtual_time in state.fairness_keys.items() if name == queue.name
    )
    for _, key in waiting:
        lane = fairness_lane(key)
        heaps = [state.ready_heap(queue.name, capped, lane) for capped in (False, True)]
        if any(heap.first(lambda record: is_in_time(record.job, state.now)) for heap in heaps):
            return [lane]
        if not any(heap.first() for heap in heaps):
            _remove_idle(state, queue.name, key)
    return []


def _remove_idle(state: State, queue: QueueName, key: str) -> None:
    """Remove a fairness key without pending jobs. Its lanes at limits keep its virtual time."""
    for lane, (virtual_time, _) in list(state.limit_fairness_keys.items()):
        if (lane[0], lane[2]) == (queue, key):
            state.write(state.limit_fairness_keys, lane, (virtual_time, state.fairness_keys[queue, key]))
    state.write(state.fairness_keys, (queue, key), None)


def record_claimed(state: State, queue: Queue, lane: str | None) -> None:
    """Advance the virtual time of the fairness key whose lane this is, if it is one: a job was claimed."""
    if lane is not None and is_fairness_lane(lane):
        key = queue.name, fairness_key_of(lane)
        step = virtual_time_step(queue.settings.fairness_weights, key[1])
        state.write(state.fairness_keys, key, state.fairness_keys[key] + step)


def join_limit_lane(state: State, queue: QueueName, scope: str, key: str) -> None:
    """Add the lane of this fairness key at the limit of a scope."""
    if (queue, scope, key) not in state.limit_fairness_keys:
        virtual_times = [
            virtual_time
            for lane, (virtual_time, _) in state.limit_fairness_keys.items()
            if lane[:2] == (queue, scope)
        ]
        weights = state.queues[queue].settings.fairness_weights
        virtual_time = joining_virtual_time(weights, key, min(virtual_times, default=None))
        state.write(
            state.limit_fairness_keys, (queue, scope, key), (virtual_time, state.fairness_keys[queue, key])
        )


def jobs_in_lane(state: State, queue: QueueName, lane: str) -> list[StoredJob]:
    """Return the jobs in the lane of a limit, in their order."""
    parked = [record for record in state.jobs_in_states(queue, [JobState.PENDING]) if record.job.lane == lane]
    return sorted(parked, key=lambda record: (record.job.age_capped, record.job.rank, record.job.seq))


class MemoryFairUnpark(FairUnpark[StoredJob]):
    """Fairness keys with jobs parked at one limit of a queue."""

    def __init__(self, state: State, queue: QueueName, scope: str) -> None:
        super().__init__(state.queues[queue].settings.fairness_weights if queue in state.queues else {})
        self._state = state
        self._queue = queue
        self._scope = scope

    def _load_keys(self, limit: int) -> list[FairnessKey]:
        lanes = self._state.limit_fairness_keys.items()
        keys = [
            FairnessKey(lane[2], virtual_time)
            for lane, (virtual_time, _) in lanes
            if lane[:2] == (self._queue, self._scope)
        ]
        return sorted(keys, key=lambda key: (key.virtual_time, key.name))[:limit]

    def _load_candidates(self, counts: Mapping[str, int]) -> Mapping[str, Sequence[StoredJob]]:
        return {key: self._jobs_of_key(key)[:jobs] for key, jobs in counts.items()}

    def _jobs_of_key(self, key: str) -> list[StoredJob]:
        return jobs_in_lane(self._state, self._queue, limit_fairness_lane(self._scope, key))

    def _remove_idle(self, keys: Sequence[str]) -> None:
        for key in keys:
            if not self._jobs_of_key(key):
                self._state.write(self._state.limit_fairness_keys, (self._queue, self._scope, key), None)

    def _unpark(self, candidates: Sequence[tuple[str, StoredJob]]) -> None:
        for key, record in candidates:
            job = replace(record.job, lane=fairness_lane(key), updated_at=self._state.now)
            self._state.put(record._replace(job=job))
            self._state.join_fairness(self._queue, key)

    def _advance(self, steps: Mapping[str, int]) -> None:
        for fairness_key, change in steps.items():
            key = self._queue, self._scope, fairness_key
            virtual_time, resume = self._state.limit_fairness_keys[key]
            self._state.write(self._state.limit_fairness_keys, key, (virtual_time + change, resume))
