"""Replacement of a worker process that has reached a limit of jobs, memory or age."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isfinite
from typing import Final, NamedTuple

import msgspec

from forebay.clock import Clock
from forebay.errors import ConfigError
from forebay.worker.assigned_job import ExecutorKind
from forebay.worker.slots import Slots

CHECK_SECONDS: Final = 1.0
STUCK_DRAIN_SECONDS: Final = 25.0
MAX_ABANDONED: Final = 16
MEGABYTE: Final = 1_048_576


class ProcessLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a worker process before it is replaced; None for no limit. Memory is resident megabytes, age
    is seconds."""

    max_jobs: int | None = None
    max_memory: float | None = None
    max_age: float | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and not (isfinite(value) and value > 0):
                raise ConfigError(f"{name} must be a number above 0, not {value:g}")


class Retirement(NamedTuple):
    """Why a worker process should end, and how many seconds running jobs may still take."""

    reason: str
    drain: float = inf


def check_abandoned(max_abandoned: int) -> None:
    """Raise ConfigError if this cannot be a number of abandoned threads."""
    if max_abandoned < 0:
        raise ConfigError(f"max_abandoned must be a number from 0 on, not {max_abandoned}")


class ThreadHealth:
    """Threads that are lost to jobs that do not stop. Called from any thread."""

    def __init__(self, slots: Slots, max_abandoned: int = MAX_ABANDONED) -> None:
        check_abandoned(max_abandoned)
        self._slots = slots
        self.max_abandoned = max_abandoned

    def reason(self) -> Retirement | None:
        """Return why this process should be replaced, if it should; it is not healthy then."""
        abandoned = self._slots.abandoned_now
        if abandoned > self.max_abandoned:
            return Retirement(f"it has {abandoned} abandoned threads")
        if any(
            assignment.slots_taken > 1 and assignment.ended_at is None for assignment in self._slots.abandoned
        ):
            return Retirement("its event loop is blocked by a task beyond its time limit")
        # A thread cannot be killed. When every one of them runs a job that does not listen, nothing else will
        # ever run here. Such jobs may never end, so they get no more than the drain time.
        stuck = sum(
            assignment.is_stuck and assignment.kind is ExecutorKind.CALLS for assignment in self._slots
        )
        if stuck < max(self._slots.sizes[ExecutorKind.CALLS], 1):
            return None
        return Retirement("each of its threads runs a job that does not stop", STUCK_DRAIN_SECONDS)


class Recycler:
    """Checks the limits after each tick of the coordinator: jobs at once, the others once a second."""

    def __init__(
        self,
        limits: ProcessLimits,
        slots: Slots,
        clock: Clock,
        memory: Callable[[], int],
        thread_health: ThreadHealth | None = None,
    ) -> None:
        """Create the recycler. Without `thread_health` a process with lost threads goes on, because nothing
        would replace it."""
        self._limits = limits
        self._thread_health = thread_health
        self._slots = slots
        self._clock = clock
        self._memory = memory
        self._started_at = self._check_at = clock.monotonic()

    def due(self) -> Retirement | None:
        """Return the retirement of this process, if it should end now."""
        limit, ended = self._limits.max_jobs, self._slots.completed + self._slots.failed
        if limit is not None and ended >= limit:
            return Retirement(f"it has run {ended} jobs")
        now = self._clock.monotonic()
        if now < self._check_at:
            return None
        self._check_at = now + CHECK_SECONDS
        return self._by_age(now) or self._by_memory() or self._by_thread_health()

    def _by_age(self, now: float) -> Retirement | None:
        limit, age = self._limits.max_age, now - self._started_at
        if limit is None or age < limit:
            return None
        return Retirement(f"it has run for {age:.0f} s")

    def _by_memory(self) -> Retirement | None:
        limit = self._limits.max_memory
        if limit is None:
            return None
        used = self._memory() / MEGABYTE
        return Retirement(f"it uses {used:.0f} MB of memory") if used >= limit else None

    def _by_thread_health(self) -> Retirement | None:
        return None if self._thread_health is None else self._thread_health.reason()
