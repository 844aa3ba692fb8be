"""Pauses between the polls of a job, up to a time-out."""

from __future__ import annotations

import time
from typing import Final

from forebay.domain.durations_and_instants import Duration, duration_ms
from forebay.domain.job import Job
from forebay.errors import WaitTimeout

FIRST_POLL_SECONDS: Final = 0.001
MAX_POLL_SECONDS: Final = 0.25


class PollBackoff:
    """Pauses between polls: 1, 2, 4 ... 250 ms, cut at the time-out."""

    def __init__(self, timeout: Duration | None) -> None:
        self._timeout = None if timeout is None else duration_ms("timeout", timeout) / 1_000
        self._ends_at = None if self._timeout is None else time.monotonic() + self._timeout
        self._next_pause = FIRST_POLL_SECONDS

    @property
    def is_single_poll(self) -> bool:
        return self._timeout == 0

    def next_pause(self, job: Job, text: str = "it goes on") -> float:
        """Return the pause before the next poll of a job that is not final; raise WaitTimeout at the
        time-out."""
        left = (
            self._next_pause
            if self._ends_at is None
            else min(self._next_pause, self._ends_at - time.monotonic())
        )
        if left <= 0:
            raise WaitTimeout(
                f"job {job.id} is {job.state} after {self._timeout:g} s; {text}",
                job_id=job.id,
                state=job.state.value,
            )
        self._next_pause = min(self._next_pause * 2, MAX_POLL_SECONDS)
        return left
