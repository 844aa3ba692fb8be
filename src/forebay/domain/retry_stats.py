"""Statistics of jobs that were retried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from forebay.domain.failure_fingerprint import normalize_reason
from forebay.domain.failure_group import COMMON_ERRORS
from forebay.domain.job_states import JobState
from forebay.domain.job_views import JobSummary


class RetryStats(msgspec.Struct, frozen=True, kw_only=True):
    """Retry statistics of completed and dead jobs: `retried` of them had failed before their end, and
    `recovered` of these have completed. `errors` are the errors of the dead ones, the most common first."""

    jobs: int
    retried: int
    recovered: int
    dead: int
    attempts: int
    errors: dict[str, int]
    is_complete: bool

    @property
    def success_rate(self) -> float | None:
        """Return the ratio of completed jobs among those that had failed; None if there were none."""
        return self.recovered / self.retried if self.retried else None

    @property
    def average_attempts(self) -> float | None:
        return self.attempts / self.jobs if self.jobs else None


def retry_stats_of(jobs: Sequence[JobSummary], *, is_complete: bool) -> RetryStats:
    """Return the statistics of these jobs, which have all completed or died."""
    failed = [job for job in jobs if job.failures]
    dead = [job for job in jobs if job.state is JobState.DEAD]
    errors = Counter(normalize_reason(job.reason or "") for job in dead)
    return RetryStats(
        jobs=len(jobs),
        retried=len(failed),
        recovered=sum(job.state is JobState.COMPLETED for job in failed),
        dead=len(dead),
        attempts=sum(job.attempt for job in jobs),
        errors=dict(errors.most_common(COMMON_ERRORS)),
        is_complete=is_complete,
    )
