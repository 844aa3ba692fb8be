"""The part of the seam that keeps limits, and what they leave for the claims of one exchange."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from forebay.domain.limits import Bucket, Limit, scopes_of


class KeepsLimits(Protocol):
    """The write side of limits. What is saved holds from the next claim on, whoever makes it."""

    def save_limit(self, limit: Limit, *, actor: str = "") -> None:
        """Set the limit of its scope, in the place of another one. What is left of a rate stays left, so a
        change gives nobody a burst; jobs that run go on, however many they are. Leaves a LIMIT event and is
        worth a wake-up."""
        ...

    def drop_limit(self, scope: str, *, actor: str = "") -> bool:
        """Remove the limit of a scope; whether there was one. Leaves a LIMIT event and is worth a wake-up."""
        ...


class LooksAtLimits(Protocol):
    """The read side of limits."""

    def limits(self) -> list[Limit]:
        """All limits, by scope."""
        ...


class Kept(NamedTuple):
    """A limit as it is stored."""

    limit: Limit
    bucket: Bucket


class Gauge:
    """One limit while an exchange claims: under its lock, so that nobody else counts or takes meanwhile."""

    __slots__ = ("bucket", "has_changed", "limit", "running")

    def __init__(self, kept: Kept, running: int) -> None:
        self.limit, self.bucket = kept
        self.running = (
            running  # jobs of its scope with a lease that has not ended; 0 where nobody asks for it
        )
        self.has_changed = False

    def room(self, now: int) -> int | None:
        """How many may start; None for any number."""
        most = None
        if self.limit.concurrency is not None:
            most = max(0, self.limit.concurrency - self.running)
        if self.limit.rate is not None:
            tokens = self.limit.tokens(self.bucket, now)
            most = tokens if most is None else min(most, tokens)
        return most

    def take(self, jobs: int, now: int) -> None:
        self.running += jobs
        # Of a clock that was set back note is taken at once, so that time counts again from there.
        if self.limit.rate is not None and (jobs or self.bucket.at > now):
            self.bucket = self.limit.spent(self.bucket, jobs, now)
            self.has_changed = True

    def wait_ms(self, now: int) -> int | None:
        """After how long its rate lets somebody in; None if it does, or if that is not what holds jobs up."""
        if self.limit.rate is None or self.limit.tokens(self.bucket, now):
            return None
        return self.limit.wait_ms(self.bucket, now)


class Tally:
    """The limits of one exchange. Claims ask for room, and say what they took."""

    def __init__(self, gauges: Iterable[Gauge], now: int) -> None:
        self._gauges = {gauge.limit.scope: gauge for gauge in gauges}
        self._now = now
        self._waits: list[int] = []

    def room(self, queue: str, most: int) -> int:
        """How many of `most` jobs of a queue may start."""
        rooms = [gauge.room(self._now) for gauge in self._of(queue)]
        return min([most, *(room for room in rooms if room is not None)])

    def took(self, queue: str, jobs: int, most: int) -> None:
        """So many jobs of a queue have started, of as many as the limits left room for."""
        for gauge in self._of(queue):
            gauge.take(jobs, self._now)
        if jobs == most:
            waits = [wait for gauge in self._of(queue) if (wait := gauge.wait_ms(self._now)) is not None]
            # There may be more to start, and all of its limits have to let it in.
            self._waits += [max(waits)] if waits else []

    @property
    def changed(self) -> list[Kept]:
        """The limits whose buckets are to be written."""
        return [Kept(gauge.limit, gauge.bucket) for gauge in self._gauges.values() if gauge.has_changed]

    def sooner(self, next_due_ms: int | None) -> int | None:
        """After how long it is worth to ask again: when a job is due, or when a rate lets one in."""
        waits = self._waits if next_due_ms is None else [*self._waits, next_due_ms]
        return min(waits, default=None)

    def _of(self, queue: str) -> list[Gauge]:
        return [self._gauges[scope] for scope in scopes_of(queue) if scope in self._gauges]
