"""Health of a worker in its log, once a minute."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from forebay.clock import Clock
from forebay.domain.job import QueueName
from forebay.domain.worker import WorkerInfo

EVERY_SECONDS: Final = 60.0
_MB: Final = 1_048_576

logger: logging.Logger = logging.getLogger(__name__)


class HealthLog:
    """Writes the log line. `depths` reads the pending jobs from the store, None while that is unavailable;
    its duration is logged as the store's latency."""

    def __init__(
        self, clock: Clock, info: Callable[[], WorkerInfo], depths: Callable[[], dict[QueueName, int] | None]
    ) -> None:
        self._clock = clock
        self._info = info
        self._depths = depths
        self._started_at = clock.monotonic()
        self._next_at = self._started_at + EVERY_SECONDS

    def log_if_due(self) -> None:
        """Log the line if it is due. Called in each tick of the coordinator."""
        now = self._clock.monotonic()
        if now < self._next_at:
            return
        self._next_at = now + EVERY_SECONDS
        if not logger.isEnabledFor(logging.INFO):
            return
        depths, info = self._load_depths(), self._info()
        answered_at = self._clock.monotonic()
        fields = {
            "worker_id": info.id,
            "state": info.state,
            "memory": info.memory,
            "cpu": info.cpu,
            "up_seconds": round(now - self._started_at),
            "completed": info.completed,
            "failed": info.failed,
            "running": len(info.running),
            "depths": depths,
            "store_ms": round((answered_at - now) * 1_000, 1),
        }
        logger.info(
            "worker %s is %s: up %d s, %d completed, %d failed, %d MB, %.2f of a core; pending %s; "
            "the store answers in %.1f ms",
            info.id,
            info.state,
            fields["up_seconds"],
            info.completed,
            info.failed,
            (info.memory or 0) // _MB,
            info.cpu or 0.0,
            "unknown" if depths is None else depths,
            fields["store_ms"],
            extra=fields,
        )

    def _load_depths(self) -> dict[QueueName, int] | None:
        try:
            return self._depths()
        except Exception as exc:  # a log line must not end a worker, whatever a store raises
            logger.warning("pending jobs cannot be counted now: %s", exc)
            return None
