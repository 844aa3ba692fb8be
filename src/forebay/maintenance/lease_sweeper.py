"""Sweeper: maintenance task that settles lost attempts, whose lease has ended or whose worker died."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import Final, TypeAlias

from forebay.app.worker_hooks_and_error_listeners import Hooks
from forebay.clock import Clock
from forebay.domain.job import Job, JobId, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.outcome import Lost
from forebay.domain.settlement import Settlement, decide
from forebay.errors import StoreBusy, StoreUnavailable
from forebay.maintenance.store_clock_steps import StoreClock
from forebay.operations.settlement_isolation import FallbackSettlements, settle_and_claim_isolating
from forebay.stores.contract.claims_and_results import BATCH, LeaseRefusal
from forebay.stores.contract.clock_readings import LATE_MS
from forebay.stores.contract.store import Store
from forebay.telemetry.observers import SettledAttempt

OnSettled: TypeAlias = Callable[[Sequence[SettledAttempt]], object]

LEASE_MS: Final = 30_000  # of taken-over attempts, until they are settled
REASON: Final = "the lease ended without a word from the worker, or the worker died"


class Sweeper:
    """Sweeps under a worker id of its own, and holds back where it could do harm.

    A sweeper trusts the store's clock while it moves as its own monotonic clock does. It holds back for one
    renewal interval (ten seconds) after its first reading and after each outage, so that the holders of
    leases come first. After a step of the store's clock by more than a second it holds back for a whole
    lease. In both cases it adds two seconds for renewals that come late.

    While it holds back it takes over only leases that had ended at an earlier recorded reading, at least
    twelve seconds ago, and before the step: see `_find_cutoff`. So short-lived programs take over the jobs of
    their dead predecessors.

    Workers renew each lease within twelve seconds, however long it is. So a step ahead takes no lease from a
    living worker, whether this sweeper has seen it or not. Consumers renew as they like: a step that this
    sweeper has seen takes none of their leases that they renew within 32 s, and one before its start none
    that they renew within twelve.

    `on_settled` is called with the attempts that it has settled; without it, the program's observers are.
    With `only_dead` it takes over from workers that are known to be dead and reads no clock, so it never
    holds back: a program that crashed and was started again has its own jobs back at once.
    """

    def __init__(  # noqa: PLR0913 - its parts and settings, by name
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
        on_settled: OnSettled | None = None,
    ) -> None:
        self.every_ms = every_ms
        self.is_ready = True
        self._only_dead = only_dead
        self._hooks = hooks or Hooks()
        self._on_settled = on_settled or self._hooks.observers.on_settled
        self._sweeper = sweeper
        self._clock = clock
        self._store_clock = StoreClock(clock)
        self._roll = roll
        self._lease_ms = lease_ms
        self._batch = batch
        # Taken over, and not known to be settled yet.
        self._unsettled: dict[JobId, Job] = {}
        self._was_away = False
        self._quiet_until = inf  # until the store's clock has been read
        # Times of the store's clock just before its steps, while the sweeper holds back for them. Two are
        # enough: a program that is frozen between its ticks sees a step in each, and must not fall behind.
        self._before_steps: deque[int] = deque(maxlen=2)

    @property
    def name(self) -> str:
        """Name of its maintenance task. A sweeper that holds back has runs of its own, and leaves those of
        other sweepers alone."""
        if self._only_dead:
            return "sweep dead"
        return "sweep anew" if self.quiet_seconds else "sweep"

    @property
    def quiet_seconds(self) -> float:
        """Seconds for which it still holds back; infinite before its first run."""
        return max(0.0, self._quiet_until - self._clock.monotonic())

    def on_connected(self) -> None:
        """Record that the store has just been reached, for the first time or again."""
        self._hold_back_for(self._lease_ms / 3)

    def run(self, store: Store) -> bool:
        """Take over one batch and settle it; true if there may be more."""
        if self._was_away:
            # The store has just answered (it gave this run), so the outage is over.
            self._was_away = False
            self.on_connected()
        try:
            if self._only_dead:
                return self._sweep(store, None)
            cutoff = self._find_cutoff(store)
            return cutoff is not None and self._sweep(store, cutoff)
        except StoreBusy:
            raise  # another transaction holds a job: the store answers, and holders can renew
        except StoreUnavailable:
            self._was_away = True
            raise

    def _find_cutoff(self, store: Store) -> int | None:
        """Return the store's time up to which ended leases may be taken over; None if none may be.

        It is not simply the present time: the clock may step between this reading and the sweep, or have
        stepped since the last one. A lease that had ended by the clock before the step is lost in any case.

        While the sweeper holds back it uses a reading that some program has recorded at least 12 s ago. A
        lease that had ended then and has not been renewed since is lost, though this program knows of no
        outage and no step before its start. After an outage or a step before that reading, the holders have
        had these 12 s to renew. One after it does not matter: a living holder renews long before its lease
        ends, so at that reading its lease had not ended.

        12 s are enough for workers. Consumers may renew long leases less often. So after a step that this
        program has seen, it also goes no further than the clock stood before the step. A lease that lasted
        longer is left to its holder until the hold-back is over.
        """
        is_quiet = self.quiet_seconds > 0
        observed = self._store_clock.read(store, record=is_quiet)
        if observed.is_first:
            self._quiet_until = -inf
            self._hold_back_for(self._lease_ms / 3)
        elif observed.has_stepped:
            self._before_steps.append(observed.latest)
            self._hold_back_for(self._lease_ms)
            if not is_quiet:
                # Read again, and record it. Otherwise a program that is frozen between its ticks, and so sees
                # a step in each of them, would never have an earlier reading. A step between the two readings
                # is seen by the second one.
                return self._find_cutoff(store)
        if self.quiet_seconds:
            earlier = observed.reading.earlier
            return None if earlier is None else min([earlier, *self._before_steps])
        self._before_steps.clear()
        return min(observed.reading.now, observed.latest)

    def _sweep(self, store: Store, cutoff: int | None) -> bool:
        swept = store.sweep(
            self._sweeper, self._batch, self._lease_ms, only_dead=self._only_dead, ended_by=cutoff
        )
        self._unsettled.update((job.id, job) for job in swept)
        settlements = [decide(job, Lost(REASON), self._roll()) for job in self._unsettled.values()]
        if settlements:
            # Refused: another sweeper took them over in turn, or an operator ended them by force.
            fallback = FallbackSettlements(lambda lease: self._unsettled[lease.job_id], self._roll)
            answer = settle_and_claim_isolating(store, self._sweeper, settlements, fallback=fallback)
            busy = {lease.job_id for lease in answer.busy}  # offered again with the next batch
            held, self._unsettled = self._unsettled, {job_id: self._unsettled[job_id] for job_id in busy}
            settled = [
                settlement for settlement in fallback.substitute(settlements) if settlement.job_id not in busy
            ]
            held = {job_id: job for job_id, job in held.items() if job_id not in busy}
            self._hooks.report_dead(held.values(), settled, answer)
            self._on_settled(list(_pair_settled(held.values(), settled, answer.refused)))
        return len(swept) >= self._batch

    def _hold_back_for(self, ms: float) -> None:
        until = self._clock.monotonic() + (ms + LATE_MS) / 1_000
        self._quiet_until = max(self._quiet_until, until)


def _pair_settled(
    jobs: Iterable[Job], settlements: Iterable[Settlement], refused: Iterable[LeaseRefusal]
) -> Iterator[SettledAttempt]:
    lost = {refusal.lease for refusal in refused}
    for job, settlement in zip(jobs, settlements, strict=True):
        if Lease(job.id, job.attempt) not in lost:
            yield job, settlement, None
