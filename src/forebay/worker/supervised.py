"""A worker process with a supervisor, which renews its leases for it."""

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
from forebay.domain.worker import Command, WorkerInfo
from forebay.stores.protocol import Cancel
from forebay.worker.channel import (
    Answered,
    Asked,
    Channel,
    GivenUp,
    Goodbye,
    Hello,
    InDoubt,
    Kept,
    Order,
    Pause,
    Poke,
    Retiring,
    Said,
    Stop,
    ToWorker,
    Welcome,
)
from forebay.worker.keeping import Renewals
from forebay.worker.page import PLAYED, Page
from forebay.worker.slots import Assignment, Slots
from forebay.worker.standby import TICK_SECONDS, Standby

SAY_SECONDS: Final = 1.0
ORPHANED: Final = 1
LATE: Final = "refused: the worker was silent, and heard of it too late"

logger: logging.Logger = logging.getLogger(__name__)


class Leash(NamedTuple):
    """What ties a worker process to its supervisor."""

    channel: Channel[ToWorker]
    page: Page
    url: str
    is_shared: bool
    key: str | None = None


class Steered(NamedTuple):
    """What a supervisor can do to a worker."""

    carry_out: Callable[[Command], str]
    ask_to_stop: Callable[[float], None]
    stop_now: Callable[[], None]
    pause: Callable[[], None]
    resume: Callable[[], None]
    poke: Callable[[], None]
    report: Callable[[GivenUp], None]


class Supervised:
    """Stands where the renewal stands in other workers: a thread that hears what the supervisor says.

    If that is gone, this process ends on the spot: a new supervisor would start another one in its place. If
    it lives and does not renew, because it is stopped or cannot reach the store, `standby` renews meanwhile.
    """

    def __init__(
        self,
        leash: Leash,
        *,
        slots: Slots,
        clock: Clock,
        tell: Callable[[tuple[Cancel, ...]], None],
        report: Callable[[], WorkerInfo],
        steered: Steered,
        standby: Standby,
    ) -> None:
        self._leash = leash
        self._channel = leash.channel
        self._slots = slots
        self._clock = clock
        self._tell = tell
        self._report = report
        self._steered = steered
        self._standby = standby
        self._welcome = Event()
        self._lock = Lock()
        self._said: WorkerInfo | None = None
        self._failures = 0
        self._succeeded_at: int | None = None
        self._is_over = False
        self._thread = Thread(target=self._run, name="forebay-supervised", daemon=True)
        slots.page = leash.page

    @property
    def is_beating(self) -> bool:
        """Whether others know that this worker is alive: the supervisor sees to that."""
        return self._welcome.is_set()

    @property
    def renewals(self) -> Renewals:
        """How it goes, as far as the supervisor has said; while it is silent, how our own renewals go."""
        if self._standby.is_active:
            return self._standby.renewals
        return Renewals(failures=self._failures, succeeded_at=self._succeeded_at)

    def start(self) -> None:
        """Say hello, and wait until the supervisor keeps our leases: nothing is claimed before."""
        info = self._report()
        leash = self._leash
        self._channel.send(Hello(info=info, url=leash.url, is_shared=leash.is_shared, key=leash.key))
        self._thread.start()
        self._welcome.wait()

    def turned(self) -> None:
        """The coordinator is alive."""
        self._leash.page.turned(self._clock.monotonic())

    def turned_last(self) -> None:
        """The coordinator plays no more, and nobody should wait for it; what is left takes its time."""
        self._leash.page.turned(PLAYED)

    def retiring(self, reason: str, replace_after: float = 0.0) -> None:
        """This process will end when its jobs have."""
        self._channel.send(Retiring(reason=reason, replace_after=replace_after))

    def beat_soon(self) -> None:
        """Something has changed that others should see. From any thread."""
        self._say()

    def look_soon(self) -> None:
        """Commands come through the supervisor, who looks for them."""

    def stop(self) -> None:
        """Say goodbye, once; the supervisor takes the worker off the list when the process is gone."""
        self._standby.stop()
        if self._welcome.is_set() and not self._is_over:
            self._is_over = True
            self._channel.send(Goodbye())

    def _say(self) -> None:
        info = self._report()
        with self._lock:
            if info == self._said:
                return
            self._said = info
        self._channel.send(Said(info=info), may_be_missed=True)

    def _run(self) -> None:
        say_at = 0.0
        while True:
            messages = self._listen()
            if messages is None:
                os._exit(ORPHANED)
            for message in messages:
                self._hear_safely(message)
            if self._welcome.is_set() and self._clock.monotonic() >= say_at:
                say_at = self._clock.monotonic() + SAY_SECONDS
                with suppress(Exception):  # a report that fails must not end the thread that hears the rest
                    self._say()
            self._look_after_supervisor()
            self._channel.flush()

    def _look_after_supervisor(self) -> None:
        # After all messages are read: a renewal that the supervisor has told of is not repeated.
        if self._welcome.is_set():
            try:
                self._standby.look()
            except Exception:  # no memory for another thread, for example; this thread must go on
                logger.exception("leases cannot be renewed by this process itself")

    def _listen(self) -> list[ToWorker] | None:
        """What the supervisor says; None when it cannot be heard any more, because it is gone or because a
        task has closed our end or put something else in its place."""
        try:
            select([self._channel], [], [], TICK_SECONDS)
            return self._channel.receive()
        except (OSError, ValueError, msgspec.MsgspecError):
            return None

    def _hear_safely(self, message: ToWorker) -> None:
        try:
            self._hear(message)
        except Exception:
            # Without this thread nobody would hear that the supervisor is gone, so nothing ends it.
            logger.exception("what the supervisor said could not be done")

    def _hear(self, message: ToWorker) -> None:
        match message:
            case Poke():
                self._steered.poke()
            case Welcome(is_paused=is_paused):
                if is_paused:
                    self._steered.pause()
                self._welcome.set()
            case Kept():
                self._kept(message)
            case InDoubt(leases=leases, failures=failures):
                self._failures = failures
                for one in self._those(leases):
                    one.context.tell_in_doubt()
            case Asked(cancels=cancels):
                self._tell(cancels)
            case _:
                self._obey(message)

    def _obey(self, message: Order | Stop | Pause | GivenUp) -> None:
        match message:
            case GivenUp():
                self._steered.report(message)
            case Order(command=command, until=until):
                is_late = self._clock.monotonic() >= until
                text = LATE if is_late else self._steered.carry_out(command)
                self._channel.send(Answered(command_id=command.id, text=text))
            case Stop(drain=drain):
                self._stop(drain)
            case Pause(is_over=is_over):
                (self._steered.resume if is_over else self._steered.pause)()
            case _:
                assert_never(message)

    def _stop(self, drain: float) -> None:
        if drain > 0:
            self._steered.ask_to_stop(drain)
        else:
            self._steered.stop_now()

    def _kept(self, news: Kept) -> None:
        self._failures = 0
        self._succeeded_at = news.at
        for one in self._those(news.renewed):
            # A lost lease stays lost. A supervisor that was stopped tells late of renewals before the loss.
            if one.start_by > -inf:
                one.renewed(news.since)
                one.context.tell_renewed(news.at)
        reasons = {refusal.lease: refusal.reason for refusal in news.refused}
        for one in self._those(tuple(reasons)):
            one.lost()
            one.context.tell_lost(reasons[one.lease])

    def _those(self, leases: tuple[Lease, ...]) -> list[Assignment]:
        named = set(leases)
        return [one for one in self._slots if one.lease in named]
