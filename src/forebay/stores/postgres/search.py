"""Job search: choice of an index and bounded scans of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from forebay.domain.job_query import JobQuery, Page
from forebay.domain.job_states import LIVE, JobState
from forebay.stores.postgres.transaction import QueryRunner
from forebay.stores.shared.rows import json_text, summary_from_row

Span = Mapping[str, Any]

ROWS_PER_SCAN: Final = 10_000
# Jobs with the wanted texts that are sorted at most; if there are more, a list is scanned.
MAX_HASHED: Final = 20_000
# Texts of so many jobs in one scan are common: finding all of these jobs would take longer than more scans.
COMMON_HASHED: Final = 100
# The order of seqs may differ from that of times: for concurrent inserts, or after a clock was set.
CLOCK_MS: Final = 60_000
_FINISHED: Final = frozenset({JobState.COMPLETED, JobState.CANCELLED})
_TABLES: Final = (("live", LIVE), ("finished", _FINISHED), ("dead", frozenset({JobState.DEAD})))
_IDS: Final = ("idempotency_key", "correlation_id", "parent_id")


def search(runner: QueryRunner, query: JobQuery, limit: int, after: int | None) -> Page:
    """Scan the shortest list that has all matching jobs.

    Any list soon yields jobs with common texts, whatever the other conditions are. Only for rare texts all
    jobs that have them are found by their hashes and sorted.
    """
    runner.all("search_planning", {})
    span = {"locations": _tables_of(query.states), **_span(runner, query, after)}
    page = _scan_list(runner, query, limit, span)
    if page.scanned_back_to is None or not (texts := list(_hashed_texts(query))):
        return page
    if _has_common_texts(runner, query, page, span):
        return page
    rows = runner.all("search_hashes", {**span, "texts": texts, "limit": MAX_HASHED + 1})
    if len(rows) > MAX_HASHED:
        return page
    return _search_hashed(runner, query, limit, span, sorted((seq for (seq,) in rows), reverse=True))


def _has_common_texts(runner: QueryRunner, query: JobQuery, page: Page, span: Span) -> bool:
    by_texts = JobQuery(
        queues=query.queues,
        tasks=query.tasks,
        states=query.states,
        unique_key=query.unique_key,
        tags=query.tags,
        **{name: getattr(query, name) for name in _IDS},
    )
    found = page if by_texts == query else _scan_list(runner, by_texts, COMMON_HASHED, span)
    return len(found.jobs) >= COMMON_HASHED


def _scan_list(runner: QueryRunner, query: JobQuery, limit: int, span: Span) -> Page:
    """Return the matching jobs among the newest of a list."""
    chosen = _list_of(query)
    [(first, last)] = runner.all("search_window", {**span, **chosen, "rows": ROWS_PER_SCAN - 1})
    bounds = {"queue": chosen["queue"], "task": chosen["task"], "first": first, "seqs": None}
    return _load_page(runner, {**_conditions(query), **span, **bounds}, limit, last)


def _search_hashed(
    runner: QueryRunner, query: JobQuery, limit: int, span: Span, hashed: Sequence[int]
) -> Page:
    """Return the matching jobs among these final ones, and among the newest live ones."""
    seqs = list(hashed[:ROWS_PER_SCAN])
    live = {**span, "locations": [location for location in span["locations"] if location == "live"]}
    [(_, until)] = runner.all("search_window", {**live, **_list_of(JobQuery()), "rows": ROWS_PER_SCAN - 1})
    if len(hashed) > len(seqs):
        until = max(until or 0, seqs[-1])
    bounds = {"queue": None, "task": None, "first": seqs[0] if seqs else None, "seqs": seqs}
    return _load_page(runner, {**_conditions(query), **span, **bounds}, limit, until)


def _load_page(runner: QueryRunner, params: Mapping[str, Any], limit: int, until: int | None) -> Page:
    rows = runner.all(
        "search", {**params, "until": params["since"] if until is None else until, "limit": limit}
    )
    jobs = tuple(summary_from_row(row) for row in rows)
    if len(rows) == limit:
        return Page(jobs=jobs, after=str(rows[-1][-1]))
    if until is None:
        return Page(jobs=jobs)
    [(reached,)] = runner.all("search_reached", {"seq": until})
    return Page(jobs=jobs, after=str(until), scanned_back_to=reached)


def _tables_of(states: Sequence[JobState]) -> list[str]:
    """Return the tables in which jobs of these states can be."""
    wanted = set(states or JobState)
    return [location for location, states_inside in _TABLES if wanted & states_inside]


def _span(runner: QueryRunner, query: JobQuery, after: int | None) -> dict[str, int | None]:
    """Return times as seqs of jobs, since all lists are in the order of seq."""
    since = None
    if query.created_from is not None:
        [(before,)] = runner.all("search_moment", {"moment": query.created_from - CLOCK_MS})
        since = before + 1
    if query.created_before is not None:
        [(last,)] = runner.all("search_moment", {"moment": query.created_before + CLOCK_MS})
        after = last + 1 if after is None else min(after, last + 1)
    return {"since": since, "after": after}


def _hashed_texts(query: JobQuery) -> Iterator[str]:
    yield from (f"tags {tag}" for tag in query.tags)
    yield from (f"{name} {value}" for name in _IDS if (value := getattr(query, name)) is not None)


def _list_of(query: JobQuery) -> dict[str, object]:
    """Return the list to scan: of a key, a task, a queue, cancelled jobs, or all."""
    task, queue = _only(query.tasks), _only(query.queues)
    chosen: dict[str, object] = {"unique_key": None, "task": None, "queue": None, "cancelled": False}
    if query.unique_key is not None:
        return {**chosen, "unique_key": query.unique_key}
    if task is not None:
        return {**chosen, "task": task}
    if queue is not None:
        return {**chosen, "queue": queue}
    return {**chosen, "cancelled": query.states == (JobState.CANCELLED,)}


def _only(values: Sequence[str]) -> str | None:
    return values[0] if len(values) == 1 else None


def _conditions(query: JobQuery) -> dict[str, object]:
    metadata = dict(query.metadata)
    return {
        "states": [state.value for state in query.states] or None,
        "queues": list(query.queues) or None,
        "tasks": list(query.tasks) or None,
        "priority_from": query.priority_from,
        "priority_to": query.priority_to,
        "created_from": query.created_from,
        "created_before": query.created_before,
        "finished_before": query.finished_before,
        "unique_key": query.unique_key,
        "idempotency_key": query.idempotency_key,
        "correlation_id": query.correlation_id,
        "parent_id": query.parent_id,
        "tags": list(query.tags) or None,
        "metadata_keys": list(metadata) or None,
        "metadata_values": [json_text(value) for value in metadata.values()] or None,
        "in_options": bool(query.tags or metadata or any(getattr(query, name) is not None for name in _IDS)),
        "text": query.text,
    }
