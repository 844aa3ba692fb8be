"""A worker: its parts, and how it starts and stops."""

from __future__ import annotations

import atexit
import logging
import os
import random
import socket
from collections.abc import Callable, Sequence
from math import inf
from threading import Event, Thread
from typing import Final

from forebay.app.registry import Registry
from forebay.clock import Clock, SystemClock
from forebay.domain.job import DEFAULT_QUEUE, QueueName, WorkerId, check_queue_name
from forebay.domain.query import WorkerInfo
from forebay.errors import ConfigError
from forebay.scheduler.standard import standard_duties
from forebay.stores.ids import new_id
from forebay.stores.protocol import Engine, Store
from forebay.worker.coordinator import Coordinator
from forebay.worker.executors.choosing import Choosing
from forebay.worker.inbox import Inbox
from forebay.worker.keeping import Renewals
from forebay.worker.renewal import Renewal
from forebay.worker.slots import Slots

DRAIN_SECONDS: Final = 25.0
INTERRUPT_SECONDS: Final = 3.0

logger = logging.getLogger(__name__)


class Worker:
    """Runs jobs of some queues until it is stopped. Every part is given what it needs here."""

    def __init__(
        self,
        engine: Engine,
        registry: Registry,
        *,
        queues: Sequence[str] = (DEFAULT_QUEUE,),
        threads: int = 4,
        coroutines: int = 100,
        clock: Clock | None = None,
    ) -> None:
        if isinstance(queues, str) or not queues:
            raise ConfigError(f"a worker needs a list of at least one queue, not {queues!r}")
        if threads < 1 or coroutines < 1:
            raise ConfigError("a worker needs at least one thread and one coroutine")
        for name in queues:
            check_queue_name(name)
        self.id = WorkerId(new_id())
        self._engine = engine
        self._info = WorkerInfo(
            id=self.id,
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=tuple(QueueName(name) for name in dict.fromkeys(queues)),
        )
        self._clock = clock or SystemClock()
        self._inbox = Inbox()
        self._slots = Slots(threads, coroutines)
        self._executors = Choosing(registry, self._slots, self._inbox, self._clock)
        self._renewal = Renewal(
            engine=engine,
            worker=self._info,
            slots=self._slots,
            clock=self._clock,
            tell=self._inbox.ask,
        )
        self._wakeups = engine.wakeups()
        self._is_started = False
        self._stopping = Event()
        self._thread: Thread | None = None
        self._crash: BaseException | None = None
        self._drain_until = inf
        self._coordinator: Coordinator
        self._store: Store | None = None

    def start(self) -> None:
        """Open the store, say that this worker is alive, and begin."""
        if self._is_started:
            raise ConfigError("this worker was started before; make another one")
        self._is_started = True
        try:
            self._begin()
        except BaseException:
            self._close()
            raise

    def _begin(self) -> None:
        self._renewal.start()
        self._store = self._engine.store()
        self._coordinator = Coordinator(
            worker=self._info,
            store=self._store,
            slots=self._slots,
            inbox=self._inbox,
            executors=self._executors,
            duties=standard_duties(sweeper=WorkerId(new_id()), clock=self._clock, roll=random.random),
            clock=self._clock,
            roll=random.random,
        )
        self._executors.start()
        self._wakeups.start(self._inbox.poke)
        thread = Thread(target=self._run, name="forebay-coordinator", daemon=True)
        thread.start()
        self._thread = thread
        # Threads of ours do not keep a program alive; one that forgets to stop its worker lets jobs end here.
        atexit.register(self.stop)

    def stop(self, drain: float = DRAIN_SECONDS) -> None:
        """Stop in order: claim nothing more, let what runs end for `drain` seconds, ask it to stop, hand back
        what is left. Stopping twice, or before the start, is fine. Raises what has crashed the worker."""
        if self._thread is None:
            return
        self.ask_to_stop(drain)
        self._thread.join()
        atexit.unregister(self.stop)
        if self._crash is not None:
            crash, self._crash = self._crash, None
            raise crash

    def ask_to_stop(self, drain: float = DRAIN_SECONDS) -> None:
        """Begin to stop as `stop` does, and return at once. The time to drain counts from the first call."""
        if not self._stopping.is_set():
            self._drain_until = self._clock.monotonic() + drain
        self._stopping.set()
        self._inbox.poke()

    def stop_now(self) -> None:
        """Begin to stop, or go on with it, and let nothing drain. Not from a signal handler: what it sets may
        be locked by the very thread that the handler has interrupted."""
        self._drain_until = self._clock.monotonic()
        self._stopping.set()
        self._inbox.poke()

    def abandon(self) -> None:
        """Do not wait for it at the end of the program either; its threads end with that."""
        atexit.unregister(self.stop)

    @property
    def is_over(self) -> bool:
        """Whether it has ended, by itself or because it was stopped; or was never started."""
        return self._thread is None or not self._thread.is_alive()

    @property
    def renewals(self) -> Renewals:
        """How the keeping of its leases goes."""
        return self._renewal.renewals

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._inbox.wait(self._coordinator.turn())
            self._end()
        except BaseException as exc:
            logger.exception("the coordinator has crashed")
            self._crash = exc
        finally:
            self._close()

    def _end(self) -> None:
        coordinator = self._coordinator
        coordinator.is_claiming = False
        coordinator.hand_back()
        if self._ended_by(lambda: self._drain_until):
            return
        coordinator.interrupt_all()
        until = self._clock.monotonic() + INTERRUPT_SECONDS
        if not self._ended_by(lambda: until):
            left = len(self._slots)
            logger.error("%s jobs did not stop; their leases will run out and the sweep decides", left)

    def _ended_by(self, until: Callable[[], float]) -> bool:
        """Play turns until nothing is held any more; leases are renewed meanwhile. The time may be cut."""
        while True:
            pause = self._coordinator.turn()
            left = until() - self._clock.monotonic()
            if self._coordinator.is_idle or left <= 0:
                return self._coordinator.is_idle
            self._inbox.wait(min(pause, left))

    def _close(self) -> None:
        """Let go of everything, whatever goes wrong with a part of it."""
        parts = [self._wakeups.close, self._executors.close, self._renewal.stop]
        if self._store is not None:
            parts.append(self._store.close)
        for close in parts:
            try:
                close()
            except Exception:
                # One part that cannot be closed, for whatever reason, must not leave the threads and handles
                # of the others behind; and what has ended the worker is reported, not this.
                logger.exception("a part of the worker could not be closed")
