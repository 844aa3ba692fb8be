"""Keeping leases, on a thread and a store handle of its own: nothing a task does can hold it up."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event, Thread
from typing import Final

from forebay.clock import Clock
from forebay.domain.query import WorkerInfo
from forebay.errors import StoreUnavailable
from forebay.stores.protocol import Cancel, Engine, Store
from forebay.worker.slots import Slots

TICK_SECONDS: Final = 0.25
BEAT_SECONDS: Final = 10.0

logger = logging.getLogger(__name__)


class Renewal:
    """Renews each lease after a third of its length, and says that the worker is alive."""

    def __init__(
        self,
        *,
        engine: Engine,
        worker: WorkerInfo,
        slots: Slots,
        clock: Clock,
        tell: Callable[[tuple[Cancel, ...]], None],
    ) -> None:
        self._engine = engine
        self._worker = worker
        self._slots = slots
        self._clock = clock
        self._tell = tell
        self._stop = Event()
        self._beat_at = 0.0
        self._store: Store | None = None
        self._thread = Thread(target=self._run, name="forebay-renewal", daemon=True)

    def start(self) -> None:
        """Open the handle and beat once, so that from the first claim on a death is noticed."""
        self._store = self._engine.store()
        try:
            self._beat(self._store)
            self._thread.start()
        except BaseException:
            self._store.close()
            self._store = None
            raise

    def stop(self) -> None:
        """Stop renewing and take the worker off the list. A job that did not stop keeps its lease until that
        ends: it still runs here. Stopping twice, or before the start, is fine."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        store, self._store = self._store, None
        if store is None:
            return
        try:
            store.forget_worker(self._worker.id)
        except StoreUnavailable as exc:
            logger.warning("worker %s stays on the list for now: %s", self._worker.id, exc)
        finally:
            store.close()

    def _run(self) -> None:
        while not self._stop.wait(TICK_SECONDS):
            try:
                self.renew_due()
            except StoreUnavailable as exc:
                # Not reachable is not lost: nobody else can reach the store either, and the fence decides.
                logger.warning("leases cannot be renewed now: %s", exc)
            except Exception:
                # Without this thread every lease of the worker would be lost, so nothing ends it.
                logger.exception("leases could not be renewed")

    def renew_due(self) -> None:
        """Renew what is past a third of its lease; beat if it is time."""
        if self._store is None:
            return
        self._renew(self._store)
        if self._clock.monotonic() >= self._beat_at:
            self._beat(self._store)

    def _renew(self, store: Store) -> None:
        now = self._clock.monotonic()
        due = [one for one in self._slots if now >= one.renew_at]
        if not due:
            return
        answer = store.renew(self._worker.id, [one.lease for one in due])
        lost = {refusal.lease for refusal in answer.refused}
        for one in due:
            one.renewed(now)
            if one.lease in lost:
                one.context.tell_lost()
        self._tell(answer.cancels)

    def _beat(self, store: Store) -> None:
        store.beat(self._worker)
        self._beat_at = self._clock.monotonic() + BEAT_SECONDS
