"""The weights of queues as the store has them, for a worker that was given none."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from typing import Final

from forebay.clock import Clock
from forebay.errors import StoreError
from forebay.stores.protocol import Reader
from forebay.worker.steering import Steering

LOOK_SECONDS: Final = 10.0
logger: logging.Logger = logging.getLogger(__name__)


class Weighing:
    """Looks at the settings of queues from time to time, so that a change reaches workers that run.

    A worker of one queue has nothing to weigh, and never looks. The handle is opened for each look: one that
    stays open would cost every worker a connection for a question in ten seconds.
    """

    def __init__(self, steering: Steering, open_reader: Callable[[], Reader], clock: Clock) -> None:
        self._steering = steering
        self._open_reader = open_reader
        self._clock = clock
        self._look_at = clock.monotonic()

    def look(self) -> None:
        """Take over what the store says, if it is time."""
        steering, now = self._steering, self._clock.monotonic()
        if now < self._look_at or not steering.followed or len(steering.weights) == 1:
            return
        # Set first: who cannot look goes on with the weights it has, and does not try again at once.
        self._look_at = now + LOOK_SECONDS
        try:
            with closing(self._open_reader()) as reader:
                queues = reader.queues(sorted(steering.followed))
        except StoreError as exc:
            # Whatever it is, the exchange that follows meets it too if it matters.
            logger.debug("cannot look at the weights of queues: %s", exc)
            return
        steering.weigh({queue.name: queue.settings.weight for queue in queues})
