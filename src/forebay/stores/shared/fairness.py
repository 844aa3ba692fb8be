"""What a claim takes of shares, and which of their jobs come back from behind a limit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from forebay.domain.fairness import FairnessKey, allot, interleave, virtual_time_step

H = TypeVar("H")


class FairClaim(ABC, Generic[H]):
    """The shares of one queue while a claim takes from them. `H` is a job at the head of its gate."""

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._weights = weights
        self._exhausted: set[str] = set()  # shares that had less than their part

    @abstractmethod
    def _load_keys(self, limit: int) -> list[FairnessKey]:
        """Those that have jobs waiting, the next first."""

    @abstractmethod
    def _load_candidates(self, counts: Mapping[str, int]) -> Mapping[str, Sequence[H]]:
        """The first jobs of these shares, so many of each; of one that has none nothing need be said."""

    @abstractmethod
    def _remove_idle(self, keys: Sequence[str]) -> None:
        """Forget those of these shares that have nothing to run. Whoever comes back begins behind the first
        again, so nothing has to be remembered."""

    @abstractmethod
    def _advance(self, steps: Mapping[str, int]) -> None:
        """Move the turns of shares."""

    def candidates(self, limit: int) -> list[tuple[str, H]]:
        """The next jobs of shares, each with its share, in the order of their turns."""
        found: dict[str, Sequence[H]] = {}
        has: dict[str, int] = {}  # what shares have that have less than their part
        shares = self._load_keys(limit)
        while True:
            next_ones = allot(shares, self._weights, limit, has)
            wanted = {share: jobs for share, jobs in next_ones.items() if len(found.get(share, ())) < jobs}
            if not wanted:
                return [
                    (share, found[share][nth]) for share, nth in interleave(shares, self._weights, next_ones)
                ]
            looked = self._load_candidates(wanted)
            found.update((share, looked.get(share, ())) for share in wanted)
            # What one of them lacks is for others to fill.
            short = {share: len(found[share]) for share in wanted if len(found[share]) < wanted[share]}
            has.update(short)
            self._exhausted.update(short)
            if empty := [share for share in short if not found[share]]:
                self._remove_idle(empty)
            if short:
                shares = self._load_keys(limit + len(has))

    def record_claimed(self, jobs: Mapping[str, int]) -> None:
        """So many jobs of each share were claimed: others are next."""
        if jobs:
            self._advance(
                {share: count * virtual_time_step(self._weights, share) for share, count in jobs.items()}
            )
        # While others filled up its turn stayed where it was. Whoever comes next would begin there, and be
        # ahead of all of them by a whole claim.
        if dry := [share for share in jobs if share in self._exhausted]:
            self._remove_idle(dry)


class FairUnpark(FairClaim[H]):
    """The shares with jobs behind one limit of a queue. Each share has a lane there, with a turn of its own.

    A lane also keeps `resume`, the turn of its share in the queue, for as long as the share has no jobs
    outside of lanes.
    """

    @abstractmethod
    def _unpark(self, candidates: Sequence[tuple[str, H]]) -> None:
        """Move these jobs behind the gates of their shares, and give turns to shares that have none."""

    def unpark(self, limit: int) -> int:
        """Let the next jobs wait for the turns of their shares again; return the number of jobs."""
        heads = self.candidates(limit)
        if heads:
            jobs = Counter(share for share, _ in heads)
            self._unpark(heads)
            self.record_claimed(jobs)
            self._remove_idle(list(jobs))
        return len(heads)
