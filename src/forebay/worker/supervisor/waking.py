"""Passing hints on: one listener for all workers of a supervisor."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from forebay.errors import StoreError
from forebay.stores.protocol import Engine
from forebay.worker.channel import Poke
from forebay.worker.supervisor.child import Child

logger: logging.Logger = logging.getLogger(__name__)


class Waking:
    """Pokes all worker processes when the store says that something may have come.

    They do not listen themselves: a store pays for every listener, with a connection or with a word to each.
    """

    def __init__(
        self, engine: Engine, children: Callable[[], Sequence[Child]], look_soon: Callable[[], None]
    ) -> None:
        self._wakeups = engine.wakeups()
        self._children = children
        self._look_soon = look_soon

    def start(self) -> None:
        """Listen; before the first worker looks for jobs, so that it misses nothing."""
        try:
            self._wakeups.start(self._poke)
        except StoreError as exc:
            logger.warning("nobody listens to the store, so jobs are found later: %s", exc)

    def close(self) -> None:
        self._wakeups.close()

    def _poke(self) -> None:
        self._look_soon()
        for child in self._children():
            # One that is not up yet looks when it is.
            if child.is_up:
                child.channel.send(Poke(), may_be_missed=True)
