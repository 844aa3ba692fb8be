"""A program that enqueues one job after the other, and a worker that runs them, while servers come and go."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import count
from threading import Event, Thread
from typing import Final

from forebay import Forebay, current_job
from forebay.domain.job import JobId
from forebay.domain.job_states import JobState
from forebay.errors import StoreUnavailable
from tests.worker.support import eventually

# Ten times what is promised after an outage, and the time of the outage itself.
SECONDS: Final = 60.0


class Load:
    """Starts with a `with` and ends with it; every job that was accepted and is still there is done then."""

    def __init__(self, url: str) -> None:
        self.accepted: list[JobId] = []
        self.done: list[JobId] = []
        self.refused = 0
        self._app = Forebay(url)
        self._is_over, self._has_failed = Event(), Event()
        self._producer = Thread(target=self._produce, name="producer", daemon=True)
        self._stack = ExitStack()

        @self._app.task(name="note", lease=3, max_crashes=50)
        def note(_number: int) -> None:
            self.done.append(current_job().id)

        self._task = note

    def __enter__(self) -> Load:
        self._stack.enter_context(self._app)
        self._stack.enter_context(self._app.run_worker(threads=2))
        self._producer.start()
        self.goes_on()
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self._is_over.set()
            if exc[0] is not None:
                self._has_failed.set()
            self._producer.join(SECONDS)
            if exc[0] is None:
                assert not self._producer.is_alive()
                eventually(self.is_done, SECONDS)
                assert self._app.client.read(lambda reader: reader.health()).problems == ()
        finally:
            self._has_failed.set()
            self._stack.close()

    def goes_on(self, jobs: int = 30) -> None:
        """Wait until so many more were accepted and done."""
        accepted, done = len(self.accepted) + jobs, len(self.done) + jobs
        eventually(lambda: len(self.accepted) >= accepted and len(self.done) >= done, SECONDS)

    def lost(self) -> list[int]:
        """Which of the accepted ones are not there any more, by their number."""
        accepted = list(self.accepted)  # it grows
        there = self._app.client.read(lambda reader: reader.jobs(accepted))
        return [number for number, job in enumerate(there) if job is None]

    def accepted_once(self) -> bool:
        """Whether each job is there once, and none is lost. It may have run twice: an end that was not
        heard of is asked for again, and one that was not accepted is repeated."""
        return len(set(self.accepted)) == len(self.accepted) and set(self.accepted) == set(self.done)

    def done_once(self, lost: list[int]) -> bool:
        """The same, but for those that are lost: these may have run before."""
        there = set(self.accepted) - {self.accepted[number] for number in lost}
        return len(set(self.accepted)) == len(self.accepted) and there <= set(self.done)

    def is_done(self) -> bool:
        """Whether every job that was accepted and is still there is completed."""
        try:
            accepted = list(self.accepted)
            there = self._app.client.read(lambda reader: reader.jobs(accepted))
        except StoreUnavailable:
            return False
        return all(job is None or job.state is JobState.COMPLETED for job in there)

    def _produce(self) -> None:
        for number in count():
            self._enqueue(number)
            if self._is_over.wait(0.002):
                return

    def _enqueue(self, number: int) -> None:
        """Until it is accepted, also at the end: what was not answered may be there, and be done."""
        while not self._has_failed.is_set():
            try:
                # A client without an answer asks again, and the key keeps it from being there twice.
                job = self._task.using(idempotency_key=str(number)).enqueue(number)
            except StoreUnavailable:
                self.refused += 1
                self._has_failed.wait(0.05)
            else:
                self.accepted.append(job.id)
                return
