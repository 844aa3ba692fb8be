"""Unserved queue warner: maintenance task that logs the queues that no worker serves."""

from __future__ import annotations

import logging
from collections.abc import Callable

from forebay.domain.job import QueueName
from forebay.operations.unserved_queues import unserved_queues
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store

logger: logging.Logger = logging.getLogger(__name__)


class UnservedQueueWarner:
    """Queries the queues once a minute. Each queue is named once, and again after a worker has served it in
    between."""

    name = "unserved"
    every_ms = 60_000
    is_ready = True

    def __init__(self, reader: Callable[[], Reader]) -> None:
        self._new_reader = reader
        self._reported: frozenset[QueueName] = frozenset()

    def run(self, store: Store) -> bool:
        reader = self._new_reader()
        try:
            queues = unserved_queues(reader)
        finally:
            reader.close()
        for queue in queues:
            if queue.name not in self._reported:
                wait = "1 job waits" if queue.pending == 1 else f"{queue.pending:,} jobs wait"
                logger.warning(
                    "%s in queue %s, and no worker serves it; start one with --queues %s",
                    wait,
                    queue.name,
                    queue.name,
                )
        self._reported = frozenset(queue.name for queue in queues)
        return False
