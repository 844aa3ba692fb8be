"""Searches in a PostgreSQL store: which list is gone through, and how far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from forebay.domain.lifecycle import LIVE, JobState
from forebay.domain.query import JobQuery, Page
from forebay.stores.postgres.transaction import QueryRunner
from forebay.stores.shared.rows import json_text, summary_from_row

Span = Mapping[str, Any]

ROWS_PER_SCAN: Final = 10_000
# So many jobs with the marks that are wanted can be put in order; if there are more, a list is gone through.
MAX_MARKED: Final = 20_000
# Marks of so many jobs in one look are common: finding all that have them would take longer than going on.
COMMON_MARKED: Final = 100
# Numbers may tell another order than times: of jobs that came at once, or while a clock was set.
CLOCK_MS: Final = 60_000
_FINISHED: Final = frozenset({JobState.COMPLETED, JobState.CANCELLED})
_TABLES: Final = (("live", LIVE), ("finished", _FINISHED), ("dead", frozenset({JobState.DEAD})))
_IDS: Final = ("idempotency_key", "correlation_id", "parent_id")


def search(runner: QueryRunner, query: JobQuery, limit: int, after: int | None) -> Page:
    """One look through the shortest list in which all jobs that fit must be.

    Marks that many jobs have are soon met on any list, whatever else is asked of these jobs. Only where they
    are not, all jobs that have them are looked up and put in order.
    """
    runner.all("search_planning", {})
    span = {"locations": _tables_of(query.states), **_span(runner, query, after)}
    page = _scan_list(runner, query, limit, span)
    if page.scanned_back_to is None or not (marks := list(_marks(query))):
        return page
    if _is_soon_met(runner, query, page, span):
        return page
    rows = runner.all("search_hashes", {**span, "texts": marks, "limit": MAX_MARKED + 1})
    if len(rows) > MAX_MARKED:
        return page
    return _search_marked(runner, query, limit, span, sorted((seq for (seq,) in rows), reverse=True))


def _is_soon_met(runner: QueryRunner, query: JobQuery, page: Page, span: Span) -> bool:
    marked = JobQuery(
        queues=query.queues,
        tasks=query.tasks,
        states=query.states,
        unique_key=query.unique_key,
        tags=query.tags,
        **{name: getattr(query, name) for name in _IDS},
    )
    met = page if marked == query else _scan_list(runner, marked, COMMON_MARKED, span)
    return len(met.jobs) >= COMMON_MARKED


def _scan_list(runner: QueryRunner, query: JobQuery, limit: int, span: Span) -> Page:
    """What fits among the newest jobs of a list."""
    chosen = _list_of(query)
    [(first, until)] = runner.all("search_window", {**span, **chosen, "rows": ROWS_PER_SCAN - 1})
    narrow = {"queue": chosen["queue"], "task": chosen["task"], "first": first, "seqs": None}
    return _load_page(runner, {**_conditions(query), **span, **narrow}, limit, until)


def _search_marked(
    runner: QueryRunner, query: JobQuery, limit: int, span: Span, marked: Sequence[int]
) -> Page:
    """What fits among these ended jobs, and among the newest live ones."""
    seqs = list(marked[:ROWS_PER_SCAN])
    live = {**span, "locations": [place for place in span["locations"] if place == "live"]}
    [(_, until)] = runner.all("search_window", {**live, **_list_of(JobQuery()), "rows": ROWS_PER_SCAN - 1})
    if len(marked) > len(seqs):
        until = max(until or 0, seqs[-1])
    narrow = {"queue": None, "task": None, "first": seqs[0] if seqs else None, "seqs": seqs}
    return _load_page(runner, {**_conditions(query), **span, **narrow}, limit, until)


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
    """The tables in which jobs of these states can be."""
    wanted = set(states or JobState)
    return [place for place, inside in _TABLES if wanted & inside]


def _span(runner: QueryRunner, query: JobQuery, after: int | None) -> dict[str, int | None]:
    """Times as numbers of jobs, since all lists are in the order of these."""
    since = None
    if query.created_from is not None:
        [(before,)] = runner.all("search_moment", {"moment": query.created_from - CLOCK_MS})
        since = before + 1
    if query.created_before is not None:
        [(last,)] = runner.all("search_moment", {"moment": query.created_before + CLOCK_MS})
        after = last + 1 if after is None else min(after, last + 1)
    return {"since": since, "after": after}


def _marks(query: JobQuery) -> Iterator[str]:
    yield from (f"tags {tag}" for tag in query.tags)
    yield from (f"{name} {value}" for name in _IDS if (value := getattr(query, name)) is not None)


def _list_of(query: JobQuery) -> dict[str, object]:
    """The one list to go through: of a key, of a task, of a queue, of cancelled jobs, or of all."""
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
