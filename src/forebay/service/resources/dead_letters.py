"""Dead letters by what they died of, and their way back in batches."""

from __future__ import annotations

from collections.abc import Callable

from forebay.domain.gradual_revive import GradualRevive
from forebay.operations import gradual_revive
from forebay.operations.failure_groups import failure_groups
from forebay.service.runtime.store_pool import StorePool
from forebay.service.schema.dead_letters import (
    FailureGroupList,
    FailureGroupsRequest,
    GradualReviveList,
    GradualReviveRequest,
    GradualReviveView,
    failure_group_list,
    gradual_revive_view,
)
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store


class DeadLetterResource:
    """Failure groups and ramps. Whoever does the duties goes on with a ramp; that need not be this server."""

    def __init__(self, pool: StorePool) -> None:
        self._pool = pool

    async def failure_groups(self, request: FailureGroupsRequest) -> FailureGroupList:
        """The newest dead letters that fit by what they died of."""
        query = request.where.query()
        found = await self._pool.run_long(lambda _, reader: failure_groups(reader, query, request.newest))
        return failure_group_list(found)

    async def start_gradual_revive(self, request: GradualReviveRequest, actor: str = "") -> GradualReviveView:
        """Begin to put dead letters back in batches."""
        query, pace = request.where.query(), request.plan()
        ramp = await self._pool.run_long(
            lambda store, reader: gradual_revive.start_gradual_revive(
                store, reader, query, group=request.group, plan=pace, actor=actor
            )
        )
        return gradual_revive_view(ramp)

    async def gradual_revives(self) -> GradualReviveList:
        """All ramps that are kept."""
        return GradualReviveList(
            gradual_revives=[
                gradual_revive_view(ramp)
                for ramp in await self._pool.read(gradual_revive.list_gradual_revives)
            ]
        )

    async def gradual_revive(self, name: str) -> GradualReviveView:
        """One ramp; raises GradualReviveNotFound, like the next three."""
        return gradual_revive_view(
            await self._pool.read(lambda reader: gradual_revive.find_gradual_revive(reader, name))
        )

    async def pause_gradual_revive(self, name: str, actor: str = "") -> GradualReviveView:
        """Put no more back until it is resumed."""
        return await self._update(
            lambda store, reader: gradual_revive.pause_gradual_revive(store, reader, name, actor=actor)
        )

    async def resume_gradual_revive(self, name: str, actor: str = "") -> GradualReviveView:
        """Go on with one that was paused or has stopped."""
        return await self._update(
            lambda store, reader: gradual_revive.resume_gradual_revive(store, reader, name, actor=actor)
        )

    async def stop_gradual_revive(self, name: str, actor: str = "") -> GradualReviveView:
        """End it; what was put back goes on."""
        return await self._update(
            lambda store, reader: gradual_revive.stop_gradual_revive(store, reader, name, actor=actor)
        )

    async def _update(self, change: Callable[[Store, Reader], GradualRevive]) -> GradualReviveView:
        # Not behind those who go through many jobs: whoever stops a ramp wants it stopped.
        return gradual_revive_view(
            await self._pool.use(
                lambda client: client.write(lambda store: client.read(lambda reader: change(store, reader)))
            )
        )
