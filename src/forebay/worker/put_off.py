"""Settlements that wait for the end of another transaction, which holds what they need."""

from __future__ import annotations

from collections.abc import Collection
from math import inf
from typing import Final

from forebay.clock import Clock
from forebay.domain.lease import Lease
from forebay.domain.outcome import Outcome
from forebay.worker.slots import Assignment

Endings = list[tuple[Assignment, Outcome]]

FIRST_SECONDS: Final = 0.1
LONGEST_SECONDS: Final = 2.0


class PutOff:
    """Endings whose settlement needs what another transaction holds. They keep their slots, so their leases
    are renewed.

    They are offered again by themselves, after a pause that doubles up to two seconds. Beside other
    settlements, one of them would make each exchange of the worker fail first and be halved.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._endings: Endings = []
        self._seconds = FIRST_SECONDS
        self.next_at: float = inf

    def __len__(self) -> int:
        return len(self._endings)

    def due(self) -> Endings:
        """Return what shall be offered again now. It stays here until `keep` is told what came of it."""
        return list(self._endings) if self._clock.monotonic() >= self.next_at else []

    def keep(self, endings: Endings, busy: Collection[Lease]) -> Endings:
        """Take note of an answer about these: keep those that are still busy, and return the others."""
        ours = {one.lease for one, _ in endings}
        others = [end for end in self._endings if end[0].lease not in ours]
        had_others = len(others) < len(self._endings)
        still = [end for end in endings if end[0].lease in busy]
        self._endings = others + still
        if still:
            self._seconds = min(LONGEST_SECONDS, self._seconds * 2) if had_others else FIRST_SECONDS
            self.next_at = self._clock.monotonic() + self._seconds
        elif not self._endings:
            self.next_at = inf
        return [end for end in endings if end[0].lease not in busy]
