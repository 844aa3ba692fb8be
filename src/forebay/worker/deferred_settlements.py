"""Settlements that wait for another transaction, which holds rows that they need."""

from __future__ import annotations

from collections.abc import Collection
from math import inf
from typing import Final

from forebay.clock import Clock
from forebay.domain.lease import Lease
from forebay.domain.outcome import Outcome
from forebay.worker.assigned_job import Assignment
from forebay.worker.slots import Slots

EndedAttempts = list[tuple[Assignment, Outcome]]

FIRST_SECONDS: Final = 0.1
LONGEST_SECONDS: Final = 2.0
# Each of them has its lease renewed, so their number is bounded; the rest keep their executor slots.
MAX_WITHOUT_SLOT: Final = 100
# A locked row costs up to 2 s (`lock_timeout`) for each attempt to settle, and the coordinator waits.
MAX_OFFERED: Final = 10


class DeferredSettlements:
    """Ended attempts whose settlement needs rows that another transaction holds. Their leases are renewed.

    Their code has ended, so they give back their executor slots: a transaction may stay open for hours, and
    the worker must go on. At most a hundred do; the rest keep their slots.

    They are offered again by themselves, ten at a time, after a back-off that doubles up to two seconds. Sent
    together with other settlements, one of them would make each round trip of the worker fail first and be
    halved.
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
        """Number of those that are results of jobs that have run; the rest were handed back."""
        return sum(assignment.started_at is not None for assignment, _ in self._attempts)

    def due(self) -> EndedAttempts:
        """Return the ended attempts to offer again now. They stay here until `defer_busy` receives the
        answer."""
        return self._attempts[:MAX_OFFERED] if self._clock.monotonic() >= self.next_at else []

    def defer_busy(self, ended: EndedAttempts, busy: Collection[Lease]) -> EndedAttempts:
        """Keep those of the offered attempts that are still busy, and return the others."""
        offered = {assignment.lease for assignment, _ in ended}
        others = [end for end in self._attempts if end[0].lease not in offered]
        is_repeat = len(others) < len(self._attempts)
        still = [end for end in ended if end[0].lease in busy]
        for assignment, _ in still:
            assignment.conclude()  # also one that was handed back: no request to stop may reach it
            assignment.is_stuck = False  # as if it were settled: `ThreadHealth` counts threads, not leases
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
        ended = [assignment for assignment, _ in self._attempts if assignment.abandoned_at is None]
        room = MAX_WITHOUT_SLOT - sum(not assignment.slots_taken for assignment in ended)
        for assignment in [assignment for assignment in ended if assignment.slots_taken][: max(room, 0)]:
            self._slots.vacate(assignment)
