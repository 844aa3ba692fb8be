"""Failure groups: dead letters grouped by error, computed on request from the newest ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from forebay.domain.failure_fingerprint import may_belong_to
from forebay.domain.failure_group import DEFAULT_NEWEST, MAX_NEWEST, FailureGrouper, FailureGroups, group_of
from forebay.domain.job_query import MAX_PAGE, JobQuery
from forebay.domain.job_states import JobState
from forebay.domain.job_views import JobStateInfo, JobSummary
from forebay.errors import ConfigError
from forebay.stores.contract.reader import Reader

# Engines read whole jobs, and a payload may have a megabyte.
STATES_BATCH: Final = 100
# A store scans ten thousand jobs for a page, so an answer scans at most a hundred thousand.
MAX_SEARCHES: Final = 10


def failure_groups(reader: Reader, query: JobQuery, newest: int = DEFAULT_NEWEST) -> FailureGroups:
    """Return the `newest` matching dead letters, grouped by error, the largest group first. If few match, the
    search ends after a bounded scan."""
    check_newest(newest)
    dead, grouper, after, scans = restrict_to_dead(query), FailureGrouper(), None, 0
    while True:
        page = reader.search(dead, limit=min(MAX_PAGE, newest - grouper.jobs), after=after)
        for info in load_states(reader, page.jobs):
            grouper.add(info)
        after, scans = page.after, scans + (page.scanned_back_to is not None)
        if after is None or grouper.jobs >= newest or scans == MAX_SEARCHES:
            return grouper.build_groups(is_complete=after is None)


def check_newest(newest: int) -> None:
    """Raise ConfigError unless `newest` is within the bounds."""
    if not 1 <= newest <= MAX_NEWEST:
        raise ConfigError(f"newest must be from 1 to {MAX_NEWEST:,} jobs, not {newest:,}")


def restrict_to_dead(query: JobQuery) -> JobQuery:
    """Return the query restricted to dead letters."""
    return replace(query, states=(JobState.DEAD,))


def load_states(reader: Reader, jobs: Sequence[JobSummary]) -> Iterator[JobStateInfo]:
    """Return the states of these jobs; those that are no longer dead are left out."""
    for first in range(0, len(jobs), STATES_BATCH):
        ids = [job.id for job in jobs[first : first + STATES_BATCH]]
        for info in reader.job_states(ids):
            if info is not None and info.state is JobState.DEAD:
                yield info


def filter_by_group(reader: Reader, jobs: Sequence[JobSummary], group: str) -> Iterator[JobStateInfo]:
    """Return the jobs of a failure group. Only those with a matching reason are read in full."""
    candidates = [job for job in jobs if may_belong_to(group, job.reason)]
    return (info for info in load_states(reader, candidates) if group_of(info) == group)
