"""Search pages and counts of jobs that match a query."""

from __future__ import annotations

from msgspec.structs import replace

from forebay.domain.failure_group import MAX_NEWEST
from forebay.domain.job_query import EXACT_UP_TO, MAX_PAGE, JobQuery, Page
from forebay.domain.job_states import JobState
from forebay.domain.job_views import JobSummary
from forebay.operations.failure_groups import MAX_SEARCHES, filter_by_group, restrict_to_dead
from forebay.stores.contract.reader import Reader


def count_jobs(reader: Reader, query: JobQuery, group: str | None = None) -> tuple[int, bool]:
    """Return how many jobs match, and whether that number is exact.

    It is a lower bound beyond ten thousand, and if the search was cut short because few jobs match. Jobs of a
    failure group are searched among the newest hundred thousand.
    """
    if group is not None:
        return _count_in_group(reader, query, group)
    if replace(query, queues=(), states=()) == JobQuery():
        return _sum_counters(reader, query), True
    count, after, scans = 0, None, 0
    while count <= EXACT_UP_TO and scans < MAX_SEARCHES:
        page = reader.search(query, limit=MAX_PAGE, after=after)
        count, after, scans = count + len(page.jobs), page.after, scans + (page.scanned_back_to is not None)
        if after is None:
            return (count, True) if count <= EXACT_UP_TO else (EXACT_UP_TO, False)
    return min(count, EXACT_UP_TO), False


def _count_in_group(reader: Reader, query: JobQuery, group: str) -> tuple[int, bool]:
    dead, count, scanned, scans, after = restrict_to_dead(query), 0, 0, 0, None
    while True:
        page = reader.search(dead, limit=MAX_PAGE, after=after)
        count += sum(1 for _ in filter_by_group(reader, page.jobs, group))
        scanned += len(page.jobs)
        after, scans = page.after, scans + (page.scanned_back_to is not None)
        if after is None or scans == MAX_SEARCHES or scanned >= MAX_NEWEST or count > EXACT_UP_TO:
            return min(count, EXACT_UP_TO), after is None and count <= EXACT_UP_TO


def _sum_counters(reader: Reader, query: JobQuery) -> int:
    # Without names all queues are meant, also the counters of dropped ones.
    by_queue = reader.counts(query.queues).values()
    return sum(getattr(counts, state) for counts in by_queue for state in query.states or JobState)


def search_jobs(reader: Reader, query: JobQuery, limit: int, after: str | None) -> Page:
    """Return up to `limit` jobs. A page may be short and still have a next one: a store ends a page after a
    bounded scan, and so does this function."""
    jobs: list[JobSummary] = []
    scans = 0
    while True:
        page = reader.search(query, limit=min(limit - len(jobs), MAX_PAGE), after=after)
        jobs += page.jobs
        after, scans = page.after, scans + (page.scanned_back_to is not None)
        if after is None or len(jobs) >= limit or scans == MAX_SEARCHES:
            return Page(jobs=tuple(jobs), after=after, scanned_back_to=page.scanned_back_to)
