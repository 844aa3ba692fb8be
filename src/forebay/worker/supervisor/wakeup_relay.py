"""Wake-up relay: one listener for all workers of a supervisor."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from forebay.errors import StoreError
from forebay.stores.contract.engine import Engine
from forebay.worker.supervisor.messages import WakeUp
from forebay.worker.supervisor.worker_process import WorkerProcess

logger: logging.Logger = logging.getLogger(__name__)


class WakeupRelay:
    """Wakes all worker processes when the store sends a wake-up.

    The workers do not listen themselves: a store pays for every listener, with a connection or with a message
    to each.
    """

    def __init__(
        self,
        engine: Engine,
        children: Callable[[], Sequence[WorkerProcess]],
        request_command_poll: Callable[[], None],
    ) -> None:
        self._wakeups = engine.wakeups()
        self._children = children
        self._request_command_poll = request_command_poll

    def start(self) -> None:
        """Start listening, before the first worker claims, so that it misses no wake-up."""
        try:
            self._wakeups.start(self._wake_all)
        except StoreError as exc:
            logger.warning("there are no wake-ups from the store, so jobs are found later: %s", exc)

    def close(self) -> None:
        self._wakeups.close()

    def _wake_all(self) -> None:
        self._request_command_poll()
        for child in self._children():
            # One that is not up yet claims when it is.
            if child.is_up:
                child.channel.send(WakeUp(), may_be_missed=True)
