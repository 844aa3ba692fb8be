"""Which calls of a simulated store go wrong, by chance."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Final

from forebay.testing.fault_injection import Fault

FAULTS: Final = tuple(Fault)
# How much likelier a fault is at calls that are few: so each goes wrong in every way in some thousand runs.
# A sweeper holds back for a while after each fault, and operators do one thing or another now and then.
RARE: Final = dict.fromkeys(
    (
        "sweep",
        "prune",
        "remove_worker",
        "cancel",
        "revive",
        "delete",
        "update_job",
        "save_queue",
        "drop_queue",
    ),
    10.0,
)


class Faults:
    """Chooses which calls go wrong, and counts them by operation."""

    def __init__(self, dice: Random, share: float) -> None:
        self._dice = dice
        self._share = share
        self.is_away = False  # an outage: no call reaches the store
        self.is_over = False
        self.counts: Counter[tuple[str, Fault]] = Counter()
        self.calls = 0

    def next(self, operation: str, *, is_process: bool) -> Fault | None:
        """The fault for this call, if it has one. Only a process can be killed."""
        self.calls += 1
        if self.is_over:
            return None
        if self.is_away:
            fault = Fault.AWAY
        elif self._dice.random() < self._share * RARE.get(operation, 1.0):
            fault = self._dice.choice(FAULTS if is_process else (Fault.AWAY, Fault.BUSY, Fault.LOST))
        else:
            return None
        self.counts[operation, fault] += 1
        return fault
