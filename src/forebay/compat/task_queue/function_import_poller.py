"""Poller that imports the functions of waiting jobs, submitted by other programs or before a restart."""

from __future__ import annotations

import logging
from threading import Event, Thread, current_thread
from typing import Final

from forebay.app.app import Forebay
from forebay.compat.task_queue.function_registry import FunctionRegistry
from forebay.domain.job import QueueName
from forebay.domain.job_query import MAX_PAGE, JobQuery
from forebay.domain.job_states import LIVE
from forebay.domain.lane import task_lane
from forebay.errors import StoreError, StoreUnavailable

POLL_SECONDS: Final = 1.0
_TASK_LANE_PREFIX: Final = task_lane("")

logger: logging.Logger = logging.getLogger(__name__)


class FunctionImportPoller:
    """Checks every second which functions jobs wait for, and imports them.

    A worker parks a job whose function it does not know in a lane. As soon as the function is known the
    worker claims from that lane. A function that cannot be imported here may be known to another program: its
    jobs stay parked, and are never run by the wrong program.
    """

    def __init__(self, app: Forebay, queue: QueueName, functions: FunctionRegistry) -> None:
        self._app = app
        self._queue = queue
        self._functions = functions
        self._missing: set[str] = set()
        self._crash: BaseException | None = None
        self._stop = Event()
        self._thread = Thread(target=self._run, name="forebay-importing", daemon=True)

    def start(self) -> None:
        """Check the waiting jobs once, so that they can be claimed at once; then start the thread."""
        jobs = self._app.search(JobQuery(queues=(self._queue,), states=tuple(LIVE)), limit=MAX_PAGE).jobs
        for path in {job.task for job in (*jobs, *self._app.peek(self._queue, MAX_PAGE))}:
            self._functions.import_function(path)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread. Stopping twice, or before the start, is fine. Raises the error of a crash."""
        self._stop.set()
        # The queue may be closed on any thread, also on this one, and no thread can wait for itself.
        if self._thread.is_alive() and self._thread is not current_thread():
            self._thread.join()
        crash, self._crash = self._crash, None
        if crash is not None:
            raise crash

    def poll(self) -> None:
        """Import the functions of parked jobs; log each missing one once."""
        for lane_count in self._app.client.read(lambda reader: reader.lanes()):
            if lane_count.queue == self._queue and lane_count.lane.startswith(_TASK_LANE_PREFIX):
                self._try_import(lane_count.lane.removeprefix(_TASK_LANE_PREFIX), lane_count.jobs)

    def _try_import(self, path: str, jobs: int) -> None:
        # Tried again each time: the module may still be half imported, by the program that created the queue.
        if self._functions.import_function(path) or path in self._missing:
            return
        self._missing.add(path)
        cause = self._functions.why_missing(path)
        logger.warning("%s jobs wait for %s, which cannot be imported here: %s", jobs, path, cause)

    def _run(self) -> None:
        try:
            self._poll_until_stopped()
        except BaseException as exc:
            # The end of a thread has no observer: log it now, and raise it in `stop`.
            logger.exception("the import of functions of waiting jobs has crashed, and is not tried again")
            self._crash = exc

    def _poll_until_stopped(self) -> None:
        while not self._stop.wait(POLL_SECONDS):
            try:
                self.poll()
            except StoreUnavailable as exc:
                logger.warning("functions of waiting jobs cannot be looked up now: %s", exc)
            except StoreError as exc:
                logger.error("functions of waiting jobs are not looked up any more: %s", exc)
                return
