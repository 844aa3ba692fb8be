"""Faults at the seam between a program and its store, and what a simulated store call leaves behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from random import Random
from typing import Any, Final

from forebay.errors import StoreUnavailable


class Killed(BaseException):
    """The process has died in the middle of a call; nothing of it is heard again."""


class Fault(StrEnum):
    """What may happen to one call. It has happened in the store with the last two."""

    AWAY = "away"  # the store is not reached
    KILLED = "killed before"
    LOST = "answer lost"
    KILLED_AFTER = "killed after"


FAULTS: Final = tuple(Fault)
# How much likelier a fault is at calls that are few: so each goes wrong in every way in some thousand runs.
# Whoever sweeps holds back for a while after each fault, and operators do one thing or another now and then.
RARE: Final = dict.fromkeys(
    ("sweep", "prune", "forget_worker", "cancel", "revive", "delete", "amend", "save_queue", "drop_queue"),
    10.0,
)


class Faults:
    """Chooses which calls go wrong, and counts them by operation."""

    def __init__(self, dice: Random, share: float) -> None:
        self._dice = dice
        self._share = share
        self.is_away = False  # an outage: nobody reaches the store
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
            fault = self._dice.choice(FAULTS if is_process else (Fault.AWAY, Fault.LOST))
        else:
            return None
        self.counts[operation, fault] += 1
        return fault


class FaultyStore:
    """A handle whose calls go wrong now and then. `note` hears of each call that has happened in the store,
    whether its caller does or not."""

    def __init__(
        self,
        store: Any,
        faults: Faults,
        note: Callable[[str, tuple[Any, ...], Any], None],
        *,
        is_process: bool = True,
    ) -> None:
        self._store = store
        self._faults = faults
        self._note = note
        self._is_process = is_process

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        return method if name == "close" else partial(self._call, name, method)

    def _call(self, name: str, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        fault = self._faults.next(name, is_process=self._is_process)
        if fault is Fault.AWAY:
            raise StoreUnavailable("the store cannot be reached")
        if fault is Fault.KILLED:
            raise Killed
        answer = method(*args, **options)
        self._note(name, args, answer)
        if fault is Fault.LOST:
            raise StoreUnavailable("the answer was lost")
        if fault is Fault.KILLED_AFTER:
            raise Killed
        return answer
