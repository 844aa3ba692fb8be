"""Dead letters: search, revive, purge, failure groups and gradual revives."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from forebay.domain.gradual_revive import GradualRevive
from forebay.domain.job_states import JobState
from forebay.operations import bulk_actions, gradual_revive
from forebay.operations.failure_groups import failure_groups
from forebay.service.resources.bulk_actions import DEAD, BulkAction, run_bulk
from forebay.service.resources.job_admin import list_matching
from forebay.service.runtime.claim_waiters import ClaimWaiters
from forebay.service.runtime.store_pool import StorePool
from forebay.service.schema.dead_letters import (
    DeadLetterRequest,
    FailureGroupList,
    FailureGroupsRequest,
    GradualReviveList,
    GradualReviveRequest,
    GradualReviveView,
    failure_group_list,
    gradual_revive_view,
)
from forebay.service.schema.job_admin import BulkResponse, SearchRequest
from forebay.service.schema.job_views import JobList
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.revive_options import ReviveOptions
from forebay.stores.contract.store import Store


class DeadLetterResource:
    """Dead letters of the store. The batches of a gradual revive are run by maintenance, on any server."""

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

    async def start_gradual_revive(self, request: GradualReviveRequest, actor: str = "") -> GradualReviveView:
        """Start to revive dead letters in growing batches."""
        query, plan = request.where.query(), request.plan()
        started = await self._pool.run_long(
            lambda store, reader: gradual_revive.start_gradual_revive(
                store, reader, query, group=request.group, plan=plan, actor=actor
            )
        )
        return gradual_revive_view(started)

    async def gradual_revives(self) -> GradualReviveList:
        """Return the active gradual revives and the last ended ones."""
        found = await self._pool.read(gradual_revive.list_gradual_revives)
        return GradualReviveList(gradual_revives=[gradual_revive_view(revive) for revive in found])

    async def gradual_revive(self, name: str) -> GradualReviveView:
        """Return one gradual revive; raises GradualReviveNotFound, like the next three."""
        return gradual_revive_view(
            await self._pool.read(lambda reader: gradual_revive.find_gradual_revive(reader, name))
        )

    async def pause_gradual_revive(self, name: str, actor: str = "") -> GradualReviveView:
        """Start no further batch until it is resumed."""
        return await self._update(
            lambda store, reader: gradual_revive.pause_gradual_revive(store, reader, name, actor=actor)
        )

    async def resume_gradual_revive(self, name: str, actor: str = "") -> GradualReviveView:
        """Resume a gradual revive that was paused or has stopped."""
        return await self._update(
            lambda store, reader: gradual_revive.resume_gradual_revive(store, reader, name, actor=actor)
        )

    async def stop_gradual_revive(self, name: str, actor: str = "") -> GradualReviveView:
        """End a gradual revive; revived jobs stay in their queues."""
        return await self._update(
            lambda store, reader: gradual_revive.stop_gradual_revive(store, reader, name, actor=actor)
        )

    async def _update(self, change: Callable[[Store, Reader], GradualRevive]) -> GradualReviveView:
        # Not `run_long`: a pause or stop must not wait behind bulk actions.
        return gradual_revive_view(
            await self._pool.use(
                lambda client: client.write(lambda store: client.read(lambda reader: change(store, reader)))
            )
        )
