"""Renewal in a worker process whose supervisor renews the leases: its end of the channel."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from math import inf
from select import select
from threading import Event, Lock, Thread
from typing import Final, NamedTuple, assert_never

import msgspec

from forebay.clock import Clock
from forebay.domain.lease import Lease
from forebay.domain.worker import WorkerInfo
from forebay.domain.worker_command import Command
from forebay.stores.contract.claims_and_results import PendingCancel
from forebay.worker.assigned_job import Assignment
from forebay.worker.lease_renewal_health import RenewalHealth
from forebay.worker.lease_table import STOPPED, LeaseTable
from forebay.worker.slots import Slots
from forebay.worker.supervisor.channel import Channel
from forebay.worker.supervisor.messages import (
    CancelsRequested,
    CommandAnswered,
    CommandSent,
    JobMarkedDead,
    LeasesRenewed,
    RenewalFailed,
    SetPaused,
    StatusChanged,
    StopWorker,
    ToWorker,
    WakeUp,
    WorkerAccepted,
    WorkerReady,
    WorkerRetiring,
    WorkerStopped,
)
from forebay.worker.supervisor.standby_renewal import TICK_SECONDS, StandbyRenewal

STATUS_SECONDS: Final = 1.0
ORPHANED: Final = 1
LATE: Final = "refused: the worker was silent, and heard of it too late"

logger: logging.Logger = logging.getLogger(__name__)


class SupervisorLink(NamedTuple):
    """Connection of a worker process to its supervisor."""

    channel: Channel[ToWorker]
    lease_table: LeaseTable
    url: str
    is_shared: bool
    key: str | None = None


class WorkerCallbacks(NamedTuple):
    """Actions of a worker that its supervisor may request."""

    carry_out: Callable[[Command], str]
    request_stop: Callable[[float], None]
    stop_now: Callable[[], None]
    pause: Callable[[], None]
    resume: Callable[[], None]
    wake: Callable[[], None]
    report: Callable[[JobMarkedDead], None]


class SupervisedRenewal:
    """Replacement of the renewal in a supervised worker: a thread that handles the supervisor's messages.

    If the supervisor is gone, this process ends at once: a new supervisor would start another one in its
    place. If it lives and does not renew, because it is stopped or cannot reach the store, `standby` renews
    meanwhile.
    """

    def __init__(
        self,
        link: SupervisorLink,
        *,
        slots: Slots,
        clock: Clock,
        on_cancels: Callable[[tuple[PendingCancel, ...]], None],
        report: Callable[[], WorkerInfo],
        callbacks: WorkerCallbacks,
        standby: StandbyRenewal,
    ) -> None:
        self._link = link
        self._channel = link.channel
        self._slots = slots
        self._clock = clock
        self._on_cancels = on_cancels
        self._report = report
        self._callbacks = callbacks
        self._standby = standby
        self._accepted = Event()
        self._lock = Lock()
        self._sent_info: WorkerInfo | None = None
        self._failures = 0
        self._succeeded_at: int | None = None
        self._is_over = False
        self._thread = Thread(target=self._run, name="forebay-supervised", daemon=True)
        slots.lease_table = link.lease_table

    @property
    def is_heartbeat_fresh(self) -> bool:
        """Whether the worker counts as alive: the supervisor sees to that."""
        return self._accepted.is_set()

    @property
    def renewals(self) -> RenewalHealth:
        """Health of the renewals, as the supervisor reports it; while it is silent, that of the standby
        renewal."""
        if self._standby.is_active:
            return self._standby.renewals
        return RenewalHealth(failures=self._failures, succeeded_at=self._succeeded_at)

    def start(self) -> None:
        """Report that the worker is ready, and wait until the supervisor renews its leases: nothing is
        claimed before."""
        info = self._report()
        link = self._link
        self._channel.send(WorkerReady(info=info, url=link.url, is_shared=link.is_shared, key=link.key))
        self._thread.start()
        self._accepted.wait()

    def mark_tick(self) -> None:
        """Record that the coordinator is alive."""
        self._link.lease_table.mark_tick(self._clock.monotonic())

    def mark_last_tick(self) -> None:
        """Record that the coordinator ticks no more. The supervisor does not take that for silence; the rest
        takes its time."""
        self._link.lease_table.mark_tick(STOPPED)

    def announce_retirement(self, reason: str, replace_after: float = 0.0) -> None:
        """Announce that this process will end when its jobs have."""
        self._channel.send(WorkerRetiring(reason=reason, replace_after=replace_after))

    def request_heartbeat(self) -> None:
        """Send the changed status. From any thread."""
        self._send_status()

    def request_command_poll(self) -> None:
        """Do nothing: the supervisor polls for commands."""

    def stop(self) -> None:
        """Announce the end of the worker, once; the supervisor deregisters it when the process is gone."""
        self._standby.stop()
        if self._accepted.is_set() and not self._is_over:
            self._is_over = True
            self._channel.send(WorkerStopped())

    def _send_status(self) -> None:
        info = self._report()
        with self._lock:
            if info == self._sent_info:
                return
            self._sent_info = info
        self._channel.send(StatusChanged(info=info), may_be_missed=True)

    def _run(self) -> None:
        status_at = 0.0
        while True:
            messages = self._receive()
            if messages is None:
                os._exit(ORPHANED)
            for message in messages:
                self._handle_safely(message)
            if self._accepted.is_set() and self._clock.monotonic() >= status_at:
                status_at = self._clock.monotonic() + STATUS_SECONDS
                with suppress(Exception):  # a report that fails must not end the thread that hears the rest
                    self._send_status()
            self._check_standby()
            self._channel.flush()

    def _check_standby(self) -> None:
        # After all messages are read: a renewal that the supervisor has reported is not repeated.
        if self._accepted.is_set():
            try:
                self._standby.start_if_needed()
            except Exception:  # no memory for another thread, for example; this thread must go on
                logger.exception("leases cannot be renewed by this process itself")

    def _receive(self) -> list[ToWorker] | None:
        """Return the supervisor's messages. None when it cannot be heard any more: it is gone, or a task has
        closed this end or put something else in its place."""
        try:
            select([self._channel], [], [], TICK_SECONDS)
            return self._channel.receive()
        except (OSError, ValueError, msgspec.MsgspecError):
            return None

    def _handle_safely(self, message: ToWorker) -> None:
        try:
            self._handle(message)
        except Exception:
            # Without this thread the end of the supervisor would go unnoticed, so no error ends it.
            logger.exception("a message of the supervisor could not be handled")

    def _handle(self, message: ToWorker) -> None:
        match message:
            case WakeUp():
                self._callbacks.wake()
            case WorkerAccepted(is_paused=is_paused):
                if is_paused:
                    self._callbacks.pause()
                self._accepted.set()
            case LeasesRenewed():
                self._apply_renewal(message)
            case RenewalFailed(leases=leases, failures=failures):
                self._failures = failures
                for assignment in self._find_assignments(leases):
                    assignment.context.mark_lease_in_doubt()
            case CancelsRequested(cancels=cancels):
                self._on_cancels(cancels)
            case _:
                self._execute(message)

    def _execute(self, message: CommandSent | StopWorker | SetPaused | JobMarkedDead) -> None:
        match message:
            case JobMarkedDead():
                self._callbacks.report(message)
            case CommandSent(command=command, until=until):
                is_late = self._clock.monotonic() >= until
                text = LATE if is_late else self._callbacks.carry_out(command)
                self._channel.send(CommandAnswered(command_id=command.id, text=text))
            case StopWorker(drain=drain):
                self._stop(drain)
            case SetPaused(is_over=is_over):
                (self._callbacks.resume if is_over else self._callbacks.pause)()
            case _:
                assert_never(message)

    def _stop(self, drain: float) -> None:
        if drain > 0:
            self._callbacks.request_stop(drain)
        else:
            self._callbacks.stop_now()

    def _apply_renewal(self, message: LeasesRenewed) -> None:
        self._failures = 0
        self._succeeded_at = message.at
        for assignment in self._find_assignments(message.renewed):
            # A lost lease stays lost. A supervisor that was stopped reports renewals from before the loss
            # late.
            if assignment.start_by > -inf:
                assignment.mark_renewed(message.since)
                assignment.context.mark_renewed(message.at)
        reasons = {refusal.lease: refusal.reason for refusal in message.refused}
        for assignment in self._find_assignments(tuple(reasons)):
            assignment.mark_lost()
            assignment.context.mark_lease_lost(reasons[assignment.lease])

    def _find_assignments(self, leases: tuple[Lease, ...]) -> list[Assignment]:
        wanted = set(leases)
        return [assignment for assignment in self._slots if assignment.lease in wanted]
