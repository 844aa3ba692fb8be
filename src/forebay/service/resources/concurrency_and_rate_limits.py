"""Limits: definitions and usage."""

from __future__ import annotations

from forebay.operations.limit_status import limit_statuses
from forebay.service.runtime.claim_waiters import ClaimWaiters
from forebay.service.runtime.store_pool import StorePool
from forebay.service.schema.base import ChangeResponse
from forebay.service.schema.concurrency_and_rate_limits import (
    LimitList,
    LimitRequest,
    LimitView,
    limit_usage_view,
    limit_view,
)


class LimitResource:
    """Concurrency and rate limits of the store, by scope."""

    def __init__(self, pool: StorePool, claim_waiters: ClaimWaiters) -> None:
        self._pool = pool
        self._claim_waiters = claim_waiters

    async def limits(self) -> LimitList:
        """Return all limits with their usage, by scope."""
        found = await self._pool.read(limit_statuses)
        return LimitList(limits=[limit_usage_view(status) for status in found])

    async def set_limit(self, request: LimitRequest, actor: str = "") -> LimitView:
        """Set the limit of a scope, in place of an existing one."""
        limit = request.limit()
        await self._pool.write(lambda store: store.save_limit(limit, actor=actor))
        self._claim_waiters.wake()
        return limit_view(limit)

    async def remove_limit(self, scope: str, actor: str = "") -> ChangeResponse:
        """Remove the limit of a scope, if there is one."""
        applied = await self._pool.write(lambda store: store.drop_limit(scope, actor=actor))
        self._claim_waiters.wake()
        return ChangeResponse(applied=applied)
