"""Keeping leases, on a thread and a store handle of its own: nothing a task does can hold it up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from threading import Event, Thread
from typing import Final

from forebay.clock import Clock
from forebay.domain.worker import WorkerInfo
from forebay.errors import StoreUnavailable
from forebay.stores.protocol import Cancel, Engine, Store
from forebay.telemetry.timing import timed
from forebay.worker.control import Control
from forebay.worker.keeping import Keeping, Renewals
from forebay.worker.slots import Assignment, Slots

TICK_SECONDS: Final = 0.25
SLOWEST_SECONDS: Final = 2.0
WATCH_SECONDS: Final = 0.5
COMMANDS_SECONDS: Final = 1.0
MISSED_BEATS: Final = 2
JOIN_SECONDS: Final = 5.0

logger: logging.Logger = logging.getLogger(__name__)

# Handles of workers that could not say that they have stopped while their jobs still run; see `stop`.
left_open: Final[list[Store]] = []


class Renewal:
    """Renews each lease after a third of its length or ten seconds, and says that the worker is alive.

    A store call cannot be called off, and a store that is locked may hold one for long. So a second thread
    looks at the first: what hangs is seen, counted and said.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        worker: WorkerInfo,
        slots: Slots,
        clock: Clock,
        tell: Callable[[tuple[Cancel, ...]], None],
        report: Callable[[], WorkerInfo] | None = None,
        control: Control | None = None,
        watch: Callable[[], None] = lambda: None,
    ) -> None:
        self._engine = engine
        self._worker = worker
        self._slots = slots
        self._clock = clock
        self._tell = tell
        self._report = report or (lambda: worker)
        self._control = control
        self._also_watch = watch
        self._commands_at = 0.0
        self._beaten_at = clock.monotonic()
        self._stop = Event()
        self._beat_at = 0.0
        self._store: Store | None = None
        self._keeping = Keeping(clock)
        self._thread = Thread(target=self._run, name="forebay-renewal", daemon=True)
        self._watcher = Thread(target=self._watch, name="forebay-renewal-watch", daemon=True)

    @property
    def renewals(self) -> Renewals:
        """How it goes."""
        return self._keeping.renewals

    def start(self) -> None:
        """Open the handle and beat once, so that from the first claim on a death is noticed."""
        self._store = timed(self._engine.store(), self._clock)
        try:
            self._beat(self._store)
            self._thread.start()
            self._watcher.start()
        except BaseException:
            self._stop.set()
            self._store.close()
            self._store = None
            raise

    def stop(self) -> None:
        """Stop renewing and take the worker off the list. A job that did not stop keeps its lease until that
        ends: it still runs here. Stopping twice, or before the start, is fine.

        A store that hangs is waited for a few seconds. The thread lives until its call ends, and leaves then:
        the handle is its own, and nobody else may use or close it meanwhile.
        """
        self._stop.set()
        for thread in (self._watcher, self._thread):
            if thread.is_alive():
                thread.join(JOIN_SECONDS)
        if self._thread.is_alive():
            logger.warning("worker %s stays on the list until the store answers", self._worker.id)

    def _leave(self) -> None:
        store, self._store = self._store, None
        if store is None:
            return
        is_forgotten = False
        try:
            store.forget_worker(self._worker.id)
            is_forgotten = True
        except StoreUnavailable as exc:
            logger.warning("worker %s stays on the list for now: %s", self._worker.id, exc)
        finally:
            if is_forgotten or not any(one.is_running for one in self._slots):
                store.close()
            else:
                # A worker on the list whose handle is closed is taken for dead, and its jobs are given to
                # others at once, while they still run here. The end of the process frees the handle.
                left_open.append(store)

    def _run(self) -> None:
        pause = TICK_SECONDS
        while not self._stop.wait(pause):
            # A store in trouble is not asked more and more; two seconds are little beside a lease.
            pause = TICK_SECONDS if self._went_well() else min(pause * 2, SLOWEST_SECONDS)
        try:
            self._leave()
        except Exception:
            logger.exception("worker %s could not be taken off the list", self._worker.id)

    def _went_well(self) -> bool:
        try:
            self.renew_due()
        except StoreUnavailable as exc:
            # Not reachable is not lost: nobody else can reach the store either, and the fence decides.
            logger.warning("leases cannot be renewed now (%s in a row): %s", self.renewals.failures, exc)
            return False
        except Exception:
            # Without this thread every lease of the worker would be lost, so nothing ends it.
            logger.exception("leases could not be renewed")
            return False
        return True

    def _watch(self) -> None:
        while not self._stop.wait(WATCH_SECONDS):
            self._keeping.look()
            self._also_watch()

    def renew_due(self) -> None:
        """Renew what is due; beat if it is time."""
        if self._store is None:
            return
        now = self._clock.monotonic()
        due = [one for one in self._slots if now >= one.renew_at]
        if due:
            self._renew(self._store, due, now)
        if self._clock.monotonic() >= self._beat_at:
            with self._keeping.calling():
                self._beat(self._store)
        if self._control is not None and now >= self._commands_at:
            self._commands_at = now + COMMANDS_SECONDS
            with self._keeping.calling():
                self._control.serve(self._store, self._store.take_commands([self._worker.id]))

    def beat_soon(self) -> None:
        """Something has changed that others should see: beat with the next tick. From any thread."""
        self._beat_at = 0.0

    def look_soon(self) -> None:
        """Somebody may have sent a command: look with the next tick. From any thread."""
        self._commands_at = 0.0

    def _renew(self, store: Store, due: Sequence[Assignment], now: float) -> None:
        with self._keeping.calling(due) as lost:
            answer = store.renew(self._worker.id, [one.lease for one in due])
            lost.update((refusal.lease, refusal.reason) for refusal in answer.refused)
        for one in due:
            if one.lease in lost:
                one.lost()
            else:
                one.renewed(now)
        self._tell(answer.cancels)

    def _beat(self, store: Store) -> None:
        # First the time, then the report: a change after the report asks for another beat, and is not lost.
        self._beat_at = self._clock.monotonic() + self._worker.beat_ms / 1_000
        try:
            store.beat(self._report())
        except BaseException:
            self._beat_at = 0.0
            raise
        self._beaten_at = self._clock.monotonic()

    def turned(self) -> None:
        """The coordinator has played a turn; only a supervisor wants to know."""

    def turned_last(self) -> None:
        """The coordinator plays no more."""

    def retiring(self, reason: str, replace_after: float = 0.0) -> None:
        """This worker will end when its jobs have; only a supervisor replaces it."""

    @property
    def is_beating(self) -> bool:
        """Whether others know that this worker is alive: it has not missed two beats."""
        missing = self._clock.monotonic() - self._beaten_at
        return missing < MISSED_BEATS * self._worker.beat_ms / 1_000
