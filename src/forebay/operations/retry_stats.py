"""Statistics of jobs that were retried."""

from __future__ import annotations

from msgspec.structs import replace

from forebay.domain.failure_group import DEFAULT_NEWEST
from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import JobState
from forebay.domain.retry_stats import RetryStats, retry_stats_of
from forebay.operations.failure_groups import check_newest
from forebay.operations.job_search import search_jobs
from forebay.stores.contract.reader import Reader


def retry_stats(reader: Reader, query: JobQuery, newest: int = DEFAULT_NEWEST) -> RetryStats:
    """Return statistics of the `newest` matching jobs that have completed or died."""
    check_newest(newest)
    page = search_jobs(reader, replace(query, states=(JobState.COMPLETED, JobState.DEAD)), newest, None)
    return retry_stats_of(page.jobs, is_complete=page.after is None)
