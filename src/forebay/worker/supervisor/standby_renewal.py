"""Standby renewal: a worker process renews its leases itself while its supervisor does not."""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf
from threading import Event, Thread
from typing import Final

from msgspec.structs import replace

from forebay.clock import Clock
from forebay.domain.worker import WorkerInfo
from forebay.errors import StoreUnavailable
from forebay.stores.contract.claims_and_results import PendingCancel
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.store import Store
from forebay.worker.assigned_job import Assignment
from forebay.worker.lease_renewal_health import RenewalHealth, RenewalMonitor
from forebay.worker.lease_table import LeaseTable
from forebay.worker.slots import Slots

TICK_SECONDS: Final = 0.25
SLOWEST_SECONDS: Final = 2.0
RELIEVED_SECONDS: Final = 1.0  # four ticks of the lease manager
JOIN_SECONDS: Final = 5.0
LATE: Final = 2 / 3  # of a lease or of a heartbeat interval

logger: logging.Logger = logging.getLogger(__name__)


class StandbyRenewal:
    """Renews leases and sends heartbeats from the worker process while its supervisor is stopped or without a
    store.

    A lease counts as neglected when two thirds of it have passed without a renewal. The supervisor renews at
    one third or before, so a healthy one never lets that happen. The thread and its store handle exist only
    while they are needed: a store pays for each connection.

    The supervisor may come back at any moment, and then both renew. A renewal is guarded by job id, attempt
    and worker, and sets the lease's end to a length from now. So the order of two renewals does not matter,
    and a lease that was taken over meanwhile is refused to both.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        lease_table: LeaseTable,
        slots: Slots,
        clock: Clock,
        on_cancels: Callable[[tuple[PendingCancel, ...]], None],
        report: Callable[[], WorkerInfo],
        supervisor: int,
    ) -> None:
        self._engine = engine
        self._lease_table = lease_table
        self._slots = slots
        self._clock = clock
        self._on_cancels = on_cancels
        self._report = report
        self._supervisor = supervisor
        self._worker = report().id
        self._heartbeat_seconds = report().heartbeat_ms / 1_000
        self._heartbeat_sent_at = 0.0
        self._store: Store | None = None
        self._monitor = RenewalMonitor(clock)
        self._stop = Event()
        self._thread: Thread | None = None

    @property
    def is_active(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def renewals(self) -> RenewalHealth:
        return self._monitor.renewals

    def start_if_needed(self) -> None:
        """Start renewing if the supervisor does not. Called by one thread, often; never waits."""
        self._monitor.check_hanging()
        if self.is_active or self._stop.is_set() or not self._is_needed():
            return
        logger.warning(
            "the supervisor has not renewed the leases of worker %s in time; "
            "this process renews its leases itself",
            self._worker,
        )
        self._thread = Thread(target=self._run, name="forebay-standby", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop renewing. A call that hangs is waited for a few seconds; its thread ends with the process."""
        self._stop.set()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(JOIN_SECONDS)

    # On its own thread

    def _run(self) -> None:
        pause = TICK_SECONDS
        try:
            while not self._stop.is_set():
                pause = TICK_SECONDS if self._try_renew_due() else min(pause * 2, SLOWEST_SECONDS)
                if self._is_relieved():
                    logger.warning(
                        "the supervisor renews the leases again; worker %s stops doing so", self._worker
                    )
                    return
                self._stop.wait(pause)
        finally:
            self._close()

    def _try_renew_due(self) -> bool:
        try:
            self.renew_due()
        except StoreUnavailable as exc:
            logger.warning("leases cannot be renewed now (%s in a row): %s", self.renewals.failures, exc)
            return False
        except Exception:
            # The leases of this process depend on this thread, so no error ends it.
            logger.exception("leases could not be renewed")
            return False
        return True

    def renew_due(self) -> None:
        """Renew due leases, and send a heartbeat if it is time: the supervisor is known to be late."""
        now = self._clock.monotonic()
        due = [assignment for assignment in self._slots if now >= assignment.renew_at]
        if due:
            self._renew(due, now)
        if self._is_heartbeat_late(now):
            with self._monitor.track_call():
                # With the supervisor's pid: the supervisor still holds what shows a death (see
                # `Store.heartbeat`).
                self._open_store().heartbeat(replace(self._report(), supervisor=self._supervisor))
            self._heartbeat_sent_at = now

    def _renew(self, due: list[Assignment], now: float) -> None:
        with self._monitor.track_call(due) as lost:
            answer = self._open_store().renew(self._worker, [assignment.lease for assignment in due])
            lost.update((refusal.lease, refusal.reason) for refusal in answer.refused)
        for assignment in due:
            if assignment.lease in lost:
                assignment.mark_lost()
            else:
                assignment.mark_renewed(now)
        self._on_cancels(answer.cancels)

    def _open_store(self) -> Store:
        if self._store is None:
            self._store = self._engine.store()
        return self._store

    def _close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            try:
                store.close()
            except Exception:
                logger.exception("the store handle of the standby renewal could not be closed")

    # Conditions

    def _is_needed(self) -> bool:
        now = self._clock.monotonic()
        return self._is_heartbeat_late(now) or any(
            is_neglected(assignment, now) for assignment in self._slots
        )

    def _is_relieved(self) -> bool:
        """Return whether the supervisor renews again. Its mark in the lease table is 0 where it is of an
        older release."""
        renewed_at = self._lease_table.renewed_at
        is_back = not renewed_at or self._clock.monotonic() - renewed_at <= RELIEVED_SECONDS
        return is_back and not self._is_needed()

    def _is_heartbeat_late(self, now: float) -> bool:
        renewed_at = self._lease_table.renewed_at
        return (
            bool(renewed_at)
            and now - max(renewed_at, self._heartbeat_sent_at) >= LATE * self._heartbeat_seconds
        )


def is_neglected(assignment: Assignment, now: float) -> bool:
    """Return whether two thirds of a lease have passed without a renewal; a lost one is not renewed any
    more."""
    return -inf < assignment.start_by <= now
