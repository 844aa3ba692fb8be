"""Weighted fair queueing: which jobs of fairness keys a claim takes, and which are unparked from a limit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from forebay.domain.fairness import FairnessKey, allot, interleave, virtual_time_step

H = TypeVar("H")


class FairClaim(ABC, Generic[H]):
    """Fairness keys of one queue during a claim. `H` is a job at the head of its lane."""

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._weights = weights
        self._exhausted: set[str] = set()  # keys with fewer jobs than they were allotted

    @abstractmethod
    def _load_keys(self, limit: int) -> list[FairnessKey]:
        """Load the keys with pending jobs, lowest virtual time first."""

    @abstractmethod
    def _load_candidates(self, counts: Mapping[str, int]) -> Mapping[str, Sequence[H]]:
        """Load the first jobs of these keys, so many of each; a key without jobs may be left out."""

    @abstractmethod
    def _remove_idle(self, keys: Sequence[str]) -> None:
        """Remove the keys among these that have no jobs to run. A key that comes back begins behind the
        first again, so nothing has to be remembered."""

    @abstractmethod
    def _advance(self, steps: Mapping[str, int]) -> None:
        """Advance the virtual times of keys."""

    def candidates(self, limit: int) -> list[tuple[str, H]]:
        """Return the next jobs with their keys, in the order of virtual time."""
        candidates: dict[str, Sequence[H]] = {}
        available: dict[str, int] = {}  # number of jobs of keys that have fewer than they were allotted
        keys = self._load_keys(limit)
        while True:
            allotted = allot(keys, self._weights, limit, available)
            missing = {key: jobs for key, jobs in allotted.items() if len(candidates.get(key, ())) < jobs}
            if not missing:
                return [
                    (key, candidates[key][index]) for key, index in interleave(keys, self._weights, allotted)
                ]
            loaded = self._load_candidates(missing)
            candidates.update((key, loaded.get(key, ())) for key in missing)
            # Other keys are allotted the jobs that one of them lacks.
            short = {key: len(candidates[key]) for key in missing if len(candidates[key]) < missing[key]}
            available.update(short)
            self._exhausted.update(short)
            if idle := [key for key in short if not candidates[key]]:
                self._remove_idle(idle)
            if short:
                keys = self._load_keys(limit + len(available))

    def record_claimed(self, jobs: Mapping[str, int]) -> None:
        """Record that so many jobs of each key were claimed, and advance their virtual times."""
        if jobs:
            self._advance({key: count * virtual_time_step(self._weights, key) for key, count in jobs.items()})
        # The virtual time of an exhausted key stayed behind while others were claimed. A new job of it would
        # be ahead of all of them by a whole claim.
        if exhausted := [key for key in jobs if key in self._exhausted]:
            self._remove_idle(exhausted)


class FairUnpark(FairClaim[H]):
    """Fairness keys with jobs parked at one limit of a queue. Each key has a lane there, with a virtual time
    of its own.

    A lane also stores the virtual time of its key in the queue (`resume`), while the key has no jobs outside
    of limit lanes.
    """

    @abstractmethod
    def _unpark(self, candidates: Sequence[tuple[str, H]]) -> None:
        """Move these jobs to the lanes of their keys, and add keys that have no virtual time."""

    def unpark(self, limit: int) -> int:
        """Unpark the next jobs, which then wait in the lanes of their keys; return their number."""
        candidates = self.candidates(limit)
        if candidates:
            jobs = Counter(key for key, _ in candidates)
            self._unpark(candidates)
            self.record_claimed(jobs)
            self._remove_idle(list(jobs))
        return len(candidates)
