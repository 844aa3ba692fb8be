"""Relay: carries the jobs of an outbox to their queue."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from forebay.app.client import Client
from forebay.errors import ConfigError, ForebayError, StoreUnavailable
from forebay.integrations.outbox.relay_batch import DEFAULT_BATCH_ROWS, RelayResult, relay_batch
from forebay.integrations.outbox.stats import OutboxStats, outbox_stats
from forebay.integrations.outbox.table import Outbox

if TYPE_CHECKING:
    from sqlalchemy import Engine, Table

__all__ = ["OutboxStats", "Relay", "RelayResult", "outbox_stats", "relay_batch", "run_relay"]

OUTAGE_SECONDS: Final = 1.0
LONGEST_OUTAGE_SECONDS: Final = 30.0
LONGEST_SECONDS: Final = 3_600.0

logger: logging.Logger = logging.getLogger(__name__)


class Relay:
    """Polls the outbox at an interval, in a thread of its own; any number of relays may run. Whatever is
    wrong with the database or the queue, it tries again, in the end every half minute."""

    def __init__(
        self,
        table: Table,
        engine: Engine,
        client: Client,
        *,
        every: float = 1.0,
        limit: int = DEFAULT_BATCH_ROWS,
    ) -> None:
        if not 0 < every <= LONGEST_SECONDS:  # also refuses NaN
            raise ConfigError(f"a relay polls every 0 to {LONGEST_SECONDS:,.0f} seconds, not every {every}")
        _check_blocks(engine)
        self._table = table
        self._engine = engine
        self._client = client
        self._every = every
        self._limit = limit
        self._is_stopped = Event()
        self._thread: Thread | None = None
        self._failures = 0
        self.stored: int = 0
        self.refused: int = 0

    def start(self) -> None:
        """Start the thread. One batch is carried first, so that errors that an operator must fix are raised
        here: a missing table or store. An unavailable queue is waited for."""
        try:
            pause = 0.0 if self._relay_batch() else self._every
        except StoreUnavailable as exc:
            pause = self._pause_after(exc)
        self._thread = Thread(target=self._run, args=(pause,), name="forebay-outbox", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the present batch. Stopping twice, or before the start, is fine."""
        self._is_stopped.set()
        if self._thread is not None:
            self._thread.join()

    @property
    def is_running(self) -> bool:
        """Whether its thread is alive."""
        return self._thread is not None and self._thread.is_alive()

    def tick(self) -> None:
        """Carry all that is due, in batches, unless it is stopped between two of them."""
        while not self._is_stopped.is_set() and self._relay_batch():
            pass

    def _relay_batch(self) -> bool:
        """Carry one batch; return whether there may be more."""
        result = relay_batch(self._table, self._engine, self._client, self._limit)
        self.stored += result.stored
        self.refused += result.refused
        return result.has_more

    def _run(self, pause: float) -> None:
        while not self._is_stopped.wait(pause):
            try:
                self.tick()
                pause = self._every
                self._failures = 0
            except (ForebayError, SQLAlchemyError) as exc:
                # Also errors that an operator must fix: a thread that has ended would go unnoticed.
                pause = self._pause_after(exc)

    def _pause_after(self, error: Exception) -> float:
        logger.warning("jobs stay in the outbox for now: %s", error)
        backoff: float = min(LONGEST_OUTAGE_SECONDS, OUTAGE_SECONDS * 2 ** min(self._failures, 10))
        self._failures += 1
        retry_after: float | None = getattr(error, "retry_after", None)
        return max(self._every, backoff if retry_after is None else min(retry_after, LONGEST_SECONDS))


@contextmanager
def run_relay(outbox: Outbox, engine: Engine, *, every: float = 1.0) -> Iterator[Relay]:
    """Run a relay in a thread of this program while the block lasts. It starts also while the queue is
    unavailable."""
    relay = Relay(outbox.table, engine, outbox.queue.client, every=every)
    relay.start()
    try:
        yield relay
    finally:
        relay.stop()


def _check_blocks(engine: object) -> None:
    if isinstance(engine, AsyncEngine):
        raise ConfigError("a relay has a thread and needs a blocking engine: one of create_engine")
