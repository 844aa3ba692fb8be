"""Lists of jobs that fit a filter, and how many there are."""

from __future__ import annotations

from msgspec.structs import replace

from forebay.domain.job import JobSummary
from forebay.domain.lifecycle import JobState
from forebay.domain.query import EXACT_UP_TO, MAX_PAGE, JobQuery, Page
from forebay.stores.protocol import Reader


def counted(reader: Reader, query: JobQuery) -> tuple[int, bool]:
    """How many jobs fit, and whether that is exact: beyond ten thousand it is "more than" that."""
    if replace(query, queues=(), states=()) == JobQuery():
        return _maintained(reader, query), True
    count, after, is_over = 0, None, False
    while not is_over and count <= EXACT_UP_TO:
        page = reader.search(query, limit=MAX_PAGE, after=after)
        count, after, is_over = count + len(page.jobs), page.after, page.after is None
    return (count, True) if is_over else (EXACT_UP_TO, False)


def _maintained(reader: Reader, query: JobQuery) -> int:
    # Without names all queues are meant, and the counters of dropped ones count too.
    by_queue = reader.counts(query.queues).values()
    return sum(getattr(counts, state) for counts in by_queue for state in query.states or JobState)


def listed(reader: Reader, query: JobQuery, limit: int, after: str | None) -> Page:
    """Up to `limit` jobs; a store's page may be short of that and still have a next one."""
    found: list[JobSummary] = []
    while True:
        page = reader.search(query, limit=min(limit - len(found), MAX_PAGE), after=after)
        found += page.jobs
        after = page.after
        if after is None or len(found) >= limit:
            return Page(jobs=tuple(found), after=after)
