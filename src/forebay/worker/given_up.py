"""Calls of the error listeners for jobs that the supervisor has given up: it does not load the program."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from contextlib import closing

from msgspec.structs import replace

from forebay.app.hooks import Hooks
from forebay.domain.job import Job
from forebay.domain.lifecycle import JobState
from forebay.errors import StoreUnavailable
from forebay.stores.protocol import Engine
from forebay.worker.channel import GivenUp

logger: logging.Logger = logging.getLogger(__name__)


class GivenUpJobs:
    """Filled by the thread that hears the supervisor, emptied by the coordinator's thread, which runs all
    listeners. So a listener that hangs does not keep the process from hearing its supervisor."""

    def __init__(self, engine: Engine, hooks: Hooks, ring: Callable[[], None]) -> None:
        self._engine = engine
        self._hooks = hooks
        self._ring = ring
        self._waiting: deque[GivenUp] = deque()

    def add(self, news: GivenUp) -> None:
        self._waiting.append(news)
        self._ring()

    def report(self) -> None:
        """Call the listeners for each job. While the store is away the rest waits for the next tick."""
        while self._waiting:
            try:
                job = self._job(self._waiting[0]) if self._hooks.on_error else None
            except StoreUnavailable:
                return
            except Exception:
                logger.exception("job %s is dead, and cannot be read", self._waiting[0].job_id)
                job = None
            # Taken off first: a listener that ends this process is not called again for this job.
            news = self._waiting.popleft()
            if job is not None:
                self._hooks.report(job, news.error)

    def _job(self, news: GivenUp) -> Job | None:
        """The job as it was given up, whatever has become of it since; None if it was deleted.

        Read here and not sent along: its payload may be encrypted, and only the program has the key.
        """
        with closing(self._engine.reader()) as reader:
            [job] = reader.jobs([news.job_id])
        if job is None:
            return None
        return replace(
            job,
            state=JobState.DEAD,
            attempt=news.attempt,
            reason=news.reason,
            failures=news.failures,
            crashes=news.crashes,
        )
