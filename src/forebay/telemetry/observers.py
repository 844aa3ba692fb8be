"""Whoever wants to be told what becomes of jobs, besides the figures that are kept in the store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from forebay.domain.job import Job
    from forebay.domain.settlement import Settlement

# A job, how its attempt was settled, and for how many seconds it ran, where somebody knows.
SettledAttempt: TypeAlias = "tuple[Job, Settlement, float | None]"


class Observer(Protocol):
    """Is told after the fact was written, on the thread that wrote it: let it be quick."""

    def on_claimed(self, jobs: Sequence[Job]) -> None:
        """Attempts at these have begun."""
        ...

    def on_settled(self, ends: Sequence[SettledAttempt]) -> None:
        """Attempts were settled like this."""
        ...

    def on_lease_lost(self, jobs: Sequence[Job]) -> None:
        """Attempts of this program ended, and their leases were lost meanwhile: what it said is refused."""
        ...


class Observers:
    """The observers of one program. One that fails is logged and skipped: no job is worth less for it."""

    def __init__(self) -> None:
        self._all: list[Observer] = []

    def add(self, observer: Observer) -> None:
        """Tell this one too, from now on."""
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
