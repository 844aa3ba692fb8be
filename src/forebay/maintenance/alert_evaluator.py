"""Duty: rules of alerts are looked at, and news of alerts are delivered."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

from forebay.app.consumer import Consumer
from forebay.clock import Clock
from forebay.domain.job import ALERT_QUEUE, ALERT_TASK, Job
from forebay.errors import StoreError
from forebay.operations.alerts.evaluation import EvaluationResult, evaluate
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store

if TYPE_CHECKING:
    from forebay.domain.delivery import DeliveryPolicy

# More than a delivery may take, so that nobody else begins it meanwhile.
LEASE_SECONDS: Final = 120.0
# Time for a process with the key of a channel to take a delivery that this one cannot send.
LOCKED_SECONDS: Final = 30.0
# So long a stop waits for what is under way: less than a worker has to let go of everything.
CLOSE_SECONDS: Final = 1.0

logger: logging.Logger = logging.getLogger(__name__)


class AlertEvaluator:
    """Whoever comes first looks; who comes to the same conclusion a moment later is refused by the store (see
    `app.alerts`).

    A look costs more than all other duties, and the more, the more workers and queues there are. So it has a
    thread and handles of its own for as long as it takes: whoever runs the duties only begins it, and neither
    jobs nor schedules nor a sweep ever wait for it.

    Deliveries are jobs of a queue of their own. Whoever has looked takes those that are due, in one more
    thread, because a server that does not answer must not hold up the next look either. So nobody has to
    serve that queue, and programs without alerts have neither that thread nor a question more.
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
        # Not at once: workers that have started together have not yet all said that they are there.
        self._ready_at = clock.monotonic() + self.every_ms / 1_000

    @property
    def is_ready(self) -> bool:
        """Only now and then, whoever asks: a consumer asks after each of its claims, and a question to the
        store each time would cost more than the alerts are worth. Not while the last look takes its time: the
        turn is for somebody who can use it."""
        now = self._clock.monotonic()
        if now < self._ready_at or _is_running(self._evaluation_thread) or self._is_closed.is_set():
            return False
        self._ready_at = now + self.every_ms / 2_000
        return True

    def run(self, store: Store) -> bool:
        """Begin a look. What is left waits for the next turn: a flood must not keep others from theirs."""
        if not _is_running(self._evaluation_thread):
            self._evaluation_thread = _start_thread("forebay-alerts", self._evaluate_logged)
        return False

    def _evaluate_logged(self) -> None:
        """Whatever goes wrong costs a line in the log, as with metrics: an alert is not worth a job."""
        try:
            looked = self._evaluate()
        except Exception as exc:
            is_known = isinstance(exc, StoreError)
            logger.warning("alerts are left to the next turn: %s", exc, exc_info=not is_known)
            return
        if looked.has_deliveries and not _is_running(self._delivery_thread) and not self._is_closed.is_set():
            self._delivery_thread = _start_thread(
                "forebay-deliveries", lambda: deliver_due(self._engine, self._is_closed.is_set, self._policy)
            )

    def _evaluate(self) -> EvaluationResult:
        # Opening may take its time where a store is away: what was closed meanwhile opens nothing more.
        if self._is_closed.is_set():
            return EvaluationResult()
        with closing(self._engine.store()) as store:
            if self._is_closed.is_set():
                return EvaluationResult()
            with closing(self._engine.reader()) as reader:
                return evaluate(store, reader, self._clock)

    def close(self) -> None:
        """Begin nothing more, and wait a little for what is under way. What takes longer ends by itself after
        its look, or its delivery; if the process ends before, somebody else does it again."""
        self._is_closed.set()
        until = self._clock.monotonic() + CLOSE_SECONDS
        if self._evaluation_thread is not None:
            self._evaluation_thread.join(CLOSE_SECONDS)
        # Asked now: it is the look that begins it.
        if self._delivery_thread is not None:
            self._delivery_thread.join(max(0.0, until - self._clock.monotonic()))


def _start_thread(name: str, work: Callable[[], object]) -> Thread:
    thread = Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread


def _is_running(thread: Thread | None) -> bool:
    return thread is not None and thread.is_alive()


def deliver_due(
    engine: Engine, is_over: Callable[[], bool] = lambda: False, policy: DeliveryPolicy | None = None
) -> int:
    """Deliver all that is due, one after the other, until it `is_over`; how many were tried. One that fails
    is a failed job: it is tried again later, and in the end it is a dead letter."""
    tried = 0
    try:
        with closing(Consumer(engine)) as consumer, closing(engine.reader()) as reader:
            while not is_over() and (jobs := consumer.claim(1, queue=ALERT_QUEUE, lease=LEASE_SECONDS)):
                for job in jobs:
                    tried += 1
                    _deliver_one(consumer, reader, job, policy)
    except StoreError as exc:
        # What was claimed is found by the sweep, and delivered again.
        logger.warning("news of alerts are delivered later: %s", exc)
    return tried


def _deliver_one(consumer: Consumer, reader: Reader, job: Job, policy: DeliveryPolicy | None) -> None:
    from forebay.operations.alerts.notification import ChannelLocked, deliver  # noqa: PLC0415 - most workers need no TLS or mail

    if job.task != ALERT_TASK:
        consumer.discard(job, f"it is no delivery, and {ALERT_QUEUE} is for deliveries alone")
        return
    error = deliver(reader, job, policy=policy)
    if error is None:
        consumer.complete(job)
    elif isinstance(error, ChannelLocked):
        logger.warning("%s; the delivery waits for one that has it", error)
        consumer.snooze(job, LOCKED_SECONDS)
    else:
        consumer.fail(job, error)
