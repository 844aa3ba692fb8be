"""What the coordinator waits on: outcomes, wishes to cancel, wake-ups and requests to stop."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from threading import Lock
from typing import Final

from forebay.domain.outcome import Outcome
from forebay.stores.contract.values import PendingCancel
from forebay.worker.slots import Assignment

LONGEST_SLEEP_SECONDS: Final = 5.0  # a coordinator's pause is never longer


class WakeSignal:
    """Rung by any thread, heard by one. Like an Event, but a bare lock, which is free when it was rung.

    Task threads ring too, and may be interrupted between any two bytecodes: in the middle of `Event.set` that
    would leave the Event's lock locked, and the coordinator would wait for it for ever.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._lock.acquire()

    @property
    def is_set(self) -> bool:
        return not self._lock.locked()

    def set(self) -> None:
        with suppress(RuntimeError):  # somebody else has rung
            self._lock.release()

    def wait(self, seconds: float) -> None:
        """Until it rings, at most this long; from then on it is silent again."""
        self._lock.acquire(timeout=max(seconds, 0))

    def clear(self) -> None:
        self._lock.acquire(blocking=False)


class Inbox:
    """Filled from any thread, emptied by the coordinator. While it works, outcomes pile up and cost nobody
    a wake-up; the next exchange takes them all."""

    def __init__(self) -> None:
        self._outcomes: deque[tuple[Assignment, Outcome]] = deque()
        self._cancels: deque[PendingCancel] = deque()
        self._soft_limits: deque[tuple[Assignment, float]] = deque()
        self._signal = WakeSignal()
        self._has_wakeup = False
        self._is_waiting = False

    def put(self, assignment: Assignment, outcome: Outcome) -> None:
        self._outcomes.append((assignment, outcome))
        # Rung only for one who sleeps: ringing costs more than running a short job. The sleeper looks at the
        # pile after it has said that it waits, so an outcome is seen by one of the two.
        if self._is_waiting:
            self._signal.set()

    def add_cancels(self, cancels: Iterable[PendingCancel]) -> None:
        """Somebody wants jobs of ours stopped."""
        self._cancels.extend(cancels)
        if self._cancels:
            self._signal.set()

    def add_soft_limit(self, assignment: Assignment, seconds: float) -> None:
        """An attempt with a soft limit begins: look at it when that has passed."""
        self._soft_limits.append((assignment, seconds))
        # Whoever sleeps does not know of this limit. For a long one he wakes up in time by himself.
        if seconds < LONGEST_SLEEP_SECONDS:
            self._signal.set()

    def wake(self) -> None:
        """Something may have happened in the store, or here: look."""
        self._has_wakeup = True
        self._signal.set()

    def notify(self) -> None:
        """Something happened here: look. Also for threads that may be interrupted anywhere."""
        self._signal.set()

    @property
    def has_wakeup(self) -> bool:
        """Whether something may have happened in the store since the last time this was taken note of."""
        return self._has_wakeup

    def clear_wake(self) -> None:
        self._has_wakeup = False

    def drain(self) -> list[tuple[Assignment, Outcome]]:
        ended = self._outcomes
        return [ended.popleft() for _ in range(len(ended))]

    def take_cancels(self) -> list[PendingCancel]:
        """What has been asked for since the last look."""
        return [self._cancels.popleft() for _ in range(len(self._cancels))]

    def take_soft_limits(self) -> list[tuple[Assignment, float]]:
        """What has begun since the last look and has a soft limit."""
        watched = self._soft_limits
        return [watched.popleft() for _ in range(len(watched))] if watched else []

    def wait(self, seconds: float) -> None:
        """Sleep until something comes, at most this long."""
        self._is_waiting = True
        if not self._outcomes:
            self._signal.wait(seconds)
        self._is_waiting = False
        # A poke that comes between waking and this line is not lost: whoever waited looks at everything next.
        self._signal.clear()
