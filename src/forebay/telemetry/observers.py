"""Observers: callbacks on claims, ends and lost leases of jobs, besides the metrics in the store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from forebay.domain.job import Job
    from forebay.domain.settlement import Settlement

# A job, how its attempt was settled, and for how many seconds it ran, None if that is unknown.
SettledAttempt: TypeAlias = "tuple[Job, Settlement, float | None]"


class Observer(Protocol):
    """Called after the write, on the thread that made it: an observer must return quickly."""

    def on_claimed(self, jobs: Sequence[Job]) -> None:
        """Handle the begin of attempts at these jobs."""
        ...

    def on_settled(self, ends: Sequence[SettledAttempt]) -> None:
        """Handle settled attempts."""
        ...

    def on_lease_lost(self, jobs: Sequence[Job]) -> None:
        """Handle attempts of this program whose leases were lost before they ended: their settlement is
        refused."""
        ...


class Observers:
    """The observers of one program. One that fails is logged and skipped: no job suffers from it."""

    def __init__(self) -> None:
        self._all: list[Observer] = []

    def add(self, observer: Observer) -> None:
        """Add an observer."""
        self._all.append(observer)

    def on_claimed(self, jobs: Sequence[Job]) -> None:
        if jobs:
            for one in self._all:
                try:
                    one.on_claimed(jobs)
                except Exception:
                    _log_failure(one)

    def on_settled(self, ends: Iterable[SettledAttempt]) -> None:
        if not self._all:
            return
        found = list(ends)
        for one in self._all if found else ():
            try:
                one.on_settled(found)
            except Exception:
                _log_failure(one)

    def on_lease_lost(self, jobs: Sequence[Job]) -> None:
        if jobs:
            for one in self._all:
                try:
                    one.on_lease_lost(jobs)
                except Exception:
                    _log_failure(one)


def _log_failure(observer: Observer) -> None:
    from logging import getLogger  # noqa: PLC0415 - programs that only enqueue need none

    getLogger(__name__).exception("observer %r has failed", observer)
