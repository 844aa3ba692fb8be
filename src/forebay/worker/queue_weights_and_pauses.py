"""Weights of the queues of a worker, and the queues that are paused."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from threading import Lock
from typing import Final

from forebay.clock import Clock
from forebay.deferred_interrupts import uninterrupted
from forebay.domain.job import QueueName
from forebay.domain.job_validation import check_queue_name
from forebay.domain.outcome import Interrupted
from forebay.errors import ConfigError, StoreError
from forebay.stores.contract.reader import Reader
from forebay.worker.coordinator_inbox import Inbox
from forebay.worker.slots import Slots

MAX_WEIGHT: Final = 1_000


def parse_queue_weights(queues: Sequence[str] | Mapping[str, int | None]) -> dict[QueueName, int | None]:
    """Return the queues of a worker in the order given, with their weights, None for the store's. Raises
    ConfigError for invalid ones."""
    if isinstance(queues, str) or not queues:
        raise ConfigError(f"a worker needs a list of at least one queue, not {queues!r}")
    pairs = dict(queues) if isinstance(queues, Mapping) else dict.fromkeys(queues, None)
    for name, weight in pairs.items():
        check_queue_name(name)
        if weight is not None and (type(weight) is not int or not 1 <= weight <= MAX_WEIGHT):
            raise ConfigError(
                f"the weight of queue {name} must be a number from 1 to {MAX_WEIGHT}, not {weight!r}"
            )
    return {QueueName(name): weight for name, weight in pairs.items()}


class QueueWeights:
    """Queues and weights, changed from any thread and read by the coordinator. A pause here concerns this
    worker alone: other workers go on with the queue.

    When `pause` returns, no job of these queues is started any more. The coordinator puts claimed jobs into
    the slots, then reads the paused queues, then submits the jobs to an executor. A pause first writes the
    names, then acquires the jobs in the slots. So either the coordinator sees the name or the pause sees the
    job, and the later side finds that ownership is gone.
    """

    def __init__(
        self, weights: Mapping[QueueName, int | None], slots: Slots, inbox: Inbox, *, strict: bool = False
    ) -> None:
        # With `strict` weights have no effect.
        self.store_weighted: frozenset[QueueName] = frozenset(
            queue for queue, weight in weights.items() if weight is None and not strict
        )
        self.weights: Mapping[QueueName, int] = {queue: weight or 1 for queue, weight in weights.items()}
        self.strict = strict
        self._slots = slots
        self._inbox = inbox
        self._lock = Lock()
        self._paused: frozenset[QueueName] = frozenset()

    def paused_queues(self) -> frozenset[QueueName]:
        """Return the queues that are paused now."""
        return self._paused

    @property
    def is_paused(self) -> bool:
        """Whether nothing is claimed at all."""
        return self._paused.issuperset(self.weights)

    def update_weights(self, stored: Mapping[QueueName, int]) -> None:
        """Take over the weights of the store for queues that were given none here."""
        weights = {queue: stored.get(queue, 1) for queue in self.store_weighted}
        if any(self.weights[queue] != weight for queue, weight in weights.items()):
            self.weights = {queue: weights.get(queue, weight) for queue, weight in self.weights.items()}

    def pause(self, queue: str | None = None) -> None:
        """Stop claiming from one queue, or from all. Running jobs go on; waiting ones are handed back."""
        names = self._resolve_queues(queue)
        with uninterrupted, self._lock:
            self._paused |= names
        for assignment in self._slots:
            if assignment.job.queue in names and assignment.acquire():
                self._inbox.put(assignment, Interrupted(started=False))
        self._inbox.wake()

    def resume(self, queue: str | None = None) -> None:
        """Claim again, at once."""
        names = self._resolve_queues(queue)
        with uninterrupted, self._lock:
            self._paused -= names
        self._inbox.wake()

    def _resolve_queues(self, queue: str | None) -> frozenset[QueueName]:
        if queue is None:
            return frozenset(self.weights)
        if queue not in self.weights:
            raise ConfigError(f"this worker does not serve queue {queue}, but {', '.join(self.weights)}")
        return frozenset([QueueName(queue)])


REFRESH_SECONDS: Final = 10.0
logger: logging.Logger = logging.getLogger(__name__)


class QueueWeightRefresher:
    """Reads the queue weights of the store from time to time, so that a change reaches running workers.

    A worker of one queue needs no weights, and never reads them. The handle is opened for each read: an open
    one would cost every worker a connection for a query every ten seconds.
    """

    def __init__(self, queue_weights: QueueWeights, open_reader: Callable[[], Reader], clock: Clock) -> None:
        self._queue_weights = queue_weights
        self._open_reader = open_reader
        self._clock = clock
        self._refresh_at = clock.monotonic()

    def refresh_if_due(self) -> None:
        """Take over the weights of the store, if it is time."""
        queue_weights, now = self._queue_weights, self._clock.monotonic()
        if now < self._refresh_at or not queue_weights.store_weighted or len(queue_weights.weights) == 1:
            return
        # Set first: a failed read goes on with the present weights, and is not repeated at once.
        self._refresh_at = now + REFRESH_SECONDS
        try:
            with closing(self._open_reader()) as reader:
                queues = reader.queues(sorted(queue_weights.store_weighted))
        except StoreError as exc:
            # Whatever it is, the round trip that follows meets it too if it matters.
            logger.debug("queue weights cannot be read: %s", exc)
            return
        queue_weights.update_weights({queue.name: queue.settings.weight for queue in queues})
