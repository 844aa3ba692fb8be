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

SHARE: Final = "share"
STEP: Final = 1_000_000  # of a share of weight 1
MAX_WEIGHT: Final = 1_000
MAX_WEIGHTS: Final = 1_000
# Before those of limits in the order of gates, and so before those that somebody passes by name.
_FAIR: Final = "fair:"


def fair_gate(share: str) -> str:
    """Behind this wait the jobs of a share; claims take them in the turns of shares."""
    return f"{_FAIR}{share}"


def is_fair_gate(gate: str) -> bool:
    return gate.startswith(_FAIR)


def share_behind(gate: str) -> str:
    """The share of a gate that `fair_gate` has named."""
    return gate.removeprefix(_FAIR)


def gate_of(keys: Mapping[str, str]) -> str | None:
    """Where a job with these keys waits; None for one without a share, which stands in its queue's order."""
    share = keys.get(SHARE)
    return None if share is None else fair_gate(share)


def check_weights(weights: Mapping[str, int]) -> None:
    """Raise ConfigError unless these can be the weights of a queue's shares."""
    if len(weights) > MAX_WEIGHTS:
        raise ConfigError(f"share_weights has {len(weights):,} shares, the limit is {MAX_WEIGHTS:,}")
    for share, weight in weights.items():
        try:
            check_text("share_weights", share)
        except InvalidJob as exc:
            raise ConfigError(str(exc)) from exc
        if type(weight) is not int or not 1 <= weight <= MAX_WEIGHT:
            raise ConfigError(
                f"the weight of share {share} must be a whole number from 1 to {MAX_WEIGHT}, not {weight!r}"
            )


class Share(msgspec.Struct, frozen=True):
    """A share that has jobs waiting: its name, and where its turn is."""

    name: str
    turn: int


def step(weights: Mapping[str, int], share: str) -> int:
    """How far one job moves the turn of a share."""
    return STEP // weights.get(share, 1)


def joining(weights: Mapping[str, int], share: str, first: int | None) -> int:
    """The turn of a share that has had nothing to run, when `first` is the lowest turn of the others.

    One step behind it, as if it had just been served: else one that never has more than one job at a time
    would always be next.
    """
    return (first or 0) + step(weights, share)


def resuming(weights: Mapping[str, int], share: str, resume: int, first: int | None) -> int:
    """Return the turn of a share that had no other jobs than some behind a limit, when it has one to run.

    `resume` is the turn that it had reached, `first` the lowest turn of the other shares. Without that
    memory a share whose jobs come from outside of the limit would take each place before it. A share that
    was held up is owed one step at most: else all others would pay for a long wait.
    """
    if first is None:
        return resume
    by = step(weights, share)
    return max(first - by, min(resume, first + by))


def allotted(
    shares: Iterable[Share], weights: Mapping[str, int], room: int, most: Mapping[str, int]
) -> dict[str, int]:
    """How many jobs of each share are next when there is room for so many; some have no more than `most`."""
    turns = [(share.turn, share.name) for share in shares]
    heapify(turns)
    given: Counter[str] = Counter()
    while room and turns:
        turn, share = turns[0]
        if given[share] == most.get(share, -1):
            heappop(turns)
            continue
        given[share] += 1
        room -= 1
        heapreplace(turns, (turn + step(weights, share), share))
    return {share: jobs for share, jobs in given.items() if jobs}


def in_turn(
    shares: Iterable[Share], weights: Mapping[str, int], given: Mapping[str, int]
) -> list[tuple[str, int]]:
    """Whose job comes when, and the how manieth of its share it is, where these were given so many."""
    turns = [
        (share.turn + nth * step(weights, share.name), share.name, nth)
        for share in shares
        for nth in range(given.get(share.name, 0))
    ]
    return [(share, nth) for _, share, nth in sorted(turns)]
