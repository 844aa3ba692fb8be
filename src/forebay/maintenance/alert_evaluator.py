"""Alert evaluator: maintenance task that evaluates alert rules and starts the delivery of notifications."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

from forebay.clock import Clock
from forebay.errors import StoreError
from forebay.maintenance.alert_delivery import deliver_due
from forebay.operations.alerts.evaluation import EvaluationResult, evaluate
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.store import Store

if TYPE_CHECKING:
    from forebay.domain.allowed_alert_addresses_and_secrets import DeliveryPolicy

# How long `close` waits for the threads: less than the time in which a worker gives back all leases.
CLOSE_SECONDS: Final = 1.0

logger: logging.Logger = logging.getLogger(__name__)


class AlertEvaluator:
    """Evaluates alert rules; the store refuses the result of a concurrent evaluation with the same
    conclusion (see `app.alerts`).

    An evaluation costs more than all other maintenance tasks together, and grows with workers and queues. So
    it runs in a thread with handles of its own. The caller only starts that thread: jobs, schedules and
    sweeps never wait for it.

    Deliveries are jobs of a queue of their own. After an evaluation a second thread delivers those that are
    due, because a server that does not answer must not delay the next evaluation. So that queue needs no
    worker, and programs without alerts pay neither that thread nor a query.
    """

    name = "alert"
    every_ms = 10_000

    def __init__(self, engine: Engine, clock: Clock, policy: DeliveryPolicy | None = None) -> None:
        self._engine = engine
        self._policy = policy
        self._clock = clock
        self._evaluation_thread: Thread | None = None
        self._delivery_thread: Thread | None = None
        self._is_closed = Event()
        # Not at once: workers that started together have not all registered yet.
        self._ready_at = clock.monotonic() + self.every_ms / 1_000

    @property
    def is_ready(self) -> bool:
        """Whether a run is due: true once per period, for all callers together.

        Consumers ask after each claim, and a query each time would cost more than alerts are worth. False
        while the last evaluation is under way, so that the run goes to a process that can use it.
        """
        now = self._clock.monotonic()
        if now < self._ready_at or _is_running(self._evaluation_thread) or self._is_closed.is_set():
            return False
        self._ready_at = now + self.every_ms / 2_000
        return True

    def run(self, store: Store) -> bool:
        """Start an evaluation. Never report more work: a flood of alerts must not delay other tasks."""
        if not _is_running(self._evaluation_thread):
            self._evaluation_thread = _start_thread("forebay-alerts", self._evaluate_logged)
        return False

    def _evaluate_logged(self) -> None:
        """Evaluate; log any error, as with metrics: an alert must not stop a worker."""
        try:
            evaluation = self._evaluate()
        except Exception as exc:
            is_known = isinstance(exc, StoreError)
            logger.warning("alerts are evaluated at the next run: %s", exc, exc_info=not is_known)
            return
        if (
            evaluation.has_deliveries
            and not _is_running(self._delivery_thread)
            and not self._is_closed.is_set()
        ):
            self._delivery_thread = _start_thread(
                "forebay-deliveries", lambda: deliver_due(self._engine, self._is_closed.is_set, self._policy)
            )

    def _evaluate(self) -> EvaluationResult:
        # Opening may take long while a store is unreachable; a closed evaluator opens nothing more.
        if self._is_closed.is_set():
            return EvaluationResult()
        with closing(self._engine.store()) as store:
            if self._is_closed.is_set():
                return EvaluationResult()
            with closing(self._engine.reader()) as reader:
                return evaluate(store, reader, self._clock)

    def close(self) -> None:
        """Start nothing more, and wait briefly for the threads. A slower thread ends by itself after its
        evaluation or delivery. If the process ends first, another process repeats the work."""
        self._is_closed.set()
        until = self._clock.monotonic() + CLOSE_SECONDS
        if self._evaluation_thread is not None:
            self._evaluation_thread.join(CLOSE_SECONDS)
        # Evaluated now, because the evaluation starts the delivery.
        if self._delivery_thread is not None:
            self._delivery_thread.join(max(0.0, until - self._clock.monotonic()))


def _start_thread(name: str, work: Callable[[], object]) -> Thread:
    thread = Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread


def _is_running(thread: Thread | None) -> bool:
    return thread is not None and thread.is_alive()
