"""Duty: attempts whose lease has ended, or whose worker died, are settled as lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from forebay.app.hooks import Hooks
from forebay.app.settling import Instead, exchange_all
from forebay.clock import Clock
from forebay.domain.job import Job, JobId, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.outcome import Lost
from forebay.domain.settlement import Settlement, decide
from forebay.errors import StoreUnavailable
from forebay.stores.protocol import BATCH, Refusal, Store
from forebay.telemetry.observing import End

Tell: TypeAlias = Callable[[Sequence[End]], object]

CLOCK_MOVED_SECONDS: Final = 1.0
LEASE_MS: Final = 30_000  # of what was taken over, until it is settled
REASON: Final = "the lease ended without a word from the worker, or the worker died"


class Sweeping:
    """Sweeps under a worker id of its own, and holds back where it could do harm.

    After an outage the holders of leases come first: for one renewal interval (a third of a lease) after
    it has connected, or connected again, a sweeper takes nothing over. When its wall clock moves against
    its monotonic clock by more than a second, lease ends cannot be trusted, and it does not sweep for a
    whole lease.

    `tell` is called with the attempts that it has settled; without it, the program's observers are.

    With `only_dead` it takes over from workers that are known to be dead and looks at no clock, so it never
    holds back: a program that crashed and was started again has its own jobs back at once.
    """

    def __init__(  # noqa: PLR0913 - what it needs and whom it tells, by name
        self,
        *,
        sweeper: WorkerId,
        clock: Clock,
        roll: Callable[[], float],
        lease_ms: int = LEASE_MS,
        every_ms: int = 1_000,
        batch: int = BATCH,
        only_dead: bool = False,
        hooks: Hooks | None = None,
        tell: Tell | None = None,
    ) -> None:
        self.name = "sweep dead" if only_dead else "sweep"
        self.every_ms = every_ms
        self._only_dead = only_dead
        self._hooks = hooks or Hooks()
        self._tell = tell or self._hooks.observers.ended
        self._sweeper = sweeper
        self._clock = clock
        self._roll = roll
        self._lease_ms = lease_ms
        self._batch = batch
        # Taken over, and not yet known to be settled.
        self._held: dict[JobId, Job] = {}
        self._was_away = False
        self._offset = self._present_offset()
        self._quiet_until = clock.monotonic()
        self.connected()

    def connected(self) -> None:
        """Say that the store has just been reached, for the first time or again."""
        self._be_quiet_for(self._lease_ms / 3_000)

    @property
    def is_ready(self) -> bool:
        self._watch_clock()
        return self._only_dead or self._clock.monotonic() >= self._quiet_until

    def run(self, store: Store) -> bool:
        """Take over one batch and settle it; true if there may be more."""
        if self._was_away:
            # Somebody has just had an answer (the turn for this duty), so the outage is over.
            self._was_away = False
            self.connected()
        if not self.is_ready:
            return False
        try:
            return self._sweep(store)
        except StoreUnavailable:
            self._was_away = True
            raise

    def _sweep(self, store: Store) -> bool:
        swept = store.sweep(self._sweeper, self._batch, self._lease_ms, only_dead=self._only_dead)
        self._held.update((job.id, job) for job in swept)
        settlements = [decide(job, Lost(REASON), self._roll()) for job in self._held.values()]
        if settlements:
            # Refused ones were swept from us in turn, or ended by force: no business of ours any more.
            instead = Instead(lambda lease: self._held[lease.job_id], self._roll)
            answer = exchange_all(store, self._sweeper, settlements, fallback=instead)
            busy = {lease.job_id for lease in answer.busy}  # offered again with the next batch
            held, self._held = self._held, {job_id: self._held[job_id] for job_id in busy}
            ends = [end for end in instead.ends(settlements) if end.job_id not in busy]
            held = {job_id: job for job_id, job in held.items() if job_id not in busy}
            self._hooks.report_dead(held.values(), ends, answer)
            self._tell(list(_written(held.values(), ends, answer.refused)))
        return len(swept) >= self._batch

    def _watch_clock(self) -> None:
        offset = self._present_offset()
        if abs(offset - self._offset) > CLOCK_MOVED_SECONDS:
            self._be_quiet_for(self._lease_ms / 1_000)
        # From look to look: a clock that is corrected slowly has not jumped.
        self._offset = offset

    def _present_offset(self) -> float:
        return self._clock.now_ms() / 1_000 - self._clock.monotonic()

    def _be_quiet_for(self, seconds: float) -> None:
        self._quiet_until = max(self._quiet_until, self._clock.monotonic() + seconds)


def _written(jobs: Iterable[Job], ends: Iterable[Settlement], refused: Iterable[Refusal]) -> Iterator[End]:
    lost = {one.lease for one in refused}
    for job, end in zip(jobs, ends, strict=True):
        if Lease(job.id, job.attempt) not in lost:
            yield job, end, None
