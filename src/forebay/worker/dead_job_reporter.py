"""Calls of error listeners for jobs that the supervisor has marked dead. The supervisor does not load the
program."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from contextlib import closing

from msgspec.structs import replace

from forebay.app.worker_hooks_and_error_listeners import Hooks
from forebay.domain.job import Job
from forebay.domain.job_states import JobState
from forebay.errors import StoreUnavailable
from forebay.stores.contract.engine import Engine
from forebay.worker.supervisor.messages import JobMarkedDead

logger: logging.Logger = logging.getLogger(__name__)


class DeadJobReporter:
    """Queue of dead jobs, filled by the thread that reads the supervisor's messages.

    The coordinator's thread empties it, because that thread runs all listeners. So a listener that hangs does
    not keep the process from hearing its supervisor.
    """

    def __init__(self, engine: Engine, hooks: Hooks, notify: Callable[[], None]) -> None:
        self._engine = engine
        self._hooks = hooks
        self._notify = notify
        self._pending: deque[JobMarkedDead] = deque()

    def add(self, message: JobMarkedDead) -> None:
        self._pending.append(message)
        self._notify()

    def report(self) -> None:
        """Call the listeners for each job. While the store is unavailable the rest waits for the next
        tick."""
        while self._pending:
            try:
                job = self._load_job(self._pending[0]) if self._hooks.on_error else None
            except StoreUnavailable:
                return
            except Exception:
                logger.exception("job %s is dead, and cannot be read", self._pending[0].job_id)
                job = None
            # Removed first: a listener that ends this process is not called again for this job.
            message = self._pending.popleft()
            if job is not None:
                self._hooks.report(job, message.error)

    def _load_job(self, message: JobMarkedDead) -> Job | None:
        """Return the job as it was marked dead, whatever happened to it since; None if it was deleted.

        It is read here and not sent along: its payload may be encrypted, and only the program has the key.
        """
        with closing(self._engine.reader()) as reader:
            [job] = reader.jobs([message.job_id])
        if job is None:
            return None
        return replace(
            job,
            state=JobState.DEAD,
            attempt=message.attempt,
            reason=message.reason,
            failures=message.failures,
            crashes=message.crashes,
        )
