"""Settlements that wait for the end of another transaction, which holds what they need."""

from __future__ import annotations

from collections.abc import Collection
from math import inf
from typing import Final

from forebay.clock import Clock
from forebay.domain.lease import Lease
from forebay.domain.outcome import Outcome
from forebay.worker.slots import Assignment, Slots

EndedAttempts = list[tuple[Assignment, Outcome]]

FIRST_SECONDS: Final = 0.1
LONGEST_SECONDS: Final = 2.0
# The lease of each one is renewed, so their number is bounded; the rest keep their executor slots.
MAX_WITHOUT_SLOT: Final = 100
# A locked row costs up to 2 s (`lock_timeout`) for each attempt to settle, and the coordinator waits.
MAX_OFFERED: Final = 10


class DeferredSettlements:
    """Endings whose settlement needs what another transaction holds. Their leases are renewed.

    Their code has ended, so they give back their executor slots: a transaction may stay open for hours, and
    the worker must go on. At most a hundred do; the rest keep their slots.

    They are offered again by themselves, ten at a time, after a pause that doubles up to two seconds. Beside
    other settlements, one of them would make each exchange of the worker fail first and be halved.
    """

    def __init__(self, slots: Slots, clock: Clock) -> None:
        self._slots = slots
        self._clock = clock
        self._attempts: EndedAttempts = []
        self._seconds = FIRST_SECONDS
        self.next_at: float = inf

    def __len__(self) -> int:
        return len(self._attempts)

    @property
    def unwritten(self) -> int:
        """How many of them are results of jobs that have run; the rest were handed back."""
        return sum(one.started_at is not None for one, _ in self._attempts)

    def due(self) -> EndedAttempts:
        """Return the endings to offer again now. They stay here until `keep` receives the answer."""
        return self._attempts[:MAX_OFFERED] if self._clock.monotonic() >= self.next_at else []

    def defer_busy(self, ended: EndedAttempts, busy: Collection[Lease]) -> EndedAttempts:
        """Take note of an answer about these: keep those that are still busy, and return the others."""
        ours = {one.lease for one, _ in ended}
        others = [end for end in self._attempts if end[0].lease not in ours]
        is_repeat = len(others) < len(self._attempts)
        still = [end for end in ended if end[0].lease in busy]
        for one, _ in still:
            one.conclude()  # also one that was handed back: no request to stop may reach it
            one.is_stuck = False  # as if it were settled: `ThreadHealth` counts threads, not leases
        self._attempts = others + still  # to the back, so that all take turns
        if still:
            self._seconds = min(LONGEST_SECONDS, self._seconds * 2) if is_repeat else FIRST_SECONDS
            self.next_at = self._clock.monotonic() + self._seconds
        elif not self._attempts:
            self.next_at = inf
        self._vacate()
        return [end for end in ended if end[0].lease not in busy]

    def _vacate(self) -> None:
        """Give back executor slots. An abandoned attempt keeps its own: its code still runs."""
        ended = [one for one, _ in self._attempts if one.abandoned_at is None]
        room = MAX_WITHOUT_SLOT - sum(not one.slots_taken for one in ended)
        for one in [one for one in ended if one.slots_taken][: max(room, 0)]:
            self._slots.vacate(one)
