"""Bulk operations: actions on all jobs that match a query, in batches, with progress.

The action on each job is atomic, the operation is not. An interrupted operation has done a part, and can be
repeated. It walks through the jobs once, from the newest to the oldest, so it ends although new jobs arrive.
It counts applied actions only: a job that has changed since it was read refuses its action.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from forebay.domain.failure_group import check_group
from forebay.domain.job import JobId, QueueName
from forebay.domain.job_query import MAX_PAGE, JobQuery
from forebay.domain.job_states import LIVE, JobState
from forebay.operations.failure_groups import filter_by_group
from forebay.stores.contract.claims_and_results import ActionResult
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.revive_options import REVIVE_NOW, ReviveOptions
from forebay.stores.contract.store import Store

Progress: TypeAlias = Callable[[int], None]
OnResults: TypeAlias = Callable[[Sequence[ActionResult]], None]

_DELETABLE = frozenset(JobState) - {JobState.RUNNING}
_REVIVABLE = frozenset({JobState.DEAD, JobState.CANCELLED})


def _ignore_progress(count: int) -> None:
    pass


def _ignore_results(results: Sequence[ActionResult]) -> None:
    pass


def purge(
    store: Store,
    reader: Reader,
    query: JobQuery,
    *,
    group: str | None = None,
    actor: str = "",
    progress: Progress = _ignore_progress,
    on_results: OnResults = _ignore_results,
) -> int:
    """Delete the matching jobs, except running ones; return how many. With `group` only dead letters of that
    failure group.

    `progress` is called with the number so far after each batch, and `on_results` with the results of each
    batch.
    """

    def delete(ids: Sequence[JobId]) -> list[ActionResult]:
        results = store.delete(ids, actor=actor)
        on_results(results)
        return results

    return _apply_in_batches(reader, query, _DELETABLE, delete, progress, group)


def revive_matching(
    store: Store,
    reader: Reader,
    query: JobQuery,
    *,
    group: str | None = None,
    options: ReviveOptions = REVIVE_NOW,
    progress: Progress = _ignore_progress,
    on_results: OnResults = _ignore_results,
) -> int:
    """Revive the matching dead and cancelled jobs; return how many. With `group` only dead letters of that
    failure group. `on_results` is called with the results of each batch."""

    def revive(ids: Sequence[JobId]) -> list[ActionResult]:
        results = store.revive(ids, **options._asdict())
        on_results(results)
        return results

    return _apply_in_batches(reader, query, _REVIVABLE, revive, progress, group)


def cancel_matching(
    store: Store,
    reader: Reader,
    query: JobQuery,
    *,
    reason: str = "cancelled",
    actor: str = "",
    progress: Progress = _ignore_progress,
    on_results: OnResults = _ignore_results,
) -> int:
    """Cancel the matching live jobs; return how many. Running jobs are asked to stop, and count. `on_results`
    is called with the results of each batch, which tell them apart."""

    def cancel(ids: Sequence[JobId]) -> list[ActionResult]:
        results = store.cancel(ids, reason, actor=actor)
        on_results(results)
        return results

    return _apply_in_batches(reader, query, LIVE, cancel, progress)


def drop_queue(
    store: Store,
    name: QueueName,
    *,
    force: bool = False,
    actor: str = "",
    progress: Progress = _ignore_progress,
) -> None:
    """Close a queue for good and, with `force`, move all its waiting jobs to the dead letters.

    `progress` is called with the number of jobs left after each batch. The operation ends when a batch does
    not reduce that number: the sweep moves jobs that running jobs still add to the queue.
    """
    left = store.drop_queue(name, force=force, actor=actor)
    progress(left)
    before = left + 1
    while 0 < left < before:
        before, left = left, store.drop_queue(name, force=force, actor=actor)
        progress(left)


def _apply_in_batches(
    reader: Reader,
    query: JobQuery,
    allowed: frozenset[JobState],
    action: Callable[[Sequence[JobId]], list[ActionResult]],
    progress: Progress,
    group: str | None = None,
) -> int:
    if group is not None:
        check_group(group)
        allowed &= {JobState.DEAD}
    states = tuple(state for state in query.states or JobState if state in allowed)
    if not states:
        # To a reader an empty tuple means every state.
        return 0
    matching, applied, after, is_finished = replace(query, states=states), 0, None, False
    while not is_finished:
        page = reader.search(matching, limit=MAX_PAGE, after=after)
        ids = (
            [info.id for info in filter_by_group(reader, page.jobs, group)]
            if group
            else [job.id for job in page.jobs]
        )
        if ids:
            applied += sum(result.applied for result in action(ids))
            progress(applied)
        after, is_finished = page.after, page.after is None
    return applied
