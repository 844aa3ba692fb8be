"""Gradual revives of dead letters: start, list, pause, resume and stop."""

from __future__ import annotations

from collections.abc import Callable

from forebay.domain.gradual_revive import GradualRevive
from forebay.operations import gradual_revive
from forebay.service.runtime.store_pool import StorePool
from forebay.service.schema.gradual_revives import (
    GradualReviveList,
    GradualReviveRequest,
    GradualReviveView,
    gradual_revive_view,
)
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store


class GradualReviveResource:
    """Gradual revives of the store. Maintenance runs their batches, on any server."""

    def __init__(self, pool: StorePool) -> None:
        self._pool = pool

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
