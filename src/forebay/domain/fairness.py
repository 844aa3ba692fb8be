"""Weighted fair queueing: jobs of one queue with different owners, such as tenants, are served by weight.

A job names its owner by a limit key of the kind `FAIRNESS`. Jobs with a fairness key wait in a lane of that
key, in the order of their ranks, and claims take them from there. The key with the lowest virtual time is
served next. Each claimed job advances the virtual time of its key by one step, which is shorter the higher
the weight. So a backlog of one key delays no other key, and a key without pending jobs is not stored and
earns no credit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heapreplace
from typing import Final

import msgspec

from forebay.domain.job_validation import check_text
from forebay.errors import ConfigError, InvalidJob

FAIRNESS: Final = "fairness"
VIRTUAL_TIME_STEP: Final = 1_000_000  # of a key of weight 1
MAX_WEIGHT: Final = 1_000
MAX_WEIGHTS: Final = 1_000
# Sorts before the lanes of limits, and so before the lanes that claims accept by name.
_PREFIX: Final = "fairness:"


def fairness_lane(key: str) -> str:
    """Return the lane of a fairness key; claims take its jobs by virtual time."""
    return f"{_PREFIX}{key}"


def is_fairness_lane(lane: str) -> bool:
    return lane.startswith(_PREFIX)


def fairness_key_of(lane: str) -> str:
    """Return the fairness key of a lane of `fairness_lane`."""
    return lane.removeprefix(_PREFIX)


def lane_for_keys(keys: Mapping[str, str]) -> str | None:
    """Return the lane of a job with these limit keys; None without a fairness key: it waits in the main
    order."""
    key = keys.get(FAIRNESS)
    return None if key is None else fairness_lane(key)


def check_weights(weights: Mapping[str, int]) -> None:
    """Raise ConfigError unless these can be the fairness weights of a queue."""
    if len(weights) > MAX_WEIGHTS:
        raise ConfigError(f"fairness_weights has {len(weights):,} keys, the limit is {MAX_WEIGHTS:,}")
    for key, weight in weights.items():
        try:
            check_text("fairness_weights", key)
        except InvalidJob as exc:
            raise ConfigError(str(exc)) from exc
        if type(weight) is not int or not 1 <= weight <= MAX_WEIGHT:
            raise ConfigError(
                f"the weight of {key} must be a whole number from 1 to {MAX_WEIGHT}, not {weight!r}"
            )


class FairnessKey(msgspec.Struct, frozen=True):
    """Fairness key with pending jobs, and its virtual time."""

    name: str
    virtual_time: int


def virtual_time_step(weights: Mapping[str, int], key: str) -> int:
    """Return the step by which one job advances the virtual time of a key."""
    return VIRTUAL_TIME_STEP // weights.get(key, 1)


def joining_virtual_time(weights: Mapping[str, int], key: str, first: int | None) -> int:
    """Return the virtual time of a key that had no pending jobs; `first` is the lowest of the others.

    It is one step behind the first, as if the key had just been served. Else a key that never has more than
    one job would always be next.
    """
    return (first or 0) + virtual_time_step(weights, key)


def resuming_virtual_time(weights: Mapping[str, int], key: str, resume: int, first: int | None) -> int:
    """Return the virtual time of a key whose only jobs were parked at a limit, when it has another pending
    job.

    `resume` is its last virtual time, `first` the lowest of the other keys. Without that memory a key whose
    jobs come from outside of the limit would take each slot before it. A delayed key is owed one step at
    most: else all others would pay for a long wait.
    """
    if first is None:
        return resume
    step = virtual_time_step(weights, key)
    return max(first - step, min(resume, first + step))


def allot(
    keys: Iterable[FairnessKey], weights: Mapping[str, int], room: int, available: Mapping[str, int]
) -> dict[str, int]:
    """Return how many jobs of each key are next when there is room for so many; some keys have no more
    than `available`."""
    heap = [(key.virtual_time, key.name) for key in keys]
    heapify(heap)
    allotted: Counter[str] = Counter()
    while room and heap:
        virtual_time, key = heap[0]
        if allotted[key] == available.get(key, -1):
            heappop(heap)
            continue
        allotted[key] += 1
        room -= 1
        heapreplace(heap, (virtual_time + virtual_time_step(weights, key), key))
    return {key: jobs for key, jobs in allotted.items() if jobs}


def interleave(
    keys: Iterable[FairnessKey], weights: Mapping[str, int], given: Mapping[str, int]
) -> list[tuple[str, int]]:
    """Return the order of the allotted jobs: each key, with the index of its job."""
    order = [
        (key.virtual_time + index * virtual_time_step(weights, key.name), key.name, index)
        for key in keys
        for index in range(given.get(key.name, 0))
    ]
    return [(key, index) for _, key, index in sorted(order)]
