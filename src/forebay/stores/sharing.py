"""What a claim takes of shares, and which of their jobs come back from behind a limit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from forebay.domain.share import Share, allotted, in_turn, step

H = TypeVar("H")


class Turns(ABC, Generic[H]):
    """The shares of one queue while a claim takes from them. `H` is a job at the head of its gate."""

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._weights = weights
        self._short: set[str] = set()  # shares that had less than their part

    @abstractmethod
    def _shares(self, limit: int) -> list[Share]:
        """Those that have jobs waiting, the next first."""

    @abstractmethod
    def _look(self, wanted: Mapping[str, int]) -> Mapping[str, Sequence[H]]:
        """The first jobs of these shares, so many of each; of one that has none nothing need be said."""

    @abstractmethod
    def _leave(self, shares: Sequence[str]) -> None:
        """Forget those of these shares that have nothing to run. Whoever comes back begins behind the first
        again, so nothing has to be remembered."""

    @abstractmethod
    def _move(self, by: Mapping[str, int]) -> None:
        """Move the turns of shares."""

    def heads(self, most: int) -> list[tuple[str, H]]:
        """The next jobs of shares, each with its share, in the order of their turns."""
        found: dict[str, Sequence[H]] = {}
        has: dict[str, int] = {}  # what shares have that have less than their part
        shares = self._shares(most)
        while True:
            next_ones = allotted(shares, self._weights, most, has)
            wanted = {share: jobs for share, jobs in next_ones.items() if len(found.get(share, ())) < jobs}
            if not wanted:
                return [
                    (share, found[share][nth]) for share, nth in in_turn(shares, self._weights, next_ones)
                ]
            looked = self._look(wanted)
            found.update((share, looked.get(share, ())) for share in wanted)
            # What one of them lacks is for others to fill.
            short = {share: len(found[share]) for share in wanted if len(found[share]) < wanted[share]}
            has.update(short)
            self._short.update(short)
            if empty := [share for share in short if not found[share]]:
                self._leave(empty)
            if short:
                shares = self._shares(most + len(has))

    def took(self, jobs: Mapping[str, int]) -> None:
        """So many jobs of each share were claimed: others are next."""
        if jobs:
            self._move({share: count * step(self._weights, share) for share, count in jobs.items()})
        # While others filled up its turn stayed where it was. Whoever comes next would begin there, and be
        # ahead of all of them by a whole claim.
        if dry := [share for share in jobs if share in self._short]:
            self._leave(dry)


class Lanes(Turns[H]):
    """The shares with jobs behind one limit of a queue. Each share has a lane there, with a turn of its own.

    A lane also keeps `resume`, the turn of its share in the queue, for as long as the share has no jobs
    outside of lanes.
    """

    @abstractmethod
    def _put_back(self, heads: Sequence[tuple[str, H]]) -> None:
        """Move these jobs behind the gates of their shares, and give turns to shares that have none."""

    def bring_back(self, most: int) -> int:
        """Let the next jobs wait for the turns of their shares again; return the number of jobs."""
        heads = self.heads(most)
        if heads:
            jobs = Counter(share for share, _ in heads)
            self._put_back(heads)
            self.took(jobs)
            self._leave(list(jobs))
        return len(heads)
