"""Lists of jobs that fit a filter, and how many there are."""

from __future__ import annotations

from msgspec.structs import replace

from forebay.domain.failure_group import MAX_NEWEST
from forebay.domain.job import JobSummary
from forebay.domain.lifecycle import JobState
from forebay.domain.query import EXACT_UP_TO, MAX_PAGE, JobQuery, Page
from forebay.operations.failure_groups import MAX_SEARCHES, filter_by_group, restrict_to_dead
from forebay.stores.contract.reader import Reader


def count_jobs(reader: Reader, query: JobQuery, group: str | None = None) -> tuple[int, bool]:
    """How many jobs fit, and whether that is exact: it is "at least" that beyond ten thousand, and where so
    many jobs did not fit that the search has stopped. Those of a failure group are looked for among the
    newest hundred thousand."""
    if group is not None:
        return _count_in_group(reader, query, group)
    if replace(query, queues=(), states=()) == JobQuery():
        return _sum_counters(reader, query), True
    count, after, looks = 0, None, 0
    while count <= EXACT_UP_TO and looks < MAX_SEARCHES:
        page = reader.search(query, limit=MAX_PAGE, after=after)
        count, after, looks = count + len(page.jobs), page.after, looks + (page.scanned_back_to is not None)
        if after is None:
            return (count, True) if count <= EXACT_UP_TO else (EXACT_UP_TO, False)
    return min(count, EXACT_UP_TO), False


def _count_in_group(reader: Reader, query: JobQuery, group: str) -> tuple[int, bool]:
    dead, count, looked, looks, after = restrict_to_dead(query), 0, 0, 0, None
    while True:
        page = reader.search(dead, limit=MAX_PAGE, after=after)
        count, looked = (
            count + sum(1 for _ in filter_by_group(reader, page.jobs, group)),
            looked + len(page.jobs),
        )
        after, looks = page.after, looks + (page.scanned_back_to is not None)
        if after is None or looks == MAX_SEARCHES or looked >= MAX_NEWEST or count > EXACT_UP_TO:
            return min(count, EXACT_UP_TO), after is None and count <= EXACT_UP_TO


def _sum_counters(reader: Reader, query: JobQuery) -> int:
    # Without names all queues are meant, and the counters of dropped ones count too.
    by_queue = reader.counts(query.queues).values()
    return sum(getattr(counts, state) for counts in by_queue for state in query.states or JobState)


def search_jobs(reader: Reader, query: JobQuery, limit: int, after: str | None) -> Page:
    """Up to `limit` jobs. A store's page may be short of that and still have a next one, and so may this one
    be, where so many jobs did not fit that the search has stopped."""
    found: list[JobSummary] = []
    looks = 0
    while True:
        page = reader.search(query, limit=min(limit - len(found), MAX_PAGE), after=after)
        found += page.jobs
        after, looks = page.after, looks + (page.scanned_back_to is not None)
        if after is None or len(found) >= limit or looks == MAX_SEARCHES:
            return Page(jobs=tuple(found), after=after, scanned_back_to=page.scanned_back_to)
