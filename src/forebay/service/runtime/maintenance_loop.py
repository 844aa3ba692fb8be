"""Maintenance loop of a server process: runs the maintenance tasks, and writes the metrics of the process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from forebay.errors import StoreError, StoreUnavailable
from forebay.operations.maintenance_task import MaintenanceTask, close_tasks, notify_connected, run_due_tasks
from forebay.operations.metrics_recorder import MetricsRecorder
from forebay.service.runtime.consumer_presence import Presence
from forebay.service.runtime.store_pool import StorePool
from forebay.stores.contract.store import Store

TICK_SECONDS: Final = 1.0

logger: logging.Logger = logging.getLogger(__name__)


class MaintenanceLoop:
    """Runs the tasks that are due once a second, and writes what `metrics` and `presence` have collected."""

    def __init__(
        self,
        pool: StorePool,
        tasks: Sequence[MaintenanceTask],
        metrics: MetricsRecorder,
        presence: Presence,
        roll: Callable[[], float],
    ) -> None:
        self._pool = pool
        self._tasks = tasks
        self._metrics = metrics
        self._presence = presence
        self._roll = roll
        self._was_away = False
        self._loop_task: asyncio.Task[None] | None = None
        self._round: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    def start(self) -> None:
        """Start the loop; on the event loop."""
        self._loop_task = asyncio.create_task(self._run(), name="forebay-maintenance-loop")

    def request_stop(self) -> None:
        """Start no further round."""
        self._stopping.set()

    async def stop(self) -> None:
        """End the loop after the present round, and close the tasks. May be called twice, or before the
        start."""
        self.request_stop()
        try:
            if self._loop_task is not None:
                await asyncio.wait([self._loop_task])  # however it ends
            if self._round is not None:
                await asyncio.wait([self._round])
        finally:
            await asyncio.to_thread(close_tasks, self._tasks)

    async def write_metrics(self) -> None:
        """Write the remaining metrics at the stop. An unavailable store is skipped: a stop does not wait for
        metrics."""
        if self._loop_task is None or self._was_away:
            return
        self._metrics.set_consumers(self._presence.take_peaks())
        try:
            await self._pool.run_maintenance(self._metrics.record_all)
        except StoreError as exc:
            logger.warning("the last metrics are not written: %s", exc)

    async def _run(self) -> None:
        while not self._stopping.is_set():
            if self._round is None or self._round.done():
                self._round = asyncio.create_task(self._run_round(), name="forebay-maintenance")
            with suppress(TimeoutError):
                # With jitter: servers that were started together must not write together for ever.
                async with asyncio.timeout(TICK_SECONDS * (1 - self._roll() / 5)):
                    await self._stopping.wait()

    async def _run_round(self) -> None:
        self._metrics.set_consumers(self._presence.take_peaks())
        try:
            # One call each: several tasks are due every second, with a commit or two each, and a concurrent
            # write would wait for all of them.
            for task in self._tasks:
                await self._pool.run_maintenance(partial(self._run_task, task))
            await self._pool.run_maintenance(self._metrics.record)
        except StoreError as exc:
            self._was_away = self._was_away or isinstance(exc, StoreUnavailable)
            logger.warning("maintenance is left to the next tick: %s", exc)
        except Exception:  # no caller awaits this task
            logger.exception("maintenance failed; it is tried again within a second")

    def _run_task(self, task: MaintenanceTask, store: Store) -> None:
        if self._was_away:
            self._was_away = False
            notify_connected(self._tasks)
        run_due_tasks(store, [task])
