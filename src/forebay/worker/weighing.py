"""The weights of queues as the store has them, for a worker that was given none."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from typing import Final

from forebay.clock import Clock
from forebay.errors import StoreError
from forebay.stores.protocol import Reader
from forebay.worker.steering import QueueWeights

REFRESH_SECONDS: Final = 10.0
logger: logging.Logger = logging.getLogger(__name__)


class QueueWeightRefresher:
    """Looks at the settings of queues from time to time, so that a change reaches workers that run.

    A worker of one queue has nothing to weigh, and never looks. The handle is opened for each look: one that
    stays open would cost every worker a connection for a question in ten seconds.
    """

    def __init__(self, queue_weights: QueueWeights, open_reader: Callable[[], Reader], clock: Clock) -> None:
        self._queue_weights = queue_weights
        self._open_reader = open_reader
        self._clock = clock
        self._refresh_at = clock.monotonic()

    def refresh_if_due(self) -> None:
        """Take over what the store says, if it is time."""
        steering, now = self._queue_weights, self._clock.monotonic()
        if now < self._refresh_at or not steering.store_weighted or len(steering.weights) == 1:
            return
        # Set first: who cannot look goes on with the weights it has, and does not try again at once.
        self._refresh_at = now + REFRESH_SECONDS
        try:
            with closing(self._open_reader()) as reader:
                queues = reader.queues(sorted(steering.store_weighted))
        except StoreError as exc:
            # Whatever it is, the exchange that follows meets it too if it matters.
            logger.debug("cannot look at the weights of queues: %s", exc)
            return
        steering.update_weights({queue.name: queue.settings.weight for queue in queues})
