"""Bulk actions: count the jobs that match a query, then change them in batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from msgspec.structs import replace

from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import JobState
from forebay.operations.bulk_actions import OnResults
from forebay.operations.job_search import count_jobs
from forebay.service.runtime.claim_waiters import ClaimWaiters
from forebay.service.runtime.store_pool import StorePool
from forebay.service.schema.job_admin import BulkResponse
from forebay.stores.contract.claims_and_results import ActionResult
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store

REVIVABLE: Final = frozenset({JobState.DEAD, JobState.CANCELLED})
DELETABLE: Final = frozenset(JobState) - {JobState.RUNNING}
DEAD: Final = frozenset({JobState.DEAD})


class BulkAction(Protocol):
    """Change to all jobs that match a query. Reports the results of each batch and returns how many jobs it
    changed."""

    def __call__(self, store: Store, reader: Reader, query: JobQuery, *, on_results: OnResults) -> int: ...


async def run_bulk(
    pool: StorePool,
    claim_waiters: ClaimWaiters,
    action: BulkAction,
    allowed: frozenset[JobState],
    query: JobQuery,
    *,
    dry_run: bool,
    group: str | None = None,
) -> BulkResponse:
    """Run an action on the matching jobs in the `allowed` states; only count them with `dry_run`.

    The change of each job is atomic, the whole is not: an interrupted action can be requested again.
    """
    states = tuple(state for state in query.states or JobState if state in allowed)
    if not states:
        return BulkResponse(matched=0, matched_is_exact=True, affected=0, dry_run=dry_run, busy=0)
    narrow = replace(query, states=states)
    if group is None:
        matched, is_exact = await pool.read(lambda reader: count_jobs(reader, narrow))
    else:  # counting a group scans all dead letters, which must not delay other reads
        matched, is_exact = await pool.run_long(lambda _, reader: count_jobs(reader, narrow, group))
    affected, busy = 0, 0
    if (matched or not is_exact) and not dry_run:
        affected, busy = await pool.run_long(lambda store, reader: _run_action(action, store, reader, narrow))
        claim_waiters.wake()
    return BulkResponse(
        matched=matched, matched_is_exact=is_exact, affected=affected, dry_run=dry_run, busy=busy
    )


def _run_action(action: BulkAction, store: Store, reader: Reader, query: JobQuery) -> tuple[int, int]:
    """Return how many jobs were changed, and how many another transaction holds."""
    busy = 0

    def count_busy(results: Sequence[ActionResult]) -> None:
        nonlocal busy
        busy += sum(result.is_busy for result in results)

    return action(store, reader, query, on_results=count_busy), busy
