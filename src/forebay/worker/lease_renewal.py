"""Lease renewal, on a thread and a store handle of its own: nothing that a task does can hold it up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from threading import Event, Thread
from typing import Final

from forebay.clock import Clock
from forebay.domain.worker import WorkerInfo
from forebay.errors import StoreUnavailable
from forebay.stores.contract.claims_and_results import PendingCancel
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.store import Store
from forebay.telemetry.store_call_durations import log_durations
from forebay.worker.assigned_job import Assignment
from forebay.worker.command_execution import Control
from forebay.worker.lease_renewal_health import RenewalHealth, RenewalMonitor
from forebay.worker.slots import Slots

TICK_SECONDS: Final = 0.25
SLOWEST_SECONDS: Final = 2.0
WATCH_SECONDS: Final = 0.5
COMMANDS_SECONDS: Final = 1.0
MISSED_HEARTBEATS: Final = 2
JOIN_SECONDS: Final = 5.0

logger: logging.Logger = logging.getLogger(__name__)

# Handles of workers that could not deregister while their jobs still run; see `stop`.
unclosed_stores: Final[list[Store]] = []


class LeaseRenewal:
    """Renews each lease after a third of its length or ten seconds, and sends heartbeats.

    A store call cannot be cancelled, and a locked store may block one for long. So a second thread watches
    the first: a call that hangs is detected, counted and logged.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        worker: WorkerInfo,
        slots: Slots,
        clock: Clock,
        on_cancels: Callable[[tuple[PendingCancel, ...]], None],
        report: Callable[[], WorkerInfo] | None = None,
        control: Control | None = None,
        on_watch: Callable[[], None] = lambda: None,
    ) -> None:
        self._engine = engine
        self._worker = worker
        self._slots = slots
        self._clock = clock
        self._on_cancels = on_cancels
        self._report = report or (lambda: worker)
        self._control = control
        self._on_watch = on_watch
        self._commands_at = 0.0
        self._heartbeat_sent_at = clock.monotonic()
        self._stop = Event()
        self._next_heartbeat_at = 0.0
        self._store: Store | None = None
        self._monitor = RenewalMonitor(clock)
        self._thread = Thread(target=self._run, name="forebay-renewal", daemon=True)
        self._watcher = Thread(target=self._watch, name="forebay-renewal-watch", daemon=True)

    @property
    def renewals(self) -> RenewalHealth:
        """Health of the renewals."""
        return self._monitor.renewals

    def start(self) -> None:
        """Open the handle and send one heartbeat, so that a death is noticed from the first claim on."""
        self._store = log_durations(self._engine.store(), self._clock)
        try:
            self._send_heartbeat(self._store)
            self._thread.start()
            self._watcher.start()
        except BaseException:
            self._stop.set()
            self._store.close()
            self._store = None
            raise

    def stop(self) -> None:
        """Stop renewing and deregister the worker. A job that did not stop keeps its lease until that ends:
        it still runs here. Stopping twice, or before the start, is fine.

        A store that hangs is waited for a few seconds. The thread lives until its call ends, and deregisters
        then: the handle belongs to it, and no other thread may use or close it meanwhile.
        """
        self._stop.set()
        for thread in (self._watcher, self._thread):
            if thread.is_alive():
                thread.join(JOIN_SECONDS)
        if self._thread.is_alive():
            logger.warning("worker %s stays registered until the store answers", self._worker.id)

    def _deregister(self) -> None:
        store, self._store = self._store, None
        if store is None:
            return
        is_removed = False
        try:
            store.remove_worker(self._worker.id)
            is_removed = True
        except StoreUnavailable as exc:
            logger.warning("worker %s stays registered for now: %s", self._worker.id, exc)
        finally:
            if is_removed or not any(assignment.is_running for assignment in self._slots):
                store.close()
            else:
                # A registered worker whose handle is closed counts as dead, and its jobs are given to other
                # workers at once, while they still run here. The end of the process frees the handle.
                unclosed_stores.append(store)

    def _run(self) -> None:
        pause = TICK_SECONDS
        while not self._stop.wait(pause):
            # A store in trouble is not called more and more; two seconds are short against a lease.
            pause = TICK_SECONDS if self._try_renew_due() else min(pause * 2, SLOWEST_SECONDS)
        try:
            self._deregister()
        except Exception:
            logger.exception("worker %s could not be deregistered", self._worker.id)

    def _try_renew_due(self) -> bool:
        try:
            self.renew_due()
        except StoreUnavailable as exc:
            # Unreachable is not lost: other workers cannot reach the store either, and the fencing token
            # decides.
            logger.warning("leases cannot be renewed now (%s in a row): %s", self.renewals.failures, exc)
            return False
        except Exception:
            # Without this thread every lease of the worker would be lost, so no error ends it.
            logger.exception("leases could not be renewed")
            return False
        return True

    def _watch(self) -> None:
        while not self._stop.wait(WATCH_SECONDS):
            self._monitor.check_hanging()
            self._on_watch()

    def renew_due(self) -> None:
        """Renew due leases, and send a heartbeat if it is time."""
        if self._store is None:
            return
        now = self._clock.monotonic()
        due = [assignment for assignment in self._slots if now >= assignment.renew_at]
        if due:
            self._renew(self._store, due, now)
        if self._clock.monotonic() >= self._next_heartbeat_at:
            with self._monitor.track_call():
                self._send_heartbeat(self._store)
        if self._control is not None and now >= self._commands_at:
            self._commands_at = now + COMMANDS_SECONDS
            with self._monitor.track_call():
                self._control.serve(self._store, self._store.take_commands([self._worker.id]))

    def request_heartbeat(self) -> None:
        """Send a heartbeat with the next tick: the worker's state has changed. From any thread."""
        self._next_heartbeat_at = 0.0

    def request_command_poll(self) -> None:
        """Poll for commands with the next tick: one may have been sent. From any thread."""
        self._commands_at = 0.0

    def _renew(self, store: Store, due: Sequence[Assignment], now: float) -> None:
        with self._monitor.track_call(due) as lost:
            answer = store.renew(self._worker.id, [assignment.lease for assignment in due])
            lost.update((refusal.lease, refusal.reason) for refusal in answer.refused)
        for assignment in due:
            if assignment.lease in lost:
                assignment.mark_lost()
            else:
                assignment.mark_renewed(now)
        self._on_cancels(answer.cancels)

    def _send_heartbeat(self, store: Store) -> None:
        # First the time, then the report: a change after the report requests another heartbeat, and is not
        # lost.
        self._next_heartbeat_at = self._clock.monotonic() + self._worker.heartbeat_ms / 1_000
        try:
            store.heartbeat(self._report())
        except BaseException:
            self._next_heartbeat_at = 0.0
            raise
        self._heartbeat_sent_at = self._clock.monotonic()

    def mark_tick(self) -> None:
        """Ignore a tick of the coordinator; only a supervisor needs it."""

    def mark_last_tick(self) -> None:
        """Ignore the coordinator's last tick."""

    def announce_retirement(self, reason: str, replace_after: float = 0.0) -> None:
        """Ignore that this worker will end when its jobs have; only a supervisor replaces it."""

    @property
    def is_heartbeat_fresh(self) -> bool:
        """Whether the worker counts as alive: it has not missed two heartbeats."""
        missing = self._clock.monotonic() - self._heartbeat_sent_at
        return missing < MISSED_HEARTBEATS * self._worker.heartbeat_ms / 1_000
