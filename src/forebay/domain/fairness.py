"""Fair shares: jobs of one queue that belong to several, such as tenants, are served by weighted turns.

A job says whose it is by a key of the kind "share". Jobs of a share wait behind a gate of their own, in the
order of their ranks, and a claim takes them from there. Whose is next says the share's turn, a point on an
axis of no unit: the lowest is next, and each job that is taken moves its share on by one step, which is
shorter the heavier the share is. So a backlog of any length holds up nobody else, and a share that has
nothing to run is known to nobody and owed nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heapreplace
from typing import Final

import msgspec

from forebay.domain.job import check_text
from forebay.errors import ConfigError, InvalidJob

FAIRNESS: Final = "share"
VIRTUAL_TIME_STEP: Final = 1_000_000  # of a share of weight 1
MAX_WEIGHT: Final = 1_000
MAX_WEIGHTS: Final = 1_000
# Before those of limits in the order of gates, and so before those that somebody passes by name.
_PREFIX: Final = "fair:"


def fairness_lane(key: str) -> str:
    """Behind this wait the jobs of a share; claims take them in the turns of shares."""
    return f"{_PREFIX}{key}"


def is_fairness_lane(lane: str) -> bool:
    return lane.startswith(_PREFIX)


def fairness_key_of(lane: str) -> str:
    """The share of a gate that `fairness_lane` has named."""
    return lane.removeprefix(_PREFIX)


def lane_for_keys(keys: Mapping[str, str]) -> str | None:
    """Where a job with these keys waits; None for one without a share, which stands in its queue's order."""
    share = keys.get(FAIRNESS)
    return None if share is None else fairness_lane(share)


def check_weights(weights: Mapping[str, int]) -> None:
    """Raise ConfigError unless these can be the weights of a queue's shares."""
    if len(weights) > MAX_WEIGHTS:
        raise ConfigError(f"fairness_weights has {len(weights):,} keys, the limit is {MAX_WEIGHTS:,}")
    for share, weight in weights.items():
        try:
            check_text("fairness_weights", share)
        except InvalidJob as exc:
            raise ConfigError(str(exc)) from exc
        if type(weight) is not int or not 1 <= weight <= MAX_WEIGHT:
            raise ConfigError(
                f"the weight of share {share} must be a whole number from 1 to {MAX_WEIGHT}, not {weight!r}"
            )


class FairnessKey(msgspec.Struct, frozen=True):
    """A share that has jobs waiting: its name, and where its turn is."""

    name: str
    virtual_time: int


def virtual_time_step(weights: Mapping[str, int], key: str) -> int:
    """How far one job moves the turn of a share."""
    return VIRTUAL_TIME_STEP // weights.get(key, 1)


def joining_virtual_time(weights: Mapping[str, int], key: str, first: int | None) -> int:
    """The turn of a share that has had nothing to run, when `first` is the lowest turn of the others.

    One step behind it, as if it had just been served: else one that never has more than one job at a time
    would always be next.
    """
    return (first or 0) + virtual_time_step(weights, key)


def resuming_virtual_time(weights: Mapping[str, int], key: str, resume: int, first: int | None) -> int:
    """Return the turn of a share that had no other jobs than some behind a limit, when it has one to run.

    `resume` is the turn that it had reached, `first` the lowest turn of the other shares. Without that
    memory a share whose jobs come from outside of the limit would take each place before it. A share that
    was held up is owed one step at most: else all others would pay for a long wait.
    """
    if first is None:
        return resume
    by = virtual_time_step(weights, key)
    return max(first - by, min(resume, first + by))


def allot(
    keys: Iterable[FairnessKey], weights: Mapping[str, int], room: int, available: Mapping[str, int]
) -> dict[str, int]:
    """How many jobs of each share are next when there is room for so many; some have no more than
    `available`."""
    turns = [(share.virtual_time, share.name) for share in keys]
    heapify(turns)
    given: Counter[str] = Counter()
    while room and turns:
        turn, share = turns[0]
        if given[share] == available.get(share, -1):
            heappop(turns)
            continue
        given[share] += 1
        room -= 1
        heapreplace(turns, (turn + virtual_time_step(weights, share), share))
    return {share: jobs for share, jobs in given.items() if jobs}


def interleave(
    keys: Iterable[FairnessKey], weights: Mapping[str, int], given: Mapping[str, int]
) -> list[tuple[str, int]]:
    """Whose job comes when, and the how manieth of its share it is, where these were given so many."""
    turns = [
        (share.virtual_time + nth * virtual_time_step(weights, share.name), share.name, nth)
        for share in keys
        for nth in range(given.get(share.name, 0))
    ]
    return [(share, nth) for _, share, nth in sorted(turns)]
