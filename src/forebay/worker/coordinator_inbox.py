"""Inbox of the coordinator: outcomes, cancel requests, wake-ups and requests to stop."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from threading import Lock
from typing import Final

from forebay.domain.outcome import Outcome
from forebay.stores.contract.claims_and_results import PendingCancel
from forebay.worker.assigned_job import Assignment

LONGEST_SLEEP_SECONDS: Final = 5.0  # the coordinator never sleeps longer


class WakeSignal:
    """Wake-up set by any thread and awaited by one. Like an Event, but a bare lock, which is free while it is
    set.

    Task threads set it too, and may be interrupted between any two bytecodes. In the middle of `Event.set`
    that would leave the Event's lock locked, and the coordinator would wait for it for ever.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._lock.acquire()

    @property
    def is_set(self) -> bool:
        return not self._lock.locked()

    def set(self) -> None:
        with suppress(RuntimeError):  # another thread has set it
            self._lock.release()

    def wait(self, seconds: float) -> None:
        """Wait until it is set, at most this long; then clear it."""
        self._lock.acquire(timeout=max(seconds, 0))

    def clear(self) -> None:
        self._lock.acquire(blocking=False)


class Inbox:
    """Queues filled from any thread and emptied by the coordinator.

    While the coordinator works, outcomes pile up without a wake-up; its next round trip takes them all.
    """

    def __init__(self) -> None:
        self._outcomes: deque[tuple[Assignment, Outcome]] = deque()
        self._cancels: deque[PendingCancel] = deque()
        self._soft_limits: deque[tuple[Assignment, float]] = deque()
        self._signal = WakeSignal()
        self._has_wakeup = False
        self._is_waiting = False

    def put(self, assignment: Assignment, outcome: Outcome) -> None:
        self._outcomes.append((assignment, outcome))
        # Set only for a coordinator that sleeps: setting costs more than running a short job. The coordinator
        # looks at the outcomes after it has set `_is_waiting`, so one of the two sides sees an outcome.
        if self._is_waiting:
            self._signal.set()

    def add_cancels(self, cancels: Iterable[PendingCancel]) -> None:
        """Add requests to stop jobs of this worker."""
        self._cancels.extend(cancels)
        if self._cancels:
            self._signal.set()

    def add_soft_limit(self, assignment: Assignment, seconds: float) -> None:
        """Have the coordinator check an attempt with a soft limit when that has passed."""
        self._soft_limits.append((assignment, seconds))
        # A sleeping coordinator does not know this limit. For a long one it wakes up in time by itself.
        if seconds < LONGEST_SLEEP_SECONDS:
            self._signal.set()

    def wake(self) -> None:
        """Wake the coordinator: something may have happened in the store, or here."""
        self._has_wakeup = True
        self._signal.set()

    def notify(self) -> None:
        """Wake the coordinator for an event in this process. Safe for threads that may be interrupted
        anywhere."""
        self._signal.set()

    @property
    def has_wakeup(self) -> bool:
        """Whether something may have happened in the store since the last `clear_wake`."""
        return self._has_wakeup

    def clear_wake(self) -> None:
        self._has_wakeup = False

    def drain(self) -> list[tuple[Assignment, Outcome]]:
        ended = self._outcomes
        return [ended.popleft() for _ in range(len(ended))]

    def take_cancels(self) -> list[PendingCancel]:
        """Return the cancel requests since the last call."""
        return [self._cancels.popleft() for _ in range(len(self._cancels))]

    def take_soft_limits(self) -> list[tuple[Assignment, float]]:
        """Return the attempts with a soft limit that have begun since the last call."""
        soft_limits = self._soft_limits
        return [soft_limits.popleft() for _ in range(len(soft_limits))] if soft_limits else []

    def wait(self, seconds: float) -> None:
        """Sleep until there is something to do, at most this long."""
        self._is_waiting = True
        if not self._outcomes:
            self._signal.wait(seconds)
        self._is_waiting = False
        # A wake-up that comes between waking and this line is not lost: the coordinator looks at everything
        # next.
        self._signal.clear()
