"""Dead letters: search, revive, purge and failure groups."""

from __future__ import annotations

from functools import partial

from forebay.domain.job_states import JobState
from forebay.operations import bulk_actions
from forebay.operations.failure_groups import failure_groups
from forebay.service.resources.bulk_actions import DEAD, BulkAction, run_bulk
from forebay.service.resources.job_reads import list_matching
from forebay.service.runtime.claim_waiters import ClaimWaiters
from forebay.service.runtime.store_pool import StorePool
from forebay.service.schema.dead_letters import (
    DeadLetterRequest,
    FailureGroupList,
    FailureGroupsRequest,
    failure_group_list,
)
from forebay.service.schema.job_admin import BulkResponse
from forebay.service.schema.job_filter import SearchRequest
from forebay.service.schema.job_views import JobList
from forebay.stores.contract.revive_options import ReviveOptions


class DeadLetterResource:
    """Dead letters of the store."""

    def __init__(self, pool: StorePool, claim_waiters: ClaimWaiters) -> None:
        self._pool = pool
        self._claim_waiters = claim_waiters

    async def dead_letters(self, request: SearchRequest) -> JobList:
        """Return matching dead letters, newest first."""
        return await list_matching(self._pool, request.where.query(states=(JobState.DEAD,)), request)

    async def revive_dead(self, request: DeadLetterRequest, actor: str = "") -> BulkResponse:
        """Revive matching dead letters."""
        options = ReviveOptions(actor=actor)
        return await self._run_bulk(
            partial(bulk_actions.revive_matching, options=options, group=request.group), request
        )

    async def purge_dead(self, request: DeadLetterRequest, actor: str = "") -> BulkResponse:
        """Delete matching dead letters."""
        return await self._run_bulk(partial(bulk_actions.purge, actor=actor, group=request.group), request)

    async def _run_bulk(self, action: BulkAction, request: DeadLetterRequest) -> BulkResponse:
        return await run_bulk(
            self._pool,
            self._claim_waiters,
            action,
            DEAD,
            request.where.query(),
            dry_run=request.dry_run,
            group=request.group,
        )

    async def failure_groups(self, request: FailureGroupsRequest) -> FailureGroupList:
        """Return the newest matching dead letters, grouped by error."""
        query = request.where.query()
        found = await self._pool.run_long(lambda _, reader: failure_groups(reader, query, request.newest))
        return failure_group_list(found)
